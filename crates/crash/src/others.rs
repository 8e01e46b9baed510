//! What else the broker promises, beside lines of messages: a shared group misses nothing, a
//! retained value is the last one, and who dies has its will published.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use unbroken_acceptance::raw::{Connect, Will};
use unbroken_client::{Filter, Message, Options, QoS, Session};

use crate::broker::PATIENCE;
use crate::line::{LineError, Progress, connect, word};
use crate::tally::Tally;

/// Shared findings.
pub(crate) type Found = watch::Sender<Tally>;

/// Clients of these kinds, and what they find.
#[derive(Debug)]
pub(crate) struct Others {
    to: SocketAddr,
    wills: Found,
    groups: Vec<Found>,
    value: Arc<Value>,
    /// Those that are to die with the broker.
    mortals: Vec<TcpStream>,
}

/// The retained value of one topic: a number that grows.
#[derive(Debug, Default)]
struct Value {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    seen: AtomicU64,
    faults: watch::Sender<Vec<String>>,
}

impl Others {
    /// Starts them.
    pub(crate) async fn begin(
        to: SocketAddr,
        progress: &Progress,
        publishers: &mut JoinSet<Result<(), LineError>>,
        subscribers: &mut JoinSet<Result<(), LineError>>,
    ) -> Result<Self, LineError> {
        let wills = watch::Sender::new(Tally::new("heir", false));
        let heir = listen(to, "heir", "will/+", QoS::ExactlyOnce, wills.clone());
        subscribers.spawn(heir.await?);
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
            for member in members {
                subscribers.spawn(listen(to, member, filter, qos, found.clone()).await?);
            }
            publishers.spawn(tell_group(to, qos, found.clone(), progress.clone()));
            groups.push(found);
        }
        let value = Arc::new(Value::default());
        publishers.spawn(set_value(to, Arc::clone(&value), progress.clone()));
        subscribers.spawn(look_at_value(to, Arc::clone(&value), progress.clone()));
        Ok(Self {
            to,
            wills,
            groups,
            value,
            mortals: Vec::new(),
        })
    }

    /// Connects a client whose connection ends with the broker, and its session with that.
    pub(crate) async fn give_birth(&mut self, round: u64) -> Result<(), LineError> {
        let number = round.to_string();
        let will = Will::new(&format!("will/{number}"), &number).qos(2);
        let connect = Connect::v5(&format!("mortal-{number}")).will(will);
        let mut stream = TcpStream::connect(self.to).await?;
        stream.write_all(&connect.encode()).await?;
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).await?;
        // Packet type, length, flags, reason.
        if (connack[0], connack[3]) != (0x20, 0) {
            return Err(LineError::Refused(connack[3]));
        }
        self.wills.send_modify(|wills| wills.expect(round));
        self.mortals.push(stream);
        Ok(())
    }

    /// The broker has ended.
    pub(crate) fn bury(&mut self) {
        self.mortals.clear();
    }

    /// Waits until everything has come, for as long as anything may take.
    pub(crate) async fn end(&self) {
        let all = async {
            for found in self.groups.iter().chain([&self.wills]) {
                // The sender is ours, so it lives.
                let _ = found.subscribe().wait_for(Tally::has_all).await;
            }
        };
        // What is missing then is in the findings.
        let _ = timeout(PATIENCE, all).await;
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.value.faults.borrow().clone();
        for found in self.groups.iter().chain([&self.wills]) {
            faults.extend(found.borrow().faults());
        }
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
async fn listen(
    to: SocketAddr,
    name: &'static str,
    filter: &str,
    qos: QoS,
    found: Found,
) -> Result<impl Future<Output = Result<(), LineError>>, LineError> {
    let client = connect(to, name).await?;
    let filter = Filter::new(filter).expect("a filter of the harness is one");
    let mut subscription = client.subscribe(filter.qos(qos)).await?;
    Ok(async move {
        loop {
            let received = subscription.recv().await?;
            let number = number(received.payload());
            found.send_modify(|found| found.take(number));
        }
    })
}

/// Publishes number after number to a group, each when the one before is acknowledged.
async fn tell_group(
    to: SocketAddr,
    qos: QoS,
    found: Found,
    progress: Progress,
) -> Result<(), LineError> {
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
async fn set_value(to: SocketAddr, value: Arc<Value>, progress: Progress) -> Result<(), LineError> {
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

/// Whoever comes is shown the last value that was acknowledged, or a later one.
async fn look_at_value(
    to: SocketAddr,
    value: Arc<Value>,
    progress: Progress,
) -> Result<(), LineError> {
    for visit in 1_u64.. {
        if progress.now().is_done {
            break;
        }
        sleep(BETWEEN_LOOKS).await;
        let least = value.acknowledged.load(Ordering::SeqCst);
        if least == 0 {
            continue;
        }
        let client = Options::new(to.into())
            .client_id(format!("looker-{visit}"))
            .session(Session::Temporary)
            .connect()
            .await?;
        let filter = Filter::new(VALUE).expect("a filter of the harness is one");
        let mut subscription = client.subscribe(filter.qos(QoS::AtLeastOnce)).await?;
        let seen = tokio::select! {
            received = subscription.recv() => number(received?.payload()),
            () = progress.until(|point| point.is_done) => break,
        };
        let most = value.sent.load(Ordering::SeqCst);
        if !(least..=most).contains(&seen) {
            let round = progress.now().round;
            let fault = format!("round {round}: {seen} is retained, and {least} was acknowledged");
            value.faults.send_modify(|faults| faults.push(fault));
        }
        value.seen.fetch_add(1, Ordering::Relaxed);
        client.disconnect().await;
    }
    Ok(())
}

async fn publish(client: &unbroken_client::Client, message: Message) -> Result<(), LineError> {
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

const VALUE: &str = "value";
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
