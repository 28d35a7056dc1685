//! Tests of the tokenizer, most of them against oxttl.

use oxrdf::Quad;
use oxttl::{NQuadsParser, NTriplesParser};
use proptest::prelude::*;

use super::*;
use crate::load::sink::recording::RecordingSink;

/// The quads, or the line and column (both from 1) and the reason of the mistake.
fn ours(text: &[u8], with_graphs: bool) -> Result<Vec<Quad>, (u64, u64, String)> {
    let mut sink = RecordingSink::default();
    match LineParser::new().parse(text, with_graphs, &mut sink) {
        Ok(statements) => {
            assert_eq!(statements, u64::try_from(sink.quads.len()).unwrap());
            Ok(sink.quads)
        }
        Err(Failure::Syntax {
            line,
            column,
            reason,
        }) => Err((line + 1, column, reason)),
        Err(Failure::Sink { error, .. }) => panic!("{error}"),
    }
}

fn theirs(text: &[u8], with_graphs: bool) -> Result<Vec<Quad>, String> {
    if with_graphs {
        NQuadsParser::new()
            .for_slice(text)
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())
    } else {
        NTriplesParser::new()
            .for_slice(text)
            .map(|triple| triple.map(|t| t.in_graph(oxrdf::GraphName::DefaultGraph)))
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())
    }
}

/// Panics unless both parsers agree. oxttl does not look into comments, so those are left out by
/// the generators where bytes are damaged.
fn compare(text: &[u8]) {
    for with_graphs in [false, true] {
        let (a, b) = (ours(text, with_graphs), theirs(text, with_graphs));
        match (&a, &b) {
            (Ok(a), Ok(b)) => assert_eq!(a, b, "{}", String::from_utf8_lossy(text)),
            (Err(_), Err(_)) => {}
            _ => panic!(
                "{}\nours: {a:?}\noxttl: {b:?}",
                String::from_utf8_lossy(text)
            ),
        }
    }
}

#[test]
fn all_kinds_of_statements_are_read() {
    let text = concat!(
        "# a comment\r\n",
        "\n",
        "<http://a/s> <http://a/p> <http://a/o> .\n",
        "  <http://a/s>\t<http://a/p>\t\"x\" . # comment\r",
        "<http://a/s><http://a/p>\"x\"@en-GB.\r\n",
        "_:a.b <http://a/p> _:a.b.\n",
        "_:a <http://a/q> \"\\u00e9\\n\\\"\"^^<http://a/d\\u0074> .\n",
        "_:a <http://a/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n",
        "_:ab <http://a/p> \"2\" ^^ <http://www.w3.org/2001/XMLSchema#integer> .\n",
        "_:ab <http://a/p> \"\\\\\" .\n",
        "<http://a/s> <http://a/p> \"x\"@ar--rtl .\n",
        "<http://a/s> <http://a/p> <<( _:a <http://a/p> <<(_:b<http://a/p>\"x\")>> )>> .\n",
        "<http://a/\u{e9}> <http://a/p> \"\u{e9}\u{1f600}\" .",
    );
    compare(text.as_bytes());
    assert_eq!(ours(text.as_bytes(), false).unwrap().len(), 11);
    let quads = "<http://a/s> <http://a/p> \"x\" <http://a/g> .\n\
                 <http://a/s> <http://a/p> \"x\"_:g.\n\
                 <http://a/s> <http://a/p> <http://a/o> _:g .\n\
                 <http://a/s> <http://a/p> \"x\"@en<http://a/g>.\n";
    compare(quads.as_bytes());
    assert_eq!(ours(quads.as_bytes(), true).unwrap().len(), 4);
}

#[test]
fn a_version_is_accepted() {
    let text = "VERSION \"1.2\"\n<http://a/s> <http://a/p> <http://a/o> .\nVERSION\t\"1.2\" # x";
    assert_eq!(ours(text.as_bytes(), false).unwrap().len(), 1);
    for text in ["VERSION", "VERSION 1.2", "VERSION \"1.2\" .", "VERSIO"] {
        assert!(ours(text.as_bytes(), false).is_err(), "{text}");
    }
}

