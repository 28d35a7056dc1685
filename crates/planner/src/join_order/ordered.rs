//! Orders of joins for a part of the solutions: by one variable, the first ones in its order or one for each of its
//! values; or some of them, whichever. They begin with a pattern of which a part is enough, read by that variable if there
//! is one.
//!
//! Whatever is read for each row of that pattern is divided by the share that is wanted; what is read once, such as the
//! right side of a hash join, is not. The next item is always the one that makes the least of it.

use super::{Bindings, Read, Search, Source, Step, Tree};
use crate::cost;
use crate::physical::Variable;

/// What is wanted of the solutions of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// They are wanted by this variable; `None` if it does not matter which ones they are.
    pub(crate) variable: Option<Variable>,
    /// Which of them.
    pub(crate) part: WantedPart,
    /// Whether it does not matter what that costs.
    pub(crate) is_forced: bool,
}

/// Which of the solutions of a group are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WantedPart {
    /// The first ones in the order of the variable, or some, so many.
    First(f64),
    /// One for each value of the variable.
    Each,
}

/// A tree whose solutions are read in ranges of a variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    /// Its place among the trees.
    pub(crate) root: usize,
    /// Which share of its solutions is expected to be read.
    pub(crate) share: f64,
    /// What that costs.
    pub(crate) cost: f64,
}

/// Finding the ranges, and beginning anew with each.
const RANGES_START: f64 = 50_000.0;
/// So many more solutions are read than are wanted.
const MARGIN: f64 = 2.0;
/// Some solutions are looked for from so many items, those with the fewest rows; from fewer where there are more items
/// than this, since each search looks at all pairs of them.
const STARTS_MAX: usize = 8;
/// Another order must save so much for them, since a plan for all is as fast where there are fewer than expected.
const SOME_SHARE_MAX: f64 = 0.5;
/// Reading solutions up to the first one of a value: beginning, and the rows of a batch or two.
const VALUE_START: f64 = 20_000.0;
const ROWS_A_VALUE: f64 = 2_048.0;

impl Wanted {
    /// So many times as many.
    pub(crate) fn of_times(self, times: f64) -> Self {
        let part = match self.part {
            WantedPart::First(rows) => WantedPart::First(super::limited(rows * times)),
            WantedPart::Each => WantedPart::Each,
        };
        Self { part, ..self }
    }

    /// Whether another tree may be better than this one, whose solutions are looked through for the first.
    pub(crate) fn is_worth(&self, tree: &Tree) -> bool {
        let is_part = match self.part {
            WantedPart::First(rows) => tree.rows > MARGIN * rows,
            WantedPart::Each => true,
        };
        is_part && cost_at_once(tree) > RANGES_START
    }

    /// Which share of a pattern is read, by the way that is marked, if all solutions are `rows`; and what beginning with
    /// its ranges costs.
    fn share(&self, read: &Read, rows: f64) -> (f64, f64) {
        match self.part {
            WantedPart::First(wanted) => (share_of(wanted, rows), RANGES_START),
            WantedPart::Each => {
                let a_solution = MARGIN * read.rows / rows.max(1.0);
                let read_rows = read.values * a_solution.max(ROWS_A_VALUE);
                let start = RANGES_START + read.values * VALUE_START;
                ((read_rows / read.rows.max(1.0)).min(1.0), start)
            }
        }
    }
}

/// Which share of so many solutions is read for some of them.
fn share_of(wanted: f64, rows: f64) -> f64 {
    (MARGIN * wanted / rows.max(1.0)).min(1.0)
}

/// Giving all solutions and looking for the first ones.
fn cost_at_once(tree: &Tree) -> f64 {
    tree.cost + tree.rows * cost::GROUP_ROW
}

