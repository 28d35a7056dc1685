//! Exact sums of integers and decimals, from which others can be subtracted.
//!
//! Almost all sums fit into 128 bits in units of 10^-18, which is how `Decimal` counts; what does not goes beside
//! them, so that nothing is lost whatever the order.

use num_bigint::BigInt;
use oxsdatatypes::Decimal;

use super::Value;
use super::calculate::{Exact, exact, power_of_ten};

/// The digits behind the point of the units of [`ExactSum::units`].
const SCALE: u32 = 18;
const UNITS_OF_ONE: i128 = 1_000_000_000_000_000_000;

/// A sum of integers and decimals.
#[derive(Clone, Debug, Default)]
pub struct ExactSum {
    /// In units of 10^-18.
    units: i128,
    /// What is to be added to that: digits, and how many of them stand behind the point.
    beyond: Option<Box<(BigInt, u32)>>,
}

impl ExactSum {
    /// Adds an integer of 64 bits.
    pub fn add_integer(&mut self, value: i64) {
        self.add_units(i128::from(value) * UNITS_OF_ONE);
    }

    /// Adds a number. False if it is neither integer nor decimal, or has more than
    /// [`DIGITS_MAX`](super::DIGITS_MAX) digits; it is left out then.
    #[must_use]
    pub fn add(&mut self, value: &Value) -> bool {
        match value {
            Value::Integer(value) => self.add_integer(*value),
            Value::Decimal(value) => self.add_units(i128::from_be_bytes(value.to_be_bytes())),
            _ => match exact(value) {
                Some(Exact { digits, scale, .. }) => self.add_beyond(&digits, scale),
                None => return false,
            },
        }
        true
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &Self) {
        self.add_units(other.units);
        if let Some((digits, scale)) = other.beyond.as_deref() {
            self.add_beyond(digits, *scale);
        }
    }

    /// What is left of the sum without `part`.
    #[must_use]
    pub fn without(&self, part: &Self) -> Self {
        let mut left = self.clone();
        match left.units.checked_sub(part.units) {
            Some(units) => left.units = units,
            None => left.add_beyond(&-BigInt::from(part.units), SCALE),
        }
        if let Some((digits, scale)) = part.beyond.as_deref() {
            left.add_beyond(&-digits, *scale);
        }
        left
    }

    /// The sum as a decimal, or as an integer where all that it is of were some. `None` if it has more than
    /// [`DIGITS_MAX`](super::DIGITS_MAX) digits.
    #[must_use]
    pub fn value(&self, integer: bool) -> Option<Value> {
        if self.beyond.is_none() {
            if !integer {
                let bytes = self.units.to_be_bytes();
                return Some(Value::Decimal(Decimal::from_be_bytes(bytes)));
            }
            if let Ok(value) = i64::try_from(self.units / UNITS_OF_ONE) {
                return Some(Value::Integer(value));
            }
        }
        let mut whole = self.clone();
        whole.units = 0;
        whole.add_beyond(&self.units.into(), SCALE);
        let (mut digits, mut scale) = *whole.beyond?;
        if integer {
            digits /= power_of_ten(scale);
            scale = 0;
        }
        Exact {
            digits,
            scale,
            integer,
        }
        .into_value()
    }

    /// The bytes that it takes outside of itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let digits = self.beyond.as_deref().map(|(digits, _)| digits.bits() / 8);
        digits.map_or(0, |bytes| {
            size_of::<(BigInt, u32)>() + usize::try_from(bytes).unwrap_or(usize::MAX / 2) + 8
        })
    }

    fn add_units(&mut self, units: i128) {
        match self.units.checked_add(units) {
            Some(sum) => self.units = sum,
            None => self.add_beyond(&units.into(), SCALE),
        }
    }

    fn add_beyond(&mut self, digits: &BigInt, scale: u32) {
        let (known, known_scale) = self.beyond.get_or_insert_default().as_mut();
        if scale > *known_scale {
            *known *= power_of_ten(scale - *known_scale);
            *known_scale = scale;
        }
        *known += digits * power_of_ten(*known_scale - scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::Datatype;
    use crate::value::{ExactOperator, calculate};
    use proptest::prelude::*;

    fn number(text: &str) -> Value {
        let datatype = match text.contains('.') {
            true => Datatype::Decimal,
            false => Datatype::Integer,
        };
        Value::from_lexical(text, datatype).unwrap_or_else(|| panic!("{text}"))
    }

    fn sum(texts: &[&str]) -> ExactSum {
        let mut sum = ExactSum::default();
        for text in texts {
            assert!(sum.add(&number(text)), "{text}");
        }
        sum
    }

    fn told(value: Option<Value>) -> Option<String> {
        let literal = value?.to_literal()?;
        let local = literal.datatype().as_str().rsplit('#').next()?.to_owned();
        Some(format!("{local} {}", literal.value()))
    }

    fn check(whole: &[&str], part: &[&str], integer: bool, expected: Option<&str>) {
        let left = sum(whole).without(&sum(part)).value(integer);
        assert_eq!(told(left).as_deref(), expected, "{whole:?} - {part:?}");
    }

    #[test]
    fn what_is_left_is_exact() {
        let max = "9223372036854775807";
        check(&["1", "2", "3"], &["2"], true, Some("integer 4"));
        check(&["1", "0.5"], &["0.5"], true, Some("integer 1"));
        check(&["1", "0.5"], &["1"], false, Some("decimal 0.5"));
        check(&["1"], &["1"], false, Some("decimal 0"));
        check(&[], &[], true, Some("integer 0"));
        check(&[max, "1"], &[], true, Some("integer 9223372036854775808"));
        let many = [max; 40];
        check(&many, &many[..39], true, Some(&format!("integer {max}")));
        check(&many[..39], &many, true, Some(&format!("integer -{max}")));
        let tiny = "0.00000000000000000001";
        check(&[tiny, "1"], &[tiny], true, Some("integer 1"));
        check(
            &[tiny, max, max],
            &[max, max],
            false,
            Some("decimal 0.00000000000000000001"),
        );
    }

    #[test]
    fn only_the_end_is_limited() {
        let (long, one) = (format!("1{}", "0".repeat(998)), "0.1");
        check(&[&long, one], &[&long], false, Some("decimal 0.1"));
        check(
            &[&long, one],
            &[one],
            true,
            Some(&format!("integer {long}")),
        );
        let deep = format!("0.{}1", "0".repeat(900));
        check(&[&long, &deep], &[], false, None);
        check(
            &[&long, &deep],
            &[&deep],
            true,
            Some(&format!("integer {long}")),
        );
        let mut sum = ExactSum::default();
        assert!(!sum.add(&number(&format!("{long}00"))));
        assert!(!sum.add(&Value::Double(1.0)) && !sum.add(&Value::Boolean(true)));
        assert_eq!(told(sum.value(true)).as_deref(), Some("integer 0"));
        assert_eq!(sum.heap_bytes(), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_calculation(
            texts in proptest::collection::vec("-?[0-9]{1,45}(\\.[0-9]{1,30})?", 0..12),
            cut in 0_usize..12,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (part, rest) = texts.split_at(cut.min(texts.len()));
            let left = sum(&texts).without(&sum(part));
            let zero = number("0.0");
            let expected = rest.iter().fold(zero, |sum, text| {
                calculate(ExactOperator::Add, &sum, &number(text)).unwrap()
            });
            prop_assert_eq!(told(left.value(false)), told(Some(expected)));
            let mut both = sum(part);
            both.add_sum(&sum(rest));
            prop_assert_eq!(told(both.value(false)), told(sum(&texts).value(false)));
        }
    }
}
