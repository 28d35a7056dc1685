//! Expressions, compiled for the columns of a batch and evaluated batch by batch.
//!
//! An expression error is no error of evaluation: it leaves a value unbound, or a condition false.

use stoa_planner::expression::{Comparison, Constant, Expression};
use stoa_planner::physical::Variable;
use stoa_terms::TermId;

use crate::batch::Batch;
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};

/// An expression bound to the columns of its input.
pub struct CompiledExpression {
    node: Node,
}

enum Node {
    Constant(TermId),
    Column(usize),
    Bound(usize),
    Not(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    SameTerm(Box<Self>, Box<Self>),
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
        Ok(Self {
            node: compile(expression, columns, context)?,
        })
    }

    /// The value for each row, [`TermId::UNBOUND`] for an expression error.
    ///
    /// # Errors
    /// If the dictionary cannot be read, or computed terms take more memory than there is.
    pub fn evaluate_ids(&self, batch: &Batch, _context: &QueryContext) -> Result<Vec<TermId>> {
        Ok((0..batch.rows)
            .map(|row| evaluate(&self.node, batch, row))
            .collect())
    }

    /// For each row whether the effective boolean value is true.
    ///
    /// # Errors
    /// As [`evaluate_ids`](Self::evaluate_ids).
    pub fn filter(&self, batch: &Batch, context: &QueryContext) -> Result<Vec<bool>> {
        let ids = self.evaluate_ids(batch, context)?;
        Ok(ids.into_iter().map(|id| id == TermId::TRUE).collect())
    }
}

fn compile(expression: &Expression, columns: &[Variable], context: &QueryContext) -> Result<Node> {
    let column = |variable: &Variable| columns.iter().position(|column| column == variable);
    let all = |parts: &[Expression]| {
        parts
            .iter()
            .map(|part| compile(part, columns, context))
            .collect::<Result<Vec<_>>>()
    };
    Ok(match expression {
        Expression::Constant(constant) => Node::Constant(constant_id(constant, context)?),
        Expression::Variable(variable) => match column(variable) {
            Some(column) => Node::Column(column),
            None => Node::Constant(TermId::UNBOUND),
        },
        Expression::Bound(variable) => match column(variable) {
            Some(column) => Node::Bound(column),
            None => Node::Constant(TermId::FALSE),
        },
        Expression::Not(inner) => Node::Not(Box::new(compile(inner, columns, context)?)),
        Expression::And(parts) => Node::And(all(parts)?),
        Expression::Or(parts) => Node::Or(all(parts)?),
        Expression::Compare(Comparison::SameTerm, left, right) => Node::SameTerm(
            Box::new(compile(left, columns, context)?),
            Box::new(compile(right, columns, context)?),
        ),
        _ => return Err(Error::Unsupported("this expression")),
    })
}

fn constant_id(constant: &Constant, context: &QueryContext) -> Result<TermId> {
    match constant.id {
        Some(id) => Ok(id),
        None => {
            let ids = context.resolve(vec![Computed::Term(constant.term.clone())])?;
            Ok(ids.first().copied().unwrap_or(TermId::UNBOUND))
        }
    }
}

fn evaluate(node: &Node, batch: &Batch, row: usize) -> TermId {
    let boolean = |node: &Node| match evaluate(node, batch, row) {
        TermId::TRUE => Some(true),
        TermId::FALSE => Some(false),
        _ => None,
    };
    match node {
        Node::Constant(id) => *id,
        Node::Column(column) => batch.get(*column, row),
        Node::Bound(column) => (!batch.get(*column, row).is_unbound()).into(),
        Node::Not(inner) => boolean(inner).map_or(TermId::UNBOUND, |value| (!value).into()),
        Node::And(parts) => logic(parts.iter().map(boolean), false),
        Node::Or(parts) => logic(parts.iter().map(boolean), true),
        Node::SameTerm(left, right) => {
            let (left, right) = (evaluate(left, batch, row), evaluate(right, batch, row));
            if left.is_unbound() || right.is_unbound() {
                TermId::UNBOUND
            } else {
                (left == right).into()
            }
        }
    }
}

/// SPARQL's logic with errors: `decisive` wins over an error, an error over the rest.
fn logic(parts: impl Iterator<Item = Option<bool>>, decisive: bool) -> TermId {
    let mut error = false;
    for part in parts {
        match part {
            Some(value) if value == decisive => return decisive.into(),
            Some(_) => (),
            None => error = true,
        }
    }
    if error {
        TermId::UNBOUND
    } else {
        (!decisive).into()
    }
}
