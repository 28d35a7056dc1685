//! Comparing terms: `=` and `<` (17.3, 17.4.1.7) and ORDER BY (15.1).

use std::cmp::Ordering;

use oxrdf::Term;

use super::value::{Value, value};
use super::{Fault, Outcome};

/// The operator `=`.
///
/// # Errors
/// An expression error where it has no answer.
pub fn equal(a: &Term, b: &Term) -> Outcome<bool> {
    if let (Term::Triple(a), Term::Triple(b)) = (a, b) {
        // SPARQL 1.2, operator mapping: `=` of each part, joined by `&&`, which an error on one side does not
        // decide if the other one is false.
        let subject = equal(&a.subject.clone().into(), &b.subject.clone().into());
        let object = equal(&a.object, &b.object);
        return match (subject, a.predicate == b.predicate, object) {
            (Ok(false), ..) | (_, false, _) | (.., Ok(false)) => Ok(false),
            (Err(fault), ..) | (.., Err(fault)) => Err(fault),
            (Ok(true), true, Ok(true)) => Ok(true),
        };
    }
    let (Term::Literal(left), Term::Literal(right)) = (a, b) else {
        // RDFterm-equal (17.4.1.7) of terms that are not both literals.
        return Ok(a == b);
    };
    match (value(left), value(right)) {
        (Value::Number(a), Value::Number(b)) => Ok(a.compare(&b) == Some(Ordering::Equal)),
        (Value::Boolean(a), Value::Boolean(b)) => Ok(a == b),
        (Value::Duration(a), Value::Duration(b)) => Ok(a == b),
        (Value::String, Value::String) => Ok(left.value() == right.value()),
        (Value::DateTime(a), Value::DateTime(b)) => a
            .partial_cmp(&b)
            .map(|order| order == Ordering::Equal)
            .ok_or(Fault::Error),
        (Value::Date(a), Value::Date(b)) => a
            .partial_cmp(&b)
            .map(|order| order == Ordering::Equal)
            .ok_or(Fault::Error),
        (Value::Part, Value::Part) if left.datatype() == right.datatype() => {
            if left == right {
                Ok(true)
            } else {
                Err(Fault::Open("equality of parts of dates"))
            }
        }
        // rdf:langString is known, and shares no value with any other datatype.
        (Value::Lang, _) | (_, Value::Lang) => Ok(left == right),
        // "produces a type error if the arguments are both literal but are not the same RDF term",
        // since an unknown datatype may have the same value; values of datatypes that are known are
        // different (W3C tests open-eq-07 to 12).
        (Value::Unknown, _) | (_, Value::Unknown) => {
            if left == right {
                Ok(true)
            } else {
                Err(Fault::Error)
            }
        }
        _ => Ok(false),
    }
}

/// The operator `<` and its like.
///
/// # Errors
/// An expression error for terms that it does not compare.
pub fn less(a: &Term, b: &Term) -> Outcome<Option<Ordering>> {
    let (Term::Literal(left), Term::Literal(right)) = (a, b) else {
        return Err(Fault::Error);
    };
    match (value(left), value(right)) {
        (Value::Number(a), Value::Number(b)) => Ok(a.compare(&b)),
        (Value::Boolean(a), Value::Boolean(b)) => Ok(Some(a.cmp(&b))),
        (Value::String, Value::String) => Ok(Some(left.value().cmp(right.value()))),
        // Between a time with and one without zone there may be no order, which is an error.
        (Value::DateTime(a), Value::DateTime(b)) => a.partial_cmp(&b).map(Some).ok_or(Fault::Error),
        (Value::Date(a), Value::Date(b)) => a.partial_cmp(&b).map(Some).ok_or(Fault::Error),
        // 17.3.1: what would be a type error may be given a meaning, as some engines do here.
        (Value::Lang, Value::Lang) if left.language() == right.language() => {
            Err(Fault::Open("order of language strings"))
        }
        (Value::Duration(_), Value::Duration(_)) => Err(Fault::Open("order of durations")),
        (Value::Part, Value::Part) => Err(Fault::Open("order of parts of dates")),
        _ => Err(Fault::Error),
    }
}

fn class(term: Option<&Term>) -> u8 {
    match term {
        None => 0,
        Some(Term::BlankNode(_)) => 1,
        Some(Term::NamedNode(_)) => 2,
        Some(Term::Literal(_)) => 3,
        // SPARQL 1.2, 15.1: triple terms come last; among themselves nothing is demanded here.
        Some(Term::Triple(_)) => 4,
    }
}

/// The order of 15.1, `None` where it is not defined.
#[must_use]
pub fn specified(a: Option<&Term>, b: Option<&Term>) -> Option<Ordering> {
    let classes = class(a).cmp(&class(b));
    if classes != Ordering::Equal || a == b {
        return Some(classes);
    }
    match (a?, b?) {
        (Term::NamedNode(a), Term::NamedNode(b)) => Some(a.as_str().cmp(b.as_str())),
        (Term::Literal(a), Term::Literal(b)) => {
            if let (Value::Number(a), Value::Number(b)) = (value(a), value(b)) {
                let (left, right) = (f64::from(a.double()), f64::from(b.double()));
                // Computed numbers may differ in their last digits, so that either may be the larger one, and keys
                // behind them need not be looked at.
                if (left - right).is_finite()
                    && (left - right).abs() <= 1e-9 * left.abs().max(right.abs())
                {
                    return a.compare(&b).filter(|order| order.is_eq());
                }
                return left.partial_cmp(&right);
            }
            less(&a.clone().into(), &b.clone().into()).ok().flatten()
        }
        _ => None,
    }
}

/// A total order that keeps that of 15.1.
#[must_use]
pub fn total(a: Option<&Term>, b: Option<&Term>) -> Ordering {
    let (Some(Term::Literal(left)), Some(Term::Literal(right))) = (a, b) else {
        return specified(a, b).unwrap_or(Ordering::Equal);
    };
    let rank = |value: &Value| match value {
        Value::Boolean(_) => 0,
        Value::Number(_) => 1,
        Value::String => 2,
        Value::Lang => 3,
        Value::DateTime(_) => 4,
        Value::Date(_) => 5,
        Value::Duration(_) => 6,
        Value::Part => 7,
        Value::Unknown => 8,
    };
    let (va, vb) = (value(left), value(right));
    let by_value = match (&va, &vb) {
        (Value::Number(a), Value::Number(b)) => {
            f64::from(a.double()).total_cmp(&f64::from(b.double()))
        }
        // A time without zone is taken for one in UTC, as the order of 15.1 never says otherwise.
        (Value::DateTime(_), Value::DateTime(_)) | (Value::Date(_), Value::Date(_)) => {
            let zoned = |text: &str| {
                let time = if text.contains('T') {
                    text.to_owned()
                } else {
                    date_to_time(text)
                };
                let tail = time.get(10..).unwrap_or("");
                let known = tail.contains(['Z', '+', '-']);
                if known { time } else { format!("{time}Z") }
            };
            let parse = |text: &str| zoned(text).parse::<oxsdatatypes::DateTime>().ok();
            parse(left.value())
                .partial_cmp(&parse(right.value()))
                .unwrap_or(Ordering::Equal)
        }
        (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
        _ => left.value().cmp(right.value()),
    };
    rank(&va).cmp(&rank(&vb)).then(by_value)
}

fn date_to_time(date: &str) -> String {
    let (day, zone) = date.split_at(date.len().min(10));
    format!("{day}T00:00:00{zone}")
}
