//! SERVICE over real sockets: between two servers of Stoa, and against servers that misbehave.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use crate::support::{self, Server, assert_failed, output, stoa, text};
use tempfile::TempDir;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const SOLUTIONS: &str = "application/sparql-results+json";

/// One solution: `?s` is `<http://a/s1>`, `?y` is `"far"`.
const ONE: &str = "{\"head\":{\"vars\":[\"s\",\"y\"]},\"results\":{\"bindings\":[\
    {\"s\":{\"type\":\"uri\",\"value\":\"http://a/s1\"},\"y\":{\"type\":\"literal\",\"value\":\"far\"}}]}}";

/// A server that does what the path of a request says.
struct Odd {
    address: SocketAddr,
    /// The heads of all requests.
    heads: Arc<Mutex<Vec<String>>>,
    /// Gets a word when a request to `/never` has come, and when its connection is closed.
    never: mpsc::Receiver<&'static str>,
}

impl Odd {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (said, never) = mpsc::channel();
        let log = Arc::clone(&heads);
        std::thread::Builder::new()
            .spawn(move || {
                for stream in listener.incoming() {
                    let (stream, log, said) = (stream.unwrap(), Arc::clone(&log), said.clone());
                    std::thread::Builder::new()
                        // A client that goes away is part of the tests.
                        .spawn(move || answer(stream, address, &log, &said).unwrap_or_default())
                        .unwrap();
                }
            })
            .unwrap();
        Self {
            address,
            heads,
            never,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many requests had this path since the last call.
    fn requests(&self, path: &str) -> usize {
        let mut heads = self.heads.lock().unwrap();
        let before = heads.len();
        heads.retain(|head| !head.contains(&format!(" {path} ")));
        before - heads.len()
    }
}

fn answer(
    mut stream: TcpStream,
    own: SocketAddr,
    log: &Mutex<Vec<String>>,
    never: &mpsc::Sender<&'static str>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = head.to_ascii_lowercase().lines().find_map(|line| {
        let length = line.strip_prefix("content-length:")?;
        length.trim().parse::<u64>().ok()
    });
    reader
        .by_ref()
        .take(length.unwrap_or(0))
        .read_to_end(&mut Vec::new())?;
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap().push(head);
    let mut reply = |status: &str, fields: &str, body: &[u8]| {
        write!(
            stream,
            "HTTP/1.1 {status}\r\nConnection: close\r\n{fields}\r\n"
        )?;
        stream.write_all(body)
    };
    let json = format!("Content-Type: {SOLUTIONS}\r\n");
    let to = |url: String| format!("Location: {url}\r\nContent-Length: 0\r\n");
    match path.as_str() {
        "/never" => {
            never.send("asked").unwrap_or_default();
            let rest = reader.read_to_end(&mut Vec::new());
            never.send("closed").unwrap_or_default();
            rest.map(drop)
        }
        "/ok" => reply("200 OK", &json, ONE.as_bytes()),
        "/gzip" => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(ONE.as_bytes())?;
            let fields = format!("{json}Content-Encoding: gzip\r\n");
            reply("200 OK", &fields, &gzip.finish()?)
        }
        "/garbage" => reply("200 OK", &json, b"<!DOCTYPE html>"),
        "/html" => reply("200 OK", "Content-Type: text/html\r\n", b"<p>hello</p>"),
        "/truncated" => reply(
            "200 OK",
            &format!("{json}Content-Length: 1000\r\n"),
            &ONE.as_bytes()[..100],
        ),
        "/no-http" => stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n"),
        "/500" => reply("500 Internal Server Error", "", b"oh"),
        "/moved" => reply("307 Temporary Redirect", &to("/ok".to_owned()), b""),
        "/loop" => reply("302 Found", &to("/loop".to_owned()), b""),
        "/by-name" => {
            let url = format!("http://localhost:{}/ok", own.port());
            reply("302 Found", &to(url), b"")
        }
        "/file" => reply("302 Found", &to("file:///etc/passwd".to_owned()), b""),
        "/endless" => {
            reply(
                "200 OK",
                "Content-Type: text/tab-separated-values\r\n",
                b"?s\t?y\n",
            )?;
            loop {
                stream.write_all(b"<http://a/s1>\t1\n<http://a/s2>\t2\n")?;
            }
        }
        _ => reply("404 Not Found", "", b""),
    }
}

