//! From the algebra of SPARQL to a physical plan, which is plain data.
//!
//! ```text
//! spargebra's algebra --logical/--> logical plan --lowering/--> physical plan
//!                     (scopes, ids,              (join_order, access_path,
//!                      graphs, rewrites)          cardinality, cost)
//! ```

#![forbid(unsafe_code)]

mod access_path;
mod cardinality;
mod cost;
pub mod error;
mod explain;
pub mod expression;
mod join_order;
mod logical;
mod lowering;
mod nesting;
pub mod physical;
mod query;
pub mod statistics;
mod variable_set;

pub use crate::error::Error;
pub use crate::explain::explain;
pub use crate::nesting::{Visit, check_nesting, walk_into};
pub use crate::physical::QueryPlan;
pub use crate::query::plan;
pub use crate::statistics::{Statistics, StatisticsError};

use spargebra::algebra::QueryDataset;

/// How deep a query may be nested, in its text and in its algebra.
pub const NESTING_MAX: usize = 1_000;

/// How many groups in braces a query may have, side by side or nested.
pub const GROUPS_MAX: usize = 10_000;

/// From this nesting on (see [`check_nesting`]) a query should be parsed, planned and run on a
/// thread with a stack of [`DEEP_STACK_BYTES`]: parser, planner and operators recurse.
pub const NESTING_SHALLOW: usize = 50;

/// The stack that a query nested up to [`NESTING_MAX`] needs, with room to spare.
pub const DEEP_STACK_BYTES: usize = 64 << 20;

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
