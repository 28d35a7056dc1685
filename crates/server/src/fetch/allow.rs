//! What may be asked: prefixes of URLs, and addresses.
//!
//! A query comes from anybody, and so may the data that names an endpoint; the machine that Stoa runs
//! on often reaches what they do not. So a URL must begin with a prefix that the operator gave, after
//! every redirect again, and what its host resolves to is looked at before the connection is made to
//! that very address: a name must not lead to this machine unless the operator meant it.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use hyper::Uri;

/// A prefix of URLs that may be asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Prefix {
    is_tls: bool,
    /// `None` for every host.
    host: Option<String>,
    port: u16,
    path: String,
}

/// Where a request goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    pub(crate) is_tls: bool,
    /// In lower case, an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// With the query.
    pub(crate) path: String,
}

impl Prefix {
    /// Reads a prefix such as `https://example.org/sparql`; `https://` stands for every host.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        for (scheme, is_tls) in [("http://", false), ("https://", true)] {
            if text == scheme {
                return Ok(Self {
                    is_tls,
                    host: None,
                    port: default_port(is_tls),
                    path: "/".to_owned(),
                });
            }
        }
        let target = Target::parse(text)?;
        if target.path.contains('?') {
            return Err("a prefix ends before the query".to_owned());
        }
        Ok(Self {
            is_tls: target.is_tls,
            host: Some(target.host),
            port: target.port,
            path: target.path,
        })
    }

    /// Whether a target begins with this prefix, as far as a whole host and whole segments go.
    fn covers(&self, target: &Target) -> bool {
        if self.is_tls != target.is_tls {
            return false;
        }
        let Some(host) = &self.host else {
            return true;
        };
        if *host != target.host || self.port != target.port {
            return false;
        }
        target.path.strip_prefix(&self.path).is_some_and(|rest| {
            rest.is_empty() || self.path.ends_with('/') || rest.starts_with(['/', '?'])
        })
    }
}

impl Target {
    /// Reads an absolute IRI of HTTP.
    pub(crate) fn parse(iri: &str) -> Result<Self, String> {
        let text = ascii(iri.split('#').next().unwrap_or_default());
        let is_tls = match text.split_once(':') {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => false,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => true,
            _ => return Err(format!("{iri} is neither http: nor https:")),
        };
        let uri: Uri = text
            .parse()
            .map_err(|error| format!("{iri} is no URL: {error}"))?;
        let authority = uri
            .authority()
            .ok_or_else(|| format!("{iri} has no host"))?;
        if authority.as_str().contains(['@', '%']) {
            return Err(format!("{iri} has more than a host and a port"));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        // A dot at the end is the same host to a resolver.
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host.is_empty() {
            return Err(format!("{iri} has no host"));
        }
        let path = match uri.path_and_query() {
            Some(path) if path.as_str().starts_with('/') => path.as_str().to_owned(),
            Some(path) => format!("/{}", path.as_str()),
            None => "/".to_owned(),
        };
        if has_dots(path.split('?').next().unwrap_or_default()) {
            return Err(format!("{iri} has . or .. in its path"));
        }
        Ok(Self {
            is_tls,
            host,
            port: authority.port_u16().unwrap_or(default_port(is_tls)),
            path,
        })
    }

    /// The URL, to resolve relative ones against, and for messages.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// For the field `Host`.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == default_port(self.is_tls) {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

const fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

/// An IRI as a URI.
fn ascii(iri: &str) -> String {
    let mut out = String::with_capacity(iri.len());
    for byte in iri.bytes() {
        if byte.is_ascii() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Whether a path has segments that lead elsewhere, in any spelling.
fn has_dots(path: &str) -> bool {
    let path = path
        .to_ascii_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "\\");
    path.split(['/', '\\'])
        .any(|segment| segment == "." || segment == "..")
}

/// What the operator allows.
#[derive(Clone, Debug)]
pub(super) struct Allowed {
    prefixes: Vec<Prefix>,
    /// The option that prefixes are given with, for messages.
    option: &'static str,
}

impl Allowed {
    pub(super) const fn new(prefixes: Vec<Prefix>, option: &'static str) -> Self {
        Self { prefixes, option }
    }

    /// Fails if no prefix covers the target. Gives whether one does that names its host.
    pub(super) fn check(&self, target: &Target) -> Result<bool, String> {
        let covering = self.prefixes.iter().filter(|prefix| prefix.covers(target));
        covering
            .map(|prefix| prefix.host.is_some())
            .reduce(|a, b| a || b)
            .ok_or_else(|| {
                let (url, option) = (target.url(), self.option);
                format!("{url} is not allowed; allow it with {option} PREFIX")
            })
    }

    /// Whether a connection for `target` may be made to an address; `is_named` as
    /// [`check`](Self::check) gives it.
    pub(super) fn check_address(
        &self,
        target: &Target,
        address: SocketAddr,
        is_named: bool,
    ) -> Result<(), String> {
        if is_reachable(target, address, is_named) {
            return Ok(());
        }
        let (host, ip, option) = (&target.host, address.ip().to_canonical(), self.option);
        Err(format!(
            "{host} leads to {ip}, an address of this machine; allow it by that address, with \
             {option} http://{address}/"
        ))
    }
}

fn is_reachable(target: &Target, address: SocketAddr, is_named: bool) -> bool {
    let ip = address.ip().to_canonical();
    let is_inner = match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.octets().first() == Some(&0),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local(),
    };
    let is_meant = target.host == "localhost"
        || target.host.ends_with(".localhost")
        || target.host.parse::<IpAddr>().is_ok();
    if ip.is_multicast() || ip == IpAddr::from([255, 255, 255, 255]) {
        false
    } else if is_inner {
        // Somebody else may answer for a name; what such an address is, is no matter of names.
        is_named && is_meant
    } else {
        is_named || !is_own(ip)
    }
}

/// Whether an interface of this machine has the address: only to such an address a socket can be
/// bound.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(prefix: &str, url: &str) -> bool {
        let allowed = Allowed::new(vec![Prefix::parse(prefix).unwrap()], "--allow-service");
        Target::parse(url).is_ok_and(|target| allowed.check(&target).is_ok())
    }

