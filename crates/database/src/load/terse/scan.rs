//! Finds where statements of Turtle and TriG end, without parsing them.
//!
//! Only what can hide a statement's end is looked at: strings in their four forms, IRIs, comments,
//! escapes in names, dots within names and numbers, and the brackets of graphs. A `.` that is a token
//! always ends a statement: within `[ ]`, `( )` and `<< >>` the grammar has none.
//!
//! # Invariants
//! 1. Where the text up to a unit's end is valid, the parser ends a statement, a directive or the
//!    brackets of a graph there, too (property tests in the module above compare with oxttl).
//! 2. The units of a text do not depend on the pieces in which it comes.
//!
//! Of damaged text, an IRI ends before a character that no IRI has, a string in one line with its
//! line, and a statement with that line, if there is a dot at its end; a graph that is not closed,
//! where the next one begins. So what is damaged takes few good statements with it.
//!
//! # Limits
//! A token that does not end is scanned again when more text has come.
//!
//! # References
//! <https://www.w3.org/TR/rdf12-turtle/#sec-grammar-grammar>,
//! <https://www.w3.org/TR/rdf12-trig/#sec-grammar>
#![expect(
    clippy::indexing_slicing,
    reason = "positions come from searches in the same text; classes have an entry for every byte"
)]

use crate::limits::TRIPLE_TERM_DEPTH_MAX;

/// What a unit is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Triples, with the dot at their end; the last ones of a graph may have none.
    Triples,
    /// A prefix, a base or a version.
    Directive,
    /// The name of a graph, if it has one, up to its `{`.
    Open,
    /// As `Open`, but in a graph that was not closed.
    OpenInGraph,
    /// The `}` of a graph.
    Close,
}

/// A part of the text that is parsed or skipped as a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unit {
    /// Where its first token begins.
    pub(crate) start: usize,
    /// Behind its last token.
    pub(crate) end: usize,
    pub(crate) kind: Kind,
    /// Whether triple terms are nested deeper than [`TRIPLE_TERM_DEPTH_MAX`]: the parser, which builds
    /// them as nested boxes, must not see it.
    pub(crate) is_too_deep: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// In front of the first token of a unit.
    Head,
    /// In triples, or in the name of a graph.
    Triples,
    /// In a directive that ends with a dot.
    AtDirective,
    /// In one that ends with an IRI.
    IriDirective,
    /// In one that ends with a string.
    StringDirective,
}

/// Goes through a text that may come in pieces.
#[derive(Debug)]
pub(crate) struct Scanner {
    with_graphs: bool,
    in_graph: bool,
    state: State,
    /// Where the unit begins that has not ended. Everything before may be cut off.
    start: usize,
    /// How far the text has been scanned.
    at: usize,
    /// Behind the last escape of the unit outside of strings and IRIs, if there is one.
    escape_end: Option<usize>,
    open_triples: usize,
    is_too_deep: bool,
}

/// Ends what the scan skips between tokens.
const SPECIAL: u8 = 1;
/// A character of names and numbers, or one that a name may go on with behind a dot.
const NAME: u8 = 2;
/// Ends an IRI, or does not belong to one.
const IRI_END: u8 = 4;
/// Needs a look in a string that stands in one line.
const STRING_END: u8 = 8;
const SPACE: u8 = 16;

#[expect(clippy::cast_possible_truncation, reason = "the index is below 256")]
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        if matches!(
            b,
            b'"' | b'\'' | b'<' | b'>' | b'#' | b'\\' | b'.' | b'{' | b'}'
        ) {
            classes[i] |= SPECIAL;
        }
        if b.is_ascii_alphanumeric()
            || b >= 0x80
            || matches!(b, b'_' | b'-' | b'.' | b':' | b'%' | b'\\')
        {
            classes[i] |= NAME;
        }
        if b <= b' ' || matches!(b, b'<' | b'>' | b'"') {
            classes[i] |= IRI_END;
        }
        if matches!(b, b'"' | b'\'' | b'\\' | b'\n' | b'\r') {
            classes[i] |= STRING_END;
        }
        if matches!(b, b' ' | b'\t' | b'\n' | b'\r') {
            classes[i] |= SPACE;
        }
        i += 1;
    }
    classes
};

fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// The first byte of a class at or after `at`; the length of the text if there is none.
fn find(text: &[u8], at: usize, class: u8) -> usize {
    let rest = text.get(at..).unwrap_or(&[]);
    rest.iter()
        .position(|b| CLASSES[usize::from(*b)] & class != 0)
        .map_or(text.len(), |found| at + found)
}

