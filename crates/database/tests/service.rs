//! SERVICE against databases of this process: what is asked, how often, and what becomes of answers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stoa_database::federation::{Fetch, FetchRequest, Response};
use stoa_database::oxrdf::Term;
use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{
    Access, CancelHandle, Database, Error, Input, LoadOptions, OpenOptions, QueryOptions,
    QueryResult, Runtime, RuntimeOptions, nonblocking,
};

/// A database in a folder of its own.
struct Store {
    database: Database,
    folder: tempfile::TempDir,
}

fn store(fetch: Option<Arc<dyn Fetch>>, turtle: &str) -> Store {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(128 << 20),
        threads: Some(1),
        seed: Some(1),
        fetch,
        ..RuntimeOptions::default()
    })
    .unwrap();
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &options).unwrap();
    let file = folder.path().join("data.ttl");
    std::fs::write(&file, format!("PREFIX : <http://a/> {turtle}")).unwrap();
    let options = LoadOptions {
        inputs: vec![Input::Path(file)],
        ..LoadOptions::default()
    };
    database.load(options, &()).unwrap();
    Store { database, folder }
}

/// Endpoints `http://N/` over databases, and others that fail.
struct Endpoints {
    stores: Vec<Store>,
    format: SolutionsFormat,
    requests: AtomicUsize,
    texts: Mutex<Vec<String>>,
    /// Those of `http://never/`.
    unanswered: Mutex<Vec<Response>>,
}

impl Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoints")
    }
}

fn decoded(form: &[u8]) -> String {
    let mut out = Vec::new();
    let mut bytes = form.strip_prefix(b"query=").unwrap().iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [*bytes.next().unwrap(), *bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => *byte,
        });
    }
    String::from_utf8(out).unwrap()
}

impl Fetch for Endpoints {
    fn fetch(&self, request: FetchRequest, response: Response) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let text = decoded(&request.body);
        self.texts.lock().unwrap().push(text.clone());
        assert!(
            request
                .accept
                .starts_with("application/sparql-results+json")
        );
        let host = request.url.strip_prefix("http://").unwrap();
        match host.trim_end_matches('/') {
            "never" => self.unanswered.lock().unwrap().push(response),
            "garbage" => response.read(Some("application/sparql-results+json"), &b"{\"head\""[..]),
            "csv" => response.read(Some("text/csv"), &b"s\r\n"[..]),
            "ask" => response.read(
                Some("application/sparql-results+json"),
                &b"{\"head\":{},\"boolean\":true}"[..],
            ),
            // Something comes, then no more.
            "torn" => response.read(
                Some("text/tab-separated-values"),
                &b"?s\t?o\n<http://a/s1>\t1\n<http://a/s1>\t<http://"[..],
            ),
            "dropped" => drop(response),
            host => {
                let Ok(number) = host.parse::<usize>() else {
                    return response.fail("no such host");
                };
                let database = self.stores[number].database.clone();
                let format = self.format;
                let answer = move || {
                    let query = database.prepare(&text, &QueryOptions::default()).unwrap();
                    let mut answer = Answer::new(query, ResultFormat::Solutions(format)).unwrap();
                    let mut out = Vec::new();
                    while answer.step(&mut out).unwrap() {}
                    response.read(Some(format.media_type()), &out[..]);
                };
                std::thread::Builder::new().spawn(answer).unwrap();
            }
        }
    }
}

struct World {
    local: Store,
    endpoints: Arc<Endpoints>,
}

fn world_in(format: SolutionsFormat, local: &str, remote: &[&str]) -> World {
    let endpoints = Arc::new(Endpoints {
        stores: remote.iter().map(|turtle| store(None, turtle)).collect(),
        format,
        requests: AtomicUsize::new(0),
        texts: Mutex::default(),
        unanswered: Mutex::default(),
    });
    let fetch: Arc<dyn Fetch> = Arc::<Endpoints>::clone(&endpoints);
    let local = store(Some(fetch), local);
    assert!(local.folder.path().exists());
    World { local, endpoints }
}

fn world(local: &str, remote: &[&str]) -> World {
    world_in(SolutionsFormat::Json, local, remote)
}

