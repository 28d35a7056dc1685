//! SPARQL's order of rows: ranks for the ids of each key, then rows by their ranks.
//!
//! A rank is a number whose order is the order of ORDER BY. Where all ids of a key are of one inline
//! kind their bits are ranks already; otherwise the distinct ids are sorted once, their texts
//! fetched in one go. Values that are equal (`1`, `1.0`) have one rank, so that the next key
//! decides, but for the last key, where ids follow at once. Rows that all keys leave equal are
//! ordered by the ids of all their columns, so the order is total and the same in every run.
//!
//! # Limits
//! Ranks, texts and values are reserved while rows are ordered. Cancellation is checked for each run
//! of [`RUN_ROWS`] rows that is sorted.

use std::cmp::Ordering;

use stoa_planner::expression::Expression;
use stoa_planner::physical::{SortKey, Variable};
use stoa_quadstore::TermTexts;
use stoa_terms::value::{Value, order_inline};
use stoa_terms::{Kind, TermId, key};

use super::position;
use super::row_store::RowStore;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::expression::CompiledExpression;
use crate::memory::Memory;
use crate::table::GroupTable;

/// How many rows are sorted in one go, some milliseconds.
const RUN_ROWS: usize = 32 * 1024;

/// What a value is taken to cost beside its text, in bytes.
const VALUE_BYTES: usize = 96;

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

    /// Ranks the rows of a store, to be ordered.
    pub(super) fn rank(
        &self,
        rows: &RowStore,
        operator: &'static str,
        context: &QueryContext,
    ) -> Result<Ordered> {
        let mut memory = context.memory(operator);
        // Ranks, the order, and its runs.
        let bytes = rows.len() * (self.columns.len() * 8 + 8);
        memory.require(bytes as u64)?;
        let mut ranks = Vec::with_capacity(self.columns.len());
        for (index, (column, descending)) in self.columns.iter().enumerate() {
            let last = index + 1 == self.columns.len();
            let ids = rows.rows().column(*column);
            let mut column = column_ranks(ids, last, operator, context)?;
            if *descending {
                for rank in &mut column {
                    *rank = !*rank;
                }
            }
            ranks.push(column);
        }
        Ok(Ordered {
            ranks,
            sorter: RunSorter::new(rows.len()),
            _memory: memory,
        })
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

/// Whether the order of ids of this kind is the order of their terms.
const fn ordered_by_id(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::BlankNode
            | Kind::Integer
            | Kind::Decimal
            | Kind::DateTime
            | Kind::DateTimeZoned
            | Kind::ShortString
    )
}

/// The ranks of one key.
fn column_ranks(
    ids: &[TermId],
    last: bool,
    operator: &'static str,
    context: &QueryContext,
) -> Result<Vec<u64>> {
    let bound = ids.iter().find(|id| !id.is_unbound());
    let kind = bound.map_or(Kind::BlankNode, |id| id.kind());
    let one_kind = ids.iter().all(|id| id.is_unbound() || id.kind() == kind);
    if one_kind && ordered_by_id(kind) && (last || kind == Kind::BlankNode) {
        return Ok(ids.iter().map(|id| id.to_bits()).collect());
    }
    let mut memory = context.memory(operator);
    let mut table = GroupTable::new(1);
    let mut groups = Vec::new();
    memory.require(table.bytes_with(ids.len()) + (ids.len() * 4) as u64)?;
    table.insert(&[ids], ids.len(), &mut groups)?;
    let distinct = table.key_column(0, 0..table.len());
    let ranks = distinct_ranks(&distinct, last, &mut memory, operator, context)?;
    let rank = |group: &u32| ranks.get(*group as usize).copied().unwrap_or(0);
    Ok(groups.iter().map(rank).collect())
}

