//! Hexadecimal text of the test data.

pub(crate) fn bytes(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text} has an odd digit");
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("the data is hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}
