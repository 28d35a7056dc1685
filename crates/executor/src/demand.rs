//! Demand: what a plan needs to begin, told from its operators.
//!
//! The figures are those of the first rows that an operator holds in any case, the margin to go to disk with, and what
//! those that stream have in work. Whether they do is tested (`operator/tests/admission.rs`): each operator finishes
//! with its grant alone.

use stoa_planner::expression::{Aggregate, AggregateFunction, Expression};
use stoa_planner::physical::{JoinKind, Operator, Plan, QueryForm, QueryPlan, TemplateTerm};
use stoa_terms::TermId;

use crate::context::QuerySettings;
use crate::function::{self, Implementation};
use crate::local_terms::COMPUTED_BYTES;
use crate::operator::{may_be_shared, pinned_bytes, scattered_parts};
use crate::spill::MARGIN_BYTES;

/// What a row that is held takes beside its ids: its place in a table, its rank.
const ROW_BYTES: usize = 64;

/// What a value takes that a row is sorted by.
const KEY_BYTES: usize = 160;

/// What the accounts of an operator that streams take at least.
const STREAM_BYTES: usize = 32 << 10;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// About how much the operators take before they hold any rows.
    pub(crate) operator_bytes: u64,
    /// How many operators hold what they read, and the terms that the query computes.
    pub(crate) holders: usize,
    /// What is reserved before the query begins; nothing if no operator holds rows.
    pub(crate) grant_bytes: u64,
}

impl Demand {
    pub(crate) fn of(plan: &QueryPlan, settings: &QuerySettings) -> Self {
        const OPERATOR_BYTES: usize = 1 << 10;
        const COLUMN_BYTES: usize = 24;
        let batch_rows = settings.batch_rows;
        let first = FirstRows::new(settings);
        let batches = |width: usize| 4 * batch_rows.saturating_mul(width) * size_of::<TermId>();
        let (mut operators, mut held, mut streamed, mut holders) = (0, 0_u64, 0_u64, 0);
        let mut computes = false;
        if tells_apart(&plan.form) {
            holders += 1;
            held += first.bytes(row_bytes(3), 1);
            streamed += (STREAM_BYTES + batches(3)) as u64;
        }
        let mut open = vec![&plan.root];
        while let Some(plan) = open.pop() {
            operators += OPERATOR_BYTES;
            let inputs = plan.inputs();
            // Others hand columns on as they come.
            if let Operator::IndexNestedLoopJoin { .. }
            | Operator::MergeJoin { .. }
            | Operator::HashJoin { .. }
            | Operator::Apply { .. }
            | Operator::ParameterizedJoin { .. } = plan.operator
            {
                operators += plan.columns.len() * COLUMN_BYTES;
            }
            let inputs_width = inputs.iter().map(|input| input.columns.len());
            let width = inputs_width.chain([plan.columns.len()]).max().unwrap_or(0);
            let kept = first.kept(plan, width);
            holders += usize::from(kept.is_some());
            held = held.saturating_add(kept.unwrap_or(0));
            streamed += (STREAM_BYTES + batches(width)) as u64;
            computes |= makes_terms(plan);
            open.extend(inputs);
        }
        let most = settings.admission.as_ref();
        let most = most.map_or(0, |admission| admission.grant_bytes_max());
        let operator_bytes = operators as u64;
        if computes {
            streamed += COMPUTED_BYTES;
        }
        Self {
            operator_bytes,
            // Computed terms have a share, but alone they begin with what there is.
            holders: holders + usize::from(computes),
            grant_bytes: match holders {
                0 => 0,
                _ => (operator_bytes + streamed).saturating_add(held).min(most),
            },
        }
    }
}

/// What operators hold at least.
struct FirstRows {
    /// How many rows an operator holds in any case, and a batch more.
    rows: usize,
    threads: usize,
    parallel_rows_min: u64,
}

impl FirstRows {
    fn new(settings: &QuerySettings) -> Self {
        let rows_min = settings.spill.as_ref().map_or(0, |spill| spill.rows_min);
        let threads = settings.helpers.as_ref();
        Self {
            rows: settings.batch_rows.saturating_add(rows_min),
            threads: threads.map_or(1, |helpers| 1 + helpers.threads()),
            parallel_rows_min: settings.parallel_rows_min,
        }
    }

    /// So many tables of rows, with their margins.
    fn bytes(&self, row_bytes: usize, times: usize) -> u64 {
        let rows = self.rows.saturating_mul(row_bytes) as u64;
        rows.saturating_add(MARGIN_BYTES)
            .saturating_mul(times as u64)
    }

