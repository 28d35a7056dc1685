//! Sections: the order of ORDER BY as ranges of ids, and where these can be cut.
//!
//! Within an inline kind ids ascend with their values, but the order mixes kinds: numbers of all kinds, dates with and
//! without zone, short strings and those of the dictionary. A section is what is mixed; all of its terms come before
//! those of the next one. A section whose ids tell its order can be cut at a value into two parts, each some ranges of
//! ids, so that all terms of one part come before those of the other, and equal ones lie in one part.
//!
//! Literals of the dictionary do not tell their value, and an ill-typed number stands among literals of unknown
//! datatypes; where some are, all that they may stand among is one section.
//!
//! # Invariants
//! 1. Sections and cuts agree with [`Value::order_by`] (`section::tests::cuts_are_in_order`).

#![expect(
    clippy::cast_possible_truncation,
    reason = "integers are clamped to 56 bits"
)]

#[cfg(test)]
mod tests;

use crate::datatype::Datatype;
use crate::inline::{
    self, bound_of_scaled, date_bounds, date_time_bounds, decimal_parts, integer_bound,
};
use crate::range::{Comparison, comparison_ranges};
use crate::value::Value;
use crate::{IdRange, Kind, TermId};

/// Terms that come one after the other in the order of ORDER BY.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Section {
    /// Their ids, each range of one kind.
    pub ranges: Vec<IdRange>,
    /// Whether [`cut`] can tell where a value stands in it.
    pub is_told: bool,
}

/// Datatypes of inline dates in the order of ORDER BY; `xsd:dateTime` has kinds of its own.
const DATES: [Datatype; 8] = [
    Datatype::Date,
    Datatype::Time,
    Datatype::DateTime,
    Datatype::GYear,
    Datatype::GMonth,
    Datatype::GDay,
    Datatype::GYearMonth,
    Datatype::GMonthDay,
];

/// An integer beyond has more digits than a decimal's id.
const INTEGER_DIGITS_MAX: u64 = 1_000_000_000_000_000;

/// The sections of terms that data can hold, in ascending order. `holds` says whether there are any of some ids.
///
/// # Errors
/// Those of `holds`.
pub fn sections<E>(holds: &dyn Fn(IdRange) -> Result<bool, E>) -> Result<Vec<Section>, E> {
    let told = |ranges| Section {
        ranges,
        is_told: true,
    };
    let mut all = vec![
        told(vec![IdRange::of_kind(Kind::BlankNode)]),
        told(vec![IdRange::of_kind(Kind::Iri)]),
    ];
    let booleans = IdRange {
        first: TermId::FALSE,
        last: TermId::TRUE,
    };
    let has_odd = holds(IdRange::of_kind(Kind::NumericLiteral))?
        || holds(IdRange::of_kind(Kind::TemporalLiteral))?;
    if has_odd {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_literal());
        let mut ranges: Vec<_> = kinds.map(IdRange::of_kind).collect();
        ranges.push(booleans);
        all.push(Section {
            ranges,
            is_told: false,
        });
    } else {
        let numbers = [Kind::Integer, Kind::Decimal, Kind::Double];
        all.push(told(numbers.map(IdRange::of_kind).to_vec()));
        all.extend(DATES.into_iter().map(|datatype| told(dates(datatype))));
        let (short, other) = (
            IdRange::of_kind(Kind::ShortString),
            IdRange::of_kind(Kind::Literal),
        );
        match holds(other)? {
            false => all.extend([told(vec![short]), told(vec![booleans])]),
            true => all.push(Section {
                ranges: vec![booleans, short, other],
                is_told: false,
            }),
        }
    }
    all.push(Section {
        ranges: vec![IdRange::of_kind(Kind::Triple)],
        is_told: false,
    });
    Ok(all)
}

/// The ids of terms among which a section is not told; of IRIs alone the dictionary must say it.
#[must_use]
pub fn untold() -> [IdRange; 4] {
    [
        Kind::NumericLiteral,
        Kind::TemporalLiteral,
        Kind::Literal,
        Kind::Triple,
    ]
    .map(IdRange::of_kind)
}

/// The ids of inline values of one datatype, without and with zone.
fn dates(datatype: Datatype) -> Vec<IdRange> {
    if datatype == Datatype::DateTime {
        return [Kind::DateTime, Kind::DateTimeZoned]
            .map(IdRange::of_kind)
            .to_vec();
    }
    let ends = date_bounds(datatype, i64::MIN).zip(date_bounds(datatype, i64::MAX));
    let of = |kind| {
        ends.map(|(first, last)| IdRange {
            first: TermId::new(kind, first.0),
            last: TermId::new(kind, last.1),
        })
    };
    let kinds = [Kind::Date, Kind::DateZoned].into_iter();
    kinds.filter_map(of).collect()
}

