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
pub use crate::explain::{ExplainedOperator, Explanation, explain};
pub use crate::nesting::{Size, Visit, check_nesting, query_size, stack_bytes, walk_into};
pub use crate::physical::QueryPlan;
pub use crate::query::{is_made_up, plan};
pub use crate::statistics::{
    PrefixRanges, Reading, Statistics, StatisticsError, SubjectGroup, SubjectSets,
};
pub use crate::text_prefix::TextOf;

use std::fmt;
use std::sync::Arc;

use spargebra::algebra::QueryDataset;

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
    /// Asked now and then whether to give up.
    pub stop: Option<Stop>,
    /// The join method that is taken wherever it can be; for tests.
    pub force_join: Option<ForcedJoin>,
    /// Whether aggregates over NOT EXISTS are the difference of total and part wherever they can be, or nowhere; by
    /// cost if `None`; for tests.
    pub force_difference: Option<bool>,
    /// Whether joins are estimated from samples wherever they can be, or nowhere; where it is worth while if `None`;
    /// for tests.
    pub force_samples: Option<bool>,
    /// Whether stars are estimated from characteristic sets wherever they can be, or nowhere; where it is worth while if
    /// `None`; for tests.
    pub force_sets: Option<bool>,
    /// Whether joins are estimated from the most frequent terms wherever they can be, or nowhere; where it is worth while if
    /// `None`; for tests.
    pub force_top_values: Option<bool>,
    /// Whether ORDER BY takes its input by ranges of the first key, and joins below LIMIT are ordered for the solutions that
    /// it wants, wherever they can, or nowhere; where it is worth while if `None`; for tests.
    pub force_ranges: Option<bool>,
    /// Whether subplans that stand in several places are run once wherever they can be, or nowhere; by cost if `None`;
    /// for tests.
    pub force_common_subplans: Option<bool>,
    /// Whether joins are ordered by dynamic programming over a sequence wherever there are three of them, or nowhere; where
    /// it is worth while if `None`; for tests.
    pub force_linear: Option<bool>,
    /// Whether single matches are found before the rest of their group, which is run with their terms as constants, wherever
    /// they can be, or nowhere; by cost if `None`; for tests.
    pub force_parameters: Option<bool>,
    /// Whether joins by look-ups below COUNT give the number of partners wherever they can, or nowhere; where more than one
    /// partner is expected if `None`; for tests.
    pub force_partner_counts: Option<bool>,
    /// Rewrites that are left out, beside all of them where `optimize` is off; for tests.
    pub without: Rewrites,
}

impl PlannerOptions {
    /// Whether a rewrite is done.
    const fn takes(&self, rewrite: Rewrites) -> bool {
        self.optimize && !self.without.has(rewrite)
    }
}

impl Default for PlannerOptions {
    fn default() -> Self {
        Self {
            default_graph_union: false,
            dataset: None,
            optimize: true,
            stop: None,
            force_join: None,
            force_difference: None,
            force_samples: None,
            force_sets: None,
            force_top_values: None,
            force_ranges: None,
            force_common_subplans: None,
            force_linear: None,
            force_parameters: None,
            force_partner_counts: None,
            without: Rewrites::NONE,
        }
    }
}

/// A set of rewrites.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rewrites(u32);

impl Rewrites {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Subqueries, and what is nested with BIND and FILTER, become parts of the group around them.
    pub const UNNESTING: Self = Self(1);
    /// EXISTS is a semi-join.
    pub const SEMI_JOINS: Self = Self(2);
    /// OPTIONAL is a join where a condition above implies that.
    pub const IMPLIED_JOINS: Self = Self(4);
    /// Expressions of constants, and conditions that are always or never true, are decided.
    pub const FOLDING: Self = Self(8);
    /// Equalities across patterns that share nothing else are joins.
    pub const EQUAL_JOINS: Self = Self(16);
    /// Joins only ask whether there is a partner where it does not matter how often a solution comes.
    pub const ONCE: Self = Self(32);
    /// Groups and different values are those of an index.
    pub const INDEX_GROUPS: Self = Self(64);
    /// Conditions are ranges of ids in scans.
    pub const ID_RANGES: Self = Self(128);
    /// ORDER BY with LIMIT keeps no more than is wanted.
    pub const TOP_K: Self = Self(256);
    /// Columns that nothing above uses are not carried.
    pub const EARLY_PROJECTION: Self = Self(512);
    /// In what a path repeats, predicates that go the same way are one set, and repetitions within repetitions are one.
    ///
    /// Paths of fixed length are joins and unions of patterns whatever is left out: each way from one end to the other is
    /// a solution, while a path search gives each pair of ends once.
    pub const PATH_STEPS: Self = Self(1 << 10);
    /// OPTIONAL, BIND and FILTER at the top of a part of a join go above the join. Without it, what
    /// [`Self::UNNESTING`] leaves open stays a part of its own.
    pub const RISING: Self = Self(1 << 11);
    /// The expression of BIND stands where its variable is used. Without [`Self::EARLY_PROJECTION`] only conditions that
    /// move down get it, since it is not known then whether the variable has other uses.
    pub const BINDS_IN_PLACE: Self = Self(1 << 12);
    /// Conditions move into what they are above: OPTIONAL, UNION, subqueries. Where the conditions above a group are
    /// tested within it belongs to the order of its joins, and is not left out.
    pub const PUSHDOWN: Self = Self(1 << 13);
    /// `GRAPH ?g` reads one graph where the query says which one that is.
    pub const GRAPH_NARROWING: Self = Self(1 << 14);
    /// Bindings that an inner plan is run for are joined where they help most, and not with all of it.
    pub const SEEDING: Self = Self(1 << 15);

    /// Each of them alone.
    pub const EACH: [Self; 16] = [
        Self::UNNESTING,
        Self::SEMI_JOINS,
        Self::IMPLIED_JOINS,
        Self::FOLDING,
        Self::EQUAL_JOINS,
        Self::ONCE,
        Self::INDEX_GROUPS,
        Self::ID_RANGES,
        Self::TOP_K,
        Self::EARLY_PROJECTION,
        Self::PATH_STEPS,
        Self::RISING,
        Self::BINDS_IN_PLACE,
        Self::PUSHDOWN,
        Self::GRAPH_NARROWING,
        Self::SEEDING,
    ];

    /// What they are called, in the order of [`Self::EACH`].
    pub const NAMES: [&'static str; 16] = [
        "unnesting",
        "semi-joins",
        "implied joins",
        "folding",
        "equal joins",
        "once",
        "index groups",
        "id ranges",
        "top-k",
        "early projection",
        "path steps",
        "rising",
        "binds in place",
        "pushdown",
        "graph narrowing",
        "seeding",
    ];

    /// Those of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has all of another set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The names of those that are in it.
impl fmt::Display for Rewrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::EACH.into_iter().zip(Self::NAMES);
        let names = named.filter(|(one, _)| self.has(*one));
        let names: Vec<_> = names.map(|(_, name)| name).collect();
        f.write_str(&names.join(", "))
    }
}

/// Says whether planning should end with [`Error::Stopped`], since nobody waits for it any more.
#[derive(Clone)]
pub struct Stop(Arc<dyn Fn() -> bool + Send + Sync>);

impl Stop {
    /// Asks this; it may be asked a million times a second.
    pub fn new(stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }

    fn is_stopped(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
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
    /// `leapfrog_join`, where patterns form a cycle; other joins by cost.
    Leapfrog,
    /// Any join of two inputs, by cost: never `leapfrog_join`.
    Binary,
}
