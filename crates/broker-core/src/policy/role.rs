//! Rules as the driver writes them, before they are compiled.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Action, Actions, Ceiling, Effect, Identity, MountPoint};
use crate::name_pattern::{USER, is_like, is_like_for};

/// Rules that decide together. Each set that is about a client must allow what it does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleSet {
    /// The positions in the configuration of the listeners whose clients it is about; `None`: all.
    pub listeners: Option<Vec<u16>>,
    /// Which of several rules decides.
    pub combining: Combining,
    /// What is allowed where no rule decides, to a client that no rule about this action is for.
    pub unless_decided: Actions,
    /// Whose rules they are.
    pub roles: Vec<Role>,
}

/// Which of several rules decides, by the names of XACML 3.0, appendix C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combining {
    /// One that denies, of whichever role. A client without a role may not connect, nor one with a
    /// name that means more than itself in a filter where a rule names it.
    DenyOverrides,
    /// In the first of the client's roles that has one, one that denies, else one that allows.
    /// Where a rule names a client whose name has a wildcard in it, the roles from that one on are
    /// left out.
    FirstApplicable,
}

impl RuleSet {
    /// Roles for all clients, whose denials override, and which allow nothing by default.
    pub const fn of(roles: Vec<Role>) -> Self {
        Self {
            listeners: None,
            combining: Combining::DenyOverrides,
            unless_decided: Actions::NONE,
            roles,
        }
    }
}

/// What some clients may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// Its name, for logs and explanations.
    pub name: Arc<str>,
    /// Whose it is: everybody's who is like one of these.
    pub members: Vec<Member>,
    /// Whether they may connect.
    pub connect: Effect,
    /// What limits all that they publish and subscribe to, whatever other roles allow. Clients of
    /// 5.0 are told it in CONNACK [MQTT-3.2.2-9].
    pub ceiling: Ceiling,
    /// What the client id of each of them must be like: `*` stands for any characters, `{user}` for
    /// the client's user name. `None`: any.
    pub client_id: Option<Arc<str>>,
    /// What they may do then. Their order does not matter.
    pub rules: Vec<Rule>,
    /// The part of the topic tree that they live in; `None`: this role names none. Rules are about
    /// whole topics, with the mount point.
    pub mount_point: Option<MountPoint>,
}

impl Role {
    /// Whether it is given to users by their names, and to no others.
    pub(super) fn names_users(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|member| matches!(member.user, Some(Some(_))))
    }
}

/// Whose a role is. A client is like this if it is in all that is given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// Its user name; `Some(None)` is anonymous.
    pub user: Option<Option<Arc<str>>>,
    /// Its client id; `*` stands for any characters.
    pub client_id: Option<Arc<str>>,
    /// The position of its listener in the configuration.
    pub listener: Option<u16>,
    /// Its address lies in this network: so many leading bits are equal.
    pub network: Option<(IpAddr, u8)>,
    /// The name in its certificate.
    pub certificate: Option<Arc<str>>,
    /// A role that its authenticator vouches for: a token, or a service.
    pub granted: Option<Arc<str>>,
}

/// What is allowed or denied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Which of both.
    pub effect: Effect,
    /// To do this.
    pub actions: Actions,
    /// With these topics: a topic filter in which `{user}` and `{client}` stand for the client's
    /// user name and its client id, `{role}` for each role and `{claim.NAME}` for the value that
    /// its authenticator vouches for.
    ///
    /// For [`Action::Subscribe`], with each filter that asks for nothing but these topics. What a
    /// broader filter brings is up to the rules for [`Action::Receive`].
    pub filter: Box<str>,
    /// What limits that, if it is allowed, whatever other rules allow; not used by a denial.
    pub ceiling: Ceiling,
    /// Where it is written, for explanations: a file and a line, or a command.
    pub origin: Arc<str>,
}

impl Role {
    /// Whether a client that has the role may have its id.
    pub(super) fn allows_id(&self, identity: &Identity) -> bool {
        self.client_id.as_deref().is_none_or(|pattern| {
            let user = identity.user.as_deref();
            let is_bound = !pattern.contains(USER) || user.is_some();
            is_bound && is_like_for(pattern, user.unwrap_or_default(), &identity.client_id)
        })
    }
}

impl Rule {
    /// Whether it is about this action.
    pub(super) const fn is_about(&self, action: Action) -> bool {
        self.actions.has(action)
    }
}

impl Member {
    /// Everybody.
    pub const ANYBODY: Self = Self {
        user: None,
        client_id: None,
        listener: None,
        network: None,
        certificate: None,
        granted: None,
    };

    /// Everybody without a user name.
    pub const ANONYMOUS: Self = Self {
        user: Some(None),
        ..Self::ANYBODY
    };

    /// Everybody who was admitted under this name.
    pub fn user(name: &str) -> Self {
        Self {
            user: Some(Some(name.into())),
            ..Self::ANYBODY
        }
    }

    /// Everybody whose client id is like this; `*` stands for any characters.
    pub fn client(pattern: &str) -> Self {
        Self {
            client_id: Some(pattern.into()),
            ..Self::ANYBODY
        }
    }

    pub(super) fn is(&self, identity: &Identity) -> bool {
        let Identity {
            user,
            claims,
            client_id,
            peer,
        } = identity;
        let address = || peer.address.map(|address| address.ip().to_canonical());
        self.user.as_ref().is_none_or(|name| name == user)
            && self
                .listener
                .is_none_or(|listener| listener == peer.listener)
            && self
                .client_id
                .as_ref()
                .is_none_or(|pattern| is_like(pattern, client_id))
            && self
                .network
                .is_none_or(|network| address().is_some_and(|address| lies_in(address, network)))
            && self
                .certificate
                .as_ref()
                .is_none_or(|name| peer.certificate.as_ref() == Some(name))
            && self.granted.as_ref().is_none_or(|role| {
                let claims = claims.as_ref();
                claims.is_some_and(|claims| claims.has_role(role))
            })
    }
}

/// Whether so many leading bits of both are equal; addresses of IPv4 are known as such.
pub(crate) fn lies_in(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    // The bits of both, in the upper bits of a number.
    let (left, right, width) = match (address, network.to_canonical()) {
        (IpAddr::V4(left), IpAddr::V4(right)) => (
            u128::from(left.to_bits()) << 96,
            u128::from(right.to_bits()) << 96,
            32,
        ),
        (IpAddr::V6(left), IpAddr::V6(right)) => (left.to_bits(), right.to_bits(), 128),
        _ => return false,
    };
    let equal = (left ^ right).leading_zeros();
    equal >= u32::from(bits.min(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_a_network_of_its_own_family() {
        let check = |address: &str, network: &str, bits, expected| {
            let (address, network) = (address.parse().unwrap(), network.parse().unwrap());
            assert_eq!(lies_in(address, (network, bits)), expected, "{address}");
        };
        check("10.1.2.3", "10.0.0.0", 8, true);
        check("11.1.2.3", "10.0.0.0", 8, false);
        check("10.1.2.3", "10.1.2.3", 32, true);
        check("10.1.2.4", "10.1.2.3", 32, false);
        check("10.1.2.4", "10.1.2.3", 0, true);
        check("fd00::1", "fd00::", 8, true);
        check("fe00::1", "fd00::", 8, false);
        check("10.1.2.3", "::", 0, false);
    }
}
