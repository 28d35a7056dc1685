//! Notes that depend on the data: predicates, graphs, products, and what has none.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use stoa_database::{
    Access, Database, Input, LoadOptions, NoteKind, OpenOptions, QueryOptions, Runtime,
    RuntimeOptions,
};
use tempfile::TempDir;

const DATA: &str = "\
<http://a/s> <http://a/ns#name> \"S\" .
<http://a/s> <http://a/ns#knows> <http://a/t> .
<http://a/t> <http://www.w3.org/2000/01/rdf-schema#label> \"T\"@en .
<http://a/t> <https://schema.org/birthDate> \"2000\" .
<http://a/t> <http://a/ns#P31> <http://a/s> .
<http://a/t> <http://a/ns#name> \"T\" <http://a/g> .
";

fn database(data: &str) -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let writing = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
    if !data.is_empty() {
        let options = LoadOptions {
            inputs: vec![Input::from_bytes("x.nq", data)],
            ..LoadOptions::default()
        };
        database.load(options, &()).unwrap();
    }
    (folder, database)
}

/// The notes on a query: kind, what stands at the place, suggestion.
fn notes(database: &Database, text: &str) -> Vec<String> {
    let query = database.prepare(text, &QueryOptions::default()).unwrap();
    let told = query.notes().iter().map(|note| {
        let place = note.place.as_ref().map_or("", |place| {
            let line = text.lines().nth(place.line - 1).unwrap();
            let start = place.column - 1;
            assert!(line.is_ascii());
            &line[start..start + place.length]
        });
        let meant = note.suggestion.as_ref();
        let meant = meant.map_or(String::new(), |meant| format!(" -> {meant}"));
        format!("{} {place}{meant}", note.kind.name())
    });
    told.collect()
}

#[test]
fn predicates_that_do_not_occur_are_told() {
    let (_folder, database) = database(DATA);
    let prefixes = "PREFIX : <http://a/ns#>\nPREFIX schema: <http://schema.org/>\n";
    for (query, expected) in [
        (
            "ASK { ?s :nmae ?o }",
            &["unknown-predicate :nmae -> :name"][..],
        ),
        ("ASK { ?s :Name ?o }", &["unknown-predicate :Name -> :name"]),
        ("ASK { ?s :P32 ?o }", &["unknown-predicate :P32"]),
        (
            "ASK { ?s <http://a/ns/knows> ?o }",
            &["unknown-predicate <http://a/ns/knows> -> :knows"],
        ),
        (
            "ASK { ?s schema:birthDate ?o }",
            &["unknown-predicate schema:birthDate -> <https://schema.org/birthDate>"],
        ),
        // The same name in a well-known namespace, and in one of the data.
        (
            "ASK { ?s :label ?o }",
            &["unknown-predicate :label -> <http://www.w3.org/2000/01/rdf-schema#label>"],
        ),
        (
            "ASK { ?s <http://b/knows> ?o }",
            &["unknown-predicate <http://b/knows> -> :knows"],
        ),
        // A subject that is no predicate; in paths; more than once.
        ("ASK { :s :s :s }", &["unknown-predicate :s"]),
        (
            "ASK { ?s (:name|^:knwos)+/:x ?o . ?o :knwos 1 }",
            &["unknown-predicate :knwos -> :knows", "unknown-predicate :x"],
        ),
        ("ASK { ?s a :Person }", &["unknown-predicate a"]),
        (
            "ASK { ?s :name ?o FILTER NOT EXISTS { ?s :nam ?x } }",
            &["unknown-predicate :nam -> :name"],
        ),
        (
            "ASK { GRAPH ?g { ?s :nam ?x } }",
            &["unknown-predicate :nam -> :name"],
        ),
        // What is right, or excluded, or asked elsewhere.
        ("ASK { ?s :name/^:knows*/!(:nothing) ?o }", &[]),
        ("CONSTRUCT { ?s :new ?o } WHERE { ?s :name ?o }", &[]),
        ("ASK { ?s :name ( 1 2 ) , [ :name ?x ] }", &[]),
        ("ASK { << ?s :name ?o >> :knows ?x }", &[]),
        ("ASK { VALUES ?p { :nothing } ?s ?p ?o }", &[]),
    ] {
        let text = format!("{prefixes}{query}");
        assert_eq!(notes(&database, &text), expected, "{query}");
    }
}

#[test]
fn a_namespace_may_end_within_a_name() {
    let (_folder, database) = database("<http://a/s> <http://a/p_name> <http://a/t> .");
    let text = "PREFIX p: <http://a/p_>\nPREFIX b: <http://b/>\nASK { ?s b:name ?o }";
    assert_eq!(
        notes(&database, text),
        ["unknown-predicate b:name -> p:name"]
    );
}

#[test]
fn graphs_that_do_not_exist_are_told() {
    let (_folder, database) = database(DATA);
    let (known, unknown) = ("GRAPH <http://a/g>", "GRAPH <http://a/h>");
    let pattern = "{ ?s ?p ?o }";
    for (text, expected) in [
        (format!("ASK {{ {known} {pattern} }}"), &[][..]),
        (
            format!("ASK {{ {unknown} {pattern} }}"),
            &["unknown-graph <http://a/h>"],
        ),
        (
            format!("ASK FROM <http://a/g> FROM NAMED <http://a/i> {pattern}"),
            &["unknown-graph <http://a/i>"],
        ),
        (format!("ASK FROM <urn:stoa:union> {pattern}"), &[]),
    ] {
        assert_eq!(notes(&database, &text), expected, "{text}");
    }
    let options = QueryOptions {
        default_graphs: vec!["http://a/nothing".to_owned()],
        ..QueryOptions::default()
    };
    let query = database.prepare("ASK { ?s ?p ?o }", &options).unwrap();
    let [note] = query.notes() else {
        panic!("{:?}", query.notes())
    };
    assert_eq!(
        note.to_string(),
        "note: there is no graph <http://a/nothing>"
    );
}

