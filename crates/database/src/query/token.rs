//! Cuts the text of a query into tokens (section 19.8 of SPARQL 1.1) with their places.
//!
//! What becomes of them is for others: [`super::rewrite`] changes what the parser gets wrong, and
//! [`super::syntax`] finds the place of a mistake.

/// A token by its bytes in the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Token {
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
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match first {
            '#' => {
                at += rest.find(['\n', '\r']).unwrap_or(rest.len());
                continue;
            }
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '"' | '\'' => string_length(rest),
            '<' => iri_length(rest).unwrap_or_else(|| symbol_length(rest)),
            '?' | '$' | '@' => 1 + span(&rest[1..], |c| is_name(c) || (first == '@' && c == '-')),
            c if c.is_ascii_digit() => span(rest, |c| c.is_ascii_alphanumeric() || c == '.').max(1),
            c if is_name(c) || c == ':' => name_length(rest),
            _ => symbol_length(rest),
        };
        tokens.push(Token {
            start: at,
            end: at + length,
        });
        at += length;
    }
    tokens
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii()
}

/// The bytes of the characters at the start that fit; dots at their end do not belong to them.
fn span(text: &str, fits: impl Fn(char) -> bool) -> usize {
    let end = text.find(|c| !fits(c)).unwrap_or(text.len());
    text[..end].trim_end_matches('.').len()
}

/// A keyword or a prefixed name, with its escapes.
fn name_length(text: &str) -> usize {
    let mut end = 0;
    while let Some(c) = text[end..].chars().next() {
        if c == '\\' {
            end += 1 + text[end + 1..].chars().next().map_or(0, char::len_utf8);
        } else if is_name(c) || matches!(c, ':' | '-' | '.' | '%') {
            end += c.len_utf8();
        } else {
            break;
        }
    }
    text[..end].trim_end_matches('.').len().max(1)
}

fn iri_length(text: &str) -> Option<usize> {
    let escaped = |at: usize| text[at..].starts_with("\\u") || text[at..].starts_with("\\U");
    let (at, end) = text.char_indices().skip(1).find(|&(at, c)| {
        c <= ' '
            || matches!(c, '<' | '>' | '"' | '{' | '}' | '|' | '^' | '`')
            || (c == '\\' && !escaped(at))
    })?;
    (end == '>').then_some(at + 1)
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
    while let Some(c) = text[end..].chars().next() {
        if text[end..].starts_with(quote) {
            return end + quote.len();
        }
        if long.is_none() && matches!(c, '\n' | '\r') {
            return end;
        }
        end += c.len_utf8();
        if c == '\\' {
            end += text[end..].chars().next().map_or(0, char::len_utf8);
        }
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
