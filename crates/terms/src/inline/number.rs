//! Inline numbers: integers as themselves, decimals, doubles and floats as digits.
//!
//! ```text
//! integer          value + 2^55 (56)                                    datatype (4)
//! decimal, double  not negative (1)  exponent + 32 (6)  digits (50)     written form (3)
//! ```
//! `digits` is a number of fifteen digits without leading zero, `exponent` the power of ten of the
//! first one; zero has exponent field and digits 0. Exponent and digits of negative numbers are
//! complemented. Exponent field 63 stands for INF (digits 0) and NaN (digits 1, above INF).

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "fields are masked to their width, powers of ten are indexed by counts of digits"
)]

use crate::datatype::Datatype;
use crate::{Kind, TermId};

const INTEGER_BIAS: i64 = 1 << 55;
const INTEGER_CODE_BITS: u32 = 4;

/// Sub-codes of integers; the position is the code.
const INTEGER_DATATYPES: [Datatype; 13] = [
    Datatype::Integer,
    Datatype::Int,
    Datatype::Long,
    Datatype::Short,
    Datatype::Byte,
    Datatype::NonNegativeInteger,
    Datatype::PositiveInteger,
    Datatype::NonPositiveInteger,
    Datatype::NegativeInteger,
    Datatype::UnsignedLong,
    Datatype::UnsignedInt,
    Datatype::UnsignedShort,
    Datatype::UnsignedByte,
];

const DIGITS: u32 = 15;
const DIGITS_BITS: u32 = 50;
const DIGITS_MASK: u64 = (1 << DIGITS_BITS) - 1;
const FORM_BITS: u32 = 3;
const FORM_MASK: u64 = (1 << FORM_BITS) - 1;
const MAGNITUDE_BITS: u32 = 56;
const MAGNITUDE_MASK: u64 = (1 << MAGNITUDE_BITS) - 1;
const EXPONENT_BIAS: i32 = 32;
const EXPONENT_MIN: i32 = -31;
const EXPONENT_MAX: i32 = 30;
const EXPONENT_SPECIAL: u64 = 63;
const POSITIVE: u64 = 1 << MAGNITUDE_BITS;

/// Written forms of doubles; a float has [`FORM_FLOAT`] added.
const FORM_SCIENTIFIC: u64 = 0; // 1.0E2
const FORM_PLAIN: u64 = 1; // 100.0, 48.85
const FORM_INTEGRAL: u64 = 2; // 100
const FORM_OTHER: u64 = 3; // 97.90; beyond PLAIN_MIN..=PLAIN_MAX as C prints it: 1e+20, 1.5e-07
const FORM_FLOAT: u64 = 4;
/// Powers of ten of the first digit between which [`FORM_OTHER`] is plain with one zero more.
const PLAIN_MIN: i32 = -4;
const PLAIN_MAX: i32 = 15;

/// Powers of ten that doubles hold exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut i = 1;
    while i < 20 {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

// ---- integers ----

pub(super) fn encode_i64(value: i64) -> Option<TermId> {
    pack_integer(value, 0)
}

fn pack_integer(value: i64, code: u64) -> Option<TermId> {
    let biased = value.checked_add(INTEGER_BIAS)? as u64;
    (biased < 1 << 56).then(|| TermId::new(Kind::Integer, (biased << INTEGER_CODE_BITS) | code))
}

pub(super) fn encode_integer(lexical: &str, datatype: Datatype) -> Option<TermId> {
    let bytes = lexical.as_bytes();
    let (negative, digits) = match bytes.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, bytes),
    };
    if digits.is_empty() || digits.len() > 17 || (digits[0] == b'0' && bytes.len() > 1) {
        return None;
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    if negative {
        value = -value;
    }
    let (code, allowed) = match datatype {
        Datatype::Integer => (0, true),
        Datatype::Int => (1, i32::try_from(value).is_ok()),
        Datatype::Long => (2, true),
        Datatype::Short => (3, i16::try_from(value).is_ok()),
        Datatype::Byte => (4, i8::try_from(value).is_ok()),
        Datatype::NonNegativeInteger => (5, value >= 0),
        Datatype::PositiveInteger => (6, value > 0),
        Datatype::NonPositiveInteger => (7, value <= 0),
        Datatype::NegativeInteger => (8, value < 0),
        Datatype::UnsignedLong => (9, value >= 0),
        Datatype::UnsignedInt => (10, u32::try_from(value).is_ok()),
        Datatype::UnsignedShort => (11, u16::try_from(value).is_ok()),
        Datatype::UnsignedByte => (12, u8::try_from(value).is_ok()),
        _ => return None,
    };
    if allowed {
        pack_integer(value, code)
    } else {
        None
    }
}

