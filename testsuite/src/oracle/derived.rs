//! Casts to the types of XSD that 17.5 does not list (XPath functions and operators 3.1, 19).

use std::rc::Rc;

use oxrdf::{Literal, NamedNode, Term};
use oxsdatatypes::{DateTime, GDay, GMonth, GMonthDay, GYear, GYearMonth};

use super::value::{Number, Value, bounds, local_name, within};
use super::{Fault, Outcome};

/// Types derived from xsd:string.
pub(super) fn is_string(local: &str) -> bool {
    [
        "normalizedString",
        "token",
        "language",
        "NMTOKEN",
        "Name",
        "NCName",
    ]
    .contains(&local)
}

/// Casts a literal with this value; `string` is what it is as xsd:string, `integer` as xsd:integer.
pub(super) fn cast(
    target: &str,
    literal: &Literal,
    source: &Value,
    string: Outcome<String>,
    integer: Outcome<Number>,
) -> Outcome<Rc<Term>> {
    let text = literal.value();
    let from = local_name(literal).unwrap_or("");
    let plain = matches!(source, Value::String);
    let lexical = if bounds(target).is_some() {
        match integer? {
            Number::Integer(number) if within(target, &number) => number.to_string(),
            _ => return Err(Fault::Error),
        }
    } else if is_string(target) {
        of_string(target, &string?).ok_or(Fault::Error)?
    } else if target == "anyURI" {
        if !plain && from != target {
            return Err(Fault::Error);
        }
        collapsed(text)
    } else if target == "hexBinary" || target == "base64Binary" {
        let form = if plain { target } else { from };
        let bits = match form {
            "hexBinary" => bits(text, HEX, 4),
            "base64Binary" => bits(text, BASE64, 6),
            _ => None,
        };
        written(target, &bits.ok_or(Fault::Error)?)
    } else {
        of_time(target, text, from, source)?
    };
    let datatype = NamedNode::new_unchecked(format!("http://www.w3.org/2001/XMLSchema#{target}"));
    Ok(Rc::new(
        Literal::new_typed_literal(lexical, datatype).into(),
    ))
}

fn collapsed(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Letters of the random texts are ASCII, or beyond the basic plane, where any character may begin a name.
fn of_string(target: &str, text: &str) -> Option<String> {
    if target == "normalizedString" {
        return Some(text.replace(['\t', '\n', '\r'], " "));
    }
    let text = collapsed(text);
    let is_far = |c: char| ('\u{10000}'..='\u{effff}').contains(&c);
    let start = |c: char| c.is_alphabetic() || c == '_' || c == ':' || is_far(c);
    let rest = |c: char| start(c) || c.is_ascii_digit() || c == '-' || c == '.';
    let token = !text.is_empty() && text.chars().all(rest);
    let name = token && text.starts_with(start);
    let valid = match target {
        "token" => true,
        "NMTOKEN" => token,
        "Name" => name,
        "NCName" => name && !text.contains(':'),
        _ => {
            let mut parts = text.split('-');
            let size = |part: &str| !part.is_empty() && part.len() <= 8;
            let letters = |c: char| c.is_ascii_alphabetic();
            parts
                .next()
                .is_some_and(|part| size(part) && part.chars().all(letters))
                && parts.all(|part| size(part) && part.chars().all(|c| c.is_ascii_alphanumeric()))
        }
    };
    valid.then_some(text)
}

const HEX: &str = "0123456789ABCDEF";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bits that digits stand for, a whole number of bytes.
fn bits(text: &str, digits: &str, width: usize) -> Option<String> {
    let mut text = collapsed(text);
    let mut padding = 0;
    if width == 6 {
        text.retain(|c| c != ' ');
        if !text.len().is_multiple_of(4) {
            return None;
        }
        while padding < 2 && text.ends_with('=') {
            text.pop();
            padding += 1;
        }
    } else {
        text = text.to_ascii_uppercase();
    }
    let mut bits = String::new();
    for c in text.chars() {
        bits.push_str(&format!("{:0width$b}", digits.find(c)?));
    }
    let extra = bits.split_off(bits.len() - 2 * padding.min(bits.len() / 2));
    (bits.len().is_multiple_of(8) && !extra.contains('1')).then_some(bits)
}

fn written(target: &str, bits: &str) -> String {
    let (digits, width) = match target {
        "hexBinary" => (HEX, 4),
        _ => (BASE64, 6),
    };
    let mut padded = bits.to_owned();
    while !padded.len().is_multiple_of(width) {
        padded.push('0');
    }
    let mut text = String::new();
    for at in (0..padded.len()).step_by(width) {
        let digit = padded.get(at..at + width).unwrap_or("0");
        let digit = usize::from_str_radix(digit, 2).unwrap_or(0);
        text.extend(digits.chars().nth(digit));
    }
    while width == 6 && !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

fn of_time(target: &str, text: &str, from: &str, source: &Value) -> Outcome<String> {
    let valid = |valid: bool| valid.then(|| text.to_owned()).ok_or(Fault::Error);
    match source {
        Value::Part if from == target => Ok(text.to_owned()),
        Value::String => valid(match target {
            "gYear" => text.parse::<GYear>().is_ok(),
            "gYearMonth" => text.parse::<GYearMonth>().is_ok(),
            "gMonth" => text.parse::<GMonth>().is_ok(),
            "gMonthDay" => text.parse::<GMonthDay>().is_ok(),
            "gDay" => text.parse::<GDay>().is_ok(),
            _ => text
                .parse::<DateTime>()
                .is_ok_and(|time| time.timezone().is_some()),
        }),
        Value::DateTime(time) if target == "dateTimeStamp" => valid(time.timezone().is_some()),
        Value::Date(_) if target == "dateTimeStamp" => Err(Fault::Open("between dates and times")),
        // The random data has years of four digits.
        Value::DateTime(_) | Value::Date(_) => {
            let tail = text.get(10..).unwrap_or("");
            let zone = tail.rfind(['Z', '+', '-']).and_then(|at| tail.get(at..));
            let (start, range) = match target {
                "gYear" => ("", 0..4),
                "gYearMonth" => ("", 0..7),
                "gMonth" => ("--", 5..7),
                "gMonthDay" => ("--", 5..10),
                _ => ("---", 8..10),
            };
            let part = text.get(range).unwrap_or("");
            Ok(format!("{start}{part}{}", zone.unwrap_or("")))
        }
        _ => Err(Fault::Error),
    }
}
