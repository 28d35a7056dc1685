//! Physical plans: what the executor runs, as plain data.
//!
//! A plan is a tree of [`Plan`]. Every node lists the variables that its solutions have, in the
//! order of the columns of its batches. Names of variables are kept apart, in
//! [`QueryPlan::variable_names`].

use std::sync::Arc;

use oxrdf::{NamedNode, Term};
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use crate::Reading;
use crate::expression::{Aggregate, Constant, Expression};

/// A variable of one query, numbered from 0; blank nodes of patterns are variables, too.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Variable(pub u32);

/// A whole query, ready to run.
#[derive(Clone, Debug)]
pub struct QueryPlan {
    /// What becomes of the solutions.
    pub form: QueryForm,
    /// The tree of operators.
    pub root: Plan,
    /// The name of each variable without `?`; empty for one that the planner made up.
    pub variable_names: Vec<String>,
    /// The graphs of the query's default graph, which DESCRIBE reads.
    pub default_graphs: GraphSet,
    /// How scans are read that do not find their permutation as it is, for EXPLAIN: permutation, the
    /// terms that are fixed in it, graphs, and what is read.
    pub readings: Vec<(Permutation, Vec<TermId>, GraphSet, Reading)>,
    /// Base for `IRI()` on a relative reference.
    pub base_iri: Option<String>,
}

/// What becomes of the solutions of a query.
#[derive(Clone, Debug)]
pub enum QueryForm {
    /// SELECT; the variables in the order in which they were asked for, all in the root's columns.
    Select(Vec<Variable>),
    /// ASK: whether the root has a solution.
    Ask,
    /// CONSTRUCT: the template, instantiated for each solution; duplicates removed.
    Construct(Vec<TriplePattern>),
    /// DESCRIBE of what these variables are bound to, and of constants (the root is
    /// [`Operator::Unit`] if there is no WHERE).
    Describe {
        /// Variables whose bindings are described.
        variables: Vec<Variable>,
        /// Terms that are described in any case.
        constants: Vec<Constant>,
    },
}

/// A triple of a CONSTRUCT template.
#[derive(Clone, Debug, PartialEq)]
pub struct TriplePattern {
    /// Subject, predicate and object.
    pub terms: [TemplateTerm; 3],
}

/// A term of a CONSTRUCT template.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplateTerm {
    /// A fixed term.
    Constant(Term),
    /// The binding of a variable; the triple is left out where it is unbound or does not fit.
    Variable(Variable),
    /// A blank node, new for every solution; the number tells those of one template apart.
    BlankNode(u32),
    /// A triple term made of three parts.
    Triple(Box<TriplePattern>),
}

/// A node of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it does.
    pub operator: Operator,
    /// The columns of its solutions: what is used above, of the variables that the operator has;
    /// possibly none, then only the number of solutions counts.
    pub columns: Vec<Variable>,
    /// The columns by which its solutions are sorted (by id, ascending), the first one first;
    /// empty if nothing is known.
    pub sorted_by: Vec<Variable>,
    /// How many solutions the planner expects.
    pub estimated_rows: f64,
}

impl Plan {
    /// How many operators stand on top of each other at most, with a common subplan below each that reads it.
    #[must_use]
    pub fn depth(&self) -> usize {
        crate::depth::depth(self)
    }

    /// The inputs of the operator, the left one first.
    #[must_use]
    pub fn inputs(&self) -> Vec<&Self> {
        match &self.operator {
            Operator::Unit
            | Operator::Empty
            | Operator::Values(_)
            | Operator::OuterBindings
            | Operator::IndexScan { .. }
            | Operator::IndexGroups { .. }
            | Operator::LeapfrogJoin { .. }
            | Operator::GraphScan { .. } => Vec::new(),
            Operator::PathSearch { input, .. } | Operator::CommonSubplan { input, .. } => {
                input.as_deref().into_iter().collect()
            }
            Operator::IndexNestedLoopJoin { input, .. }
            | Operator::Service { input, .. }
            | Operator::Filter { input, .. }
            | Operator::Extend { input, .. }
            | Operator::HashAggregate { input, .. }
            | Operator::Distinct(input)
            | Operator::SkipDistinct(input)
            | Operator::Reduced(input)
            | Operator::Sort { input, .. }
            | Operator::TopK { input, .. }
            | Operator::RangeSort { input, .. }
            | Operator::Slice { input, .. }
            | Operator::Project(input) => vec![input],
            Operator::Apply { input, inner, .. }
            | Operator::ParameterizedJoin { input, inner, .. } => vec![input, inner],
            Operator::MergeJoin { left, right, .. } | Operator::HashJoin { left, right, .. } => {
                vec![left, right]
            }
            Operator::AggregateDifference {
                groups,
                total,
                part,
                ..
            } => vec![groups, total, part],
            Operator::Union(inputs) => inputs.iter().collect(),
        }
    }

