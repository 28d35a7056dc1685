//! The public API from end to end: load, query, dump, reopen, and what goes wrong.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and make files"
)]

use std::fs;
use std::io::Write as _;
use std::path::Path;

use oxrdf::dataset::CanonicalizationAlgorithm;
use oxrdf::{BlankNode, Dataset, Literal, Variable};
use stoa_database::{
    Access, CancelHandle, Database, DumpFormat, Error, GraphFormat, Input, LoadOptions,
    LoadSummary, NoteKind, OpenOptions, Query, QueryOptions, QueryResult, Runtime, RuntimeOptions,
};
use tempfile::TempDir;

fn runtime() -> Runtime {
    Runtime::new(RuntimeOptions {
        memory_bytes: Some(256 << 20),
        threads: Some(2),
        seed: Some(1),
        ..RuntimeOptions::default()
    })
    .unwrap()
}

const WRITING: OpenOptions = OpenOptions {
    access: Access::Exclusive,
    create: true,
};

fn open(path: &Path) -> Database {
    Database::open(&runtime(), path.join("db"), &WRITING).unwrap()
}

fn new() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    (folder, database)
}

fn load(database: &Database, name: &str, text: &str) -> Result<LoadSummary, Error> {
    let inputs = vec![Input::from_bytes(name, text)];
    load_with(
        database,
        LoadOptions {
            inputs,
            ..LoadOptions::default()
        },
    )
}

fn load_with(database: &Database, options: LoadOptions) -> Result<LoadSummary, Error> {
    database.load(options, &())
}

fn dump(database: &Database, format: DumpFormat) -> String {
    let mut out = Vec::new();
    let quads = database
        .dump(format, &mut out, &CancelHandle::new())
        .unwrap();
    assert_eq!(quads, database.quads());
    String::from_utf8(out).unwrap()
}

fn dataset(format: GraphFormat, text: &str) -> Dataset {
    let mut dataset: Dataset = match format {
        GraphFormat::NQuads => oxttl::NQuadsParser::new()
            .for_slice(text)
            .collect::<Result<_, _>>()
            .unwrap(),
        _ => oxttl::TriGParser::new()
            .for_slice(text)
            .collect::<Result<_, _>>()
            .unwrap(),
    };
    dataset.canonicalize(CanonicalizationAlgorithm::Unstable);
    dataset
}

/// The solutions as lines of N-Triples terms, sorted.
fn ask(database: &Database, text: &str) -> Vec<String> {
    ask_with(database, text, &QueryOptions::default()).unwrap()
}

fn ask_with(database: &Database, text: &str, options: &QueryOptions) -> Result<Vec<String>, Error> {
    let mut lines: Vec<String> = match database.query(text, options)? {
        QueryResult::Boolean(value) => vec![value.to_string()],
        QueryResult::Graph(triples) => triples
            .map(|triple| triple.map(|t| t.to_string()))
            .collect::<Result<_, _>>()?,
        QueryResult::Solutions(solutions) => solutions
            .map(|solution| {
                solution.map(|s| {
                    let terms = s.values().iter().map(|term| match term {
                        Some(term) => term.to_string(),
                        None => "-".to_owned(),
                    });
                    terms.collect::<Vec<_>>().join(" ")
                })
            })
            .collect::<Result<_, _>>()?,
    };
    lines.sort();
    Ok(lines)
}

