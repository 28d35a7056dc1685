//! Who may write over HTTP: tokens, and pages of other origins. On which addresses is tested beside the
//! code, as tests listen on this machine alone.

use std::fs;

use crate::http_client::{Response, request};
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
                refused.text().contains("foreign-origin"),
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
