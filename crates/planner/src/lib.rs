//! From the algebra of SPARQL to a physical plan, which is plain data.

#![forbid(unsafe_code)]

pub mod error;
pub mod expression;
pub mod physical;
pub mod statistics;

pub use crate::error::Error;
pub use crate::physical::QueryPlan;
pub use crate::statistics::{Statistics, StatisticsError};

use spargebra::Query;
use spargebra::algebra::QueryDataset;

/// How deep a query may be nested, in its text and in its algebra.
pub const NESTING_MAX: usize = 1_000;

/// The graph that as FROM stands for the union of all graphs.
pub const UNION_GRAPH: &str = "urn:stoa:union";

/// How a query is planned.
#[derive(Clone, Debug)]
pub struct PlannerOptions {
    /// Whether the default graph of a query without FROM is the union of all graphs.
    pub default_graph_union: bool,
    /// The dataset of the protocol; takes the place of FROM and FROM NAMED. `named: None` stands
    /// for all named graphs.
    pub dataset: Option<QueryDataset>,
    /// Off: patterns are joined as written, by hash joins; for tests.
    pub optimize: bool,
    /// The join method that is taken wherever it can be; for tests.
    pub force_join: Option<ForcedJoin>,
}

impl Default for PlannerOptions {
    fn default() -> Self {
        Self {
            default_graph_union: false,
            dataset: None,
            optimize: true,
            force_join: None,
        }
    }
}

/// A join method that tests can ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ForcedJoin {
    /// `merge_join`, where both inputs are sorted by the join variable.
    Merge,
    /// `hash_join`
    Hash,
    /// `index_nested_loop_join`, where one side is a single quad pattern.
    IndexNestedLoop,
}

/// Plans a query for one snapshot.
///
/// # Errors
/// [`Error::Unsupported`] for a part of SPARQL that is missing yet, [`Error::TooDeep`] for a query
/// nested deeper than [`NESTING_MAX`], [`Error::Statistics`] if the store fails.
pub fn plan(
    query: &Query,
    options: &PlannerOptions,
    statistics: &dyn Statistics,
) -> Result<QueryPlan, Error> {
    let _ = (query, options, statistics);
    Err(Error::Unsupported("queries".to_owned()))
}

/// A plan as a tree of text, one operator a line.
#[must_use]
pub fn explain(plan: &QueryPlan) -> String {
    format!("{:?}", plan.root.columns)
}

/// Refuses a text nested deeper than [`NESTING_MAX`]; to be called before it is parsed, since the
/// parser recurses.
///
/// # Errors
/// [`Error::TooDeep`]
pub fn check_nesting(text: &str) -> Result<(), Error> {
    let _ = text;
    Ok(())
}
