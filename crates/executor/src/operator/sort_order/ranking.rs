//! The ranks of one sort key, made step by step.
//!
//! Distinct ids are numbered and sorted by what ids tell. Within a section of the dictionary keys
//! stand in their order, and the order of strings and IRIs is that of their keys; so texts are read
//! only where several sorted lists are merged (`merge`), a slice at a time, and to tell strings from
//! literals of other datatypes. All that is left is compared by its value.
//!
//! # Limits
//! Some 40 bytes a distinct id, one slice of texts a list, and the values of numbers, dates and
//! literals of other datatypes that are not inline. All of it is reserved. A step takes some
//! milliseconds.

use std::cmp::Ordering;
use std::ops::Range;

use stoa_quadstore::TermTexts;
use stoa_terms::value::{Value, order_inline};
use stoa_terms::{Kind, TermId, key};

use super::merge::{Merge, Slices};
use super::run_sorter::{RUN_ROWS, RunSorter};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::table::GroupTable;

/// What a value is taken to cost beside its text, in bytes.
const VALUE_BYTES: usize = 96;

/// What a distinct id costs: id, list, order and run, place in its list, rank.
const DISTINCT_BYTES: usize = 40;

/// What ranking takes for a row at most, if all ids differ: the above, and the table that numbers them.
pub(super) const RANKED_BYTES: usize = DISTINCT_BYTES + 64;

/// How ids are ordered at first: by list, then by key where the query computed the term, else by id.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum List {
    Unbound,
    BlankNode,
    Iri,
    LocalIri,
    ShortString,
    Literal,
    LocalLiteral,
    /// Numbers, dates, booleans, triple terms.
    Value,
}

/// Ranks of one key, in the making.
pub(super) struct Ranking {
    /// Whether terms of equal value get ranks of their own.
    last: bool,
    stage: Stage,
    memory: Memory,
    table: GroupTable,
    /// For each row the number of its id.
    groups: Vec<u32>,
    /// The distinct ids, by number.
    ids: Vec<TermId>,
    lists: Vec<List>,
    /// Numbers by list.
    order: Vec<u32>,
    iris: Vec<u32>,
    strings: Vec<u32>,
    values: Values,
}

enum Stage {
    Number,
    Sort(RunSorter),
    Take(RunSorter),
    MergeIris(Merge),
    MergeStrings(Merge),
    ReadValues(Slices),
    SortValues(RunSorter),
    Assign(RunSorter),
    Done,
}

impl Ranking {
    pub(super) fn new(last: bool, memory: Memory) -> Self {
        Self {
            last,
            stage: Stage::Number,
            memory,
            table: GroupTable::new(1),
            groups: Vec::new(),
            ids: Vec::new(),
            lists: Vec::new(),
            order: Vec::new(),
            iris: Vec::new(),
            strings: Vec::new(),
            values: Values::default(),
        }
    }

    /// What it had, once it is done.
    pub(super) fn into_memory(self) -> Memory {
        self.memory
    }

