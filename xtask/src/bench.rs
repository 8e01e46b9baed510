//! `cargo xtask bench …`: hands everything to the program in `dev/bench`, or in
//! `dev/channel-bench` where channels or lexers are compared.
//!
//! Our own program is built first, unless another is named, so that one command measures what lies
//! here and nothing older; for a record as packages have it (`dist.rs`). Before it the peers that
//! are to take part are installed, and for a record of all rows the load generators of others. The
//! short run takes those that are there.

use std::env;
use std::process::Command;

use crate::{Outcome, dist, process, tools::Tools, tree};

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let package = match words.first() {
        Some(&"channels" | &"lexer") => "unbroken-channel-bench",
        _ => "unbroken-bench",
    };
    let tools = Tools::locate();
    if let Some(peers) = peers_of(&words) {
        tools.install_peers(&peers)?;
    }
    if is_cross_checked(&words) {
        tools.install_load_generators()?;
    }
    let profile = profile(&words);
    // The program that is measured lies beside the one that measures it.
    let target = tree::target_directory();
    if is_of_ours(&words, env::var_os("UNBROKEN_BIN").is_some()) {
        if profile == "dist" {
            dist::build(env::var_os("UNBROKEN_REQUIRE_TOOLS").is_some())?;
        } else {
            let mut build = process::cargo(&["build", "--profile", profile, "--quiet"]);
            build.args(["-p", "unbroken", "--target-dir"]).arg(&target);
            process::stream(&mut build, |_| {})?;
        }
    }
    let mut cargo = process::cargo(&["run", "--profile", profile, "--quiet", "-p", package]);
    cargo.arg("--target-dir").arg(target).arg("--");
    find_peers(&mut cargo, &tools)?;
    process::stream(cargo.args(arguments), |_| {})
}

/// Puts what was installed on its path.
pub(crate) fn find_peers(command: &mut Command, tools: &Tools) -> Outcome {
    let path = env::var_os("PATH").unwrap_or_default();
    let ours = [tools.go_programs(), tools.peers()].into_iter();
    let path = ours.chain(env::split_paths(&path));
    let path = env::join_paths(path.chain([tools.own_go()]));
    command.env("PATH", path.map_err(|error| error.to_string())?);
    Ok(())
}

/// Brokers are measured as packages have them. A short run is to be short, and channels are
/// measured as a library is built.
fn profile(words: &[&str]) -> &'static str {
    let is_of_brokers = !matches!(
        words.first(),
        None | Some(&"channels" | &"lexer" | &"relay")
    );
    if is_whole(words) && is_of_brokers {
        "dist"
    } else {
        "release"
    }
}

/// Whether the program that is built here is measured, and not a named one or none at all.
fn is_of_ours(words: &[&str], is_named: bool) -> bool {
    let without = |word: &&str| ["channels", "lexer", "relay", "--help", "-h"].contains(word);
    let names = |word: &&str| *word == "--unbroken" || word.starts_with("--unbroken=");
    let mut words = words.iter();
    !is_named && !words.any(|word| without(word) || names(word))
}

/// The peers to install, if there are any; none named are those that run without being named.
fn peers_of<'a>(words: &[&'a str]) -> Option<Vec<&'a str>> {
    let named = named_peers(words);
    match words.first().filter(|_| is_whole(words))? {
        &"brokers" => Some(named),
        // Their own default, and what `bench durability` always has.
        &"fairness" if !named.is_empty() => Some(named),
        &"fairness" | &"durability" | &"doors" => Some(vec!["mosquitto", "nats"]),
        _ => None,
    }
}

/// Whether programs that are not ours put their three loads on the peers too.
fn is_cross_checked(words: &[&str]) -> bool {
    let some_rows = |word: &&str| *word == "--rows" || word.starts_with("--rows=");
    let is_asked = words.contains(&"--cross-check") || !words.iter().any(some_rows);
    words.first() == Some(&"brokers") && is_whole(words) && is_asked
}

/// Whether more is asked for than a short run or help.
fn is_whole(words: &[&str]) -> bool {
    let short = ["--smoke", "--help", "-h"];
    !words.iter().any(|word| short.contains(word))
}

/// The values of `--peers`, which the benchmark itself will refuse if they mean nothing.
fn named_peers<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut names = Vec::new();
    let mut follows = false;
    for word in words {
        if follows {
            names.extend(word.split(','));
        } else if let Some(value) = word.strip_prefix("--peers=") {
            names.extend(value.split(','));
        }
        follows = *word == "--peers";
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_in_either_form() {
        for words in [
            &["brokers", "--peers", "nats,mochi", "--secs", "1"][..],
            &["brokers", "--peers=nats,mochi"],
            &["brokers", "--peers", "nats", "--peers", "mochi"],
        ] {
            assert_eq!(named_peers(words), ["nats", "mochi"]);
        }
        assert!(named_peers(&["brokers", "--peers-dir", "nats"]).is_empty());
    }

    #[test]
    fn our_own_is_built_unless_another_is_named_or_none_is_measured() {
        assert!(is_of_ours(&["brokers", "--rows", "pairs100"], false));
        assert!(is_of_ours(&["shards", "--smoke"], false));
        assert!(!is_of_ours(&["brokers"], true));
        for words in [
            &["brokers", "--unbroken", "/tmp/other"][..],
            &["brokers", "--unbroken=/tmp/other"],
            &["channels", "--quick"],
            &["lexer"],
            &["audit", "--help"],
        ] {
            assert!(!is_of_ours(words, false), "{words:?}");
        }
    }

    #[test]
    fn brokers_are_measured_as_packages_have_them() {
        for (words, expected) in [
            (&["brokers", "--rounds", "5"][..], "dist"),
            (&["fairness"], "dist"),
            (&["brokers", "--smoke"], "release"),
            (&["channels"], "release"),
            (&["relay", "--port", "0"], "release"),
        ] {
            assert_eq!(profile(words), expected, "{words:?}");
        }
    }

    #[test]
    fn a_short_run_installs_nothing() {
        assert!(is_whole(&["brokers", "--rounds", "5"]));
        assert!(!is_whole(&["brokers", "--smoke"]));
        assert_eq!(peers_of(&["brokers", "--smoke"]), None);
        assert_eq!(peers_of(&["fairness", "--smoke"]), None);
    }

    #[test]
    fn peers_are_installed_where_they_are_wanted() {
        for (words, expected) in [
            (&["brokers"][..], Some(&[][..])),
            (&["fairness", "--secs", "3"], Some(&["mosquitto", "nats"])),
            (&["fairness", "--peers", "mochi"], Some(&["mochi"])),
            (&["durability"], Some(&["mosquitto", "nats"])),
            (&["shards"], None),
        ] {
            assert_eq!(peers_of(words).as_deref(), expected, "{words:?}");
        }
    }

    #[test]
    fn all_rows_are_cross_checked_and_some_where_that_is_asked_for() {
        for (words, expected) in [
            (&["brokers", "--rounds", "5"][..], true),
            (&["brokers", "--rows", "idle"], false),
            (&["brokers", "--rows=idle"], false),
            (&["brokers", "--rows", "pairs1000", "--cross-check"], true),
            (&["brokers", "--smoke"], false),
            (&["fairness"], false),
        ] {
            assert_eq!(is_cross_checked(words), expected, "{words:?}");
        }
    }
}
