//! Exact arithmetic of integers and decimals of any length: the slow path, for what 64 bits and
//! `Decimal` do not hold.
//!
//! Sums, differences and products are exact. A quotient has 18 digits behind the point, or as many as
//! the operand with more, and what follows is cut off, as `Decimal` does with its 18.
//!
//! # Invariants
//! 1. Where `Decimal` has a result, this is it (`tests::agrees_with_decimals`).
//!
//! # Limits
//! Operands and results have at most [`DIGITS_MAX`] digits; what is longer is an expression error.
//!
//! # References
//! XPath functions and operators 3.1, section 4.2: integers are not bounded, and what a decimal holds
//! is for the implementation to say.

use num_bigint::{BigInt, Sign};
use oxsdatatypes::Decimal;

use super::{BigNumber, Value};

/// The most digits, before and behind the point together, of a number that is calculated with.
pub const DIGITS_MAX: u32 = 1_000;

/// The least number of digits behind the point that a quotient is calculated to.
const QUOTIENT_SCALE: u32 = 18;

/// An operation on two exact numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExactOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`, which gives a decimal.
    Divide,
}

/// How a decimal becomes whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rounding {
    /// To the nearest, halves up.
    Nearest,
    /// Up.
    Ceiling,
    /// Down.
    Floor,
    /// Towards zero, to an integer.
    Integer,
}

/// `digits * 10^-scale`
pub(super) struct Exact {
    pub(super) digits: BigInt,
    pub(super) scale: u32,
    pub(super) integer: bool,
}

/// Calculates with two integers or decimals. `None` is an expression error: one is neither, a
/// division by zero, or more than [`DIGITS_MAX`] digits.
#[must_use]
pub fn calculate(operator: ExactOperator, left: &Value, right: &Value) -> Option<Value> {
    let (left, right) = (exact(left)?, exact(right)?);
    let integer = left.integer && right.integer;
    let scale = left.scale.max(right.scale);
    let (digits, scale) = match operator {
        ExactOperator::Add => (left.scaled(scale) + right.scaled(scale), scale),
        ExactOperator::Subtract => (left.scaled(scale) - right.scaled(scale), scale),
        ExactOperator::Multiply => (left.digits * right.digits, left.scale + right.scale),
        ExactOperator::Divide => {
            if right.digits.sign() == Sign::NoSign {
                return None;
            }
            let places = scale.max(QUOTIENT_SCALE);
            let dividend = left.digits * power_of_ten(places + right.scale);
            (dividend / (right.digits * power_of_ten(left.scale)), places)
        }
    };
    let integer = integer && operator != ExactOperator::Divide;
    Exact {
        digits,
        scale,
        integer,
    }
    .into_value()
}

/// Makes an integer or decimal whole; a decimal stays one but for [`Rounding::Integer`]. `None` if
/// it is neither, or has more than [`DIGITS_MAX`] digits.
#[must_use]
pub fn round(rounding: Rounding, value: &Value) -> Option<Value> {
    let Exact {
        digits,
        scale,
        integer,
    } = exact(value)?;
    let unit = power_of_ten(scale);
    let one = BigInt::from(1);
    let floor = |digits: BigInt, unit: &BigInt| {
        let rest = &digits % unit;
        let whole = digits / unit;
        if rest.sign() == Sign::Minus {
            whole - &one
        } else {
            whole
        }
    };
    let digits = match rounding {
        Rounding::Nearest => floor(digits * 2 + &unit, &(&unit * 2)),
        Rounding::Ceiling => -floor(-digits, &unit),
        Rounding::Floor => floor(digits, &unit),
        Rounding::Integer => digits / unit,
    };
    Exact {
        digits,
        scale: 0,
        integer: integer || rounding == Rounding::Integer,
    }
    .into_value()
}

