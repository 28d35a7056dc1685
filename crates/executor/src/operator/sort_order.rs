//! SPARQL's order of rows: ranks for the ids of each key, then rows by their ranks.
//!
//! A rank is a number whose order is the order of ORDER BY. Where ids have that order their bits are
//! ranks already; otherwise the distinct ids are ranked once (`ranking`). Values that are equal (`1`,
//! `1.0`) have one rank, so that the next key decides, but for the last key, where ids follow at
//! once. Rows that all keys leave equal are ordered by the ids of all their columns, so the order is
//! total, and the same in every run but for terms that the query computes on several threads.
//!
//! # Limits
//! All that is held is reserved. Ranking and sorting go on in steps of some milliseconds, between
//! which the operators yield.

mod merge;
mod ranking;
mod run_order;
mod run_sorter;

use std::cmp::Ordering;

use stoa_planner::expression::Expression;
use stoa_planner::physical::{SortKey, Variable};
use stoa_terms::{Kind, TermId};

use self::ranking::Ranking;
pub(super) use self::run_order::ByKeys;
use self::run_sorter::RunSorter;
use super::position;
use super::row_store::RowStore;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::expression::CompiledExpression;
use crate::memory::Memory;

/// The keys of an ORDER BY, compiled. Computed keys become columns behind those of the input.
pub(super) struct Keys {
    /// Column and whether larger ones come first.
    columns: Vec<(usize, bool)>,
    computed: Vec<CompiledExpression>,
    input_width: usize,
}

impl Keys {
    pub(super) fn new(
        keys: &[SortKey],
        input: &[Variable],
        context: &QueryContext,
    ) -> Result<Self> {
        let mut columns = Vec::with_capacity(keys.len());
        let mut computed = Vec::new();
        for key in keys {
            let column = match &key.expression {
                Expression::Variable(variable) => position(input, *variable),
                _ => None,
            };
            let column = match column {
                Some(column) => column,
                None => {
                    computed.push(CompiledExpression::compile(
                        &key.expression,
                        input,
                        context,
                    )?);
                    input.len() + computed.len() - 1
                }
            };
            columns.push((column, key.descending));
        }
        Ok(Self {
            columns,
            computed,
            input_width: input.len(),
        })
    }

    /// How many keys there are.
    pub(super) const fn count(&self) -> usize {
        self.columns.len()
    }

    /// How many columns rows have with their computed keys.
    pub(super) fn width(&self) -> usize {
        self.input_width + self.computed.len()
    }

    /// Adds the computed keys to a batch.
    pub(super) fn extend(&self, batch: &mut Batch, context: &QueryContext) -> Result<()> {
        let computed = self
            .computed
            .iter()
            .map(|key| key.evaluate_ids(batch, context))
            .collect::<Result<Vec<_>>>()?;
        batch.columns.extend(computed);
        Ok(())
    }

    /// Takes the computed keys away again.
    pub(super) fn strip(&self, batch: &mut Batch) {
        batch.columns.truncate(self.input_width);
    }

    /// The column and the direction of the first key.
    pub(super) fn first(&self) -> Option<(usize, bool)> {
        self.columns.first().copied()
    }

    /// How many bytes ranking and ordering take for a row where bits do not tell the order of so many keys, but for
    /// values that must be read.
    pub(super) fn bytes_a_row(&self, ranked: usize) -> usize {
        16 + self.columns.len() * 8 + ranked * ranking::RANKED_BYTES
    }

    /// How many ids among the keys have values that must be read.
    pub(super) fn costly(&self, batch: &Batch) -> usize {
        let is_costly = |id: &&TermId| {
            matches!(
                id.kind(),
                Kind::NumericLiteral
                    | Kind::TemporalLiteral
                    | Kind::Literal
                    | Kind::Triple
                    | Kind::Local
            )
        };
        let columns = self.columns.iter().map(|(column, _)| batch.column(*column));
        columns
            .map(|ids| ids.iter().filter(is_costly).count())
            .sum()
    }

    /// The order of rows in runs on disk.
    pub(super) fn run_order(&self, memory: Memory) -> ByKeys {
        ByKeys::new(&self.columns, memory)
    }

    /// What ranks the rows of a store, to be ordered; `memory` holds what was reserved for that.
    pub(super) fn ranker(&self, rows: &RowStore, mut memory: Memory) -> Result<Ranker> {
        // Ranks, the order, and its runs.
        let bytes = (rows.len() * (self.columns.len() * 8 + 8)) as u64;
        memory.require(bytes)?;
        Ok(Ranker {
            bytes,
            ranks: Vec::with_capacity(self.columns.len()),
            current: None,
            memory,
        })
    }
}

/// The ranks of rows by one key after the other.
pub(super) struct Ranker {
    ranks: Vec<Vec<u64>>,
    current: Option<Ranking>,
    /// What ranks and order take.
    bytes: u64,
    /// As much at least; the rest is for the one that ranks now, which gives it back.
    memory: Memory,
}

impl Ranker {
    /// Goes on for a while; true when all ranks are known. Keys and rows are the same at each call.
    pub(super) fn step(
        &mut self,
        keys: &Keys,
        rows: &RowStore,
        context: &QueryContext,
    ) -> Result<bool> {
        let Some((column, descending)) = keys.columns.get(self.ranks.len()) else {
            return Ok(true);
        };
        let last = self.ranks.len() + 1 == keys.columns.len();
        let ranking = self
            .current
            .get_or_insert_with(|| Ranking::new(last, self.memory.split_off(self.bytes)));
        if let Some(mut ranks) = ranking.step(rows.rows().column(*column), context)? {
            if *descending {
                for rank in &mut ranks {
                    *rank = !*rank;
                }
            }
            self.ranks.push(ranks);
            if let Some(ranking) = self.current.take() {
                self.memory.join(ranking.into_memory());
            }
        }
        Ok(self.ranks.len() == keys.columns.len())
    }

    /// The rows, to be sorted by their ranks; called once.
    pub(super) fn ordered(&mut self, rows: &RowStore) -> Ordered {
        let spare = self.memory.split_off(self.bytes);
        Ordered {
            ranks: std::mem::take(&mut self.ranks),
            sorter: RunSorter::new(rows.len()),
            _memory: std::mem::replace(&mut self.memory, spare),
        }
    }
}

/// Rows that are being brought into their order.
pub(super) struct Ordered {
    ranks: Vec<Vec<u64>>,
    sorter: RunSorter,
    _memory: Memory,
}

impl Ordered {
    /// Sorts a part of the rows; false when all parts are sorted.
    pub(super) fn sort_run(&mut self, rows: &RowStore) -> bool {
        let ranks = &self.ranks;
        self.sorter
            .sort_run(|left, right| compare_rows(ranks, rows.rows(), left, right))
    }

    /// The next rows in order, at most `rows_max`; after all parts are sorted.
    pub(super) fn take(&mut self, rows: &RowStore, rows_max: usize) -> Vec<u32> {
        let ranks = &self.ranks;
        self.sorter.take(rows_max, |left, right| {
            compare_rows(ranks, rows.rows(), left, right)
        })
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "a kernel: rows are numbered by their store"
)]
fn compare_rows(ranks: &[Vec<u64>], rows: &Batch, left: u32, right: u32) -> Ordering {
    let (left, right) = (left as usize, right as usize);
    for ranks in ranks {
        match ranks[left].cmp(&ranks[right]) {
            Ordering::Equal => (),
            order => return order,
        }
    }
    for column in &rows.columns {
        match column[left].cmp(&column[right]) {
            Ordering::Equal => (),
            order => return order,
        }
    }
    Ordering::Equal
}
