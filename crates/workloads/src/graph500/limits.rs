//! Limits of a graph, and with them of the memory that it takes.
//!
//! A vertex takes 26 bytes in the graph, the search and its result; an edge tuple 8 bytes in the
//! list, 8 for the validation and 8 in the graph, and 16 more while the graph is built.

/// A vertex's number, from 0. All numbers below the largest in the list are vertices.
pub type Vertex = u32;
/// In the place of a vertex where there is none.
pub const NONE: Vertex = Vertex::MAX;

/// Vertices of a graph: scale 28. This many take 6.5 GiB.
pub const VERTICES_MAX: u32 = 1 << 28;
/// Edge tuples of a list: each gives two neighbours, whose places are counted in 32 bits. This
/// many take 16 GiB in the list.
pub const EDGES_MAX: usize = (1 << 31) - 1;
/// The largest level of a vertex. A level takes 16 bits.
pub const LEVEL_MAX: u16 = u16::MAX - 2;
/// The largest scale with [`EDGE_FACTOR`] tuples for each vertex.
pub const SCALE_MAX: u32 = 26;
/// Edge tuples for each vertex, as the text requires.
pub const EDGE_FACTOR: u32 = 16;
/// Search keys, as the text requires.
pub const KEYS: usize = 64;
/// Bytes of a line in a file of edges.
pub const LINE_MAX: u64 = 4_096;

// `NONE` is no vertex, and an offset of two neighbours for each tuple fits in 32 bits.
const _: () = assert!(VERTICES_MAX < NONE && EDGES_MAX <= (u32::MAX / 2) as usize);
const _: () = assert!((EDGE_FACTOR as usize) << SCALE_MAX <= EDGES_MAX);
