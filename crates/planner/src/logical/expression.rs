//! Expressions: from the algebra to [`Expression`], and what the rewrites ask about them.
//!
//! EXISTS becomes a variable that a join fills (a mark); the operator that evaluates the expression
//! puts that join below itself.

use oxrdf::{NamedNode, Term};
use spargebra::algebra::{Expression as Source, Function as SourceFunction};

use super::translate::Translator;
use super::{Mark, fold};
use crate::Rewrites;
use crate::error::Error;
use crate::expression::{ArithmeticOperator, Comparison, DERIVED, Expression, Function};
use crate::variable_set::VariableSet;

impl<'a> Translator<'a> {
    /// Translates an expression; EXISTS inside it is appended to `marks`.
    pub(super) fn expression(
        &mut self,
        source: &'a Source,
        marks: &mut Vec<Mark>,
    ) -> Result<Expression, Error> {
        Ok(match source {
            Source::NamedNode(iri) => Expression::Constant(self.constant(iri.clone().into())?),
            Source::Literal(literal) => {
                Expression::Constant(self.constant(literal.clone().into())?)
            }
            Source::Variable(variable) => Expression::Variable(self.variable(variable.as_str())),
            Source::Bound(variable) => Expression::Bound(self.variable(variable.as_str())),
            Source::Or(..) => Expression::Or(self.chain(source, split_or, marks)?),
            Source::And(..) => Expression::And(self.chain(source, split_and, marks)?),
            Source::Not(inner) => Expression::Not(Box::new(self.expression(inner, marks)?)),
            Source::UnaryPlus(inner) => Expression::Plus(Box::new(self.expression(inner, marks)?)),
            Source::UnaryMinus(inner) => {
                Expression::Minus(Box::new(self.expression(inner, marks)?))
            }
            Source::Equal(a, b) => self.compare(Comparison::Equal, a, b, marks)?,
            Source::SameTerm(a, b) => self.compare(Comparison::SameTerm, a, b, marks)?,
            Source::Greater(a, b) => self.compare(Comparison::Greater, a, b, marks)?,
            Source::GreaterOrEqual(a, b) => {
                self.compare(Comparison::GreaterOrEqual, a, b, marks)?
            }
            Source::Less(a, b) => self.compare(Comparison::Less, a, b, marks)?,
            Source::LessOrEqual(a, b) => self.compare(Comparison::LessOrEqual, a, b, marks)?,
            Source::Add(a, b) => self.arithmetic(ArithmeticOperator::Add, a, b, marks)?,
            Source::Subtract(a, b) => self.arithmetic(ArithmeticOperator::Subtract, a, b, marks)?,
            Source::Multiply(a, b) => self.arithmetic(ArithmeticOperator::Multiply, a, b, marks)?,
            Source::Divide(a, b) => self.arithmetic(ArithmeticOperator::Divide, a, b, marks)?,
            Source::In(needle, list) => Expression::In(
                Box::new(self.expression(needle, marks)?),
                self.expressions(list, marks)?,
            ),
            Source::If(a, b, c) => self.conditional(a, b, c, marks)?,
            // BNODE gives one node for one string within a solution.
            Source::FunctionCall(SourceFunction::BNode, arguments)
                if arguments.len() == 1 && self.solution.is_some() =>
            {
                let mut arguments = self.expressions(arguments, marks)?;
                arguments.extend(self.solution.map(Expression::Variable));
                Expression::Call(Function::BNode, arguments)
            }
            // What has one alternative is that one; it may be a variable that is surely bound.
            Source::Coalesce(list) if let [one] = list.as_slice() => self.expression(one, marks)?,
            Source::Coalesce(list) => Expression::Coalesce(self.expressions(list, marks)?),
            Source::FunctionCall(function, arguments) => self.call(function, arguments, marks)?,
            Source::Exists(pattern) => self.exists_mark(pattern, marks)?,
        })
    }

    #[inline(never)]
    fn exists_mark(
        &mut self,
        pattern: &'a spargebra::algebra::GraphPattern,
        marks: &mut Vec<Mark>,
    ) -> Result<Expression, Error> {
        let solution = self.solution.take();
        let node = self.of_exists(pattern)?;
        self.solution = solution;
        let mark = self.fresh_variable();
        marks.push((mark, node));
        Ok(Expression::Variable(mark))
    }

    #[inline(never)]
    fn compare(
        &mut self,
        comparison: Comparison,
        left: &'a Source,
        right: &'a Source,
        marks: &mut Vec<Mark>,
    ) -> Result<Expression, Error> {
        let left = Box::new(self.expression(left, marks)?);
        let right = Box::new(self.expression(right, marks)?);
        Ok(Expression::Compare(comparison, left, right))
    }

