//! Which entries an operator wants of a listing.
//!
//! A listing looks at a bounded number of entries for each page: where few are wanted, pages are
//! short, and none costs more than another.

use std::sync::Arc;

use unbroken_mqtt_proto::{SubscriptionFilter, TopicName};

/// Which clients or sessions; the default is all of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Wanted {
    /// Their client ids contain this.
    pub search: Option<Box<str>>,
    /// They are of this user.
    pub user: Option<Box<str>>,
    /// They are connected, or not.
    pub is_connected: Option<bool>,
    /// Clients of the listener at this position in the configuration.
    pub listener: Option<u16>,
}

/// Which subscriptions; the default is all of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WantedSubscriptions {
    /// Of this client.
    pub client_id: Option<Arc<str>>,
    /// With this filter, as the client wrote it.
    pub filter: Option<Box<str>>,
    /// Those that a message with this topic matches.
    pub topic: Option<Box<str>>,
}

impl Wanted {
    pub(super) fn has(&self, client_id: &str, user: Option<&Arc<str>>, is_connected: bool) -> bool {
        let search = self.search.as_deref();
        let has_user = |wanted: &str| user.is_some_and(|user| **user == *wanted);
        search.is_none_or(|part| client_id.contains(part))
            && self.user.as_deref().is_none_or(has_user)
            && self.is_connected.is_none_or(|it| it == is_connected)
    }

    pub(super) fn has_listener(&self, listener: u16) -> bool {
        self.listener.is_none_or(|it| it == listener)
    }
}

impl WantedSubscriptions {
    pub(super) fn has(&self, filter: &str) -> bool {
        let matches = |topic: &str| {
            let parsed = (TopicName::parse(topic), SubscriptionFilter::parse(filter));
            matches!(parsed, (Ok(topic), Ok(filter)) if filter.filter().matches(topic))
        };
        self.filter.as_deref().is_none_or(|it| it == filter)
            && self.topic.as_deref().is_none_or(matches)
    }
}
