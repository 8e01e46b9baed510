//! Blocks of the documentation, which tests carry out.

use std::fs;
use std::path::Path;

/// The fenced blocks of a page in this language, in order.
#[track_caller]
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = fs::read_to_string(docs.join(page)).expect("the page is there");
    let fence = format!("```{language}\n");
    let pieces = text.split(&fence).skip(1);
    let blocks: Vec<_> = pieces
        .filter_map(|piece| Some(piece.split_once("\n```")?.0.to_owned() + "\n"))
        .collect();
    assert!(!blocks.is_empty(), "{page} has no {language}");
    blocks
}

/// Puts other words for what a page says; each of them must be there.
#[track_caller]
pub(crate) fn replaced(block: &str, words: &[(&str, &str)]) -> String {
    let mut text = block.to_owned();
    for (old, new) in words {
        assert!(text.contains(old), "{old:?} is not in\n{block}");
        text = text.replace(old, new);
    }
    text
}
