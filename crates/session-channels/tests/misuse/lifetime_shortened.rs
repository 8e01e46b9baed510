//! Both sides of a session speak of the same type: what one takes for `'static` the other does not
//! send with a shorter life.
session_channels::proto! {
    pub feed<T: Send> { open: send(4) { Item(T) -> open, End -> ! } }
}

session_channels::proto! {
    pub talk<T: Send> { ask: send { Ask(T) -> answer } answer: recv { Answer(T) -> ! } }
}

fn sender<'a>(long: feed::client::Open<&'static str>) -> feed::client::Open<&'a str> {
    long
}

fn receiver<'a>(long: feed::server::Open<&'static str>) -> feed::server::Open<&'a str> {
    long
}

fn one_who_takes_turns<'a>(short: talk::client::Ask<&'a str>) -> talk::client::Ask<&'static str> {
    short
}

fn who_meets<'a>(
    long: session_channels::rendezvous::Sender<&'static str>,
) -> session_channels::rendezvous::Sender<&'a str> {
    long
}

fn main() {}
