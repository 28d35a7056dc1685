//! Dates, times and their parts as values.

use std::cmp::Ordering;

use oxsdatatypes::{
    Date, DateTime, GDay, GMonth, GMonthDay, GYear, GYearMonth, Time, TimezoneOffset,
};

use crate::datatype::Datatype;

/// A point in time or a recurring one.
#[derive(Clone, Copy, Debug)]
pub enum Temporal {
    /// `xsd:dateTime` and `xsd:dateTimeStamp`
    DateTime(DateTime),
    /// `xsd:date`
    Date(Date),
    /// `xsd:time`
    Time(Time),
    /// `xsd:gYear`
    GYear(GYear),
    /// `xsd:gYearMonth`
    GYearMonth(GYearMonth),
    /// `xsd:gMonth`
    GMonth(GMonth),
    /// `xsd:gMonthDay`
    GMonthDay(GMonthDay),
    /// `xsd:gDay`
    GDay(GDay),
}

/// Applies an expression to both values if they are of one type.
macro_rules! both {
    ($a:expr, $b:expr, ($x:ident, $y:ident) => $body:expr, $else:expr) => {
        match ($a, $b) {
            (Temporal::DateTime($x), Temporal::DateTime($y)) => $body,
            (Temporal::Date($x), Temporal::Date($y)) => $body,
            (Temporal::Time($x), Temporal::Time($y)) => $body,
            (Temporal::GYear($x), Temporal::GYear($y)) => $body,
            (Temporal::GYearMonth($x), Temporal::GYearMonth($y)) => $body,
            (Temporal::GMonth($x), Temporal::GMonth($y)) => $body,
            (Temporal::GMonthDay($x), Temporal::GMonthDay($y)) => $body,
            (Temporal::GDay($x), Temporal::GDay($y)) => $body,
            _ => $else,
        }
    };
}

/// Applies an expression to the value, whatever its type.
macro_rules! any {
    ($a:expr, $x:ident => $body:expr) => {
        match $a {
            Temporal::DateTime($x) => $body,
            Temporal::Date($x) => $body,
            Temporal::Time($x) => $body,
            Temporal::GYear($x) => $body,
            Temporal::GYearMonth($x) => $body,
            Temporal::GMonth($x) => $body,
            Temporal::GMonthDay($x) => $body,
            Temporal::GDay($x) => $body,
        }
    };
}

impl Temporal {
    pub(super) fn parse(lexical: &str, datatype: Datatype) -> Option<Self> {
        Some(match datatype {
            Datatype::DateTime => Self::DateTime(lexical.parse().ok()?),
            Datatype::DateTimeStamp => {
                let value: DateTime = lexical.parse().ok()?;
                value.timezone_offset()?;
                Self::DateTime(value)
            }
            Datatype::Date => Self::Date(lexical.parse().ok()?),
            Datatype::Time => Self::Time(lexical.parse().ok()?),
            Datatype::GYear => Self::GYear(lexical.parse().ok()?),
            Datatype::GYearMonth => Self::GYearMonth(lexical.parse().ok()?),
            Datatype::GMonth => Self::GMonth(lexical.parse().ok()?),
            Datatype::GMonthDay => Self::GMonthDay(lexical.parse().ok()?),
            Datatype::GDay => Self::GDay(lexical.parse().ok()?),
            _ => return None,
        })
    }

    /// The datatype that a literal with this value gets.
    #[must_use]
    pub const fn datatype(&self) -> Datatype {
        match self {
            Self::DateTime(_) => Datatype::DateTime,
            Self::Date(_) => Datatype::Date,
            Self::Time(_) => Datatype::Time,
            Self::GYear(_) => Datatype::GYear,
            Self::GYearMonth(_) => Datatype::GYearMonth,
            Self::GMonth(_) => Datatype::GMonth,
            Self::GMonthDay(_) => Datatype::GMonthDay,
            Self::GDay(_) => Datatype::GDay,
        }
    }

    /// The time zone.
    #[must_use]
    pub fn timezone_offset(&self) -> Option<TimezoneOffset> {
        any!(self, value => value.timezone_offset())
    }

    /// The canonical lexical form.
    #[must_use]
    pub fn lexical(&self) -> String {
        any!(self, value => value.to_string())
    }

    pub(super) fn same_type(&self, other: &Self) -> bool {
        self.datatype() == other.datatype()
    }

    /// The order in time; `None` for different types, and with and without zone within 14 hours.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        both!(self, other, (a, b) => a.partial_cmp(b), None)
    }

    /// By type, then time with a missing zone read as UTC, then without zone first.
    pub(super) fn order_by(&self, other: &Self) -> Ordering {
        let types = (self.datatype() as u8).cmp(&(other.datatype() as u8));
        let zones = (
            self.timezone_offset().is_some(),
            other.timezone_offset().is_some(),
        );
        let in_time = match zones {
            (true, false) => self.compare(&other.in_utc()),
            (false, true) => self.in_utc().compare(other),
            _ => self.compare(other),
        };
        types
            .then(in_time.unwrap_or(Ordering::Equal))
            .then(zones.0.cmp(&zones.1))
    }

    /// A value without zone, taken to be in UTC.
    fn in_utc(&self) -> Self {
        let utc = Some(TimezoneOffset::UTC);
        let shifted = match self {
            Self::DateTime(value) => value.adjust(utc).map(Self::DateTime),
            Self::Date(value) => value.adjust(utc).map(Self::Date),
            Self::Time(value) => value.adjust(utc).map(Self::Time),
            Self::GYear(value) => value.adjust(utc).map(Self::GYear),
            Self::GYearMonth(value) => value.adjust(utc).map(Self::GYearMonth),
            Self::GMonth(value) => value.adjust(utc).map(Self::GMonth),
            Self::GMonthDay(value) => value.adjust(utc).map(Self::GMonthDay),
            Self::GDay(value) => value.adjust(utc).map(Self::GDay),
        };
        shifted.unwrap_or(*self)
    }
}
