//! Inline dates and times, each with and without time zone.
//!
//! ```text
//! date        datatype (4)   instant + 2^45 (46)   fraction digits (2)   zone (8)
//! dateTime                   instant + 2^49 (50)   fraction digits (2)   zone (8)
//! ```
//! Instants are minutes for dates, milliseconds for `xsd:time` and `xsd:dateTime`, counted from
//! 1970-01-01T00:00Z (a time: of 1970-01-01). A value without zone counts as if it were UTC and has
//! zone field 0. Zones are quarters of an hour + 56, or 113 for `Z`, 114 for `-00:00`;
//! `xsd:dateTimeStamp` adds 128.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "fields are masked to their width, dates checked where they enter"
)]

use crate::datatype::Datatype;
use crate::{Kind, TermId};

const ZONE_BITS: u32 = 8;
const ZONE_MASK: u64 = 0xff;
const ZONE_ZERO: i64 = 56;
const ZONE_LAST: u64 = 112;
const ZONE_Z: u64 = 113;
const ZONE_MINUS_ZERO: u64 = 114;
const ZONE_STAMP: u64 = 128;
const FRACTION_BITS: u32 = 2;
const LOW_BITS: u32 = ZONE_BITS + FRACTION_BITS;

const DATE_INSTANT_BITS: u32 = 46;
const DATE_BIAS: i64 = 1 << (DATE_INSTANT_BITS - 1);
const DATE_TIME_BIAS: i64 = 1 << 49;

const DAY_MINUTES: i64 = 1440;
const DAY_MS: i64 = 86_400_000;
const MINUTE_MS: i64 = 60_000;
/// Years up to this, before and after 0, keep every instant within its field.
const DATE_YEAR_MAX: i64 = 999_999;
const DATE_TIME_YEAR_MAX: i64 = 15_800;
/// A leap year, so that `--02-29` has a day.
const REFERENCE_YEAR: i64 = 1972;

/// Sub-codes of dates; the position is the code.
const DATE_DATATYPES: [Datatype; 7] = [
    Datatype::Date,
    Datatype::GYear,
    Datatype::GYearMonth,
    Datatype::GMonth,
    Datatype::GDay,
    Datatype::GMonthDay,
    Datatype::Time,
];
const CODE_TIME: u64 = 6;

/// What is left to read of a text.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn eat(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        if *first != byte {
            return None;
        }
        self.0 = rest;
        Some(())
    }

    /// Two digits.
    fn two(&mut self) -> Option<i64> {
        let [a, b, rest @ ..] = self.0 else {
            return None;
        };
        let (a, b) = (a.wrapping_sub(b'0'), b.wrapping_sub(b'0'));
        if a > 9 || b > 9 {
            return None;
        }
        self.0 = rest;
        Some(i64::from(a) * 10 + i64::from(b))
    }

    /// A year: a minus sign perhaps, four digits, or more without leading zero.
    fn year(&mut self, max: i64) -> Option<i64> {
        let negative = self.eat(b'-').is_some();
        let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (year, rest) = self.0.split_at_checked(digits)?;
        if !(4..=7).contains(&digits) || (digits > 4 && year.first() == Some(&b'0')) {
            return None;
        }
        let value = year
            .iter()
            .fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        if value > max || (negative && value == 0) {
            return None;
        }
        self.0 = rest;
        Some(if negative { -value } else { value })
    }

    fn month(&mut self) -> Option<i64> {
        self.two().filter(|month| (1..=12).contains(month))
    }

    fn day(&mut self, year: i64, month: i64) -> Option<i64> {
        self.two()
            .filter(|day| *day >= 1 && *day <= month_days(year, month))
    }

    /// Milliseconds of a day, and how many digits of the fraction are written (0 to 3).
    fn time(&mut self) -> Option<(i64, u64)> {
        let hour = self.two().filter(|hour| *hour < 24)?;
        self.eat(b':')?;
        let minute = self.two().filter(|minute| *minute < 60)?;
        self.eat(b':')?;
        let second = self.two().filter(|second| *second < 60)?;
        let mut ms = 0;
        let mut digits = 0;
        if self.eat(b'.').is_some() {
            let mut place = 100;
            while let [digit @ b'0'..=b'9', rest @ ..] = self.0 {
                if digits == 3 {
                    return None;
                }
                ms += i64::from(digit - b'0') * place;
                place /= 10;
                digits += 1;
                self.0 = rest;
            }
            if digits == 0 {
                return None;
            }
        }
        Some((((hour * 60 + minute) * 60 + second) * 1000 + ms, digits))
    }

    /// The zone up to the end of the text: its field and minutes east; `None` inside if there is
    /// no zone.
    fn zone(&mut self) -> Option<Option<(u64, i64)>> {
        match *self.0 {
            [] => Some(None),
            [b'Z'] => Some(Some((ZONE_Z, 0))),
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                self.eat(sign)?;
                let hours = self.two()?;
                self.eat(b':')?;
                let minutes = self.two()?;
                let total = hours * 60 + minutes;
                if minutes > 59 || total > 14 * 60 || total % 15 != 0 {
                    return None;
                }
                if sign == b'-' && total == 0 {
                    return Some(Some((ZONE_MINUS_ZERO, 0)));
                }
                let east = if sign == b'-' { -total } else { total };
                Some(Some(((east / 15 + ZONE_ZERO) as u64, east)))
            }
            _ => None,
        }
    }
}

