//! The macros of `session-channels`, which re-exports and documents them.
//!
//! [`proto!`] goes through four steps: `parse` reads the grammar into a `model`, `check` finds what
//! makes no sense, `shape` and `closure` find out how much memory a session needs, `emit` writes
//! the code. `bridge` alone touches the compiler's tokens.
//!
//! What holds:
//! - The generated code has no `unsafe` and names everything of its own by full paths, so it
//!   compiles wherever the types in the protocol do.
//! - Every problem with the input is an error at the user's token with what to do about it. The
//!   macros do not panic.
//!
//! What it costs to build, by `rustc -Ztime-passes --emit=metadata` for 11 protocols of 10 states
//! less that for 1, on two cores under load: 0.2 s a protocol, of which a tenth is the macro and
//! the rest is rustc checking 240 functions and 100 `impl` blocks. What was tried: handing tokens
//! to the compiler one by one cost eight times as much as all at once; the methods that every
//! receiving endpoint has are a `macro_rules!` of the runtime, so that they are not made from text
//! each time.
//!
//! Absent: any dependency. The grammar is small, and types need only to be delimited.

use proc_macro::TokenStream;

mod bridge;
mod check;
mod closure;
mod emit;
mod error;
mod model;
mod parse;
mod select;
mod shape;
mod tree;

/// A mistake in a protocol is an error at its place, which says what to do about it.
#[proc_macro]
pub fn proto(input: TokenStream) -> TokenStream {
    let mut spans = bridge::Spans::default();
    let trees = bridge::read(input, &mut spans);
    let code = parse::protocol(&trees).and_then(|protocol| {
        let graph = check::check(&protocol)?;
        Ok(emit::emit(&protocol, &graph))
    });
    match code {
        Ok(code) => bridge::write(&code, &spans),
        Err(problems) => bridge::write_problems(&problems, &spans),
    }
}

/// A mistake in the arms is an error at its place, which says what to do about it.
#[proc_macro]
pub fn select(input: TokenStream) -> TokenStream {
    selecting(input, select::Waiting::Async)
}

/// A mistake in the arms is an error at its place, which says what to do about it.
#[proc_macro]
pub fn select_blocking(input: TokenStream) -> TokenStream {
    selecting(input, select::Waiting::Blocking)
}

fn selecting(input: TokenStream, waiting: select::Waiting) -> TokenStream {
    let mut spans = bridge::Spans::default();
    let trees = bridge::read(input, &mut spans);
    match select::read(&trees) {
        Ok(read) => bridge::write(&select::emit(&read, waiting), &spans),
        Err(problems) => bridge::write_problems(&problems, &spans),
    }
}
