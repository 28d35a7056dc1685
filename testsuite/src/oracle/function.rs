//! Functions (17.4.2 to 17.4.6) and casts (17.5), each with its section.

use std::fmt::Write as _;
use std::rc::Rc;

use md5::{Digest, Md5};
use oxrdf::vocab::xsd;
use oxrdf::{BaseDirection, BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use oxsdatatypes::DateTime;
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use super::value::{Number, Value, boolean, number, value};
use super::{Fault, Outcome, derived};

/// A string literal (17.4.3.1.1): text and language.
type Text<'a> = (&'a str, Option<&'a str>);

fn text(term: &Term) -> Outcome<Text<'_>> {
    match term {
        Term::Literal(l) if l.datatype() == xsd::STRING || l.language().is_some() => {
            Ok((l.value(), l.language()))
        }
        _ => Err(Fault::Error),
    }
}

/// A simple literal.
fn simple(term: &Term) -> Outcome<&str> {
    match text(term)? {
        (value, None) => Ok(value),
        _ => Err(Fault::Error),
    }
}

/// A number.
///
/// # Errors
/// An expression error for anything else.
pub fn numeric(term: &Term) -> Outcome<Number> {
    match term {
        Term::Literal(literal) => number(literal).ok_or(Fault::Error),
        _ => Err(Fault::Error),
    }
}

fn plain(value: impl Into<String>) -> Rc<Term> {
    Rc::new(Literal::new_simple_literal(value).into())
}

fn like(value: impl Into<String>, language: Option<&str>) -> Rc<Term> {
    match language {
        None => plain(value),
        Some(language) => {
            Rc::new(Literal::new_language_tagged_literal_unchecked(value, language).into())
        }
    }
}

fn whole(value: usize) -> Outcome<Rc<Term>> {
    let value = i64::try_from(value).map_err(|_| Fault::TooLarge)?;
    Ok(Number::whole(value).term())
}

/// STR (17.4.2.5).
#[must_use]
pub fn str(term: &Term) -> Option<String> {
    match term {
        Term::NamedNode(iri) => Some(iri.as_str().to_owned()),
        Term::Literal(literal) => Some(literal.value().to_owned()),
        _ => None,
    }
}

/// Functions on triple terms (17.4.6 of SPARQL 1.2).
fn of_triples(name: &'static str, arguments: &[Rc<Term>]) -> Outcome<Rc<Term>> {
    match (name, arguments) {
        ("isTRIPLE", [a]) => Ok(boolean(matches!(**a, Term::Triple(_)))),
        ("TRIPLE", [subject, predicate, object]) => {
            let subject: NamedOrBlankNode = match &**subject {
                Term::NamedNode(node) => node.clone().into(),
                Term::BlankNode(node) => node.clone().into(),
                _ => return Err(Fault::Error),
            };
            let Term::NamedNode(predicate) = &**predicate else {
                return Err(Fault::Error);
            };
            let triple = Triple::new(subject, predicate.clone(), (**object).clone());
            Ok(Rc::new(triple.into()))
        }
        (_, [a]) => match &**a {
            Term::Triple(triple) => Ok(Rc::new(match name {
                "SUBJECT" => triple.subject.clone().into(),
                "PREDICATE" => triple.predicate.clone().into(),
                _ => triple.object.clone(),
            })),
            _ => Err(Fault::Error),
        },
        _ => Err(Fault::Error),
    }
}

