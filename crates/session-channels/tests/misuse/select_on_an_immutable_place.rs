//! A place is waited for through `&mut`.
use session_channels::select_blocking;

session_channels::proto! {
    pub note { note: recv { Note -> ! } }
}

fn main() {
    let (reader, _writer) = note::init();
    select_blocking! {
        reader => { note::Note::Note => {} closed(_) => {} }
    }
}
