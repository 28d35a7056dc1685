//! Comparisons. Ids decide where they can; texts are read for the rest alone.

use std::cmp::Ordering;

use stoa_planner::expression::Comparison;
use stoa_terms::value::{Value, compare_inline, equals_inline};
use stoa_terms::{Kind, TermId};

use super::column::{Cell, Column, HeldValues, term_values};
use super::evaluate::Evaluation;
use super::integers;
use super::members::Members;
use super::node::Node;
use super::numbers::{self, Compared};
use crate::context::QueryContext;
use crate::error::Result;

/// What two ids tell about a comparison.
enum Known {
    /// Its result.
    Result(Option<bool>),
    /// Nothing: values must be compared.
    Open,
}

pub(super) fn compare(
    evaluation: &Evaluation<'_>,
    comparison: Comparison,
    parts: &[Node; 2],
    errors: bool,
) -> Result<Vec<Option<bool>>> {
    let [left, right] = parts;
    if comparison == Comparison::SameTerm {
        let (left, right) = (evaluation.ids(left)?, evaluation.ids(right)?);
        let pairs = left.into_iter().zip(right);
        return Ok(pairs
            .map(|(left, right)| {
                (!left.is_unbound() && !right.is_unbound()).then_some(left == right)
            })
            .collect());
    }
    let left = evaluation.column(left)?;
    let right = evaluation.column(right)?;
    compare_columns(evaluation, comparison, &left, &right, errors)
}

/// After how many items of a list is it looked whether the query should end.
const ITEMS_UNCHECKED: usize = 64;

/// `IN`: an equal one decides, then an error, then false.
pub(super) fn is_in(
    evaluation: &Evaluation<'_>,
    inner: &Node,
    list: &[Node],
    members: Option<&Members>,
    errors: bool,
) -> Result<Vec<Option<bool>>> {
    let left = evaluation.column(inner)?;
    let cells = || (0..evaluation.rows()).map(|row| left.cell(row, evaluation.context));
    let members = members.filter(|members| cells().all(|cell| members.decide(cell)));
    // Without a list, an error of the left side is an error still.
    let mut result: Vec<Option<bool>> = (0..evaluation.rows())
        .map(|row| (!left.cell(row, evaluation.context).is_error()).then_some(false))
        .collect();
    let whole: Vec<usize>;
    let compared = match members {
        Some(members) => members.compared(),
        None => {
            whole = (0..list.len()).collect();
            whole.as_slice()
        }
    };
    for (count, item) in compared.iter().filter_map(|at| list.get(*at)).enumerate() {
        if count % ITEMS_UNCHECKED == 0 {
            evaluation.context.check()?;
        }
        let right = evaluation.column(item)?;
        let equal = compare_columns(evaluation, Comparison::Equal, &left, &right, errors)?;
        for (result, equal) in result.iter_mut().zip(equal) {
            match equal {
                Some(true) => *result = Some(true),
                None if *result != Some(true) => *result = None,
                _ => (),
            }
        }
    }
    if let Some(members) = members {
        for (result, cell) in result.iter_mut().zip(cells()) {
            if members.contain(cell) {
                *result = Some(true);
            }
        }
    }
    Ok(result)
}

fn compare_columns(
    evaluation: &Evaluation<'_>,
    comparison: Comparison,
    left: &Column<'_>,
    right: &Column<'_>,
    errors: bool,
) -> Result<Vec<Option<bool>>> {
    if let Some(result) = integers::compare(comparison, left, right, evaluation.rows()) {
        return Ok(result);
    }
    if let Some(result) = compare_with_iri(comparison, left, right) {
        return Ok(result);
    }
    let context = evaluation.context;
    let rows = evaluation.rows();
    let Compared {
        mut result,
        open: undecided,
    } = numbers::compare(comparison, left, right, rows).unwrap_or_else(|| Compared::nothing(rows));
    // Rows that ids do not decide, and the ids whose values they need.
    let mut open = Vec::new();
    let (mut left_ids, mut right_ids) = (Vec::new(), Vec::new());
    for row in undecided {
        let Some(slot) = result.get_mut(row) else {
            continue;
        };
        let (a, b) = (left.cell(row, context), right.cell(row, context));
        if a.is_error() || b.is_error() {
            continue;
        }
        match compare_cells(comparison, a, b, errors) {
            Known::Result(known) => *slot = known,
            Known::Open => {
                open.push(row);
                left_ids.push(id_to_read(a));
                right_ids.push(id_to_read(b));
            }
        }
    }
    if open.is_empty() {
        return Ok(result);
    }
    let mut left_values = read(&left_ids, context)?;
    let mut right_values = read(&right_ids, context)?;
    let values = left_values.values().zip(right_values.values());
    for (row, (a, b)) in open.into_iter().zip(values) {
        let a = a.or_else(|| Some(left.cell(row, context).value()?.into_owned()));
        let b = b.or_else(|| Some(right.cell(row, context).value()?.into_owned()));
        if let (Some(a), Some(b), Some(slot)) = (a, b, result.get_mut(row)) {
            *slot = compare_values(comparison, &a, &b);
        }
    }
    Ok(result)
}

/// `=` and `!=` of terms with an IRI of the dictionary, which no other id is equal to: terms that the query makes are looked for
/// there first. `None` for other comparisons and other columns.
fn compare_with_iri(
    comparison: Comparison,
    left: &Column<'_>,
    right: &Column<'_>,
) -> Option<Vec<Option<bool>>> {
    let is_equal = match comparison {
        Comparison::Equal => true,
        Comparison::NotEqual => false,
        _ => return None,
    };
    let ((Column::Ids(ids, _), Column::Constant(iri))
    | (Column::Constant(iri), Column::Ids(ids, _))) = (left, right)
    else {
        return None;
    };
    if iri.id.kind() != Kind::Iri {
        return None;
    }
    let compared = ids
        .iter()
        .map(|id| (!id.is_unbound()).then_some((*id == iri.id) == is_equal));
    Some(compared.collect())
}

