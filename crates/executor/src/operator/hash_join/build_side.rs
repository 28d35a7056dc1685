//! The right side of a hash join: its rows, and tables over them that are made when they are needed; or its rows on
//! disk, scattered by the hash of their keys, where memory does not hold both. The filters that are wanted of its keys are
//! made when all rows are held, or while they go to disk.
//!
//! # Concurrency
//! Collected by one thread, then shared by all that probe it. The table of many rows is made at once, by several threads
//! (`partitioned_build`). Others are made under the lock of the tables, so that each is made once.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_storage::sync::Mutex;
use stoa_terms::TermId;

use super::super::key_filter::{KeyFilterBuilder, Wanted};
use super::super::parallel;
use super::super::row_store::RowStore;
use super::super::{Builder, Node, Scope, required};
use super::partitioned_build::PartitionedBuild;
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::spill::{Partitions, SpilledRows};
use crate::table::{JoinTable, JoinTables, hash_columns};

/// What a row is taken to cost beside its ids: its place in a part, and in a table.
pub(in crate::operator) const TABLE_BYTES: usize = 40;

/// How many rows that were held go to disk in one go.
const DUMP_ROWS: usize = 32 * 1024;

/// The key's columns on both sides.
#[derive(Clone)]
pub(super) struct KeyColumns {
    pub(super) keys: Vec<(usize, usize)>,
    pub(super) compatible: Vec<(usize, usize)>,
}

/// Reads a right side to its end.
pub(crate) struct Collector {
    input: Node,
    rows: RowStore,
    /// The columns of the keys, and those that may be unbound.
    keys: Vec<usize>,
    compatible: Vec<usize>,
    counters: Arc<Counters>,
    disk: Option<Disk>,
    /// Several threads make the table.
    building: Option<PartitionedBuild>,
    /// Whether others may help: not in a morsel, nor within an apply.
    may_share: bool,
    /// The filters that are wanted of the keys.
    wanted: Vec<Wanted>,
    /// How many rows the planner expects.
    expected_rows: f64,
}

/// A right side that goes to disk.
struct Disk {
    parts: Partitions,
    /// For each filter that is wanted the one that is being made.
    filters: Vec<Option<KeyFilterBuilder>>,
    /// How many of the rows that were held are there.
    dumped: usize,
    /// What has come when there was no room any more.
    rest: Option<Batch>,
    hashes: Vec<u64>,
}

/// A right side that was read.
#[derive(Clone)]
pub(crate) enum RightSide {
    Held(Arc<BuildSide>),
    /// Parts by the hash of the keys, all rows in one if there are none; taken by the one who joins them.
    OnDisk(Arc<Mutex<VecDeque<SpilledRows>>>),
}

/// See the module header.
pub(crate) struct BuildSide {
    rows: RowStore,
    parts: Vec<Part>,
    tables: Mutex<Tables>,
}

/// Rows that bind the same of the compatible variables.
struct Part {
    bound: u64,
    /// `None` for all.
    rows: Option<Vec<u32>>,
}

struct Tables {
    /// By part and the variables shared with left rows.
    made: Vec<(usize, u64, Arc<JoinTables>)>,
    bytes: u64,
    memory: Memory,
}

impl Collector {
    /// For the right side of the hash join `plan`, whose number is the builder's next one.
    pub(crate) fn new(
        plan: &Plan,
        builder: &mut Builder<'_>,
        scope: Scope<'_>,
        counters: &Arc<Counters>,
        wanted: Vec<Wanted>,
    ) -> Result<Self> {
        let PlanOperator::HashJoin { right, .. } = &plan.operator else {
            return Err(Error::Internal("not a hash join"));
        };
        let KeyColumns { keys, compatible } = KeyColumns::new(plan)?;
        let right_column = |(_, right): &(usize, usize)| *right;
        Ok(Self {
            input: builder.build(right, scope.unordered(), Some(counters))?,
            rows: RowStore::new(right.columns.len(), builder.context.memory("hash_join")),
            keys: keys.iter().map(right_column).collect(),
            compatible: compatible.iter().map(right_column).collect(),
            counters: Arc::clone(counters),
            disk: None,
            building: None,
            may_share: scope.outer.is_none() && !scope.in_morsel,
            wanted,
            expected_rows: right.estimated_rows,
        })
    }

