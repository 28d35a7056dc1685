//! Updates through the library: what they change, what they refuse, and that they change all or nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use stoa_database::federation::{Fetch, FetchMethod, FetchRequest, Response};
use stoa_database::oxrdf::{GraphName, NamedNode, Term, Variable};
use stoa_database::{
    Access, CancelHandle, Clock, Database, DocumentOptions, DumpFormat, Error, GraphFormat, Input,
    OpenOptions, QueryOptions, QueryResult, Runtime, RuntimeOptions, TransactionOptions,
    UpdateOptions, UpdateSummary,
};

struct World {
    database: Database,
    _folder: tempfile::TempDir,
}

fn world_with(options: RuntimeOptions) -> World {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(options.memory_bytes.unwrap_or(128 << 20)),
        threads: Some(1),
        seed: Some(1),
        ..options
    })
    .unwrap();
    let open = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &open).unwrap();
    World {
        database,
        _folder: folder,
    }
}

fn world() -> World {
    world_with(RuntimeOptions::default())
}

const PREFIX: &str = "PREFIX : <http://a/> ";

impl World {
    fn try_update(&self, text: &str) -> Result<UpdateSummary, Error> {
        let text = format!("{PREFIX}{text}");
        self.database.update(&text, &UpdateOptions::default())
    }

    /// Quads that were added and removed.
    fn update(&self, text: &str) -> (u64, u64) {
        let done = self.try_update(text);
        let done = done.unwrap_or_else(|error| panic!("{text}: {error}"));
        (done.added, done.removed)
    }

    fn ask(&self, pattern: &str) -> bool {
        let text = format!("{PREFIX}ASK {{ {pattern} }}");
        match self
            .database
            .query(&text, &QueryOptions::default())
            .unwrap()
        {
            QueryResult::Boolean(answer) => answer,
            _ => unreachable!(),
        }
    }

    /// The only value of `?n`.
    fn number(&self, query: &str) -> i64 {
        let text = format!("{PREFIX}{query}");
        let QueryResult::Solutions(mut rows) = self
            .database
            .query(&text, &QueryOptions::default())
            .unwrap()
        else {
            unreachable!()
        };
        let row = rows.next().unwrap().unwrap();
        let text = row.get("n").unwrap().to_string();
        text.split('"').nth(1).unwrap().parse().unwrap()
    }

    fn quads(&self) -> Vec<String> {
        let mut out = Vec::new();
        let never = CancelHandle::new();
        self.database
            .dump(DumpFormat::NQuads, &mut out, &never)
            .unwrap();
        let text = String::from_utf8(out).unwrap().replace("http://a/", "");
        text.lines().map(str::to_owned).collect()
    }

    fn exists(&self, graph: &str) -> bool {
        let graph = NamedNode::new(format!("http://a/{graph}")).unwrap();
        self.database.graph_exists(&graph).unwrap()
    }
}

/// As the protocol of RDF4J sends them.
#[test]
fn variables_have_values_from_outside() {
    let world = world();
    world.update("INSERT DATA { :a :p 1 . :b :p 2 . :c :p 3 }");
    let with = |bindings: &[(&str, &str)], text: &str| {
        let value = |(name, value): &(&str, &str)| {
            let value = value.replace("<", "<http://a/");
            (
                Variable::new_unchecked(*name),
                Term::from_str(&value).unwrap(),
            )
        };
        let options = UpdateOptions {
            bindings: bindings.iter().map(value).collect(),
            ..UpdateOptions::default()
        };
        let done = world.database.update(&format!("{PREFIX}{text}"), &options);
        done.map(|done| (done.added, done.removed))
    };
    assert_eq!(
        with(&[("s", "<a>")], "DELETE WHERE { ?s :p ?o }").unwrap(),
        (0, 1)
    );
    let rename = "DELETE { ?s ?p ?o } INSERT { ?s ?q ?o } WHERE { ?s ?p ?o FILTER(?s != ?not) }";
    assert_eq!(
        with(&[("q", "<q>"), ("not", "<c>")], rename).unwrap(),
        (1, 1)
    );
    assert!(world.ask(":b :q 2 . :c :p 3"));
    let insert = "INSERT { ?x :r 'new' } WHERE { }";
    assert_eq!(
        with(&[("x", "<x>"), ("unused", "<y>")], insert).unwrap(),
        (1, 0)
    );
    assert_eq!(with(&[("s", "<a>")], "CLEAR ALL").unwrap(), (0, 3));
    let blank = with(&[("s", "_:b1")], "DELETE WHERE { ?s ?p ?o }");
    assert!(matches!(blank, Err(Error::Unsupported(_))), "{blank:?}");
}

