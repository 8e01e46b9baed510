//! A warning, made an error here: no message ends the session.
#![deny(deprecated)]

session_channels::proto! {
    pub clock {
        wait: send { Wait -> tick }
        tick: recv { Tick -> wait }
    }
}

session_channels::proto! {
    /// It is meant.
    #[forever]
    pub eternal {
        wait: send { Wait -> tick }
        tick: recv { Tick -> wait }
    }
}

fn main() {}
