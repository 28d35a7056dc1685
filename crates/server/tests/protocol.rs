//! The server's protocols over real sockets: several databases, graphs, codings, origins, old clients.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::http_client::{self, Response, request};
use crate::support::{self, Running, command, output};
use tempfile::TempDir;

const DATA: &str = "\
<http://a/s> <http://a/p> \"default\" .
<http://a/s> <http://a/p> \"one\" <http://a/g1> .
<http://a/t> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://a/C> <http://a/g1> .
<http://a/s> <http://a/p> \"two\" <http://a/g2> .
";

struct Server {
    _process: Running,
    address: String,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut process = command(folder)
            .args(["serve", "--create", "--bind", "127.0.0.1:0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        Self {
            address: address.unwrap().to_owned(),
            _process: Running(process),
        }
    }

    fn get(&self, target: &str, headers: &[(&str, &str)]) -> Response {
        request(&self.address, "GET", target, headers, b"")
    }

    fn query(&self, query: &str, headers: &[(&str, &str)]) -> Response {
        let mut all = vec![("Content-Type", "application/sparql-query")];
        all.extend(headers);
        request(&self.address, "POST", "/sparql", &all, query.as_bytes())
    }
}

/// A folder with the database `db` of [`DATA`].
fn loaded() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("data.nq"), DATA).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nq"]);
    folder
}

#[test]
fn graphs_and_datasets_are_fetched() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let nt = [("Accept", "application/n-triples")];
    let graph = server.get("/store?graph=http%3A%2F%2Fa%2Fg2", &nt);
    assert_eq!((graph.status, graph.is_whole), (200, true));
    assert_eq!(graph.header("content-type"), Some("application/n-triples"));
    assert_eq!(graph.text(), "<http://a/s> <http://a/p> \"two\" .\n");
    let default = server.get("/store?default", &nt);
    assert_eq!(default.text(), "<http://a/s> <http://a/p> \"default\" .\n");
    let all = server.get("/store", &[]);
    assert_eq!(all.header("content-type"), Some("application/n-quads"));
    let mut lines: Vec<String> = all.text().lines().map(str::to_owned).collect();
    let mut expected: Vec<String> = DATA.lines().map(str::to_owned).collect();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
    let trig = server.get("/store", &[("Accept", "application/trig")]);
    assert!(trig.text().contains("<http://a/g1>"), "{}", trig.text());
    let turtle = server.get("/store?graph=http://a/g1", &[]);
    assert!(
        turtle
            .header("content-type")
            .unwrap()
            .starts_with("text/turtle")
    );
    assert!(turtle.text().contains("\"one\""));
    let head = request(
        &server.address,
        "HEAD",
        "/store?graph=http://a/g1",
        &[],
        b"",
    );
    assert_eq!((head.status, head.body.len()), (200, 0));
    for (target, status, part) in [
        ("/store?graph=http://a/nowhere", 404, "no-such-graph"),
        ("/store/nowhere", 404, "no-such-graph"),
        ("/store?graph=relative", 400, "absolute IRI"),
        ("/store?graph=http://a/g1&default", 400, "names one graph"),
        ("/store?default&format=csv", 400, "'csv'"),
    ] {
        let answer = server.get(target, &[]);
        assert_eq!(answer.status, status, "{target}");
        assert!(answer.text().contains(part), "{}", answer.text());
    }
    let refused = server.get("/store", &[("Accept", "text/turtle")]);
    assert_eq!(refused.status, 406, "Turtle has no graphs");
    let patch = request(&server.address, "PATCH", "/store?default", &[], b"");
    assert_eq!(
        (patch.status, patch.header("allow")),
        (405, Some("GET, HEAD, PUT, POST, DELETE, OPTIONS"))
    );
}

/// As SPARQLWrapper sends it.
#[test]
fn a_list_of_formats_is_as_good_as_an_accept_header() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let query = "query=ASK+%7B%7D";
    let answer = server.get(
        &format!("/sparql?{query}&format=image/png,application/sparql-results%2Bxml"),
        &[("Accept", "application/sparql-results+json")],
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/sparql-results+xml")
    );
}