/// Text, line, column, reason.
const MISTAKES: &[(&[u8], u64, u64, &str)] = &[
    (
        b"\n\r\n<http://a/s p> <http://a/p> <http://a/o> .",
        3,
        1,
        "invalid IRI: it contains a space",
    ),
    (
        b"<s> <http://a/p> <http://a/o> .",
        1,
        1,
        "invalid IRI: No scheme found in an absolute IRI",
    ),
    (
        b"<http://a/s> \"p\" <http://a/o> .",
        1,
        14,
        "expected a predicate (an IRI), found '\"'",
    ),
    (
        b"\"\xc3\xa9\" <http://a/p> <http://a/o> .",
        1,
        1,
        "expected a subject (an IRI or a blank node), found '\"'",
    ),
    (
        b"<http://a/s> <http://a/p> \"\xc3\xa9\" ; .",
        1,
        31,
        "expected '.', found ';'",
    ),
    (
        b"<http://a/s> <http://a/p> \"x\"",
        1,
        30,
        "expected '.', found the end of the line",
    ),
    (
        b"<http://a/s> <http://a/p> \"x\ny\" .",
        1,
        27,
        "the string is not closed in this line; a line end within is written \\n",
    ),
    (
        b"<http://a/s> <http://a/p> \"x\\q\" .",
        1,
        29,
        "invalid escape '\\q'",
    ),
    (
        b"<http://a/s> <http://a/p> \"x\" <http://a/g> .",
        1,
        31,
        "expected '.': N-Triples has no graph names, N-Quads (nq) has",
    ),
    (
        b"<http://a/s> <http://a/p> \"x\" . .",
        1,
        33,
        "expected the end of the line after a statement, found '.'",
    ),
    (
        b"<http://a/s> <http://a/p> <http://a/o .\n",
        1,
        27,
        "the IRI is not closed by '>' in this line",
    ),
    (b"_:a <http://a/p> \"\xff\" .", 1, 19, "invalid UTF-8"),
    (
        b"_:a <http://a/p> \"\" .\nx\n_:a <http://a/p> \"\xff\" .",
        2,
        1,
        "expected a subject (an IRI or a blank node), found 'x'",
    ),
    (
        b"_:a <http://a/p> \"\"@en--up .",
        1,
        20,
        "the base direction of a literal is --ltr or --rtl, not --up",
    ),
    (
        b"@prefix a: <http://a/> .",
        1,
        1,
        "expected a subject (an IRI or a blank node), found '@'",
    ),
];

#[test]
fn mistakes_are_placed_and_explained() {
    for (text, line, column, reason) in MISTAKES {
        assert_eq!(
            ours(text, false).unwrap_err(),
            (*line, *column, (*reason).to_owned()),
            "{}",
            String::from_utf8_lossy(text)
        );
    }
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |depth: usize| {
        let (open, close) = ("<<(_:a<http://a/p>".repeat(depth), ")>>".repeat(depth));
        format!("_:a <http://a/p> {open}_:a{close} .")
    };
    assert!(ours(nested(TRIPLE_TERM_DEPTH_MAX).as_bytes(), false).is_ok());
    let (_, _, reason) = ours(nested(100_000).as_bytes(), false).unwrap_err();
    assert_eq!(reason, "triple terms are nested deeper than 128");
}

#[test]
fn repeated_subjects_and_predicates_are_handed_over_once_an_epoch() {
    let mut text = String::new();
    for i in 0..70 {
        use std::fmt::Write;
        let predicate = ["a", "b", "c"][i % 3];
        writeln!(text, "<http://a/s> <http://a/{predicate}> \"{i}\" .").unwrap();
    }
    let mut sink = RecordingSink::default();
    let parsed = LineParser::new().parse(text.as_bytes(), false, &mut sink);
    assert_eq!(parsed.unwrap(), 70);
    assert_eq!(sink.quads, theirs(text.as_bytes(), false).unwrap());
    // Ten epochs, with a subject and three predicates each.
    assert_eq!(sink.iris_taken, 40);
}

