//! Named graphs: a query in one graph reads about as many quads as it is about, however many other
//! graphs there are, and whether they share its subjects or not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use oxrdf::{NamedNode, Term};
use stoa_database::{
    CancelHandle, DumpFormat, GraphFormat, Input, LoadOptions, QueryOptions, QueryResult,
};
use stoa_testsuite::data;
use stoa_testsuite::scratch::Scratch;

/// Rows of an answer, and rows of indexes that were examined for it.
fn ask(scratch: &Scratch, text: &str) -> (u64, u64) {
    let options = QueryOptions::default();
    let mut query = scratch.database().prepare(text, &options).unwrap();
    let mut rows = 0;
    loop {
        match query.next().unwrap() {
            stoa_executor::Step::Batch(batch) => rows += u64::try_from(batch.rows).unwrap(),
            stoa_executor::Step::Yield => {}
            stoa_executor::Step::Done => break,
        }
    }
    let read = query.reads().seq;
    println!("{rows} rows, {read} read: {text}");
    (rows, read)
}

/// The one number that a query answers.
fn number(scratch: &Scratch, text: &str) -> u64 {
    let result = scratch.database().query(text, &QueryOptions::default());
    let QueryResult::Solutions(mut solutions) = result.unwrap() else {
        panic!("{text} has solutions");
    };
    let solution = solutions.next().unwrap().unwrap();
    let Some(Term::Literal(number)) = solution.get("n") else {
        panic!("{text} has a number");
    };
    number.value().parse().unwrap()
}

/// How a query may ask for one graph: the dataset, what stands before the patterns, and behind them.
fn forms(graph: &str) -> [(&'static str, String, String, &'static str); 5] {
    let form = |name, dataset: String, before: String, after| (name, dataset, before, after);
    [
        form("GRAPH", String::new(), format!("GRAPH <{graph}> {{"), "}"),
        form("FROM", format!("FROM <{graph}>"), String::new(), ""),
        form(
            "FROM NAMED",
            format!("FROM NAMED <{graph}>"),
            "GRAPH ?graph {".to_owned(),
            "}",
        ),
        form(
            "VALUES",
            String::new(),
            format!("VALUES ?graph {{ <{graph}> }} GRAPH ?graph {{"),
            "}",
        ),
        form(
            "FILTER",
            String::new(),
            format!("FILTER(?graph = <{graph}>) GRAPH ?graph {{"),
            "}",
        ),
    ]
}

/// Different quads that the answers to these patterns are made of.
fn quads_of_answers(scratch: &Scratch, graph: &str, patterns: &str) -> u64 {
    let text = format!("CONSTRUCT {{ {patterns} }} WHERE {{ GRAPH <{graph}> {{ {patterns} }} }}");
    let result = scratch.database().query(&text, &QueryOptions::default());
    let QueryResult::Graph(triples) = result.unwrap() else {
        panic!("{text} has triples");
    };
    let triples: BTreeSet<String> = triples.map(|triple| triple.unwrap().to_string()).collect();
    u64::try_from(triples.len()).unwrap()
}

/// Asks each list of triple patterns in a graph, in all forms. A query of one pattern reads at most
/// twice the quads that it returns. So does a join of those in `selective`: its answers are made of at
/// least half of the quads that are read. Of other joins that cannot be meant: patterns that match much
/// more than what they have in common are read in sequence, since a look-up for each is dearer. They
/// read at most twice the quads that the patterns match in the graph, each by itself.
fn assert_few_read(
    scratch: &Scratch,
    graph: &str,
    queries: &[Vec<String>],
    selective: &[Vec<String>],
) {
    let all = queries.iter().map(|patterns| (patterns, false));
    for (patterns, is_selective) in all.chain(selective.iter().map(|patterns| (patterns, true))) {
        let joined = patterns.join(" . ");
        let bound = if is_selective || patterns.len() == 1 {
            quads_of_answers(scratch, graph, &joined)
        } else {
            let counts = patterns
                .iter()
                .map(|pattern| quads_of_answers(scratch, graph, pattern));
            counts.sum()
        };
        for (form, dataset, before, after) in forms(graph) {
            let text = format!("SELECT * {dataset} {{ {before} {joined} {after} }}");
            let (rows, read) = ask(scratch, &text);
            assert!(rows > 0, "{text} matches nothing");
            assert!(
                read <= 2 * bound,
                "{form}: {read} quads were read for {bound}: {text}\n{}",
                explained(scratch, &text)
            );
        }
    }
}

