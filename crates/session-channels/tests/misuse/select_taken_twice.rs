//! An endpoint that an arm has taken is not there afterwards, and one of two names of it neither.
session_channels::proto! {
    pub note { note: recv { Note -> ! } }
}

fn main() {
    let (mut reader, _writer) = note::init();
    session_channels::select_blocking! {
        reader => { note::Note::Note => {} closed(_) => {} }
    }
    let _ = reader.recv_blocking();
}