impl World {
    fn try_rows(&self, text: &str, options: &QueryOptions) -> Result<Vec<String>, Error> {
        let text = format!("PREFIX : <http://a/> {text}");
        match self.local.database.query(&text, options)? {
            QueryResult::Solutions(solutions) => {
                let mut rows = Vec::new();
                for solution in solutions {
                    let solution = solution?;
                    let values = solution.values().iter().map(|value| match value {
                        Some(Term::NamedNode(iri)) => iri.as_str().replace("http://a/", ":"),
                        Some(Term::Literal(literal)) => literal.value().to_owned(),
                        Some(Term::BlankNode(_)) => "_".to_owned(),
                        Some(triple) => triple.to_string(),
                        None => "-".to_owned(),
                    });
                    rows.push(values.collect::<Vec<_>>().join(" "));
                }
                rows.sort();
                Ok(rows)
            }
            QueryResult::Boolean(answer) => Ok(vec![answer.to_string()]),
            QueryResult::Graph(_) => panic!("no solutions"),
        }
    }

    /// The answer, which must be the same for all ways to run the query.
    fn rows(&self, text: &str) -> Vec<String> {
        let rows = self.try_rows(text, &QueryOptions::default()).unwrap();
        for (batch_rows, naive) in [(Some(1), false), (Some(3), false), (None, true)] {
            let options = QueryOptions {
                batch_rows,
                naive,
                ..QueryOptions::default()
            };
            let again = self.try_rows(text, &options).unwrap();
            assert_eq!(again, rows, "{batch_rows:?} {naive} {text}");
        }
        rows
    }

    fn error(&self, text: &str) -> String {
        let options = QueryOptions::default();
        self.try_rows(text, &options).unwrap_err().to_string()
    }

    fn requests(&self) -> usize {
        self.endpoints.requests.swap(0, Ordering::SeqCst)
    }
}

const LOCAL: &str = ":s1 :p 1 . :s2 :p 2 . :s3 :p 3 . :s1 :at <http://0/> . :s2 :at <http://1/> .";
const REMOTE: [&str; 2] = [
    ":s1 :q 10 . :s2 :q 20, 21 . :s9 :q 90 . :s1 :r _:x . _:x :q 5 .",
    ":s2 :q 22 . :s3 :t \"a\\\"b\\n\"@en .",
];

#[test]
#[expect(clippy::too_many_lines, reason = "a table of queries")]
fn service_is_joined() {
    for format in [
        SolutionsFormat::Json,
        SolutionsFormat::Xml,
        SolutionsFormat::Tsv,
    ] {
        let world = world_in(format, LOCAL, &REMOTE);
        for (query, expected) in [
            (
                "SELECT ?s ?x ?y { ?s :p ?x SERVICE <http://0/> { ?s :q ?y } }",
                vec![":s1 1 10", ":s2 2 20", ":s2 2 21"],
            ),
            (
                "SELECT ?s ?y { SERVICE <http://0/> { ?s :q ?y FILTER(?y > 20) } }",
                vec![":s2 21", ":s9 90"],
            ),
            (
                "SELECT ?s ?y { ?s :p ?x OPTIONAL { SERVICE <http://0/> { ?s :q ?y } } }",
                vec![":s1 10", ":s2 20", ":s2 21", ":s3 -"],
            ),
            (
                "SELECT ?s ?y { ?s :p ?x OPTIONAL { SERVICE <http://0/> { ?s :q ?y } FILTER(?y > 10 * ?x) } }",
                vec![":s1 -", ":s2 21", ":s3 -"],
            ),
            (
                "SELECT ?s ?y ?z { ?s :p ?x SERVICE <http://0/> { ?s :q ?y } SERVICE <http://1/> { ?s :q ?z } }",
                vec![":s2 20 22", ":s2 21 22"],
            ),
            (
                "SELECT ?s ?y { { ?s :p ?x } { SERVICE <http://0/> { ?s :q ?y } } UNION { SERVICE <http://1/> { ?s ?any ?y } } }",
                vec![":s1 10", ":s2 20", ":s2 21", ":s2 22", ":s3 a\"b\n"],
            ),
            (
                "SELECT ?s { ?s :p ?x FILTER EXISTS { SERVICE <http://0/> { ?s :q ?y } } }",
                vec![":s1", ":s2"],
            ),
            (
                "SELECT ?s { ?s :p ?x FILTER NOT EXISTS { SERVICE <http://0/> { ?s :q ?y FILTER(?y = 10 * ?x) } } }",
                vec![":s1", ":s2", ":s3"],
            ),
            (
                "SELECT ?s { ?s :p ?x MINUS { SERVICE <http://0/> { ?s :q ?y } } }",
                vec![":s3"],
            ),
            (
                "SELECT ?s ?n { ?s :p ?x { SELECT ?s (COUNT(*) AS ?n) { SERVICE <http://0/> { ?s :q ?y } } GROUP BY ?s } }",
                vec![":s1 1", ":s2 2"],
            ),
            (
                "SELECT ?s ?n { ?s :p ?x SERVICE <http://0/> { SELECT ?s (COUNT(*) AS ?n) { ?s :q ?y } GROUP BY ?s } }",
                vec![":s1 1", ":s2 2"],
            ),
            (
                "SELECT ?s ?y { ?s :at ?e SERVICE ?e { ?s :q ?y } }",
                vec![":s1 10", ":s2 22"],
            ),
            (
                "SELECT ?s ?y { ?s :p ?x OPTIONAL { ?s :at ?e } OPTIONAL { FILTER(BOUND(?e)) SERVICE SILENT ?e { ?s :q ?y } } }",
                vec![":s1 10", ":s2 22", ":s3 -"],
            ),
            (
                "SELECT ?s { ?s :at ?e FILTER EXISTS { SERVICE ?e { ?s :q 10 } } }",
                vec![":s1"],
            ),
            ("ASK { SERVICE <http://0/> { :s9 :q 90 } }", vec!["true"]),
            (
                "ASK { ?s :p 1 SERVICE <http://0/> { ?s :q 11 } }",
                vec!["false"],
            ),
            // A blank node of theirs is none of ours, and is the same in one answer.
            (
                "SELECT ?b ?y { SERVICE <http://0/> { :s1 :r ?b . ?b :q ?y } }",
                vec!["_ 5"],
            ),
            // Nothing is shared.
            (
                "SELECT ?x ?y { ?s :p ?x SERVICE <http://1/> { ?t :q ?y } }",
                vec!["1 22", "2 22", "3 22"],
            ),
            // Values are computed here and sent.
            (
                "SELECT ?y { BIND(:s2 AS ?s) SERVICE <http://0/> { ?s :q ?y } }",
                vec!["20", "21"],
            ),
            (
                "SELECT ?s ?o { VALUES (?s ?o) { (:s1 UNDEF) (UNDEF 20) (:s2 21) (:s2 10) } SERVICE <http://0/> { ?s :q ?o } }",
                vec![":s1 10", ":s2 20", ":s2 21"],
            ),
        ] {
            assert_eq!(world.rows(query), expected, "{query}");
        }
    }
}