fn loaded(turtle: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("data.ttl");
    std::fs::write(file, format!("PREFIX : <http://a/> {turtle}")).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.ttl"]);
    folder
}

/// The answer as CSV without its first line, sorted.
fn rows(folder: &Path, allow: &str, query: &str) -> Vec<String> {
    let query = format!("PREFIX : <http://a/> {query}");
    let arguments = [
        "query",
        "--db",
        "db",
        "--allow-service",
        allow,
        "--format",
        "csv",
        &query,
    ];
    let mut lines: Vec<String> = output(folder, &arguments)
        .lines()
        .skip(1)
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

const LOCAL: &str = ":s1 :p 1 . :s2 :p 2 .";

#[test]
fn two_servers_answer_together() {
    let far = loaded(":s1 :q 10 . :s2 :q 20, 21 . :s9 :q 90 .");
    let near = loaded(LOCAL);
    let far_server = Server::start(far.path(), &[]);
    let endpoint = format!("http://{}/sparql", far_server.address);
    let joined = format!("SELECT ?x ?y {{ ?s :p ?x SERVICE <{endpoint}> {{ ?s :q ?y }} }}");
    let expected = ["1,10", "2,20", "2,21"];
    assert_eq!(rows(near.path(), &endpoint, &joined), expected);
    // The same by a server, which asks from its worker pool.
    let near_server = Server::start(
        near.path(),
        &["--allow-service", &endpoint, "--threads", "1"],
    );
    let head =
        "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-query\r\nAccept: text/csv";
    let query = format!("PREFIX : <http://a/> {joined} ORDER BY ?x ?y");
    let answer = near_server.ask(head, &query);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("x,y\r\n1,10\r\n2,20\r\n2,21\r\n"),
        "{answer}"
    );
    // One asks the other for what that asks of it in turn, each with a single thread.
    let own = format!("http://{}/sparql", near_server.address);
    let third = loaded(":s2 :p 2 .");
    let server = Server::start(third.path(), &["--allow-service", &own, "--threads", "1"]);
    let query = format!(
        "SELECT (COUNT(*) AS ?n) {{ ?s ?p ?x \
         SERVICE <{own}> {{ ?s ?p ?o SERVICE <{endpoint}> {{ ?s ?q ?y }} }} }}"
    );
    let answer = server.ask(head, &query);
    assert!(answer.contains("n\r\n2\r\n"), "{answer}");
    assert!(near.path().exists() && far.path().exists());
}

#[test]
fn failures_say_what_is_wrong_and_silent_ones_bind_nothing() {
    let odd = Odd::start();
    let folder = loaded(LOCAL);
    let allow = odd.url("/");
    for (path, reason) in [
        ("/garbage", "its answer is damaged"),
        ("/truncated", "its answer is damaged"),
        ("/html", "content type text/html"),
        ("/no-http", "the connection failed"),
        ("/500", "it answers 500 Internal Server Error"),
        ("/none", "it answers 404 Not Found"),
        ("/loop", "it redirects more than 5 times"),
        ("/by-name", "is not allowed"),
        ("/file", "neither http: nor https:"),
    ] {
        let url = odd.url(path);
        let query = format!("SELECT * {{ SERVICE <{url}> {{ ?s ?p ?y }} }}");
        let arguments = ["query", "--db", "db", "--allow-service", &allow, &query];
        let output = stoa(folder.path(), &arguments);
        assert_failed(&output, 1, &["SERVICE <http://127.0.0.1", reason]);
        let query = format!("SELECT ?x ?y {{ ?s :p ?x SERVICE SILENT <{url}> {{ ?s :q ?y }} }}");
        assert_eq!(rows(folder.path(), &allow, &query), ["1,", "2,"], "{path}");
    }
    assert_eq!(odd.requests("/loop"), 12);
    for path in ["/ok", "/gzip", "/moved"] {
        let url = odd.url(path);
        let query = format!("SELECT ?x ?y {{ ?s :p ?x SERVICE <{url}> {{ ?s :q ?y }} }}");
        assert_eq!(rows(folder.path(), &allow, &query), ["1,far"], "{path}");
    }
    let server = Server::start(folder.path(), &["--allow-service", &allow]);
    let query = format!(
        "SELECT * {{ SERVICE <{}> {{ ?s ?p ?y }} }}",
        odd.url("/500")
    );
    let answer = server.ask(support::QUERY, &query);
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let description = server.ask("GET /sparql HTTP/1.1\r\nAccept: text/turtle", "");
    assert!(description.contains("BasicFederatedQuery"), "{description}");
}