#[test]
fn one_server_has_many_databases() {
    let folder = loaded();
    std::fs::write(
        folder.path().join("b.nt"),
        "<http://b/s> <http://b/p> <http://b/o> .\n",
    )
    .unwrap();
    output(folder.path(), &["load", "--db", "second", "b.nt"]);
    let server = Server::start(folder.path(), &["--db", "a=db", "--db", "b=second"]);
    let ask = "query=SELECT+*+%7B+%3Fs+%3Fp+%3Fo+%7D";
    let csv = [("Accept", "text/csv")];
    let first = server.get(&format!("/a/sparql?{ask}"), &csv);
    assert!(first.text().contains("default"), "{}", first.text());
    let second = server.get(&format!("/b/sparql?{ask}"), &csv);
    assert!(second.text().contains("http://b/o"));
    assert!(server.get("/b/store", &[]).text().contains("<http://b/o>"));
    assert!(server.get("/b/", &[]).text().contains("<textarea"));
    assert_eq!(server.get("/b", &[]).header("location"), Some("/b/"));
    assert!(
        server
            .get("/", &[])
            .text()
            .contains("<a href=\"a/\">a</a>, 4 quads")
    );
    let nothing = server.get("/sparql", &[]);
    assert_eq!(nothing.status, 404);
    assert!(nothing.text().contains("/a/sparql, /b/sparql"));
}

#[test]
fn names_and_folders_of_databases_are_checked() {
    let folder = loaded();
    for (arguments, code, part) in [
        (&["--db", "sparql=db"][..], 2, "take another name"),
        (&["--db", "x="], 2, "the folder is missing"),
        (&["--db", "=x"], 2, "the name before = is missing"),
        (
            &["--db", "x=db", "--db", "x=other"],
            1,
            "give each a name of its own",
        ),
        (
            &["--db", "db", "--cors", "example.org"],
            2,
            "https://example.org",
        ),
    ] {
        let mut command = command(folder.path());
        command
            .args(["serve", "--bind", "127.0.0.1:0"])
            .args(arguments);
        support::assert_failed(&command.output().unwrap(), code, &[part]);
    }
}

#[test]
fn the_service_describes_itself() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let description = server.get("/sparql", &[("Accept", "application/n-triples")]);
    assert_eq!(description.status, 200);
    let text = description.text();
    let endpoint = format!("<http://{}/sparql>", server.address);
    let sd = "http://www.w3.org/ns/sparql-service-description#";
    for part in [
        format!("{endpoint} <{sd}endpoint> {endpoint} ."),
        format!("<{sd}name> <http://a/g1> ."),
        "<http://rdfs.org/ns/void#property> <http://a/p> .".to_owned(),
        "<http://rdfs.org/ns/void#class> <http://a/C> .".to_owned(),
        "<http://rdfs.org/ns/void#properties> \"2\"".to_owned(),
        "<http://rdfs.org/ns/void#triples> \"4\"".to_owned(),
    ] {
        assert!(text.contains(&part), "no {part} in {text}");
    }
    assert_eq!(text.matches(&format!("<{sd}name>")).count(), 2);
    let browser = server.get("/sparql", &[("Accept", "text/html,*/*;q=0.8")]);
    assert_eq!(
        (browser.status, browser.header("location")),
        (303, Some("./"))
    );
}

