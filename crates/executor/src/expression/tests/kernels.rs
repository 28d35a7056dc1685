//! Random expressions over random columns, by the kernels of columns and row by row through values.
//!
//! The reference makes a `Value` of each operand and a term of each result, and asks the kernels that know all values.

use std::cmp::Ordering;
use std::sync::Arc;

use oxrdf::{Literal, NamedNode, Term};
use stoa_planner::expression::{
    AggregateFunction, ArithmeticOperator, Comparison, Constant, Expression, Function,
};
use stoa_planner::physical::Variable;
use stoa_terms::value::Value;
use stoa_terms::{Kind, TermId};

use super::context;
use crate::aggregate::accumulator;
use crate::batch::Batch;
use crate::expression::{Cell, CompiledExpression, arithmetic};
use crate::function::{Implementation, implementation};
use crate::{Computed, QueryContext};

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn variable(&mut self) -> Variable {
        self.of(&[Variable(0), Variable(1)])
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

// ---- terms ----

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "7",
    "-250",
    "3600",
    "999999999999999",
    "1000000000000000",
    "9007199254740993",
    "36028797018963967",
    "-36028797018963968",
    "36028797018963968",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "123456789012345678901234567890",
    "01",
    "x",
];

const DECIMALS: &[&str] = &[
    "0",
    "0.0",
    "0.5",
    "-0.5",
    "-2.5",
    "1.00",
    "3",
    "12.34",
    "97.90",
    "0.1",
    "99999999999999.9",
    "0.000000000000001",
    "0.0000000000000000001",
    "123456789.123456789",
    "0.333333333333333333",
    "-3.333333333333333333",
    "9223372036854775808.5",
    "170141183460469231731",
    "170141183460469231731.687303715884105727",
    "1000000000000000000",
    "10000000000000000000",
    "1234567890123456789012345678901234567890.5",
];

const FLOATS: &[&str] = &[
    "0.0E0",
    "-0.0E0",
    "1.0E0",
    "-2.5E0",
    "0.5",
    "100",
    "0.1",
    "3.0E-1",
    "1.6777217E7",
    "1.0E15",
    "1.0E22",
    "1.5E30",
    "-4.0E-30",
    "1.0E38",
    "9007199254740993",
    "0.30000000000000004",
    "NaN",
    "INF",
    "-INF",
];

const TYPES_OF_INTEGERS: &[&str] = &["byte", "long", "unsignedInt", "nonPositiveInteger"];

fn typed(lexical: &str, datatype: &str) -> Term {
    let iri = format!("http://www.w3.org/2001/XMLSchema#{datatype}");
    Literal::new_typed_literal(lexical, NamedNode::new_unchecked(iri)).into()
}

fn number(random: &mut Random, kind: usize) -> Term {
    match kind {
        0 => match random.below(8) {
            0 => typed(random.of(INTEGERS), random.of(TYPES_OF_INTEGERS)),
            1..4 => typed(&format!("{}", random.below(200)), "integer"),
            _ => typed(random.of(INTEGERS), "integer"),
        },
        1 => match random.below(3) {
            0 => typed(
                &format!("{}.{:02}", random.below(90), random.below(100)),
                "decimal",
            ),
            _ => typed(random.of(DECIMALS), "decimal"),
        },
        2 => match random.below(3) {
            0 => typed(
                &format!("{}.{}", random.below(90), random.below(10)),
                "double",
            ),
            _ => typed(random.of(FLOATS), "double"),
        },
        _ => match random.below(3) {
            0 => typed(
                &format!("{}.{}", random.below(90), random.below(10)),
                "float",
            ),
            _ => typed(random.of(FLOATS), "float"),
        },
    }
}

fn other(random: &mut Random) -> Term {
    match random.below(7) {
        0 => typed("true", "boolean"),
        1 => typed("2026-11-23", "date"),
        2 => typed("2026-11-23T10:00:00Z", "dateTime"),
        3 => typed("P1D", "dayTimeDuration"),
        4 => typed("3.5", "string"),
        5 => typed("a longer text", "string"),
        _ => NamedNode::new_unchecked("http://example.com/a").into(),
    }
}

