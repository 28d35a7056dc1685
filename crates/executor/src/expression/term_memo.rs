//! Conditions on the text of one variable, tried once for each term and not for each row.
//!
//! Within a batch the terms of the column are told apart and tried in the order of their ids, so that each block of the
//! dictionary is decoded once. What a condition gave is kept for the terms of the dictionary, two bits each
//! ([`super::term_pages`]). Where a condition needs some part of the text, that is looked for first ([`super::needle`]).
//!
//! # Limits
//! A quarter of a byte for each term of the dictionary at most, and 64 for each row, a page of 1 KB at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use stoa_planner::expression::{Expression, Function};
use stoa_storage::sync::Mutex;
use stoa_terms::TermId;

use super::column::Texts;
use super::evaluate::Evaluation;
use super::needle::{Needle, of_terms};
use super::node::Node;
use super::term_pages::{LazyPages, Page, Refused, TermPages};
use crate::context::QueryContext;
use crate::error::Result;
use crate::function::{self, Implementation};

/// How many terms are in a word.
const WORD_TERMS: usize = 32;
const PAGE_WORDS: usize = 128;

/// True, false, or an error.
pub(super) type Truth = Option<bool>;

/// What a condition gave for terms.
type TermMemo = LazyPages<Truths>;

/// Two bits for each term.
struct Truths([AtomicU64; PAGE_WORDS]);

impl Default for Truths {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; PAGE_WORDS])
    }
}

impl Page for Truths {
    const TERMS: u64 = (PAGE_WORDS * WORD_TERMS) as u64;
    const ROWS: u64 = 16;
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
    needle: Option<Box<Needle>>,
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
        let memos: Arc<[TermMemo]> = (0..conditions).map(|_| TermMemo::default()).collect();
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
            needle: Needle::of(condition, column, context).map(Box::new),
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
            let is_boolean = matches!(
                function::implementation(*function),
                Implementation::Boolean(_) | Implementation::Search(_)
            );
            *function == Function::Regex || is_boolean
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
        let needle = memo.needle.as_deref();
        let Some(memo) = memo.all.get(memo.number).filter(|_| asked > 0) else {
            return self.booleans(condition, true);
        };
        let pages = memo.get(asked, self.context);
        let mut values = vec![None; ids.len()];
        let mut open: Vec<(TermId, u32)> = Vec::with_capacity(ids.len());
        for ((row, id), value) in (0..).zip(ids).zip(&mut values) {
            match pages.as_ref().and_then(|pages| known(pages, *id)) {
                Some(truth) => *value = truth,
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
        let known_rows = ids.len() - open.len();
        let looked_for = match needle {
            Some(needle) => needle.try_terms(condition, column, &terms, self.context)?,
            None => None,
        };
        let tried = match looked_for {
            Some(tried) => tried,
            None if is_sorted && terms.len() == ids.len() => self.booleans(condition, true)?,
            None => of_terms(condition, column, terms.clone(), self.context)?,
        };
        if let Some(pages) = &pages {
            match keep(pages, &terms, &tried, self.context) {
                true => memo.note(pages, asked, known_rows, self.context),
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

/// What the condition gave for a term, if that is known.
fn known(pages: &TermPages<Truths>, id: TermId) -> Option<Truth> {
    let (page, place) = pages.page(id)?;
    let bits = page.0.get(place / WORD_TERMS)?.load(Ordering::Relaxed);
    match bits >> (place % WORD_TERMS * 2) & 3 {
        0 => None,
        1 => Some(Some(false)),
        2 => Some(Some(true)),
        _ => Some(None),
    }
}

/// Keeps what it gave for ascending terms; false if there is no room.
fn keep(
    pages: &TermPages<Truths>,
    terms: &[TermId],
    values: &[Truth],
    context: &QueryContext,
) -> bool {
    let word_of = |id: &TermId| id.to_bits() / WORD_TERMS as u64;
    let mut pairs = terms.iter().zip(values).peekable();
    while let Some((id, value)) = pairs.next() {
        let (page, place) = match pages.page_for(*id, context) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(Refused) => return false,
        };
        // Terms of one word stand beside each other.
        let mut bits = bits_of(*value) << (place % WORD_TERMS * 2);
        let first = word_of(id);
        while let Some((id, value)) = pairs.next_if(|(next, _)| word_of(next) == first) {
            bits |= bits_of(*value) << (id.payload() % WORD_TERMS as u64 * 2);
        }
        if let Some(word) = page.0.get(place / WORD_TERMS) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
    true
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
    use stoa_terms::Kind;

    use super::super::term_pages::tests::{pages, pages_with_room};
    use super::*;

    #[test]
    fn what_is_put_in_is_found() {
        let (context, pages) = pages_with_room::<Truths>([3, 0, 1, 2]);
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
        assert!(keep(&pages, &terms, &values, &context));
        assert!(keep(&pages, &terms, &values, &context), "the same again");
        for (id, value) in terms.iter().zip(&values) {
            assert_eq!(known(&pages, *id), Some(*value), "{id:?}");
        }
        for kind in [
            Kind::Iri,
            Kind::NumericLiteral,
            Kind::Literal,
            Kind::BlankNode,
        ] {
            for number in [3, 30, 34, 5_000, 100_000] {
                let id = TermId::new(kind, number);
                assert_eq!(known(&pages, id), None, "{id:?}");
                // What has no place is not kept.
                if number == 100_000 || kind == Kind::NumericLiteral {
                    assert!(keep(&pages, &[id], &[Some(true)], &context));
                    assert_eq!(known(&pages, id), None, "{id:?}");
                }
            }
        }
    }

    #[test]
    fn a_page_that_is_refused_ends_it() {
        let (context, pages) = pages::<Truths>([3, 0, 1, 2]);
        let ids = [TermId::new(Kind::Iri, 5)];
        assert!(!keep(&pages, &ids, &[Some(true)], &context));
        assert_eq!(known(&pages, ids[0]), None);
    }
}
