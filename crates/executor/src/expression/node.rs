//! Compiled expressions: variables are columns, constants have ids and values, parts of AND and OR
//! stand with the cheapest first, and calls on constants are already made.

use stoa_planner::expression::{ArithmeticOperator, Comparison, Constant, Expression, Function};
use stoa_planner::physical::Variable;
use stoa_terms::{TermId, inline};

use super::column::{ConstantTerm, term_values};
use super::evaluate::Evaluation;
use super::members::Members;
use super::number_memo::NumberMemo;
use super::term_memo::Memo;
use crate::batch::Batch;
use crate::context::{Computed, QueryContext};
use crate::error::{Error, Result};
use crate::function;
use crate::function::regex::{Pattern, PatternError};

pub(crate) enum Node {
    Constant(Box<ConstantTerm>),
    Column(usize),
    /// An expression error, such as a variable that is nowhere bound.
    Error,
    Bound(usize),
    Not(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Compare(Comparison, Box<[Self; 2]>),
    /// With what is known of a long list.
    In(Box<Self>, Vec<Self>, Option<Box<Members>>),
    Arithmetic(ArithmeticOperator, Box<[Self; 2]>),
    Plus(Box<Self>),
    Minus(Box<Self>),
    If(Box<[Self; 3]>),
    Coalesce(Vec<Self>),
    Call(Function, Vec<Self>),
    /// REGEX or REPLACE with a pattern and flags that are constant, or why these are refused.
    Pattern(
        Function,
        Vec<Self>,
        std::result::Result<Box<Pattern>, PatternError>,
    ),
    /// A condition on the texts of one column, tried once for each term.
    OncePerTerm(usize, Box<Self>, Memo),
    /// A number that is made of the text of one column, once for each term.
    NumberOfTerm(usize, Box<Self>, NumberMemo),
}

/// Compiles `expression` for the columns `columns`.
pub(super) fn compile(
    expression: &Expression,
    columns: &[Variable],
    context: &QueryContext,
) -> Result<Node> {
    let column = |variable: &Variable| columns.iter().position(|column| column == variable);
    let one = |part: &Expression| compile(part, columns, context);
    let boxed = |part: &Expression| one(part).map(Box::new);
    let all = |parts: &[Expression]| parts.iter().map(one).collect::<Result<Vec<_>>>();
    let node = match expression {
        Expression::Constant(constant) => return constant_node(constant, context),
        Expression::Variable(variable) => {
            return Ok(column(variable).map_or(Node::Error, Node::Column));
        }
        Expression::Parameter(_) => {
            return Err(Error::Internal(
                "a parameter outside of a parameterized join",
            ));
        }
        Expression::Bound(variable) => match column(variable) {
            Some(column) => return Ok(Node::Bound(column)),
            None => return id_node(TermId::FALSE, context),
        },
        Expression::Not(inner) => Node::Not(boxed(inner)?),
        Expression::And(parts) => Node::And(cheapest_first(all(parts)?)),
        Expression::Or(parts) => Node::Or(cheapest_first(all(parts)?)),
        Expression::Compare(comparison, left, right) => {
            Node::Compare(*comparison, Box::new([one(left)?, one(right)?]))
        }
        Expression::In(inner, list) => {
            let list = all(list)?;
            let members = Members::of(&list).map(Box::new);
            Node::In(boxed(inner)?, list, members)
        }
        Expression::Arithmetic(operator, left, right) => {
            Node::Arithmetic(*operator, Box::new([one(left)?, one(right)?]))
        }
        Expression::Plus(inner) => Node::Plus(boxed(inner)?),
        Expression::Minus(inner) => Node::Minus(boxed(inner)?),
        Expression::If(condition, yes, no) => {
            Node::If(Box::new([one(condition)?, one(yes)?, one(no)?]))
        }
        Expression::Coalesce(parts) => Node::Coalesce(all(parts)?),
        Expression::Call(function, arguments) => call_node(*function, all(arguments)?, context)?,
    };
    fold(node, context)
}

/// Calls of REGEX and REPLACE have their pattern compiled once if it is constant.
fn call_node(function: Function, arguments: Vec<Node>, context: &QueryContext) -> Result<Node> {
    let flags = match function {
        Function::Regex => 2,
        Function::Replace => 3,
        _ => return Ok(Node::Call(function, arguments)),
    };
    let text = |argument: Option<&Node>| match argument {
        Some(Node::Constant(constant)) => Some(constant.cell().plain().map(Into::into)),
        _ => None,
    };
    let pattern: Option<Option<String>> = text(arguments.get(1));
    let flags = match arguments.get(flags) {
        None => Some(Some(String::new())),
        flags => text(flags),
    };
    match (pattern, flags) {
        (Some(pattern), Some(flags)) => {
            let strings = pattern.zip(flags);
            let regex = strings
                .ok_or(PatternError::Syntax("no string"))
                .and_then(|(pattern, flags)| function::regex::compile(&pattern, &flags));
            // Many patterns take long to compile.
            function::regex::count(&regex, context)?;
            Ok(Node::Pattern(function, arguments, regex.map(Box::new)))
        }
        _ => Ok(Node::Call(function, arguments)),
    }
}

/// Evaluates what depends on no row.
fn fold(node: Node, context: &QueryContext) -> Result<Node> {
    let mut constant = true;
    node.visit(&mut |part| {
        constant &= match part {
            Node::Column(_) | Node::Bound(_) => false,
            Node::Call(function, _) => function::is_deterministic(*function),
            _ => true,
        };
    });
    if !constant {
        return Ok(node);
    }
    let row = Batch {
        columns: Vec::new(),
        rows: 1,
    };
    let ids = Evaluation::new(&row, context).ids(&node)?;
    match ids.first() {
        Some(id) if !id.is_unbound() => id_node(*id, context),
        _ => Ok(Node::Error),
    }
}

fn constant_node(constant: &Constant, context: &QueryContext) -> Result<Node> {
    let id = match constant.id {
        Some(id) => Some(id),
        None => context
            .resolve(vec![Computed::Term(constant.term.clone())])?
            .first()
            .copied(),
    };
    id_node(id.unwrap_or(TermId::UNBOUND), context)
}

fn id_node(id: TermId, context: &QueryContext) -> Result<Node> {
    if id.is_unbound() {
        return Ok(Node::Error);
    }
    let mut text = Vec::new();
    if !inline::write_lexical(id, &mut text) {
        let mut texts = stoa_quadstore::TermTexts::default();
        context.texts(&[id], &mut texts)?;
        text.extend_from_slice(texts.get(0));
    }
    let value = term_values(&[id], context)?.values().next().flatten();
    Ok(Node::Constant(Box::new(ConstantTerm {
        id,
        kind: context.kind(id),
        text,
        value,
    })))
}

impl ConstantTerm {
    /// As a cell of a column.
    pub(crate) fn cell(&self) -> super::column::Cell<'_> {
        super::column::Cell::Id {
            id: self.id,
            kind: self.kind,
            text: &self.text,
            value: self.value.as_ref(),
        }
    }
}