#[test]
fn answers_and_requests_are_compressed() {
    let folder = TempDir::new().unwrap();
    let data: String = (0..5_000)
        .map(|n| format!("<http://a/s{n}> <http://a/p> \"value number {n}\" .\n"))
        .collect();
    std::fs::write(folder.path().join("data.nt"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    let server = Server::start(folder.path(), &["--db", "db"]);
    let all = "SELECT ?s ?o { ?s ?p ?o } ORDER BY ?s";
    let csv = ("Accept", "text/csv");
    let plain = server.query(all, &[csv]);
    assert_eq!(plain.header("content-encoding"), None);
    for coding in ["gzip", "zstd"] {
        let encoded = server.query(all, &[csv, ("Accept-Encoding", coding)]);
        assert_eq!(encoded.header("content-encoding"), Some(coding));
        assert!(encoded.body.len() * 2 < plain.body.len());
        assert_eq!(decoded(coding, &encoded.body), plain.body, "{coding}");
        // Small answers are not worth it.
        let small = server.query("ASK {}", &[("Accept-Encoding", coding)]);
        assert_eq!(small.header("content-encoding"), None);
        let body = encode(coding, all.as_bytes());
        let headers = [
            csv,
            ("Content-Type", "application/sparql-query"),
            ("Content-Encoding", coding),
        ];
        let answer = request(&server.address, "POST", "/sparql", &headers, &body);
        assert_eq!(answer.body, plain.body, "{coding}");
        let damaged = request(
            &server.address,
            "POST",
            "/sparql",
            &headers,
            &body[..body.len() / 2],
        );
        assert_eq!(damaged.status, 400);
        // Few bytes that would become too many.
        let bomb = encode(coding, &vec![b' '; 65 << 20]);
        let refused = request(&server.address, "POST", "/sparql", &headers, &bomb);
        assert_eq!(refused.status, 413);
    }
    let headers = [
        ("Content-Type", "application/sparql-query"),
        ("Content-Encoding", "br"),
    ];
    let unknown = request(&server.address, "POST", "/sparql", &headers, b"ASK {}");
    assert_eq!(
        (unknown.status, unknown.header("accept-encoding")),
        (415, Some("gzip, zstd"))
    );
}

fn encode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    if coding == "zstd" {
        return zstd::encode_all(bytes, 1).unwrap();
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    if coding == "zstd" {
        return zstd::decode_all(bytes).unwrap();
    }
    let mut decoded = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut decoded)
        .unwrap();
    decoded
}

#[test]
fn pages_of_allowed_origins_may_read_answers() {
    let folder = loaded();
    let origin = [("Origin", "https://good.example")];
    let server = Server::start(folder.path(), &["--db", "db"]);
    let closed = server.query("ASK {}", &origin);
    assert_eq!(closed.header("access-control-allow-origin"), None);
    drop(server);
    let server = Server::start(
        folder.path(),
        &["--db", "db", "--cors", "https://good.example"],
    );
    let open = server.query("ASK {}", &origin);
    assert_eq!(
        open.header("access-control-allow-origin"),
        Some("https://good.example")
    );
    let error = server.query("ASK {", &origin);
    assert_eq!(error.status, 400);
    assert!(
        error.header("access-control-allow-origin").is_some(),
        "errors can be read, too"
    );
    let foreign = server.query("ASK {}", &[("Origin", "https://bad.example")]);
    assert_eq!(foreign.header("access-control-allow-origin"), None);
    let preflight = [
        origin[0],
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type"),
    ];
    let answer = request(&server.address, "OPTIONS", "/sparql", &preflight, b"");
    assert_eq!(answer.status, 204);
    assert_eq!(
        answer.header("access-control-allow-headers"),
        Some("content-type")
    );
    assert!(
        answer
            .header("access-control-allow-methods")
            .unwrap()
            .contains("POST")
    );
}

/// There a connection that breaks off cannot be told from the end of an answer.
#[test]
fn old_clients_get_answers_with_a_length() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let query = "SELECT * { ?s ?p ?o }";
    write!(
        stream,
        "POST /sparql HTTP/1.0\r\nContent-Type: application/sparql-query\r\nContent-Length: {}\r\n\r\n{query}",
        query.len()
    )
    .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let answer = http_client::parse(&bytes, false);
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("content-length").unwrap(),
        answer.body.len().to_string()
    );
}

/// Of 3,000 triples it has 27,000,000,000 solutions, of which it holds few.
const ENDLESS: &str = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(?a != ?g) }";

/// How many queries run at once on one thread, and how many wait.
const RUNNING: usize = 64;
const WAITING: usize = 100;

