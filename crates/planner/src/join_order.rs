//! The order in which the parts of a group are joined, and by which methods.
//!
//! A greedy order comes first. If it costs little, it is taken; else dynamic programming looks for a
//! better one, within what the best one so far costs: over all trees for few items; for more over the
//! trees whose leaves stand in the greedy order, or in that with stars together (`linear`), and if
//! they are not too many over left-deep ones. For each set of items the cheapest tree is kept, and the
//! cheapest one for each variable that a tree is sorted by, since that lets a merge join follow.
//!
//! # Invariants
//! 1. No search looks at more pairs of sets than it was weighed with (`debug_assert` in `Search::keeps_to`; test
//!    `searches_keep_to_their_pairs`).
//!
//! # Limits
//! At most [`ITEMS_MAX`] items; the caller joins larger groups piece by piece. Dynamic programming
//! over sets up to [`DYNAMIC_MAX`] items. Each search is begun only where its time is little beside what
//! the best tree so far costs.
//!
//! # References
//! Moerkotte: Building Query Compilers; Neumann, Weikum: RDF-3X (2008), on orders of patterns.

mod linear;
mod ordered;

use std::borrow::Cow;

use crate::access_path::{Access, lookup};
use crate::cost;
use crate::error::Error;
use crate::lowering::{Drawn, PathFigures, Samples, Spread, Star};
use crate::physical::{QuadPattern, Variable};
use crate::variable_set::VariableSet;
use crate::{ForcedChoices, ForcedJoin};

pub(crate) use ordered::{Ordered, Wanted, WantedPart};

/// After so many sets of items somebody may want to end it.
const SETS_AT_ONCE: usize = 32;

/// How many items are ordered at once.
pub(crate) const ITEMS_MAX: usize = 64;
/// Up to how many items dynamic programming looks at left-deep trees.
const DYNAMIC_MAX: usize = 10;
/// Up to how many items it looks at all trees.
const BUSHY_MAX: usize = 6;
/// What a row is taken to cost in the joins that are still to come, for the greedy order.
const ROW_AHEAD: f64 = 150.0;
/// The left side of a hash join that is read in the order of a key can be narrowed to the keys of the right side: so it is
/// taken where another order would cost the same.
const NARROWED: f64 = 1.0;
/// No estimate is larger.
const ROWS_MAX: f64 = 1e100;
/// What looking at one pair of sets costs, in nanoseconds.
const PAIR_NS: f64 = 400.0;
/// How many times the search a greedy order must cost to be worth improving.
const WORTH: f64 = 10.0;

/// Something to be joined.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) certain: VariableSet,
    pub(crate) possible: VariableSet,
    /// Solutions after the conditions on this item alone.
    pub(crate) rows: f64,
    /// How many different terms a shared variable takes before conditions on other variables, where
    /// it is known; else `rows`.
    pub(crate) distinct: Vec<(Variable, f64)>,
    pub(crate) source: Source,
}

impl Item {
    /// Which share of the matches of its pattern its conditions leave, but for ranges of these variables.
    pub(crate) fn share_beyond(&self, variables: &VariableSet) -> f64 {
        let Source::Pattern { rows, ranged, .. } = &self.source else {
            return 1.0;
        };
        let counted = ranged
            .iter()
            .filter(|(variable, _)| variables.contains(*variable));
        let counted: f64 = counted.map(|(_, share)| *share).product();
        match counted > 0.0 {
            true => (self.rows / rows.max(1.0) / counted).min(1.0),
            false => 0.0,
        }
    }

    /// How many different terms a variable of it takes; at least one.
    pub(crate) fn distinct_of(&self, variable: Variable) -> f64 {
        let known = self.distinct.iter().find(|(other, _)| *other == variable);
        known
            .map_or(self.rows, |(_, distinct)| *distinct)
            .clamp(1.0, ROWS_MAX)
    }
}

