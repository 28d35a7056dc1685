//! Answers as values for comparison, through the library's own iterators.

use oxrdf::{Dataset, GraphName, Quad};
use stoa_database::{Query, QueryKind, QueryResult, Result, Step};

use crate::compare::{Answer, Solutions};

/// Runs a timed query to its end, and gives how many rows key filters dropped in it.
///
/// # Errors
/// What ends the query.
pub fn rows_dropped(mut query: Query) -> Result<u64> {
    while !matches!(query.next()?, Step::Done) {}
    let told = query.analysis()?.to_string();
    let counts = told.split(" dropped=").skip(1);
    let numbers = counts.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(numbers.sum())
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