const QUADS: &str = concat!(
    "<http://a/s> <http://a/p> \"01\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n",
    "<http://a/s> <http://a/p> \"1234567890123456789012345678901234567890\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n",
    "<http://a/s> <http://a/p> \"48.85\"^^<http://www.w3.org/2001/XMLSchema#decimal> <http://a/g> .\n",
    "<http://a/s> <http://a/p> \"1.0E2\"^^<http://www.w3.org/2001/XMLSchema#double> <http://a/g> .\n",
    "<http://a/s> <http://a/p> \"2024-02-29T12:00:00+01:00\"^^<http://www.w3.org/2001/XMLSchema#dateTime> .\n",
    "<http://a/s> <http://a/p> \"\\u0000\\u0001\\t\\\"\\\\ \u{e9}\u{1f600}\\r\\n\" .\n",
    "<http://a/s> <http://a/p> \"chat\"@fr <http://a/g> .\n",
    "<http://a/s> <http://a/p> \"chat\"@fr--rtl <http://a/g> .\n",
    "<http://a/s> <http://a/p> \"x\"^^<http://a/datatype> .\n",
    "<http://a/s> <http://a/p> \"\" .\n",
    "<http://a/s> <http://a/p> \"false\"^^<http://www.w3.org/2001/XMLSchema#boolean> .\n",
    "_:a <http://a/p> _:b <http://a/g> .\n",
    "_:b <http://a/q> _:a _:g .\n",
    "_:a <http://a/p> <<( _:a <http://a/p> <<( _:b <http://a/q> \"deep\" )>> )>> .\n",
);

#[test]
fn a_dump_equals_the_load() {
    let (folder, database) = new();
    assert!(database.is_new());
    let summary = load(&database, "x.nq", QUADS).unwrap();
    assert_eq!((summary.quads_read, summary.quads_new), (14, 14));
    let expected = dataset(GraphFormat::NQuads, QUADS);
    let nq = dump(&database, DumpFormat::NQuads);
    assert_eq!(dataset(GraphFormat::NQuads, &nq), expected, "{nq}");
    let trig = dump(&database, DumpFormat::TriG);
    assert_eq!(dataset(GraphFormat::TriG, &trig), expected, "{trig}");
    drop(database);
    let reopened = open(folder.path());
    assert!(!reopened.is_new());
    assert_eq!(dump(&reopened, DumpFormat::NQuads), nq);
    assert_eq!(dump(&reopened, DumpFormat::TriG), trig);
}

#[test]
fn many_graphs_are_dumped() {
    use std::fmt::Write as _;
    let (_folder, database) = new();
    let mut text = String::new();
    for i in 0..20_000 {
        let graph = i % 97 * (i % 3);
        writeln!(
            text,
            "<http://a/{i}> <http://a/p> \"{}\" <http://a/g{graph}> .",
            i % 11
        )
        .unwrap();
        writeln!(text, "<http://a/{}> <http://a/q> <http://a/{i}> .", i % 100).unwrap();
    }
    load(&database, "x.nq", &text).unwrap();
    let expected = dataset(GraphFormat::NQuads, &text);
    let trig = dump(&database, DumpFormat::TriG);
    assert_eq!(dataset(GraphFormat::TriG, &trig), expected);
    // One block for each named graph.
    assert_eq!(trig.matches(" {").count(), database_graphs(&expected));
    let nq = dump(&database, DumpFormat::NQuads);
    assert_eq!(dataset(GraphFormat::NQuads, &nq), expected);
}

fn database_graphs(dataset: &Dataset) -> usize {
    let mut names: Vec<String> = dataset
        .iter()
        .filter(|quad| !quad.graph_name.is_default_graph())
        .map(|quad| quad.graph_name.to_string())
        .collect();
    names.sort();
    names.dedup();
    names.len()
}

#[test]
fn loading_again_adds_blank_nodes_only() {
    let (_folder, database) = new();
    let text = "<http://a/s> <http://a/p> \"some text\" .\n_:x <http://a/p> 1 .\n";
    assert!(load(&database, "x.nt", text).is_err());
    assert_eq!((database.quads(), database.commit()), (0, 0));
    let text = "<http://a/s> <http://a/p> \"some text\" .\n_:x <http://a/p> \"some text\" .\n";
    let first = load(&database, "x.nt", text).unwrap();
    assert_eq!(
        (first.quads_read, first.quads_new, first.terms_new),
        (2, 2, 3)
    );
    let again = load(&database, "x.nt", text).unwrap();
    assert_eq!(
        (again.quads_read, again.quads_new, again.terms_new),
        (2, 1, 0)
    );
    assert!(again.commit > first.commit);
    assert_eq!(database.quads(), 3);
    let more = load(
        &database,
        "y.nt",
        "<http://a/s> <http://a/p> \"some text\" .\n",
    )
    .unwrap();
    assert_eq!((more.quads_new, database.quads()), (0, 3));
}

