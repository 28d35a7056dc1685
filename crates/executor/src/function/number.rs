//! Functions on numbers; the type of the argument is that of the result.

use oxsdatatypes::{Double, Float};
use stoa_terms::value::{ExactOperator, Rounding, Value, calculate, round as round_exactly};

use crate::context::QueryContext;
use crate::expression::Cell;

pub(super) fn abs(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match &*cells.first()?.value()? {
        value @ (Value::Integer(_) | Value::Decimal(_) | Value::Big(_)) => {
            let fast = match value {
                Value::Integer(value) => value.checked_abs().map(Value::Integer),
                Value::Decimal(value) => value.checked_abs().map(Value::Decimal),
                Value::Big(big) if !big.is_negative() => Some(value.clone()),
                _ => None,
            };
            fast.or_else(|| calculate(ExactOperator::Subtract, &Value::Integer(0), value))
        }
        Value::Float(value) => Some(Value::Float(value.abs())),
        Value::Double(value) => Some(Value::Double(value.abs())),
        _ => None,
    }
}

/// Halves are rounded up: `round(-2.5)` is -2.
pub(super) fn round(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match &*cells.first()?.value()? {
        Value::Integer(value) => Some(Value::Integer(*value)),
        value @ Value::Decimal(decimal) => decimal
            .checked_round()
            .map(Value::Decimal)
            .or_else(|| round_exactly(Rounding::Nearest, value)),
        value @ Value::Big(_) => round_exactly(Rounding::Nearest, value),
        Value::Float(value) => Some(Value::Float(Float::from(*value).round().into())),
        Value::Double(value) => Some(Value::Double(Double::from(*value).round().into())),
        _ => None,
    }
}

pub(super) fn ceil(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match &*cells.first()?.value()? {
        Value::Integer(value) => Some(Value::Integer(*value)),
        value @ Value::Decimal(decimal) => decimal
            .checked_ceil()
            .map(Value::Decimal)
            .or_else(|| round_exactly(Rounding::Ceiling, value)),
        value @ Value::Big(_) => round_exactly(Rounding::Ceiling, value),
        Value::Float(value) => Some(Value::Float(value.ceil())),
        Value::Double(value) => Some(Value::Double(value.ceil())),
        _ => None,
    }
}

pub(super) fn floor(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match &*cells.first()?.value()? {
        Value::Integer(value) => Some(Value::Integer(*value)),
        value @ Value::Decimal(decimal) => decimal
            .checked_floor()
            .map(Value::Decimal)
            .or_else(|| round_exactly(Rounding::Floor, value)),
        value @ Value::Big(_) => round_exactly(Rounding::Floor, value),
        Value::Float(value) => Some(Value::Float(value.floor())),
        Value::Double(value) => Some(Value::Double(value.floor())),
        _ => None,
    }
}

/// A double from 0 up to but not including 1.
pub(super) fn rand(_: &[Cell<'_>], context: &QueryContext) -> Option<Value> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are what a double holds"
    )]
    let numerator = (context.random() >> 11) as f64;
    #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
    let denominator = (1_u64 << 53) as f64;
    Some(Value::Double(numerator / denominator))
}
