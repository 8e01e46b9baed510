//! Trees and other inputs as files: read with a limit, told apart by their content, and named in
//! each error.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde_json::{Value, json};
use unbroken_merkle_log::{HeritageError, HeritageTree, ThexError, ThexTree, TigerRoot, TigerTree};

use super::pieces::{self, Cut, Piece, PieceError};
use crate::exit::{self, Failure};

/// The largest tree that is read: 1 GiB, all of which is in memory then.
pub(super) const TREE_BYTES_MAX: u64 = 1 << 30;

const HERITAGE_MAGIC: [u8; 4] = [0xcd, 0xaa, 0xce, 0x99];

/// A file, or standard input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a>(Option<&'a Path>);

impl<'a> Input<'a> {
    pub(super) fn of(path: &'a Path) -> Self {
        Self((path != Path::new("-")).then_some(path))
    }

    pub(super) fn is_standard(&self) -> bool {
        self.0.is_none()
    }

    /// All of it.
    pub(super) fn read(&self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.open()?
            .take(TREE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.is_unreadable(&error))?;
        if bytes.len() as u64 > TREE_BYTES_MAX {
            return Err(self.is_wrong(format_args!("more than {TREE_BYTES_MAX} bytes")));
        }
        Ok(bytes)
    }

    pub(super) fn pieces(
        &self,
        cut: Cut,
        take: impl FnMut(Piece<'_>) -> Result<(), String>,
    ) -> Result<(), Failure> {
        pieces::each(&mut BufReader::new(self.open()?), cut, take).map_err(|error| match error {
            PieceError::Read(error) => self.is_unreadable(&error),
            PieceError::Refused(why) => self.is_wrong(why),
        })
    }

    /// The root of the Tiger tree of its bytes, of any number.
    pub(super) fn tiger_root(&self) -> Result<TigerRoot, Failure> {
        let mut tree = TigerTree::new();
        self.pieces(Cut::Blocks(TigerTree::BLOCK), |piece| {
            tree.update(piece.bytes);
            Ok(())
        })?;
        Ok(tree.finish())
    }

    pub(super) fn is_wrong(&self, why: impl Display) -> Failure {
        Failure::new(exit::DATA, format_args!("{self}: {why}"))
    }

    pub(super) fn tree<'b>(&self, bytes: &'b [u8]) -> Result<TreeFile<'b>, Failure> {
        TreeFile::parse(bytes).map_err(|error| self.is_wrong(error))
    }

    fn open(&self) -> Result<Box<dyn Read>, Failure> {
        match self.0 {
            None => Ok(Box::new(io::stdin())),
            Some(path) => match File::open(path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => Err(self.is_unreadable(&error)),
            },
        }
    }

    fn is_unreadable(&self, error: &io::Error) -> Failure {
        Failure::new(exit::NO_INPUT, format_args!("cannot read {self}: {error}"))
    }
}

impl Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("standard input"),
            Some(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A tree of either format.
#[derive(Clone, Copy, Debug)]
pub(super) enum TreeFile<'a> {
    Heritage(HeritageTree<'a>),
    Thex(ThexTree<'a>),
}

/// Why bytes are neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoTree {
    #[error("this heritage tree is damaged: {0}")]
    Heritage(HeritageError),
    #[error(
        "this is no heritage tree, which begins with the bytes cdaace99, and no THEX tree: {0}"
    )]
    Neither(ThexError),
}

impl<'a> TreeFile<'a> {
    /// Only a heritage tree says what it is; a THEX tree is what its digests prove it to be.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, NoTree> {
        let heritage = match HeritageTree::parse(bytes) {
            Ok(tree) => return Ok(Self::Heritage(tree)),
            Err(error) => error,
        };
        match ThexTree::parse(bytes) {
            Ok(tree) => Ok(Self::Thex(tree)),
            Err(_) if bytes.starts_with(&HERITAGE_MAGIC) => Err(NoTree::Heritage(heritage)),
            Err(error) => Err(NoTree::Neither(error)),
        }
    }

    pub(super) fn format(&self) -> &'static str {
        match self {
            Self::Heritage(_) => "heritage",
            Self::Thex(_) => "THEX",
        }
    }

    pub(super) fn size(&self) -> u32 {
        match self {
            Self::Heritage(tree) => tree.size(),
            Self::Thex(tree) => tree.size(),
        }
    }

    pub(super) fn height(&self) -> u32 {
        match self {
            Self::Heritage(tree) => tree.height(),
            Self::Thex(tree) => tree.height(),
        }
    }

    /// A node by its place in its level; level 0 is the leaves'.
    pub(super) fn node(&self, level: u32, index: u32) -> Option<&'a [u8]> {
        match self {
            Self::Heritage(tree) => tree.node(level, index),
            Self::Thex(tree) => tree.node(level, index).map(<[u8; 24]>::as_slice),
        }
    }

    pub(super) fn leaf(&self, index: u32) -> Option<&'a [u8]> {
        self.node(0, index)
    }

    pub(super) fn leaves(&self) -> Box<dyn Iterator<Item = &'a [u8]> + 'a> {
        match self {
            Self::Heritage(tree) => Box::new(tree.leaves()),
            Self::Thex(tree) => {
                let tree = *tree;
                let places = 0..tree.size();
                let leaf = move |place| tree.node(0, place).map(<[u8; 24]>::as_slice);
                Box::new(places.map_while(leaf))
            }
        }
    }

    /// The root as its users write it: in hexadecimal digits, or in base32.
    pub(super) fn root(&self) -> String {
        match self {
            Self::Heritage(tree) => hexadecimal(tree.root()),
            Self::Thex(tree) => tree.root().to_string(),
        }
    }

    /// A leaf as text: a THEX tree's in base32.
    pub(super) fn written(&self, leaf: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::Heritage(_) => Cow::Borrowed(leaf),
            Self::Thex(_) => {
                let digest = leaf.try_into().expect("a digest of this tree has 24 bytes");
                Cow::Owned(TigerRoot(digest).to_string().into_bytes())
            }
        }
    }

    /// A leaf for a person.
    pub(super) fn signature(&self, leaf: &'a [u8]) -> Signature {
        match str::from_utf8(&self.written(leaf)) {
            Ok(text) if !text.contains(char::is_control) => Signature::Text(text.to_owned()),
            _ => Signature::Bytes(hexadecimal(leaf)),
        }
    }
}

/// A leaf as it is shown.
#[derive(Debug)]
pub(super) enum Signature {
    Text(String),
    /// In hexadecimal digits, because it cannot be shown as text.
    Bytes(String),
}

impl Signature {
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!({ "text": text }),
            Self::Bytes(digits) => json!({ "hex": digits }),
        }
    }
}

impl Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Bytes(digits) => write!(f, "hex:{digits}"),
        }
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).expect("it is below 16");
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}
