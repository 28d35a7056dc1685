//! Who may write over HTTP: tokens, and pages of other origins. On which addresses is tested beside the
//! code, as tests listen on this machine alone.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test: what is malformed fails it"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::http_client::{Response, parse, request};
use crate::support::{self, Server, assert_failed, loaded, stoa, text};

const TOKEN: &str = "a-token-of-the-tests";

fn update(server: &Server, headers: &[(&str, &str)]) -> Response {
    let mut all = vec![("Content-Type", "application/sparql-update")];
    all.extend(headers);
    let update = b"INSERT DATA { <http://a/s> <http://a/p> \"o\" }";
    request(&server.address, "POST", "/sparql", &all, update)
}

fn post(server: &Server, headers: &[(&str, &str)]) -> Response {
    let mut all = vec![("Content-Type", "application/n-triples")];
    all.extend(headers);
    let triple = support::ONE.as_bytes();
    request(&server.address, "POST", "/store?default", &all, triple)
}

type Send = fn(&Server, &[(&str, &str)]) -> Response;

/// The ways to write.
const WAYS: [Send; 2] = [update, post];

#[test]
fn a_token_lets_write_and_all_may_read() {
    let folder = loaded();
    fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let server = Server::start(folder.path(), &["--token", "token"]);
    for send in WAYS {
        for header in [None, Some("Bearer another-token-of-a-test"), Some(TOKEN)] {
            let headers: Vec<_> = header
                .map(|value| ("Authorization", value))
                .into_iter()
                .collect();
            let refused = send(&server, &headers);
            assert_eq!(refused.status, 401, "{header:?}");
            let asked = refused.header("www-authenticate").unwrap();
            assert!(asked.starts_with("Bearer"), "{asked}");
            assert!(refused.text().contains("no-token") && !refused.text().contains(TOKEN));
        }
        let bearer = format!("Bearer {TOKEN}");
        let done = send(&server, &[("Authorization", bearer.as_str())]);
        assert_eq!(done.status / 100, 2, "{}", done.text());
    }
    let read = request(&server.address, "GET", "/sparql?query=ASK%7B%7D", &[], b"");
    assert_eq!(read.status, 200);
}

#[test]
fn a_token_that_is_none_is_refused_before_anything_is_served() {
    let folder = loaded();
    fs::write(folder.path().join("short"), "secret\n").unwrap();
    let serve = ["serve", "--db", "new", "--bind", "127.0.0.1:0", "--token"];
    for (file, code, part) in [
        ("short", 2, "at least 16 characters"),
        ("nowhere", 1, "cannot read the token nowhere"),
    ] {
        let output = stoa(folder.path(), &[&serve[..], &[file]].concat());
        assert_failed(&output, code, &[part]);
        assert!(!text(&output.stderr).contains("secret"));
    }
    assert!(!folder.path().join("new").exists());
}

/// As a form on a page of anybody could post it.
#[test]
fn pages_of_other_origins_do_not_write() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--cors", "https://good.example"]);
    let own = format!("http://{}", server.address);
    for send in WAYS {
        for origin in ["https://bad.example", "null", "http://127.0.0.1:1"] {
            let refused = send(&server, &[("Origin", origin)]);
            assert_eq!(refused.status, 403, "{origin}");
            assert!(
                refused.text().contains("foreign-origin")
                    && !refused.text().contains("--cors null"),
                "{}",
                refused.text()
            );
        }
        for origin in [own.as_str(), "https://good.example"] {
            let done = send(&server, &[("Origin", origin)]);
            assert_eq!(done.status / 100, 2, "{origin}: {}", done.text());
        }
    }
    let form = [
        ("Origin", "https://bad.example"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    let posted = request(
        &server.address,
        "POST",
        "/sparql",
        &form,
        b"update=CLEAR+ALL",
    );
    assert_eq!(posted.status, 403);
    let preflight = [
        ("Origin", "https://good.example"),
        ("Access-Control-Request-Method", "PUT"),
    ];
    let answer = request(&server.address, "OPTIONS", "/store", &preflight, b"");
    let methods = answer.header("access-control-allow-methods").unwrap();
    assert!(
        methods.contains("PUT") && methods.contains("DELETE"),
        "{methods}"
    );
}

/// The status of a request with these lines in its head, and the text of the answer.
fn raw(server: &Server, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes())
        .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let answer = parse(&bytes, false);
    (answer.status, answer.text())
}