/// Days of a month of the proleptic Gregorian calendar.
const fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 (H. Hinnant, `days_from_civil`).
const fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The year, month and day that lie this many days after 1970-01-01.
const fn date_of_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

pub(super) fn encode_date_time(lexical: &str, stamp: bool) -> Option<TermId> {
    let mut reader = Reader(lexical.as_bytes());
    let year = reader.year(DATE_TIME_YEAR_MAX)?;
    reader.eat(b'-')?;
    let month = reader.month()?;
    reader.eat(b'-')?;
    let day = reader.day(year, month)?;
    reader.eat(b'T')?;
    let (ms, digits) = reader.time()?;
    let local = days_of_date(year, month, day) * DAY_MS + ms;
    let (kind, instant, zone) = match reader.zone()? {
        None if stamp => return None,
        None => (Kind::DateTime, local, 0),
        Some((zone, east)) => {
            let zone = if stamp { zone | ZONE_STAMP } else { zone };
            (Kind::DateTimeZoned, local - east * MINUTE_MS, zone)
        }
    };
    let instant = (instant + DATE_TIME_BIAS) as u64;
    let payload = (instant << LOW_BITS) | (digits << ZONE_BITS) | zone;
    Some(TermId::new(kind, payload))
}

pub(super) fn encode_date(lexical: &str, datatype: Datatype) -> Option<TermId> {
    let mut reader = Reader(lexical.as_bytes());
    let (code, local, digits) = read_date(&mut reader, datatype)?;
    let unit = if code == CODE_TIME { MINUTE_MS } else { 1 };
    let (kind, instant, zone) = match reader.zone()? {
        None => (Kind::Date, local, 0),
        Some((zone, east)) => (Kind::DateZoned, local - east * unit, zone),
    };
    let instant = (instant + DATE_BIAS) as u64;
    let payload =
        (((code << DATE_INSTANT_BITS) | instant) << LOW_BITS) | (digits << ZONE_BITS) | zone;
    Some(TermId::new(kind, payload))
}

/// Sub-code, local instant and written digits of the fraction.
fn read_date(reader: &mut Reader<'_>, datatype: Datatype) -> Option<(u64, i64, u64)> {
    let (code, days) = match datatype {
        Datatype::Date => {
            let year = reader.year(DATE_YEAR_MAX)?;
            reader.eat(b'-')?;
            let month = reader.month()?;
            reader.eat(b'-')?;
            (0, days_of_date(year, month, reader.day(year, month)?))
        }
        Datatype::GYear => (1, days_of_date(reader.year(DATE_YEAR_MAX)?, 1, 1)),
        Datatype::GYearMonth => {
            let year = reader.year(DATE_YEAR_MAX)?;
            reader.eat(b'-')?;
            (2, days_of_date(year, reader.month()?, 1))
        }
        Datatype::GMonth => {
            reader.eat(b'-')?;
            reader.eat(b'-')?;
            (3, days_of_date(REFERENCE_YEAR, reader.month()?, 1))
        }
        Datatype::GDay => {
            reader.eat(b'-')?;
            reader.eat(b'-')?;
            reader.eat(b'-')?;
            let day = reader.two().filter(|day| (1..=31).contains(day))?;
            (4, days_of_date(REFERENCE_YEAR, 12, day))
        }
        Datatype::GMonthDay => {
            reader.eat(b'-')?;
            reader.eat(b'-')?;
            let month = reader.month()?;
            reader.eat(b'-')?;
            let day = reader.day(REFERENCE_YEAR, month)?;
            (5, days_of_date(REFERENCE_YEAR, month, day))
        }
        Datatype::Time => {
            let (ms, digits) = reader.time()?;
            return Some((CODE_TIME, ms, digits));
        }
        _ => return None,
    };
    Some((code, days * DAY_MINUTES, 0))
}