/// A column of one type, or of several, with or without unbound rows and what is no number.
fn column(random: &mut Random, rows: usize) -> Vec<Option<Term>> {
    let kind = random.below(5);
    let (unbound, others) = (random.below(3) == 0, random.below(3) == 0);
    let one = |_| {
        if unbound && random.below(4) == 0 {
            return None;
        }
        if others && random.below(5) == 0 {
            return Some(other(random));
        }
        let kind = match kind {
            4 => random.below(4),
            kind => kind,
        };
        Some(number(random, kind))
    };
    (0..rows).map(one).collect()
}

// ---- expressions ----

const COMPARISONS: &[Comparison] = &[
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

const OPERATORS: &[ArithmeticOperator] = &[
    ArithmeticOperator::Add,
    ArithmeticOperator::Subtract,
    ArithmeticOperator::Multiply,
    ArithmeticOperator::Divide,
];

const FUNCTIONS: &[Function] = &[
    Function::Abs,
    Function::Round,
    Function::Ceil,
    Function::Floor,
    Function::CastInteger,
    Function::CastDecimal,
    Function::CastFloat,
    Function::CastDouble,
];

fn constant(term: Term) -> Expression {
    Expression::Constant(Constant { term, id: None })
}

fn boxed(random: &mut Random, depth: usize) -> Box<Expression> {
    Box::new(value(random, depth))
}

fn value(random: &mut Random, depth: usize) -> Expression {
    if depth == 0 || random.below(5) == 0 {
        return match random.below(4) {
            0 => {
                let kind = random.below(4);
                constant(number(random, kind))
            }
            _ => Expression::Variable(random.variable()),
        };
    }
    match random.below(8) {
        0 => Expression::Minus(boxed(random, depth - 1)),
        1 | 2 => Expression::Call(random.of(FUNCTIONS), vec![value(random, depth - 1)]),
        3 => {
            let condition = Box::new(condition(random, depth - 1));
            Expression::If(
                condition,
                boxed(random, depth - 1),
                boxed(random, depth - 1),
            )
        }
        4 => Expression::Coalesce(vec![value(random, depth - 1), value(random, depth - 1)]),
        _ => {
            let operator = random.of(OPERATORS);
            Expression::Arithmetic(operator, boxed(random, depth - 1), boxed(random, depth - 1))
        }
    }
}

fn condition(random: &mut Random, depth: usize) -> Expression {
    if depth > 0 && random.below(3) == 0 {
        let parts =
            |random: &mut Random| vec![condition(random, depth - 1), condition(random, depth - 1)];
        return match random.below(3) {
            0 => Expression::Not(Box::new(condition(random, depth - 1))),
            1 => Expression::And(parts(random)),
            _ => Expression::Or(parts(random)),
        };
    }
    let depth = depth.saturating_sub(1);
    match random.below(8) {
        0 => Expression::Bound(random.variable()),
        1 => value(random, depth),
        2 => {
            let list = (0..3).map(|_| value(random, depth)).collect();
            Expression::In(boxed(random, depth), list)
        }
        _ => {
            let comparison = random.of(COMPARISONS);
            Expression::Compare(comparison, boxed(random, depth), boxed(random, depth))
        }
    }
}

// ---- the reference ----

fn value_of(term: &Term) -> Value {
    match term {
        Term::Literal(literal) => Value::from_literal(literal.as_ref()),
        term => Value::Iri(term.to_string().trim_matches(['<', '>']).into()),
    }
}

fn is_nan(value: &Value) -> bool {
    match value {
        Value::Double(value) => value.is_nan(),
        Value::Float(value) => value.is_nan(),
        _ => false,
    }
}

fn compared(comparison: Comparison, a: &Value, b: &Value) -> Option<bool> {
    if comparison == Comparison::Equal {
        return a.equals(b);
    }
    if comparison == Comparison::NotEqual {
        return a.equals(b).map(|equal| !equal);
    }
    if a.is_numeric() && b.is_numeric() && (is_nan(a) || is_nan(b)) {
        return Some(false);
    }
    let order = a.compare(b)?;
    Some(match comparison {
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        _ => order.is_ge(),
    })
}

struct Reference<'a> {
    row: [&'a Option<Term>; 2],
    context: &'a QueryContext,
}

impl Reference<'_> {
    fn value(&self, expression: &Expression) -> Option<Value> {
        self.term(expression).map(|term| value_of(&term))
    }

    fn truth(&self, expression: &Expression) -> Option<bool> {
        self.value(expression)?.effective_boolean()
    }

    fn term(&self, expression: &Expression) -> Option<Term> {
        let result = match expression {
            Expression::Constant(constant) => return Some(constant.term.clone()),
            Expression::Variable(variable) => return self.row[variable.0 as usize].clone(),
            Expression::If(condition, yes, no) => {
                return match self.truth(condition)? {
                    true => self.term(yes),
                    false => self.term(no),
                };
            }
            Expression::Coalesce(parts) => return parts.iter().find_map(|part| self.term(part)),
            Expression::Bound(variable) => Value::Boolean(self.row[variable.0 as usize].is_some()),
            Expression::Not(inner) => Value::Boolean(!self.truth(inner)?),
            Expression::And(parts) => Value::Boolean(self.all(parts, false)?),
            Expression::Or(parts) => Value::Boolean(self.all(parts, true)?),
            Expression::Compare(comparison, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                Value::Boolean(compared(*comparison, &left, &right)?)
            }
            Expression::In(inner, list) => {
                let inner = self.value(inner)?;
                let equal = |item: &Expression| inner.equals(&self.value(item)?);
                let equal: Vec<_> = list.iter().map(equal).collect();
                match (equal.contains(&Some(true)), equal.contains(&None)) {
                    (true, _) => Value::Boolean(true),
                    (false, true) => return None,
                    (false, false) => Value::Boolean(false),
                }
            }
            Expression::Arithmetic(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                arithmetic::calculate(*operator, &left, &right)?
            }
            Expression::Minus(inner) => arithmetic::negate(&self.value(inner)?)?,
            Expression::Call(function, arguments) => {
                let argument = self.value(&arguments[0])?;
                match implementation(*function) {
                    Implementation::Value(call) => call(&[Cell::Value(&argument)], self.context)?,
                    _ => unreachable!("{function:?}"),
                }
            }
            _ => unreachable!("{expression:?}"),
        };
        result.to_literal().map(Term::from)
    }

    fn all(&self, parts: &[Expression], decisive: bool) -> Option<bool> {
        let truths: Vec<_> = parts.iter().map(|part| self.truth(part)).collect();
        if truths.contains(&Some(decisive)) {
            return Some(decisive);
        }
        (!truths.contains(&None)).then_some(!decisive)
    }
}