#[test]
fn lines_are_counted() {
    for (text, lines) in [
        ("", 0),
        ("a\n", 1),
        ("a\r\nb\rc\n\n", 4),
        ("\r", 1),
        ("\r\r\n", 2),
    ] {
        assert_eq!(count_lines(text.as_bytes()), lines, "{text:?}");
    }
}

fn term() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "<http://a/[a-c]>",
        1 => "<(http:|urn:|)(//|)[a-c:@/?#\\[\\]%2. {}\u{e9}\u{e000}\\\\]{0,6}>",
        1 => "<http://a/(\\\\u00[0-9a-g]{2}|\\\\U0000004[0-9]|\\\\n)>",
        2 => "_:[a-c0\u{b7}\u{e9}_.-]{1,4}",
        2 => "\"[a-c \u{e9}]{0,4}\"",
        2 => "\"([a-c]|\\\\[tbnrf\"'\\\\u]|\\\\u0[01]e[0-9g]|\\\\uD[89]00|\\\\U0001F60[0-9]){0,4}\"",
        2 => "\"x\" ?@[a-c]{0,3}(-[a-zA-Z0-9]{1,5}|-|)(--(ltr|rtl|up|)|)",
        2 => "\"1\" ?\\^\\^ ?<http://(a/d|www.w3.org/2001/XMLSchema#integer)>",
        1 => "\"1\"\\^\\^<http://www.w3.org/1999/02/22-rdf-syntax-ns#(dirL|l)angString>",
        1 => "(true|1|'x'|a:b|\\[\\]|,|;|@en|\\^\\^)",
    ]
}

fn any_term() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => term(),
        1 => (term(), term(), term()).prop_map(|(s, p, o)| format!("<<( {s} {p} {o} )>>")),
        1 => (term(), term()).prop_map(|(s, o)| format!("<<({s}<http://a/p>{o})>>")),
    ]
}

fn line() -> impl Strategy<Value = String> {
    let node = prop_oneof![
        8 => prop_oneof!["<http://a/[a-c]>", "_:[a-c]{1,2}"],
        1 => any_term()
    ];
    let predicate = prop_oneof![8 => "<http://a/[p-r]>", 1 => any_term()];
    let graph = prop_oneof![4 => Just(String::new()), 2 => "<http://a/[gh]>|_:g", 1 => any_term()];
    let end = prop_oneof![8 => Just(" .".to_owned()), 1 => "[ .#]{0,3}"];
    let space = prop_oneof![8 => Just(" ".to_owned()), 1 => "[ \t]{0,2}"];
    prop_oneof![
        12 => (node, space.clone(), predicate, space.clone(), any_term(), space, graph, end)
            .prop_map(|(s, a, p, b, o, c, g, e)| format!("{s}{a}{p}{b}{o}{c}{g}{e}")),
        1 => Just(String::new()),
        1 => Just("# comment".to_owned()),
    ]
}

fn document() -> impl Strategy<Value = String> {
    let end = prop_oneof![6 => Just("\n"), 1 => Just("\r\n"), 1 => Just("\r"), 1 => Just("\n\n")];
    prop::collection::vec((line(), end), 0..4).prop_map(|lines| {
        lines
            .into_iter()
            .map(|(line, end)| line + end)
            .collect::<String>()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn random_documents_are_read_as_oxttl_reads_them(text in document()) {
        compare(text.as_bytes());
    }

    #[test]
    fn damaged_documents_are_read_as_oxttl_reads_them(
        text in document(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..3),
    ) {
        let mut bytes = text.replace('#', "").into_bytes();
        for (index, byte, how) in damage {
            let at = index.index(bytes.len().max(1));
            match how {
                0 if !bytes.is_empty() => bytes[at] = byte,
                1 if !bytes.is_empty() => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, byte),
            }
        }
        bytes.retain(|b| *b != b'#');
        compare(&bytes);
    }
}
