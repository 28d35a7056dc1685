//! How deeply the brackets of Turtle and TriG are nested: the parser keeps a few hundred bytes for each that is open.

use crate::limits::BRACKET_DEPTH_MAX;

/// Reads a text that may come in pieces, from the beginning of a statement on.
#[derive(Default)]
pub(crate) struct Brackets {
    depth: usize,
    place: Place,
}

/// What a text is in the middle of.
#[derive(Clone, Copy, Default)]
enum Place {
    #[default]
    Outside,
    /// Behind a `<` that is the first byte of an IRI or of a triple.
    Angle,
    Iri,
    Comment,
    /// Behind a backslash outside of strings.
    Escape,
    /// Behind so many quotation marks that begin a string.
    Quotes(u8, u8),
    /// In a string with one quotation mark at its ends.
    Short(u8),
    ShortEscape(u8),
    /// In one with three, behind so many of them.
    Long(u8, u8),
    LongEscape(u8),
}

impl Brackets {
    /// Whether more of them are open than may be, once it has read more.
    pub(crate) fn is_too_deep(&mut self, text: &[u8]) -> bool {
        for byte in text {
            self.read(*byte);
            if self.depth > BRACKET_DEPTH_MAX {
                return true;
            }
        }
        false
    }

    fn read(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Place::Quotes(mark, 1), _) if byte == mark => Place::Quotes(mark, 2),
            (Place::Quotes(mark, 2), _) if byte == mark => Place::Long(mark, 0),
            // Two were the empty string.
            (Place::Quotes(mark, 1), b'\\') => Place::ShortEscape(mark),
            (Place::Quotes(mark, 1), _) => Place::Short(mark),
            (Place::Short(mark), b'\\') => Place::ShortEscape(mark),
            (Place::Short(mark), _) if byte == mark => Place::Outside,
            // No string of one line goes on behind its end.
            (Place::Short(_), b'\n' | b'\r') => Place::Outside,
            (Place::Short(mark) | Place::ShortEscape(mark), _) => Place::Short(mark),
            (Place::Long(mark, 2), _) if byte == mark => Place::Outside,
            (Place::Long(mark, marks), _) if byte == mark => Place::Long(mark, marks + 1),
            (Place::Long(mark, _), b'\\') => Place::LongEscape(mark),
            (Place::Long(mark, _) | Place::LongEscape(mark), _) => Place::Long(mark, 0),
            (Place::Iri, b'>') | (Place::Comment, b'\n' | b'\r') => Place::Outside,
            (Place::Iri | Place::Comment, _) => self.place,
            (Place::Angle, b'<') | (Place::Escape, _) => Place::Outside,
            (Place::Angle, b'>') => Place::Outside,
            (Place::Angle, _) => Place::Iri,
            (Place::Outside | Place::Quotes(..), _) => self.outside(byte),
        };
    }

    fn outside(&mut self, byte: u8) -> Place {
        match byte {
            b'(' | b'[' | b'{' => self.depth += 1,
            b')' | b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            b'<' => return Place::Angle,
            b'#' => return Place::Comment,
            b'\\' => return Place::Escape,
            b'"' | b'\'' => return Place::Quotes(byte, 1),
            _ => {}
        }
        Place::Outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(text: &str) -> usize {
        let mut brackets = Brackets::default();
        // In whatever pieces it comes.
        for byte in text.bytes() {
            assert!(!brackets.is_too_deep(&[byte]));
        }
        brackets.depth
    }

    #[test]
    fn brackets_within_tokens_do_not_count() {
        for (text, expected) in [
            ("<s> <p> ( [ <p> 1 ] ( 2 )", 1),
            ("<s> <p> <<( <a> <b> <c> )>> , ((", 2),
            ("<s> <p> << <a> <b> [ >>", 1),
            ("<s> <p> 1 {| <q> [", 2),
            ("<g> { <s((> <p(>", 1),
            ("<> <> (", 1),
            (
                "<s> <p> \"((\", '[[', \"\"\"(\"(\"\"(\"\"\" , '''['[''' (",
                1,
            ),
            ("<s> <p> \"\" , '' , \"\"\"\"\"\" (", 1),
            ("<s> <p> \"\\\"((\" , '\\\\' , \"\"\"\\\"((\"\"\" (", 1),
            ("<s> # ((( \n <p> (", 1),
            ("s:a\\(b s:c\\# (", 1),
            ("<s> <p> \"open ((\n (", 1),
            ("))) (", 1),
        ] {
            assert_eq!(depth(text), expected, "{text}");
        }
        let mut brackets = Brackets::default();
        assert!(!brackets.is_too_deep(&b"(".repeat(BRACKET_DEPTH_MAX)));
        assert!(brackets.is_too_deep(b"["));
    }
}
