//! The arms of a place handle every message, as those of `match` do.
use session_channels::select_blocking;

session_channels::proto! {
    pub note { note: recv { Note -> !, Blank -> ! } }
}

fn main() {
    let (mut reader, _writer) = note::init();
    select_blocking! {
        reader => { note::Note::Note => {} closed(_) => {} }
    }
}
