//! Tests of cuts against the order of values.

use std::cmp::Ordering;
use std::convert::Infallible;

use super::*;
use crate::key::literal_key;
use crate::value::tests::values;
use oxrdf::Literal;
use proptest::prelude::*;

/// Sections where literals of the dictionary are as few as two literals allow.
fn sections_of(ids: [TermId; 2]) -> Vec<Section> {
    let holds = |range: IdRange| Ok::<_, Infallible>(ids.iter().any(|id| range.contains(*id)));
    sections(&holds).unwrap()
}

fn id_of(literal: &Literal) -> TermId {
    inline::encode_literal(literal.as_ref()).unwrap_or_else(|| {
        let kind = literal_key(literal.as_ref(), &mut Vec::new());
        TermId::new(kind, 5)
    })
}

fn section_of(sections: &[Section], id: TermId) -> (usize, usize) {
    let mut found = Vec::new();
    for (number, section) in sections.iter().enumerate() {
        for (place, range) in section.ranges.iter().enumerate() {
            if range.contains(id) {
                found.push((number, place));
            }
        }
    }
    assert_eq!(found.len(), 1, "{id:?}");
    found[0]
}

fn check((a, x): (&Literal, &Value), (b, y): (&Literal, &Value)) {
    let (a_id, b_id) = (id_of(a), id_of(b));
    let sections = sections_of([a_id, b_id]);
    let (of_a, place) = section_of(&sections, a_id);
    let (of_b, _) = section_of(&sections, b_id);
    let order = x.order_by(y);
    if of_a != of_b {
        assert_eq!(order, of_a.cmp(&of_b), "{a} {b}");
        return;
    }
    if !sections[of_a].is_told {
        return;
    }
    for behind in [false, true] {
        let Some(points) = cut(&sections[of_a].ranges, b_id, behind) else {
            continue;
        };
        let odd = rounded(b_id).is_some_and(|odd| {
            [a_id, b_id]
                .into_iter()
                .any(|id| is_rounded(id) && odd.contains(id))
        });
        if odd {
            continue;
        }
        let is_date = |id: TermId| (Kind::Date..=Kind::DateTimeZoned).contains(&id.kind());
        if is_date(b_id) && inline::instant(a_id) == inline::instant(b_id) {
            // Told apart by their zones, but not cut there.
            assert_eq!(a_id.to_bits() < points[place], behind, "{a} {b}");
            continue;
        }
        let is_before = a_id.to_bits() < points[place];
        let expected = match behind {
            true => order != Ordering::Greater,
            false => order == Ordering::Less,
        };
        assert_eq!(is_before, expected, "{a} {b} {behind}");
    }
}

/// Cuts beside a number, with floats on any side of it.
fn check_beyond((a, x): (&Literal, &Value), b: &Literal) {
    let ids = [a, b].map(|literal| inline::encode_literal(literal.as_ref()));
    let [Some(a_id), Some(b_id)] = ids else {
        return;
    };
    let numbers = [Kind::Integer, Kind::Decimal, Kind::Double];
    let Some(place) = numbers.iter().position(|kind| *kind == a_id.kind()) else {
        return;
    };
    for above in [false, true] {
        let Some(at) = beyond(b_id, above) else {
            continue;
        };
        let near = rounded(at).unwrap();
        let Some(points) = cut(&numbers.map(IdRange::of_kind), at, above) else {
            continue;
        };
        if is_rounded(a_id) && near.contains(a_id) {
            continue;
        }
        assert!(!is_rounded(b_id) || !near.contains(b_id), "{b}");
        let order = x.order_by(&Value::from_inline(at).unwrap());
        let is_before = a_id.to_bits() < points[place];
        let expected = match above {
            true => order != Ordering::Greater,
            false => order == Ordering::Less,
        };
        assert_eq!(is_before, expected, "{a} {b} {above}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8000))]

    #[test]
    fn cuts_are_in_order((a, x) in values(), (b, y) in values()) {
        check((&a, &x), (&b, &y));
        check_beyond((&a, &x), &b);
    }

    #[test]
    fn numbers_are_cut_in_order(
        a in "-?[0-9]{1,2}(\\.[0-9]{1,2})?", b in "-?[0-9]{1,2}(\\.[0-9])?", of in 0..16_usize,
    ) {
        let datatypes = [Datatype::Integer, Datatype::Decimal, Datatype::Double, Datatype::Float];
        let literal = |text: &str, datatype: Datatype| {
            let datatype = oxrdf::NamedNode::new_unchecked(datatype.iri());
            Literal::new_typed_literal(text, datatype)
        };
        let (a, b) = (literal(&a, datatypes[of % 4]), literal(&b, datatypes[of / 4]));
        let values = [&a, &b].map(|literal| Value::from_literal(literal.as_ref()));
        check((&a, &values[0]), (&b, &values[1]));
        check_beyond((&a, &values[0]), &b);
    }
}

#[test]
fn large_numbers_are_cut_where_ids_tell() {
    let large = inline::encode_i64(12_345_678_901_234_567).unwrap();
    let numbers = [Kind::Integer, Kind::Decimal].map(IdRange::of_kind);
    assert!(cut(&numbers, large, true).is_none());
    assert!(cut(&numbers[..1], large, true).is_some());
    let far = inline::encode("1.0E30", Datatype::Double).unwrap();
    let past = TermId::new(Kind::Integer, TermId::PAYLOAD_MAX).to_bits() + 1;
    assert_eq!(cut(&numbers[..1], far, true), Some(vec![past]));
    let near = inline::encode("-1.0E-30", Datatype::Double).unwrap();
    let zero = integer_bound(0, false).unwrap();
    let zero = TermId::new(Kind::Integer, zero).to_bits();
    assert_eq!(cut(&numbers[..1], near, false), Some(vec![zero]));
    let infinite = inline::encode("INF", Datatype::Double).unwrap();
    assert!(cut(&numbers, infinite, true).is_none());
}
