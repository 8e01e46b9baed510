//! Messages on their way to the other side: packet ids, the window, acknowledgements, re-sending.
//!
//! ```text
//!            begin QoS 1                   PUBACK
//!   (queue) -------------> await PUBACK -------------------------------> done, message back
//!            begin QoS 2                   PUBREC < 0x80       PUBCOMP
//!   (queue) -------------> await PUBREC ---------> await PUBCOMP ------> done
//!                              |           message back
//!                              |  PUBREC >= 0x80
//!                              +---------------------------------------> done, message back
//! ```
//!
//! Invariants:
//! - A message is unfinished until PUBACK, or until PUBREC and then PUBCOMP, also after it expires.
//!   `[MQTT-4.3.2-3]` `[MQTT311-4.3.2-1]` `[MQTT-4.3.3-3]` `[MQTT-4.3.3-5]` `[MQTT311-4.3.3-1]`
//!   `[MQTT-4.3.3-13]`
//! - At most Receive Maximum messages of the session are unfinished. QoS 0 does not pass through
//!   here. `[MQTT-3.3.4-9]` `[MQTT-4.9.0-1]` `[MQTT-3.3.4-10]` `[MQTT-4.9.0-3]`
//! - Only a reconnect makes messages repeat: in the order in which they were begun, before new
//!   ones, within the new window; each PUBREL in the order of the PUBRECs. `[MQTT-4.4.0-1]`
//!   `[MQTT-4.6.0-1]` `[MQTT-4.6.0-4]` `[MQTT311-4.4.0-1]` `[MQTT311-4.6.0-1]` `[MQTT311-4.6.0-4]`
//! - DUP is set exactly on a message that was sent before. `[MQTT-3.3.1-1]` `[MQTT311-3.3.1-1]`
//!   `[MQTT-4.3.2-2]` `[MQTT-4.3.3-2]`

use thiserror::Error;

use super::table::{MAX_ENTRIES, Table};
use crate::{PacketId, QoS};

/// The most messages that are begun and not finished, whatever the receive maximum is.
pub const INFLIGHT_MAX: u16 = MAX_ENTRIES;

/// The unfinished QoS 1 and QoS 2 messages of one session in one direction.
///
/// `M` is the owner's handle of a message, small enough to be moved. The number of entries is
/// limited by [`set_receive_maximum`](Self::set_receive_maximum), and by [`INFLIGHT_MAX`] in any
/// case; only after [`restore`](Self::restore) there may be more.
///
/// What a durable session must have on disk before something leaves:
///
/// | leaves           | on disk before it                | how                                    |
/// |------------------|----------------------------------|----------------------------------------|
/// | PUBLISH of QoS 2 | [`Entry::Publish`]               | [`begin_unsent`], store, [`mark_sent`] |
/// | ... with its id ahead | the same | [`begin_ahead`], store, [`start`], [`mark_sent`] |
/// | PUBREL           | [`Entry::PubRel`]                | [`PubRec::SendPubRel`], store, send    |
/// | a repetition     | everything to be stored so far   | store, then [`poll_resend`]            |
///
/// The end of an entry may be stored late: a restart then repeats what the other side recognizes.
/// [`iter`](Self::iter) gives the entries, [`restore`](Self::restore) takes them back.
///
/// [`begin_unsent`]: Self::begin_unsent
/// [`begin_ahead`]: Self::begin_ahead
/// [`start`]: Self::start
/// [`mark_sent`]: Self::mark_sent
/// [`poll_resend`]: Self::poll_resend
#[derive(Clone, Debug)]
pub struct Outbound<M> {
    table: Table<State<M>>,
    receive_maximum: u16,
    /// What the owner sends before it has seen more acknowledgements: at most as much.
    window: u16,
    /// Entries under way on the present connection.
    under_way: u32,
    /// The oldest entry that the present connection has not seen; after it, none has been.
    resend_next: Option<PacketId>,
}

#[derive(Clone, Debug)]
struct State<M> {
    awaiting: Awaiting<M>,
    /// On some connection, so that the next time is a repetition.
    sent: bool,
    /// On the present connection.
    under_way: bool,
}

/// Which acknowledgement is next: PUBACK, PUBREC or PUBCOMP.
#[derive(Clone, Debug)]
enum Awaiting<M> {
    Ack(M),
    Rec(M),
    Comp,
}