#[test]
fn what_is_told_is_what_was_changed() {
    let world = world();
    let first = world.database.commit();
    let text = "INSERT DATA { :s :p 1, 2, 2 . GRAPH :g { :s :p 1 } }";
    let done = world.try_update(text).unwrap();
    assert_eq!((done.added, done.removed, done.commit), (3, 0, first + 1));
    assert_eq!(world.database.commit(), first + 1);
    // Nothing new: no commit.
    let done = world.try_update(text).unwrap();
    assert_eq!((done.added, done.removed, done.commit), (0, 0, first + 1));
    let text = "DELETE DATA { :s :p 1, 7 . :nobody :p 'nothing like it' . GRAPH :g { :s :p 2 } }";
    assert_eq!(world.update(text), (0, 1));
    assert_eq!(
        world.quads(),
        [
            "<s> <p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer> <g> .",
            "<s> <p> \"2\"^^<http://www.w3.org/2001/XMLSchema#integer> .",
        ]
    );
    // What is undone within a request was not changed by it.
    let text = "INSERT DATA { :a :b :c } ; DELETE WHERE { :a ?p ?o } ; DELETE DATA { :s :p 2 } ; INSERT DATA { :s :p 2 }";
    assert_eq!(world.update(text), (0, 0));
    assert_eq!(world.update(""), (0, 0));
}

#[test]
fn operations_see_those_before_them_and_not_themselves() {
    let world = world();
    world.update("INSERT DATA { :n :value 1 }");
    let step =
        "DELETE { :n :value ?v } INSERT { :n :value ?w } WHERE { :n :value ?v BIND(?v + 1 AS ?w) }";
    assert_eq!(world.update(&[step; 5].join(" ; ")), (1, 1));
    assert_eq!(world.number("SELECT ?n { :n :value ?n }"), 6);
    // New terms are known to the operations that follow.
    let text = "INSERT DATA { :x :name 'a name that is long and new' } ;
                INSERT { ?x :also ?name } WHERE { ?x :name ?name FILTER(STRSTARTS(?name, 'a name that')) } ;
                INSERT { ?x :both <<( ?x :name ?name )>> } WHERE { ?x :also ?name }";
    assert_eq!(world.update(text), (3, 0));
    assert!(world.ask(":x :both <<( :x :name 'a name that is long and new' )>>"));
}

#[test]
fn blank_nodes_of_templates_are_new_for_each_solution() {
    let world = world();
    world.update("INSERT DATA { _:x :p 1 . _:x :p 2 . _:y :p 3 }");
    assert_eq!(
        world.number("SELECT (COUNT(DISTINCT ?s) AS ?n) { ?s :p ?o }"),
        2
    );
    let text = "INSERT { _:new :of ?o ; :again [ :o ?o ] } WHERE { ?s :p ?o }";
    assert_eq!(world.update(text), (9, 0));
    assert_eq!(
        world.number("SELECT (COUNT(DISTINCT ?b) AS ?n) { ?b :of ?o }"),
        3
    );
    assert_eq!(
        world.number("SELECT (COUNT(DISTINCT ?b) AS ?n) { ?a :again ?b . ?b :o ?o }"),
        3
    );
    // A node that the query makes is one wherever it shows; stored ones stay what they are.
    let text = "INSERT { ?s :made ?b . ?b :made <<( ?b :by ?s )>> } WHERE { ?s :p ?o BIND(BNODE() AS ?b) }";
    assert_eq!(world.update(text), (6, 0));
    assert_eq!(
        world.number(
            "SELECT (COUNT(*) AS ?n) { ?s :p ?o ; :made ?b . ?b :made ?t FILTER(SUBJECT(?t) = ?b && OBJECT(?t) = ?s) }"
        ),
        5,
        "two solutions share a subject"
    );
    assert_eq!(
        world.update("DELETE WHERE { ?b :made ?t . ?s :made ?b }"),
        (0, 6)
    );
}

