//! Comparisons and arithmetic of columns that hold inline integers alone, of `xsd:integer` or a type derived from it, and
//! the integers of columns that hold inline dates alone.
//!
//! Everything else, and what leaves their range, is left to the kernels that know all types.

use stoa_planner::expression::{ArithmeticOperator, Comparison, Function};
use stoa_terms::inline::{encode_i64, integer_value};
use stoa_terms::{Kind, TermId};

use super::column::Column;
use crate::function::date;

/// The ids of a column of integers.
pub(super) enum Integers<'a> {
    Same(TermId),
    Each(&'a [TermId]),
}

impl<'a> Integers<'a> {
    /// `None` if one row holds something else, or an error.
    pub(super) fn of(column: &'a Column<'_>) -> Option<Self> {
        match column {
            Column::Constant(constant) if constant.id.kind() == Kind::Integer => {
                Some(Self::Same(constant.id))
            }
            Column::Ids(ids, _) if ids.iter().all(|id| id.kind() == Kind::Integer) => {
                Some(Self::Each(ids))
            }
            _ => None,
        }
    }

    /// Takes the values of each row of both sides.
    fn pairs<T>(&self, other: &Self, rows: usize, take: impl Fn(i64, i64) -> T) -> Vec<T> {
        let value = |id: &TermId| integer_value(*id);
        match (self, other) {
            (Self::Same(a), Self::Same(b)) => (0..rows).map(|_| take(value(a), value(b))).collect(),
            (Self::Same(a), Self::Each(b)) => {
                let a = value(a);
                b.iter().map(|b| take(a, value(b))).collect()
            }
            (Self::Each(a), Self::Same(b)) => {
                let b = value(b);
                a.iter().map(|a| take(value(a), b)).collect()
            }
            (Self::Each(a), Self::Each(b)) => {
                let pairs = a.iter().zip(*b);
                pairs.map(|(a, b)| take(value(a), value(b))).collect()
            }
        }
    }
}

/// What a comparison gives in each row; `None` if one side holds not only integers.
pub(super) fn compare(
    comparison: Comparison,
    left: &Column<'_>,
    right: &Column<'_>,
    rows: usize,
) -> Option<Vec<Option<bool>>> {
    let (left, right) = (Integers::of(left)?, Integers::of(right)?);
    Some(match comparison {
        Comparison::Equal => left.pairs(&right, rows, |a, b| Some(a == b)),
        Comparison::NotEqual => left.pairs(&right, rows, |a, b| Some(a != b)),
        Comparison::Less => left.pairs(&right, rows, |a, b| Some(a < b)),
        Comparison::LessOrEqual => left.pairs(&right, rows, |a, b| Some(a <= b)),
        Comparison::Greater => left.pairs(&right, rows, |a, b| Some(a > b)),
        Comparison::GreaterOrEqual => left.pairs(&right, rows, |a, b| Some(a >= b)),
        // Asks for the type as well.
        Comparison::SameTerm => return None,
    })
}

/// Sums, differences or products, as `xsd:integer`; `None` if one side holds not only integers, or a result is not
/// inline.
pub(super) fn calculate(
    operator: ArithmeticOperator,
    left: &Column<'_>,
    right: &Column<'_>,
    rows: usize,
) -> Option<Vec<TermId>> {
    let calculate = match operator {
        ArithmeticOperator::Add => i64::checked_add,
        ArithmeticOperator::Subtract => i64::checked_sub,
        ArithmeticOperator::Multiply => i64::checked_mul,
        // Gives a decimal.
        ArithmeticOperator::Divide => return None,
    };
    let (left, right) = (Integers::of(left)?, Integers::of(right)?);
    let results = left.pairs(&right, rows, |a, b| encode_i64(calculate(a, b)?));
    results.into_iter().collect()
}

/// YEAR and the like of a column of inline dates or times; `None` for other functions and columns, or if one row holds
/// what has no such field.
pub(super) fn of_dates(function: Function, columns: &[Column<'_>]) -> Option<Vec<TermId>> {
    let field = date::field_of(function)?;
    let [Column::Ids(ids, _)] = columns else {
        return None;
    };
    let fields = ids.iter().map(|id| encode_i64(date::field(*id, field)?));
    fields.collect()
}
