//! Functions on dates and times.

use oxsdatatypes::TimezoneOffset;
use stoa_planner::expression::Function;
use stoa_terms::value::{Temporal, Value};
use stoa_terms::{Kind, TermId, inline};

use crate::context::QueryContext;
use crate::expression::{Cell, Tag};

pub(super) fn now(_: &[Cell<'_>], context: &QueryContext) -> Option<Value> {
    Some(Value::Temporal(Temporal::DateTime(context.now())))
}

/// One of the fields of `inline::date_time_fields` straight from an inline dateTime, or date.
pub(crate) fn field(id: TermId, field: usize) -> Option<i64> {
    match id.kind() {
        Kind::Date | Kind::DateZoned => inline::date_fields(id)?.get(field).copied(),
        _ => inline::date_time_fields(id)?.0.get(field).copied(),
    }
}

/// Which of these fields a function gives.
pub(crate) const fn field_of(function: Function) -> Option<usize> {
    match function {
        Function::Year => Some(0),
        Function::Month => Some(1),
        Function::Day => Some(2),
        Function::Hours => Some(3),
        Function::Minutes => Some(4),
        _ => None,
    }
}

fn inline_field(cells: &[Cell<'_>], number: usize) -> Option<i64> {
    let Cell::Id { id, .. } = cells.first()? else {
        return None;
    };
    field(*id, number)
}

fn temporal(cells: &[Cell<'_>]) -> Option<Temporal> {
    match &*cells.first()?.value()? {
        Value::Temporal(value) => Some(*value),
        _ => None,
    }
}

pub(super) fn year(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    if let Some(year) = inline_field(cells, 0) {
        return Some(Value::Integer(year));
    }
    Some(Value::Integer(match temporal(cells)? {
        Temporal::DateTime(value) => value.year(),
        Temporal::Date(value) => value.year(),
        Temporal::GYear(value) => value.year(),
        Temporal::GYearMonth(value) => value.year(),
        _ => return None,
    }))
}

pub(super) fn month(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    if let Some(month) = inline_field(cells, 1) {
        return Some(Value::Integer(month));
    }
    Some(Value::Integer(i64::from(match temporal(cells)? {
        Temporal::DateTime(value) => value.month(),
        Temporal::Date(value) => value.month(),
        Temporal::GYearMonth(value) => value.month(),
        Temporal::GMonth(value) => value.month(),
        Temporal::GMonthDay(value) => value.month(),
        _ => return None,
    })))
}

pub(super) fn day(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    if let Some(day) = inline_field(cells, 2) {
        return Some(Value::Integer(day));
    }
    Some(Value::Integer(i64::from(match temporal(cells)? {
        Temporal::DateTime(value) => value.day(),
        Temporal::Date(value) => value.day(),
        Temporal::GMonthDay(value) => value.day(),
        Temporal::GDay(value) => value.day(),
        _ => return None,
    })))
}

pub(super) fn hours(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    if let Some(hour) = inline_field(cells, 3) {
        return Some(Value::Integer(hour));
    }
    Some(Value::Integer(i64::from(match temporal(cells)? {
        Temporal::DateTime(value) => value.hour(),
        Temporal::Time(value) => value.hour(),
        _ => return None,
    })))
}

pub(super) fn minutes(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    if let Some(minute) = inline_field(cells, 4) {
        return Some(Value::Integer(minute));
    }
    Some(Value::Integer(i64::from(match temporal(cells)? {
        Temporal::DateTime(value) => value.minute(),
        Temporal::Time(value) => value.minute(),
        _ => return None,
    })))
}

pub(super) fn seconds(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    Some(Value::Decimal(match temporal(cells)? {
        Temporal::DateTime(value) => value.second(),
        Temporal::Time(value) => value.second(),
        _ => return None,
    }))
}

/// The zone as a duration; an error if there is none.
pub(super) fn timezone(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let offset = temporal(cells)?.timezone_offset()?;
    Some(Value::DayTimeDuration(offset.into()))
}

/// The zone as it is written, an empty string if there is none.
pub(super) fn tz<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let value = temporal(cells)?;
    if let Some(offset) = value.timezone_offset() {
        out.push_str(&offset.to_string());
    }
    Some(Tag::Plain)
}

/// ADJUST: the same moment in another zone.
pub(super) fn adjust(cells: &[Cell<'_>], _: &QueryContext) -> Option<Value> {
    let value = temporal(cells)?;
    let offset = match &*cells.get(1)?.value()? {
        Value::DayTimeDuration(zone) => Some(TimezoneOffset::try_from(*zone).ok()?),
        Value::Duration(zone) => Some(TimezoneOffset::try_from(*zone).ok()?),
        // An empty string takes the zone away.
        Value::String(text) if text.is_empty() => None,
        _ => return None,
    };
    Some(Value::Temporal(match value {
        Temporal::DateTime(value) => Temporal::DateTime(value.adjust(offset)?),
        Temporal::Date(value) => Temporal::Date(value.adjust(offset)?),
        Temporal::Time(value) => Temporal::Time(value.adjust(offset)?),
        Temporal::GYear(value) => Temporal::GYear(value.adjust(offset)?),
        Temporal::GYearMonth(value) => Temporal::GYearMonth(value.adjust(offset)?),
        Temporal::GMonth(value) => Temporal::GMonth(value.adjust(offset)?),
        Temporal::GMonthDay(value) => Temporal::GMonthDay(value.adjust(offset)?),
        Temporal::GDay(value) => Temporal::GDay(value.adjust(offset)?),
    }))
}
