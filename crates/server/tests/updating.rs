//! Updates over HTTP: both forms, what is told of them, what is refused, and many at once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::http_client::{Response, request};
use crate::support::{ONE, Server, dump, loaded};

const FORM: &str = "application/x-www-form-urlencoded";
const UPDATE: &str = "application/sparql-update";

fn post(server: &Server, target: &str, content_type: &str, body: &str) -> Response {
    let headers = [("Content-Type", content_type)];
    request(&server.address, "POST", target, &headers, body.as_bytes())
}

/// A text as it stands in a form.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Sends an update that must succeed; gives the numbers of its commit, of quads added and of quads removed.
fn done(server: &Server, update: &str) -> (u64, u64, u64) {
    told(&post(server, "/sparql", UPDATE, update))
}

fn told(answer: &Response) -> (u64, u64, u64) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
    let number = |name: &str| {
        let number = body.get(name).unwrap().as_u64().unwrap();
        let header = answer.header(&format!("stoa-{name}")).unwrap();
        assert_eq!(header, number.to_string(), "{name}");
        number
    };
    (number("commit"), number("added"), number("removed"))
}

fn ask(server: &Server, query: &str) -> String {
    let answer = post(
        server,
        "/sparql?format=csv",
        "application/sparql-query",
        query,
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    text.split_once("\r\n").unwrap().1.trim_end().to_owned()
}

#[test]
fn updates_are_sent_in_both_forms() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(
        done(&server, "INSERT DATA { <x> <http://a/p> 1 , 2 }"),
        (2, 2, 0)
    );
    let update = encoded("DELETE { ?s ?p 2 } INSERT { ?s ?p 3, 4 } WHERE { ?s ?p 1 }");
    let form = format!("update={update}&message=a+correction");
    assert_eq!(told(&post(&server, "/sparql", FORM, &form)), (3, 2, 1));
    assert_eq!(
        done(&server, "DELETE DATA { <http://a/s> <http://a/p> 7 }"),
        (3, 0, 0),
        "nothing to do is no commit"
    );
    // Relative IRIs are relative to the endpoint, or to what the request says.
    let base = format!("http://{}/x", server.address);
    let query = format!("SELECT (COUNT(*) AS ?n) {{ <{base}> ?p ?o }}");
    assert_eq!(ask(&server, &query), "3");
    let target = "/sparql?baseURI=http://a/";
    let answer = post(&server, target, UPDATE, "INSERT DATA { <y> <p> 1 }");
    assert_eq!(told(&answer), (4, 1, 0));
    assert_eq!(
        ask(&server, "SELECT ?o { <http://a/y> <http://a/p> ?o }"),
        "1"
    );
    drop(server);
    assert_eq!(dump(folder.path()).lines().count(), 5);
}

#[test]
fn the_request_tells_what_where_reads() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    done(
        &server,
        "INSERT DATA { GRAPH <http://a/g> { <http://a/s> <http://a/q> 1 } GRAPH <http://a/h> { <http://a/s> <http://a/q> 2 } }",
    );
    let copy = "INSERT { <http://a/copy> ?p ?o } WHERE { ?s ?p ?o }";
    let using = "/sparql?using-graph-uri=http://a/g";
    assert_eq!(told(&post(&server, using, UPDATE, copy)).1, 1);
    let form = format!(
        "using-graph-uri=http://a/g&using-graph-uri=http://a/h&update={}",
        encoded(copy)
    );
    assert_eq!(told(&post(&server, "/sparql", FORM, &form)).1, 1);
    let named = "INSERT { <http://a/named> ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }";
    let using = "/sparql?using-named-graph-uri=http://a/h";
    assert_eq!(told(&post(&server, using, UPDATE, named)).1, 1);
    for twice in [
        "INSERT { ?s ?p 1 } USING <http://a/g> WHERE { ?s ?p ?o }",
        "WITH <http://a/g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
    ] {
        let refused = post(&server, using, UPDATE, twice);
        assert_eq!(refused.status, 400, "{twice}");
        assert!(
            refused.text().contains("using-graph-uri"),
            "{}",
            refused.text()
        );
    }
}

