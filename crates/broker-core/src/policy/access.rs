//! The decision points of one shard.

use std::sync::Arc;

use unbroken_mqtt_proto::{QoS, TopicFilter};

use super::table::{Answer, VerdictTable};
use super::{Action, Ceiling, Denial, Identity, Policy, Subject, Verdict};
use crate::ids::SessionId;

/// The policy in force on one shard, what it has to know of the sessions' clients, and recent
/// verdicts.
#[derive(Debug, Default)]
pub(crate) struct AccessControl {
    policy: Option<Arc<Policy>>,
    /// By the number of the session: its last client. Those that have not connected since there is
    /// a policy are not in it, and those that have not since it was replaced are of an earlier one.
    subjects: Vec<Option<Arc<Subject>>>,
    verdicts: VerdictTable,
}

impl AccessControl {
    /// Puts other rules in force, or none. Who is here is to be admitted again.
    pub(crate) fn replace(&mut self, policy: Option<Arc<Policy>>) {
        self.policy = policy;
    }

    /// Whether rules in force are about the client of a session: those that there are may be for
    /// other listeners.
    pub(crate) fn has_rules_for(&self, id: SessionId) -> bool {
        let client = self.client_of(id).filter(|client| self.knows(Some(client)));
        client.is_some_and(|client| client.has_rules())
    }

