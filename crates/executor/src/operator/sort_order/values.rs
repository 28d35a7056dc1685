//! Terms that are compared by their values: numbers, dates, literals of other datatypes.

use std::cmp::Ordering;
use std::sync::Arc;

use stoa_quadstore::TermTexts;
use stoa_terms::value::{Value, order_inline};
use stoa_terms::{Kind, TermId, key};

use super::merge::Slices;
use super::merging::{Lanes, Progress, SLICE_MEMORY_BYTES};
use super::ranking::Ids;
use super::sorter::{Order, SORTED_BYTES, Sorter};
use super::team::Team;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::operator::parallel::{InOrder, Turn};

/// What a value is taken to cost in all, in bytes.
pub(in crate::operator) const COSTLY_BYTES: usize = 160;

/// What a value is taken to cost beside its text, in bytes.
const VALUE_BYTES: usize = 96;

/// Ids that are compared by their values.
pub(super) struct Values {
    ids: Arc<Ids>,
    /// Which ids they are.
    numbers: Vec<u32>,
    /// For each of `numbers` its value, `None` for an inline one.
    values: Known,
    bytes: usize,
}

/// Values that are being read.
pub(super) struct Reading {
    values: Values,
    by: By,
}

/// Who reads.
enum By {
    One(Slices),
    /// Pieces of values with what they take.
    Several(InOrder<(Known, usize)>, Arc<Lanes>),
    /// Memory was refused; helpers have not left yet.
    Ending(InOrder<(Known, usize)>, Arc<Lanes>),
}

type Known = Vec<Option<Box<Value>>>;

impl Reading {
    /// `held` is what the account holds beside.
    pub(super) fn new(values: Values, team: Team, (memory, held): (&mut Memory, u64)) -> Self {
        let count = values.numbers.len();
        let helpers = team.helpers(count);
        let a_lane = (values.places_bytes() + (count * COSTLY_BYTES) as u64) / (1 + helpers as u64);
        let lanes = match helpers {
            0 => None,
            _ => Lanes::new(1 + helpers, a_lane + SLICE_MEMORY_BYTES, (memory, held)),
        };
        let Some(lanes) = lanes else {
            let by = By::One(Slices::default());
            return Self { values, by };
        };
        let piece = team.piece(count);
        let pieces = count.div_ceil(piece);
        let (ids, numbers) = (Arc::clone(&values.ids), values.numbers.clone());
        let own = Arc::clone(&lanes);
        let work = move |number: usize, context: &QueryContext| {
            let range = number * piece..count.min((number + 1) * piece);
            let some = numbers.get(range).unwrap_or_default();
            let mut values = Values::new(Arc::clone(&ids), some.to_vec());
            own.with(context, |lane| {
                let mut slices = Slices::default();
                while !values.read(&mut slices, &mut lane.memory, lane.held, context)? {}
                lane.held += values.places_bytes() + values.bytes as u64;
                Ok((values.values, values.bytes))
            })
        };
        let by = By::Several(InOrder::new(pieces, helpers, pieces, work), lanes);
        Self { values, by }
    }

    /// Reads some more.
    pub(super) fn step(
        &mut self,
        (memory, held): (&mut Memory, u64),
        context: &QueryContext,
    ) -> Result<Progress> {
        match &mut self.by {
            By::One(slices) => {
                if self.values.read(slices, memory, held, context)? {
                    return Ok(Progress::Done);
                }
            }
            By::Several(pieces, lanes) => match pieces.next(context) {
                Ok(Turn::Given((values, bytes))) => {
                    self.values.values.extend(values);
                    self.values.bytes += bytes;
                }
                Ok(Turn::Working) => (),
                Ok(Turn::Done) => {
                    lanes.join(memory);
                    return Ok(Progress::Done);
                }
                Err(Error::MemoryExceeded { .. }) => {
                    let ended = InOrder::new(0, 0, 1, |_, _| Ok((Known::new(), 0)));
                    let (pieces, lanes) = (std::mem::replace(pieces, ended), Arc::clone(lanes));
                    self.by = By::Ending(pieces, lanes);
                }
                Err(error) => return Err(error),
            },
            By::Ending(pieces, lanes) => {
                if pieces.stop(context) {
                    lanes.join(memory);
                    self.values.values = Known::new();
                    self.values.bytes = 0;
                    self.by = By::One(Slices::default());
                }
            }
        }
        Ok(Progress::Working)
    }

