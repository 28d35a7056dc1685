//! Combiner: what all joins do once they know which rows are partners.
//!
//! A join hands in pairs of row numbers, left and right. The combiner evaluates the condition of an
//! OPTIONAL, remembers which left rows found a partner, and builds the output. Where the kind of
//! join needs to know that a left row has no further partner, the join adds the pair
//! `(row, END)` behind all pairs of the row, in the same call or a later one; in its place
//! stands what the row leaves behind: itself alone (OPTIONAL without a partner, semi, anti, minus,
//! mark).
//!
//! Output order: that of the pairs.

use stoa_planner::expression::Expression;
use stoa_planner::physical::{JoinKind, Variable};
use stoa_terms::TermId;

use super::Positions;
use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::expression::CompiledExpression;
use crate::table::NONE;

/// In place of a right row: the left row has no further partner.
pub(crate) const END: u32 = NONE;

/// A left and a right row.
pub(crate) type Pair = (u32, u32);

/// Where a column of the output comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    Left(usize),
    Right(usize),
    /// The left one, the right one where that is unbound.
    LeftOrRight(usize, usize),
    /// Whether there is a partner.
    Mark,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Inner,
    Left,
    Semi,
    Anti,
    Mark,
}

/// Builds the output of a join.
pub(crate) struct Combiner {
    kind: Kind,
    sources: Vec<Source>,
    condition: Option<Condition>,
    /// For each left row whether it has a partner.
    matched: Vec<bool>,
}

struct Condition {
    sources: Vec<Source>,
    expression: CompiledExpression,
}

impl Combiner {
    /// A combiner for rows of the columns `left` and `right` (`None`: a column without a name).
    pub(crate) fn new(
        output: &[Variable],
        left: &[Variable],
        right: &[Option<Variable>],
        kind: &JoinKind,
        context: &QueryContext,
    ) -> Result<Self> {
        let mut left_positions = Positions::new(left);
        let mut source = |variable: Variable| {
            let left = left_positions.of(variable);
            let right = right.iter().position(|other| *other == Some(variable));
            match (left, right) {
                (Some(left), Some(right)) => Ok(Source::LeftOrRight(left, right)),
                (Some(left), None) => Ok(Source::Left(left)),
                (None, Some(right)) => Ok(Source::Right(right)),
                (None, None) if *kind == JoinKind::Mark(variable) => Ok(Source::Mark),
                (None, None) => Err(Error::Internal("a join gives a variable it does not have")),
            }
        };
        let condition = match kind {
            JoinKind::Left {
                condition: Some(condition),
            } => {
                let mut variables = Vec::new();
                collect_variables(condition, &mut variables);
                variables.retain(|variable| source(*variable).is_ok());
                Some(Condition {
                    sources: variables
                        .iter()
                        .map(|variable| source(*variable))
                        .collect::<Result<_>>()?,
                    expression: CompiledExpression::compile(condition, &variables, context)?,
                })
            }
            _ => None,
        };
        Ok(Self {
            kind: match kind {
                JoinKind::Inner => Kind::Inner,
                JoinKind::Left { .. } => Kind::Left,
                JoinKind::Semi => Kind::Semi,
                JoinKind::Anti | JoinKind::Minus { .. } => Kind::Anti,
                JoinKind::Mark(_) => Kind::Mark,
            },
            sources: output
                .iter()
                .map(|variable| source(*variable))
                .collect::<Result<_>>()?,
            condition,
            matched: Vec::new(),
        })
    }

    /// Another one that does the same; `None` if there is a condition.
    pub(crate) fn another(&self) -> Option<Self> {
        self.condition.is_none().then(|| Self {
            kind: self.kind,
            sources: self.sources.clone(),
            condition: None,
            matched: Vec::new(),
        })
    }

    /// Begins with a new batch of `rows` left rows.
    pub(crate) fn start(&mut self, rows: usize) {
        self.matched.clear();
        if self.needs_end() {
            self.matched.resize(rows, false);
        }
    }

    /// Begins with a batch of left rows of which it is known whether they have found a partner.
    pub(crate) fn start_with(&mut self, matched: &[bool]) {
        self.matched.clear();
        self.matched.extend_from_slice(matched);
    }

    /// For each left row whether it has found a partner, where the join must say where these end.
    pub(crate) fn matched(&self) -> &[bool] {
        &self.matched
    }

    /// Adds a column of the left rows to the output, behind all others.
    pub(crate) fn carry(&mut self, column: usize) {
        self.sources.push(Source::Left(column));
    }

    /// How many columns the output has.
    pub(crate) const fn output_width(&self) -> usize {
        self.sources.len()
    }

    /// Whether the join must say where the partners of a left row end.
    pub(crate) fn needs_end(&self) -> bool {
        self.kind != Kind::Inner
    }

