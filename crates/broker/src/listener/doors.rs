//! The open listeners by what they speak, so that the log names the one that a client has missed.

use super::OpenedListener;
use crate::config::{Address, Listener, Protocol};

/// Listeners that one line of the log names.
const NAMED: usize = 3;

/// Where the broker listens.
#[derive(Debug, Default)]
pub(crate) struct Doors(Vec<Door>);

#[derive(Debug)]
struct Door {
    /// The position of its listener in the configuration.
    listener: u16,
    protocol: Protocol,
    address: Address,
    name: Option<String>,
}

impl Doors {
    /// The open sockets of these listeners.
    pub(crate) fn new(opened: &[OpenedListener], listeners: &[Listener]) -> Self {
        let door = |opened: &OpenedListener| {
            let listener = listeners.get(usize::from(opened.listener))?;
            Some(Door {
                listener: opened.listener,
                protocol: listener.protocol,
                address: opened.address.clone(),
                name: listener.name.clone(),
            })
        };
        Self(opened.iter().filter_map(door).collect())
    }

    /// A refusal by the listener at this position, with what would serve the client, if it `needs`
    /// one of some protocols.
    pub(crate) fn advise(&self, at: u16, why: &str, needs: &[Protocol]) -> String {
        if needs.is_empty() {
            return why.to_owned();
        }
        let is_here = |door: &&Door| door.listener == at && needs.contains(&door.protocol);
        let here = self.0.iter().find(is_here);
        let here = here.map(|door| match door.protocol {
            Protocol::Wss => "TLS on this port (https, wss)".to_owned(),
            _ => "TLS on this port".to_owned(),
        });
        let serving = |protocol: &Protocol| {
            let protocol = *protocol;
            let doors = self.0.iter();
            doors.filter(move |door| door.protocol == protocol && door.listener != at)
        };
        let mut ways: Vec<_> = needs.iter().flat_map(serving).map(Door::shown).collect();
        if ways.is_empty() {
            let own = self.0.iter().find(is_here).map(|door| door.protocol);
            let others = needs.iter().filter(|protocol| Some(**protocol) != own);
            let quoted = |protocol: &Protocol| format!("`protocol = \"{}\"`", protocol.as_str());
            let others: Vec<_> = others.map(quoted).collect();
            ways.push(format!("a listener with {}", others.join(" or ")));
        }
        let ways: Vec<_> = here.into_iter().chain(ways).take(NAMED).collect();
        format!("{why}: it needs {}", ways.join(", or "))
    }
}

impl Door {
    fn shown(&self) -> String {
        let (address, protocol) = (&self.address, self.protocol.as_str());
        match &self.name {
            Some(name) => format!("the listener {name} at {address} ({protocol})"),
            None => format!("the listener at {address} ({protocol})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::transport::Guess;

    #[test]
    fn the_listener_that_a_client_has_missed_is_named() {
        let doors = |protocols: &[Protocol]| {
            let door = |(listener, protocol): (u16, &Protocol)| Door {
                listener,
                protocol: *protocol,
                address: Address::Tcp(SocketAddr::from(([0, 0, 0, 0], protocol.default_port()))),
                name: (*protocol == Protocol::Mqtt).then(|| "plain".to_owned()),
            };
            Doors((0..).zip(protocols).map(door).collect())
        };
        let all = [Protocol::Mqtt, Protocol::Mqtts, Protocol::Ws, Protocol::Wss];
        let (mqtt, mqtts, ws, wss) = (0, 1, 2, 3);
        let tls = "the client speaks TLS: it needs ";
        let plain = "the listener plain at 0.0.0.0:1883 (mqtt)";
        for (at, foreign, expect) in [
            (
                mqtt,
                Guess::Tls.on_mqtt(),
                format!(
                    "{tls}the listener at 0.0.0.0:8883 (mqtts), or the listener at 0.0.0.0:8084 \
                     (wss)"
                ),
            ),
            (
                mqtts,
                Guess::Mqtt.on_tls(),
                format!(
                    "the client speaks MQTT without TLS: it needs TLS on this port, or {plain}"
                ),
            ),
            (
                ws,
                Guess::Mqtt.on_websocket(),
                format!(
                    "the client speaks MQTT without WebSocket: it needs {plain}, or the listener \
                     at 0.0.0.0:8883 (mqtts)"
                ),
            ),
            (
                wss,
                Guess::Http.on_tls(),
                "the client speaks HTTP without TLS: it needs TLS on this port (https, wss), or \
                 the listener at 0.0.0.0:8083 (ws)"
                    .to_owned(),
            ),
        ] {
            let foreign = foreign.unwrap();
            let all = doors(&all);
            assert_eq!(all.advise(at, foreign.speaks, foreign.needs), expect);
        }
        let foreign = Guess::Tls.on_mqtt().unwrap();
        let alone = doors(&[Protocol::Mqtt]);
        assert_eq!(
            alone.advise(mqtt, foreign.speaks, foreign.needs),
            format!("{tls}a listener with `protocol = \"mqtts\"` or `protocol = \"wss\"`")
        );
        let header = Guess::Proxy.on_mqtt().unwrap();
        let advice = alone.advise(mqtt, header.speaks, header.needs);
        assert_eq!(advice, header.speaks);
    }
}
