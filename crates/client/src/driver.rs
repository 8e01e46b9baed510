//! The one task of a client: brings its [`Engine`] bytes, wishes and time, and the broker what
//! comes out.
//!
//! Invariants: the socket is read whatever else waits; wishes are taken while the output is below
//! its limit; writing never keeps from reading; the owners of subscriptions have their turn after
//! each [`READ_BYTES`] that came.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use crate::client::Link;
use crate::durations::Pauses;
use crate::engine::{Command, Engine, Goodbye};
use crate::inbox::Notice;
use crate::limits::{COMMANDS_AT_ONCE, LAST_BYTES, OUTPUT_BYTES, READ_BYTES};
use crate::options::random;
use crate::transport::{Moved, Stream};
use crate::{ConnectError, ConnectTo, Event, Options, Retries, RetryDuration, TakenOver};

pub(crate) async fn run(
    engine: Engine,
    commands: mpsc::Receiver<Command>,
    notices: mpsc::UnboundedReceiver<Notice>,
    link: watch::Sender<Link>,
) {
    let mut driver = Driver {
        engine,
        commands,
        notices,
        link,
        goodbye: None,
        is_over: false,
        last_fault: None,
    };
    let why = driver.live().await;
    // First the reason, so that whoever finds the channel closed can say it.
    driver.link.send_replace(Link::Ended(why.clone()));
    driver.commands.close();
    while let Ok(command) = driver.commands.try_recv() {
        Engine::refuse(command, &why);
    }
    driver.engine.end(&why);
    if let Some((_, reply)) = driver.goodbye {
        let ended = match why {
            ConnectError::Ended => driver.last_fault.map_or(Ok(()), Err),
            why => Err(why),
        };
        // Whoever asked may have stopped waiting.
        let _ = reply.send(ended);
    }
}

struct Driver {
    engine: Engine,
    commands: mpsc::Receiver<Command>,
    notices: mpsc::UnboundedReceiver<Notice>,
    link: watch::Sender<Link>,
    goodbye: Option<(Goodbye, oneshot::Sender<Result<(), ConnectError>>)>,
    /// The application wants no more of it.
    is_over: bool,
    /// How the connection ended behind the last DISCONNECT, other than in good order.
    last_fault: Option<ConnectError>,
}

/// Why a connection was left.
enum Left {
    /// As the application wishes.
    Goodbye,
    Failed(ConnectError),
}

impl Driver {
    /// Connects again and again, until there is a reason not to.
    async fn live(&mut self) -> ConnectError {
        let options = self.engine.options();
        if let Err(why) = options.check() {
            return why;
        }
        let mut connections = 0;
        loop {
            let stream = match self.connect(connections > 0).await {
                Ok(stream) => stream,
                Err(why) => return why,
            };
            connections += 1;
            self.link.send_replace(Link::Connected(connections));
            let left = self.serve(stream).await;
            self.engine.lost();
            let why = match left {
                Left::Goodbye => return ConnectError::Ended,
                Left::Failed(why) => why,
            };
            self.link.send_replace(Link::Connecting);
            self.engine.report(Event::Disconnected { why: why.clone() });
            let rest = match &why {
                _ if options.retries == Retries::Never => return why,
                _ if why.is_taken_over() && options.taken_over == TakenOver::Return => {
                    options.pauses.longest
                }
                // Whoever drops what comes is not to have it again at once.
                ConnectError::LeftOpen { .. } => options.pauses.first,
                _ if options.retries.go_on(&why, true) => continue,
                _ => return why,
            };
            if !self.rest(rest).await {
                return ConnectError::Ended;
            }
        }
    }

    /// Tries until CONNACK says yes or the patience ends.
    async fn connect(&mut self, was_connected: bool) -> Result<Stream, ConnectError> {
        let options = self.engine.options();
        let give_up = options.patience.map(|patience| Instant::now() + patience.0);
        let mut failed = 0;
        loop {
            let why = match self.attempt(&options).await {
                Ok(stream) => return Ok(stream),
                Err(why) => why,
            };
            self.engine.lost();
            if self.is_over || !options.retries.go_on(&why, was_connected) {
                return Err(why);
            }
            failed += 1;
            let pause = pause(&options.pauses, failed);
            let next = Instant::now() + pause.0;
            if let (Some(patience), true) =
                (options.patience, give_up.is_some_and(|end| end < next))
            {
                let last = Arc::new(why);
                return Err(ConnectError::GaveUp { patience, last });
            }
            self.engine.report(Event::Retrying { failed, pause, why });
            if !self.rest(pause).await {
                return Err(ConnectError::Ended);
            }
        }
    }