/// Queries that never end would hold all places; the clients leave, and others are answered.
#[test]
fn a_client_that_leaves_ends_its_query() {
    let folder = TempDir::new().unwrap();
    let data: String = (0..3_000)
        .map(|n| format!("<http://a/s{n}> <http://a/p> <http://a/o{n}> .\n"))
        .collect();
    std::fs::write(folder.path().join("data.nt"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    let server = Server::start(
        folder.path(),
        &["--db", "db", "--threads", "1", "--timeout", "1h"],
    );
    let clients: Vec<TcpStream> = (0..RUNNING + WAITING)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            write!(
                stream,
                "POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query\r\n\
                 Content-Length: {}\r\n\r\n{ENDLESS}",
                ENDLESS.len()
            )
            .unwrap();
            stream
        })
        .collect();
    drop(clients);
    let answer = server.query("ASK {}", &[]);
    assert_eq!(answer.status, 200);
}

#[test]
fn more_queries_than_may_wait_are_sent_away() {
    let folder = TempDir::new().unwrap();
    let data: String = (0..3_000)
        .map(|n| format!("<http://a/s{n}> <http://a/p> <http://a/o{n}> .\n"))
        .collect();
    std::fs::write(folder.path().join("data.nt"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    let server = Server::start(
        folder.path(),
        &["--db", "db", "--threads", "1", "--timeout", "1h"],
    );
    // Once as many run and wait as may, the rest is refused at once.
    let many = 0..RUNNING + WAITING + 8;
    let mut clients: Vec<TcpStream> = many.map(|_| ask_endless(&server.address)).collect();
    let mut refused = 0;
    while refused < 8 {
        let mut stream = ask_endless(&server.address);
        stream
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let mut bytes = Vec::new();
        if stream.read_to_end(&mut bytes).is_err() {
            // It waits: one before was sent away while those that wait were about to run.
            clients.push(stream);
            assert!(clients.len() < 2 * (RUNNING + WAITING), "none is sent away");
            continue;
        }
        let answer = http_client::parse(&bytes, false);
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(answer.text().contains("\"busy\""));
        refused += 1;
    }
}

#[test]
fn issue_36_no_parameter_is_ignored() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let select = "/sparql?query=SELECT+%3Fo%7B%3Chttp://a/s%3E+%3Fp+%3Fo%7D";
    for name in ["format", "output", "results"] {
        let csv = server.get(&format!("{select}&{name}=csv"), &[]);
        assert_eq!(csv.text(), "o\r\ndefault\r\n", "{name}");
    }
    // As SPARQLWrapper asks.
    let all = format!("{select}&format=xml&output=xml&results=xml");
    assert!(server.get(&all, &[]).text().contains("<sparql"));
    let construct = "/sparql?query=CONSTRUCT%7B%3Fs+%3Fp+%3Fo%7D%7B%3Fs+%3Fp+%3Fo%7D";
    for (name, media_type) in [
        ("xml", "application/rdf+xml"),
        ("json", "application/ld+json"),
        ("rdf%2Bxml", "application/rdf+xml"),
        ("n3", "text/turtle; charset=utf-8"),
    ] {
        let answer = server.get(&format!("{construct}&format={name}"), &[]);
        assert_eq!(answer.header("content-type"), Some(media_type), "{name}");
    }
    let described = server.get("/sparql?format=nt", &[]);
    assert_eq!(
        described.header("content-type"),
        Some("application/n-triples")
    );
    let query = format!("{select}&limit=1");
    for target in [
        query.as_str(),
        "/sparql?query=ASK%7B%7D&using-graph-uri=http://a/",
        "/sparql?query=ASK%7B%7D&message=a",
        "/sparql?query=ASK%7B%7D&format=csv&output=xml",
        "/sparql?query=ASK%7B%7D&timeout=1&timeout=2",
        "/store?default&at=1&at=1",
        "/log?limit=1&limit=2",
        "/diff?from=1&from=1&to=1",
        "/changes?since=1&since=1",
        "/repositories/default/statements?at=1&at=1",
        "/store?graf=http://a/g1",
        "/store?default&limit=1",
        "/log?count=1",
        "/diff?from=1&to=1&limit=1",
        "/changes?from=1",
        "/status?x=1",
        "/health?x",
        "/protocol?x",
        "/repositories?x",
        "/repositories/default/statements?graph=http://a/",
        "/repositories/default/size?subject=x",
        "/repositories/default/contexts?limit=1",
        "/repositories/default/namespaces?limit=1",
        "/repositories/default?query=ASK%7B%7D&limit=1",
    ] {
        let answer = server.get(target, &[]);
        assert_eq!(answer.status, 400, "{target}: {}", answer.text());
    }
    let named = server.get(&query, &[]).text();
    assert!(
        named.contains("unknown-parameter") && named.contains("parameter 'limit'"),
        "{named}"
    );
    for target in [
        "/checkpoint?x=1",
        "/compact?x=1",
        "/sparql?explain",
        "/sparql?query=ASK%7B%7D",
    ] {
        let headers = [("Content-Type", "application/sparql-update")];
        let answer = request(&server.address, "POST", target, &headers, b"INSERT DATA {}");
        assert_eq!(answer.status, 400, "{target}: {}", answer.text());
    }
}

#[test]
fn issue_36_triples_are_had_as_plain_text() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    for target in [
        "/sparql?query=CONSTRUCT%7B%3Fs+%3Fp+%3Fo%7D%7B%3Fs+%3Fp+%3Fo%7D",
        "/store?default",
        "/repositories/default/statements?context=null",
        "/sparql",
    ] {
        let answer = server.get(target, &[("Accept", "text/plain")]);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        if target != "/sparql" {
            assert_eq!(
                answer.text(),
                "<http://a/s> <http://a/p> \"default\" .\n",
                "{target}"
            );
        }
    }
}

