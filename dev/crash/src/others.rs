//! Further promises of the broker: a shared group misses no message, a retained value is the last
//! one, and the will of a client that dies is published.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use unbroken_acceptance::raw::{Connect, Will};
use unbroken_client::{Acknowledging, Filter, Message, Options, QoS, Session};

use crate::patience::patiently;
use crate::publisher::{ClientError, Progress, connect, word};
use crate::tally::Tally;

/// Shared findings.
pub(crate) type Found = watch::Sender<Tally>;

/// Clients of these kinds, and what they find.
#[derive(Debug)]
pub(crate) struct Others {
    to: SocketAddr,
    wills: Found,
    groups: Vec<Found>,
    /// Who listens, and who of them has heard what is published last.
    listeners: BTreeSet<&'static str>,
    ended: Ended,
    value: Arc<Value>,
    /// Those that are to die with the broker.
    mortals: Vec<TcpStream>,
}

/// Shared: the names of those that have heard it.
type Ended = watch::Sender<BTreeSet<&'static str>>;

/// The retained value of one topic: a number that grows.
#[derive(Debug, Default)]
struct Value {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    visits: AtomicU64,
    seen: AtomicU64,
    faults: watch::Sender<Vec<String>>,
}

impl Others {
    /// Starts them.
    pub(crate) async fn begin(
        to: SocketAddr,
        progress: &Progress,
        publishers: &mut JoinSet<Result<(), ClientError>>,
        subscribers: &mut JoinSet<Result<(), ClientError>>,
    ) -> Result<Self, ClientError> {
        let wills = watch::Sender::new(Tally::new("heir", false));
        let (mut listeners, ended) = (BTreeSet::from(["heir"]), Ended::default());
        let heir = Listener {
            to,
            name: "heir",
            found: wills.clone(),
            ended: ended.clone(),
        };
        subscribers.spawn(heir.listen("will/+", QoS::ExactlyOnce).await?);
        let mut groups = Vec::new();
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let (name, members, filter) = match qos {
                QoS::ExactlyOnce => (
                    "crew-two",
                    ["crew-two-a", "crew-two-b"],
                    "$share/crew/ship/two",
                ),
                _ => (
                    "crew-one",
                    ["crew-one-a", "crew-one-b"],
                    "$share/crew/ship/one",
                ),
            };
            let found = watch::Sender::new(Tally::new(name, qos == QoS::AtLeastOnce));
            for name in members {
                listeners.insert(name);
                let member = Listener {
                    to,
                    name,
                    found: found.clone(),
                    ended: ended.clone(),
                };
                subscribers.spawn(member.listen(filter, qos).await?);
            }
            publishers.spawn(publish_to_group(to, qos, found.clone(), progress.clone()));
            groups.push(found);
        }
        let value = Arc::new(Value::default());
        publishers.spawn(set_value(to, Arc::clone(&value), progress.clone()));
        subscribers.spawn(watch_value(to, Arc::clone(&value), progress.clone()));
        Ok(Self {
            to,
            wills,
            groups,
            listeners,
            ended,
            value,
            mortals: Vec::new(),
        })
    }

    /// Connects a client whose connection ends with the broker, and its session with that.
    pub(crate) async fn start_listeners(&mut self, round: u64) -> Result<(), ClientError> {
        let number = round.to_string();
        let will = Will::new(&format!("will/{number}"), &number).qos(2);
        let connect = Connect::v5(&format!("mortal-{number}")).will(will);
        let mut stream = TcpStream::connect(self.to).await?;
        stream.write_all(&connect.encode()).await?;
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).await?;
        // Packet type, length, flags, reason.
        if (connack[0], connack[3]) != (0x20, 0) {
            return Err(ClientError::Refused(connack[3]));
        }
        self.wills.send_modify(|wills| wills.expect(round));
        self.mortals.push(stream);
        Ok(())
    }

    /// The broker has ended.
    pub(crate) fn drop_ended(&mut self) {
        self.mortals.clear();
    }

    /// Looks at the retained value once, however soon the broker ends.
    pub(crate) async fn look(&self, round: u64) -> Result<(), ClientError> {
        self.value.look(self.to, round).await
    }

    /// Waits until everything has come, for as long as anything may take, and for what is published
    /// behind it to everybody: what comes twice has come twice by then.
    pub(crate) async fn end(&self, round: u64) -> Result<(), ClientError> {
        let all = async {
            for found in self.groups.iter().chain([&self.wills]) {
                // The sender is ours, so it lives.
                let _ = found.subscribe().wait_for(Tally::has_all).await;
            }
        };
        // What is missing then is in the findings.
        let _ = patiently(all).await;
        let heard = async {
            self.publish_last().await?;
            // The sender is ours, so it lives.
            let mut ended = self.ended.subscribe();
            let _ = ended.wait_for(|ended| *ended == self.listeners).await;
            Ok::<_, ClientError>(())
        };
        if let Ok(heard) = patiently(heard).await {
            heard?;
        }
        // The last one that was acknowledged, now that nobody sets it any more.
        if patiently(self.look(round)).await.is_err() {
            self.value
                .wrong("nothing is retained at the end".to_owned());
        }
        Ok(())
    }

    /// Publishes to each listener, and to the subscribers of the lines.
    async fn publish_last(&self) -> Result<(), ClientError> {
        let client = connect(self.to, "closer").await?;
        for name in &self.listeners {
            publish(&client, message(&end_of(name), 0).qos(QoS::ExactlyOnce)).await?;
        }
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let topic = format!("{}/{END}", word(qos));
            publish(&client, message(&topic, 0).qos(qos)).await?;
        }
        Ok(())
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.value.faults.borrow().clone();
        for found in self.groups.iter().chain([&self.wills]) {
            faults.extend(found.borrow().faults());
        }
        if self.value.seen.load(Ordering::Relaxed) == 0 {
            faults.push("nobody has looked at the retained value".to_owned());
        }
        let ended = self.ended.borrow();
        let deaf = self.listeners.difference(&ended);
        faults.extend(deaf.map(|name| format!("{name}: what was published last never came")));
        faults
    }

    /// What they saw, in words.
    pub(crate) fn summary(&self) -> String {
        let shared: u64 = self.groups.iter().map(|found| found.borrow().count()).sum();
        format!(
            "{shared} messages in groups, {} wills, a retained value looked at {} times up to {}",
            self.wills.borrow().count(),
            self.value.seen.load(Ordering::Relaxed),
            self.value.acknowledged.load(Ordering::Relaxed),
        )
    }
}