/// The value of an inline integer; only for ids of [`Kind::Integer`].
#[must_use]
pub const fn integer_value(id: TermId) -> i64 {
    (id.payload() >> INTEGER_CODE_BITS) as i64 - INTEGER_BIAS
}

pub(super) fn integer_datatype(id: TermId) -> Option<Datatype> {
    INTEGER_DATATYPES
        .get((id.payload() & 0xf) as usize)
        .copied()
}

pub(super) fn write_integer(id: TermId, out: &mut Vec<u8>) -> bool {
    if integer_datatype(id).is_none() {
        return false;
    }
    let value = integer_value(id);
    if value < 0 {
        out.push(b'-');
    }
    push_u64(value.unsigned_abs(), out);
    true
}

/// The smallest (`last` false) or largest (`last` true) payload of an integer with this value.
pub(crate) const fn integer_bound(value: i64, last: bool) -> Option<u64> {
    if value < -INTEGER_BIAS || value >= INTEGER_BIAS {
        return None;
    }
    let payload = ((value + INTEGER_BIAS) as u64) << INTEGER_CODE_BITS;
    Some(if last { payload | 0xf } else { payload })
}

fn push_u64(mut value: u64, out: &mut Vec<u8>) {
    let mut buffer = [0_u8; 20];
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&buffer[start..]);
}

// ---- decimals, doubles and floats ----

/// A number taken apart as it was written: `-`, digits, point, digits.
struct Written {
    negative: bool,
    /// All digits as one number.
    value: u64,
    fraction: u32,
    /// Zeros at the end of the fraction.
    fraction_zeros: u32,
    point: bool,
}

/// Reads a plain number; `None` if it is not written with a digit before the point, has
/// superfluous leading zeros, or more than eighteen digits.
fn scan(bytes: &[u8]) -> Option<Written> {
    let (negative, digits) = match bytes.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, bytes),
    };
    // Leading zeros of a fraction (0.000...) are no digits, so a little more than 18 may stand.
    if digits.len() > 40 {
        return None;
    }
    let mut value = 0_u64;
    let mut point = None;
    for (index, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            if value >= POWERS[18] {
                return None;
            }
            value = value * 10 + u64::from(digit);
        } else if *byte == b'.' && point.is_none() {
            point = Some(index);
        } else {
            return None;
        }
    }
    let whole = point.unwrap_or(digits.len());
    if whole == 0 || (whole > 1 && digits[0] == b'0') {
        return None;
    }
    let fraction = &digits[point.map_or(digits.len(), |point| point + 1)..];
    let zeros = fraction.iter().rev().take_while(|b| **b == b'0').count();
    Some(Written {
        negative,
        value,
        fraction: fraction.len() as u32,
        fraction_zeros: zeros as u32,
        point: point.is_some(),
    })
}

/// Fifteen digits and the power of ten of the first one of `value * 10^-fraction`; `None` if that
/// needs more digits or is out of the exponents' range. `value` is not zero.
fn align(value: u64, fraction: i32) -> Option<(u64, i32)> {
    let count = value.ilog10() + 1;
    let digits = if count <= DIGITS {
        value * POWERS[(DIGITS - count) as usize]
    } else {
        let power = POWERS[(count - DIGITS) as usize];
        if !value.is_multiple_of(power) {
            return None;
        }
        value / power
    };
    let exponent = count as i32 - 1 - fraction;
    (EXPONENT_MIN..=EXPONENT_MAX)
        .contains(&exponent)
        .then_some((digits, exponent))
}

fn pack(negative: bool, exponent_field: u64, digits: u64, form: u64) -> u64 {
    let magnitude = (exponent_field << DIGITS_BITS) | digits;
    let signed = if negative {
        !magnitude & MAGNITUDE_MASK
    } else {
        magnitude | POSITIVE
    };
    (signed << FORM_BITS) | form
}

