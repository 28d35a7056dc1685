//! A path as an automaton: which steps may follow which, without the empty ones.
//!
//! Each edge of the path is a position; a state stands for all positions after which the same may follow, so that a
//! path of one edge, repeated, has one state, and a node in it is a node of the graph.
//!
//! # Limits
//! Paths of more than [`POSITIONS_MAX`] edges have none: positions follow each other in pairs.
//!
//! # References
//! Glushkov: The Abstract Theory of Automata (Russian Mathematical Surveys 16, 1961).

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "positions and states are numbered by these very lists"
)]

use stoa_planner::physical::PathStep;

/// How many edges a path may have.
const POSITIONS_MAX: usize = 128;

/// Number of an edge of the path, in the order of a walk over its steps; and the state behind it.
pub(super) type Transition = (usize, u32);

/// See the module header.
#[derive(Clone, Debug)]
pub(super) struct Automaton {
    /// The steps from each state.
    transitions: Vec<Vec<Transition>>,
    /// Whether a path may end in a state that a step has led to.
    accepting: Vec<bool>,
    start: u32,
}

/// What a part of a path may begin and end with.
struct Fragment {
    may_be_nothing: bool,
    first: Vec<usize>,
    last: Vec<usize>,
}

impl Automaton {
    /// That of a path that takes `step` once, or again and again. What it says of a start without any step is left to
    /// the caller.
    pub(super) fn new(step: &PathStep, repeats: bool) -> Option<Self> {
        let mut follow = Vec::new();
        let whole = fragment(step, &mut follow)?;
        if repeats {
            link(&whole.last, &whole.first, &mut follow);
        }
        let positions = follow.len();
        let mut accepting = vec![false; positions];
        for position in &whole.last {
            accepting[*position] = true;
        }
        // The start is one more position, which nothing leads to.
        follow.push(whole.first);
        for next in &mut follow {
            next.sort_unstable();
            next.dedup();
        }
        Some(Self::merged(&follow, &accepting))
    }

    /// Positions that cannot be told apart by what follows become one state.
    fn merged(follow: &[Vec<usize>], accepting: &[bool]) -> Self {
        let positions = accepting.len();
        let mut state: Vec<u32> = accepting.iter().map(|ends| u32::from(*ends)).collect();
        let steps = |position: usize, state: &[u32]| -> Vec<Transition> {
            let next = follow[position].iter();
            next.map(|next| (*next, state[*next])).collect()
        };
        let mut count = 0;
        loop {
            let mut known: Vec<(bool, Vec<Transition>)> = Vec::new();
            let mut finer = Vec::with_capacity(positions);
            for (position, ends) in accepting.iter().enumerate() {
                let own = (*ends, steps(position, &state));
                let place = known.iter().position(|other| *other == own);
                finer.push(place.unwrap_or(known.len()) as u32);
                if place.is_none() {
                    known.push(own);
                }
            }
            state = finer;
            if known.len() == count {
                break;
            }
            count = known.len();
        }
        let mut one = Self {
            transitions: vec![Vec::new(); count],
            accepting: vec![false; count],
            start: 0,
        };
        for (position, own) in state.iter().enumerate() {
            one.transitions[*own as usize] = steps(position, &state);
            one.accepting[*own as usize] = accepting[position];
        }
        let first = steps(positions, &state);
        let like = |other: &Vec<Transition>| *other == first;
        let start = one.transitions.iter().position(like);
        one.start = start.unwrap_or(count) as u32;
        if start.is_none() {
            one.transitions.push(first);
            one.accepting.push(false);
        }
        one
    }

    /// How many states there are.
    pub(super) const fn states(&self) -> usize {
        self.accepting.len()
    }

    /// The state of a node that a path begins at.
    pub(super) const fn start(&self) -> u32 {
        self.start
    }

    /// The steps from a state.
    pub(super) fn steps(&self, state: u32) -> &[Transition] {
        &self.transitions[state as usize]
    }

    /// Whether a step that leads to a state may be the last one.
    pub(super) fn accepts(&self, state: u32) -> bool {
        self.accepting[state as usize]
    }

    /// The only state in which a path may end, if there is no other.
    pub(super) fn only_end(&self) -> Option<u32> {
        let mut ends = (0..self.states() as u32).filter(|state| self.accepts(*state));
        let only = ends.next()?;
        ends.next().is_none().then_some(only)
    }
}

