//! Sets of pairs of nodes, simplified while they are built.

use super::Builder;
use crate::Rewrites;
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

    /// Any of some steps. With [`Rewrites::PATH_STEPS`] predicates of one direction become one set.
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
                } if self.takes(Rewrites::PATH_STEPS) => {
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
    /// [`Rewrites::PATH_STEPS`] repetitions inside the step that change nothing are taken off.
    pub(super) fn repeated(
        self,
        step: PathStep,
        zero: bool,
        repeats: bool,
    ) -> (PathStep, bool, bool) {
        let (mut step, mut zero, mut repeats) = (step, zero, repeats);
        if !self.takes(Rewrites::PATH_STEPS) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_terms::{Kind, TermId};

    const BUILD: Builder = Builder::plain(true);

    fn ids(numbers: &[u64]) -> Vec<TermId> {
        numbers.iter().map(|n| TermId::new(Kind::Iri, *n)).collect()
    }

    fn of(numbers: &[u64]) -> PathStep {
        PathStep::Edge {
            predicates: PredicateSet::Of(ids(numbers)),
            inverse: false,
        }
    }

    fn but(numbers: &[u64]) -> PathStep {
        PathStep::Edge {
            predicates: PredicateSet::AllBut(ids(numbers)),
            inverse: false,
        }
    }

    fn star(step: PathStep) -> PathStep {
        BUILD.closure(step, true, true)
    }

    fn plus(step: PathStep) -> PathStep {
        BUILD.closure(step, false, true)
    }

    fn maybe(step: PathStep) -> PathStep {
        BUILD.closure(step, true, false)
    }

    #[test]
    fn repetitions_of_repetitions_are_one() {
        let a = || of(&[1]);
        for step in [
            star(star(a())),
            maybe(plus(a())),
            plus(maybe(a())),
            star(maybe(a())),
            maybe(star(a())),
            plus(star(a())),
            star(plus(a())),
        ] {
            assert_eq!(step, star(a()));
        }
        assert_eq!(plus(plus(a())), plus(a()));
        assert_eq!(maybe(maybe(a())), maybe(a()));
    }

    #[test]
    fn branches_lose_what_the_whole_has() {
        let (a, b) = (|| of(&[1]), || of(&[2]));
        let any = |steps| BUILD.alternative(steps);
        assert_eq!(star(any(vec![star(a()), b()])), star(of(&[1, 2])));
        assert_eq!(plus(any(vec![maybe(a()), b()])), star(of(&[1, 2])));
        assert_eq!(plus(any(vec![plus(a()), b()])), plus(of(&[1, 2])));
        assert_eq!(maybe(any(vec![maybe(a()), b()])), maybe(of(&[1, 2])));
        // Repetition of one branch stays where the whole is not repeated.
        let one = maybe(any(vec![star(a()), b()]));
        assert_eq!(one, maybe(any(vec![plus(a()), b()])));
        let both = BUILD.sequence(vec![star(a()), maybe(b())]);
        assert_eq!(plus(both), star(of(&[1, 2])));
        let not_both = BUILD.sequence(vec![star(a()), b()]);
        assert!(
            matches!(plus(not_both), PathStep::Closure { step, zero: false, .. }
            if matches!(*step, PathStep::Sequence(_)))
        );
    }

    #[test]
    fn predicates_become_sets() {
        let any = |steps| BUILD.alternative(steps);
        assert_eq!(any(vec![of(&[2]), of(&[1]), of(&[2])]), of(&[1, 2]));
        assert_eq!(any(vec![but(&[1, 2]), of(&[2])]), but(&[1]));
        assert_eq!(any(vec![of(&[2]), but(&[1, 2])]), but(&[1]));
        assert_eq!(any(vec![but(&[1, 2]), but(&[2, 3])]), but(&[2]));
        let nowhere = || PathStep::Alternative(Vec::new());
        assert_eq!(any(vec![nowhere(), of(&[1])]), of(&[1]));
        assert_eq!(BUILD.sequence(vec![of(&[1]), nowhere()]), nowhere());
        assert!(may_be_nothing(&star(nowhere())) && !may_be_nothing(&nowhere()));
    }

    #[test]
    fn without_optimizing_paths_stay_as_written() {
        let plain = Builder::plain(false);
        let inner = plain.closure(of(&[1]), false, true);
        let outer = plain.closure(inner.clone(), true, false);
        assert!(matches!(outer, PathStep::Closure { step, .. } if *step == inner));
        let steps = plain.alternative(vec![of(&[1]), of(&[2])]);
        assert!(matches!(steps, PathStep::Alternative(list) if list.len() == 2));
    }
}
