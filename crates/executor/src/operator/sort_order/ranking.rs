//! The ranks of one sort key, made step by step.
//!
//! Distinct ids are numbered and sorted by what ids tell. Within a section of the dictionary keys
//! stand in their order, and the order of strings and IRIs is that of their keys; so texts are read
//! only where several sorted lists are merged (`merge`), a slice at a time, and to tell strings from
//! literals of other datatypes. All that is left is compared by its value. Computed terms are sorted by their keys where
//! these are in memory; those on disk are cut into lists that are (`slicing`).
//!
//! # Limits
//! Some 40 bytes a distinct id, one slice of texts a list, and the values of numbers, dates and
//! literals of other datatypes that are not inline. All of it is reserved. A step takes some
//! milliseconds.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use stoa_terms::{Kind, TermId};

use super::merge::Merge;
use super::merging::{Merging, Progress};
use super::numbering::{Column, NUMBERED_BYTES, Numbering};
use super::slicing::Slicing;
use super::sorter::{Order, Sorter};
use super::team::{PIECE_ROWS, Team};
use super::values::{Reading, Values};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::local_terms::HeldKeys;
use crate::memory::Memory;
use crate::operator::parallel::{InOrder, Turn};
use crate::table::GroupTable;

/// What a distinct id costs: id, list, order and part, place in its list, rank.
const DISTINCT_BYTES: usize = 40;

/// What ranking takes for a row at most, if all ids differ: the above, and the table that numbers them.
pub(super) const RANKED_BYTES: usize = DISTINCT_BYTES + 64;

/// How ids are ordered at first: by list, then by key where the query computed the term and its key is in memory, else
/// by id.
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
    /// How many of the smallest terms are to be told apart, at least; all others may have one rank, behind them.
    wanted: usize,
    stage: Stage,
    memory: Memory,
    table: GroupTable,
    /// For each row the number of its id.
    groups: Vec<u32>,
    /// The distinct ids.
    ids: Arc<Ids>,
    /// Numbers by list.
    order: Vec<u32>,
    iris: Vec<u32>,
    strings: Vec<u32>,
    /// Computed terms in lists whose keys ascend.
    computed_iris: Vec<Vec<u32>>,
    computed_strings: Vec<Vec<u32>>,
    /// Numbers of those that are compared by value.
    others: Vec<u32>,
    team: Team,
}

/// Distinct ids, by number.
#[derive(Default)]
pub(super) struct Ids {
    ids: Vec<TermId>,
    lists: Vec<List>,
    /// The keys of terms that the query computed, `None` if not all of them are in memory, or there are none.
    keys: Option<HeldKeys>,
}

enum Stage {
    Begin,
    Number,
    NumberShared(Box<Numbering>),
    Sort(Sorter<Ids>),
    /// Computed terms whose keys are on disk are cut into lists: IRIs, then literals.
    SliceIris(Slicing),
    SliceStrings(Slicing),
    MergeIris(Merging),
    MergeStrings(Merging),
    ReadValues(Reading),
    /// With those that are in order.
    SortValues(Sorter<Values>, Vec<u32>),
    /// Rows get the ranks of their ids.
    Map(InOrder<Vec<u64>>, Vec<u64>),
    Done,
}

impl Ranking {
    pub(super) fn new(last: bool, wanted: usize, memory: Memory, team: Team) -> Self {
        Self {
            last,
            wanted,
            stage: Stage::Begin,
            memory,
            table: GroupTable::new(1),
            groups: Vec::new(),
            ids: Arc::default(),
            order: Vec::new(),
            iris: Vec::new(),
            strings: Vec::new(),
            computed_iris: Vec::new(),
            computed_strings: Vec::new(),
            others: Vec::new(),
            team,
        }
    }

    /// What it had, once it is done.
    pub(super) fn into_memory(self) -> Memory {
        self.memory
    }

