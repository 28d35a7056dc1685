//! Values as SUM and AVG take them.
//!
//! A float or double that an expression computes is wanted as a number, and nobody asks for its term: written as a
//! literal and read again it would cost more than all else. It stands as its bits in an id that only these aggregates are
//! given: a float behind the few special terms, a double in place of dates, which are errors to them anyhow. A double
//! has two bits less of its exponent there; zero and what is very large or small go as terms.

use stoa_terms::TermId;
use stoa_terms::value::Value;

use super::column::{Column, term_values};
use super::number::Number;
use super::numbers::Numbers;
use crate::context::QueryContext;
use crate::error::Result;

/// Set in ids that are floats; no kind and no special term has it alone.
const FLOAT_BIT: u64 = 1 << 32;

/// The highest two bits of ids that are doubles; of kinds four have them, which are those of dates with a time zone, of
/// dates with a time, and of the dictionary's dates, times and durations.
const DOUBLE: u64 = 0b10;
const DOUBLE_SHIFT: u32 = 62;
const MANTISSA_BITS: u32 = 52;
/// The exponents of doubles that have a place, as their bits are.
const EXPONENTS: u64 = 1 << 9;
const EXPONENT_MIN: u64 = 1023 - EXPONENTS / 2;
const SIGN_SHIFT: u32 = 61;

const fn of_float(value: f32) -> TermId {
    TermId::from_bits(FLOAT_BIT | value.to_bits() as u64)
}

/// The float that an operand is.
pub(crate) fn float(operand: TermId) -> Option<f32> {
    let bits = operand.to_bits() ^ FLOAT_BIT;
    u32::try_from(bits).ok().map(f32::from_bits)
}

fn of_double(value: f64) -> Option<TermId> {
    let bits = value.to_bits();
    let sign = bits >> (u64::BITS - 1);
    let magnitude = bits & !(1 << (u64::BITS - 1));
    let exponent = (magnitude >> MANTISSA_BITS).checked_sub(EXPONENT_MIN)?;
    if exponent >= EXPONENTS {
        return None;
    }
    let rest = magnitude - (EXPONENT_MIN << MANTISSA_BITS);
    let bits = DOUBLE << DOUBLE_SHIFT | sign << SIGN_SHIFT | rest;
    Some(TermId::from_bits(bits))
}

/// The double that an operand is.
pub(crate) fn double(operand: TermId) -> Option<f64> {
    let bits = operand.to_bits();
    if bits >> DOUBLE_SHIFT != DOUBLE {
        return None;
    }
    let rest = bits & ((1 << SIGN_SHIFT) - 1);
    let sign = bits >> SIGN_SHIFT & 1;
    let magnitude = rest + (EXPONENT_MIN << MANTISSA_BITS);
    Some(f64::from_bits(magnitude | sign << (u64::BITS - 1)))
}

/// Operands of a column of numbers: what else is in it may be a date, and is an error as [`of_terms`] has it.
///
/// # Errors
/// If terms cannot be resolved.
pub(super) fn of_numbers(numbers: &Numbers, context: &QueryContext) -> Result<Vec<TermId>> {
    let mut operands = numbers.resolve(of_number, context)?;
    for (operand, number) in operands.iter_mut().zip(numbers.numbers()) {
        if matches!(number, Number::Other(_)) && double(*operand).is_some() {
            *operand = TermId::UNBOUND;
        }
    }
    Ok(operands)
}

/// What stands for a computed number; `None` if nothing does.
pub(super) fn of_number(number: Number) -> Option<TermId> {
    match number {
        Number::Float(value) => Some(of_float(value)),
        Number::Double(value) => of_double(value).or_else(|| number.id()),
        number => number.id(),
    }
}

/// The number that stands for itself in an operand, as [`of_number`] gives it.
pub(super) fn to_number(operand: TermId) -> Option<Number> {
    let number = float(operand).map(Number::Float);
    let number = number.or_else(|| double(operand).map(Number::Double));
    number.or_else(|| Number::of_id(operand))
}

/// Operands of values that are floats, doubles or errors; `None` if there are others.
pub(super) fn of_values(column: &Column<'_>) -> Option<Vec<TermId>> {
    let Column::Values(values) = column else {
        return None;
    };
    let operand = |value: &Option<Value>| match value {
        Some(Value::Float(value)) => Some(of_float(*value)),
        Some(Value::Double(value)) => of_double(*value),
        None => Some(TermId::UNBOUND),
        Some(_) => None,
    };
    values.iter().map(operand).collect()
}

/// Operands of terms: those whose place doubles have are errors.
pub(crate) fn of_terms(mut ids: Vec<TermId>) -> Vec<TermId> {
    for id in &mut ids {
        if double(*id).is_some() {
            *id = TermId::UNBOUND;
        }
    }
    ids
}

/// The value of each operand; `None` for what is no number.
///
/// # Errors
/// If the dictionary cannot be read.
pub(crate) fn operand_values(
    operands: &[TermId],
    context: &QueryContext,
) -> Result<Vec<Option<Value>>> {
    // The rows whose ids do not tell their value.
    let (mut open, mut open_ids) = (Vec::new(), Vec::new());
    let mut values: Vec<Option<Value>> = operands
        .iter()
        .enumerate()
        .map(|(row, id)| {
            let number = float(*id).map(Value::Float);
            let number = number.or_else(|| double(*id).map(Value::Double));
            if number.is_some() || id.is_unbound() {
                return number;
            }
            let number = Number::of_id(*id).and_then(Number::value);
            if number.is_none() {
                open.push(row);
                open_ids.push(*id);
            }
            number
        })
        .collect();
    if open.is_empty() {
        return Ok(values);
    }
    let mut read = term_values(&open_ids, context)?;
    for (row, value) in open.into_iter().zip(read.values()) {
        if let Some(slot) = values.get_mut(row) {
            // Long texts that add nothing up are not kept.
            *slot = value.filter(Value::is_numeric);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_terms::Kind;

    #[test]
    fn doubles_come_back() {
        for value in [
            1.0,
            -1.0,
            0.1,
            f64::from_bits(EXPONENT_MIN << MANTISSA_BITS),
            -f64::from_bits(((EXPONENT_MIN + EXPONENTS) << MANTISSA_BITS) - 1),
        ] {
            let operand = of_double(value).unwrap();
            assert_eq!(double(operand).map(f64::to_bits), Some(value.to_bits()));
            assert!(float(operand).is_none());
        }
        for value in [
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NAN,
            f64::MIN_POSITIVE,
            f64::MAX,
            f64::from_bits((EXPONENT_MIN << MANTISSA_BITS) - 1),
            f64::from_bits((EXPONENT_MIN + EXPONENTS) << MANTISSA_BITS),
        ] {
            assert!(of_double(value).is_none(), "{value}");
        }
    }

    #[test]
    fn no_number_has_the_place_of_a_double() {
        for kind in Kind::ALL {
            let is_taken = double(TermId::new(kind, 7)).is_some();
            let is_date = matches!(
                kind,
                Kind::DateZoned | Kind::DateTime | Kind::DateTimeZoned | Kind::TemporalLiteral
            );
            assert_eq!(is_taken, is_date, "{kind:?}");
        }
        let date = TermId::new(Kind::DateTime, 7);
        assert_eq!(
            of_terms(vec![date, TermId::TRUE]),
            [TermId::UNBOUND, TermId::TRUE]
        );
    }
}
