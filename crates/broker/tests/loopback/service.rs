//! An HTTP service of a test's own on loopback, with or without TLS: what it was asked, and how
//! many connections that took.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// What it answers: a status and a body; `None` closes the connection without one.
pub(crate) type Answer = Option<(u16, String)>;

/// A running service; it ends with the process.
pub(crate) struct Service {
    pub(crate) url: String,
    answer: Arc<Mutex<Answer>>,
    /// Bodies of requests, behind their headers.
    requests: Receiver<String>,
    connections: Arc<Mutex<usize>>,
}

impl Service {
    pub(crate) fn start(answer: &str) -> Self {
        Self::with(answer, None)
    }

    /// With TLS, and the file of the authority of its certificate.
    pub(crate) fn with_tls(answer: &str, directory: &std::path::Path) -> (Self, PathBuf) {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let file = directory.join("authority.pem");
        std::fs::write(&file, certificate.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        (Self::with(answer, Some(Arc::new(config))), file)
    }

    fn with(answer: &str, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (seen, requests) = channel();
        let answer = Arc::new(Mutex::new(Some((200, answer.to_owned()))));
        let connections = Arc::new(Mutex::new(0));
        let (of_thread, count) = (Arc::clone(&answer), Arc::clone(&connections));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                *count.lock().unwrap() += 1;
                let (answer, seen, tls) = (Arc::clone(&of_thread), seen.clone(), tls.clone());
                thread::spawn(move || match tls {
                    None => serve(stream.try_clone().unwrap(), stream, &answer, &seen),
                    Some(tls) => serve_tls(stream, tls, &answer, &seen),
                });
            }
        });
        Self {
            url: format!("{scheme}://localhost:{port}/ask"),
            answer,
            requests,
            connections,
        }
    }

    /// Answers otherwise from now on.
    pub(crate) fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// The body of the next request.
    pub(crate) fn request(&self) -> String {
        self.requests.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// Bodies of requests that have come and were not looked at.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.try_iter().collect()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

fn serve_tls(
    mut stream: TcpStream,
    config: Arc<ServerConfig>,
    answer: &Mutex<Answer>,
    seen: &Sender<String>,
) {
    let mut tls = rustls::ServerConnection::new(config).unwrap();
    // A client that does not trust the certificate ends the handshake.
    if tls.complete_io(&mut stream).is_err() {
        return;
    }
    let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream));
    while let Some(request) = read_request(&mut stream) {
        let _ = seen.send(request);
        if !write_answer(stream.get_mut(), &answer.lock().unwrap()) {
            return;
        }
    }
}

fn serve(read: TcpStream, mut write: TcpStream, answer: &Mutex<Answer>, seen: &Sender<String>) {
    let mut read = BufReader::new(read);
    while let Some(request) = read_request(&mut read) {
        let _ = seen.send(request);
        if !write_answer(&mut write, &answer.lock().unwrap()) {
            return;
        }
    }
}

/// Headers and body as one text; `None`: the client has closed.
fn read_request(stream: &mut impl BufRead) -> Option<String> {
    let (mut text, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        let is_last = line == "\r\n";
        text.push_str(&line);
        if is_last {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    text.push_str(&String::from_utf8(body).unwrap());
    Some(text)
}

fn write_answer(stream: &mut impl Write, answer: &Answer) -> bool {
    let Some((status, body)) = answer else {
        return false;
    };
    let length = body.len();
    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).is_ok() && stream.flush().is_ok()
}