    #[inline(never)]
    fn arithmetic(
        &mut self,
        operator: ArithmeticOperator,
        left: &'a Source,
        right: &'a Source,
        marks: &mut Vec<Mark>,
    ) -> Result<Expression, Error> {
        let left = Box::new(self.expression(left, marks)?);
        let right = Box::new(self.expression(right, marks)?);
        // At once, for it may be what a function is called with.
        let known = match self.build.takes(Rewrites::FOLDING) {
            true => fold::arithmetic(operator, &left, &right),
            false => None,
        };
        Ok(known.unwrap_or(Expression::Arithmetic(operator, left, right)))
    }

    /// A call of a function; of constants, what it gives.
    #[inline(never)]
    fn call(
        &mut self,
        function: &SourceFunction,
        arguments: &'a [Source],
        marks: &mut Vec<Mark>,
    ) -> Result<Expression, Error> {
        let function = self::function(function)?;
        let call = Expression::Call(function, self.expressions(arguments, marks)?);
        if self.build.takes(Rewrites::FOLDING) && fold::is_known_call(&call) {
            match self.cache.value(&call)? {
                Some(term @ (Term::NamedNode(_) | Term::Literal(_))) => {
                    return Ok(Expression::Constant(self.constant(term)?));
                }
                // An error stays, and whatever is one solution's.
                Some(Term::BlankNode(_) | Term::Triple(_)) | None => {}
            }
        }
        Ok(call)
    }

    #[inline(never)]
    fn conditional(
        &mut self,
        condition: &'a Source,
        then: &'a Source,
        otherwise: &'a Source,
        marks: &mut Vec<Mark>,
    ) -> Result<Expression, Error> {
        let condition = Box::new(self.expression(condition, marks)?);
        let then = Box::new(self.expression(then, marks)?);
        let otherwise = Box::new(self.expression(otherwise, marks)?);
        Ok(Expression::If(condition, then, otherwise))
    }

    #[inline(never)]
    fn expressions(
        &mut self,
        sources: &'a [Source],
        marks: &mut Vec<Mark>,
    ) -> Result<Vec<Expression>, Error> {
        sources
            .iter()
            .map(|source| self.expression(source, marks))
            .collect()
    }

    #[inline(never)]
    fn chain(
        &mut self,
        source: &'a Source,
        split: fn(&Source) -> Option<(&Source, &Source)>,
        marks: &mut Vec<Mark>,
    ) -> Result<Vec<Expression>, Error> {
        flatten(source, split)
            .into_iter()
            .map(|operand| self.expression(operand, marks))
            .collect()
    }
}

/// The conjuncts of an expression, in the order in which they are written.
pub(super) fn conjuncts(source: &Source) -> Vec<&Source> {
    flatten(source, split_and)
}

fn split_and(source: &Source) -> Option<(&Source, &Source)> {
    match source {
        Source::And(left, right) => Some((left, right)),
        _ => None,
    }
}

fn split_or(source: &Source) -> Option<(&Source, &Source)> {
    match source {
        Source::Or(left, right) => Some((left, right)),
        _ => None,
    }
}

fn flatten(source: &Source, split: fn(&Source) -> Option<(&Source, &Source)>) -> Vec<&Source> {
    let mut stack = vec![source];
    let mut operands = Vec::new();
    while let Some(top) = stack.pop() {
        if let Some((left, right)) = split(top) {
            stack.push(right);
            stack.push(left);
        } else {
            operands.push(top);
        }
    }
    operands
}

/// Calls `visit` for `expression` and everything in it.
pub(crate) fn visit_expression(expression: &Expression, visit: &mut impl FnMut(&Expression)) {
    visit(expression);
    match expression {
        Expression::Constant(_)
        | Expression::Variable(_)
        | Expression::Bound(_)
        | Expression::Parameter(_) => {}
        Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => {
            visit_expression(inner, visit);
        }
        Expression::And(list)
        | Expression::Or(list)
        | Expression::Coalesce(list)
        | Expression::Call(_, list) => {
            for inner in list {
                visit_expression(inner, visit);
            }
        }
        Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
            visit_expression(left, visit);
            visit_expression(right, visit);
        }
        Expression::In(needle, list) => {
            visit_expression(needle, visit);
            for inner in list {
                visit_expression(inner, visit);
            }
        }
        Expression::If(a, b, c) => {
            visit_expression(a, visit);
            visit_expression(b, visit);
            visit_expression(c, visit);
        }
    }
}

