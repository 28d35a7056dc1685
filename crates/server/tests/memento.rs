//! Earlier states over HTTP: `?at=` on each route that reads, and Memento.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test; tables of cases are long"
)]

use crate::http_client::{Response, request};
use crate::support::Server;
use tempfile::TempDir;

const R: &str = "/repositories/default";

/// A server whose three commits add a quad each: to the default graph, to `http://a/g`, and to `http://a/h`.
fn three_commits() -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--retain", "all"]);
    for target in [
        "/store?default",
        "/store?graph=http://a/g",
        "/store?graph=http://a/h",
    ] {
        let headers = [("Content-Type", "text/turtle")];
        let body = b"<http://a/s> <http://a/p> 'o' .";
        let done = request(&server.address, "POST", target, &headers, body);
        assert!(done.status < 300, "{}", done.text());
    }
    (server, folder)
}

fn get(server: &Server, target: &str, headers: &[(&str, &str)]) -> Response {
    request(&server.address, "GET", target, headers, b"")
}

/// The time of a commit as `/log` tells it, in whole seconds as `Accept-Datetime` has it.
fn memento_date(server: &Server, commit: u64) -> String {
    let answer = get(server, &format!("/store?format=nq&at={commit}"), &[]);
    answer.header("memento-datetime").unwrap().to_owned()
}

/// Percent-encodes what is sent in an address.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn each_route_that_reads_gives_earlier_states() {
    let (server, _folder) = three_commits();
    let count = encoded("SELECT (COUNT(*) AS ?n) { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }");
    let sparql = format!("/sparql?format=csv&query={count}");
    let rdf4j = format!("{R}?format=csv&query={count}");
    let statements = format!(
        "{R}/statements?context=null&context={}",
        encoded("<http://a/g>")
    );
    let size = format!("{R}/size?context=");
    // What each says of the states after the three commits.
    let rows: &[(&str, &str, [&str; 3])] = &[
        (
            &sparql,
            "text/csv",
            ["n\r\n1\r\n", "n\r\n2\r\n", "n\r\n3\r\n"],
        ),
        (
            &rdf4j,
            "text/csv",
            ["n\r\n1\r\n", "n\r\n2\r\n", "n\r\n3\r\n"],
        ),
        (
            "/store?default",
            "application/n-triples",
            ["<http://a/s> <http://a/p> \"o\" .\n"; 3],
        ),
        (
            "/store?graph=http://a/h&format=nt",
            "",
            ["404", "404", "<http://a/s> <http://a/p> \"o\" .\n"],
        ),
        (
            "/store",
            "application/n-quads",
            [
                "<http://a/s> <http://a/p> \"o\" .\n",
                "<http://a/s> <http://a/p> \"o\" .\n<http://a/s> <http://a/p> \"o\" <http://a/g> .\n",
                "<http://a/s> <http://a/p> \"o\" .\n<http://a/s> <http://a/p> \"o\" <http://a/g> .\n\
                 <http://a/s> <http://a/p> \"o\" <http://a/h> .\n",
            ],
        ),
        (
            &statements,
            "application/n-triples",
            [
                "<http://a/s> <http://a/p> \"o\" .\n",
                "<http://a/s> <http://a/p> \"o\" .\n<http://a/s> <http://a/p> \"o\" .\n",
                "<http://a/s> <http://a/p> \"o\" .\n<http://a/s> <http://a/p> \"o\" .\n",
            ],
        ),
        (&format!("{R}/size"), "", ["1", "2", "3"]),
        (&format!("{size}null"), "", ["1", "1", "1"]),
        (
            &format!("{size}{}", encoded("<http://a/h>")),
            "",
            ["0", "0", "1"],
        ),
        (
            &format!("{R}/contexts"),
            "text/csv",
            [
                "contextID\r\n",
                "contextID\r\nhttp://a/g\r\n",
                "contextID\r\nhttp://a/g\r\nhttp://a/h\r\n",
            ],
        ),
        (
            &format!("{R}/rdf-graphs/service?default&format=nt"),
            "",
            ["<http://a/s> <http://a/p> \"o\" .\n"; 3],
        ),
    ];
    for (target, accept, bodies) in rows {
        let separator = if target.contains('?') { '&' } else { '?' };
        let with = |at: &str| {
            let headers = [("Accept", *accept)];
            let headers = if accept.is_empty() {
                &[][..]
            } else {
                &headers[..]
            };
            get(&server, &format!("{target}{separator}at={at}"), headers)
        };
        for (commit, body) in (1_u64..).zip(bodies) {
            let answer = with(&commit.to_string());
            let text = answer.text();
            if *body == "404" {
                assert_eq!(answer.status, 404, "{target} at {commit}: {text}");
                continue;
            }
            assert_eq!(
                (answer.status, text.as_str()),
                (200, *body),
                "{target} at {commit}"
            );
            assert_eq!(
                answer.header("stoa-commit"),
                Some(commit.to_string().as_str())
            );
            assert!(answer.header("memento-datetime").is_some(), "{target}");
            let link = answer.header("link").unwrap();
            assert!(link.ends_with("; rel=\"original timegate\""), "{link}");
            assert!(!link.contains("?at=") && !link.contains("&at="), "{link}");
        }
        assert_eq!(with("4").status, 404, "{target}");
        assert_eq!(with("soon").status, 400, "{target}");
        assert!(
            with("4").text().contains("there is no commit 4"),
            "{target}"
        );
    }
}