/// The ranks of distinct ids.
fn distinct_ranks(
    ids: &[TermId],
    last: bool,
    memory: &mut Memory,
    operator: &'static str,
    context: &QueryContext,
) -> Result<Vec<u64>> {
    let kinds: Vec<Kind> = ids.iter().map(|id| context.kind(*id)).collect();
    let inline = ids
        .iter()
        .zip(ids.iter().skip(1))
        .all(|(a, b)| a.kind() == b.kind() && order_inline(*a, *b).is_some());
    if inline
        && ids
            .iter()
            .all(|id| order_inline(*id, *id).is_some() && ordered_by_id(id.kind()))
    {
        let compare = |a: u32, b: u32| {
            let (a, b) = (id_at(ids, a), id_at(ids, b));
            order_inline(a, b).unwrap_or_else(|| a.cmp(&b))
        };
        return assign(ids, last, compare, context);
    }
    let mut texts = TermTexts::default();
    context.texts(ids, &mut texts)?;
    let mut account = context.memory(operator);
    account.require((texts.size_bytes() + ids.len() * 8) as u64)?;
    if kinds.iter().all(|kind| *kind == Kind::Iri) {
        let compare = |a: u32, b: u32| texts.get(a as usize).cmp(texts.get(b as usize));
        return assign(ids, last, compare, context);
    }
    let bytes = memory.reserved_bytes() + (texts.size_bytes() + ids.len() * VALUE_BYTES) as u64;
    memory.require(bytes)?;
    let mut values = Vec::with_capacity(ids.len());
    for (row, (id, kind)) in ids.iter().zip(&kinds).enumerate() {
        values.push(match id.is_unbound() {
            true => None,
            false => Some(value(*id, *kind, texts.get(row), context)?),
        });
    }
    drop(texts);
    let compare = |a: u32, b: u32| {
        let values = (values.get(a as usize), values.get(b as usize));
        match values {
            (Some(Some(a)), Some(Some(b))) => a.order_by(b),
            (Some(a), Some(b)) => a.is_some().cmp(&b.is_some()),
            _ => Ordering::Equal,
        }
    };
    assign(ids, last, compare, context)
}

fn id_at(ids: &[TermId], index: u32) -> TermId {
    ids.get(index as usize).copied().unwrap_or_default()
}

/// Sorts distinct ids by `compare`, then by id, and numbers them. Those that are equal get one
/// number unless this is the last key.
fn assign(
    ids: &[TermId],
    last: bool,
    compare: impl Fn(u32, u32) -> Ordering,
    context: &QueryContext,
) -> Result<Vec<u64>> {
    let total = |a: u32, b: u32| compare(a, b).then_with(|| id_at(ids, a).cmp(&id_at(ids, b)));
    let mut sorter = RunSorter::new(ids.len());
    while sorter.sort_run(total) {
        context.check()?;
    }
    let mut ranks = vec![0; ids.len()];
    let mut rank = 0;
    let mut before: Option<u32> = None;
    loop {
        context.check()?;
        let some = sorter.take(RUN_ROWS, total);
        if some.is_empty() {
            return Ok(ranks);
        }
        for index in some {
            if let Some(before) = before
                && (last || compare(before, index) != Ordering::Equal)
            {
                rank += 1;
            }
            before = Some(index);
            if let Some(place) = ranks.get_mut(index as usize) {
                *place = rank;
            }
        }
    }
}

/// The value of a term whose key is given.
pub(super) fn value(id: TermId, kind: Kind, text: &[u8], context: &QueryContext) -> Result<Value> {
    let broken = || Error::Internal("a term without a value");
    match kind {
        Kind::BlankNode => Ok(Value::BlankNode(id.to_bits())),
        Kind::Iri => Ok(Value::Iri(String::from_utf8_lossy(text).into())),
        Kind::NumericLiteral | Kind::TemporalLiteral | Kind::Literal => {
            let parts = key::parse_literal(text).map_err(|_| broken())?;
            Ok(Value::from_parts(parts))
        }
        Kind::Triple => {
            let [subject, predicate, object] = context.triple(id)?;
            Ok(Value::Triple(Box::new([
                part_value(subject, context)?,
                part_value(predicate, context)?,
                part_value(object, context)?,
            ])))
        }
        _ => Value::from_inline(id).ok_or_else(broken),
    }
}

