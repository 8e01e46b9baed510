//! Rules about manifests and lock files.

use super::{File, lines};

/// Hosts of package registries: which mirror a machine uses is its own business, and must not get
/// into the repository with a lock file. Put together here, so that this file may be checked too.
const REGISTRIES: [&str; 9] = [
    concat!("index.cra", "tes.io"),
    concat!("static.cra", "tes.io"),
    concat!("registry.npm", "js.org"),
    concat!("registry.yarn", "pkg.com"),
    concat!("py", "pi.org"),
    concat!("files.python", "hosted.org"),
    concat!("repo1.ma", "ven.org"),
    concat!("repo.maven.apa", "che.org"),
    concat!("proxy.gol", "ang.org"),
];

/// What cargo writes for every package of the public registry, whichever mirror served it.
const PUBLIC: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn registries(files: &[File]) -> Vec<String> {
    let mut problems = lines(files.iter(), |line| {
        let host = REGISTRIES.iter().find(|host| line.contains(*host))?;
        Some(format!("names {host}"))
    });
    let locks = files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.lock"));
    problems.extend(lines(locks, |line| {
        let source = line.strip_prefix("source = ")?.trim_matches('"');
        (source != PUBLIC).then(|| format!("source {source} is not the public registry"))
    }));
    problems
}

/// Every dependency of the workspace's manifest says, on its line, why it is there.
pub(super) fn uncommented(files: &[File]) -> Vec<String> {
    let Some(manifest) = files.iter().find(|file| file.path == "Cargo.toml") else {
        return vec!["there is no Cargo.toml".to_owned()];
    };
    let mut in_dependencies = false;
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(manifest.text.lines()) {
        if line.starts_with('[') {
            in_dependencies = line == "[workspace.dependencies]";
        } else if in_dependencies
            && let Some((name, value)) = line.split_once(" = ")
            && !line.starts_with('#')
        {
            let is_ours = value.starts_with("{ path = ");
            if !is_ours && !value.contains('#') {
                problems.push(format!("Cargo.toml:{number}: why is {name} there?"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    #[test]
    fn a_registry_in_a_lock_file_is_found() {
        let lock = |text: String| File::new("dev/acceptance/clients/js/package-lock.json", &text);
        let host = REGISTRIES[2];
        let good = lock("\"integrity\": \"sha512-…\"".to_owned());
        check(
            registries,
            good,
            lock(format!("\"resolved\": \"https://{host}/mqtt\"")),
        );
    }

    #[test]
    fn a_package_from_a_mirror_is_found() {
        let lock = |source: &str| File::new("Cargo.lock", &format!("source = \"{source}\"\n"));
        check(
            registries,
            lock(PUBLIC),
            lock("sparse+https://mirror.example/"),
        );
    }

    #[test]
    fn a_dependency_without_comment_is_found() {
        let manifest = |line: &str| {
            let text = format!(
                "[workspace.dependencies]\nours = {{ path = \"crates/ours\" }}\n{line}\n\
                 [profile.dev]\nopt-level = 1\n"
            );
            File::new("Cargo.toml", &text)
        };
        check(
            uncommented,
            manifest("slab = \"0.4\"  # dense tables"),
            manifest("slab = \"0.4\""),
        );
    }
}
