//! How each broker is configured for a row.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    certificates::Certificates,
    rows::{Door, Load, Row, Rules},
};
use crate::peer::{Hash, PBKDF2_101, PBKDF2_10000};

/// Users of a password file.
pub(super) const USERS: usize = 1_000;
/// Lines of an access control list.
const LINES: usize = 1_000;

/// How a broker is configured.
pub(super) type Configure = fn(&Setup<'_>, &mut Command) -> io::Result<()>;

/// What a broker is to serve.
pub(super) struct Setup<'a> {
    pub(super) row: &'a Row,
    pub(super) certificates: &'a Certificates,
    pub(super) port: u16,
    /// Of the run.
    pub(super) directory: &'a Path,
}

impl Setup<'_> {
    const fn door(&self) -> Door {
        self.row.door
    }

    /// Writes a file of the run.
    fn file(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Mosquitto's format, which ours reads too.
    fn access_list(&self) -> io::Result<Option<PathBuf>> {
        let word = match self.row.rules {
            Rules::None => return Ok(None),
            Rules::Patterns => "pattern",
            Rules::Topics => "topic",
        };
        let mut text = String::new();
        for number in 1..LINES {
            let _ = writeln!(text, "{word} readwrite plant/{number}/#");
        }
        let _ = writeln!(text, "{word} readwrite #");
        self.file("acl", &text).map(Some)
    }

    /// The same.
    fn passwords(&self) -> io::Result<Option<PathBuf>> {
        let Some(hash) = hash(self.row.load) else {
            return Ok(None);
        };
        let mut text = String::new();
        for number in 0..USERS {
            let _ = writeln!(text, "{}", hash.entry(number));
        }
        self.file("users", &text).map(Some)
    }
}

/// The floor has nothing to configure.
#[expect(clippy::unnecessary_wraps, reason = "a `Configure` as the others")]
pub(super) fn relay(setup: &Setup<'_>, command: &mut Command) -> io::Result<()> {
    command.args(["relay", "--port", &setup.port.to_string()]);
    Ok(())
}

/// What the passwords of a row are hashed with.
pub(super) const fn hash(load: Load) -> Option<Hash> {
    match load {
        Load::Logins { rounds: 101 } => Some(PBKDF2_101),
        Load::Logins { .. } => Some(PBKDF2_10000),
        _ => None,
    }
}

pub(super) fn unbroken(setup: &Setup<'_>, command: &mut Command) -> io::Result<()> {
    let protocol = match (setup.door().tls().is_some(), setup.door().is_websocket) {
        (false, false) => "mqtt",
        (true, false) => "mqtts",
        (false, true) => "ws",
        (true, true) => "wss",
    };
    let mut text = format!(
        "[[listeners]]\nbind = \"127.0.0.1\"\nport = {}\nprotocol = \"{protocol}\"\n",
        setup.port
    );
    let mut key = |name: &str, path: &Path| {
        let _ = writeln!(text, "{name} = \"{}\"", path.display());
    };
    if let Some(tls) = setup.door().tls() {
        let [certificate, private] = setup.certificates.broker(tls.key);
        key("certificate_file", &certificate);
        key("key_file", &private);
        if tls.has_client_certificate {
            key("client_ca_file", &setup.certificates.authority());
        }
    }
    if let Some(path) = setup.access_list()? {
        key("acl_file", &path);
    }
    match setup.passwords()? {
        Some(path) => key("password_file", &path),
        None => text.push_str("allow_anonymous = true\n"),
    }
    let config = setup.file("broker.toml", &text)?;
    command
        .args(["serve", "--admin", "off", "-c"])
        .arg(config)
        .arg("--data");
    command.arg(setup.directory.join("data"));
    Ok(())
}

