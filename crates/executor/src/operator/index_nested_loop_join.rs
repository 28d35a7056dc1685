//! Index nested-loop join: looks the solutions of a whole batch up in one permutation.
//!
//! The input is collected, then looked up in one go: the snapshot sorts the keys and gallops through
//! the leaves. Where look-ups show no locality (one batch does not begin behind the end of the one
//! before) more keys a batch mean fewer reads of the same leaf, so rows are collected up to [`sizer::AT_ONCE_ROWS`], and then the batch
//! doubles up to `QuerySettings::lookup_rows_max`, unless a LIMIT stands above. Where more keys of a node and
//! a predicate come than were expected, it goes over to the dense order of the predicate, with the batch that makes
//! them [`FEW`] or more. Where many more rows come than were expected, all matches of the pattern are read, and the rest of
//! the rows is joined with them by hash (`switching`). Where the number of partners is all that is looked at, they are counted
//! (`counting`); where it is whether there are any, each key is looked up once (`existence`).
//!
//! Input order: any. Output order: none, or that of the input if the plan says so; then the matches
//! of a batch whose keys do not ascend are held until all are found. Where there is no room for them half of the batch is
//! looked up anew, and the rest later; the matches of a single row are in order as they come.
//!
//! # Limits
//! The collected batch, and held matches, are reserved. Cancellation is checked by each call.

mod counting;
mod existence;
mod sizer;
mod switching;

use std::sync::Arc;

use stoa_planner::FEW_LOOKUPS;
use stoa_planner::physical::{JoinKind, Operator as PlanOperator, PatternTerm, Plan, Variable};
use stoa_quadstore::{Columns, Lookup, LookupRows, LookupSpec};
use stoa_terms::{Permutation, TermId};

use counting::Counting;
use existence::Existence;
pub(super) use sizer::AT_ONCE_ROWS;
use sizer::{Shape, Sizer};
pub(crate) use switching::Switches;
use switching::{Next, Reader, Switching};

use super::combiner::{Combiner, END, Pair, collect_variables};
use super::pattern::{Layout, Residual, place_of};
use super::row_store::RowStore;
use super::{Builder, Node, Operator, Scope, position, required};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::{Memory, STEP_BYTES};
use crate::profile::Counters;

/// Fewer keys are looked up where all quads of a node are together. Very few in tests, whose inputs are small.
const FEW: f64 = if cfg!(test) { 8.0 } else { FEW_LOOKUPS };

struct IndexNestedLoopJoin {
    input: Node,
    input_done: bool,
    spec: LookupSpec,
    lookup: Lookup,
    /// How many keys have come.
    probes: f64,
    keys: Vec<Key>,
    residual: Residual,
    /// Places behind the key that hold variables of the input, with their columns.
    compared: Vec<(usize, usize)>,
    combiner: Combiner,
    keep_order: bool,
    sizer: Sizer,
    /// Halves of batches that are looked up next, the last one first.
    later: Vec<Batch>,
    /// Where it may go over to a hash join.
    switching: Option<Box<Switching>>,
    /// Where partners are counted.
    counting: Option<Counting>,
    /// Where it is asked whether there are partners.
    existence: Option<Existence>,
    state: State,
    rows: LookupRows,
    memory: Memory,
    counters: Arc<Counters>,
}

/// One position of the key.
#[derive(Clone, Copy)]
enum Key {
    Constant(TermId),
    Column(usize),
}

enum State {
    /// Rows of the input are collected.
    Collecting(Batch),
    /// This batch is looked up.
    Next(Batch),
    /// It is found which rows of this batch have matches.
    Testing(Batch),
    /// Matches come from the index and go out as they come.
    Looking(Batch),
    /// Matches come from the index and are held, to be brought into the order of the input.
    Holding(Batch, Held),
    /// Pairs that remain go out from the one with this number.
    Emitting(Batch, Held, usize),
    /// All matches are read, before this batch is joined.
    Reading(Batch, Box<Reader>),
    /// It is a hash join.
    Probing,
    Done,
}

/// Matches of a batch: their columns in the order of the permutation, or their numbers; and who they belong to.
struct Held {
    rows: RowStore,
    pairs: Vec<Pair>,
}