/// Functions on base directions (17.4.2 of SPARQL 1.2).
fn of_directions(name: &'static str, arguments: &[Rc<Term>]) -> Outcome<Rc<Term>> {
    if let ("STRLANGDIR", [a, language, direction]) = (name, arguments) {
        let direction = match simple(direction)? {
            "ltr" => BaseDirection::Ltr,
            "rtl" => BaseDirection::Rtl,
            _ => return Err(Fault::Error),
        };
        let (text, language) = (simple(a)?, simple(language)?);
        return Ok(Rc::new(
            Literal::new_directional_language_tagged_literal_unchecked(text, language, direction)
                .into(),
        ));
    }
    let [a] = arguments else {
        return Err(Fault::Error);
    };
    let Term::Literal(literal) = &**a else {
        return Err(Fault::Open("language or direction of what is no literal"));
    };
    Ok(match (name, literal.direction()) {
        ("hasLANG", _) => boolean(literal.language().is_some()),
        ("hasLANGDIR", direction) => boolean(direction.is_some()),
        (_, None) => plain(""),
        (_, Some(BaseDirection::Ltr)) => plain("ltr"),
        (_, Some(BaseDirection::Rtl)) => plain("rtl"),
    })
}

/// Calls a function with evaluated arguments.
///
/// # Errors
/// An expression error for arguments that it does not take.
pub fn call(name: &'static str, arguments: &[Rc<Term>]) -> Outcome<Rc<Term>> {
    match (name, arguments) {
        // 17.4.2.1 to 17.4.2.4
        ("isIRI" | "isURI", [a]) => Ok(boolean(matches!(**a, Term::NamedNode(_)))),
        ("isBlank", [a]) => Ok(boolean(matches!(**a, Term::BlankNode(_)))),
        ("isLiteral", [a]) => Ok(boolean(matches!(**a, Term::Literal(_)))),
        ("isNumeric", [a]) => Ok(boolean(numeric(a).is_ok())),
        ("isTRIPLE" | "TRIPLE" | "SUBJECT" | "PREDICATE" | "OBJECT", _) => {
            of_triples(name, arguments)
        }
        ("hasLANG" | "hasLANGDIR" | "LANGDIR" | "STRLANGDIR", _) => of_directions(name, arguments),
        // 17.4.2.5
        ("STR", [a]) => str(a).map(plain).ok_or(Fault::Error),
        // 17.4.2.6
        ("LANG", [a]) => match &**a {
            Term::Literal(literal) => Ok(plain(literal.language().unwrap_or(""))),
            _ => Err(Fault::Error),
        },
        // 17.4.2.7
        ("DATATYPE", [a]) => match &**a {
            Term::Literal(literal) => Ok(Rc::new(literal.datatype().into_owned().into())),
            _ => Err(Fault::Error),
        },
        // 17.4.2.8
        ("IRI" | "URI", [a]) => match (&**a, simple(a)) {
            (Term::NamedNode(_), _) => Ok(Rc::clone(a)),
            (_, Ok(iri)) if iri.starts_with("http://") && !iri.contains([' ', '"', '<', '\n']) => {
                Ok(Rc::new(NamedNode::new_unchecked(iri).into()))
            }
            (_, Ok(_)) => Err(Fault::Open("IRI of a text that is none, without a base")),
            _ => Err(Fault::Error),
        },
        // 17.4.2.9: a new one each time; only tested for being one.
        ("BNODE", []) => Ok(Rc::new(BlankNode::default().into())),
        // 17.4.2.10
        ("STRDT", [a, datatype]) => match &**datatype {
            Term::NamedNode(datatype) => Ok(Rc::new(
                Literal::new_typed_literal(simple(a)?, datatype.clone()).into(),
            )),
            _ => Err(Fault::Error),
        },
        // 17.4.2.11
        ("STRLANG", [a, language]) => Ok(like(simple(a)?, Some(simple(language)?))),
        // 17.4.2.12 and 17.4.2.13, 17.4.4.6
        ("UUID", []) => Ok(Rc::new(
            NamedNode::new_unchecked(format!("urn:uuid:{ANY_UUID}")).into(),
        )),
        ("STRUUID", []) => Ok(plain(ANY_UUID)),
        ("RAND", []) => Ok(Number::Double(0.5.into()).term()),
        // 17.4.5.1
        ("NOW", []) => Ok(Rc::new(
            Literal::new_typed_literal("2020-01-01T00:00:00Z", xsd::DATE_TIME).into(),
        )),
        _ => match name.strip_prefix("xsd:") {
            Some(target) => cast(target, arguments),
            None => string_function(name, arguments),
        },
    }
}

