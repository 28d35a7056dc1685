//! Scans of patterns and joins of two plans, with what each gives and costs.

use stoa_terms::IdRange;

use super::{Planned, empty, planned};
use crate::access_path::{Access, accesses, lookup};
use crate::cost;
use crate::physical::{JoinKind, Operator, Plan, QuadPattern, Variable};
use crate::variable_set::VariableSet;

/// An `index_scan`.
pub(super) fn scan(
    pattern: QuadPattern,
    access: Access,
    ranges: Vec<IdRange>,
    rows: f64,
    cost: f64,
) -> Planned {
    let sorted = access.sorted_by(&pattern);
    let columns = sorted.clone();
    let certain = columns.iter().copied().collect();
    let operator = Operator::IndexScan {
        pattern,
        permutation: access.permutation,
        prefix_length: access.prefix_length,
        ranges,
    };
    planned(operator, columns, sorted, rows, cost, certain)
}

/// A pattern read in its first permutation, whatever it costs.
pub(super) fn plain_scan(pattern: QuadPattern) -> Planned {
    match accesses(&pattern).first() {
        Some(&access) => scan(pattern, access, Vec::new(), 1.0, cost::SCAN_START),
        None => empty(Vec::new()),
    }
}

/// The variables of both sides, those of the left one first.
fn joined_columns(left: &Planned, right: impl IntoIterator<Item = Variable>) -> Vec<Variable> {
    let mut columns = left.plan.columns.clone();
    for variable in right {
        // What the left side has, it may bind: its columns would have to be searched.
        if !left.possible.contains(variable) {
            columns.push(variable);
        }
    }
    columns
}

/// What a join of this kind gives: columns, and those that are bound.
fn output(left: &Planned, right: &[Variable], kind: &JoinKind) -> (Vec<Variable>, VariableSet) {
    match kind {
        JoinKind::Inner | JoinKind::Left { .. } => {
            let columns = joined_columns(left, right.iter().copied());
            (columns, left.certain.clone())
        }
        JoinKind::Semi | JoinKind::Anti | JoinKind::Minus { .. } => {
            (left.plan.columns.clone(), left.certain.clone())
        }
        JoinKind::Mark(mark) => {
            let mut certain = left.certain.clone();
            certain.insert(*mark);
            (joined_columns(left, [*mark]), certain)
        }
    }
}

/// A `hash_join` on what both sides share.
pub(super) fn hash_join(left: Planned, right: Planned, kind: JoinKind, rows: f64) -> Planned {
    let (columns, mut certain) = output(&left, &right.plan.columns, &kind);
    if kind == JoinKind::Inner {
        certain.union_with(&right.certain);
    }
    let shared = left.possible.intersection(&right.possible);
    let (keys, compatible) = shared
        .iter()
        .partition(|v| left.certain.contains(*v) && right.certain.contains(*v));
    let cost = left.cost
        + right.cost
        + cost::hash(right.plan.estimated_rows, left.plan.estimated_rows)
        + rows * cost::OUTPUT_ROW;
    let sorted = left.plan.sorted_by.clone();
    let operator = Operator::HashJoin {
        left: Box::new(left.plan),
        right: Box::new(right.plan),
        keys,
        compatible,
        kind,
    };
    planned(operator, columns, sorted, rows, cost, certain)
}

/// A `merge_join` by `key`; all shared variables are bound on both sides.
pub(super) fn merge_join(
    left: Planned,
    right: Planned,
    key: Variable,
    kind: JoinKind,
    rows: f64,
) -> Planned {
    let (columns, mut certain) = output(&left, &right.plan.columns, &kind);
    if kind == JoinKind::Inner {
        certain.union_with(&right.certain);
    }
    let cost = merge_cost(&left, &right, &kind) + rows * cost::OUTPUT_ROW;
    let sorted = match kind {
        JoinKind::Inner | JoinKind::Left { .. } => vec![key],
        // The left side as it is.
        _ => left.plan.sorted_by.clone(),
    };
    let operator = Operator::MergeJoin {
        left: Box::new(left.plan),
        right: Box::new(right.plan),
        key,
        kind,
    };
    planned(operator, columns, sorted, rows, cost, certain)
}

/// What merging two sides costs, with them, but for what is put out.
pub(super) fn merge_cost(left: &Planned, right: &Planned, kind: &JoinKind) -> f64 {
    let merged = |side: &Planned, keys: f64| {
        let whole = side.cost + side.plan.estimated_rows * cost::MERGE_ROW;
        leapt(&side.plan, keys).map_or(whole, |leapt| whole.min(leapt))
    };
    let of_left = match kind {
        JoinKind::Inner | JoinKind::Semi => merged(left, right.plan.estimated_rows),
        // All of it goes out.
        _ => merged(left, f64::INFINITY),
    };
    of_left + merged(right, left.plan.estimated_rows)
}

/// What merging a plan with `keys` solutions costs if it is leapt through, where it can be.
fn leapt(plan: &Plan, keys: f64) -> Option<f64> {
    let rows = plan.estimated_rows;
    match &plan.operator {
        Operator::IndexScan { .. } => cost::leaps(keys, rows),
        Operator::MergeJoin { left, right, .. } if cost::is_leapt(keys, rows) => {
            let side = |side: &Plan| {
                let rows = side.estimated_rows;
                let whole = cost::SCAN_START + rows * (cost::SCAN_ROW + cost::MERGE_ROW);
                leapt(side, keys).map_or(whole, |leapt| whole.min(leapt))
            };
            Some(side(left) + side(right) + keys * cost::LEAPT)
        }
        _ => None,
    }
}

/// An `index_nested_loop_join`; the variables that the pattern shares with the left side are bound
/// there. In the order of the left side if that is `wanted`.
pub(super) fn lookup_join(
    left: Planned,
    pattern: QuadPattern,
    kind: JoinKind,
    wanted: Option<Variable>,
    rows: f64,
    has_graph_first: bool,
) -> Planned {
    let probes = left.plan.estimated_rows;
    let found = lookup(&pattern, &left.certain, probes, has_graph_first);
    let Some((permutation, key_length)) = found else {
        // Nothing is known beforehand: every match is a partner.
        let right = plain_scan(pattern);
        return hash_join(left, right, kind, rows);
    };
    let access = Access {
        permutation,
        prefix_length: key_length,
    };
    let variables = access.sorted_by(&pattern);
    let (columns, mut certain) = output(&left, &variables, &kind);
    if kind == JoinKind::Inner {
        certain.union_with(&variables.into_iter().collect());
    }
    let sorted = wanted
        .filter(|variable| left.plan.sorted_by.first() == Some(variable))
        .into_iter()
        .collect();
    let cost = left.cost;
    let operator = Operator::IndexNestedLoopJoin {
        input: Box::new(left.plan),
        pattern,
        permutation,
        key_length,
        kind,
        switch: None,
        count: None,
    };
    planned(operator, columns, sorted, rows, cost, certain)
}

/// A scan of a whole pattern, sorted by a variable, if there is one.
pub(super) fn sorted_scan(pattern: &QuadPattern, key: Variable, rows: f64) -> Option<Planned> {
    let access = accesses(pattern)
        .into_iter()
        .find(|access| access.sorted_by(pattern).first() == Some(&key))?;
    let cost = cost::SCAN_START + rows * cost::SCAN_ROW;
    Some(scan(pattern.clone(), access, Vec::new(), rows, cost))
}
