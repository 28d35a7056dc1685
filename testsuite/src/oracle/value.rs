//! Values of literals, and numbers with their promotion (17.3, XPath 3.1 appendix B.1).

use std::cmp::Ordering;
use std::rc::Rc;

use num_bigint::BigInt;
use oxrdf::vocab::{rdf, xsd};
use oxrdf::{Literal, Term};
use oxsdatatypes::{
    Boolean, Date, DateTime, DayTimeDuration, Double, Float, GDay, GMonth, GMonthDay, GYear,
    GYearMonth,
};

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
    /// A part of a date, such as xsd:gYear, whose order is left open.
    Part,
    /// Ill-typed, or of a datatype that operators do not know.
    Unknown,
}

/// A number.
#[derive(Clone, Debug)]
pub enum Number {
    /// xsd:integer and the types derived from it.
    Integer(BigInt),
    /// xsd:decimal: digits, and how many of them are behind the point.
    Decimal(BigInt, u32),
    /// xsd:float.
    Float(Float),
    /// xsd:double.
    Double(Double),
}

/// Digits behind the point of a quotient, unless an operand has more: what the product documents.
const QUOTIENT_SCALE: u32 = 18;

/// Numbers with more digits than that may be errors.
const DIGITS_MAX: usize = 1_000;

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
    } else if let Some(local) = local_name(literal) {
        match local {
            "dateTimeStamp" => text
                .parse::<DateTime>()
                .ok()
                .filter(|time| time.timezone().is_some())
                .map(Value::DateTime),
            "gYear" => text.parse::<GYear>().ok().map(|_| Value::Part),
            "gYearMonth" => text.parse::<GYearMonth>().ok().map(|_| Value::Part),
            "gMonth" => text.parse::<GMonth>().ok().map(|_| Value::Part),
            "gMonthDay" => text.parse::<GMonthDay>().ok().map(|_| Value::Part),
            "gDay" => text.parse::<GDay>().ok().map(|_| Value::Part),
            _ => number(literal).map(Value::Number),
        }
    } else {
        None
    };
    found.unwrap_or(Value::Unknown)
}

/// What follows the namespace of XSD in a datatype.
#[must_use]
pub fn local_name(literal: &Literal) -> Option<&str> {
    literal
        .datatype()
        .as_str()
        .strip_prefix("http://www.w3.org/2001/XMLSchema#")
}

/// The least and the greatest value of a type derived from xsd:integer.
#[must_use]
pub fn bounds(local: &str) -> Option<(Option<i128>, Option<i128>)> {
    let bits = |bits: u32| (1_i128 << bits) - 1;
    Some(match local {
        "integer" => (None, None),
        "byte" => (Some(-bits(7) - 1), Some(bits(7))),
        "short" => (Some(-bits(15) - 1), Some(bits(15))),
        "int" => (Some(-bits(31) - 1), Some(bits(31))),
        "long" => (Some(-bits(63) - 1), Some(bits(63))),
        "unsignedByte" => (Some(0), Some(bits(8))),
        "unsignedShort" => (Some(0), Some(bits(16))),
        "unsignedInt" => (Some(0), Some(bits(32))),
        "unsignedLong" => (Some(0), Some(bits(64))),
        "positiveInteger" => (Some(1), None),
        "nonNegativeInteger" => (Some(0), None),
        "negativeInteger" => (None, Some(-1)),
        "nonPositiveInteger" => (None, Some(0)),
        _ => return None,
    })
}

/// Whether a type derived from xsd:integer has a value.
#[must_use]
pub fn within(local: &str, value: &BigInt) -> bool {
    bounds(local).is_some_and(|(least, greatest)| {
        least.is_none_or(|least| *value >= least.into())
            && greatest.is_none_or(|greatest| *value <= greatest.into())
    })
}

/// The number that a literal is, if it is one and well-formed.
#[must_use]
pub fn number(literal: &Literal) -> Option<Number> {
    let text = literal.value();
    let datatype = literal.datatype();
    if let Some(local) = local_name(literal).filter(|local| bounds(local).is_some()) {
        let (digits, point) = digits(text)?;
        (point.is_none() && within(local, &digits)).then_some(Number::Integer(digits))
    } else if datatype == xsd::DECIMAL {
        let (digits, point) = digits(text)?;
        Some(Number::Decimal(digits, point.unwrap_or(0)))
    } else if datatype == xsd::DOUBLE {
        text.parse().ok().map(Number::Double)
    } else if datatype == xsd::FLOAT {
        text.parse().ok().map(Number::Float)
    } else {
        None
    }
}

