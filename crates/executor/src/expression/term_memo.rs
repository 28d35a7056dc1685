//! Conditions on the text of one variable, tried once for each term and not for each row.
//!
//! Within a batch the terms of the column are told apart and tried in the order of their ids, so that each block of the
//! dictionary is decoded once. From some thousand rows on what a condition gave is kept for the terms of the dictionary,
//! two bits each, in pages that are made when they are first needed. It is let go where it is of little use: when half
//! as many rows were asked for as the dictionary has terms, and hardly any was known.
//!
//! # Concurrency
//! A memo is shared by all threads that run the same condition of one query. Bits are set and read without order: what
//! two threads find for a term is the same, and who does not see the bits of another tries the term again.
//!
//! # Limits
//! A quarter of a byte for each term of the dictionary at most, and 64 for each row, a page of 1 KB at a time; and 16 bytes
//! for each page there may be. All of it is reserved, and let go when it is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use stoa_planner::expression::{Expression, Function};
use stoa_storage::sync::Mutex;
use stoa_terms::{Kind, TermId};

use super::column::Texts;
use super::evaluate::Evaluation;
use super::node::Node;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::Result;
use crate::function::{self, Implementation};
use crate::memory::Memory;

/// How many terms are in a word.
const WORD_TERMS: u64 = 32;
const PAGE_WORDS: usize = 128;
/// How many terms a page is about.
const PAGE_TERMS: u64 = PAGE_WORDS as u64 * WORD_TERMS;
/// So many pages are made at once, and then one for so many rows: terms that lie far from each other have one each.
const PAGES_MIN: u64 = 64;
const ROWS_A_PAGE: u64 = 16;
/// So many rows are asked for before it is seen whether a memo is of use,
const ROWS_MIN: u64 = 64 * 1024;
/// which it is if one of so many was known.
const FOUND_SHARE: u64 = 32;

/// Kinds whose terms are in the dictionary; each has a list of pages.
const KINDS: [Kind; 4] = [
    Kind::Iri,
    Kind::NumericLiteral,
    Kind::TemporalLiteral,
    Kind::Literal,
];

/// True, false, or an error.
type Truth = Option<bool>;

type Page = [AtomicU64; PAGE_WORDS];

/// What a condition gave for terms.
pub(crate) struct TermMemo {
    state: Mutex<State>,
}

enum State {
    /// So many rows have come.
    Waiting(u64),
    Open(Arc<Pages>),
    Over,
}

struct Pages {
    lists: [Box<[OnceLock<Box<Page>>]>; KINDS.len()],
    /// What is reserved, and how many bytes are held.
    memory: Mutex<(Memory, u64)>,
    /// How many terms there may be.
    terms: u64,
    made: AtomicU64,
    asked: AtomicU64,
    found: AtomicU64,
}

/// The memos of a query, by the expressions that they are of. They stay until it ends: the operators of a morsel, or of the
/// inner plan of an apply, are gone before others come that use them again.
#[derive(Default)]
pub(crate) struct TermMemos {
    known: Mutex<Vec<(Expression, Arc<[TermMemo]>)>>,
}

/// One of the memos of an expression.
pub(crate) struct Memo {
    all: Arc<[TermMemo]>,
    number: usize,
}

impl TermMemos {
    /// Lets all of them go.
    pub(crate) fn clear(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }

    /// The memos of an expression with so many conditions.
    fn of(&self, expression: &Expression, conditions: usize) -> Arc<[TermMemo]> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |other: &Expression, memos: &Arc<[TermMemo]>| {
            memos.len() == conditions && other == expression
        };
        let mut same = known.iter().filter(|(other, memos)| is_same(other, memos));
        if let Some((_, memos)) = same.next() {
            return Arc::clone(memos);
        }
        let memos: Arc<[TermMemo]> = (0..conditions)
            .map(|_| TermMemo {
                state: Mutex::new(State::Waiting(0)),
            })
            .collect();
        known.push((expression.clone(), Arc::clone(&memos)));
        memos
    }
}