    /// Takes the next batch; the whole when there is none any more.
    pub(crate) fn advance(&mut self, context: &QueryContext) -> Result<Option<RightSide>> {
        if let Some(building) = &mut self.building {
            let side = building.advance(context, &self.counters)?;
            return Ok(side.map(RightSide::Held));
        }
        if let Some(disk) = &mut self.disk
            && let Some(rest) = disk.rest.take()
        {
            self.dump(rest)?;
            return Ok(None);
        }
        match self.input.next(context)? {
            Step::Batch(batch) => self.add(batch, context)?,
            Step::Yield => (),
            Step::Done => return self.end(context),
        }
        Ok(None)
    }

    fn add(&mut self, batch: Batch, context: &QueryContext) -> Result<()> {
        if let Some(disk) = &mut self.disk {
            return disk.scatter(&batch, 0..batch.rows, &self.keys, &self.wanted);
        }
        if may_add(&mut self.rows, &batch, context)? {
            return self.rows.append(&batch);
        }
        let width = batch.columns.len();
        let held = self.rows.bytes_with(0);
        let writing = self.rows.memory().split_off(held);
        let rows = self.rows_in_all();
        let filters = self.wanted.iter().map(|wanted| wanted.begin(rows, context));
        self.disk = Some(Disk {
            parts: Partitions::new(width, 0, writing, context, &self.counters)?,
            filters: filters.collect(),
            dumped: 0,
            rest: Some(batch),
            hashes: Vec::new(),
        });
        Ok(())
    }

    /// Puts some of the rows that were held on disk, and `rest` behind them.
    fn dump(&mut self, rest: Batch) -> Result<()> {
        let Some(disk) = &mut self.disk else {
            return Ok(());
        };
        let end = self.rows.len().min(disk.dumped + DUMP_ROWS);
        if disk.dumped < end {
            disk.scatter(self.rows.rows(), disk.dumped..end, &self.keys, &self.wanted)?;
            disk.dumped = end;
            disk.rest = Some(rest);
            return Ok(());
        }
        self.rows.release();
        disk.scatter(&rest, 0..rest.rows, &self.keys, &self.wanted)
    }

    /// About how many rows come in all, where memory does not hold them.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    fn rows_in_all(&self) -> usize {
        let held = self.rows.len();
        let expected = self.expected_rows.max(0.0) as usize;
        expected.clamp(2 * held, 16 * held.max(1))
    }

    /// The right side, unless there is more to do for it.
    fn end(&mut self, context: &QueryContext) -> Result<Option<RightSide>> {
        if let Some(disk) = self.disk.take() {
            for (wanted, filter) in self.wanted.iter().zip(disk.filters) {
                if let Some(filter) = filter.and_then(KeyFilterBuilder::finish) {
                    wanted.set(filter);
                }
            }
            let parts = disk.parts.finish()?;
            let parts = Arc::new(Mutex::new(parts.into()));
            return Ok(Some(RightSide::OnDisk(parts)));
        }
        let empty = RowStore::new(0, context.memory("hash_join"));
        let rows = std::mem::replace(&mut self.rows, empty);
        let side = Arc::new(BuildSide::new(rows, &self.compatible)?);
        if self.may_share && parallel::is_hashing_worth(side.rows.len(), context) {
            let columns = (self.keys.as_slice(), self.compatible.as_slice());
            self.building = PartitionedBuild::new(&side, columns, &mut self.wanted, context);
            if self.building.is_some() {
                return Ok(None);
            }
        }
        for wanted in &self.wanted {
            wanted.make(side.rows(), context)?;
        }
        Ok(Some(RightSide::Held(side)))
    }
}