const ANY_UUID: &str = "00000000-0000-4000-8000-000000000000";

#[expect(clippy::too_many_lines, reason = "an arm for each function of 17.4.3")]
fn string_function(name: &'static str, arguments: &[Rc<Term>]) -> Outcome<Rc<Term>> {
    match (name, arguments) {
        // 17.4.3.2
        ("STRLEN", [a]) => whole(text(a)?.0.chars().count()),
        // 17.4.3.3: fn:substring, positions from 1.
        ("SUBSTR", [a, rest @ ..]) => {
            let (value, language) = text(a)?;
            let mut numbers = Vec::new();
            for argument in rest {
                let Number::Integer(n) = numeric(argument)? else {
                    return Err(Fault::Error);
                };
                numbers.push(i64::try_from(n).map_err(|_| Fault::Open("SUBSTR far away"))?);
            }
            let start = *numbers.first().ok_or(Fault::Error)?;
            let end = numbers
                .get(1)
                .map_or(i64::MAX, |length| start.saturating_add(*length));
            let kept: String = value
                .chars()
                .zip(1_i64..)
                .filter(|(_, at)| *at >= start && *at < end)
                .map(|(character, _)| character)
                .collect();
            Ok(like(kept, language))
        }
        // 17.4.3.4, 17.4.3.5
        ("UCASE", [a]) => text(a).map(|(value, language)| like(value.to_uppercase(), language)),
        ("LCASE", [a]) => text(a).map(|(value, language)| like(value.to_lowercase(), language)),
        // 17.4.3.6 to 17.4.3.8
        ("STRSTARTS" | "STRENDS" | "CONTAINS", [a, b]) => {
            let (value, part, _) = compatible(a, b)?;
            Ok(boolean(match name {
                "STRSTARTS" => value.starts_with(part),
                "STRENDS" => value.ends_with(part),
                _ => value.contains(part),
            }))
        }
        // 17.4.3.9, 17.4.3.10: no match gives the simple empty string, a match one like the first.
        ("STRBEFORE" | "STRAFTER", [a, b]) => {
            let (value, part, language) = compatible(a, b)?;
            Ok(match value.split_once(part) {
                None => plain(""),
                Some((before, _)) if name == "STRBEFORE" => like(before, language),
                Some((_, after)) => like(after, language),
            })
        }
        // 17.4.3.11
        ("ENCODE_FOR_URI", [a]) => {
            let mut out = String::new();
            for byte in text(a)?.0.bytes() {
                if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                    out.push(char::from(byte));
                } else {
                    let _ = write!(out, "%{byte:02X}");
                }
            }
            Ok(plain(out))
        }
        // 17.4.3.12: the language of all, if it is one.
        ("CONCAT", list) => {
            let parts: Vec<Text<'_>> = list.iter().map(|a| text(a)).collect::<Outcome<_>>()?;
            let first = parts.first().and_then(|(_, language)| *language);
            let same = parts.iter().all(|(_, language)| *language == first);
            let value: String = parts.iter().map(|(value, _)| *value).collect();
            Ok(like(value, first.filter(|_| same)))
        }
        // 17.4.3.13: RFC 4647 basic filtering.
        ("LANGMATCHES", [a, b]) => {
            let (tag, range) = (simple(a)?.to_lowercase(), simple(b)?.to_lowercase());
            Ok(boolean(if range == "*" {
                !tag.is_empty()
            } else {
                tag == range || tag.starts_with(&format!("{range}-"))
            }))
        }
        // 17.4.3.14
        ("REGEX", [a, pattern, flags @ ..]) => {
            Ok(boolean(regex(pattern, flags)?.is_match(text(a)?.0)))
        }
        // 17.4.3.15: fn:replace, an error for what matches the empty string.
        ("REPLACE", [a, pattern, with, flags @ ..]) => {
            let (value, language) = text(a)?;
            let replaced = regex(pattern, flags)?.replace_all(value, simple(with)?);
            Ok(like(replaced.map_err(|_| Fault::Error)?, language))
        }
        _ => date_or_hash(name, arguments),
    }
}