pub(super) fn build(
    plan: &Plan,
    builder: &mut Builder<'_>,
    scope: Scope<'_>,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    let PlanOperator::IndexNestedLoopJoin {
        input,
        pattern,
        permutation,
        key_length,
        kind,
        count,
        ..
    } = &plan.operator
    else {
        return Err(Error::Internal("not an index nested-loop join"));
    };
    let number = builder.next_number - 1;
    let layout = Layout::new(pattern, *permutation);
    let keys = layout
        .first(*key_length)?
        .into_iter()
        .map(|term| match term {
            PatternTerm::Constant(id) => Ok(Key::Constant(id)),
            PatternTerm::Variable(variable) => required(&input.columns, variable).map(Key::Column),
        })
        .collect::<Result<Vec<_>>>()?;
    let residual = Residual::new(&layout, *key_length);
    let variables = layout.variables(*key_length);
    let compared: Vec<_> = variables
        .iter()
        .filter_map(|(place, variable)| Some((*place, position(&input.columns, *variable)?)))
        .collect();
    let used = used_variables(&plan.columns, &input.columns, kind);
    let (columns, right) = looked_at(&variables, &used, *count);
    let context = builder.context;
    let columns = residual.columns(columns);
    let combiner = Combiner::new(&plan.columns, &input.columns, &right, kind, context)?;
    let is_tested = combiner.needs_one() && compared.is_empty();
    // Where something is compared, rows are read.
    let is_counted = (count.is_some() || is_tested) && columns == Columns::NONE;
    let spec = LookupSpec {
        permutation: *permutation,
        key_length: *key_length,
        graphs: pattern.graphs.clone(),
        columns,
        with_graph: pattern.graph_variable.is_some(),
        is_counted,
    };
    Ok(Box::new(IndexNestedLoopJoin {
        lookup: context.snapshot_of(counters).lookup(&spec)?,
        spec,
        probes: 0.0,
        combiner,
        state: State::Collecting(Batch::with_columns(input.columns.len())),
        input: builder.build(input, scope, Some(counters))?,
        input_done: false,
        keys,
        residual,
        compared,
        keep_order: !plan.sorted_by.is_empty(),
        sizer: Sizer::new(scope.limited, context),
        later: Vec::new(),
        switching: Switching::new(plan, &used, number, builder, scope)?.map(Box::new),
        counting: (count.is_some() || is_counted).then(|| Counting::new(is_counted)),
        existence: is_tested.then(Existence::default),
        rows: LookupRows::default(),
        memory: context.memory("index_nested_loop_join"),
        counters: Arc::clone(counters),
    }))
}

/// The variables that the output, the input or a condition has.
fn used_variables(output: &[Variable], input: &[Variable], kind: &JoinKind) -> Vec<Variable> {
    let mut used = [output, input].concat();
    if let JoinKind::Left {
        condition: Some(condition),
    } = kind
    {
        collect_variables(condition, &mut used);
    }
    used
}

/// Which columns of matches are looked at, of those that hold variables; and the names of what partners give: all four
/// columns, or their number.
fn looked_at(
    variables: &[(usize, Variable)],
    used: &[Variable],
    count: Option<Variable>,
) -> (Columns, Vec<Option<Variable>>) {
    let mut right = [None; 4];
    let mut columns = Columns::NONE;
    for (place, variable) in variables.iter().filter(|(_, name)| used.contains(name)) {
        columns = columns.with(*place);
        if let Some(name) = right.get_mut(*place) {
            *name = Some(*variable);
        }
    }
    match count {
        Some(count) => (columns, vec![Some(count)]),
        None => (columns, right.to_vec()),
    }
}

impl Operator for IndexNestedLoopJoin {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Collecting(left) => self.collect(left, context),
            State::Next(left) => self.look_up(left, context),
            State::Testing(left) => self.test(left, context),
            State::Looking(left) => self.look(left, context),
            State::Holding(left, held) => self.hold(left, held, context),
            State::Emitting(left, held, given) => self.emit(left, held, given, context),
            State::Reading(left, reader) => self.read(left, reader, context),
            State::Probing => self.probe(context),
            State::Done => Ok(Step::Done),
        }
    }

    fn skip_to(&mut self, variable: Variable, id: TermId, context: &QueryContext) -> Result<usize> {
        self.input.skip_to(variable, id, context)
    }
}

