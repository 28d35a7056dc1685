//! Columns of numbers: what is compared and calculated without a `Value` for each row.
//!
//! Rows may be of different types, unbound, or hold something else: each row that [`super::number`] does not know goes
//! through the kernels that know all values, and no other row does.
//!
//! # Limits
//! 32 bytes a row, which are those of one batch and not reserved.

use std::borrow::Cow;

use stoa_planner::expression::{ArithmeticOperator, Comparison, Function};
use stoa_terms::value::Value;
use stoa_terms::{Kind, TermId, inline};

use super::column::{Cell, Column, Texts};
use super::number::{self, Number};
use crate::context::{Computed, QueryContext};
use crate::error::Result;
use crate::function;

/// Computed numbers, and values of other types where such were computed.
pub(crate) struct Numbers {
    rows: Vec<Number>,
    others: Vec<Value>,
}

impl Numbers {
    fn with_capacity(rows: usize) -> Self {
        Self {
            rows: Vec::with_capacity(rows),
            others: Vec::new(),
        }
    }

    /// Adds what is known of a row, or what `general` gives for it.
    fn push(&mut self, known: Option<Number>, general: impl FnOnce() -> Option<Value>) {
        let number = known.unwrap_or_else(|| match general() {
            None => Number::Error,
            Some(value) => Number::of_value(&value).unwrap_or_else(|| {
                self.others.push(value);
                Number::Other(u32::try_from(self.others.len() - 1).unwrap_or(u32::MAX))
            }),
        });
        self.rows.push(number);
    }

    /// Rows of which none is [`Number::Other`].
    pub(super) const fn of_rows(rows: Vec<Number>) -> Self {
        Self {
            rows,
            others: Vec::new(),
        }
    }

    /// The values of a column whose rows tell them.
    pub(super) fn of_column(column: Column<'_>, rows: usize, context: &QueryContext) -> Self {
        if let Column::Numbers(numbers) = column {
            return numbers;
        }
        let mut numbers = Self::with_capacity(rows);
        for row in 0..rows {
            let cell = column.cell(row, context);
            numbers.push(None, || cell.value().map(Cow::into_owned));
        }
        numbers
    }

    /// Puts the rows of another column in the places of some rows.
    pub(super) fn put(&mut self, places: &[u32], from: Self) {
        let first = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
        self.others.extend(from.others);
        for (place, number) in places.iter().zip(from.rows) {
            if let Some(slot) = self.rows.get_mut(*place as usize) {
                *slot = match number {
                    Number::Other(other) => Number::Other(other + first),
                    number => number,
                };
            }
        }
    }

    pub(super) fn cell(&self, row: usize) -> Cell<'_> {
        match self.rows.get(row) {
            None | Some(Number::Error) => Cell::Error,
            Some(Number::Other(other)) => match self.others.get(*other as usize) {
                Some(value) => Cell::Value(value),
                None => Cell::Error,
            },
            Some(number) => Cell::Number(*number),
        }
    }

    pub(super) fn numbers(&self) -> &[Number] {
        &self.rows
    }

    /// The id for each row: the one that `known` gives for a number, and those of other terms are resolved.
    pub(super) fn resolve(
        &self,
        known: impl Fn(Number) -> Option<TermId>,
        context: &QueryContext,
    ) -> Result<Vec<TermId>> {
        let mut ids = Vec::with_capacity(self.rows.len());
        let (mut open, mut computed) = (Vec::new(), Vec::new());
        for (row, number) in self.rows.iter().enumerate() {
            let id = known(*number).unwrap_or_else(|| match self.cell(row).computed() {
                Computed::Id(id) => id,
                other => {
                    open.push(row);
                    computed.push(other);
                    TermId::UNBOUND
                }
            });
            ids.push(id);
        }
        if open.is_empty() {
            return Ok(ids);
        }
        for (row, id) in open.into_iter().zip(context.resolve(computed)?) {
            if let Some(slot) = ids.get_mut(row) {
                *slot = id;
            }
        }
        Ok(ids)
    }
}

/// The numbers of a column that is an operand.
enum Operand<'a> {
    Same(Number),
    Each(Cow<'a, [Number]>),
}