fn pack_value(written: &Written, exponent_shift: i32, form: u64) -> Option<u64> {
    if written.value == 0 {
        // Negative zero is another value; it needs the dictionary.
        return (!written.negative).then(|| pack(false, 0, 0, form));
    }
    let (digits, exponent) = align(written.value, written.fraction as i32 - exponent_shift)?;
    let field = (exponent + EXPONENT_BIAS) as u64;
    Some(pack(written.negative, field, digits, form))
}

pub(super) fn encode_decimal(lexical: &str) -> Option<TermId> {
    let written = scan(lexical.as_bytes())?;
    if (written.point && written.fraction == 0) || written.fraction_zeros > FORM_MASK as u32 {
        return None;
    }
    let payload = pack_value(&written, 0, u64::from(written.fraction_zeros))?;
    Some(TermId::new(Kind::Decimal, payload))
}

pub(super) fn encode_double(lexical: &str, float: bool) -> Option<TermId> {
    let flag = if float { FORM_FLOAT } else { 0 };
    let bytes = lexical.as_bytes();
    let payload = match lexical {
        "INF" => pack(false, EXPONENT_SPECIAL, 0, flag),
        "-INF" => pack(true, EXPONENT_SPECIAL, 0, flag),
        "NaN" => pack(false, EXPONENT_SPECIAL, 1, flag),
        _ => match bytes.iter().position(|byte| byte | 0x20 == b'e') {
            Some(mark) => encode_scientific(bytes, mark)?,
            None => encode_plain(bytes)?,
        },
    };
    Some(TermId::new(Kind::Double, payload | flag))
}

fn encode_plain(bytes: &[u8]) -> Option<u64> {
    let written = scan(bytes)?;
    let form = if !written.point {
        FORM_INTEGRAL
    } else if written.fraction == 0 {
        return None;
    } else {
        // 48.85 and 100.0 are plain; 97.90 and 100.00 have one zero more.
        let plain_zeros = u32::from(written.fraction_zeros == written.fraction);
        match written.fraction_zeros - plain_zeros.min(written.fraction_zeros) {
            0 => FORM_PLAIN,
            1 => FORM_OTHER,
            _ => return None,
        }
    };
    let payload = pack_value(&written, 0, form)?;
    if form == FORM_OTHER {
        let (_, exponent, _) = unpack(payload)?;
        if !(PLAIN_MIN..=PLAIN_MAX).contains(&exponent) {
            return None;
        }
    }
    Some(payload)
}

fn encode_scientific(bytes: &[u8], mark: usize) -> Option<u64> {
    let written = scan(&bytes[..mark])?;
    // One digit before the point, not zero but for zero itself.
    let whole = (written.value / POWERS.get(written.fraction as usize)?) as u32;
    if whole > 9 || (whole == 0 && written.value != 0) {
        return None;
    }
    let exponent = &bytes[mark + 1..];
    let (form, exponent) = if bytes[mark] == b'E' {
        let minimal = written.fraction == 1 || written.fraction_zeros == 0;
        if written.fraction == 0 || !minimal {
            return None;
        }
        (FORM_SCIENTIFIC, scan_exponent(exponent)?)
    } else {
        if written.fraction_zeros != 0 || (written.point && written.fraction == 0) {
            return None;
        }
        (FORM_OTHER, scan_c_exponent(exponent)?)
    };
    if written.value == 0 && exponent != 0 {
        return None;
    }
    if form == FORM_OTHER && (PLAIN_MIN..=PLAIN_MAX).contains(&exponent) {
        return None;
    }
    pack_value(&written, exponent, form)
}

/// `7`, `-12`: no plus, no leading zeros.
fn scan_exponent(bytes: &[u8]) -> Option<i32> {
    let (negative, digits) = match bytes.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, bytes),
    };
    if digits.first() == Some(&b'0') && bytes.len() > 1 {
        return None;
    }
    let value = two_digits(digits)?;
    Some(if negative { -value } else { value })
}