#[test]
fn only_what_is_allowed_is_asked() {
    let odd = Odd::start();
    let folder = loaded(LOCAL);
    let by_name = format!("http://localhost:{}/", odd.address.port());
    for (allow, url, reason) in [
        (
            None,
            odd.url("/ok"),
            "SERVICE is off; allow it with --allow-service PREFIX",
        ),
        (
            Some("https://example.org/"),
            odd.url("/ok"),
            "is not allowed",
        ),
        (Some("http://127.0.0.1/"), odd.url("/ok"), "is not allowed"),
        (Some(&*odd.url("/o")), odd.url("/ok"), "is not allowed"),
        // Everything is allowed, but not this machine.
        (
            Some("http://"),
            odd.url("/ok"),
            "an address of this machine",
        ),
        (
            Some("http://"),
            format!("{by_name}ok"),
            "an address of this machine",
        ),
        (
            Some("http://"),
            "file:///etc/passwd".to_owned(),
            "neither http: nor https:",
        ),
    ] {
        let query = format!("SELECT * {{ SERVICE <{url}> {{ ?s ?p ?y }} }}");
        let mut arguments = vec!["query", "--db", "db"];
        arguments.extend(allow.iter().flat_map(|allow| ["--allow-service", allow]));
        arguments.push(&query);
        assert_failed(&stoa(folder.path(), &arguments), 1, &[reason]);
    }
    // A redirect to this machine is no way around it.
    let redirect = odd.url("/by-name");
    let query = format!("SELECT * {{ SERVICE <{redirect}> {{ ?s ?p ?y }} }}");
    let allow = format!("{redirect},http://");
    let arguments = ["query", "--db", "db", "--allow-service", &allow, &query];
    assert_failed(
        &stoa(folder.path(), &arguments),
        1,
        &["an address of this machine"],
    );
    assert_eq!((odd.requests("/ok"), odd.requests("/by-name")), (0, 1));
    let wrong = [
        "query",
        "--db",
        "db",
        "--allow-service",
        "ftp://a",
        "ASK {}",
    ];
    assert_failed(
        &stoa(folder.path(), &wrong),
        2,
        &["neither http: nor https:"],
    );
    let server = Server::start(folder.path(), &[]);
    let answer = server.ask(support::QUERY, "ASK { SERVICE <http://a/> { } }");
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("SERVICE is off"),
        "{answer}"
    );
}

#[test]
fn nobody_waits_for_an_endpoint_that_never_answers() {
    let odd = Odd::start();
    let folder = loaded(LOCAL);
    let allow = odd.url("/");
    let url = odd.url("/never");
    let query = format!("SELECT * {{ ?s ?p ?o SERVICE <{url}> {{ ?s ?q ?y }} }}");
    let limited = [
        "query",
        "--db",
        "db",
        "--allow-service",
        &allow,
        "--timeout",
        "200ms",
        &query,
    ];
    assert_failed(&stoa(folder.path(), &limited), 1, &["--timeout"]);
    assert_eq!(odd.never.recv(), Ok("asked"));
    assert_eq!(odd.never.recv(), Ok("closed"));
    // More such queries than a server runs at once do not keep others from their answers.
    let server = Server::start(
        folder.path(),
        &["--allow-service", &allow, "--threads", "1"],
    );
    let waiting: Vec<TcpStream> = (0..8)
        .map(|_| server.send(support::QUERY, &query))
        .collect();
    for _ in &waiting {
        assert_eq!(odd.never.recv(), Ok("asked"));
    }
    let answer = server.ask(support::QUERY, "ASK { ?s ?p 1 }");
    assert!(answer.contains("true"), "{answer}");
    // A client that goes away takes its request with it.
    drop(waiting);
    for _ in 0..8 {
        assert_eq!(odd.never.recv(), Ok("closed"));
    }
    let head = "POST /sparql?timeout=0.2 HTTP/1.1\r\nContent-Type: application/sparql-query";
    let answer = server.ask(head, &query);
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("timeout"),
        "{answer}"
    );
    assert_eq!(odd.never.recv(), Ok("asked"));
    assert_eq!(odd.never.recv(), Ok("closed"));
}