#[test]
fn files_and_folders_are_loaded_in_parallel() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("more")).unwrap();
    for i in 0..30 {
        let file = fs::File::create(data.join(format!("{i}.nt.gz"))).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        for j in 0..500 {
            writeln!(
                gzip,
                "<http://a/{i}> <http://a/p> \"number {}\" .",
                i * 100 + j
            )
            .unwrap();
        }
        gzip.finish().unwrap();
    }
    fs::write(data.join("more/x.ttl"), "<#x> a <y> .").unwrap();
    fs::write(data.join("more/x.doc"), "no").unwrap();
    let database = open(folder.path());
    let summary = load_with(
        &database,
        LoadOptions {
            inputs: vec![data.as_path().to_owned().into()],
            ..LoadOptions::default()
        },
    )
    .unwrap();
    assert_eq!((summary.inputs, summary.quads_new), (31, 30 * 500 + 1));
    let found = ask(&database, "SELECT ?s ?o { ?s a ?o }");
    let base = format!("file://{}/more", data.display());
    assert_eq!(found, [format!("<{base}/x.ttl#x> <{base}/y>")]);
}

#[test]
fn triples_go_to_the_graph_that_is_named() {
    let (_folder, database) = new();
    let text = "<http://a/s> <http://a/p> \"1\" . <http://a/g> { <http://a/s> <http://a/p> \"2\" }";
    load_with(
        &database,
        LoadOptions {
            inputs: vec![Input::from_bytes("x.trig", text)],
            graph: Some("http://a/target".to_owned()),
            ..LoadOptions::default()
        },
    )
    .unwrap();
    let nq = dump(&database, DumpFormat::NQuads);
    assert_eq!(
        nq,
        "<http://a/s> <http://a/p> \"1\" <http://a/target> .\n\
         <http://a/s> <http://a/p> \"2\" <http://a/g> .\n"
    );
    for (graph, base) in [(Some("target"), None), (None, Some("x y"))] {
        let error = load_with(
            &database,
            LoadOptions {
                graph: graph.map(str::to_owned),
                base: base.map(str::to_owned),
                ..LoadOptions::default()
            },
        );
        assert!(matches!(error, Err(Error::InvalidOption { .. })));
    }
}

#[test]
fn a_failed_load_leaves_the_database_as_it_was() {
    let (folder, database) = new();
    load(
        &database,
        "x.nt",
        "<http://a/s> <http://a/p> \"before\" .\n",
    )
    .unwrap();
    let before = (database.commit(), dump(&database, DumpFormat::NQuads));
    let good = "<http://a/s> <http://a/p> \"good\" .\n".repeat(50_000);
    for (name, text, message) in [
        (
            "x.nt",
            good.clone() + "<http://a/s p> <http://a/p> 1 .\n",
            "x.nt: line 50001, column 1: invalid IRI: it contains a space",
        ),
        (
            "x.ttl",
            good + "<http://a/s> <http://a/p> .\n",
            "x.ttl: line 50001, column ",
        ),
        ("x.txt", "what is this".to_owned(), "x.txt: unknown format"),
    ] {
        let error = load(&database, name, &text).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert_eq!(
            (database.commit(), dump(&database, DumpFormat::NQuads)),
            before
        );
    }
    let missing = folder.path().join("missing.nt");
    let error = load_with(
        &database,
        LoadOptions {
            inputs: vec![missing.into()],
            ..LoadOptions::default()
        },
    );
    assert!(matches!(error, Err(Error::Input { .. })));
    let cancel = CancelHandle::new();
    cancel.cancel();
    let error = load_with(
        &database,
        LoadOptions {
            inputs: vec![Input::from_bytes("x.nq", QUADS)],
            cancel,
            ..LoadOptions::default()
        },
    );
    assert!(matches!(error, Err(Error::Cancelled)), "{error:?}");
    assert_eq!(
        (database.commit(), dump(&database, DumpFormat::NQuads)),
        before
    );
    drop(database);
    let reopened = open(folder.path());
    assert_eq!(
        (reopened.commit(), dump(&reopened, DumpFormat::NQuads)),
        before
    );
}

