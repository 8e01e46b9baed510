//! Buffers for bytes that wait in a connection: output until the socket takes it, input until the
//! rest of its packet has come.
//!
//! Invariant: a connection for which nothing waits has no buffer. The memory goes round among those
//! that need some, so that steady traffic asks the allocator for nothing and an idle connection
//! costs nothing. A large one is given only to who has much to put there: a single byte that waits
//! for long does not hold a megabyte.

use crate::limits::{
    BUFFER_BYTES_MAX, BUFFER_POOL_BYTES_MAX, BUFFER_POOL_MAX, SMALL_BUFFER_BYTES_MAX,
};

/// Used buffers of this shard.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    /// Capacity of all of them.
    bytes: usize,
}

impl BufferPool {
    /// Gives a used buffer, if there is one, to a place that has no memory and will have so many
    /// bytes.
    #[inline]
    pub(crate) fn provide(&mut self, place: &mut Vec<u8>, bytes: usize) {
        if place.capacity() == 0 {
            let buffers = self.of(bytes);
            if let Some(buffer) = buffers.pop() {
                self.bytes -= buffer.capacity();
                *place = buffer;
            }
        }
    }

    /// Takes the memory of a place where nothing waits any more. A buffer that has grown large goes
    /// to the allocator.
    pub(crate) fn release(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        let useful = (1..=BUFFER_BYTES_MAX).contains(&capacity);
        if useful
            && self.small.len() + self.large.len() < BUFFER_POOL_MAX
            && self.bytes + capacity <= BUFFER_POOL_BYTES_MAX
        {
            self.bytes += capacity;
            buffer.clear();
            self.of(capacity).push(buffer);
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
    fn all_together_have_a_limit_and_what_is_given_out_does_not_count() {
        let mut pool = BufferPool::default();
        let most = BUFFER_POOL_BYTES_MAX / BUFFER_BYTES_MAX;
        for _ in 0..=most {
            pool.release(vec![0; BUFFER_BYTES_MAX]);
        }
        assert_eq!(pool.small.len() + pool.large.len(), most);
        let mut place = Vec::new();
        pool.provide(&mut place, BUFFER_BYTES_MAX);
        assert_eq!(pool.large.len(), most - 1);
        pool.release(vec![0; BUFFER_BYTES_MAX]);
        assert_eq!(pool.large.len(), most);
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
