//! What is asked, and what the answer is.

use unbroken_mqtt_proto::{QoS, ReasonCode};

/// What a client wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Action {
    /// Publish to a topic; its will is one.
    Publish = 1,
    /// Subscribe to a filter.
    Subscribe = 2,
    /// Be sent a message of a topic, whatever filter it comes by.
    Receive = 4,
}

impl Action {
    /// The action with this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Publish, Self::Subscribe, Self::Receive];
        all.into_iter().find(|action| action.name() == name)
    }

    /// The action as a word for logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Receive => "receive",
        }
    }
}

/// Some of the actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Actions(u8);

impl Actions {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(7);

    /// These and one more.
    #[must_use]
    pub const fn and(self, action: Action) -> Self {
        Self(self.0 | action as u8)
    }

    /// Whether the action is among them.
    pub const fn has(self, action: Action) -> bool {
        self.0 & action as u8 != 0
    }
}

impl From<Action> for Actions {
    fn from(action: Action) -> Self {
        Self::NONE.and(action)
    }
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It permits.
    Allow,
    /// It forbids, whatever else permits.
    Deny,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// It may not.
    Denied(Denial),
}

impl Verdict {
    /// Whether it may not.
    pub const fn is_denied(self) -> bool {
        matches!(self, Self::Denied(_))
    }
}

/// Why a client may not do something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Denial {
    /// The topic is one that the broker alone publishes to.
    ReservedTopic,
    /// No role is the client's.
    NoRole,
    /// A rule forbids it.
    Rule,
    /// No rule allows it.
    NoRule,
    /// A rule is about the client's own name, and the name has a character in it that means
    /// something in a topic filter.
    UnusableName,
    /// The topic is the broker's, the client has a mount point, and no access rules are about it.
    OutsideMount,
    /// The client has another mount point than when it subscribed.
    MountChanged,
    /// It may, but not at so high a QoS.
    QoS,
    /// It may, but nothing retained.
    Retained,
    /// A role of the client's asks for another client id.
    ClientId,
}

/// How a client may do what it may: each limit that is about it holds, so the lowest of several.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ceiling {
    /// The highest QoS of a message that it publishes, or of a subscription that it is granted.
    pub max_qos: QoS,
    /// Whether it may publish retained messages.
    pub retain: bool,
}

impl Ceiling {
    /// Without a limit.
    pub const NONE: Self = Self {
        max_qos: QoS::ExactlyOnce,
        retain: true,
    };

    /// Under this one and another one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            max_qos: self.max_qos.min(other.max_qos),
            retain: self.retain && other.retain,
        }
    }

    /// Why a message is above it, if it is.
    pub fn denial(self, qos: QoS, retain: bool) -> Option<Denial> {
        if qos > self.max_qos {
            Some(Denial::QoS)
        } else if retain && !self.retain {
            Some(Denial::Retained)
        } else {
            None
        }
    }
}

impl Denial {
    /// The reason as a word for logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReservedTopic => "reserved-topic",
            Self::NoRole => "no-role",
            Self::Rule => "denied-by-rule",
            Self::NoRule => "no-rule-allows",
            Self::UnusableName => "unusable-name",
            Self::OutsideMount => "outside-mount-point",
            Self::MountChanged => "mount-point-changed",
            Self::QoS => "qos-too-high",
            Self::Retained => "retained",
            Self::ClientId => "client-id",
        }
    }

    /// The reason code of a connection that is refused for it, or ends although its CONNACK has
    /// said so.
    pub(crate) const fn code(self) -> ReasonCode {
        match self {
            Self::QoS => ReasonCode::QoSNotSupported,
            Self::Retained => ReasonCode::RetainNotSupported,
            Self::ClientId => ReasonCode::ClientIdentifierNotValid,
            Self::ReservedTopic
            | Self::NoRole
            | Self::Rule
            | Self::NoRule
            | Self::UnusableName
            | Self::OutsideMount
            | Self::MountChanged => ReasonCode::NotAuthorized,
        }
    }

    /// The reason as a sentence for logs.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::ReservedTopic => "only the broker publishes to this topic",
            Self::NoRole => "no access rule gives the client a role",
            Self::Rule => "an access rule denies it",
            Self::NoRule => "no access rule allows it",
            Self::UnusableName => {
                "an access rule is about the client's own name, which contains '+', '#' or '/', or \
                 begins with '$'"
            }
            Self::OutsideMount => {
                "it lies outside the client's mount point, and no access rule allows it"
            }
            Self::MountChanged => "the client's mount point has changed since it subscribed",
            Self::QoS => "an access rule limits it to a lower QoS",
            Self::Retained => "an access rule allows it only without retain",
            Self::ClientId => "its client id is not one that a role of the client allows",
        }
    }
}
