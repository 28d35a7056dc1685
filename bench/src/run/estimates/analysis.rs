//! EXPLAIN ANALYZE as JSON, and which of its operators tell how good an estimate was.
//!
//! An operator's rows are its cardinality only if it was run to its end, once. What an answer does not say is taken from
//! what operators do: a limit that was reached, an ASK that found something and an inner merge join stop what is below them;
//! a sort, a grouping and the right side of a hash join are read to their end before anything goes on. Where one cannot
//! tell, an operator is left out. Rows that an operator has made and dropped, since a hash join above has no partner for them,
//! count as its own; those between it and the join are left out.

use std::fmt;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// An operator of a plan that was run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operator {
    pub(super) text: String,
    pub(super) estimated: f64,
    /// With those that it dropped.
    pub(super) rows: f64,
    /// Whether there are such.
    dropped: bool,
    calls: u64,
    /// The operators that it reads, by their numbers.
    inputs: Vec<usize>,
    parent: Option<usize>,
}

/// Why the rows of an operator are not what was estimated.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum LeftOut {
    NeverRan,
    /// A limit that was reached, or an ASK that found something, stands above.
    Limit,
    /// A join above may have ended before it, or had rows below it dropped.
    Join,
    /// It is in the inner plan of an apply: the estimate is of one run, the rows are of all.
    Apply,
    /// Nothing is estimated: its rows stand in the query.
    Known,
}

impl LeftOut {
    pub(super) const ALL: [Self; 5] = [
        Self::NeverRan,
        Self::Limit,
        Self::Join,
        Self::Apply,
        Self::Known,
    ];
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverRan => "never ran",
            Self::Limit => "below a limit that was reached",
            Self::Join => "below a join that may have stopped it or dropped rows",
            Self::Apply => "within an apply",
            Self::Known => "nothing to estimate",
        })
    }
}

impl Operator {
    /// What it is called, without its arguments.
    pub(super) fn name(&self) -> &str {
        self.text.split(' ').next().unwrap_or("")
    }

    /// The q-error: how many times the larger of estimate and rows is the smaller; both at least 1.
    pub(super) fn q_error(&self) -> f64 {
        let (estimated, rows) = (self.estimated.max(1.0), self.rows.max(1.0));
        estimated.max(rows) / estimated.min(rows)
    }

    fn is_join(&self) -> bool {
        match self.name() {
            "index_nested_loop_join" | "merge_join" | "hash_join" | "apply" => true,
            "path_search" => !self.inputs.is_empty(),
            _ => false,
        }
    }

    /// Whether a join gives nothing for left rows without partners.
    fn drops_unmatched(&self) -> bool {
        let kind = self.text.split(' ').nth(1);
        !matches!(kind, Some("left" | "anti" | "minus" | "mark"))
    }

    /// Whether it is a join that may have had rows of this input dropped: a hash join that gives nothing for rows of its left
    /// side without partners.
    fn has_dropped(&self, input: usize) -> bool {
        let is_left = self.inputs.first() == Some(&input);
        self.name() == "hash_join" && self.drops_unmatched() && is_left
    }

    /// Whether a slice, or a `top_k` that keeps nothing, has stopped its input.
    fn limit_was_reached(&self) -> bool {
        let mut words = self.text.split(' ');
        let limit = match words.next() {
            Some("top_k") => return words.next() == Some("0"),
            // That of each binding needs all of the input.
            Some("slice") if !self.text.starts_with("slice by ") => words
                .skip_while(|word| *word != "limit")
                .nth(1)
                .and_then(|limit| limit.parse::<f64>().ok()),
            _ => None,
        };
        limit.is_some_and(|limit| self.rows >= limit)
    }
}

