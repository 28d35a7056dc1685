//! Tests of pieces against oxttl, on files built to deceive the scan.

use std::sync::Arc;

use oxrdf::dataset::CanonicalizationAlgorithm;
use oxrdf::{Dataset, Quad};
use oxttl::{TriGParser, TurtleParser};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::load::sink::recording::RecordingSink;
use crate::load::{Input, source};

const BASE: &str = "http://base/dir/file";

/// What pieces of this many bytes give: quads, mistakes, and how many pieces there were.
type Outcome = (Vec<Quad>, Vec<((u64, u64), String)>, usize);

fn in_pieces(
    text: &[u8],
    with_graphs: bool,
    chunk_bytes: usize,
    is_lenient: bool,
) -> Result<Outcome> {
    let input = Input::from_bytes("x", text);
    let source = source::expand(&[input], &()).unwrap().remove(0);
    let stream = source.open(Arc::default(), &Default::default()).unwrap();
    let base = Some(BASE);
    let statements = Statements::new(stream, with_graphs, base, usize::MAX, is_lenient)?;
    let mut statements = statements.with_chunk_bytes(chunk_bytes);
    let mut sink = RecordingSink::default();
    let (mut mistakes, mut counted, mut pieces) = (Vec::new(), 0, 0);
    let mut piece_text = Vec::new();
    while let Next::Piece(piece) = statements.next(&mut piece_text)? {
        assert_eq!(piece.number, pieces);
        pieces += 1;
        counted += if is_lenient {
            let on_mistake = &mut |place, reason| mistakes.push((place, reason));
            parse_lenient(&piece, &piece_text, &source, &mut sink, on_mistake)?
        } else {
            parse(&piece, &mut piece_text, &source, &mut sink)?
        };
    }
    assert_eq!(counted, u64::try_from(sink.quads.len()).unwrap());
    Ok((sink.quads, mistakes, usize::try_from(pieces).unwrap()))
}

fn by_oxttl(text: &[u8], with_graphs: bool) -> std::result::Result<Vec<Quad>, (u64, u64)> {
    let place = |error: TurtleSyntaxError| {
        let start = error.location().start;
        (start.line + 1, start.column + 1)
    };
    if with_graphs {
        let parser = TriGParser::new().with_base_iri(BASE).unwrap();
        parser
            .for_slice(text)
            .collect::<std::result::Result<_, _>>()
    } else {
        let parser = TurtleParser::new().with_base_iri(BASE).unwrap();
        let triples = parser.for_slice(text);
        triples
            .map(|triple| triple.map(|t| t.in_graph(oxrdf::GraphName::DefaultGraph)))
            .collect()
    }
    .map_err(place)
}

/// Sorted, blank nodes by their role.
fn canonical(quads: &[Quad]) -> Vec<String> {
    let mut dataset: Dataset = quads.iter().cloned().collect();
    dataset.canonicalize(CanonicalizationAlgorithm::Unstable);
    let mut lines: Vec<String> = dataset.iter().map(|quad| quad.to_string()).collect();
    lines.sort();
    lines
}