    /// The inputs of the operator, in the order of [`Plan::inputs`].
    pub fn inputs_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.operator {
            Operator::Unit
            | Operator::Empty
            | Operator::Values(_)
            | Operator::OuterBindings
            | Operator::IndexScan { .. }
            | Operator::IndexGroups { .. }
            | Operator::LeapfrogJoin { .. }
            | Operator::GraphScan { .. } => Vec::new(),
            Operator::PathSearch { input, .. } | Operator::CommonSubplan { input, .. } => {
                input.as_deref_mut().into_iter().collect()
            }
            Operator::IndexNestedLoopJoin { input, .. }
            | Operator::Service { input, .. }
            | Operator::Filter { input, .. }
            | Operator::Extend { input, .. }
            | Operator::HashAggregate { input, .. }
            | Operator::Distinct(input)
            | Operator::SkipDistinct(input)
            | Operator::Reduced(input)
            | Operator::Sort { input, .. }
            | Operator::TopK { input, .. }
            | Operator::RangeSort { input, .. }
            | Operator::Slice { input, .. }
            | Operator::Project(input) => vec![input],
            Operator::Apply { input, inner, .. }
            | Operator::ParameterizedJoin { input, inner, .. } => vec![input, inner],
            Operator::MergeJoin { left, right, .. } | Operator::HashJoin { left, right, .. } => {
                vec![left, right]
            }
            Operator::AggregateDifference {
                groups,
                total,
                part,
                ..
            } => vec![groups, total, part],
            Operator::Union(inputs) => inputs.iter_mut().collect(),
        }
    }
}

/// A position of a quad pattern.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PatternTerm {
    /// A fixed term.
    Constant(TermId),
    /// A variable.
    Variable(Variable),
}

/// A triple pattern plus its graph.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuadPattern {
    /// Subject, predicate and object. One variable may stand in several places; then the matched
    /// quad has the same term there.
    pub triple: [PatternTerm; 3],
    /// The graphs that are read. Without `graph_variable` a triple that several of them hold is
    /// returned once.
    pub graphs: GraphSet,
    /// The variable of `GRAPH ?g`, bound to each graph that holds the triple.
    pub graph_variable: Option<Variable>,
}

/// A variable of an [`Operator::LeapfrogJoin`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeapfrogVariable {
    /// What is bound.
    pub variable: Variable,
    /// What it is kept to, ascending and disjoint; empty for all. A range may be wider than the filter it comes from;
    /// that filter then stands above the join.
    pub ranges: Vec<IdRange>,
}

/// A pattern of an [`Operator::LeapfrogJoin`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeapfrogPattern {
    /// What is matched: at least one variable, none twice, none for the graph.
    pub pattern: QuadPattern,
    /// The sort order that is read: all constants come first, then the variables in the order of the join.
    pub permutation: Permutation,
    /// How many constants there are.
    pub prefix_length: usize,
}

/// Predicates that one step of a path may take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PredicateSet {
    /// These, ascending, without repetition.
    Of(Vec<TermId>),
    /// All but these (ascending, without repetition): a negated property set.
    AllBut(Vec<TermId>),
}

/// A set of pairs of nodes: what is repeated in a [`PathPattern`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathStep {
    /// Subject and object of the triples with one of these predicates, or object and subject.
    Edge {
        /// The predicates.
        predicates: PredicateSet,
        /// Whether it leads from object to subject.
        inverse: bool,
    },
    /// One after the other; at least two.
    Sequence(Vec<PathStep>),
    /// Any of them; none at all leads nowhere.
    Alternative(Vec<PathStep>),
    /// Repetition.
    Closure {
        /// What is repeated.
        step: Box<PathStep>,
        /// Whether a node is connected with itself without any step.
        zero: bool,
        /// Whether there may be more than one step.
        repeats: bool,
    },
}

