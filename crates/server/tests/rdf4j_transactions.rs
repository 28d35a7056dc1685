//! Transactions of the RDF4J protocol, which take many requests, and how many of them a client may have.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test; tables of cases are long"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use crate::http_client::request;
use crate::rdf4j::{BINARY, FORM, NT, QUERY, R, UPDATE, WILDCARD, binary, get, send, serve};
use crate::support::Server;

/// Begins a transaction; gives its address.
pub(crate) fn begin(server: &Server) -> String {
    let level =
        b"transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel=SNAPSHOT";
    let begun = send(server, "POST", &format!("{R}/transactions"), FORM, level);
    assert_eq!(begun.status, 201, "{}", begun.text());
    let location = begun.header("location").unwrap();
    let host = format!("http://{}", server.address);
    location.strip_prefix(&host).unwrap().to_owned()
}

/// Method, parameters, media type and body of a request; status and a part of its answer.
type Exchange<'a> = (&'a str, &'a str, &'a str, &'a [u8], u16, &'a str);

#[test]
fn transactions_are_used_request_by_request() {
    let (server, _folder) = serve(&[]);
    let transaction = begin(&server);
    let add = binary(&[
        &["<http://a/s>", "<http://a/p>", "\"1\""],
        &["_:n", "<http://a/p>", "\"2\"", "<http://a/g>"],
    ]);
    let more = binary(&[&["_:n", "<http://a/q>", "_:n"]]);
    let update = "DELETE { ?s ?p '1' } INSERT { ?s ?p '3' } WHERE { ?s ?p '1' }";
    let ask = "ASK { <http://a/s> <http://a/p> '3' }";
    let rows: &[Exchange<'_>] = &[
        (
            "PUT",
            "action=ADD&preserveNodeId=true",
            BINARY,
            &add,
            204,
            "=",
        ),
        (
            "PUT",
            "action=ADD&preserveNodeId=true",
            BINARY,
            &more,
            204,
            "=",
        ),
        (
            "PUT",
            "action=ADD",
            "text/turtle",
            b"[] <http://a/p> 4 .",
            204,
            "=",
        ),
        ("PUT", "action=SIZE", "", b"", 200, "=4"),
        ("PUT", "action=SIZE&context=null", "", b"", 200, "=3"),
        (
            "PUT",
            "action=UPDATE&queryLn=SPARQL&update&infer=true",
            UPDATE,
            update.as_bytes(),
            204,
            "=",
        ),
        (
            "PUT",
            "action=UPDATE&%24o=%224%22",
            UPDATE,
            b"DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
            204,
            "=",
        ),
        (
            "PUT",
            "action=UPDATE",
            UPDATE,
            b"CLEAR ALL ; DROP GRAPH <http://a/none>",
            404,
            "there is no graph",
        ),
        (
            "PUT",
            "action=QUERY&queryLn=SPARQL&query&infer=true",
            QUERY,
            ask.as_bytes(),
            200,
            "true",
        ),
        (
            "PUT",
            "action=QUERY&query&%24o=%223%22",
            QUERY,
            b"ASK { ?s ?p ?o }",
            200,
            "true",
        ),
        (
            "PUT",
            "action=QUERY&query",
            QUERY,
            b"ASK {",
            400,
            "MALFORMED QUERY: ",
        ),
        (
            "PUT",
            "action=GET&infer=false",
            "",
            b"",
            200,
            "<http://a/s> <http://a/p> \"3\" .",
        ),
        ("POST", "action=PING", "", b"", 200, "=60000"),
        ("PUT", "action=PREPARE", "", b"", 200, "="),
        (
            "PUT",
            "action=NOTHING",
            "",
            b"",
            400,
            "the parameter action is one of",
        ),
        ("PUT", "", "", b"", 400, "the parameter action is one of"),
    ];
    for (method, parameters, media_type, body, status, part) in rows.iter().copied() {
        let answer = send(
            &server,
            method,
            &format!("{transaction}?{parameters}"),
            media_type,
            body,
        );
        let text = answer.text();
        assert_eq!(answer.status, status, "{parameters}: {text}");
        match part.strip_prefix('=') {
            Some(whole) => assert_eq!(text, whole, "{parameters}"),
            None => assert!(text.contains(part), "{parameters}: {text}"),
        }
    }
    // Nobody else sees it yet.
    let size = format!("{R}/size");
    assert_eq!(get(&server, &size, "").text(), "0");
    let committed = send(
        &server,
        "PUT",
        &format!("{transaction}?action=COMMIT"),
        "",
        b"",
    );
    assert_eq!(committed.status, 200, "{}", committed.text());
    assert_eq!(committed.header("stoa-added"), Some("4"));
    assert_eq!(get(&server, &size, "").text(), "4");
    let late = send(
        &server,
        "PUT",
        &format!("{transaction}?action=SIZE"),
        "",
        b"",
    );
    assert_eq!(
        (late.status, late.text().as_str()),
        (410, "the transaction was committed")
    );

    let transaction = begin(&server);
    let all = binary(&[&[WILDCARD, WILDCARD, WILDCARD]]);
    let cleared = send(
        &server,
        "PUT",
        &format!("{transaction}?action=DELETE"),
        BINARY,
        &all,
    );
    assert_eq!(cleared.status, 204, "{}", cleared.text());
    assert_eq!(
        send(
            &server,
            "PUT",
            &format!("{transaction}?action=SIZE"),
            "",
            b""
        )
        .text(),
        "0"
    );
    let rolled_back = send(&server, "DELETE", &transaction, "", b"");
    assert_eq!((rolled_back.status, rolled_back.body.len()), (204, 0));
    assert_eq!(get(&server, &size, "").text(), "4");
}

