//! Sort: ORDER BY.
//!
//! Input order: any. Output order: SPARQL's, total and repeatable (see `sort_order`).
//!
//! # Limits
//! Rows are held and reserved. What there is no room for is sorted in parts, each a run on disk, which are merged in
//! the end. Keys are ranked and rows sorted in steps of some milliseconds, and by helpers where there are many
//! (docs/design/0041-parallel-sort.md).

use std::sync::Arc;

use stoa_planner::physical::{Plan, SortKey};

use super::parallel::Turn;
use super::row_store::RowStore;
use super::sort_order::{ByKeys, COSTLY_BYTES, Keys, Ordered, Ranker, RunParts};
use super::{Mapping, Node, Operator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;
use crate::spill::{RowWriter, Runs, SpillFile, SpilledSlice};

/// See the module header.
pub(super) struct Sort {
    name: &'static str,
    counters: Arc<Counters>,
    input: Node,
    input_done: bool,
    mapping: Mapping,
    rows: SortedRows,
    stage: Stage,
    disk: Option<Disk>,
}

/// Rows to be sorted, with what sorting them is going to take.
pub(super) struct SortedRows {
    name: &'static str,
    pub(super) keys: Keys,
    pub(super) store: RowStore,
    /// How many ids among the keys are compared by a value that must be read.
    costly: usize,
    /// The order of all rows that are on disk, and of those that were looked at.
    order: ByKeys,
}

enum Stage {
    /// Rows are taken from the input.
    Collecting,
    Ranking(Box<Ranker>),
    /// Rows are sorted, and go out in order or into a run.
    Giving(Ordered),
    Merging(Box<Runs<ByKeys>>),
    /// The last runs are merged by several threads.
    MergingParts(Box<RunParts>),
}

/// What is on disk.
struct Disk {
    file: Arc<SpillFile>,
    runs: Vec<SpilledSlice>,
    /// The run that is being written.
    run: RowWriter,
    /// What has come when there was no room any more.
    rest: Option<Batch>,
}

pub(super) fn build(
    node: Node,
    plan: &Plan,
    input: &Plan,
    keys: &[SortKey],
    context: &QueryContext,
    counters: &Arc<Counters>,
) -> Result<Box<dyn Operator>> {
    Ok(Box::new(Sort::new(
        node,
        Mapping::new(&input.columns, &plan.columns),
        SortedRows::new(Keys::new(keys, &input.columns, context)?, "sort", context),
        "sort",
        counters,
    )))
}

impl Sort {
    /// Sorts what is there already with what comes.
    pub(super) fn new(
        input: Node,
        mapping: Mapping,
        rows: SortedRows,
        name: &'static str,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            name,
            counters: Arc::clone(counters),
            input,
            input_done: false,
            mapping,
            rows,
            stage: Stage::Collecting,
            disk: None,
        }
    }

    /// Takes rows with their computed keys, or begins to put on disk what is there.
    pub(super) fn take(&mut self, batch: Batch, context: &QueryContext) -> Result<()> {
        if self.rows.try_add(&batch, context)? {
            return Ok(());
        }
        let mut disk = match self.disk.take() {
            Some(disk) => disk,
            None => Disk::new(&self.rows.keys, context, &self.counters)?,
        };
        disk.rest = Some(batch);
        self.disk = Some(disk);
        self.rank(context)
    }

    /// Begins to bring what is held into order.
    fn rank(&mut self, context: &QueryContext) -> Result<()> {
        if self.disk.is_some() {
            self.rows.order.note(self.rows.store.rows(), context);
        }
        self.stage = Stage::Ranking(Box::new(self.rows.ranker(usize::MAX, context)?));
        Ok(())
    }

    fn collect(&mut self, context: &QueryContext) -> Result<()> {
        let rest = self.disk.as_mut().and_then(|disk| disk.rest.take());
        if let Some(batch) = rest {
            return self.take(batch, context);
        }
        match self.input.next(context)? {
            Step::Batch(mut batch) => {
                self.rows.keys.extend(&mut batch, context)?;
                self.take(batch, context)?;
            }
            Step::Yield => (),
            Step::Done => {
                self.input_done = true;
                self.rank(context)?;
            }
        }
        Ok(())
    }

    /// Hands on rows in order.
    fn give(&self, mut batch: Batch) -> Step {
        self.rows.keys.strip(&mut batch);
        Step::Batch(self.mapping.apply(batch))
    }

    fn give_step(&self, step: Step) -> Step {
        match step {
            Step::Batch(batch) => self.give(batch),
            other => other,
        }
    }

    /// After a run: goes on with the input, or merges all runs.
    fn end_run(&mut self, mut disk: Disk, context: &QueryContext) -> Result<()> {
        disk.end_run(&self.rows, context)?;
        if self.input_done {
            let memory = context.memory(self.name);
            let next = self.rows.keys.run_order(context.memory(self.name));
            let order = std::mem::replace(&mut self.rows.order, next);
            let width = self.rows.keys.width();
            let runs = Runs::new(order, width, disk.runs, memory, &self.counters);
            self.stage = Stage::Merging(Box::new(runs));
        } else {
            self.disk = Some(disk);
            self.stage = Stage::Collecting;
        }
        Ok(())
    }
}

