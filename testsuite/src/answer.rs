//! Answers as values for comparison, through the library's own iterators.

use oxrdf::{Dataset, GraphName, Quad};
use stoa_database::{Query, QueryKind, QueryResult, Result, Step};

use crate::compare::{Answer, Solutions};

/// What operators of a query did that is not to be seen in its plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// How many rows key filters dropped.
    pub dropped: u64,
    /// How many keys scans looked up instead of reading all rows.
    pub keys: u64,
    /// How often merge joins sent scans over rows that they have no use for.
    pub leaps: u64,
    /// How many joins by look-ups went over to a hash join.
    pub switched: u64,
    /// How many of them had looked up some rows before.
    pub switched_late: u64,
    /// How many range sorts took several ranges.
    pub ranged: u64,
    /// How many path searches read triples into memory.
    pub adjacencies: u64,
    /// How many found triples that earlier ones had read.
    pub adjacencies_kept: u64,
    /// How many bytes computed terms put on disk.
    pub computed_spilled: u64,
    /// How many partitions tables of hash joins have that several threads made.
    pub partitions: u64,
    /// How many threads could do the sweeps of path searches, where there were several.
    pub sweepers: u64,
    /// How many threads could join parts of hash joins on disk at once.
    pub joiners: u64,
    /// For how many rows what a condition gives was known from the same term in an earlier batch.
    pub known: u64,
}

/// Runs a timed query to its end.
///
/// # Errors
/// What ends the query.
pub fn done(mut query: Query) -> Result<Done> {
    while !matches!(query.next()?, Step::Done) {}
    let told = query.analysis()?.to_string();
    let numbers = |before: &str| -> Vec<u64> {
        let counts = told.split(before).skip(1);
        counts
            .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
            .collect()
    };
    let switched = numbers(" switched=");
    let ranges = numbers(" ranges=");
    let of_operators: u64 = numbers(" spilled=").iter().sum();
    let spilled: u64 = numbers(" on disk ").iter().sum();
    let late = switched.iter().filter(|rows| **rows > 0);
    Ok(Done {
        dropped: numbers(" dropped=").iter().sum(),
        keys: numbers(" keys=").iter().sum(),
        leaps: numbers(" leaps=").iter().sum(),
        switched: switched.len() as u64,
        switched_late: late.count() as u64,
        ranged: ranges.iter().filter(|ranges| **ranges > 1).count() as u64,
        adjacencies: numbers(" adjacency=").len() as u64,
        adjacencies_kept: numbers(" adjacency_kept=").len() as u64,
        computed_spilled: spilled.saturating_sub(of_operators),
        partitions: numbers(" partitions=").iter().sum(),
        sweepers: numbers(" sweepers=").iter().sum(),
        joiners: numbers(" joiners=").iter().sum(),
        known: numbers(" from earlier rows: ").iter().sum(),
    })
}

/// Runs a query to its end. `largest_batch` is raised to the most rows that a batch had.
///
/// # Errors
/// What ends the query.
pub fn answer(query: Query, largest_batch: &mut usize) -> Result<Answer> {
    debug_assert!(matches!(
        query.kind(),
        QueryKind::Solutions | QueryKind::Boolean | QueryKind::Graph
    ));
    Ok(match query.run()? {
        QueryResult::Boolean(value) => Answer::Boolean(value),
        QueryResult::Solutions(mut solutions) => {
            let variables = solutions
                .variables()
                .iter()
                .map(|v| v.as_str().to_owned())
                .collect();
            let mut rows = Vec::new();
            for solution in solutions.by_ref() {
                rows.push(solution?.values().to_vec());
            }
            *largest_batch = (*largest_batch).max(solutions.largest_batch());
            Answer::Solutions(Solutions { variables, rows })
        }
        QueryResult::Graph(triples) => {
            let mut dataset = Dataset::new();
            for triple in triples {
                let t = triple?;
                dataset.insert(&Quad::new(
                    t.subject,
                    t.predicate,
                    t.object,
                    GraphName::DefaultGraph,
                ));
            }
            Answer::Graph(Box::new(dataset))
        }
    })
}
