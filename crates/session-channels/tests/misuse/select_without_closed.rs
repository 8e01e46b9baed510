//! It must be said what happens when the other side is gone.
use session_channels::select_blocking;

session_channels::proto! {
    pub note { note: recv { Note -> ! } }
}

fn main() {
    let (mut reader, _writer) = note::init();
    select_blocking! {
        reader => { note::Note::Note => {} }
    }
}
