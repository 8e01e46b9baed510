//! What cannot be read, each with what was expected.
session_channels::proto! {}

session_channels::proto! { pub a { first: sends { Go -> ! } } }

session_channels::proto! { pub b { first: send { Go, Stay -> !, Run { fast: bool } -> ! } } }

session_channels::proto! { pub c<'a> { first: send { Go(&'a str) -> ! } } }

session_channels::proto! { pub d { first: send { #[inline] Go -> ! } } }

session_channels::proto! { pub e { first: send { Go -> ! Stay -> ! } } }

session_channels::proto! { pub f { first: send { Go -> ! } } pub g {} }

fn main() {}