fn cheapest_first(mut parts: Vec<Node>) -> Vec<Node> {
    parts.sort_by_key(Node::cost);
    parts
}

impl Node {
    /// Calls `visit` for this node and all below it.
    pub(super) fn visit(&self, visit: &mut impl FnMut(&Self)) {
        // A closure type that does not grow with the depth.
        fn walk(node: &Node, visit: &mut dyn FnMut(&Node)) {
            visit(node);
            match node {
                Node::Constant(_) | Node::Column(_) | Node::Error | Node::Bound(_) => (),
                Node::Not(inner)
                | Node::Plus(inner)
                | Node::Minus(inner)
                | Node::OncePerTerm(_, inner, _)
                | Node::NumberOfTerm(_, inner, _) => walk(inner, visit),
                Node::And(parts)
                | Node::Or(parts)
                | Node::Coalesce(parts)
                | Node::Call(_, parts)
                | Node::Pattern(_, parts, _) => parts.iter().for_each(|part| walk(part, visit)),
                Node::Compare(_, parts) | Node::Arithmetic(_, parts) => {
                    parts.iter().for_each(|part| walk(part, visit));
                }
                Node::If(parts) => parts.iter().for_each(|part| walk(part, visit)),
                Node::In(inner, list, _) => {
                    walk(inner, visit);
                    list.iter().for_each(|part| walk(part, visit));
                }
            }
        }
        walk(self, visit);
    }

    /// A rough order of what a row costs: ids alone, arithmetic, texts, regular expressions.
    fn cost(&self) -> u32 {
        let mut cost = 0;
        self.visit(&mut |node| {
            cost += match node {
                Self::Constant(_)
                | Self::Column(_)
                | Self::Error
                | Self::Bound(_)
                | Self::OncePerTerm(..)
                | Self::NumberOfTerm(..) => 0,
                Self::Not(_) | Self::And(_) | Self::Or(_) => 1,
                Self::Compare(Comparison::SameTerm, _) => 1,
                Self::Compare(..) | Self::In(..) => 2,
                Self::Arithmetic(..) | Self::Plus(_) | Self::Minus(_) => 4,
                Self::If(_) | Self::Coalesce(_) => 8,
                Self::Call(..) => 100,
                Self::Pattern(..) => 200,
            };
        });
        cost
    }
}
