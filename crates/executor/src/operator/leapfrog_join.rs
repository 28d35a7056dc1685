//! Leapfrog join: several quad patterns joined at once, one variable after the other.
//!
//! Each pattern is read as a trie, in a sort order in which its variables stand behind its constants in the order of
//! the join. A value of a variable is one that all patterns with that variable have below the values bound so far: the
//! pattern that is behind leaps to the value of the one in front, until all agree. So never more partial solutions are
//! looked at than a join of the patterns cut to the variables so far can have, whatever the skew of the data: on a
//! triangle of n edges n^1.5 and not n^2.
//!
//! The last variable is found by intersecting whole sorted runs of decoded values.
//!
//! Input: none. Output order: that of the variables.
//!
//! # Limits
//! What was read is held in blocks (`trie`), and forgotten where memory is short. Each call leaps `STEPS` times at
//! most; cancellation is checked by each call and before each read.
//!
//! # References
//! Veldhuizen: Leapfrog Triejoin, ICDT 2014. Ngo, Porat, Re, Rudra: Worst-Case Optimal Join Algorithms, JACM 2018.
//! Hogan, Riveros, Rojas, Soto: A Worst-Case Optimal Join Algorithm for SPARQL, ISWC 2019.

mod iterator;
mod trie;

use std::sync::Arc;

use stoa_planner::physical::{
    LeapfrogPattern, LeapfrogVariable, Operator as PlanOperator, PatternTerm, Plan, Variable,
};
use stoa_quadstore::{Columns, ScanSpec};
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use super::Operator;
use super::pattern::Layout;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;
use iterator::TrieIterator;
pub(crate) use trie::pinned_bytes;
use trie::{Trie, Tries, gallop};

/// How often a call leaps before it looks whether it should go on.
const STEPS: usize = if cfg!(test) { 16 } else { 8 * 1024 };

struct LeapfrogJoin {
    tries: Tries,
    /// One for each pattern.
    iterators: Vec<TrieIterator>,
    levels: Vec<Level>,
    /// The level at work; `None` when all is done.
    level: Option<usize>,
    /// Values below this one of the level at work are done.
    from: TermId,
    /// The values of the levels above.
    bound: Vec<TermId>,
    /// Which level each column of the output is.
    columns: Vec<usize>,
    /// How often it may still leap in this call.
    steps: usize,
}

/// A variable of the join.
struct Level {
    /// The iterators of the patterns that have it; those that are narrowed by variables above come first.
    members: Vec<usize>,
    /// What it is kept to; empty for everything.
    ranges: Vec<IdRange>,
}

/// What came of looking for a value.
enum Leap {
    /// All patterns have this one.
    To(TermId),
    /// The call has done enough; it goes on from where it stands.
    Paused,
    /// There are no more below the values that are bound above.
    Exhausted,
}

pub(super) fn build(
    plan: &Plan,
    context: &QueryContext,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::LeapfrogJoin {
        variables,
        patterns,
    } = &plan.operator
    else {
        return Err(Error::Internal("not a leapfrog join"));
    };
    let order: Vec<Variable> = variables.iter().map(|level| level.variable).collect();
    let mut readers = Readers::default();
    let (mut iterators, mut depths) = (Vec::new(), Vec::new());
    for pattern in patterns {
        let (number, levels) = readers.add(pattern, &order, context, counters)?;
        iterators.push(TrieIterator::new(number));
        depths.push(levels);
    }
    let level = |(number, variable): (usize, &LeapfrogVariable)| {
        // At which of its levels each pattern has the variable.
        let depth = |levels: &Vec<usize>| levels.iter().position(|level| *level == number);
        let members = depths.iter().enumerate();
        let mut members: Vec<_> = members
            .filter_map(|(member, levels)| Some((depth(levels)? == 0, member)))
            .collect();
        members.sort_unstable();
        Level {
            members: members.into_iter().map(|(_, member)| member).collect(),
            ranges: variable.ranges.clone(),
        }
    };
    let levels: Vec<Level> = variables.iter().enumerate().map(level).collect();
    if levels.is_empty() || levels.iter().any(|level| level.members.is_empty()) {
        return Err(Error::Internal("a variable of a join that no pattern has"));
    }
    let of_column = |column: &Variable| {
        let level = order.iter().position(|variable| variable == column);
        level.ok_or(Error::Internal("a column that is no variable of the join"))
    };
    let memory = context.memory("leapfrog_join");
    let mut join = LeapfrogJoin {
        tries: Tries::new(readers.tries, iterators.len(), memory, counters)?,
        iterators,
        level: Some(0),
        from: TermId::UNBOUND,
        bound: vec![TermId::UNBOUND; levels.len()],
        columns: plan.columns.iter().map(of_column).collect::<Result<_>>()?,
        levels,
        steps: 0,
    };
    join.open(0);
    Ok(Box::new(join))
}

