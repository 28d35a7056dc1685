//! Values of literals, and numbers with their promotion (17.3, XPath 3.1 appendix B.1).

use std::cmp::Ordering;
use std::rc::Rc;

use oxrdf::vocab::{rdf, xsd};
use oxrdf::{Literal, Term};
use oxsdatatypes::{Boolean, Date, DateTime, DayTimeDuration, Decimal, Double, Float, Integer};

use super::{Fault, Outcome};

/// The value of a literal.
#[derive(Clone, Debug)]
pub enum Value {
    /// xsd:boolean.
    Boolean(bool),
    /// A number.
    Number(Number),
    /// A simple literal, which is an xsd:string.
    String,
    /// A string with a language.
    Lang,
    /// xsd:dateTime.
    DateTime(DateTime),
    /// xsd:date.
    Date(Date),
    /// xsd:dayTimeDuration, which TIMEZONE gives.
    Duration(DayTimeDuration),
    /// Ill-typed, or of a datatype that operators do not know.
    Unknown,
}

/// A number.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// xsd:integer and the types derived from it.
    Integer(Integer),
    /// xsd:decimal.
    Decimal(Decimal),
    /// xsd:float.
    Float(Float),
    /// xsd:double.
    Double(Double),
}

/// The value of a literal.
#[must_use]
pub fn value(literal: &Literal) -> Value {
    let text = literal.value();
    let datatype = literal.datatype();
    if literal.language().is_some() || datatype == rdf::LANG_STRING {
        return Value::Lang;
    }
    let found = if datatype == xsd::STRING {
        Some(Value::String)
    } else if datatype == xsd::BOOLEAN {
        text.parse::<Boolean>()
            .ok()
            .map(|b| Value::Boolean(b.into()))
    } else if datatype == xsd::DATE_TIME {
        text.parse().ok().map(Value::DateTime)
    } else if datatype == xsd::DATE {
        text.parse().ok().map(Value::Date)
    } else if datatype == xsd::DAY_TIME_DURATION {
        text.parse().ok().map(Value::Duration)
    } else {
        number(literal).map(Value::Number)
    };
    found.unwrap_or(Value::Unknown)
}

/// The number that a literal is, if it is one and well-formed.
#[must_use]
pub fn number(literal: &Literal) -> Option<Number> {
    let text = literal.value();
    let datatype = literal.datatype();
    if datatype == xsd::INTEGER || datatype == xsd::INT {
        text.parse().ok().map(Number::Integer)
    } else if datatype == xsd::DECIMAL {
        text.parse().ok().map(Number::Decimal)
    } else if datatype == xsd::DOUBLE {
        text.parse().ok().map(Number::Double)
    } else if datatype == xsd::FLOAT {
        text.parse().ok().map(Number::Float)
    } else {
        None
    }
}

/// The canonical form of a double: `1.0E2`.
#[must_use]
pub fn canonical(text: &str) -> String {
    match text.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        _ => match text {
            "inf" => "INF".to_owned(),
            "-inf" => "-INF".to_owned(),
            _ => text.to_owned(),
        },
    }
}

impl Number {
    /// The number as a literal in canonical form.
    #[must_use]
    pub fn literal(self) -> Literal {
        match self {
            Self::Integer(n) => Literal::new_typed_literal(n.to_string(), xsd::INTEGER),
            Self::Decimal(n) => Literal::new_typed_literal(n.to_string(), xsd::DECIMAL),
            Self::Float(n) => {
                Literal::new_typed_literal(canonical(&format!("{:E}", f32::from(n))), xsd::FLOAT)
            }
            Self::Double(n) => {
                Literal::new_typed_literal(canonical(&format!("{:E}", f64::from(n))), xsd::DOUBLE)
            }
        }
    }

    /// The number as a term.
    #[must_use]
    pub fn term(self) -> Rc<Term> {
        Rc::new(self.literal().into())
    }

    fn rank(self) -> u8 {
        match self {
            Self::Integer(_) => 0,
            Self::Decimal(_) => 1,
            Self::Float(_) => 2,
            Self::Double(_) => 3,
        }
    }

    fn decimal(self) -> Option<Decimal> {
        match self {
            Self::Integer(n) => Some(n.into()),
            Self::Decimal(n) => Some(n),
            _ => None,
        }
    }

