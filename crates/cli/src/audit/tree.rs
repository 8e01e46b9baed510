//! `unbroken audit tree`: serialised hash trees of what passed at two ends of a pipeline, built,
//! shown, compared and converted. No broker takes part.
//!
//! The formats are the heritage's and THEX's, which the library reads and writes; here are the
//! sources of leaves ([`pieces`]), the reading of either format ([`mod@file`]) and the descent
//! ([`mod@compare`]). Deliberately absent: this project's own lanes, whose checkpoints need no
//! file.

mod compare;
mod file;
mod pieces;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};
use unbroken_merkle_log::{HeritageTree, ThexTree, TigerRoot, TigerTree};

use self::compare::Difference;
use self::file::{Input, TreeFile, hexadecimal};
use self::pieces::{Cut, Leaves, Piece};
use crate::exit::{self, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken audit tree build --lines sent.log -o sent.tree        a leaf for each line
  unbroken sub -t plant/out | unbroken audit tree build --lines -o received.tree
  unbroken audit tree compare sent.tree received.tree            name the first line that differs
  unbroken audit tree show received.tree                         its size, root and first leaves
  unbroken audit tree build --format thex --root image.iso       the Tiger tree root (TTH) of a file
  unbroken audit tree convert --to text sent.tree | head         the leaves, one a line

A heritage tree is one of the format cdaace99: its leaves are texts, two or more, usually the SHA-1
of a message in hexadecimal digits. Its nodes are Adler-32, so equal roots prove little, and
`compare` looks at the leaves, too. A THEX tree is the digests of a Tiger tree from the root on,
level by level; its leaves are Tiger hashes of blocks. A file tells by its content which it is.

Limits: 16,777,216 leaves, trees of 1 GiB, lines of 256 MiB. A tree is held in memory while it is
built or read; `build --format thex --root` of blocks of 1,024 bytes takes input of any length.

Exit codes: 0 done, or the trees are the same; 1 they differ; 2 wrong usage; 65 a file is not a
whole tree, or no tree can be made of it; 66 a file cannot be read; 73 a file cannot be made; 74
output failed.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Build a tree of the lines or blocks of a file
    Build(Building),
    /// Show the format, size, height, root and first leaves of a tree
    Show(Showing),
    /// Name the first leaf in which two trees differ
    Compare(Comparing),
    /// Write a tree in the other format, or its leaves as text
    Convert(Converting),
}

#[derive(Debug, clap::Args)]
struct Building {
    /// What to build it of; `-` is standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,
    /// The format of the tree
    #[arg(long, value_enum, default_value_t = Format::Heritage)]
    format: Format,
    /// Each line is a leaf's text as it is [default for heritage]
    #[arg(long, group = "leaves")]
    texts: bool,
    /// Each line is a message, and its hash a leaf: SHA-1 for heritage, Tiger for thex
    #[arg(long, group = "leaves")]
    lines: bool,
    /// Each block of so many bytes is hashed for a leaf [default for thex: 1024]
    #[arg(
        long,
        group = "leaves",
        value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(1..=pieces::BLOCK_BYTES_MAX)
    )]
    block: Option<u32>,
    /// Print the root alone
    #[arg(long, conflicts_with = "output")]
    root: bool,
    /// Where to write the tree [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Showing {
    /// The tree; `-` is standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,
    /// How many leaves to show
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    leaves: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Comparing {
    /// A tree; `-` is standard input
    first: PathBuf,
    /// Another of the same format; `-` is standard input
    second: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Converting {
    /// The tree; `-` is standard input
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,
    /// What to write: a tree of the same leaves, or lines of them, which `build --texts` reads
    #[arg(long, value_enum)]
    to: Target,
    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Heritage,
    Thex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Heritage,
    Thex,
    Text,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Build(args) => build(args).map(|()| ExitCode::SUCCESS),
        Command::Show(args) => show(args).map(|()| ExitCode::SUCCESS),
        Command::Compare(args) => compare(args),
        Command::Convert(args) => convert(args).map(|()| ExitCode::SUCCESS),
    }
}