fn date_code(id: TermId) -> u64 {
    id.payload() >> (DATE_INSTANT_BITS + LOW_BITS)
}

pub(super) fn date_datatype(id: TermId) -> Option<Datatype> {
    DATE_DATATYPES.get(date_code(id) as usize).copied()
}

pub(super) fn date_time_datatype(id: TermId) -> Datatype {
    if id.payload() & ZONE_STAMP == 0 {
        Datatype::DateTime
    } else {
        Datatype::DateTimeStamp
    }
}

/// The instant of an inline date or time, as values of one datatype and kind (with zone, without)
/// are ordered by it: minutes for dates, milliseconds for times and `xsd:dateTime`. Only for ids
/// of those kinds.
#[must_use]
pub const fn instant(id: TermId) -> i64 {
    match id.kind() {
        Kind::DateTime | Kind::DateTimeZoned => (id.payload() >> LOW_BITS) as i64 - DATE_TIME_BIAS,
        _ => ((id.payload() >> LOW_BITS) & ((1 << DATE_INSTANT_BITS) - 1)) as i64 - DATE_BIAS,
    }
}

/// Minutes east of UTC that a zone field stands for.
fn zone_minutes(zone: u64) -> Option<i64> {
    match zone {
        0..=ZONE_LAST => Some((zone as i64 - ZONE_ZERO) * 15),
        ZONE_Z | ZONE_MINUS_ZERO => Some(0),
        _ => None,
    }
}

/// Year, month, day, hour, minute, milliseconds of the minute, and minutes east of UTC, as written,
/// of an inline `xsd:dateTime`.
#[must_use]
pub fn date_time_fields(id: TermId) -> Option<([i64; 6], Option<i64>)> {
    let east = match id.kind() {
        Kind::DateTime => None,
        Kind::DateTimeZoned => Some(zone_minutes(id.payload() & ZONE_MASK & !ZONE_STAMP)?),
        _ => return None,
    };
    let local = instant(id) + east.unwrap_or(0) * MINUTE_MS;
    let (year, month, day) = date_of_days(local.div_euclid(DAY_MS));
    let ms = local.rem_euclid(DAY_MS);
    let minutes = ms / MINUTE_MS;
    let fields = [year, month, day, minutes / 60, minutes % 60, ms % MINUTE_MS];
    Some((fields, east))
}

/// Year, month and day, as written, of an inline `xsd:date`; `None` of any other id.
#[must_use]
pub fn date_fields(id: TermId) -> Option<[i64; 3]> {
    let east = match id.kind() {
        Kind::Date => 0,
        Kind::DateZoned => zone_minutes(id.payload() & ZONE_MASK)?,
        _ => return None,
    };
    if date_datatype(id) != Some(Datatype::Date) {
        return None;
    }
    let days = (instant(id) + east).div_euclid(DAY_MINUTES);
    let (year, month, day) = date_of_days(days);
    Some([year, month, day])
}

fn push_two(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]);
}

fn push_year(year: i64, out: &mut Vec<u8>) {
    if year < 0 {
        out.push(b'-');
    }
    let year = year.abs();
    if year > 9999 {
        if year >= 1_000_000 {
            out.push(b'0' + (year / 1_000_000 % 10) as u8);
        }
        if year >= 100_000 {
            out.push(b'0' + (year / 100_000 % 10) as u8);
        }
        out.push(b'0' + (year / 10_000 % 10) as u8);
    }
    push_two(year / 100 % 100, out);
    push_two(year % 100, out);
}

fn push_time(ms: i64, digits: u64, out: &mut Vec<u8>) -> bool {
    push_two(ms / 3_600_000, out);
    out.push(b':');
    push_two(ms / MINUTE_MS % 60, out);
    out.push(b':');
    push_two(ms / 1000 % 60, out);
    let mut rest = ms % 1000;
    let mut place = 100;
    if digits > 0 {
        out.push(b'.');
    }
    for _ in 0..digits {
        out.push(b'0' + (rest / place) as u8);
        rest %= place;
        place = (place / 10).max(1);
    }
    digits == 3 || rest == 0
}

fn push_zone(zone: u64, east: i64, out: &mut Vec<u8>) {
    match zone {
        ZONE_Z => out.push(b'Z'),
        ZONE_MINUS_ZERO => out.extend_from_slice(b"-00:00"),
        _ => {
            out.push(if east < 0 { b'-' } else { b'+' });
            push_two(east.abs() / 60, out);
            out.push(b':');
            push_two(east.abs() % 60, out);
        }
    }
}

