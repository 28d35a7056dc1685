//! Numbers of JSON as numbers of RDF, and JSON in canonical form.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#data-round-tripping>, section 8.6; RFC 8785 (JCS)

use super::tape::{Kind, Value};

/// Integers of JSON are integers up to here.
const INTEGER_END: f64 = 1e21;

/// The lexical form of a number, and whether that is one of a double rather than of an integer.
pub(super) fn lexical(text: &str, as_double: bool) -> (String, bool) {
    let number: f64 = text.parse().unwrap_or(f64::NAN);
    if as_double || number.fract() != 0.0 || number.abs() >= INTEGER_END {
        return (double(number), true);
    }
    // What is written without fraction and exponent may have more digits than a double.
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let lexical = match text {
        "-0" => "0".to_owned(),
        _ if is_plain => text.to_owned(),
        _ => format!("{:.0}", number + 0.0),
    };
    (lexical, false)
}

/// The canonical form of XML Schema, with as many digits as tell the number from all others: fifteen, as
/// `%1.15E` writes them, would change some.
fn double(number: f64) -> String {
    if number.is_infinite() {
        let text = if number > 0.0 { "INF" } else { "-INF" };
        return text.to_owned();
    }
    let text = format!("{number:E}");
    let (digits, exponent) = text.split_once('E').unwrap_or((&text, "0"));
    let fraction = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{fraction}E{exponent}")
}

/// Appends a value in canonical form.
pub(super) fn canonical(value: Value<'_>, out: &mut String) {
    match value.kind() {
        Kind::Null | Kind::Shadowed => out.push_str("null"),
        Kind::True => out.push_str("true"),
        Kind::False => out.push_str("false"),
        Kind::Number => canonical_number(value.text(), out),
        Kind::String => canonical_string(value.text(), out),
        Kind::Array => {
            out.push('[');
            for (i, item) in value.items().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        Kind::Object => {
            let mut entries: Vec<_> = value.entries().collect();
            entries.sort_by(|(one, _), (other, _)| {
                one.text().encode_utf16().cmp(other.text().encode_utf16())
            });
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical_string(key.text(), out);
                out.push(':');
                canonical(value, out);
            }
            out.push('}');
        }
    }
}

/// As ECMAScript writes numbers; one that is too large for it stays as it is.
fn canonical_number(text: &str, out: &mut String) {
    let number: f64 = text.parse().unwrap_or(f64::NAN);
    if !number.is_finite() {
        out.push_str(text);
        return;
    }
    if number == 0.0 {
        out.push('0');
        return;
    }
    if number < 0.0 {
        out.push('-');
    }
    let shortest = format!("{:e}", number.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits = mantissa.replace('.', "");
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Where the point stands, from the first digit.
    let point = exponent + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    if (length..=21).contains(&point) {
        out.push_str(&digits);
        out.push_str(&zeros(point - length));
    } else if (1..=21).contains(&point) {
        let (before, after) = digits.split_at(usize::try_from(point).unwrap_or(1));
        out.push_str(&format!("{before}.{after}"));
    } else if (-5..=0).contains(&point) {
        out.push_str(&format!("0.{}{digits}", zeros(-point)));
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        out.push_str(&format!("{first}{dot}{rest}e{exponent:+}"));
    }
}

fn canonical_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_integers_or_doubles() {
        for (text, as_double, expected) in [
            ("1", false, "1"),
            ("-0", false, "0"),
            ("-0.0", false, "0"),
            ("1.0", false, "1"),
            ("1e2", false, "100"),
            ("9007199254740993", false, "9007199254740993"),
            ("1e21", false, "1.0E21"),
            ("1000000000000000000000", false, "1.0E21"),
            ("5.3", false, "5.3E0"),
            ("5", true, "5.0E0"),
            ("-0.00015", false, "-1.5E-4"),
            ("12.857142857142858", false, "1.2857142857142858E1"),
            ("-0.0", true, "-0.0E0"),
            ("1e400", false, "INF"),
            ("-1e400", false, "-INF"),
        ] {
            assert_eq!(lexical(text, as_double).0, expected, "{text}");
        }
    }

    /// Most of them from appendix B of RFC 8785.
    #[test]
    fn numbers_have_the_form_of_ecmascript() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("5e-324", "5e-324"),
            ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("295147905179352830000", "295147905179352830000"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("1e23", "1e+23"),
            ("1E30", "1e+30"),
            ("999999999999999900000", "999999999999999900000"),
            ("1e21", "1e+21"),
            ("0.000001", "0.000001"),
            ("1e-7", "1e-7"),
            ("333333333.33333329", "333333333.3333333"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("1e400", "1e400"),
        ] {
            let mut out = String::new();
            canonical_number(text, &mut out);
            assert_eq!(out, expected, "{text}");
        }
    }
}