    /// Lets a pause pass. False: the application wants no more of it.
    async fn rest(&mut self, pause: RetryDuration) -> bool {
        let next = Instant::now() + pause.0;
        while !self.is_over && Instant::now() < next {
            tokio::select! {
                () = sleep_until(next) => {}
                command = self.commands.recv() => self.handle_command(command),
                notice = self.notices.recv() => self.handle_notice(notice),
            }
        }
        !self.is_over
    }

    /// One try, from the look-up of the name to CONNACK.
    async fn attempt(&mut self, options: &Options) -> Result<Stream, ConnectError> {
        let deadline = Instant::now() + options.attempt.0;
        let no_answer = || ConnectError::NoAnswer {
            to: options.to.clone(),
        };
        let opening = open(options);
        tokio::pin!(opening);
        let mut stream = loop {
            tokio::select! {
                stream = &mut opening => break stream?,
                () = sleep_until(deadline) => return Err(no_answer()),
                command = self.commands.recv() => self.handle_command(command),
                notice = self.notices.recv() => self.handle_notice(notice),
            }
            if self.is_over {
                return Err(ConnectError::Ended);
            }
        };
        self.engine.greet(now())?;
        while !self.engine.is_connected() {
            tokio::select! {
                moved = exchange(&mut stream, &mut self.engine) => if let Err(error) = moved {
                    return Err(self.why_broken(&mut stream, error).await);
                },
                () = sleep_until(deadline) => return Err(no_answer()),
                command = self.commands.recv() => self.handle_command(command),
                notice = self.notices.recv() => self.handle_notice(notice),
            }
            self.engine.handle_input(now())?;
            if self.is_over {
                return Err(ConnectError::Ended);
            }
        }
        Ok(stream)
    }

    /// Works on one connection until it ends.
    async fn serve(&mut self, mut stream: Stream) -> Left {
        let mut read = 0;
        loop {
            // What was read with CONNACK, or while something else was waited for.
            if let Err(error) = self.engine.handle_input(now()) {
                self.write_final_bytes(&mut stream).await;
                return Left::Failed(error);
            }
            if read >= READ_BYTES {
                read = 0;
                yield_now().await;
            }
            if self.is_over {
                let goodbye = self.goodbye.as_ref().map(|(goodbye, _)| goodbye);
                self.engine
                    .send_disconnect(goodbye.unwrap_or(&Goodbye::ForGood));
                self.last_fault = self.write_final_bytes(&mut stream).await;
                return Left::Goodbye;
            }
            if let Err(error) = self.engine.check_left_open() {
                self.engine.send_disconnect(&Goodbye::UntilNextConnection);
                self.write_final_bytes(&mut stream).await;
                return Left::Failed(error);
            }
            let timeout = self.engine.timeout();
            let has_room = self.engine.output_len() < OUTPUT_BYTES;
            tokio::select! {
                moved = exchange(&mut stream, &mut self.engine) => match moved {
                    Ok(bytes) => read += bytes,
                    Err(error) => return Left::Failed(self.why_broken(&mut stream, error).await),
                },
                command = self.commands.recv(), if has_room => {
                    self.handle_command(command);
                    self.handle_more_commands();
                }
                notice = self.notices.recv() => self.handle_notice(notice),
                () = until(timeout) => {
                    if let Err(error) = self.engine.handle_timeout(now()) {
                        return Left::Failed(error);
                    }
                }
            }
            while let Ok(notice) = self.notices.try_recv() {
                self.engine.handle_notice(notice);
            }
        }
    }

    fn handle_more_commands(&mut self) {
        for _ in 1..COMMANDS_AT_ONCE {
            if self.is_over || self.engine.output_len() >= OUTPUT_BYTES {
                return;
            }
            match self.commands.try_recv() {
                Ok(command) => self.handle_command(Some(command)),
                Err(_) => return,
            }
        }
    }

    /// `None`: nobody holds the client any more.
    fn handle_command(&mut self, command: Option<Command>) {
        match command {
            Some(Command::Disconnect(properties, reply)) => {
                let goodbye = properties.map_or(Goodbye::ForGood, Goodbye::With);
                self.goodbye = Some((goodbye, reply));
                self.is_over = true;
            }
            Some(command) => self.engine.handle_command(command),
            None => self.is_over = true,
        }
    }

    fn handle_notice(&mut self, notice: Option<Notice>) {
        // The engine holds a sender itself: the channel cannot end.
        if let Some(notice) = notice {
            self.engine.handle_notice(notice);
        }
    }

