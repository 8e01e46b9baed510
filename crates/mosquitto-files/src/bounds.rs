//! Every limit of this crate.

/// Bytes of one file. Tokens have offsets of 32 bits, and a larger file is no configuration.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// Words behind the key of a line. Addresses of a bridge are the longest list there is.
pub const WORDS_PER_LINE_MAX: usize = 4_096;

/// Bytes of a text value, as Mosquitto has it: an MQTT string has a length of 16 bits.
pub const TEXT_BYTES_MAX: usize = 65_535;

/// Slashes of a topic, as Mosquitto has it (`TOPIC_HIERARCHY_LIMIT`).
pub const TOPIC_SLASHES_MAX: usize = 200;

/// Characters of an automatic client id's prefix, in bytes.
pub const ID_PREFIX_BYTES_MAX: usize = 50;

/// Mistakes that are listed for one file; the others are counted. About 200 bytes each.
pub const MISTAKES_MAX: usize = 100;

/// Characters of a mistaken word that are shown.
pub const FOUND_CHARS_MAX: usize = 48;

/// Tokens that cross the channel as one message, 16 bytes each: 1 KiB.
pub const TOKENS_PER_BATCH: usize = 64;

/// Batches on their way between lexer and reader: 8 KiB for each file that is being read.
pub const BATCHES_IN_FLIGHT: u32 = 8;

const _: () = assert!(FILE_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(TOKENS_PER_BATCH <= u16::MAX as usize);
