//! Comparison of numbers with XPath's promotion of types.

use std::cmp::Ordering;

use oxsdatatypes::Decimal;

use super::Value;
use super::exact::compare_digits;

/// Compares two numbers: exactly if both are integers or decimals, else as doubles, or as floats
/// if neither is a double. `None` for NaN, and if one is no number.
pub(super) fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
        (Value::Double(_), _) | (_, Value::Double(_)) => to_f64(a)?.partial_cmp(&to_f64(b)?),
        (Value::Float(_), _) | (_, Value::Float(_)) => to_f32(a)?.partial_cmp(&to_f32(b)?),
        (Value::Big(_), _) | (_, Value::Big(_)) => compare_digits(a, b),
        _ => Some(to_decimal(a)?.cmp(&to_decimal(b)?)),
    }
}

/// The order of ORDER BY among numbers, NaN last: as the numbers' decimal digits say, a double or
/// float being the shortest text that gives the double back. That agrees with [`compare`] wherever
/// the two differ as doubles, and is transitive, which promotion is not.
pub(super) fn order_by(a: &Value, b: &Value) -> Ordering {
    if let (Value::Integer(a), Value::Integer(b)) = (a, b) {
        return a.cmp(b);
    }
    let (Some(x), Some(y)) = (to_f64(a), to_f64(b)) else {
        return Ordering::Equal;
    };
    match x.partial_cmp(&y) {
        Some(Ordering::Equal) => compare_digits(a, b).unwrap_or_else(|| {
            // An infinity and a number whose double is one.
            let infinite = |value: &Value| match value {
                Value::Double(value) => value.is_infinite(),
                Value::Float(value) => value.is_infinite(),
                _ => false,
            };
            let outside = infinite(a).cmp(&infinite(b));
            if x > 0.0 { outside } else { outside.reverse() }
        }),
        Some(order) => order,
        None => x.is_nan().cmp(&y.is_nan()),
    }
}

pub(super) fn to_f64(value: &Value) -> Option<f64> {
    match value {
        #[expect(
            clippy::cast_precision_loss,
            reason = "promotion rounds to the nearest double"
        )]
        Value::Integer(value) => Some(*value as f64),
        Value::Decimal(value) => Some(decimal_to_f64(*value)),
        Value::Big(value) => Some(value.to_f64()),
        Value::Float(value) => Some(f64::from(*value)),
        Value::Double(value) => Some(*value),
        _ => None,
    }
}

/// The nearest double. Digits and power of ten are both exact as doubles for most decimals, so that
/// their quotient is rounded once; the text of others is read.
fn decimal_to_f64(value: Decimal) -> f64 {
    const EXACT: u128 = 1 << 53;
    let mut digits = i128::from_be_bytes(value.to_be_bytes());
    let mut power = 1_000_000_000_000_000_000_i128;
    while power != 1 && digits % 10 == 0 {
        digits /= 10;
        power /= 10;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "both are exact: below 2^53, and a power of ten below 10^22"
    )]
    if digits.unsigned_abs() <= EXACT {
        return digits as f64 / power as f64;
    }
    value.to_string().parse().unwrap_or(f64::NAN)
}

fn to_f32(value: &Value) -> Option<f32> {
    match value {
        #[expect(
            clippy::cast_precision_loss,
            reason = "promotion rounds to the nearest float"
        )]
        Value::Integer(value) => Some(*value as f32),
        // Through a double it would be rounded twice.
        Value::Decimal(value) => value.to_string().parse().ok(),
        Value::Big(value) => Some(value.to_f32()),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn to_decimal(value: &Value) -> Option<Decimal> {
    match value {
        Value::Integer(value) => Some(Decimal::from(*value)),
        Value::Decimal(value) => Some(*value),
        _ => None,
    }
}

impl Value {
    /// The nearest double of a number.
    #[must_use]
    pub fn to_f64(&self) -> Option<f64> {
        to_f64(self)
    }

    /// The nearest float of a number that is no double.
    #[must_use]
    pub fn to_f32(&self) -> Option<f32> {
        to_f32(self)
    }

    /// An integer or decimal as decimal, if it fits.
    #[must_use]
    pub fn to_decimal(&self) -> Option<Decimal> {
        to_decimal(self)
    }
}
