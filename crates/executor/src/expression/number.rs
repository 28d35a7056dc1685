//! One number of a column, and what is calculated with it.
//!
//! Integers and decimals are digits with a number of places behind the point, so that products and sums need no division;
//! nothing is on the heap. What does not fit, and what is rounded in ways of its own, is left to the kernels that know
//! all values: `None` means that, and not an expression error, throughout.
//!
//! # Invariants
//! 1. A result is what [`super::arithmetic`] and [`crate::function`] give (`tests::kernels`).
//! 2. A decimal has at most [`PLACES_MAX`] places, and fits into [`Decimal`] (`Number::of_digits`).

use std::cmp::Ordering;

use oxsdatatypes::{Decimal, Double, Float};
use stoa_planner::expression::{Comparison, Function};
use stoa_terms::inline::{self, InlineNumber};
use stoa_terms::value::Value;
use stoa_terms::{Kind, TermId};

/// The most places behind the point, which are those of [`Decimal`].
const PLACES_MAX: u32 = 18;

#[expect(clippy::indexing_slicing, reason = "below the length, when compiled")]
const POWERS: [i128; PLACES_MAX as usize + 1] = {
    let mut powers = [1; PLACES_MAX as usize + 1];
    let mut place = 1;
    while place < powers.len() {
        powers[place] = powers[place - 1] * 10;
        place += 1;
    }
    powers
};

/// Integers up to here are doubles exactly.
const EXACT_DOUBLE: u128 = 1 << 53;

/// One row of a column of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    /// An expression error, or unbound.
    Error,
    /// `xsd:integer`, and as an operand what derives from it.
    Integer(i64),
    /// `digits / 10^places`, an `xsd:decimal`.
    Decimal { digits: i128, places: u8 },
    /// `xsd:float`
    Float(f32),
    /// `xsd:double`
    Double(f64),
    /// A value that is none of these: of a column of results its place among them, of another one its row.
    Other(u32),
}

fn power(places: u32) -> i128 {
    POWERS.get(places as usize).copied().unwrap_or(1)
}

impl Number {
    /// The number that an inline id stands for; unbound is an error.
    pub(super) fn of_id(id: TermId) -> Option<Self> {
        if id.is_unbound() {
            return Some(Self::Error);
        }
        if id.kind() == Kind::Decimal {
            let (digits, places) = inline::decimal_places(id)?;
            return Self::of_digits(digits.into(), places);
        }
        match inline::number_value(id)? {
            InlineNumber::Integer(value) => Some(Self::Integer(value)),
            InlineNumber::Float(value) => Some(Self::Float(value)),
            InlineNumber::Double(value) => Some(Self::Double(value)),
            InlineNumber::Decimal { .. } => None,
        }
    }

    pub(super) fn of_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(value) => Some(Self::Integer(*value)),
            Value::Decimal(value) => {
                Self::of_digits(i128::from_be_bytes(value.to_be_bytes()), PLACES_MAX)
            }
            Value::Float(value) => Some(Self::Float(*value)),
            Value::Double(value) => Some(Self::Double(*value)),
            _ => None,
        }
    }

    /// The decimal `digits / 10^places`, if it has one of the forms that are kept: up to 64 bits, or all places.
    fn of_digits(digits: i128, places: u32) -> Option<Self> {
        let fits = places < PLACES_MAX && i64::try_from(digits).is_ok() || places == PLACES_MAX;
        let places = u8::try_from(places).ok()?;
        fits.then_some(Self::Decimal { digits, places })
    }

    /// The value; `None` for an error, and for another value.
    pub(crate) fn value(self) -> Option<Value> {
        match self {
            Self::Error | Self::Other(_) => None,
            Self::Integer(value) => Some(Value::Integer(value)),
            Self::Decimal { .. } => {
                let (digits, places) = self.exact()?;
                Some(Value::Decimal(Decimal::new(digits, places).ok()?))
            }
            Self::Float(value) => Some(Value::Float(value)),
            Self::Double(value) => Some(Value::Double(value)),
        }
    }

    /// The id of the term, unbound for an error; `None` if it is not inline.
    pub(crate) fn id(self) -> Option<TermId> {
        match self {
            Self::Error => Some(TermId::UNBOUND),
            Self::Integer(value) => inline::encode_i64(value),
            Self::Decimal { digits, places } => inline::encode_decimal_parts(digits, places.into()),
            Self::Float(value) => inline::encode_f32(value),
            Self::Double(value) => inline::encode_f64(value),
            Self::Other(_) => None,
        }
    }

    /// Digits and places of an integer or decimal.
    fn exact(self) -> Option<(i128, u32)> {
        match self {
            Self::Integer(value) => Some((value.into(), 0)),
            Self::Decimal { digits, places } => Some((digits, places.into())),
            _ => None,
        }
    }

    /// The nearest double.
    fn to_f64(self) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "promotion of an integer rounds, other digits and powers are exact"
        )]
        match self {
            Self::Integer(value) => Some(value as f64),
            Self::Decimal { digits, places } => (digits.unsigned_abs() <= EXACT_DOUBLE)
                .then(|| digits as f64 / power(places.into()) as f64),
            Self::Float(value) => Some(value.into()),
            Self::Double(value) => Some(value),
            Self::Error | Self::Other(_) => None,
        }
    }

    /// The nearest float of what is no double.
    fn to_f32(self) -> Option<f32> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "promotion rounds to the nearest float"
        )]
        match self {
            Self::Integer(value) => Some(value as f32),
            Self::Float(value) => Some(value),
            // A decimal would be rounded twice.
            _ => None,
        }
    }
}