/// Asks for a path in a graph, in all forms: at most twice the quads of its predicate are read, even
/// if every node is reached. Between two unknown ends there is a search from each node, which reads
/// the quads behind what it reaches: there may be as many again for each answer.
fn assert_few_read_of_path(scratch: &Scratch, graph: &str, path: &str, predicate: &str) {
    let edges = quads_of_answers(scratch, graph, &format!("?s {predicate} ?o"));
    for (form, dataset, before, after) in forms(graph) {
        let text = format!("SELECT * {dataset} {{ {before} {path} {after} }}");
        let (rows, read) = ask(scratch, &text);
        assert!(rows > 0, "{text} matches nothing");
        let between_unknown = path.starts_with("?s") && path.ends_with("?o");
        let bound = edges + if between_unknown { rows } else { 0 };
        assert!(
            read <= 2 * bound,
            "{form}: {read} quads were read of {edges}: {text}\n{}",
            explained(scratch, &text)
        );
    }
}

fn explained(scratch: &Scratch, text: &str) -> String {
    let query = scratch.database().prepare(text, &QueryOptions::default());
    query.unwrap().explain()
}

/// The graph whose name is the last one.
fn last_graph(scratch: &Scratch) -> NamedNode {
    let result = scratch.database().query(
        "SELECT ?g { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g ORDER BY DESC(?g) LIMIT 1",
        &QueryOptions::default(),
    );
    let QueryResult::Solutions(mut solutions) = result.unwrap() else {
        panic!("solutions");
    };
    let solution = solutions.next().unwrap().unwrap();
    match solution.get("g") {
        Some(Term::NamedNode(graph)) => graph.clone(),
        _ => panic!("a graph has a name"),
    }
}

fn trees(scratch: &Scratch) -> Vec<String> {
    let info = scratch.database().info().unwrap();
    let names = info.permutations.into_iter().map(|part| part.name);
    names.collect()
}

fn assert_sound(scratch: &Scratch) {
    let check = scratch.database().check(&(), &CancelHandle::new()).unwrap();
    assert!(check.problems.is_empty(), "{:?}", check.problems);
}

/// Whether schema.org has its names with `http` or with `https` in this release.
fn scheme_of(scratch: &Scratch, graph: &NamedNode) -> &'static str {
    ["http", "https"]
        .into_iter()
        .find(|scheme| {
            let thing = format!("{scheme}://schema.org/Thing");
            let text = format!("SELECT * {{ GRAPH {graph} {{ <{thing}> ?p ?o }} }} LIMIT 1");
            ask(scratch, &text).0 > 0
        })
        .unwrap()
}

#[test]
fn graphs_that_share_subjects() {
    let Some(folder) = data::datasets() else {
        return;
    };
    let scratch = Scratch::new();
    let options = LoadOptions {
        inputs: vec![Input::Path(folder.join("schemaorg-releases.nq.gz"))],
        ..LoadOptions::default()
    };
    let quads = scratch.database().load(options, &()).unwrap().quads_new;
    assert!(trees(&scratch).iter().any(|name| name == "GPSO"));
    assert_eq!(
        number(
            &scratch,
            "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } }"
        ),
        quads
    );
    let graphs = "SELECT (COUNT(*) AS ?n) { { SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } } } }";
    assert_eq!(number(&scratch, graphs), 30);
    let graph = &last_graph(&scratch);
    let class = "http://www.w3.org/2000/01/rdf-schema#Class";
    let label = "<http://www.w3.org/2000/01/rdf-schema#label>";
    let comment = "<http://www.w3.org/2000/01/rdf-schema#comment>";
    let thing = "schema.org/Thing>";
    let scheme = scheme_of(&scratch, graph);
    let queries = [
        vec!["?s ?p ?o".to_owned()],
        vec![format!("?s {label} ?o")],
        vec![format!("?s a <{class}>")],
        vec![format!("<{scheme}://{thing} ?p ?o")],
        vec![format!("?s ?p <{scheme}://{thing}")],
        vec![format!(
            "?s <{scheme}://schema.org/domainIncludes> <{scheme}://{thing}"
        )],
        vec![format!("?s a <{class}>"), format!("?s {label} ?l")],
        vec![
            format!("?s a <{class}>"),
            format!("?s {label} ?l"),
            format!("?s {comment} ?c"),
        ],
        vec![
            format!("?s <{scheme}://schema.org/domainIncludes> ?c"),
            format!("?c {label} ?l"),
        ],
    ];
    let selective = [
        vec![format!("?s a <{class}>"), "?s ?p ?o".to_owned()],
        vec![
            format!("<{scheme}://{thing} {label} ?l"),
            format!("<{scheme}://{thing} {comment} ?c"),
        ],
        vec![
            format!("?s <{scheme}://schema.org/domainIncludes> <{scheme}://{thing}"),
            format!("?s {label} ?l"),
            format!("?s {comment} ?c"),
        ],
    ];
    assert_few_read(&scratch, graph.as_str(), &queries, &selective);
    let above = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>";
    for path in [
        format!("?s {above}+ <{scheme}://{thing}"),
        format!("<{scheme}://schema.org/Hotel> {above}* ?c"),
        format!("<{scheme}://schema.org/Hotel> {above}/{above} ?c"),
        format!("?s {above}+ ?o"),
    ] {
        assert_few_read_of_path(&scratch, graph.as_str(), &path, above);
    }
    assert_sound(&scratch);
}