#[test]
fn blank_nodes_are_not_sent() {
    let world = world("_:a :p :s1 . :s1 :p 1 . :s2 :p 2 .", &REMOTE);
    let rows = world.rows("SELECT ?s ?y { ?s :p ?x SERVICE <http://0/> { ?s :q ?y } }");
    assert_eq!(rows, [":s1 10", ":s2 20", ":s2 21"]);
    // Where the pattern leaves it unbound, it fits.
    let rows = world.rows(
        "SELECT ?s ?y { ?s :p :s1 SERVICE <http://0/> { :s9 :q ?y OPTIONAL { ?s :none ?y } } }",
    );
    assert_eq!(rows, ["_ 90"]);
    let texts = world.endpoints.texts.lock().unwrap();
    assert!(texts.iter().all(|text| !text.contains("_:")), "{texts:?}");
}

#[test]
fn many_rows_are_few_requests() {
    let lines = |number: usize| format!(":x{number} :p {number} . ");
    let local: String = (0..10_000).map(lines).collect();
    let remote: String = (0..10_000)
        .filter(|number| number % 3 == 0)
        .map(|number| format!(":x{number} :q {number} . "))
        .collect();
    let world = world(&local, &[&remote]);
    let query = "SELECT (COUNT(*) AS ?n) (SUM(?y - ?x) AS ?zero) { ?s :p ?x SERVICE <http://0/> { ?s :q ?y } }";
    let rows = world.try_rows(query, &QueryOptions::default()).unwrap();
    assert_eq!((rows, world.requests()), (vec!["3334 0".to_owned()], 10));
    // A binding that many rows share goes out once.
    let query =
        "SELECT (COUNT(*) AS ?n) { ?a :p ?x BIND(:x3 AS ?s) SERVICE <http://0/> { ?s :q ?y } }";
    let rows = world.try_rows(query, &QueryOptions::default()).unwrap();
    assert_eq!((rows, world.requests()), (vec!["10000".to_owned()], 1));
}