    fn float(self) -> Option<Float> {
        match self {
            Self::Integer(n) => Some(n.into()),
            Self::Decimal(n) => Some(n.into()),
            Self::Float(n) => Some(n),
            Self::Double(_) => None,
        }
    }

    /// As a double, whatever it is.
    #[must_use]
    pub fn double(self) -> Double {
        match self {
            Self::Integer(n) => n.into(),
            Self::Decimal(n) => n.into(),
            Self::Float(n) => n.into(),
            Self::Double(n) => n,
        }
    }

    /// `op:numeric-equal` and `op:numeric-less-than`; `None` if either is NaN.
    #[must_use]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match self.rank().max(other.rank()) {
            0 | 1 => Some(self.decimal()?.cmp(&other.decimal()?)),
            2 => f32::from(self.float()?).partial_cmp(&f32::from(other.float()?)),
            _ => f64::from(self.double()).partial_cmp(&f64::from(other.double())),
        }
    }

    /// `+`, `-`, `*` and `/` (17.3).
    ///
    /// # Errors
    /// An expression error for a division of exact numbers by zero; open for an overflow.
    pub fn calculate(self, operator: &str, other: Self) -> Outcome<Self> {
        const OVERFLOW: Fault = Fault::Open("overflow");
        match self.rank().max(other.rank()) {
            0 if operator != "/" => {
                let (Self::Integer(a), Self::Integer(b)) = (self, other) else {
                    return Err(Fault::Error);
                };
                let result = match operator {
                    "+" => a.checked_add(b),
                    "-" => a.checked_sub(b),
                    _ => a.checked_mul(b),
                };
                result.map(Self::Integer).ok_or(OVERFLOW)
            }
            0 | 1 => {
                let (Some(a), Some(b)) = (self.decimal(), other.decimal()) else {
                    return Err(Fault::Error);
                };
                let result = match operator {
                    "+" => a.checked_add(b),
                    "-" => a.checked_sub(b),
                    "*" => a.checked_mul(b),
                    _ if b == Decimal::default() => return Err(Fault::Error),
                    _ => a.checked_div(b),
                };
                result.map(Self::Decimal).ok_or(OVERFLOW)
            }
            2 => {
                let (Some(a), Some(b)) = (self.float(), other.float()) else {
                    return Err(Fault::Error);
                };
                Ok(Self::Float(match operator {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    _ => a / b,
                }))
            }
            _ => {
                let (a, b) = (self.double(), other.double());
                Ok(Self::Double(match operator {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    _ => a / b,
                }))
            }
        }
    }

    /// `unary -`, ABS, CEIL, FLOOR, ROUND (17.4.4): the type stays.
    ///
    /// # Errors
    /// Open for an overflow.
    pub fn change(self, function: &str) -> Outcome<Self> {
        const OVERFLOW: Fault = Fault::Open("overflow");
        // fn:round: halves go up.
        let change = |value: f64| match function {
            "ABS" => value.abs(),
            "CEIL" => value.ceil(),
            "FLOOR" => value.floor(),
            "ROUND" => (value + 0.5).floor(),
            _ => -value,
        };
        Ok(match self {
            Self::Integer(n) => Self::Integer(match function {
                "ABS" => n.checked_abs().ok_or(OVERFLOW)?,
                "unary -" => n.checked_neg().ok_or(OVERFLOW)?,
                _ => n,
            }),
            Self::Decimal(n) => Self::Decimal(
                match function {
                    "ABS" => n.checked_abs(),
                    "CEIL" => n.checked_ceil(),
                    "FLOOR" => n.checked_floor(),
                    "ROUND" => "0.5"
                        .parse::<Decimal>()
                        .ok()
                        .and_then(|half| n.checked_add(half))
                        .and_then(Decimal::checked_floor),
                    _ => n.checked_neg(),
                }
                .ok_or(OVERFLOW)?,
            ),
            Self::Float(n) => Self::Float(Float::from(Double::from(change(f32::from(n).into())))),
            Self::Double(n) => Self::Double(change(n.into()).into()),
        })
    }
}

/// A boolean as a term.
#[must_use]
pub fn boolean(value: bool) -> Rc<Term> {
    let text = if value { "true" } else { "false" };
    Rc::new(Literal::new_typed_literal(text, xsd::BOOLEAN).into())
}
