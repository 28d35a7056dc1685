//! Operators with one input, or none.

use proptest::prelude::*;
use stoa_planner::expression::Expression;
use stoa_planner::physical::{Operator, Plan, SortKey, Variable};
use stoa_terms::{Kind, TermId};

use super::harness::*;

fn boxed(columns: &[u32], rows: &[Row]) -> Box<Plan> {
    Box::new(values(columns, rows))
}

fn key(variable: u32, descending: bool) -> SortKey {
    SortKey {
        expression: Expression::Variable(Variable(variable)),
        descending,
    }
}

/// By ?0, then by ?1 falling, then by all columns. Numbers up to 9 have the order of their ids.
fn naive_sort(rows: &[Row]) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a[0].cmp(&b[0]).then(b[1].cmp(&a[1])).then(a.cmp(b)));
    rows
}

fn dedupe(rows: &[Row]) -> Vec<Row> {
    let mut out: Vec<Row> = Vec::new();
    for row in rows {
        if !out.contains(row) {
            out.push(row.clone());
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn distinct_and_reduced(rows in rows(2, &[], 4, 60)) {
        let distinct = plan(Operator::Distinct(boxed(&[0, 1], &rows)), &[0, 1]);
        prop_assert_eq!(run_all(&distinct), dedupe(&rows));
        let reduced = plan(Operator::Reduced(boxed(&[0, 1], &rows)), &[0, 1]);
        let mut runs = rows.clone();
        runs.dedup();
        prop_assert_eq!(run_all(&reduced), runs);
        let mut input = values(&[0, 1], &sorted(rows.clone()));
        input.sorted_by = variables(&[0, 1]);
        let distinct = plan(Operator::Distinct(Box::new(input)), &[0, 1]);
        prop_assert_eq!(run_all(&distinct), sorted(dedupe(&rows)));
        // Columns that nobody needs above still tell solutions apart.
        for columns in [&[][..], &[1]] {
            let distinct = plan(Operator::Distinct(boxed(&[0, 1], &rows)), columns);
            prop_assert_eq!(run_all(&distinct).len(), dedupe(&rows).len());
        }
    }

    #[test]
    fn sort_top_k_and_slice(rows in rows(3, &[], 6, 60), offset in 0_u64..20, limit in 0_u64..20) {
        let keys = vec![key(0, false), key(1, true)];
        let expected = naive_sort(&rows);
        let sort = plan(
            Operator::Sort { input: boxed(&[0, 1, 2], &rows), keys: keys.clone() },
            &[0, 1, 2],
        );
        prop_assert_eq!(&run_all(&sort), &expected);
        let top = plan(
            Operator::TopK { input: boxed(&[0, 1, 2], &rows), keys, limit },
            &[0, 1, 2],
        );
        let count = usize::try_from(limit).unwrap().min(rows.len());
        prop_assert_eq!(&run_all(&top), &expected[..count]);
        let slice = plan(
            Operator::Slice { input: Box::new(sort), by: Vec::new(), offset, limit: Some(limit) },
            &[2, 0],
        );
        let expected: Vec<Row> = expected
            .iter()
            .skip(usize::try_from(offset).unwrap())
            .take(usize::try_from(limit).unwrap())
            .map(|row| vec![row[2], row[0]])
            .collect();
        prop_assert_eq!(run_all(&slice), expected);
    }

    #[test]
    fn slice_by_binding(rows in rows(3, &[], 4, 60), offset in 0_usize..5, limit in 0_usize..5) {
        let slice = plan(
            Operator::Slice {
                input: boxed(&[0, 1, 2], &rows),
                by: variables(&[2, 0]),
                offset: offset as u64,
                limit: Some(limit as u64),
            },
            &[1, 2],
        );
        let expected: Vec<Row> = rows
            .iter()
            .enumerate()
            .filter(|(at, row)| {
                let same = |other: &&Row| (other[0], other[2]) == (row[0], row[2]);
                let before = rows[..*at].iter().filter(same).count();
                (offset..offset + limit).contains(&before)
            })
            .map(|(_, row)| vec![row[1], row[2]])
            .collect();
        prop_assert_eq!(run_all(&slice), expected);
    }

    #[test]
    fn groups_are_counted(rows in rows(2, &[], 4, 60)) {
        let aggregates = vec![
            count(None, false, 5),
            count(Some(1), false, 6),
            count(Some(1), true, 7),
            count(None, true, 8),
        ];
        let group = plan(
            Operator::HashAggregate {
                input: boxed(&[0, 1], &rows),
                keys: variables(&[0]),
                aggregates,
            },
            &[7, 0, 5, 6, 8],
        );
        let mut keys: Vec<TermId> = Vec::new();
        for row in &rows {
            if !keys.contains(&row[0]) {
                keys.push(row[0]);
            }
        }
        let number = |count: usize| integer(i64::try_from(count).unwrap());
        let expected: Vec<Row> = keys
            .into_iter()
            .map(|key| {
                let members: Vec<Row> = rows.iter().filter(|row| row[0] == key).cloned().collect();
                let bound: Vec<Row> =
                    members.iter().filter(|row| !row[1].is_unbound()).cloned().collect();
                vec![
                    number(dedupe(&bound).len()),
                    key,
                    number(members.len()),
                    number(bound.len()),
                    number(dedupe(&members).len()),
                ]
            })
            .collect();
        prop_assert_eq!(run_all(&group), expected);
    }

    #[test]
    fn filter_extend_union_project(rows in rows(2, &[], 4, 40)) {
        let extend = plan(
            Operator::Extend {
                input: boxed(&[0, 1], &rows),
                variable: Variable(2),
                expression: same_term(0, 1),
            },
            &[2, 0, 1],
        );
        let same = |row: &Row| match row[0].is_unbound() || row[1].is_unbound() {
            true => TermId::UNBOUND,
            false => (row[0] == row[1]).into(),
        };
        let expected: Vec<Row> =
            rows.iter().map(|row| vec![same(row), row[0], row[1]]).collect();
        prop_assert_eq!(&run_all(&extend), &expected);
        let filter = plan(
            Operator::Filter { input: boxed(&[0, 1], &rows), condition: same_term(0, 1) },
            &[0, 1],
        );
        let kept: Vec<Row> =
            rows.iter().filter(|row| same(row) == TermId::TRUE).cloned().collect();
        prop_assert_eq!(&run_all(&filter), &kept);
        let project = plan(Operator::Project(Box::new(extend)), &[1, 4, 1]);
        let twice = |row: &Row| vec![row[2], TermId::UNBOUND, row[2]];
        let projected: Vec<Row> = expected.iter().map(twice).collect();
        prop_assert_eq!(&run_all(&project), &projected);
        let union = plan(
            Operator::Union(vec![filter, plan(Operator::Empty, &[]), values(&[3], &[vec![id(2)]])]),
            &[1, 3],
        );
        let mut all: Vec<Row> = kept.iter().map(|row| vec![row[1], TermId::UNBOUND]).collect();
        all.push(vec![TermId::UNBOUND, id(2)]);
        prop_assert_eq!(run_all(&union), all);
    }
}

#[test]
fn no_keys_are_one_group() {
    for rows in [vec![], vec![vec![id(1)]; 5]] {
        let group = plan(
            Operator::HashAggregate {
                input: boxed(&[0], &rows),
                keys: Vec::new(),
                aggregates: vec![count(None, false, 1)],
            },
            &[1],
        );
        let count = i64::try_from(rows.len()).unwrap();
        assert_eq!(run_all(&group), vec![vec![integer(count)]]);
        let keyed = plan(
            Operator::HashAggregate {
                input: boxed(&[0], &rows),
                keys: variables(&[0]),
                aggregates: Vec::new(),
            },
            &[0],
        );
        assert_eq!(run_all(&keyed).len(), rows.len().min(1));
    }
}

#[test]
fn unit_has_one_solution_without_columns() {
    assert_eq!(run_all(&plan(Operator::Unit, &[])), vec![Row::new()]);
    assert_eq!(run_all(&plan(Operator::Empty, &[])), Vec::<Row>::new());
}

#[test]
fn kinds_sort_as_sparql_says() {
    let literal = |text: &str, datatype: oxrdf::NamedNodeRef<'_>| {
        let literal = oxrdf::Literal::new_typed_literal(text, datatype);
        stoa_terms::inline::encode_literal(literal.as_ref()).unwrap()
    };
    use oxrdf::vocab::xsd;
    let expected = vec![
        TermId::UNBOUND,
        TermId::new(Kind::BlankNode, 3),
        literal("1", xsd::INTEGER),
        literal("1.5", xsd::DECIMAL),
        literal("2", xsd::INTEGER),
        literal("2.5", xsd::DOUBLE),
        literal("3", xsd::INTEGER),
        literal("a", xsd::STRING),
        TermId::FALSE,
        TermId::TRUE,
    ];
    let mut shuffled: Vec<Row> = expected.iter().map(|id| vec![*id]).collect();
    shuffled.reverse();
    shuffled.swap(2, 7);
    for descending in [false, true] {
        let sort = plan(
            Operator::Sort {
                input: boxed(&[0], &shuffled),
                keys: vec![key(0, descending)],
            },
            &[0],
        );
        let mut expected: Vec<Row> = expected.iter().map(|id| vec![*id]).collect();
        if descending {
            expected.reverse();
        }
        assert_eq!(run_all(&sort), expected);
    }
    // Equal values leave it to the next key.
    let (one, also_one) = (literal("1", xsd::INTEGER), literal("1.0", xsd::DECIMAL));
    let rows = [
        vec![also_one, id(2)],
        vec![one, id(3)],
        vec![one, id(1)],
        vec![also_one, id(4)],
    ];
    let sort = plan(
        Operator::Sort {
            input: boxed(&[0, 1], &rows),
            keys: vec![key(0, false), key(1, false)],
        },
        &[1],
    );
    let order: Vec<Row> = (1..5).map(|number| vec![id(number)]).collect();
    assert_eq!(run_all(&sort), order);
}
