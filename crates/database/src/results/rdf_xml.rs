//! What RDF/XML cannot hold, and what must be escaped in it.
//!
//! # References
//! XML 1.0, sections 2.2 (characters), 2.3 (names), 2.11 (ends of lines).

use oxrdf::{Quad, Term};

use crate::xml_characters::{is_character, is_name, is_name_start};

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
        Term::Literal(literal) => !literal.value().chars().all(is_character),
        Term::Triple(triple) => has_others(&triple.object),
        _ => false,
    }
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