    /// Goes on for a while; gives the ranks of `rows`, the same at each call, when they are known.
    #[expect(clippy::too_many_lines, reason = "one short arm for each stage")]
    pub(super) fn step(
        &mut self,
        rows: &[TermId],
        context: &QueryContext,
    ) -> Result<Option<Vec<u64>>> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Number
                if self.groups.is_empty() && bits_order(rows, self.last, context).is_some() =>
            {
                return Ok(Some(rows.iter().map(|id| id.to_bits()).collect()));
            }
            Stage::Number => self.number(rows, context)?,
            Stage::Sort(mut sorter) => {
                let keys = context.local_keys();
                match sorter.sort_run(|a, b| self.compare_ids(a, b, |id| keys.get(id))) {
                    true => Stage::Sort(sorter),
                    false => Stage::Take(sorter),
                }
            }
            Stage::Take(mut sorter) => {
                let keys = context.local_keys();
                let compare = |a, b| self.compare_ids(a, b, |id| keys.get(id));
                let some = sorter.take(RUN_ROWS, compare);
                drop(keys);
                self.order.extend(&some);
                match some.is_empty() {
                    false => Stage::Take(sorter),
                    true => Stage::MergeIris(self.merge_of(
                        &[List::Iri, List::LocalIri],
                        Kind::Iri,
                        context,
                    )?),
                }
            }
            Stage::MergeIris(mut merge) => {
                let source = (
                    self.ids.as_slice(),
                    &mut self.iris,
                    &mut self.values.numbers,
                );
                match merge.step(source, &mut self.memory, context)? {
                    false => Stage::MergeIris(merge),
                    true => Stage::MergeStrings(self.merge_of(
                        &[List::ShortString, List::Literal, List::LocalLiteral],
                        Kind::Literal,
                        context,
                    )?),
                }
            }
            Stage::MergeStrings(mut merge) => {
                let source = (
                    self.ids.as_slice(),
                    &mut self.strings,
                    &mut self.values.numbers,
                );
                match merge.step(source, &mut self.memory, context)? {
                    false => Stage::MergeStrings(merge),
                    true => {
                        let others = self.of_list(List::Value);
                        self.values.numbers.extend(others);
                        Stage::ReadValues(Slices::default())
                    }
                }
            }
            Stage::ReadValues(mut slices) => {
                let held = self.held_bytes();
                match self
                    .values
                    .read(&self.ids, &mut slices, &mut self.memory, held, context)?
                {
                    false => Stage::ReadValues(slices),
                    true => Stage::SortValues(RunSorter::new(self.values.numbers.len())),
                }
            }
            Stage::SortValues(mut sorter) => {
                match sorter.sort_run(|a, b| self.values.compare_all(&self.ids, a, b)) {
                    true => Stage::SortValues(sorter),
                    false => Stage::Assign(sorter),
                }
            }
            Stage::Assign(mut sorter) => {
                let some = sorter.take(RUN_ROWS, |a, b| self.values.compare_all(&self.ids, a, b));
                match some.is_empty() {
                    true => return Ok(Some(self.ranks())),
                    false => self.values.order.extend(some),
                }
                Stage::Assign(sorter)
            }
            Stage::Done => return Err(Error::Internal("ranks were asked for twice")),
        };
        Ok(None)
    }

    /// Numbers the ids of some more rows.
    fn number(&mut self, rows: &[TermId], context: &QueryContext) -> Result<Stage> {
        let start = self.groups.len();
        let end = rows.len().min(start + RUN_ROWS);
        let some = rows.get(start..end).unwrap_or_default();
        let groups = (rows.len() * size_of::<u32>()) as u64;
        let numbered = self.table.bytes_with(some.len()) + groups;
        self.memory.require(numbered)?;
        self.groups.reserve_exact(rows.len() - start);
        let mut numbers = Vec::new();
        self.table.insert(&[some], some.len(), &mut numbers)?;
        self.groups.extend(numbers);
        if end < rows.len() {
            return Ok(Stage::Number);
        }
        let count = self.table.len();
        self.memory
            .require(numbered + (count * DISTINCT_BYTES) as u64)?;
        self.ids = self.table.key_column(0, 0..count);
        self.table = GroupTable::new(1);
        self.lists.reserve_exact(count);
        for id in &self.ids {
            let list = list_of(*id, context);
            self.lists.push(list);
        }
        self.order.reserve_exact(count);
        Ok(Stage::Sort(RunSorter::new(count)))
    }

    fn held_bytes(&self) -> u64 {
        let bytes = self.groups.len() * size_of::<u32>() + self.ids.len() * DISTINCT_BYTES;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn compare_ids<'k>(&self, a: u32, b: u32, key: impl Fn(TermId) -> &'k [u8]) -> Ordering {
        let list = |number: u32| self.lists.get(number as usize).copied();
        let (left, right) = (id_at(&self.ids, a), id_at(&self.ids, b));
        let of = list(a);
        of.cmp(&list(b)).then_with(|| match of {
            Some(List::LocalIri | List::LocalLiteral) => key(left).cmp(key(right)),
            _ => left.cmp(&right),
        })
    }

    /// Where in the order the numbers of a list stand.
    fn range_of(&self, list: List) -> Range<usize> {
        let is = |number: &u32| self.lists.get(*number as usize).copied();
        let start = self.order.partition_point(|number| is(number) < Some(list));
        let end = self
            .order
            .partition_point(|number| is(number) <= Some(list));
        start..end
    }

    fn of_list(&self, list: List) -> Vec<u32> {
        let numbers = self.order.get(self.range_of(list));
        numbers.unwrap_or_default().to_vec()
    }

    /// The merge of what is sorted by key: computed terms, short strings, and each section of the
    /// dictionary.
    fn merge_of(&mut self, lists: &[List], kind: Kind, context: &QueryContext) -> Result<Merge> {
        let mut merge = Merge::new(kind, self.held_bytes() + self.values.bytes as u64);
        for list in lists {
            let numbers = self.of_list(*list);
            if matches!(list, List::Iri | List::Literal) {
                merge.add_sections(&numbers, &self.ids, &mut self.memory, context)?;
            } else {
                merge.add(numbers);
            }
        }
        Ok(merge)
    }

    /// The ranks of all rows, once everything is in its order.
    fn ranks(&mut self) -> Vec<u64> {
        let mut ranks = vec![0; self.ids.len()];
        let mut rank = 0_u64;
        let mut give = |number: u32, is_new: bool| {
            rank += u64::from(is_new);
            if let Some(place) = ranks.get_mut(number as usize) {
                *place = rank;
            }
        };
        for list in [List::Unbound, List::BlankNode] {
            let range = self.range_of(list);
            for number in self.order.get(range).unwrap_or_default() {
                give(*number, true);
            }
        }
        self.iris.iter().for_each(|number| give(*number, true));
        let values = &self.values;
        let before_strings = values.before_strings(&self.ids);
        let (before, after) = values.order.split_at(before_strings);
        for (part, strings) in [(before, self.strings.as_slice()), (after, &[])] {
            let mut last: Option<u32> = None;
            for at in part {
                let is_new = match last {
                    Some(last) if !self.last => {
                        values.compare(&self.ids, last, *at) != Ordering::Equal
                    }
                    _ => true,
                };
                last = Some(*at);
                give(values.number(*at), is_new);
            }
            strings.iter().for_each(|number| give(*number, true));
        }
        let rank = |group: &u32| ranks.get(*group as usize).copied().unwrap_or(0);
        self.groups.iter().map(rank).collect()
    }
}

