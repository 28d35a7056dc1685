//! Set functions (18.5.1.2 to 18.5.1.8).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::rc::Rc;

use oxrdf::{Literal, Term};

use super::evaluate::{Evaluator, text};
use super::value::{Number, number};
use super::{Fault, Graph, Outcome, Solution, order};
use crate::random::ast::{Aggregate, Var};

/// The value of an aggregate for a group.
///
/// # Errors
/// An expression error leaves its variable unbound.
pub fn evaluate(
    evaluator: &Evaluator<'_>,
    aggregate: &Aggregate,
    members: &[Solution],
    scope: &[Var],
    graph: &Graph,
) -> Outcome<Rc<Term>> {
    evaluator.seen.count(aggregate.function);
    if aggregate.distinct {
        evaluator.seen.count("DISTINCT in aggregate");
    }
    let Some(argument) = &aggregate.argument else {
        evaluator.seen.count("COUNT(*)");
        // 18.5.1.2: COUNT(*) counts solutions, with DISTINCT distinct ones.
        let mut rows: Vec<String> = members
            .iter()
            .map(|m| {
                let seen: Solution = scope.iter().map(|v| m.get(*v).cloned().flatten()).collect();
                text(&seen)
            })
            .collect();
        if aggregate.distinct {
            evaluator.seen.note("COUNT(DISTINCT *)");
            rows = rows
                .into_iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
        }
        return count(rows.len());
    };
    // ListEval and Flatten: `None` is an error.
    let mut list = Vec::new();
    for member in members {
        list.push(evaluator.value(argument, member, graph)?);
    }
    if aggregate.distinct {
        let mut seen = BTreeSet::new();
        list.retain(|value| seen.insert(text(std::slice::from_ref(value))));
    }
    if list.iter().any(Option::is_none) {
        evaluator.seen.note("error in an aggregate");
    }
    if aggregate.function == "COUNT" {
        // "N = Flatten(M), remove error elements from N".
        return count(list.iter().flatten().count());
    }
    // In the others an error is an error of the whole.
    let list: Vec<Rc<Term>> = list
        .into_iter()
        .collect::<Option<_>>()
        .ok_or(Fault::Error)?;
    of_values(evaluator, aggregate, &list)
}

/// The set functions whose arguments are all values.
fn of_values(
    evaluator: &Evaluator<'_>,
    aggregate: &Aggregate,
    list: &[Rc<Term>],
) -> Outcome<Rc<Term>> {
    match aggregate.function {
        "SUM" => sum(evaluator, list).map(|n| finished(evaluator, n)),
        "AVG" => {
            // 18.5.1.4: Avg(M) = 0 if Count(M) = 0, else Sum(M) / Count(M).
            let size = i64::try_from(list.len()).map_err(|_| Fault::TooLarge)?;
            if size == 0 {
                return count(0);
            }
            let average = sum(evaluator, list)?.calculate("/", &Number::whole(size))?;
            Ok(finished(evaluator, average))
        }
        "MIN" => extreme(list, Ordering::Less),
        "MAX" => extreme(list, Ordering::Greater),
        // 18.5.1.8: Sample({}) = error.
        "SAMPLE" => {
            let first = list.first().ok_or(Fault::Error)?;
            if list.iter().any(|value| value != first) {
                return Err(Fault::Open("sample of several values"));
            }
            Ok(Rc::clone(first))
        }
        _ => {
            // 18.5.1.7: the strings with the separator between, in no order; a blank otherwise.
            if list
                .iter()
                .any(|value| !matches!(**value, Term::Literal(_)))
            {
                return Err(Fault::Open("concatenation of what is no literal"));
            }
            if list
                .iter()
                .any(|value| super::function::call("STRLEN", &[Rc::clone(value)]).is_err())
            {
                evaluator.seen.note("GROUP_CONCAT of other than strings");
            }
            let separator = aggregate.separator.as_deref().unwrap_or(" ");
            let texts: Vec<String> = list
                .iter()
                .map(|value| super::function::str(value).ok_or(Fault::Error))
                .collect::<Outcome<_>>()?;
            Ok(Rc::new(
                Literal::new_simple_literal(texts.join(separator)).into(),
            ))
        }
    }
}

fn finished(evaluator: &Evaluator<'_>, number: Number) -> Rc<Term> {
    if matches!(number, Number::Float(_) | Number::Double(_)) {
        evaluator.seen.computed_float.set(true);
    }
    evaluator.note_size(&number);
    number.term()
}

fn count(size: usize) -> Outcome<Rc<Term>> {
    let size = i64::try_from(size).map_err(|_| Fault::TooLarge)?;
    Ok(Number::whole(size).term())
}

/// 18.5.1.3: Sum(S) = op:numeric-add(S1, Sum(S2..n)), and 0 for no values.
///
/// Open where the values have no one sum: a multiset has no order, and what is rounded between two
/// additions differs by it.
fn sum(evaluator: &Evaluator<'_>, list: &[Rc<Term>]) -> Outcome<Number> {
    let numbers = list
        .iter()
        .map(|value| match &**value {
            Term::Literal(literal) => number(literal).ok_or(Fault::Error),
            _ => Err(Fault::Error),
        })
        .collect::<Outcome<Vec<Number>>>()?;
    let add = |total: Number, value: &Number| {
        let total = total.calculate("+", value)?;
        evaluator.note_size(&total);
        Ok(total)
    };
    let total = numbers.iter().try_fold(Number::whole(0), add)?;
    if matches!(total, Number::Float(_) | Number::Double(_)) {
        let same = super::text::normal(&total.term());
        for first in 1..numbers.len() {
            let (front, back) = numbers.split_at(first);
            let mut rotated = back.iter().chain(front);
            let mut reversed = rotated.clone().rev();
            for other in [
                rotated.try_fold(Number::whole(0), add)?,
                reversed.try_fold(Number::whole(0), add)?,
            ] {
                if super::text::normal(&other.term()) != same {
                    return Err(Fault::Open("sum that depends on the order"));
                }
            }
        }
    }
    Ok(total)
}

/// 18.5.1.5 and 18.5.1.6: the first in the order of ORDER BY; Min({}) = error.
fn extreme(list: &[Rc<Term>], wanted: Ordering) -> Outcome<Rc<Term>> {
    let best = list
        .iter()
        .max_by(|a, b| {
            let order = order::total(Some(a), Some(b));
            if wanted == Ordering::Less {
                order.reverse()
            } else {
                order
            }
        })
        .ok_or(Fault::Error)?;
    for other in list {
        if other != best && order::specified(Some(best), Some(other)) != Some(wanted) {
            return Err(Fault::Open("extreme of values without order"));
        }
    }
    Ok(Rc::clone(best))
}
