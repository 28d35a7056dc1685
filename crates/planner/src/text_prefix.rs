//! Conditions that hold only of terms whose text begins with a constant: STRSTARTS, and REGEX with a pattern that begins
//! with `^` and characters that stand for themselves.

use oxrdf::Term;
use oxrdf::vocab::{rdf, xsd};

use crate::expression::{Expression, Function};
use crate::physical::Variable;

/// Of which terms a text is looked at.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TextOf {
    /// Strings, with or without a language.
    Strings,
    /// IRIs, and the lexical forms of all literals: what STR gives.
    Terms,
}

/// What a condition says of the text of a variable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TextPrefix {
    pub(crate) variable: Variable,
    pub(crate) of: TextOf,
    /// What the text begins with where the condition is true.
    pub(crate) prefix: String,
    /// Whether the condition is true of all terms with such a text.
    pub(crate) is_all: bool,
}

/// What the call of a function says of the text of a variable, if it is about its beginning.
pub(crate) fn text_prefix(function: Function, arguments: &[Expression]) -> Option<TextPrefix> {
    let (text, rest) = arguments.split_first()?;
    let (variable, of) = match text {
        Expression::Variable(variable) => (*variable, TextOf::Strings),
        Expression::Call(Function::Str, inner) => match inner.as_slice() {
            [Expression::Variable(variable)] => (*variable, TextOf::Terms),
            _ => return None,
        },
        _ => return None,
    };
    let (prefix, is_whole) = match (function, rest) {
        (Function::StrStarts, [prefix]) => {
            let (prefix, is_plain) = string(prefix)?;
            (prefix.to_owned(), is_plain)
        }
        (Function::Regex, [pattern]) => literal_prefix(plain(pattern)?)?,
        // A dot may stand for a line end then, which is of no concern here.
        (Function::Regex, [pattern, flags]) if matches!(plain(flags)?, "" | "s") => {
            literal_prefix(plain(pattern)?)?
        }
        _ => return None,
    };
    Some(TextPrefix {
        variable,
        is_all: is_whole && of == TextOf::Terms,
        of,
        prefix,
    })
}

/// The text of a constant string, and whether it has no language.
fn string(expression: &Expression) -> Option<(&str, bool)> {
    let Expression::Constant(constant) = expression else {
        return None;
    };
    let Term::Literal(literal) = &constant.term else {
        return None;
    };
    let is_plain = literal.datatype() == xsd::STRING;
    let has_language =
        literal.datatype() == rdf::LANG_STRING || literal.datatype() == rdf::DIR_LANG_STRING;
    (is_plain || has_language).then(|| (literal.value(), is_plain))
}

fn plain(expression: &Expression) -> Option<&str> {
    let (text, is_plain) = string(expression)?;
    is_plain.then_some(text)
}

/// What all texts begin with that match a pattern of XPath, which begins with `^`, and whether all that begin so match.
fn literal_prefix(pattern: &str) -> Option<(String, bool)> {
    let rest = pattern.strip_prefix('^')?;
    if has_alternatives(rest) {
        return None;
    }
    let mut prefix = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        let literal = match character {
            // These take back the character before them, or may.
            '?' | '*' | '{' => {
                prefix.pop();
                return Some((prefix, false));
            }
            '.' | '+' | '(' | ')' | '[' | ']' | '}' | '^' | '$' | '|' => {
                return Some((prefix, false));
            }
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(
                    escaped @ ('\\' | '|' | '.' | '?' | '*' | '+' | '(' | ')' | '{' | '}' | '-'
                    | '[' | ']' | '^' | '$'),
                ) => escaped,
                _ => return Some((prefix, false)),
            },
            other => other,
        };
        prefix.push(literal);
    }
    Some((prefix, true))
}