    #[test]
    fn prefixes_end_at_hosts_and_segments() {
        for (prefix, url, expected) in [
            ("http://a.org", "http://a.org/sparql?x=1", true),
            ("http://a.org", "http://A.ORG", true),
            ("http://a.org", "http://a.org:80/x", true),
            ("http://a.org/", "http://a.org.evil.com/", false),
            ("http://a.org", "http://a.org.evil.com/", false),
            ("http://a.org", "http://a.org@evil.com/", false),
            ("http://a.org", "http://evil.com/http://a.org", false),
            ("http://a.org", "http://a.org:8080/", false),
            ("http://a.org", "https://a.org/", false),
            ("http://a.org/sparql", "http://a.org/sparql", true),
            ("http://a.org/sparql", "http://a.org/sparql/b", true),
            ("http://a.org/sparql", "http://a.org/sparql?q", true),
            ("http://a.org/sparql", "http://a.org/sparqlx", false),
            ("http://a.org/sparql", "http://a.org/", false),
            (
                "http://a.org/sparql/",
                "http://a.org/sparql/../admin",
                false,
            ),
            (
                "http://a.org/sparql/",
                "http://a.org/sparql/%2E%2e/admin",
                false,
            ),
            (
                "http://a.org/sparql/",
                "http://a.org/sparql/x%2f..%2f..%2fadmin",
                false,
            ),
            (
                "http://a.org/sparql/",
                "http://a.org/sparql/..%5cadmin",
                false,
            ),
            ("https://", "https://any.org/x", true),
            ("https://", "http://any.org/x", false),
            ("http://[::1]:7878/", "http://[::1]:7878/sparql", true),
            ("http://a.org/", "http://a.org/caf\u{e9}", true),
            ("http://", "file:///etc/passwd", false),
            ("http://", "ftp://a.org/", false),
            ("http://", "gopher", false),
            ("http://", "http:///x", false),
        ] {
            assert_eq!(allows(prefix, url), expected, "{prefix} {url}");
        }
        for wrong in [
            "",
            "a.org",
            "file:///",
            "ftp://a.org",
            "http://a.org/?q=",
            "http://u:p@a/",
        ] {
            assert!(Prefix::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_of_this_machine_must_be_meant() {
        let check = |prefix: &str, url: &str, ip: &str| {
            let allowed = Allowed::new(vec![Prefix::parse(prefix).unwrap()], "--allow-service");
            let target = Target::parse(url).unwrap();
            let is_named = allowed.check(&target).unwrap();
            let ip: IpAddr = ip.parse().unwrap();
            let address = SocketAddr::new(ip, target.port);
            allowed.check_address(&target, address, is_named).is_ok()
        };
        for (prefix, url, ip, expected) in [
            ("http://", "http://127.0.0.1/", "127.0.0.1", false),
            ("http://", "http://localhost/", "127.0.0.1", false),
            ("http://127.0.0.1/", "http://127.0.0.1/", "127.0.0.1", true),
            ("http://localhost/", "http://localhost/", "::1", true),
            // A name that somebody else answers for.
            ("http://a.org/", "http://a.org/", "127.0.0.1", false),
            ("http://a.org/", "http://a.org/", "127.9.9.9", false),
            ("http://a.org/", "http://a.org/", "::1", false),
            ("http://a.org/", "http://a.org/", "::ffff:127.0.0.1", false),
            ("http://a.org/", "http://a.org/", "0.0.0.0", false),
            ("http://a.org/", "http://a.org/", "::", false),
            ("http://a.org/", "http://a.org/", "169.254.169.254", false),
            ("http://a.org/", "http://a.org/", "fe80::1", false),
            ("http://a.org/", "http://a.org/", "224.0.0.1", false),
            ("http://a.org/", "http://a.org/", "192.0.2.1", true),
            ("http://", "http://a.org/", "192.0.2.1", true),
            ("http://", "http://a.org/", "2001:db8::1", true),
        ] {
            assert_eq!(check(prefix, url, ip), expected, "{prefix} {url} {ip}");
        }
    }
}
