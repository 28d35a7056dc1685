//! Tests of the inline encodings: round trips, order, and what must not be inline.

use super::*;
use crate::value::Value;
use oxrdf::vocab::xsd;
use proptest::prelude::*;
use std::cmp::Ordering;

fn typed(lexical: &str, datatype: Datatype) -> Option<TermId> {
    encode(lexical, datatype)
}

/// The lexical form that an id gives back.
fn written(id: TermId) -> String {
    let mut out = Vec::new();
    assert!(write_lexical(id, &mut out), "{id:?} cannot be written");
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn comes_back(lexical: &str, datatype: Datatype) {
    let id = typed(lexical, datatype).unwrap_or_else(|| panic!("{lexical} is not inline"));
    assert_eq!(written(id), lexical);
    assert_eq!(known_datatype(id), Some(datatype));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn usual_forms_are_inline() {
    for text in ["0", "-1", "1200", "36028797018963967", "-36028797018963968"] {
        comes_back(text, Datatype::Integer);
    }
    comes_back("127", Datatype::Byte);
    comes_back("0", Datatype::NonNegativeInteger);
    for text in [
        "0",
        "0.0",
        "48.85",
        "97.90",
        "5.00",
        "-0.001",
        "100",
        "100.0",
        "123456789012345",
        "0.0000001234",
        "-12.5000000",
        "1000000000000000000",
    ] {
        comes_back(text, Datatype::Decimal);
    }
    for text in [
        "1.0E2",
        "1.0E-7",
        "0.0E0",
        "-5.25E-10",
        "100.0",
        "100",
        "48.85",
        "97.90",
        "0",
        "0.0",
        "INF",
        "-INF",
        "NaN",
        "1e+20",
        "1.5e-07",
        "1e-05",
        "6.02214076E23",
        "100.00",
        "-0.5",
    ] {
        comes_back(text, Datatype::Double);
        comes_back(text, Datatype::Float);
    }
    for text in [
        "2008-05-31",
        "-0044-03-15",
        "0000-01-01",
        "12345-01-01",
        "2000-02-29",
        "2002-09-24Z",
        "2002-09-24-06:00",
        "2002-09-24+05:45",
        "2002-09-24-00:00",
    ] {
        comes_back(text, Datatype::Date);
    }
    comes_back("1999", Datatype::GYear);
    comes_back("1999+01:00", Datatype::GYear);
    comes_back("1999-12", Datatype::GYearMonth);
    comes_back("--02-29", Datatype::GMonthDay);
    comes_back("---31Z", Datatype::GDay);
    comes_back("--12", Datatype::GMonth);
    comes_back("23:59:59.120", Datatype::Time);
    comes_back("00:00:00+14:00", Datatype::Time);
    for text in [
        "2008-06-20T00:00:00",
        "2008-06-20T23:59:59.5",
        "2008-06-20T00:00:00.000Z",
        "2008-06-20T00:00:00-14:00",
        "-0001-12-31T12:00:00.25",
        "9999-12-31T23:59:59.999+14:00",
    ] {
        comes_back(text, Datatype::DateTime);
    }
    comes_back("2008-06-20T00:00:00Z", Datatype::DateTimeStamp);
    comes_back("true", Datatype::Boolean);
    for text in ["", "a", "USD", "Stoa\u{e9}", "1234567"] {
        comes_back(text, Datatype::String);
    }
}

#[test]
fn unusual_forms_need_the_dictionary() {
    for (text, datatype) in [
        ("01", Datatype::Integer),
        ("+1", Datatype::Integer),
        ("-0", Datatype::Integer),
        ("", Datatype::Integer),
        ("-", Datatype::Integer),
        ("1.0", Datatype::Integer),
        ("36028797018963968", Datatype::Integer),
        ("128", Datatype::Byte),
        ("-1", Datatype::NonNegativeInteger),
        ("0", Datatype::PositiveInteger),
        (".5", Datatype::Decimal),
        ("5.", Datatype::Decimal),
        ("-0.0", Datatype::Decimal),
        ("1e3", Datatype::Decimal),
        ("1234567890123456", Datatype::Decimal),
        ("0.00000000", Datatype::Decimal),
        ("01.0", Datatype::Decimal),
        ("-0.0E0", Datatype::Double),
        ("1E2", Datatype::Double),
        ("10.0E2", Datatype::Double),
        ("1.0e2", Datatype::Double),
        ("1.50E2", Datatype::Double),
        ("1.0E02", Datatype::Double),
        ("1.0E+2", Datatype::Double),
        ("1.0E40", Datatype::Double),
        ("1e+05", Datatype::Double),
        ("0.0E1", Datatype::Double),
        ("+INF", Datatype::Double),
        ("2001-02-29", Datatype::Date),
        ("99-01-01", Datatype::Date),
        ("2001-1-01", Datatype::Date),
        ("-0000-01-01", Datatype::Date),
        ("02001-01-01", Datatype::Date),
        ("2001-01-01+14:15", Datatype::Date),
        ("2001-01-01+01:07", Datatype::Date),
        ("2001-01-01T24:00:00", Datatype::DateTime),
        ("2001-01-01T00:00", Datatype::DateTime),
        ("2001-01-01T00:00:00.1234", Datatype::DateTime),
        ("2001-01-01T00:00:00.", Datatype::DateTime),
        ("2001-01-01T00:00:00", Datatype::DateTimeStamp),
        ("P1D", Datatype::Duration),
        ("1", Datatype::Boolean),
        ("12345678", Datatype::String),
        ("x", Datatype::AnyUri),
    ] {
        assert_eq!(typed(text, datatype), None, "{text} as {datatype:?}");
    }
    let literal = Literal::new_language_tagged_literal_unchecked("a", "en");
    assert_eq!(encode_literal(literal.as_ref()), None);
}

#[test]
fn what_is_no_literal_does_not_decode() {
    for id in [
        TermId::UNBOUND,
        TermId::DEFAULT_GRAPH,
        TermId::new(Kind::Iri, 7),
        TermId::new(Kind::BlankNode, 7),
        TermId::new(Kind::Integer, 15),
        TermId::new(Kind::ShortString, 9),
        TermId::new(Kind::Literal, 9),
        TermId::new(Kind::Decimal, 1 << 30),
        TermId::new(Kind::Date, 15 << 56),
    ] {
        assert_eq!(decode(id), None, "{id:?}");
    }
    let true_ = decode(TermId::TRUE).unwrap();
    assert_eq!(true_, Literal::new_typed_literal("true", xsd::BOOLEAN));
}

fn lexicals() -> impl Strategy<Value = (String, Datatype)> {
    let zone = "(|Z|[+-](0[0-9]|1[0-3]):(00|15|30|45|07)|[+-]14:00)";
    let number = prop_oneof![
        Just(Datatype::Decimal),
        Just(Datatype::Double),
        Just(Datatype::Float),
        Just(Datatype::Integer),
        Just(Datatype::Long),
        Just(Datatype::Byte),
    ];
    let years = "-?(0[0-9]{3}|[12][0-9]{3}|[1-9][0-9]{4})";
    let days = "(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
    let times = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,4})?";
    let of = |pattern: &str, datatype: Datatype| {
        (
            proptest::string::string_regex(pattern).unwrap(),
            Just(datatype),
        )
    };
    prop_oneof![
        ("-?[0-9]{1,12}(\\.[0-9]{0,9})?", number.clone()),
        ("-?[1-9]\\.[0-9]{1,14}E-?[1-9][0-9]?", number.clone()),
        ("-?[1-9](\\.[0-9]{1,9})?e[+-][0-9]{2}", number.clone()),
        ("[0-9.+eE-]{0,8}", number),
        of(&format!("{years}-{days}{zone}"), Datatype::Date),
        of(&format!("{years}-{days}T{times}{zone}"), Datatype::DateTime),
        of(
            &format!("{years}-{days}T{times}{zone}"),
            Datatype::DateTimeStamp
        ),
        of(&format!("{times}{zone}"), Datatype::Time),
        of(&format!("{years}{zone}"), Datatype::GYear),
        of(&format!("--{days}{zone}"), Datatype::GMonthDay),
        ("\\PC{0,8}", Just(Datatype::String)),
    ]
}