impl Search<'_> {
    /// A tree that gives the wanted solutions for less than `root` takes to give all of them, which are then looked
    /// through for the first.
    pub(super) fn ordered(&mut self, wanted: Wanted, root: usize) -> Option<Ordered> {
        let Some(variable) = wanted.variable else {
            return self.some(wanted, root);
        };
        let whole = self.trees.get(root)?;
        let (rows, set) = (whole.rows, whole.items);
        let otherwise = cost_at_once(whole);
        let mut best: Option<Ordered> = None;
        for number in 0..self.items.len() {
            self.goes_on()?;
            let Some(read) = self.marked(number) else {
                continue;
            };
            let (share, start) = wanted.share(&read, rows);
            let mut trees = Vec::new();
            self.single(number, &mut trees);
            trees.retain(|tree| self.begins_with(&tree.step, variable));
            let Some(first) = self.keep(trees).first().copied() else {
                continue;
            };
            let Some(root) = self.ordered_from((number, first), set, Some(variable), share) else {
                continue;
            };
            let cost = start + self.cost_of_share(root, share)?;
            if best.is_none_or(|best| cost < best.cost) {
                best = Some(Ordered { root, share, cost });
            }
        }
        best.filter(|best| wanted.is_forced || best.cost < otherwise)
    }

    /// A tree that gives some solutions for much less than `root` takes to give as many.
    fn some(&mut self, wanted: Wanted, root: usize) -> Option<Ordered> {
        let WantedPart::First(rows) = wanted.part else {
            return None;
        };
        let whole = self.trees.get(root)?;
        if !wanted.is_forced && !wanted.is_worth(whole) {
            return None;
        }
        let (share, set) = (share_of(rows, whole.rows), whole.items);
        let otherwise = self.cost_of_share(root, share)?;
        let mut starts: Vec<(f64, usize)> = self
            .items
            .iter()
            .enumerate()
            .map(|(number, item)| (item.rows, number))
            .collect();
        starts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best: Option<Ordered> = None;
        let most = (STARTS_MAX * STARTS_MAX / self.items.len().max(STARTS_MAX)).max(1);
        for (_, number) in starts.into_iter().take(most) {
            let mut trees = Vec::new();
            self.single(number, &mut trees);
            for first in self.keep(trees) {
                self.goes_on()?;
                let Some(root) = self.ordered_from((number, first), set, None, share) else {
                    continue;
                };
                let cost = self.cost_of_share(root, share)?;
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(Ordered { root, share, cost });
                }
            }
        }
        best.filter(|best| wanted.is_forced || best.cost < otherwise * SOME_SHARE_MAX)
    }

    /// What is read of a tree for some solutions, if that is a part of them.
    pub(super) fn read_for_some(&self, wanted: Wanted, root: usize) -> Option<Ordered> {
        let WantedPart::First(rows) = wanted.part else {
            return None;
        };
        let whole = self.trees.get(root)?;
        if wanted.variable.is_some() || !wanted.is_worth(whole) {
            return None;
        }
        let share = share_of(rows, whole.rows);
        let cost = self.cost_of_share(root, share)?;
        Some(Ordered { root, share, cost })
    }

    /// What the best tree so far is expected to take, of which as much is run as is wanted.
    pub(super) fn expected_cost(&mut self, root: usize) -> Option<f64> {
        let cost = self.trees.get(root)?.cost;
        let Some(wanted) = self.wanted.filter(|wanted| wanted.variable.is_none()) else {
            return Some(cost);
        };
        let part = self.some(wanted, root);
        self.ended
            .is_none()
            .then(|| part.map_or(cost, |part| part.cost))
    }

    /// The way to read an item in ranges.
    fn marked(&self, item: usize) -> Option<Read> {
        match &self.items.get(item)?.source {
            Source::Pattern { accesses, .. } => {
                accesses.iter().find(|read| read.in_ranges).copied()
            }
            Source::Plan { .. } | Source::Path { .. } => None,
        }
    }

    /// A tree of all items that begins with this item, and this tree of it.
    fn ordered_from(
        &mut self,
        (first, tree): (usize, usize),
        all: u64,
        variable: Option<Variable>,
        share: f64,
    ) -> Option<usize> {
        let mut current = tree;
        let (mut set, mut binds) = (1_u64 << first, self.bindings.get(first)?.clone());
        while set != all {
            self.goes_on()?;
            let rows_so_far = self.trees.get(current)?.rows;
            let rest: Vec<usize> = super::members(all & !set).collect();
            let is_connected = |next: &&usize| {
                let other = self.bindings.get(**next);
                other.is_some_and(|other| !other.possible.is_disjoint(&binds.possible))
            };
            let mut candidates: Vec<usize> = rest.iter().filter(is_connected).copied().collect();
            if candidates.is_empty() {
                candidates = rest;
            }
            let mut best: Option<(f64, usize, usize)> = None;
            for next in candidates {
                let rows = self.rows_with(set, rows_so_far, next);
                let Some((tree, cost)) =
                    self.ordered_with((current, &binds), next, rows, (variable, share))
                else {
                    continue;
                };
                let weight = cost + rows * share * super::ROW_AHEAD;
                if best.is_none_or(|(least, ..)| weight < least) {
                    best = Some((weight, next, tree));
                }
            }
            let (_, next, tree) = best?;
            current = tree;
            set |= 1 << next;
            binds.union_with(self.bindings.get(next)?);
        }
        Some(current)
    }

    /// The cheapest join of a tree with one more item that can be split as the tree is.
    fn ordered_with(
        &mut self,
        (left, left_binds): (usize, &Bindings),
        next: usize,
        rows: f64,
        (variable, share): (Option<Variable>, f64),
    ) -> Option<(usize, f64)> {
        let mut trees = Vec::new();
        self.single(next, &mut trees);
        let rights = self.keep(trees);
        let own = self.bindings.get(next)?.clone();
        let mut joined = Vec::new();
        // What costs more in all may cost less in part.
        let bound = std::mem::replace(&mut self.bound, f64::INFINITY);
        self.keeps_all = true;
        for right in rights {
            let mut trees = Vec::new();
            self.join((left, left_binds), (right, &own), rows, &mut trees);
            trees.retain(|tree| match tree.step {
                _ if variable.is_none() => true,
                Step::Hash { .. } | Step::Lookup { .. } => true,
                Step::Merge { right, key, .. } => {
                    let right = self.trees.get(right);
                    Some(key) == variable
                        && right.is_some_and(|right| self.begins_with(&right.step, key))
                }
                Step::Read { .. } | Step::Plan { .. } | Step::Search { .. } => false,
            });
            joined.extend(trees);
        }
        (self.bound, self.keeps_all) = (bound, false);
        if self.forced.is_some() {
            self.enforce(&mut joined);
        }
        let numbers = self.keep(joined);
        let costs = numbers.into_iter();
        let costs = costs.filter_map(|number| Some((number, self.cost_of_share(number, share)?)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Whether a step reads a pattern by the variable first.
    fn begins_with(&self, step: &Step, variable: Variable) -> bool {
        let Step::Read { item, access } = *step else {
            return false;
        };
        let Some(Source::Pattern { accesses, .. }) = self.items.get(item).map(|item| &item.source)
        else {
            return false;
        };
        let read = accesses.get(access);
        read.is_some_and(|read| read.in_ranges && read.sorted == Some(variable))
    }

    /// What a tree costs of which a share is read: by ranges, or row by row, of what can give a row before it has all.
    fn cost_of_share(&self, number: usize, share: f64) -> Option<f64> {
        let tree = self.trees.get(number)?;
        let output = tree.rows * share * cost::OUTPUT_ROW;
        Some(match tree.step {
            Step::Read { .. } => cost::SCAN_START + tree.cost * share,
            Step::Merge { left, right, .. } => {
                let rows = self.trees.get(left)?.rows + self.trees.get(right)?.rows;
                let below = self.cost_of_share(left, share)? + self.cost_of_share(right, share)?;
                below + rows * share * cost::MERGE_ROW + output
            }
            Step::Hash { left, right } => {
                let (probe, build) = (self.trees.get(left)?.rows, self.trees.get(right)?);
                let below = self.cost_of_share(left, share)? + build.cost;
                below + cost::hash(build.rows, probe * share) + output
            }
            Step::Lookup { left, item } => {
                let Source::Pattern {
                    rows,
                    condition_row,
                    ..
                } = &self.items.get(item)?.source
                else {
                    return None;
                };
                let probes = self.trees.get(left)?.rows * share;
                let tested = probes * condition_row;
                let looked_up = cost::lookup(probes, *rows, false);
                self.cost_of_share(left, share)? + looked_up + tested + output
            }
            // Nobody knows how soon it gives something.
            Step::Plan { .. } => tree.cost,
            Step::Search { left, .. } => {
                let own = tree.cost - self.trees.get(left)?.cost;
                self.cost_of_share(left, share)? + own * share
            }
        })
    }
}