/// Statements that look like several, and directives.
const STATEMENTS: [&str; 34] = [
    "a:s a:p a:o .",
    "a:s a:p a:o.",
    "<s> <p#q.r> <http://x/#y> .",
    "a:s a:p \"@prefix a: <http://no/> .\", 'PREFIX a: <no>' .",
    "a:s a:p \"\"\"\n@prefix a: <http://no/> .\n\"a:x a:y a:z .\" \"\" \\\"\"\"\" .",
    "a:s a:p '''\n . } { ' '' \\''' # ''' .",
    "a:s a:p \"a \\\" . b \\\\\" , '\\'. ' .",
    "a:s a:p \"\", '', \"\"\"\"\"\", '''''' .",
    "a:s a:p 1.5, .5, 1 , -1.e5, 1e-5, +2.0E+3 .",
    "a:s a:p 1.a:x a:y 2 .",
    "a:s a:p 1.5e3.e:x a:y 'z'@en.a:x a:y <z>.a:x a:y a:.a:x a:y a:z .",
    "a:s.t a:p.q a:o.o. # a:x a:y \"\n",
    "_:x.y a:p _:z.",
    "a:s\\.t a:p\\#q a:o\\'r, a:\\(x\\)5.z, a:%2E.%41 .",
    "# comment with a dot . and a \" quote\n",
    "# @prefix a: <http://no/> .\n",
    "[] a:p [ a:q ( 1 2.5 [ a:r 'x . y' ] () ) ; a:r [] ] .",
    "( 1 a:o ) a:p 'x'.",
    "[ a:p a:o ] .",
    "a:s a:p <<( a:s a:p <<( a:s a:p 'x . )>>' )>> )>> .",
    "<< a:s a:p a:o ~ _:r >> a:q a:o .",
    "a:s a:p a:o ~ a:r {| a:q 'x . |}' ; a:q [ a:r a:o ] |} , a:x {| a:q a:r |} .",
    "a:s a:p 'ar'@ar--rtl , 'x'@en-GB, 'x'^^a:d , true, false .",
    "a:s a a:C ; a:p 1 ; ; .",
    "@prefix a: <http://a/one/> .",
    "@prefix a: <two/> .",
    "PREFIX a: <http://a/three.x?> ",
    "prefix e: <e>",
    "@base <sub/> .",
    "BASE <http://base/other.dir/>",
    "@prefix : <> . :x :y :z .",
    "@version \"1.2\" .",
    "VERSION '1.2'",
    "a.b:s a:p a:o .",
];

const GRAPHS: [&str; 12] = [
    "a:g { ",
    "GRAPH <g> { ",
    "{ ",
    "[] {\n",
    "_:g { ",
    "graph [ ] { # }\n",
    "<g.x>{a:s a:p a:o .",
    "GRAPH # {\n a:g.h { a:s a:p a:o {| a:q a:r |} . ",
    "} ",
    " a:s a:p a:o }",
    "} ",
    "}",
];

const START: &str = "@prefix a: <http://a/> . PREFIX e: <http://e/> prefix a.b: <http://ab/>\n";