/// `+20`, `-07`: a sign and exactly two digits.
fn scan_c_exponent(bytes: &[u8]) -> Option<i32> {
    let (sign, digits) = bytes.split_first()?;
    if digits.len() != 2 {
        return None;
    }
    let value = two_digits(digits)?;
    match sign {
        b'+' => Some(value),
        b'-' => Some(-value),
        _ => None,
    }
}

fn two_digits(digits: &[u8]) -> Option<i32> {
    if digits.is_empty() || digits.len() > 2 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0, |value, digit| value * 10 + i32::from(digit - b'0')),
    )
}

/// Sign, exponent and digits of a payload; `None` if no number packs to it. Zero has exponent 0.
fn unpack(payload: u64) -> Option<(bool, i32, u64)> {
    let signed = payload >> FORM_BITS;
    let negative = signed & POSITIVE == 0;
    let magnitude = if negative { !signed } else { signed } & MAGNITUDE_MASK;
    let field = magnitude >> DIGITS_BITS;
    let digits = magnitude & DIGITS_MASK;
    if field == 0 {
        return (digits == 0 && !negative).then_some((false, 0, 0));
    }
    if field == EXPONENT_SPECIAL {
        return (digits <= 1 && !(negative && digits == 1)).then_some((negative, i32::MAX, digits));
    }
    let normal = digits >= POWERS[14] && digits < POWERS[15];
    normal.then_some((negative, field as i32 - EXPONENT_BIAS, digits))
}

/// The fifteen digits as text, without the zeros at the end; the number of those left.
fn digit_text(mut digits: u64) -> ([u8; 15], usize) {
    let mut text = [b'0'; 15];
    for place in text.iter_mut().rev() {
        *place = b'0' + (digits % 10) as u8;
        digits /= 10;
    }
    let length = text.iter().rposition(|digit| *digit != b'0');
    (text, length.map_or(0, |last| last + 1))
}

fn push_zeros(count: i32, out: &mut Vec<u8>) {
    for _ in 0..count {
        out.push(b'0');
    }
}

/// Writes the shortest plain form; returns whether that has a fraction.
fn write_plain(negative: bool, exponent: i32, digits: u64, out: &mut Vec<u8>) -> bool {
    if negative {
        out.push(b'-');
    }
    if digits == 0 {
        out.push(b'0');
        return false;
    }
    let (text, length) = digit_text(digits);
    let text = &text[..length];
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        push_zeros(-exponent - 1, out);
        out.extend_from_slice(text);
        return true;
    }
    let whole = exponent as usize + 1;
    if length <= whole {
        out.extend_from_slice(text);
        push_zeros((whole - length) as i32, out);
        return false;
    }
    out.extend_from_slice(&text[..whole]);
    out.push(b'.');
    out.extend_from_slice(&text[whole..]);
    true
}

pub(super) fn write_decimal(id: TermId, out: &mut Vec<u8>) -> bool {
    let payload = id.payload();
    let Some((negative, exponent, digits)) = unpack(payload) else {
        return false;
    };
    if exponent == i32::MAX {
        return false;
    }
    let zeros = (payload & FORM_MASK) as i32;
    let fraction = write_plain(negative, exponent, digits, out);
    if zeros > 0 && !fraction {
        out.push(b'.');
    }
    push_zeros(zeros, out);
    true
}

pub(super) fn double_datatype(id: TermId) -> Datatype {
    if id.payload() & FORM_FLOAT == 0 {
        Datatype::Double
    } else {
        Datatype::Float
    }
}

pub(super) fn write_double(id: TermId, out: &mut Vec<u8>) -> bool {
    let payload = id.payload();
    let Some((negative, exponent, digits)) = unpack(payload) else {
        return false;
    };
    let form = payload & (FORM_FLOAT - 1);
    if exponent == i32::MAX {
        out.extend_from_slice(match (digits, negative) {
            (0, false) => b"INF",
            (0, true) => b"-INF",
            _ => b"NaN",
        });
        return form == 0;
    }
    match form {
        FORM_SCIENTIFIC => write_scientific(negative, exponent, digits, out),
        FORM_OTHER if !(PLAIN_MIN..=PLAIN_MAX).contains(&exponent) => {
            write_c(negative, exponent, digits, out);
        }
        _ => {
            let fraction = write_plain(negative, exponent, digits, out);
            if form == FORM_INTEGRAL {
                return !fraction;
            }
            if !fraction {
                out.extend_from_slice(b".0");
            }
            if form == FORM_OTHER {
                out.push(b'0');
            }
        }
    }
    true
}