#[test]
fn what_is_no_quad_is_left_out() {
    let world = world();
    world.update("INSERT DATA { :s :p 1 , :o . GRAPH :g { :s :q 'graph' } }");
    let text =
        "INSERT { ?o :a 1 . :b ?o 2 . :c :d ?none . GRAPH ?o { :e :f 3 } :g :h <<( ?o :i 4 )>> }
                WHERE { :s :p ?o }";
    assert_eq!(world.update(text), (4, 0));
    assert!(world.ask(":o :a 1 . :b :o 2 . GRAPH :o { :e :f 3 } :g :h <<( :o :i 4 )>>"));
    assert_eq!(world.update("DELETE { :s :p ?unbound } WHERE {}"), (0, 0));
    // Without variables the template counts once, if there is any solution.
    assert_eq!(
        world.update("INSERT { :t :t :t } WHERE { ?s ?p ?o }"),
        (1, 0)
    );
    assert_eq!(
        world.update("INSERT { :t :t :u } WHERE { ?s :nowhere ?o }"),
        (0, 0)
    );
    assert_eq!(
        world.update("INSERT { [] :t :v } WHERE { :s :p ?o }"),
        (2, 0)
    );
}

#[test]
fn graphs_of_patterns_and_templates() {
    let world = world();
    world.update("INSERT DATA { :s :p 0 . GRAPH :g { :s :p 1 } GRAPH :h { :s :p 2 } }");
    assert_eq!(world.update("WITH :g DELETE { ?s :p ?o } INSERT { ?s :was ?o . GRAPH :h { ?s :x ?o } } WHERE { ?s :p ?o }"), (2, 1));
    assert!(world.ask("GRAPH :g { :s :was 1 } GRAPH :h { :s :x 1 }"));
    assert_eq!(
        world.update("INSERT { ?s :both ?o } USING :g USING :h WHERE { ?s ?p ?o }"),
        (2, 0)
    );
    assert_eq!(
        world.update("INSERT { ?g :named ?o } USING NAMED :h WHERE { GRAPH ?g { ?s :p ?o } }"),
        (1, 0)
    );
    assert_eq!(
        world.update("WITH :nowhere DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }"),
        (0, 0)
    );
    // USING goes before WITH, but templates are WITH's.
    assert_eq!(
        world.update("WITH :g INSERT { ?s :y ?o } USING :h WHERE { ?s :p ?o }"),
        (1, 0)
    );
    assert!(world.ask("GRAPH :g { :s :y 2 }"));
    let update = |text: &str, options: UpdateOptions| {
        let done = world
            .database
            .update(&format!("{PREFIX}{text}"), &options)?;
        Ok::<_, Error>((done.added, done.removed))
    };
    let iri = |name: &str| NamedNode::new(format!("http://a/{name}")).unwrap();
    let of_h = UpdateOptions {
        using_graphs: vec![iri("h")],
        using_named_graphs: vec![iri("g")],
        ..UpdateOptions::default()
    };
    let text = "INSERT { ?s :z ?o . ?g :seen true } WHERE { { ?s :p ?o } UNION { GRAPH ?g { :s ?p ?o } } }";
    assert_eq!(update(text, of_h.clone()).unwrap(), (2, 0));
    assert!(world.ask(":s :z 2 . :g :seen true"));
    for text in [
        "WITH :g DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "DELETE { ?s ?p ?o } USING :g WHERE { ?s ?p ?o }",
    ] {
        let error = update(text, of_h.clone()).unwrap_err();
        assert!(
            matches!(
                error,
                Error::InvalidOption {
                    option: "using-graph-uri",
                    ..
                }
            ),
            "{error}"
        );
    }
    let union = UpdateOptions {
        default_graph_union: true,
        ..UpdateOptions::default()
    };
    assert_eq!(
        update(
            "DELETE { ?s :x ?o } INSERT { :u :u ?o } WHERE { ?s :x ?o }",
            union
        )
        .unwrap(),
        (1, 0)
    );
}

