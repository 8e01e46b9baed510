//! The two ends that a service begins with belong to one session.
session_channels::proto! {
    pub ping { ping: send { Ping -> ! } }
}

session_channels::proto! {
    pub note { note: send { Note -> ! } }
}

fn main() {
    let mixed = || (ping::init().0, note::init().1);
    let _client = session_channels::serve("mixed", mixed, |server| drop(server));
}