/// Who ends a query calls no waker: one that waited for another server went on until its time was up.
#[test]
fn a_query_that_waits_for_an_endpoint_is_ended() {
    let odd = Odd::start();
    let folder = loaded(LOCAL);
    let (allow, url) = (odd.url("/"), odd.url("/never"));
    let server = Server::start(folder.path(), &["--allow-service", &allow]);
    let query = format!("SELECT * {{ SERVICE SILENT <{url}> {{ ?s ?q ?y }} }}");
    let mut waiting = server.send(support::QUERY, &query);
    assert_eq!(odd.never.recv(), Ok("asked"));
    let status = server.ask("GET /status HTTP/1.1", "");
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let number = &status["queries"][0]["id"];
    let ended = server.ask(&format!("DELETE /status/queries/{number} HTTP/1.1"), "");
    assert!(ended.starts_with("HTTP/1.1 204"), "{ended}");
    assert_eq!(odd.never.recv(), Ok("closed"));
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"cancelled\""), "{answer}");
}

#[test]
fn an_endless_answer_ends_with_the_query() {
    let odd = Odd::start();
    let folder = loaded(LOCAL);
    let allow = odd.url("/");
    let url = odd.url("/endless");
    let query = format!("SELECT ?x ?y {{ ?s :p ?x SERVICE <{url}> {{ ?s :q ?y }} }} LIMIT 5");
    assert_eq!(rows(folder.path(), &allow, &query).len(), 5);
    let query = format!("SELECT (COUNT(*) AS ?n) {{ SERVICE <{url}> {{ ?s ?p ?y }} }}");
    let limited = [
        "query",
        "--db",
        "db",
        "--allow-service",
        &allow,
        "--timeout",
        "300ms",
        &query,
    ];
    assert_failed(&stoa(folder.path(), &limited), 1, &["--timeout"]);
    // SILENT has to hold what comes, within the budget.
    let query = format!("SELECT * {{ SERVICE SILENT <{url}> {{ ?s ?p ?y }} }}");
    let limited = [
        "query",
        "--db",
        "db",
        "--allow-service",
        &allow,
        "--memory",
        "96M",
        &query,
    ];
    let output = stoa(folder.path(), &limited);
    let message = text(&output.stderr);
    assert!(message.contains("service needs"), "{message}");
}

#[test]
fn tls_needs_a_certificate_that_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = loaded(LOCAL);
    std::fs::write(folder.path().join("trusted.pem"), made.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let allow = format!(
        "https://localhost:{}/",
        listener.local_addr().unwrap().port()
    );
    std::thread::Builder::new()
        .spawn(move || {
            for stream in listener.incoming() {
                let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                // A client that does not trust us goes away.
                tls_answer(rustls::StreamOwned::new(tls, stream.unwrap())).unwrap_or_default();
            }
        })
        .unwrap();
    let query = format!("SELECT ?s ?y {{ SERVICE <{allow}ok> {{ ?s ?p ?y }} }}");
    let arguments = [
        "query",
        "--db",
        "db",
        "--allow-service",
        &allow,
        "--format",
        "csv",
        &query,
    ];
    let trusted = support::command(folder.path())
        .args(arguments)
        .env("SSL_CERT_FILE", "trusted.pem")
        .output()
        .unwrap();
    assert_eq!(
        text(&trusted.stdout),
        "s,y\r\nhttp://a/s1,far\r\n",
        "{}",
        text(&trusted.stderr)
    );
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.path().join("other.pem"), other.cert.pem()).unwrap();
    let refused = support::command(folder.path())
        .args(arguments)
        .env("SSL_CERT_FILE", "other.pem")
        .output()
        .unwrap();
    assert_failed(&refused, 1, &["TLS with localhost failed"]);
}

fn tls_answer(
    mut stream: rustls::StreamOwned<rustls::ServerConnection, TcpStream>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let length = ONE.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {SOLUTIONS}\r\nContent-Length: {length}\r\n\r\n{ONE}"
    )?;
    stream.conn.send_close_notify();
    stream.flush()
}