    /// Writes what is left and waits a moment for the broker to have read it: closing with messages
    /// unread would make the system reset the connection, and the broker would take the client for
    /// lost. Returns the fault that the broker names, or why it may not have read everything.
    async fn write_final_bytes(&mut self, stream: &mut Stream) -> Option<ConnectError> {
        let engine = &mut self.engine;
        let goodbye = async {
            let output = engine.take_output();
            stream.write_all(&output).await?;
            stream.flush().await?;
            stream.end().await?;
            io::Result::Ok(())
        };
        let written = timeout(DISCONNECT_TIMEOUT, goodbye).await.unwrap_or(Ok(()));
        let rest = async {
            loop {
                let (input, _) = engine.buffers();
                let read = stream.read_buf(input).await;
                let fault = engine.take_last_fault();
                match read {
                    _ if fault.is_some() => return fault,
                    Ok(0) => return None,
                    Ok(_) => {}
                    Err(error) => return Some(lost(error)),
                }
            }
        };
        // The connection ends in any case.
        let fault = timeout(DISCONNECT_TIMEOUT, rest).await.unwrap_or(None);
        fault.or_else(|| written.err().map(lost))
    }

    /// Why a connection has broken: the broker may have said so before it closed.
    async fn why_broken(&mut self, stream: &mut Stream, error: ConnectError) -> ConnectError {
        let (input, _) = self.engine.buffers();
        let rest = async {
            while input.len() < LAST_BYTES && stream.read_buf(input).await? > 0 {}
            io::Result::Ok(())
        };
        // Reading ends with the same error, most likely.
        let _ = timeout(DISCONNECT_TIMEOUT, rest).await;
        self.engine.handle_input(now()).err().unwrap_or(error)
    }
}

/// Moves bytes one way or the other, whichever goes, and returns how many came. Cancelling it loses
/// nothing.
async fn exchange(stream: &mut Stream, engine: &mut Engine) -> Result<usize, ConnectError> {
    let (input, output) = engine.buffers();
    input.reserve(READ_BYTES);
    match stream.exchange(input, output).await.map_err(lost)? {
        Moved::Read(0) => Err(ConnectError::Lost(None)),
        Moved::Read(read) => Ok(read),
        Moved::Written(written) => {
            engine.written(written, now());
            Ok(0)
        }
    }
}

fn lost(error: io::Error) -> ConnectError {
    ConnectError::Lost(Some(Arc::new(error)))
}

/// Connects, and opens what lies below MQTT.
pub(crate) async fn open(options: &Options) -> Result<Stream, ConnectError> {
    let to = &options.to;
    let socket = match to.unix_path() {
        Some(path) => connect_unix(path)
            .await
            .map_err(|error| ConnectError::Connect {
                to: to.clone(),
                address: None,
                source: Arc::new(error),
            })?,
        None => Stream::Tcp(open_tcp(to, options.from.as_deref()).await?),
    };
    let host = if to.unix_path().is_some() {
        "localhost"
    } else {
        to.host()
    };
    let authority = to.to_string();
    let opened = options.transport.open(socket, host, &authority).await;
    opened.map_err(|error| ConnectError::Handshake {
        to: to.clone(),
        source: Arc::new(error),
    })
}

#[cfg(unix)]
async fn connect_unix(path: &str) -> io::Result<Stream> {
    tokio::net::UnixStream::connect(path)
        .await
        .map(Stream::Unix)
}

#[cfg(not(unix))]
async fn connect_unix(_path: &str) -> io::Result<Stream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Connects to the first of the host's addresses that answers.
///
/// [MQTT-4.2-1] [MQTT311-7.1.2-1]
async fn open_tcp(to: &ConnectTo, from: Option<&str>) -> Result<TcpStream, ConnectError> {
    let local = match from {
        Some(host) => addresses(&ConnectTo::new(host, 0)).await?.next(),
        None => None,
    };
    let (mut tried, mut last) = (
        None,
        io::Error::new(io::ErrorKind::NotFound, "the host has no address"),
    );
    for address in addresses(to).await? {
        match connect(address, local).await {
            Ok(stream) => {
                // Only latency depends on it.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => (tried, last) = (Some(address), error),
        }
    }
    Err(ConnectError::Connect {
        to: to.clone(),
        address: tried,
        source: Arc::new(last),
    })
}

async fn addresses(of: &ConnectTo) -> Result<impl Iterator<Item = SocketAddr>, ConnectError> {
    let named = tokio::net::lookup_host((of.host(), of.port())).await;
    named.map_err(|source| ConnectError::Resolve {
        to: of.clone(),
        source: Arc::new(source),
    })
}

async fn connect(address: SocketAddr, local: Option<SocketAddr>) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(local) = local {
        socket.bind(local)?;
    }
    socket.connect(address).await
}

fn pause(pauses: &Pauses, failed: u32) -> RetryDuration {
    let random = u32::try_from(random() >> 32).expect("32 bits are left");
    pauses.after(failed, random)
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

async fn until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
