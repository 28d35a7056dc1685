//! Which hosts a request may name.
//!
//! A web page can let its own name lead to an address of this machine (DNS rebinding). The browser then takes our
//! answers for the page's own, and no `Origin` tells us otherwise; only `Host` still has the name of the page. So a
//! server without a token answers only requests that name it by an address, by `localhost`, or by a name given with
//! `--host`. With a token, names are free unless `--host` lists them.
//!
//! # Invariants
//! 1. Every request is checked before its address and method are looked at (test `a_foreign_host_is_refused_everywhere`
//!    of crates/server/tests).
//!
//! # References
//! RFC 9110 section 7.2 and 15.5.20; RFC 9112 sections 3.2 and 3.2.2; RFC 3986 section 3.2.2.

use std::net::{IpAddr, Ipv6Addr};

use hyper::header::HOST;
use hyper::{StatusCode, Version};

use super::problem::Problem;

/// The longest name, in bytes: name servers know no longer ones. It stands in links and messages.
const NAME_BYTES_MAX: usize = 255;

/// The most digits of a port.
const PORT_DIGITS_MAX: usize = 5;

/// The names under which a server answers.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// Names in lower case, beside addresses and `localhost`.
    names: Vec<String>,
    /// Whether any other name will do.
    any: bool,
}

impl Hosts {
    /// The names that `--host` gives; without one, every name where the server has a token.
    pub(crate) fn new(names: Vec<String>, has_token: bool) -> Self {
        let any = has_token && names.is_empty();
        Self { names, any }
    }

    /// Returns host and port as the client names them; nothing for a request of HTTP/1.0 that has neither.
    ///
    /// # Errors
    /// 400 for a request with two hosts, with a malformed one, or, in HTTP/1.1, with none; 421 for a host under which
    /// this server does not answer.
    pub(super) fn check<B>(&self, request: &hyper::Request<B>) -> Result<Option<String>, Problem> {
        let mut all = request.headers().get_all(HOST).iter();
        let header = all.next();
        if all.next().is_some() {
            return Err(Problem::bad_request(
                "the request has two Host headers; send one",
            ));
        }
        if header.is_none() && request.version() >= Version::HTTP_11 {
            return Err(Problem::bad_request(
                "the request has no Host header, which HTTP/1.1 requires; send one",
            ));
        }
        let named = header.map(|host| host.to_str().unwrap_or_default().trim());
        if let Some(named) = named {
            host_of(named).ok_or_else(malformed)?;
        }
        // A whole URL as the target of the request goes before the header.
        let target = request
            .uri()
            .authority()
            .map(|authority| authority.as_str());
        let Some(authority) = target.or(named) else {
            return Ok(None);
        };
        let host = host_of(authority).ok_or_else(malformed)?;
        if self.answers(host) {
            return Ok(Some(authority.to_owned()));
        }
        Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "foreign-host",
            format!(
                "this server does not answer under the name {host}: use its address or localhost, or start it with \
                 --host {host} or with --token FILE"
            ),
        ))
    }

    fn answers(&self, host: &str) -> bool {
        if self.any {
            return true;
        }
        let is_v6 = |host: &str| host.starts_with('[');
        let name = normalized(host);
        is_v6(host)
            || name.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || self.names.contains(&name)
    }
}

/// The name that `--host` gives, as it is compared.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let text = text.trim();
    match host_of(text) {
        Some(host) if host == text && !host.starts_with('[') => Ok(normalized(host)),
        _ => Err(
            "give a name without scheme, port and path, such as --host db.example.org".to_owned(),
        ),
    }
}

/// In lower case, without the dot that ends a complete name.
fn normalized(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The host of `host[:port]`, an address of IPv6 in its brackets; `None` if the text is malformed.
fn host_of(authority: &str) -> Option<&str> {
    let end = match authority.starts_with('[') {
        true => authority.find(']')? + 1,
        false => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at_checked(end)?;
    let port = match rest {
        "" => "",
        rest => rest.strip_prefix(':')?,
    };
    let is_port = port.is_empty()
        || (port.len() <= PORT_DIGITS_MAX
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok());
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
        None => (1..=NAME_BYTES_MAX).contains(&host.len()) && host.bytes().all(is_of_name),
    };
    (is_port && is_host).then_some(host)
}

/// Whether a name may have this byte.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte)
}