impl<M> Outbound<M> {
    /// For a new session.
    pub const fn new() -> Self {
        Self {
            table: Table::new(),
            receive_maximum: u16::MAX,
            window: u16::MAX,
            under_way: 0,
            resend_next: None,
        }
    }

    /// For a session read from disk: entries as [`iter`](Self::iter) gave them, oldest first.
    /// All of them are to be sent again.
    pub fn restore(entries: impl IntoIterator<Item = Entry<M>>) -> Result<Self, DuplicateId> {
        let mut restored = Self::new();
        for entry in entries {
            let (id, awaiting) = match entry {
                Entry::Publish {
                    id,
                    qos: QoS::ExactlyOnce,
                    message,
                } => (id, Awaiting::Rec(message)),
                Entry::Publish { id, message, .. } => (id, Awaiting::Ack(message)),
                Entry::PubRel { id } => (id, Awaiting::Comp),
            };
            // Whether it left before the stop is not known; saying so is the safe side.
            let state = State {
                awaiting,
                sent: true,
                under_way: false,
            };
            if !restored.table.push_with_id(id, state) {
                return Err(DuplicateId(id));
            }
        }
        restored.resend_next = restored.table.oldest();
        Ok(restored)
    }

    /// The message that was begun last, of those that are not finished.
    pub fn newest(&self) -> Option<PacketId> {
        self.table.newest()
    }

    /// Ids go on behind this number. For a store that has lost what it knew last: the other side
    /// may have ids, near those that are known, which it takes for repetitions until PUBREL.
    pub fn go_on_behind(&mut self, number: u16) {
        self.table.go_on_behind(number);
    }

    /// What the other side can take on this connection; before the first message of it. The largest
    /// possible number for 3.x, which knows no such limit.
    pub fn set_receive_maximum(&mut self, receive_maximum: u16) {
        self.receive_maximum = receive_maximum;
        self.window = receive_maximum;
    }

    /// Begins with a window of so many messages, if the other side takes as many. It grows by
    /// [`widen`](Self::widen).
    pub fn begin_narrow(&mut self, window: u16) {
        self.window = self.receive_maximum.min(window.max(1));
    }

    /// Whether the window is smaller than what the other side takes.
    #[inline]
    pub fn is_narrow(&self) -> bool {
        self.window < self.receive_maximum
    }

    /// Lets one more message be under way.
    pub fn widen(&mut self) {
        self.window = self.receive_maximum.min(self.window.saturating_add(1));
    }

    /// Whether [`begin`](Self::begin) would succeed now.
    pub fn window_open(&self) -> bool {
        !self.resending() && self.has_room() && self.table.has_room()
    }

    /// Messages begun and not finished.
    pub fn inflight(&self) -> usize {
        self.table.len()
    }

    /// Gives the message a packet id that is not in use `[MQTT-2.2.1-4]`, under which the owner
    /// sends it now, DUP not set. The message comes back if the window is closed `[MQTT-4.9.0-2]`,
    /// or if its QoS is 0: it needs no id.
    pub fn begin(&mut self, qos: QoS, message: M) -> Result<PacketId, M> {
        self.begin_state(qos, message, true)
    }

    /// As [`begin`](Self::begin), for a message that must not leave before its id is stored; then
    /// [`mark_sent`](Self::mark_sent) says whether to send it.
    pub fn begin_unsent(&mut self, qos: QoS, message: M) -> Result<PacketId, M> {
        self.begin_state(qos, message, false)
    }

    /// Gives a message its packet id before the window has a place for it, so that the id can be
    /// stored meanwhile. It comes behind all that was begun, and [`start`](Self::start) says when
    /// it has a place; [`resending`](Self::resending) holds until then. The message comes back if
    /// no id is free, or if its QoS is 0.
    pub fn begin_ahead(&mut self, qos: QoS, message: M) -> Result<PacketId, M> {
        let id = self.add(qos, message, false, false)?;
        self.resend_next.get_or_insert(id);
        Ok(id)
    }

