//! Programs in Java on top of a library: Maven fetches what a `pom.xml` pins, and the compiler of
//! the machine does the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Tools, apt, on_path, write_script};
use crate::{Outcome, process, tree};

const COPY_DEPENDENCIES: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Beside what was built: what it was built of, pins and our own sources.
const BUILT_OF: &str = "built-of";

/// A program of ours, and the library that it is written for.
pub(super) struct JavaProgram {
    /// Where its `pom.xml` and its source are, in the project.
    pub(super) sources: &'static str,
    /// Its class, which the source is called after.
    pub(super) class: &'static str,
    /// Where it is built, among the tools.
    pub(super) directory: &'static str,
    /// For the virtual machine.
    pub(super) flags: &'static str,
}

impl JavaProgram {
    /// Whether it was built of what the sources are now.
    pub(super) fn is_current(&self, tools: &Tools) -> bool {
        let built_of = fs::read_to_string(tools.directory.join(self.directory).join(BUILT_OF));
        built_of.is_ok_and(|built_of| self.text() == Ok(built_of))
    }

    /// Builds it, and writes a script that starts it.
    pub(super) fn build(&self, tools: &Tools, script: &Path) -> Outcome {
        if !on_path("mvn") || !on_path("javac") {
            apt(&["maven", "default-jdk-headless"])?;
        }
        let sources = self.sources();
        let directory = tools.directory.join(self.directory);
        let (libraries, classes) = (directory.join("lib"), directory.join("classes"));
        // Libraries of an older pin would be found as well.
        let _ = fs::remove_dir_all(&libraries);
        let mut maven = Command::new("mvn");
        maven
            .args(["-q", "-B", COPY_DEPENDENCIES, "-DincludeScope=runtime"])
            .arg(format!("-DoutputDirectory={}", libraries.display()))
            .current_dir(&sources);
        process::quiet(&mut maven)?;
        let libraries = libraries.join("*");
        let mut javac = Command::new("javac");
        javac.arg("-cp").arg(&libraries).arg("-d").arg(&classes);
        process::quiet(javac.arg(sources.join(self.source())))?;
        let path = format!("{}:{}", classes.display(), libraries.display());
        let Self { class, flags, .. } = self;
        write_script(
            script,
            &format!("exec java {flags} -cp '{path}' {class} \"$@\""),
        )?;
        let built_of = directory.join(BUILT_OF);
        fs::write(&built_of, self.text()?)
            .map_err(|error| format!("cannot write {}: {error}", built_of.display()))
    }

    fn sources(&self) -> PathBuf {
        tree::root().join(self.sources)
    }

    fn source(&self) -> String {
        format!("{}.java", self.class)
    }

    fn text(&self) -> Outcome<String> {
        let read = |name: &str| {
            let path = self.sources().join(name);
            fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        Ok(read("pom.xml")? + &read(&self.source())?)
    }
}