#[test]
fn whole_graphs() {
    let world = world();
    let no_graph = |text: &str| {
        let error = world.try_update(text).unwrap_err();
        assert!(
            matches!(&error, Error::NoSuchGraph { graph } if graph == "http://a/x"),
            "{text}: {error}"
        );
    };
    for text in [
        "CLEAR GRAPH :x",
        "DROP GRAPH :x",
        "ADD :x TO :y",
        "COPY GRAPH :x TO DEFAULT",
        "MOVE :x TO :y",
    ] {
        no_graph(text);
        // The operations before it are undone, too.
        no_graph(&format!("INSERT DATA {{ :s :p :o }} ; {text}"));
        let (first, rest) = text.split_once(' ').unwrap();
        assert_eq!(
            world.update(&format!("{first} SILENT {rest}")),
            (0, 0),
            "{text}"
        );
    }
    assert!(world.quads().is_empty());
    assert_eq!(world.update("CREATE GRAPH :x"), (0, 0));
    assert!(world.exists("x"));
    let error = world.try_update("CREATE GRAPH :x").unwrap_err();
    assert!(
        matches!(&error, Error::GraphExists { graph } if graph == "http://a/x"),
        "{error}"
    );
    world.update("CREATE SILENT GRAPH :x");
    // An empty graph can be copied; it exists then.
    world.update("COPY :x TO :y");
    assert!(world.exists("y"));
    world.update("MOVE :x TO :z");
    assert!(!world.exists("x") && world.exists("z"));

    world.update("INSERT DATA { :d :p 1 . GRAPH :x { :s :p 1, 2 } GRAPH :y { :s :p 2, 3 } }");
    assert_eq!(world.update("ADD :x TO :y"), (1, 0));
    assert_eq!(world.update("COPY :x TO :y"), (0, 1));
    assert_eq!(world.update("COPY :x TO :x"), (0, 0));
    assert_eq!(world.update("MOVE DEFAULT TO :x"), (1, 3));
    assert_eq!(world.update("MOVE :x TO DEFAULT"), (1, 1));
    assert!(!world.exists("x"));
    assert_eq!(world.update("CLEAR GRAPH :y"), (0, 2));
    assert!(world.exists("y"), "CLEAR leaves the graph");
    assert_eq!(
        world.update("INSERT DATA { GRAPH :y { :s :p 1 } GRAPH :v { :s :p 1 } } ; CLEAR NAMED"),
        (0, 0)
    );
    assert!(world.exists("y") && world.exists("v") && world.exists("z"));
    assert_eq!(world.update("DROP NAMED"), (0, 0));
    assert!(!world.exists("y") && !world.exists("v") && !world.exists("z"));
    // SILENT or not, what was created exists without quads.
    world.update("INSERT DATA { GRAPH :y { :s :p 1 } GRAPH :v { :s :p 1 } }");
    world.update("CREATE SILENT GRAPH :y ; DELETE WHERE { GRAPH ?g { ?s ?p ?o } }");
    assert!(world.exists("y") && !world.exists("v"));
    assert_eq!(
        world.update("INSERT DATA { GRAPH :v { :s :p 1 } } ; DROP DEFAULT"),
        (1, 1)
    );
    assert_eq!(world.update("CLEAR ALL"), (0, 1));
    assert!(world.exists("v"));
    assert_eq!(world.update("DROP ALL"), (0, 0));
    assert!(!world.exists("v"));
}

#[test]
fn an_update_that_fails_changes_nothing() {
    let fetch = Arc::new(Documents::default());
    let world = world_with(RuntimeOptions {
        load: Some(Arc::clone(&fetch) as Arc<dyn Fetch>),
        ..RuntimeOptions::default()
    });
    world.update("INSERT DATA { :s :p 1 . GRAPH :g { :s :p 2 } }");
    let (before, commit) = (world.quads(), world.database.commit());
    let insert = "INSERT DATA { :new :p 'something that is not there yet' . GRAPH :h { :s :p 3 } }";
    for last in [
        "CREATE GRAPH :g",
        "DROP GRAPH :nowhere",
        "LOAD <http://docs/missing>",
        "LOAD <http://docs/broken.ttl>",
        "INSERT { ?s :p ?o } WHERE { SERVICE <http://nowhere/> { ?s ?p ?o } }",
        "DELETE WHERE { ?s ?p ?o } ; CLEAR GRAPH :nowhere",
        "MOVE :g TO :x ; ADD :g TO :y",
        "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(<http://a/function>(?o) AS ?x) }",
        "INSERT DATA { :s :p ?o }",
    ] {
        let error = world.try_update(&format!("{insert} ; CLEAR DEFAULT ; {last}"));
        assert!(error.is_err(), "{last}");
        assert_eq!(world.quads(), before, "{last}");
        assert_eq!(world.database.commit(), commit, "{last}");
        assert!(!world.exists("h"), "{last}");
    }
    // In a transaction it undoes what it did itself, and nothing else.
    let mut transaction = world
        .database
        .begin(&TransactionOptions::default())
        .unwrap();
    let options = UpdateOptions::default();
    transaction
        .update("INSERT DATA { <http://a/t> <http://a/p> 1 }", &options)
        .unwrap();
    let text = "INSERT DATA { <http://a/t> <http://a/p> 2 } ; DROP GRAPH <http://a/nowhere>";
    transaction.update(text, &options).unwrap_err();
    let counts = transaction
        .update("DELETE WHERE { <http://a/t> ?p ?o }", &options)
        .unwrap();
    assert_eq!((counts.added, counts.removed), (0, 1));
    transaction
        .update("INSERT DATA { <http://a/t> <http://a/p> 3 }", &options)
        .unwrap();
    assert_eq!(world.quads(), before, "nothing is seen before the commit");
    let done = transaction.commit().unwrap();
    assert_eq!((done.added, done.removed), (1, 0));
    assert!(world.ask(":t :p 3"));
}

