//! The records that wait to be written, and which of them go when there are too many.
//!
//! Records leave in the order in which they came. A full queue suppresses the newest record of the
//! client with the most of them, and counts it, so that a client that logs little loses nothing to
//! one that logs much.
//!
//! Invariant: a record is queued, or counted under the client it is about. The broker's own records
//! count as one more client.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The client that a record is about, if any.
pub(super) type Client = Option<Arc<str>>;

thread_local! {
    static CLIENT: RefCell<Client> = const { RefCell::new(None) };
}

/// Records that are made meanwhile, on this thread, are about this client.
pub(crate) fn about<T>(client: Option<&Arc<str>>, log: impl FnOnce() -> T) -> T {
    CLIENT.set(client.cloned());
    let done = log();
    CLIENT.set(None);
    done
}

/// The client that records of this thread are about now.
pub(super) fn client() -> Client {
    CLIENT.with_borrow(Clone::clone)
}

#[derive(Debug)]
pub(super) struct Queue {
    records_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<(Client, Vec<u8>)>,
    /// How many of these are about whom.
    counts: HashMap<Client, usize>,
    suppressed: Suppressed,
    has_ended: bool,
}

/// Records that were not queued.
#[derive(Debug, Default)]
pub(super) struct Suppressed {
    pub(super) of_clients: HashMap<Client, u64>,
    /// Of clients beyond [`NAMED_MAX`].
    pub(super) of_others: u64,
}

/// Clients whose suppressed records are counted apart.
const NAMED_MAX: usize = 256;

/// What is to be written now.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) records: Vec<Vec<u8>>,
    /// Nothing else waits.
    pub(super) is_last: bool,
    /// Nothing will come either.
    pub(super) has_ended: bool,
}

impl Queue {
    pub(super) fn new(records_max: usize) -> Self {
        Self {
            records_max,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Queues a record, or suppresses one. It never waits for the reader of the log.
    pub(super) fn push(&self, client: Client, text: Vec<u8>) {
        let mut state = self.lock();
        let was_empty = state.records.is_empty();
        state.push(self.records_max, client, text);
        drop(state);
        if was_empty {
            self.changed.notify_one();
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_one();
    }

    /// Waits for records, and takes them up to so many bytes, and one more.
    pub(super) fn take(&self, bytes_max: usize) -> Piece {
        let mut state = self.lock();
        while state.records.is_empty() && !state.has_ended {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some(text) = state.pop()
        {
            bytes += text.len();
            records.push(text);
        }
        let is_last = state.records.is_empty();
        Piece {
            records,
            is_last,
            has_ended: is_last && state.has_ended,
        }
    }

    /// What was suppressed since the last call.
    pub(super) fn take_suppressed(&self) -> Suppressed {
        std::mem::take(&mut self.lock().suppressed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, records_max: usize, client: Client, text: Vec<u8>) {
        if self.records.len() >= records_max {
            let own = self.counts.get(&client).copied().unwrap_or(0);
            let most = self.counts.iter().max_by_key(|(_, count)| **count);
            let Some((loudest, _)) = most.filter(|(_, count)| **count > own + 1) else {
                return self.suppressed.count(client);
            };
            let loudest = loudest.clone();
            let newest = self.records.iter().rposition(|(of, _)| *of == loudest);
            if let Some(newest) = newest {
                self.records.remove(newest);
            }
            self.forget_one(&loudest);
            self.suppressed.count(loudest);
        }
        *self.counts.entry(client.clone()).or_default() += 1;
        self.records.push_back((client, text));
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let (client, text) = self.records.pop_front()?;
        self.forget_one(&client);
        Some(text)
    }

    fn forget_one(&mut self, client: &Client) {
        if let Some(count) = self.counts.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(client);
            }
        }
    }
}

impl Suppressed {
    fn count(&mut self, client: Client) {
        let is_new = !self.of_clients.contains_key(&client);
        if is_new && self.of_clients.len() >= NAMED_MAX {
            self.of_others += 1;
        } else {
            *self.of_clients.entry(client).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(queue: &Queue) -> String {
        let records = queue.take(usize::MAX).records;
        String::from_utf8(records.concat()).unwrap()
    }

    #[test]
    fn a_loud_client_loses_its_own_records_only() {
        let queue = Queue::new(100);
        let of = |name: &str| Some(Arc::<str>::from(name));
        for _ in 0..1_000 {
            queue.push(of("loud"), b"l".to_vec());
        }
        for number in 0..30 {
            queue.push(of(&format!("quiet {number}")), b"q".to_vec());
            queue.push(None, b"b".to_vec());
        }
        let suppressed = queue.take_suppressed();
        assert_eq!(suppressed.of_clients, HashMap::from([(of("loud"), 960)]));
        let text = text(&queue);
        assert_eq!(text.matches('q').count(), 30);
        assert_eq!(text.matches('b').count(), 30);
        assert_eq!(
            text,
            format!("{}{}", "l".repeat(40), "qb".repeat(30)),
            "in order"
        );
        assert!(queue.lock().counts.is_empty());
    }

    #[test]
    fn where_all_are_alike_the_newest_is_counted_and_names_have_a_limit() {
        let queue = Queue::new(2);
        for number in 0..NAMED_MAX + 12 {
            queue.push(Some(Arc::from(number.to_string())), b"x".to_vec());
        }
        let suppressed = queue.take_suppressed();
        assert_eq!(suppressed.of_clients.len(), NAMED_MAX);
        assert_eq!(suppressed.of_others, 10);
        assert!(!suppressed.of_clients.contains_key(&Some(Arc::from("0"))));
    }

    #[test]
    fn the_end_comes_behind_what_waits() {
        let queue = Queue::new(10);
        queue.push(None, vec![1; 10]);
        queue.push(None, vec![2; 10]);
        queue.end();
        let first = queue.take(5);
        assert_eq!((first.records.len(), first.has_ended), (1, false));
        let second = queue.take(5);
        assert_eq!((second.records.len(), second.has_ended), (1, true));
        assert!(queue.take(5).has_ended);
    }
}