impl Operator for Sort {
    fn next(&mut self, context: &QueryContext) -> Result<Step> {
        match &mut self.stage {
            Stage::Collecting => self.collect(context)?,
            Stage::Ranking(ranker) => {
                if ranker.step(&self.rows.keys, context)?
                    && let Stage::Ranking(ranker) =
                        std::mem::replace(&mut self.stage, Stage::Collecting)
                {
                    self.stage = Stage::Giving(ranker.ordered(true, context));
                }
            }
            Stage::Giving(ordered) => match (ordered.next_rows(context)?, &mut self.disk) {
                (Turn::Given(batch), None) => return Ok(self.give(batch)),
                (Turn::Given(batch), Some(disk)) => {
                    let columns = batch.columns.iter().map(Vec::as_slice);
                    disk.run.append(columns, batch.rows)?;
                }
                (Turn::Working, _) => (),
                (Turn::Done, disk) => match disk.take() {
                    None => return Ok(Step::Done),
                    Some(disk) => self.end_run(disk, context)?,
                },
            },
            Stage::Merging(runs) => {
                let (width, counters) = (self.rows.keys.width(), &self.counters);
                let parts = runs
                    .last()
                    .and_then(|last| RunParts::new(runs.order(), width, &last, context, counters));
                if let Some(parts) = parts {
                    self.stage = Stage::MergingParts(Box::new(parts));
                    return Ok(Step::Yield);
                }
                let step = runs.next(context)?;
                return Ok(self.give_step(step));
            }
            Stage::MergingParts(parts) => {
                let step = parts.next(context)?;
                return Ok(self.give_step(step));
            }
        }
        Ok(Step::Yield)
    }
}

impl SortedRows {
    /// Some megabytes at most, whatever they are.
    const FEW_ROWS: usize = 8 * 1024;

    pub(super) fn new(keys: Keys, name: &'static str, context: &QueryContext) -> Self {
        Self {
            name,
            store: RowStore::new(keys.width(), context.memory(name)),
            order: keys.run_order(context.memory(name)),
            keys,
            costly: 0,
        }
    }

    /// Adds rows if there is room for them, and for sorting them.
    pub(super) fn try_add(&mut self, batch: &Batch, context: &QueryContext) -> Result<bool> {
        let rows = self.store.len();
        // Of few rows it is not looked at what they are going to take.
        let (ranked, costly) = match rows < Self::FEW_ROWS {
            true => (self.keys.count(), self.costly),
            false => {
                self.order.note(batch, context);
                (self.order.ranked(), self.costly + self.keys.costly(batch))
            }
        };
        let a_row = self.keys.bytes_a_row(ranked);
        let sorting = (rows + batch.rows) * a_row + costly * COSTLY_BYTES;
        let bytes = self.store.bytes_with(batch.rows) + sorting as u64;
        if !context.may_hold(self.store.memory(), bytes, rows)? {
            return Ok(false);
        }
        self.costly = costly;
        self.store.append(batch)?;
        Ok(true)
    }

    /// What ranks the rows, which it takes, with what was reserved for that; of their order only the first `wanted` are.
    pub(super) fn ranker(&mut self, wanted: usize, context: &QueryContext) -> Result<Ranker> {
        let bytes = self.store.bytes_with(0);
        let ranking = self.store.memory().split_off(bytes);
        let next = RowStore::new(self.keys.width(), context.memory(self.name));
        let rows = std::mem::replace(&mut self.store, next);
        self.costly = 0;
        self.keys.ranker(rows, wanted, ranking, context)
    }

    /// Goes on with these rows, of which it keeps those with these numbers, in their order.
    pub(super) fn keep(&mut self, store: RowStore, rows: &[u32]) {
        self.store = store;
        self.store.keep(rows);
        self.costly = self.keys.costly(self.store.rows());
    }
}

impl Disk {
    fn new(keys: &Keys, context: &QueryContext, counters: &Arc<Counters>) -> Result<Self> {
        let file = SpillFile::new(context, counters)?;
        Ok(Self {
            runs: Vec::new(),
            run: Runs::<ByKeys>::writer(&file, keys.width(), context),
            rest: None,
            file,
        })
    }

    /// The run has all rows that are held.
    fn end_run(&mut self, rows: &SortedRows, context: &QueryContext) -> Result<()> {
        let next = Runs::<ByKeys>::writer(&self.file, rows.keys.width(), context);
        let run = std::mem::replace(&mut self.run, next);
        self.runs.push(SpilledSlice::whole(run.finish()?));
        Ok(())
    }
}
