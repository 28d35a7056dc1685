//! From lexical forms, and from inline ids, to values.

use oxsdatatypes::Decimal;

use super::{BigNumber, Temporal, Value};
use crate::datatype::Datatype;
use crate::inline::{self, InlineNumber};
use crate::{Kind, TermId};

impl Value {
    /// The value of a lexical form; `None` if the datatype has no value that we know or the
    /// lexical form is not one of its.
    #[must_use]
    pub fn from_lexical(lexical: &str, datatype: Datatype) -> Option<Self> {
        match datatype {
            Datatype::String => Some(Self::String(lexical.into())),
            Datatype::Boolean => match lexical {
                "true" | "1" => Some(Self::Boolean(true)),
                "false" | "0" => Some(Self::Boolean(false)),
                _ => None,
            },
            Datatype::Decimal => parse_decimal(lexical),
            Datatype::Double => Some(Self::Double(parse_float(lexical)?)),
            Datatype::Float => Some(Self::Float(parse_float(lexical)?)),
            Datatype::Duration => Some(Self::Duration(lexical.parse().ok()?)),
            Datatype::YearMonthDuration => Some(Self::YearMonthDuration(lexical.parse().ok()?)),
            Datatype::DayTimeDuration => Some(Self::DayTimeDuration(lexical.parse().ok()?)),
            _ if datatype.is_integer() => parse_integer(lexical, datatype),
            _ => Temporal::parse(lexical, datatype).map(Self::Temporal),
        }
    }

    /// The value of an inline literal; `None` if the id is none.
    #[must_use]
    pub fn from_inline(id: TermId) -> Option<Self> {
        match id.kind() {
            Kind::Special => match id {
                TermId::TRUE => Some(Self::Boolean(true)),
                TermId::FALSE => Some(Self::Boolean(false)),
                _ => None,
            },
            Kind::Integer => Some(Self::Integer(inline::integer_value(id))),
            Kind::Decimal | Kind::Double => Self::from_inline_number(id),
            Kind::Date
            | Kind::DateZoned
            | Kind::DateTime
            | Kind::DateTimeZoned
            | Kind::ShortString => {
                let mut lexical = Vec::with_capacity(32);
                inline::write_lexical(id, &mut lexical);
                let lexical = std::str::from_utf8(&lexical).ok()?;
                Self::from_lexical(lexical, inline::known_datatype(id)?)
            }
            _ => None,
        }
    }

    fn from_inline_number(id: TermId) -> Option<Self> {
        match inline::number_value(id)? {
            InlineNumber::Integer(value) => Some(Self::Integer(value)),
            InlineNumber::Float(value) => Some(Self::Float(value)),
            InlineNumber::Double(value) => Some(Self::Double(value)),
            InlineNumber::Decimal { digits, scale } => {
                if scale <= 0
                    && let Ok(value) = Decimal::new(digits.into(), scale.unsigned_abs())
                {
                    return Some(Self::Decimal(value));
                }
                let mut lexical = Vec::with_capacity(48);
                inline::write_lexical(id, &mut lexical);
                parse_decimal(std::str::from_utf8(&lexical).ok()?)
            }
        }
    }
}

fn parse_decimal(lexical: &str) -> Option<Value> {
    match lexical.parse() {
        Ok(value) => Some(Value::Decimal(value)),
        // Too many digits, or not a number at all.
        Err(_) => Some(Value::Big(Box::new(BigNumber::parse(lexical, false)?))),
    }
}

fn parse_integer(lexical: &str, datatype: Datatype) -> Option<Value> {
    let Ok(value) = lexical.parse::<i64>() else {
        let big = BigNumber::parse(lexical, true)?;
        let allowed = match datatype {
            Datatype::Integer => true,
            Datatype::NonNegativeInteger | Datatype::PositiveInteger => !big.is_negative(),
            Datatype::NonPositiveInteger | Datatype::NegativeInteger => big.is_negative(),
            Datatype::UnsignedLong => lexical.parse::<u64>().is_ok(),
            _ => false,
        };
        return allowed.then(|| Value::Big(Box::new(big)));
    };
    let allowed = match datatype {
        Datatype::Int => i32::try_from(value).is_ok(),
        Datatype::Short => i16::try_from(value).is_ok(),
        Datatype::Byte => i8::try_from(value).is_ok(),
        Datatype::NonNegativeInteger | Datatype::UnsignedLong => value >= 0,
        Datatype::PositiveInteger => value > 0,
        Datatype::NonPositiveInteger => value <= 0,
        Datatype::NegativeInteger => value < 0,
        Datatype::UnsignedInt => u32::try_from(value).is_ok(),
        Datatype::UnsignedShort => u16::try_from(value).is_ok(),
        Datatype::UnsignedByte => u8::try_from(value).is_ok(),
        _ => true,
    };
    allowed.then_some(Value::Integer(value))
}

/// Reads a double or float; Rust's own parser takes more (`inf`, `nan`), XSD's `INF` apart.
fn parse_float<T: std::str::FromStr>(lexical: &str) -> Option<T> {
    match lexical {
        "INF" | "+INF" => "inf".parse().ok(),
        "-INF" => "-inf".parse().ok(),
        "NaN" => "NaN".parse().ok(),
        _ => lexical
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
            .then(|| lexical.parse().ok())?,
    }
}
