//! What RDF/XML cannot hold, and what must be escaped in it.
//!
//! # References
//! XML 1.0, sections 2.2 (characters), 2.3 (names), 2.11 (ends of lines).

use oxrdf::{Quad, Term};

/// Why RDF/XML cannot hold a quad, if it cannot: its predicate must end with a name, and its texts have
/// no controls.
pub(super) fn obstacle(quad: &Quad) -> Option<&'static str> {
    let characters = quad.predicate.as_str().chars().rev();
    let mut name = characters.take_while(|&c| is_name(c));
    if !name.any(is_name_start) {
        return Some("the predicate does not end with a name");
    }
    has_others(&quad.object).then_some("XML has no such characters")
}

/// Whether a literal has characters that no document of XML may have.
fn has_others(term: &Term) -> bool {
    match term {
        Term::Literal(literal) => !literal.value().chars().all(
            |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..='\u{10ffff}'),
        ),
        Term::Triple(triple) => has_others(&triple.object),
        _ => false,
    }
}

/// `NameStartChar` without the colon.
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
        | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}'
        | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
        | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// `NameChar` without the colon.
fn is_name(c: char) -> bool {
    is_name_start(c)
        || matches!(c,
            '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// Writes carriage returns from `start` on as references: as they are, readers take them for ends of
/// lines.
pub(super) fn escape_returns(out: &mut Vec<u8>, start: usize) {
    if !out.iter().skip(start).any(|&byte| byte == b'\r') {
        return;
    }
    let written = out.split_off(start);
    for byte in written {
        match byte {
            b'\r' => out.extend_from_slice(b"&#xD;"),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::{GraphName, Literal, NamedNode};

    use super::*;

    fn quad(predicate: &str, object: &str) -> Quad {
        let node = |iri| NamedNode::new(iri).unwrap();
        let object = Literal::new_simple_literal(object);
        Quad::new(
            node("http://a/s"),
            node(predicate),
            object,
            GraphName::DefaultGraph,
        )
    }

    #[test]
    fn what_xml_cannot_hold_is_found() {
        for predicate in [
            "http://a/p",
            "http://a/1p",
            "urn:p1",
            "http://a/\u{e9}t\u{e9}",
            "http://a#_1",
        ] {
            assert_eq!(
                obstacle(&quad(predicate, "a\t\r\n\u{10ffff}")),
                None,
                "{predicate}"
            );
        }
        for predicate in ["http://a/p/1", "http://a/", "http://a/p/-", "urn:1"] {
            assert!(obstacle(&quad(predicate, "")).is_some(), "{predicate}");
        }
        for text in ["\u{1}", "a\u{0}", "\u{fffe}", "\u{ffff}", "\u{b}"] {
            assert!(obstacle(&quad("http://a/p", text)).is_some(), "{text:?}");
        }
    }

    #[test]
    fn carriage_returns_are_references() {
        let mut out = b"\rab\rc\r\n".to_vec();
        escape_returns(&mut out, 1);
        assert_eq!(out, b"\rab&#xD;c&#xD;\n");
    }
}
