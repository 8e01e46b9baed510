//! WebSocket (RFC 6455) as MQTT uses it (MQTT 5.0, section 6): binary frames that carry a stream of
//! bytes, whatever their borders.
//!
//! Bytes go in and bytes come out; no I/O, no clock. [`upgrade`] is the opening handshake of either
//! side, [`Frames`] what follows it.
//!
//! Invariants:
//! - Nothing is assembled: the payload of a frame is passed on as it comes, so a frame of any
//!   length needs no memory. Only an incomplete header or control frame waits, up to
//!   [`HEADER_BYTES`] and [`CONTROL_BYTES`].
//! - A frame that breaks RFC 6455 ends the stream with a close frame that says why.
//!
//! Deliberately absent: extensions (none is accepted), text messages [MQTT-6.0.0-1], and sending
//! fragments or pings.

pub mod forwarded;
mod frames;
pub mod upgrade;

pub use frames::{CONTROL_BYTES, End, Frames, HEADER_BYTES, Masks, Opened, Violation, status};
