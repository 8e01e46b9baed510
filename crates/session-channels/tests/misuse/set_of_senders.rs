//! Only what receives can be in a set.
session_channels::proto! {
    pub note { note: send { Note -> ! } }
}

fn main() {
    let mut set = session_channels::PortSet::new();
    let (writer, _reader) = note::init();
    set.insert(writer);
}