/// A text of statements and, in TriG, graphs: directives stand outside of them.
fn compose(parts: &[(Index, Index, bool)], with_graphs: bool) -> String {
    let mut text = START.to_owned();
    let mut in_graph = false;
    for (kind, which, is_statement) in parts {
        let part = if *is_statement || !with_graphs {
            STATEMENTS[which.index(STATEMENTS.len())]
        } else {
            GRAPHS[which.index(GRAPHS.len())]
        };
        let is_directive = part.len() > 1
            && ["@", "pre", "base", "vers"]
                .iter()
                .any(|start| part.to_ascii_lowercase().starts_with(start));
        let opens = part.contains('{') && GRAPHS.contains(&part);
        let closes = part.ends_with("} ") || part.ends_with('}') && GRAPHS.contains(&part);
        if (in_graph && (opens || is_directive)) || (!in_graph && closes) {
            continue;
        }
        in_graph = (in_graph || opens) && !closes;
        text += part;
        text += ["\n", " ", "\r\n", "\n\n# x . y\n", "\t"][kind.index(5)];
    }
    if in_graph {
        text += "}";
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn pieces_are_read_as_the_whole_is(
        parts in prop::collection::vec(any::<(Index, Index, bool)>(), 1..14),
        with_graphs: bool,
        chunk_bytes in 1_usize..400,
    ) {
        let text = compose(&parts, with_graphs);
        let whole = by_oxttl(text.as_bytes(), with_graphs);
        let whole = whole.map_err(|place| TestCaseError::fail(format!("{place:?} of {text}")))?;
        let (quads, _, _) = in_pieces(text.as_bytes(), with_graphs, chunk_bytes, false)
            .map_err(|error| TestCaseError::fail(format!("{error} in {text}")))?;
        prop_assert_eq!(canonical(&quads), canonical(&whole), "{}", text);
    }

    #[test]
    fn damaged_texts_are_refused_as_the_whole_is(
        parts in prop::collection::vec(any::<(Index, Index, bool)>(), 1..10),
        with_graphs: bool,
        chunk_bytes in 1_usize..200,
        damage in prop::collection::vec((any::<Index>(), select(DAMAGE.to_vec()), any::<bool>()), 1..4),
    ) {
        let mut text = compose(&parts, with_graphs).into_bytes();
        for (at, with, replace) in damage {
            let at = START.len() + at.index(text.len() + 1 - START.len());
            let end = if replace { (at + 1).min(text.len()) } else { at };
            text.splice(at..end, with.bytes());
        }
        let shown = String::from_utf8_lossy(&text).into_owned();
        let whole = by_oxttl(&text, with_graphs);
        let pieces = in_pieces(&text, with_graphs, chunk_bytes, false);
        match (whole, pieces) {
            (Ok(whole), Ok((quads, _, _))) => {
                prop_assert_eq!(canonical(&quads), canonical(&whole), "{}", shown);
            }
            (Err(_), Err(_)) => {}
            (whole, pieces) => prop_assert!(false, "{:?} {:?} {}", whole, pieces, shown),
        }
        // What a lenient load leaves out does not depend on the pieces.
        let (quads, mistakes, _) = in_pieces(&text, with_graphs, chunk_bytes, true).unwrap();
        let (all, all_mistakes, _) = in_pieces(&text, with_graphs, 1 << 20, true).unwrap();
        prop_assert_eq!(mistakes, all_mistakes, "{}", &shown);
        prop_assert_eq!(canonical(&quads), canonical(&all), "{}", shown);
    }
}

const DAMAGE: [&str; 20] = [
    "\"", "'", "\"\"\"", "'''", "<", ">", ".", "#", "\\", "{", "}", "\n", " ", "[", "]", "(", ")",
    "@", ":", "x",
];

/// Each piece of a document is parsed with all prefixes: a million of them took 2 GB and two minutes.
#[test]
fn prefixes_beyond_a_limit_are_refused() {
    let parsed = |count: usize| {
        let lines = (0..count).map(|n| format!("@prefix p{n}: <http://a/{n}> .\n"));
        let text = lines.collect::<String>() + "p1:a p2:b p3:c .";
        in_pieces(text.as_bytes(), false, 16 << 10, false)
    };
    let (quads, _, pieces) = parsed(2_000).unwrap();
    assert!(quads.len() == 1 && pieces > 3, "{pieces}");
    let error = parsed(12_000).unwrap_err();
    assert!(matches!(error, Error::LimitExceeded { .. }), "{error}");
}

/// A found case: three megabytes of brackets took a gigabyte.
#[test]
fn brackets_are_nested_so_deep_only() {
    for (open, close) in [("(", ")"), ("[ <p> ", "]"), ("1 {| <p> ", "|}")] {
        let text = |depth: usize| {
            let (open, close) = (open.repeat(depth), close.repeat(depth));
            format!("<a> <p> 1 . <s> <p> {open} 2 {close} . <b> <p> 3 .")
        };
        let cut = |depth: usize| format!("<a> <p> 1 . <s> <p> {}", open.repeat(depth));
        for chunk_bytes in [1 << 10, 1 << 20] {
            let read = |text: &str| in_pieces(text.as_bytes(), false, chunk_bytes, false);
            assert!(read(&text(BRACKET_DEPTH_MAX - 1)).is_ok(), "{open}");
            for text in [text(BRACKET_DEPTH_MAX + 1), cut(BRACKET_DEPTH_MAX + 1)] {
                let message = read(&text).unwrap_err().to_string();
                assert!(message.contains("deeper than 20000"), "{message}");
                let (quads, mistakes, _) =
                    in_pieces(text.as_bytes(), false, chunk_bytes, true).unwrap();
                assert_eq!(mistakes.len(), 1, "{mistakes:?}");
                assert!(!quads.is_empty());
            }
        }
    }
}