/// Has the conditions of an expression that are on the text of one variable tried once for each term.
pub(super) fn once_per_term(
    mut node: Node,
    expression: &Expression,
    context: &QueryContext,
) -> Node {
    if context.settings().term_memo_after_rows == u64::MAX {
        return node;
    }
    let mut conditions = 0;
    each_condition(&mut node, &mut |_, _| conditions += 1);
    if conditions == 0 {
        return node;
    }
    let all = context.term_memos().of(expression, conditions);
    let mut number = 0;
    each_condition(&mut node, &mut |condition, column| {
        let memo = Memo {
            all: Arc::clone(&all),
            number,
        };
        number += 1;
        let inner = std::mem::replace(condition, Node::Error);
        *condition = Node::OncePerTerm(column, Box::new(inner), memo);
    });
    node
}

/// Calls `each` for each such condition, with its column.
fn each_condition(node: &mut Node, each: &mut dyn FnMut(&mut Node, usize)) {
    match node {
        Node::And(parts) | Node::Or(parts) => {
            parts.iter_mut().for_each(|part| each_condition(part, each));
        }
        Node::Not(inner) => each_condition(inner, each),
        condition => {
            if let Some(column) = only_column(condition) {
                each(condition, column);
            }
        }
    }
}

/// The column on whose texts a condition hangs, and on nothing else.
fn only_column(condition: &Node) -> Option<usize> {
    let is_condition = match condition {
        Node::Compare(..) | Node::In(..) => true,
        Node::Call(function, _) | Node::Pattern(function, ..) => {
            let implementation = function::implementation(*function);
            *function == Function::Regex || matches!(implementation, Implementation::Boolean(_))
        }
        _ => false,
    };
    let (mut columns, mut reads_texts, mut is_fixed) = (Vec::new(), false, true);
    condition.visit(&mut |part| match part {
        Node::Column(column) | Node::Bound(column) => columns.push(*column),
        Node::Call(function, _) => {
            reads_texts |= function::texts(*function) != Texts::None;
            is_fixed &= function::is_deterministic(*function);
        }
        Node::Pattern(..) => reads_texts = true,
        _ => {}
    });
    columns.dedup();
    match columns.as_slice() {
        [column] if is_condition && reads_texts && is_fixed => Some(*column),
        _ => None,
    }
}

impl Evaluation<'_> {
    /// What a condition on one column gives for each row.
    pub(super) fn once_per_term(
        &self,
        column: usize,
        condition: &Node,
        memo: &Memo,
    ) -> Result<Vec<Truth>> {
        let ids = self.batch.column(column);
        let in_dictionary = ids.iter().filter(|id| id.kind().is_in_dictionary());
        let asked = in_dictionary.count();
        let Some(memo) = memo.all.get(memo.number).filter(|_| asked > 0) else {
            return self.booleans(condition, true);
        };
        let pages = memo.pages(asked, self.context);
        let mut values = vec![None; ids.len()];
        let mut open: Vec<(TermId, u32)> = Vec::with_capacity(ids.len());
        for ((row, id), value) in (0..).zip(ids).zip(&mut values) {
            match pages.as_ref().and_then(|pages| pages.get(*id)) {
                Some(known) => *value = known,
                None => open.push((*id, row)),
            }
        }
        if open.is_empty() {
            if let Some(pages) = &pages {
                memo.note(pages, asked, asked, self.context);
            }
            return Ok(values);
        }
        let is_sorted = open.is_sorted_by_key(|(id, _)| *id);
        if !is_sorted {
            open.sort_unstable();
        }
        let mut terms: Vec<TermId> = open.iter().map(|(id, _)| *id).collect();
        terms.dedup();
        let known = ids.len() - open.len();
        let tried = if is_sorted && terms.len() == ids.len() {
            self.booleans(condition, true)?
        } else {
            let mut columns = vec![Vec::new(); self.batch.columns.len()];
            if let Some(slot) = columns.get_mut(column) {
                slot.clone_from(&terms);
            }
            let rows = terms.len();
            let batch = Batch { columns, rows };
            Evaluation::new(&batch, self.context).booleans(condition, true)?
        };
        if let Some(pages) = &pages {
            match pages.put(&terms, &tried, self.context) {
                true => memo.note(pages, asked, known, self.context),
                false => memo.end(),
            }
        }
        let mut found = terms.iter().zip(tried).peekable();
        for (id, row) in open {
            while found.next_if(|(term, _)| **term < id).is_some() {}
            if let (Some((_, value)), Some(slot)) = (found.peek(), values.get_mut(row as usize)) {
                *slot = *value;
            }
        }
        Ok(values)
    }
}

