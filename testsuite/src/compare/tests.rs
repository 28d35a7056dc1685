//! The comparer finds what differs.

use oxrdf::BlankNode;

use super::*;

fn table(rows: &[&[Term]]) -> Solutions {
    Solutions {
        variables: vec!["a".to_owned(), "b".to_owned()],
        rows: rows
            .iter()
            .map(|row| row.iter().cloned().map(Some).collect())
            .collect(),
    }
}

fn node(label: &str) -> Term {
    BlankNode::new_unchecked(label).into()
}

fn text(value: &str) -> Term {
    Literal::new_simple_literal(value).into()
}

fn number(value: &str) -> Term {
    Literal::new_typed_literal(value, xsd::INTEGER).into()
}

#[test]
fn finds_a_missing_row_and_one_too_many() {
    let two = table(&[&[text("x"), text("y")], &[text("x"), text("y")]]);
    let one = table(&[&[text("x"), text("y")]]);
    assert!(solutions(&two, &one, Rules::default()).is_err());
    assert!(solutions(&one, &two, Rules::default()).is_err());
    let lax = Rules {
        lax_cardinality: true,
        ..Rules::default()
    };
    assert!(solutions(&one, &two, lax).is_ok());
}

#[test]
fn finds_a_wrong_datatype_and_a_wrong_lexical_form() {
    let right = table(&[&[number("1"), text("y")]]);
    assert!(solutions(&right, &table(&[&[text("1"), text("y")]]), Rules::default()).is_err());
    assert!(
        solutions(
            &right,
            &table(&[&[number("01"), text("y")]]),
            Rules::default()
        )
        .is_err()
    );
    assert!(solutions(&right, &right.clone(), Rules::default()).is_ok());
}

#[test]
fn equal_numbers_excuse_neither_datatypes_nor_values_nor_what_patterns_bind() {
    let double = |text: &str| Term::from(Literal::new_typed_literal(text, xsd::DOUBLE));
    let decimal = |text: &str| Term::from(Literal::new_typed_literal(text, xsd::DECIMAL));
    let computed: BTreeSet<String> = ["a".to_owned()].into();
    let of =
        |a: Term, b: Term| with_equal_numbers(&Answer::Solutions(table(&[&[a, b]])), &computed);
    let same = |a: Term, b: Term| {
        let y = text("y");
        answers(&of(a, y.clone()), &of(b, y), Rules::default()).is_ok()
    };
    assert!(same(double("6"), double("6.0E0")));
    assert!(same(decimal("2.0"), decimal("2")));
    assert!(same(number("07"), number("7")));
    assert!(!same(double("6"), decimal("6")));
    assert!(!same(decimal("6"), number("6")));
    assert!(!same(double("6"), double("6.1")));
    assert!(!same(text("6"), text("6.0")));
    assert!(!same(double("NaN"), double("INF")));
    let bound = |b: &str| of(text("x"), double(b));
    assert!(answers(&bound("6"), &bound("6.0E0"), Rules::default()).is_err());
}

#[test]
fn finds_a_wrong_order_only_where_order_counts() {
    let a = table(&[&[number("1"), text("y")], &[number("2"), text("y")]]);
    let b = table(&[&[number("2"), text("y")], &[number("1"), text("y")]]);
    assert!(solutions(&a, &b, Rules::default()).is_ok());
    assert!(
        solutions(
            &a,
            &b,
            Rules {
                ordered: true,
                ..Rules::default()
            }
        )
        .is_err()
    );
}

#[test]
fn finds_other_variables_and_unbound_ones() {
    let a = table(&[&[number("1"), text("y")]]);
    let mut b = a.clone();
    b.variables[1] = "c".to_owned();
    assert!(solutions(&a, &b, Rules::default()).is_err());
    let mut c = a.clone();
    c.rows[0][1] = None;
    assert!(solutions(&a, &c, Rules::default()).is_err());
}

#[test]
fn blank_nodes_are_compared_by_isomorphism() {
    let a = table(&[
        &[node("x"), node("y")],
        &[node("y"), node("z")],
        &[node("z"), node("x")],
    ]);
    let b = table(&[
        &[node("3"), node("1")],
        &[node("1"), node("2")],
        &[node("2"), node("3")],
    ]);
    let c = table(&[
        &[node("1"), node("2")],
        &[node("2"), node("1")],
        &[node("3"), node("3")],
    ]);
    assert!(solutions(&a, &b, Rules::default()).is_ok());
    assert!(solutions(&a, &c, Rules::default()).is_err());
    let merged = table(&[
        &[node("x"), node("x")],
        &[node("x"), node("x")],
        &[node("x"), node("x")],
    ]);
    assert!(solutions(&a, &merged, Rules::default()).is_err());
    assert!(solutions(&merged, &a, Rules::default()).is_err());
}

#[test]
fn graphs_are_compared_by_isomorphism() {
    let parse = |text: &str| -> Dataset {
        oxttl::NQuadsParser::new()
            .for_slice(text)
            .map(Result::unwrap)
            .collect()
    };
    let a = parse("_:a <http://p> _:b .\n_:b <http://p> \"1\" .\n");
    let b = parse("_:y <http://p> \"1\" .\n_:x <http://p> _:y .\n");
    let c = parse("_:y <http://p> \"1\" .\n_:x <http://p> _:x .\n");
    assert!(datasets(&a, &b).is_ok());
    assert!(datasets(&a, &c).is_err());
}