/// The integer part of a double, exactly; `None` for INF and NaN.
#[must_use]
pub fn integer_of(value: f64) -> Option<Value> {
    if !value.is_finite() {
        return None;
    }
    // Digits without exponent, all of them those of the double.
    let text = format!("{:.0}", value.trunc());
    Exact {
        digits: text.parse().ok()?,
        scale: 0,
        integer: true,
    }
    .into_value()
}

pub(super) fn exact(value: &Value) -> Option<Exact> {
    Some(match value {
        Value::Integer(value) => Exact {
            digits: (*value).into(),
            scale: 0,
            integer: true,
        },
        Value::Decimal(value) => Exact {
            digits: i128::from_be_bytes(value.to_be_bytes()).into(),
            scale: 18,
            integer: false,
        },
        Value::Big(value) => {
            if value.lexical_digits() > u64::from(DIGITS_MAX) {
                return None;
            }
            let (digits, power) = value.scaled()?;
            let digits: BigInt = digits.parse().ok()?;
            let digits = if value.is_negative() { -digits } else { digits };
            let (digits, scale) = match u32::try_from(power) {
                Ok(power) => (digits * power_of_ten(power), 0),
                Err(_) => (digits, u32::try_from(power.unsigned_abs()).ok()?),
            };
            Exact {
                digits,
                scale,
                integer: value.is_integer(),
            }
        }
        _ => return None,
    })
}

impl Exact {
    /// The digits for a larger scale.
    fn scaled(&self, scale: u32) -> BigInt {
        &self.digits * power_of_ten(scale - self.scale)
    }

    /// The value in its narrowest form.
    pub(super) fn into_value(self) -> Option<Value> {
        if self.integer
            && let Ok(value) = i64::try_from(&self.digits)
        {
            return Some(Value::Integer(value));
        }
        let negative = self.digits.sign() == Sign::Minus;
        let digits = self.digits.magnitude().to_string();
        let Some(big) = BigNumber::from_digits(negative, &digits, self.scale, self.integer) else {
            return Some(Value::Decimal(Decimal::default()));
        };
        if big.lexical_digits() > u64::from(DIGITS_MAX) {
            return None;
        }
        if !self.integer
            && let Ok(value) = big.lexical().parse()
        {
            return Some(Value::Decimal(value));
        }
        Some(Value::Big(Box::new(big)))
    }
}

pub(super) fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

