//! Reads the files of Mosquitto: its configuration, access control lists and password files.
//!
//! ```text
//! bytes ── state functions ──▶ channel of tokens ──▶ reader ──▶ settings, rules, users
//!          (`lex`, one task)                         (`conf`, `acl`, `users`: the other task)
//! ```
//!
//! What holds:
//! - A file is understood whole, or all its mistakes are listed (up to a limit), each with file,
//!   line, column and what was expected there.
//! - What Mosquitto 2.1 refuses while it reads a file is refused, and what it accepts is accepted;
//!   where 2.0 differs, a [`Remark`] says so. `testdata` has the cases, which a real Mosquitto
//!   judges in a test. One thing more is accepted: [`acl::Access::Subscribe`].
//! - No panic, whatever the bytes; memory is limited by the file's size and the limits in
//!   [`bounds`].
//! - Values that are secret cannot be printed.
//!
//! Deliberately absent: opening files (the caller passes bytes, and directories through
//! [`conf::Directories`]), hashes of passwords, and what a setting means for this broker.

pub mod acl;
pub mod bounds;
pub mod conf;
pub mod lex;
pub mod users;

mod filter;
mod mistake;

pub use mistake::{Mistake, Mistakes, Place, Remark};