/// Where a request goes, what it says it is, what it is, the status that it gets, and a part of the answer.
const REFUSED: &[(&str, &str, &str, u16, &str)] = &[
    ("/sparql", UPDATE, "CLEAR ALL ;\n DROP", 400, "\"line\":2"),
    (
        "/sparql",
        UPDATE,
        "SELECT * { ?s ?p ?o }",
        400,
        "begins a query",
    ),
    (
        "/sparql",
        UPDATE,
        "CLEAR ALL ; DROP GRAPH <http://a/g>",
        404,
        "no-such-graph",
    ),
    (
        "/sparql",
        UPDATE,
        "CLEAR ALL ; CREATE GRAPH <g> ; CREATE GRAPH <g>",
        409,
        "graph-exists",
    ),
    (
        "/sparql",
        UPDATE,
        "CLEAR ALL ; LOAD <http://127.0.0.1:1/>",
        403,
        "load-off",
    ),
    (
        "/sparql",
        UPDATE,
        "CLEAR ALL ; INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
        403,
        "service-off",
    ),
    (
        "/sparql?timeout=0.000000001",
        UPDATE,
        "CLEAR ALL ; INSERT { ?x <http://a/p> ?y } WHERE { VALUES ?x { <a> <b> } VALUES ?y { 1 2 3 } }",
        503,
        "timeout",
    ),
    ("/sparql?timeout=-1", UPDATE, "CLEAR ALL", 400, "timeout"),
    (
        "/sparql?default-graph-uri=http://a/g",
        UPDATE,
        "CLEAR ALL",
        400,
        "default-graph-uri",
    ),
    (
        "/sparql?using-graph-uri=g",
        UPDATE,
        "CLEAR ALL",
        400,
        "not an absolute IRI",
    ),
    (
        "/sparql?baseURI=nowhere",
        UPDATE,
        "CLEAR ALL",
        400,
        "nowhere",
    ),
    ("/sparql?%24x=1", UPDATE, "CLEAR ALL", 400, "$x"),
    (
        "/sparql?update=CLEAR+ALL",
        UPDATE,
        "CLEAR ALL",
        400,
        "twice",
    ),
    (
        "/sparql",
        FORM,
        "update=CLEAR+ALL&update=CLEAR+ALL",
        400,
        "twice",
    ),
    (
        "/sparql",
        FORM,
        "update=CLEAR+ALL&query=ASK%7B%7D",
        400,
        "query",
    ),
    ("/sparql", FORM, "x=CLEAR+ALL", 400, "unknown-parameter"),
    ("/sparql", FORM, "timeout=1", 400, "update="),
    (
        "/sparql",
        "text/plain",
        "CLEAR ALL",
        415,
        "application/sparql-update",
    ),
    (
        "/sparql",
        "application/sparql-update; charset=utf-16",
        "CLEAR ALL",
        415,
        "UTF-8",
    ),
    ("/store", UPDATE, "CLEAR ALL", 415, ""),
];

#[test]
fn what_is_refused_changes_nothing() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    for (target, content_type, body, status, part) in REFUSED {
        let refused = post(&server, target, content_type, body);
        let text = refused.text();
        assert_eq!(refused.status, *status, "{target} {body}: {text}");
        assert!(text.contains(part), "{target} {body}: {text}");
    }
    let get = request(&server.address, "GET", "/sparql?update=CLEAR+ALL", &[], b"");
    assert_eq!(get.status, 400, "{}", get.text());
    drop(server);
    assert_eq!(dump(folder.path()), ONE);
}

/// Each reads a number and writes the next: all are in conflict with all.
#[test]
fn updates_of_many_clients_all_come_to_an_end() {
    const CLIENTS: usize = 8;
    const EACH: usize = 12;
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    done(&server, "INSERT DATA { <http://a/n> <http://a/value> 0 }");
    let step = "DELETE { ?n <http://a/value> ?v } INSERT { ?n <http://a/value> ?w } \
                WHERE { ?n <http://a/value> ?v BIND(?v + 1 AS ?w) }";
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (_, added, removed) = done(&server, step);
                    assert_eq!((added, removed), (1, 1));
                }
            });
        }
    });
    let value = ask(&server, "SELECT ?v { <http://a/n> <http://a/value> ?v }");
    assert_eq!(value, (CLIENTS * EACH).to_string());
    let commit = done(&server, "DELETE DATA { <http://a/n> <http://a/value> 0 }").0;
    assert_eq!(commit, 2 + (CLIENTS * EACH) as u64);
}

#[test]
fn the_description_tells_that_there_are_updates() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    let described = request(&server.address, "GET", "/sparql", &[], b"").text();
    assert!(described.contains("SPARQL11Update"), "{described}");
    assert!(described.contains("EmptyGraphs"), "{described}");
}