#[test]
fn issue_36_a_text_that_xml_cannot_hold_comes_in_another_format() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let select = "SELECT ?x { VALUES ?x { 'a\\u0001b' } }";
    let construct = "CONSTRUCT { <http://a/s> <http://a/p> 'a\\u0001b' } {}";
    let xml = "application/sparql-results+xml";
    let long = format!("{select}{}", " ".repeat(20_000));
    for (query, accept, expected) in [
        (
            select,
            "application/sparql-results+xml, */*;q=0.1",
            "application/sparql-results+json",
        ),
        (
            &long,
            "application/sparql-results+xml, */*;q=0.1",
            "application/sparql-results+json",
        ),
        (
            select,
            "application/sparql-results+xml, application/xml, text/csv;q=0.1",
            "text/csv; charset=utf-8; header=present",
        ),
        (
            construct,
            "application/rdf+xml, text/turtle;q=0.5",
            "text/turtle; charset=utf-8",
        ),
    ] {
        let answer = server.query(query, &[("Accept", accept)]);
        assert_eq!(answer.status, 200, "{accept}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some(expected), "{accept}");
        assert!(
            answer.is_whole && !answer.text().contains("<?xml"),
            "{}",
            answer.text()
        );
    }
    // Where nothing else is acceptable, or a parameter names the format, the client is told.
    for (target, accept) in [("/sparql", xml), ("/sparql?format=xml", "*/*")] {
        let headers = [
            ("Content-Type", "application/sparql-query"),
            ("Accept", accept),
        ];
        let answer = request(&server.address, "POST", target, &headers, select.as_bytes());
        assert_eq!(answer.status, 400, "{target}");
    }
    let answer = server.query("SELECT ?x { VALUES ?x { 'plain' } }", &[("Accept", xml)]);
    assert_eq!(answer.header("content-type"), Some(xml));
}

#[test]
fn issue_36_silent_forgives_that_service_is_off() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let csv = [("Accept", "text/csv")];
    for (query, expected) in [
        (
            "SELECT * { SERVICE SILENT <http://b/> { ?s ?p ?x } }",
            "s,p,x\r\n,,\r\n",
        ),
        (
            "SELECT ?o ?x { <http://a/s> <http://a/p> ?o SERVICE SILENT <http://b/> { ?o ?p ?x } }",
            "o,x\r\ndefault,\r\n",
        ),
        (
            "SELECT ?o ?x { <http://a/s> <http://a/p> ?o SERVICE SILENT ?e { ?o ?p ?x } }",
            "o,x\r\ndefault,\r\n",
        ),
    ] {
        let answer = server.query(query, &csv);
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        assert_eq!(answer.text(), expected, "{query}");
    }
    let refused = server.query("SELECT * { SERVICE <http://b/> { ?s ?p ?x } }", &csv);
    assert_eq!(refused.status, 403);
}

