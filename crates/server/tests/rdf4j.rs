//! RDF4J's protocol: each address and method is a row that says what is sent and what comes back, as
//! `HTTPRepository` of RDF4J 5 sends and reads it.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "support/http_client.rs"]
mod http_client;
mod support;

use http_client::{Response, request};
use support::{Server, output};
use tempfile::TempDir;

const R: &str = "/repositories/default";

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// As the client sends it for SELECT.
const TABLE: &str = "application/x-binary-rdf-results-table, application/sparql-results+xml;q=0.8, \
    application/xml;q=0.8, application/sparql-results+json;q=0.8, text/csv;q=0.8";

/// As the client sends it for ASK, and for statements.
const BOOLEAN: &str =
    "application/sparql-results+xml;q=0.8, text/boolean, application/sparql-results+json;q=0.8";
const STATEMENTS: &str = "application/rdf+xml;q=0.3, application/x-binary-rdf, application/n-quads;q=0.8, \
    text/turtle;q=0.3, application/trig;q=0.8";

/// Serves a database of three quads.
fn serve() -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    let data = "<http://a/s> <http://a/p> \"1\" .\n<http://b/s> <http://a/p> \"2\" <http://a/g> .\n\
        <http://a/s> <http://b/q> \"2\" <http://a/g> .\n";
    std::fs::write(folder.path().join("data.nq"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nq"]);
    (Server::start(folder.path(), &[]), folder)
}

fn send(server: &Server, method: &str, target: &str, media_type: &str, body: &[u8]) -> Response {
    let mut headers = Vec::new();
    if !media_type.is_empty() {
        headers.push(("Content-Type", media_type));
    }
    request(&server.address, method, target, &headers, body)
}

fn get(server: &Server, target: &str, accept: &str) -> Response {
    request(&server.address, "GET", target, &[("Accept", accept)], b"")
}

/// Percent-encodes what is sent in an address.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Method, address behind the repository, media type of the body, body, status, and what the answer has.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str, u16, &'a str);

#[test]
#[expect(clippy::too_many_lines, reason = "a table of addresses")]
fn each_address_answers_as_the_client_expects() {
    let (server, _folder) = serve();
    let subject = format!("/statements?subj={}&infer=true", encoded("<http://a/s>"));
    let context = encoded("<http://a/g>");
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
        // What is read as a number has no line end.
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
        ("GET", "/namespaces", "", "", 200, "prefix"),
        ("GET", "/namespaces/a", "", "", 404, "no namespace"),
        (
            "GET",
            "/rdf-graphs/service?default&format=nt",
            "",
            "",
            200,
            "=<http://a/s> <http://a/p> \"1\" .\n",
        ),
        // What there is not.
        ("PATCH", "/statements", "", "", 405, "GET, HEAD"),
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
    let (server, _folder) = serve();
    let select = format!("{R}?query={}", encoded("SELECT ?o ?x { ?s ?p ?o }"));
    let table = get(&server, &select, TABLE);
    assert_eq!(
        table.header("content-type"),
        Some("application/x-binary-rdf-results-table")
    );
    assert_eq!(
        table.body,
        b"BRTR\0\0\0\x04\0\0\0\x02\0\0\0\x01o\0\0\0\x01x\x06\0\0\0\x011\x00\x7f"
    );
    let ask = get(&server, &format!("{R}?query=ASK%7B%7D"), BOOLEAN);
    assert!(ask.text().contains("true"));
    let binary_ask = get(
        &server,
        &format!("{R}?query=ASK%7B%7D"),
        "application/x-binary-rdf-results-table",
    );
    assert_eq!(binary_ask.status, 406);
    let quads = get(&server, &format!("{R}/statements"), STATEMENTS);
    assert_eq!(quads.header("content-type"), Some("application/n-quads"));
}