#[test]
fn what_writes_has_no_moment() {
    let (server, _folder) = three_commits();
    let update = "INSERT DATA { <http://a/x> <http://a/p> 1 }";
    let form = format!("update={}&at=1", encoded(update));
    let begun = request(
        &server.address,
        "POST",
        &format!("{R}/transactions"),
        &[],
        b"",
    );
    let open = begun.header("location").unwrap().to_owned();
    let (_, open) = open.split_once(&server.address).unwrap();
    let rows: &[(&str, &str, &str, &str)] = &[
        ("POST", "/sparql?at=1", "application/sparql-update", update),
        (
            "POST",
            "/sparql",
            "application/x-www-form-urlencoded",
            &form,
        ),
        ("PUT", "/store?default&at=1", "text/turtle", ""),
        ("POST", "/store?at=1&default", "text/turtle", ""),
        ("DELETE", "/store?default&at=1", "", ""),
        ("POST", "/load?at=1", "text/turtle", ""),
        ("POST", "/checkpoint?at=1", "", ""),
        ("POST", &format!("{R}/statements?at=1"), "text/turtle", ""),
        ("PUT", &format!("{R}/statements?at=1"), "text/turtle", ""),
        ("DELETE", &format!("{R}/statements?at=1"), "", ""),
        (
            "POST",
            &format!("{R}/statements"),
            "application/x-www-form-urlencoded",
            &form,
        ),
        ("POST", &format!("{R}/transactions?at=1"), "", ""),
        ("PUT", &format!("{open}?action=SIZE&at=1"), "", ""),
        (
            "PUT",
            &format!("{open}?action=QUERY"),
            "application/x-www-form-urlencoded",
            "query=ASK%7B%7D&at=1",
        ),
        ("DELETE", &format!("{R}/namespaces?at=1"), "", ""),
    ];
    for (method, target, media_type, body) in rows {
        let headers = [("Content-Type", *media_type)];
        let headers = if media_type.is_empty() {
            &[][..]
        } else {
            &headers[..]
        };
        let answer = request(&server.address, method, target, headers, body.as_bytes());
        let text = answer.text();
        assert_eq!(answer.status, 400, "{method} {target}: {text}");
        assert!(
            text.contains("the parameter at asks an earlier state"),
            "{method} {target}: {text}"
        );
    }
    assert_eq!(get(&server, &format!("{R}/size"), &[]).text(), "3");
}