#[test]
fn folders_that_are_no_database_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let reading = OpenOptions::default();
    let error = Database::open(&runtime(), &path, &reading).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    fs::write(path.join("thesis.doc"), "x").unwrap();
    let error = Database::open(&runtime(), &path, &WRITING).unwrap_err();
    assert!(
        matches!(
            error,
            Error::ForeignFiles { .. } | Error::NotADatabase { .. }
        ),
        "{error}"
    );
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    let error = Database::open(&runtime(), path.join("a/b"), &WRITING).unwrap_err();
    assert!(!path.join("a").exists(), "{error}");
}

#[test]
fn access_is_shared_or_exclusive() {
    let (folder, database) = new();
    let path = folder.path().join("db");
    let reading = OpenOptions::default();
    let error = Database::open(&runtime(), &path, &reading).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(database);
    let one = Database::open(&runtime(), &path, &reading).unwrap();
    let other = Database::open(&runtime(), &path, &reading).unwrap();
    assert!(matches!(load(&one, "x.nt", ""), Err(Error::ReadOnly)));
    assert!(Database::open(&runtime(), &path, &WRITING).is_err());
    drop((one, other));
    Database::open(&runtime(), &path, &WRITING).unwrap();
}

#[test]
fn queries_are_answered() {
    let (_folder, database) = new();
    let text = "@prefix : <http://a/> .
        :ann :knows :bob, :cyd ; :age 42 ; :name \"Ann\"@en . :bob :age 7 . :cyd :name \"Cyd\" .";
    load(&database, "x.ttl", text).unwrap();
    let prefix = |text: &str| format!("PREFIX : <http://a/> {text}");
    let age = "\"42\"^^<http://www.w3.org/2001/XMLSchema#integer>";
    assert_eq!(ask(&database, &prefix("SELECT ?a { :ann :age ?a }")), [age]);
    assert_eq!(
        ask(
            &database,
            &prefix("SELECT ?x ?a { :ann :knows ?x OPTIONAL { ?x :age ?a } }")
        ),
        [
            "<http://a/bob> \"7\"^^<http://www.w3.org/2001/XMLSchema#integer>",
            "<http://a/cyd> -"
        ]
    );
    assert_eq!(
        ask(&database, &prefix("ASK { ?x :age ?a FILTER(?a > 40) }")),
        ["true"]
    );
    assert_eq!(
        ask(&database, &prefix("ASK { ?x :age ?a FILTER(?a > 50) }")),
        ["false"]
    );
    assert_eq!(
        ask(
            &database,
            &prefix("CONSTRUCT { ?x :known :yes } { ?y :knows ?x }")
        ),
        [
            "<http://a/bob> <http://a/known> <http://a/yes>",
            "<http://a/cyd> <http://a/known> <http://a/yes>"
        ]
    );
    assert_eq!(
        ask(&database, &prefix("DESCRIBE :cyd")),
        ["<http://a/cyd> <http://a/name> \"Cyd\""]
    );
    for batch_rows in [1, 3] {
        let options = QueryOptions {
            batch_rows: Some(batch_rows),
            ..QueryOptions::default()
        };
        let count = ask_with(&database, "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }", &options).unwrap();
        assert_eq!(count, ["\"6\"^^<http://www.w3.org/2001/XMLSchema#integer>"]);
    }
}

