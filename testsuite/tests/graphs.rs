//! Named graphs: a query in one graph reads about as many quads as it is about, however many other
//! graphs there are, and whether they share its subjects or not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

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
    let read = query.rows_read();
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

/// Asks each list of triple patterns in a graph: at most twice the quads are read that the patterns
/// match there, each by itself.
fn assert_few_read(scratch: &Scratch, graph: &str, queries: &[Vec<String>]) {
    let in_graph = |pattern: &str| format!("SELECT * {{ GRAPH <{graph}> {{ {pattern} }} }}");
    for patterns in queries {
        let matches = patterns
            .iter()
            .map(|pattern| ask(scratch, &in_graph(pattern)).0);
        let matches: u64 = matches.sum();
        let query = patterns.join(" . ");
        let (rows, read) = ask(scratch, &in_graph(&query));
        assert!(rows > 0, "{query} matches nothing");
        assert!(
            read <= 2 * matches,
            "{read} quads were read where {matches} match: {query}"
        );
    }
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
    let scheme = ["http", "https"]
        .into_iter()
        .find(|scheme| {
            let text =
                format!("SELECT * {{ GRAPH {graph} {{ <{scheme}://{thing} ?p ?o }} }} LIMIT 1");
            ask(&scratch, &text).0 > 0
        })
        .unwrap();
    let queries = [
        vec!["?s ?p ?o".to_owned()],
        vec![format!("?s {label} ?o")],
        vec![format!("?s a <{class}>")],
        vec![format!("<{scheme}://{thing} ?p ?o")],
        vec![format!("?s ?p <{scheme}://{thing}")],
        vec![format!(
            "?s <{scheme}://schema.org/domainIncludes> <{scheme}://{thing}"
        )],
        vec![
            format!("?s a <{class}>"),
            format!("?s {label} ?l"),
            format!("?s {comment} ?c"),
        ],
        vec![
            format!("?s <{scheme}://schema.org/domainIncludes> ?c"),
            format!("?c {label} ?l"),
        ],
        vec![format!("?s a <{class}>"), "?s ?p ?o".to_owned()],
    ];
    assert_few_read(&scratch, graph.as_str(), &queries);
    // A graph that is bound on the way.
    let text = format!(
        "SELECT * {{ VALUES ?g {{ {graph} }} GRAPH ?g {{ ?s a <{class}> . ?s {label} ?l }} }}"
    );
    let (rows, read) = ask(&scratch, &text);
    assert!(rows > 0 && read <= 4 * rows, "{read} for {rows}");
    assert_sound(&scratch);
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
    assert_few_read(&scratch, "http://g/3", &queries);
    let explained = |pattern: &str| {
        let text = format!("SELECT * {{ GRAPH <http://g/3> {{ {pattern} }} }}");
        let query = scratch.database().prepare(&text, &QueryOptions::default());
        query.unwrap().explain()
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

#[test]
fn many_small_graphs() {
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
        vec![
            format!("?s {kind}"),
            format!("?s {name} ?n"),
            format!("?s {knows} ?o"),
        ],
    ];
    assert_few_read(&scratch, "http://example.org/graph/77777", &queries);
    let (rows, read) = ask(
        &scratch,
        &format!("SELECT * {{ GRAPH ?g {{ {person} {knows} ?o }} GRAPH ?g {{ ?o {name} ?n }} }}"),
    );
    assert!(rows == 1 && read <= 4, "{read} for {rows}");
    let dump = scratch.dump(DumpFormat::NQuads).unwrap();
    assert_eq!(dump.len(), bytes);
    assert_sound(&scratch);
}