/// How a token ends.
enum TokenEnd {
    Closed(usize),
    /// It is damaged, and the scan goes on here.
    Broken(usize),
}

impl Scanner {
    /// At the start of a text, or behind a cut, which may be in a graph.
    pub(crate) fn new(with_graphs: bool, in_graph: bool) -> Self {
        Self {
            with_graphs,
            in_graph,
            state: State::Head,
            start: 0,
            at: 0,
            escape_end: None,
            open_triples: 0,
            is_too_deep: false,
        }
    }

    /// Where the unit begins that has not ended; the text may be cut there.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Whether that place is in a graph.
    pub(crate) fn in_graph(&self) -> bool {
        self.in_graph
    }

    /// The text was cut at `start`, and now begins there.
    pub(crate) fn cut(&mut self) {
        self.at -= self.start;
        self.escape_end = self.escape_end.map(|end| end.saturating_sub(self.start));
        self.start = 0;
    }

    /// The next unit that ends in `text`, which begins as it did before; `is_whole` if nothing
    /// follows it. What remains of a whole text when there is no further unit, is cut off.
    pub(crate) fn next(&mut self, text: &[u8], is_whole: bool) -> Option<Unit> {
        if self.state == State::Head {
            self.skip_trivia(text, is_whole);
            if text.get(self.start) == Some(&b'}') {
                let was_in_graph = std::mem::replace(&mut self.in_graph, false);
                let kind = if was_in_graph {
                    Kind::Close
                } else {
                    Kind::Triples
                };
                return Some(self.end(self.start + 1, kind));
            }
            self.state = self.head(text.get(self.start..)?, is_whole)?;
        }
        self.body(text, is_whole)
    }

    /// Spaces and comments in front of a unit.
    fn skip_trivia(&mut self, text: &[u8], is_whole: bool) {
        loop {
            let rest = text.get(self.at..).unwrap_or(&[]);
            let spaces = rest.iter().position(|b| !is(*b, SPACE));
            self.at += spaces.unwrap_or(rest.len());
            self.start = self.at;
            if text.get(self.at) != Some(&b'#') {
                return;
            }
            match memchr::memchr2(b'\n', b'\r', &text[self.at..]) {
                Some(end) => self.at += end,
                None if is_whole => self.at = text.len(),
                None => return,
            }
        }
    }

    /// What kind of unit begins with `rest`; `None` if that cannot be told yet.
    fn head(&self, rest: &[u8], is_whole: bool) -> Option<State> {
        let first = *rest.first()?;
        if first == b'#' {
            return None;
        }
        let words: [(&[u8], State); 3] = match first {
            b'@' if !self.in_graph => [
                (b"@prefix", State::AtDirective),
                (b"@base", State::AtDirective),
                (b"@version", State::AtDirective),
            ],
            b'p' | b'P' | b'b' | b'B' | b'v' | b'V' if !self.in_graph => [
                (b"prefix", State::IriDirective),
                (b"base", State::IriDirective),
                (b"version", State::StringDirective),
            ],
            _ => return Some(State::Triples),
        };
        for (word, state) in words {
            let Some(start) = rest.get(..word.len()) else {
                if !is_whole && word[..rest.len()].eq_ignore_ascii_case(rest) {
                    return None;
                }
                continue;
            };
            let is_word = if first == b'@' {
                start == word
            } else {
                start.eq_ignore_ascii_case(word)
            };
            if !is_word {
                continue;
            }
            return match rest.get(word.len()) {
                None if !is_whole => None,
                Some(b) if first == b'@' && (b.is_ascii_alphanumeric() || *b == b'-') => {
                    Some(State::Triples)
                }
                Some(b) if first != b'@' && is(*b, NAME) => Some(State::Triples),
                _ => Some(state),
            };
        }
        Some(State::Triples)
    }

