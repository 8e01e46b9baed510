//! Which hosts a request may name.
//!
//! A web page of any site can make a browser send requests to this machine. If its host name is
//! made to resolve to this machine, the browser even lets the page read the answers (DNS
//! rebinding); but then the request names that host.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::peer::Peer;
use crate::problem::Problem;

/// Names of this server beside IP addresses and `localhost`, which need no name service.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(pub(crate) Vec<String>);

impl Hosts {
    fn judge(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        let named = |name| {
            let value = headers.get(name)?;
            Some(value.to_str().unwrap_or("?"))
        };
        let Some(host) = named(header::HOST) else {
            let detail = "the request has no Host header [RFC 9112, 3.2]";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        };
        let origin = named(header::ORIGIN);
        let origin = origin.map(|text| text.split_once("://").map_or(text, |(_, host)| host));
        for (header, name) in [("Host", Some(host)), ("Origin", origin)] {
            if let Some(name) = name.filter(|name| !self.has(name)) {
                let detail = format!(
                    "the request names {name:?} in {header}, which is no name of this server: add \
                     it to `hosts` in [admin], or use an IP address or localhost"
                );
                return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
            }
        }
        // A page of another port or name of this server is another site.
        if let Some(origin) =
            origin.filter(|it| !method.is_safe() && !it.eq_ignore_ascii_case(host))
        {
            let detail = format!(
                "a page of {origin:?} asks {host:?} for a change; a proxy in between must pass the \
                 Host header on"
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(())
    }

    fn has(&self, host: &str) -> bool {
        let name = without_port(host);
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Refuses requests that name another host, or come from a page of another one. No browser
/// connects to a unix socket.
pub(crate) async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if request
        .extensions()
        .get::<Peer>()
        .is_some_and(|peer| peer.user().is_some())
    {
        return next.run(request).await;
    }
    match hosts.judge(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_hosts_of_this_server() {
        let hosts = Hosts(vec!["broker.example.org".to_owned()]);
        for own in [
            "127.0.0.1",
            "127.0.0.1:7883",
            "[::1]:7883",
            "[::1]",
            "localhost",
            "LocalHost:80",
            "broker.example.org:7883",
            "Broker.Example.Org",
        ] {
            assert!(hosts.has(own), "{own}");
        }
        for other in [
            "",
            "?",
            "null",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org:7883",
            "broker.example.org.",
            "127.0.0.1:x",
        ] {
            assert!(!hosts.has(other), "{other}");
        }
    }

    #[test]
    fn a_change_comes_from_a_page_of_the_same_host_and_port() {
        let hosts = Hosts(vec!["broker.example.org".to_owned()]);
        let judge = |method: Method, host: &'static str, origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            hosts.judge(&method, &headers).is_ok()
        };
        let own = "broker.example.org";
        assert!(judge(Method::POST, own, "https://broker.example.org"));
        assert!(judge(Method::POST, "localhost:1", "http://Localhost:1"));
        assert!(judge(Method::GET, "localhost:1", "http://localhost:2"));
        assert!(!judge(Method::POST, "localhost:1", "http://localhost:2"));
        assert!(!judge(Method::POST, "localhost:1", "http://127.0.0.1:1"));
        assert!(!judge(
            Method::DELETE,
            "localhost:1",
            "http://broker.example.org"
        ));
        assert!(!judge(Method::POST, "localhost:1", "null"));
    }
}
