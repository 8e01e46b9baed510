//! Properties of MQTT 5.0: one table, and what follows from it.
//!
//! - `table` says of each property its identifier, type, place, number and range.
//! - `list` holds [`Properties`], a validated sequence in its encoded form, read in place; and
//!   [`PropertyBuf`], which makes one.
//!
//! A `Properties` is valid for at least one place: every value in it is of its type and in its
//! range. Nothing is decoded ahead of its use, so a packet whose properties nobody asks for costs
//! one pass of validation.

mod list;
mod table;

pub use self::{
    list::{Iter, Properties, PropertyBuf},
    table::{Property, PropertyId},
};
