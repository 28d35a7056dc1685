//! Casts: XPath's constructor functions, from the types that SPARQL 1.1 section 17.5 lists, and
//! between dates, times and durations.

#![expect(
    clippy::cast_possible_truncation,
    reason = "floats are narrowed by rounding; integers are checked to fit first"
)]

use oxsdatatypes::{DayTimeDuration, Integer, YearMonthDuration};
use stoa_terms::datatype::Datatype;
use stoa_terms::value::{Rounding, Temporal, Value, integer_of, round, write_double, write_float};

use super::derived;
use crate::context::QueryContext;
use crate::expression::{Cell, Tag};

/// What is cast: a plain string to be read, or a value.
pub(super) enum Source<'a> {
    Text(std::borrow::Cow<'a, str>),
    Value(std::borrow::Cow<'a, Value>),
}

pub(super) fn source<'c>(cells: &[Cell<'c>]) -> Option<Source<'c>> {
    let cell = cells.first()?;
    if let Some((text, tag)) = cell.string() {
        return (tag == Tag::Plain).then_some(Source::Text(text));
    }
    let value = cell.value()?;
    // What derives from strings is cast as a string.
    if let Value::Other(literal) = &*value
        && let Some(datatype) = Datatype::from_iri(literal.datatype().as_str())
        && is_text(datatype)
    {
        let text = derived::normal(datatype, literal.value())?;
        return Some(Source::Text(text.into()));
    }
    Some(Source::Value(value))
}

/// Types derived from `xsd:string`.
const fn is_text(datatype: Datatype) -> bool {
    matches!(
        datatype,
        Datatype::Language
            | Datatype::NormalizedString
            | Datatype::Token
            | Datatype::NmToken
            | Datatype::Name
            | Datatype::NcName
    )
}

/// Reads a plain string as a literal of the type; white space around it does not matter.
pub(super) fn read(text: &str, datatype: Datatype) -> Option<Value> {
    let blank = |character| matches!(character, ' ' | '\t' | '\n' | '\r');
    Value::from_lexical(text.trim_matches(blank), datatype)
}

pub(super) fn boolean(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match source(cells)? {
        Source::Text(text) => read(&text, Datatype::Boolean),
        Source::Value(value) => {
            let known = value.is_numeric() || matches!(&*value, Value::Boolean(_));
            known
                .then(|| value.effective_boolean())?
                .map(Value::Boolean)
        }
    }
}

pub(super) fn integer(cells: &[Cell<'_>]) -> Option<Value> {
    let value = match source(cells)? {
        Source::Text(text) => return read(&text, Datatype::Integer),
        Source::Value(value) => value,
    };
    as_integer(&value)
}

/// The integer part of a number; 0 and 1 for booleans.
fn as_integer(value: &Value) -> Option<Value> {
    match value {
        Value::Boolean(value) => Some(Value::Integer(i64::from(*value))),
        Value::Integer(value) => Some(Value::Integer(*value)),
        Value::Big(big) if big.is_integer() => Some(value.clone()),
        Value::Decimal(decimal) => match Integer::try_from(*decimal) {
            Ok(whole) => Some(Value::Integer(whole.into())),
            Err(_) => round(Rounding::Integer, value),
        },
        Value::Big(_) => round(Rounding::Integer, value),
        Value::Float(value) => truncated(f64::from(*value)),
        Value::Double(value) => truncated(*value),
        _ => None,
    }
}

/// The integer part, exactly.
fn truncated(value: f64) -> Option<Value> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let whole = value.trunc();
    if (-LIMIT..LIMIT).contains(&whole) {
        Some(Value::Integer(whole as i64))
    } else {
        integer_of(whole)
    }
}

pub(super) fn decimal(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let value = match source(cells)? {
        Source::Text(text) => return read(&text, Datatype::Decimal),
        Source::Value(value) => value,
    };
    match &*value {
        Value::Boolean(value) => Some(Value::Decimal(i64::from(*value).into())),
        Value::Integer(_) | Value::Decimal(_) | Value::Big(_) => value.as_decimal(),
        Value::Float(float) => decimal_of(f64::from(*float), || float.to_string()),
        Value::Double(double) => decimal_of(*double, || double.to_string()),
        _ => None,
    }
}

/// A whole number is taken exactly; of others the shortest digits that stand for the number, which
/// is what casting their text gives.
fn decimal_of(value: f64, shortest: impl Fn() -> String) -> Option<Value> {
    if value.fract() == 0.0 {
        return truncated(value)?.as_decimal();
    }
    Value::from_lexical(&shortest(), Datatype::Decimal)
}

