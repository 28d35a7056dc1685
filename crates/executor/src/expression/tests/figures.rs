//! What expressions cost for each row, by type of column.
//!
//! For `valgrind --tool=callgrind`: the inclusive cost of `measured_N` divided by [`ROWS`] is what a row of the case
//! with that number takes. The test prints the cases.

use oxrdf::{Literal, NamedNode};
use stoa_planner::expression::{
    AggregateFunction, ArithmeticOperator as Operator, Comparison, Constant, Expression, Function,
};
use stoa_planner::physical::Variable;
use stoa_terms::{TermId, inline};

use super::context;
use crate::QueryContext;
use crate::aggregate::accumulator;
use crate::batch::Batch;
use crate::expression::CompiledExpression;

const ROWS: usize = 102_400;
const BATCH_ROWS: usize = 1_024;

fn literal(lexical: &str, datatype: &str) -> Literal {
    let iri = format!("http://www.w3.org/2001/XMLSchema#{datatype}");
    Literal::new_typed_literal(lexical, NamedNode::new_unchecked(iri))
}

fn id(lexical: &str, datatype: &str) -> TermId {
    inline::encode_literal(literal(lexical, datatype).as_ref()).unwrap()
}

fn constant(lexical: &str, datatype: &str) -> Expression {
    let term = literal(lexical, datatype);
    Expression::Constant(Constant {
        id: inline::encode_literal(term.as_ref()),
        term: term.into(),
    })
}

fn column(number: u32) -> Expression {
    Expression::Variable(Variable(number))
}

fn compare(comparison: Comparison, left: Expression, right: Expression) -> Expression {
    Expression::Compare(comparison, Box::new(left), Box::new(right))
}

fn calculate(operator: Operator, left: Expression, right: Expression) -> Expression {
    Expression::Arithmetic(operator, Box::new(left), Box::new(right))
}

#[derive(Clone, Copy)]
enum Rows {
    Integers,
    Decimals,
    Doubles,
    Floats,
    /// Integers and decimals.
    Exact,
    /// Decimals, and one row of ten unbound.
    Optional,
}

fn rows(rows: Rows, seed: u64, count: usize) -> Vec<TermId> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 10_000 + 1
    };
    let one = |_| {
        let number = next();
        let decimal = || id(&format!("{}.{:02}", number / 100, number % 100), "decimal");
        match rows {
            Rows::Integers => id(&number.to_string(), "integer"),
            Rows::Decimals => decimal(),
            Rows::Doubles | Rows::Floats => {
                let datatype = match rows {
                    Rows::Doubles => "double",
                    _ => "float",
                };
                id(&format!("{}.5", number / 7), datatype)
            }
            Rows::Exact if number.is_multiple_of(2) => id(&number.to_string(), "integer"),
            Rows::Optional if number.is_multiple_of(10) => TermId::UNBOUND,
            Rows::Exact | Rows::Optional => decimal(),
        }
    };
    (0..count).map(one).collect()
}

enum Use {
    Filter,
    Bind,
    Aggregate(AggregateFunction),
}