/// The tries that patterns read. Patterns that differ in their variables alone read the same one.
#[derive(Default)]
struct Readers {
    tries: Vec<Trie>,
    known: Vec<(Permutation, Vec<TermId>, GraphSet)>,
}

impl Readers {
    /// The number of a pattern's trie, and for each of its levels that of the join.
    fn add(
        &mut self,
        LeapfrogPattern {
            pattern,
            permutation,
            prefix_length,
        }: &LeapfrogPattern,
        order: &[Variable],
        context: &QueryContext,
        counters: &Counters,
    ) -> Result<(usize, Vec<usize>)> {
        let layout = Layout::new(pattern, *permutation);
        let prefix = layout.prefix(*prefix_length)?;
        let (mut places, mut levels) = (Vec::new(), Vec::new());
        for place in *prefix_length..3 {
            let level = match layout.term(place) {
                Some(PatternTerm::Variable(variable)) => order.iter().position(|v| *v == variable),
                _ => None,
            };
            let level = level.filter(|level| levels.last().is_none_or(|last| last < level));
            places.push(place);
            levels.push(level.ok_or(Error::Internal(
                "a pattern of a join in another order than its variables",
            ))?);
        }
        if pattern.graph_variable.is_some() || places.is_empty() {
            return Err(Error::Internal("a pattern that cannot be read as a trie"));
        }
        let key = (*permutation, prefix.clone(), pattern.graphs.clone());
        if let Some(number) = self.known.iter().position(|known| *known == key) {
            return Ok((number, levels));
        }
        let spec = ScanSpec {
            permutation: *permutation,
            prefix,
            ranges: Vec::new(),
            graphs: pattern.graphs.clone(),
            columns: Columns::of(&places),
            with_graph: false,
        };
        let scan = context.snapshot_of(counters).seek_scan(&spec)?;
        self.tries.push(Trie::new(scan, places));
        self.known.push(key);
        Ok((self.tries.len() - 1, levels))
    }
}

impl Operator for LeapfrogJoin {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        let mut batch = Batch::with_columns(self.columns.len());
        self.steps = STEPS;
        while self.steps > 0
            && batch.rows < context.batch_rows()
            && let Some(level) = self.level
        {
            let leap = match level + 1 == self.levels.len() {
                true => self.fill(&mut batch, context)?,
                false => self.leap(level, context)?,
            };
            match leap {
                Leap::To(value) => {
                    if let Some(slot) = self.bound.get_mut(level) {
                        *slot = value;
                    }
                    self.open(level + 1);
                    self.level = Some(level + 1);
                    self.from = TermId::UNBOUND;
                }
                Leap::Paused => break,
                Leap::Exhausted => self.leave(level),
            }
        }
        Ok(match (batch.is_empty(), self.level) {
            (false, _) => Step::Batch(batch),
            (true, Some(_)) => Step::Yield,
            (true, None) => Step::Done,
        })
    }
}

impl LeapfrogJoin {
    /// Opens the iterators of a level below the values bound above.
    fn open(&mut self, level: usize) {
        let members = self.levels.get(level).map_or(&[][..], |l| &l.members);
        for member in members {
            if let Some(iterator) = self.iterators.get_mut(*member) {
                iterator.open();
            }
        }
    }

    /// Goes back to the level above, behind the value that is bound there.
    fn leave(&mut self, level: usize) {
        let members = self.levels.get(level).map_or(&[][..], |l| &l.members);
        for member in members {
            if let Some(iterator) = self.iterators.get_mut(*member) {
                iterator.close();
            }
        }
        self.level = level.checked_sub(1);
        if let Some(value) = self.level.and_then(|above| self.bound.get(above)) {
            self.from = after(*value);
        }
    }