pub(super) fn float(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let value = match source(cells)? {
        Source::Text(text) => return read(&text, Datatype::Float),
        Source::Value(value) => value,
    };
    Some(Value::Float(match &*value {
        Value::Boolean(value) => f32::from(u8::from(*value)),
        Value::Double(value) => *value as f32,
        value => value.to_f32()?,
    }))
}

pub(super) fn double(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let value = match source(cells)? {
        Source::Text(text) => return read(&text, Datatype::Double),
        Source::Value(value) => value,
    };
    Some(Value::Double(match &*value {
        Value::Boolean(value) => f64::from(u8::from(*value)),
        value => value.to_f64()?,
    }))
}

/// The text of an IRI or literal; numbers and dates as XPath writes their values.
pub(super) fn string<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let cell = cells.first()?;
    if let Some(text) = cell
        .string()
        .map(|(text, _)| text)
        .or_else(|| cell.iri().map(Into::into))
    {
        out.push_str(&text);
        return Some(Tag::Plain);
    }
    match &*cell.value()? {
        Value::Double(value) => out.push_str(&plain_if_small(*value, || write_double(*value))),
        Value::Float(value) => {
            if is_small(f64::from(*value)) {
                out.push_str(&value.to_string());
            } else {
                out.push_str(&write_float(*value));
            }
        }
        Value::Other(literal) => out.push_str(literal.value()),
        value => out.push_str(value.to_literal()?.value()),
    }
    Some(Tag::Plain)
}

/// Whether XPath writes a number without exponent.
fn is_small(value: f64) -> bool {
    value == 0.0 || (value.abs() >= 1.0e-6 && value.abs() < 1.0e6)
}

fn plain_if_small(value: f64, otherwise: impl Fn() -> String) -> String {
    if is_small(value) {
        value.to_string()
    } else {
        otherwise()
    }
}

pub(super) fn date(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match source(cells)? {
        Source::Text(text) => read(&text, Datatype::Date),
        Source::Value(value) => match &*value {
            Value::Temporal(Temporal::Date(_)) => Some(value.into_owned()),
            Value::Temporal(Temporal::DateTime(value)) => {
                Some(Value::Temporal(Temporal::Date((*value).try_into().ok()?)))
            }
            _ => None,
        },
    }
}

pub(super) fn date_time(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match source(cells)? {
        Source::Text(text) => read(&text, Datatype::DateTime),
        Source::Value(value) => match &*value {
            Value::Temporal(Temporal::DateTime(_)) => Some(value.into_owned()),
            Value::Temporal(Temporal::Date(value)) => Some(Value::Temporal(Temporal::DateTime(
                (*value).try_into().ok()?,
            ))),
            _ => None,
        },
    }
}

pub(super) fn time(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match source(cells)? {
        Source::Text(text) => read(&text, Datatype::Time),
        Source::Value(value) => match &*value {
            Value::Temporal(Temporal::Time(_)) => Some(value.into_owned()),
            Value::Temporal(Temporal::DateTime(value)) => {
                Some(Value::Temporal(Temporal::Time((*value).into())))
            }
            _ => None,
        },
    }
}

pub(super) fn duration(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match source(cells)? {
        Source::Text(text) => read(&text, Datatype::Duration),
        Source::Value(value) => as_duration(&value).map(Value::Duration),
    }
}

fn as_duration(value: &Value) -> Option<oxsdatatypes::Duration> {
    match value {
        Value::Duration(value) => Some(*value),
        Value::YearMonthDuration(value) => Some((*value).into()),
        Value::DayTimeDuration(value) => Some((*value).into()),
        _ => None,
    }
}

/// The years and months of a duration.
pub(super) fn year_month_duration(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match source(cells)? {
        Source::Text(text) => read(&text, Datatype::YearMonthDuration),
        Source::Value(value) => {
            let duration = as_duration(&value)?;
            let months = duration.years() * 12 + duration.months();
            Some(Value::YearMonthDuration(YearMonthDuration::new(months)))
        }
    }
}

/// The days, hours, minutes and seconds of a duration.
pub(super) fn day_time_duration(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    match source(cells)? {
        Source::Text(text) => read(&text, Datatype::DayTimeDuration),
        Source::Value(value) => {
            let duration = as_duration(&value)?;
            let hours = duration.days() * 24 + duration.hours();
            let whole = (hours * 60 + duration.minutes()) * 60;
            let seconds = oxsdatatypes::Decimal::from(whole).checked_add(duration.seconds())?;
            Some(Value::DayTimeDuration(DayTimeDuration::new(seconds)))
        }
    }
}
