//! Casts: XPath's constructor functions, from the types that SPARQL 1.1 section 17.5 lists, and
//! between dates, times and durations.

#![expect(
    clippy::cast_possible_truncation,
    reason = "floats are narrowed by rounding; integers are checked to fit first"
)]

use oxsdatatypes::{DayTimeDuration, Integer, YearMonthDuration};
use stoa_terms::datatype::Datatype;
use stoa_terms::value::{Temporal, Value, write_double, write_float};

use crate::context::QueryContext;
use crate::expression::{Cell, Tag};

/// What is cast: a plain string to be read, or a value.
enum Source<'a> {
    Text(std::borrow::Cow<'a, str>),
    Value(std::borrow::Cow<'a, Value>),
}

fn source<'c>(cells: &[Cell<'c>]) -> Option<Source<'c>> {
    let cell = cells.first()?;
    if let Some((text, tag)) = cell.string() {
        return (tag == Tag::Plain).then_some(Source::Text(text));
    }
    Some(Source::Value(cell.value()?))
}

/// Reads a plain string as a literal of the type; white space around it does not matter.
fn read(text: &str, datatype: Datatype) -> Option<Value> {
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

pub(super) fn integer(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let value = match source(cells)? {
        Source::Text(text) => return read(&text, Datatype::Integer),
        Source::Value(value) => value,
    };
    Some(match &*value {
        Value::Boolean(value) => Value::Integer(i64::from(*value)),
        Value::Integer(value) => Value::Integer(*value),
        Value::Big(value) if value.is_integer() => Value::Big(value.clone()),
        Value::Decimal(value) => Value::Integer(Integer::try_from(*value).ok()?.into()),
        Value::Float(value) => Value::Integer(truncated(f64::from(*value))?),
        Value::Double(value) => Value::Integer(truncated(*value)?),
        _ => return None,
    })
}

/// The integer part, if 64 bits hold it.
fn truncated(value: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let whole = value.trunc();
    (-LIMIT..LIMIT).contains(&whole).then_some(whole as i64)
}

pub(super) fn decimal(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let value = match source(cells)? {
        Source::Text(text) => return read(&text, Datatype::Decimal),
        Source::Value(value) => value,
    };
    Some(match &*value {
        Value::Boolean(value) => Value::Decimal(i64::from(*value).into()),
        Value::Integer(_) | Value::Decimal(_) => Value::Decimal(value.to_decimal()?),
        // The shortest digits that stand for the number, which is what casting its text gives.
        Value::Float(value) => rounded_decimal(&value.to_string())?,
        Value::Double(value) => rounded_decimal(&value.to_string())?,
        _ => return None,
    })
}

/// Reads a decimal, leaving out digits beyond the eighteenth behind the point.
fn rounded_decimal(text: &str) -> Option<Value> {
    let text = match text.split_once('.') {
        Some((whole, fraction)) if fraction.len() > 18 => {
            format!("{whole}.{}", fraction.get(..18)?)
        }
        _ => text.to_owned(),
    };
    Value::from_lexical(&text, Datatype::Decimal)
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