    /// From within a unit to its end.
    fn body(&mut self, text: &[u8], is_whole: bool) -> Option<Unit> {
        loop {
            self.at = find(text, self.at, SPECIAL);
            let at = self.at;
            let next = text.get(at + 1).copied();
            let byte = *text.get(at)?;
            if next.is_none() && !is_whole {
                return None;
            }
            match (byte, next) {
                (b'"' | b'\'', _) => {
                    if let Some(unit) = self.string(text, is_whole)? {
                        return Some(unit);
                    }
                }
                (b'<', _) => {
                    if let Some(unit) = self.angle_bracket(text, is_whole)? {
                        return Some(unit);
                    }
                }
                (b'>', Some(b'>')) => {
                    let closes = at > self.start && text[at - 1] == b')';
                    self.open_triples = self.open_triples.saturating_sub(usize::from(closes));
                    self.at += 2;
                }
                (b'#', _) => match memchr::memchr2(b'\n', b'\r', &text[at..]) {
                    Some(end) => self.at += end,
                    None if is_whole => self.at = text.len(),
                    None => return None,
                },
                (b'\\', _) => {
                    self.at += 2;
                    self.escape_end = Some(self.at);
                }
                (b'.', next) => {
                    self.at += 1;
                    if next.is_none_or(|next| self.is_end(text, at, next)) {
                        return Some(self.end(at + 1, self.kind()));
                    }
                }
                (b'{', Some(b'|')) => self.at += 2,
                (b'{', _) if self.with_graphs => {
                    let kind = if self.in_graph {
                        Kind::OpenInGraph
                    } else {
                        Kind::Open
                    };
                    self.in_graph = true;
                    return Some(self.end(at + 1, kind));
                }
                (b'}', _) if at > self.start && text[at - 1] == b'|' => self.at += 1,
                (b'}', _) => {
                    let end = if self.in_graph { at } else { at + 1 };
                    return Some(self.end(end, Kind::Triples));
                }
                _ => self.at += 1,
            }
        }
    }

    /// At a quotation mark. Gives the unit that ends with the string, if one does; `None` if its end
    /// is not in the text.
    fn string(&mut self, text: &[u8], is_whole: bool) -> Option<Option<Unit>> {
        match string_end(text, self.at, is_whole)? {
            TokenEnd::Closed(end) if self.state == State::StringDirective => {
                Some(Some(self.end(end, Kind::Directive)))
            }
            TokenEnd::Closed(end) => {
                self.at = end;
                Some(None)
            }
            TokenEnd::Broken(end) => {
                self.at = end;
                let line = text[self.start..end].trim_ascii_end();
                Some(line.ends_with(b".").then(|| self.end(end, self.kind())))
            }
        }
    }

    /// At `<`, as [`Scanner::string`].
    fn angle_bracket(&mut self, text: &[u8], is_whole: bool) -> Option<Option<Unit>> {
        if text.get(self.at + 1) == Some(&b'<') {
            let third = text.get(self.at + 2);
            if third.is_none() && !is_whole {
                return None;
            }
            self.open_triples += usize::from(third == Some(&b'('));
            self.is_too_deep |= self.open_triples > TRIPLE_TERM_DEPTH_MAX;
            self.at += 2;
            return Some(None);
        }
        let end = find(text, self.at + 1, IRI_END);
        let is_closed = *text.get(end)? == b'>';
        self.at = if is_closed { end + 1 } else { end };
        let ends = is_closed && self.state == State::IriDirective;
        Some(ends.then(|| self.end(self.at, Kind::Directive)))
    }

    /// The kind of a unit that ends with a dot.
    fn kind(&self) -> Kind {
        match self.state {
            State::AtDirective | State::IriDirective | State::StringDirective => Kind::Directive,
            State::Head | State::Triples => Kind::Triples,
        }
    }

    fn end(&mut self, end: usize, kind: Kind) -> Unit {
        let unit = Unit {
            start: self.start,
            end,
            kind,
            is_too_deep: self.is_too_deep,
        };
        self.start = end;
        self.at = end;
        self.state = State::Head;
        self.escape_end = None;
        self.open_triples = 0;
        self.is_too_deep = false;
        unit
    }

    /// Whether the dot at `at`, which `next` follows, is a token of its own.
    fn is_end(&self, text: &[u8], at: usize, next: u8) -> bool {
        if !is(next, NAME) {
            return true;
        }
        if self.escape_end == Some(at) {
            return false;
        }
        let unit = &text[self.start..at];
        let length = unit.iter().rev().take_while(|b| is(**b, NAME)).count();
        let (before, token) = unit.split_at(unit.len() - length);
        // Between two tokens, a number may begin with the dot.
        let begins_number = next.is_ascii_digit();
        match before {
            _ if token.is_empty() => return !begins_number,
            [.., b'\\', _] => return false,
            // A language tag has no dots.
            [.., b'@'] => return !begins_number,
            _ => {}
        }
        if let Some(colon) = memchr::memchr(b':', token) {
            // No local name begins with a dot, but one may go on with it.
            return colon + 1 == token.len() && !begins_number;
        }
        let is_number = token
            .iter()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'e' | b'E'))
            && !token[0].is_ascii_alphabetic();
        if !is_number || begins_number {
            // A prefix may have dots.
            return false;
        }
        let is_integer = token.iter().all(|b| b.is_ascii_digit() || *b == b'-');
        !(is_integer && matches!(next, b'e' | b'E'))
    }
}