    /// Gives a message of [`begin_ahead`](Self::begin_ahead) its place in the window: those before
    /// it come first. When its id is stored, [`mark_sent`](Self::mark_sent) says whether to send
    /// it.
    pub fn start(&mut self, id: PacketId) -> Start {
        if self.resend_next != Some(id) || self.was_sent(id) {
            return Start::Gone;
        }
        if !self.has_room() {
            return Start::Wait;
        }
        if let Some(state) = self.table.get_mut(id) {
            state.under_way = true;
            self.under_way += 1;
        }
        self.skip_under_way();
        Start::Send
    }

    /// How many messages may be under way on this connection.
    pub fn window(&self) -> u16 {
        self.window
    }

    /// The id of [`begin_unsent`](Self::begin_unsent) is stored. The message is to be sent now;
    /// none: the connection was replaced in the meantime, and re-sending sees to it.
    pub fn mark_sent(&mut self, id: PacketId) -> Option<&M> {
        let state = self.table.get_mut(id)?;
        if state.sent || !state.under_way {
            return None;
        }
        state.sent = true;
        state.awaiting.message()
    }

    /// PUBACK, whatever its reason: the message is finished and comes back.
    pub fn handle_puback(&mut self, id: PacketId) -> Result<M, AckError> {
        match self.awaited(id)?.awaiting {
            Awaiting::Ack(_) => {}
            Awaiting::Rec(_) | Awaiting::Comp => return Err(AckError::WrongQoS),
        }
        match self.finish(id) {
            Some(Awaiting::Ack(message)) => Ok(message),
            _ => Err(AckError::Unknown),
        }
    }

    /// PUBREC; `reason_is_error` for 0x80 and above, which ends the message and frees the id
    /// `[MQTT-4.4.0-2]`. Otherwise PUBREL is due `[MQTT-4.3.3-4]`, again if PUBREC comes again.
    pub fn handle_pubrec(
        &mut self,
        id: PacketId,
        reason_is_error: bool,
    ) -> Result<PubRec<M>, AckError> {
        let state = self.awaited(id)?;
        match state.awaiting {
            Awaiting::Ack(_) => return Err(AckError::WrongQoS),
            // The other side owns the message since its first PUBREC; only PUBCOMP ends it now.
            Awaiting::Comp => return Ok(PubRec::SendPubRel(None)),
            Awaiting::Rec(_) => {}
        }
        if reason_is_error {
            return match self.finish(id) {
                Some(Awaiting::Rec(message)) => Ok(PubRec::Ended(message)),
                _ => Err(AckError::Unknown),
            };
        }
        // The PUBLISH must not be sent again from here on. [MQTT-4.3.3-6]
        let awaiting = std::mem::replace(&mut state.awaiting, Awaiting::Comp);
        // An answer to what an earlier connection carried: the PUBREL is this connection's first.
        let first_here = !std::mem::replace(&mut state.under_way, true);
        if first_here {
            self.under_way += 1;
            self.skip_under_way();
        }
        match awaiting {
            Awaiting::Rec(message) => Ok(PubRec::SendPubRel(Some(message))),
            _ => Ok(PubRec::SendPubRel(None)),
        }
    }

    /// PUBCOMP: the id is free. The message went back to the owner at PUBREC.
    pub fn handle_pubcomp(&mut self, id: PacketId) -> Result<(), AckError> {
        match self.awaited(id)?.awaiting {
            Awaiting::Ack(_) => Err(AckError::WrongQoS),
            Awaiting::Rec(_) => Err(AckError::TooEarly),
            Awaiting::Comp => {
                self.finish(id);
                Ok(())
            }
        }
    }

    /// The connection ended: everything unfinished is to be sent again on the next one, after
    /// [`set_receive_maximum`](Self::set_receive_maximum), by [`poll_resend`](Self::poll_resend).
    pub fn handle_disconnected(&mut self) {
        let mut next = self.table.oldest();
        while let Some(id) = next {
            if let Some(state) = self.table.get_mut(id) {
                state.under_way = false;
            }
            next = self.table.newer(id);
        }
        self.under_way = 0;
        self.resend_next = self.table.oldest();
        self.table.shrink_idle();
    }