impl IndexNestedLoopJoin {
    fn collect(&mut self, mut left: Batch, context: &QueryContext) -> Result<Step> {
        if !self.input_done {
            match self.input.next(context)? {
                Step::Batch(batch) if left.is_empty() => left = batch,
                Step::Batch(batch) => {
                    self.memory.require(2 * (left.bytes() + batch.bytes()))?;
                    left.append(&batch);
                }
                Step::Yield => (),
                Step::Done => self.input_done = true,
            }
        }
        if left.is_empty() && self.input_done {
            return Ok(Step::Done);
        }
        if left.rows < self.sizer.rows && !self.input_done && self.may_grow(&left, context) {
            self.state = State::Collecting(left);
            return Ok(Step::Yield);
        }
        self.start(left, context)
    }

    /// Whether there is room for another batch beside what was collected.
    fn may_grow(&mut self, left: &Batch, context: &QueryContext) -> bool {
        let batch = left.columns.len() * context.batch_rows() * size_of::<TermId>();
        let bytes = left.bytes() + batch as u64;
        left.is_empty() || bytes < STEP_BYTES || self.memory.try_require(2 * bytes)
    }

    /// Goes over to the dense order of a predicate once many keys have come.
    fn choose(&mut self, rows: usize, context: &QueryContext) -> Result<()> {
        self.probes += rows as f64;
        if self.probes < FEW || self.spec.key_length != 2 {
            return Ok(());
        }
        // Both begin with the same two positions.
        let dense = match self.spec.permutation {
            Permutation::Spog => Permutation::Psog,
            Permutation::Opsg => Permutation::Posg,
            _ => return Ok(()),
        };
        self.spec.permutation = dense;
        self.keys.swap(0, 1);
        self.lookup = context.snapshot_of(&self.counters).lookup(&self.spec)?;
        Ok(())
    }

    /// Begins with a batch of the input.
    fn start(&mut self, left: Batch, context: &QueryContext) -> Result<Step> {
        let shape = self.shape(&left);
        let is_large = self.input_done || !self.sizer.wants_more(&shape, left.rows);
        if !is_large && self.may_grow(&left, context) {
            self.state = State::Collecting(left);
            return Ok(Step::Yield);
        }
        self.sizer.learn(&shape, left.rows);
        let next = match &mut self.switching {
            Some(switching) => switching.next(left.rows, context, &self.counters)?,
            None => Next::LookUp,
        };
        match next {
            Next::LookUp => self.look_up(left, context),
            Next::Read(reader) => {
                self.state = State::Reading(left, reader);
                Ok(Step::Yield)
            }
            Next::Probe => self.turn(left),
        }
    }

    /// Reads some of all matches.
    fn read(
        &mut self,
        left: Batch,
        mut reader: Box<Reader>,
        context: &QueryContext,
    ) -> Result<Step> {
        if !reader.advance(context)? {
            self.state = State::Reading(left, reader);
            return Ok(Step::Yield);
        }
        drop(reader);
        let switching = self.switching.as_mut();
        match switching.is_some_and(|switching| switching.is_ready()) {
            true => self.turn(left),
            false => self.look_up(left, context),
        }
    }

    /// Goes over to the hash join, with a batch that was not looked up.
    fn turn(&mut self, left: Batch) -> Result<Step> {
        self.rows = LookupRows::default();
        if let Some(switching) = &mut self.switching {
            switching.start(left);
        }
        self.state = State::Probing;
        Ok(Step::Yield)
    }

    fn probe(&mut self, context: &QueryContext) -> Result<Step> {
        let Some(switching) = &mut self.switching else {
            return Err(Error::Internal("a join without a right side"));
        };
        let step = if switching.is_done() {
            self.input.stop();
            Step::Done
        } else if switching.is_idle() {
            self.memory.release();
            match self.input.next(context)? {
                Step::Batch(batch) => {
                    switching.start(batch);
                    Step::Yield
                }
                other => other,
            }
        } else {
            step(switching.probe(context)?)
        };
        if !matches!(step, Step::Done) {
            self.state = State::Probing;
        }
        Ok(step)
    }