fn write_scientific(negative: bool, exponent: i32, digits: u64, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    let (text, length) = digit_text(digits);
    out.extend_from_slice(&[text[0], b'.']);
    out.extend_from_slice(&text[1..length.max(2)]);
    out.push(b'E');
    if exponent < 0 {
        out.push(b'-');
    }
    push_u64(u64::from(exponent.unsigned_abs()), out);
}

fn write_c(negative: bool, exponent: i32, digits: u64, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    let (text, length) = digit_text(digits);
    out.push(text[0]);
    if length > 1 {
        out.push(b'.');
        out.extend_from_slice(&text[1..length]);
    }
    out.extend_from_slice(&[b'e', if exponent < 0 { b'-' } else { b'+' }]);
    if exponent.unsigned_abs() < 10 {
        out.push(b'0');
    }
    push_u64(u64::from(exponent.unsigned_abs()), out);
}

/// A number as its id holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InlineNumber {
    /// `xsd:integer` and what derives from it.
    Integer(i64),
    /// `digits * 10^scale`
    Decimal {
        /// Up to fifteen digits, signed.
        digits: i64,
        /// The power of ten of the last digit, -45 to 30.
        scale: i32,
    },
    /// `xsd:float`
    Float(f32),
    /// `xsd:double`
    Double(f64),
}

/// The digits, signed, without zeros at the end, and the power of ten of the last one, of an
/// inline decimal, double or float; `None` for INF and NaN, or if no number has this id.
#[must_use]
pub fn decimal_parts(id: TermId) -> Option<(i64, i32)> {
    let (negative, exponent, mut digits) = unpack(id.payload())?;
    if exponent == i32::MAX {
        return None;
    }
    if digits == 0 {
        return Some((0, 0));
    }
    let mut scale = exponent - (DIGITS as i32 - 1);
    for step in [8_u32, 4, 2, 1] {
        let power = POWERS[step as usize];
        if digits % power == 0 {
            digits /= power;
            scale += step as i32;
        }
    }
    let digits = digits as i64;
    Some((if negative { -digits } else { digits }, scale))
}

/// The digits, signed, of an inline decimal and how many of them are behind the point; `None` if they have more than 64
/// bits.
#[must_use]
pub fn decimal_places(id: TermId) -> Option<(i64, u32)> {
    let (digits, scale) = decimal_parts(id)?;
    match u32::try_from(scale) {
        Ok(zeros) => {
            let power = i64::try_from(*POWERS.get(zeros as usize)?).ok()?;
            Some((digits.checked_mul(power)?, 0))
        }
        Err(_) => Some((digits, scale.unsigned_abs())),
    }
}

/// As [`decimal_parts`], but that zeros at the end are left where the power of ten is exact all the same.
fn float_parts(id: TermId) -> Option<(i64, i32)> {
    let (negative, exponent, digits) = unpack(id.payload())?;
    if exponent == i32::MAX {
        return None;
    }
    let scale = exponent - (DIGITS as i32 - 1);
    if scale.unsigned_abs() as usize >= EXACT_POWERS.len() {
        return decimal_parts(id);
    }
    let digits = digits as i64;
    Some((if negative { -digits } else { digits }, scale))
}

/// A number that compares as SPARQL compares the values of inline numbers of all types but `xsd:float`.
///
/// `None` for floats, NaN, integers of more than fifteen digits, and what is no inline number. Fifteen digits tell two
/// doubles apart wherever they differ, so that comparing what is written is comparing the doubles that numbers are
/// promoted to.
#[must_use]
pub fn comparison_key(id: TermId) -> Option<i64> {
    let payload = id.payload();
    let signed = match id.kind() {
        Kind::Integer => {
            let value = integer_value(id);
            let magnitude = value.unsigned_abs();
            if magnitude >= POWERS[DIGITS as usize] {
                return None;
            }
            decimal_payload(value < 0, magnitude, 0)? >> FORM_BITS
        }
        Kind::Decimal => payload >> FORM_BITS,
        Kind::Double if payload & FORM_FLOAT == 0 => {
            let signed = payload >> FORM_BITS;
            if signed == NAN {
                return None;
            }
            signed
        }
        _ => return None,
    };
    Some(signed as i64)
}