#[test]
fn time_and_cancellation_end_an_update() {
    let world = world_with(RuntimeOptions {
        memory_bytes: Some(24 << 20),
        ..RuntimeOptions::default()
    });
    world.update("INSERT DATA { :a :p 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }");
    let before = world.quads();
    let many = "INSERT { ?a :q ?x } WHERE { :a :p ?a , ?b , ?c , ?d , ?e , ?f BIND(CONCAT('a long text ', STR(?a), STR(?b), STR(?c), STR(?d), STR(?e), STR(?f)) AS ?x) BIND(:a AS ?s) }";
    let many = many.replace("{ ?a :q ?x }", "{ :a :q ?x }");
    let run = |options: UpdateOptions| {
        let text = format!("{PREFIX}{many}");
        world.database.update(&text, &options).unwrap_err()
    };
    let error = run(UpdateOptions {
        timeout: Some(Duration::from_nanos(1)),
        ..UpdateOptions::default()
    });
    assert!(matches!(error, Error::Timeout), "{error}");
    let options = UpdateOptions::default();
    options.cancel.cancel();
    let error = run(options);
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert_eq!(world.quads(), before);
}

#[test]
fn triple_terms_have_a_depth() {
    let world = world();
    let nested = |depth: usize| {
        let (open, close) = ("<<( :s :p ".repeat(depth), " )>>".repeat(depth));
        format!("INSERT DATA {{ :s :p {open} 1 {close} }}")
    };
    assert_eq!(world.update(&nested(128)), (1, 0));
    let error = world.try_update(&nested(129)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::LimitExceeded {
                what: "the nesting of triple terms",
                ..
            }
        ),
        "{error}"
    );
    // Nor can it be reached step by step.
    let error = world
        .try_update("INSERT { :s :q <<( :s :p ?o )>> } WHERE { :s :p ?o }")
        .unwrap_err();
    assert!(matches!(error, Error::LimitExceeded { .. }), "{error}");
}

/// Documents by the last part of their IRI, and how often each was fetched.
#[derive(Debug, Default)]
struct Documents {
    fetched: Mutex<BTreeMap<String, usize>>,
}

impl Fetch for Documents {
    fn fetch(&self, request: FetchRequest, response: Response) {
        assert_eq!(request.method, FetchMethod::Get);
        assert!(request.accept.contains("text/turtle"), "{}", request.accept);
        let Some(name) = request.url.strip_prefix("http://docs/") else {
            return response.fail("no such host");
        };
        *self
            .fetched
            .lock()
            .unwrap()
            .entry(name.to_owned())
            .or_default() += 1;
        let turtle = "@prefix : <http://a/> . <#s> :p _:b . _:b :q 1 .";
        let (content_type, text) = match name {
            "turtle" => (Some("text/turtle; charset=utf-8"), turtle.to_owned()),
            "named.ttl?x=1" => (Some("text/plain"), turtle.to_owned()),
            "sniffed" => (None, format!("{turtle}\n")),
            "quads" => (
                Some("application/n-quads"),
                "<http://a/s> <http://a/p> 'x' .\n<http://a/s> <http://a/p> <http://a/o> <http://a/g> .\n"
                    .replace('\'', "\""),
            ),
            "broken.ttl" => (Some("text/turtle"), "@prefix : <http://a/> .\n:s :p 1 .\n:s :p .".to_owned()),
            "html" => (Some("text/html"), "<!doctype html><p>no</p>".to_owned()),
            "large" => (Some("application/n-triples"), "# nothing\n".repeat(8 << 20)),
            _ => return response.fail("it answers 404 Not Found"),
        };
        let read = move || response.read(content_type, text.as_bytes());
        std::thread::Builder::new().spawn(read).unwrap();
    }
}

