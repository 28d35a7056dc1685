//! Ranges of ids that hold every term for which a comparison with a constant can be true.
//!
//! The ranges are a superset: what the dictionary holds is included as a whole kind, and numbers
//! that are compared after rounding (doubles, floats) get a margin. The comparison itself must
//! still be made.

#![expect(
    clippy::cast_possible_truncation,
    reason = "doubles are clamped to the range of the integers that they become"
)]

use oxsdatatypes::{Date, DateTime, Time};

use crate::datatype::Datatype;
use crate::inline::{bound_of_scaled, date_bounds, date_instant, date_time_bounds, integer_bound};
use crate::value::{Temporal, Value};
use crate::{IdRange, Kind, TermId};

/// A comparison of a variable, on the left, with a constant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// Relative margin where a double takes part: a few units in its last place.
const MARGIN_DOUBLE: f64 = 1.0e-15;
/// Relative margin where a float takes part.
const MARGIN_FLOAT: f64 = 3.0e-7;
/// With and without zone are 14 hours apart at most before they compare.
const ZONE_MINUTES: i64 = 14 * 60;
const MINUTE_MS: i64 = 60_000;

/// The ranges of ids, ascending and disjoint, outside of which `?x comparison value` is never true.
#[must_use]
pub fn comparison_ranges(comparison: Comparison, value: &Value) -> Vec<IdRange> {
    let mut ranges = Vec::new();
    match value {
        _ if value.is_numeric() => number_ranges(comparison, value, &mut ranges),
        Value::Temporal(temporal) => temporal_ranges(comparison, temporal, &mut ranges),
        Value::String(text) => string_ranges(comparison, text, &mut ranges),
        Value::Boolean(_) => {
            ranges.push(IdRange {
                first: TermId::FALSE,
                last: TermId::TRUE,
            });
            ranges.push(IdRange::of_kind(Kind::Literal));
        }
        Value::LangString(_) => ranges.push(IdRange::of_kind(Kind::Literal)),
        Value::Duration(_) | Value::YearMonthDuration(_) | Value::DayTimeDuration(_) => {
            ranges.push(IdRange::of_kind(Kind::TemporalLiteral));
        }
        _ if comparison != Comparison::Equal => (),
        Value::Iri(_) => ranges.push(IdRange::of_kind(Kind::Iri)),
        Value::BlankNode(_) => ranges.push(IdRange::of_kind(Kind::BlankNode)),
        Value::Triple(_) => ranges.push(IdRange::of_kind(Kind::Triple)),
        _ => {
            ranges.push(IdRange::of_kind(Kind::NumericLiteral));
            ranges.push(IdRange::of_kind(Kind::TemporalLiteral));
            ranges.push(IdRange::of_kind(Kind::Literal));
        }
    }
    ranges
}

/// The bytes that lexical forms of inline numbers, dates and times are made of.
const SPELLING: &[u8] = b"0123456789+-.:eEINFaTZ";

/// The ranges of inline ids, but for those of strings, ascending and disjoint, outside of which no lexical form starts
/// with `prefix`.
#[must_use]
pub fn inline_prefix_ranges(prefix: &str) -> Vec<IdRange> {
    let mut ranges = Vec::new();
    for (id, lexical) in [(TermId::FALSE, "false"), (TermId::TRUE, "true")] {
        if lexical.starts_with(prefix) {
            ranges.push(IdRange {
                first: id,
                last: id,
            });
        }
    }
    if prefix.bytes().all(|byte| SPELLING.contains(&byte)) {
        let kinds = [
            Kind::Integer,
            Kind::Decimal,
            Kind::Double,
            Kind::Date,
            Kind::DateZoned,
            Kind::DateTime,
            Kind::DateTimeZoned,
        ];
        ranges.extend(kinds.map(IdRange::of_kind));
    }
    ranges
}

/// Adds the payloads of `kind` that satisfy the comparison, `low` being the smallest payload that
/// may be equal and `high` the largest one; `first` and `last` bound the payloads.
fn push(
    comparison: Comparison,
    kind: Kind,
    (first, last): (u64, u64),
    (low, high): (u64, u64),
    ranges: &mut Vec<IdRange>,
) {
    let (from, to) = match comparison {
        Comparison::Equal => (low.max(first), high.min(last)),
        Comparison::Less | Comparison::LessOrEqual => (first, high.min(last)),
        Comparison::Greater | Comparison::GreaterOrEqual => (low.max(first), last),
    };
    if from <= to {
        ranges.push(IdRange {
            first: TermId::new(kind, from),
            last: TermId::new(kind, to),
        });
    }
}

const ALL: (u64, u64) = (0, TermId::PAYLOAD_MAX);