/// Argument compatibility (17.4.3.1.2): text, part, language of the first.
fn compatible<'a>(a: &'a Term, b: &'a Term) -> Outcome<(&'a str, &'a str, Option<&'a str>)> {
    let ((value, language), (part, other)) = (text(a)?, text(b)?);
    if other.is_none() || other == language {
        Ok((value, part, language))
    } else {
        Err(Fault::Error)
    }
}

/// XPath's regular expressions by an engine of their own, which shares nothing with the product's.
fn regex(pattern: &Term, flags: &[Rc<Term>]) -> Outcome<regexml::Regex> {
    let flags = flags.first().map_or(Ok(""), |flags| simple(flags))?;
    regexml::Regex::xpath(simple(pattern)?, flags).map_err(|_| Fault::Error)
}

fn hash<D: Digest>(term: &Term) -> Outcome<Rc<Term>> {
    let mut out = String::new();
    for byte in D::digest(simple(term)?.as_bytes()) {
        let _ = write!(out, "{byte:02x}");
    }
    Ok(plain(out))
}

fn date_or_hash(name: &'static str, arguments: &[Rc<Term>]) -> Outcome<Rc<Term>> {
    let [argument] = arguments else {
        return Err(Fault::Open("no such function"));
    };
    match name {
        // 17.4.6
        "MD5" => return hash::<Md5>(argument),
        "SHA1" => return hash::<Sha1>(argument),
        "SHA256" => return hash::<Sha256>(argument),
        "SHA384" => return hash::<Sha384>(argument),
        "SHA512" => return hash::<Sha512>(argument),
        _ => {}
    }
    // 17.4.5.2 to 17.4.5.9. That functions of the day also take dates is an extension that XPath
    // suggests (fn:year-from-date), as 17.3.1 allows.
    let Term::Literal(literal) = &**argument else {
        return Err(Fault::Error);
    };
    let (year, month, day, zone, time) = match value(literal) {
        Value::DateTime(t) => (t.year(), t.month(), t.day(), t.timezone(), Some(t)),
        Value::Date(d) => (d.year(), d.month(), d.day(), d.timezone(), None),
        _ => return Err(Fault::Error),
    };
    let integer = |n: i64| Ok(Number::whole(n).term());
    match (name, time) {
        ("YEAR", _) => integer(year),
        ("MONTH", _) => integer(month.into()),
        ("DAY", _) => integer(day.into()),
        ("HOURS", Some(time)) => integer(time.hour().into()),
        ("MINUTES", Some(time)) => integer(time.minute().into()),
        ("SECONDS", Some(time)) => {
            let seconds = Literal::new_typed_literal(time.second().to_string(), xsd::DECIMAL);
            Ok(Rc::new(seconds.into()))
        }
        ("TIMEZONE", _) => {
            let zone = zone.ok_or(Fault::Error)?;
            Ok(Rc::new(
                Literal::new_typed_literal(zone.to_string(), xsd::DAY_TIME_DURATION).into(),
            ))
        }
        ("TZ", _) => {
            let text = literal.value();
            let tail = text.get(10..).unwrap_or("");
            let zone = tail.rfind(['Z', '+', '-']).and_then(|at| tail.get(at..));
            Ok(plain(zone.unwrap_or("")))
        }
        ("HOURS" | "MINUTES" | "SECONDS", None) => Err(Fault::Error),
        _ => Err(Fault::Open("no such function")),
    }
}