/// What an item is made of.
#[derive(Clone)]
pub(crate) enum Source {
    /// A quad pattern, with the ways to read it.
    Pattern {
        pattern: Box<QuadPattern>,
        /// Matches before any condition.
        rows: f64,
        /// Which share of them is left by the ranges of each variable that has some, where a permutation allows for
        /// reading these alone.
        ranged: Vec<(Variable, f64)>,
        /// What the conditions above take for a row, in nanoseconds.
        condition_row: f64,
        accesses: Vec<Read>,
    },
    /// A plan that is ready.
    Plan { cost: f64, sorted: Option<Variable> },
    /// A path, with what its plan costs on its own.
    Path {
        cost: f64,
        figures: Box<PathFigures>,
    },
}

/// One way to read a pattern.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    pub(crate) access: Access,
    /// Rows that are read, after ranges.
    pub(crate) rows: f64,
    /// Nanoseconds to read them.
    pub(crate) cost: f64,
    pub(crate) sorted: Option<Variable>,
    /// Whether parts of it can be read one after the other, as they are wanted.
    pub(crate) in_ranges: bool,
    /// How many values the variable has then by which it is sorted.
    pub(crate) values: f64,
}

/// A condition over several items.
pub(crate) struct Condition {
    /// For each variable the items that bind it for certain, and those that may bind it.
    pub(crate) variables: Vec<(u64, u64)>,
    pub(crate) selectivity: f64,
}

impl Condition {
    /// Whether the condition has the same value for a join of `set` as for all items.
    pub(crate) fn is_covered(&self, set: u64) -> bool {
        self.variables
            .iter()
            .all(|&(certain, possible)| certain & set != 0 || possible & !set == 0)
    }
}

/// A tree of joins.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) items: u64,
    pub(crate) rows: f64,
    pub(crate) cost: f64,
    pub(crate) sorted: Option<Variable>,
    pub(crate) step: Step,
}

/// The topmost step of a tree; numbers are places in [`Order::trees`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Reads a pattern in the access of this number.
    Read {
        item: usize,
        access: usize,
    },
    /// Takes a plan as it is.
    Plan {
        item: usize,
    },
    Merge {
        left: usize,
        right: usize,
        key: Variable,
    },
    Hash {
        left: usize,
        right: usize,
    },
    /// Looks the pattern of an item up for each solution of the left side.
    Lookup {
        left: usize,
        item: usize,
    },
    /// Searches the path of an item from what the left side binds.
    Search {
        left: usize,
        item: usize,
    },
}

/// Trees, the last chosen one among them.
pub(crate) struct Order {
    /// The items, where more was found out about them.
    pub(crate) items: Option<Vec<Item>>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) root: usize,
    /// What takes the place of `root` where a part of the solutions is wanted.
    pub(crate) ordered: Option<Ordered>,
    /// How `root` is read where some solutions are wanted and nothing takes its place.
    pub(crate) some: Option<Ordered>,
    /// How many pairs of sets were looked at.
    #[cfg(test)]
    pairs: usize,
}

/// Finds out more about a join that is expected to cost so many nanoseconds, if that is worth while.
pub(crate) type Draw<'a> = &'a dyn Fn(f64) -> Result<Known, Error>;

/// What was found out about a join.
#[derive(Default)]
pub(crate) struct Known {
    /// Samples, if any were drawn.
    pub(crate) drawn: Option<Drawn>,
    pub(crate) stars: Vec<Star>,
    pub(crate) spreads: Vec<Spread>,
}

/// Orders `items`; none if there are none. `go_on` is asked now and then, and may end it.
pub(crate) fn order(
    items: &[Item],
    conditions: &[Condition],
    (forced, wanted): (ForcedChoices, Option<Wanted>),
    draw: Draw<'_>,
    go_on: &dyn Fn() -> Result<(), Error>,
) -> Result<Option<Order>, Error> {
    let together = shared_by(items.iter().map(|item| &item.possible));
    let bindings = |item: &Item| Bindings {
        certain: item.certain.intersection(&together),
        possible: item.possible.intersection(&together),
    };
    let mut search = Search {
        items: Cow::Borrowed(items),
        bindings: items.iter().map(bindings).collect(),
        conditions,
        forced: forced.join_of_two(),
        linear: forced.linear,
        shared: shared_variables(items, &together),
        together,
        samples: None,
        stars: Vec::new(),
        spreads: Vec::new(),
        draw,
        trees: Vec::new(),
        bound: f64::INFINITY,
        keeps_all: false,
        wanted,
        go_on,
        ended: None,
        pairs: 0,
    };
    let root = search.root();
    #[cfg(test)]
    let pairs = search.pairs;
    let ordered = root.zip(wanted);
    let some = ordered.and_then(|(root, wanted)| search.read_for_some(wanted, root));
    let ordered = ordered.and_then(|(root, wanted)| search.ordered(wanted, root));
    match (search.ended, root) {
        (Some(error), _) => Err(error),
        (None, None) => Ok(None),
        (None, Some(root)) => Ok(Some(Order {
            items: match search.items {
                Cow::Owned(items) => Some(items),
                Cow::Borrowed(_) => None,
            },
            trees: search.trees,
            root,
            ordered,
            some,
            #[cfg(test)]
            pairs,
        })),
    }
}