impl<'a> Operand<'a> {
    /// `None` if no row is an inline or computed number.
    fn of(column: &'a Column<'_>) -> Option<Self> {
        let is_number = |number: &Number| !matches!(number, Number::Error | Number::Other(_));
        let rows: Vec<Number> = match column {
            Column::Constant(constant) => {
                return Number::of_id(constant.id).filter(is_number).map(Self::Same);
            }
            Column::Numbers(numbers) => return Some(Self::Each(numbers.numbers().into())),
            Column::Ids(ids, _) => {
                if !ids.iter().any(|id| is_inline_number(id.kind())) {
                    return None;
                }
                let number = |id: &TermId| Number::of_id(*id).unwrap_or(Number::Other(0));
                ids.iter().map(number).collect()
            }
            Column::Values(values) => values
                .iter()
                .map(|value| match value {
                    None => Number::Error,
                    Some(value) => Number::of_value(value).unwrap_or(Number::Other(0)),
                })
                .collect(),
            Column::Error | Column::Booleans(_) | Column::Strings(_) => return None,
        };
        rows.iter().any(is_number).then(|| Self::Each(rows.into()))
    }

    /// Gives each row of both sides to `take`, with its number.
    fn pairs(&self, other: &Self, rows: usize, mut take: impl FnMut(usize, Number, Number)) {
        match (self, other) {
            (Self::Same(a), Self::Same(b)) => (0..rows).for_each(|row| take(row, *a, *b)),
            (Self::Same(a), Self::Each(b)) => {
                b.iter().enumerate().for_each(|(row, b)| take(row, *a, *b));
            }
            (Self::Each(a), Self::Same(b)) => {
                a.iter().enumerate().for_each(|(row, a)| take(row, *a, *b));
            }
            (Self::Each(a), Self::Each(b)) => {
                let pairs = a.iter().zip(&**b).enumerate();
                pairs.for_each(|(row, (a, b))| take(row, *a, *b));
            }
        }
    }
}

// ---- arithmetic ----

/// What an operator gives for each row, `general` being asked where the numbers do not tell; `None` if one side has no
/// numbers.
pub(super) fn calculate(
    operator: ArithmeticOperator,
    left: &Column<'_>,
    right: &Column<'_>,
    rows: usize,
    general: impl Fn(usize) -> Option<Value>,
) -> Option<Numbers> {
    let (left, right) = (Operand::of(left)?, Operand::of(right)?);
    let mut result = Numbers::with_capacity(rows);
    macro_rules! each {
        ($calculate:path) => {
            left.pairs(&right, rows, |row, a, b| {
                result.push($calculate(a, b), || general(row));
            })
        };
    }
    match operator {
        ArithmeticOperator::Add => each!(number::add),
        ArithmeticOperator::Subtract => each!(number::subtract),
        ArithmeticOperator::Multiply => each!(number::multiply),
        ArithmeticOperator::Divide => each!(number::divide),
    }
    Some(result)
}

/// The same for what is made of one number.
fn each(
    column: &Column<'_>,
    rows: usize,
    one: impl Fn(Number) -> Option<Number>,
    general: impl Fn(usize) -> Option<Value>,
) -> Option<Numbers> {
    let Operand::Each(numbers) = Operand::of(column)? else {
        return None;
    };
    let mut result = Numbers::with_capacity(rows);
    for (row, number) in numbers.iter().enumerate() {
        result.push(one(*number), || general(row));
    }
    Some(result)
}

/// Unary minus, as [`calculate`].
pub(super) fn negate(
    column: &Column<'_>,
    rows: usize,
    general: impl Fn(usize) -> Option<Value>,
) -> Option<Numbers> {
    each(column, rows, number::negate, general)
}

