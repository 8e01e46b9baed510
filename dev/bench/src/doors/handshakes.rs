//! Clients that come, say CONNECT over TLS, and leave, so many times a second.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use super::certificates::HOST;

/// Threads of clients, each of which waits for one at a time.
const THREADS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01x";
const CONNECT_ID_AT: usize = 14;
const DISCONNECT: &[u8] = &[0xE0, 0];

/// Makes handshakes while `work` is done; returns what it returned, and how many there were.
pub(super) fn beside<T>(
    target: SocketAddr,
    config: &Arc<ClientConfig>,
    per_second: u32,
    work: impl FnOnce() -> T,
) -> io::Result<(T, usize)> {
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let every = Duration::from_secs(1) * THREADS / per_second;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|number| {
                let (over, made) = (&over, &made);
                scope.spawn(move || {
                    let mut due = Instant::now() + every * number / THREADS;
                    while !over.load(Ordering::Relaxed) {
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                        due += every;
                        once(
                            target,
                            config,
                            b'a' + u8::try_from(number).unwrap_or_default(),
                        )?;
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), io::Error>(())
                })
            })
            .collect();
        let worked = work();
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("it does not panic")?;
        }
        Ok((worked, made.load(Ordering::Relaxed)))
    })
}

fn once(target: SocketAddr, config: &Arc<ClientConfig>, id: u8) -> io::Result<()> {
    let name = ServerName::try_from(HOST).map_err(io::Error::other)?;
    let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    let socket = TcpStream::connect(target)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    let mut stream = StreamOwned::new(tls, socket);
    let mut connect = CONNECT.to_vec();
    connect[CONNECT_ID_AT] = id;
    stream.write_all(&connect)?;
    let mut connack = [0; 4];
    stream.read_exact(&mut connack)?;
    stream.write_all(DISCONNECT)?;
    if connack == [0x20, 2, 0, 0] {
        Ok(())
    } else {
        Err(io::Error::other(format!("CONNACK {connack:?}")))
    }
}
