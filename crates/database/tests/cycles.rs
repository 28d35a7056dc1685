//! Triangles of a graph with hubs: the join that is chosen, and what it and joins of two inputs look at. Run with
//! `--nocapture` it prints the times of both.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write;

use stoa_database::{Database, ForcedChoices, ForcedJoin, QueryOptions, Step};
use tempfile::TempDir;

use crate::filled::filled;

const NODES: usize = 4_000;
const EDGES_A_NODE: usize = 6;

/// How many nodes are hubs.
const HUBS: usize = 3;

/// Each node in turn gets edges to some before it, in either direction; a third of all to a hub unless they are `even`.
fn edges(even: bool) -> Vec<(usize, usize)> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 12).unwrap() % limit
    };
    let mut edges = Vec::new();
    for node in HUBS..NODES {
        for _ in 0..EDGES_A_NODE {
            let other = match !even && below(3) == 0 {
                true => below(HUBS),
                false => below(node),
            };
            edges.push(if below(2) == 0 {
                (node, other)
            } else {
                (other, node)
            });
        }
    }
    edges.retain(|(a, b)| a != b);
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn graph(edges: &[(usize, usize)]) -> (TempDir, Database) {
    let mut data = String::new();
    for (a, b) in edges {
        writeln!(data, "<http://a/{a}> <http://a/knows> <http://a/{b}> .").unwrap();
    }
    filled(data, None)
}

/// What a run of a query showed.
struct Seen {
    count: String,
    plan: String,
    /// Rows that one operator put out, the most of all.
    rows_most: u64,
    /// Quads that were examined.
    seq: u64,
}

fn run(database: &Database, text: &str, force_join: Option<ForcedJoin>) -> Seen {
    let options = QueryOptions {
        timed: true,
        forced: ForcedChoices {
            join: force_join,
            ..ForcedChoices::NONE
        },
        plans: false,
        ..QueryOptions::default()
    };
    let mut query = database.prepare(text, &options).unwrap();
    let mut count = String::new();
    loop {
        match query.next().unwrap() {
            Step::Batch(batch) => count = format!("{:?}", batch.columns),
            Step::Yield => (),
            Step::Done => break,
        }
    }
    let told = query.analysis().unwrap();
    let json: serde_json::Value = serde_json::from_str(&told.to_json()).unwrap();
    let operators = json.get("operators").unwrap().as_array().unwrap().iter();
    let rows = operators.filter_map(|operator| operator.get("rows")?.as_u64());
    Seen {
        count,
        plan: told.to_string(),
        rows_most: rows.max().unwrap(),
        seq: query.reads().seq,
    }
}

const TRIANGLES: &str = "PREFIX : <http://a/> \
    SELECT (COUNT(*) AS ?n) { ?x :knows ?y . ?y :knows ?z . ?x :knows ?z }";
const CIRCLES: &str = "PREFIX : <http://a/> \
    SELECT (COUNT(*) AS ?n) { ?x :knows ?y . ?y :knows ?z . ?z :knows ?x }";

#[test]
fn triangles_of_a_graph_with_hubs_are_leapt_to() {
    let edges = edges(false);
    let many = edges.len() as u64;
    let (_folder, database) = graph(&edges);
    for text in [TRIANGLES, CIRCLES] {
        let chosen = run(&database, text, None);
        let binary = run(&database, text, Some(ForcedJoin::Binary));
        println!("{}\n{}", chosen.plan, binary.plan);
        assert_eq!(chosen.count, binary.count);
        assert!(chosen.plan.contains("leapfrog_join"), "{}", chosen.plan);
        assert!(!binary.plan.contains("leapfrog_join"), "{}", binary.plan);
        // Pairs of edges that meet at a node, which a join of two inputs puts out; in blocks each edge is read once.
        assert!(binary.rows_most > 50 * many, "{} rows", binary.rows_most);
        assert!(chosen.seq < 4 * many, "{} quads", chosen.seq);
    }
}

#[test]
fn an_even_graph_gives_the_same_by_either_join() {
    let (_folder, database) = graph(&edges(true));
    for text in [TRIANGLES, CIRCLES] {
        let chosen = run(&database, text, None);
        assert!(!chosen.plan.contains("leapfrog_join"), "{}", chosen.plan);
        let leapt = run(&database, text, Some(ForcedJoin::Leapfrog));
        let binary = run(&database, text, Some(ForcedJoin::Binary));
        println!("{}\n{}", leapt.plan, binary.plan);
        assert_eq!(leapt.count, binary.count);
    }
}

#[test]
fn few_of_a_graph_with_hubs_are_looked_up() {
    let (_folder, database) = graph(&edges(false));
    let text = TRIANGLES.replace("?x :knows ?y", "<http://a/3999> :knows ?y");
    let text = text.replace("?x :knows ?z", "<http://a/3999> :knows ?z");
    let chosen = run(&database, &text, None);
    println!("{}", chosen.plan);
    let leapt = run(&database, &text, Some(ForcedJoin::Leapfrog));
    assert_eq!(chosen.count, leapt.count);
}
