//! WebSocket as a transform: the upgrade, then frames.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use unbroken_broker_core::Peer;
use unbroken_websocket::upgrade::{self, Answer, Rules};
use unbroken_websocket::{End as Ending, Frames, forwarded, status};

use crate::config::Protocol;
use crate::proxy::Forwarding;
use crate::transport::{End, Guess, Opened, Transform, guess};

/// One connection's WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocket {
    state: State,
    /// Whose requests must say for whom they come, if it is one of these that has connected.
    forwarding: Option<Forwarding>,
    /// For whom, if it is known and not taken yet.
    client: Option<IpAddr>,
    refusal: Option<Box<str>>,
    needs: &'static [Protocol],
}

#[derive(Debug)]
enum State {
    /// The request has not come whole.
    Upgrade(Arc<Rules>),
    Open(Frames),
    Ended,
}

impl WebSocket {
    /// `forwarding`: it is one of these proxies that has connected.
    pub(crate) fn boxed(rules: Arc<Rules>, forwarding: Option<Forwarding>) -> Box<dyn Transform> {
        Box::new(Self {
            state: State::Upgrade(rules),
            forwarding,
            client: None,
            refusal: None,
            needs: &[],
        })
    }

    /// Answers the request: how many bytes it had, or that the connection ends.
    fn upgrade(&mut self, rules: &Rules, request: &[u8], reply: &mut Vec<u8>) -> Opened {
        let mut answer = upgrade::answer(request, rules);
        if let (Answer::Upgraded { used, .. }, Some((proxies, field))) = (&answer, &self.forwarding)
        {
            let chain = forwarded::chain(&request[..*used], *field);
            self.client = proxies.client(&chain);
            if self.client.is_none() {
                answer = upgrade::refuse("the trusted proxy does not say for whom it connects");
            }
        }
        let (used, end) = match answer {
            Answer::Incomplete => (0, None),
            Answer::Upgraded { used, response } => {
                reply.extend_from_slice(&response);
                self.state = State::Open(Frames::server());
                (used, None)
            }
            Answer::Refused { response, why } => {
                let seen = guess(request).and_then(Guess::on_websocket);
                if seen.is_none() {
                    reply.extend_from_slice(&response); // it speaks HTTP, so far as is known
                }
                self.needs = seen.map_or(&[], |seen| seen.needs);
                self.refusal = seen.map(|seen| seen.speaks).or(why).map(Box::from);
                self.state = State::Ended;
                (request.len(), Some(End::Invalid))
            }
        };
        Opened { used, end }
    }
}

impl Transform for WebSocket {
    fn open(&mut self, wire: &mut [u8], plain: &mut Vec<u8>, reply: &mut Vec<u8>) -> Opened {
        let mut used = 0;
        if let State::Upgrade(rules) = &self.state
            && !wire.is_empty()
        {
            let rules = Arc::clone(rules);
            let upgraded = self.upgrade(&rules, wire, reply);
            if upgraded.end.is_some() {
                return upgraded;
            }
            used = upgraded.used;
        }
        let State::Open(frames) = &mut self.state else {
            return Opened { used, end: None };
        };
        let opened = frames.open(&mut wire[used..], plain, reply);
        let end = opened.end.map(|end| match end {
            Ending::Closed => End::Closed,
            Ending::Broken(violation) => {
                self.refusal = Some(format!("its WebSocket sent {violation}").into());
                End::Invalid
            }
        });
        if end.is_some() {
            self.state = State::Ended;
        }
        used += opened.used;
        Opened { used, end }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        if let State::Open(frames) = &self.state {
            frames.seal(plain, wire);
        }
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        if let State::Open(frames) = &self.state {
            frames.close(status::NORMAL, wire);
        }
        self.state = State::Ended;
    }

    fn identify(&mut self, peer: &mut Peer) {
        if let Some(client) = self.client.take() {
            // No field says its port.
            peer.address = Some(SocketAddr::new(client, 0));
        }
    }

    fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn needs(&self) -> &'static [Protocol] {
        self.needs
    }
}

#[cfg(test)]
mod tests {
    use unbroken_broker_core::CloseCause;

    use super::*;
    use crate::transport::memory::memory;
    use crate::transport::{ReadOutcome, Scratch, Transport, WriteOutcome};

    const MASK: [u8; 4] = [1, 2, 3, 4];
    const NONCE: [u8; 16] = [9; 16];

    fn rules() -> Arc<Rules> {
        Arc::new(Rules {
            path: "/mqtt".to_owned(),
            origins: Vec::new(),
        })
    }

    /// A client that sends these bytes in pieces of this size; what the shard gets, how it ends,
    /// and what the client is sent.
    fn served(wire: &[u8], size: usize) -> (Vec<u8>, Option<ReadOutcome>, Vec<u8>) {
        let (socket, peer) = memory(1 << 20);
        let mut transport = Transport::new(socket, vec![WebSocket::boxed(rules(), None)]);
        let mut scratch = Scratch::default();
        let (mut found, mut end) = (Vec::new(), None);
        for piece in wire.chunks(size) {
            peer.send(piece);
            let mut into = [0; 500];
            loop {
                match transport.read(&mut into, &mut scratch) {
                    ReadOutcome::Bytes { count, .. } => found.extend_from_slice(&into[..count]),
                    ReadOutcome::Nothing => break,
                    other => {
                        end = end.or(Some(other));
                        break;
                    }
                }
                let flushed = transport.flush();
                let count = 0;
                assert_eq!(flushed, WriteOutcome::Bytes { count, full: false });
            }
        }
        (found, end, peer.received())
    }

    fn upgrade_and(frames: &[u8]) -> Vec<u8> {
        [&upgrade::request("broker", "/mqtt", NONCE)[..], frames].concat()
    }

    #[test]
    fn a_session_may_be_split_at_every_byte_into_frames_and_reads() {
        let session = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd\xc0\x00\xe0\x00";
        let client = Frames::client(|| MASK);
        for split in 0..=session.len() {
            let mut frames = Vec::new();
            client.seal(&session[..split], &mut frames);
            client.seal(b"", &mut frames);
            client.seal(&session[split..], &mut frames);
            for size in [1, 7, 10_000] {
                let (found, end, answer) = served(&upgrade_and(&frames), size);
                assert_eq!(found, session, "{split} {size}");
                assert_eq!(end, None);
                let used = upgrade::check_answer(&answer, NONCE);
                assert_eq!(used, Ok(Some(answer.len())));
            }
        }
    }

    #[test]
    fn the_end_is_answered_and_a_violation_named() {
        let mut frames = Vec::new();
        Frames::client(|| MASK).close(status::NORMAL, &mut frames);
        let (_, end, answer) = served(&upgrade_and(&frames), 10_000);
        assert_eq!(end, Some(ReadOutcome::Ended(CloseCause::Peer)));
        assert!(answer.ends_with(b"\x88\x02\x03\xe8"));
        let (_, end, answer) = served(&upgrade_and(b"\x81\x80abcd"), 10_000);
        assert!(matches!(end, Some(ReadOutcome::Ended(_))));
        assert!(answer.ends_with(b"\x88\x02\x03\xeb"));
    }

    #[test]
    fn a_page_is_sent_to_a_browser_and_nothing_to_mqtt() {
        let (_, end, answer) = served(b"GET / HTTP/1.1\r\n\r\n", 3);
        assert!(matches!(end, Some(ReadOutcome::Ended(_))));
        assert!(String::from_utf8(answer).unwrap().contains("MQTT broker"));
        let (_, end, answer) = served(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd", 100);
        assert!(matches!(end, Some(ReadOutcome::Ended(_))));
        assert_eq!(answer, b"");
    }
}