// ---- comparison ----

/// What a comparison of two numbers gives; NaN is neither equal, smaller nor larger, which is no error.
pub(super) fn compare(comparison: Comparison, a: Number, b: Number) -> Option<bool> {
    let order = order(a, b)?;
    Some(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        Comparison::SameTerm => return None,
    })
}

/// The order of two numbers, the inner `None` for NaN.
fn order(a: Number, b: Number) -> Option<Option<Ordering>> {
    use Number::{Double, Float, Integer};
    match (a, b) {
        (Integer(a), Integer(b)) => Some(Some(a.cmp(&b))),
        (Double(_), _) | (_, Double(_)) => Some(a.to_f64()?.partial_cmp(&b.to_f64()?)),
        (Float(_), _) | (_, Float(_)) => Some(a.to_f32()?.partial_cmp(&b.to_f32()?)),
        _ => {
            let (a, b, _) = aligned(a, b)?;
            Some(Some(a.cmp(&b)))
        }
    }
}

/// Digits of two exact numbers with the same number of places. Those of fewer places have up to 64 bits, so that none
/// outgrows 128.
fn aligned(a: Number, b: Number) -> Option<(i128, i128, u32)> {
    let ((a, a_places), (b, b_places)) = (a.exact()?, b.exact()?);
    Some(match a_places.cmp(&b_places) {
        Ordering::Equal => (a, b, a_places),
        Ordering::Less => (a.checked_mul(power(b_places - a_places))?, b, b_places),
        Ordering::Greater => (a, b.checked_mul(power(a_places - b_places))?, a_places),
    })
}

// ---- arithmetic ----

/// What two numbers give by one of these ways for integers, for digits with the same places, for floats and doubles.
fn promoted(
    a: Number,
    b: Number,
    exact: impl FnOnce() -> Option<Number>,
    float: impl FnOnce(f32, f32) -> f32,
    double: impl FnOnce(f64, f64) -> f64,
) -> Option<Number> {
    use Number::{Double, Error, Float, Other};
    match (a, b) {
        (Other(_), _) | (_, Other(_)) => None,
        (Error, _) | (_, Error) => Some(Error),
        (Double(_), _) | (_, Double(_)) => Some(Double(double(a.to_f64()?, b.to_f64()?))),
        (Float(_), _) | (_, Float(_)) => Some(Float(float(a.to_f32()?, b.to_f32()?))),
        _ => exact(),
    }
}

pub(super) fn add(a: Number, b: Number) -> Option<Number> {
    let exact = || match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => a.checked_add(b).map(Number::Integer),
        _ => {
            let (a, b, places) = aligned(a, b)?;
            Number::of_digits(a.checked_add(b)?, places)
        }
    };
    promoted(a, b, exact, |a, b| a + b, |a, b| a + b)
}

pub(super) fn subtract(a: Number, b: Number) -> Option<Number> {
    let exact = || match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => a.checked_sub(b).map(Number::Integer),
        _ => {
            let (a, b, places) = aligned(a, b)?;
            Number::of_digits(a.checked_sub(b)?, places)
        }
    };
    promoted(a, b, exact, |a, b| a - b, |a, b| a - b)
}

pub(super) fn multiply(a: Number, b: Number) -> Option<Number> {
    let exact = || match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => a.checked_mul(b).map(Number::Integer),
        _ => {
            let ((a, a_places), (b, b_places)) = (a.exact()?, b.exact()?);
            let (digits, places) = without_zeros(a.checked_mul(b)?, a_places + b_places);
            Number::of_digits(digits, places)
        }
    };
    promoted(a, b, exact, |a, b| a * b, |a, b| a * b)
}

/// The same number with fewer zeros behind the point, where it has too many digits or places.
fn without_zeros(mut digits: i128, mut places: u32) -> (i128, u32) {
    let is_long = |digits, places| {
        places > PLACES_MAX || places != PLACES_MAX && i64::try_from(digits).is_err()
    };
    while places > 0 && is_long(digits, places) && digits % 10 == 0 {
        digits /= 10;
        places -= 1;
    }
    (digits, places)
}

