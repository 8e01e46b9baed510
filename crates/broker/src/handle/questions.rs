//! Questions about clients, sessions, subscriptions and shared groups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::{
    ClientInfo, GroupInfo, SessionId, SessionInfo, Shard, ShardId, SubscriptionInfo, Wanted,
    WantedSubscriptions,
};
use unbroken_mqtt_proto::QoS;

use super::{BrokerHandle, Cursor, HandleError, Listing, Within};
use crate::request::{Look, Request};

/// A shared group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedGroup {
    /// As its members write it, `$share/GROUP/FILTER`.
    pub filter: Arc<str>,
    /// How many members it has.
    pub members: u32,
    /// Some of them: those whose turn is next.
    pub listed: Vec<GroupMember>,
}

/// A member of a shared group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMember {
    /// Its client id.
    pub client_id: Arc<str>,
    /// The most a message is delivered with.
    pub qos: QoS,
    /// `ready`; `away`, but its session keeps messages; `full`; or `absent`: it is away, and keeps
    /// nothing.
    pub state: &'static str,
}

impl BrokerHandle {
    /// Clients that are connected.
    pub fn clients(
        &self,
        from: Cursor,
        within: Within,
    ) -> Result<Listing<ClientInfo>, HandleError> {
        self.find_clients(Wanted::default(), from, within)
    }

    /// Some of the clients that are connected.
    pub fn find_clients(
        &self,
        wanted: Wanted,
        from: Cursor,
        within: Within,
    ) -> Result<Listing<ClientInfo>, HandleError> {
        self.list(from, within, move |shard, place, most| {
            shard.connected_clients(&wanted, place, most)
        })
    }

    /// A client, if it is connected.
    pub fn client(
        &self,
        client_id: &str,
        timeout: Duration,
    ) -> Result<Option<ClientInfo>, HandleError> {
        let client_id: Arc<str> = client_id.into();
        self.ask_each(timeout, move |shard| shard.connected_client(&client_id))
    }

    /// Sessions, connected or not.
    pub fn sessions(
        &self,
        from: Cursor,
        within: Within,
    ) -> Result<Listing<SessionInfo>, HandleError> {
        self.find_sessions(Wanted::default(), from, within)
    }

    /// Some of the sessions, connected or not.
    pub fn find_sessions(
        &self,
        wanted: Wanted,
        from: Cursor,
        within: Within,
    ) -> Result<Listing<SessionInfo>, HandleError> {
        self.list(from, within, move |shard, place, most| {
            shard.sessions(&wanted, place, most)
        })
    }

    /// The session of a client, if it has one.
    pub fn session(
        &self,
        client_id: &str,
        timeout: Duration,
    ) -> Result<Option<SessionInfo>, HandleError> {
        let client_id: Arc<str> = client_id.into();
        self.ask_each(timeout, move |shard| shard.session(&client_id))
    }

    /// Subscriptions, of all sessions or of one client's.
    pub fn subscriptions(
        &self,
        of: Option<&str>,
        from: Cursor,
        within: Within,
    ) -> Result<Listing<SubscriptionInfo>, HandleError> {
        let wanted = WantedSubscriptions {
            client_id: of.map(Into::into),
            ..WantedSubscriptions::default()
        };
        self.find_subscriptions(wanted, from, within)
    }

    /// Some of the subscriptions.
    pub fn find_subscriptions(
        &self,
        wanted: WantedSubscriptions,
        from: Cursor,
        within: Within,
    ) -> Result<Listing<SubscriptionInfo>, HandleError> {
        self.list(from, within, move |shard, place, most| {
            shard.subscriptions(&wanted, place, most)
        })
    }

    /// Shared groups.
    pub fn groups(
        &self,
        from: Cursor,
        within: Within,
    ) -> Result<Listing<SharedGroup>, HandleError> {
        let deadline = Instant::now() + within.timeout;
        let found = self.list(from, within, Shard::groups)?;
        let names = self.member_names(&found.entries, deadline);
        let names = names.map_err(|error| match error {
            HandleError::Timeout(_) => HandleError::Timeout(within.timeout),
            other => other,
        })?;
        let named = |group: GroupInfo| {
            let members = group.listed.iter().filter_map(|member| {
                let client_id = names.get(&(member.shard, member.session))?;
                Some(GroupMember {
                    client_id: Arc::clone(client_id),
                    qos: member.qos,
                    state: member.state,
                })
            });
            SharedGroup {
                listed: members.collect(),
                filter: group.filter,
                members: group.members,
            }
        };
        Ok(Listing {
            entries: found.entries.into_iter().map(named).collect(),
            next: found.next,
        })
    }

    /// The client ids of members, where their sessions still exist.
    fn member_names(
        &self,
        groups: &[GroupInfo],
        deadline: Instant,
    ) -> Result<HashMap<(ShardId, SessionId), Arc<str>>, HandleError> {
        let mut sessions: HashMap<ShardId, Vec<SessionId>> = HashMap::new();
        for member in groups.iter().flat_map(|group| &group.listed) {
            sessions
                .entry(member.shard)
                .or_default()
                .push(member.session);
        }
        let mut names = HashMap::new();
        for (shard, sessions) in sessions {
            let asked = sessions.clone();
            let left = deadline.saturating_duration_since(Instant::now());
            let found = self.requests.ask(shard, left, |answer| {
                Request::Look(Look::new(answer, move |shard| shard.client_ids(&asked)))
            })?;
            let found = sessions.into_iter().zip(found);
            names.extend(found.filter_map(|(session, name)| Some(((shard, session), name?))));
        }
        Ok(names)
    }

    /// Asks all shards what one of them knows.
    pub(super) fn ask_each<T: Send + 'static>(
        &self,
        timeout: Duration,
        question: impl Fn(&Shard) -> Option<T> + Clone + Send + 'static,
    ) -> Result<Option<T>, HandleError> {
        let answers = self.requests.ask_all(timeout, |answer| {
            Request::Look(Look::new(answer, question.clone()))
        })?;
        Ok(answers.into_iter().flatten().next())
    }
}
