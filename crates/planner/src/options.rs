//! How queries are planned, and what tests may change of that.

use std::fmt;
use std::sync::Arc;

use spargebra::algebra::QueryDataset;

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
    /// What is not left to costs; nothing by default.
    pub forced: ForcedChoices,
    /// Rewrites that are left out, beside all of them where `optimize` is off; for tests.
    pub without: Rewrites,
}

impl PlannerOptions {
    /// Whether a rewrite is done.
    pub(crate) const fn takes(&self, rewrite: Rewrites) -> bool {
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
            forced: ForcedChoices::NONE,
            without: Rewrites::NONE,
        }
    }
}

/// What the planner chooses by cost, chosen beforehand: `Some(true)` wherever it can be, `Some(false)` nowhere. For tests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ForcedChoices {
    /// The join method that is taken wherever it can be.
    pub join: Option<ForcedJoin>,
    /// Aggregates over NOT EXISTS are the difference of total and part.
    pub difference: Option<bool>,
    /// Joins are estimated from samples.
    pub samples: Option<bool>,
    /// Stars are estimated from characteristic sets.
    pub sets: Option<bool>,
    /// Joins are estimated from the most frequent terms.
    pub top_values: Option<bool>,
    /// ORDER BY takes its input by ranges of the first key, and joins below LIMIT are ordered for the solutions that it wants.
    pub ranges: Option<bool>,
    /// Subplans that stand in several places are run once.
    pub common_subplans: Option<bool>,
    /// Joins of three or more inputs are ordered by dynamic programming over a sequence.
    pub linear: Option<bool>,
    /// Single matches are found before the rest of their group, which is run with their terms as constants.
    pub parameters: Option<bool>,
    /// Joins by look-ups below COUNT give the number of partners.
    pub partner_counts: Option<bool>,
    /// EXISTS is a join with the different bindings that its pattern has.
    pub exists_joins: Option<bool>,
    /// The part of a group that costs most is run for the bindings of all others.
    pub part_for_bindings: Option<bool>,
}

impl ForcedChoices {
    /// All by cost.
    pub const NONE: Self = Self {
        join: None,
        difference: None,
        samples: None,
        sets: None,
        top_values: None,
        ranges: None,
        common_subplans: None,
        linear: None,
        parameters: None,
        partner_counts: None,
        exists_joins: None,
        part_for_bindings: None,
    };
    /// None of what can be done or left, and no join but of two inputs, which is by cost.
    pub const OFF: Self = Self {
        join: Some(ForcedJoin::Binary),
        difference: Some(false),
        samples: Some(false),
        sets: Some(false),
        top_values: Some(false),
        ranges: Some(false),
        common_subplans: Some(false),
        linear: Some(false),
        parameters: Some(false),
        partner_counts: Some(false),
        exists_joins: Some(false),
        part_for_bindings: Some(false),
    };

    /// The join of two inputs that is taken wherever it can be.
    pub(crate) fn join_of_two(self) -> Option<ForcedJoin> {
        let is_of_two =
            |join: &ForcedJoin| !matches!(join, ForcedJoin::Leapfrog | ForcedJoin::Binary);
        self.join.filter(is_of_two)
    }

    /// Whether leapfrog joins are taken wherever they can be, or nowhere.
    pub(crate) fn leapfrog(self) -> Option<bool> {
        self.join.map(|join| join == ForcedJoin::Leapfrog)
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
    /// Computed keys of ORDER BY, the first few of them, are columns of what is ordered, as if BIND had named them; not where the
    /// order of an index is used.
    pub const COMPUTED_KEYS: Self = Self(1 << 16);

    /// Each of them alone.
    pub const EACH: [Self; 17] = [
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
        Self::COMPUTED_KEYS,
    ];

    /// What they are called, in the order of [`Self::EACH`].
    pub const NAMES: [&'static str; 17] = [
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
        "computed keys",
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

/// Says whether planning should end with [`Error::Stopped`](crate::Error::Stopped), since nobody waits for it any more.
#[derive(Clone)]
pub struct Stop(Arc<dyn Fn() -> bool + Send + Sync>);

impl Stop {
    /// Asks this; it may be asked a million times a second.
    pub fn new(stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }

    /// Whether planning should end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
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