#[test]
fn a_transaction_that_clashed_can_only_be_rolled_back() {
    let (server, _folder) = serve(&[]);
    let read_and_write = |transaction: &str| {
        let query = format!("{transaction}?action=QUERY&query");
        let found = send(
            &server,
            "PUT",
            &query,
            QUERY,
            b"ASK { <http://a/s> <http://a/p> ?o }",
        );
        assert!(found.text().contains("false"), "{}", found.text());
        let add = format!("{transaction}?action=ADD");
        let body = b"<http://a/s> <http://a/p> \"o\" .";
        assert_eq!(send(&server, "PUT", &add, NT, body).status, 204);
    };
    let (first, second) = (begin(&server), begin(&server));
    read_and_write(&first);
    read_and_write(&second);
    let commit = |transaction: &str| {
        send(
            &server,
            "PUT",
            &format!("{transaction}?action=COMMIT"),
            "",
            b"",
        )
    };
    assert_eq!(commit(&first).status, 200);
    let clash = commit(&second);
    assert_eq!(clash.status, 409, "{}", clash.text());
    assert!(clash.text().contains("http://a/p"), "{}", clash.text());
    let again = commit(&second);
    assert_eq!(again.status, 409);
    assert!(
        again.text().contains("can only be rolled back"),
        "{}",
        again.text()
    );
    assert_eq!(send(&server, "DELETE", &second, "", b"").status, 204);
    assert_eq!(get(&server, &format!("{R}/size"), "").text(), "1");
}

#[test]
fn a_damaged_document_spoils_a_transaction_and_commits_nothing() {
    let (server, _folder) = serve(&[]);
    let transaction = begin(&server);
    let mut cut = binary(&[&["<http://a/s>", "<http://a/p>", "\"1\""]]);
    cut.pop();
    let add = format!("{transaction}?action=ADD");
    let refused = send(&server, "PUT", &add, BINARY, &cut);
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().starts_with("MALFORMED DATA: "),
        "{}",
        refused.text()
    );
    let commit = send(
        &server,
        "PUT",
        &format!("{transaction}?action=COMMIT"),
        "",
        b"",
    );
    assert_eq!(commit.status, 409, "{}", commit.text());
    assert_eq!(send(&server, "DELETE", &transaction, "", b"").status, 204);
}

#[test]
fn a_transaction_that_is_left_alone_is_rolled_back() {
    let (server, _folder) = serve(&["--transaction-timeout", "1ms"]);
    let transaction = begin(&server);
    let ping = format!("{transaction}?action=PING");
    let mut answer = send(&server, "POST", &ping, "", b"");
    while answer.status == 200 {
        assert_eq!(answer.text(), "1");
        answer = send(&server, "POST", &ping, "", b"");
    }
    let commit = send(
        &server,
        "PUT",
        &format!("{transaction}?action=COMMIT"),
        "",
        b"",
    );
    assert_eq!((answer.status, commit.status), (410, 410));
    assert!(commit.text().contains("timed out"), "{}", commit.text());
}

#[test]
fn who_may_not_write_begins_no_transaction() {
    let (server, _folder) = serve(&["--cors", "https://good.example"]);
    let foreign = [("Origin", "https://bad.example"), ("Content-Type", FORM)];
    for (method, rest) in [
        ("POST", "/transactions"),
        ("POST", "/statements"),
        ("DELETE", "/statements"),
        ("PUT", "/namespaces/a"),
        ("DELETE", "/namespaces"),
        ("PUT", "/rdf-graphs/service?default"),
        ("PUT", "/transactions/1?action=COMMIT"),
    ] {
        let refused = request(
            &server.address,
            method,
            &format!("{R}{rest}"),
            &foreign,
            b"update=x",
        );
        assert_eq!(refused.status, 403, "{method} {rest}");
    }
    let list = request(&server.address, "GET", "/repositories", &foreign, b"").text();
    assert!(list.contains("false"), "{list}");
}

/// Sends a request from an address of this machine, without waiting for the answer.
fn send_from(source: &str, server: &Server, request: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(source.parse().unwrap()).unwrap();
        let stream = socket
            .connect(server.address.parse().unwrap())
            .await
            .unwrap();
        stream.into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    (&stream).write_all(request.as_bytes()).unwrap();
    stream
}

/// The status line that comes.
fn status_line(stream: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn issue_36_transactions_and_feeds_are_limited_for_each_client() {
    let (server, _folder) = serve(&[]);
    let begin = "POST /repositories/default/transactions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let feed = "GET /changes HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (request, accepted) in [(begin, "HTTP/1.1 201"), (feed, "HTTP/1.1 200")] {
        let from = |source: &str| {
            let stream = send_from(source, &server, request);
            let line = status_line(&stream);
            (stream, line)
        };
        let mut held = Vec::new();
        let refused = loop {
            let (stream, line) = from("127.0.0.1:0");
            if !line.starts_with(accepted) {
                break line;
            }
            held.push(stream);
            assert!(held.len() <= 200, "there is no limit");
        };
        assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
        assert_eq!(held.len(), 100);
        let (_other, line) = from("127.0.0.2:0");
        assert!(line.starts_with(accepted), "another client gets {line}");
    }
}