fn build(args: &Building) -> Result<(), Failure> {
    let input = Input::of(&args.file);
    let source = match (args.block, args.format) {
        (Some(bytes), _) => Source::Hashed(Cut::Blocks(bytes as usize)),
        (None, _) if args.lines => Source::Hashed(Cut::Lines),
        (None, Format::Thex) if !args.texts => Source::Hashed(Cut::Blocks(TigerTree::BLOCK)),
        (None, _) => Source::Texts,
    };
    if args.root
        && args.format == Format::Thex
        && source == Source::Hashed(Cut::Blocks(TigerTree::BLOCK))
    {
        let root = input.tiger_root()?;
        return print(format_args!("{root}"));
    }
    let bytes = match args.format {
        Format::Heritage => heritage_of(&input, source)?,
        Format::Thex => thex_of(&input, source)?,
    };
    if !args.root {
        return write(args.output.as_deref(), &bytes, Content::Tree);
    }
    let tree = input.tree(&bytes)?;
    print(format_args!("{}", tree.root()))
}

/// Where leaves come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Lines as they are.
    Texts,
    /// The hashes of pieces.
    Hashed(Cut),
}

fn heritage_of(input: &Input<'_>, source: Source) -> Result<Vec<u8>, Failure> {
    let mut leaves = Leaves::default();
    match source {
        Source::Texts => input.pieces(Cut::Lines, |piece| leaves.push(piece.bytes))?,
        Source::Hashed(cut) => input.pieces(cut, |piece| {
            leaves.push(hexadecimal(&Sha1::digest(piece.bytes)).as_bytes())
        })?,
    }
    HeritageTree::encode(&leaves.slices()).map_err(|error| input.is_wrong(error))
}

fn thex_of(input: &Input<'_>, source: Source) -> Result<Vec<u8>, Failure> {
    let mut leaves = Vec::new();
    let mut push = |leaf| {
        pieces::check_count(leaves.len())?;
        leaves.push(leaf);
        Ok(())
    };
    match source {
        Source::Texts => input.pieces(Cut::Lines, |piece| {
            push(tiger_digest(piece.bytes).map_err(|error| {
                let Piece { index, at, .. } = piece;
                format!("line {}, at byte {at}: {error}", index + 1)
            })?)
        })?,
        Source::Hashed(cut) => {
            input.pieces(cut, |piece| push(TigerRoot::of_block(piece.bytes)))?;
        }
    }
    ThexTree::encode(&leaves).map_err(|error| input.is_wrong(error))
}

fn show(args: &Showing) -> Result<(), Failure> {
    let input = Input::of(&args.file);
    let bytes = input.read()?;
    let tree = input.tree(&bytes)?;
    let leaves = tree.leaves().take(args.leaves as usize);
    if args.json {
        let shown = json!({
            "format": tree.format(),
            "leaves": tree.size(),
            "height": tree.height(),
            "bytes": bytes.len(),
            "root": tree.root(),
            "first_leaves": leaves.map(|leaf| tree.signature(leaf).json()).collect::<Vec<_>>(),
        });
        return print(format_args!("{shown}"));
    }
    let mut text = format!(
        "format  {}\nleaves  {}\nheight  {}\nbytes   {}\nroot    {}",
        tree.format(),
        tree.size(),
        tree.height(),
        bytes.len(),
        tree.root()
    );
    for (index, leaf) in leaves.enumerate() {
        let _ = write!(text, "\nleaf {index}  {}", tree.signature(leaf));
    }
    print(format_args!("{text}"))
}

fn compare(args: &Comparing) -> Result<ExitCode, Failure> {
    let inputs = [&args.first, &args.second].map(|path| Input::of(path));
    if inputs.iter().all(Input::is_standard) {
        let why = "standard input can be one of the trees; name a file for the other";
        return Err(Failure::new(exit::USAGE, why));
    }
    let [first, second] = &inputs;
    let bytes = [first.read()?, second.read()?];
    let trees = [first.tree(&bytes[0])?, second.tree(&bytes[1])?];
    if trees[0].format() != trees[1].format() {
        let [a, b] = [trees[0].format(), trees[1].format()];
        let why = format!(
            "{first} is a {a} tree and {second} a {b} tree; `unbroken audit tree convert` makes \
             one of the other"
        );
        return Err(Failure::new(exit::USAGE, why));
    }
    let difference = compare::first_difference(&trees[0], &trees[1]);
    if args.json {
        print(format_args!(
            "{}",
            difference_json(&inputs, &trees, difference)
        ))?;
    } else {
        print(format_args!(
            "{}",
            difference_text(&inputs, &trees, difference)
        ))?;
    }
    Ok(ExitCode::from(u8::from(difference.is_some())))
}

