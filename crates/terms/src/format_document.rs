//! Compares docs/format.md with the code, and freezes ids and keys of some terms: if one of these
//! tests has to change, the version of the format rises.

use crate::datatype::Datatype;
use crate::{Kind, TermId, inline, key};

const DOCUMENT: &str = include_str!("../../../docs/format.md");

/// The rows of tables within a section whose first cell is code and whose second is a number.
fn rows(section: &str) -> Vec<(String, u64)> {
    let start = DOCUMENT.find(&format!("\n## {section}\n")).unwrap();
    let text = &DOCUMENT[start + 1..];
    let text = &text[..text[1..].find("\n## ").map_or(text.len(), |end| end + 1)];
    text.lines()
        .filter_map(|line| {
            let mut cells = line.trim().strip_prefix('|')?.split('|').map(str::trim);
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            Some((name.to_owned(), cells.next()?.parse().ok()?))
        })
        .collect()
}

#[test]
fn kinds_are_those_of_the_document() {
    let kinds: Vec<_> = Kind::ALL
        .iter()
        .map(|kind| (format!("{kind:?}"), *kind as u64))
        .collect();
    assert_eq!(rows("Term ids"), kinds);
}

#[test]
fn codes_of_datatypes_are_those_of_the_document() {
    let codes: Vec<_> = Datatype::ALL
        .iter()
        .map(|datatype| {
            let local = datatype.iri().rsplit_once('#').unwrap().1;
            (local.to_owned(), u64::from(*datatype as u8))
        })
        .collect();
    assert_eq!(rows("Dictionary keys"), codes);
}

#[test]
fn ids_and_keys_stay_what_they_are() {
    for (lexical, datatype, bits) in GOLDEN {
        let id = inline::encode(lexical, *datatype).unwrap();
        assert_eq!(
            id,
            TermId::from_bits(*bits),
            "{lexical}: {:#018x}",
            id.to_bits()
        );
    }
    let mut bytes = Vec::new();
    let integer = Some(Datatype::Integer.iri());
    key::literal_key_parts("a\0b\u{1}", integer, None, None, &mut bytes);
    assert_eq!(bytes, b"a\x01\x01b\x01\x02\0T\x04");
    bytes.clear();
    key::literal_key_parts("a", Some("http://t"), None, None, &mut bytes);
    assert_eq!(bytes, b"a\0Dhttp://t");
}

const GOLDEN: &[(&str, Datatype, u64)] = &[
    ("true", Datatype::Boolean, 3),
    ("-5", Datatype::Integer, 0x37ff_ffff_ffff_ffb0),
    ("7", Datatype::UnsignedByte, 0x3800_0000_0000_007c),
    ("97.90", Datatype::Decimal, 0x4c3b_d329_99e1_8001),
    ("-0.5", Datatype::Decimal, 0x4411_ca05_6ce5_fff8),
    ("0", Datatype::Decimal, 0x4800_0000_0000_0000),
    ("1.0E2", Datatype::Double, 0x5c42_d798_83d2_0000),
    ("NaN", Datatype::Float, 0x5fe0_0000_0000_000c),
    ("2008-05-31", Datatype::Date, 0x7080_0004_d11b_0000),
    ("1999+01:00", Datatype::GYear, 0x8180_0003_a2ef_103c),
    ("23:59:59.5", Datatype::Time, 0x7680_0014_9968_3100),
    (
        "2008-06-20T12:30:00.250Z",
        Datatype::DateTime,
        0xa804_6a97_cf78_eb71,
    ),
    (
        "2008-06-20T12:30:00-05:00",
        Datatype::DateTimeStamp,
        0xa804_6a9c_1a17_00a4,
    ),
    ("USD", Datatype::String, 0xc555_3440_0000_0003),
];
