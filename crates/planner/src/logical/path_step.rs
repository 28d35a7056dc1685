//! Sets of pairs of nodes, simplified while they are built.

use super::Builder;
use crate::physical::{PathStep, PredicateSet};

impl Builder {
    /// One step after the other.
    pub(super) fn sequence(self, steps: Vec<PathStep>) -> PathStep {
        let mut flat = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                PathStep::Alternative(none) if none.is_empty() => {
                    return PathStep::Alternative(none);
                }
                PathStep::Sequence(inner) => flat.extend(inner),
                step => flat.push(step),
            }
        }
        if flat.len() == 1 {
            return flat.pop().unwrap_or(PathStep::Alternative(Vec::new()));
        }
        PathStep::Sequence(flat)
    }

    /// Any of some steps. With `optimize` predicates of one direction become one set.
    pub(super) fn alternative(self, steps: Vec<PathStep>) -> PathStep {
        let mut flat: Vec<PathStep> = Vec::with_capacity(steps.len());
        let mut ahead: Option<PredicateSet> = None;
        let mut back: Option<PredicateSet> = None;
        let mut stack: Vec<PathStep> = steps;
        stack.reverse();
        while let Some(step) = stack.pop() {
            match step {
                PathStep::Alternative(inner) => stack.extend(inner.into_iter().rev()),
                PathStep::Edge {
                    predicates,
                    inverse,
                } if self.optimize => {
                    let set = if inverse { &mut back } else { &mut ahead };
                    *set = Some(match set.take() {
                        Some(known) => either(known, predicates),
                        None => predicates,
                    });
                }
                step if flat.len() < COMPARED_MAX && flat.contains(&step) => {}
                step => flat.push(step),
            }
        }
        let edge = |set: Option<PredicateSet>, inverse| {
            set.map(|predicates| PathStep::Edge {
                predicates,
                inverse,
            })
        };
        let mut all: Vec<PathStep> = edge(ahead, false)
            .into_iter()
            .chain(edge(back, true))
            .chain(flat)
            .collect();
        if all.len() == 1 {
            return all.pop().unwrap_or(PathStep::Alternative(Vec::new()));
        }
        PathStep::Alternative(all)
    }

    /// Repetition of a step.
    pub(super) fn closure(self, step: PathStep, zero: bool, repeats: bool) -> PathStep {
        let (step, zero, repeats) = self.repeated(step, zero, repeats);
        PathStep::Closure {
            step: Box::new(step),
            zero,
            repeats,
        }
    }

    /// What is repeated, whether no step is enough and whether there may be several; with
    /// `optimize` repetitions inside the step that change nothing are taken off.
    pub(super) fn repeated(
        self,
        step: PathStep,
        zero: bool,
        repeats: bool,
    ) -> (PathStep, bool, bool) {
        let (mut step, mut zero, mut repeats) = (step, zero, repeats);
        if !self.optimize {
            return (step, zero, repeats);
        }
        loop {
            step = match step {
                PathStep::Closure {
                    step: inner,
                    zero: none,
                    repeats: more,
                } => {
                    zero |= none;
                    repeats |= more;
                    *inner
                }
                PathStep::Alternative(branches)
                    if branches.iter().any(|b| sheds(b, zero, repeats)) =>
                {
                    let mut bare = Vec::with_capacity(branches.len());
                    for branch in branches {
                        match branch {
                            PathStep::Closure {
                                step: inner,
                                zero: none,
                                repeats: more,
                            } if repeats || (zero && !more) => {
                                zero |= none;
                                bare.push(*inner);
                            }
                            PathStep::Closure {
                                step,
                                repeats: more,
                                ..
                            } if zero => bare.push(PathStep::Closure {
                                step,
                                zero: false,
                                repeats: more,
                            }),
                            branch => bare.push(branch),
                        }
                    }
                    self.alternative(bare)
                }
                // Each part alone, and so any of them again and again.
                PathStep::Sequence(parts) if repeats && parts.iter().all(may_be_nothing) => {
                    zero = true;
                    self.alternative(parts)
                }
                step => return (step, zero, repeats),
            };
        }
    }
}

/// Among more branches of an alternative, equal ones are not looked for.
const COMPARED_MAX: usize = 64;

/// Whether a branch of an alternative loses something within such a repetition.
fn sheds(branch: &PathStep, zero: bool, repeats: bool) -> bool {
    match branch {
        PathStep::Closure {
            zero: none,
            repeats: more,
            ..
        } => repeats || (zero && (*none || !*more)),
        _ => false,
    }
}

/// Whether a node is connected with itself without a step.
pub(crate) fn may_be_nothing(step: &PathStep) -> bool {
    match step {
        PathStep::Edge { .. } => false,
        PathStep::Sequence(parts) => parts.iter().all(may_be_nothing),
        PathStep::Alternative(branches) => branches.iter().any(may_be_nothing),
        PathStep::Closure { step, zero, .. } => *zero || may_be_nothing(step),
    }
}

/// A predicate of one set or the other.
fn either(left: PredicateSet, right: PredicateSet) -> PredicateSet {
    match (left, right) {
        (PredicateSet::Of(mut ids), PredicateSet::Of(more)) => {
            ids.extend(more);
            ids.sort_unstable();
            ids.dedup();
            PredicateSet::Of(ids)
        }
        (PredicateSet::AllBut(mut but), PredicateSet::Of(ids))
        | (PredicateSet::Of(ids), PredicateSet::AllBut(mut but)) => {
            but.retain(|id| ids.binary_search(id).is_err());
            PredicateSet::AllBut(but)
        }
        (PredicateSet::AllBut(mut but), PredicateSet::AllBut(other)) => {
            but.retain(|id| other.binary_search(id).is_ok());
            PredicateSet::AllBut(but)
        }
    }
}