/// A session that stays and takes what comes.
struct Listener {
    to: SocketAddr,
    name: &'static str,
    found: Found,
    ended: Ended,
}

impl Listener {
    /// Subscribes, and gives what listens for ever.
    async fn listen(
        self,
        filter: &str,
        qos: QoS,
    ) -> Result<impl Future<Output = Result<(), ClientError>>, ClientError> {
        let client = connect(self.to, self.name).await?;
        let end = end_of(self.name);
        let filters = [filter, &end].map(|filter| {
            let filter = Filter::new(filter).expect("a filter of the harness is one");
            filter.qos(qos)
        });
        let subscription = client.subscribe_all(filters.into(), Acknowledging::Automatic);
        let mut subscription = subscription.await?;
        Ok(async move {
            loop {
                let received = subscription.recv().await?;
                if received.topic() == end {
                    self.ended.send_modify(|ended| {
                        ended.insert(self.name);
                    });
                    continue;
                }
                let number = number(received.payload());
                self.found.send_modify(|found| found.take(number));
            }
        })
    }
}

/// Publishes number after number to a group, each when the one before is acknowledged.
async fn publish_to_group(
    to: SocketAddr,
    qos: QoS,
    found: Found,
    progress: Progress,
) -> Result<(), ClientError> {
    let client = connect(to, &format!("captain-{}", word(qos))).await?;
    let topic = format!("ship/{}", word(qos));
    for number in 1.. {
        if progress.now().is_over {
            break;
        }
        publish(&client, message(&topic, number).qos(qos)).await?;
        found.send_modify(|found| found.expect(number));
    }
    Ok(())
}

/// Retains number after number, each when the one before is acknowledged.
async fn set_value(
    to: SocketAddr,
    value: Arc<Value>,
    progress: Progress,
) -> Result<(), ClientError> {
    let client = connect(to, "keeper").await?;
    for number in 1.. {
        if progress.now().is_over {
            break;
        }
        let qos = if number % 2 == 0 {
            QoS::ExactlyOnce
        } else {
            QoS::AtLeastOnce
        };
        value.sent.store(number, Ordering::SeqCst);
        publish(&client, message(VALUE, number).qos(qos).retained()).await?;
        value.acknowledged.store(number, Ordering::SeqCst);
    }
    Ok(())
}

/// Looks at moments of its own, in which the broker may end.
async fn watch_value(
    to: SocketAddr,
    value: Arc<Value>,
    progress: Progress,
) -> Result<(), ClientError> {
    while !progress.now().is_done {
        sleep(BETWEEN_LOOKS).await;
        tokio::select! {
            looked = value.look(to, progress.now().round) => looked?,
            () = progress.until(|point| point.is_done) => break,
        }
    }
    Ok(())
}

impl Value {
    /// Whoever comes is shown the last value that was acknowledged, or a later one.
    async fn look(&self, to: SocketAddr, round: u64) -> Result<(), ClientError> {
        let least = self.acknowledged.load(Ordering::SeqCst);
        if least == 0 {
            return Ok(());
        }
        let visit = self.visits.fetch_add(1, Ordering::Relaxed);
        let client = Options::new(to.into())
            .client_id(format!("looker-{visit}"))
            .session(Session::Temporary)
            .connect()
            .await?;
        let filter = Filter::new(VALUE).expect("a filter of the harness is one");
        let mut subscription = client.subscribe(filter.qos(QoS::AtLeastOnce)).await?;
        let seen = number(subscription.recv().await?.payload());
        let most = self.sent.load(Ordering::SeqCst);
        if !(least..=most).contains(&seen) {
            self.wrong(format!(
                "round {round}: {seen} is retained, and {least} was acknowledged"
            ));
        }
        self.seen.fetch_add(1, Ordering::Relaxed);
        client.disconnect().await;
        Ok(())
    }

    fn wrong(&self, fault: String) {
        self.faults.send_modify(|faults| faults.push(fault));
    }
}

async fn publish(client: &unbroken_client::Client, message: Message) -> Result<(), ClientError> {
    client.publish(message).await?;
    Ok(())
}

fn message(topic: &str, number: u64) -> Message {
    let message = Message::new(topic, number.to_string().into_bytes());
    message.expect("a topic of the harness is one")
}

/// 0: it is none, which nobody waits for.
fn number(payload: &[u8]) -> u64 {
    let text = str::from_utf8(payload).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Where a listener hears what is published last.
fn end_of(name: &str) -> String {
    format!("{END}/{name}")
}

/// What is published last, and is not stamped, is on this level.
pub(crate) const END: &str = "end";
const VALUE: &str = "value";
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
