//! rtrb and ringbuf: rings between two threads that cannot sleep, so their user spins.

use super::Peer;
use crate::work::{
    idle,
    threads::{self, ThreadChannel},
};
use ringbuf::traits::{Consumer as _, Observer as _, Producer as _, Split as _};
use std::hint;

pub(super) fn rtrb() -> Peer {
    Peer::new("rtrb", Some("rtrb"), "cannot sleep: the user spins")
        .with(threads::between_two::<Rtrb>())
        .with(idle::of_threads::<Rtrb>())
}

pub(super) fn ringbuf() -> Peer {
    Peer::new("ringbuf", Some("ringbuf"), "cannot sleep: the user spins")
        .with(threads::between_two::<Ringbuf>())
        .with(idle::of_threads::<Ringbuf>())
}

struct Rtrb;

impl ThreadChannel for Rtrb {
    type Sender = rtrb::Producer<u64>;
    type Receiver = rtrb::Consumer<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        rtrb::RingBuffer::new(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        while sender.push(value).is_err() {
            if sender.is_abandoned() {
                return;
            }
            hint::spin_loop();
        }
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        loop {
            if let Ok(value) = receiver.pop() {
                return Some(value);
            }
            if receiver.is_abandoned() {
                // The last message may have come between the two questions.
                return receiver.pop().ok();
            }
            hint::spin_loop();
        }
    }
}

struct Ringbuf;

impl ThreadChannel for Ringbuf {
    type Sender = ringbuf::HeapProd<u64>;
    type Receiver = ringbuf::HeapCons<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        ringbuf::HeapRb::new(capacity).split()
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        while sender.try_push(value).is_err() {
            if !sender.read_is_held() {
                return;
            }
            hint::spin_loop();
        }
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        loop {
            if let Some(value) = receiver.try_pop() {
                return Some(value);
            }
            if !receiver.write_is_held() {
                return receiver.try_pop();
            }
            hint::spin_loop();
        }
    }
}