/// What a step begins and ends with; adds its positions, and what follows each of them within. `None` if there are too
/// many.
fn fragment(step: &PathStep, follow: &mut Vec<Vec<usize>>) -> Option<Fragment> {
    Some(match step {
        PathStep::Edge { .. } => {
            if follow.len() == POSITIONS_MAX {
                return None;
            }
            follow.push(Vec::new());
            let own = vec![follow.len() - 1];
            Fragment {
                may_be_nothing: false,
                first: own.clone(),
                last: own,
            }
        }
        PathStep::Sequence(parts) => {
            let mut whole = Fragment {
                may_be_nothing: true,
                first: Vec::new(),
                last: Vec::new(),
            };
            for part in parts {
                let next = fragment(part, follow)?;
                link(&whole.last, &next.first, follow);
                if whole.may_be_nothing {
                    whole.first.extend_from_slice(&next.first);
                }
                if !next.may_be_nothing {
                    whole.last.clear();
                }
                whole.last.extend(next.last);
                whole.may_be_nothing &= next.may_be_nothing;
            }
            whole
        }
        PathStep::Alternative(branches) => {
            let mut whole = Fragment {
                may_be_nothing: false,
                first: Vec::new(),
                last: Vec::new(),
            };
            for branch in branches {
                let next = fragment(branch, follow)?;
                whole.first.extend(next.first);
                whole.last.extend(next.last);
                whole.may_be_nothing |= next.may_be_nothing;
            }
            whole
        }
        PathStep::Closure {
            step,
            zero,
            repeats,
        } => {
            let mut inner = fragment(step, follow)?;
            if *repeats {
                link(&inner.last, &inner.first, follow);
            }
            inner.may_be_nothing |= *zero;
            inner
        }
    })
}

fn link(last: &[usize], first: &[usize], follow: &mut [Vec<usize>]) {
    for position in last {
        follow[*position].extend_from_slice(first);
    }
}

#[cfg(test)]
mod tests {
    use stoa_planner::physical::PredicateSet;

    use super::*;

    fn edge() -> PathStep {
        PathStep::Edge {
            predicates: PredicateSet::Of(Vec::new()),
            inverse: false,
        }
    }

    fn closure(step: PathStep, zero: bool, repeats: bool) -> PathStep {
        PathStep::Closure {
            step: Box::new(step),
            zero,
            repeats,
        }
    }

    /// Whether a sequence of edges is a path.
    fn takes(automaton: &Automaton, edges: &[usize]) -> bool {
        let mut states = vec![automaton.start()];
        for edge in edges {
            let steps = states.iter().flat_map(|state| automaton.steps(*state));
            let next = steps.filter(|(other, _)| other == edge);
            states = next.map(|(_, state)| *state).collect();
        }
        states.iter().any(|state| automaton.accepts(*state))
    }

    #[test]
    fn what_is_repeated_has_few_states() {
        let one = Automaton::new(&edge(), true).unwrap();
        assert_eq!((one.states(), one.start(), one.only_end()), (1, 0, Some(0)));
        let either = PathStep::Alternative(vec![edge(), edge()]);
        let either = Automaton::new(&either, true).unwrap();
        assert_eq!((either.states(), either.only_end()), (1, Some(0)));
        let both = Automaton::new(&PathStep::Sequence(vec![edge(), edge()]), true).unwrap();
        assert_eq!(both.states(), 2);
        assert_eq!(both.only_end(), Some(both.start()));
        // Once only: there is a start behind which nothing leads back.
        let once = Automaton::new(&edge(), false).unwrap();
        assert_eq!(once.states(), 2);
        assert_ne!(once.only_end(), Some(once.start()));
    }

    #[test]
    fn automata_take_the_paths() {
        // a / (b? / c+) | d
        let step = PathStep::Alternative(vec![
            PathStep::Sequence(vec![
                edge(),
                closure(edge(), true, false),
                closure(edge(), false, true),
            ]),
            edge(),
        ]);
        let once = Automaton::new(&step, false).unwrap();
        let again = Automaton::new(&step, true).unwrap();
        for good in [&[0, 2][..], &[0, 1, 2], &[0, 2, 2, 2], &[3]] {
            assert!(takes(&once, good) && takes(&again, good), "{good:?}");
            let twice = [good, good].concat();
            assert!(!takes(&once, &twice) && takes(&again, &twice), "{good:?}");
        }
        for bad in [&[0][..], &[0, 1], &[1, 2], &[0, 1, 1, 2], &[2]] {
            assert!(!takes(&once, bad) && !takes(&again, bad), "{bad:?}");
        }
        let nowhere = PathStep::Sequence(vec![edge(), PathStep::Alternative(Vec::new())]);
        assert!(!takes(&Automaton::new(&nowhere, true).unwrap(), &[0]));
        assert_eq!(Automaton::new(&nowhere, true).unwrap().only_end(), None);
    }

    #[test]
    fn long_paths_have_none() {
        let long = |edges: usize| PathStep::Sequence(vec![edge(); edges]);
        assert!(Automaton::new(&long(POSITIONS_MAX), true).is_some());
        assert!(Automaton::new(&long(POSITIONS_MAX + 1), true).is_none());
    }
}