impl Value {
    /// An integer or decimal as `xsd:decimal`.
    #[must_use]
    pub fn as_decimal(&self) -> Option<Self> {
        match self {
            Self::Integer(value) => Some(Self::Decimal((*value).into())),
            Self::Decimal(value) => Some(Self::Decimal(*value)),
            Self::Big(big) => Some(match big.lexical().parse() {
                Ok(value) => Self::Decimal(value),
                Err(_) => Self::Big(Box::new(big.as_decimal())),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::Datatype;
    use proptest::prelude::*;

    fn number(text: &str) -> Value {
        let datatype = if text.contains('.') {
            Datatype::Decimal
        } else {
            Datatype::Integer
        };
        Value::from_lexical(text, datatype).unwrap_or_else(|| panic!("{text}"))
    }

    fn told(value: Option<Value>) -> Option<String> {
        let literal = value?.to_literal()?;
        let local = literal.datatype().as_str().rsplit('#').next()?.to_owned();
        Some(format!("{local} {}", literal.value()))
    }

    fn check(left: &str, operator: ExactOperator, right: &str, expected: Option<&str>) {
        let found = told(calculate(operator, &number(left), &number(right)));
        assert_eq!(found.as_deref(), expected, "{left} {operator:?} {right}");
    }

    #[test]
    fn beyond_64_bits_nothing_is_lost() {
        use ExactOperator::{Add, Divide, Multiply, Subtract};
        let max = "9223372036854775807";
        check(max, Add, "1", Some("integer 9223372036854775808"));
        check(
            "9223372036854775808",
            Subtract,
            "1",
            Some("integer 9223372036854775807"),
        );
        check(
            max,
            Multiply,
            max,
            Some("integer 85070591730234615847396907784232501249"),
        );
        check(
            "10000000000000000000",
            Divide,
            "4",
            Some("decimal 2500000000000000000"),
        );
        check("1.0", Divide, "3", Some("decimal 0.333333333333333333"));
        check("-2.0", Divide, "3", Some("decimal -0.666666666666666666"));
        check(
            "0.0000000000000000000000001",
            Divide,
            "0.3",
            Some("decimal 0.0000000000000000000000003"),
        );
        check(
            "0.0000000001",
            Multiply,
            "0.0000000001",
            Some("decimal 0.00000000000000000001"),
        );
        check("1", Divide, "0", None);
        check("1.5", Subtract, "1.5", Some("decimal 0"));
    }

    #[test]
    fn digits_are_limited() {
        let long = format!("1{}", "0".repeat(999));
        let one = number("1");
        assert!(calculate(ExactOperator::Add, &number(&long), &one).is_some());
        assert!(calculate(ExactOperator::Add, &number(&format!("{long}0")), &one).is_none());
        assert!(calculate(ExactOperator::Multiply, &number(&long), &number("10")).is_none());
        let deep = format!("0.{}1", "0".repeat(1_000_000));
        assert!(calculate(ExactOperator::Add, &number(&deep), &one).is_none());
    }

    #[test]
    fn decimals_become_whole() {
        use Rounding::{Ceiling, Floor, Integer, Nearest};
        let big = "123456789012345678901234567890.5";
        for (rounding, text, expected) in [
            (Nearest, big, "decimal 123456789012345678901234567891"),
            (Nearest, "-2.5", "decimal -2"),
            (Nearest, "-2.51", "decimal -3"),
            (Ceiling, big, "decimal 123456789012345678901234567891"),
            (Ceiling, "-2.5", "decimal -2"),
            (Floor, big, "decimal 123456789012345678901234567890"),
            (Floor, "-2.5", "decimal -3"),
            (Integer, big, "integer 123456789012345678901234567890"),
            (Integer, "-2.5", "integer -2"),
            (Integer, "0.000000000000000000000000000009", "integer 0"),
        ] {
            let found = told(round(rounding, &number(text)));
            assert_eq!(found.as_deref(), Some(expected), "{rounding:?} {text}");
        }
        assert_eq!(
            told(integer_of(1e23)).as_deref(),
            Some("integer 99999999999999991611392")
        );
        assert_eq!(told(integer_of(-1.9)).as_deref(), Some("integer -1"));
        assert!(integer_of(f64::NAN).is_none() && integer_of(f64::INFINITY).is_none());
    }

    proptest! {
        #[test]
        fn agrees_with_decimals(
            a in "-?[0-9]{1,12}(\\.[0-9]{1,18})?",
            b in "-?[0-9]{1,12}(\\.[0-9]{1,18})?",
        ) {
            let decimal = |text: &str| text.parse::<Decimal>().unwrap();
            let (x, y) = (decimal(&a), decimal(&b));
            for (operator, result) in [
                (ExactOperator::Add, x.checked_add(y)),
                (ExactOperator::Subtract, x.checked_sub(y)),
                (ExactOperator::Multiply, x.checked_mul(y)),
                (ExactOperator::Divide, x.checked_div(y)),
            ] {
                if let Some(result) = result {
                    let ours = calculate(operator, &Value::Decimal(x), &Value::Decimal(y));
                    prop_assert_eq!(told(ours), Some(format!("decimal {result}")));
                }
            }
            for (rounding, result) in [
                (Rounding::Nearest, x.checked_round()),
                (Rounding::Ceiling, x.checked_ceil()),
                (Rounding::Floor, x.checked_floor()),
            ] {
                let ours = round(rounding, &Value::Decimal(x));
                prop_assert_eq!(told(ours), Some(format!("decimal {}", result.unwrap())));
            }
        }
    }
}