fn part_value(id: TermId, context: &QueryContext) -> Result<Value> {
    let mut texts = TermTexts::default();
    context.texts(&[id], &mut texts)?;
    value(id, context.kind(id), texts.get(0), context)
}

/// Sorts numbers `0..count` in runs, then merges the runs as they are taken.
struct RunSorter {
    order: Vec<u32>,
    /// How many numbers stand in sorted runs.
    sorted: usize,
    /// For each run, where it goes on and where it ends; made when the first ones are taken.
    runs: Vec<(usize, usize)>,
    /// The runs by their next number, the smallest one first.
    queue: Vec<usize>,
    merging: bool,
}

impl RunSorter {
    fn new(count: usize) -> Self {
        Self {
            order: (0..=u32::MAX).take(count).collect(),
            sorted: 0,
            runs: Vec::new(),
            queue: Vec::new(),
            merging: false,
        }
    }

    /// Sorts the next run; false if there was none.
    fn sort_run(&mut self, compare: impl Fn(u32, u32) -> Ordering) -> bool {
        let end = self.order.len().min(self.sorted + RUN_ROWS);
        let Some(run) = self.order.get_mut(self.sorted..end) else {
            return false;
        };
        if run.is_empty() {
            return false;
        }
        run.sort_unstable_by(|left, right| compare(*left, *right));
        self.runs.push((self.sorted, end));
        self.sorted = end;
        true
    }

    /// The next numbers in order, at most `count`.
    fn take(&mut self, count: usize, compare: impl Fn(u32, u32) -> Ordering) -> Vec<u32> {
        let head = |runs: &[(usize, usize)], order: &[u32], run: usize| {
            let at = runs.get(run).map_or(0, |run| run.0);
            order.get(at).copied().unwrap_or(0)
        };
        if !self.merging {
            self.merging = true;
            self.queue = (0..self.runs.len()).collect();
            let (runs, order) = (&self.runs, &self.order);
            // The smallest head last, where it is cheap to take.
            self.queue.sort_unstable_by(|left, right| {
                compare(head(runs, order, *right), head(runs, order, *left))
            });
        }
        let mut out = Vec::with_capacity(count.min(self.order.len()));
        while out.len() < count {
            let Some(run) = self.queue.pop() else {
                break;
            };
            let Some((next, end)) = self.runs.get_mut(run) else {
                break;
            };
            out.extend(self.order.get(*next).copied());
            *next += 1;
            if *next == *end {
                continue;
            }
            let number = head(&self.runs, &self.order, run);
            let (runs, order) = (&self.runs, &self.order);
            let place = self.queue.partition_point(|other| {
                compare(head(runs, order, *other), number) == Ordering::Greater
            });
            self.queue.insert(place, run);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_sorted_and_merged() {
        let count = 3 * RUN_ROWS + 17;
        let keys: Vec<u32> = (0_u32..)
            .take(count)
            .map(|number| number.wrapping_mul(2_654_435_761) >> 7)
            .collect();
        let compare = |a: u32, b: u32| keys[a as usize].cmp(&keys[b as usize]).then(a.cmp(&b));
        let mut sorter = RunSorter::new(count);
        while sorter.sort_run(compare) {}
        let mut order = Vec::new();
        loop {
            let some = sorter.take(1000, compare);
            if some.is_empty() {
                break;
            }
            order.extend(some);
        }
        assert_eq!(order.len(), count);
        assert!(
            order
                .windows(2)
                .all(|pair| compare(pair[0], pair[1]) == Ordering::Less)
        );
    }
}
