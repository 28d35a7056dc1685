//! The total order of ORDER BY.
//!
//! Blank nodes, IRIs by code point, literals (numbers, dates, strings with and without language by
//! code point, the rest by datatype then text), triple terms by their parts.

use std::cmp::Ordering;

use oxsdatatypes::{Decimal, Duration};

use super::{Value, number};
use crate::datatype::Datatype;

/// The mean length of a month of the Gregorian calendar in seconds.
const MONTH_SECONDS: i64 = 2_629_746;

pub(super) fn order_by(a: &Value, b: &Value) -> Ordering {
    rank(a).cmp(&rank(b)).then_with(|| match (a, b) {
        (Value::BlankNode(a), Value::BlankNode(b)) => a.cmp(b),
        (Value::Iri(a), Value::Iri(b)) => a.cmp(b),
        (Value::Temporal(a), Value::Temporal(b)) => a.order_by(b),
        (Value::Triple(a), Value::Triple(b)) => a
            .iter()
            .zip(b.iter())
            .map(|(a, b)| order_by(a, b))
            .find(|order| *order != Ordering::Equal)
            .unwrap_or(Ordering::Equal),
        (a, b) if a.is_numeric() => number::order_by(a, b),
        (a, b) => match (text(a), text(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => match (a.duration(), b.duration()) {
                (Some(a), Some(b)) => order_durations(a, b),
                _ => order_rest(a, b),
            },
        },
    })
}

/// The rank of the value, and the double that numbers are ordered by at first.
pub(super) fn order_prefix(value: &Value) -> u64 {
    const SIGN: u64 = 1 << (u64::BITS - 1);
    let number = number::to_f64(value).map_or(0, |number| match number {
        _ if number.is_nan() => u64::MAX,
        // Both zeros are one.
        _ if number == 0.0 => SIGN,
        _ if number > 0.0 => number.to_bits() | SIGN,
        _ => !number.to_bits(),
    });
    u64::from(rank(value)) << (u64::BITS - RANK_BITS) | number >> RANK_BITS
}

/// How many bits tell ranks apart.
const RANK_BITS: u32 = 3;

const fn rank(value: &Value) -> u8 {
    match value {
        Value::BlankNode(_) => 0,
        Value::Iri(_) => 1,
        Value::Integer(_)
        | Value::Decimal(_)
        | Value::Big(_)
        | Value::Float(_)
        | Value::Double(_) => 2,
        Value::Temporal(_) => 3,
        Value::Duration(_) | Value::YearMonthDuration(_) | Value::DayTimeDuration(_) => 4,
        Value::String(_) | Value::LangString(_) => 5,
        Value::Boolean(_) | Value::Other(_) => 6,
        Value::Triple(_) => 7,
    }
}

/// Text, language and direction of a string.
fn text(value: &Value) -> Option<(&str, Option<&str>, u8)> {
    match value {
        Value::String(text) => Some((text, None, 0)),
        Value::LangString(value) => {
            let direction = value.direction.map_or(0, |direction| match direction {
                oxrdf::BaseDirection::Ltr => 1,
                oxrdf::BaseDirection::Rtl => 2,
            });
            Some((&value.text, Some(&value.language), direction))
        }
        _ => None,
    }
}

/// By their length with months of mean length, then by months. Where the order of durations is
/// defined it is this one.
fn order_durations(a: Duration, b: Duration) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| {
        let months = |d: Duration| d.years() * 12 + d.months();
        let seconds = |d: Duration| {
            let days = d.days() * 24 + d.hours();
            let whole = (days * 60 + d.minutes()) * 60;
            Decimal::from(
                months(d)
                    .saturating_mul(MONTH_SECONDS)
                    .saturating_add(whole),
            )
            .checked_add(d.seconds())
            .unwrap_or(Decimal::MAX)
        };
        seconds(a)
            .cmp(&seconds(b))
            .then_with(|| months(a).cmp(&months(b)))
    })
}

fn order_rest(a: &Value, b: &Value) -> Ordering {
    let parts = |value: &Value| match value {
        Value::Boolean(true) => (Datatype::Boolean.iri().to_owned(), String::from("true")),
        Value::Boolean(false) => (Datatype::Boolean.iri().to_owned(), String::from("false")),
        Value::Other(literal) => (
            literal.datatype().as_str().to_owned(),
            literal.value().to_owned(),
        ),
        _ => (String::new(), String::new()),
    };
    parts(a).cmp(&parts(b))
}