/// For each range of a section that is told, the bits of the first id of its kind whose term comes behind `at`
/// (`behind`), or is equal to it or comes behind it; dates and times of one instant, with and without zone, stay together.
/// `at` is of the section. `None` if ids do not tell.
///
/// Floats stand where their digits say, not where their values are: see [`beyond`] and [`rounded`].
#[must_use]
pub fn cut(ranges: &[IdRange], at: TermId, behind: bool) -> Option<Vec<u64>> {
    let points = ranges.iter().map(|range| {
        let point = first_from(range.first.kind(), at, behind)?;
        Some(point.clamp(range.first.to_bits(), range.last.to_bits() + 1))
    });
    points.collect()
}

/// The bits of the first id of `kind` behind `at`, or at it.
fn first_from(kind: Kind, at: TermId, behind: bool) -> Option<u64> {
    let next = u64::from(behind);
    let bits = |payload: u64| TermId::new(kind, payload).to_bits();
    let one_of = |(low, high): (u64, u64)| match behind {
        false => bits(low),
        true => bits(high) + 1,
    };
    match at.kind() {
        Kind::BlankNode | Kind::Iri | Kind::ShortString | Kind::Special => {
            (kind == at.kind()).then(|| at.to_bits() + next)
        }
        Kind::DateTime | Kind::DateTimeZoned => {
            let of_kind = matches!(kind, Kind::DateTime | Kind::DateTimeZoned);
            of_kind.then(|| one_of(date_time_bounds(inline::instant(at))))
        }
        Kind::Date | Kind::DateZoned => {
            let of_kind = matches!(kind, Kind::Date | Kind::DateZoned);
            let datatype = inline::known_datatype(at).filter(|_| of_kind)?;
            date_bounds(datatype, inline::instant(at)).map(one_of)
        }
        Kind::Integer => {
            let value = inline::integer_value(at);
            match kind {
                Kind::Integer => integer_from(i128::from(value) + i128::from(behind)),
                // A decimal of fifteen digits may not tell a larger one.
                Kind::Decimal | Kind::Double if value.unsigned_abs() < INTEGER_DIGITS_MAX => {
                    Some(one_of((
                        bound_of_scaled(value, 0, false),
                        bound_of_scaled(value, 0, true),
                    )))
                }
                _ => None,
            }
        }
        Kind::Decimal | Kind::Double => {
            // No cut at an infinity or at what is no number.
            let (digits, scale) = decimal_parts(at)?;
            match kind {
                // The written form stands in the last three bits.
                Kind::Decimal | Kind::Double => Some(one_of((at.payload() & !7, at.payload() | 7))),
                Kind::Integer => integer_from(integer_behind(digits, scale, behind)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The first integer above `digits * 10^scale`, or not below it.
fn integer_behind(digits: i64, scale: i32, above: bool) -> i128 {
    let digits = i128::from(digits);
    let power = 10_i128.checked_pow(scale.unsigned_abs());
    if scale >= 0 {
        let value = power.and_then(|power| digits.checked_mul(power));
        let value = value.unwrap_or(digits.signum() * (i128::MAX / 2));
        return value + i128::from(above);
    }
    let power = power.unwrap_or(i128::MAX);
    let is_whole = digits % power == 0;
    digits.div_euclid(power) + i128::from(above || !is_whole)
}

/// The bits of the first inline integer that is not below `value`.
fn integer_from(value: i128) -> Option<u64> {
    let limit = 1_i128 << 55;
    if value >= limit {
        return Some(TermId::new(Kind::Integer, TermId::PAYLOAD_MAX).to_bits() + 1);
    }
    let payload = integer_bound(value.max(-limit) as i64, false)?;
    Some(TermId::new(Kind::Integer, payload).to_bits())
}

/// Where to cut a section with doubles instead of at a number: a little above it, or below, so that floats that are
/// written like it lie on its side, whatever their values. An id of a double, which no term need have.
#[must_use]
pub fn beyond(at: TermId, above: bool) -> Option<TermId> {
    let step = |at| {
        let range = rounded(at)?;
        let end = if above { range.last } else { range.first };
        // Not as a float.
        Some(TermId::from_bits(end.to_bits() & !7))
    };
    step(step(at)?)
}

/// The ids among which a float makes a cut at this number wrong, since its value may lie on the other side of it than its
/// digits.
#[must_use]
pub fn rounded(at: TermId) -> Option<IdRange> {
    if !matches!(at.kind(), Kind::Integer | Kind::Decimal | Kind::Double) {
        return None;
    }
    let ranges = comparison_ranges(Comparison::Equal, &Value::from_inline(at)?);
    let mut ranges = ranges.into_iter();
    ranges.find(|range| range.first.kind() == Kind::Double)
}

/// Whether this is an inline `xsd:float` whose value may differ from its digits.
#[must_use]
pub fn is_rounded(id: TermId) -> bool {
    let is_float = id.kind() == Kind::Double && inline::known_datatype(id) == Some(Datatype::Float);
    is_float && decimal_parts(id).is_some_and(|(digits, _)| digits != 0)
}