#[test]
fn a_date_is_negotiated() {
    let (server, _folder) = three_commits();
    let now = memento_date(&server, 3);
    let target = "/store?format=nq&output=nq";
    let asked = get(&server, target, &[("Accept-Datetime", &now)]);
    assert_eq!(asked.status, 200, "{}", asked.text());
    // All that was committed until the end of that second.
    assert_eq!(asked.text().lines().count(), 3);
    assert_eq!(asked.header("memento-datetime"), Some(now.as_str()));
    assert_eq!(asked.header("stoa-commit"), Some("3"));
    let original = format!("http://{}{target}", server.address);
    let link = format!("<{original}>; rel=\"original timegate\"");
    assert_eq!(asked.header("link"), Some(link.as_str()));
    let own = format!("{original}&at=3");
    assert_eq!(asked.header("content-location"), Some(own.as_str()));
    let varies = |answer: &Response| {
        let mut all = answer.headers.iter();
        all.any(|(name, value)| name == "vary" && value == "Accept-Datetime")
    };
    assert!(varies(&asked));
    // What is current is told by a header, too, and is no memento.
    let current = get(&server, target, &[]);
    assert!(varies(&current) && current.header("memento-datetime").is_none());
    // At the address of an earlier state nothing is negotiated.
    let fixed = format!("{target}&at=1");
    let fixed = get(&server, &fixed, &[("Accept-Datetime", &now)]);
    assert_eq!(fixed.text().lines().count(), 1);
    assert!(!varies(&fixed) && fixed.header("content-location").is_none());
    assert_eq!(fixed.header("link"), Some(link.as_str()));

    // A time to come means what is current.
    let ahead = [("Accept-Datetime", "Tue, 01 Jan 2999 00:00:00 GMT")];
    assert_eq!(
        get(&server, target, &ahead).header("stoa-commit"),
        Some("3")
    );
    for (date, status, part) in [
        ("Thu, 01 Jan 1970 00:00:05 GMT", 200, ""),
        ("yesterday", 400, "Accept-Datetime is 'yesterday'"),
        ("2026-11-21T16:00:00Z", 400, "no date since 1970 such as"),
    ] {
        let answer = get(&server, target, &[("Accept-Datetime", date)]);
        assert_eq!(answer.status, status, "{date}: {}", answer.text());
        assert!(answer.text().contains(part), "{date}: {}", answer.text());
    }
}

#[test]
fn queries_and_statements_are_negotiated_as_well() {
    let (server, folder) = three_commits();
    let date = memento_date(&server, 3);
    let query = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }";
    for (method, target, body) in [
        ("GET", format!("/sparql?query={}", encoded(query)), ""),
        ("POST", "/sparql".to_owned(), query),
        ("GET", format!("{R}/statements"), ""),
        ("GET", format!("{R}/size"), ""),
    ] {
        let headers = [
            ("Accept-Datetime", date.as_str()),
            ("Content-Type", "application/sparql-query"),
        ];
        let answer = request(&server.address, method, &target, &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert_eq!(
            answer.header("memento-datetime"),
            Some(date.as_str()),
            "{target}"
        );
        // The body of a POST has no address.
        assert_eq!(answer.header("content-location").is_some(), method == "GET");
    }
    drop(server);
    // What is not kept is told as `?at=` tells it.
    let server = Server::start(folder.path(), &["--retain", "none"]);
    for headers in [
        &[("Accept-Datetime", "Sat, 01 Jan 2000 00:00:00 GMT")][..],
        &[],
    ] {
        let target = match headers {
            [] => "/store?at=2000-01-01",
            _ => "/store",
        };
        let answer = get(&server, target, headers);
        assert_eq!(answer.status, 410, "{}", answer.text());
        assert!(
            answer.text().contains("what was at 2000-01-01T00:00:00"),
            "{}",
            answer.text()
        );
    }
}
