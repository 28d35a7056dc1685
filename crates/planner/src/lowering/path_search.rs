//! Property paths: where a search begins, how many pairs it finds, what it costs.
//!
//! How far a path leads is tried ([`path_reach`](super::path_reach)). Where it cannot be, it is a guess: each step multiplies by
//! the mean number of neighbours, for a few steps, and there are no more ends than terms in that place.

use stoa_terms::GraphSet;

use super::joins::hash_join;
use super::{Lowering, Planned, planned, project};
use crate::cost;
use crate::error::Error;
use crate::expression::Expression;
use crate::logical::{PathSearch, may_be_nothing, path_variables};
use crate::physical::{
    JoinKind, Operator, PathPattern, PathStart, PathStep, PatternTerm, PredicateSet, Variable,
};
use crate::variable_set::VariableSet;

/// How many steps of a repetition are reckoned with.
const STEPS: i32 = 8;
/// Of so many predicates of one step the figures are asked for; the others are taken to be alike.
const PREDICATES_ASKED: usize = 16;
/// Looking up one node of a frontier, with the share of a row group.
const NODE_LOOKUP: f64 = 250.0;
/// Taking over a triple into the adjacency that a long search builds, and a node found in it.
const EDGE_ADJACENCY: f64 = 30.0;
const NODE_ADJACENCY: f64 = 25.0;

/// What is expected of a path.
#[derive(Clone, Debug)]
pub(crate) struct PathFigures {
    subject: PatternTerm,
    object: PatternTerm,
    extent: Extent,
    /// Different first and second terms where the other one is given. Those of the extent are all nodes where no step need
    /// be done, but of these that have no step only the given one leads to itself.
    stepping: (f64, f64),
    zero: bool,
}

/// What is expected of a set of pairs.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Different first and second terms.
    sources: f64,
    targets: f64,
    /// Second terms for one first term, and first ones for one second.
    ahead: f64,
    back: f64,
    /// Triples that all steps together may use.
    edges: f64,
}

impl PathFigures {
    /// Pairs, given which ends are known.
    fn rows(&self, subject: bool, object: bool) -> f64 {
        let Extent {
            sources,
            targets,
            ahead,
            back,
            ..
        } = self.extent;
        let zero = if self.zero { 1.0 } else { 0.0 };
        match (subject, object) {
            (true, true) => (ahead / targets.max(1.0)).min(1.0),
            (true, false) => ahead + zero,
            (false, true) => back + zero,
            (false, false) => sources * (ahead + zero),
        }
    }

    /// What it costs to search for `times` bindings of the ends that are known.
    fn cost(&self, times: f64, subject: bool, object: bool) -> f64 {
        let Extent {
            sources,
            ahead,
            back,
            edges,
            ..
        } = self.extent;
        let (starts, nodes) = match (subject, object) {
            (true, true) => (times, ahead.min(back)),
            (true, false) => (times, ahead),
            (false, true) => (times, back),
            (false, false) => (sources, ahead),
        };
        let visited = starts * (nodes + 1.0);
        let looked_up = visited * NODE_LOOKUP;
        let adjacency = edges * EDGE_ADJACENCY + visited * NODE_ADJACENCY;
        let listed = if subject || object {
            0.0
        } else {
            edges * cost::SCAN_ROW
        };
        cost::SCAN_START + looked_up.min(adjacency) + listed
    }

    /// What it costs to search from `rows` solutions that bind these variables; `None` if they bind
    /// no end.
    pub(crate) fn cost_from(&self, rows: f64, certain: &VariableSet) -> Option<f64> {
        let bound = |end| matches!(end, PatternTerm::Variable(v) if certain.contains(v));
        if !bound(self.subject) && !bound(self.object) {
            return None;
        }
        let (subject, object) = (
            is_known(self.subject, certain),
            is_known(self.object, certain),
        );
        Some(self.cost(rows, subject, object))
    }

    /// How many terms each end that is a variable ranges over. Where the other one is given, that lies between those that
    /// are reached and all, as that of a pattern does.
    pub(crate) fn distinct(&self) -> Vec<(Variable, f64)> {
        let mut distinct = Vec::new();
        // Of the terms that lead nowhere but to themselves one leads to what is given.
        let of_all = |other: PatternTerm, rows: f64, stepping: f64, all: f64| match other {
            PatternTerm::Constant(_) => (rows * stepping).sqrt().max(rows),
            PatternTerm::Variable(_) => all,
        };
        let Extent {
            sources, targets, ..
        } = self.extent;
        let (stepping_sources, stepping_targets) = self.stepping;
        if let PatternTerm::Variable(variable) = self.subject {
            let rows = self.rows(false, true);
            let range = of_all(self.object, rows, stepping_sources, sources);
            distinct.push((variable, range));
        }
        if let PatternTerm::Variable(variable) = self.object
            && self.subject != self.object
        {
            let rows = self.rows(true, false);
            let range = of_all(self.subject, rows, stepping_targets, targets);
            distinct.push((variable, range));
        }
        distinct
    }
}

