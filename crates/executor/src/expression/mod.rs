//! Expressions, compiled for the columns of a batch and evaluated batch by batch.
//!
//! An expression error is no error of evaluation: it leaves a value unbound, or a condition false.

mod arithmetic;
mod call;
mod column;
mod compare;
mod evaluate;
mod integers;
mod members;
mod needle;
mod node;
mod number;
mod number_memo;
mod numbers;
mod operand;
mod term_memo;
mod term_pages;
#[cfg(test)]
pub(crate) mod tests;

use oxrdf::Term;
use stoa_planner::expression::Expression;
use stoa_planner::physical::Variable;
use stoa_terms::TermId;

use crate::batch::Batch;
use crate::context::QueryContext;
use crate::error::{Error, Result};

pub(crate) use arithmetic::{add, divide};
use column::FREE_BYTES_MIN;
pub(crate) use column::{Cell, FREE_BYTES, Tag, Texts, fetch_texts_within, term_values_within};
use evaluate::Evaluation;
use node::Node;
pub use number_memo::{NumberCache, NumberCounts};
pub(crate) use operand::{double, float, of_terms as operands_of_terms, operand_values};
pub(crate) use term_memo::TermMemos;

/// An expression bound to the columns of its input.
pub struct CompiledExpression {
    node: Node,
    /// So many bytes of each column of texts are not reserved.
    free_bytes: usize,
}

impl CompiledExpression {
    /// Compiles `expression` for batches with these columns. A variable that is no column is
    /// unbound.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; or if the dictionary cannot be read.
    pub fn compile(
        expression: &Expression,
        columns: &[Variable],
        context: &QueryContext,
    ) -> Result<Self> {
        let node = node::compile(expression, columns, context)?;
        let node = term_memo::once_per_term(node, expression, context);
        let node = number_memo::once_per_term(node, context);
        let mut columns = 0;
        node.visit(&mut |node| columns += usize::from(matches!(node, Node::Call(..))));
        let free_bytes = FREE_BYTES / columns.max(1);
        Ok(Self {
            node,
            free_bytes: free_bytes.max(FREE_BYTES_MIN),
        })
    }

    /// The value for each row, [`TermId::UNBOUND`] for an expression error.
    ///
    /// # Errors
    /// If the dictionary cannot be read, or computed terms take more memory than there is.
    pub fn evaluate_ids(&self, batch: &Batch, context: &QueryContext) -> Result<Vec<TermId>> {
        in_pieces(batch, context, &|evaluation| {
            let evaluation = evaluation.with_free_bytes(self.free_bytes);
            evaluation.ids(&self.node)
        })
    }

    /// The value for each row as SUM and AVG take it: as [`evaluate_ids`](Self::evaluate_ids), but that computed floats
    /// and doubles are no terms, and dates are errors; [`operand_values`] tells what they are.
    ///
    /// # Errors
    /// As [`evaluate_ids`](Self::evaluate_ids).
    pub(crate) fn evaluate_operands(
        &self,
        batch: &Batch,
        context: &QueryContext,
    ) -> Result<Vec<TermId>> {
        in_pieces(batch, context, &|evaluation| {
            let evaluation = evaluation.with_free_bytes(self.free_bytes);
            evaluation.operands(&self.node)
        })
    }

    /// The term that an expression without variables gives, `None` for an expression error.
    ///
    /// # Errors
    /// As [`compile`](Self::compile) and [`evaluate_ids`](Self::evaluate_ids).
    pub fn constant(expression: &Expression, context: &QueryContext) -> Result<Option<Term>> {
        let compiled = Self::compile(expression, &[], context)?;
        let row = Batch {
            columns: Vec::new(),
            rows: 1,
        };
        match compiled.evaluate_ids(&row, context)?.first() {
            Some(&id) => context.term(id),
            None => Ok(None),
        }
    }

    /// For each row whether the effective boolean value is true.
    ///
    /// # Errors
    /// As [`evaluate_ids`](Self::evaluate_ids).
    pub fn filter(&self, batch: &Batch, context: &QueryContext) -> Result<Vec<bool>> {
        let values = in_pieces(batch, context, &|evaluation| {
            let evaluation = evaluation.with_free_bytes(self.free_bytes);
            evaluation.booleans(&self.node, false)
        })?;
        Ok(values
            .into_iter()
            .map(|value| value == Some(true))
            .collect())
    }
}

/// What an evaluation gives for each row of a batch; where there is no room for all that it computes on the way, for one half
/// after the other.
fn in_pieces<T>(
    batch: &Batch,
    context: &QueryContext,
    evaluate: &dyn Fn(Evaluation<'_>) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    match evaluate(Evaluation::new(batch, context)) {
        Err(Error::MemoryExceeded { .. }) if batch.rows > 1 => {
            let (mut first, mut rest) = (batch.clone(), batch.clone());
            first.truncate(batch.rows / 2);
            rest.skip(batch.rows / 2);
            let mut values = in_pieces(&first, context, evaluate)?;
            values.extend(in_pieces(&rest, context, evaluate)?);
            Ok(values)
        }
        other => other,
    }
}
