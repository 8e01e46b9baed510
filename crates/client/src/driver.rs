//! The one task of a client: brings its [`Engine`] bytes, wishes and time, and the broker what
//! comes out.
//!
//! Invariants: the socket is read whatever else waits; wishes are taken while the output is below
//! its limit; writing never keeps from reading.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::client::Link;
use crate::durations::Pauses;
use crate::engine::{Command, Engine, Goodbye};
use crate::inbox::Notice;
use crate::limits::{COMMANDS_AT_ONCE, OUTPUT_BYTES, READ_BYTES};
use crate::options::random;
use crate::{ConnectError, ConnectTo, Event, RetryDuration, TakenOver};

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
    };
    let why = driver.live().await;
    // First the reason, so that whoever finds the channel closed can say it.
    driver.link.send_replace(Link::Ended(why.clone()));
    driver.commands.close();
    while let Ok(command) = driver.commands.try_recv() {
        Engine::refuse(command, &why);
    }
    driver.engine.end(&why);
    if let Some(goodbye) = driver.goodbye {
        // Whoever asked may have stopped waiting.
        let _ = goodbye.send(());
    }
}

struct Driver {
    engine: Engine,
    commands: mpsc::Receiver<Command>,
    notices: mpsc::UnboundedReceiver<Notice>,
    link: watch::Sender<Link>,
    goodbye: Option<oneshot::Sender<()>>,
    /// The application wants no more of it.
    is_over: bool,
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
            let stream = match self.connect().await {
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
            self.engine.tell(Event::Disconnected { why: why.clone() });
            let rest = match &why {
                _ if why.is_taken_over() && options.taken_over == TakenOver::Return => {
                    options.pauses.longest
                }
                // Whoever drops what comes is not to have it again at once.
                ConnectError::LeftOpen { .. } => options.pauses.first,
                _ if why.may_pass() => continue,
                _ => return why,
            };
            if !self.rest(rest).await {
                return ConnectError::Ended;
            }
        }
    }

    /// Tries until CONNACK says yes or the patience ends.
    async fn connect(&mut self) -> Result<TcpStream, ConnectError> {
        let options = self.engine.options();
        let give_up = options.patience.map(|patience| Instant::now() + patience.0);
        let mut failed = 0;
        loop {
            let why = match self.attempt(&options.to, options.attempt).await {
                Ok(stream) => return Ok(stream),
                Err(why) => why,
            };
            self.engine.lost();
            if self.is_over || !why.may_pass() {
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
            self.engine.tell(Event::Retrying { failed, pause, why });
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
    async fn attempt(
        &mut self,
        to: &ConnectTo,
        time: RetryDuration,
    ) -> Result<TcpStream, ConnectError> {
        let deadline = Instant::now() + time.0;
        let no_answer = || ConnectError::NoAnswer { to: to.clone() };
        let opening = open(to);
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
                moved = exchange(&mut stream, &mut self.engine) => moved?,
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
    async fn serve(&mut self, mut stream: TcpStream) -> Left {
        loop {
            // What was read with CONNACK, or while something else was waited for.
            if let Err(error) = self.engine.handle_input(now()) {
                self.last_words(&mut stream).await;
                return Left::Failed(error);
            }
            if self.is_over {
                self.engine.say_goodbye(Goodbye::ForGood);
                self.last_words(&mut stream).await;
                return Left::Goodbye;
            }
            if let Err(error) = self.engine.check_left_open() {
                self.engine.say_goodbye(Goodbye::UntilNextConnection);
                self.last_words(&mut stream).await;
                return Left::Failed(error);
            }
            let timeout = self.engine.timeout();
            let has_room = self.engine.output_len() < OUTPUT_BYTES;
            tokio::select! {
                moved = exchange(&mut stream, &mut self.engine) => {
                    if let Err(error) = moved {
                        return Left::Failed(error);
                    }
                }
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
            Some(Command::Disconnect(reply)) => {
                self.goodbye = Some(reply);
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
    /// lost.
    async fn last_words(&mut self, stream: &mut TcpStream) {
        let goodbye = async {
            let output = self.engine.take_output();
            stream.write_all(&output).await?;
            stream.shutdown().await?;
            let mut rest = [0; 4096];
            while stream.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        };
        // The connection ends in any case.
        let _ = timeout(GOODBYE, goodbye).await;
    }
}

/// Moves bytes one way or the other, whichever goes. Cancelling it loses nothing.
async fn exchange(stream: &mut TcpStream, engine: &mut Engine) -> Result<(), ConnectError> {
    let lost = |error| ConnectError::Lost(Some(Arc::new(error)));
    let (mut reading, mut writing) = stream.split();
    let (input, output) = engine.buffers();
    input.reserve(READ_BYTES);
    tokio::select! {
        read = reading.read_buf(input) => if read.map_err(lost)? == 0 {
            return Err(ConnectError::Lost(None));
        },
        written = writing.write(output), if !output.is_empty() => {
            let written = written.map_err(lost)?;
            engine.written(written, now());
        }
    }
    Ok(())
}

/// Connects to the first of the host's addresses that answers.
async fn open(to: &ConnectTo) -> Result<TcpStream, ConnectError> {
    let named = tokio::net::lookup_host((to.host(), to.port())).await;
    let addresses = named.map_err(|source| ConnectError::Resolve {
        to: to.clone(),
        source: Arc::new(source),
    })?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Only latency depends on it.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(ConnectError::Connect {
        to: to.clone(),
        source: Arc::new(last),
    })
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

const GOODBYE: Duration = Duration::from_secs(1);
