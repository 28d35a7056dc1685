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
mod constants;
mod cost;
mod depth;
pub mod error;
mod explain;
pub mod expression;
mod join_order;
mod leapfrog_order;
mod logical;
mod lowering;
mod nesting;
mod options;
mod parameters;
pub mod physical;
mod query;
mod split;
pub mod statistics;
mod text_prefix;
mod variable_set;
mod variables;
mod volatile;

pub use crate::access_path::{FEW_LOOKUPS, KEPT_RANGES_MAX, variables_within};
pub use crate::constants::Replacement;
pub use crate::error::Error;
pub use crate::explain::{ExplainedOperator, Explanation, Names, explain};
pub use crate::nesting::{Size, Visit, check_nesting, query_size, stack_bytes, walk_into};
pub use crate::options::{ForcedChoices, ForcedJoin, PlannerOptions, Rewrites, Stop};
pub use crate::physical::QueryPlan;
pub use crate::query::{is_made_up, plan};
pub use crate::statistics::{
    PrefixRanges, Reading, Statistics, StatisticsError, SubjectGroup, SubjectSets,
};
pub use crate::text_prefix::TextOf;

/// How deep a query may be nested, in its text and in its algebra.
pub const NESTING_MAX: usize = 1_000;

/// From this nesting on (see [`check_nesting`]) a query should be parsed, planned and run on a
/// thread with a stack of [`DEEP_STACK_BYTES`]: parser, planner and operators recurse.
pub const NESTING_SHALLOW: usize = 50;

/// How many patterns, groups and operations a query may have. Variables and constants in expressions
/// do not count, nor rows of VALUES.
pub const ELEMENTS_MAX: usize = 50_000;

/// The stack that a query nested up to [`NESTING_MAX`] needs, with room to spare.
pub const DEEP_STACK_BYTES: usize = 64 << 20;

/// The graph that as FROM stands for the union of all graphs.
pub const UNION_GRAPH: &str = "urn:stoa:union";
