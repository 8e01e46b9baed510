//! Ours with a password file.

use std::{fmt::Write as _, fs, io, path::Path};

use super::{
    Peer,
    brokers::{peers, serve_unbroken},
};

/// The password of every user.
pub(crate) const PASSWORD: &str = "secret";
/// Users of each kind of hash: `KIND-0` and so on.
pub(crate) const USERS: usize = 10_000;

/// A kind of hash, and how it is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hash {
    pub(crate) kind: &'static str,
    pub(crate) shown: &'static str,
    /// Of [`PASSWORD`]. All users have the same salt: a hash costs the same.
    line: &'static str,
}

/// What Mosquitto 1.6 makes.
pub(crate) const SHA512: Hash = Hash {
    kind: "sha512",
    shown: "`$6$`, one SHA-512",
    line: "$6$c2FsdCBvZiAxMiBi$n0Iafe3ertyRvYI/frUrD+JIZFH7HY2jrEzPejHMlVcB/XRTojr5E/xO2c0c6JZSlJwKd3lKnlWfmeHBaneD/Q==",
};
/// What Mosquitto 2.0 makes.
pub(crate) const PBKDF2_101: Hash = Hash {
    kind: "pbkdf2-101",
    shown: "`$7$101$`, PBKDF2 with 101 rounds",
    line: "$7$101$c2FsdCBvZiAxMiBi$iipdRsaVJSDBuCg7vknvN73W/VdxYAuXlxLcvSKfsAu4ddzerugus0VmLXW+7+8xU1wXoTGW5sS6qy8VkBGdxg==",
};
pub(crate) const PBKDF2_10000: Hash = Hash {
    kind: "pbkdf2-10000",
    shown: "`$7$10000$`, 10,000 rounds",
    line: "$7$10000$c2FsdCBvZiAxMiBi$W5AM/XJDJIaz1i9Heiy4XWPRWSzKPxqSHiDrjRTRzbDKLKw/3tx290+V/BRonqTVIGpktG13ld4ogJYrjeAsWQ==",
};
/// What `unbroken passwd` makes for Mosquitto 2.0.
pub(crate) const PBKDF2_210000: Hash = Hash {
    kind: "pbkdf2-210000",
    shown: "`$7$210000$`, 210,000 rounds",
    line: "$7$210000$c2FsdCBvZiAxMiBi$x3SsHVdYTQHeMSSAEcHcWvNC19Rpder1uWOndszWAS1xfI6+6k+a7x9DmquuWxzvwJes9bAV9giMwhLPrK+Qtg==",
};
/// What `unbroken passwd` makes.
pub(crate) const ARGON2ID: Hash = Hash {
    kind: "argon2id",
    shown: "`$argon2id$`, 19 MiB and 2 passes",
    line: "$argon2id$v=19$m=19456,t=2,p=1$ZjFddV5Ll1W1oJLYhu6VEw$s7yk9ah4wLagwDonmAJeXE1sfcPWk/CBK1SHtjYam1k",
};
pub(crate) const HASHES: [Hash; 5] = [SHA512, PBKDF2_101, PBKDF2_10000, PBKDF2_210000, ARGON2ID];

impl Hash {
    /// The line of a user of this number.
    pub(crate) fn entry(self, number: usize) -> String {
        format!("{}-{number}:{}", self.kind, self.line)
    }
}

/// With [`USERS`] users of each kind.
pub(crate) fn with_passwords(unbroken: &Path) -> io::Result<Peer> {
    let ours = peers(unbroken, None)?.swap_remove(0);
    Ok(Peer {
        setup: "`unbroken serve -p PORT --data DIR --password-file FILE`",
        serve: |command, port, dir| {
            let mut text = String::new();
            for hash in HASHES {
                for number in 0..USERS {
                    let _ = writeln!(text, "{}", hash.entry(number));
                }
            }
            let users = dir.join("users");
            fs::write(&users, text)?;
            let users = users.display().to_string();
            serve_unbroken(command, port, dir, &["--password-file", &users]);
            Ok(())
        },
        ..ours
    })
}