    /// What to send again next `[MQTT-4.4.0-1]`. None: nothing is left, or the window is full and
    /// an acknowledgement makes room for more ([`resending`](Self::resending) tells which).
    pub fn poll_resend(&mut self) -> Option<Resend<'_, M>> {
        if !self.has_room() {
            return None;
        }
        let id = self.resend_next?;
        self.table.get_mut(id)?.under_way = true;
        self.under_way += 1;
        self.skip_under_way();
        let state = self.table.get_mut(id)?;
        let dup = std::mem::replace(&mut state.sent, true);
        Some(match &state.awaiting {
            Awaiting::Ack(message) => Resend::Publish {
                id,
                qos: QoS::AtLeastOnce,
                dup,
                message,
            },
            Awaiting::Rec(message) => Resend::Publish {
                id,
                qos: QoS::ExactlyOnce,
                dup,
                message,
            },
            Awaiting::Comp => Resend::PubRel { id },
        })
    }

    /// Whether something is still to be sent again, which new messages must wait for.
    pub fn resending(&self) -> bool {
        self.resend_next.is_some()
    }

    /// The message of an unfinished PUBLISH.
    pub fn message(&self, id: PacketId) -> Option<&M> {
        self.table.get(id)?.awaiting.message()
    }

    /// Whether the message with this id was given to be sent, over this connection or one before.
    pub fn was_sent(&self, id: PacketId) -> bool {
        self.table.get(id).is_some_and(|state| state.sent)
    }

    /// Gives up a message: this connection cannot carry it, because it is larger than the other
    /// side takes `[MQTT-3.1.2-25]`, or the owner keeps it no longer. Its id is free, the message
    /// comes back. None: the id is unknown, or the other side has taken the message over, and only
    /// PUBCOMP ends it. For a message of QoS 2 that was sent there is [`let_go`](Self::let_go).
    pub fn forget(&mut self, id: PacketId) -> Option<M> {
        self.message(id)?;
        match self.finish(id)? {
            Awaiting::Ack(message) | Awaiting::Rec(message) => Some(message),
            Awaiting::Comp => None,
        }
    }

    /// Gives up a message of QoS 2 that was sent, as its PUBREC would: the other side may have it,
    /// and takes what comes with its id for a repetition until PUBREL `[MQTT-4.3.3-10]`. So PUBREL
    /// is due: now, if [`poll_resend`](Self::poll_resend) has given the message for this
    /// connection, which cannot carry it; otherwise when that comes to it. Of an id that the other
    /// side does not know it only answers so. The message comes back. None: this is no such
    /// message.
    pub fn let_go(&mut self, id: PacketId) -> Option<M> {
        let state = self.table.get_mut(id)?;
        if !state.sent || !matches!(state.awaiting, Awaiting::Rec(_)) {
            return None;
        }
        match std::mem::replace(&mut state.awaiting, Awaiting::Comp) {
            Awaiting::Ack(message) | Awaiting::Rec(message) => Some(message),
            Awaiting::Comp => None,
        }
    }

    /// Takes all messages that the other side has not taken over, oldest first, and forgets every
    /// id: the session ends, and what was not finished may go to others.
    pub fn drain(&mut self) -> impl Iterator<Item = Drained<M>> + use<M> {
        let mut table = std::mem::replace(&mut self.table, Table::new());
        self.under_way = 0;
        self.resend_next = None;
        std::iter::from_fn(move || {
            loop {
                let State { awaiting, sent, .. } = table.remove(table.oldest()?)?;
                let (qos, message) = match awaiting {
                    Awaiting::Ack(message) => (QoS::AtLeastOnce, message),
                    Awaiting::Rec(message) => (QoS::ExactlyOnce, message),
                    Awaiting::Comp => continue,
                };
                return Some(Drained { qos, sent, message });
            }
        })
    }

    /// The entries, oldest first, as a store keeps them.
    pub fn iter(&self) -> impl Iterator<Item = Entry<&M>> {
        self.table.iter().map(|(id, state)| match &state.awaiting {
            Awaiting::Ack(message) => Entry::Publish {
                id,
                qos: QoS::AtLeastOnce,
                message,
            },
            Awaiting::Rec(message) => Entry::Publish {
                id,
                qos: QoS::ExactlyOnce,
                message,
            },
            Awaiting::Comp => Entry::PubRel { id },
        })
    }

    fn begin_state(&mut self, qos: QoS, message: M, sent: bool) -> Result<PacketId, M> {
        if !self.window_open() {
            return Err(message);
        }
        let id = self.add(qos, message, sent, true)?;
        self.under_way += 1;
        Ok(id)
    }

    /// Adds the newest entry.
    fn add(&mut self, qos: QoS, message: M, sent: bool, under_way: bool) -> Result<PacketId, M> {
        let awaiting: fn(M) -> Awaiting<M> = match qos {
            QoS::AtMostOnce => return Err(message),
            QoS::AtLeastOnce => Awaiting::Ack,
            QoS::ExactlyOnce => Awaiting::Rec,
        };
        let Some(id) = self.table.vacant_id() else {
            return Err(message);
        };
        let awaiting = awaiting(message);
        self.table.push(
            id,
            State {
                awaiting,
                sent,
                under_way,
            },
        );
        Ok(id)
    }

    fn has_room(&self) -> bool {
        self.under_way < u32::from(self.window)
    }

    /// The entry that an acknowledgement may speak of: what has not left cannot be acknowledged.
    fn awaited(&mut self, id: PacketId) -> Result<&mut State<M>, AckError> {
        self.table
            .get_mut(id)
            .filter(|state| state.sent)
            .ok_or(AckError::Unknown)
    }

    fn finish(&mut self, id: PacketId) -> Option<Awaiting<M>> {
        if self.resend_next == Some(id) {
            self.resend_next = self.table.newer(id);
            self.skip_under_way();
        }
        let state = self.table.remove(id)?;
        self.under_way -= u32::from(state.under_way);
        Some(state.awaiting)
    }

    /// Moves on to an entry that this connection has not seen.
    fn skip_under_way(&mut self) {
        while let Some(id) = self.resend_next
            && self.table.get(id).is_some_and(|state| state.under_way)
        {
            self.resend_next = self.table.newer(id);
        }
    }
}