/// A property path with `?`, `*` or `+` between two ends. Its pairs of terms are distinct.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PathPattern {
    /// Where it begins.
    pub subject: PatternTerm,
    /// What is taken once, or repeatedly.
    pub step: PathStep,
    /// Whether both ends may be the same node without any step; always set if that holds of `step`.
    pub zero: bool,
    /// Whether there may be more than one step.
    pub repeats: bool,
    /// Where it ends.
    pub object: PatternTerm,
    /// The graphs that are read; a path may change between them if there is no `graph_variable`.
    pub graphs: GraphSet,
    /// The variable of `GRAPH ?g`: a path lies in one graph, which is bound to it.
    pub graph_variable: Option<Variable>,
}

/// The end that a search begins at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathStart {
    /// At the subject, along the path.
    Subject,
    /// At the object, against the path.
    Object,
    /// At both ends, which are known.
    Both,
}

/// What SERVICE asks, and whom.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceCall {
    /// Who is asked.
    pub endpoint: ServiceEndpoint,
    /// SILENT: a failure is one solution that binds nothing.
    pub silent: bool,
    /// What is asked, as it stands between the braces.
    pub pattern: Arc<str>,
    /// The variables that solutions may bind, with their names in the pattern.
    pub variables: Vec<(Variable, String)>,
    /// Those that every solution binds if the endpoint keeps to SPARQL.
    pub bound: Vec<Variable>,
}

/// Who is asked by SERVICE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ServiceEndpoint {
    /// This endpoint.
    Constant(NamedNode),
    /// The one that the variable is bound to in each solution of the input.
    Variable(Variable),
}

/// Which solutions a join returns.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinKind {
    /// Those with a partner, combined with it.
    Inner,
    /// OPTIONAL: combined with each partner for which the condition holds, alone if there is none.
    Left {
        /// The condition over both sides.
        condition: Option<Expression>,
    },
    /// Those of the left side that have a partner, once: FILTER EXISTS.
    Semi,
    /// Those of the left side that have no partner: FILTER NOT EXISTS.
    Anti,
    /// MINUS: those of the left side without a compatible partner that shares a bound variable.
    Minus {
        /// Variables that must agree but do not count as shared, as they come from the context: the
        /// graph of GRAPH ?g, the outer bindings of EXISTS.
        ambient: Vec<Variable>,
    },
    /// All of the left side, once, with whether there is a partner in this variable: EXISTS inside
    /// a larger expression.
    Mark(Variable),
}

/// A key of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// What is sorted by.
    pub expression: Expression,
    /// Whether larger ones come first.
    pub descending: bool,
}

/// When an [`Operator::IndexNestedLoopJoin`] goes over to a hash join, whose right side is all matches of the pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// For how many solutions of the input looking up costs as much as the hash join, from the beginning, would have.
    pub after_rows: u64,
    /// The sort order that all matches are read in.
    pub permutation: Permutation,
    /// How many leading positions of it are constants.
    pub prefix_length: usize,
    /// Ranges for the position after the prefix, ascending and disjoint; empty for all. They may be those of filters
    /// that stand above the join.
    pub ranges: Vec<IdRange>,
    /// How many matches the planner expects.
    pub estimated_rows: f64,
}

