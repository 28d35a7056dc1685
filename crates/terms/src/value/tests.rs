//! Tests of equality, comparison and order.

use super::*;
use crate::inline;
use oxrdf::NamedNode;
use proptest::prelude::*;

fn value(lexical: &str, datatype: Datatype) -> Value {
    Value::from_lexical(lexical, datatype).unwrap_or_else(|| panic!("{lexical} has no value"))
}

fn regex(pattern: &str) -> impl Strategy<Value = String> + use<> {
    proptest::string::string_regex(pattern).unwrap()
}

fn literals() -> impl Strategy<Value = Literal> {
    let typed = |lexical: String, datatype: Datatype| {
        Literal::new_typed_literal(lexical, NamedNode::new_unchecked(datatype.iri()))
    };
    let exact = prop_oneof![Just(Datatype::Integer), Just(Datatype::Decimal)];
    let rounded = prop_oneof![Just(Datatype::Double), Just(Datatype::Float)];
    let number = prop_oneof![
        "-?[0-9]{1,3}",
        "-?[0-9]{15,40}",
        "(0|1|16777216|16777217|9007199254740993)",
        "-?[0-9]{1,2}\\.[0-9]{1,2}",
        "0\\.10000000000000000[0-9]{0,6}",
        "0\\.1",
    ];
    let text = prop_oneof!["[a-c]{0,3}", "\\PC{0,10}"];
    let zone = "(|Z|[+-](0[0-9]|1[0-3]):(00|30))";
    let day = "20(08|09)-0[1-3]-(0[1-9]|1[0-9])";
    let time = "(0[0-9]|1[0-9]):[0-5]0:0[0-9](\\.[0-9]{1,4})?";
    prop_oneof![
        (number.clone(), exact).prop_map(move |(n, datatype)| typed(n, datatype)),
        (number, rounded).prop_map(move |(n, datatype)| typed(n, datatype)),
        prop_oneof![
            "-?[1-9]\\.[0-9]E-?[0-9]{1,2}",
            "(NaN|INF|-INF|0.0E0|-0.0E0)"
        ]
        .prop_map(move |n| typed(n, Datatype::Double)),
        text.clone().prop_map(Literal::new_simple_literal),
        text.clone()
            .prop_map(|text| Literal::new_language_tagged_literal_unchecked(text, "en")),
        text.prop_map(move |text| typed(text, Datatype::AnyUri)),
        "(true|false|0|1|x)".prop_map(move |text| typed(text, Datatype::Boolean)),
        regex(&format!("{day}{zone}")).prop_map(move |text| typed(text, Datatype::Date)),
        regex(&format!("{day}T{time}{zone}")).prop_map(move |text| typed(text, Datatype::DateTime)),
        regex(&format!("{time}{zone}")).prop_map(move |text| typed(text, Datatype::Time)),
        regex(&format!("20[0-9][0-9]{zone}")).prop_map(move |text| typed(text, Datatype::GYear)),
        "P([0-9]M)?([0-9]{1,2}D)?T[1-9]H".prop_map(move |text| typed(text, Datatype::Duration)),
    ]
}