/// What the query says of a graph beside its patterns changes what is read, never what is answered.
#[test]
fn graphs_bound_by_the_query() {
    let mut text = String::new();
    for graph in ["a", "b"] {
        for s in 0..3 {
            writeln!(
                text,
                "<http://x/s{s}> <http://x/p> <http://x/s{}> <http://g/{graph}> .",
                s + 1
            )
            .unwrap();
        }
    }
    // An IRI that is in the data, but no graph.
    text += "<http://x/s0> <http://x/p> <http://g/none> <http://g/b> .\n";
    text += "<http://x/s0> <http://x/q> <http://g/a> <http://g/b> .\n";
    let scratch = Scratch::new();
    scratch.load(text, GraphFormat::NQuads, None, None).unwrap();
    let p = "<http://x/p>";
    for group in [
        format!("GRAPH ?g {{ ?s {p} ?o }}"),
        format!("GRAPH ?g {{ ?s {p}* <http://x/s2> }}"),
        format!("GRAPH ?g {{ <http://x/s0> {p}* ?o }}"),
        "GRAPH ?g { }".to_owned(),
        format!("GRAPH ?g {{ ?s {p} ?o OPTIONAL {{ ?o {p} ?e }} }}"),
        format!("GRAPH ?g {{ ?s {p} ?o MINUS {{ ?s <http://x/q> ?g }} }}"),
        format!("?x ?y ?z OPTIONAL {{ GRAPH ?g {{ ?s {p} ?o }} }}"),
        format!("{{ GRAPH ?g {{ ?s {p} ?o }} }} UNION {{ GRAPH ?h {{ ?s {p} ?o }} }}"),
        format!("{{ SELECT ?g ?o {{ GRAPH ?g {{ ?s {p} ?o }} }} ORDER BY ?o LIMIT 3 }}"),
        format!("{{ SELECT (COUNT(*) AS ?n) ?g {{ GRAPH ?g {{ ?s {p} ?o }} }} GROUP BY ?g }}"),
        format!("{{ SELECT (COUNT(?g) AS ?n) {{ GRAPH ?g {{ ?s {p} ?o }} }} }}"),
        format!("GRAPH ?h {{ ?s {p} ?o FILTER EXISTS {{ GRAPH ?g {{ ?s {p} ?o }} }} }}"),
    ] {
        for which in [
            "http://g/a",
            "http://g/b",
            "http://g/none",
            "http://nowhere",
        ] {
            for says in [
                format!("VALUES ?g {{ <{which}> }}"),
                format!("VALUES (?g ?o) {{ (<{which}> UNDEF) (<{which}> <http://x/s1>) }}"),
                format!("FILTER(?g = <{which}>)"),
                format!("FILTER(?g IN (<{which}>))"),
                format!("FILTER(sameTerm(<{which}>, ?g) && isIRI(?g))"),
                format!("OPTIONAL {{ VALUES ?g {{ <{which}> }} }}"),
                format!("{{ BIND(<{which}> AS ?g) }}"),
            ] {
                let text = format!("SELECT * {{ {group} {says} }}");
                let rows = |naive| {
                    let options = QueryOptions {
                        naive,
                        ..QueryOptions::default()
                    };
                    let result = scratch.database().query(&text, &options).unwrap();
                    let QueryResult::Solutions(solutions) = result else {
                        panic!("{text} has solutions");
                    };
                    let rows = solutions.map(|row| format!("{:?}", row.unwrap().values()));
                    let mut rows: Vec<_> = rows.collect();
                    rows.sort();
                    rows
                };
                assert_eq!(rows(false), rows(true), "{text}");
            }
        }
    }
}

