//! Numbers that are made of the text of one variable, such as `xsd:float(xsd:string(?price))` and `STRLEN(?label)`, made
//! once for each term.
//!
//! What was found is kept for the terms of the dictionary, eight bytes each, for this query and those after it. Where terms
//! of one page were looked up some times, all that the dictionary has there are read one after the other: the block that
//! holds one of them has its neighbours as well, so that to read them all takes as long as to look up some of them.
//! Whoever meets many terms, in whatever order, reads each block once.
//!
//! # Invariants
//! 1. Numbers are kept and found for terms that a checkpoint holds, by their numbering: such an id means one term for ever.
//!    That of a later term may be another one's in a transaction that has not committed, or never will (test
//!    `ids_of_transactions_are_not_kept` of crates/database/tests/kept_numbers.rs).
//! 2. How a number is made depends on nothing but the text: functions that give the same for the same, and constants
//!    ([`made_of`]).
//!
//! # Concurrency
//! One lock of the cache, while an expression is compiled; see [`super::term_pages`] for what is kept.
//!
//! # Limits
//! 4 KB for each 512 terms of which one was looked up, 16 bytes for each such page there may be; a share of all memory
//! ([`KEPT_SHARE`]), reserved from the budget, which takes back what no query uses. A page of texts that find no room is not
//! read.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use stoa_planner::expression::Function;
use stoa_quadstore::{NumberingId, Snapshot};
use stoa_storage::sync::Mutex;
use stoa_storage::{MemoryBudget, Reclaim, nonblocking};
use stoa_terms::{Kind, TermId};

use super::column::Column;
use super::evaluate::Evaluation;
use super::node::Node;
use super::number::Number;
use super::numbers::Numbers;
use super::operand;
use super::term_pages::{KINDS, Page, TermPages};
use crate::batch::{Batch, gather};
use crate::context::QueryContext;
use crate::error::{Error, Result};

/// All numbers that are kept take this part of all memory at most.
const KEPT_SHARE: u64 = 16;
/// More ways to make numbers are not looked through.
const WAYS_MAX: usize = 64;
/// Pages are for the terms that there were when the first was made; when there are so many times more they are made anew.
const GROWTH: u64 = 2;

const PAGE_TERMS: usize = 512;

/// So many terms of a page are looked up one by one before all of it is read. Reading all takes about as long as to look up
/// a hundred of them, so that never more than about twice the work is done that would have been enough.
const READ_AFTER: u32 = 64;
/// So many pages are read for one batch, which takes some milliseconds at most; others are for the next one.
const PAGES_AT_ONCE: usize = 16;

/// How numbers are made: functions from the outer to the inner one with their constant arguments, `None` standing for
/// the one that is not constant.
type NumberKey = Vec<(Function, Vec<Option<(TermId, Kind, Vec<u8>)>>)>;

/// Numbers that queries have made of terms, for those after them.
pub struct NumberCache {
    table: Mutex<Table>,
    budget: MemoryBudget,
}

/// Those used last are at the end.
#[derive(Default)]
struct Table(Vec<Entry>);

struct Entry {
    numbering: NumberingId,
    key: NumberKey,
    ends: [u64; KINDS.len()],
    pages: Arc<TermPages<Made>>,
}

/// What a cache of numbers holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NumberCounts {
    /// How many ways to make numbers there are.
    pub ways: usize,
    /// What they take, in bytes.
    pub bytes: u64,
}

/// What was made of terms, as one query may use it.
pub(super) struct NumberMemo {
    pages: Arc<TermPages<Made>>,
    /// The payloads of its snapshot that lie before these, one a kind, are of terms that a checkpoint holds.
    ends: [u64; KINDS.len()],
}

/// For each term what [`code`] gives for its number, zero for one that is not known.
pub(super) struct Made {
    codes: [AtomicU64; PAGE_TERMS],
    /// How many terms were looked up.
    missed: AtomicU32,
    /// Whether the page was read, or is.
    is_read: AtomicBool,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            codes: [const { AtomicU64::new(0) }; PAGE_TERMS],
            missed: AtomicU32::new(0),
            is_read: AtomicBool::new(false),
        }
    }
}

impl Page for Made {
    const TERMS: u64 = PAGE_TERMS as u64;
    const ROWS: u64 = 32;
}

impl NumberCache {
    /// An empty one, whose memory `budget` can have back.
    #[must_use]
    pub fn new(budget: &MemoryBudget) -> Arc<Self> {
        let cache = Arc::new(Self {
            table: Mutex::default(),
            budget: budget.clone(),
        });
        let reclaimed: std::sync::Weak<Self> = Arc::downgrade(&cache);
        budget.register(reclaimed);
        cache
    }

