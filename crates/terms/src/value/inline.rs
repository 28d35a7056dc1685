//! Comparison of inline ids without making values.

use std::cmp::Ordering;

use crate::inline::{self, InlineNumber};
use crate::{Kind, TermId};

/// Compares the values of two inline literals as SPARQL's `<`, `=` and `>` do. The outer `None`
/// means that the ids do not tell and values must be compared; the inner one is an expression
/// error.
#[must_use]
pub fn compare_inline(a: TermId, b: TermId) -> Option<Option<Ordering>> {
    let kind = a.kind();
    if kind == b.kind() {
        return match kind {
            Kind::Integer => Some(Some(
                inline::integer_value(a).cmp(&inline::integer_value(b)),
            )),
            // Above the three bits of the written form.
            Kind::Decimal => Some(Some((a.payload() >> 3).cmp(&(b.payload() >> 3)))),
            Kind::Double => compare_numbers(a, b),
            Kind::DateTime | Kind::DateTimeZoned => {
                Some(Some(inline::instant(a).cmp(&inline::instant(b))))
            }
            Kind::Date | Kind::DateZoned => Some(
                (inline::known_datatype(a) == inline::known_datatype(b))
                    .then(|| inline::instant(a).cmp(&inline::instant(b))),
            ),
            Kind::ShortString => Some(Some(a.cmp(&b))),
            Kind::Special if a.is_literal() && b.is_literal() => Some(Some(a.cmp(&b))),
            _ => None,
        };
    }
    if is_number(kind) && is_number(b.kind()) {
        return compare_numbers(a, b);
    }
    None
}

/// Whether the values of two inline literals are equal, as SPARQL's `=`; the outer `None` means
/// that the ids do not tell, the inner one is an expression error.
#[must_use]
pub fn equals_inline(a: TermId, b: TermId) -> Option<Option<bool>> {
    let (kind, other) = (a.kind(), b.kind());
    if kind == Kind::Double && other == Kind::Double {
        // NaN is equal to nothing, which is no error.
        return compare_numbers(a, b).map(|order| Some(order == Some(Ordering::Equal)));
    }
    if let Some(order) = compare_inline(a, b) {
        let differ = kind != Kind::Date && kind != Kind::DateZoned && !is_number(kind);
        return Some(match order {
            Some(order) => Some(order == Ordering::Equal),
            None if differ => None,
            // A date and a year, or a number and NaN.
            None => Some(false),
        });
    }
    let terms = |kind| matches!(kind, Kind::Iri | Kind::BlankNode);
    if terms(kind) && (terms(other) || b.is_literal()) || terms(other) && a.is_literal() {
        return Some(Some(a == b));
    }
    None
}

const fn is_number(kind: Kind) -> bool {
    matches!(kind, Kind::Integer | Kind::Decimal | Kind::Double)
}

fn compare_numbers(a: TermId, b: TermId) -> Option<Option<Ordering>> {
    use InlineNumber::{Decimal, Double, Float, Integer};
    if let Some(order) = compare_keys(a, b) {
        return Some(Some(order));
    }
    match (inline::number_value(a)?, inline::number_value(b)?) {
        (Double(a), Double(b)) => Some(a.partial_cmp(&b)),
        (Float(a), Float(b)) => Some(a.partial_cmp(&b)),
        (Double(a), Float(b)) => Some(a.partial_cmp(&f64::from(b))),
        (Float(a), Double(b)) => Some(f64::from(a).partial_cmp(&b)),
        #[expect(
            clippy::cast_precision_loss,
            reason = "promotion rounds to the nearest double"
        )]
        (Integer(a), Double(b)) => Some((a as f64).partial_cmp(&b)),
        #[expect(
            clippy::cast_precision_loss,
            reason = "promotion rounds to the nearest double"
        )]
        (Double(a), Integer(b)) => Some(a.partial_cmp(&(b as f64))),
        (Integer(a), Decimal { digits, scale }) => compare_scaled(a, digits, scale).map(Some),
        (Decimal { digits, scale }, Integer(b)) => {
            compare_scaled(b, digits, scale).map(|order| Some(order.reverse()))
        }
        _ => None,
    }
}

/// Compares two inline numbers as they are written, if both have few digits.
fn compare_keys(a: TermId, b: TermId) -> Option<Ordering> {
    Some(inline::comparison_key(a)?.cmp(&inline::comparison_key(b)?))
}

/// Compares an integer with `digits * 10^scale`, if that fits into 128 bits.
fn compare_scaled(integer: i64, digits: i64, scale: i32) -> Option<Ordering> {
    let power = 10_i128.checked_pow(scale.unsigned_abs())?;
    let (mut left, mut right) = (i128::from(integer), i128::from(digits));
    if scale < 0 {
        left = left.checked_mul(power)?;
    } else {
        right = right.checked_mul(power)?;
    }
    Some(left.cmp(&right))
}

/// The order of ORDER BY for two ids of one inline kind, or of two numbers; `None` if the ids do not tell and values
/// must be compared.
#[must_use]
pub fn order_inline(a: TermId, b: TermId) -> Option<Ordering> {
    if a == b {
        return Some(Ordering::Equal);
    }
    if a.kind() != b.kind() {
        return compare_keys(a, b);
    }
    match a.kind() {
        Kind::Integer
        | Kind::Decimal
        | Kind::DateTime
        | Kind::DateTimeZoned
        | Kind::ShortString
        | Kind::Special => compare_inline(a, b)?,
        Kind::Date | Kind::DateZoned => compare_inline(a, b)?,
        Kind::Double => compare_numbers(a, b)?,
        Kind::BlankNode => Some(a.cmp(&b)),
        _ => None,
    }
}