    /// What an operator needs for the rows that it holds; `None` if it holds none. What several threads share is in
    /// several parts.
    fn kept(&self, plan: &Plan, width: usize) -> Option<u64> {
        let parts = || match may_be_shared(plan, self.parallel_rows_min) {
            true => self.threads,
            false => 1,
        };
        Some(match &plan.operator {
            Operator::Sort { keys, .. }
            | Operator::TopK { keys, .. }
            | Operator::RangeSort { keys, .. } => {
                self.bytes(row_bytes(width + keys.len()) + keys.len() * KEY_BYTES, 1)
            }
            Operator::HashAggregate {
                keys, aggregates, ..
            } => {
                let sets = aggregates.iter().filter(|aggregate| aggregate.distinct);
                let of_sets = self.bytes(row_bytes(width + aggregates.len()), sets.count());
                let of_groups = match keys.is_empty() {
                    // There is one, or one for each thread.
                    true => MARGIN_BYTES.saturating_mul(parts() as u64),
                    false => self.bytes(row_bytes(width + aggregates.len()), parts()),
                };
                of_sets.saturating_add(of_groups)
            }
            Operator::Distinct(_) | Operator::SkipDistinct(_) => {
                self.bytes(row_bytes(width), parts())
            }
            // Each share of the keys puts rows and groups aside by itself.
            Operator::AggregateDifference { .. } => {
                let shares = match parts() {
                    1 => 1,
                    threads => scattered_parts(threads),
                };
                self.bytes(row_bytes(width), shares)
            }
            Operator::HashJoin { .. } => self.bytes(2 * row_bytes(width), 1),
            // The search, and what was put out before it went to disk.
            Operator::PathSearch { .. } => self.bytes(row_bytes(width + 2), 2),
            // Kept where it is first met.
            Operator::CommonSubplan { input: Some(_), .. } => self.bytes(row_bytes(width), 1),
            // Blocks in which iterators stand, and one that was just read.
            Operator::LeapfrogJoin { patterns, .. } => {
                (parts() * pinned_bytes(patterns.len() + 1)) as u64
            }
            _ => return None,
        })
    }
}

/// What an operator takes for a row that it holds.
const fn row_bytes(columns: usize) -> usize {
    ROW_BYTES + 3 * columns * size_of::<TermId>()
}

/// Whether terms may come of it that are in no dictionary.
fn makes_terms(plan: &Plan) -> bool {
    match &plan.operator {
        Operator::Extend { .. } | Operator::Service { .. } => true,
        Operator::Sort { keys, .. }
        | Operator::TopK { keys, .. }
        | Operator::RangeSort { keys, .. } => {
            let mut keys = keys.iter().map(|key| &key.expression);
            keys.any(is_computed)
        }
        Operator::HashAggregate { aggregates, .. }
        | Operator::AggregateDifference { aggregates, .. } => aggregates.iter().any(has_new_terms),
        Operator::Filter { condition, .. } => has_ids(condition),
        Operator::IndexNestedLoopJoin { kind, .. }
        | Operator::MergeJoin { kind, .. }
        | Operator::HashJoin { kind, .. }
        | Operator::Apply { kind, .. } => match kind {
            JoinKind::Left { condition } => condition.as_ref().is_some_and(has_ids),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the values of an expression get ids as terms do.
const fn is_computed(expression: &Expression) -> bool {
    !matches!(expression, Expression::Variable(_))
}

/// Whether an aggregate reads or gives terms that may be new.
fn has_new_terms(aggregate: &Aggregate) -> bool {
    // Averages have many digits, which are not inline.
    let gives = matches!(
        aggregate.function,
        AggregateFunction::GroupConcat(_) | AggregateFunction::Avg
    );
    gives || aggregate.argument.as_ref().is_some_and(is_computed)
}

/// Whether some parts of a condition get ids while it is evaluated.
fn has_ids(condition: &Expression) -> bool {
    let mut open = vec![condition];
    while let Some(expression) = open.pop() {
        match expression {
            Expression::Constant(_)
            | Expression::Variable(_)
            | Expression::Bound(_)
            | Expression::Parameter(_) => (),
            Expression::If(..) | Expression::Coalesce(_) | Expression::Plus(_) => return true,
            Expression::Not(inner) | Expression::Minus(inner) => open.push(inner),
            Expression::And(parts) | Expression::Or(parts) => open.extend(parts),
            Expression::In(inner, list) => {
                open.push(inner);
                open.extend(list);
            }
            Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
                open.extend([&**left, &**right]);
            }
            Expression::Call(function, arguments) => match function::implementation(*function) {
                Implementation::Term(_)
                | Implementation::Cast(_)
                | Implementation::Id(_)
                | Implementation::BlankNode => return true,
                _ => open.extend(arguments),
            },
        }
    }
    false
}

/// Whether the triples of an answer are told apart: those that may come again, as without a new blank node.
fn tells_apart(form: &QueryForm) -> bool {
    let QueryForm::Construct(template) = form else {
        return false;
    };
    let mut patterns = template.iter();
    patterns.any(|pattern| {
        let mut terms = pattern.terms.iter();
        !terms.any(|term| matches!(term, TemplateTerm::BlankNode(_)))
    })
}
