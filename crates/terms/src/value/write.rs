//! From values to literals in canonical form.

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode};

use super::Value;
use crate::datatype::Datatype;
use crate::{TermId, inline};

impl Value {
    /// The id of the number or boolean that [`to_literal`](Self::to_literal) gives, if it is inline.
    #[must_use]
    pub fn inline_id(&self) -> Option<TermId> {
        match self {
            Self::Boolean(value) => Some((*value).into()),
            Self::Integer(value) => inline::encode_i64(*value),
            Self::Decimal(value) => {
                inline::encode_decimal_parts(i128::from_be_bytes(value.to_be_bytes()), 18)
            }
            Self::Float(value) => inline::encode_f32(*value),
            Self::Double(value) => inline::encode_f64(*value),
            _ => None,
        }
    }

    /// The literal that an expression with this value has: canonical lexical form, the datatype of
    /// the value (`xsd:integer` for all integers). `None` for what is no literal.
    #[must_use]
    pub fn to_literal(&self) -> Option<Literal> {
        let typed = |lexical: String, datatype: Datatype| {
            Literal::new_typed_literal(lexical, NamedNode::new_unchecked(datatype.iri()))
        };
        Some(match self {
            Self::Boolean(value) => Literal::new_typed_literal(value.to_string(), xsd::BOOLEAN),
            Self::Integer(value) => Literal::new_typed_literal(value.to_string(), xsd::INTEGER),
            Self::Decimal(value) => Literal::new_typed_literal(value.to_string(), xsd::DECIMAL),
            Self::Big(value) => typed(
                value.lexical(),
                if value.is_integer() {
                    Datatype::Integer
                } else {
                    Datatype::Decimal
                },
            ),
            Self::Float(value) => typed(write_float(*value), Datatype::Float),
            Self::Double(value) => typed(write_double(*value), Datatype::Double),
            Self::String(text) => Literal::new_simple_literal(&**text),
            Self::LangString(value) => match value.direction {
                None => {
                    Literal::new_language_tagged_literal_unchecked(&*value.text, &*value.language)
                }
                Some(direction) => Literal::new_directional_language_tagged_literal_unchecked(
                    &*value.text,
                    &*value.language,
                    direction,
                ),
            },
            Self::Temporal(value) => typed(value.lexical(), value.datatype()),
            Self::Duration(value) => typed(value.to_string(), Datatype::Duration),
            Self::YearMonthDuration(value) => typed(value.to_string(), Datatype::YearMonthDuration),
            Self::DayTimeDuration(value) => typed(value.to_string(), Datatype::DayTimeDuration),
            Self::Other(literal) => (**literal).clone(),
            Self::Iri(_) | Self::BlankNode(_) | Self::Triple(_) => return None,
        })
    }
}

/// The canonical form of a double, `1.0E2`.
#[must_use]
pub fn write_double(value: f64) -> String {
    if value.is_finite() {
        canonical(&format!("{value:E}"))
    } else {
        special(value)
    }
}

/// The canonical form of a float, `1.0E2`.
#[must_use]
pub fn write_float(value: f32) -> String {
    if value.is_finite() {
        canonical(&format!("{value:E}"))
    } else {
        special(f64::from(value))
    }
}

fn special(value: f64) -> String {
    String::from(if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "INF"
    } else {
        "-INF"
    })
}

/// Rust writes `1E2` where XSD wants `1.0E2`.
fn canonical(scientific: &str) -> String {
    match scientific.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => scientific.to_owned(),
    }
}
