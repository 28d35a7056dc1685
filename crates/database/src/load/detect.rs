//! Tells a format from the start of a text.

use oxttl::TriGParser;

use crate::format::GraphFormat;
use crate::load::line::LineParser;
use crate::load::sink::Nowhere;

/// The byte order mark of UTF-8, which some programs put before a text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The format of a text that begins with `start`; `whole` if that is all of it.
///
/// N-Quads is told for N-Triples, too, and TriG for Turtle: what has named graphs is a superset of
/// what has none, and a graph may stand far behind the start.
pub(crate) fn detect(start: &[u8], whole: bool) -> Option<GraphFormat> {
    let text = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start);
    let lines = if whole {
        text
    } else {
        let end = memchr::memrchr2(b'\n', b'\r', text).map_or(0, |at| at + 1);
        text.get(..end).unwrap_or(text)
    };
    let statements = count_statements(lines);
    if statements.is_some_and(|count| count > 0) {
        return Some(GraphFormat::NQuads);
    }
    if statements.is_some() && whole {
        // Nothing but comments.
        return Some(GraphFormat::NTriples);
    }
    let first = text.trim_ascii_start();
    if first.starts_with(b"<?xml") || first.starts_with(b"<rdf:") || first.starts_with(b"<!DOCTYPE")
    {
        return Some(GraphFormat::RdfXml);
    }
    let after_bracket = first.get(1..).unwrap_or_default().trim_ascii_start();
    if matches!(
        (first.first(), after_bracket.first()),
        (Some(b'{'), Some(b'"' | b'}')) | (Some(b'['), Some(b'{'))
    ) {
        return Some(GraphFormat::JsonLd);
    }
    if is_trig(text, whole) || has_directive(lines) {
        return Some(GraphFormat::TriG);
    }
    // One good line is enough to report the bad one.
    lines
        .split(|b| matches!(b, b'\n' | b'\r'))
        .map(<[u8]>::trim_ascii)
        .find(|line| !line.is_empty() && !line.starts_with(b"#"))
        .and_then(count_statements)
        .map(|_| GraphFormat::NQuads)
}

/// How many statements of N-Quads stand in a text, if it is N-Quads.
fn count_statements(text: &[u8]) -> Option<u64> {
    LineParser::new().parse(text, true, &mut Nowhere).ok()
}

/// Whether TriG can be read from a text up to its end without a mistake.
fn is_trig(text: &[u8], whole: bool) -> bool {
    // Relative IRIs are no mistake here.
    let Ok(parser) = TriGParser::new().with_base_iri("http://example.org/") else {
        return false;
    };
    let mut parser = parser.low_level();
    parser.extend_from_slice(text);
    if whole {
        parser.end();
    }
    let mut quads = 0_u64;
    while let Some(quad) = parser.parse_next() {
        if quad.is_err() {
            return false;
        }
        quads += 1;
    }
    quads > 0 || parser.prefixes().next().is_some()
}

/// Whether a line begins as a directive of Turtle does, so that a mistake elsewhere is reported as
/// one.
fn has_directive(text: &[u8]) -> bool {
    text.split(|b| matches!(b, b'\n' | b'\r')).any(|line| {
        let line = line.trim_ascii_start();
        [b"@prefix ".as_slice(), b"@base ", b"prefix ", b"base "]
            .iter()
            .any(|word| {
                line.get(..word.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(word))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_from_content() {
        use GraphFormat::{JsonLd, NQuads, NTriples, RdfXml, TriG};
        let cases: &[(&str, Option<GraphFormat>)] = &[
            (
                "# x\n<http://a/s> <http://a/p> <http://a/o> .\n<http://cut",
                Some(NQuads),
            ),
            (
                "<http://a/s> <http://a/p> <http://a/o> <http://a/g> .\n",
                Some(NQuads),
            ),
            ("<http://a/s> <http://a/p> 'o' .\n<http://a", Some(TriG)),
            ("@prefix a: <http://a/> .\na:s a:p a:o .", Some(TriG)),
            ("PREFIX a: <http://a/>\na:s a:p a:o , .\n", Some(TriG)),
            ("<s> <p> 1 .\n<s>", Some(TriG)),
            (
                "<http://a/s> <http://a/p> <http://a/o> .\n<http://a/s> 1 2 .\n",
                Some(NQuads),
            ),
            ("<?xml version=\"1.0\"?><rdf:RDF/>", Some(RdfXml)),
            ("{ \"@context\": {} }", Some(JsonLd)),
            ("[ {} ]", Some(JsonLd)),
            ("\u{feff}@prefix a: <http://a/> .\n", Some(TriG)),
            ("hello, world\n", None),
            ("<html><body>\n</body></html>\n", None),
        ];
        for (text, format) in cases {
            assert_eq!(detect(text.as_bytes(), false), *format, "{text}");
        }
        assert_eq!(detect(b"", true), Some(NTriples));
        assert_eq!(detect(b"\n# nothing\n", true), Some(NTriples));
        assert_eq!(detect(&[0, 1, 2, 0xff], true), None);
    }
}