#[test]
fn datasets_can_be_chosen() {
    let (_folder, database) = new();
    load(&database, "x.nq", "<http://a/s> <http://a/p> \"1\" <http://a/g> .\n<http://a/s> <http://a/p> \"2\" <http://a/h> .\n").unwrap();
    let text = "SELECT ?o { ?s ?p ?o }";
    let with = |options: &QueryOptions| ask_with(&database, text, options).unwrap();
    assert_eq!(with(&QueryOptions::default()), [""; 0]);
    let query = database.prepare(text, &QueryOptions::default()).unwrap();
    let kinds = |query: &Query| {
        query
            .notes()
            .iter()
            .map(|note| note.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&query), [NoteKind::DefaultGraphEmpty]);
    let union = QueryOptions {
        default_graph_union: true,
        ..QueryOptions::default()
    };
    assert_eq!(with(&union), ["\"1\"", "\"2\""]);
    assert!(database.prepare(text, &union).unwrap().notes().is_empty());
    let one = QueryOptions {
        default_graphs: vec!["http://a/h".to_owned(), "http://a/unknown".to_owned()],
        ..QueryOptions::default()
    };
    assert_eq!(with(&one), ["\"2\""]);
    let named = QueryOptions {
        named_graphs: vec!["http://a/g".to_owned()],
        ..QueryOptions::default()
    };
    assert_eq!(with(&named), [""; 0]);
    let text = "SELECT ?g ?o { GRAPH ?g { ?s ?p ?o } }";
    assert_eq!(
        ask_with(&database, text, &named).unwrap(),
        ["<http://a/g> \"1\""]
    );
    assert_eq!(
        ask(&database, text),
        ["<http://a/g> \"1\"", "<http://a/h> \"2\""]
    );
}

#[test]
fn wrong_queries_are_refused() {
    let (_folder, database) = new();
    let failing = |text: &str| {
        let result = database.query(text, &QueryOptions::default());
        result.err().unwrap_or_else(|| panic!("{text} is answered"))
    };
    assert!(matches!(failing("SELECT"), Error::Syntax(_)));
    assert!(matches!(
        failing("SELECT * { SERVICE <http://a/> { ?s ?p ?o } }"),
        Error::ServiceOff
    ));
    let deep = format!("SELECT * {}{}", "{".repeat(10_000), "}".repeat(10_000));
    assert!(matches!(
        failing(&deep),
        Error::LimitExceeded { limit: 1_000, .. }
    ));
    let base = QueryOptions {
        base: Some("x".to_owned()),
        ..QueryOptions::default()
    };
    assert!(matches!(
        database.query("ASK {}", &base),
        Err(Error::InvalidOption { .. })
    ));
}

#[test]
fn queries_can_be_ended() {
    use std::fmt::Write as _;
    let (_folder, database) = new();
    let mut text = String::new();
    for i in 0..3_000 {
        writeln!(text, "<http://a/{i}> <http://a/p> \"{i}\" .").unwrap();
    }
    load(&database, "x.nt", &text).unwrap();
    let endless = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }";
    let short = QueryOptions {
        timeout: Some(std::time::Duration::from_millis(50)),
        ..QueryOptions::default()
    };
    let error = ask_with(&database, endless, &short).unwrap_err();
    assert!(matches!(error, Error::Timeout), "{error}");
    let options = QueryOptions::default();
    let cancel = options.cancel.clone();
    let error = std::thread::scope(|scope| {
        let running = scope.spawn(|| ask_with(&database, endless, &options).unwrap_err());
        cancel.cancel();
        running.join().unwrap()
    });
    assert!(matches!(error, Error::Cancelled), "{error}");
}