    /// All of them.
    pub(super) fn into_values(self) -> Values {
        self.values
    }
}

impl Values {
    /// Those with these numbers, to be read.
    pub(super) fn new(ids: Arc<Ids>, numbers: Vec<u32>) -> Self {
        Self {
            ids,
            values: Vec::new(),
            numbers,
            bytes: 0,
        }
    }

    /// What sorts their places.
    pub(super) fn sorter(self, team: Team) -> Sorter<Self> {
        let count = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        Sorter::new(Arc::new(self), count, team)
    }

    /// What goes beside the values.
    fn places_bytes(&self) -> u64 {
        let a_place = size_of::<Option<Box<Value>>>() + SORTED_BYTES;
        (self.numbers.len() * a_place) as u64
    }

    /// Reads some more values; true when all are there.
    fn read(
        &mut self,
        slices: &mut Slices,
        memory: &mut Memory,
        held: u64,
        context: &QueryContext,
    ) -> Result<bool> {
        let mut texts = TermTexts::default();
        let mut some = Vec::new();
        let places = self.places_bytes();
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
            some.extend(numbers.iter().map(|number| self.ids.id(*number)));
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

    /// The number of what stands in a place.
    pub(super) fn number(&self, place: u32) -> u32 {
        self.numbers.get(place as usize).copied().unwrap_or(0)
    }

    fn id(&self, place: u32) -> TermId {
        self.ids.id(self.number(place))
    }

    fn known(&self, place: u32) -> Option<&Value> {
        self.values.get(place as usize)?.as_deref()
    }

    /// Compares what stands in two places, whatever their ids.
    pub(super) fn compare_values(&self, a: u32, b: u32) -> Ordering {
        let inline = |place: u32| Value::from_inline(self.id(place));
        if let Some(order) = order_inline(self.id(a), self.id(b)) {
            return order;
        }
        match (self.known(a), self.known(b)) {
            (Some(a), Some(b)) => a.order_by(b),
            (Some(a), None) => inline(b).map_or(Ordering::Less, |b| a.order_by(&b)),
            (None, Some(b)) => inline(a).map_or(Ordering::Greater, |a| a.order_by(b)),
            (None, None) => match (inline(a), inline(b)) {
                (Some(a), Some(b)) => a.order_by(&b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
        }
    }

    /// How many values come before all strings; `order` are the places in their order.
    pub(super) fn before_strings(&self, order: &[u32]) -> usize {
        let smallest = Value::String("".into());
        let is_before = |place: u32| match self.known(place) {
            Some(value) => value.order_by(&smallest) == Ordering::Less,
            None => Value::from_inline(self.id(place))
                .is_none_or(|value| value.order_by(&smallest) == Ordering::Less),
        };
        order.partition_point(|place| is_before(*place))
    }
}

impl Order for Values {
    type Part = Vec<u32>;

    fn prefix(&self, place: u32) -> u64 {
        match self.known(place) {
            Some(value) => value.order_prefix(),
            // What has no value comes first.
            None => Value::from_inline(self.id(place)).map_or(0, |value| value.order_prefix()),
        }
    }

    fn compare(&self, left: u32, right: u32) -> Ordering {
        let by_value = self.compare_values(left, right);
        by_value.then_with(|| self.id(left).cmp(&self.id(right)))
    }

    fn part(&self, numbers: Vec<u32>) -> Vec<u32> {
        numbers
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
