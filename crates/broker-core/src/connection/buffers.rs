//! Buffers for bytes that wait in a connection: output until the socket takes it, input until the
//! rest of its packet has come.
//!
//! Invariant: a connection for which nothing waits has no buffer. The memory goes round among those
//! that need some, so that steady traffic asks the allocator for nothing and an idle connection
//! costs nothing. A large one is given to input only if much of it has come: a single byte that
//! waits for long does not hold a megabyte. Output takes a large one also when there is no small
//! one left: the small ones have grown.

use crate::limits::{
    BUFFER_BYTES_MAX, BUFFER_POOL_MAX, LARGE_BUFFER_POOL_MAX, SMALL_BUFFER_BYTES_MAX,
};

/// Used buffers of this shard.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl BufferPool {
    /// Gives a used buffer, if there is one, to input that has no memory and will have so many
    /// bytes.
    pub(crate) fn provide(&mut self, place: &mut Vec<u8>, bytes: usize) {
        if place.capacity() == 0
            && let Some(buffer) = self.of(bytes).pop()
        {
            *place = buffer;
        }
    }

    /// The same for output that begins with so many bytes.
    #[inline]
    pub(crate) fn provide_output(&mut self, place: &mut Vec<u8>, bytes: usize) {
        if place.capacity() == 0 {
            let buffer = self.of(bytes).pop().or_else(|| self.large.pop());
            if let Some(buffer) = buffer {
                *place = buffer;
            }
        }
    }

    /// Takes the memory of a place where nothing waits any more. A buffer that has grown large goes
    /// to the allocator.
    pub(crate) fn release(&mut self, mut buffer: Vec<u8>) {
        let (capacity, most) = match buffer.capacity() {
            0 => return,
            small @ ..=SMALL_BUFFER_BYTES_MAX => (small, BUFFER_POOL_MAX),
            large @ ..=BUFFER_BYTES_MAX => (large, LARGE_BUFFER_POOL_MAX),
            _ => return,
        };
        let buffers = self.of(capacity);
        if buffers.len() < most {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    fn of(&mut self, bytes: usize) -> &mut Vec<Vec<u8>> {
        if bytes > SMALL_BUFFER_BYTES_MAX {
            &mut self.large
        } else {
            &mut self.small
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_buffer_serves_again_empty() {
        let mut pool = BufferPool::default();
        pool.release(b"used".to_vec());
        let mut place = Vec::new();
        pool.provide(&mut place, 1);
        assert!(place.is_empty() && place.capacity() >= 4);
        let mut other = Vec::new();
        pool.provide(&mut other, 1);
        assert_eq!(other.capacity(), 0, "there was one");
    }

    #[test]
    fn a_place_in_use_keeps_what_it_has() {
        let mut pool = BufferPool::default();
        pool.release(vec![0; 100]);
        let mut place = b"waiting".to_vec();
        pool.provide(&mut place, 1);
        assert_eq!(place, b"waiting");
    }

    #[test]
    fn neither_large_buffers_nor_too_many_nor_empty_ones_are_kept() {
        let mut pool = BufferPool::default();
        pool.release(vec![0; BUFFER_BYTES_MAX + 1]);
        pool.release(Vec::new());
        assert_eq!(pool.small.len() + pool.large.len(), 0);
        for _ in 0..=BUFFER_POOL_MAX {
            pool.release(vec![0]);
        }
        assert_eq!(pool.small.len() + pool.large.len(), BUFFER_POOL_MAX);
    }

    #[test]
    fn output_that_has_grown_is_taken_again_and_takes_no_place_from_small_ones() {
        let mut pool = BufferPool::default();
        for _ in 0..=LARGE_BUFFER_POOL_MAX {
            pool.release(vec![0; BUFFER_BYTES_MAX]);
        }
        assert_eq!(pool.large.len(), LARGE_BUFFER_POOL_MAX);
        pool.release(vec![0; 10]);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        pool.provide_output(&mut first, 1);
        pool.provide_output(&mut second, 1);
        assert_eq!(
            (first.capacity(), second.capacity()),
            (10, BUFFER_BYTES_MAX)
        );
    }

    #[test]
    fn a_large_buffer_goes_only_to_who_needs_one() {
        let mut pool = BufferPool::default();
        pool.release(vec![0; SMALL_BUFFER_BYTES_MAX + 1]);
        let mut place = Vec::new();
        pool.provide(&mut place, SMALL_BUFFER_BYTES_MAX);
        assert_eq!(place.capacity(), 0);
        pool.provide(&mut place, SMALL_BUFFER_BYTES_MAX + 1);
        assert!(place.capacity() > SMALL_BUFFER_BYTES_MAX);
    }
}
