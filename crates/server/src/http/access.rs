//! Who may write.
//!
//! Where a token is set, whoever brings it. Without one, whoever reaches a server that listens on an
//! address of this machine alone; a server on any other address can then only be read. In any case a
//! web page may write only if it comes from this server, or from an origin that `--cors` names: a page
//! of anybody could otherwise post a form to the server of whoever looks at it.
//!
//! # References
//! RFC 6454; RFC 6750 section 2.1.

use std::fmt;
use std::hint::black_box;
use std::net::SocketAddr;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};

use super::cors::Origins;
use super::problem::Problem;

/// The shortest token, in characters: a shorter one can be guessed.
const TOKEN_CHARACTERS_MIN: usize = 16;

/// Who may change databases.
#[derive(Clone, Debug)]
pub(crate) struct Writers {
    /// What a request has to bring.
    token: Option<Token>,
    /// Whether the server listens on an address that only this machine reaches.
    is_local: bool,
    origins: Origins,
}

/// A secret that a writing request brings as `Authorization: Bearer`.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// The token in a text, such as a file's; white space around it is none of it.
    ///
    /// # Errors
    /// What is wrong with it: it is too short, or cannot stand in a header.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let token = text.trim();
        if token.len() < TOKEN_CHARACTERS_MIN {
            return Err(format!(
                "a token has at least {TOKEN_CHARACTERS_MIN} characters"
            ));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is one word of ASCII letters, digits and punctuation".to_owned());
        }
        Ok(Self(token.to_owned()))
    }

    /// Compares all bytes, so that the time tells nothing of how many are right.
    fn is(&self, other: &[u8]) -> bool {
        let ours = self.0.as_bytes();
        let mut difference = u8::from(ours.len() != other.len());
        for (ours, other) in ours.iter().zip(other) {
            difference = black_box(difference | (ours ^ other));
        }
        difference == 0
    }
}

impl fmt::Debug for Token {
    /// Never the token itself, which could end in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Writers {
    /// Who may write to a server that listens on `address`.
    pub(crate) fn new(address: SocketAddr, token: Option<Token>, origins: Origins) -> Self {
        Self {
            token,
            is_local: address.ip().to_canonical().is_loopback(),
            origins,
        }
    }

    /// Whether nobody may write.
    pub(crate) fn is_empty(&self) -> bool {
        self.token.is_none() && !self.is_local
    }

    /// Lets a writing request through.
    ///
    /// # Errors
    /// 403 if nobody may write, or not a page of the request's origin; 401 if the token is missing or
    /// wrong.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.is_empty() {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "read-only",
                "this server can only be read: it listens on an address that other machines may \
                 reach, and was started without --token",
            ));
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        for origin in headers.get_all(ORIGIN) {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            if !Self::is_own(&origin, host) && !self.origins.may_write(&origin, self.has_token()) {
                return Err(Problem::new(
                    StatusCode::FORBIDDEN,
                    "foreign-origin",
                    match &*origin {
                        // Any page can send it, from a frame without rights.
                        "null" => "a page without an address of its own (a file, or a frame in a sandbox) must not \
                                   write here: let a server give it, whose address --cors names"
                            .to_owned(),
                        origin => format!(
                            "a page of {origin} must not write here; serve --cors {origin} allows it"
                        ),
                    },
                ));
            }
        }
        let Some(token) = &self.token else {
            return Ok(());
        };
        let brought = headers
            .get(AUTHORIZATION)
            .and_then(|value| bearer(value.as_bytes()));
        if brought.is_some_and(|brought| token.is(brought)) {
            return Ok(());
        }
        let mut problem = Problem::new(
            StatusCode::UNAUTHORIZED,
            "no-token",
            "who writes brings the token of the server: Authorization: Bearer TOKEN",
        );
        problem.authenticate = true;
        Err(problem)
    }

    fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether an origin is this server as the request names it, by a name under which it answers
    /// ([`super::hosts`]).
    fn is_own(origin: &str, host: Option<&str>) -> bool {
        let Some(((scheme, authority), host)) = origin.split_once("://").zip(host) else {
            return false;
        };
        let port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => return false,
        };
        let without_port =
            |name: &str| name.strip_suffix(port).unwrap_or(name).to_ascii_lowercase();
        without_port(authority) == without_port(host)
    }
}