    /// The rules, if there are any.
    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.policy.as_deref()
    }

    /// What the rules need to know of a client; `None` if there are none.
    pub(crate) fn subject(&self, identity: impl FnOnce() -> Identity) -> Option<Arc<Subject>> {
        let policy = self.policy.as_ref()?;
        Some(Arc::new(policy.subject(&identity())))
    }

    /// Names of the roles that a client has, if there are rules.
    pub(crate) fn roles_of(&self, identity: &Identity) -> Vec<Arc<str>> {
        let policy = self.policy.as_ref();
        policy.map_or_else(Vec::new, |policy| policy.role_names(identity))
    }

    /// A session has this client. Answers whether other rules may hold for it than before.
    pub(crate) fn admit(&mut self, id: SessionId, subject: Option<Arc<Subject>>) -> bool {
        if subject.is_some() && self.subjects.len() <= id.index() {
            self.subjects.resize(id.index() + 1, None);
        }
        let Some(place) = self.subjects.get_mut(id.index()) else {
            return false;
        };
        let is_new = subject.as_ref().is_some_and(|new| {
            let before = place.as_ref();
            before.is_none_or(|before| !before.equals(new))
        });
        *place = subject;
        is_new
    }

    /// A session has ended.
    pub(crate) fn end(&mut self, id: SessionId) {
        if let Some(place) = self.subjects.get_mut(id.index()) {
            *place = None;
        }
    }

    /// The last client of a session, if there are rules.
    pub(crate) fn client_of(&self, id: SessionId) -> Option<&Arc<Subject>> {
        self.subjects.get(id.index())?.as_ref()
    }

    /// Whether the client of a session may publish such a message to this topic.
    #[inline]
    pub(crate) fn publish(&mut self, id: SessionId, topic: &str, terms: (QoS, bool)) -> Verdict {
        if is_reserved(topic) {
            Verdict::Denied(Denial::ReservedTopic)
        } else if self.policy.is_none() {
            Verdict::Allowed
        } else {
            self.judge(id, Action::Publish, topic).of_message(terms)
        }
    }

    /// Whether the will of a client that connects may be published to this topic.
    pub(crate) fn will(
        &mut self,
        subject: Option<&Arc<Subject>>,
        topic: &str,
        terms: (QoS, bool),
    ) -> Verdict {
        if is_reserved(topic) {
            Verdict::Denied(Denial::ReservedTopic)
        } else {
            let Self {
                policy, verdicts, ..
            } = self;
            let answer = judge(policy.as_deref(), verdicts, subject, Action::Publish, topic);
            answer.of_message(terms)
        }
    }

    /// Whether a will that was accepted with its CONNECT may be published now. Its client may have
    /// gone before the rules in force, or the broker, began: then they are asked about its author.
    pub(crate) fn due_will(
        &mut self,
        id: SessionId,
        topic: &str,
        terms: (QoS, bool),
        author: Option<&Identity>,
    ) -> Verdict {
        if self.knows(self.client_of(id)) {
            return self.publish(id, topic, terms);
        }
        match (self.policy.as_deref(), author) {
            (Some(policy), Some(author)) => policy.decide_publish(author, topic, terms).verdict,
            _ => Verdict::Allowed,
        }
    }

    /// Up to which QoS the client of a session may subscribe to this filter, of a shared
    /// subscription the one behind the group's name.
    pub(crate) fn subscribe(&self, id: SessionId, filter: TopicFilter<'_>) -> Result<QoS, Denial> {
        let Some(policy) = &self.policy else {
            return Ok(Ceiling::NONE.max_qos);
        };
        match self.client_of(id).filter(|client| self.knows(Some(client))) {
            Some(subject) => {
                let decision = policy.decide_for(subject, Action::Subscribe, filter.as_str());
                match decision.verdict {
                    Verdict::Allowed => Ok(decision.ceiling.max_qos),
                    Verdict::Denied(why) => Err(why),
                }
            }
            None => Err(Denial::NoRole),
        }
    }

    /// Whether a message on this topic that is about to leave may be sent to the client of a
    /// session. `mounted`: it has a mount, so what begins with `$` is only for rules to open.
    #[inline]
    pub(crate) fn receive(&mut self, id: SessionId, topic: &str, mounted: bool) -> Verdict {
        if mounted && topic.starts_with('$') && !self.has_rules_for(id) {
            Verdict::Denied(Denial::OutsideMount)
        } else if self.policy.is_none() {
            Verdict::Allowed
        } else {
            self.judge(id, Action::Receive, topic).verdict
        }
    }

    /// Whether a message on this topic is for the client of a session, as far as is known. What
    /// waits for a client that has not connected since the rules are in force is judged when it
    /// leaves.
    #[inline]
    pub(crate) fn may_receive(&mut self, id: SessionId, topic: &str) -> bool {
        self.policy.is_none()
            || !self.knows(self.client_of(id))
            || !self.judge(id, Action::Receive, topic).verdict.is_denied()
    }

    /// The same for a member of a group, whose session may be on another shard.
    pub(crate) fn member_may_receive(
        &mut self,
        client: Option<&Arc<Subject>>,
        topic: &str,
    ) -> bool {
        if !self.knows(client) {
            return true;
        }
        let Self {
            policy, verdicts, ..
        } = self;
        let answer = judge(policy.as_deref(), verdicts, client, Action::Receive, topic);
        !answer.verdict.is_denied()
    }

    /// Whether this is a client that the rules in force have been asked about.
    fn knows(&self, client: Option<&Arc<Subject>>) -> bool {
        let generation = self.policy.as_ref().map(|policy| policy.generation());
        client.is_some_and(|client| Some(client.generation()) == generation)
    }

    /// Denies everything to a client that the rules in force have not been asked about.
    fn judge(&mut self, id: SessionId, action: Action, topic: &str) -> Answer {
        let client = self.subjects.get(id.index());
        let client = client.and_then(Option::as_ref);
        judge(
            self.policy.as_deref(),
            &mut self.verdicts,
            client,
            action,
            topic,
        )
    }
}

fn judge(
    policy: Option<&Policy>,
    verdicts: &mut VerdictTable,
    client: Option<&Arc<Subject>>,
    action: Action,
    topic: &str,
) -> Answer {
    let Some(policy) = policy else {
        return Verdict::Allowed.into();
    };
    let is_known = |client: &&Arc<Subject>| client.generation() == policy.generation();
    let Some(client) = client.filter(is_known) else {
        return Verdict::Denied(Denial::NoRole).into();
    };
    let judge = || policy.decide_for(client, action, topic).into();
    verdicts.find_or(client, action, topic, judge)
}

impl Answer {
    /// What it says of a message of this QoS, retained or not.
    fn of_message(self, (qos, retain): (QoS, bool)) -> Verdict {
        match self.ceiling.denial(qos, retain) {
            Some(denial) if !self.verdict.is_denied() => Verdict::Denied(denial),
            _ => self.verdict,
        }
    }
}

/// Whether the broker alone publishes to this topic: a client's word in `$SYS` or `$audit` would be
/// taken for the broker's.
#[inline]
pub(crate) fn is_reserved(topic: &str) -> bool {
    topic.starts_with("$SYS/") || topic.starts_with("$audit/")
}
