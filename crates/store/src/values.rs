//! The kinds of values of a broker, by their space and key.
//!
//! Deliberately absent: keys that no broker reads.

use crate::batch::Space;
use crate::codec::RecordError;
use crate::hand_over::{HandOver, Left};
use crate::lane::{FLOOR_KEY, Floor, Lane};
use crate::moves::Moves;
use crate::record::MessageBytes;
use crate::session::{
    Cursor, Head, Inbound, MaybeSent, Outbound, PartView, Subscription, Will, parse_key,
};
use crate::store_health::StoreHealth;
use crate::{access, errand, expected_deliveries, hand_over, moves, store_health};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident,)+) => {
        /// What a value is, as its key says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ValueKind {
            $($(#[$doc])* $kind,)+
        }

        impl ValueKind {
            /// Each of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];
        }
    };
}

kinds! {
    /// A [`Head`].
    Head,
    /// A [`Subscription`].
    Subscription,
    /// A [`Cursor`].
    Cursor,
    /// An [`Outbound`].
    Outbound,
    /// An [`Inbound`].
    Inbound,
    /// A [`Will`].
    Will,
    /// A [`MaybeSent`].
    MaybeSent,
    /// A retained message.
    Retained,
    /// A [`Floor`].
    Floor,
    /// A [`Lane`].
    Lane,
    /// How far errands are: see [`errand`].
    Errand,
    /// Pending group deliveries: see [`expected_deliveries`].
    Owed,
    /// A [`Left`].
    HandOver,
    /// The [`Moves`].
    Moves,
    /// The [`StoreHealth`].
    StoreHealth,
    /// A [`access::User`].
    User,
    /// A [`access::Role`].
    Role,
    /// A [`access::Ban`].
    Ban,
}

impl ValueKind {
    /// What is at this key; none where no broker reads.
    pub fn of(space: Space, key: &[u8]) -> Result<Option<Self>, RecordError> {
        let kind = match space {
            Space::Sessions => match parse_key(key)?.part {
                PartView::Head => Self::Head,
                PartView::Subscription { .. } => Self::Subscription,
                PartView::Cursor(_) => Self::Cursor,
                PartView::Outbound(_) => Self::Outbound,
                PartView::Inbound(_) => Self::Inbound,
                PartView::Will => Self::Will,
                PartView::MaybeSent => Self::MaybeSent,
            },
            Space::Retained => Self::Retained,
            Space::Lanes if key == FLOOR_KEY => Self::Floor,
            Space::Lanes => Self::Lane,
            Space::Control if key.starts_with(errand::PREFIX) => Self::Errand,
            Space::Control if key.starts_with(expected_deliveries::PREFIX) => Self::Owed,
            Space::Control if key.starts_with(hand_over::PREFIX) => Self::HandOver,
            Space::Control if key == moves::KEY => Self::Moves,
            Space::Control if key == store_health::KEY => Self::StoreHealth,
            Space::Control if key.starts_with(access::USERS) => Self::User,
            Space::Control if key.starts_with(access::ROLES) => Self::Role,
            Space::Control if key.starts_with(access::BANS) => Self::Ban,
            Space::Wills | Space::Control => return Ok(None),
        };
        Ok(Some(kind))
    }
}

/// Whether the value at this key is one that a broker can begin with.
pub fn check_value(space: Space, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
    let Some(kind) = ValueKind::of(space, key)? else {
        return Ok(());
    };
    match kind {
        ValueKind::Head => Head::decode(value).map(drop),
        ValueKind::Subscription => Subscription::decode(value).map(drop),
        ValueKind::Cursor => Cursor::decode(value).map(drop),
        ValueKind::Outbound => Outbound::decode(value).map(drop),
        ValueKind::Inbound => Inbound::decode(value).map(drop),
        ValueKind::Will => Will::decode(value).map(drop),
        ValueKind::MaybeSent => MaybeSent::decode(value).map(drop),
        ValueKind::Retained => MessageBytes::parse(value.to_vec()).map(drop),
        ValueKind::Floor => Floor::decode(value).map(drop),
        ValueKind::Lane => Lane::decode(key, value).map(drop),
        ValueKind::Errand => errand::last_done(value).map(drop),
        ValueKind::Owed => {
            expected_deliveries::parse_key(key).and_then(|_| expected_deliveries::check(value))
        }
        ValueKind::HandOver => {
            HandOver::parse_key(key)?;
            Left::decode(value).map(drop)
        }
        ValueKind::Moves => Moves::decode(value).map(drop),
        ValueKind::StoreHealth => StoreHealth::decode(value).map(drop),
        ValueKind::User | ValueKind::Role | ValueKind::Ban => {
            access::Record::decode(key, value).map(drop)
        }
    }
}