fn number_ranges(comparison: Comparison, value: &Value, ranges: &mut Vec<IdRange>) {
    let Some(double) = value.to_f64().filter(|double| !double.is_nan()) else {
        return;
    };
    let margin = if matches!(value, Value::Float(_)) {
        MARGIN_FLOAT
    } else {
        MARGIN_DOUBLE
    };
    let (low, high) = match value {
        // Integers among themselves need no margin, and `<` can leave out the bound itself.
        Value::Integer(value) => match comparison {
            Comparison::Less => (*value, value.saturating_sub(1)),
            Comparison::Greater => (value.saturating_add(1), *value),
            _ => (*value, *value),
        },
        _ => {
            let (low, high) = widened(double, margin);
            (low.ceil() as i64, high.floor() as i64)
        }
    };
    push(
        comparison,
        Kind::Integer,
        ALL,
        integer_bounds(low, high),
        ranges,
    );
    for (kind, margin) in [(Kind::Decimal, margin), (Kind::Double, MARGIN_FLOAT)] {
        let bounds = match (kind, value) {
            (Kind::Decimal, Value::Integer(value)) => (
                bound_of_scaled(*value, 0, false),
                bound_of_scaled(*value, 0, true),
            ),
            _ => {
                let (low, high) = widened(double, margin);
                (double_bound(low, false), double_bound(high, true))
            }
        };
        push(comparison, kind, ALL, bounds, ranges);
    }
    ranges.push(IdRange::of_kind(Kind::NumericLiteral));
}

fn widened(value: f64, margin: f64) -> (f64, f64) {
    let width = value.abs() * margin;
    if value.is_infinite() {
        (value, value)
    } else {
        (value - width, value + width)
    }
}

/// The payloads of the integers at or next to the bounds.
fn integer_bounds(low: i64, high: i64) -> (u64, u64) {
    let limit = (1_i64 << 55) - 1;
    let low = if low > limit {
        TermId::PAYLOAD_MAX
    } else {
        integer_bound(low.max(-limit - 1), false).unwrap_or(0)
    };
    let high = if high < -limit - 1 {
        0
    } else {
        integer_bound(high.min(limit), true).unwrap_or(TermId::PAYLOAD_MAX)
    };
    (low, high)
}

/// The smallest or largest payload of decimals and doubles at this value.
fn double_bound(value: f64, last: bool) -> u64 {
    if value.is_infinite() {
        let digits = if value > 0.0 { 1 } else { -1 };
        return bound_of_scaled(digits, i32::from(i16::MAX), last);
    }
    // Seventeen digits tell every double; one unit of the last of them is added on the outside.
    let text = format!("{value:.16e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return if last { TermId::PAYLOAD_MAX } else { 0 };
    };
    let digits: i64 = digits.replace('.', "").parse().unwrap_or(0);
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let outside = if digits == 0 {
        0
    } else if last {
        1
    } else {
        -1
    };
    bound_of_scaled(digits + outside, exponent - 16, last)
}

fn string_ranges(comparison: Comparison, text: &str, ranges: &mut Vec<IdRange>) {
    let mut aligned = [0_u8; 8];
    for (to, from) in aligned.iter_mut().zip(text.bytes().take(7)) {
        *to = from;
    }
    let prefix = u64::from_be_bytes(aligned) >> 4;
    let exact = comparison == Comparison::Equal;
    if !exact || text.len() <= 7 {
        push(
            comparison,
            Kind::ShortString,
            ALL,
            (prefix, prefix | 0xf),
            ranges,
        );
    }
    if !exact || text.len() > 7 {
        ranges.push(IdRange::of_kind(Kind::Literal));
    }
}

fn temporal_ranges(comparison: Comparison, value: &Temporal, ranges: &mut Vec<IdRange>) {
    let zoned = value.timezone_offset().is_some();
    let (kinds, span) = match value {
        Temporal::DateTime(value) => ([Kind::DateTime, Kind::DateTimeZoned], date_time_span(value)),
        Temporal::Date(value) => ([Kind::Date, Kind::DateZoned], date_span(value)),
        Temporal::Time(value) => ([Kind::Date, Kind::DateZoned], time_span(value)),
        _ => ([Kind::Date, Kind::DateZoned], None),
    };
    let datatype = value.datatype();
    for kind in kinds {
        let same = (kind == Kind::DateZoned || kind == Kind::DateTimeZoned) == zoned;
        let unit = if datatype == Datatype::Date {
            1
        } else {
            MINUTE_MS
        };
        let margin = if same { 0 } else { ZONE_MINUTES * unit };
        let within =
            span.map(|(low, high)| (low.saturating_sub(margin), high.saturating_add(margin)));
        if datatype == Datatype::DateTime {
            let bounds = within.map_or(ALL, |(low, high)| {
                (date_time_bounds(low).0, date_time_bounds(high).1)
            });
            push(comparison, kind, ALL, bounds, ranges);
        } else {
            let (low, high) = within.unwrap_or((i64::MIN, i64::MAX));
            let all = date_bounds(datatype, i64::MIN).zip(date_bounds(datatype, i64::MAX));
            let bounds = date_bounds(datatype, low).zip(date_bounds(datatype, high));
            if let (Some((first, last)), Some((low, high))) = (all, bounds) {
                push(comparison, kind, (first.0, last.1), (low.0, high.1), ranges);
            }
        }
    }
    ranges.push(IdRange::of_kind(Kind::TemporalLiteral));
}