impl TermMemo {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages, which are made when enough rows have come; this time `rows` more.
    fn pages(&self, rows: usize, context: &QueryContext) -> Option<Arc<Pages>> {
        let mut state = self.lock();
        if let State::Waiting(before) = &mut *state {
            *before = before.saturating_add(rows as u64);
            if *before <= context.settings().term_memo_after_rows {
                return None;
            }
            *state = match Pages::new(context) {
                Some(pages) => State::Open(Arc::new(pages)),
                None => State::Over,
            };
        }
        match &*state {
            State::Open(pages) => Some(Arc::clone(pages)),
            State::Waiting(_) | State::Over => None,
        }
    }

    /// Lets go what is kept; nothing is kept from now on.
    fn end(&self) {
        *self.lock() = State::Over;
    }

    /// So many rows were asked for, and so many known.
    fn note(&self, pages: &Pages, asked: usize, known: usize, context: &QueryContext) {
        context.meters().add_known(known);
        let (asked, known) = (asked as u64, known as u64);
        let asked = asked + pages.asked.fetch_add(asked, Ordering::Relaxed);
        let found = known + pages.found.fetch_add(known, Ordering::Relaxed);
        if asked >= ROWS_MIN.max(pages.terms / 2) && found.saturating_mul(FOUND_SHARE) < asked {
            self.end();
        }
    }
}

impl Pages {
    /// Without any page; `None` if there is no room for their lists.
    fn new(context: &QueryContext) -> Option<Self> {
        let ends = KINDS.map(|kind| {
            let sections = context.snapshot().key_sections(kind);
            sections.iter().map(|section| section.payloads.end).max()
        });
        let ends = ends.map(Option::unwrap_or_default);
        let pages = ends.map(|end| end.div_ceil(PAGE_TERMS));
        let bytes = pages.iter().sum::<u64>() * size_of::<OnceLock<Box<Page>>>() as u64;
        let mut memory = context.memory("filter");
        if !context.has_room(&mut memory, bytes) {
            return None;
        }
        Some(Self {
            lists: pages.map(|pages| (0..pages).map(|_| OnceLock::new()).collect()),
            memory: Mutex::new((memory, bytes)),
            terms: ends.iter().sum(),
            made: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            found: AtomicU64::new(0),
        })
    }

    /// The place for the page of a term, and the word and bits of it there.
    fn place(&self, id: TermId) -> Option<(&OnceLock<Box<Page>>, usize, u64)> {
        let list = KINDS.iter().position(|kind| *kind == id.kind())?;
        let page = usize::try_from(id.payload() / PAGE_TERMS).ok()?;
        let word = usize::try_from(id.payload() % PAGE_TERMS / WORD_TERMS).ok()?;
        let place = self.lists.get(list)?.get(page)?;
        Some((place, word, id.payload() % WORD_TERMS * 2))
    }

    /// What the condition gave for a term, if that is known.
    fn get(&self, id: TermId) -> Option<Truth> {
        let (place, word, shift) = self.place(id)?;
        let bits = place.get()?.get(word)?.load(Ordering::Relaxed);
        match bits >> shift & 3 {
            0 => None,
            1 => Some(Some(false)),
            2 => Some(Some(true)),
            _ => Some(None),
        }
    }