/// The credentials of `Authorization: Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, credentials) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| credentials.trim_ascii())
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn writers(address: &str, token: Option<&str>, cors: &[&str]) -> Writers {
        Writers::new(
            address.parse().unwrap(),
            token.map(|token| Token::new(token).unwrap()),
            Origins::new(cors.iter().map(|&origin| origin.to_owned()).collect()),
        )
    }

    fn status(writers: &Writers, headers: &[(HeaderName, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        match writers.check(&map) {
            Ok(()) => 200,
            Err(problem) => {
                assert_eq!(problem.authenticate, problem.status == 401);
                problem.status.as_u16()
            }
        }
    }

    #[test]
    fn without_a_token_only_this_machine_writes() {
        for (address, expected) in [
            ("127.0.0.1:7878", 200),
            ("127.3.2.1:1", 200),
            ("[::1]:7878", 200),
            ("[::ffff:127.0.0.1]:7878", 200),
            ("0.0.0.0:7878", 403),
            ("[::]:7878", 403),
            ("192.168.1.5:7878", 403),
        ] {
            let writers = writers(address, None, &[]);
            assert_eq!(status(&writers, &[]), expected, "{address}");
            assert_eq!(writers.is_empty(), expected == 403, "{address}");
        }
    }

    #[test]
    fn a_token_is_wanted_on_every_address() {
        for address in ["127.0.0.1:7878", "0.0.0.0:7878"] {
            let writers = writers(address, Some(&format!(" {SECRET}\n")), &[]);
            for (value, expected) in [
                (format!("Bearer {SECRET}"), 200),
                (format!("bearer  {SECRET}"), 200),
                (format!("Bearer {SECRET}x"), 401),
                ("Bearer 0123456789abcdeg".to_owned(), 401),
                ("Bearer 0123456789abcde".to_owned(), 401),
                ("Bearer ".to_owned(), 401),
                ("Bearer".to_owned(), 401),
                (format!("Basic {SECRET}"), 401),
                (SECRET.to_owned(), 401),
            ] {
                let found = status(&writers, &[(AUTHORIZATION, value.as_str())]);
                assert_eq!(found, expected, "{value}");
            }
            assert_eq!(status(&writers, &[]), 401);
        }
        assert!(Token::new("short").is_err());
        assert!(Token::new("has blanks in the middle").is_err());
        assert!(!format!("{:?}", Token::new(SECRET)).contains(SECRET));
    }

    #[test]
    fn pages_of_other_origins_do_not_write() {
        let cases = [
            ("http://localhost:7878", "localhost:7878", 200),
            ("http://127.0.0.1:7878", "127.0.0.1:7878", 200),
            ("http://[::1]:7878", "[::1]:7878", 200),
            ("http://[::1]", "[::1]", 200),
            ("http://localhost", "LOCALHOST:80", 200),
            ("http://localhost:7879", "localhost:7878", 403),
            ("https://localhost:80", "localhost", 403),
            ("http://evil.example", "localhost:7878", 403),
            ("http://localhost.evil.example", "localhost", 403),
            ("null", "localhost:7878", 403),
            ("https://good.example", "localhost:7878", 200),
            ("HTTPS://GOOD.example", "localhost:7878", 200),
        ];
        let open = writers("127.0.0.1:7878", None, &["https://good.example"]);
        for (origin, host, expected) in cases {
            let found = status(&open, &[(ORIGIN, origin), (HOST, host)]);
            assert_eq!(found, expected, "{origin} at {host}");
        }
        let two = [
            (ORIGIN, "http://localhost"),
            (ORIGIN, "null"),
            (HOST, "localhost"),
        ];
        assert_eq!(status(&open, &two), 403);
        // `*` is about reading, unless a page has to know the token.
        let any = writers("127.0.0.1:7878", None, &["*"]);
        assert_eq!(status(&any, &[(ORIGIN, "http://evil.example")]), 403);
        let any = writers("127.0.0.1:7878", Some(SECRET), &["*"]);
        let bearer = format!("Bearer {SECRET}");
        let brought = [
            (ORIGIN, "http://a.example"),
            (AUTHORIZATION, bearer.as_str()),
        ];
        assert_eq!(status(&any, &brought), 200);
        let named = writers("0.0.0.0:7878", Some(SECRET), &[]);
        let own = [
            (ORIGIN, "https://db.example"),
            (HOST, "db.example"),
            (AUTHORIZATION, bearer.as_str()),
        ];
        assert_eq!(status(&named, &own), 200);
    }
}
