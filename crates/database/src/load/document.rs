//! Turtle and TriG as a stream, for the rest of a file from a statement on that is too long to be held.
//!
//! # Limits
//! The parser keeps a token until it is complete; one that is longer than
//! [`crate::limits::LINE_BYTES_MAX`] is refused.

use crate::error::{Error, Result};
use crate::limits::LINE_BYTES_MAX;
use crate::load::sink::QuadSink;
use crate::load::source::Stream;
use crate::load::terms::Terms;
use crate::load::terse::{self, Brackets, Start};

/// Bytes that the parser gets at once, as long as it makes something of them.
const FEED_BYTES: usize = 128 << 10;

/// How many triple terms may be open, since the last quad came out, before the parser, which builds
/// them as nested boxes, is stopped. Far above what is accepted, as strings and comments are counted,
/// too.
const OPEN_TRIPLE_TERMS_MAX: usize = 2_000;

/// Parses the rest of a stream into a sink. After each piece `advance` gets the number of new quads
/// and may end the work.
pub(crate) fn parse<S: QuadSink>(
    stream: &mut Stream,
    start: &Start,
    token_bytes_max: usize,
    sink: &mut S,
    advance: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut parser = start.environment.stream_parser(start.with_graphs)?;
    parser.feed(start.graph.header().as_bytes());
    let mut terms = Terms::default();
    let (mut nesting, mut brackets) = (Nesting::default(), Brackets::default());
    let mut text = Vec::new();
    let mut feed_bytes = FEED_BYTES;
    let mut bytes_without_quad = 0_usize;
    let token_bytes_max = token_bytes_max.min(LINE_BYTES_MAX);
    let mut place = start.place;
    loop {
        text.clear();
        let read = stream.read(feed_bytes, &mut text);
        // What stands before a broken end is parsed first, for an earlier mistake.
        parser.feed(&text);
        if nesting.is_too_deep(&text) || brackets.is_too_deep(&text) {
            return Err(too_deep(stream, place));
        }
        let at_end = matches!(read, Ok(0));
        if at_end {
            parser.end();
        }
        let mut quads = 0;
        while let Some(quad) = parser.next() {
            let quad = quad.map_err(|error| {
                let (line, column) = terse::place_of(&error, start);
                stream.source.damaged(line, column, error.message())
            })?;
            let done = terms
                .hand_over(&quad, sink)
                .map_err(|error| stream.source.refused(place.0, error))?;
            if !done {
                return Err(too_deep(stream, place));
            }
            quads += 1;
        }
        advance(quads)?;
        move_place(&mut place, &text);
        if let Err(error) = read {
            return Err(stream.failed(error, place.0, place.1));
        }
        if at_end {
            return Ok(());
        }
        // A token that does not end is scanned again with every piece: pieces that double keep this
        // linear.
        if quads > 0 {
            feed_bytes = FEED_BYTES;
            bytes_without_quad = 0;
            nesting.open = 0;
        } else {
            bytes_without_quad = bytes_without_quad.saturating_add(text.len());
            feed_bytes = FEED_BYTES.max(bytes_without_quad);
            if bytes_without_quad > token_bytes_max {
                return Err(stream.source.damaged(
                    place.0,
                    place.1,
                    format!(
                        "no statement ends within {token_bytes_max} bytes, the most that --memory \
                         allows"
                    ),
                ));
            }
        }
    }
}

pub(crate) fn too_deep(stream: &Stream, place: (u64, u64)) -> Error {
    stream
        .source
        .damaged(place.0, place.1, terse::too_deep_reason())
}

/// Moves a line and a column, both from 1, behind `text`.
pub(crate) fn move_place(place: &mut (u64, u64), text: &[u8]) {
    let lines = crate::load::line::count_lines(text);
    place.0 += lines;
    let last = match memchr::memrchr2(b'\n', b'\r', text) {
        Some(at) => {
            place.1 = 1;
            text.get(at + 1..).unwrap_or(&[])
        }
        None => text,
    };
    // Characters are counted by their first bytes.
    let characters = last.iter().filter(|b| (**b & 0xc0) != 0x80).count();
    place.1 += u64::try_from(characters).unwrap_or(u64::MAX);
}

/// Counts `<<(` that are not closed by `)>>`.
#[derive(Default)]
struct Nesting {
    open: usize,
}