/// Constructor functions (17.5), by the tables of XPath (casting).
fn cast(target: &str, arguments: &[Rc<Term>]) -> Outcome<Rc<Term>> {
    let [argument] = arguments else {
        return Err(Fault::Error);
    };
    let literal = match &**argument {
        Term::Literal(literal) => literal,
        // Only xsd:string takes an IRI.
        Term::NamedNode(iri) if target == "string" => return Ok(plain(iri.as_str())),
        _ => return Err(Fault::Error),
    };
    // What derives from strings is cast as a string.
    let text_like = super::value::local_name(literal).is_some_and(derived::is_string);
    let source = if text_like {
        Value::String
    } else {
        value(literal)
    };
    if literal.language().is_some() {
        // The table of 17.5 has no such line; 17.3.1 lets engines give a type error a meaning.
        return Err(if target == "string" {
            Fault::Open("text of a language string")
        } else {
            Fault::Error
        });
    }
    let text = literal.value();
    let again = |datatype: NamedNode| Literal::new_typed_literal(text, datatype);
    match (target, source) {
        ("string", Value::Number(Number::Float(_) | Number::Double(_))) => {
            Err(Fault::Open("text of a double"))
        }
        ("string", Value::Number(number)) => Ok(plain(number.literal().value())),
        ("string", Value::Boolean(value)) => Ok(plain(value.to_string())),
        // The lexical form, which here is canonical; also of unknown datatypes.
        ("string", _) => Ok(plain(text)),
        ("boolean", Value::Boolean(value)) => Ok(boolean(value)),
        ("boolean", Value::Number(number)) => Ok(boolean(!number.is_false())),
        ("boolean", Value::String) => match value(&again(xsd::BOOLEAN.into_owned())) {
            Value::Boolean(value) => Ok(boolean(value)),
            _ => Err(Fault::Error),
        },
        ("dateTime", Value::DateTime(_)) | ("date", Value::Date(_)) => Ok(Rc::clone(argument)),
        ("dateTime", Value::Date(_)) | ("date", Value::DateTime(_)) => {
            Err(Fault::Open("between dates and times"))
        }
        ("dateTime", Value::String) => {
            text.parse::<DateTime>().map_err(|_| Fault::Error)?;
            Ok(Rc::new(again(xsd::DATE_TIME.into_owned()).into()))
        }
        ("date", Value::String) => {
            text.parse::<oxsdatatypes::Date>()
                .map_err(|_| Fault::Error)?;
            Ok(Rc::new(again(xsd::DATE.into_owned()).into()))
        }
        ("integer" | "decimal" | "float" | "double", source) => {
            number_cast(target, &source, text).map(|number| number.term())
        }
        ("boolean" | "dateTime" | "date", _) => Err(Fault::Error),
        (_, source) => {
            let string = cast("string", arguments).and_then(|term| str(&term).ok_or(Fault::Error));
            let integer = number_cast("integer", &source, text);
            derived::cast(target, literal, &source, string, integer)
        }
    }
}

fn number_cast(target: &str, source: &Value, text: &str) -> Outcome<Number> {
    let number = match source {
        Value::Number(number) => number.clone(),
        Value::Boolean(value) => Number::whole(i64::from(*value)),
        Value::String => {
            let datatype =
                NamedNode::new_unchecked(format!("http://www.w3.org/2001/XMLSchema#{target}"));
            return number(&Literal::new_typed_literal(text, datatype)).ok_or(Fault::Error);
        }
        _ => return Err(Fault::Error),
    };
    match (target, number) {
        // Truncated towards zero.
        ("integer", number) => number.truncated()?,
        ("decimal", Number::Integer(n)) => Number::Decimal(n, 0),
        ("decimal", number @ Number::Decimal(..)) => number,
        ("decimal", number) => {
            let value = f64::from(number.double());
            if value.fract() == 0.0 {
                return number_cast(target, &Value::Number(number.truncated()?), text);
            }
            if matches!(number, Number::Float(_)) && value.fract() != 0.0 {
                return Err(Fault::Open("digits of a float as decimal"));
            }
            // NaN and the infinities are no decimals.
            let shortest = Literal::new_typed_literal(value.to_string(), xsd::DECIMAL);
            super::value::number(&shortest).ok_or(Fault::Error)?
        }
        ("float", number) => Number::Float(number.to_float()),
        (_, number) => Number::Double(number.double()),
    }
    .checked()
}