#[test]
fn a_foreign_host_is_refused_everywhere() {
    let folder = loaded();
    let server = Server::start(
        folder.path(),
        &["--host", "Db.example", "--host", "b.example"],
    );
    let update = "application/sparql-update\r\nContent-Length: 9";
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/sparql?query=ASK%7B%7D"),
        ("GET", "/store"),
        ("GET", "/status"),
        ("GET", "/health"),
        ("GET", "/nothing"),
        ("OPTIONS", "/sparql"),
        ("PATCH", "/sparql"),
        ("GET", "/repositories/default/size"),
        ("POST", "/sparql"),
        ("DELETE", "/store?default"),
    ] {
        let head = |host: &str| {
            format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {update}")
        };
        let (status, text) = raw(&server, &head("evil.example:7878"), "CLEAR ALL");
        assert_eq!(status, 421, "{method} {target}: {text}");
        assert!(text.contains("--host evil.example or"), "{text}");
        assert!(text.contains("--token"), "{text}");
        for host in ["localhost:1", "db.example", "B.EXAMPLE.:80", "[::1]:7"] {
            if method != "DELETE" && method != "POST" {
                let (status, text) = raw(&server, &head(host), "CLEAR ALL");
                assert_ne!(status, 421, "{method} {target} {host}: {text}");
            }
        }
    }
    let read = request(&server.address, "GET", "/store?default", &[], b"");
    assert_eq!(read.status, 200);
    assert!(read.text().contains("http://a/s"), "{}", read.text());
}

#[test]
fn with_a_token_hosts_are_free_unless_they_are_named() {
    let folder = loaded();
    fs::write(folder.path().join("token"), TOKEN).unwrap();
    let ask = "GET /sparql?query=ASK%7B%7D HTTP/1.1\r\nHost: db.example";
    let free = Server::start(folder.path(), &["--token", "token"]);
    assert_eq!(raw(&free, ask, "").0, 200);
    drop(free);
    let named = Server::start(folder.path(), &["--token", "token", "--host", "a.example"]);
    assert_eq!(raw(&named, ask, "").0, 421);
    drop(named);
    let wrong = stoa(
        folder.path(),
        &[
            "serve",
            "--db",
            "db",
            "--bind",
            "127.0.0.1:0",
            "--host",
            "http://a",
        ],
    );
    assert_failed(&wrong, 2, &["--host", "without scheme"]);
}

#[test]
fn a_request_has_one_host() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    for (head, status) in [
        ("GET /health HTTP/1.1\r\nHost: localhost", 200),
        ("GET /health HTTP/1.1\r\nX: y", 400),
        (
            "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost",
            400,
        ),
        (
            "GET /health HTTP/1.1\r\nHost: localhost\r\nhost: evil.example",
            400,
        ),
        ("GET /health HTTP/1.1\r\nHost:", 400),
        ("GET /health HTTP/1.1\r\nHost: a b", 400),
        ("GET /health HTTP/1.0\r\nX: y", 200),
        (
            "GET http://evil.example/health HTTP/1.1\r\nHost: localhost",
            421,
        ),
        (
            "GET http://localhost/health HTTP/1.1\r\nHost: localhost",
            200,
        ),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost", 204),
    ] {
        assert_eq!(raw(&server, head, "").0, status, "{head}");
    }
}

#[test]
fn every_response_keeps_browsers_from_running_it() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    for target in [
        "/",
        "/sparql?query=ASK%7B%7D",
        "/sparql",
        "/store",
        "/health",
        "/nothing",
        "/status",
    ] {
        let answer = request(&server.address, "GET", target, &[("Accept", "*/*")], b"");
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{target}"
        );
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'"), "{target}: {policy}");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{target}: {policy}"
        );
    }
}

/// The text between two marks.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