/// Whether looking at so many pairs of sets takes little time beside a plan of this cost.
fn is_worth(pairs: f64, cost: f64) -> bool {
    cost > WORTH * pairs * PAIR_NS
}

/// How many pairs of sets there are to look at: of all items up to [`BUSHY_MAX`], of all and one more beyond.
fn pairs_of_sets(count: usize) -> f64 {
    let power = |base: f64| (0..count).fold(1.0, |product, _| product * base);
    match count <= BUSHY_MAX {
        true => power(3.0),
        false => power(2.0) * cost::columns(count),
    }
}

/// How many pairs of intervals of a sequence are next to each other, each in both directions.
fn pairs_of_intervals(count: usize) -> f64 {
    cost::columns(count).powi(3) / 3.0
}

/// A variable that several items have.
struct Shared {
    variable: Variable,
    items: u64,
    /// Distinct values in each item; 0 where the item does not have it.
    distinct: Vec<f64>,
}

/// The variables that are in several of these sets.
pub(crate) fn shared_by<'a>(sets: impl Iterator<Item = &'a VariableSet>) -> VariableSet {
    let mut once = VariableSet::new();
    let mut twice = VariableSet::new();
    for set in sets {
        twice.union_with(&once.intersection(set));
        once.union_with(set);
    }
    twice
}

fn shared_variables(items: &[Item], shared: &VariableSet) -> Vec<Shared> {
    shared
        .iter()
        .map(|variable| Shared {
            variable,
            items: items
                .iter()
                .enumerate()
                .filter(|(_, item)| item.possible.contains(variable))
                .fold(0, |set, (number, _)| set | 1 << number),
            distinct: items
                .iter()
                .map(|item| {
                    if !item.possible.contains(variable) {
                        return 0.0;
                    }
                    item.distinct_of(variable)
                })
                .collect(),
        })
        .collect()
}

/// Which of the variables that several items have a set of items binds, and may bind. Others make no
/// difference to a join, and there may be thousands of them.
#[derive(Clone, Default)]
struct Bindings {
    certain: VariableSet,
    possible: VariableSet,
}

impl Bindings {
    fn union_with(&mut self, other: &Self) {
        self.certain.union_with(&other.certain);
        self.possible.union_with(&other.possible);
    }
}

struct Search<'a> {
    items: Cow<'a, [Item]>,
    /// Those of each item.
    bindings: Vec<Bindings>,
    conditions: &'a [Condition],
    forced: Option<ForcedJoin>,
    linear: Option<bool>,
    /// The variables that several items have.
    together: VariableSet,
    shared: Vec<Shared>,
    /// Drawn where a plan without them costs enough.
    samples: Option<Samples>,
    /// What is known of items with one subject, likewise.
    stars: Vec<Star>,
    /// How often terms are met that items share, likewise.
    spreads: Vec<Spread>,
    draw: Draw<'a>,
    trees: Vec<Tree>,
    /// Trees that cost more are not looked at.
    bound: f64,
    /// Whether joins that cost more than others are given as well.
    keeps_all: bool,
    /// What is wanted of the solutions.
    wanted: Option<Wanted>,
    go_on: &'a dyn Fn() -> Result<(), Error>,
    /// Why the search has ended before it was done.
    ended: Option<Error>,
    /// How many pairs of sets were looked at; of the same sets once for each of them on the left.
    pairs: usize,
}

/// An estimate that can be multiplied with another one. Products of many patterns leave the range of
/// floating-point numbers, and what comes after infinity is no number at all.
pub(crate) const fn limited(rows: f64) -> f64 {
    rows.min(ROWS_MAX)
}