impl Nesting {
    fn is_too_deep(&mut self, text: &[u8]) -> bool {
        let mut rest = text;
        while let Some(at) = memchr::memchr2(b'(', b')', rest) {
            let (before, after) = rest.split_at(at);
            let length = if before.ends_with(b"<<") {
                self.open += 1;
                1
            } else if after.starts_with(b")>>") {
                self.open = self.open.saturating_sub(1);
                3
            } else {
                1
            };
            if self.open > OPEN_TRIPLE_TERMS_MAX {
                return true;
            }
            rest = after.get(length..).unwrap_or(&[]);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::sync::Arc;

    use oxrdf::{Quad, Term};
    use oxttl::TriGParser;

    use super::*;
    use crate::limits::TRIPLE_TERM_DEPTH_MAX;
    use crate::load::sink::recording::RecordingSink;
    use crate::load::terse::{Environment, Graph};
    use crate::load::{Input, source};

    fn ours(text: impl Into<Vec<u8>>, base: Option<&str>) -> Result<Vec<Quad>> {
        let input = Input::from_bytes("x", text);
        let source = source::expand(&[input], &()).unwrap().remove(0);
        let mut sink = RecordingSink::default();
        let mut stream = source.open(Arc::default(), &Default::default()).unwrap();
        let start = Start {
            with_graphs: true,
            environment: Environment::new(base).unwrap(),
            graph: Graph::Outside,
            place: (1, 1),
        };
        let mut counted = 0;
        parse(&mut stream, &start, usize::MAX, &mut sink, &mut |quads| {
            counted += quads;
            Ok(())
        })?;
        assert_eq!(counted, u64::try_from(sink.quads.len()).unwrap());
        Ok(sink.quads)
    }

    #[test]
    fn documents_are_read_as_oxttl_reads_them() {
        let mut text =
            "@prefix a: <http://a/> .\n<#x> a:b \"c\"@EN-gb, 'd', 1, 2.5, true ; a a:C .\n\
                        <x> a:b <<( a:s a:p <<( a:s a:p _:x )>> )>>, \"z\"@ar--rtl .\n"
                .to_owned();
        for i in 0..20_000 {
            writeln!(
                text,
                "a:s{} a:p{} \"{i}\" . a:g{{ a:s{} a:q _:x }}",
                i % 7,
                i % 3,
                i % 5
            )
            .unwrap();
        }
        let theirs: Vec<Quad> = TriGParser::new()
            .with_base_iri("http://base/")
            .unwrap()
            .for_slice(&text)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(ours(text, Some("http://base/")).unwrap(), theirs);
    }

    #[test]
    fn mistakes_are_placed() {
        for (text, message) in [
            (
                "<http://a/s>\n <http://a/p> \"\u{e9}\" x .",
                "x: line 2, column 19: ",
            ),
            ("a:b <http://a/p> 1 .", "x: line 1, column 1: "),
            ("<s> <http://a/p> 1 .", "x: line 1, column 1: "),
            ("<http://a/s> <http://a/p> 1", "x: line 1, column 28: "),
        ] {
            let error = ours(text, None).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        let invalid = ours(b"<http://a/s> <http://a/p> '\xff' .".to_vec(), None);
        assert!(invalid.unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        for depth in [TRIPLE_TERM_DEPTH_MAX, TRIPLE_TERM_DEPTH_MAX + 1, 200_000] {
            let (open, close) = ("<<(_:a<http://a/p>".repeat(depth), ")>>".repeat(depth));
            let result = ours(format!("_:a <http://a/p> {open}_:a{close} ."), None);
            match result {
                Ok(quads) => assert_eq!((quads.len(), depth), (1, TRIPLE_TERM_DEPTH_MAX)),
                Err(error) => assert!(
                    error.to_string().contains("nested deeper than 128"),
                    "{error}"
                ),
            }
        }
    }

    #[test]
    fn a_long_literal_is_read_in_time() {
        let long = "x".repeat(30 << 20);
        let text = format!("<http://a/s> <http://a/p> \"\"\"{long}\"\"\" .\n");
        let quads = ours(text, None).unwrap();
        assert!(matches!(&quads[0].object, Term::Literal(l) if l.value() == long));
    }

    #[test]
    fn a_cut_stream_is_told_after_earlier_mistakes() {
        let text = "<http://a/s> <http://a/p> \"some text\" .\n".repeat(5_000);
        let mut packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
        packed.pop();
        let error = ours(packed, None).unwrap_err().to_string();
        assert!(error.ends_with("the zstd data is cut off"), "{error}");
    }
}