#[test]
fn failures_are_told_and_silent_ones_bind_nothing() {
    let world = world(LOCAL, &REMOTE);
    for (endpoint, reason) in [
        ("<http://nowhere/>", "no such host"),
        ("<http://garbage/>", "its answer is damaged"),
        ("<http://torn/>", "its answer is damaged"),
        ("<http://csv/>", "content type text/csv"),
        ("<http://ask/>", "true or false"),
        ("<http://dropped/>", "given up"),
    ] {
        let error = world.error(&format!("SELECT * {{ SERVICE {endpoint} {{ ?s :q ?o }} }}"));
        assert!(
            error.starts_with("SERVICE ") && error.contains(reason),
            "{error}"
        );
        let query =
            format!("SELECT ?s ?x ?o {{ ?s :p ?x SERVICE SILENT {endpoint} {{ ?s :q ?o }} }}");
        assert_eq!(
            world.rows(&query),
            [":s1 1 -", ":s2 2 -", ":s3 3 -"],
            "{query}"
        );
    }
    let unbound = "SELECT * { ?s :p ?x SERVICE ?e { ?s :q ?o } }";
    assert!(
        world.error(unbound).contains("not bound"),
        "{}",
        world.error(unbound)
    );
    let literal = "SELECT * { ?s :p ?e SERVICE ?e { ?s :q ?o } }";
    assert!(world.error(literal).contains("no IRI"));
    let silent = "SELECT ?s ?o { ?s :p ?x SERVICE SILENT ?e { ?s :q ?o } }";
    assert_eq!(world.rows(silent), [":s1 -", ":s2 -", ":s3 -"]);
}

/// It is done again as a whole elsewhere, and each endpoint is asked once.
#[test]
fn nobody_is_asked_by_a_thread_that_must_not_block() {
    let world = world(":a :p 1 .", &[":a :q 2 ."]);
    let query = "SELECT * { ?a ?p 1 SERVICE <http://0/> { ?a ?q ?o } }";
    let run = || {
        let database = &world.local.database;
        let mut query = database.prepare(query, &QueryOptions::default())?;
        while !matches!(query.next()?, stoa_executor::Step::Done) {}
        Ok::<_, Error>(())
    };
    // All that has to be read is in memory then.
    run().unwrap();
    assert!(nonblocking::run(run).is_none());
    assert_eq!(world.endpoints.requests.load(Ordering::SeqCst), 1);
}

#[test]
fn without_a_fetcher_service_is_refused_unless_it_is_silent() {
    let store = store(None, LOCAL);
    let text = "SELECT * { SERVICE <http://0/> { ?s ?p ?o } }";
    let error = store
        .database
        .query(text, &QueryOptions::default())
        .err()
        .unwrap();
    assert!(matches!(error, Error::ServiceOff));
    assert_eq!(
        error.to_string(),
        "SERVICE is off; allow it with --allow-service PREFIX"
    );
    // SPARQL 1.1 Federated Query, section 2.1: SILENT leaves a single solution without bindings.
    let silent = "SELECT * { SERVICE SILENT <http://0/> { ?s ?p ?o } }";
    let result = store.database.query(silent, &QueryOptions::default());
    let QueryResult::Solutions(solutions) = result.unwrap() else {
        panic!("a SELECT gives solutions");
    };
    let solutions: Vec<_> = solutions.map(|solution| solution.unwrap()).collect();
    assert_eq!(solutions.len(), 1);
    assert!(solutions[0].values().iter().all(Option::is_none));
}

#[test]
fn an_endpoint_that_never_answers_ends_with_the_query() {
    let world = world(LOCAL, &REMOTE);
    let query = "SELECT * { ?s :p ?x SERVICE <http://never/> { ?s :q ?o } }";
    let options = QueryOptions {
        timeout: Some(Duration::from_millis(50)),
        ..QueryOptions::default()
    };
    let error = world.try_rows(query, &options).unwrap_err();
    assert!(matches!(error, Error::Timeout), "{error}");
    let cancel = CancelHandle::new();
    let options = QueryOptions {
        cancel: cancel.clone(),
        ..QueryOptions::default()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while world.endpoints.unanswered.lock().unwrap().len() < 2 {
                std::thread::yield_now();
            }
            cancel.cancel();
        });
        let error = world.try_rows(query, &options).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
    });
    let unanswered = world.endpoints.unanswered.lock().unwrap();
    assert!(
        unanswered
            .iter()
            .all(|response| response.demand().is_lost())
    );
}

#[test]
fn the_plan_shows_what_is_asked() {
    let world = world(LOCAL, &REMOTE);
    let query = "SELECT ?x ?y { ?s <http://a/p> ?x SERVICE SILENT <http://0/> { ?s <http://a/q> ?y ; <http://a/r> ?unused } }";
    let query = world
        .local
        .database
        .prepare(query, &QueryOptions::default())
        .unwrap();
    let plan = query.explain();
    assert!(
        plan.contains("service silent <http://0/> for ?s gives ?y { ?s <http://a/q> ?y ."),
        "{plan}"
    );
    // Literals with quotes and the like go there and back.
    let rows = world
        .rows("SELECT ?t { SERVICE <http://1/> { :s3 :t ?t } SERVICE <http://1/> { ?u :t ?t } }");
    assert_eq!(rows, ["a\"b\n"]);
}