    /// Goes on for a while; gives the ranks of a column, the same at each call, when they are known.
    #[expect(clippy::too_many_lines, reason = "one short arm for each stage")]
    pub(super) fn step(
        &mut self,
        column: &Column,
        context: &QueryContext,
    ) -> Result<Option<Vec<u64>>> {
        let rows = column.0.rows().column(column.1);
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Begin if bits_order(rows, self.last, context).is_some() => {
                return Ok(Some(rows.iter().map(|id| id.to_bits()).collect()));
            }
            Stage::Begin => self.begin(column),
            Stage::Number => self.number(rows, context)?,
            Stage::NumberShared(mut numbering) => match numbering.step(context)? {
                Some((ids, groups)) => {
                    self.groups = groups;
                    Stage::Sort(self.sorter(ids, context)?)
                }
                None => Stage::NumberShared(numbering),
            },
            Stage::Sort(mut sorter) => match sorter.next(context)? {
                Turn::Given(some) => {
                    self.order.extend(some);
                    Stage::Sort(sorter)
                }
                Turn::Working => Stage::Sort(sorter),
                Turn::Done => Stage::SliceIris(self.slicing(List::LocalIri)),
            },
            Stage::SliceIris(mut slicing) => match self.slice(&mut slicing, context)? {
                true => {
                    self.computed_iris = slicing.into_lists();
                    Stage::SliceStrings(self.slicing(List::LocalLiteral))
                }
                false => Stage::SliceIris(slicing),
            },
            Stage::SliceStrings(mut slicing) => match self.slice(&mut slicing, context)? {
                true => {
                    self.computed_strings = slicing.into_lists();
                    Stage::MergeIris(self.merging(Kind::Iri, context)?)
                }
                false => Stage::SliceStrings(slicing),
            },
            Stage::MergeIris(mut merging) => {
                let target = (self.ids.ids(), &mut self.iris, &mut self.others);
                match merging.step(target, &mut self.memory, context)? {
                    Progress::Working => Stage::MergeIris(merging),
                    Progress::Done => Stage::MergeStrings(self.merging(Kind::Literal, context)?),
                    Progress::Refused => {
                        self.alone();
                        self.iris.clear();
                        Stage::MergeIris(self.merging(Kind::Iri, context)?)
                    }
                }
            }
            Stage::MergeStrings(mut merging) => {
                let target = (self.ids.ids(), &mut self.strings, &mut self.others);
                match merging.step(target, &mut self.memory, context)? {
                    Progress::Working => Stage::MergeStrings(merging),
                    Progress::Done => Stage::ReadValues(self.reading()),
                    Progress::Refused => {
                        self.alone();
                        self.strings.clear();
                        self.others.clear();
                        Stage::MergeStrings(self.merging(Kind::Literal, context)?)
                    }
                }
            }
            Stage::ReadValues(mut reading) => {
                let held = self.held_bytes();
                match reading.step((&mut self.memory, held), context)? {
                    Progress::Done => {
                        let sorter = reading.into_values().sorter(self.team);
                        Stage::SortValues(sorter, Vec::new())
                    }
                    _ => Stage::ReadValues(reading),
                }
            }
            Stage::SortValues(mut sorter, mut order) => match sorter.next(context)? {
                Turn::Given(some) => {
                    order.extend(some);
                    Stage::SortValues(sorter, order)
                }
                Turn::Working => Stage::SortValues(sorter, order),
                Turn::Done => {
                    let ranks = self.ranks(&sorter.into_order(), &order);
                    if self.groups.len() <= self.team.piece(self.groups.len()) {
                        return Ok(Some(mapped(&self.groups, &ranks)));
                    }
                    let all = Vec::with_capacity(self.groups.len());
                    Stage::Map(self.map(ranks), all)
                }
            },
            Stage::Map(mut pieces, mut ranks) => match pieces.next(context)? {
                Turn::Given(some) => {
                    ranks.extend(some);
                    Stage::Map(pieces, ranks)
                }
                Turn::Working => Stage::Map(pieces, ranks),
                Turn::Done => return Ok(Some(ranks)),
            },
            Stage::Done => return Err(Error::Internal("ranks were asked for twice")),
        };
        Ok(None)
    }

    /// Begins to number ids, with helpers if what that takes is there.
    fn begin(&mut self, column: &Column) -> Stage {
        let rows = column.0.len();
        let bytes = (rows * NUMBERED_BYTES) as u64;
        match self.team.helpers(rows) > 0 && self.memory.try_require(bytes) {
            true => {
                let column = (Arc::clone(&column.0), column.1);
                Stage::NumberShared(Box::new(Numbering::new(column, self.team)))
            }
            false => Stage::Number,
        }
    }

    /// What is left to do is done by one thread.
    fn alone(&mut self) {
        self.team = Team::ALONE;
    }

    /// Numbers the ids of some more rows.
    fn number(&mut self, rows: &[TermId], context: &QueryContext) -> Result<Stage> {
        let start = self.groups.len();
        let end = rows.len().min(start + PIECE_ROWS);
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
        let ids = self.table.key_column(0, 0..count);
        self.table = GroupTable::new(1);
        Ok(Stage::Sort(self.sorter(ids, context)?))
    }

    /// What sorts the distinct ids.
    fn sorter(&mut self, ids: Vec<TermId>, context: &QueryContext) -> Result<Sorter<Ids>> {
        // What numbering took is kept, for what sorting takes.
        self.memory
            .require(self.groups_bytes() + (ids.len() * DISTINCT_BYTES) as u64)?;
        self.order.reserve_exact(ids.len());
        let lists: Vec<List> = ids.iter().map(|id| list_of(*id, context)).collect();
        let is_computed = |list: &List| matches!(list, List::LocalIri | List::LocalLiteral);
        let computed = ids.iter().zip(&lists).filter(|(_, list)| is_computed(list));
        let mut computed = computed.map(|(id, _)| *id).peekable();
        let keys = match computed.peek() {
            Some(_) => context.held_keys(computed),
            None => None,
        };
        self.ids = Arc::new(Ids { ids, lists, keys });
        let count = u32::try_from(self.ids.ids.len()).unwrap_or(u32::MAX);
        Ok(Sorter::new(Arc::clone(&self.ids), count, self.team))
    }

    fn groups_bytes(&self) -> u64 {
        (self.groups.len() * size_of::<u32>()) as u64
    }

    fn held_bytes(&self) -> u64 {
        self.groups_bytes() + (self.ids.ids.len() * DISTINCT_BYTES) as u64
    }

    /// Where in the order the numbers of a list stand.
    fn range_of(&self, list: List) -> Range<usize> {
        let is = |number: &u32| self.ids.lists.get(*number as usize).copied();
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

    /// What cuts a list of computed terms into such whose keys ascend: one, if their keys were compared.
    fn slicing(&self, list: List) -> Slicing {
        Slicing::new(self.of_list(list), self.ids.keys.is_some())
    }

    fn slice(&mut self, slicing: &mut Slicing, context: &QueryContext) -> Result<bool> {
        let held = self.held_bytes();
        slicing.step(self.ids.ids(), (&mut self.memory, held), context)
    }

    /// The merge of what is sorted by key: computed terms, short strings, and each section of the
    /// dictionary.
    fn merging(&mut self, kind: Kind, context: &QueryContext) -> Result<Merging> {
        let (own, computed) = match kind {
            Kind::Iri => (List::Iri, &self.computed_iris),
            _ => (List::Literal, &self.computed_strings),
        };
        let held = self.held_bytes();
        // Nothing, blank nodes and IRIs come before strings.
        let before = self.range_of(List::BlankNode).end + self.iris.len();
        let wanted = self.wanted.saturating_sub(before);
        let mut merge = Merge::new(kind, wanted, held);
        if wanted > 0 {
            if kind != Kind::Iri {
                merge.add(self.of_list(List::ShortString));
            }
            let numbers = self.of_list(own);
            merge.add_sections(&numbers, self.ids.ids(), &mut self.memory, context)?;
            for numbers in computed {
                merge.add(numbers.clone());
            }
        }
        merge.share_slices();
        Merging::new(
            merge,
            &self.ids,
            self.team,
            (&mut self.memory, held),
            context,
        )
    }

    /// The values of all that is compared by these.
    fn reading(&mut self) -> Reading {
        let mut others = std::mem::take(&mut self.others);
        others.extend(self.of_list(List::Value));
        let values = Values::new(Arc::clone(&self.ids), others);
        let held = self.held_bytes();
        Reading::new(values, self.team, (&mut self.memory, held))
    }

    /// The ranks of all ids, once everything is in its order.
    fn ranks(&mut self, values: &Values, order: &[u32]) -> Vec<u64> {
        // Behind all others is what was not merged.
        let mut ranks = vec![u64::MAX; self.ids.ids.len()];
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
        let (before, after) = order.split_at(values.before_strings(order));
        for (part, strings) in [(before, self.strings.as_slice()), (after, &[])] {
            let mut last: Option<u32> = None;
            for at in part {
                let is_new = match last {
                    Some(last) if !self.last => values.compare_values(last, *at) != Ordering::Equal,
                    _ => true,
                };
                last = Some(*at);
                give(values.number(*at), is_new);
            }
            strings.iter().for_each(|number| give(*number, true));
        }
        ranks
    }

    /// The ranks of rows from those of their ids.
    fn map(&mut self, ranks: Vec<u64>) -> InOrder<Vec<u64>> {
        let groups = std::mem::take(&mut self.groups);
        let (count, piece) = (groups.len(), self.team.piece(groups.len()));
        let pieces = count.div_ceil(piece);
        let work = move |number: usize, _: &QueryContext| {
            let range = number * piece..count.min((number + 1) * piece);
            let groups = groups.get(range).unwrap_or_default();
            Ok(mapped(groups, &ranks))
        };
        InOrder::new(pieces, self.team.helpers(count), pieces, work)
    }
}