fn read(ids: &[TermId], context: &QueryContext) -> Result<HeldValues> {
    if ids.iter().all(|id| id.is_unbound()) {
        return Ok(HeldValues::none(ids.len(), context));
    }
    term_values(ids, context)
}

/// The id whose value is read for a comparison; unbound if the cell has its value.
const fn id_to_read(cell: Cell<'_>) -> TermId {
    match cell {
        Cell::Id {
            id, value: None, ..
        } => id,
        _ => TermId::UNBOUND,
    }
}

fn compare_cells(comparison: Comparison, a: Cell<'_>, b: Cell<'_>, errors: bool) -> Known {
    if let (
        Cell::Id {
            id: a,
            kind: a_kind,
            ..
        },
        Cell::Id {
            id: b,
            kind: b_kind,
            ..
        },
    ) = (a, b)
    {
        return compare_ids(comparison, (a, a_kind), (b, b_kind), errors);
    }
    if let (Some(a), Some(b)) = (computed_text(a), computed_text(b)) {
        return Known::Result(ordered(comparison, Some(a.cmp(b))));
    }
    if has_value(a)
        && has_value(b)
        && let (Some(a), Some(b)) = (a.value(), b.value())
    {
        return Known::Result(compare_values(comparison, &a, &b));
    }
    Known::Open
}

/// The text of a computed or constant `xsd:string`.
fn computed_text<'a>(cell: Cell<'a>) -> Option<&'a str> {
    match cell {
        Cell::Text(text, super::Tag::Plain) => Some(text),
        Cell::Id {
            value: Some(Value::String(text)),
            ..
        } => Some(text),
        _ => None,
    }
}

/// Whether the value is there without reading a text.
const fn has_value(cell: Cell<'_>) -> bool {
    match cell {
        Cell::Id { id, value, .. } => value.is_some() || id.is_inline(),
        _ => true,
    }
}

fn compare_ids(
    comparison: Comparison,
    (a, a_kind): (TermId, Kind),
    (b, b_kind): (TermId, Kind),
    errors: bool,
) -> Known {
    if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
        match compare_inline(a, b) {
            // NaN is neither smaller nor larger, and that is no error.
            Some(None) if a_kind == Kind::Double || b_kind == Kind::Double => {
                return Known::Result(Some(false));
            }
            Some(order) => return Known::Result(ordered(comparison, order)),
            None => (),
        }
        return if never_ordered(a_kind, b_kind) {
            Known::Result(None)
        } else {
            Known::Open
        };
    }
    let equal = match equals_inline(a, b) {
        Some(equal) => equal,
        // NaN, the only term that differs from itself, is inline.
        None if a == b && a_kind.is_in_dictionary() => Some(true),
        // Terms without value are equal if they are the same.
        None if matches!(
            (a_kind, b_kind),
            (Kind::Iri, Kind::Iri) | (Kind::BlankNode, Kind::BlankNode)
        ) =>
        {
            // The same one only if it is a blank node that the query made.
            Some(a == b)
        }
        // Of the dictionary's other literals no two are equal: a text of a datatype has one
        // spelling, and `true` and `false` have two, of which one is inline.
        None if !errors && comparison == Comparison::Equal && differ(a_kind, b_kind) => Some(false),
        None => return Known::Open,
    };
    Known::Result(equal.map(|equal| equal == (comparison == Comparison::Equal)))
}

/// Numbers, times, other literals, and what is no literal.
const fn class(kind: Kind) -> u8 {
    match kind {
        Kind::Integer | Kind::Decimal | Kind::Double | Kind::NumericLiteral => 1,
        Kind::Date
        | Kind::DateZoned
        | Kind::DateTime
        | Kind::DateTimeZoned
        | Kind::TemporalLiteral => 2,
        // Booleans are special or, as "1" and "0", literals.
        Kind::Special | Kind::ShortString | Kind::Literal => 3,
        Kind::BlankNode | Kind::Iri | Kind::Triple | Kind::Local => 4,
    }
}

/// Whether values of these kinds never have an order: a text and a number, for example.
const fn never_ordered(a: Kind, b: Kind) -> bool {
    class(a) != class(b) || class(a) == 4
}

/// Whether two different terms of these kinds are never equal.
const fn differ(a: Kind, b: Kind) -> bool {
    let texts = matches!(a, Kind::Literal | Kind::ShortString)
        && matches!(b, Kind::Literal | Kind::ShortString);
    texts || class(a) != class(b)
}

fn compare_values(comparison: Comparison, a: &Value, b: &Value) -> Option<bool> {
    match comparison {
        Comparison::Equal => a.equals(b),
        Comparison::NotEqual => a.equals(b).map(|equal| !equal),
        _ if is_nan(a) && b.is_numeric() || a.is_numeric() && is_nan(b) => Some(false),
        _ => ordered(comparison, a.compare(b)),
    }
}

/// NaN is neither smaller nor larger, and that is no error.
const fn is_nan(value: &Value) -> bool {
    match value {
        Value::Double(value) => value.is_nan(),
        Value::Float(value) => value.is_nan(),
        _ => false,
    }
}

fn ordered(comparison: Comparison, order: Option<Ordering>) -> Option<bool> {
    let order = order?;
    Some(match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
        Comparison::SameTerm => return None,
    })
}
