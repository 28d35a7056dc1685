//! RDF4J's protocol: each address and method is a row that says what is sent and what comes back, as
//! `HTTPRepository` of RDF4J 5 sends and reads it.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test; tables of cases are long"
)]

use crate::http_client::{Response, request};
use crate::rdf4j_transactions::begin;
use crate::support::Server;
use tempfile::TempDir;

pub(crate) const R: &str = "/repositories/default";
pub(crate) const WILDCARD: &str = "<http://www.openrdf.org/schema/sesame#wildcard>";
const NIL: &str = "<http://rdf4j.org/schema/rdf4j#nil>";

pub(crate) const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
pub(crate) const QUERY: &str = "application/sparql-query; charset=utf-8";
pub(crate) const UPDATE: &str = "application/sparql-update; charset=utf-8";
pub(crate) const BINARY: &str = "application/x-binary-rdf";
pub(crate) const NT: &str = "application/n-triples";

/// As the client sends it for SELECT.
const TABLE: &str = "application/x-binary-rdf-results-table, application/sparql-results+xml;q=0.8, \
    application/xml;q=0.8, application/sparql-results+json;q=0.8, text/csv;q=0.8";

/// As the client sends it for ASK, and for statements.
const BOOLEAN: &str =
    "application/sparql-results+xml;q=0.8, text/boolean, application/sparql-results+json;q=0.8";
const STATEMENTS: &str = "application/rdf+xml;q=0.3, application/x-binary-rdf, application/n-quads;q=0.8, \
    text/turtle;q=0.3, application/trig;q=0.8";

pub(crate) fn serve(options: &[&str]) -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    (Server::start(folder.path(), options), folder)
}

pub(crate) fn send(
    server: &Server,
    method: &str,
    target: &str,
    media_type: &str,
    body: &[u8],
) -> Response {
    let mut headers = Vec::new();
    if !media_type.is_empty() {
        headers.push(("Content-Type", media_type));
    }
    request(&server.address, method, target, &headers, body)
}

pub(crate) fn get(server: &Server, target: &str, accept: &str) -> Response {
    request(&server.address, "GET", target, &[("Accept", accept)], b"")
}

