//! All kinds of values that a broker keeps, by the space and the key they are at.
//!
//! Deliberately absent: keys that no broker reads. What is there is nobody's business.

use crate::batch::Space;
use crate::codec::RecordError;
use crate::hand_over::{HandOver, Left};
use crate::lane::{FLOOR_KEY, Floor, Lane};
use crate::moves::Moves;
use crate::record::MessageBytes;
use crate::session::{
    Cursor, Head, Inbound, MaybeSent, Outbound, PartView, Subscription, Will, parse_key,
};
use crate::standing::Standing;
use crate::{errand, hand_over, moves, owed, standing};

/// Whether the value at this key is one that a broker can begin with.
pub fn check_value(space: Space, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
    match space {
        Space::Sessions => match parse_key(key)?.part {
            PartView::Head => Head::decode(value).map(drop),
            PartView::Subscription { .. } => Subscription::decode(value).map(drop),
            PartView::Cursor(_) => Cursor::decode(value).map(drop),
            PartView::Outbound(_) => Outbound::decode(value).map(drop),
            PartView::Inbound(_) => Inbound::decode(value).map(drop),
            PartView::Will => Will::decode(value).map(drop),
            PartView::MaybeSent => MaybeSent::decode(value).map(drop),
        },
        Space::Retained => MessageBytes::parse(value.to_vec()).map(drop),
        Space::Lanes if key == FLOOR_KEY => Floor::decode(value).map(drop),
        Space::Lanes => Lane::decode(value).map(drop),
        Space::Control if key.starts_with(errand::PREFIX) => errand::last_done(value).map(drop),
        Space::Control if key.starts_with(owed::PREFIX) => {
            owed::parse_key(key).and_then(|_| owed::check(value))
        }
        Space::Control if key.starts_with(hand_over::PREFIX) => {
            HandOver::parse_key(key)?;
            Left::decode(value).map(drop)
        }
        Space::Control if key == moves::KEY => Moves::decode(value).map(drop),
        Space::Control if key == standing::KEY => Standing::decode(value).map(drop),
        Space::Wills | Space::Control => Ok(()),
    }
}
