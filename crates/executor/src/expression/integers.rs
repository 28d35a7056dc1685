//! Comparisons and arithmetic of columns that hold inline integers alone, of `xsd:integer` or a type derived from it;
//! comparisons of columns that hold inline dates or times of one datatype alone, and the integers of such.
//!
//! Everything else, and what leaves their range, is left to the kernels that know all types.

use stoa_planner::expression::{ArithmeticOperator, Comparison, Function};
use stoa_terms::inline::{encode_i64, instant, integer_value, known_datatype};
use stoa_terms::{Kind, TermId};

use super::column::Column;
use crate::function::date;

/// The ids of a column whose rows all hold what was asked for.
pub(super) enum Ids<'a> {
    Same(TermId),
    Each(&'a [TermId]),
}

impl<'a> Ids<'a> {
    /// `None` if one row holds something else, or an error.
    fn of(column: &'a Column<'_>, is_one: impl Fn(TermId) -> bool) -> Option<Self> {
        match column {
            Column::Constant(constant) if is_one(constant.id) => Some(Self::Same(constant.id)),
            Column::Ids(ids, _) if ids.iter().all(|id| is_one(*id)) => Some(Self::Each(ids)),
            _ => None,
        }
    }

    fn integers(column: &'a Column<'_>) -> Option<Self> {
        Self::of(column, |id| id.kind() == Kind::Integer)
    }

    fn first(&self) -> Option<TermId> {
        match self {
            Self::Same(id) => Some(*id),
            Self::Each(ids) => ids.first().copied(),
        }
    }

    /// Takes the values of each row of both sides.
    fn pairs<T>(
        &self,
        other: &Self,
        rows: usize,
        value: impl Fn(TermId) -> i64,
        take: impl Fn(i64, i64) -> T,
    ) -> Vec<T> {
        match (self, other) {
            (Self::Same(a), Self::Same(b)) => {
                let (a, b) = (value(*a), value(*b));
                (0..rows).map(|_| take(a, b)).collect()
            }
            (Self::Same(a), Self::Each(b)) => {
                let a = value(*a);
                b.iter().map(|b| take(a, value(*b))).collect()
            }
            (Self::Each(a), Self::Same(b)) => {
                let b = value(*b);
                a.iter().map(|a| take(value(*a), b)).collect()
            }
            (Self::Each(a), Self::Each(b)) => {
                let pairs = a.iter().zip(*b);
                pairs.map(|(a, b)| take(value(*a), value(*b))).collect()
            }
        }
    }

    /// What a comparison gives in each row, of values that are ordered by a number.
    fn compare(
        &self,
        other: &Self,
        comparison: Comparison,
        rows: usize,
        value: impl Fn(TermId) -> i64,
    ) -> Option<Vec<Option<bool>>> {
        Some(match comparison {
            Comparison::Equal => self.pairs(other, rows, value, |a, b| Some(a == b)),
            Comparison::NotEqual => self.pairs(other, rows, value, |a, b| Some(a != b)),
            Comparison::Less => self.pairs(other, rows, value, |a, b| Some(a < b)),
            Comparison::LessOrEqual => self.pairs(other, rows, value, |a, b| Some(a <= b)),
            Comparison::Greater => self.pairs(other, rows, value, |a, b| Some(a > b)),
            Comparison::GreaterOrEqual => self.pairs(other, rows, value, |a, b| Some(a >= b)),
            // Asks for the type as well.
            Comparison::SameTerm => return None,
        })
    }
}

/// What a comparison gives in each row; `None` if not all rows of both sides hold inline integers, or inline dates or
/// times of one datatype, all with a time zone or all without.
pub(super) fn compare(
    comparison: Comparison,
    left: &Column<'_>,
    right: &Column<'_>,
    rows: usize,
) -> Option<Vec<Option<bool>>> {
    // A constant is on the right as a rule.
    let kind = match (left, right) {
        (_, Column::Constant(constant)) | (Column::Constant(constant), _) => constant.id.kind(),
        (Column::Ids(ids, _), _) => ids.first()?.kind(),
        _ => return None,
    };
    match kind {
        Kind::Integer => {
            let (left, right) = (Ids::integers(left)?, Ids::integers(right)?);
            left.compare(&right, comparison, rows, integer_value)
        }
        Kind::Date | Kind::DateZoned | Kind::DateTime | Kind::DateTimeZoned => {
            let left = Ids::of(left, |id| id.kind() == kind)?;
            let datatype = known_datatype(left.first()?);
            let is_one = |id: TermId| id.kind() == kind && known_datatype(id) == datatype;
            let left = match left {
                Ids::Each(ids) if !ids.iter().all(|id| is_one(*id)) => return None,
                left => left,
            };
            let right = Ids::of(right, is_one)?;
            left.compare(&right, comparison, rows, instant)
        }
        _ => None,
    }
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
    let (left, right) = (Ids::integers(left)?, Ids::integers(right)?);
    let results = left.pairs(&right, rows, integer_value, |a, b| {
        encode_i64(calculate(a, b)?)
    });
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