// ---- both ----

fn ids(terms: &[Option<Term>], context: &QueryContext) -> Vec<TermId> {
    let computed = terms.iter().map(|term| match term {
        None => Computed::Unbound,
        Some(term) => Computed::Term(term.clone()),
    });
    context.resolve(computed.collect()).unwrap()
}

/// Two columns of random terms, and the batch of them.
fn drawn(seed: u64, rows: usize) -> (Random, Arc<QueryContext>, [Vec<Option<Term>>; 2], Batch) {
    let mut random = Random(seed);
    let context = context();
    let columns = [column(&mut random, rows), column(&mut random, rows)];
    let batch = Batch {
        columns: columns.iter().map(|terms| ids(terms, &context)).collect(),
        rows,
    };
    (random, context, columns, batch)
}

fn compile(expression: &Expression, context: &QueryContext) -> CompiledExpression {
    CompiledExpression::compile(expression, &[Variable(0), Variable(1)], context).unwrap()
}

#[test]
fn columns_are_as_their_rows() {
    const ROWS: usize = 24;
    for seed in 0..4_000 {
        let (mut random, context, columns, batch) = drawn(seed, ROWS);
        let expressions = [
            value(&mut random, 1),
            value(&mut random, 3),
            condition(&mut random, 2),
        ];
        for expression in &expressions {
            let compiled = compile(expression, &context);
            let found = compiled.evaluate_ids(&batch, &context).unwrap();
            let kept = compiled.filter(&batch, &context).unwrap();
            for row in 0..ROWS {
                let reference = Reference {
                    row: [&columns[0][row], &columns[1][row]],
                    context: &context,
                };
                let told = || format!("seed {seed}: {expression:?} of {:?}", reference.row);
                let term = context.term(found[row]).unwrap();
                assert_eq!(term, reference.term(expression), "{}", told());
                assert_eq!(
                    kept[row],
                    reference.truth(expression) == Some(true),
                    "{}",
                    told()
                );
            }
        }
    }
}