#[test]
fn documents_are_loaded() {
    let fetch = Arc::new(Documents::default());
    let world = world_with(RuntimeOptions {
        load: Some(Arc::clone(&fetch) as Arc<dyn Fetch>),
        ..RuntimeOptions::default()
    });
    assert_eq!(world.update("LOAD <http://docs/turtle>"), (2, 0));
    assert!(world.ask("<http://docs/turtle#s> :p ?b . ?b :q 1"));
    assert_eq!(
        world.update("LOAD <http://docs/named.ttl?x=1> INTO GRAPH :g"),
        (2, 0)
    );
    assert!(world.ask("GRAPH :g { <http://docs/named.ttl?x=1#s> :p ?b . ?b :q 1 }"));
    assert_eq!(
        world.update("LOAD <http://docs/sniffed> ; LOAD <http://docs/sniffed>"),
        (4, 0)
    );
    assert_eq!(
        world.update("LOAD <http://docs/quads> INTO GRAPH :h"),
        (2, 0)
    );
    assert!(world.ask("GRAPH :h { :s :p 'x' } GRAPH :g { :s :p :o }"));
    let before = world.quads();
    for (name, reason) in [
        (
            "missing",
            "LOAD <http://docs/missing> failed: it answers 404 Not Found",
        ),
        ("broken.ttl", "http://docs/broken.ttl: line 3, column 7: "),
        ("html", "http://docs/html: unknown format"),
    ] {
        let text = format!("LOAD <http://docs/{name}>");
        let error = world.try_update(&text).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
        let text = format!(
            "INSERT DATA {{ :a :b :c }} ; LOAD SILENT <http://docs/{name}> INTO GRAPH :i ; DELETE DATA {{ :a :b :c }}"
        );
        assert_eq!(world.update(&text), (0, 0), "{name}");
    }
    // Alone it may have any length; beside others it is kept.
    assert_eq!(world.update("LOAD <http://docs/large>"), (0, 0));
    let error = world.try_update("LOAD <http://docs/large> ; CLEAR GRAPH :g");
    let error = error.unwrap_err().to_string();
    for part in [
        "LOAD <http://docs/large> failed: it is larger than 32 MB",
        "send the LOAD alone",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(world.quads(), before);
    assert_eq!(fetch.fetched.lock().unwrap()["sniffed"], 2);
}

#[test]
fn without_anything_to_fetch_with_there_is_no_load() {
    let world = world();
    let error = world.try_update("LOAD <http://docs/turtle>").unwrap_err();
    assert!(matches!(error, Error::LoadOff), "{error}");
    assert_eq!(world.update("LOAD SILENT <http://docs/turtle>"), (0, 0));
    let error = world
        .try_update("INSERT { :a :b ?o } WHERE { SERVICE :x { ?s ?p ?o } }")
        .unwrap_err();
    assert!(matches!(error, Error::ServiceOff), "{error}");
}

/// An endpoint that changes the database before it answers, so that whoever asked is in conflict.
#[derive(Debug, Default)]
struct Meddler {
    database: OnceLock<Database>,
    asked: AtomicUsize,
}

impl Fetch for Meddler {
    fn fetch(&self, request: FetchRequest, response: Response) {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let database = self.database.get().unwrap().clone();
        let meddle = move || {
            let text = format!(
                "DELETE {{ <http://a/n> <http://a/value> ?v }} INSERT {{ <http://a/n> <http://a/value> {} }} \
                 WHERE {{ <http://a/n> <http://a/value> ?v }}",
                10 * (asked + 1)
            );
            database.update(&text, &UpdateOptions::default()).unwrap();
            match request.method {
                FetchMethod::Get => {
                    response.read(Some("text/turtle"), &b"<http://a/x> <http://a/doc> 7 ."[..])
                }
                FetchMethod::Post => {
                    response.read(Some("text/tab-separated-values"), &b"?o\n1\n"[..])
                }
            }
        };
        std::thread::Builder::new().spawn(meddle).unwrap();
    }
}

#[test]
fn a_repeated_update_does_not_ask_again() {
    let meddler = Arc::new(Meddler::default());
    let world = world_with(RuntimeOptions {
        fetch: Some(Arc::clone(&meddler) as Arc<dyn Fetch>),
        load: Some(Arc::clone(&meddler) as Arc<dyn Fetch>),
        ..RuntimeOptions::default()
    });
    meddler.database.set(world.database.clone()).unwrap();
    world.update("INSERT DATA { :n :value 1 }");
    let text = "DELETE { :n :value ?v } INSERT { :n :value ?w }
                WHERE { :n :value ?v SERVICE <http://elsewhere/> { ?s :p ?o } BIND(?v + ?o AS ?w) }";
    world.update(text);
    assert_eq!(
        world.number("SELECT ?n { :n :value ?n }"),
        11,
        "the value of the endpoint's own update is seen"
    );
    assert_eq!(meddler.asked.load(Ordering::SeqCst), 1);
    let text = "LOAD <http://elsewhere/doc> ;
                DELETE { :n :value ?v } INSERT { :n :value ?w } WHERE { :n :value ?v . :x :doc ?d BIND(?v + ?d AS ?w) }";
    world.update(text);
    assert_eq!(world.number("SELECT ?n { :n :value ?n }"), 27);
    assert_eq!(meddler.asked.load(Ordering::SeqCst), 2);
}

#[test]
fn updates_in_conflict_all_come_to_an_end() {
    const THREADS: usize = 4;
    const EACH: usize = 25;
    let world = world();
    world.update("INSERT DATA { :n :value 0 }");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let step = "DELETE { :n :value ?v } INSERT { :n :value ?w } WHERE { :n :value ?v BIND(?v + 1 AS ?w) }";
                    assert_eq!(world.update(step), (1, 1));
                }
            });
        }
    });
    let expected = i64::try_from(THREADS * EACH).unwrap();
    assert_eq!(world.number("SELECT ?n { :n :value ?n }"), expected);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story")]
