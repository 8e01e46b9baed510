//! Edge tuples, and files of them: a line for each, two vertex numbers in decimal with a blank
//! between them. Empty lines and lines that begin with `#` are skipped.
//!
//! This is the format `.el` of the GAP benchmark suite and, with its remarks, of the SNAP
//! collection.

use std::io::{self, BufRead, Read, Write};

use thiserror::Error;

use super::limits::{EDGES_MAX, LINE_MAX, VERTICES_MAX, Vertex};

/// One tuple of the list. The edge has no direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// One end, below [`VERTICES_MAX`].
    pub start: Vertex,
    /// The other end, the same one for a self-loop; below [`VERTICES_MAX`].
    pub end: Vertex,
}

/// Why a file is no list of edges.
#[derive(Debug, Error)]
pub enum EdgesError {
    /// The system could not read on.
    #[error("line {line}: cannot be read: {source}")]
    Read {
        /// From 1.
        line: u64,
        /// What the system says.
        source: io::Error,
    },
    /// A line says something else.
    #[error("line {line}: expected {expected}, found {found:?}")]
    Line {
        /// From 1.
        line: u64,
        /// What should be there.
        expected: &'static str,
        /// What is there, at most 40 bytes of it.
        found: String,
    },
    /// A vertex number is too large.
    #[error("line {line}: vertex {vertex} is not below {VERTICES_MAX}: number them from 0")]
    Vertex {
        /// From 1.
        line: u64,
        /// The number.
        vertex: u64,
    },
    /// There are too many edges.
    #[error("line {line}: more than {EDGES_MAX} edges")]
    TooMany {
        /// From 1.
        line: u64,
    },
    /// There are none.
    #[error("there is no edge in it")]
    Empty,
}

/// Reads a list of edges.
pub fn read(mut from: impl BufRead) -> Result<Vec<Edge>, EdgesError> {
    let mut edges = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let mut limited = (&mut from).take(LINE_MAX);
        let read = limited.read_until(b'\n', &mut text);
        if read.map_err(|source| EdgesError::Read { line, source })? == 0 {
            break;
        }
        if text.len() as u64 == LINE_MAX && !text.ends_with(b"\n") {
            return Err(mistake(line, "a line of at most 4,095 bytes", &text));
        }
        let words = text.trim_ascii();
        if words.is_empty() || words.starts_with(b"#") {
            continue;
        }
        if edges.len() == EDGES_MAX {
            return Err(EdgesError::TooMany { line });
        }
        edges.push(edge(line, words)?);
    }
    if edges.is_empty() {
        return Err(EdgesError::Empty);
    }
    Ok(edges)
}

fn edge(line: u64, words: &[u8]) -> Result<Edge, EdgesError> {
    let (start, rest) = vertex(line, words)?;
    let blanks = rest.trim_ascii_start();
    if blanks.len() == rest.len() {
        return Err(mistake(line, "a blank and a second vertex number", rest));
    }
    let (end, rest) = vertex(line, blanks)?;
    if rest.is_empty() {
        Ok(Edge { start, end })
    } else {
        Err(mistake(line, "the end of the line", rest))
    }
}

/// A number at the beginning of `words`, and what stands behind it.
fn vertex(line: u64, words: &[u8]) -> Result<(Vertex, &[u8]), EdgesError> {
    let digits = words.iter().take_while(|byte| byte.is_ascii_digit());
    let (digits, rest) = words.split_at(digits.count());
    if digits.is_empty() {
        return Err(mistake(line, "a vertex number", words));
    }
    let add = |number: u64, digit: &u8| {
        let number = number.saturating_mul(10);
        number.saturating_add(u64::from(digit - b'0'))
    };
    let number = digits.iter().fold(0, add);
    match Vertex::try_from(number) {
        Ok(vertex) if vertex < VERTICES_MAX => Ok((vertex, rest)),
        _ => Err(EdgesError::Vertex {
            line,
            vertex: number,
        }),
    }
}

fn mistake(line: u64, expected: &'static str, found: &[u8]) -> EdgesError {
    let found = &found[..found.len().min(40)];
    EdgesError::Line {
        line,
        expected,
        found: String::from_utf8_lossy(found.trim_ascii_end()).into_owned(),
    }
}

/// Writes a list of edges.
pub fn write(edges: &[Edge], mut to: impl Write) -> io::Result<()> {
    for edge in edges {
        writeln!(to, "{} {}", edge.start, edge.end)?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(start: Vertex, end: Vertex) -> Edge {
        Edge { start, end }
    }

    #[test]
    fn what_is_written_is_read() {
        let edges = [edge(0, 0), edge(3, 1), edge(VERTICES_MAX - 1, 7)];
        let mut text = Vec::new();
        write(&edges, &mut text).unwrap();
        assert_eq!(read(&*text).unwrap(), edges);
    }

    #[test]
    fn remarks_empty_lines_and_blanks_are_skipped() {
        let text = "# from 1 to 2\n1 2\n\n \t3\t 4 \r\n5 6";
        let edges = [edge(1, 2), edge(3, 4), edge(5, 6)];
        assert_eq!(read(text.as_bytes()).unwrap(), edges);
    }

    #[test]
    fn a_bad_file_is_refused_with_its_line() {
        let long = format!("1 2\n{}\n", " ".repeat(5_000));
        for (text, expect) in [
            ("", "there is no edge in it"),
            ("# 1 2\n", "there is no edge in it"),
            (
                "1 2\n3\n",
                "line 2: expected a blank and a second vertex number, found \"\"",
            ),
            (
                "1 2\n\nx 3\n",
                "line 3: expected a vertex number, found \"x 3\"",
            ),
            (
                "1 2\n-3 4\n",
                "line 2: expected a vertex number, found \"-3 4\"",
            ),
            (
                "1,2\n",
                "line 1: expected a blank and a second vertex number, found \",2\"",
            ),
            (
                "1 2 0.5\n",
                "line 1: expected the end of the line, found \" 0.5\"",
            ),
            (
                "1 2\n3 4\n5 \u{ff}\n",
                "line 3: expected a vertex number, found \"\u{ff}\"",
            ),
            (
                "0 268435456\n",
                "line 1: vertex 268435456 is not below 268435456: number them from 0",
            ),
            (
                "1 2\n99999999999999999999999 1\n",
                "line 2: vertex 18446744073709551615 is not below 268435456: number them from 0",
            ),
            (
                &long,
                "line 2: expected a line of at most 4,095 bytes, found \"\"",
            ),
        ] {
            let error = read(text.as_bytes()).expect_err(text);
            assert_eq!(error.to_string(), expect);
        }
    }

    #[test]
    fn a_file_that_ends_in_an_error_is_refused_with_its_line() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        let file = io::BufReader::new(b"1 2\n".chain(Broken));
        let error = read(file).expect_err("the second line cannot be read");
        assert_eq!(
            error.to_string(),
            "line 2: cannot be read: the disk is gone"
        );
    }
}
