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

mod bound;
mod merge;
mod merging;
mod numbering;
mod ranking;
mod run_order;
mod run_parts;
mod slicing;
mod sorter;
mod team;
mod values;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use stoa_planner::expression::Expression;
use stoa_planner::physical::{SortKey, Variable};
use stoa_terms::{Kind, TermId};

pub(super) use self::bound::Bound;
use self::ranking::Ranking;
pub(super) use self::run_order::ByKeys;
pub(super) use self::run_parts::RunParts;
use self::sorter::{Order, SORTED_BYTES, Sorter};
use self::team::Team;
pub(super) use self::values::COSTLY_BYTES;
use super::parallel::Turn;
use super::position;
use super::row_store::RowStore;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
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
        SORTED_BYTES + self.columns.len() * 8 + ranked * ranking::RANKED_BYTES
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

    /// What ranks the rows of a store, to be ordered; `memory` holds what was reserved for that. Of the order only the first
    /// `wanted` rows will be taken.
    pub(super) fn ranker(
        &self,
        rows: RowStore,
        wanted: usize,
        mut memory: Memory,
        context: &QueryContext,
    ) -> Result<Ranker> {
        let bytes = (rows.len() * (self.columns.len() * 8 + SORTED_BYTES)) as u64;
        memory.require(bytes)?;
        Ok(Ranker {
            rows: Arc::new(rows),
            wanted,
            bytes,
            ranks: Vec::with_capacity(self.columns.len()),
            current: None,
            memory,
            team: Team::new(context),
        })
    }
}

/// The ranks of rows by one key after the other.
pub(super) struct Ranker {
    rows: Arc<RowStore>,
    /// How many of the first rows are.
    wanted: usize,
    ranks: Vec<Vec<u64>>,
    current: Option<Ranking>,
    /// What ranks and order take.
    bytes: u64,
    /// As much at least; the rest is for the one that ranks now, which gives it back.
    memory: Memory,
    team: Team,
}

impl Ranker {
    /// Goes on for a while; true when all ranks are known. The keys are the same at each call.
    pub(super) fn step(&mut self, keys: &Keys, context: &QueryContext) -> Result<bool> {
        let Some((column, descending)) = keys.columns.get(self.ranks.len()) else {
            return Ok(true);
        };
        let last = self.ranks.len() + 1 == keys.columns.len();
        // Each term is that of one row at least. Of further keys the smallest ones may be those of other rows.
        let wanted = match self.ranks.is_empty() && !*descending {
            true => self.wanted,
            false => usize::MAX,
        };
        let ranking = self.current.get_or_insert_with(|| {
            let memory = self.memory.split_off(self.bytes);
            Ranking::new(last, wanted, memory, self.team)
        });
        let column = (Arc::clone(&self.rows), *column);
        if let Some(mut ranks) = ranking.step(&column, context)? {
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

    /// The rows, to be sorted by their ranks. Whether they are wanted themselves, or their numbers.
    pub(super) fn ordered(mut self, as_rows: bool, context: &QueryContext) -> Ordered {
        // Most parts are made by other threads, whatever this one may do in one go.
        let (count, batch_rows) = (self.rows.len(), context.settings().batch_rows.max(1));
        // Several threads make batches in the order of their parts, if there is room for these.
        let parts_bytes = match as_rows && self.team.helpers(count) > 0 {
            false => 0,
            true => {
                let rows = self.team.ahead(count) * self.team.piece(count);
                (rows * self.rows.rows().columns.len() * size_of::<TermId>()) as u64
            }
        };
        self.memory.shrink_to(self.bytes);
        let gathers = parts_bytes > 0 && self.memory.try_require(self.bytes + parts_bytes);
        let order = RowOrder {
            ranks: self.ranks,
            rows: self.rows,
            gathered: gathers.then_some(batch_rows),
            memory: self.memory,
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Ordered {
            sorter: Sorter::new(Arc::new(order), count, self.team),
            part: Part::default(),
            taken: 0,
        }
    }
}

/// Rows that are being brought into their order.
pub(super) struct Ordered {
    sorter: Sorter<RowOrder>,
    /// What is being given.
    part: Part,
    taken: usize,
}

/// The order of rows.
struct RowOrder {
    /// By key, then by row.
    ranks: Vec<Vec<u64>>,
    rows: Arc<RowStore>,
    /// Parts come as batches of so many rows; `None` if as numbers only.
    gathered: Option<usize>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

/// Some rows in order.
#[derive(Default)]
struct Part {
    numbers: Vec<u32>,
    batches: VecDeque<Batch>,
}

impl Ordered {
    /// The next rows in order, at most a batch.
    pub(super) fn next_rows(&mut self, context: &QueryContext) -> Result<Turn<Batch>> {
        if let Some(batch) = self.part.batches.pop_front() {
            return Ok(Turn::Given(batch));
        }
        let start = self.taken;
        let end = self.part.numbers.len().min(start + context.batch_rows());
        if let Some(numbers) = self.part.numbers.get(start..end)
            && !numbers.is_empty()
        {
            self.taken = end;
            let rows = self.sorter.order().rows.rows();
            return Ok(Turn::Given(rows.gather(numbers)));
        }
        Ok(match self.sorter.next(context)? {
            Turn::Given(part) => {
                self.part = part;
                self.taken = 0;
                Turn::Working
            }
            Turn::Working => Turn::Working,
            Turn::Done => Turn::Done,
        })
    }

    /// The numbers of the next rows in order.
    pub(super) fn next_numbers(&mut self, context: &QueryContext) -> Result<Turn<Vec<u32>>> {
        Ok(match self.sorter.next(context)? {
            Turn::Given(part) => Turn::Given(part.numbers),
            Turn::Working => Turn::Working,
            Turn::Done => Turn::Done,
        })
    }

    /// Ends it; whether nobody is at work any more.
    pub(super) fn stop(&mut self, context: &QueryContext) -> bool {
        self.sorter.stop(context)
    }

    /// The rows as they came, after [`stop`](Self::stop) or all were given.
    pub(super) fn into_rows(self) -> Result<RowStore> {
        let rows = Arc::into_inner(self.sorter.into_order()).map(|order| order.rows);
        let rows = rows.and_then(Arc::into_inner);
        rows.ok_or(Error::Internal("rows that are still being sorted"))
    }
}

impl Order for RowOrder {
    type Part = Part;

    fn prefix(&self, number: u32) -> u64 {
        let first = self.ranks.first();
        let rank = first.and_then(|ranks| ranks.get(number as usize));
        rank.copied().unwrap_or(0)
    }

    fn compare(&self, left: u32, right: u32) -> Ordering {
        let further = self.ranks.get(1..).unwrap_or_default();
        compare_rows(further, self.rows.rows(), left, right)
    }

    fn part(&self, numbers: Vec<u32>) -> Part {
        let gather = |rows| self.rows.rows().gather(rows);
        match self.gathered {
            Some(batch_rows) => Part {
                batches: numbers.chunks(batch_rows).map(gather).collect(),
                numbers: Vec::new(),
            },
            None => Part {
                numbers,
                batches: VecDeque::new(),
            },
        }
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
