//! A receive that is given an endpoint keeps it until it is done.
session_channels::proto! {
    pub note { note: recv { Note -> ! } }
}

fn main() {
    let (reader, _writer) = note::init();
    let first = reader.recv();
    let second = reader.recv();
    drop((first, second));
}
