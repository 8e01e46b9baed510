//! What is not a place cannot be looked at more than once.
use session_channels::select_blocking;

session_channels::proto! {
    pub note { note: recv { Note -> ! } }
}

fn reader() -> note::client::Note {
    note::init().0
}

fn main() {
    select_blocking! {
        reader() => { note::Note::Note => {}, closed(_) => {} }
    }
}