    /// What it holds.
    #[must_use]
    pub fn counts(&self) -> NumberCounts {
        let table = self.lock();
        NumberCounts {
            ways: table.0.len(),
            bytes: table.0.iter().map(|entry| entry.pages.bytes()).sum(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while the table is not whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was made so of the terms of a snapshot; `None` if there is no room for that.
    fn memo(&self, key: &NumberKey, snapshot: &Snapshot) -> Option<NumberMemo> {
        let ends = KINDS.map(|kind| {
            let sections = snapshot.stored_key_sections(kind);
            let ends = sections.iter().map(|section| section.payloads.end);
            ends.max().unwrap_or_default()
        });
        let numbering = snapshot.numbering_id();
        let mut table = self.lock();
        let pages = match table.take(&numbering, key, &ends) {
            Some(entry) => table.put(entry),
            None => {
                // What others hold may be asked back for it, and this lock must not be waited for then.
                let gone = table.make_place();
                drop(table);
                drop(gone);
                let bytes_max = self.budget.limit() / KEPT_SHARE;
                let pages = TermPages::shared(ends, &self.budget, bytes_max)?;
                table = self.lock();
                // Another query may have come first.
                let other = table.take(&numbering, key, &ends);
                table.put(other.unwrap_or_else(|| Entry {
                    numbering,
                    key: key.clone(),
                    ends,
                    pages: Arc::new(pages),
                }))
            }
        };
        drop(table);
        Some(NumberMemo { pages, ends })
    }
}

impl Table {
    /// Takes out what was made so of the terms of a numbering, and forgets it if there are many more by now.
    fn take(
        &mut self,
        numbering: &NumberingId,
        key: &NumberKey,
        ends: &[u64; KINDS.len()],
    ) -> Option<Entry> {
        let mut entries = self.0.iter();
        let at = entries.position(|entry| entry.numbering == *numbering && entry.key == *key)?;
        let entry = self.0.remove(at);
        let terms = |ends: &[u64; KINDS.len()]| ends.iter().sum::<u64>();
        (terms(ends) <= terms(&entry.ends).saturating_mul(GROWTH)).then_some(entry)
    }

    fn put(&mut self, entry: Entry) -> Arc<TermPages<Made>> {
        let pages = Arc::clone(&entry.pages);
        self.0.push(entry);
        pages
    }

    /// Takes out what nobody can ask for any more, and what there are too many of.
    fn make_place(&mut self) -> Vec<Entry> {
        let gone = self.0.extract_if(.., |entry| !entry.numbering.is_held());
        let mut gone: Vec<Entry> = gone.collect();
        let too_many = (self.0.len() + 1).saturating_sub(WAYS_MAX);
        gone.extend(self.0.drain(..too_many));
        gone
    }
}

impl Reclaim for NumberCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        // Who is at it now may be the one that asks.
        let Ok(mut table) = self.table.try_lock() else {
            return 0;
        };
        let (mut given, mut gone, mut at) = (0, Vec::new(), 0);
        while given < bytes
            && let Some(entry) = table.0.get(at)
        {
            // What a query uses would not be given up.
            if Arc::strong_count(&entry.pages) > 1 {
                at += 1;
                continue;
            }
            given += entry.pages.bytes();
            gone.push(table.0.remove(at));
        }
        drop(table);
        drop(gone);
        given
    }

    fn held(&self) -> u64 {
        let Ok(table) = self.table.try_lock() else {
            return 0;
        };
        let entries = table.0.iter();
        let unused = entries.filter(|entry| Arc::strong_count(&entry.pages) == 1);
        unused.map(|entry| entry.pages.bytes()).sum()
    }
}

/// Has the numbers in a node that are made of the text of one variable made once for each term.
pub(super) fn once_per_term(mut node: Node, context: &QueryContext) -> Node {
    let settings = context.settings();
    if let Some(cache) = &settings.numbers
        && settings.term_memo_after_rows != u64::MAX
    {
        wrap(&mut node, cache, context);
    }
    node
}

fn wrap(node: &mut Node, cache: &NumberCache, context: &QueryContext) {
    if let Some((key, column)) = made_of(node) {
        if let Some(memo) = cache.memo(&key, context.snapshot()) {
            let inner = std::mem::replace(node, Node::Error);
            *node = Node::NumberOfTerm(column, Box::new(inner), memo);
        }
        return;
    }
    let wrap = |part: &mut Node| wrap(part, cache, context);
    match node {
        Node::Constant(_) | Node::Column(_) | Node::Error | Node::Bound(_) => (),
        // These are tried once for each term as they are.
        Node::OncePerTerm(..) | Node::NumberOfTerm(..) => (),
        Node::Not(inner) | Node::Plus(inner) | Node::Minus(inner) => wrap(inner),
        Node::And(parts)
        | Node::Or(parts)
        | Node::Coalesce(parts)
        | Node::Call(_, parts)
        | Node::Pattern(_, parts, _) => parts.iter_mut().for_each(wrap),
        Node::Compare(_, parts) | Node::Arithmetic(_, parts) => parts.iter_mut().for_each(wrap),
        Node::If(parts) => parts.iter_mut().for_each(wrap),
        Node::In(inner, list, _) => std::iter::once(&mut **inner).chain(list).for_each(wrap),
    }
}

/// How a node makes a number of one column, and of which.
fn made_of(node: &Node) -> Option<(NumberKey, usize)> {
    let makes_number = |function| {
        matches!(
            function,
            Function::CastInteger
                | Function::CastDecimal
                | Function::CastFloat
                | Function::CastDouble
                | Function::StrLen
        )
    };
    let Node::Call(function, _) = node else {
        return None;
    };
    if !makes_number(*function) {
        return None;
    }
    let mut key = NumberKey::new();
    let mut node = node;
    loop {
        let (function, arguments) = match node {
            Node::Column(column) => return Some((key, *column)),
            Node::Call(function, arguments) | Node::Pattern(function, arguments, _) => {
                (*function, arguments)
            }
            _ => return None,
        };
        if !crate::function::is_deterministic(function) {
            return None;
        }
        let mut inner = None;
        let mut constants = Vec::with_capacity(arguments.len());
        for argument in arguments {
            constants.push(match argument {
                // The id of what is not inline may be another term's in another query.
                Node::Constant(constant) if constant.id.is_inline() => {
                    Some((constant.id, constant.kind, Vec::new()))
                }
                Node::Constant(constant) => {
                    Some((TermId::UNBOUND, constant.kind, constant.text.clone()))
                }
                _ if inner.is_some() => return None,
                other => {
                    inner = Some(other);
                    None
                }
            });
        }
        key.push((function, constants));
        node = inner?;
    }
}

impl<'a> Evaluation<'a> {
    /// What `inner`, which makes a number of the column `column`, gives for each row.
    pub(super) fn number_of_term<'n>(
        &self,
        column: usize,
        inner: &'n Node,
        memo: &NumberMemo,
    ) -> Result<Column<'n>>
    where
        'a: 'n,
    {
        let ids = self.batch.column(column);
        let asked = ids.iter().filter(|id| memo.is_kept(**id)).count();
        if asked == 0 {
            return self.column(inner);
        }
        memo.pages.add_asked(asked);
        let mut known = vec![Number::Error; ids.len()];
        let mut open: Vec<u32> = Vec::new();
        for ((row, id), number) in (0..).zip(ids).zip(&mut known) {
            match memo.look_up(*id) {
                Some(found) => *number = found,
                None => open.push(row),
            }
        }
        let wanted = memo.note_missed(ids, &open, self.context);
        if !wanted.is_empty() {
            for id in wanted {
                if let Err(error) = self.read_page(id, column, inner, memo) {
                    memo.read_later(id);
                    match error {
                        // Others of the page may be long.
                        Error::MemoryExceeded { .. } => (),
                        error => return Err(error),
                    }
                }
            }
            open.retain(|row| {
                let id = ids.get(*row as usize).copied().unwrap_or_default();
                let found = memo.look_up(id);
                if let (Some(found), Some(number)) = (found, known.get_mut(*row as usize)) {
                    *number = found;
                }
                found.is_none()
            });
        }
        self.context.meters().add_known(ids.len() - open.len());
        let mut numbers = Numbers::of_rows(known);
        if !open.is_empty() {
            let terms = gather(ids, &open);
            let made = self.make(column, terms.clone(), inner)?;
            memo.keep(&terms, made.numbers());
            numbers.put(&open, made);
        }
        Ok(Column::Numbers(numbers))
    }