    /// Whether one partner of a left row says all.
    pub(crate) fn needs_one(&self) -> bool {
        matches!(self.kind, Kind::Semi | Kind::Anti | Kind::Mark)
    }

    /// Whether a left row without a partner leaves nothing behind.
    pub(crate) fn drops_unmatched(&self) -> bool {
        matches!(self.kind, Kind::Inner | Kind::Semi)
    }

    /// The output for some pairs; it may have no rows.
    pub(crate) fn combine(
        &mut self,
        left: &Batch,
        right: &[&[TermId]],
        pairs: &[Pair],
        context: &QueryContext,
    ) -> Result<Batch> {
        if self.kind == Kind::Inner {
            return Ok(self.gather(left, right, pairs));
        }
        let holds = match &self.condition {
            Some(condition) => {
                let columns = condition
                    .sources
                    .iter()
                    .map(|source| self.column(*source, left, right, pairs))
                    .collect();
                let batch = Batch {
                    columns,
                    rows: pairs.len(),
                };
                Some(condition.expression.filter(&batch, context)?)
            }
            None => None,
        };
        let mut kept = Vec::with_capacity(pairs.len());
        for (index, pair) in pairs.iter().enumerate() {
            let holds = holds
                .as_ref()
                .is_none_or(|holds| holds.get(index) == Some(&true));
            if self.keep(*pair, holds) {
                kept.push(*pair);
            }
        }
        Ok(self.gather(left, right, &kept))
    }

    /// Notes a pair and says whether there is a row of output for it.
    fn keep(&mut self, (row, partner): Pair, holds: bool) -> bool {
        let Some(matched) = self.matched.get_mut(row as usize) else {
            return false;
        };
        if partner == END {
            return match self.kind {
                Kind::Inner => false,
                Kind::Left | Kind::Anti => !*matched,
                Kind::Semi => *matched,
                Kind::Mark => true,
            };
        }
        *matched |= holds;
        holds && self.kind == Kind::Left
    }

    fn gather(&self, left: &Batch, right: &[&[TermId]], pairs: &[Pair]) -> Batch {
        Batch {
            columns: self
                .sources
                .iter()
                .map(|source| self.column(*source, left, right, pairs))
                .collect(),
            rows: pairs.len(),
        }
    }

    fn column(
        &self,
        source: Source,
        left: &Batch,
        right: &[&[TermId]],
        pairs: &[Pair],
    ) -> Vec<TermId> {
        let right = |column: usize| right.get(column).copied().unwrap_or_default();
        match source {
            Source::Left(column) => gather_left(left.column(column), pairs),
            Source::Right(column) => gather_right(right(column), pairs),
            Source::LeftOrRight(column, other) => {
                let mut ids = gather_left(left.column(column), pairs);
                // Joins on variables that are always bound are the rule.
                if ids.iter().any(|id| id.is_unbound()) {
                    for (id, other) in ids.iter_mut().zip(gather_right(right(other), pairs)) {
                        if id.is_unbound() {
                            *id = other;
                        }
                    }
                }
                ids
            }
            Source::Mark => pairs
                .iter()
                .map(|(row, _)| (self.matched.get(*row as usize) == Some(&true)).into())
                .collect(),
        }
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "a kernel: joins pair rows that exist"
)]
fn gather_left(column: &[TermId], pairs: &[Pair]) -> Vec<TermId> {
    pairs.iter().map(|(row, _)| column[*row as usize]).collect()
}

/// Unbound where there is no right row.
fn gather_right(column: &[TermId], pairs: &[Pair]) -> Vec<TermId> {
    pairs
        .iter()
        .map(|(_, row)| column.get(*row as usize).copied().unwrap_or_default())
        .collect()
}

/// Adds the variables of an expression, each once.
pub(crate) fn collect_variables(expression: &Expression, out: &mut Vec<Variable>) {
    match expression {
        Expression::Constant(_) | Expression::Parameter(_) => (),
        Expression::Variable(variable) | Expression::Bound(variable) => {
            if !out.contains(variable) {
                out.push(*variable);
            }
        }
        Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => {
            collect_variables(inner, out);
        }
        Expression::And(parts)
        | Expression::Or(parts)
        | Expression::Coalesce(parts)
        | Expression::Call(_, parts) => {
            parts.iter().for_each(|part| collect_variables(part, out));
        }
        Expression::In(value, list) => {
            collect_variables(value, out);
            list.iter().for_each(|part| collect_variables(part, out));
        }
        Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
            collect_variables(left, out);
            collect_variables(right, out);
        }
        Expression::If(condition, then, otherwise) => {
            collect_variables(condition, out);
            collect_variables(then, out);
            collect_variables(otherwise, out);
        }
    }
}
