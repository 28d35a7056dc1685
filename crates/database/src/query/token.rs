//! Cuts the text of a query into tokens (section 19.8 of SPARQL 1.1) with their places.
//!
//! What becomes of them is for others: [`super::rewrite`] changes what the parser gets wrong, and
//! [`super::syntax`] finds the place of a mistake.

/// A token by its bytes in the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Token {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Token {
    /// Its text.
    pub(super) fn of(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// Cuts a text as SPARQL does, the longest token first; what is no token is cut by the character. Signs
/// are tokens apart from numbers.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    each(text, |token| tokens.push(token));
    tokens
}

/// Visits the tokens of a text.
pub(super) fn each(text: &str, mut visit: impl FnMut(Token)) {
    let mut at = 0;
    while let Some(&first) = text.as_bytes().get(at) {
        let rest = &text[at..];
        let length = match first {
            b'#' => {
                at += rest.find(['\n', '\r']).unwrap_or(rest.len());
                continue;
            }
            b' ' | b'\t'..=b'\r' => {
                at += 1;
                continue;
            }
            b'"' | b'\'' => string_length(rest),
            b'<' => iri_length(rest).unwrap_or_else(|| symbol_length(rest)),
            b'?' | b'$' => 1 + span(&rest[1..], is_name),
            b'@' => 1 + span(&rest[1..], |c| is_name(c) || c == '-'),
            b'0'..=b'9' => span(rest, |c| c.is_ascii_alphanumeric() || c == '.').max(1),
            _ if first.is_ascii() && is(first, NAME) || first == b':' => name_length(rest),
            _ if first.is_ascii() => symbol_length(rest),
            _ => match rest.chars().next() {
                Some(c) if c.is_whitespace() => {
                    at += c.len_utf8();
                    continue;
                }
                _ => name_length(rest),
            },
        };
        visit(Token {
            start: at,
            end: at + length,
        });
        at += length;
    }
}

/// A byte that stands in names: letters, digits, the underscore, and all of what is not ASCII.
const NAME: u8 = 1;
/// One that goes on a name, but for its escapes.
const NAME_OR_MARK: u8 = 2;
/// One that ends an IRI in angle brackets, or shows that it is none; a backslash may be an escape.
const IRI_END: u8 = 4;
/// One at which a string may end or has an escape.
const STRING_END: u8 = 8;

/// What each byte is.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "done by the compiler"
)]
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < classes.len() {
        let byte = at as u8;
        if byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii() {
            classes[at] |= NAME | NAME_OR_MARK;
        }
        if matches!(byte, b':' | b'-' | b'.' | b'%') {
            classes[at] |= NAME_OR_MARK;
        }
        if byte <= b' '
            || matches!(
                byte,
                b'<' | b'>' | b'"' | b'{' | b'}' | b'|' | b'^' | b'`' | b'\\'
            )
        {
            classes[at] |= IRI_END;
        }
        if matches!(byte, b'"' | b'\'' | b'\\' | b'\n' | b'\r') {
            classes[at] |= STRING_END;
        }
        at += 1;
    }
    classes
};

fn is(byte: u8, class: u8) -> bool {
    let classes = CLASSES.get(usize::from(byte)).copied();
    classes.unwrap_or(0) & class != 0
}

/// The first byte from `at` on that is of a class, or is of none if `is_in` is false.
fn find(text: &str, at: usize, class: u8, is_in: bool) -> Option<usize> {
    let rest = text.as_bytes().get(at..)?;
    let found = rest.iter().position(|byte| is(*byte, class) == is_in);
    found.map(|length| at + length)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii()
}

/// The bytes of the characters at the start that fit; dots at their end do not belong to them.
fn span(text: &str, fits: impl Fn(char) -> bool) -> usize {
    let end = text.find(|c| !fits(c)).unwrap_or(text.len());
    text[..end].trim_end_matches('.').len()
}

/// The bytes of the character behind a backslash at `at`, and of both.
fn escape_length(text: &str, at: usize) -> usize {
    1 + text[at + 1..].chars().next().map_or(0, char::len_utf8)
}

/// A keyword or a prefixed name, with its escapes.
fn name_length(text: &str) -> usize {
    let mut end = 0;
    while let Some(at) = find(text, end, NAME_OR_MARK, false) {
        end = at;
        if text.as_bytes().get(at) != Some(&b'\\') {
            return text[..end].trim_end_matches('.').len().max(1);
        }
        end += escape_length(text, at);
    }
    text.trim_end_matches('.').len().max(1)
}

fn iri_length(text: &str) -> Option<usize> {
    let mut end = 1;
    loop {
        end = find(text, end, IRI_END, true)?;
        match text.as_bytes().get(end..) {
            Some([b'>', ..]) => return Some(end + 1),
            Some([b'\\', b'u' | b'U', ..]) => end += 1,
            _ => return None,
        }
    }
}

fn string_length(text: &str) -> usize {
    let long = if text.starts_with("\"\"\"") {
        Some("\"\"\"")
    } else if text.starts_with("'''") {
        Some("'''")
    } else {
        None
    };
    let quote = long.unwrap_or(&text[..1]);
    let mut end = quote.len();
    while let Some(at) = find(text, end, STRING_END, true) {
        if text[at..].starts_with(quote) {
            return at + quote.len();
        }
        end = match text.as_bytes().get(at) {
            Some(b'\n' | b'\r') if long.is_none() => return at,
            Some(b'\\') => at + escape_length(text, at),
            _ => at + 1,
        };
    }
    text.len()
}

pub(super) fn is_open_string(token: &str) -> bool {
    token.starts_with(['"', '\'']) && (token.len() == 1 || !token.ends_with(&token[..1]))
}

fn symbol_length(text: &str) -> usize {
    const LONG: [&str; 11] = [
        "<<(", ")>>", "<<", ">>", "{|", "|}", "^^", "&&", "||", "!=", "<=",
    ];
    LONG.iter()
        .find(|symbol| text.starts_with(**symbol))
        .map_or_else(
            || {
                if text.starts_with(">=") {
                    2
                } else {
                    text.chars().next().map_or(0, char::len_utf8)
                }
            },
            |symbol| symbol.len(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_can_be_cut_into_tokens() {
        for text in [
            "",
            "\\",
            "'",
            "\"\\",
            "a\\",
            "<",
            "\u{e9}\u{1f600}",
            "'''a''",
            "1..",
            "a:b\\",
            "@",
            "?",
        ] {
            let tokens = tokens(text);
            assert!(tokens.iter().all(|token| token.start < token.end), "{text}");
        }
    }

    #[test]
    fn the_longest_token_is_taken() {
        let cut = |text: &'static str| {
            let of = |token: &Token| token.of(text);
            tokens(text).iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(cut("?x<?a&&?b>?y"), ["?x", "<?a&&?b>", "?y"]);
        assert_eq!(
            cut("?x<?a && ?b>?y"),
            ["?x", "<", "?a", "&&", "?b", ">", "?y"]
        );
        assert_eq!(cut("<http://a/\\u0061>"), ["<http://a/\\u0061>"]);
        assert_eq!(
            cut("a:TRUE True.# x\n'TRUE'@en"),
            ["a:TRUE", "True", ".", "'TRUE'", "@en"]
        );
        assert_eq!(cut("<<(:s :p <<( ?x"), ["<<(", ":s", ":p", "<<(", "?x"]);
    }
}
