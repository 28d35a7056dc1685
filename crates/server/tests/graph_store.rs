//! Writing by the Graph Store Protocol: formats, codings, whole datasets, and bodies that are wrong.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http_client::{self, Response, request};
use crate::support::Server;
use tempfile::TempDir;

const G: &str = "/store?graph=http://a/g";

fn serve() -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    (Server::start(folder.path(), &[]), folder)
}

fn send(server: &Server, method: &str, target: &str, media_type: &str, body: &str) -> Response {
    let headers = [("Content-Type", media_type)];
    request(&server.address, method, target, &headers, body.as_bytes())
}

/// What a graph or, at `/store`, the dataset holds, line by line.
fn lines(server: &Server, target: &str) -> BTreeSet<String> {
    let format = if target == "/store" { "nq" } else { "nt" };
    let and = if target.contains('?') { '&' } else { '?' };
    let answer = request(
        &server.address,
        "GET",
        &format!("{target}{and}format={format}"),
        &[],
        b"",
    );
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    answer.text().lines().map(str::to_owned).collect()
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

const TRIPLE: &str = "<http://a/s> <http://a/p> \"o\" .";

/// A client that made its write depend on something had it done all the same.
#[test]
fn what_depends_on_a_condition_is_not_done() {
    let (server, _folder) = serve();
    send(&server, "PUT", G, "application/n-triples", TRIPLE);
    for (method, header, status) in [
        ("PUT", ("If-None-Match", "*"), 412),
        ("PUT", ("If-Match", "\"x\""), 412),
        ("DELETE", ("If-Match", "\"x\""), 412),
        (
            "DELETE",
            ("If-Unmodified-Since", "Sat, 01 Jan 2000 00:00:00 GMT"),
            412,
        ),
        ("POST", ("If-Match", "*"), 412),
        ("PUT", ("Content-Range", "bytes 0-11/100"), 400),
    ] {
        let triple = (
            "application/n-triples",
            "<http://a/new> <http://a/p> \"new\" .",
        );
        let update = "INSERT DATA { GRAPH <http://a/g> { <http://a/new> <http://a/p> 1 } }";
        for (target, (media_type, body), method) in [
            (G, triple, method),
            ("/load?graph=http://a/g", triple, "POST"),
            ("/repositories/default/statements", triple, method),
            ("/sparql", ("application/sparql-update", update), "POST"),
            (
                "/apply",
                (
                    "application/rdf-patch",
                    "A <http://a/new> <http://a/p> 1 <http://a/g> .",
                ),
                "POST",
            ),
        ] {
            let headers = [("Content-Type", media_type), header];
            let body = body.as_bytes();
            let refused = request(&server.address, method, target, &headers, body);
            assert_eq!(
                refused.status,
                status,
                "{target}, {header:?}: {}",
                refused.text()
            );
            let message = ["leave it out", "all of it"];
            assert!(
                message.iter().any(|part| refused.text().contains(part)),
                "{}",
                refused.text()
            );
        }
        assert_eq!(lines(&server, G), set(&[TRIPLE]), "{method}, {header:?}");
    }
}

#[test]
fn graphs_come_in_every_format() {
    let (server, _folder) = serve();
    let xml = "<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" xmlns:a=\"http://a/\">\
        <rdf:Description rdf:about=\"http://a/s\"><a:p>o</a:p></rdf:Description></rdf:RDF>";
    for (media_type, body) in [
        ("text/turtle", "@prefix a: <http://a/> . a:s a:p 'o' ."),
        ("application/n-triples; charset=UTF-8", TRIPLE),
        ("application/n-quads", TRIPLE),
        ("application/trig", "{ <http://a/s> <http://a/p> 'o' }"),
        ("application/rdf+xml", xml),
        (
            "application/ld+json",
            r#"{"@id": "http://a/s", "http://a/p": "o"}"#,
        ),
    ] {
        let created = send(&server, "PUT", G, media_type, body);
        assert_eq!(created.status, 201, "{media_type}: {}", created.text());
        assert_eq!(created.header("stoa-added"), Some("1"));
        assert_eq!(lines(&server, G), set(&[TRIPLE]), "{media_type}");
        let again = send(&server, "POST", G, media_type, body);
        assert_eq!((again.status, again.header("stoa-added")), (204, Some("0")));
        let deleted = request(&server.address, "DELETE", G, &[], b"");
        assert_eq!(
            (deleted.status, deleted.header("stoa-removed")),
            (204, Some("1"))
        );
        assert_eq!(request(&server.address, "GET", G, &[], b"").status, 404);
        assert_eq!(request(&server.address, "DELETE", G, &[], b"").status, 404);
    }
}

#[test]
fn relative_addresses_belong_to_the_graph() {
    let (server, _folder) = serve();
    let turtle = "<x> <p> <> .";
    let created = send(&server, "PUT", G, "text/turtle", turtle);
    assert_eq!(created.status, 201, "{}", created.text());
    let expected = "<http://a/x> <http://a/p> <http://a/g> .";
    assert_eq!(lines(&server, G), set(&[expected]));
    // Named by its own address.
    let direct = send(&server, "PUT", "/store/some/graph", "text/turtle", turtle);
    assert_eq!(direct.status, 201);
    let base = format!("http://{}/store/some/", server.address);
    let expected = format!("<{base}x> <{base}p> <{base}graph> .");
    assert_eq!(lines(&server, "/store/some/graph"), set(&[&expected]));
}

#[test]
fn empty_documents_make_empty_graphs() {
    let (server, _folder) = serve();
    for method in ["PUT", "POST"] {
        assert_eq!(send(&server, method, G, "text/turtle", "").status, 201);
        assert_eq!(lines(&server, G), set(&[]));
        assert_eq!(
            send(&server, method, G, "text/turtle", "# none").status,
            204
        );
        assert_eq!(request(&server.address, "DELETE", G, &[], b"").status, 204);
    }
    // The default graph is always there.
    let default = "/store?default";
    assert_eq!(
        send(&server, "PUT", default, "text/turtle", TRIPLE).status,
        204
    );
    assert_eq!(
        request(&server.address, "DELETE", default, &[], b"").status,
        204
    );
    assert_eq!(lines(&server, default), set(&[]));
}

#[test]
fn datasets_are_added_and_replaced() {
    let (server, _folder) = serve();
    let quads =
        "<http://a/s> <http://a/p> \"1\" <http://a/g> .\n<http://a/s> <http://a/p> \"2\" .\n";
    assert_eq!(
        send(&server, "POST", "/store", "application/n-quads", quads).status,
        204
    );
    let more = "<http://a/h> { <http://a/s> <http://a/p> '3' }";
    assert_eq!(
        send(&server, "POST", "/store", "application/trig", more).status,
        204
    );
    assert_eq!(lines(&server, "/store").len(), 3);
    let replaced = send(&server, "PUT", "/store", "application/trig", more);
    assert_eq!(
        (replaced.status, replaced.header("stoa-removed")),
        (204, Some("2"))
    );
    let left = "<http://a/s> <http://a/p> \"3\" <http://a/h> .";
    assert_eq!(lines(&server, "/store"), set(&[left]));
    // Triples for which no graph is named get one.
    let made = send(&server, "POST", "/store", "text/turtle", TRIPLE);
    assert_eq!(made.status, 201);
    let location = made.header("location").unwrap();
    let path = location.strip_prefix(&format!("http://{}", server.address));
    assert_eq!(lines(&server, path.unwrap()), set(&[TRIPLE]));
    for (method, media_type) in [("PUT", "text/turtle"), ("DELETE", "text/turtle")] {
        let refused = send(&server, method, "/store", media_type, TRIPLE);
        assert_eq!(refused.status, 400, "{method}");
        assert!(
            refused.text().contains("name the graph"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(lines(&server, "/store").len(), 2);
}

#[test]
fn what_is_wrong_changes_nothing_and_is_told() {
    let (server, _folder) = serve();
    assert_eq!(
        send(&server, "PUT", G, "application/n-triples", TRIPLE).status,
        201
    );
    let mistake = format!("{TRIPLE}\n<http://a/s> <http://a/p> oops .\n");
    for (method, target, media_type, body, status, parts) in [
        (
            "PUT",
            G,
            "text/turtle",
            mistake.as_str(),
            400,
            &["\"line\":2", "\"column\":"][..],
        ),
        (
            "POST",
            G,
            "application/n-triples",
            &mistake,
            400,
            &["\"line\":2"],
        ),
        (
            "POST",
            "/store",
            "application/n-quads",
            &mistake,
            400,
            &["\"line\":2"],
        ),
        ("PUT", G, "application/rdf+xml", "<rdf", 400, &["line"]),
        ("PUT", G, "image/png", "", 415, &["text/turtle"]),
        ("PUT", G, "ttl", "", 415, &["Content-Type"]),
        ("PUT", G, "text/turtle; charset=latin1", "", 415, &["UTF-8"]),
        ("POST", G, "multipart/form-data", "", 400, &["boundary"]),
        (
            "PUT",
            "/store?graph=relative",
            "text/turtle",
            "",
            400,
            &["absolute IRI"],
        ),
        (
            "PUT",
            "/store?default&graph=http://a/g",
            "text/turtle",
            "",
            400,
            &["one graph"],
        ),
    ] {
        let refused = send(&server, method, target, media_type, body);
        assert_eq!(
            refused.status,
            status,
            "{method} {media_type}: {}",
            refused.text()
        );
        for part in parts {
            assert!(refused.text().contains(part), "{part}: {}", refused.text());
        }
        assert_eq!(lines(&server, "/store").len(), 1, "{method} {media_type}");
    }
    assert_eq!(lines(&server, G), set(&[TRIPLE]));
}

/// Many triples, some megabytes.
fn many(count: usize) -> String {
    let mut text = String::new();
    for n in 0..count {
        writeln!(
            text,
            "<http://a/s{n}> <http://a/p{}> \"a value, number {n}\" .",
            n % 7
        )
        .unwrap();
    }
    text
}

#[test]
fn bodies_are_streamed_and_decoded() {
    let (server, _folder) = serve();
    let plain = many(20_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(plain.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(plain.as_bytes(), 1).unwrap();
    for (coding, body) in [("gzip", &gzip), ("zstd", &zstd)] {
        let headers = [
            ("Content-Type", "application/n-triples"),
            ("Content-Encoding", coding),
        ];
        let put = request(&server.address, "PUT", G, &headers, body);
        assert_eq!(put.status / 100, 2, "{coding}: {}", put.text());
        assert_eq!(lines(&server, G).len(), 20_000);
        let cut = &body[..body.len() - 10];
        let refused = request(&server.address, "PUT", G, &headers, cut);
        assert_eq!(refused.status, 400, "{coding}: {}", refused.text());
        assert_eq!(lines(&server, G).len(), 20_000);
    }
    let headers = [("Content-Type", "text/turtle"), ("Content-Encoding", "br")];
    assert_eq!(
        request(&server.address, "PUT", G, &headers, b"").status,
        415
    );
    // In chunks, without a length.
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "PUT {G} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/n-triples\r\n\r\n"
    )
    .unwrap();
    for piece in plain.as_bytes()[..1_000_000].chunks(9_999) {
        write!(stream, "{:x}\r\n", piece.len()).unwrap();
        stream.write_all(piece).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    // The client goes away before the end.
    drop(stream);
    assert_eq!(lines(&server, G).len(), 20_000);
}

/// A client that is still sending when its mistake was found gets to know it.
#[test]
fn a_mistake_at_the_start_of_a_long_body_is_told() {
    let (server, _folder) = serve();
    let body = format!("oops\n{}", many(100_000));
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "PUT {G} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/n-triples\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("\"line\":1"), "{answer}");
}

#[test]
fn several_documents_come_in_one_body() {
    let (server, _folder) = serve();
    let part = |file: &str, media_type: &str, body: &str| {
        format!(
            "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{file}\"\r\n\
             Content-Type: {media_type}\r\n\r\n{body}\r\n"
        )
    };
    let one = part("a.ttl", "text/turtle", "<http://a/s> <http://a/p> 'o' .");
    let two = part("b.nt", "application/n-triples", "_:x <http://a/p> _:x .");
    let multipart = "multipart/form-data; boundary=x";
    let good = send(
        &server,
        "POST",
        G,
        multipart,
        &format!("{one}{two}{two}--x--"),
    );
    assert_eq!(good.status, 201, "{}", good.text());
    // Labels of blank nodes belong to their document.
    assert_eq!(good.header("stoa-added"), Some("3"));
    let wrong = part("c.ttl", "text/turtle", "oops");
    let bad = send(&server, "POST", G, multipart, &format!("{one}{wrong}--x--"));
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("c.ttl: line 1"), "{}", bad.text());
    assert_eq!(lines(&server, G).len(), 3);
}

/// Sends a line to a graph again and again while `work` is done.
fn while_others_write(server: &Server, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let others = std::thread::Builder::new();
        let others = others.spawn_scoped(scope, move || {
            let mut number = 0;
            while !is_over.load(Ordering::Acquire) {
                number += 1;
                let triple = format!("<http://a/s> <http://a/p> {number} .");
                let posted = send(server, "POST", G, "text/turtle", &triple);
                assert!(matches!(posted.status, 201 | 204), "{}", posted.text());
            }
        });
        // Set even if the work fails, so that the test ends.
        let _over = Over(is_over);
        others.unwrap();
        work();
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn what_needs_no_body_is_done_again_when_others_come_between() {
    let (server, _folder) = serve();
    while_others_write(&server, || {
        for _ in 0..30 {
            let deleted = request(&server.address, "DELETE", G, &[], b"");
            assert!(matches!(deleted.status, 204 | 404), "{}", deleted.text());
            let statements = "/repositories/default/statements?context=%3Chttp://a/g%3E";
            let deleted = request(&server.address, "DELETE", statements, &[], b"");
            assert_eq!(deleted.status, 204, "{}", deleted.text());
            let parts =
                "--x\r\nContent-Type: text/turtle\r\n\r\n<http://a/s> <http://a/q> 'x' .\r\n--x--";
            let media_type = "multipart/form-data; boundary=x";
            let put = send(&server, "PUT", G, media_type, parts);
            assert!(matches!(put.status, 201 | 204), "{}", put.text());
        }
    });
}

/// Sends a long body while somebody else adds a triple.
fn put_while_another_posts(server: &Server, target: &str) -> Response {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "PUT {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/n-triples\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    // More than waits anywhere, so that the transaction has begun.
    let comment = format!("# {}\n", "x".repeat((1 << 16) - 3));
    for _ in 0..512 {
        write!(stream, "10000\r\n{comment}\r\n").unwrap();
    }
    let between = send(
        server,
        "POST",
        G,
        "text/turtle",
        "<http://a/s> <http://a/p> 'between' .",
    );
    assert_eq!(between.status, 204);
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    http_client::parse(&bytes, false)
}

#[test]
fn what_others_wrote_before_the_end_of_a_body_is_replaced_with_the_rest() {
    let (server, _folder) = serve();
    send(&server, "POST", G, "text/turtle", TRIPLE);
    let put = put_while_another_posts(&server, G);
    assert_eq!(put.status, 204, "{}", put.text());
    let changed = ["stoa-commit", "stoa-added", "stoa-removed"].map(|name| put.header(name));
    assert_eq!(changed, [Some("3"), Some("0"), Some("2")]);
    assert_eq!(lines(&server, G).len(), 0);
}

/// A body that goes into a transaction as it comes is there once only.
#[test]
fn a_client_whose_body_was_in_conflict_sends_it_again() {
    let (server, _folder) = serve();
    send(&server, "POST", G, "text/turtle", TRIPLE);
    let contexts = "context=%3Chttp://a/g%3E&context=%3Chttp://a/h%3E";
    let target = format!("/repositories/default/statements?{contexts}");
    let answer = put_while_another_posts(&server, &target);
    assert_eq!(answer.status, 409, "{}", answer.text());
    let text = answer.text();
    assert!(
        text.contains("can be sent again") && text.contains("http://a/g"),
        "{text}"
    );
    assert_eq!(lines(&server, G).len(), 2);
}

/// Bodies that name a graph, in each format that can.
const NAMING: [(&str, &str); 3] = [
    (
        "application/trig",
        "<http://a/x> { <http://a/s> <http://a/p> 'x' }",
    ),
    (
        "application/n-quads",
        "<http://a/s> <http://a/p> \"x\" <http://a/x> .",
    ),
    (
        "application/ld+json",
        r#"{"@id": "http://a/x", "@graph": [{"@id": "http://a/s", "http://a/p": "x"}]}"#,
    ),
];

#[test]
fn issue_36_a_body_that_names_graphs_goes_into_no_other() {
    let (server, _folder) = serve();
    assert_eq!(
        send(&server, "PUT", G, "application/n-triples", TRIPLE).status,
        201
    );
    let before = lines(&server, "/store");
    let context = "context=%3Chttp://a/g%3E";
    let targets = [
        G.to_owned(),
        "/store?default".to_owned(),
        "/store?graph=http://a/new".to_owned(),
        "/repositories/default/rdf-graphs/service?graph=http://a/g".to_owned(),
        format!("/repositories/default/statements?{context}"),
        "/repositories/default/statements?context=null".to_owned(),
        format!("/repositories/default/statements?{context}&context=null"),
        format!("/repositories/default/statements?{context}&preserveNodeId=true"),
    ];
    for target in targets {
        for method in ["PUT", "POST"] {
            for (media_type, body) in NAMING {
                let answer = send(&server, method, &target, media_type, body);
                let text = answer.text();
                assert_eq!(answer.status, 400, "{method} {target} {media_type}: {text}");
                assert!(text.contains("names graphs"), "{text}");
                assert_eq!(lines(&server, "/store"), before, "{method} {target}");
            }
        }
    }
    // Several documents in one, of which the last one names a graph.
    let parts = "--x\r\nContent-Type: text/turtle\r\n\r\n<http://a/s> <http://a/p> 1 .\r\n\
        --x\r\nContent-Type: application/n-quads\r\n\r\n<http://a/s> <http://a/p> \"x\" <http://a/x> .\r\n--x--";
    let answer = send(&server, "PUT", G, "multipart/form-data; boundary=x", parts);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(lines(&server, "/store"), before);
    // A long one goes another way.
    let mut long = many(100_000);
    long.push_str("<http://a/s> <http://a/p> \"x\" <http://a/x> .\n");
    let answer = send(&server, "PUT", G, "application/n-quads", &long);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(lines(&server, "/store"), before);
    // What names none is taken, and so is what names them where the request does not.
    let replaced = send(
        &server,
        "PUT",
        G,
        "application/trig",
        "{ <http://a/s> <http://a/p> 'y' }",
    );
    assert_eq!(replaced.status, 204, "{}", replaced.text());
    assert_eq!(
        lines(&server, G),
        set(&["<http://a/s> <http://a/p> \"y\" ."])
    );
    let (media_type, body) = NAMING[0];
    assert_eq!(
        send(&server, "POST", "/store", media_type, body).status,
        204
    );
    assert_eq!(lines(&server, "/store").len(), 2);
}

#[test]
fn issue_36_a_slash_at_the_end_means_nothing() {
    let (server, _folder) = serve();
    let put = send(
        &server,
        "PUT",
        "/store/?graph=http://a/g",
        "application/n-triples",
        TRIPLE,
    );
    assert_eq!(put.status, 201, "{}", put.text());
    for (target, status) in [
        ("/sparql/?query=ASK%7B%7D", 200),
        ("/sparql/", 200),
        ("/store/?graph=http://a/g", 200),
        ("/store/", 200),
        ("/log/", 200),
        ("/health/", 200),
        ("/status/", 200),
        ("/protocol/", 200),
        ("/repositories/", 200),
        ("/repositories/default/?query=ASK%7B%7D", 200),
        ("/repositories/default/statements/", 200),
        ("/repositories/default/size/", 200),
        ("/repositories/default/namespaces/", 404),
        ("/sparql//", 404),
        ("//", 404),
        ("/nothing/", 404),
    ] {
        let answer = request(&server.address, "GET", target, &[], b"");
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
    }
    // Relative names mean the same with and without.
    let relative = "/sparql/?query=SELECT+(%3Cx%3E+AS+%3Fx)%7B%7D&format=csv";
    let answer = request(&server.address, "GET", relative, &[], b"").text();
    assert!(
        answer.ends_with(&format!("http://{}/x\r\n", server.address)),
        "{answer}"
    );
}