/// Percent-encodes what is sent in an address.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A document in the binary format, version 2: subject, predicate, object and, if there is one, context,
/// as N-Triples writes them but for escapes.
pub(crate) fn binary(statements: &[&[&str]]) -> Vec<u8> {
    let mut out = b"BRDF\0\0\0\x02\x05UTF-8".to_vec();
    let text = |text: &str, out: &mut Vec<u8>| {
        let mut length = text.len();
        while length > 127 {
            out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        out.push(u8::try_from(length).unwrap());
        out.extend(text.as_bytes());
    };
    for statement in statements {
        out.push(1);
        for place in 0..4 {
            let value = statement.get(place).copied().unwrap_or_default();
            if let Some(iri) = value.strip_prefix('<') {
                out.push(1);
                text(iri.strip_suffix('>').unwrap(), &mut out);
            } else if let Some(label) = value.strip_prefix("_:") {
                out.push(2);
                text(label, &mut out);
            } else if let Some(label) = value.strip_prefix('"') {
                out.push(3);
                text(label.strip_suffix('"').unwrap(), &mut out);
            } else {
                assert!(place == 3 && value.is_empty(), "{value}");
                out.push(0);
            }
        }
    }
    out.push(127);
    out
}

/// Statements, sorted.
fn statements(server: &Server, target: &str) -> Vec<String> {
    let answer = get(server, target, STATEMENTS);
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/n-quads"));
    let mut lines: Vec<String> = answer.text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Method, address behind the repository, media type of the body, body, status, and what the answer has.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str, u16, &'a str);

#[test]
#[expect(clippy::too_many_lines, reason = "a table of addresses")]
fn each_address_answers_as_the_client_expects() {
    let (server, _folder) = serve(&[]);
    let subject = format!("/statements?subj={}&infer=true", encoded("<http://a/s>"));
    let context = encoded("<http://a/g>");
    let in_g = format!(
        "/statements?context={context}&baseURI={}",
        encoded("<http://b/>")
    );
    let both = format!("/statements?context=null&context={context}");
    let object = format!("/statements?obj={}", encoded("\"2\""));
    let pair = format!(
        "/statements?subj={}&obj={}",
        encoded("<http://a/s>"),
        encoded("\"2\"")
    );
    let predicate = format!(
        "/statements?pred={}&context={context}",
        encoded("<http://a/p>")
    );
    let of_g = format!("/size?context={context}");
    let rows: &[Row<'_>] = &[
        // The database at the root; what is read as a number has no line end.
        ("GET", "/size", "", "", 200, "=0"),
        ("GET", "/contexts", "", "", 200, "contextID"),
        (
            "POST",
            "/statements",
            NT,
            "<http://a/s> <http://a/p> \"1\" .",
            204,
            "=",
        ),
        (
            "POST",
            &in_g,
            "text/turtle",
            "<s> <http://a/p> '2' . <http://a/s> <q> '2' .",
            204,
            "=",
        ),
        ("GET", "/size", "", "", 200, "=3"),
        ("GET", &of_g, "", "", 200, "=2"),
        ("GET", "/size?context=null", "", "", 200, "=1"),
        ("GET", "/contexts", "", "", 200, "http://a/g"),
        (
            "GET",
            &subject,
            "",
            "",
            200,
            "<http://a/s> <http://b/q> \"2\" <http://a/g> .",
        ),
        (
            "GET",
            &object,
            "",
            "",
            200,
            "<http://b/s> <http://a/p> \"2\" <http://a/g> .",
        ),
        (
            "GET",
            &pair,
            "",
            "",
            200,
            "=<http://a/s> <http://b/q> \"2\" <http://a/g> .\n",
        ),
        (
            "GET",
            &predicate,
            "",
            "",
            200,
            "=<http://b/s> <http://a/p> \"2\" <http://a/g> .\n",
        ),
        (
            "GET",
            &both,
            "",
            "",
            200,
            "<http://a/s> <http://a/p> \"1\" .",
        ),
        ("HEAD", "/statements", "", "", 200, ""),
        (
            "GET",
            "/statements?subj=x",
            "",
            "",
            400,
            "the parameter subj is x",
        ),
        // Queries, by GET and POST, with a base and bindings.
        ("GET", "?query=ASK%7B%7D", "", "", 200, "\"boolean\":true"),
        (
            "POST",
            "",
            FORM,
            "queryLn=SPARQL&query=ASK%7B%3Chttp://a/s%3E+?p+?o%7D&infer=true",
            200,
            "true",
        ),
        (
            "POST",
            "",
            FORM,
            "query=ASK%7B%3Cs%3E+?p+?o%7D&baseURI=http://a/",
            200,
            "true",
        ),
        (
            "POST",
            "",
            FORM,
            "query=ASK%7B?s+?p+?o%7D&%24o=%221%22",
            200,
            "true",
        ),
        (
            "POST",
            "",
            FORM,
            "query=ASK%7B?s+?p+?o%7D&%24o=%223%22",
            200,
            "false",
        ),
        (
            "POST",
            "",
            FORM,
            "query=SELECT+?o%7B?s+?p+?x+FILTER(?x=?o)%7D&%24o=%221%22",
            200,
            "\"value\":\"1\"",
        ),
        (
            "POST",
            "",
            FORM,
            "query=ASK%7B?s+?p+?o%7D&%24o=1",
            400,
            "the parameter $o is 1",
        ),
        (
            "POST",
            "",
            FORM,
            "queryLn=SERQL&query=x",
            400,
            "UNSUPPORTED QUERY LANGUAGE: ",
        ),
        ("POST", "", FORM, "query=SELECT", 400, "MALFORMED QUERY: "),
        // Updates.
        (
            "POST",
            "/statements",
            FORM,
            "update=INSERT+DATA%7B%3Cs%3E+%3Cp%3E+5%7D&baseURI=http://a/&queryLn=SPARQL",
            204,
            "=",
        ),
        (
            "POST",
            "/statements",
            UPDATE,
            "DELETE DATA { <http://a/s> <http://a/p> 5 }",
            204,
            "=",
        ),
        (
            "POST",
            "/statements",
            UPDATE,
            "INSERT",
            400,
            "MALFORMED QUERY: ",
        ),
        (
            "POST",
            "/statements",
            FORM,
            "queryLn=SPARQL",
            400,
            "the update is missing",
        ),
        (
            "POST",
            "/statements",
            FORM,
            "update=WITH+%3Chttp://a/g%3E+DELETE%7B?s+?p+?o%7DWHERE%7B?s+?p+?o%7D&remove-graph-uri=http://a/g",
            400,
            "remove-graph-uri: the update says itself where it writes",
        ),
        // Documents that cannot be read.
        ("POST", "/statements", NT, "oops", 400, "MALFORMED DATA: "),
        (
            "POST",
            "/statements",
            BINARY,
            "oops",
            400,
            "MALFORMED DATA: ",
        ),
        (
            "POST",
            "/statements",
            "image/png",
            "",
            415,
            "UNSUPPORTED FILE FORMAT: ",
        ),
        ("GET", "/size", "", "", 200, "=3"),
        // In several contexts.
        (
            "PUT",
            &both,
            "application/n-quads",
            "_:x <http://a/p> \"7\" .",
            204,
            "=",
        ),
        ("GET", "/size", "", "", 200, "=2"),
        ("GET", &of_g, "", "", 200, "=1"),
        ("DELETE", &predicate, "", "", 204, "="),
        ("GET", &of_g, "", "", 200, "=0"),
        ("DELETE", "/statements", "", "", 204, "="),
        ("GET", "/size", "", "", 200, "=0"),
        // Namespaces.
        ("GET", "/namespaces", "", "", 200, "prefix"),
        ("PUT", "/namespaces/a", "text/plain", "http://a/", 204, "="),
        (
            "PUT",
            "/namespaces/",
            "text/plain",
            "http://empty/",
            204,
            "=",
        ),
        (
            "PUT",
            "/namespaces/%C3%A9%20",
            "text/plain",
            "http://e/",
            204,
            "=",
        ),
        ("GET", "/namespaces/a", "", "", 200, "=http://a/"),
        ("GET", "/namespaces/", "", "", 200, "=http://empty/"),
        ("GET", "/namespaces", "", "", 200, "http://e/"),
        ("PUT", "/namespaces/a", "text/plain", "http://b/", 204, "="),
        ("GET", "/namespaces/a", "", "", 200, "=http://b/"),
        (
            "PUT",
            "/namespaces/a",
            "text/plain",
            "",
            400,
            "a namespace is",
        ),
        ("DELETE", "/namespaces/a", "", "", 204, "="),
        ("GET", "/namespaces/a", "", "", 404, "no namespace"),
        // They are no statements, and stay when those go.
        ("GET", "/size", "", "", 200, "=0"),
        ("GET", "/statements", "", "", 200, "="),
        ("DELETE", "/statements", "", "", 204, "="),
        ("GET", "/namespaces/", "", "", 200, "=http://empty/"),
        ("DELETE", "/namespaces", "", "", 204, "="),
        ("GET", "/namespaces/", "", "", 404, ""),
        // The Graph Store Protocol.
        (
            "PUT",
            "/rdf-graphs/service?graph=http://a/h",
            NT,
            "<http://a/s> <http://a/p> \"1\" .",
            201,
            "=",
        ),
        (
            "GET",
            "/rdf-graphs/service?graph=http://a/h&format=nt",
            "",
            "",
            200,
            "=<http://a/s> <http://a/p> \"1\" .\n",
        ),
        // What there is not.
        ("GET", "/transactions", "", "", 405, "POST"),
        ("PATCH", "/statements", "", "", 405, "DELETE"),
        (
            "PUT",
            "/transactions/1?action=COMMIT",
            "",
            "",
            404,
            "no such transaction",
        ),
        ("GET", "/nothing", "", "", 404, "nothing at"),
    ];
    for (method, rest, media_type, body, status, part) in rows.iter().copied() {
        let answer = send(
            &server,
            method,
            &format!("{R}{rest}"),
            media_type,
            body.as_bytes(),
        );
        let (text, row) = (answer.text(), format!("{method} {rest} {body}"));
        assert_eq!(answer.status, status, "{row}: {text}");
        match part.strip_prefix('=') {
            Some(whole) => assert_eq!(text, whole, "{row}"),
            None => assert!(text.contains(part), "{row}: {text}"),
        }
        if status >= 400 {
            let media_type = answer.header("content-type").unwrap();
            assert!(media_type.starts_with("text/plain"), "{row}: {media_type}");
        }
    }
}

#[test]
fn servers_list_their_repositories() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--db", "named=other"]);
    assert_eq!(get(&server, "/protocol", "text/plain").text(), "12");
    let list = get(&server, "/repositories", "text/csv").text();
    let address = &server.address;
    let mut rows: Vec<&str> = list.lines().skip(1).collect();
    rows.sort_unstable();
    let expected = ["default", "named"]
        .map(|name| format!("http://{address}/repositories/{name},{name},{name},true,true"));
    assert_eq!(rows, expected, "{list}");
    assert_eq!(get(&server, "/repositories/named/size", "").text(), "0");
    assert_eq!(get(&server, "/repositories/other/size", "").status, 404);
}

#[test]
fn tables_and_truth_values_have_the_forms_that_the_client_reads() {
    let (server, _folder) = serve(&[]);
    let insert = b"<http://a/s> <http://a/p> \"o\" .";
    assert_eq!(
        send(&server, "POST", &format!("{R}/statements"), NT, insert).status,
        204
    );
    let select = format!("{R}?query={}", encoded("SELECT ?o ?x { ?s ?p ?o }"));
    let table = get(&server, &select, TABLE);
    assert_eq!(
        table.header("content-type"),
        Some("application/x-binary-rdf-results-table")
    );
    assert_eq!(
        table.body,
        b"BRTR\0\0\0\x04\0\0\0\x02\0\0\0\x01o\0\0\0\x01x\x06\0\0\0\x01o\x00\x7f"
    );
    let ask = get(&server, &format!("{R}?query=ASK%7B%7D"), BOOLEAN);
    assert!(ask.text().contains("true"));
    for accept in ["text/boolean", "text/boolean, application/json;q=0.5"] {
        let word = get(&server, &format!("{R}?query=ASK%7B%7D"), accept);
        assert_eq!(
            word.header("content-type"),
            Some("text/boolean; charset=us-ascii")
        );
        assert_eq!(word.text().trim(), "true");
    }
    assert_eq!(get(&server, &select, "text/boolean").status, 406);
    let binary_ask = get(
        &server,
        &format!("{R}?query=ASK%7B%7D"),
        "application/x-binary-rdf-results-table",
    );
    assert_eq!(binary_ask.status, 406);
    let quads = get(&server, &format!("{R}/statements"), STATEMENTS);
    assert_eq!(quads.header("content-type"), Some("application/n-quads"));
}

#[test]
fn statements_are_removed_by_patterns() {
    let (server, _folder) = serve(&[]);
    let data = "<http://a/s> <http://a/p> \"1\" .\n<http://a/s> <http://a/p> \"1\" <http://a/g> .\n\
        <http://a/s> <http://a/q> \"2\" <http://a/g> .\n<http://a/t> <http://a/p> \"3\" <http://a/h> .\n";
    let (s, p, q, g) = (
        "<http://a/s>",
        "<http://a/p>",
        "<http://a/q>",
        "<http://a/g>",
    );
    for (pattern, left) in [
        // Without a context a statement goes from all graphs.
        (&[s, p, "\"1\""][..], 2),
        (&[s, p, "\"1\"", NIL], 3),
        (&[s, p, "\"1\"", g], 3),
        (&[s, WILDCARD, WILDCARD], 1),
        (&[WILDCARD, WILDCARD, "\"2\""], 3),
        (&[s, WILDCARD, "\"2\"", g], 3),
        (&[WILDCARD, p, WILDCARD, g], 3),
        (&[WILDCARD, WILDCARD, WILDCARD, NIL], 3),
        (&[WILDCARD, q, "\"1\""], 4),
        (&["_:unknown", WILDCARD, WILDCARD], 4),
        (&["<http://a/unknown>", WILDCARD, WILDCARD], 4),
    ] {
        let put = send(
            &server,
            "PUT",
            &format!("{R}/statements"),
            "application/n-quads",
            data.as_bytes(),
        );
        assert_eq!(put.status, 204);
        let transaction = begin(&server);
        let remove = format!("{transaction}?action=DELETE");
        let removed = send(&server, "PUT", &remove, BINARY, &binary(&[pattern]));
        assert_eq!(removed.status, 204, "{pattern:?}: {}", removed.text());
        let committed = send(
            &server,
            "PUT",
            &format!("{transaction}?action=COMMIT"),
            "",
            b"",
        );
        assert_eq!(committed.status, 200);
        let found = statements(&server, &format!("{R}/statements"));
        assert_eq!(found.len(), left, "{pattern:?}: {found:?}");
    }
}

#[test]
fn blank_nodes_can_be_sent_back() {
    let (server, _folder) = serve(&[]);
    let target = format!("{R}/statements");
    let keep = format!("{target}?preserveNodeId=true");
    // A client's own label means the same node in every request that wants it to.
    for (target, predicate) in [
        (&keep, "<http://a/p>"),
        (&keep, "<http://a/q>"),
        (&target, "<http://a/r>"),
    ] {
        let body = binary(&[&["_:node1x1", predicate, "\"o\""]]);
        assert_eq!(send(&server, "POST", target, BINARY, &body).status, 204);
    }
    let found = statements(&server, &target);
    let subject = |predicate: &str| {
        let line = found.iter().find(|line| line.contains(predicate)).unwrap();
        line.split(' ').next().unwrap().to_owned()
    };
    let node = subject("http://a/p");
    assert_eq!(subject("http://a/q"), node);
    assert_ne!(subject("http://a/r"), node);
    // What is shown is found again, in addresses and in statements.
    let by_subject = format!("{target}?subj={}", encoded(&node));
    assert_eq!(statements(&server, &by_subject).len(), 2);
    let more = binary(&[&[&node, "<http://a/more>", &node]]);
    assert_eq!(send(&server, "POST", &keep, BINARY, &more).status, 204);
    assert_eq!(statements(&server, &by_subject).len(), 3);
    let transaction = begin(&server);
    for (subject, predicate) in [
        (node.as_str(), "<http://a/p>"),
        ("_:node1x1", "<http://a/q>"),
    ] {
        let body = binary(&[&[subject, predicate, "\"o\""]]);
        let remove = format!("{transaction}?action=DELETE&preserveNodeId=true");
        assert_eq!(send(&server, "PUT", &remove, BINARY, &body).status, 204);
    }
    let commit = send(
        &server,
        "PUT",
        &format!("{transaction}?action=COMMIT"),
        "",
        b"",
    );
    assert_eq!(commit.header("stoa-removed"), Some("2"));
    assert_eq!(statements(&server, &by_subject).len(), 1);
}

/// Each replaces what it finds.
#[test]
fn namespaces_are_set_by_many_at_once() {
    let (server, _folder) = serve(&[]);
    let put = |prefix: &str, namespace: &str| {
        let target = format!("/repositories/default/namespaces/{prefix}");
        send(&server, "PUT", &target, "text/plain", namespace.as_bytes())
    };
    std::thread::scope(|scope| {
        for client in 0..4 {
            let put = &put;
            let work = move || {
                for number in 0..15 {
                    let done = put("same", &format!("http://a/{client}/{number}#"));
                    assert_eq!(done.status, 204, "{}", done.text());
                }
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    let all = send(
        &server,
        "GET",
        "/repositories/default/namespaces?format=csv",
        "",
        b"",
    );
    let count = all.text().matches("http://a/").count();
    assert_eq!(count, 1, "{}", all.text());
}

/// As the client sends the dataset of an update: graphs that take the place of the default graph.
#[test]
fn updates_have_graphs_of_their_own() {
    let (server, _folder) = serve(&[]);
    let update = |text: &str, graphs: &str| {
        let form = format!("queryLn=SPARQL&update={}{graphs}", encoded(text));
        send(
            &server,
            "POST",
            &format!("{R}/statements"),
            FORM,
            form.as_bytes(),
        )
    };
    let nil = format!(
        "&remove-graph-uri={}",
        encoded("http://rdf4j.org/schema/rdf4j#nil")
    );
    let (g, h) = (
        "&insert-graph-uri=http://a/g",
        "&insert-graph-uri=http://a/h",
    );
    let from_both = "&remove-graph-uri=http://a/g&remove-graph-uri=http://a/h";
    let s = "<http://a/s> <http://a/p>";
    let insert = format!("INSERT DATA {{ {s} 'd' . GRAPH <http://a/x> {{ {s} 'x' }} }}");
    let copy =
        format!("INSERT {{ {s} ?o . GRAPH <http://a/y> {{ {s} 'y' }} }} WHERE {{ ?s ?p ?o }}");
    let steps: [(&str, String, Vec<&str>); 7] = [
        (&insert, g.to_owned(), vec!["d g", "x x"]),
        (
            &insert,
            "&insert-graph-uri=null".to_owned(),
            vec!["d", "d g", "x x"],
        ),
        (
            &copy,
            format!("{h}&using-graph-uri=http://a/x"),
            vec!["d", "d g", "x h", "x x", "y y"],
        ),
        (
            &format!("DELETE DATA {{ {s} 'd' , 'x' }}"),
            from_both.to_owned(),
            vec!["d", "x x", "y y"],
        ),
        (
            &format!(
                "DELETE {{ {s} ?o . GRAPH <http://a/y> {{ {s} ?y }} }} INSERT {{ {s} 'new' }}
                WHERE {{ {s} ?o GRAPH <http://a/y> {{ {s} ?y }} }}"
            ),
            format!("{nil}{from_both}{g}"),
            vec!["new g", "x x"],
        ),
        // Without any, they are what they are elsewhere.
        (
            &format!("DELETE DATA {{ {s} 'new' }}"),
            String::new(),
            vec!["new g", "x x"],
        ),
        // What names its graphs is not about these.
        (
            "CLEAR DEFAULT ; DROP GRAPH <http://a/g>",
            from_both.to_owned(),
            vec!["x x"],
        ),
    ];
    for (text, graphs, expected) in steps {
        let done = update(text, &graphs);
        assert_eq!(done.status, 204, "{text}: {}", done.text());
        let short = |line: &String| {
            let line = line
                .replace("<http://a/s> <http://a/p> ", "")
                .replace("http://a/", "");
            line.replace(['<', '>', '"', '.'], "").trim().to_owned()
        };
        let all = statements(&server, &format!("{R}/statements"));
        let mut all: Vec<String> = all.iter().map(short).collect();
        all.sort();
        assert_eq!(all, expected, "{text} {graphs}");
    }
    for (graphs, part) in [
        (
            "&insert-graph-uri=x",
            "insert-graph-uri: x is not an absolute IRI",
        ),
        (&format!("{g}{h}"), "insert-graph-uri is given twice"),
    ] {
        let wrong = update("CLEAR ALL", graphs);
        assert_eq!(wrong.status, 400);
        assert!(wrong.text().contains(part), "{}", wrong.text());
    }
    assert_eq!(get(&server, &format!("{R}/size"), "").text(), "1");
}