pub(super) fn mosquitto(setup: &Setup<'_>, command: &mut Command) -> io::Result<()> {
    let mut text = String::new();
    if setup.door().is_websocket {
        // It does not start with WebSocket alone.
        let socket = setup.directory.join("beside.sock");
        let _ = writeln!(text, "listener 0 {}", socket.display());
    }
    let _ = write!(
        text,
        "listener {} 127.0.0.1\n\
         socket_domain ipv4\n\
         max_inflight_messages 0\n\
         max_queued_messages 0\n\
         set_tcp_nodelay true\n\
         persistence false\n\
         user root\n\
         log_type error\n",
        setup.port
    );
    if setup.door().is_websocket {
        text.push_str("protocol websockets\n");
    }
    let mut key = |name: &str, path: &Path| {
        let _ = writeln!(text, "{name} {}", path.display());
    };
    if let Some(tls) = setup.door().tls() {
        let [certificate, private] = setup.certificates.broker(tls.key);
        key("certfile", &certificate);
        key("keyfile", &private);
        if tls.has_client_certificate {
            key("cafile", &setup.certificates.authority());
            text.push_str("require_certificate true\nuse_identity_as_username true\n");
        }
    }
    let mut key = |name: &str, path: &Path| {
        let _ = writeln!(text, "{name} {}", path.display());
    };
    if let Some(path) = setup.access_list()? {
        key("acl_file", &path);
    }
    match setup.passwords()? {
        Some(path) => key("password_file", &path),
        None => text.push_str("allow_anonymous true\n"),
    }
    let config = setup.file("mosquitto.conf", &text)?;
    command.arg("-c").arg(config);
    Ok(())
}

pub(super) fn nats(setup: &Setup<'_>, command: &mut Command) -> io::Result<()> {
    let port = setup.port;
    let tls = setup.door().tls().map_or_else(String::new, |tls| {
        let [certificate, private] = setup.certificates.broker(tls.key);
        let verify = if tls.has_client_certificate {
            format!(
                "ca_file: \"{}\"\nverify: true\n",
                setup.certificates.authority().display()
            )
        } else {
            String::new()
        };
        let [certificate, private] = [certificate.display(), private.display()];
        format!("tls {{ cert_file: \"{certificate}\"\nkey_file: \"{private}\"\n{verify} }}\n")
    });
    let doors = if setup.door().is_websocket {
        let tls = if tls.is_empty() {
            "no_tls: true\n".to_owned()
        } else {
            tls
        };
        format!(
            "mqtt {{ listen: \"127.0.0.1:-1\"\nmax_ack_pending: 32000 }}\n\
             websocket {{ listen: \"127.0.0.1:{port}\"\n{tls} }}\n"
        )
    } else {
        format!("mqtt {{ listen: \"127.0.0.1:{port}\"\nmax_ack_pending: 32000\n{tls} }}\n")
    };
    let store = setup.directory.join("jetstream");
    let store = store.display();
    let text = format!(
        "server_name: bench\nlisten: \"127.0.0.1:-1\"\njetstream {{ store_dir: \"{store}\" }}\n{doors}"
    );
    let config = setup.file("nats.conf", &text)?;
    command.arg("-c").arg(config);
    Ok(())
}

pub(super) fn flashmq(setup: &Setup<'_>, command: &mut Command) -> io::Result<()> {
    let protocol = if setup.door().is_websocket {
        "websockets"
    } else {
        "mqtt"
    };
    let tls = setup.door().tls().map_or_else(String::new, |tls| {
        let [certificate, private] = setup.certificates.broker(tls.key);
        let verify = if tls.has_client_certificate {
            let authority = setup.certificates.authority();
            format!("client_verification_ca_file {}\n", authority.display())
        } else {
            String::new()
        };
        let [certificate, private] = [certificate.display(), private.display()];
        format!("fullchain {certificate}\nprivkey {private}\n{verify}")
    });
    let mut text = format!(
        "log_level warning\n\
         max_qos_msg_pending_per_client 65535\n\
         max_qos_bytes_pending_per_client 1000000000\n\
         listen {{\nprotocol {protocol}\ninet_protocol ip4\ninet4_bind_address 127.0.0.1\n\
         port {}\ntcp_nodelay true\n{tls}}}\n",
        setup.port
    );
    if let Some(path) = setup.access_list()? {
        let _ = writeln!(text, "mosquitto_acl_file {}", path.display());
    }
    match setup.passwords()? {
        Some(path) => {
            let _ = writeln!(text, "mosquitto_password_file {}", path.display());
        }
        None => text.push_str("allow_anonymous true\n"),
    }
    let config = setup.file("flashmq.conf", &text)?;
    command.arg("--config-file").arg(config);
    Ok(())
}