fn is_known(end: PatternTerm, bound: &VariableSet) -> bool {
    match end {
        PatternTerm::Constant(_) => true,
        PatternTerm::Variable(variable) => bound.contains(variable),
    }
}

impl Lowering<'_> {
    /// Lowers a path that nothing is joined with, or whose ends are put in.
    #[inline(never)]
    pub(super) fn path_search(&mut self, mut search: PathSearch) -> Result<Planned, Error> {
        if let Some(input) = search.input.take() {
            let input = self.lower(input)?;
            // What is put in counts as a term.
            search.is_node = search.any_term;
            return self.path_between(input, search);
        }
        let figures = self.path_figures(&search)?;
        let none = VariableSet::new();
        let (subject, object) = (
            is_known(search.pattern.subject, &none),
            is_known(search.pattern.object, &none),
        );
        let start = match (subject, object) {
            (true, true) => PathStart::Both,
            (true, false) => PathStart::Subject,
            (false, true) => PathStart::Object,
            (false, false) if figures.extent.targets < figures.extent.sources => PathStart::Object,
            (false, false) => PathStart::Subject,
        };
        let rows = figures.rows(subject, object);
        let checked = (subject || object) && search.is_checked();
        let columns = columns_of(&search.pattern, Vec::new());
        let certain = columns.iter().copied().collect();
        let cost = figures.cost(1.0, subject, object) + rows * cost::OUTPUT_ROW;
        let operator = Operator::PathSearch {
            input: None,
            pattern: search.pattern,
            start,
            checked,
        };
        Ok(planned(operator, columns, Vec::new(), rows, cost, certain))
    }

    /// A path whose ends a plan puts in. An end that may be unbound is a variable where it is.
    fn path_between(&mut self, mut input: Planned, search: PathSearch) -> Result<Planned, Error> {
        if input.plan.operator == Operator::Empty {
            return Ok(input);
        }
        let open = search
            .variables()
            .intersection(&input.possible)
            .difference(&input.certain);
        if let Some(variable) = open.iter().next() {
            let bound = Expression::Bound(variable);
            let mut with = self.filter(input.clone(), vec![bound.clone()]);
            with.certain.insert(variable);
            let without = self.filter(input, vec![Expression::Not(Box::new(bound))]);
            let mut columns = without.plan.columns.clone();
            columns.retain(|column| *column != variable);
            let with = self.path_between(with, search.clone())?;
            let without = self.path_between(project(without, columns), search)?;
            return Ok(either(with, without));
        }
        let rows = input.plan.estimated_rows;
        let figures = self.path_figures(&search)?;
        if let Some(cost) = figures.cost_from(rows, &input.certain) {
            input.cost += cost;
            return Ok(path_from(input, &search, rows));
        }
        let mut search = search;
        search.is_node = false;
        let path = self.path_search(search)?;
        Ok(hash_join(input, path, JoinKind::Inner, rows))
    }

    pub(super) fn path_figures(&self, search: &PathSearch) -> Result<PathFigures, Error> {
        let pattern = &search.pattern;
        let step = self.extent(&pattern.step, &pattern.graphs)?;
        let mut extent = repeated(step, pattern.repeats);
        let is_variable = |end| matches!(end, PatternTerm::Variable(_));
        let (subject, object) = (is_variable(pattern.subject), is_variable(pattern.object));
        // From an end that is looked for nobody begins if the other one is known.
        if (!subject || object)
            && let Some(ahead) = self.reach(pattern, true, extent.targets)?
        {
            extent.ahead = ahead;
        }
        if (!object || subject)
            && let Some(back) = self.reach(pattern, false, extent.sources)?
        {
            extent.back = back;
        }
        let mut stepping = (extent.sources, extent.targets);
        if pattern.zero || may_be_nothing(&pattern.step) {
            stepping = (extent.sources + 1.0, extent.targets + 1.0);
            let (_, subjects, objects) = self.cache.predicate(None, &pattern.graphs)?;
            let nodes = subjects + objects;
            extent.sources = extent.sources.max(nodes);
            extent.targets = extent.targets.max(nodes);
            extent.edges = extent.edges.max(nodes);
        }
        Ok(PathFigures {
            subject: pattern.subject,
            object: pattern.object,
            extent,
            stepping,
            zero: pattern.zero,
        })
    }

    fn extent(&self, step: &PathStep, graphs: &GraphSet) -> Result<Extent, Error> {
        Ok(match step {
            PathStep::Edge {
                predicates,
                inverse,
            } => {
                let extent = self.edge_extent(predicates, graphs)?;
                if *inverse { turned(extent) } else { extent }
            }
            PathStep::Sequence(parts) => {
                let mut whole: Option<Extent> = None;
                for part in parts {
                    let part = self.extent(part, graphs)?;
                    whole = Some(match whole {
                        None => part,
                        Some(before) => Extent {
                            sources: before.sources,
                            targets: part.targets,
                            ahead: (before.ahead * part.ahead).min(part.targets),
                            back: (before.back * part.back).min(before.sources),
                            edges: before.edges + part.edges,
                        },
                    });
                }
                whole.unwrap_or(NOTHING)
            }
            PathStep::Alternative(branches) => {
                let mut extents = Vec::with_capacity(branches.len());
                for branch in branches {
                    extents.push(self.extent(branch, graphs)?);
                }
                any_of(&extents)
            }
            PathStep::Closure { step, repeats, .. } => {
                repeated(self.extent(step, graphs)?, *repeats)
            }
        })
    }

    fn edge_extent(&self, predicates: &PredicateSet, graphs: &GraphSet) -> Result<Extent, Error> {
        let of = |(rows, subjects, objects): (f64, f64, f64)| Extent {
            sources: subjects,
            targets: objects,
            ahead: rows / subjects.max(1.0),
            back: rows / objects.max(1.0),
            edges: rows,
        };
        match predicates {
            PredicateSet::AllBut(_) => Ok(of(self.cache.predicate(None, graphs)?)),
            PredicateSet::Of(ids) => {
                let mut extents = Vec::new();
                for id in ids.iter().take(PREDICATES_ASKED) {
                    extents.push(of(self.cache.predicate(Some(*id), graphs)?));
                }
                Ok(any_of(&extents))
            }
        }
    }
}

