//! Parameterized joins.

use stoa_planner::expression::{Comparison, Expression};
use stoa_planner::physical::{Operator, Plan, Variable};

use super::harness::*;
use super::switching::{many, run_in, scan, twice};

const PARAMETER: Variable = Variable(9);

/// For each of these numbers the rows of a plan whose last column is larger.
fn larger_than_each(inner: Plan, numbers: &[i64]) -> Plan {
    let last = *inner.columns.last().unwrap();
    let columns = inner.columns.clone();
    let left: Vec<Row> = numbers
        .iter()
        .map(|number| vec![integer(*number)])
        .collect();
    let filter = Operator::Filter {
        input: Box::new(inner),
        condition: Expression::Compare(
            Comparison::Greater,
            Box::new(Expression::Variable(last)),
            Box::new(Expression::Parameter(PARAMETER)),
        ),
    };
    let columns: Vec<u32> = columns.iter().map(|variable| variable.0).collect();
    let join = Operator::ParameterizedJoin {
        input: Box::new(values(&[PARAMETER.0], &left)),
        inner: Box::new(plan(filter, &columns)),
        parameters: vec![PARAMETER],
    };
    plan(join, &[&[PARAMETER.0], columns.as_slice()].concat())
}

/// What one run reads for a join that goes over is kept to the numbers of that run, and is of no use to the next.
#[test]
fn each_run_has_its_own_ranges() {
    let (snapshot, pattern) = many();
    let numbers = [5, 1, 6, 3];
    for inner in [scan(&pattern), twice(&pattern)] {
        let join = larger_than_each(inner, &numbers);
        for batch_rows in [2, 1_024] {
            let (rows, _) = run_in(&snapshot, &join, settings(batch_rows, 1 << 30));
            for number in numbers {
                let expected = (0..20_000).filter(|other| other % 7 > number).count();
                let given = rows.iter().filter(|row| row[0] == integer(number));
                assert_eq!(given.count(), expected, "larger than {number}");
            }
        }
    }
}