/// NaN above its written form.
const NAN: u64 = POSITIVE | (EXPONENT_SPECIAL << DIGITS_BITS) | 1;

/// The payload of `magnitude * 10^-fraction` in its shortest form, if it is inline.
fn decimal_payload(negative: bool, magnitude: u64, fraction: i32) -> Option<u64> {
    if magnitude == 0 {
        return Some(pack(false, 0, 0, 0));
    }
    let (digits, exponent) = align(magnitude, fraction)?;
    Some(pack(negative, (exponent + EXPONENT_BIAS) as u64, digits, 0))
}

/// The id of the `xsd:decimal` `digits * 10^-fraction` in its canonical form, if it can be inline; `fraction` is at most
/// eighteen.
#[must_use]
pub fn encode_decimal_parts(digits: i128, fraction: u32) -> Option<TermId> {
    let magnitude = digits.unsigned_abs();
    let (magnitude, fraction) = match u64::try_from(magnitude) {
        Ok(magnitude) => (magnitude, fraction as i32),
        Err(_) => {
            let surplus = magnitude.ilog10() + 1 - DIGITS;
            let power = 10_u128.pow(surplus);
            if !magnitude.is_multiple_of(power) {
                return None;
            }
            let whole = (magnitude / power) as u64;
            (whole, fraction as i32 - surplus as i32)
        }
    };
    // Texts of twenty digits are not read.
    if magnitude != 0 && magnitude.ilog10() as i32 - fraction > DECIMAL_EXPONENT_MAX {
        return None;
    }
    let payload = decimal_payload(digits < 0, magnitude, fraction)?;
    Some(TermId::new(Kind::Decimal, payload))
}

/// The largest power of ten of the first digit of a decimal whose text [`encode_decimal`] reads.
const DECIMAL_EXPONENT_MAX: i32 = 18;

/// The id of the `xsd:double` in its canonical form, if it can be inline.
#[must_use]
pub fn encode_f64(value: f64) -> Option<TermId> {
    match short_digits(value.abs(), DIGITS) {
        Some((digits, fraction)) => {
            let number = nearest_double(digits as i64, -fraction);
            // What has no such digits has more.
            (number == value.abs()).then_some(())?;
            let payload = decimal_payload(value < 0.0, digits, fraction)?;
            Some(TermId::new(Kind::Double, payload))
        }
        None => encode_double(&crate::value::write_double(value), false),
    }
}

/// The id of the `xsd:float` in its canonical form, if it can be inline.
#[must_use]
pub fn encode_f32(value: f32) -> Option<TermId> {
    // So many digits tell two floats apart wherever they differ.
    if let Some((digits, fraction)) = short_digits(f64::from(value.abs()), f32::DIGITS)
        && nearest_float(digits as i64, -fraction) == value.abs()
    {
        let payload = decimal_payload(value < 0.0, digits, fraction)?;
        return Some(TermId::new(Kind::Double, payload | FORM_FLOAT));
    }
    encode_double(&crate::value::write_float(value), true)
}

/// The number of so many digits that is nearest to `value`, and how many of them are behind the point; `None` for zero
/// and what is so small or large that it would not be exact.
fn short_digits(value: f64, digits: u32) -> Option<(u64, i32)> {
    const SMALLEST: f64 = 1e-7;
    let limit = EXACT_POWERS[digits as usize];
    if !(SMALLEST..limit).contains(&value) {
        return None;
    }
    // Digits before the point, or with a minus zeros behind it.
    let whole = if value >= 1.0 {
        EXACT_POWERS[..=digits as usize].partition_point(|power| *power <= value) as i32
    } else {
        1 - EXACT_POWERS[..8].partition_point(|power| value * power < 1.0) as i32
    };
    let fraction = digits as i32 - whole;
    let scaled = value * EXACT_POWERS[fraction as usize];
    Some(((scaled + 0.5) as u64, fraction))
}