/// Reads the operators of an answer.
///
/// # Errors
/// When the document is not what EXPLAIN ANALYZE gives, or was not run.
pub(super) fn parse(document: &[u8]) -> anyhow::Result<Vec<Operator>> {
    let whole: Value = serde_json::from_slice(document).context("no JSON")?;
    let list = whole.get("operators").and_then(Value::as_array);
    let mut operators: Vec<Operator> = Vec::new();
    // The operators above the next one, the lowest last.
    let mut above: Vec<usize> = Vec::new();
    for (number, value) in list.context("no list of operators")?.iter().enumerate() {
        let depth = value.get("depth").and_then(Value::as_u64);
        let depth = depth.and_then(|depth| usize::try_from(depth).ok());
        let dropped = value.get("rows_dropped").and_then(Value::as_f64);
        let dropped = dropped.unwrap_or_default();
        let read = || {
            Some(Operator {
                text: value.get("operator")?.as_str()?.to_owned(),
                estimated: value.get("estimated_rows")?.as_f64()?,
                rows: value.get("rows")?.as_f64()? + dropped,
                dropped: dropped > 0.0,
                calls: value.get("calls")?.as_u64()?,
                inputs: Vec::new(),
                parent: None,
            })
        };
        let (Some(depth), Some(mut operator)) = (depth, read()) else {
            bail!("operator {number} has no depth, text, estimate, rows or calls");
        };
        if depth > above.len() || (depth == 0) != (number == 0) {
            bail!("operator {number} stands below none");
        }
        above.truncate(depth);
        operator.parent = above.last().copied();
        if let Some(parent) = operator.parent.and_then(|it| operators.get_mut(it)) {
            parent.inputs.push(number);
        }
        operators.push(operator);
        above.push(number);
    }
    Ok(operators)
}

/// For each operator why it is left out, if it is.
pub(super) fn left_out(operators: &[Operator]) -> Vec<Option<LeftOut>> {
    let mut why: Vec<Option<LeftOut>> = vec![None; operators.len()];
    // Each stands before its inputs.
    for (number, operator) in operators.iter().enumerate() {
        let inherited = why.get(number).copied().flatten();
        for (place, &input) in operator.inputs.iter().enumerate() {
            if let Some(of_input) = why.get_mut(input) {
                *of_input = match inherited {
                    Some(LeftOut::Apply) => Some(LeftOut::Apply),
                    _ => handed_down(operators, operator, place, inherited),
                };
            }
        }
    }
    for (number, _) in operators.iter().enumerate().filter(|(_, it)| it.dropped) {
        let mut below = number;
        while let Some(above) = operators.get(below).and_then(|it| it.parent) {
            if operators.get(above).is_some_and(|it| it.has_dropped(below)) {
                break;
            }
            if let Some(of_above) = why.get_mut(above) {
                of_above.get_or_insert(LeftOut::Join);
            }
            below = above;
        }
    }
    for (why, operator) in why.iter_mut().zip(operators) {
        if matches!(
            operator.name(),
            "unit" | "empty" | "values" | "outer_bindings"
        ) {
            *why = Some(LeftOut::Known);
        } else if operator.calls == 0 {
            *why = Some(LeftOut::NeverRan);
        }
    }
    why
}

/// Why the input at `place` of an operator did not run to its end, if it ran; `inherited` is why the operator did not.
fn handed_down(
    operators: &[Operator],
    operator: &Operator,
    place: usize,
    inherited: Option<LeftOut>,
) -> Option<LeftOut> {
    let right = operator.inputs.get(1).and_then(|it| operators.get(*it));
    match (operator.name(), place) {
        ("slice" | "top_k", _) if operator.limit_was_reached() => {
            Some(inherited.unwrap_or(LeftOut::Limit))
        }
        // Their inputs are read to the end before anything is given.
        ("sort" | "top_k" | "hash_aggregate", _)
        | ("hash_join", 1)
        | ("aggregate_difference", 1 | 2) => None,
        ("hash_join", _)
            if operator.drops_unmatched() && right.is_some_and(|right| right.rows == 0.0) =>
        {
            Some(inherited.unwrap_or(LeftOut::Join))
        }
        // It ends with the side that ends first, and so does each piece of one that several threads share; the left
        // side of a left join is read to its end.
        ("merge_join", 0) if !operator.drops_unmatched() => inherited,
        ("merge_join", _) => Some(inherited.unwrap_or(LeftOut::Join)),
        ("apply", 1) => Some(LeftOut::Apply),
        _ => inherited,
    }
}

/// Whether an operator is a join and no join reads it, neither directly nor by way of operators that compute, test or
/// select columns.
pub(super) fn is_root_of_joins(operators: &[Operator], operator: &Operator) -> bool {
    let mut above = operator.parent.and_then(|it| operators.get(it));
    while let Some(next) = above.filter(|it| matches!(it.name(), "filter" | "extend" | "project")) {
        above = next.parent.and_then(|it| operators.get(it));
    }
    operator.is_join() && !above.is_some_and(Operator::is_join)
}