/// The items of a set.
pub(crate) fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let item = set.trailing_zeros() as usize;
        set &= set - 1;
        Some(item)
    })
}

impl Search<'_> {
    /// The best tree of all items; `None` if there are none, or the search was ended.
    fn root(&mut self) -> Option<usize> {
        let (mut root, mut sequence) = self.greedy()?;
        let mut cost = self.expected_cost(root)?;
        if self.forced.is_none() && self.draws(cost)? {
            (root, sequence) = self.greedy()?;
            cost = self.expected_cost(root)?;
        }
        let count = sequence.len();
        let by_sets = count > 1 && count <= DYNAMIC_MAX && self.linear != Some(true);
        if count > BUSHY_MAX || self.linear == Some(true) {
            root = self.over_sequences((root, cost), sequence)?;
        }
        if by_sets && is_worth(pairs_of_sets(count), self.bounded_by(root)?.min(cost)) {
            let before = self.pairs;
            root = self.dynamic().unwrap_or(root);
            self.keeps_to(pairs_of_sets(count), before);
        }
        Some(root)
    }

    /// The best tree over the sequence of the greedy one and over that with stars together, where looking for it is worth
    /// while; else `root`.
    fn over_sequences(
        &mut self,
        (mut root, expected): (usize, f64),
        sequence: Vec<usize>,
    ) -> Option<usize> {
        let pairs = pairs_of_intervals(sequence.len());
        let by_stars = self.by_stars(&sequence);
        let other = Some(by_stars).filter(|other| *other != sequence);
        for sequence in [Some(sequence), other].into_iter().flatten() {
            let cost = self.bounded_by(root)?.min(expected);
            let is_wanted = self.linear.unwrap_or_else(|| is_worth(pairs, cost));
            if is_wanted && sequence.len() > 2 {
                let before = self.pairs;
                root = self.linear(&sequence).unwrap_or(root);
                self.keeps_to(pairs, before);
            }
        }
        Some(root)
    }

    /// Asserts that no more pairs were looked at than a search was weighed with, since there were so many before it.
    fn keeps_to(&self, pairs: f64, before: usize) {
        debug_assert!(
            cost::columns(self.pairs - before) <= pairs,
            "{} pairs and not {pairs}",
            self.pairs - before
        );
    }

    /// Keeps what follows from looking at trees that cost more than this one, and tells what it costs.
    fn bounded_by(&mut self, root: usize) -> Option<f64> {
        let cost = self.trees.get(root)?.cost;
        self.bound = match self.forced {
            Some(_) => f64::INFINITY,
            None => cost,
        };
        Some(cost)
    }

    /// Whether more is known now, for a tree of this cost that was found without it; `None` if the search is to end.
    fn draws(&mut self, cost: f64) -> Option<bool> {
        match (self.draw)(cost) {
            Ok(known) => {
                let is_any =
                    known.drawn.is_some() || !known.stars.is_empty() || !known.spreads.is_empty();
                self.stars = known.stars;
                self.spreads = known.spreads;
                if let Some(Drawn { items, samples }) = known.drawn {
                    self.shared = shared_variables(&items, &self.together);
                    self.items = Cow::Owned(items);
                    self.samples = Some(samples);
                }
                Some(is_any)
            }
            Err(error) => {
                self.ended = Some(error);
                None
            }
        }
    }

    /// `None` if the search is to end.
    fn goes_on(&mut self) -> Option<()> {
        self.ended = (self.go_on)().err();
        self.ended.is_none().then_some(())
    }

    /// Expected solutions of a join of a set of items, with the conditions over it.
    fn rows(&self, set: u64) -> f64 {
        let guessed = |of: u64| self.joined((0, 1.0), of);
        let known = self.samples.as_ref().and_then(|samples| samples.rows(set));
        let mut rows = match known {
            None => guessed(set),
            Some((part, rows, true)) => self.joined((part, rows), set & !part),
            // That nothing was found is known, not how little there is.
            Some((part, most, false)) => self.joined((part, guessed(part).min(most)), set & !part),
        };
        for condition in self.conditions {
            if condition.is_covered(set) {
                rows *= condition.selectivity;
            }
        }
        limited(rows)
    }

    /// Expected solutions of a join of a set that has `rows` with further items, without conditions.
    fn joined(&self, (mut set, mut rows): (u64, f64), mut further: u64) -> f64 {
        while further != 0 {
            let sampled = members(further).find_map(|next| Some((next, self.sampled(set, next)?)));
            let next = match sampled {
                Some((next, partners)) => {
                    rows = limited(rows * partners);
                    next
                }
                None => {
                    let next = further.trailing_zeros() as usize;
                    rows = self.joined_with(set, rows, next);
                    next
                }
            };
            set |= 1 << next;
            further &= !(1 << next);
        }
        rows
    }

    /// How many matches of an item go with each of the item of a set that binds all that they share, by samples.
    fn sampled(&self, set: u64, next: usize) -> Option<f64> {
        let samples = self.samples.as_ref()?;
        let bindings = self.bindings.get(next)?;
        let shared = self.shared.iter().filter(|shared| {
            set & shared.items != 0 && bindings.possible.contains(shared.variable)
        });
        // All items if nothing is shared: then there is no such item.
        let centres = shared.fold(None, |binding: Option<u64>, shared| {
            Some(binding.unwrap_or(set) & shared.items)
        });
        members(centres?).find_map(|centre| samples.partners(set, centre, next))
    }

    /// Expected solutions of a join of a set that has `rows` with one item more, without conditions.
    fn joined_with(&self, set: u64, rows: f64, next: usize) -> f64 {
        let Some((item, bindings)) = self.items.get(next).zip(self.bindings.get(next)) else {
            return rows;
        };
        let mut of_star = self.stars.iter();
        let of_star = of_star.find_map(|star| Some((star.subject, star.factor(set, next)?)));
        let mut rows = limited(rows * of_star.map_or(item.rows, |(_, factor)| factor));
        for variable in bindings.possible.iter() {
            if of_star.is_some_and(|(subject, _)| subject == variable) {
                continue;
            }
            // Ascending, as the variables of a set are.
            let found = self
                .shared
                .binary_search_by_key(&variable, |shared| shared.variable);
            let Some(shared) = found.ok().and_then(|at| self.shared.get(at)) else {
                continue;
            };
            let of_stars = self.stars.iter().filter(|star| star.subject == variable);
            let of_stars = of_stars.filter_map(|star| star.together(set));
            let mut spreads = self
                .spreads
                .iter()
                .filter(|known| known.variable == variable);
            let kept = spreads.find_map(|spread| {
                let star = of_stars.clone().next();
                spread.selectivity(set & shared.items, next, star)
            });
            if let Some(kept) = kept {
                rows *= kept;
                continue;
            }
            let of_stars = of_stars.map(|(.., subjects)| subjects);
            let smallest = members(set & shared.items)
                .filter_map(|item| shared.distinct.get(item).copied())
                .chain(of_stars)
                .fold(f64::INFINITY, f64::min);
            if let Some(own) = shared.distinct.get(next)
                && smallest.is_finite()
            {
                rows /= smallest.max(*own);
            }
        }
        rows
    }

    /// [`Self::rows`] of `set` and one more item, where `set` has `rows`.
    fn rows_with(&self, set: u64, rows: f64, next: usize) -> f64 {
        let joined = set | 1 << next;
        if self.samples.is_some() {
            return self.rows(joined);
        }
        let mut rows = self.joined_with(set, rows, next);
        for condition in self.conditions {
            if condition.is_covered(joined) && !condition.is_covered(set) {
                rows *= condition.selectivity;
            }
        }
        rows
    }

    /// The trees of one item.
    fn single(&self, number: usize, into: &mut Vec<Tree>) {
        let Some(item) = self.items.get(number) else {
            return;
        };
        let tree = |cost, sorted, step| Tree {
            items: 1 << number,
            rows: item.rows,
            cost,
            sorted,
            step,
        };
        match &item.source {
            Source::Plan { cost, sorted } => {
                into.push(tree(*cost, *sorted, Step::Plan { item: number }));
            }
            Source::Path { cost, .. } => {
                into.push(tree(*cost, None, Step::Plan { item: number }));
            }
            Source::Pattern {
                accesses,
                condition_row,
                ..
            } => {
                for (access, read) in accesses.iter().enumerate() {
                    let cost = read.cost + read.rows * condition_row;
                    let step = Step::Read {
                        item: number,
                        access,
                    };
                    add(tree(cost, read.sorted, step), into);
                }
            }
        }
    }

    /// The ways to join two trees.
    fn join(
        &self,
        (left, left_binds): (usize, &Bindings),
        (right, right_binds): (usize, &Bindings),
        rows: f64,
        into: &mut Vec<Tree>,
    ) {
        let (Some(a), Some(b)) = (self.trees.get(left), self.trees.get(right)) else {
            return;
        };
        let output = rows * cost::OUTPUT_ROW;
        let cheapest = a.cost + output;
        if cheapest > self.bound {
            return;
        }
        let shared = left_binds.possible.intersection(&right_binds.possible);
        let left_certain = &left_binds.certain;
        let bound = shared.is_subset(left_certain) && shared.is_subset(&right_binds.certain);
        let tree = |cost, sorted, step| Tree {
            items: a.items | b.items,
            rows,
            cost,
            sorted,
            step,
        };
        let merge = (bound && !shared.is_empty())
            .then(|| a.sorted.filter(|key| b.sorted == Some(*key)))
            .flatten()
            .map(|key| {
                let sides = self.merged_side(a, b.rows) + self.merged_side(b, a.rows);
                // What shares one variable alone is put out as it is.
                let compared = match shared.iter().nth(1) {
                    Some(_) => self.equal_pairs(a, b, key) * cost::COMPARED_PAIR,
                    None => 0.0,
                };
                let cost = sides + compared + output;
                tree(cost, Some(key), Step::Merge { left, right, key })
            });
        let probed = bound
            .then(|| self.lookup(a, b, left_certain, &shared))
            .flatten()
            .map(|(item, cost)| {
                let cost = a.cost + cost + output;
                tree(cost, a.sorted, Step::Lookup { left, item })
            });
        let searched = bound
            .then(|| self.search(a, b, left_certain))
            .flatten()
            .map(|(item, cost)| tree(a.cost + cost + output, None, Step::Search { left, item }));
        let is_by_key = matches!(a.step, Step::Read { .. })
            && a.sorted.is_some_and(|sorted| shared.contains(sorted));
        let narrowed = if is_by_key { NARROWED } else { 0.0 };
        let hashed = tree(
            a.cost + b.cost + cost::hash(b.rows, a.rows) + output - narrowed,
            a.sorted,
            Step::Hash { left, right },
        );
        let probed = probed.into_iter().chain(searched);
        for tree in merge.into_iter().chain(probed).chain([hashed]) {
            if self.forced.is_some() || self.keeps_all {
                // Sorted out by `enforce`, or by what a part of it costs.
                into.push(tree);
            } else if tree.cost <= self.bound {
                add(tree, into);
            }
        }
    }

    /// What a side of a merge join costs whose other side has `keys` rows: it is read as a whole, or leapt through.
    fn merged_side(&self, tree: &Tree, keys: f64) -> f64 {
        let whole = tree.cost + tree.rows * cost::MERGE_ROW;
        let leapt = match tree.step {
            Step::Read { item, access } => {
                let read = match self.items.get(item).map(|item| &item.source) {
                    Some(Source::Pattern { accesses, .. }) => accesses.get(access),
                    _ => None,
                };
                read.and_then(|read| cost::leaps(keys, read.rows))
            }
            Step::Merge { left, right, .. } if cost::is_leapt(keys, tree.rows) => {
                let sides = self.trees.get(left).zip(self.trees.get(right));
                sides.map(|(left, right)| {
                    let sides = self.merged_side(left, keys) + self.merged_side(right, keys);
                    sides + keys * cost::LEAPT
                })
            }
            _ => None,
        };
        leapt.map_or(whole, |leapt| whole.min(leapt))
    }

    /// How many pairs of solutions have the same term for `key`, whatever else they share.
    fn equal_pairs(&self, a: &Tree, b: &Tree, key: Variable) -> f64 {
        // Ascending, as the variables of a set are.
        let found = self
            .shared
            .binary_search_by_key(&key, |shared| shared.variable);
        let shared = found.ok().and_then(|at| self.shared.get(at));
        let distinct = |tree: &Tree| {
            let shared = shared.into_iter();
            let items = shared.flat_map(|shared| {
                let members = members(tree.items & shared.items);
                members.filter_map(|item| shared.distinct.get(item))
            });
            items.fold(tree.rows, |least, distinct| least.min(*distinct))
        };
        limited(a.rows * b.rows) / distinct(a).max(distinct(b)).max(1.0)
    }

    /// What looking up the pattern of `right` costs, if `right` is one.
    fn lookup(
        &self,
        left: &Tree,
        right: &Tree,
        certain: &VariableSet,
        shared: &VariableSet,
    ) -> Option<(usize, f64)> {
        let Step::Read { item, .. } = right.step else {
            return None;
        };
        let Source::Pattern {
            pattern,
            rows,
            condition_row,
            ..
        } = &self.items.get(item)?.source
        else {
            return None;
        };
        if shared.is_empty() {
            return None;
        }
        lookup(pattern, certain, left.rows, false)?;
        // The key need not be the first shared variable; then it is no use that the left is sorted.
        let sorted = left
            .sorted
            .is_some_and(|variable| shared.contains(variable));
        let cost = cost::lookup(left.rows, *rows, sorted);
        Some((item, cost + left.rows * condition_row))
    }

    /// What searching the path of `right` from what `left` binds costs, if `right` is a path.
    fn search(&self, left: &Tree, right: &Tree, certain: &VariableSet) -> Option<(usize, f64)> {
        let Step::Plan { item } = right.step else {
            return None;
        };
        let Source::Path { figures, .. } = &self.items.get(item)?.source else {
            return None;
        };
        Some((item, figures.cost_from(left.rows, certain)?))
    }

    /// Left-deep, each time the item that makes the least of it; with the sequence of the items.
    fn greedy(&mut self) -> Option<(usize, Vec<usize>)> {
        let count = self.items.len();
        let mut singles: Vec<Vec<usize>> = Vec::with_capacity(count);
        for number in 0..count {
            let mut trees = Vec::new();
            self.single(number, &mut trees);
            singles.push(self.keep(trees));
        }
        let first = (0..count).min_by(|&a, &b| {
            let weight = |number: usize| {
                let cheapest = singles.get(number).and_then(|trees| self.cheapest(trees));
                cheapest.map_or((f64::INFINITY, f64::INFINITY), |tree| {
                    (tree.rows, tree.cost)
                })
            };
            let (a, b) = (weight(a), weight(b));
            (a.0 + a.1 / 1_000.0).total_cmp(&(b.0 + b.1 / 1_000.0))
        })?;
        let mut current = singles.get(first)?.clone();
        let mut sequence = vec![first];
        let mut set: u64 = 1 << first;
        let mut binds = self.bindings.get(first)?.clone();
        let mut rows_so_far = self.items.get(first)?.rows;
        while set.count_ones() as usize != count {
            self.goes_on()?;
            let mut best: Option<(f64, f64, usize, Vec<Tree>)> = None;
            let rest: Vec<usize> = (0..count).filter(|next| set & (1 << next) == 0).collect();
            let is_connected = |next: &&usize| {
                let other = self.bindings.get(**next);
                other.is_some_and(|other| !other.possible.is_disjoint(&binds.possible))
            };
            let mut candidates: Vec<usize> = rest.iter().filter(is_connected).copied().collect();
            if candidates.is_empty() {
                candidates = rest;
            }
            self.pairs += 2 * candidates.len();
            for next in candidates {
                let rows = self.rows_with(set, rows_so_far, next);
                let mut trees = Vec::new();
                let own = self.bindings.get(next)?;
                for &left in &current {
                    for &right in singles.get(next)? {
                        self.join((left, &binds), (right, own), rows, &mut trees);
                        self.join((right, own), (left, &binds), rows, &mut trees);
                    }
                }
                self.enforce(&mut trees);
                let cost = trees
                    .iter()
                    .map(|tree| tree.cost)
                    .fold(f64::INFINITY, f64::min);
                let weight = cost + rows * ROW_AHEAD;
                if best.as_ref().is_none_or(|(least, ..)| weight < *least) {
                    best = Some((weight, rows, next, trees));
                }
            }
            let (_, rows, next, trees) = best?;
            rows_so_far = rows;
            current = self.keep(trees);
            sequence.push(next);
            set |= 1 << next;
            binds.union_with(self.bindings.get(next)?);
        }
        Some((self.cheapest_number(&current)?, sequence))
    }

    /// Dynamic programming; `None` if nothing is cheaper than the bound.
    fn dynamic(&mut self) -> Option<usize> {
        let count = self.items.len();
        let full: usize = (1 << count) - 1;
        let mut binds: Vec<Bindings> = vec![Bindings::default(); full + 1];
        for set in 1..=full {
            let mut all = binds.get(set & (set - 1))?.clone();
            all.union_with(self.bindings.get(set.trailing_zeros() as usize)?);
            *binds.get_mut(set)? = all;
        }
        let mut best: Vec<Vec<usize>> = vec![Vec::new(); full + 1];
        for number in 0..count {
            let mut trees = Vec::new();
            self.single(number, &mut trees);
            let kept = self.keep(trees);
            *best.get_mut(1 << number)? = kept;
        }
        for set in 1..=full {
            if set.is_multiple_of(SETS_AT_ONCE) {
                self.goes_on()?;
            }
            if set.is_power_of_two() {
                continue;
            }
            let rows = self.rows(set as u64);
            let mut trees = Vec::new();
            for connected in [true, false] {
                if !trees.is_empty() {
                    break;
                }
                let mut part = (set - 1) & set;
                while part > 0 {
                    let rest = set & !part;
                    let looked_at = count <= BUSHY_MAX || rest.is_power_of_two();
                    if looked_at && self.is_connected(part as u64, rest as u64) == connected {
                        self.pairs += 1;
                        let (one, other) = (binds.get(part)?, binds.get(rest)?);
                        for &left in best.get(part)? {
                            for &right in best.get(rest)? {
                                self.join((left, one), (right, other), rows, &mut trees);
                            }
                        }
                    }
                    part = (part - 1) & set;
                }
            }
            self.enforce(&mut trees);
            let kept = self.keep(trees);
            *best.get_mut(set)? = kept;
        }
        self.cheapest_number(best.get(full)?)
    }

    fn is_connected(&self, left: u64, right: u64) -> bool {
        self.shared
            .iter()
            .any(|shared| shared.items & left != 0 && shared.items & right != 0)
    }

    /// Where the forced method can be taken, nothing else is.
    fn enforce(&self, trees: &mut Vec<Tree>) {
        let Some(forced) = self.forced else {
            return;
        };
        let is_forced = |tree: &Tree| match tree.step {
            Step::Merge { .. } => forced == ForcedJoin::Merge,
            Step::Hash { .. } => forced == ForcedJoin::Hash,
            Step::Lookup { .. } | Step::Search { .. } => forced == ForcedJoin::IndexNestedLoop,
            Step::Read { .. } | Step::Plan { .. } => false,
        };
        if trees.iter().any(is_forced) {
            trees.retain(is_forced);
        }
        for tree in std::mem::take(trees) {
            add(tree, trees);
        }
    }

    fn keep(&mut self, trees: Vec<Tree>) -> Vec<usize> {
        let first = self.trees.len();
        self.trees.extend(trees);
        (first..self.trees.len()).collect()
    }

    fn cheapest(&self, numbers: &[usize]) -> Option<&Tree> {
        self.trees.get(self.cheapest_number(numbers)?)
    }

    fn cheapest_number(&self, numbers: &[usize]) -> Option<usize> {
        let cost = |number: usize| self.trees.get(number).map_or(f64::INFINITY, |t| t.cost);
        numbers
            .iter()
            .copied()
            .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
    }
}

/// Keeps `tree` unless one that is sorted the same way, or a cheaper one where it is not sorted, is
/// there already; drops those that it makes superfluous.
fn add(tree: Tree, into: &mut Vec<Tree>) {
    let beats =
        |a: &Tree, b: &Tree| a.cost <= b.cost && (b.sorted.is_none() || a.sorted == b.sorted);
    if into.iter().any(|other| beats(other, &tree)) {
        return;
    }
    into.retain(|other| !beats(&tree, other));
    into.push(tree);
}