    fn look_up(&mut self, left: Batch, context: &QueryContext) -> Result<Step> {
        self.choose(left.rows, context)?;
        // By now keys may begin with another column.
        let shape = self.shape(&left);
        let constants: Vec<Option<Vec<TermId>>> = self
            .keys
            .iter()
            .map(|key| match key {
                Key::Constant(id) => Some(vec![*id; left.rows]),
                Key::Column(_) => None,
            })
            .collect();
        let keys: Vec<&[TermId]> = self
            .keys
            .iter()
            .zip(&constants)
            .map(|(key, constant)| match (key, constant) {
                (Key::Column(column), _) => left.column(*column),
                (Key::Constant(_), constant) => constant.as_deref().unwrap_or_default(),
            })
            .collect();
        if keys.iter().any(|column| column.contains(&TermId::UNBOUND)) {
            return Err(Error::Internal(
                "an index nested-loop join over a variable that may be unbound",
            ));
        }
        if let Some(existence) = &mut self.existence {
            let memory = (&mut self.memory, 2 * left.bytes());
            let keys = existence.start(&keys, left.rows, memory)?;
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            self.lookup.start(&keys)?;
            self.state = State::Testing(left);
            return Ok(Step::Yield);
        }
        self.lookup.start(&keys)?;
        self.combiner.start(left.rows);
        let in_order = left.rows == 1 || shape.ascending && !self.combiner.needs_end();
        self.state = if self.keep_order && !in_order {
            let held = self.held(context);
            State::Holding(left, held)
        } else {
            State::Looking(left)
        };
        Ok(Step::Yield)
    }

    /// In which order the keys of these rows come.
    fn shape(&self, left: &Batch) -> Shape {
        let varying = self.keys.iter().filter_map(|key| match key {
            Key::Column(column) => Some(left.column(*column)),
            Key::Constant(_) => None,
        });
        Shape::of(&varying.collect::<Vec<_>>(), left.rows)
    }

    fn held(&self, context: &QueryContext) -> Held {
        let memory = context.memory("index_nested_loop_join");
        Held {
            rows: RowStore::new(self.matches().len(), memory),
            pairs: Vec::new(),
        }
    }

    /// The columns of the matches that were fetched last; empty are those that nobody looks at.
    fn matches(&self) -> Vec<&[TermId]> {
        matches_of(&self.rows, self.counting.as_ref())
    }

    /// Fetches matches, or their numbers, and says whether there may be more.
    fn fetch(&mut self, left: &Batch, context: &QueryContext) -> Result<(bool, Vec<Pair>)> {
        if let Some(counting) = self.counting.as_mut().filter(|it| it.is_by_index()) {
            return counting.fetch(&mut self.lookup, &self.counters, context);
        }
        let (more, pairs) = self.fetch_rows(left, context)?;
        Ok(match &mut self.counting {
            Some(counting) => (more, counting.count(&pairs, context)?),
            None => (more, pairs),
        })
    }

    fn fetch_rows(&mut self, left: &Batch, context: &QueryContext) -> Result<(bool, Vec<Pair>)> {
        self.rows.clear();
        let more = self.lookup.next(context.batch_rows(), &mut self.rows)?;
        let quads = &self.rows.columns;
        self.counters.add_rows_in(quads.rows);
        let keep = self.residual.filter(quads);
        let mut pairs = Vec::with_capacity(quads.rows);
        for (match_row, row) in (0_u32..).zip(&self.rows.key_index) {
            let index = match_row as usize;
            let kept = keep
                .as_ref()
                .is_none_or(|keep| keep.get(index) == Some(&true));
            let agrees = kept
                && self.compared.iter().all(|(place, column)| {
                    let bound = left.get(*column, *row as usize);
                    bound.is_unbound() || place_of(quads, *place).get(index) == Some(&bound)
                });
            if agrees {
                pairs.push((*row, match_row));
            }
        }
        Ok((more, pairs))
    }

    fn test(&mut self, left: Batch, context: &QueryContext) -> Result<Step> {
        let (more, pairs) = self.fetch(&left, context)?;
        let Some(existence) = &mut self.existence else {
            return Err(Error::Internal("a join that does not test"));
        };
        existence.note(&pairs);
        self.state = if more {
            State::Testing(left)
        } else {
            self.combiner.start_with(&existence.matched());
            let mut held = self.held(context);
            held.pairs = ends(left.rows);
            State::Emitting(left, held, 0)
        };
        Ok(Step::Yield)
    }

