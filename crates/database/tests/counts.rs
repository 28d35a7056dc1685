//! Counts and different values that come from the index, against the same queries without any rewriting.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use stoa_database::{
    Access, Database, OpenOptions, QueryOptions, QueryResult, Runtime, RuntimeOptions,
    UpdateOptions,
};
use tempfile::TempDir;

fn rows(database: &Database, text: &str, naive: bool) -> Vec<String> {
    let options = QueryOptions {
        naive,
        ..QueryOptions::default()
    };
    let text = format!("PREFIX : <http://a/> {text}");
    let QueryResult::Solutions(solutions) = database.query(&text, &options).unwrap() else {
        unreachable!("SELECT has solutions");
    };
    let names = solutions.variables().to_vec();
    let mut rows: Vec<String> = solutions
        .map(|solution| {
            let solution = solution.unwrap();
            let terms = names.iter().map(|name| solution.get(name.as_str()));
            terms.map(|term| format!("{term:?}, ")).collect()
        })
        .collect();
    rows.sort();
    rows
}

const QUERIES: [&str; 18] = [
    "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
    "SELECT (COUNT(?s) AS ?n) (COUNT(*) AS ?m) { ?s :even ?o }",
    "SELECT (COUNT(*) AS ?n) { ?s :even 4 }",
    "SELECT (COUNT(*) AS ?n) { ?s :never ?o }",
    "SELECT (COUNT(*) AS ?n) { ?s :even ?o FILTER(?o > 2 && ?o < 8) }",
    "SELECT (COUNT(*) AS ?n) { ?s :even ?o FILTER(isIRI(?o)) }",
    "SELECT (COUNT(DISTINCT ?p) AS ?n) { ?s ?p ?o }",
    "SELECT (COUNT(DISTINCT ?o) AS ?n) { ?s :even ?o }",
    "SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p",
    "SELECT ?o (COUNT(?s) AS ?n) { ?s :even ?o } GROUP BY ?o HAVING(COUNT(?s) > 100)",
    "SELECT ?s (COUNT(?o) AS ?n) { ?s :even ?o } GROUP BY ?s ORDER BY DESC(?n) ?s LIMIT 3",
    "SELECT DISTINCT ?p { ?s ?p ?o }",
    "SELECT DISTINCT ?o { ?s :odd ?o FILTER(?o >= 3) }",
    "SELECT DISTINCT ?o { ?s :mixed ?o FILTER(isIRI(?o)) }",
    "SELECT ?o (COUNT(*) AS ?n) { ?s :mixed ?o FILTER(isIRI(?o)) } GROUP BY ?o",
    "SELECT (COUNT(*) AS ?n) { GRAPH :g { ?s ?p ?o } }",
    "SELECT ?p (COUNT(*) AS ?n) FROM :g { ?s ?p ?o } GROUP BY ?p",
    "SELECT DISTINCT ?g ?p { GRAPH ?g { ?s ?p ?o } }",
];

/// Those of them that the index does not answer: a predicate that nothing has, conditions on values that some terms of a
/// range do not meet, a variable for the graph.
const READ: [&str; 4] = [
    "SELECT (COUNT(*) AS ?n) { ?s :never ?o }",
    "SELECT (COUNT(*) AS ?n) { ?s :even ?o FILTER(?o > 2 && ?o < 8) }",
    "SELECT DISTINCT ?o { ?s :odd ?o FILTER(?o >= 3) }",
    "SELECT DISTINCT ?g ?p { GRAPH ?g { ?s ?p ?o } }",
];

/// What EXPLAIN says of a query.
fn plan(database: &Database, text: &str) -> String {
    let text = format!("PREFIX : <http://a/> {text}");
    let query = database.prepare(&text, &QueryOptions::default()).unwrap();
    query.explain()
}

/// Checks all queries over data of these graphs, with what is changed in memory and in the trees.
fn check(graphs: &[(&str, usize)]) -> Database {
    let folder = TempDir::new().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(256 << 20),
        threads: Some(1),
        seed: Some(1),
        ..RuntimeOptions::default()
    })
    .unwrap();
    let options = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime, folder.path().join("db"), &options).unwrap();
    let update = |text: &str| {
        let text = format!("PREFIX : <http://a/> {text}");
        database.update(&text, &UpdateOptions::default()).unwrap()
    };
    for (graph, count) in graphs {
        let mut data = String::new();
        for number in 0..*count {
            let predicate = if number % 2 == 0 { "even" } else { "odd" };
            data.push_str(&format!(":s{number} :{predicate} {} . ", number % 10));
            let object = if number % 3 == 0 {
                ":one"
            } else {
                "\"a text that is not inline\""
            };
            data.push_str(&format!(":s{number} :mixed {object} . "));
        }
        match *graph {
            "" => update(&format!("INSERT DATA {{ {data} }}")),
            graph => update(&format!("INSERT DATA {{ GRAPH {graph} {{ {data} }} }}")),
        };
    }
    let compare = || {
        for union in ["", "FROM <urn:stoa:union> "] {
            for query in QUERIES {
                if !union.is_empty() && (query.contains("FROM") || query.contains("GRAPH")) {
                    continue;
                }
                let query = query.replacen('{', &format!("{union}{{"), 1);
                let expected = rows(&database, &query, true);
                assert_eq!(rows(&database, &query, false), expected, "{query}");
            }
        }
    };
    compare();
    database.checkpoint().unwrap();
    compare();
    update("DELETE WHERE { ?s :even 4 } ; INSERT DATA { :s1 :even 11 , 12 . :s2 :new 4 }");
    update("DELETE { ?s :odd 3 } WHERE { ?s :odd 3 } ; INSERT DATA { :s3 :odd 3 ; :mixed :two }");
    compare();
    database.checkpoint().unwrap();
    compare();
    assert_eq!(
        rows(&database, "SELECT DISTINCT ?p { ?s ?p ?o }", false).len(),
        4
    );
    drop(folder);
    database
}

#[test]
fn the_index_counts_as_the_solutions_do() {
    // Terms with more rows than are read before they are skipped: alone, so that trees can count them, ...
    check(&[("", 30_000)]);
    // ... and in one graph among others, which hide rows of each other.
    let database = check(&[("", 12_000), (":g", 7_000), (":h", 30)]);
    let read = QUERIES
        .iter()
        .filter(|query| !plan(&database, query).contains("index_groups"));
    let read: Vec<&str> = read.copied().collect();
    assert_eq!(read, READ, "not from the index");
}