    /// Makes the numbers of all terms in the page of one.
    fn read_page(&self, id: TermId, column: usize, inner: &Node, memo: &NumberMemo) -> Result<()> {
        let sections = self.context.snapshot().stored_key_sections(id.kind());
        let mut sections = sections.into_iter();
        let section = sections.find(|section| section.payloads.contains(&id.payload()));
        // Neighbours elsewhere lie far apart on disk.
        let Some(section) = section.filter(|section| section.is_ordered) else {
            return Ok(());
        };
        let first = id.payload() / Made::TERMS * Made::TERMS;
        let from = section.payloads.start.max(first);
        let to = section.payloads.end.min(first + Made::TERMS);
        let terms: Vec<TermId> = (from..to)
            .map(|payload| TermId::new(id.kind(), payload))
            .collect();
        let made = self.make(column, terms.clone(), inner)?;
        memo.keep(&terms, made.numbers());
        Ok(())
    }

    /// What `inner` makes of terms in place of the column.
    fn make(&self, column: usize, terms: Vec<TermId>, inner: &Node) -> Result<Numbers> {
        let rows = terms.len();
        let mut columns = vec![Vec::new(); self.batch.columns.len()];
        if let Some(slot) = columns.get_mut(column) {
            *slot = terms;
        }
        let batch = Batch { columns, rows };
        let made = Evaluation::new(&batch, self.context).column(inner)?;
        Ok(Numbers::of_column(made, rows, self.context))
    }
}