fn documents_go_into_transactions() {
    let world = world();
    let begin = || {
        world
            .database
            .begin(&TransactionOptions::default())
            .unwrap()
    };
    let input = |text: &str| Input::from_bytes("body", text);
    let options = |format| DocumentOptions {
        format: Some(format),
        base: Some("http://a/".to_owned()),
        ..DocumentOptions::default()
    };
    let mut transaction = begin();
    let into_g = DocumentOptions {
        graph: Some(GraphName::NamedNode(NamedNode::new("http://a/g").unwrap())),
        ..options(GraphFormat::TriG)
    };
    let text = "@prefix : <http://a/> . <s> :p _:b . _:b :q 'a text of some length'@EN . :h { <s> :p _:b , <<( _:b :p 1 )>> }";
    let counts = transaction.load(input(text), &into_g).unwrap();
    assert_eq!((counts.added, counts.removed), (4, 0));
    let counts = transaction
        .load(
            input("<s> <p> 1 . <s> <p> 1 ."),
            &options(GraphFormat::Turtle),
        )
        .unwrap();
    assert_eq!(counts.added, 1);
    assert_eq!(transaction.commit().unwrap().added, 5);
    assert!(world.ask("GRAPH :g { :s :p ?b . ?b :q 'a text of some length'@en } GRAPH :h { :s :p ?b , <<( ?b :p 1 )>> }"));
    let before = world.quads();

    // A mistake in the last of many lines: all of the document is taken back, by line and column.
    let mut transaction = begin();
    transaction
        .load(input("<s> <p> 2 ."), &options(GraphFormat::Turtle))
        .unwrap();
    let mut lines: String = (0..70_000)
        .map(|i| format!("<http://a/s{i}> <http://a/p> \"{i}\" .\n"))
        .collect();
    lines.push_str("<http://a/s> <http://a/p> oops .\n");
    let error = transaction
        .load(input(&lines), &options(GraphFormat::NTriples))
        .unwrap_err();
    let Error::Data(error) = error else {
        panic!("{error}")
    };
    assert_eq!((error.line, error.column), (70_001, 27));
    assert_eq!(transaction.commit().unwrap().added, 1);
    assert_eq!(world.update("DELETE DATA { :s :p 2 }"), (0, 1));
    assert_eq!(world.quads(), before);

    // What was shown can be sent back: the same nodes.
    let shown = world
        .quads()
        .join("\n")
        .replace("<s>", "<http://a/s>")
        .replace("<p>", "<http://a/p>")
        .replace("<q>", "<http://a/q>")
        .replace("<g>", "<http://a/g>")
        .replace("<h>", "<http://a/h>");
    let kept = DocumentOptions {
        keep_blank_nodes: true,
        ..options(GraphFormat::NQuads)
    };
    let mut transaction = begin();
    assert_eq!(transaction.load(input(&shown), &kept).unwrap().added, 0);
    let counts = transaction
        .load(input(&shown), &options(GraphFormat::NQuads))
        .unwrap();
    assert_eq!(counts.added, 4, "other nodes without the option");
    drop(transaction);
    let mut transaction = begin();
    let removed = DocumentOptions {
        remove: true,
        ..kept
    };
    assert_eq!(
        transaction.load(input(&shown), &removed).unwrap().removed,
        5
    );
    assert_eq!(transaction.commit().unwrap().removed, 5);
    assert!(world.quads().is_empty());
}