/// The ranks of rows whose ids have these numbers.
fn mapped(groups: &[u32], ranks: &[u64]) -> Vec<u64> {
    let rank = |group: &u32| ranks.get(*group as usize).copied().unwrap_or(0);
    groups.iter().map(rank).collect()
}

impl Ids {
    /// The ids by number.
    pub(super) fn ids(&self) -> &[TermId] {
        &self.ids
    }

    pub(super) fn id(&self, number: u32) -> TermId {
        id_at(&self.ids, number)
    }

    fn list(&self, number: u32) -> List {
        let list = self.lists.get(number as usize);
        list.copied().unwrap_or(List::Value)
    }
}

impl Order for Ids {
    type Part = Vec<u32>;

    fn prefix(&self, number: u32) -> u64 {
        let (list, id) = (self.list(number), self.id(number));
        let first = match list {
            List::LocalIri | List::LocalLiteral => 0,
            // Of one kind each.
            List::Iri | List::ShortString | List::Literal => id.payload(),
            _ => id.to_bits() >> List::BITS,
        };
        (list as u64) << (u64::BITS - List::BITS) | first
    }

    fn compare(&self, left: u32, right: u32) -> Ordering {
        let (list, ids) = (self.list(left), (self.id(left), self.id(right)));
        list.cmp(&self.list(right))
            .then_with(|| match (list, &self.keys) {
                (List::LocalIri | List::LocalLiteral, Some(keys)) => {
                    keys.get(ids.0).cmp(keys.get(ids.1))
                }
                _ => ids.0.cmp(&ids.1),
            })
    }

    fn part(&self, numbers: Vec<u32>) -> Vec<u32> {
        numbers
    }
}

impl List {
    /// How many bits tell lists apart.
    const BITS: u32 = 3;
}

const _: () = assert!((List::Value as u32) < 1 << List::BITS);
const _: () = assert!(TermId::PAYLOAD_BITS + List::BITS <= u64::BITS);

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