/// The quotient of two exact numbers is a decimal of [`PLACES_MAX`] places, what follows being cut off; of division by
/// zero an error.
pub(super) fn divide(a: Number, b: Number) -> Option<Number> {
    let exact = || {
        let (a, b, _) = aligned(a, b)?;
        if b == 0 {
            return Some(Number::Error);
        }
        let (whole, rest) = match (i64::try_from(a), i64::try_from(b)) {
            // Shorter by far than of 128 bits.
            (Ok(a), Ok(b)) => (a.checked_div(b)?.into(), a.checked_rem(b)?.into()),
            _ => (a.checked_div(b)?, a.checked_rem(b)?),
        };
        if rest == 0 {
            return match i64::try_from(whole) {
                Ok(_) => Number::of_digits(whole, 0),
                Err(_) => None,
            };
        }
        let unit = power(PLACES_MAX);
        let fraction = rest.checked_mul(unit)? / b;
        let digits = whole.checked_mul(unit)?.checked_add(fraction)?;
        Number::of_digits(digits, PLACES_MAX)
    };
    promoted(a, b, exact, |a, b| a / b, |a, b| a / b)
}

// ---- one operand ----

/// `-value`
pub(super) fn negate(value: Number) -> Option<Number> {
    match value {
        Number::Error => Some(Number::Error),
        Number::Integer(value) => value.checked_neg().map(Number::Integer),
        Number::Decimal { digits, places } => {
            Number::of_digits(digits.checked_neg()?, places.into())
        }
        Number::Float(value) => Some(Number::Float(-value)),
        Number::Double(value) => Some(Number::Double(-value)),
        Number::Other(_) => None,
    }
}

/// What a function of one number gives for each row; `None` for other functions.
pub(super) fn function(function: Function) -> Option<fn(Number) -> Option<Number>> {
    Some(match function {
        Function::Abs => abs,
        Function::Round => round,
        Function::Ceil => ceil,
        Function::Floor => floor,
        Function::CastInteger => cast_integer,
        Function::CastDecimal => cast_decimal,
        Function::CastFloat => cast_float,
        Function::CastDouble => cast_double,
        _ => return None,
    })
}

fn abs(value: Number) -> Option<Number> {
    match value {
        Number::Integer(value) => value.checked_abs().map(Number::Integer),
        Number::Decimal { digits, places } => {
            Number::of_digits(digits.checked_abs()?, places.into())
        }
        Number::Float(value) => Some(Number::Float(value.abs())),
        Number::Double(value) => Some(Number::Double(value.abs())),
        Number::Error | Number::Other(_) => same(value),
    }
}

/// For functions that change neither errors nor integers.
fn same(value: Number) -> Option<Number> {
    match value {
        Number::Other(_) => None,
        value => Some(value),
    }
}

/// Makes a decimal whole: its digits before the point, rounded down, and those behind it go through `whole`, with what
/// one is in these places.
fn make_whole(digits: i128, places: u8, whole: fn(i128, i128, i128) -> i128) -> Option<Number> {
    let unit = power(places.into());
    let rest = digits.rem_euclid(unit);
    Number::of_digits(whole(digits.div_euclid(unit), rest, unit), 0)
}

/// Halves are rounded up.
fn round(value: Number) -> Option<Number> {
    match value {
        Number::Decimal { digits, places } => make_whole(digits, places, |floor, rest, unit| {
            floor + i128::from(2 * rest >= unit)
        }),
        Number::Float(value) => Some(Number::Float(Float::from(value).round().into())),
        Number::Double(value) => Some(Number::Double(Double::from(value).round().into())),
        value => same(value),
    }
}

fn ceil(value: Number) -> Option<Number> {
    match value {
        Number::Decimal { digits, places } => make_whole(digits, places, |floor, rest, _| {
            floor + i128::from(rest != 0)
        }),
        Number::Float(value) => Some(Number::Float(value.ceil())),
        Number::Double(value) => Some(Number::Double(value.ceil())),
        value => same(value),
    }
}

fn floor(value: Number) -> Option<Number> {
    match value {
        Number::Decimal { digits, places } => make_whole(digits, places, |floor, _, _| floor),
        Number::Float(value) => Some(Number::Float(value.floor())),
        Number::Double(value) => Some(Number::Double(value.floor())),
        value => same(value),
    }
}

// ---- casts ----

/// The integer part.
fn cast_integer(value: Number) -> Option<Number> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let of_double = |value: f64| {
        let whole = value.trunc();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is looked whether it fits"
        )]
        (-LIMIT..LIMIT)
            .contains(&whole)
            .then_some(Number::Integer(whole as i64))
    };
    match value {
        Number::Decimal { digits, places } => {
            let whole = digits / power(places.into());
            i64::try_from(whole).ok().map(Number::Integer)
        }
        Number::Float(value) => of_double(value.into()),
        Number::Double(value) => of_double(value),
        value => same(value),
    }
}

fn cast_decimal(value: Number) -> Option<Number> {
    match value {
        Number::Integer(value) => Number::of_digits(value.into(), 0),
        Number::Float(_) | Number::Double(_) => None,
        value => same(value),
    }
}

fn cast_float(value: Number) -> Option<Number> {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "a cast rounds")]
        Number::Double(value) => Some(Number::Float(value as f32)),
        Number::Error => Some(Number::Error),
        value => value.to_f32().map(Number::Float),
    }
}

fn cast_double(value: Number) -> Option<Number> {
    match value {
        Number::Error => Some(Number::Error),
        value => value.to_f64().map(Number::Double),
    }
}