/// Ids that are compared by their values.
#[derive(Default)]
struct Values {
    /// Which ids they are.
    numbers: Vec<u32>,
    /// For each of `numbers` its value, `None` for an inline one.
    values: Vec<Option<Box<Value>>>,
    /// Places in `numbers`, in order.
    order: Vec<u32>,
    bytes: usize,
}

impl Values {
    /// Reads some more values; true when all are there.
    fn read(
        &mut self,
        ids: &[TermId],
        slices: &mut Slices,
        memory: &mut Memory,
        held: u64,
        context: &QueryContext,
    ) -> Result<bool> {
        let mut texts = TermTexts::default();
        let mut some = Vec::new();
        // Two lists of places and one of values.
        let places = (self.numbers.len() * 16) as u64;
        memory.require(held + places + self.bytes as u64)?;
        self.values
            .reserve_exact(self.numbers.len() - self.values.len());
        for _ in 0..16 {
            let start = self.values.len();
            let end = self.numbers.len().min(start + slices.rows());
            let numbers = self.numbers.get(start..end).unwrap_or_default();
            if numbers.is_empty() {
                return Ok(true);
            }
            some.clear();
            some.extend(numbers.iter().map(|number| id_at(ids, *number)));
            texts.clear();
            context.texts_within(&some, &mut texts, memory, held + places + self.bytes as u64)?;
            for (row, id) in some.iter().enumerate() {
                self.values.push(if id.is_inline() {
                    None
                } else {
                    let text = texts.get(row);
                    self.bytes += VALUE_BYTES + text.len();
                    Some(Box::new(value(*id, context.kind(*id), text, context)?))
                });
            }
            memory.require(held + places + (self.bytes + texts.memory_bytes()) as u64)?;
            slices.note(texts.size_bytes());
            context.check()?;
        }
        Ok(false)
    }