fn difference_text(
    inputs: &[Input<'_>; 2],
    trees: &[TreeFile<'_>; 2],
    difference: Option<Difference>,
) -> String {
    let [a, b] = trees;
    let Some(Difference { leaf }) = difference else {
        return format!("the same {} leaves; the root is {}", a.size(), a.root());
    };
    let mut text = if leaf < a.size().min(b.size()) {
        format!("leaf {leaf} is the first that differs")
    } else {
        let [longer, shorter] = if a.size() > b.size() { [0, 1] } else { [1, 0] };
        format!(
            "leaf {leaf} is the first that only {} has; {} is the beginning of it",
            inputs[longer], inputs[shorter]
        )
    };
    for (input, tree) in inputs.iter().zip(trees) {
        let leaf = match tree.leaf(leaf) {
            Some(signature) => tree.signature(signature).to_string(),
            None => "no such leaf".to_owned(),
        };
        let _ = write!(text, "\n  {input}, {} leaves: {leaf}", tree.size());
    }
    if a.root() == b.root() {
        text.push_str(match a {
            TreeFile::Heritage(_) => {
                "\nThe roots are equal all the same: Adler-32 does not see every difference"
            }
            TreeFile::Thex(_) => {
                "\nThe roots are equal: the tree of fewer leaves is the upper levels of the other"
            }
        });
    }
    text
}

fn difference_json(
    inputs: &[Input<'_>; 2],
    trees: &[TreeFile<'_>; 2],
    difference: Option<Difference>,
) -> Value {
    let each = inputs.iter().zip(trees).map(|(input, tree)| {
        let leaf = difference.and_then(|difference| tree.leaf(difference.leaf));
        json!({
            "file": input.to_string(),
            "leaves": tree.size(),
            "root": tree.root(),
            "leaf": leaf.map(|leaf| tree.signature(leaf).json()),
        })
    });
    json!({
        "same": difference.is_none(),
        "first_difference": difference.map(|difference| difference.leaf),
        "trees": each.collect::<Vec<_>>(),
    })
}

fn convert(args: &Converting) -> Result<(), Failure> {
    let input = Input::of(&args.file);
    let bytes = input.read()?;
    let tree = input.tree(&bytes)?;
    let output = args.output.as_deref();
    let wrong = |leaf: usize, why: String| input.is_wrong(format_args!("leaf {leaf}: {why}"));
    match args.to {
        Target::Text => {
            let mut text = Vec::new();
            for (index, leaf) in tree.leaves().enumerate() {
                let leaf = tree.written(leaf);
                if leaf.contains(&b'\n') {
                    let why = "its text has the end of a line in it, so it is no line";
                    return Err(wrong(index, why.to_owned()));
                }
                text.extend_from_slice(&leaf);
                text.push(b'\n');
            }
            write(output, &text, Content::Text)
        }
        Target::Heritage => {
            let mut leaves = Leaves::default();
            for leaf in tree.leaves() {
                leaves
                    .push(&tree.written(leaf))
                    .map_err(|error| input.is_wrong(error))?;
            }
            let encoded = HeritageTree::encode(&leaves.slices());
            let bytes = encoded.map_err(|error| input.is_wrong(error))?;
            write(output, &bytes, Content::Tree)
        }
        Target::Thex => {
            let leaves = tree.leaves().enumerate().map(|(index, leaf)| {
                tiger_digest(&tree.written(leaf)).map_err(|error| {
                    let why = format!(
                        "{error}. A THEX tree has no other leaves: build it of the messages"
                    );
                    wrong(index, why)
                })
            });
            let leaves = leaves.collect::<Result<Vec<_>, _>>()?;
            let encoded = ThexTree::encode(&leaves);
            let bytes = encoded.map_err(|error| input.is_wrong(error))?;
            write(output, &bytes, Content::Tree)
        }
    }
}

fn tiger_digest(text: &[u8]) -> Result<TigerRoot, String> {
    let text = str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
    TigerRoot::parse(text).map_err(|error| error.to_string())
}

fn print(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Tree,
    Text,
}

fn write(to: Option<&Path>, bytes: &[u8], content: Content) -> Result<(), Failure> {
    if let Some(path) = to.filter(|path| *path != Path::new("-")) {
        return fs::write(path, bytes).map_err(|error| {
            let why = format!("cannot write {}: {error}", path.display());
            Failure::new(exit::CANNOT_CREATE, why)
        });
    }
    let mut out = io::stdout().lock();
    if content == Content::Tree && unbroken_terminal::is_live() {
        let why = "a tree is not text; name a file for it with -o, or give it to a pipe";
        return Err(Failure::new(exit::USAGE, why));
    }
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}