type Case = (&'static str, Use, Rows, Expression);

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    use Comparison::{Equal, Greater, Less};
    use Operator::{Add, Divide, Multiply};
    use Rows::{Decimals, Doubles, Exact, Floats, Integers, Optional};
    let (a, b) = (|| column(0), || column(1));
    let three = || constant("3", "integer");
    let less = |right| compare(Less, a(), right);
    let both = Expression::And(vec![
        compare(Greater, a(), three()),
        Expression::Not(Box::new(compare(Equal, a(), b()))),
    ]);
    let call = |function, argument| Expression::Call(function, vec![argument]);
    let rounded = call(
        Function::Round,
        calculate(Multiply, a(), constant("1.19", "decimal")),
    );
    let choice = Expression::If(
        Box::new(compare(Less, a(), constant("50", "integer"))),
        Box::new(constant("1", "integer")),
        Box::new(constant("0", "integer")),
    );
    let coalesced = Expression::Coalesce(vec![a(), constant("0", "integer")]);
    vec![
        (
            "integer < integer constant",
            Use::Filter,
            Integers,
            less(three()),
        ),
        (
            "integer < decimal constant",
            Use::Filter,
            Integers,
            less(constant("3.5", "decimal")),
        ),
        (
            "decimal < integer constant",
            Use::Filter,
            Decimals,
            less(three()),
        ),
        ("decimal < decimal", Use::Filter, Decimals, less(b())),
        (
            "double < double constant",
            Use::Filter,
            Doubles,
            less(constant("3.5", "double")),
        ),
        (
            "float < integer constant",
            Use::Filter,
            Floats,
            less(three()),
        ),
        ("exact < decimal", Use::Filter, Exact, less(b())),
        (
            "optional < integer constant",
            Use::Filter,
            Optional,
            less(three()),
        ),
        ("a > 3 && !(a = b), decimals", Use::Filter, Decimals, both),
        (
            "integer * integer",
            Use::Bind,
            Integers,
            calculate(Multiply, a(), b()),
        ),
        (
            "integer / integer > 2",
            Use::Filter,
            Integers,
            compare(Greater, calculate(Divide, a(), b()), three()),
        ),
        (
            "decimal + decimal",
            Use::Bind,
            Decimals,
            calculate(Add, a(), b()),
        ),
        (
            "decimal * decimal",
            Use::Bind,
            Decimals,
            calculate(Multiply, a(), b()),
        ),
        (
            "double * double",
            Use::Bind,
            Doubles,
            calculate(Multiply, a(), b()),
        ),
        (
            "float + float > 3",
            Use::Filter,
            Floats,
            compare(Greater, calculate(Add, a(), b()), three()),
        ),
        (
            "exact * decimal < 3",
            Use::Filter,
            Exact,
            compare(Less, calculate(Multiply, a(), b()), three()),
        ),
        ("ROUND(decimal * 1.19)", Use::Bind, Decimals, rounded),
        (
            "xsd:double(decimal) > 3",
            Use::Filter,
            Decimals,
            compare(Greater, call(Function::CastDouble, a()), three()),
        ),
        (
            "-decimal",
            Use::Bind,
            Decimals,
            Expression::Minus(Box::new(a())),
        ),
        ("IF(decimal < 50, 1, 0)", Use::Bind, Decimals, choice),
        ("COALESCE(optional, 0)", Use::Bind, Optional, coalesced),
        (
            "SUM(decimal)",
            Use::Aggregate(AggregateFunction::Sum),
            Decimals,
            a(),
        ),
        (
            "SUM(double)",
            Use::Aggregate(AggregateFunction::Sum),
            Doubles,
            a(),
        ),
        (
            "SUM(decimal * decimal)",
            Use::Aggregate(AggregateFunction::Sum),
            Decimals,
            calculate(Multiply, a(), b()),
        ),
        (
            "AVG(double * double)",
            Use::Aggregate(AggregateFunction::Avg),
            Doubles,
            calculate(Multiply, a(), b()),
        ),
        (
            "MAX(decimal)",
            Use::Aggregate(AggregateFunction::Max),
            Decimals,
            a(),
        ),
        (
            "MIN(exact)",
            Use::Aggregate(AggregateFunction::Min),
            Exact,
            a(),
        ),
    ]
}

fn run(case: &Case, expression: &CompiledExpression, batches: &[Batch], context: &QueryContext) {
    let groups = vec![0; BATCH_ROWS];
    let mut states = match &case.1 {
        Use::Aggregate(function) => Some(accumulator(function).unwrap()),
        _ => None,
    };
    if let Some(states) = &mut states {
        states.grow(1);
    }
    for batch in batches {
        match (&case.1, &mut states) {
            (Use::Aggregate(AggregateFunction::Sum | AggregateFunction::Avg), Some(states)) => {
                let values = expression.evaluate_operands(batch, context).unwrap();
                states.update(&groups, &values, context).unwrap();
            }
            (_, Some(states)) => {
                let values = expression.evaluate_ids(batch, context).unwrap();
                states.update(&groups, &values, context).unwrap();
            }
            (Use::Filter, None) => {
                std::hint::black_box(expression.filter(batch, context).unwrap());
            }
            _ => {
                std::hint::black_box(expression.evaluate_ids(batch, context).unwrap());
            }
        }
    }
    if let Some(states) = &mut states {
        std::hint::black_box(states.finish(0..1, context).unwrap());
    }
}

type Run = fn(&Case, &CompiledExpression, &[Batch], &QueryContext);

/// Functions that do the same, so that each case has a name of its own.
macro_rules! measured {
    ($($name:ident)*) => {{
        $(
            #[inline(never)]
            fn $name(
                case: &Case,
                expression: &CompiledExpression,
                batches: &[Batch],
                context: &QueryContext,
            ) {
                run(case, expression, batches, context);
                std::hint::black_box(stringify!($name));
            }
        )*
        [$($name as Run),*]
    }};
}

#[test]
#[ignore = "takes figures, by hand: see the head of this file"]
fn of_expressions() {
    let measured = measured!(
        measured_0 measured_1 measured_2 measured_3 measured_4 measured_5 measured_6 measured_7 measured_8 measured_9
        measured_10 measured_11 measured_12 measured_13 measured_14 measured_15 measured_16 measured_17 measured_18
        measured_19 measured_20 measured_21 measured_22 measured_23 measured_24 measured_25 measured_26
    );
    println!();
    for (number, (case, measured)) in cases().iter().zip(measured).enumerate() {
        let context = context();
        let columns = [rows(case.2, 1, ROWS), rows(case.2, 2, ROWS)];
        let batches: Vec<Batch> = (0..ROWS / BATCH_ROWS)
            .map(|batch| Batch {
                columns: columns
                    .iter()
                    .map(|column| column[batch * BATCH_ROWS..][..BATCH_ROWS].to_vec())
                    .collect(),
                rows: BATCH_ROWS,
            })
            .collect();
        let names = [Variable(0), Variable(1)];
        let expression = CompiledExpression::compile(&case.3, &names, &context).unwrap();
        measured(case, &expression, &batches, &context);
        println!("{number}: {}", case.0);
    }
}
