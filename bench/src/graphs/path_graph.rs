//! A random graph for dependent reads: each node has 3 to 30 edges to random nodes.
//!
//! The first three edges of a node have predicates of their own, `e0` to `e2`, and so a path of any length with one end can
//! be asked for; all others are `e`. A payload for each node fills pages, where that is wanted.
//!
//! # References
//! The path benchmark of Pythia: paths of 2, 4, 10 and 100 nodes.

use super::{Common, Triples};
use crate::bsbm::random::{Random, Stream};

/// Where nodes are.
pub(crate) const NODE: &str = "http://stoa.example/path/node/";
/// Where the predicates `e0`, `e1`, `e2`, `e` and `payload` are.
const VOCABULARY: &str = "http://stoa.example/path/";

/// Edges with a predicate of their own.
const NAMED: u64 = 3;
const DEGREE_LEAST: u64 = 3;
const DEGREE_MOST: u64 = 30;

/// What `stoa-bench generate path-graph` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// About how many edges; nodes have 16.5 on average
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000_000))]
    edges: u64,
    /// A text of this many characters for each node, such as 3000 to fill a page with it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    payload: u64,
    #[command(flatten)]
    common: Common,
}

/// Nodes of the graph with about this many edges.
pub(crate) fn nodes(edges: u64) -> u64 {
    (2 * edges / (DEGREE_LEAST + DEGREE_MOST)).max(2 * DEGREE_MOST)
}

/// # Errors
/// When the data cannot be written.
pub(crate) fn generate(arguments: &Arguments) -> anyhow::Result<()> {
    let mut triples = Triples::open(&arguments.common)?;
    let seed = arguments.common.seed;
    write(arguments.edges, arguments.payload, seed, &mut triples)?;
    triples.end()
}

/// Writes the whole graph.
pub(super) fn write(
    edges: u64,
    payload: u64,
    seed: u64,
    triples: &mut Triples,
) -> anyhow::Result<()> {
    let count = nodes(edges);
    let predicates: Vec<String> = ["e0", "e1", "e2", "e"]
        .iter()
        .map(|name| format!("<{VOCABULARY}{name}>"))
        .collect();
    for number in 1..=count {
        let mut random = Random::new(seed, Stream::PathNode, number);
        let subject = format!("<{NODE}{number}>");
        let degree = random.between(DEGREE_LEAST, DEGREE_MOST);
        let mut unnamed = Vec::new();
        for edge in 0..degree {
            let mut target = random.between(1, count);
            // A triple that is there twice would be one edge.
            while edge >= NAMED && unnamed.contains(&target) {
                target = random.between(1, count);
            }
            if edge >= NAMED {
                unnamed.push(target);
            }
            let predicate = usize::try_from(edge.min(NAMED)).unwrap_or(0);
            let predicate = predicates.get(predicate).map_or("", String::as_str);
            triples.add(&subject, predicate, &format!("<{NODE}{target}>"))?;
        }
        if payload > 0 {
            let text: String = (0..payload)
                .map(|_| char::from(b'a' + u8::try_from(random.below(16)).unwrap_or(0)))
                .collect();
            let predicate = format!("<{VOCABULARY}payload>");
            triples.add(&subject, &predicate, &format!("\"{text}\""))?;
        }
    }
    Ok(())
}

/// Draws what the queries of paths ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pools {
    nodes: u64,
}

impl Pools {
    /// Pools of the graph that `generate path-graph` makes of the same number of edges, whatever its seed.
    pub(crate) fn new(edges: u64) -> Self {
        Self {
            nodes: nodes(edges),
        }
    }

    /// The text for a kind of parameter: `node`, or `path-N` for the steps of a path of N nodes.
    pub(crate) fn draw(&self, kind: &str, random: &mut Random) -> Option<String> {
        if kind == "node" {
            return Some(format!("<{NODE}{}>", random.between(1, self.nodes)));
        }
        let length: u64 = kind.strip_prefix("path-")?.parse().ok()?;
        let steps: Vec<String> = (1..length)
            .map(|_| format!("<{VOCABULARY}e{}>", random.below(NAMED)))
            .collect();
        (!steps.is_empty()).then(|| steps.join("/"))
    }
}