const NOTHING: Extent = Extent {
    sources: 0.0,
    targets: 0.0,
    ahead: 0.0,
    back: 0.0,
    edges: 0.0,
};

fn turned(extent: Extent) -> Extent {
    Extent {
        sources: extent.targets,
        targets: extent.sources,
        ahead: extent.back,
        back: extent.ahead,
        edges: extent.edges,
    }
}

fn any_of(extents: &[Extent]) -> Extent {
    let mut sum = NOTHING;
    let (mut pairs_ahead, mut pairs_back) = (0.0, 0.0);
    for extent in extents {
        sum.sources += extent.sources;
        sum.targets += extent.targets;
        sum.edges += extent.edges;
        pairs_ahead += extent.sources * extent.ahead;
        pairs_back += extent.targets * extent.back;
    }
    sum.ahead = pairs_ahead / sum.sources.max(1.0);
    sum.back = pairs_back / sum.targets.max(1.0);
    sum
}

fn repeated(extent: Extent, repeats: bool) -> Extent {
    if !repeats {
        return extent;
    }
    let reach = |fan: f64, all: f64| {
        let sum: f64 = (1..=STEPS).map(|steps| fan.powi(steps)).sum();
        sum.min(all)
    };
    Extent {
        ahead: reach(extent.ahead, extent.targets),
        back: reach(extent.back, extent.sources),
        ..extent
    }
}

/// The solutions of both.
fn either(left: Planned, right: Planned) -> Planned {
    let mut columns = left.plan.columns.clone();
    columns.extend(
        right
            .plan
            .columns
            .iter()
            .filter(|c| !left.possible.contains(**c)),
    );
    let rows = left.plan.estimated_rows + right.plan.estimated_rows;
    let certain = left.certain.intersection(&right.certain);
    let cost = left.cost + right.cost;
    let operator = Operator::Union(vec![left.plan, right.plan]);
    planned(operator, columns, Vec::new(), rows, cost, certain)
}

/// A search from what `left` binds; its cost is that of `left`.
pub(super) fn path_from(left: Planned, search: &PathSearch, rows: f64) -> Planned {
    let pattern = search.pattern.clone();
    let subject = is_known(pattern.subject, &left.certain);
    let object = is_known(pattern.object, &left.certain);
    let start = match (subject, object) {
        (true, true) => PathStart::Both,
        (false, true) => PathStart::Object,
        _ => PathStart::Subject,
    };
    let columns = columns_of(&pattern, left.plan.columns.clone());
    let mut certain = left.certain.clone();
    certain.union_with(&search.variables());
    let operator = Operator::PathSearch {
        input: Some(Box::new(left.plan)),
        pattern,
        start,
        checked: search.is_checked(),
    };
    planned(operator, columns, Vec::new(), rows, left.cost, certain)
}

fn columns_of(pattern: &PathPattern, mut columns: Vec<Variable>) -> Vec<Variable> {
    for variable in path_variables(pattern) {
        if !columns.contains(&variable) {
            columns.push(variable);
        }
    }
    columns
}