    fn look(&mut self, left: Batch, context: &QueryContext) -> Result<Step> {
        let (more, pairs) = self.fetch(&left, context)?;
        let right = matches_of(&self.rows, self.counting.as_ref());
        let batch = self.combiner.combine(&left, &right, &pairs, context)?;
        self.state = if more {
            State::Looking(left)
        } else if self.combiner.needs_end() {
            let mut held = self.held(context);
            held.pairs = ends(left.rows);
            State::Emitting(left, held, 0)
        } else {
            self.collecting(&left)
        };
        Ok(step(batch))
    }

    fn hold(&mut self, left: Batch, mut held: Held, context: &QueryContext) -> Result<Step> {
        let (more, pairs) = self.fetch(&left, context)?;
        if !self.may_hold(&left, &mut held, context) {
            drop(held);
            return self.halve(left, context);
        }
        let offset = u32::try_from(held.rows.len())
            .map_err(|_| Error::LimitExceeded("a join would hold more than 2^32 rows"))?;
        let rows = self.match_count();
        let columns = self.matches().into_iter().map(|column| match column {
            [] => vec![TermId::UNBOUND; rows],
            column => column.to_vec(),
        });
        let batch = Batch {
            columns: columns.collect(),
            rows,
        };
        held.rows.append(&batch)?;
        let moved = pairs.into_iter().map(|(row, found)| (row, found + offset));
        held.pairs.extend(moved);
        self.state = if more {
            State::Holding(left, held)
        } else {
            if self.combiner.needs_end() {
                held.pairs.extend(ends(left.rows));
            }
            // The end of a row is the largest number, so it comes behind the row's matches.
            held.pairs.sort_unstable();
            State::Emitting(left, held, 0)
        };
        Ok(Step::Yield)
    }

    /// How many matches, or numbers of them, were fetched last.
    fn match_count(&self) -> usize {
        let counting = self.counting.as_ref();
        counting.map_or(self.rows.columns.rows, |it| it.numbers().len())
    }

    /// Whether there is room for the matches that were fetched last beside those that are held.
    fn may_hold(&mut self, left: &Batch, held: &mut Held, context: &QueryContext) -> bool {
        let (rows, more) = (held.rows.len(), self.match_count());
        let pairs = (rows + more) * 2 * size_of::<Pair>();
        let spill = context.settings().spill.as_ref();
        let is_first = spill.is_none_or(|spill| rows < spill.rows_min);
        let bytes = held.rows.bytes_with(more);
        let has_room = match is_first {
            true => held.rows.memory().take(bytes),
            false => context.has_room(held.rows.memory(), bytes),
        };
        has_room && self.memory.take(2 * left.bytes() + pairs as u64)
    }

    /// Looks half of a batch up anew, the rest later.
    fn halve(&mut self, mut left: Batch, context: &QueryContext) -> Result<Step> {
        let half = left.rows / 2;
        let mut rest = left.clone();
        rest.skip(half);
        left.truncate(half);
        self.later.push(rest);
        self.sizer.rows = half.max(1);
        self.look_up(left, context)
    }

    fn emit(
        &mut self,
        left: Batch,
        held: Held,
        given: usize,
        context: &QueryContext,
    ) -> Result<Step> {
        let end = held.pairs.len().min(given + context.batch_rows());
        let pairs = held.pairs.get(given..end).unwrap_or_default();
        let batch = self
            .combiner
            .combine(&left, &held.rows.slices(), pairs, context)?;
        self.state = if end < held.pairs.len() {
            State::Emitting(left, held, end)
        } else {
            self.collecting(&left)
        };
        Ok(step(batch))
    }

    /// Goes on behind a batch.
    fn collecting(&mut self, left: &Batch) -> State {
        if let Some(next) = self.later.pop() {
            return State::Next(next);
        }
        self.memory.release();
        State::Collecting(Batch::with_columns(left.columns.len()))
    }
}

/// The columns of matches, or that of their numbers.
fn matches_of<'a>(rows: &'a LookupRows, counting: Option<&'a Counting>) -> Vec<&'a [TermId]> {
    match counting {
        Some(counting) => vec![counting.numbers()],
        None => rows.columns.columns.iter().map(Vec::as_slice).collect(),
    }
}

fn ends(rows: usize) -> Vec<Pair> {
    (0_u32..).take(rows).map(|row| (row, END)).collect()
}

fn step(batch: Batch) -> Step {
    if batch.is_empty() {
        Step::Yield
    } else {
        Step::Batch(batch)
    }
}