/// Predicates of a graph are more than of usual ones, and those of a node few.
#[test]
fn graphs_with_hundreds_of_predicates() {
    let scratch = Scratch::new();
    let mut quads = String::new();
    for graph in 0..12 {
        for subject in 0..2_000 {
            for value in 0..4 {
                writeln!(
                    quads,
                    "<http://a/s{subject}> <http://a/p{}> <http://a/o{}> <http://g/{graph}> .",
                    (subject * 4 + value) % 300,
                    (subject * 7 + value + graph) % 500,
                )
                .unwrap();
            }
        }
    }
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("many", quads)],
        format: Some(GraphFormat::NQuads),
        ..LoadOptions::default()
    };
    scratch.database().load(options, &()).unwrap();
    assert!(trees(&scratch).iter().any(|name| name == "GPSO"));
    let queries = [
        vec!["?s ?p ?o".to_owned()],
        vec!["<http://a/s77> ?p ?o".to_owned()],
        vec!["?s ?p <http://a/o77>".to_owned()],
        vec!["?s <http://a/p7> ?o".to_owned()],
    ];
    assert_few_read(&scratch, "http://g/3", &queries, &[]);
    let explained = |pattern: &str| {
        let text = format!("SELECT * {{ GRAPH <http://g/3> {{ {pattern} }} }}");
        explained(&scratch, &text)
    };
    let plan = explained("?s ?p ?o");
    assert!(plan.contains("PSOG/0 in GPSO"), "{plan}");
    let plan = explained("?s ?p <http://a/o77>");
    assert!(plan.contains("OPSG/1 by GPOS by predicates"), "{plan}");
    // All of a graph by object is nothing but all graphs by object, filtered.
    let sorted = explained("?s ?p ?o . ?o ?q ?r");
    assert!(!sorted.contains("filtering"), "{sorted}");
}

/// A graph for each of so many people who know others in their graph.
const SMALL_GRAPHS: usize = 100_000;

fn small_graphs() -> String {
    let mut text = String::new();
    for graph in 0..SMALL_GRAPHS {
        for person in 0..3 {
            let subject = format!("<http://example.org/p{graph}-{person}>");
            let name = format!("<http://example.org/graph/{graph}>");
            writeln!(
                text,
                "{subject} <http://example.org/name> \"person {person}\" {name} ."
            )
            .unwrap();
            writeln!(
                text,
                "{subject} <http://example.org/type> <http://example.org/Person> {name} ."
            )
            .unwrap();
            writeln!(
                text,
                "{subject} <http://example.org/knows> <http://example.org/p{graph}-{}> {name} .",
                (person + 1) % 3
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn many_small_graphs() {
    let text = small_graphs();
    let scratch = Scratch::new();
    let bytes = text.len();
    scratch.load(text, GraphFormat::NQuads, None, None).unwrap();
    let names = trees(&scratch);
    assert!(!names.iter().any(|name| name == "GPSO"), "{names:?}");
    let info = scratch.database().info().unwrap();
    assert_eq!(info.named_graphs, u64::try_from(SMALL_GRAPHS).unwrap());
    let person = "<http://example.org/p77777-0>";
    let (name, knows, kind) = (
        "<http://example.org/name>",
        "<http://example.org/knows>",
        "<http://example.org/type> <http://example.org/Person>",
    );
    let queries = [
        vec!["?s ?p ?o".to_owned()],
        vec![format!("?s {name} ?o")],
        vec![format!("?s {kind}")],
        vec![format!("{person} ?p ?o")],
        vec![format!("?s ?p {person}")],
        vec![format!("{person} {knows} ?o")],
        vec![format!("?s {knows} {person}")],
    ];
    let joins = [
        vec![format!("?s {kind}"), format!("?s {name} ?n")],
        vec![
            format!("?s {kind}"),
            format!("?s {name} ?n"),
            format!("?s {knows} ?o"),
        ],
        vec![format!("{person} {knows} ?o"), format!("?o {name} ?n")],
        vec![
            format!("{person} {name} ?n"),
            format!("{person} {knows} ?o"),
        ],
        vec![format!("?s {kind}"), "?s ?p ?o".to_owned()],
    ];
    let graph = "http://example.org/graph/77777";
    assert_few_read(&scratch, graph, &queries, &joins);
    for path in [
        format!("{person} {knows}+ ?o"),
        format!("?s {knows}* {person}"),
        format!("{person} {knows}/{knows} ?o"),
        format!("?s {knows}+ ?o"),
    ] {
        assert_few_read_of_path(&scratch, graph, &path, knows);
    }
    // Nothing but the data says which graph.
    let text =
        format!("SELECT * {{ GRAPH ?g {{ {person} {knows} ?o }} GRAPH ?g {{ ?o {name} ?n }} }}");
    let (rows, read) = ask(&scratch, &text);
    assert!(rows == 1 && read <= 2 * 2, "{read} for {rows} of two quads");
    let dump = scratch.dump(DumpFormat::NQuads).unwrap();
    assert_eq!(dump.len(), bytes);
    assert_sound(&scratch);
}