impl Disk {
    fn scatter(
        &mut self,
        batch: &Batch,
        rows: std::ops::Range<usize>,
        keys: &[usize],
        wanted: &[Wanted],
    ) -> Result<()> {
        for (wanted, filter) in wanted.iter().zip(&mut self.filters) {
            let keys = batch.column(wanted.column()).get(rows.clone());
            if let (Some(keys), Some(filter)) = (keys, filter) {
                filter.add(keys);
            }
        }
        let columns: Vec<_> = batch.columns.iter().map(Vec::as_slice).collect();
        scatter(&mut self.parts, &columns, rows, keys, &mut self.hashes)
    }
}

/// Adds rows to their parts, by the columns of their keys; `hashes` is overwritten.
pub(super) fn scatter(
    parts: &mut Partitions,
    columns: &[&[TermId]],
    rows: std::ops::Range<usize>,
    keys: &[usize],
    hashes: &mut Vec<u64>,
) -> Result<()> {
    let key = |key: &usize| columns.get(*key)?.get(rows.clone());
    let keys: Vec<&[TermId]> = keys.iter().filter_map(key).collect();
    hash_columns(&keys, rows.len(), hashes);
    for (row, hash) in rows.zip(hashes.iter()) {
        parts.add(columns, row, *hash)?;
    }
    Ok(())
}

/// Whether there is room for these rows, and for tables over all.
pub(super) fn may_add(rows: &mut RowStore, batch: &Batch, context: &QueryContext) -> Result<bool> {
    let held = rows.len();
    let tables = (held + batch.rows) * TABLE_BYTES;
    let bytes = rows.bytes_with(batch.rows) + tables as u64;
    context.may_hold(rows.memory(), bytes, held)
}

impl BuildSide {
    /// Splits rows by which of these columns they bind.
    pub(in crate::operator) fn new(mut rows: RowStore, compatible: &[usize]) -> Result<Self> {
        let count = rows.len();
        // Parts and tables have an account of their own, with what was reserved for them.
        let held = rows.bytes_with(0);
        let mut bytes = 0;
        let mut memory = rows.memory().split_off(held);
        let mut parts: Vec<Part> = Vec::new();
        if compatible.is_empty() {
            if count > 0 {
                let (bound, rows) = (0, None);
                parts.push(Part { bound, rows });
            }
        } else {
            bytes = (count * size_of::<u32>() * 2) as u64;
            memory.require(bytes)?;
            parts = parts_of(&bound_sets(rows.rows(), compatible));
        }
        Ok(Self {
            rows,
            parts,
            tables: Mutex::new(Tables {
                made: Vec::new(),
                bytes,
                memory,
            }),
        })
    }

    /// The variables that all rows bind of the compatible ones, if all bind the same.
    pub(super) fn bound_by_all(&self) -> Option<u64> {
        match self.parts.as_slice() {
            [all] => Some(all.bound),
            _ => None,
        }
    }