    /// Keeps what it gave for ascending terms; false if there is no room.
    fn put(&self, terms: &[TermId], values: &[Truth], context: &QueryContext) -> bool {
        let mut pairs = terms.iter().zip(values).peekable();
        while let Some((id, value)) = pairs.next() {
            let Some((place, word, shift)) = self.place(*id) else {
                continue;
            };
            // Terms of one word stand beside each other.
            let mut bits = bits_of(*value) << shift;
            let first = id.to_bits() / WORD_TERMS;
            while let Some((id, value)) =
                pairs.next_if(|(next, _)| next.to_bits() / WORD_TERMS == first)
            {
                bits |= bits_of(*value) << (id.payload() % WORD_TERMS * 2);
            }
            if place.get().is_none() {
                let rows = self.asked.load(Ordering::Relaxed);
                if self.made.load(Ordering::Relaxed) >= PAGES_MIN + rows / ROWS_A_PAGE {
                    continue;
                }
                if !self.has_room(context) {
                    return false;
                }
                self.made.fetch_add(1, Ordering::Relaxed);
            }
            let page = place.get_or_init(|| Box::new([const { AtomicU64::new(0) }; PAGE_WORDS]));
            if let Some(word) = page.get(word) {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
        true
    }

    /// Reserves a page; where two threads make one at a time, that is one too many.
    fn has_room(&self, context: &QueryContext) -> bool {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (memory, held) = &mut *memory;
        *held += size_of::<Page>() as u64;
        context.has_room(memory, *held)
    }
}

const fn bits_of(value: Truth) -> u64 {
    match value {
        Some(false) => 1,
        Some(true) => 2,
        None => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::tests::spilling_context;

    fn pages() -> (QueryContext, Pages) {
        let context = spilling_context(3, 1 << 20);
        let list = |pages: u64| (0..pages).map(|_| OnceLock::new()).collect();
        let pages = Pages {
            lists: [list(3), list(0), list(1), list(2)],
            memory: Mutex::new((context.memory("filter"), 0)),
            terms: 6 * PAGE_TERMS,
            made: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            found: AtomicU64::new(0),
        };
        (context, pages)
    }

    #[test]
    fn what_is_put_in_is_found() {
        let (mut context, pages) = pages();
        context = QueryContext::new(context.snapshot().clone(), {
            let mut settings = context.settings().clone();
            settings.spill = None;
            settings
        });
        let truths = [Some(false), Some(true), None];
        let mut terms: Vec<TermId> = Vec::new();
        for kind in [Kind::Iri, Kind::TemporalLiteral, Kind::Literal] {
            let numbers = [0, 1, 2, 31, 32, 33, 4_095].into_iter();
            let more = [4_096, 4_097, 8_191]
                .into_iter()
                .filter(|_| kind != Kind::TemporalLiteral);
            terms.extend(numbers.chain(more).map(|number| TermId::new(kind, number)));
        }
        let values: Vec<Truth> = truths.into_iter().cycle().take(terms.len()).collect();
        assert!(pages.put(&terms, &values, &context));
        assert!(pages.put(&terms, &values, &context), "the same again");
        for (id, value) in terms.iter().zip(&values) {
            assert_eq!(pages.get(*id), Some(*value), "{id:?}");
        }
        for kind in [
            Kind::Iri,
            Kind::NumericLiteral,
            Kind::Literal,
            Kind::BlankNode,
        ] {
            for number in [3, 30, 34, 5_000, 100_000] {
                let id = TermId::new(kind, number);
                assert_eq!(pages.get(id), None, "{id:?}");
                // What has no place is not kept.
                if number == 100_000 || kind == Kind::NumericLiteral {
                    assert!(pages.put(&[id], &[Some(true)], &context));
                    assert_eq!(pages.get(id), None, "{id:?}");
                }
            }
        }
    }

    #[test]
    fn a_page_that_is_refused_ends_it() {
        let (context, pages) = pages();
        let ids = [TermId::new(Kind::Iri, 5)];
        // Operators hold nothing there.
        assert!(!pages.put(&ids, &[Some(true)], &context));
        assert_eq!(pages.get(ids[0]), None);
    }

    #[test]
    fn terms_far_from_each_other_have_pages_as_rows_come() {
        let (context, mut pages) = pages();
        let mut settings = context.settings().clone();
        settings.spill = None;
        let context = QueryContext::new(context.snapshot().clone(), settings);
        pages.lists = [200, 0, 0, 0].map(|pages| (0..pages).map(|_| OnceLock::new()).collect());
        let ids: Vec<TermId> = (0..200)
            .map(|page| TermId::new(Kind::Iri, page * PAGE_TERMS))
            .collect();
        let kept = |pages: &Pages| {
            assert!(pages.put(&ids, &[Some(true); 200], &context));
            ids.iter().filter(|id| pages.get(**id).is_some()).count()
        };
        assert_eq!(kept(&pages), 64);
        pages.asked.store(16 * 36, Ordering::Relaxed);
        assert_eq!(kept(&pages), 100);
    }

    #[test]
    fn what_is_of_no_use_is_let_go() {
        let (context, pages) = pages();
        let memo = TermMemo {
            state: Mutex::new(State::Open(Arc::new(pages))),
        };
        let open = || memo.pages(1, &context).is_some();
        let note = |asked, known| {
            let pages = memo.pages(1, &context).unwrap();
            memo.note(&pages, asked, known, &context);
        };
        note(40_000, 3_000);
        note(40_000, 0);
        assert!(open(), "a part was known");
        note(20_000, 0);
        assert!(!open(), "hardly any was known");
    }
}