/// Asks what never ends.
fn ask_endless(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /sparql HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/sparql-query\r\nContent-Length: {}\r\n\r\n{ENDLESS}",
        ENDLESS.len()
    )
    .unwrap();
    stream
}

#[test]
fn large_requests_are_refused_before_they_are_read() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query\r\n\
         Content-Length: 1073741824\r\n\r\n"
    )
    .unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 413"), "{line}");
}

/// More seconds than a duration holds are as many as the server allows.
#[test]
fn any_time_may_be_asked_for() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    for (seconds, status) in [("1e300", 200), ("inf", 400), ("-1", 400)] {
        let target = format!("/sparql?query=ASK%7B%7D&timeout={seconds}");
        assert_eq!(server.get(&target, &[]).status, status, "{seconds}");
    }
}

/// A request that never ends is given up, and holds nobody else meanwhile.
#[test]
fn slow_requests_end() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db", "--client-timeout", "1s"]);
    let mut slow = TcpStream::connect(&server.address).unwrap();
    write!(
        slow,
        "POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query\r\n\
         Content-Length: 100\r\n\r\nA"
    )
    .unwrap();
    assert_eq!(server.query("ASK {}", &[]).status, 200);
    let mut line = String::new();
    BufReader::new(slow).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 408"), "{line}");
}

/// So is a head that never ends.
#[test]
fn slow_heads_end() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db", "--head-timeout", "500ms"]);
    let mut slow = TcpStream::connect(&server.address).unwrap();
    write!(
        slow,
        "GET /sparql?query=ASK%7B%7D HTTP/1.1\r\nHost: localhost\r\n"
    )
    .unwrap();
    let mut rest = Vec::new();
    // The server closes the connection; nothing more is sent.
    drop(slow.read_to_end(&mut rest));
    let rest = String::from_utf8_lossy(&rest);
    assert!(
        rest.is_empty() || rest.starts_with("HTTP/1.1 408"),
        "{rest}"
    );
}

#[test]
fn codings_that_there_are_not_are_refused() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db"]);
    let answer = |accept: &str| server.query("ASK {}", &[("Accept-Encoding", accept)]);
    let refused = answer("br, identity;q=0");
    assert_eq!(refused.status, 406);
    assert!(refused.text().contains("coding-not-acceptable"));
    assert_eq!(refused.header("accept-encoding"), Some("gzip, zstd"));
    // Even a short answer is encoded then.
    let short = answer("gzip, identity;q=0");
    assert_eq!(
        (short.status, short.header("content-encoding")),
        (200, Some("gzip"))
    );
    assert_eq!(answer("gzip").header("content-encoding"), None);
}

#[test]
fn a_client_that_sends_byte_after_byte_is_ended_all_the_same() {
    let folder = loaded();
    let server = Server::start(folder.path(), &["--db", "db", "--client-timeout", "500ms"]);
    let mut slow = TcpStream::connect(&server.address).unwrap();
    write!(
        slow,
        "POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query\r\n\
         Content-Length: 1000000\r\n\r\n"
    )
    .unwrap();
    // A byte now and then, until the server answers or closes the connection.
    let mut answer = [0; 12];
    slow.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut sent = 0;
    while slow.read_exact(&mut answer).is_err() {
        if slow.write_all(b"A").is_err() {
            // The answer may be lost to bytes that crossed it.
            break;
        }
        sent += 1;
    }
    assert!(sent > 1 && sent < 1_000_000, "{sent}");
    assert!(matches!(&answer, b"HTTP/1.1 408" | [0, ..]), "{answer:?}");
}
