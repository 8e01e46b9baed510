//! Sessions of a damaged store: each is copied completely, or not at all.
//!
//! A client whose session is present does not subscribe again. If one of its subscriptions were
//! lost, it would wait in vain without a report. So a session ends here if a part of it cannot be
//! read, may be old, or may have lain in a [`Hole`] between two keys: then every session with a key
//! there ends. A block of a table has the values of few sessions, and in a large table few others
//! have theirs between.
//!
//! Messages that groups gave to such a session go to other members, and its will is published.
//!
//! Invariant: memory holds the values of one session at a time, beside the limits in [`super`].

use fjall::Keyspace;

use super::super::intact::{Entry, Hole, Intact, Piece};
use super::super::opened::parse_value;
use super::{Work, checked};
use crate::batch::Space;
use crate::error::StoreError;
use crate::hand_over::{self, HandOver};
use crate::session::{self, Outbound, PartView, parse_key};
use unbroken_mqtt_proto::QoS;

/// What is there of one, until all of it has come.
#[derive(Default)]
struct Gathered {
    /// What its keys begin with.
    client: Vec<u8>,
    values: Vec<Entry>,
    has_head: bool,
    /// Why it ends, if it does.
    ends: Option<&'static str>,
}

impl Work {
    pub(super) fn copy_sessions(&mut self, tree: &Keyspace) -> Result<(), StoreError> {
        let space = Space::Sessions;
        let mut holes: Vec<Hole> = Vec::new();
        let mut session = Gathered::default();
        let mut intact = Intact::read(tree, space.name(), b"")?;
        while let Some(piece) = intact.next()? {
            let entry = match piece {
                Piece::Entry(entry) => entry,
                Piece::Hole(hole) => {
                    self.lost(format!("{space}: {hole}"));
                    if hole.meets(&session.client) {
                        session.ends = Some(CUT);
                    }
                    holes.push(hole);
                    continue;
                }
            };
            let Ok(view) = parse_key(&entry.key) else {
                let key = entry.key.escape_ascii();
                self.lost(format!("{space}: the value of the invalid key {key}"));
                continue;
            };
            if *session.client != *view.client {
                holes.retain(|hole| *hole.to >= *view.client);
                let next = Gathered {
                    client: view.client.to_vec(),
                    ends: holes
                        .iter()
                        .any(|hole| hole.meets(view.client))
                        .then_some(CUT),
                    ..Gathered::default()
                };
                self.put_session(std::mem::replace(&mut session, next))?;
            }
            session.has_head |= view.part == PartView::Head;
            self.take(&mut session, entry)?;
        }
        self.put_session(session)
    }

    fn take(&mut self, session: &mut Gathered, entry: Entry) -> Result<(), StoreError> {
        let space = Space::Sessions;
        let Entry {
            key,
            value,
            is_newest,
        } = entry;
        let value = parse_value(space, &value).map(|value| value.bytes);
        let value = value.and_then(|value| checked(space, &key, value));
        match value {
            Ok(value) => {
                self.note_positions(&key, &value);
                session.values.push(Entry {
                    key,
                    value,
                    is_newest,
                });
            }
            Err(error @ StoreError::Damaged { .. }) => {
                self.lost(error.to_string());
                session.ends.get_or_insert(UNREAD);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn put_session(&mut self, session: Gathered) -> Result<(), StoreError> {
        // The will of a client whose session ends with its connection has none.
        let is_will = |entry: &Entry| part(&entry.key) == Some(PartView::Will);
        let is_whole = session.has_head || session.values.iter().all(is_will);
        let ends = session.ends.or((!is_whole).then_some(HEADLESS));
        if let Some(why) = ends
            && !session.values.is_empty()
        {
            let client = session::name(&session.client);
            self.lost(format!("the session of client {client}, which ends: {why}"));
        }
        for Entry {
            key,
            value,
            is_newest,
        } in session.values
        {
            match (ends, part(&key)) {
                (None, _) => self.put(Space::Sessions, key, value)?,
                (Some(_), Some(PartView::Will)) if is_newest => {
                    self.put(Space::Sessions, key, value)?;
                }
                (Some(_), Some(PartView::Outbound(_))) => self.hand_over(&value, is_newest)?,
                (Some(_), _) => {}
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, outbound: &[u8], is_newest: bool) -> Result<(), StoreError> {
        let Ok(outbound) = Outbound::decode(outbound) else {
            return Ok(());
        };
        // It may have left since.
        if outbound.qos == QoS::ExactlyOnce && !is_newest {
            return Ok(());
        }
        let Some(left) = hand_over::left_by(outbound) else {
            return Ok(());
        };
        self.handed += 1;
        let (from, number) = (HandOver::NO_SHARD, self.handed);
        self.put(
            Space::Control,
            HandOver { from, number }.key(),
            left.encode(),
        )
    }
}

fn part(key: &[u8]) -> Option<PartView> {
    parse_key(key).ok().map(|view| view.part)
}

const CUT: &str = "a part of it may have been in an unreadable range";
const UNREAD: &str = "a part of it cannot be read";
const HEADLESS: &str = "its head is missing";