/// The sum of several batches as it was before there were operands: in each batch inline integers, and floats that were
/// computed, at once while the sum is of their type, and other numbers behind them.
fn sum(values: &[Option<Value>], operands: &[TermId], computed: bool) -> Option<Value> {
    let mut sum = Some(Value::Integer(0));
    let batches = values.chunks(BATCH_ROWS).zip(operands.chunks(BATCH_ROWS));
    for (values, operands) in batches {
        let mut others = Vec::new();
        for (value, operand) in values.iter().zip(operands) {
            match (&mut sum, value) {
                (Some(Value::Integer(sum)), Some(Value::Integer(value)))
                    if operand.kind() == Kind::Integer && sum.checked_add(*value).is_some() =>
                {
                    *sum += value;
                }
                (Some(Value::Float(sum)), Some(Value::Float(value))) if computed => *sum += value,
                _ => others.push(value),
            }
        }
        for value in others {
            sum = match (sum, value) {
                (Some(sum), Some(value)) => arithmetic::add(&sum, value).filter(Value::is_numeric),
                _ => None,
            };
        }
    }
    sum
}

const BATCH_ROWS: usize = 8;

/// What an aggregate gives for these values, batch by batch.
fn aggregated(
    function: AggregateFunction,
    values: &[TermId],
    context: &QueryContext,
) -> Option<Term> {
    let mut states = accumulator(&function).unwrap();
    states.grow(1);
    for batch in values.chunks(BATCH_ROWS) {
        states
            .update(&vec![0; batch.len()], batch, context)
            .unwrap();
    }
    let ids = states.finish(0..1, context).unwrap();
    context.term(ids[0]).unwrap()
}

#[test]
fn aggregates_are_of_values() {
    const ROWS: usize = 40;
    for seed in 0..2_000 {
        let (mut random, context, columns, batch) = drawn(seed, ROWS);
        let computed = random.below(2) == 1;
        let part = |number| Box::new(Expression::Variable(Variable(number)));
        let expression = match computed {
            false => *part(0),
            true => Expression::Arithmetic(random.of(OPERATORS), part(0), part(1)),
        };
        let of_row = |row: usize| {
            let row = [&columns[0][row], &columns[1][row]];
            let context = &*context;
            let term = Reference { row, context }.term(&expression);
            term.as_ref().map(value_of)
        };
        let values: Vec<Option<Value>> = (0..ROWS).map(of_row).collect();
        let compiled = compile(&expression, &context);
        let told = || format!("seed {seed}: {expression:?} of {columns:?}");

        let operands = compiled.evaluate_operands(&batch, &context).unwrap();
        let total = sum(&values, &operands, computed);
        let count = Value::Integer(i64::try_from(ROWS).unwrap());
        let mean = total
            .as_ref()
            .and_then(|sum| arithmetic::divide(sum, &count));
        let literal = |value: Option<Value>| Some(Term::from(value?.to_literal()?));
        let found = aggregated(AggregateFunction::Sum, &operands, &context);
        assert_eq!(found, literal(total), "{}", told());
        let found = aggregated(AggregateFunction::Avg, &operands, &context);
        assert_eq!(found, literal(mean), "{}", told());

        let found = compiled.evaluate_ids(&batch, &context).unwrap();
        let best = |order: Ordering| {
            let values: Option<Vec<&Value>> = values.iter().map(Option::as_ref).collect();
            values?
                .into_iter()
                .reduce(|best, value| match value.order_by(best) == order {
                    true => value,
                    false => best,
                })
        };
        for (function, order) in [
            (AggregateFunction::Min, Ordering::Less),
            (AggregateFunction::Max, Ordering::Greater),
        ] {
            let found = aggregated(function, &found, &context).map(|term| value_of(&term));
            let same = match (&found, best(order)) {
                (Some(found), Some(best)) => found.order_by(best).is_eq(),
                (found, best) => found.is_none() && best.is_none(),
            };
            assert!(same, "{}", told());
        }
    }
}

/// A row that waits is added before the rows behind it, as doubles are rounded.
#[test]
fn sums_are_rounded_in_their_order() {
    let context = context();
    let mut terms = vec![Some(typed("0.0625", "double")); BATCH_ROWS];
    terms.extend([
        Some(typed("1", "integer")),
        Some(typed("1.0E22", "double")),
        Some(typed("-1.0E22", "double")),
    ]);
    let values = ids(&terms, &context);
    let sum = aggregated(AggregateFunction::Sum, &values, &context);
    assert_eq!(sum, Some(typed("0.0E0", "double")));
}