impl<M> Default for Outbound<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Awaiting<M> {
    fn message(&self) -> Option<&M> {
        match self {
            Self::Ack(message) | Self::Rec(message) => Some(message),
            Self::Comp => None,
        }
    }
}

/// Whether a message that has its packet id may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It has a place in the window.
    Send,
    /// The window is full.
    Wait,
    /// It is not the next one: it was given up, or its connection was replaced.
    Gone,
}

/// What a PUBREC asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PubRec<M> {
    /// Answer with PUBREL. The message, the first time: it will not be needed again.
    SendPubRel(Option<M>),
    /// The other side refused the message; nothing is to be sent.
    Ended(M),
}

/// Why an acknowledgement does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AckError {
    /// No message with this id is under way. An unknown PUBREC is answered by a PUBREL that says
    /// so (0x92, 5.0); an unknown PUBACK or PUBCOMP is ignored.
    #[error("acknowledgement of a packet id that is not in use")]
    Unknown,
    /// PUBACK to a QoS 2 message, PUBREC or PUBCOMP to a QoS 1 message: a protocol error.
    #[error("acknowledgement of the wrong kind for the message's QoS")]
    WrongQoS,
    /// PUBCOMP to a message whose PUBREC has not come: a protocol error.
    #[error("PUBCOMP before PUBREC")]
    TooEarly,
}

/// One packet of [`Outbound::poll_resend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend<'a, M> {
    /// The message again, under its old id.
    Publish {
        /// Its packet id.
        id: PacketId,
        /// 1 or 2.
        qos: QoS,
        /// Not set if it has never left: it was waiting to be stored.
        dup: bool,
        /// What was given to `begin`.
        message: &'a M,
    },
    /// PUBREL again.
    PubRel {
        /// Its packet id.
        id: PacketId,
    },
}

/// What a store keeps of an unfinished message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<M> {
    /// Begun, and neither PUBACK nor PUBREC has come.
    Publish {
        /// Its packet id.
        id: PacketId,
        /// 1 or 2.
        qos: QoS,
        /// The message.
        message: M,
    },
    /// PUBREC has come.
    PubRel {
        /// Its packet id.
        id: PacketId,
    },
}

/// A message of a session that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained<M> {
    /// 1 or 2.
    pub qos: QoS,
    /// Whether the other side may have seen it. Of a shared subscription, only QoS 1 may then go
    /// to another member `[MQTT-4.8.2-5]`.
    pub sent: bool,
    /// The message.
    pub message: M,
}

/// A store that names a packet id twice: it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("packet id {0} is stored twice")]
pub struct DuplicateId(pub PacketId);

#[cfg(test)]
mod tests;