/// The end of the string that begins at `at`; `None` if it is not in the text.
fn string_end(text: &[u8], at: usize, is_whole: bool) -> Option<TokenEnd> {
    let quote = text[at];
    let is_quote = |at: usize| text.get(at) == Some(&quote);
    if is_quote(at + 1) {
        if is_quote(at + 2) {
            return long_string_end(text, at + 3, quote).map(TokenEnd::Closed);
        }
        if text.len() > at + 2 || is_whole {
            return Some(TokenEnd::Closed(at + 2));
        }
        return None;
    }
    let mut end = at + 1;
    loop {
        end = find(text, end, STRING_END);
        match *text.get(end)? {
            b'\\' => end += 2,
            b'\n' | b'\r' => return Some(TokenEnd::Broken(end)),
            b if b == quote => return Some(TokenEnd::Closed(end + 1)),
            _ => end += 1,
        }
    }
}

fn long_string_end(text: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        at += memchr::memchr2(quote, b'\\', text.get(at..)?)?;
        if text[at] == b'\\' {
            at += 2;
        } else if text.get(at + 1..at + 3)? == [quote, quote] {
            return Some(at + 3);
        } else {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str, with_graphs: bool) -> Vec<(Kind, &str)> {
        let mut scanner = Scanner::new(with_graphs, false);
        let mut units = Vec::new();
        while let Some(unit) = scanner.next(text.as_bytes(), true) {
            units.push((unit.kind, &text[unit.start..unit.end]));
        }
        if scanner.start() < text.len() {
            units.push((Kind::Triples, &text[scanner.start()..]));
        }
        units
    }

    fn triples(text: &str) -> Vec<&str> {
        units(text, false).into_iter().map(|unit| unit.1).collect()
    }

    #[test]
    fn statements_end_at_dots_that_are_tokens() {
        for (text, expected) in [
            ("a:b a:c a:d. a:e", &["a:b a:c a:d.", "a:e"][..]),
            ("a:b a:c a:d.e . x", &["a:b a:c a:d.e .", "x"]),
            ("a:b a:c 1.5 . x", &["a:b a:c 1.5 .", "x"]),
            ("a:b a:c 1. x", &["a:b a:c 1.", "x"]),
            ("a:b a:c .5, 1.e5 . x", &["a:b a:c .5, 1.e5 .", "x"]),
            ("a:b a:c 1.x:y", &["a:b a:c 1.", "x:y"]),
            ("a:b a:c 1.5e3.e:y", &["a:b a:c 1.5e3.", "e:y"]),
            ("a:b a:c 'x'@en.a:y", &["a:b a:c 'x'@en.", "a:y"]),
            ("a:b a:c <x>.a:y", &["a:b a:c <x>.", "a:y"]),
            ("a:b a:c a:.a:y", &["a:b a:c a:.", "a:y"]),
            ("a:b a:c _:x.y.\n_:z", &["a:b a:c _:x.y.", "_:z"]),
            ("a:b a:c a:d\\..e . x", &["a:b a:c a:d\\..e .", "x"]),
            ("a:b a:c a:d\\(5.e . x", &["a:b a:c a:d\\(5.e .", "x"]),
            ("a:b a:c a:\\'x.\n'y . '", &["a:b a:c a:\\'x.", "'y . '"]),
            ("a.b:c a:c 'x'.a:b", &["a.b:c a:c 'x'.", "a:b"]),
            ("a:b a:c [].[] a:c 1", &["a:b a:c [].", "[] a:c 1"]),
        ] {
            assert_eq!(triples(text), expected, "{text}");
        }
    }

    #[test]
    fn nothing_ends_in_strings_iris_and_comments() {
        for text in [
            "a:b a:c \"x . y\" . x",
            "a:b a:c 'x . \\' y . ' . x",
            "a:b a:c \"\"\"x . \" . \"\" .\n@prefix x: <y> . \\\"\"\" . \"\"\" . x",
            "a:b a:c '''x .\n' . '' . ''' . x",
            "a:b a:c \"\", '' . x",
            "a:b <http://a/#x.y> <http://a/'.> . x",
            "a:b # x . y '\n a:c \"#\" . x",
            "a:b a:c [ a:d ( 1 2 . 3 ) ] , <<( a:b a:c 'x . ' )>> {| a:d 'y . '  |} . x",
        ] {
            let ends = triples(text);
            if text.contains("2 . 3") {
                assert_eq!(ends.len(), 3);
            } else {
                assert_eq!(ends, [&text[..text.len() - 2], "x"], "{text}");
            }
        }
    }

    #[test]
    fn directives_and_graphs_are_told() {
        use Kind::{Close, Directive, Open, OpenInGraph, Triples};
        let text = "@prefix a: <x.>. PREFIX b: <y> # c\nbase <z>Version '1.2' prefix:a base:b \
                    version:c.@base<q>.@version \"1.2\".@prefixes";
        let expected = [
            (Directive, "@prefix a: <x.>."),
            (Directive, "PREFIX b: <y>"),
            (Directive, "base <z>"),
            (Directive, "Version '1.2'"),
            (Triples, "prefix:a base:b version:c."),
            (Directive, "@base<q>."),
            (Directive, "@version \"1.2\"."),
            (Triples, "@prefixes"),
        ];
        assert_eq!(units(text, false), expected);
        let text =
            "a:g{a:b a:c a:d . base a:c a:e {| a:f a:g |} }GRAPH <x> { }{}} a:g { a:b } <b> {<c> {";
        let expected = [
            (Open, "a:g{"),
            (Triples, "a:b a:c a:d ."),
            (Triples, "base a:c a:e {| a:f a:g |} "),
            (Close, "}"),
            (Open, "GRAPH <x> {"),
            (Close, "}"),
            (Open, "{"),
            (Close, "}"),
            (Triples, "}"),
            (Open, "a:g {"),
            (Triples, "a:b "),
            (Close, "}"),
            (Open, "<b> {"),
            (OpenInGraph, "<c> {"),
        ];
        assert_eq!(units(text, true), expected);
    }

    #[test]
    fn what_is_damaged_ends_soon() {
        for (text, expected) in [
            ("a b \"c .\nd e f .", &["a b \"c .", "d e f ."][..]),
            (
                "a b \"c ;\n g h .\nd e f .",
                &["a b \"c ;\n g h .", "d e f ."],
            ),
            ("a b <c .\nd e f .", &["a b <c .", "d e f ."]),
            ("a b <c d> .\nd e f .", &["a b <c d> .", "d e f ."]),
            ("a b [ c d .\nd e f .", &["a b [ c d .", "d e f ."]),
            ("a b c }\nd e f .", &["a b c }", "d e f ."]),
            ("PREFIX a <c>\nd e f .", &["PREFIX a <c>", "d e f ."]),
        ] {
            assert_eq!(triples(text), expected, "{text}");
        }
    }

    #[test]
    fn units_do_not_depend_on_pieces() {
        let text = "@prefix a: <x> .\nPREFIX b: <y>\n# c . d\na:b a:c \"x . y\", '''z\n' . ''' , 1.5 .\n\
                    a:g { a:b a:c a:d.e . <<a:b a:c \"\">> a:c a:f\\.g . } _:x <y> <<( a:b a:c a:d )>> .";
        let whole = units(text, true);
        assert_eq!(whole.len(), 8);
        for length in 1..text.len() {
            let mut scanner = Scanner::new(true, false);
            let (mut seen, mut cut, mut units) = (0, 0, Vec::new());
            while seen < text.len() {
                seen = (seen + length).min(text.len());
                while let Some(unit) = scanner.next(&text.as_bytes()[cut..seen], seen == text.len())
                {
                    units.push((unit.kind, &text[cut + unit.start..cut + unit.end]));
                }
                cut += scanner.start();
                scanner.cut();
            }
            assert_eq!(units, whole, "{length}");
        }
    }

    #[test]
    fn deep_triple_terms_are_told() {
        let text = format!("a b {} . d e <<( a b c )>> .", "<<(".repeat(129));
        let mut scanner = Scanner::new(false, false);
        assert!(scanner.next(text.as_bytes(), true).unwrap().is_too_deep);
        assert!(!scanner.next(text.as_bytes(), true).unwrap().is_too_deep);
    }
}
