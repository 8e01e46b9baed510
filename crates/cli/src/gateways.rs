//! The gateways of `[[gateway.sp]]` beside a running broker: one thread with an async runtime.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;
use unbroken_broker::OpenListener;
use unbroken_broker::config::{Config, Protocol as Transport, SpGateway, SpSeparator, SpSocket};
use unbroken_sp_gateway::wire::Protocol;
use unbroken_sp_gateway::{
    BindTo, ConnectTo, Endpoint, Gateway, Options, RetryDuration, Separator, TotalDuration,
};

/// Gateways that run. Dropping them stops them, and waits until they have ended.
pub(crate) struct Gateways {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateways {
    /// Starts those of the configuration, and prints where they are.
    pub(crate) fn start(
        config: &Config,
        listeners: &[OpenListener],
        out: &mut dyn Write,
    ) -> Result<Option<Self>, String> {
        if config.gateways.is_empty() {
            return Ok(None);
        }
        let options = |gateway| options(gateway, listeners, &config.audit.prefix);
        let all = config.gateways.iter().map(options);
        let all = all.collect::<Result<Vec<_>, _>>()?;
        let (stop, stopping) = oneshot::channel();
        let (report, started) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("gateways".to_owned())
            .spawn(move || run(all, stopping, &report))
            .map_err(|error| format!("cannot start the thread of the gateways: {error}"))?;
        let gateways = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        let addresses = started.recv();
        let addresses =
            addresses.map_err(|_| "the thread of the gateways has ended".to_owned())??;
        for (gateway, address) in config.gateways.iter().zip(addresses) {
            let (socket, name) = (gateway.socket.name(), gateway.name());
            let written = match address {
                Some(address) => writeln!(out, "listening on {address} (sp, {socket}) as {name}"),
                None => writeln!(
                    out,
                    "connecting to {} (sp, {socket}) as {name}",
                    gateway.connect
                ),
            };
            written.map_err(|error| format!("cannot write to standard output: {error}"))?;
        }
        Ok(Some(gateways))
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        // A thread that has ended needs no word.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Where each listens, or why one of them cannot.
type Started = Result<Vec<Option<SocketAddr>>, String>;

fn run(all: Vec<Options>, stopping: oneshot::Receiver<()>, report: &mpsc::Sender<Started>) {
    let work = async {
        let mut gateways = Vec::new();
        for options in all {
            match Gateway::start(options).await {
                Ok(gateway) => gateways.push(gateway),
                Err(error) => {
                    // Its receiver waits for this.
                    let _ = report.send(Err(error.to_string()));
                    return;
                }
            }
        }
        let addresses = gateways.iter().map(Gateway::address).collect();
        let _ = report.send(Ok(addresses));
        // Dropped, it ends them too.
        let _ = stopping.await;
        let stopping: Vec<_> = (gateways.into_iter())
            .map(|gateway| tokio::spawn(gateway.stop()))
            .collect();
        for stopped in stopping {
            // It has logged why it ended.
            let _ = stopped.await;
        }
    };
    if let Err(error) = crate::runtime::block_on(work) {
        let _ = report.send(Err(format!("cannot start the gateways' runtime: {error}")));
    }
}

fn options(
    gateway: &SpGateway,
    listeners: &[OpenListener],
    audit_prefix: &str,
) -> Result<Options, String> {
    let endpoint = match (gateway.peer(), gateway.listen_address()) {
        (Some((host, port)), _) => Endpoint::Connect(ConnectTo::new(host, port)),
        (None, Some(address)) => Endpoint::Listen(BindTo::from(address)),
        (None, None) => return Err(format!("the gateway {} has no address", gateway.name())),
    };
    let broker = match (gateway.other_broker(), listeners.iter().find_map(plain)) {
        (Some((host, port)), _) => ConnectTo::new(host, port),
        (None, Some(address)) => ConnectTo::from(address),
        (None, None) => {
            return Err(format!(
                "the gateway {} has no broker: no listener has an address, `protocol = \"mqtt\"` and no \
                 `trusted_proxies` that contain its own address; add one on loopback, or give the \
                 gateway a `broker`",
                gateway.name()
            ));
        }
    };
    let mut mqtt = unbroken_client::Options::new(broker);
    if let Some(user) = &gateway.user {
        mqtt = mqtt.user_name(user);
    }
    if let Some(path) = &gateway.secret_file {
        mqtt = mqtt.password(secret(path)?);
    }
    let mut options = Options::new(gateway.name(), protocol(gateway.socket), endpoint, mqtt)
        .topic(&*gateway.topic)
        .filter(&*gateway.filter)
        .message_bytes_max(usize::try_from(gateway.message_bytes_max).unwrap_or(usize::MAX))
        .retry(RetryDuration(gateway.retry))
        .reply(TotalDuration(gateway.reply_timeout))
        .audit_prefix(audit_prefix);
    if let Some(separator) = separator(gateway.separator) {
        options = options.separator(separator);
    }
    if let Some(total) = gateway.give_up {
        options = options.total(TotalDuration(total));
    }
    if let Some(spool) = &gateway.spool {
        options = options.spool(spool);
    }
    Ok(options)
}

/// Where a listener is reached, if it takes a connection from this machine that begins with MQTT.
fn plain(listener: &OpenListener) -> Option<SocketAddr> {
    if listener.protocol != Transport::Mqtt {
        return None;
    }
    let address = reachable(listener.address.tcp()?);
    // A connection to an address of this machine comes from the same address.
    let own = address.ip().to_canonical();
    let mut proxies = listener.trusted_proxies.iter();
    (!proxies.any(|network| network.contains(own))).then_some(address)
}

/// A listener on all addresses is reached by loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

fn secret(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        format!("cannot read the secret_file {path}: {error}; it holds the password in one line")
    })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

const fn protocol(socket: SpSocket) -> Protocol {
    match socket {
        SpSocket::Pub => Protocol::Pub,
        SpSocket::Sub => Protocol::Sub,
        SpSocket::Push => Protocol::Push,
        SpSocket::Pull => Protocol::Pull,
        SpSocket::Req => Protocol::Req,
        SpSocket::Rep => Protocol::Rep,
    }
}

/// `None`: the usual one of the socket.
const fn separator(separator: SpSeparator) -> Option<Separator> {
    match separator {
        SpSeparator::Auto => None,
        SpSeparator::None => Some(Separator::None),
        SpSeparator::Nul => Some(Separator::Nul),
        SpSeparator::Space => Some(Separator::Space),
        SpSeparator::Newline => Some(Separator::Newline),
    }
}

#[cfg(test)]
mod tests {
    use unbroken_broker::config::Address;

    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_loopback() {
        for (listens, reached) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), reached);
        }
    }

    #[test]
    fn a_listener_that_takes_this_machine_for_a_proxy_is_passed_over() {
        let listener = |bind: &str, proxies: &[&str], protocol| OpenListener {
            address: Address::Tcp(bind.parse().unwrap()),
            number: 0,
            protocol,
            name: None,
            admits: String::new(),
            trusted_proxies: proxies.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let mqtt = Transport::Mqtt;
        let behind = [
            listener("0.0.0.0:1", &["127.0.0.0/8"], mqtt),
            listener("[::1]:2", &["10.0.0.0/8", "::1"], mqtt),
            listener("10.0.0.7:3", &["10.0.0.0/8"], mqtt),
            listener("127.0.0.1:4", &[], Transport::Ws),
        ];
        let gateway = SpGateway {
            listen: "tcp://127.0.0.1:0".to_owned(),
            ..SpGateway::default()
        };
        let refused = options(&gateway, &behind, "audit").unwrap_err();
        assert!(refused.contains("trusted_proxies"), "{refused}");
        let open = listener("0.0.0.0:5", &["10.0.0.0/8"], mqtt);
        let all = [&behind[..], &[open]].concat();
        let found = all.iter().find_map(plain);
        assert_eq!(found, Some("127.0.0.1:5".parse().unwrap()));
    }
}