impl NumberMemo {
    /// Whether the number of a term may be kept.
    fn is_kept(&self, id: TermId) -> bool {
        let kind = KINDS.iter().position(|kind| *kind == id.kind());
        let end = kind.and_then(|kind| self.ends.get(kind));
        end.is_some_and(|end| id.payload() < *end)
    }

    /// The number that was made of a term, if that is known.
    fn look_up(&self, id: TermId) -> Option<Number> {
        let (page, place) = self.pages.page(id).filter(|_| self.is_kept(id))?;
        number_of(page.codes.get(place)?.load(Ordering::Relaxed))
    }

    /// Counts rows whose terms are looked up; gives a term of each page that is to be read instead.
    fn note_missed(&self, ids: &[TermId], open: &[u32], context: &QueryContext) -> Vec<TermId> {
        // Short queries that must not wait do what they have to.
        let most = match nonblocking::is_on() {
            true => 0,
            false => PAGES_AT_ONCE,
        };
        let mut wanted = Vec::new();
        for row in open {
            let id = ids.get(*row as usize).copied().unwrap_or_default();
            if !self.is_kept(id) {
                continue;
            }
            if let Ok(Some((page, _))) = self.pages.page_for(id, context)
                && page.missed.fetch_add(1, Ordering::Relaxed) >= READ_AFTER
                && wanted.len() < most
                && !page.is_read.swap(true, Ordering::Relaxed)
            {
                wanted.push(id);
            }
        }
        wanted
    }

    /// To be called when a page could not be read: it will be tried again after as many look-ups as before.
    fn read_later(&self, id: TermId) {
        if let Some((page, _)) = self.pages.page(id) {
            page.missed.store(0, Ordering::Relaxed);
            page.is_read.store(false, Ordering::Relaxed);
        }
    }

    /// Keeps what was made of terms that have pages.
    fn keep(&self, terms: &[TermId], made: &[Number]) {
        for (id, number) in terms.iter().zip(made) {
            if let Some((page, place)) = self.pages.page(*id).filter(|_| self.is_kept(*id))
                && let (Some(slot), Some(code)) = (page.codes.get(place), code(*number))
            {
                slot.store(code, Ordering::Relaxed);
            }
        }
    }
}

/// An expression error, which would be zero.
const ERROR: u64 = u64::MAX;

/// A number in eight bytes, never zero; `None` if it has no such form.
fn code(number: Number) -> Option<u64> {
    match operand::of_number(number)? {
        TermId::UNBOUND => Some(ERROR),
        operand => Some(operand.to_bits()),
    }
}

/// The number that a code stands for; `None` for zero.
fn number_of(code: u64) -> Option<Number> {
    match code {
        0 => None,
        ERROR => Some(Number::Error),
        code => operand::to_number(TermId::from_bits(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_give_numbers_back() {
        let numbers = [
            Number::Error,
            Number::Integer(0),
            Number::Integer(-12),
            Number::Integer(1 << 40),
            Number::Float(0.0),
            Number::Float(-1.5e-30),
            Number::Float(f32::INFINITY),
            Number::Double(0.0),
            Number::Double(0.1),
            Number::Double(-123.456),
            Number::Double(f64::INFINITY),
            Number::Decimal {
                digits: 12_345,
                places: 2,
            },
        ];
        for number in numbers {
            let code = code(number).unwrap();
            assert_ne!(code, 0, "{number:?}");
            let back = number_of(code).unwrap();
            let literal = |number: Number| number.value().and_then(|value| value.to_literal());
            assert_eq!(literal(back), literal(number), "{number:?}");
            assert_eq!(back.id(), number.id(), "{number:?}");
        }
        assert!(number_of(0).is_none());
        assert!(code(Number::Other(3)).is_none());
        let large = Number::Integer(i64::MAX);
        assert!(code(large).is_none(), "not inline");
        let nan = code(Number::Float(f32::NAN)).and_then(number_of).unwrap();
        assert!(matches!(nan, Number::Float(value) if value.is_nan()));
    }
}