/// The number that an inline id stands for; `None` if it is no number.
#[must_use]
pub fn number_value(id: TermId) -> Option<InlineNumber> {
    match id.kind() {
        Kind::Integer => Some(InlineNumber::Integer(integer_value(id))),
        Kind::Decimal => {
            let (digits, scale) = decimal_parts(id)?;
            Some(InlineNumber::Decimal { digits, scale })
        }
        Kind::Double => {
            let payload = id.payload();
            let float = payload & FORM_FLOAT != 0;
            let Some((digits, scale)) = float_parts(id) else {
                let (negative, _, nan) = unpack(payload)?;
                let value = match (nan, negative) {
                    (0, false) => f64::INFINITY,
                    (0, true) => f64::NEG_INFINITY,
                    _ => f64::NAN,
                };
                return Some(if float {
                    InlineNumber::Float(value as f32)
                } else {
                    InlineNumber::Double(value)
                });
            };
            if float {
                return Some(InlineNumber::Float(nearest_float(digits, scale)));
            }
            Some(InlineNumber::Double(nearest_double(digits, scale)))
        }
        _ => None,
    }
}

/// The double nearest to `digits * 10^scale`.
fn nearest_double(digits: i64, scale: i32) -> f64 {
    // Both factors are exact (digits < 2^53, powers up to 10^22), so one rounding remains.
    #[expect(clippy::cast_precision_loss, reason = "at most fifteen digits")]
    let exact = digits as f64;
    match (scale, EXACT_POWERS.get(scale.unsigned_abs() as usize)) {
        (0.., Some(power)) => exact * power,
        (_, Some(power)) => exact / power,
        _ => format!("{digits}e{scale}").parse().unwrap_or(f64::NAN),
    }
}

fn nearest_float(digits: i64, scale: i32) -> f32 {
    // Rounding to a double and then to a float may differ from rounding once only where the double
    // lies exactly between two floats: its lower 29 bits are then 1 followed by zeros, or next to.
    let double = nearest_double(digits, scale);
    let low = double.to_bits() & 0x1fff_ffff;
    if low.abs_diff(0x1000_0000) > 1 && double.abs() > f64::from(f32::MIN_POSITIVE) {
        return double as f32;
    }
    format!("{digits}e{scale}").parse().unwrap_or(f32::NAN)
}

/// The smallest (`last` false) or largest (`last` true) payload of decimals and doubles that are
/// at `digits * 10^scale`; numbers beyond the range of exponents give the nearest bound.
/// `digits` may have up to eighteen digits; surplus ones are cut off towards the outside.
pub(crate) fn bound_of_scaled(digits: i64, scale: i32, last: bool) -> u64 {
    let form = if last { FORM_MASK } else { 0 };
    if digits == 0 {
        return pack(false, 0, 0, form);
    }
    let negative = digits < 0;
    let value = digits.unsigned_abs();
    let count = value.ilog10() + 1;
    let exponent = count as i32 - 1 + scale;
    if exponent > EXPONENT_MAX {
        return match (negative, last) {
            (false, true) => (1 << TermId::PAYLOAD_BITS) - 1,
            (false, false) => pack(
                false,
                (EXPONENT_MAX + EXPONENT_BIAS) as u64,
                POWERS[15] - 1,
                0,
            ),
            (true, true) => pack(
                true,
                (EXPONENT_MAX + EXPONENT_BIAS) as u64,
                POWERS[15] - 1,
                7,
            ),
            (true, false) => 0,
        };
    }
    if exponent < EXPONENT_MIN {
        return match (negative, last) {
            (false, true) => pack(false, 1, POWERS[14], FORM_MASK),
            (true, false) => pack(true, 1, POWERS[14], 0),
            _ => pack(false, 0, 0, form),
        };
    }
    let aligned = if count <= DIGITS {
        value * POWERS[(DIGITS - count) as usize]
    } else {
        let power = POWERS[(count - DIGITS) as usize];
        // A larger magnitude is further outside for the last payload of positive numbers and the
        // first of negative ones.
        let up = last != negative && !value.is_multiple_of(power);
        (value / power + u64::from(up)).min(POWERS[15] - 1)
    };
    pack(negative, (exponent + EXPONENT_BIAS) as u64, aligned, form)
}