#[test]
fn info_tells_what_is_there() {
    let (_folder, database) = new();
    let empty = database.info().unwrap();
    assert_eq!(
        (empty.quads, empty.commit, empty.inline_share),
        (0, 0, None)
    );
    load(&database, "x.nq", QUADS).unwrap();
    let info = database.info().unwrap();
    assert_eq!((info.quads, info.named_graphs), (14, 2));
    assert!(info.commit > 0 && info.format_version > 0 && info.quad_format_version > 0);
    // Eleven literals as objects, of which 48.85, 1.0E2, the date, "" and false are inline.
    assert_eq!(info.inline_share, Some(5.0 / 11.0));
    assert_eq!(info.inline_value_share, Some(3.0 / 5.0));
    let names: Vec<&str> = info.permutations.iter().map(|p| p.name.as_str()).collect();
    for name in ["PSOG", "POSG", "SPOG", "OPSG", "GS"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(info.permutations[0].entries, 14);
    assert!(info.permutations.iter().all(|part| part.bytes > 0));
    assert!(info.dictionary.iter().map(|part| part.bytes).sum::<u64>() > 0);
    assert_eq!(info.database_id.len(), 32);
    assert!(info.bytes_per_quad().unwrap() > 0.0);
}

/// As `$x=` in RDF4J's protocol.
#[test]
fn variables_have_values_from_outside() {
    let (_folder, database) = new();
    let data = "@prefix : <http://a/> . :a :p 1 ; :q 'x' . :b :p 2 .";
    load(&database, "x.ttl", data).unwrap();
    let rows = |query: &str, value: u64| {
        let options = QueryOptions {
            bindings: vec![(Variable::new("x").unwrap(), Literal::from(value).into())],
            ..QueryOptions::default()
        };
        let query = format!("PREFIX : <http://a/> {query}");
        match database.query(&query, &options).unwrap() {
            QueryResult::Solutions(solutions) => solutions.map(Result::unwrap).count(),
            QueryResult::Boolean(value) => usize::from(value),
            QueryResult::Graph(triples) => triples.map(Result::unwrap).count(),
        }
    };
    for (query, of_1, of_2) in [
        ("SELECT * { ?s :p ?x }", 1, 1),
        ("SELECT * { ?s :p ?x . ?s :q ?q }", 1, 0),
        ("SELECT ?s { ?s :p ?o FILTER(?o > ?x) }", 1, 0),
        ("SELECT ?x { ?s :p ?o }", 2, 2),
        (
            "SELECT * { ?s :p ?o OPTIONAL { ?s :q ?q FILTER(?x = 1) } FILTER(BOUND(?q)) }",
            1,
            0,
        ),
        (
            "SELECT * { { ?s :p ?o FILTER(?o = ?x) } UNION { ?s :q ?x } }",
            1,
            1,
        ),
        // What has no variable in common with the values is not subtracted because of them.
        ("SELECT * { ?s :p ?o MINUS { ?t :q ?q } }", 2, 2),
        ("SELECT * { ?s :p ?o MINUS { ?s :p ?x } }", 1, 1),
        ("SELECT * { ?s :p ?o FILTER EXISTS { ?s :p ?x } }", 1, 1),
        // A subquery has variables of its own.
        ("SELECT * { { SELECT ?s { ?s :p ?x } } }", 2, 2),
        ("SELECT * { { SELECT ?s ?x { ?s :p ?x } } }", 1, 1),
        ("SELECT * { BIND(1 AS ?x) }", 1, 0),
        (
            "SELECT (COUNT(*) AS ?n) { ?s :p ?o FILTER(?o > ?x) } HAVING(COUNT(*) > 0)",
            1,
            0,
        ),
        ("SELECT DISTINCT ?s { ?s :p ?x } ORDER BY ?s LIMIT 5", 1, 1),
        ("CONSTRUCT { ?s :is ?x } WHERE { ?s :p ?o }", 2, 2),
        ("ASK { ?s :p ?x ; :q ?q }", 1, 0),
    ] {
        assert_eq!(rows(query, 1), of_1, "{query}");
        assert_eq!(rows(query, 2), of_2, "{query}");
    }
    let blank = QueryOptions {
        bindings: vec![(Variable::new("x").unwrap(), BlankNode::default().into())],
        ..QueryOptions::default()
    };
    let refused = database.query("ASK { ?x ?p ?o }", &blank);
    assert!(matches!(refused, Err(Error::Unsupported(_))));
}
