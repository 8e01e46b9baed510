//! The flags of `audit` and `pipe` for the broker and the credentials.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use unbroken_client::{ConnectTo, Options, TotalDuration};
use unbroken_merkle_log::{Hasher, Key, LaneId};

use crate::exit::{self, Failure};
use crate::transport_args::TransportArgs;
use crate::user_args::UserArgs;

/// How long a broker may be out of reach before a command gives up.
const PATIENCE: TotalDuration = TotalDuration(Duration::from_mins(1));

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct BrokerArgs {
    /// Host of the broker, or HOST:PORT
    #[arg(short = 'h', long, default_value = "localhost", env = "UNBROKEN_HOST")]
    host: String,
    /// Port of the broker [default: 1883, with TLS 8883, with --ws 8083, with both 8084]
    #[arg(short, long, env = "UNBROKEN_PORT")]
    port: Option<u16>,
    #[command(flatten)]
    user: UserArgs,
    /// Topics of checkpoints and repairs begin with this
    #[arg(long, value_name = "TOPIC", default_value = "audit")]
    prefix: String,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    transport: TransportArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// The line's key: a file with 64 hexadecimal digits, or 32 bytes, that not everybody may read
    /// [default: none]
    #[arg(long, value_name = "FILE", env = "UNBROKEN_KEY_FILE")]
    key_file: Option<PathBuf>,
}

impl BrokerArgs {
    /// MQTT 5.0 to that broker. An error is a mistake in the flags.
    pub(crate) fn options(&self) -> Result<Options, String> {
        let transport = self.transport.resolve(None)?;
        let default = transport.default_port();
        let port = self
            .port
            .or((default != ConnectTo::DEFAULT_PORT).then_some(default));
        let to = if let Some(path) = self.transport.unix() {
            ConnectTo::unix(path)
        } else {
            let has_port = ConnectTo::parts(&self.host).is_ok_and(|(_, port)| port.is_some());
            let port = if has_port { self.port } else { port };
            ConnectTo::with_port(&self.host, port).map_err(|error| error.to_string())?
        };
        let options = Options::new(to).transport(transport).patience(PATIENCE);
        Ok(match (&self.user.username, &self.user.password) {
            (None, None) => options,
            (name, password) => options.credentials(
                name.clone().unwrap_or_default(),
                password.clone().unwrap_or_default(),
            ),
        })
    }

    /// As [`KeyArgs::hasher`].
    pub(crate) fn hasher(&self) -> Result<Hasher, Failure> {
        self.key.hasher()
    }

    /// Says on standard error what lanes without a key do not prove, where none is given.
    pub(crate) fn note_missing_key(&self, json: bool) {
        if self.key.key_file.is_some() {
            return;
        }
        note(
            "without a key (--key-file) lanes are proven against accidents only: a client that may \
             publish on their topics can forge messages and checkpoints",
            json,
        );
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl KeyArgs {
    /// Keyed BLAKE3 with a key, against tampering; XXH3-128 without, against accidents.
    pub(crate) fn hasher(&self) -> Result<Hasher, Failure> {
        let Some(path) = &self.key_file else {
            return Ok(Hasher::xxh3());
        };
        let refused = |why: &dyn Display| {
            let text = format!("cannot read the key {}: {why}", path.display());
            Failure::new(exit::NO_INPUT, text)
        };
        if is_open_to_all(path).map_err(|error| refused(&error))? {
            let path = path.display();
            return Err(refused(&format!(
                "every user of this machine can read it: chmod 600 {path}"
            )));
        }
        let content = fs::read(path).map_err(|error| refused(&error))?;
        let key = key(&content).ok_or_else(|| {
            refused(
                &"it is neither 64 hexadecimal digits nor 32 bytes; `openssl rand -hex 32` makes one",
            )
        })?;
        Ok(Hasher::blake3(&key))
    }
}

/// A remark on standard error, as text or as one JSON object.
pub(crate) fn note(text: &str, json: bool) {
    // With standard error closed there is no reader.
    let _ = if json {
        writeln!(io::stderr(), "{}", json!({ "note": text }))
    } else {
        writeln!(io::stderr(), "Note: {text}")
    };
}

/// Whether users that are neither the owner nor of its group may read or write a file. What is no
/// file, such as a pipe from another command, is its maker's concern.
#[cfg(unix)]
fn is_open_to_all(path: &Path) -> io::Result<bool> {
    let about = fs::metadata(path)?;
    Ok(about.is_file() && about.mode() & 0o006 != 0)
}

#[cfg(not(unix))]
fn is_open_to_all(_: &Path) -> io::Result<bool> {
    Ok(false)
}

/// 32 bytes as they are, or written as hexadecimal digits with or without the end of a line.
fn key(content: &[u8]) -> Option<Key> {
    if let Ok(bytes) = content.try_into() {
        return Some(Key(bytes));
    }
    let (digits, rest) = content.trim_ascii().as_chunks::<2>();
    let mut key = [0; 32];
    if digits.len() != key.len() || !rest.is_empty() {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(digits) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(Key(key))
}

/// A lane as it is shown.
pub(crate) fn lane(text: &str) -> Result<LaneId, String> {
    let lane = u64::from_str_radix(text, 16).ok().and_then(LaneId::new);
    lane.ok_or_else(|| "a lane is 16 hexadecimal digits, as `status` shows them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_digits_or_as_bytes() {
        let digits = "0a".repeat(32);
        let read = |content: &[u8]| key(content).map(|Key(bytes)| bytes);
        assert_eq!(read(digits.as_bytes()), Some([10; 32]));
        assert_eq!(read(format!("{digits}\n").as_bytes()), Some([10; 32]));
        assert_eq!(read(&[b'x'; 32]), Some([b'x'; 32]));
        let short = &digits[1..];
        for bad in [
            "",
            "0a",
            short,
            &digits.replace('a', "g"),
            &format!("{digits}0a"),
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }
}