/// What a node of a plan does.
#[derive(Clone, Debug, PartialEq)]
pub enum Operator {
    /// One solution that binds nothing.
    Unit,
    /// No solution.
    Empty,
    /// VALUES: rows in the order of [`Plan::columns`], `None` for UNDEF.
    Values(Vec<Vec<Option<Constant>>>),
    /// The distinct bindings that the nearest surrounding [`Operator::Apply`] hands in; may occur
    /// several times in one inner plan.
    OuterBindings,
    /// An ordered read of one permutation.
    IndexScan {
        /// What is matched; its constants and variables must be laid out so that the constants are
        /// a prefix of the permutation, or are compared row by row.
        pattern: QuadPattern,
        /// The sort order that is read.
        permutation: Permutation,
        /// How many leading positions of the permutation are constants that the read descends to.
        prefix_length: usize,
        /// Ranges for the position after the prefix, ascending and disjoint; empty for all. A range
        /// may be wider than the filter it comes from; that filter then stands above the scan.
        ranges: Vec<IdRange>,
    },
    /// The different terms at the position behind the prefix, ascending, with how many matches of the
    /// pattern have each; without a key how many matches there are, as the only solution. Large groups are
    /// skipped and counted by the index.
    IndexGroups {
        /// What is counted: no variable twice, none for the graph, all constants in the prefix.
        pattern: QuadPattern,
        /// The sort order, in which the key comes right after the prefix.
        permutation: Permutation,
        /// How many leading positions are constants.
        prefix_length: usize,
        /// Ranges for the position after the prefix, ascending and disjoint; empty for all.
        ranges: Vec<IdRange>,
        /// What stands at the position after the prefix.
        key: Option<Variable>,
        /// Columns that take the number of matches; those that are not among the plan's columns are not
        /// looked at.
        counts: Vec<Variable>,
    },
    /// The solutions of several quad patterns together, found one variable after the other: the values of a variable
    /// are those that all patterns with it have behind the values bound before. In the order of the variables.
    LeapfrogJoin {
        /// All variables of the patterns, in the order in which they are bound.
        variables: Vec<LeapfrogVariable>,
        /// What is joined.
        patterns: Vec<LeapfrogPattern>,
    },
    /// SERVICE: each solution of the input joined with those that an endpoint gives, which is asked
    /// for the bindings of many solutions at once.
    Service {
        /// What it is joined with; must bind the endpoint if that is a variable.
        input: Box<Plan>,
        /// What is asked, and whom.
        call: Box<ServiceCall>,
    },
    /// GRAPH ?g { }: every named graph, as the only column.
    GraphScan {
        /// The graphs that are listed.
        graphs: GraphSet,
    },
    /// For each solution of the input, the quads that match the pattern with its variables put in.
    IndexNestedLoopJoin {
        /// The left side.
        input: Box<Plan>,
        /// What is looked up.
        pattern: QuadPattern,
        /// The permutation that is searched: positions that are constants or bound by the input
        /// come first in its order, as many as `key_length`; the rest is compared row by row.
        permutation: Permutation,
        /// How many leading positions are known for each solution.
        key_length: usize,
        /// `Inner`, `Left`, `Semi` or `Anti`.
        kind: JoinKind,
        /// When it goes over to a hash join, if it may: all variables of the pattern that the input has are bound
        /// there then.
        switch: Option<Box<Switch>>,
        /// The column in which partners are counted: a solution of the input comes with their number, or several times
        /// with numbers that add up to it, and not with each of them. `kind` is `Inner`, or `Left` without a condition,
        /// which leaves the number unbound where there is no partner; and of the pattern no variable is given that
        /// the input does not have.
        count: Option<Variable>,
    },
    /// For each solution of the input, the pairs of terms that a path connects with what is known of
    /// its ends put in.
    PathSearch {
        /// The left side; `None` stands for one solution that binds nothing.
        input: Option<Box<Plan>>,
        /// The path.
        pattern: PathPattern,
        /// Where the search begins. An end that is neither a constant nor a column of the input
        /// begins at all terms that it can have; there is no input then.
        start: PathStart,
        /// Whether a term that is known must occur in a triple of the graph to be connected with
        /// itself without any step.
        checked: bool,
    },
    /// Runs the inner plan once for each batch of the left side, with the distinct bindings of
    /// `outer` in its [`Operator::OuterBindings`], and joins the result with the batch on `outer`
    /// by identity of terms, unbound being equal to unbound.
    Apply {
        /// The left side.
        input: Box<Plan>,
        /// The plan that depends on it; its columns contain `outer`.
        inner: Box<Plan>,
        /// The variables handed in; may be empty.
        outer: Vec<Variable>,
        /// Any but `Minus`.
        kind: JoinKind,
    },
    /// Runs the inner plan anew for each solution of the left side, with what that one binds in the place of
    /// [`Expression::Parameter`] in conditions, and so in the ranges of scans below them
    /// ([`Plan::with_parameters`]), and joins it with its solutions, with which it shares no variable.
    ParameterizedJoin {
        /// The left side, of which one solution is expected.
        input: Box<Plan>,
        /// The plan that depends on it.
        inner: Box<Plan>,
        /// Columns of the left side, bound in each of its solutions.
        parameters: Vec<Variable>,
    },
    /// Joins two inputs that are both sorted by `key`.
    MergeJoin {
        /// The left side.
        left: Box<Plan>,
        /// The right side.
        right: Box<Plan>,
        /// The variable that both are sorted by first, never unbound. Further shared variables are
        /// compared.
        key: Variable,
        /// Any but `Minus`.
        kind: JoinKind,
    },
    /// Builds a hash table of the right side and probes it with the left.
    HashJoin {
        /// The left side, whose order is kept.
        left: Box<Plan>,
        /// The right side, held in memory.
        right: Box<Plan>,
        /// Shared variables that are bound in every solution of both sides; may be empty (a cross
        /// product).
        keys: Vec<Variable>,
        /// Shared variables that may be unbound on a side: an unbound one is compatible with all.
        compatible: Vec<Variable>,
        /// Any kind.
        kind: JoinKind,
    },
    /// Keeps solutions for which the expression is true.
    Filter {
        /// The input.
        input: Box<Plan>,
        /// The condition.
        condition: Expression,
    },
    /// BIND: adds a column; unbound where the expression is an error.
    Extend {
        /// The input.
        input: Box<Plan>,
        /// The column that is added.
        variable: Variable,
        /// What it holds.
        expression: Expression,
    },
    /// All solutions of all inputs; columns that an input lacks are unbound.
    Union(Vec<Plan>),
    /// GROUP BY with aggregates. Without keys there is exactly one group.
    HashAggregate {
        /// The input.
        input: Box<Plan>,
        /// The variables grouped by.
        keys: Vec<Variable>,
        /// What is computed for each group.
        aggregates: Vec<Aggregate>,
    },
    /// For each solution of `groups` the aggregates over the solutions of `total` without those that `part` has for it;
    /// a group of which nothing is left is left out.
    AggregateDifference {
        /// The groups, all columns bound. Their order is kept.
        groups: Box<Plan>,
        /// What is aggregated, the same for all groups.
        total: Box<Plan>,
        /// Solutions of `total`, each with the `keys` of the groups that it does not belong to.
        part: Box<Plan>,
        /// Columns of `groups` and `part`, bound in both; at least one.
        keys: Vec<Variable>,
        /// Counts, sums and averages, not of distinct values; their arguments are over columns that
        /// `total` and `part` have both.
        aggregates: Vec<Aggregate>,
    },
    /// Each solution once.
    Distinct(Box<Plan>),
    /// The different values of one variable, by which the input can be split ([`Plan::split_by`]) and which is its only
    /// column: of a value with many rows in the index the input is read up to the first solution.
    SkipDistinct(Box<Plan>),
    /// Each run of equal solutions once.
    Reduced(Box<Plan>),
    /// ORDER BY, stable and total (design: by SPARQL's order, then by id).
    Sort {
        /// The input.
        input: Box<Plan>,
        /// The keys, the first one first.
        keys: Vec<SortKey>,
    },
    /// The first `limit` of the sorted solutions.
    TopK {
        /// The input.
        input: Box<Plan>,
        /// The keys, the first one first.
        keys: Vec<SortKey>,
        /// How many are kept (LIMIT plus OFFSET).
        limit: u64,
    },
    /// ORDER BY, of which only the first solutions may be wanted, of an input that is taken by ranges of the first key,
    /// one after the other in the order of the keys; each is sorted on its own, and what is behind the last solution
    /// that is wanted is not read.
    RangeSort {
        /// The input, which can be split by the first key ([`Plan::split_by`]).
        input: Box<Plan>,
        /// The keys, the first one first. That is a variable, bound in every solution.
        keys: Vec<SortKey>,
        /// How many are kept (LIMIT plus OFFSET); all if `None`.
        limit: Option<u64>,
    },
    /// OFFSET and LIMIT, for each binding of `by` apart.
    Slice {
        /// The input.
        input: Box<Plan>,
        /// Columns of the input that tell apart what is sliced on its own, such as the graph of
        /// GRAPH ?g; usually none.
        by: Vec<Variable>,
        /// How many are left out first.
        offset: u64,
        /// How many are returned at most.
        limit: Option<u64>,
    },
    /// Keeps [`Plan::columns`] of the input; one that the input lacks is unbound.
    Project(Box<Plan>),
    /// Solutions of a subplan that stands in several places of the plan. It is run once, and its solutions are kept
    /// for those that read them later, each of which has names of its own for the columns.
    CommonSubplan {
        /// Which subplan it is, from 1 in the order in which a walk over the plan meets them.
        number: usize,
        /// How many operators read the subplan. None of them is within the inner plan of an [`Operator::Apply`].
        readers: usize,
        /// Where each of [`Plan::columns`] stands among the columns of the subplan; none twice.
        positions: Vec<usize>,
        /// The subplan, at the first of those that read it.
        input: Option<Box<Plan>>,
    },
}