/// Shows what an expression is made of in the end: constants, parameters, and variables as such or in BOUND. Always in the same order.
pub(crate) fn for_each_leaf(expression: &mut Expression, see: &mut dyn FnMut(&mut Expression)) {
    let mut open = vec![expression];
    while let Some(expression) = open.pop() {
        match expression {
            Expression::Constant(_)
            | Expression::Variable(_)
            | Expression::Bound(_)
            | Expression::Parameter(_) => {
                see(expression);
            }
            Expression::Not(inner) | Expression::Plus(inner) | Expression::Minus(inner) => {
                open.push(inner);
            }
            Expression::And(list)
            | Expression::Or(list)
            | Expression::Coalesce(list)
            | Expression::Call(_, list) => open.extend(list),
            Expression::Compare(_, left, right) | Expression::Arithmetic(_, left, right) => {
                open.extend([&mut **left, &mut **right]);
            }
            Expression::In(needle, list) => {
                open.push(needle);
                open.extend(list);
            }
            Expression::If(a, b, c) => open.extend([&mut **a, &mut **b, &mut **c]),
        }
    }
}

/// The variables that an expression names.
pub(crate) fn expression_variables(expression: &Expression) -> VariableSet {
    let mut variables = VariableSet::new();
    visit_expression(expression, &mut |part| {
        if let Expression::Variable(variable) | Expression::Bound(variable) = part {
            variables.insert(*variable);
        }
    });
    variables
}

fn function(source: &SourceFunction) -> Result<Function, Error> {
    use SourceFunction as S;
    Ok(match source {
        S::Str => Function::Str,
        S::Lang => Function::Lang,
        S::LangMatches => Function::LangMatches,
        S::Datatype => Function::Datatype,
        S::Iri => Function::Iri,
        S::BNode => Function::BNode,
        S::Rand => Function::Rand,
        S::Abs => Function::Abs,
        S::Ceil => Function::Ceil,
        S::Floor => Function::Floor,
        S::Round => Function::Round,
        S::Concat => Function::Concat,
        S::SubStr => Function::SubStr,
        S::StrLen => Function::StrLen,
        S::Replace => Function::Replace,
        S::UCase => Function::UCase,
        S::LCase => Function::LCase,
        S::EncodeForUri => Function::EncodeForUri,
        S::Contains => Function::Contains,
        S::StrStarts => Function::StrStarts,
        S::StrEnds => Function::StrEnds,
        S::StrBefore => Function::StrBefore,
        S::StrAfter => Function::StrAfter,
        S::Year => Function::Year,
        S::Month => Function::Month,
        S::Day => Function::Day,
        S::Hours => Function::Hours,
        S::Minutes => Function::Minutes,
        S::Seconds => Function::Seconds,
        S::Timezone => Function::Timezone,
        S::Tz => Function::Tz,
        S::Now => Function::Now,
        S::Uuid => Function::Uuid,
        S::StrUuid => Function::StrUuid,
        S::Md5 => Function::Md5,
        S::Sha1 => Function::Sha1,
        S::Sha256 => Function::Sha256,
        S::Sha384 => Function::Sha384,
        S::Sha512 => Function::Sha512,
        S::StrLang => Function::StrLang,
        S::StrDt => Function::StrDt,
        S::IsIri => Function::IsIri,
        S::IsBlank => Function::IsBlank,
        S::IsLiteral => Function::IsLiteral,
        S::IsNumeric => Function::IsNumeric,
        S::Regex => Function::Regex,
        S::Triple => Function::Triple,
        S::Subject => Function::Subject,
        S::Predicate => Function::Predicate,
        S::Object => Function::Object,
        S::IsTriple => Function::IsTriple,
        S::LangDir => Function::LangDir,
        S::HasLang => Function::HasLang,
        S::HasLangDir => Function::HasLangDir,
        S::StrLangDir => Function::StrLangDir,
        S::Adjust => Function::Adjust,
        S::Custom(name) => return cast(name),
    })
}

/// The XPath constructor functions; any other IRI is a function that is not known.
fn cast(name: &NamedNode) -> Result<Function, Error> {
    const XSD: &str = "http://www.w3.org/2001/XMLSchema#";
    Ok(match name.as_str().strip_prefix(XSD) {
        Some("boolean") => Function::CastBoolean,
        Some("integer") => Function::CastInteger,
        Some("decimal") => Function::CastDecimal,
        Some("float") => Function::CastFloat,
        Some("double") => Function::CastDouble,
        Some("string") => Function::CastString,
        Some("date") => Function::CastDate,
        Some("dateTime") => Function::CastDateTime,
        Some("time") => Function::CastTime,
        Some("duration") => Function::CastDuration,
        Some("yearMonthDuration") => Function::CastYearMonthDuration,
        Some("dayTimeDuration") => Function::CastDayTimeDuration,
        _ => {
            let derived = DERIVED
                .iter()
                .find(|datatype| datatype.iri() == name.as_str());
            let datatype =
                *derived.ok_or_else(|| Error::Unsupported(format!("function {name}")))?;
            Function::CastDerived(datatype)
        }
    })
}

/// A term that no data holds and no query should write: stands for "unbound" where outer bindings
/// are handed on.
pub(crate) fn unbound_marker() -> Term {
    NamedNode::new_unchecked("urn:stoa:unbound").into()
}