pub(super) fn write_date_time(id: TermId, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let zone = id.payload() & ZONE_MASK;
    let Some(([year, month, day, hour, minute, ms], east)) = date_time_fields(id) else {
        return false;
    };
    push_year(year, out);
    out.push(b'-');
    push_two(month, out);
    out.push(b'-');
    push_two(day, out);
    out.push(b'T');
    let digits = (id.payload() >> ZONE_BITS) & 3;
    let exact = push_time((hour * 60 + minute) * MINUTE_MS + ms, digits, out);
    if let Some(east) = east {
        push_zone(zone & !ZONE_STAMP, east, out);
    }
    if !exact || year.abs() > DATE_TIME_YEAR_MAX || (east.is_none() && zone != 0) {
        out.truncate(start);
        return false;
    }
    true
}

pub(super) fn write_date(id: TermId, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let written = try_write_date(id, out).is_some();
    if !written {
        out.truncate(start);
    }
    written
}

fn try_write_date(id: TermId, out: &mut Vec<u8>) -> Option<()> {
    let payload = id.payload();
    let zone = payload & ZONE_MASK;
    let digits = (payload >> ZONE_BITS) & 3;
    let code = date_code(id);
    let east = if id.kind() == Kind::DateZoned {
        zone_minutes(zone)?
    } else if zone == 0 {
        0
    } else {
        return None;
    };
    if code == CODE_TIME {
        let ms = instant(id) + east * MINUTE_MS;
        if !(0..DAY_MS).contains(&ms) || !push_time(ms, digits, out) {
            return None;
        }
    } else {
        let minutes = instant(id) + east;
        let (year, month, day) = date_of_days(minutes.div_euclid(DAY_MINUTES));
        if minutes % DAY_MINUTES != 0 || year.abs() > DATE_YEAR_MAX || digits != 0 {
            return None;
        }
        push_date(code, year, month, day, out)?;
    }
    if id.kind() == Kind::DateZoned {
        push_zone(zone, east, out);
    }
    Some(())
}

fn push_date(code: u64, year: i64, month: i64, day: i64, out: &mut Vec<u8>) -> Option<()> {
    match (code, year, month, day) {
        (0, ..) => {
            push_year(year, out);
            out.push(b'-');
            push_two(month, out);
            out.push(b'-');
            push_two(day, out);
        }
        (1, _, 1, 1) => push_year(year, out),
        (2, _, _, 1) => {
            push_year(year, out);
            out.push(b'-');
            push_two(month, out);
        }
        (3, REFERENCE_YEAR, _, 1) => {
            out.extend_from_slice(b"--");
            push_two(month, out);
        }
        (4, REFERENCE_YEAR, 12, _) => {
            out.extend_from_slice(b"---");
            push_two(day, out);
        }
        (5, REFERENCE_YEAR, ..) => {
            out.extend_from_slice(b"--");
            push_two(month, out);
            out.push(b'-');
            push_two(day, out);
        }
        _ => return None,
    }
    Some(())
}

/// Minutes from 1970-01-01 to the beginning of a day; `None` if the year is out of any inline range.
pub(crate) fn date_instant(year: i64, month: u8, day: u8) -> Option<i64> {
    (year.abs() <= DATE_YEAR_MAX)
        .then(|| days_of_date(year, i64::from(month), i64::from(day)) * DAY_MINUTES)
}

/// The smallest and largest payload of `xsd:dateTime`s with this instant, in milliseconds.
pub(crate) fn date_time_bounds(instant: i64) -> (u64, u64) {
    let instant = instant.clamp(-DATE_TIME_BIAS, DATE_TIME_BIAS - 1);
    let first = ((instant + DATE_TIME_BIAS) as u64) << LOW_BITS;
    (first, first | ((1 << LOW_BITS) - 1))
}

/// The smallest and largest payload of values of this datatype with this instant, in minutes, or
/// milliseconds for `xsd:time`; `None` if the datatype is no kind of date.
pub(crate) fn date_bounds(datatype: Datatype, instant: i64) -> Option<(u64, u64)> {
    let code = DATE_DATATYPES.iter().position(|date| *date == datatype)? as u64;
    let instant = instant.clamp(-DATE_BIAS, DATE_BIAS - 1);
    let first = ((code << DATE_INSTANT_BITS) | (instant + DATE_BIAS) as u64) << LOW_BITS;
    Some((first, first | ((1 << LOW_BITS) - 1)))
}
