//! Writes each case of `testdata` as a seed for the fuzz target `mosquitto`, one file each, into
//! the folder given or `dev/fuzz/corpus/mosquitto`.

#![allow(clippy::print_stdout, reason = "a tool that says what it did")]

use std::path::PathBuf;
use std::{env, fs, io};

const CONF: &str = include_str!("../testdata/conf.cases");
const ACL: &str = include_str!("../testdata/acl.cases");
const USERS: &str = "# users\n\nann:$7$101$c2FsdA==$aGFzaA==\nbob:plain\n:x\nno colon\n";

fn main() -> io::Result<()> {
    let usual = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../dev/fuzz/corpus/mosquitto"
    );
    let folder = env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from(usual), PathBuf::from);
    fs::create_dir_all(&folder)?;
    let of = |kind: u8, cases: &'static str| {
        let cases = cases.split("\n--- ").skip(1);
        cases.map(move |case| (kind, case.split_once('\n').map_or("", |(_, text)| text)))
    };
    let seeds = of(0, CONF).chain(of(1, ACL)).chain([(2, USERS)]);
    let mut count = 0;
    for (kind, text) in seeds {
        let text = text.replace("<TAB>", "\t").replace("<CR>", "\r");
        let seed = [&[kind], text.as_bytes()].concat();
        fs::write(folder.join(format!("case-{count:03}")), seed)?;
        count += 1;
    }
    println!("{count} seeds in {}", folder.display());
    Ok(())
}
