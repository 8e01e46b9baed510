//! A real Mosquitto, where it is installed: the other side of a bridge, or a twin to compare with.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use tempfile::TempDir;

use crate::{DEADLINE, case, tools};

/// A running Mosquitto, ended when it is dropped.
#[derive(Debug)]
pub struct Mosquitto {
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

/// An installed Mosquitto.
#[derive(Debug)]
pub struct Installed(PathBuf);

impl Mosquitto {
    /// The installed one, if there is one. Without one the test is skipped, or fails if tools are
    /// required.
    #[track_caller]
    pub fn installed() -> Option<Installed> {
        let places = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto"];
        let found = places
            .map(Path::new)
            .into_iter()
            .find(|path| path.is_file());
        if found.is_none() {
            assert!(!tools::required(), "there is no mosquitto");
            case("skipped: there is no mosquitto");
        }
        found.map(|path| Installed(path.to_owned()))
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Installed {
    /// Starts it, open to all, with these lines of configuration, and waits until it listens. In
    /// the lines `DIR/` is the directory of the files.
    #[track_caller]
    pub fn start(&self, lines: &str, files: &[(&str, &[u8])]) -> Mosquitto {
        // Mosquitto cannot choose a port itself, so one is chosen for it.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .expect("a loopback port is free");
        let directory = tempfile::tempdir().expect("a directory can be made");
        for (name, content) in files {
            fs::write(directory.path().join(name), content).expect("its directory is writable");
        }
        let config = directory.path().join("mosquitto.conf");
        let lines = lines.replace("DIR/", &format!("{}/", directory.path().display()));
        let text = format!(
            "listener {} 127.0.0.1\nallow_anonymous true\nuser root\n{lines}",
            address.port()
        );
        fs::write(&config, text).expect("its directory is writable");
        let child = Command::new(&self.0)
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("mosquitto starts");
        let mosquitto = Mosquitto {
            child,
            address,
            _directory: directory,
        };
        let since = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(since.elapsed() < DEADLINE, "mosquitto does not listen");
            thread::yield_now();
        }
        mosquitto
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