#[test]
fn parts_that_nothing_connects_are_told() {
    let mut data = String::new();
    for n in 0..50 {
        writeln!(data, "<http://a/s{n}> <http://a/p> \"{n}\" .").unwrap();
        writeln!(data, "<http://a/t{n}> <http://a/q> \"{n}\" .").unwrap();
    }
    let (_folder, database) = database(&data);
    for (group, expected) in [
        (
            "?s <http://a/p> ?x . ?t <http://a/q> ?y",
            &["unconnected ?t"][..],
        ),
        (
            "{ ?s <http://a/p> ?x } { ?t <http://a/q> ?y }",
            &["unconnected ?t"],
        ),
        (
            "?s <http://a/p> ?x OPTIONAL { ?t <http://a/q> ?y }",
            &["unconnected ?t"],
        ),
        (
            "{ SELECT ?s { ?s <http://a/p> ?x . ?t <http://a/q> ?y } }",
            &["unconnected ?t"],
        ),
        (
            "{ ?s <http://a/p> ?x . ?t <http://a/q> ?y } UNION { ?s ?p ?o }",
            &["unconnected ?t"],
        ),
        // Connected by a variable, a condition, a subquery, data, a graph, a blank node.
        ("?s <http://a/p> ?x . ?t <http://a/q> ?x", &[]),
        (
            "?s <http://a/p> ?x . ?t <http://a/q> ?y FILTER(?x = ?y)",
            &[],
        ),
        (
            "?s <http://a/p> ?x . ?t <http://a/q> ?y BIND(?x + ?y AS ?z)",
            &[],
        ),
        (
            "{ SELECT ?x ?y { ?z ?x ?y } } ?s <http://a/p> ?x . ?t <http://a/q> ?y",
            &[],
        ),
        (
            "VALUES (?s ?t) { (1 2) } ?s <http://a/p> ?x . ?t <http://a/q> ?y",
            &[],
        ),
        ("_:b <http://a/p> ?x . _:b <http://a/q> ?y", &[]),
        (
            "?s <http://a/p> ?x . ?s <http://a/p>* ?t . ?t <http://a/q> ?y",
            &[],
        ),
        (
            "?s <http://a/p> ?x FILTER EXISTS { ?t <http://a/q> ?y }",
            &[],
        ),
        // Little on one side.
        ("?s <http://a/p> \"1\" . ?t <http://a/q> ?y", &[]),
        (
            "<http://a/s1> <http://a/p> ?x . <http://a/t2> <http://a/q> ?y",
            &[],
        ),
        (
            "{ SELECT (COUNT(*) AS ?n) { ?s <http://a/p> ?x } } ?t <http://a/q> ?y",
            &[],
        ),
        ("?s <http://a/p> ?x . VALUES ?v { 1 2 3 }", &[]),
    ] {
        let text = format!("SELECT * {{ {group} }}");
        assert_eq!(notes(&database, &text), expected, "{group}");
        let text = format!("ASK {{ {group} }}");
        assert_eq!(notes(&database, &text), [""; 0], "{text}");
    }
}

#[test]
fn an_empty_database_is_told() {
    let (_folder, database) = database("");
    assert_eq!(
        notes(&database, "ASK { ?s <http://a/p> ?o }"),
        ["database-empty "]
    );
    assert_eq!(notes(&database, "SELECT (1 AS ?x) {}"), [""; 0]);
}

#[test]
fn regular_expressions_that_are_wrong_are_told() {
    let (_folder, database) = database(DATA);
    for (condition, expected) in [
        ("REGEX(?o, \"(a\")", "wrong-pattern \"(a\""),
        ("REGEX(?o, 'a', 'k')", "wrong-pattern 'a'"),
        (
            "REPLACE(?o, \"(\\\\p{L}{1000}){100}\", 'a') = 'b'",
            "wrong-pattern \"(\\\\p{L}{1000}){100}\"",
        ),
        ("REGEX(?o, '^(a|b)\\\\1$')", ""),
        ("REGEX(?o, STR(?s))", ""),
    ] {
        let text = format!("SELECT * {{ ?s ?p ?o FILTER({condition}) }}");
        let found = notes(&database, &text).join(",");
        assert_eq!(found, expected, "{condition}");
    }
    let text = "SELECT * { ?s ?p ?o FILTER(REGEX(?o, '(')) }";
    let query = database.prepare(text, &QueryOptions::default()).unwrap();
    assert_eq!(
        query.notes()[0].message,
        "this regular expression is an error in every row: a ( that is not closed"
    );
}

#[test]
fn notes_can_be_turned_off_and_are_few() {
    let (_folder, database) = database(DATA);
    let names: String = (0..100).map(|n| format!(" ?v{n}")).collect();
    let text = format!("SELECT {names} {{ ?s ?p ?o }}");
    let query = database.prepare(&text, &QueryOptions::default()).unwrap();
    assert_eq!(query.notes().len(), stoa_database::limits::NOTES_MAX);
    assert!(
        query
            .notes()
            .iter()
            .all(|note| note.kind == NoteKind::UnboundVariable)
    );
    let options = QueryOptions {
        notes: false,
        ..QueryOptions::default()
    };
    let query = database.prepare(&text, &options).unwrap();
    assert!(query.notes().is_empty());
}
