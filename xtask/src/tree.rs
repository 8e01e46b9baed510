//! The repository's text files, read once.
//!
//! Build output, dependencies of other languages and dot directories are not part of it; neither is
//! anything that is not UTF-8.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::Outcome;

/// One file.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// From the root of the repository, with `/` between names.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Whether the name ends in this, without the dot.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }
}

/// Where the workspace lies.
pub(crate) fn root() -> PathBuf {
    // Set by cargo when it runs this program; the other is where it was compiled.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_owned).unwrap_or(manifest)
}

/// Where cargo builds.
pub(crate) fn target_directory() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(named) => root().join(named),
        None => root().join("target"),
    }
}

/// All text files, sorted by path.
pub(crate) fn read() -> Outcome<Vec<File>> {
    let root = root();
    let mut files = Vec::new();
    let mut waiting = vec![root.clone()];
    while let Some(directory) = waiting.pop() {
        let entries = fs::read_dir(&directory)
            .map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            // A link would be read twice, or lead out of the repository.
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && !is_outside(&name) {
                waiting.push(path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path.strip_prefix(&root).unwrap_or(&path);
                let path = path.to_string_lossy().replace('\\', "/");
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_outside(directory: &str) -> bool {
    const GENERATED: [&str; 4] = ["node_modules", "__pycache__", "artifacts", "corpus"];
    let hidden = directory.starts_with('.') && directory != ".cargo" && directory != ".ci";
    hidden || directory.starts_with("target") || GENERATED.contains(&directory)
}