/// Whether a pattern has a `|` outside of groups and classes.
fn has_alternatives(pattern: &str) -> bool {
    let (mut groups, mut classes) = (0_usize, 0_usize);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            '(' if classes == 0 => groups += 1,
            ')' if classes == 0 => groups = groups.saturating_sub(1),
            '|' if classes == 0 && groups == 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Constant;
    use oxrdf::{Literal, NamedNode};

    fn constant(term: impl Into<Term>) -> Expression {
        Expression::Constant(Constant {
            term: term.into(),
            id: None,
        })
    }

    fn text(text: &str) -> Expression {
        constant(Literal::new_simple_literal(text))
    }

    #[test]
    fn patterns_begin_with_a_text() {
        for (pattern, prefix, is_all) in [
            ("^abc", "abc", true),
            ("^", "", true),
            ("^abc$", "abc", false),
            ("^abc.*", "abc", false),
            ("^ab?c", "a", false),
            ("^ab*c", "a", false),
            ("^ab+c", "ab", false),
            ("^ab{0}c", "a", false),
            ("^ab{2,3}c", "a", false),
            ("^?a", "", false),
            ("^a\u{10ffff}?", "a", false),
            ("^a\\.b", "a.b", true),
            ("^a\\.?b", "a", false),
            ("^a\\\\", "a\\", true),
            ("^a\\|b", "a|b", true),
            ("^a\\n\\t\\rb", "a\n\t\rb", true),
            ("^a\\db", "a", false),
            ("^a\\", "a", false),
            ("^a(b|c)", "a", false),
            ("^a[|b]", "a", false),
            ("^a[b-z-[|]]c", "a", false),
            ("^a[\\]|]", "a", false),
            ("^a[(]b", "a", false),
            ("^(a)", "", false),
            ("^^a", "", false),
            ("^http://a-b/c#d e", "http://a-b/c#d e", true),
        ] {
            let expected = Some((prefix.to_owned(), is_all));
            assert_eq!(literal_prefix(pattern), expected, "{pattern}");
        }
        for pattern in [
            "abc", "", "a^b", "^a|b", "^a(b)|c", "^a[(]|b", "^|", "^a\\\\|b",
        ] {
            assert_eq!(literal_prefix(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn calls_are_about_one_variable() {
        let variable = Expression::Variable(Variable(3));
        let str = Expression::Call(Function::Str, vec![variable.clone()]);
        let found = |function, arguments: &[Expression]| {
            let found = text_prefix(function, arguments)?;
            assert_eq!(found.variable, Variable(3));
            Some((found.of, found.prefix, found.is_all))
        };
        let (starts, regex) = (Function::StrStarts, Function::Regex);
        let of = |of, prefix: &str, is_all| Some((of, prefix.to_owned(), is_all));
        let strings = of(TextOf::Strings, "a", false);
        let terms = of(TextOf::Terms, "a", true);
        assert_eq!(found(starts, &[variable.clone(), text("a")]), strings);
        assert_eq!(found(starts, &[str.clone(), text("a")]), terms);
        assert_eq!(found(regex, &[variable.clone(), text("^a")]), strings);
        assert_eq!(found(regex, &[str.clone(), text("^a")]), terms);
        assert_eq!(found(regex, &[str.clone(), text("^a"), text("")]), terms);
        let begins = of(TextOf::Terms, "a", false);
        assert_eq!(found(regex, &[str.clone(), text("^a.")]), begins);
        assert_eq!(found(regex, &[str.clone(), text("^a."), text("s")]), begins);
        // Strings of one language alone begin with one that has it.
        let tagged = constant(Literal::new_language_tagged_literal_unchecked("a", "en"));
        assert_eq!(found(starts, &[variable.clone(), tagged.clone()]), strings);
        assert_eq!(found(starts, &[str.clone(), tagged.clone()]), begins);
        for (function, arguments) in [
            (regex, vec![str.clone(), text("a")]),
            (regex, vec![str.clone(), text("^a"), text("i")]),
            (regex, vec![str.clone(), text("^a"), text("q")]),
            (regex, vec![str.clone(), text("^a"), text("m")]),
            (regex, vec![str.clone(), text("^a"), text("x")]),
            (regex, vec![str.clone(), tagged]),
            (starts, vec![text("a"), variable.clone()]),
            (starts, vec![variable.clone(), variable.clone()]),
            (starts, vec![variable.clone(), constant(Literal::from(5))]),
            (starts, vec![str, constant(NamedNode::new_unchecked("a:b"))]),
            (Function::Contains, vec![variable, text("a")]),
        ] {
            assert_eq!(found(function, &arguments), None, "{function:?}");
        }
    }
}