/// Literals and their values.
pub(crate) fn values() -> impl Strategy<Value = (Literal, Value)> {
    literals().prop_map(|literal| {
        let value = Value::from_literal(literal.as_ref());
        (literal, value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn order_by_is_total_and_agrees_with_comparison(
        (_, a) in values(), (_, b) in values(), (_, c) in values(),
    ) {
        prop_assert_eq!(a.order_by(&b), b.order_by(&a).reverse());
        match a.order_by(&b) {
            Ordering::Less => prop_assert!(a.order_prefix() <= b.order_prefix(), "{a:?} {b:?}"),
            Ordering::Equal => prop_assert_eq!(a.order_prefix(), b.order_prefix()),
            Ordering::Greater => prop_assert!(a.order_prefix() >= b.order_prefix(), "{a:?} {b:?}"),
        }
        if a.order_by(&b) != Ordering::Greater && b.order_by(&c) != Ordering::Greater {
            prop_assert!(a.order_by(&c) != Ordering::Greater, "{a:?} {b:?} {c:?}");
        }
        if let Some(order) = a.compare(&b) && order != Ordering::Equal {
            prop_assert_eq!(a.order_by(&b), order, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn inline_ids_compare_as_values((x, a) in values(), (y, b) in values()) {
        let ids = (inline::encode_literal(x.as_ref()), inline::encode_literal(y.as_ref()));
        if let (Some(x), Some(y)) = ids {
            if let Some(order) = compare_inline(x, y) {
                prop_assert_eq!(order, a.compare(&b));
            }
            if let Some(equal) = equals_inline(x, y) {
                prop_assert_eq!(equal, a.equals(&b));
            }
            if let Some(order) = order_inline(x, y) {
                prop_assert_eq!(order, a.order_by(&b));
            }
        }
    }

    #[test]
    fn equality_is_symmetric_and_that_of_terms_within(
        (x, a) in values(), (_, b) in values(),
    ) {
        prop_assert_eq!(a.equals(&b), b.equals(&a));
        let same = Value::from_literal(x.as_ref());
        if x.value() != "NaN" {
            prop_assert_eq!(a.equals(&same), Some(true));
        }
    }

    #[test]
    fn inline_ids_have_the_value_of_their_literals((literal, value) in values()) {
        if let Some(id) = inline::encode_literal(literal.as_ref()) {
            let inline = Value::from_inline(id).unwrap();
            prop_assert_eq!(format!("{inline:?}"), format!("{value:?}"));
        }
    }
}

#[test]
fn numbers_beyond_64_bits_compare_exactly() {
    let a = value("123456789012345678901234567890", Datatype::Integer);
    let b = value("123456789012345678901234567891", Datatype::Integer);
    let c = value("123456789012345678901234567890.0", Datatype::Decimal);
    assert_eq!(a.compare(&b), Some(Ordering::Less));
    assert_eq!(a.equals(&b), Some(false));
    assert_eq!(a.equals(&c), Some(true));
    let tiny = value("-0.0000000000000000000000000001", Datatype::Decimal);
    assert_eq!(
        tiny.compare(&value("0", Datatype::Integer)),
        Some(Ordering::Less)
    );
    assert_eq!(
        tiny.to_literal().unwrap().value(),
        "-0.0000000000000000000000000001"
    );
    assert_eq!(
        c.to_literal().unwrap().value(),
        "123456789012345678901234567890"
    );
}

#[test]
fn decimals_round_once_to_floats() {
    for text in [
        "0.123456789012345678",
        "12345678901234567.123456789",
        "9007199254740993",
        "-0.000000000000000007",
        "16777217.5",
        "0",
    ] {
        let decimal = value(text, Datatype::Decimal);
        assert_eq!(decimal.to_f64(), text.parse().ok(), "{text}");
        assert_eq!(decimal.to_f32(), text.parse().ok(), "{text}");
    }
}

#[test]
fn dates_with_and_without_zone_within_14_hours_are_an_error() {
    let date = |text| value(text, Datatype::Date);
    assert_eq!(date("2006-08-23").equals(&date("2006-08-23Z")), None);
    assert_eq!(date("2006-08-23").compare(&date("2006-08-23Z")), None);
    assert_eq!(date("2006-08-23").equals(&date("2006-08-25Z")), Some(false));
    assert_eq!(
        date("2006-08-23").compare(&date("2006-08-25Z")),
        Some(Ordering::Less)
    );
}

#[test]
fn unknown_and_ill_typed_literals_are_equal_to_themselves_or_an_error() {
    let other = |text: &str| {
        Value::Other(Box::new(Literal::new_typed_literal(
            text,
            NamedNode::new_unchecked("http://example.com/t"),
        )))
    };
    assert_eq!(other("a").equals(&other("a")), Some(true));
    assert_eq!(other("a").equals(&other("b")), None);
    assert_eq!(other("a").equals(&Value::Integer(1)), None);
    assert_eq!(other("a").equals(&Value::Iri("a".into())), Some(false));
    assert_eq!(
        Value::String("1".into()).equals(&Value::Integer(1)),
        Some(false)
    );
    let ill =
        Value::from_literal(Literal::new_typed_literal("x", oxrdf::vocab::xsd::INTEGER).as_ref());
    // An error in SPARQL 1.2; false in 1.1.
    assert_eq!(ill.effective_boolean(), None);
    assert_eq!(other("a").effective_boolean(), None);
}

#[test]
fn doubles_are_written_canonically() {
    for (number, text) in [
        (100.0, "1.0E2"),
        (0.0, "0.0E0"),
        (1.5e-7, "1.5E-7"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-INF"),
        (123.456, "1.23456E2"),
    ] {
        assert_eq!(write_double(number), text);
    }
    assert_eq!(write_float(0.1), "1.0E-1");
    assert_eq!(
        Value::from_lexical("inf", Datatype::Double).map(|_| ()),
        None
    );
}

#[test]
fn prefixes_tell_numbers_apart() {
    let numbers = [
        "-1e300", "-2.5", "-1e-300", "0", "1e-300", "1", "2.5", "3", "1e300",
    ];
    let prefix = |text: &&str| value(text, Datatype::Double).order_prefix();
    let prefixes: Vec<u64> = numbers.iter().map(prefix).collect();
    assert!(prefixes.is_sorted_by(|a, b| a < b), "{prefixes:x?}");
    assert_eq!(prefix(&"0"), prefix(&"-0"));
    assert_eq!(prefix(&"1"), value("1.0", Datatype::Decimal).order_prefix());
    assert!(prefix(&"NaN") > prefix(&"INF"));
    assert!(Value::String("".into()).order_prefix() > prefix(&"NaN"));
}
