//! Evaluation of expressions (17.2, 17.3, 17.4.1): operators and functional forms.

use std::cmp::Ordering;
use std::rc::Rc;

use oxrdf::Term;

use super::evaluate::Evaluator;
use super::value::{Number, Value, boolean, value};
use super::{Fault, Graph, Outcome, Solution, function, order};
use crate::random::ast::Expr;

/// The effective boolean value (17.2.2).
///
/// # Errors
/// An expression error for what has none.
pub fn effective(term: &Term) -> Outcome<bool> {
    let Term::Literal(literal) = term else {
        return Err(Fault::Error);
    };
    match value(literal) {
        Value::Boolean(value) => Ok(value),
        // "a numeric type or a typed literal with a datatype derived from a numeric type: false if
        // the operand is NaN or is numerically equal to zero".
        Value::Number(number) => Ok(!number.is_false()),
        // "a literal with a datatype of xsd:string: false if the operand value has zero length" (1.2).
        Value::String => Ok(!literal.value().is_empty()),
        // "If the argument is a literal with an invalid lexical form for the datatype, then raise an
        // error" (1.2; 1.1 said false).
        _ => Err(Fault::Error),
    }
}

impl Evaluator<'_> {
    /// The value of an expression for a solution, within the active graph.
    ///
    /// # Errors
    /// An expression error, or why the case is no test.
    pub fn expression(
        &self,
        expression: &Expr,
        solution: &Solution,
        graph: &Graph,
    ) -> Outcome<Rc<Term>> {
        match expression {
            Expr::Var(var) => {
                let term = solution.get(*var).cloned().flatten().ok_or(Fault::Error)?;
                self.look(&term);
                Ok(term)
            }
            Expr::Term(term) => {
                self.look(term);
                Ok(Rc::new(term.clone()))
            }
            Expr::Exists(wanted, pattern) => {
                self.seen
                    .count(if *wanted { "EXISTS" } else { "NOT EXISTS" });
                Ok(boolean(self.exists(pattern, solution, graph)? == *wanted))
            }
            Expr::Aggregate(_) => Err(Fault::Open("aggregate outside of a group")),
            Expr::Call(name, arguments) => self.call(name, arguments, solution, graph),
        }
    }

    /// The effective boolean value.
    ///
    /// # Errors
    /// As [`effective`].
    pub(super) fn truth(&self, term: &Term) -> Outcome<bool> {
        effective(term)
    }

    /// Remembers literals that spareval would not keep as written.
    pub(super) fn look(&self, term: &Term) {
        let literal = match term {
            Term::Literal(literal) => literal,
            Term::Triple(triple) => return self.look(&triple.object),
            _ => return,
        };
        let canonical = match value(literal) {
            Value::Number(number) if number.is_big() => {
                self.note_size(&number);
                true
            }
            Value::Number(number) => number.literal() == *literal && !is_float(&number),
            Value::Boolean(_) => literal.value() == "true" || literal.value() == "false",
            Value::DateTime(time) => time.to_string() == literal.value(),
            Value::Date(date) => date.to_string() == literal.value(),
            _ => true,
        };
        if !canonical {
            self.seen.odd_literal.set(true);
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each functional form")]
    fn call(
        &self,
        name: &'static str,
        arguments: &[Expr],
        solution: &Solution,
        graph: &Graph,
    ) -> Outcome<Rc<Term>> {
        self.seen.count(name);
        let evaluate = |argument: &Expr| self.expression(argument, solution, graph);
        let truth = |argument: &Expr| evaluate(argument).and_then(|value| self.truth(&value));
        match (name, arguments) {
            // 17.2: the truth table of errors.
            ("||" | "&&", [a, b]) => {
                let decisive = name == "||";
                let (a, b) = (truth(a), truth(b));
                for side in [&a, &b] {
                    match side {
                        Ok(_) | Err(Fault::Error) => {}
                        Err(other) => return Err(other.clone()),
                    }
                }
                if a == Ok(decisive) || b == Ok(decisive) {
                    return Ok(boolean(decisive));
                }
                a.and(b).map(boolean)
            }
            ("!", [a]) => Ok(boolean(!truth(a)?)),
            ("BOUND", [Expr::Var(var)]) => {
                Ok(boolean(solution.get(*var).is_some_and(Option::is_some)))
            }
            // A variable that was substituted is bound.
            ("BOUND", _) => Ok(boolean(true)),
            ("IF", [condition, then, otherwise]) => {
                if truth(condition)? {
                    evaluate(then)
                } else {
                    evaluate(otherwise)
                }
            }
            ("COALESCE", list) => {
                for argument in list {
                    match evaluate(argument) {
                        Err(Fault::Error) => {}
                        other => return other,
                    }
                }
                Err(Fault::Error)
            }
            // 17.4.1.9: the same as (e = a) || (e = b) ..., and NOT IN its negation.
            ("IN" | "NOT IN", [needle, list @ ..]) => {
                if list.is_empty() {
                    self.seen.note("IN of nothing");
                }
                let needle = evaluate(needle);
                match &needle {
                    // Nothing is compared, yet the form takes a term on its left.
                    Err(Fault::Error) if list.is_empty() => {
                        return Err(Fault::Open("an error IN nothing"));
                    }
                    Ok(_) | Err(Fault::Error) => {}
                    Err(other) => return Err(other.clone()),
                }
                let mut found = Ok(false);
                for candidate in list {
                    let equal = match (&needle, evaluate(candidate)) {
                        (Ok(a), Ok(b)) => self
                            .operator("=", &[Rc::clone(a), b])
                            .map(|t| t == boolean(true)),
                        (Err(Fault::Error), Err(other)) | (_, Err(other)) => Err(other),
                        (Err(other), _) => Err(other.clone()),
                    };
                    match equal {
                        Err(Fault::Error) => {
                            if found == Ok(false) {
                                found = Err(Fault::Error);
                            }
                        }
                        Err(other) => return Err(other),
                        Ok(true) => found = Ok(true),
                        Ok(false) => {}
                    }
                }
                Ok(boolean(found? == (name == "IN")))
            }
            _ => {
                let values: Vec<Rc<Term>> =
                    arguments.iter().map(evaluate).collect::<Outcome<_>>()?;
                self.operator(name, &values)
            }
        }
    }

    fn operator(&self, name: &'static str, values: &[Rc<Term>]) -> Outcome<Rc<Term>> {
        if let ("<" | "<=" | ">" | ">=", [a, b]) = (name, values)
            && a == b
            && order::less(a, b) == Err(Fault::Error)
        {
            self.seen.note("same terms without order");
        }
        if let ("<" | "<=" | ">" | ">=", [a, b]) = (name, values)
            && a != b
            && is_boolean(a)
            && is_boolean(b)
        {
            self.seen.note("order of booleans");
        }
        if let ("=" | "!=" | "<" | "<=" | ">" | ">=", [a, b]) = (name, values)
            && is_time(a)
            && is_time(b)
            && order::equal(a, b) == Err(Fault::Error)
        {
            self.seen.note("times without order");
        } else if let ("=" | "!=", [a, b]) = (name, values)
            && order::equal(a, b) == Err(Fault::Error)
        {
            self.seen.note("literals without a value");
        }
        let result = match (name, values) {
            ("=", [a, b]) => boolean(order::equal(a, b)?),
            ("!=", [a, b]) => boolean(!order::equal(a, b)?),
            ("<", [a, b]) => boolean(order::less(a, b)? == Some(Ordering::Less)),
            (">", [a, b]) => boolean(order::less(a, b)? == Some(Ordering::Greater)),
            ("<=", [a, b]) => boolean(order::less(a, b)?.is_some_and(Ordering::is_le)),
            (">=", [a, b]) => boolean(order::less(a, b)?.is_some_and(Ordering::is_ge)),
            ("sameTerm", [a, b]) => boolean(a == b),
            ("+" | "-" | "*" | "/", [a, b]) => {
                if is_time(a) || is_time(b) {
                    // 17.3.1: operators may be extended, and some engines calculate with dates.
                    return Err(Fault::Open("arithmetic of dates"));
                }
                let (a, b) = (function::numeric(a)?, function::numeric(b)?);
                if name == "/" && a.is_false() {
                    self.seen.note("zero divided");
                }
                self.number(a.calculate(name, &b)?)
            }
            ("unary +", [a]) => {
                let number = self.number(function::numeric(a)?);
                match (&**a, &*number) {
                    // XPath functions and operators 3.1, 4.2.7: "this operation performs no operation".
                    (Term::Literal(written), Term::Literal(same))
                        if written.datatype() == same.datatype() =>
                    {
                        self.seen
                            .odd_literal
                            .set(self.seen.odd_literal.get() || written != same);
                        Rc::clone(a)
                    }
                    _ => number,
                }
            }
            ("unary -" | "ABS" | "CEIL" | "FLOOR" | "ROUND", [a]) => {
                self.number(function::numeric(a)?.change(name)?)
            }
            _ => {
                let result = function::call(name, values)?;
                if let Term::Literal(literal) = &*result
                    && let Some(number) = super::value::number(literal)
                {
                    self.number(number);
                }
                result
            }
        };
        Ok(result)
    }

    fn number(&self, number: Number) -> Rc<Term> {
        if is_float(&number) {
            self.seen.computed_float.set(true);
        }
        self.note_size(&number);
        number.term()
    }

    /// Remembers numbers that spareval does not hold.
    pub(super) fn note_size(&self, number: &Number) {
        if number.is_big() {
            self.seen.note("a number beyond 64 bits");
            self.seen.count("number beyond 64 bits");
        }
    }
}

fn is_float(number: &Number) -> bool {
    matches!(number, Number::Float(_) | Number::Double(_))
}

fn is_boolean(term: &Term) -> bool {
    matches!(term, Term::Literal(l) if matches!(value(l), Value::Boolean(_)))
}

fn is_time(term: &Term) -> bool {
    matches!(term, Term::Literal(l) if matches!(value(l), Value::DateTime(_) | Value::Date(_))
        || l.datatype().as_str().ends_with("Duration"))
}