/// What a function of one number gives, as [`calculate`]; `None` for other functions as well.
pub(super) fn call(
    function: Function,
    columns: &[Column<'_>],
    rows: usize,
    general: impl Fn(usize) -> Option<Value>,
) -> Option<Numbers> {
    let one = number::function(function)?;
    let [column] = columns else {
        return None;
    };
    each(column, rows, one, general)
}

/// Which texts a function reads: one of a number none of inline numbers.
pub(super) fn texts(function: Function) -> Texts {
    match (function::texts(function), number::function(function)) {
        (Texts::All, Some(_)) => Texts::OfOthers,
        (texts, _) => texts,
    }
}

/// Whether one of the ids may have a text that is wanted.
pub(super) fn has_texts(ids: &[TermId], wanted: Texts) -> bool {
    match wanted {
        Texts::None => false,
        Texts::Dictionary | Texts::All => true,
        Texts::OfOthers => !ids
            .iter()
            .all(|id| is_inline_number(id.kind()) || id.is_unbound()),
    }
}

// ---- comparison ----

/// What a comparison gave, and the rows for which the numbers do not tell.
pub(super) struct Compared {
    pub(super) result: Vec<Option<bool>>,
    pub(super) open: Vec<usize>,
}

impl Compared {
    /// Nothing is known.
    pub(super) fn nothing(rows: usize) -> Self {
        Self {
            result: vec![None; rows],
            open: (0..rows).collect(),
        }
    }

    fn push(&mut self, row: usize, known: Option<Option<bool>>) {
        if known.is_none() {
            self.open.push(row);
        }
        self.result.push(known.flatten());
    }
}

/// What a comparison gives in each row; `None` if one side has no numbers.
pub(super) fn compare(
    comparison: Comparison,
    left: &Column<'_>,
    right: &Column<'_>,
    rows: usize,
) -> Option<Compared> {
    let mut compared = Compared {
        result: Vec::with_capacity(rows),
        open: Vec::new(),
    };
    if let (Some(left), Some(right)) = (Keys::of(left), Keys::of(right)) {
        left.compare(comparison, &right, rows, &mut compared);
        return Some(compared);
    }
    let (left, right) = (Operand::of(left)?, Operand::of(right)?);
    left.pairs(&right, rows, |row, a, b| {
        compared.push(row, compare_numbers(comparison, a, b));
    });
    Some(compared)
}

/// `None` if the numbers do not tell, an inner one for an error.
fn compare_numbers(comparison: Comparison, a: Number, b: Number) -> Option<Option<bool>> {
    match (a, b) {
        (Number::Error, _) | (_, Number::Error) => Some(None),
        _ => number::compare(comparison, a, b).map(Some),
    }
}

/// Ids of which some are numbers; they are compared as they are.
enum Keys<'a> {
    Same(TermId, Option<i64>),
    Each(&'a [TermId]),
}

const fn is_inline_number(kind: Kind) -> bool {
    matches!(kind, Kind::Integer | Kind::Decimal | Kind::Double)
}

impl<'a> Keys<'a> {
    fn of(column: &'a Column<'_>) -> Option<Self> {
        match column {
            Column::Constant(constant) => is_inline_number(constant.id.kind())
                .then(|| Self::Same(constant.id, inline::comparison_key(constant.id))),
            Column::Ids(ids, _) => {
                let some = ids.iter().any(|id| is_inline_number(id.kind()));
                some.then_some(Self::Each(ids))
            }
            _ => None,
        }
    }

    fn compare(&self, comparison: Comparison, other: &Self, rows: usize, into: &mut Compared) {
        match comparison {
            Comparison::Equal => self.each(other, rows, comparison, |a, b| a == b, into),
            Comparison::NotEqual => self.each(other, rows, comparison, |a, b| a != b, into),
            Comparison::Less => self.each(other, rows, comparison, |a, b| a < b, into),
            Comparison::LessOrEqual => self.each(other, rows, comparison, |a, b| a <= b, into),
            Comparison::Greater => self.each(other, rows, comparison, |a, b| a > b, into),
            Comparison::GreaterOrEqual => self.each(other, rows, comparison, |a, b| a >= b, into),
            // Asks for the type as well.
            Comparison::SameTerm => (0..rows).for_each(|row| into.push(row, None)),
        }
    }

    fn each(
        &self,
        other: &Self,
        rows: usize,
        comparison: Comparison,
        take: impl Fn(i64, i64) -> bool,
        into: &mut Compared,
    ) {
        let key = inline::comparison_key;
        let mut put = |row, a: (TermId, Option<i64>), b: (TermId, Option<i64>)| {
            into.push(
                row,
                match (a.1, b.1) {
                    (Some(a), Some(b)) => Some(Some(take(a, b))),
                    _ => compare_ids(comparison, a.0, b.0),
                },
            );
        };
        match (self, other) {
            (Self::Same(a, a_key), Self::Same(b, b_key)) => {
                (0..rows).for_each(|row| put(row, (*a, *a_key), (*b, *b_key)));
            }
            (Self::Same(a, a_key), Self::Each(b)) => {
                let rows = b.iter().enumerate();
                rows.for_each(|(row, b)| put(row, (*a, *a_key), (*b, key(*b))));
            }
            (Self::Each(a), Self::Same(b, b_key)) => {
                let rows = a.iter().enumerate();
                rows.for_each(|(row, a)| put(row, (*a, key(*a)), (*b, *b_key)));
            }
            (Self::Each(a), Self::Each(b)) => {
                let rows = a.iter().zip(*b).enumerate();
                rows.for_each(|(row, (a, b))| put(row, (*a, key(*a)), (*b, key(*b))));
            }
        }
    }
}

/// As [`compare_numbers`].
fn compare_ids(comparison: Comparison, a: TermId, b: TermId) -> Option<Option<bool>> {
    if a.is_unbound() || b.is_unbound() {
        return Some(None);
    }
    compare_numbers(comparison, Number::of_id(a)?, Number::of_id(b)?)
}
