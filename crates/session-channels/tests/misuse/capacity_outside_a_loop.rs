//! A capacity where the other side answers every message.
session_channels::proto! {
    pub bank {
        ask: send(8) { Ask -> answer, Bye -> ! }
        answer: recv { Answer -> ask }
    }
}

fn main() {}
