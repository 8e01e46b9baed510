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
//! What it costs to build: this crate 1.6 s of one core as cargo builds a macro for a dependant
//! (2.6 s with debugging information, as the workspace's own tests do); a protocol of 10 states
//! 0.09 s (`rustc --emit=metadata`, processor time, 11 protocols less 1, least of 7 on two cores
//! that others used too; 0.11 s before what a send gives was made by the library). Of that the ten
//! methods of receiving endpoints are 0.03 s and `Debug` is 0.01 s; the rest is rustc's work on 150
//! more functions and 70 `impl` blocks. Far fewer would need endpoints that are types of the
//! library, and then errors would name those instead of the user's states. Handing the tokens to
//! the compiler one by one rather than all at once took 0.008 s more.
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
