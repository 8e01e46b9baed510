//! Only what receives can be waited for.
use session_channels::select_blocking;

session_channels::proto! {
    pub note { note: send { Note -> ! } }
}

fn main() {
    let (mut writer, _reader) = note::init();
    select_blocking! {
        writer => { _ => {} closed(_) => {} }
    }
}
