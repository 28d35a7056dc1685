//! The right side of a hash join: its rows, and tables over them that are made when they are needed.
//!
//! # Concurrency
//! Collected by one thread, then shared by all that probe it. A table is made under the lock of the tables, so
//! that it is made once.

use std::sync::{Arc, Mutex, PoisonError};

use stoa_planner::physical::{Operator as PlanOperator, Plan, Variable};
use stoa_terms::TermId;

use super::super::row_store::RowStore;
use super::super::{Builder, Node, Scope, required};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::profile::Counters;
use crate::table::JoinTable;

/// The key's columns on both sides.
pub(super) struct KeyColumns {
    keys: Vec<(usize, usize)>,
    pub(super) compatible: Vec<(usize, usize)>,
}

/// Reads a right side to its end.
pub(crate) struct Collector {
    input: Node,
    rows: RowStore,
    /// The columns that may be unbound.
    compatible: Vec<usize>,
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
    rows: Vec<u32>,
}

struct Tables {
    /// By part and the variables shared with left rows.
    made: Vec<(usize, u64, Arc<JoinTable>)>,
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
    ) -> Result<Self> {
        let PlanOperator::HashJoin { right, .. } = &plan.operator else {
            return Err(Error::Internal("not a hash join"));
        };
        let columns = KeyColumns::new(plan)?;
        Ok(Self {
            input: builder.build(right, scope.unordered(), Some(counters))?,
            rows: RowStore::new(right.columns.len(), builder.context.memory("hash_join")),
            compatible: columns.compatible.iter().map(|(_, right)| *right).collect(),
        })
    }

    /// Takes the next batch; the whole when there is none any more.
    pub(crate) fn advance(&mut self, context: &QueryContext) -> Result<Option<BuildSide>> {
        match self.input.next(context)? {
            Step::Batch(batch) => self.rows.append(&batch)?,
            Step::Yield => (),
            Step::Done => {
                let empty = RowStore::new(0, context.memory("hash_join"));
                let rows = std::mem::replace(&mut self.rows, empty);
                return BuildSide::new(rows, &self.compatible, context).map(Some);
            }
        }
        Ok(None)
    }
}

impl BuildSide {
    /// Splits rows by which of these columns they bind.
    fn new(rows: RowStore, compatible: &[usize], context: &QueryContext) -> Result<Self> {
        let count = rows.len();
        let bytes = (count * size_of::<u32>() * 2) as u64;
        let mut memory = context.memory("hash_join");
        memory.require(bytes)?;
        let mut parts: Vec<Part> = Vec::new();
        if compatible.is_empty() {
            if count > 0 {
                let rows = (0_u32..).take(count).collect();
                parts.push(Part { bound: 0, rows });
            }
        } else {
            for (row, bound) in (0_u32..).zip(bound_sets(rows.rows(), compatible)) {
                match parts.iter_mut().find(|part| part.bound == bound) {
                    Some(part) => part.rows.push(row),
                    None => parts.push(Part {
                        bound,
                        rows: vec![row],
                    }),
                }
            }
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

    pub(super) fn is_empty(&self) -> bool {
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
    ) -> Result<Arc<JoinTable>> {
        // A thread that failed in here has added nothing.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let made = tables.made.iter();
        let mut known = made.filter(|(of, over, _)| (*of, *over) == (part, shared));
        if let Some((.., table)) = known.next() {
            return Ok(Arc::clone(table));
        }
        let rows = self.parts.get(part).map(|part| part.rows.clone());
        let rows = rows.ok_or(Error::Internal("a part that does not exist"))?;
        let bytes = tables.bytes + JoinTable::bytes_for(rows.len());
        tables.memory.require(bytes)?;
        let key: Vec<_> = columns
            .key(shared)
            .map(|(_, right)| self.column(right))
            .collect();
        let table = Arc::new(JoinTable::build(&key, rows, || context.check())?);
        tables.bytes = bytes;
        tables.made.push((part, shared, Arc::clone(&table)));
        Ok(table)
    }
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