    /// Whether there is room for so many bytes more for tables.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let mut tables = lock(&self.tables);
        let bytes = tables.bytes + bytes;
        tables.memory.try_require(bytes)
    }

    /// Takes the table of all rows over the keys and these compatible variables, which there was room for.
    pub(super) fn put(&self, shared: u64, made: JoinTables) {
        let mut tables = lock(&self.tables);
        tables.bytes += made.bytes();
        tables.made.push((0, shared, Arc::new(made)));
        let bytes = tables.bytes;
        tables.memory.shrink_to(bytes);
    }

    /// What was reserved for it, which is gone with that.
    pub(super) fn into_memory(mut self) -> Memory {
        let mut memory = self.rows.memory().split_off(0);
        let tables = self.tables.into_inner();
        memory.join(tables.unwrap_or_else(PoisonError::into_inner).memory);
        memory
    }

    /// One without rows.
    pub(super) fn empty(context: &QueryContext) -> Result<Self> {
        Self::new(RowStore::new(0, context.memory("hash_join")), &[])
    }

    pub(in crate::operator) fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    pub(super) const fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Which compatible variables the rows of a part bind; `None` if there is no such part.
    pub(super) fn bound(&self, part: usize) -> Option<u64> {
        self.parts.get(part).map(|part| part.bound)
    }

    pub(super) fn slices(&self) -> Vec<&[TermId]> {
        self.rows.slices()
    }

    pub(super) const fn rows(&self) -> &Batch {
        self.rows.rows()
    }

    pub(super) fn column(&self, column: usize) -> &[TermId] {
        self.rows.rows().column(column)
    }

    /// The table of a part over the keys and the shared variables.
    pub(super) fn table(
        &self,
        part: usize,
        shared: u64,
        columns: &KeyColumns,
        context: &QueryContext,
    ) -> Result<Arc<JoinTables>> {
        // A thread that failed in here has added nothing.
        let mut tables = lock(&self.tables);
        let made = tables.made.iter();
        let mut known = made.filter(|(of, over, _)| (*of, *over) == (part, shared));
        if let Some((.., table)) = known.next() {
            return Ok(Arc::clone(table));
        }
        let rows = self.parts.get(part).map(|part| &part.rows);
        let rows = rows.ok_or(Error::Internal("a part that does not exist"))?;
        let count = rows.as_ref().map_or(self.rows.len(), Vec::len);
        let bytes = tables.bytes + JoinTable::bytes_for(count);
        tables.memory.require(bytes)?;
        let rows = rows.clone();
        let rows = rows.unwrap_or_else(|| (0_u32..).take(count).collect());
        let key: Vec<_> = columns
            .key(shared)
            .map(|(_, right)| self.column(right))
            .collect();
        let table = JoinTable::build(&key, rows, || context.check())?;
        let table = Arc::new(JoinTables::one(table));
        tables.bytes = bytes;
        tables.made.push((part, shared, Arc::clone(&table)));
        // Further ones are seldom: where rows have several tables each.
        if tables.made.len() >= self.parts.len() {
            tables.memory.shrink_to(bytes);
        }
        Ok(table)
    }
}

/// Rows by what they bind.
fn parts_of(bound_sets: &[u64]) -> Vec<Part> {
    let mut parts: Vec<(u64, Vec<u32>)> = Vec::new();
    for (row, bound) in (0_u32..).zip(bound_sets) {
        match parts.iter_mut().find(|(other, _)| other == bound) {
            Some((_, rows)) => rows.push(row),
            None => parts.push((*bound, vec![row])),
        }
    }
    let parts = parts.into_iter();
    let part = |(bound, rows)| Part {
        bound,
        rows: Some(rows),
    };
    parts.map(part).collect()
}

impl KeyColumns {
    /// Those of the hash join `plan`.
    pub(super) fn new(plan: &Plan) -> Result<Self> {
        let PlanOperator::HashJoin {
            left,
            right,
            keys,
            compatible,
            ..
        } = &plan.operator
        else {
            return Err(Error::Internal("not a hash join"));
        };
        let both = |variable: &Variable| {
            Ok((
                required(&left.columns, *variable)?,
                required(&right.columns, *variable)?,
            ))
        };
        Ok(Self {
            keys: keys.iter().map(both).collect::<Result<_>>()?,
            compatible: compatible.iter().map(both).collect::<Result<_>>()?,
        })
    }

    /// The columns of the keys and of the shared ones among the compatible variables.
    pub(super) fn key(&self, shared: u64) -> impl Iterator<Item = (usize, usize)> {
        let compatible = self.compatible.iter().enumerate();
        let compatible = compatible.filter(move |(index, _)| shared & (1 << index) != 0);
        self.keys
            .iter()
            .copied()
            .chain(compatible.map(|(_, columns)| *columns))
    }
}

/// Who panicked under the lock ends the query.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For each row which of the columns are bound, the first one in the lowest bit.
pub(super) fn bound_sets(batch: &Batch, columns: &[usize]) -> Vec<u64> {
    let mut sets = vec![0; batch.rows];
    for (bit, column) in columns.iter().enumerate() {
        for (set, id) in sets.iter_mut().zip(batch.column(*column)) {
            *set |= u64::from(!id.is_unbound()) << bit;
        }
    }
    sets
}