/// The milliseconds between which the instant of a dateTime lies, as inline ids count them.
fn date_time_span(value: &DateTime) -> Option<(i64, i64)> {
    let east = value.timezone_offset().map_or(0, east);
    let minutes = date_instant(value.year(), value.month(), value.day())?
        + i64::from(value.hour()) * 60
        + i64::from(value.minute())
        - east;
    let ms = minutes.checked_mul(MINUTE_MS)? + second_ms(&value.second().to_string());
    Some((ms, ms + 1))
}

fn date_span(value: &Date) -> Option<(i64, i64)> {
    let east = value.timezone_offset().map_or(0, east);
    let minutes = date_instant(value.year(), value.month(), value.day())? - east;
    Some((minutes, minutes))
}

fn time_span(value: &Time) -> Option<(i64, i64)> {
    let east = value.timezone_offset().map_or(0, east);
    let minutes = i64::from(value.hour()) * 60 + i64::from(value.minute()) - east;
    let ms = minutes * MINUTE_MS + second_ms(&value.second().to_string());
    Some((ms, ms + 1))
}

fn east(offset: oxsdatatypes::TimezoneOffset) -> i64 {
    i64::from(i16::from_be_bytes(offset.to_be_bytes()))
}

/// Whole milliseconds of seconds written as `12.3456`.
fn second_ms(seconds: &str) -> i64 {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let whole: i64 = whole.parse().unwrap_or(0);
    let ms: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole * 1000 + ms.parse::<i64>().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inline;
    use crate::value::tests::values;
    use proptest::prelude::*;

    fn holds(comparison: Comparison, left: &Value, right: &Value) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let order = left.compare(right);
        match comparison {
            Comparison::Equal => left.equals(right) == Some(true),
            Comparison::Less => order == Some(Less),
            Comparison::LessOrEqual => matches!(order, Some(Less | Equal)),
            Comparison::Greater => order == Some(Greater),
            Comparison::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
        }
    }

    const COMPARISONS: [Comparison; 5] = [
        Comparison::Equal,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn ranges_hold_all_that_compares_true((a, left) in values(), (_, right) in values()) {
            for comparison in COMPARISONS {
                let ranges = comparison_ranges(comparison, &right);
                for pair in ranges.windows(2) {
                    prop_assert!(pair[0].last < pair[1].first);
                }
                if holds(comparison, &left, &right) {
                    let id = inline::encode_literal(a.as_ref()).unwrap_or_else(|| {
                        TermId::new(crate::key::literal_key(a.as_ref(), &mut Vec::new()), 5)
                    });
                    prop_assert!(ranges.iter().any(|range| range.contains(id)), "{a} {right:?}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn prefixes_of_inline_literals_lie_in_ranges((literal, _) in values(), length in 0_usize..6) {
            let id = inline::encode_literal(literal.as_ref());
            let id = id.filter(|id| id.kind() != Kind::ShortString);
            let prefix: String = literal.value().chars().take(length).collect();
            let ranges = inline_prefix_ranges(&prefix);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].last < pair[1].first));
            if let Some(id) = id {
                prop_assert!(ranges.iter().any(|range| range.contains(id)), "{literal} {prefix}");
            }
        }
    }

    #[test]
    fn prefixes_of_words_leave_numbers_out() {
        assert_eq!(inline_prefix_ranges("word"), []);
        assert_eq!(inline_prefix_ranges("12 "), []);
        assert_eq!(inline_prefix_ranges("tr").len(), 1);
        assert_eq!(inline_prefix_ranges("2008-0").len(), 7);
        assert_eq!(inline_prefix_ranges("").len(), 9);
    }

    #[test]
    fn integer_bounds_are_tight() {
        let id = |value| inline::encode_i64(value).unwrap();
        let ranges = comparison_ranges(Comparison::Less, &Value::Integer(5));
        assert!(ranges[0].contains(id(4)) && !ranges[0].contains(id(5)));
        let ranges = comparison_ranges(Comparison::Equal, &Value::Double(5.0));
        assert!(ranges[0].contains(id(5)) && !ranges[0].contains(id(4)));
        assert!(!ranges[0].contains(id(6)));
        let day = |text| inline::encode(text, Datatype::Date).unwrap();
        let value = Value::from_inline(day("2008-06-01")).unwrap();
        let ranges = comparison_ranges(Comparison::Greater, &value);
        assert_eq!(ranges[0].first.kind(), Kind::Date);
        assert!(ranges[0].contains(day("2008-06-02")) && !ranges[0].contains(day("2008-05-31")));
    }
}