/// The bytes of hexadecimal digits in base 64.
fn base64(hex: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = hex
        .chars()
        .map(|digit| format!("{:04b}", digit.to_digit(16).unwrap()))
        .collect();
    let bits: Vec<char> = bits.chars().collect();
    let mut text: String = bits
        .chunks(6)
        .map(|six| {
            let six: String = six.iter().collect();
            let number = usize::from_str_radix(&format!("{six:0<6}"), 2).unwrap();
            char::from(DIGITS[number])
        })
        .collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

#[test]
fn the_policy_of_the_page_has_the_hashes_of_its_script_and_style() {
    assert_eq!(base64("4d"), "TQ==");
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    let page = request(&server.address, "GET", "/", &[], b"");
    let policy = page.header("content-security-policy").unwrap();
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-frame-options"), Some("DENY"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    let text = page.text();
    for (name, start, end) in [
        ("script-src", "<script>", "</script>"),
        ("style-src", "<style>", "</style>"),
    ] {
        let inline = between(&text, start, end);
        // Escapes of a SPARQL string.
        let inline = inline
            .replace('\\', "\\\\")
            .replace('\'', "\\'")
            .replace('\n', "\\n");
        let query = format!("SELECT (SHA256('{inline}') AS ?hash) {{}}");
        let headers = [
            ("Content-Type", "application/sparql-query"),
            ("Accept", "text/csv"),
        ];
        let answer = request(
            &server.address,
            "POST",
            "/sparql",
            &headers,
            query.as_bytes(),
        );
        let hash = answer.text().lines().nth(1).unwrap().to_owned();
        let expected = format!("{name} 'sha256-{}'", base64(&hash));
        assert!(policy.contains(&expected), "{expected} is not in {policy}");
    }
    assert_eq!(
        text.matches("<script").count() + text.matches("<style").count(),
        2
    );
}

#[test]
fn a_request_has_one_transfer_coding() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    let head = "POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query";
    for (coding, status) in [
        ("chunked", 200),
        ("Chunked", 200),
        ("chunked, chunked", 501),
        ("chunked\r\nTransfer-Encoding: chunked", 501),
        ("gzip, chunked", 501),
    ] {
        let head = format!("{head}\r\nTransfer-Encoding: {coding}");
        let found = raw(&server, &head, "6\r\nASK {}\r\n0\r\n\r\n");
        assert_eq!(found.0, status, "{coding}: {}", found.1);
    }
}

#[test]
fn requests_that_cannot_be_met_say_why() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    let post = "POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query";
    let chunked = format!("{post}\r\nTransfer-Encoding: chunked");
    let hoping = format!("{post}\r\nExpect: 103-early-hints\r\nContent-Length: 6");
    let tunnel = "CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443".to_owned();
    for (head, body, status, part) in [
        (&chunked, "x\r\nASK {}\r\n0\r\n\r\n", 400, "chunk size"),
        (&hoping, "ASK {}", 417, "100-continue"),
        (&tunnel, "", 501, "no connections to others"),
    ] {
        let (found, text) = raw(&server, head, body);
        assert_eq!(found, status, "{head}: {text}");
        assert!(text.contains(part), "{head}: {text}");
    }
    // Whether it is told to go on depends on how soon its body comes.
    let head = format!("{post}\r\nExpect: 100-Continue\r\nContent-Length: 6");
    let (found, text) = raw(&server, &head, "ASK {}");
    assert!(
        found == 200 || text.contains("HTTP/1.1 200"),
        "{found}: {text}"
    );
}

/// What proxies and servers may read differently is no request at all, or one.
#[test]
fn requests_whose_end_is_in_doubt_are_refused() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    let post = "POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query";
    for lines in [
        "Content-Length: 6\r\nContent-Length: 7",
        "Content-Length: 6, 7",
        "Content-Length: +6",
        "Content-Length: 0x6",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Content-Length : 6",
        "Content-Length: 6\r\n folded: 1",
    ] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let request = format!(
            "{post}\r\n{lines}\r\n\r\nASK {{}}GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.1 5"),
            "{lines}: {text}"
        );
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{lines}: {text}");
    }
}