fn malformed() -> Problem {
    Problem::bad_request(
        "the Host of the request is malformed; send a name or an address, and a port if there is one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a request with these values of `Host`.
    fn status(hosts: &Hosts, target: &str, version: Version, values: &[&str]) -> u16 {
        let mut request = hyper::Request::builder().uri(target).version(version);
        for value in values {
            request = request.header(HOST, *value);
        }
        match hosts.check(&request.body(()).unwrap()) {
            Ok(_) => 200,
            Err(problem) => problem.status.as_u16(),
        }
    }

    #[test]
    fn without_a_token_names_are_listed() {
        let hosts = Hosts::new(vec!["db.example".to_owned()], false);
        for (host, expected) in [
            ("localhost", 200),
            ("LocalHost:7878", 200),
            ("localhost.:7878", 200),
            ("localhost:", 200),
            ("127.0.0.1", 200),
            ("127.0.0.1:7878", 200),
            ("192.168.1.5:80", 200),
            ("[::1]", 200),
            ("[::1]:7878", 200),
            ("[::FFFF:127.0.0.1]:7878", 200),
            ("db.example", 200),
            ("DB.Example.:7878", 200),
            ("evil.example", 421),
            ("evil.example:7878", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("127.0.0.1.nip.io:7878", 421),
            ("a.localhost", 421),
            ("localhost..", 421),
            ("0x7f.1", 421),
            ("a.db.example", 421),
            ("", 400),
            (":7878", 400),
            ("localhost:x", 400),
            ("localhost:65536", 400),
            ("localhost:000080", 400),
            (&"a".repeat(255), 421),
            (&"a".repeat(256), 400),
            ("localhost:7878:1", 400),
            ("localhost, evil.example", 400),
            ("evil.example@localhost", 400),
            ("localhost/evil", 400),
            ("::1", 400),
            ("[::1", 400),
            ("[::1]7878", 400),
            ("[localhost]", 400),
            ("[::1%25eth0]", 400),
            ("[fe80::1%lo]", 400),
            ("\u{e4}", 400),
        ] {
            let found = status(&hosts, "/", Version::HTTP_11, &[host]);
            assert_eq!(found, expected, "{host}");
        }
    }

    #[test]
    fn there_is_one_host() {
        for has_token in [false, true] {
            let hosts = Hosts::new(Vec::new(), has_token);
            for (version, values, expected) in [
                (Version::HTTP_11, &[][..], 400),
                (Version::HTTP_11, &["localhost", "localhost"], 400),
                (Version::HTTP_10, &[], 200),
                (Version::HTTP_10, &["localhost"], 200),
                (Version::HTTP_10, &["localhost", "localhost"], 400),
            ] {
                assert_eq!(status(&hosts, "/", version, values), expected, "{values:?}");
            }
        }
    }

    #[test]
    fn a_whole_url_goes_before_the_header() {
        let hosts = Hosts::new(Vec::new(), false);
        for (target, host, expected) in [
            ("http://localhost/", "evil.example", 200),
            ("http://evil.example/", "localhost", 421),
            ("http://a@localhost/", "localhost", 400),
        ] {
            let found = status(&hosts, target, Version::HTTP_11, &[host]);
            assert_eq!(found, expected, "{target}");
        }
    }

    #[test]
    fn with_a_token_names_are_free_unless_they_are_listed() {
        let free = Hosts::new(Vec::new(), true);
        assert_eq!(status(&free, "/", Version::HTTP_11, &["any.example"]), 200);
        let listed = Hosts::new(vec!["db.example".to_owned()], true);
        assert_eq!(status(&listed, "/", Version::HTTP_11, &["db.example"]), 200);
        assert_eq!(
            status(&listed, "/", Version::HTTP_11, &["any.example"]),
            421
        );
    }

    #[test]
    fn names_are_given_alone() {
        assert_eq!(parse_name(" DB.example. ").unwrap(), "db.example");
        for wrong in ["", "http://a", "a:80", "a/b", "[::1]", "a b"] {
            assert!(parse_name(wrong).is_err(), "{wrong}");
        }
    }
}