    /// Looks for the first value from `from` on that all patterns of a level have; their iterators stand there then.
    fn leap(&mut self, level: usize, context: &QueryContext) -> Result<Leap> {
        let Some(Level { members, ranges }) = self.levels.get(level) else {
            return Ok(Leap::Exhausted);
        };
        let Some(mut value) = within(ranges, self.from) else {
            return Ok(Leap::Exhausted);
        };
        let mut agreed = 0;
        for member in members.iter().cycle() {
            if agreed == members.len() {
                break;
            }
            let Some(iterator) = self.iterators.get_mut(*member) else {
                return Ok(Leap::Exhausted);
            };
            self.steps = self.steps.saturating_sub(1);
            let Some(found) = iterator.seek(value, &mut self.tries, context)? else {
                return Ok(Leap::Exhausted);
            };
            if found == value {
                agreed += 1;
                continue;
            }
            let Some(kept) = within(ranges, found) else {
                return Ok(Leap::Exhausted);
            };
            agreed = usize::from(kept == found);
            value = kept;
            // Only where it has come further, however many patterns there are.
            if self.steps == 0 {
                self.from = value;
                return Ok(Leap::Paused);
            }
        }
        Ok(Leap::To(value))
    }

    /// Puts out solutions with values of the last level.
    fn fill(&mut self, batch: &mut Batch, context: &QueryContext) -> Result<Leap> {
        let last = self.levels.len() - 1;
        let mut values = Vec::new();
        while batch.rows < context.batch_rows() && self.steps > 0 {
            let value = match self.leap(last, context)? {
                Leap::To(value) => value,
                other => return Ok(other),
            };
            let room = context.batch_rows() - batch.rows;
            values.clear();
            let runs = |member: &usize| self.iterators.get(*member).map(TrieIterator::run);
            let level = self.levels.get(last);
            let members = level.map_or(&[][..], |level| &level.members);
            let are_all = level.is_some_and(|level| level.ranges.is_empty());
            let done = match members {
                [one] if are_all => {
                    let run = runs(one).unwrap_or_default();
                    values.extend_from_slice(run.get(..room).unwrap_or(run));
                    values.last().copied().unwrap_or(value)
                }
                [one, other] if are_all => {
                    let runs = (runs(one), runs(other));
                    let (one, other) = (runs.0.unwrap_or_default(), runs.1.unwrap_or_default());
                    let (done, work) = intersect(one, other, room, &mut values);
                    self.steps = self.steps.saturating_sub(work);
                    done.unwrap_or(value)
                }
                _ => {
                    values.push(value);
                    value
                }
            };
            self.from = after(done);
            self.put(&values, batch);
        }
        Ok(Leap::Paused)
    }

    /// Appends the values that are bound with each of some values of the last level.
    fn put(&self, values: &[TermId], batch: &mut Batch) {
        let last = self.levels.len() - 1;
        for (column, level) in batch.columns.iter_mut().zip(&self.columns) {
            if *level == last {
                column.extend_from_slice(values);
            } else {
                let bound = self.bound.get(*level).copied().unwrap_or_default();
                column.resize(column.len() + values.len(), bound);
            }
        }
        batch.rows += values.len();
    }
}

/// The least id above another one; no term has the largest.
fn after(id: TermId) -> TermId {
    TermId::from_bits(id.to_bits().saturating_add(1))
}

/// The first id from `from` on that ranges have, where none at all have every one.
fn within(ranges: &[IdRange], from: TermId) -> Option<TermId> {
    if ranges.is_empty() {
        return Some(from);
    }
    let range = ranges.get(ranges.partition_point(|range| range.last < from))?;
    Some(range.first.max(from))
}

/// Appends the first values that both have, at most `most`. Returns up to which value both were looked at, and how many
/// leaps that took.
fn intersect(
    mut one: &[TermId],
    mut other: &[TermId],
    most: usize,
    out: &mut Vec<TermId>,
) -> (Option<TermId>, usize) {
    let (mut work, wanted) = (0, out.len() + most);
    let ends = (one.last().copied(), other.last().copied());
    while let (Some(a), Some(b)) = (one.first(), other.first()) {
        work += 1;
        if a == b {
            out.push(*a);
            if out.len() == wanted {
                return (Some(*a), work);
            }
            (one, other) = (rest(one, 1), rest(other, 1));
        } else if a < b {
            one = rest(one, gallop(one, |value| value < b));
        } else {
            other = rest(other, gallop(other, |value| value < a));
        }
    }
    // All of the one that ended, and so of the other up to there.
    (ends.0.min(ends.1), work)
}

fn rest(values: &[TermId], start: usize) -> &[TermId] {
    values.get(start..).unwrap_or_default()
}
