//! `llvm-profdata`, which makes one profile of what instrumented programs have counted. It has to
//! be of the compiler's own version of LLVM, for the format is.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, on_path};
use crate::{Outcome, process, tree};

/// The compiler that cargo uses here.
#[derive(Debug)]
pub(crate) struct Compiler {
    /// All that it says of its version.
    pub(crate) told: String,
    /// The machine that it runs on.
    pub(crate) host: String,
    /// The first number of its LLVM's version.
    pub(crate) llvm: String,
}

impl Compiler {
    pub(crate) fn here() -> Outcome<Self> {
        let mut rustc = Command::new("rustc");
        let told = process::quiet(rustc.arg("-vV").current_dir(tree::root()))?;
        Self::of(told)
    }

    fn of(told: String) -> Outcome<Self> {
        let named = |name: &str| {
            let line = told.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).map(str::to_owned)
        };
        let missing = |what: &str| format!("`rustc -vV` does not tell its {what}:\n{told}");
        let host = named("host:").ok_or_else(|| missing("host"))?;
        let llvm = named("LLVM version:").ok_or_else(|| missing("LLVM version"))?;
        let llvm = llvm.split('.').next().unwrap_or_default().to_owned();
        Ok(Self { told, host, llvm })
    }
}

/// The compiler's own if it is there or can be added to it, else a package's.
pub(crate) fn profile_merger(compiler: &Compiler) -> Outcome<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir(tree::root());
    let sysroot = process::quiet(&mut rustc)?;
    let beside = Path::new("lib/rustlib").join(&compiler.host);
    let own = Path::new(sysroot.trim())
        .join(beside)
        .join("bin/llvm-profdata");
    if own.is_file() {
        return Ok(own);
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["component", "add", "llvm-tools"]);
    let added = process::quiet(rustup.current_dir(tree::root()));
    if added.is_ok() && own.is_file() {
        return Ok(own);
    }
    let package = format!("llvm-{}", compiler.llvm);
    let packaged = format!("llvm-profdata-{}", compiler.llvm);
    if !on_path(&packaged) {
        apt(&[&package]).map_err(|problem| {
            format!(
                "`llvm-profdata` of LLVM {} is missing: `rustup component add llvm-tools` \
                 installs it. {problem}. {}",
                compiler.llvm,
                added.err().unwrap_or_default()
            )
        })?;
    }
    Ok(packaged.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_tells_for_what_machine_it_is_and_of_which_llvm() {
        let told = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
                    host: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        let compiler = Compiler::of(told.to_owned()).expect("both are there");
        assert_eq!(compiler.host, "x86_64-unknown-linux-gnu");
        assert_eq!(compiler.llvm, "22");
        // Of another backend.
        let other = told.replace("LLVM version: 22.1.2\n", "");
        let problem = Compiler::of(other).expect_err("there is no LLVM");
        assert!(problem.contains("LLVM version"), "{problem}");
    }
}
