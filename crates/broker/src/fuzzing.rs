//! Private parts that read what any peer or administrator writes, for the fuzz targets
//! (`dev/fuzz`).
//!
//! Deliberately absent: everything that a program would use.

mod authentication;
mod doors;

pub use authentication::*;
pub use doors::*;