    fn number(&self, place: u32) -> u32 {
        self.numbers.get(place as usize).copied().unwrap_or(0)
    }

    fn compare(&self, ids: &[TermId], a: u32, b: u32) -> Ordering {
        let id = |place: u32| id_at(ids, self.number(place));
        if let Some(order) = order_inline(id(a), id(b)) {
            return order;
        }
        let known = |place: u32| self.values.get(place as usize).and_then(Option::as_deref);
        let inline = |place: u32| Value::from_inline(id(place));
        match (known(a), known(b)) {
            (Some(a), Some(b)) => a.order_by(b),
            (Some(a), None) => inline(b).map_or(Ordering::Less, |b| a.order_by(&b)),
            (None, Some(b)) => inline(a).map_or(Ordering::Greater, |a| a.order_by(b)),
            (None, None) => match (inline(a), inline(b)) {
                (Some(a), Some(b)) => a.order_by(&b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
        }
    }

    fn compare_all(&self, ids: &[TermId], a: u32, b: u32) -> Ordering {
        let id = |place: u32| id_at(ids, self.number(place));
        self.compare(ids, a, b).then_with(|| id(a).cmp(&id(b)))
    }

    /// How many values come before all strings.
    fn before_strings(&self, ids: &[TermId]) -> usize {
        let smallest = Value::String("".into());
        self.order.partition_point(|place| {
            let known = self.values.get(*place as usize).and_then(Option::as_deref);
            match known {
                Some(value) => value.order_by(&smallest) == Ordering::Less,
                None => Value::from_inline(id_at(ids, self.number(*place)))
                    .is_none_or(|value| value.order_by(&smallest) == Ordering::Less),
            }
        })
    }
}

fn id_at(ids: &[TermId], number: u32) -> TermId {
    ids.get(number as usize).copied().unwrap_or_default()
}

/// Whether the bits of the ids have the order of the terms, and where `last` is false ids of equal terms are equal.
/// Gives the kind of the ids, that of IRIs if there are blank nodes as well.
pub(super) fn bits_order(ids: &[TermId], last: bool, context: &QueryContext) -> Option<Kind> {
    let is_node = |id: &TermId| id.is_unbound() || matches!(id.kind(), Kind::BlankNode | Kind::Iri);
    if ids.iter().all(is_node) {
        if ids.iter().all(|id| id.kind() != Kind::Iri) {
            return Some(Kind::BlankNode);
        }
        // Blank nodes, then IRIs; these ascend if the dictionary has them in one go.
        let sections = context.snapshot().key_sections(Kind::Iri);
        let ascend = sections.len() <= 1 && sections.iter().all(|section| section.is_ordered);
        return ascend.then_some(Kind::Iri);
    }
    let kind = ids.iter().find(|id| !id.is_unbound())?.kind();
    let is_ordered =
        last && ordered_by_id(kind) && ids.iter().all(|id| id.is_unbound() || id.kind() == kind);
    is_ordered.then_some(kind)
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

fn list_of(id: TermId, context: &QueryContext) -> List {
    if id.is_unbound() {
        return List::Unbound;
    }
    let is_local = id.kind() == Kind::Local;
    match context.kind(id) {
        Kind::BlankNode => List::BlankNode,
        Kind::Iri if is_local => List::LocalIri,
        Kind::Iri => List::Iri,
        Kind::ShortString => List::ShortString,
        Kind::Literal if is_local => List::LocalLiteral,
        Kind::Literal => List::Literal,
        _ => List::Value,
    }
}

/// What the value of a term with this key is taken to cost, in bytes.
pub(super) const fn value_bytes(text: &[u8]) -> u64 {
    (VALUE_BYTES + text.len()) as u64
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