/// The digits of an integer or decimal, and how many are behind its point.
fn digits(text: &str) -> Option<(BigInt, Option<u32>)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (unsigned, None),
    };
    let all = format!("{whole}{}", fraction.unwrap_or(""));
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: BigInt = all.parse().ok()?;
    let scale = fraction.map(|fraction| u32::try_from(fraction.len()));
    let signed = if text.starts_with('-') {
        -digits
    } else {
        digits
    };
    Some((signed, scale.transpose().ok()?))
}

fn ten_to(power: u32) -> BigInt {
    BigInt::from(10).pow(power)
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
    /// The lexical form of an integer or decimal, in canonical form; that of a double is another.
    fn exact_text(&self) -> Option<String> {
        let (number, scale) = self.exact()?;
        let scale = usize::try_from(scale).ok()?;
        let sign = if *number < BigInt::default() { "-" } else { "" };
        let digits = format!("{:0>1$}", number.magnitude().to_string(), scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let fraction = fraction.trim_end_matches('0');
        Some(if fraction.is_empty() {
            format!("{sign}{whole}")
        } else {
            format!("{sign}{whole}.{fraction}")
        })
    }

    /// The number as a literal in canonical form.
    #[must_use]
    pub fn literal(&self) -> Literal {
        let exact = self.exact_text().unwrap_or_default();
        match self {
            Self::Integer(_) => Literal::new_typed_literal(exact, xsd::INTEGER),
            Self::Decimal(..) => Literal::new_typed_literal(exact, xsd::DECIMAL),
            Self::Float(n) => {
                Literal::new_typed_literal(canonical(&format!("{:E}", f32::from(*n))), xsd::FLOAT)
            }
            Self::Double(n) => {
                Literal::new_typed_literal(canonical(&format!("{:E}", f64::from(*n))), xsd::DOUBLE)
            }
        }
    }

    /// The number as a term.
    #[must_use]
    pub fn term(&self) -> Rc<Term> {
        Rc::new(self.literal().into())
    }

    /// A whole number.
    #[must_use]
    pub fn whole(value: i64) -> Self {
        Self::Integer(value.into())
    }

    /// An integer or decimal that 64 bits, or 18 digits behind the point, do not hold.
    #[must_use]
    pub fn is_big(&self) -> bool {
        match self {
            Self::Integer(n) => i64::try_from(n).is_err(),
            _ => self
                .exact_text()
                .is_some_and(|text| text.parse::<oxsdatatypes::Decimal>().is_err()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) => 0,
            Self::Decimal(..) => 1,
            Self::Float(_) => 2,
            Self::Double(_) => 3,
        }
    }

    /// Digits and scale of an integer or decimal.
    fn exact(&self) -> Option<(&BigInt, u32)> {
        match self {
            Self::Integer(n) => Some((n, 0)),
            Self::Decimal(n, scale) => Some((n, *scale)),
            _ => None,
        }
    }

    /// As a float, unless it is a double.
    fn float(&self) -> Option<Float> {
        match self {
            Self::Float(n) => Some(*n),
            Self::Double(_) => None,
            // Rust reads the nearest one.
            _ => self.exact_text()?.parse::<f32>().ok().map(Float::from),
        }
    }

    /// As a double, whatever it is.
    #[must_use]
    pub fn double(&self) -> Double {
        match self {
            Self::Float(n) => (*n).into(),
            Self::Double(n) => *n,
            _ => {
                let text = self.exact_text().unwrap_or_default();
                text.parse::<f64>().unwrap_or(f64::NAN).into()
            }
        }
    }

    /// As xsd:float, by a cast.
    #[must_use]
    pub fn to_float(&self) -> Float {
        self.float().unwrap_or_else(|| self.double().into())
    }

    /// Whether it is zero or NaN.
    #[must_use]
    pub fn is_false(&self) -> bool {
        match self.exact() {
            Some((digits, _)) => *digits == BigInt::default(),
            None => {
                let value = f64::from(self.double());
                value.is_nan() || value == 0.0
            }
        }
    }

    /// Both with the digits of one scale.
    fn aligned(&self, other: &Self) -> Option<(BigInt, BigInt, u32)> {
        let ((a, left), (b, right)) = (self.exact()?, other.exact()?);
        let scale = left.max(right);
        Some((a * ten_to(scale - left), b * ten_to(scale - right), scale))
    }

    /// `op:numeric-equal` and `op:numeric-less-than`; `None` if either is NaN.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match self.rank().max(other.rank()) {
            0 | 1 => self.aligned(other).map(|(a, b, _)| a.cmp(&b)),
            2 => f32::from(self.float()?).partial_cmp(&f32::from(other.float()?)),
            _ => f64::from(self.double()).partial_cmp(&f64::from(other.double())),
        }
    }

    /// `+`, `-`, `*` and `/` (17.3).
    ///
    /// # Errors
    /// An expression error for a division of exact numbers by zero; open for too many digits.
    pub fn calculate(&self, operator: &str, other: &Self) -> Outcome<Self> {
        match self.rank().max(other.rank()) {
            0 | 1 => self.calculate_exactly(operator, other),
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

    fn calculate_exactly(&self, operator: &str, other: &Self) -> Outcome<Self> {
        let (a, b, scale) = self.aligned(other).ok_or(Fault::Error)?;
        let (digits, scale) = match operator {
            "+" => (a + b, scale),
            "-" => (a - b, scale),
            "*" => (a * b, 2 * scale),
            _ if b == BigInt::default() => return Err(Fault::Error),
            _ => {
                // What is behind the last place is cut off.
                let places = scale.max(QUOTIENT_SCALE);
                (a * ten_to(places) / b, places)
            }
        };
        let result = if scale == 0 && self.rank() + other.rank() == 0 && operator != "/" {
            Self::Integer(digits)
        } else {
            Self::Decimal(digits, scale)
        };
        result.checked()
    }

    /// Open if there are so many digits that an engine may give up.
    ///
    /// # Errors
    /// That.
    pub fn checked(self) -> Outcome<Self> {
        if self
            .exact_text()
            .is_some_and(|text| text.len() > DIGITS_MAX)
        {
            return Err(Fault::Open("too many digits"));
        }
        // Zeros at the end are no digits that count.
        Ok(match self {
            Self::Decimal(..) => number(&self.literal()).unwrap_or(self),
            _ => self,
        })
    }

    /// `unary -`, ABS, CEIL, FLOOR, ROUND (17.4.4): the type stays.
    ///
    /// # Errors
    /// Open for too many digits.
    pub fn change(&self, function: &str) -> Outcome<Self> {
        // fn:round: halves go up.
        let change = |value: f64| match function {
            "ABS" => value.abs(),
            "CEIL" => value.ceil(),
            "FLOOR" => value.floor(),
            // "-0.5 <= value < 0 gives negative zero".
            "ROUND" => (value + 0.5).floor().copysign(value),
            _ => -value,
        };
        let change_exact = |digits: &BigInt, unit: &BigInt| -> BigInt {
            // What is missing to the next whole number below.
            let above = |digits: &BigInt| ((digits % unit) + unit) % unit;
            match function {
                "ABS" => digits.magnitude().clone().into(),
                "CEIL" => digits + above(&-digits),
                "FLOOR" => digits - above(digits),
                "ROUND" => {
                    let raised = digits + unit / 2_u8;
                    &raised - above(&raised)
                }
                _ => -digits,
            }
        };
        match self {
            Self::Integer(n) => Self::Integer(change_exact(n, &1.into())),
            // With one digit more a half is whole.
            Self::Decimal(n, scale) => {
                Self::Decimal(change_exact(&(n * 10), &ten_to(scale + 1)), scale + 1)
            }
            Self::Float(n) => Self::Float(Float::from(Double::from(change(f32::from(*n).into())))),
            Self::Double(n) => Self::Double(change((*n).into()).into()),
        }
        .checked()
    }

    /// The integer part; an expression error for INF and NaN.
    ///
    /// # Errors
    /// That.
    pub fn truncated(&self) -> Outcome<Self> {
        if let Some((digits, scale)) = self.exact() {
            return Ok(Self::Integer(digits / ten_to(scale)));
        }
        let value = f64::from(self.double());
        let text = format!("{:.0}", value.trunc());
        text.parse().map(Self::Integer).map_err(|_| Fault::Error)
    }
}

/// A boolean as a term.
#[must_use]
pub fn boolean(value: bool) -> Rc<Term> {
    let text = if value { "true" } else { "false" };
    Rc::new(Literal::new_typed_literal(text, xsd::BOOLEAN).into())
}
