//! Sort: ORDER BY.
//!
//! Input order: any. Output order: SPARQL's, total and repeatable (see `sort_order`).
//!
//! # Limits
//! Rows are held and reserved. What there is no room for is sorted in parts, each a run on disk, which are merged in
//! the end. Keys are ranked step by step, rows sorted in runs, one a call, and merged as they are given.

use std::sync::Arc;

use stoa_planner::physical::{Plan, SortKey};

use super::row_store::RowStore;
use super::sort_order::{ByKeys, Keys, Ordered, Ranker};
use super::{Mapping, Node, Operator};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::profile::Counters;
use crate::spill::{RowWriter, Runs, SpillFile, SpilledRows};

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
    Sorting(Ordered),
    /// Rows go out in order, or into a run.
    Giving(Ordered),
    Merging(Box<Runs<ByKeys>>),
}

/// What is on disk.
struct Disk {
    file: Arc<SpillFile>,
    runs: Vec<SpilledRows>,
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
        self.stage = Stage::Ranking(Box::new(self.rows.ranker()?));
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
                self.stage = Stage::Ranking(Box::new(self.rows.ranker()?));
            }
        }
        Ok(())
    }

    /// Hands on rows in order, none when all were.
    fn give(&mut self, mut batch: Batch) -> Step {
        if batch.is_empty() {
            return Step::Done;
        }
        self.rows.keys.strip(&mut batch);
        Step::Batch(self.mapping.apply(batch))
    }

    /// After a run: goes on with the input, or merges all runs.
    fn end_run(&mut self, mut disk: Disk, context: &QueryContext) -> Result<()> {
        self.rows.order.note(self.rows.store.rows(), context);
        disk.end_run(&self.rows, context)?;
        self.rows.clear();
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
                if let Some(ordered) = self.rows.rank(ranker, context)? {
                    self.stage = Stage::Sorting(ordered);
                }
            }
            Stage::Sorting(ordered) => {
                if !ordered.sort_run(&self.rows.store)
                    && let Stage::Sorting(ordered) =
                        std::mem::replace(&mut self.stage, Stage::Collecting)
                {
                    self.stage = Stage::Giving(ordered);
                }
            }
            Stage::Giving(ordered) => {
                let order = ordered.take(&self.rows.store, context.batch_rows());
                let batch = self.rows.store.rows().gather(&order);
                match self.disk.take() {
                    None => return Ok(self.give(batch)),
                    Some(disk) if batch.is_empty() => self.end_run(disk, context)?,
                    Some(mut disk) => {
                        let columns = batch.columns.iter().map(Vec::as_slice);
                        disk.run.append(columns, batch.rows)?;
                        self.disk = Some(disk);
                    }
                }
            }
            Stage::Merging(runs) => {
                return Ok(match runs.next(context)? {
                    Step::Batch(batch) => self.give(batch),
                    other => other,
                });
            }
        }
        Ok(Step::Yield)
    }
}

impl SortedRows {
    /// What a value that must be read is taken to cost, in bytes.
    const COSTLY_BYTES: usize = 160;

    /// Some megabytes at most, whatever they are.
    const FEW_ROWS: usize = 8 * 1024;

    pub(super) fn new(keys: Keys, name: &'static str, context: &QueryContext) -> Self {
        Self {
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
        let sorting = (rows + batch.rows) * a_row + costly * Self::COSTLY_BYTES;
        let bytes = self.store.bytes_with(batch.rows) + sorting as u64;
        if !context.may_hold(self.store.memory(), bytes, rows)? {
            return Ok(false);
        }
        self.costly = costly;
        self.store.append(batch)?;
        Ok(true)
    }

    /// What ranks the rows, with what was reserved for that.
    pub(super) fn ranker(&mut self) -> Result<Ranker> {
        let bytes = self.store.bytes_with(0);
        let ranking = self.store.memory().split_off(bytes);
        self.keys.ranker(&self.store, ranking)
    }

    /// Ranks for a while; the rows, to be sorted, once that is done.
    pub(super) fn rank(
        &self,
        ranker: &mut Ranker,
        context: &QueryContext,
    ) -> Result<Option<Ordered>> {
        let is_done = ranker.step(&self.keys, &self.store, context)?;
        Ok(is_done.then(|| ranker.ordered(&self.store)))
    }

    /// Keeps the rows with these numbers, in their order.
    pub(super) fn keep(&mut self, rows: &[u32]) {
        self.store.keep(rows);
        self.costly = self.keys.costly(self.store.rows());
    }

    fn clear(&mut self) {
        self.store.release();
        self.costly = 0;
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
        self.runs.push(run.finish()?);
        Ok(())
    }
}