/// The order of two values by another way than ours, where there is one.
fn order(a: &str, b: &str, datatype: Datatype) -> Option<Ordering> {
    fn parsed<T: std::str::FromStr + PartialOrd>(a: &str, b: &str) -> Option<Ordering> {
        a.parse::<T>().ok()?.partial_cmp(&b.parse::<T>().ok()?)
    }
    match datatype {
        Datatype::Integer | Datatype::Long | Datatype::Byte => parsed::<i64>(a, b),
        Datatype::Decimal => parsed::<oxsdatatypes::Decimal>(a, b),
        Datatype::Double => parsed::<f64>(a, b),
        Datatype::Date => parsed::<oxsdatatypes::Date>(a, b),
        Datatype::Time => parsed::<oxsdatatypes::Time>(a, b),
        Datatype::DateTime | Datatype::DateTimeStamp => parsed::<oxsdatatypes::DateTime>(a, b),
        Datatype::GYear => parsed::<oxsdatatypes::GYear>(a, b),
        Datatype::GMonthDay => parsed::<oxsdatatypes::GMonthDay>(a, b),
        Datatype::String => Some(a.cmp(b)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn terms_come_back((lexical, datatype) in lexicals()) {
        if let Some(id) = typed(&lexical, datatype) {
            let literal = Literal::new_typed_literal(&lexical, NamedNode::from(
                NamedNodeRef::new_unchecked(datatype.iri())));
            prop_assert_eq!(encode_literal(literal.as_ref()), Some(id));
            prop_assert_eq!(decode(id), Some(literal));
        }
    }

    #[test]
    fn order_is_that_of_values((a, datatype) in lexicals(), (b, other) in lexicals()) {
        if datatype == other
            && let (Some(x), Some(y)) = (typed(&a, datatype), typed(&b, datatype))
            && x.kind() == y.kind()
            && let Some(order) = order(&a, &b, datatype)
            && order != Ordering::Equal
        {
            prop_assert_eq!(x.cmp(&y), order, "{} {}", a, b);
        }
    }

    #[test]
    fn doubles_have_the_value_that_their_text_has((lexical, datatype) in lexicals()) {
        let Some(id) = typed(&lexical, datatype) else { return Ok(()) };
        match number_value(id) {
            Some(InlineNumber::Double(value)) =>
                prop_assert_eq!(value, lexical.parse::<f64>().unwrap()),
            Some(InlineNumber::Float(value)) =>
                prop_assert_eq!(value, lexical.parse::<f32>().unwrap()),
            Some(InlineNumber::Integer(value)) =>
                prop_assert_eq!(value, lexical.parse::<i64>().unwrap()),
            Some(InlineNumber::Decimal { digits, scale }) => prop_assert_eq!(
                format!("{digits}e{scale}").parse::<f64>().unwrap(),
                lexical.parse::<f64>().unwrap()),
            None => prop_assert!(!datatype.is_numeric()),
        }
    }

    #[test]
    fn one_term_has_one_id(bits in any::<u64>(), kind in 0..16_usize) {
        let id = TermId::new(Kind::ALL[kind], bits & TermId::PAYLOAD_MAX);
        let mut out = Vec::new();
        if write_lexical(id, &mut out) {
            let text = String::from_utf8(out).unwrap();
            let again = typed(&text, known_datatype(id).unwrap());
            prop_assert!(again.is_none_or(|again| again == id), "{} {:?}", text, id);
        } else {
            prop_assert!(out.is_empty() || !matches!(id.kind(), Kind::Date | Kind::DateTime));
        }
    }
}

#[test]
fn fields_of_dates_are_as_written() {
    for (text, fields) in [
        ("2008-02-29", [2008, 2, 29]),
        ("1969-12-31", [1969, 12, 31]),
        ("-0044-03-15", [-44, 3, 15]),
        ("0000-01-01", [0, 1, 1]),
        ("123456-07-08", [123_456, 7, 8]),
        ("2020-01-01+14:00", [2020, 1, 1]),
        ("2020-01-01-14:00", [2020, 1, 1]),
        ("1970-01-01Z", [1970, 1, 1]),
        ("2024-12-31-00:00", [2024, 12, 31]),
    ] {
        let id = encode(text, Datatype::Date).unwrap();
        assert_eq!(date_fields(id), Some(fields), "{text}");
    }
    for (text, datatype) in [
        ("2008", Datatype::GYear),
        ("12:00:00", Datatype::Time),
        ("--02-29", Datatype::GMonthDay),
        ("2008-01-01T00:00:00", Datatype::DateTime),
    ] {
        assert_eq!(date_fields(encode(text, datatype).unwrap()), None, "{text}");
    }
}

/// The id of a number, and that of its literal.
fn both(value: Value) -> (Option<TermId>, Option<TermId>) {
    let literal = value.to_literal().unwrap();
    (value.inline_id(), encode_literal(literal.as_ref()))
}

#[expect(clippy::cast_possible_truncation, reason = "any float will do")]
fn as_float(double: f64) -> Value {
    Value::Float(double as f32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn values_have_the_ids_of_their_literals(
        bits in any::<u64>(),
        float_bits in any::<u32>(),
        digits in any::<i64>(),
        shift in 0_u32..64,
        power in -40_i32..40,
    ) {
        let digits = digits >> shift;
        let written: f64 = format!("{digits}e{power}").parse().unwrap();
        let sum = written + 0.1;
        for double in [f64::from_bits(bits), written, sum, written / 3.0] {
            let (found, expected) = both(Value::Double(double));
            prop_assert_eq!(found, expected, "{:e}", double);
            let (found, expected) = both(as_float(double));
            prop_assert_eq!(found, expected, "{:e} as a float", double);
        }
        let (found, expected) = both(Value::Float(f32::from_bits(float_bits)));
        prop_assert_eq!(found, expected);
        for power in 0..=19 {
            let wide = i128::from(digits) * 10_i128.pow(power);
            let decimal = oxsdatatypes::Decimal::from_be_bytes(wide.to_be_bytes());
            let (found, expected) = both(Value::Decimal(decimal));
            prop_assert_eq!(found, expected, "{}", decimal);
        }
        let (found, expected) = both(Value::Integer(digits));
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn edges_have_the_ids_of_their_literals() {
    for value in [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.1 + 0.2,
        999_999_999_999_999.0,
        999_999_999_999_999.9,
        1e15,
        1e-7,
        9.999_999_999_999_99e-8,
        16_777_217.0,
        f64::MIN_POSITIVE,
    ] {
        let (found, expected) = both(Value::Double(value));
        assert_eq!(found, expected, "{value:e}");
        let (found, expected) = both(as_float(value));
        assert_eq!(found, expected, "{value:e}");
    }
}

#[test]
fn keys_tell_numbers_apart() {
    let key = |text: &str, datatype| comparison_key(encode(text, datatype).unwrap());
    let one = key("1", Datatype::Integer);
    assert!(one.is_some());
    assert_eq!(one, key("1.00", Datatype::Decimal));
    assert_eq!(one, key("1.0E0", Datatype::Double));
    assert_eq!(one, key("1", Datatype::Byte));
    assert!(key("999999999999999", Datatype::Integer) > one);
    assert!(key("-INF", Datatype::Double) < key("-999999999999999", Datatype::Integer));
    assert!(key("INF", Datatype::Double) > key("999999999999999", Datatype::Integer));
    assert_eq!(key("0", Datatype::Integer), key("0.0E0", Datatype::Double));
    for (text, datatype) in [
        ("1000000000000000", Datatype::Integer),
        ("NaN", Datatype::Double),
        ("1", Datatype::Float),
        ("2026-11-23", Datatype::Date),
    ] {
        assert_eq!(key(text, datatype), None, "{text}");
    }
}
