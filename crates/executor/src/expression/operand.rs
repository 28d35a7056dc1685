//! Values as SUM and AVG take them.
//!
//! A float that an expression computes is wanted as a number, and nobody asks for its term: written as a literal and
//! read again it would cost more than all else. It stands as its bits in an id that only these aggregates are given,
//! behind the few special terms.

use stoa_terms::TermId;
use stoa_terms::value::Value;

use super::column::{Column, term_values};
use crate::context::QueryContext;
use crate::error::Result;

/// Set in ids that are floats; no kind and no special term has it alone.
const FLOAT_BIT: u64 = 1 << 32;

const fn of_float(value: f32) -> TermId {
    TermId::from_bits(FLOAT_BIT | value.to_bits() as u64)
}

/// The float that an operand is.
pub(crate) fn float(operand: TermId) -> Option<f32> {
    let bits = operand.to_bits() ^ FLOAT_BIT;
    u32::try_from(bits).ok().map(f32::from_bits)
}

/// Operands of values that are floats or errors; `None` if there are others.
pub(super) fn operands(column: &Column<'_>) -> Option<Vec<TermId>> {
    let Column::Values(values) = column else {
        return None;
    };
    let operand = |value: &Option<Value>| match value {
        Some(Value::Float(value)) => Some(of_float(*value)),
        None => Some(TermId::UNBOUND),
        Some(_) => None,
    };
    values.iter().map(operand).collect()
}

/// The value of each operand; `None` where unbound.
///
/// # Errors
/// If the dictionary cannot be read.
pub(crate) fn operand_values(
    operands: &[TermId],
    context: &QueryContext,
) -> Result<Vec<Option<Value>>> {
    let floats: Vec<_> = operands.iter().map(|id| float(*id)).collect();
    if floats.iter().all(Option::is_some) {
        return Ok(floats
            .into_iter()
            .map(|value| value.map(Value::Float))
            .collect());
    }
    let mut values = term_values(operands, context)?;
    for (value, float) in values.iter_mut().zip(floats) {
        if let Some(float) = float {
            *value = Some(Value::Float(float));
        }
    }
    Ok(values)
}