#[test]
fn a_document_that_is_too_large_says_what_to_do() {
    let world = world_with(RuntimeOptions {
        memory_bytes: Some(20 << 20),
        ..RuntimeOptions::default()
    });
    let lines: String = (0..300_000)
        .map(|i| format!("<http://a/subject/{i}> <http://a/p> <http://a/object/{i}> .\n"))
        .collect();
    let mut transaction = world
        .database
        .begin(&TransactionOptions::default())
        .unwrap();
    let options = DocumentOptions::default();
    let error = transaction
        .load(Input::from_bytes("body.nt", lines), &options)
        .unwrap_err();
    assert!(matches!(error, Error::MemoryExceeded { .. }), "{error}");
    assert!(error.to_string().contains("`stoa load`"), "{error}");
    let text = "INSERT DATA { <http://a/s> <http://a/p> 1 }";
    let counts = transaction.update(text, &UpdateOptions::default()).unwrap();
    assert_eq!(counts.added, 1);
}

/// A clock on which much time goes by at one of the times that somebody looks.
#[derive(Debug)]
struct Late {
    looks: AtomicUsize,
    from: AtomicUsize,
}

impl Clock for Late {
    fn monotonic(&self) -> Duration {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let is_late = looks >= self.from.load(Ordering::Relaxed);
        Duration::from_secs(if is_late { 3_600 } else { 0 })
    }

    fn now(&self) -> Duration {
        self.monotonic()
    }
}

/// Also while what its patterns gave is changed: what can be timed out can be ended.
#[test]
fn an_update_can_be_ended_until_its_commit_is_decided() {
    let clock = Arc::new(Late {
        looks: AtomicUsize::new(0),
        from: AtomicUsize::new(usize::MAX),
    });
    let world = world_with(RuntimeOptions {
        clock: Some(Arc::clone(&clock) as Arc<dyn Clock>),
        ..RuntimeOptions::default()
    });
    let numbers: String = (0..250).map(|number| format!("{number} ")).collect();
    let update = |template: &str| {
        format!(
            "{PREFIX} INSERT {{ {template} }} WHERE {{ VALUES ?a {{ {numbers} }} VALUES ?b {{ {numbers} }} \
             BIND(IRI(CONCAT('http://a/', STR(?a))) AS ?s) }}"
        )
    };
    let run = |text: &str, from: usize| {
        let options = UpdateOptions {
            timeout: Some(Duration::from_secs(60)),
            ..UpdateOptions::default()
        };
        clock.looks.store(0, Ordering::Relaxed);
        clock.from.store(from, Ordering::Relaxed);
        let done = world.database.update(text, &options);
        clock.from.store(usize::MAX, Ordering::Relaxed);
        (done, clock.looks.load(Ordering::Relaxed))
    };
    // The second time the plan is there. As many solutions, and one quad.
    let one = update(":s :p 1");
    run(&one, usize::MAX).0.unwrap();
    let of_one = run(&one, usize::MAX).1;
    let insert = update("?s :p ?b");
    run(&insert, usize::MAX).0.unwrap();
    let clear = || {
        world
            .database
            .update("CLEAR ALL", &UpdateOptions::default())
            .unwrap()
    };
    clear();
    let of_all = run(&insert, usize::MAX).1;
    clear();
    // While 62,500 quads are looked up, 8,192 at a time.
    assert!(of_all >= of_one + 7, "{of_one} and {of_all} times");
    for from in of_one..of_one + 5 {
        let before = world.database.commit();
        let ended = run(&insert, from).0;
        assert!(matches!(ended, Err(Error::Timeout)), "{from}: {ended:?}");
        let left = (world.database.commit(), world.database.quads());
        assert_eq!(left, (before, 0));
    }
    assert_eq!(run(&insert, of_all).0.unwrap().added, 62_500);
}
