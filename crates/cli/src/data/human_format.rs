//! Formats times, sizes and tables for people.

use std::io::{self, Write};

use jiff::Timestamp;
use unbroken_mqtt_proto::Escaped;

/// A time of the store as ISO 8601 in UTC; the number itself if there is no such time.
pub(crate) fn time(ms: u64) -> String {
    let at = i64::try_from(ms).ok().map(Timestamp::from_millisecond);
    at.and_then(Result::ok)
        .map_or_else(|| ms.to_string(), |at| at.to_string())
}

/// A length of time in its largest unit, rounded down: `3 d`, `2 h`, `59 s`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A number of bytes in its largest unit, with one digit behind the point.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    // In tenths, so that no digit is made up.
    let mut tenths = bytes.saturating_mul(10) / 1_024;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while tenths >= 10_240
        && let Some(larger) = units.next()
    {
        tenths /= 1_024;
        unit = Some(larger);
    }
    let unit = unit.unwrap_or(&"PiB");
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// A client id or topic on one line of a terminal, whatever characters it has.
pub(crate) fn shown(text: &str) -> String {
    let escaped = Escaped::new(text).to_string();
    if escaped.is_empty() || escaped != text {
        format!("\"{escaped}\"")
    } else {
        escaped
    }
}

/// Rows under a line of titles, each column as wide as it must be.
pub(crate) fn table<const N: usize>(
    out: &mut dyn Write,
    titles: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let titles = titles.map(str::to_owned);
    let all = || std::iter::once(&titles).chain(rows);
    let widths: [usize; N] = std::array::from_fn(|column| {
        let width = |row: &[String; N]| row[column].chars().count();
        all().map(width).max().unwrap_or(0)
    });
    for row in all() {
        let mut line = String::new();
        for (text, width) in row.iter().zip(widths) {
            line.push_str(text);
            let padding = width - text.chars().count();
            line.extend(std::iter::repeat_n(' ', padding + 2));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_printed_in_their_largest_unit() {
        for (ms, told) in [
            (999, "0 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (7_199_000, "1 h"),
            (u64::MAX, "213503982334 d"),
        ] {
            assert_eq!(span(ms), told);
        }
        for (bytes, told) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_048_575, "1023.9 KiB"),
            (64 << 20, "64.0 MiB"),
            (u64::MAX, "1638.3 PiB"),
        ] {
            assert_eq!(size(bytes), told);
        }
        assert_eq!(time(1_790_000_000_123), "2026-09-21T14:13:20.123Z");
        assert_eq!(time(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn a_name_cannot_write_over_the_terminal() {
        assert_eq!(shown("sensor 7/ä"), "sensor 7/ä");
        assert_eq!(shown("a\x1b[2J"), "\"a\\u{1b}[2J\"");
        assert_eq!(shown(""), "\"\"");
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let mut out = Vec::new();
        let rows = [["a".into(), "1".into()], ["bcd".into(), String::new()]];
        table(&mut out, ["ID", "N"], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "ID   N\na    1\nbcd\n");
    }
}
