//! Integers and decimals of any length, compared by their digits.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::Value;

/// A number that is not zero, as its significant digits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BigNumber {
    negative: bool,
    /// The power of ten of the first digit.
    exponent: i64,
    /// Digits without zeros at either end.
    digits: Box<str>,
    integer: bool,
}

/// The same, borrowed: (negative, exponent, digits); digits are empty for zero.
type Digits<'a> = (bool, i64, Cow<'a, str>);

impl BigNumber {
    /// Reads the lexical form of an integer or, with `integer` false, of a decimal.
    pub(super) fn parse(lexical: &str, integer: bool) -> Option<Self> {
        let (negative, exponent, digits) = significant(lexical, integer)?;
        (!digits.is_empty()).then(|| Self {
            negative,
            exponent,
            digits: digits.into(),
            integer,
        })
    }

    /// The number `digits * 10^-scale`, `digits` in decimal without sign; `None` for zero.
    pub(super) fn from_digits(
        negative: bool,
        digits: &str,
        scale: u32,
        integer: bool,
    ) -> Option<Self> {
        let digits = digits.trim_start_matches('0');
        let exponent = i64::try_from(digits.len()).ok()? - 1 - i64::from(scale);
        let digits = digits.trim_end_matches('0');
        (!digits.is_empty()).then(|| Self {
            negative,
            exponent,
            digits: digits.into(),
            integer,
        })
    }

    /// The same number as a decimal.
    pub(super) fn as_decimal(&self) -> Self {
        Self {
            integer: false,
            ..self.clone()
        }
    }

    /// Digits without zeros at the ends, and the power of ten of the last one.
    pub(super) fn scaled(&self) -> Option<(&str, i64)> {
        let behind_first = i64::try_from(self.digits.len()).ok()? - 1;
        Some((&self.digits, self.exponent.checked_sub(behind_first)?))
    }

    /// How many digits its lexical form has.
    pub(super) fn lexical_digits(&self) -> u64 {
        let len = self.digits.len() as u64;
        match u64::try_from(self.exponent) {
            Ok(exponent) => len.max(exponent.saturating_add(1)),
            Err(_) => len.saturating_add(self.exponent.unsigned_abs()),
        }
    }

    /// The bytes that it takes beside the value that holds it.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.digits.len()
    }

    /// Whether it is smaller than zero.
    #[must_use]
    pub const fn is_negative(&self) -> bool {
        self.negative
    }

    /// Whether it is of `xsd:integer` or what derives from it.
    #[must_use]
    pub const fn is_integer(&self) -> bool {
        self.integer
    }

    /// The nearest double.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        self.rounded().parse().unwrap_or(f64::NAN)
    }

    /// The nearest float.
    #[must_use]
    pub fn to_f32(&self) -> f32 {
        self.rounded().parse().unwrap_or(f32::NAN)
    }

    fn rounded(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let (first, rest) = self.digits.split_at(1);
        format!("{sign}{first}.{rest}e{}", self.exponent)
    }

    /// The canonical lexical form.
    #[must_use]
    pub fn lexical(&self) -> String {
        let mut text = String::from(if self.negative { "-" } else { "" });
        let Ok(exponent) = usize::try_from(self.exponent) else {
            text.push_str("0.");
            let zeros = usize::try_from(-1 - self.exponent).unwrap_or(0);
            text.extend(std::iter::repeat_n('0', zeros));
            text.push_str(&self.digits);
            return text;
        };
        let whole = exponent + 1;
        if let Some((head, tail)) = self.digits.split_at_checked(whole) {
            text.push_str(head);
            if !tail.is_empty() {
                text.push('.');
                text.push_str(tail);
            }
        } else {
            text.push_str(&self.digits);
            text.extend(std::iter::repeat_n('0', whole - self.digits.len()));
        }
        text
    }
}

/// Sign, power of ten of the first digit, and digits without zeros at the ends, of
/// `[+-]?[0-9]+`, or with a fraction if not `integer`.
fn significant(lexical: &str, integer: bool) -> Option<(bool, i64, String)> {
    let (negative, rest) = match lexical.as_bytes().first() {
        Some(b'-') => (true, lexical.get(1..)?),
        Some(b'+') => (false, lexical.get(1..)?),
        _ => (false, lexical),
    };
    let (whole, fraction) = match rest.split_once('.') {
        Some(_) if integer => return None,
        Some(parts) => parts,
        None => (rest, ""),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let mut digits = String::with_capacity(whole.len() + fraction.len());
    digits.push_str(whole);
    digits.push_str(fraction);
    let mut exponent = i64::try_from(whole.len()).ok()? - 1;
    if whole.is_empty() {
        let zeros = digits.len() - digits.trim_start_matches('0').len();
        digits.drain(..zeros);
        exponent -= i64::try_from(zeros).ok()?;
    }
    digits.truncate(digits.trim_end_matches('0').len());
    Some((negative, exponent, digits))
}

fn digits_of(value: &Value) -> Option<Digits<'_>> {
    let text = match value {
        Value::Big(big) => {
            return Some((big.negative, big.exponent, Cow::Borrowed(&*big.digits)));
        }
        Value::Integer(value) => value.to_string(),
        Value::Decimal(value) => value.to_string(),
        // The shortest text that gives the double back stands for it.
        Value::Double(value) if value.is_finite() => format!("{value}"),
        Value::Float(value) if value.is_finite() => format!("{}", f64::from(*value)),
        _ => return None,
    };
    let (negative, exponent, digits) = significant(&text, false)?;
    Some((negative && !digits.is_empty(), exponent, Cow::Owned(digits)))
}

/// Compares two numbers digit by digit; `None` for INF and NaN.
pub(super) fn compare_digits(a: &Value, b: &Value) -> Option<Ordering> {
    let (a_negative, a_exponent, a_digits) = digits_of(a)?;
    let (b_negative, b_exponent, b_digits) = digits_of(b)?;
    let sign = |negative: bool, digits: &str| match (digits.is_empty(), negative) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => -1,
    };
    let signs = sign(a_negative, &a_digits).cmp(&sign(b_negative, &b_digits));
    if signs != Ordering::Equal || a_digits.is_empty() {
        return Some(signs);
    }
    // Without zeros at the ends, the order of the texts is that of the fractions that they form.
    let magnitude = a_exponent
        .cmp(&b_exponent)
        .then_with(|| a_digits.cmp(&b_digits));
    Some(if a_negative {
        magnitude.reverse()
    } else {
        magnitude
    })
}
