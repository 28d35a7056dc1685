//! The columns of `SELECT *`, in the order in which the text first names them.
//!
//! The parser gives them by the alphabet, and its algebra does not tell a star from a list, so the
//! text is looked at: for the star itself, and for where each variable occurs first.

use spargebra::Query;
use spargebra::algebra::GraphPattern;

/// Orders the variables of the outermost SELECT if it has a star.
pub(super) fn order_variables(text: &str, query: &mut Query) {
    let Query::Select { pattern, .. } = query else {
        return;
    };
    let Some(body) = after_star(text) else {
        return;
    };
    let mut pattern = pattern;
    loop {
        match pattern {
            GraphPattern::Slice { inner, .. }
            | GraphPattern::Distinct { inner }
            | GraphPattern::Reduced { inner } => pattern = &mut **inner,
            GraphPattern::Project { variables, .. } => {
                variables.sort_by_key(|variable| first_place(body, variable.as_str()));
                return;
            }
            _ => return,
        }
    }
}

/// What stands behind the star of the outermost SELECT; `None` if that has a list.
fn after_star(text: &str) -> Option<&str> {
    let rest = after_word(skip_to_select(text)?, "select")?;
    let rest = skip_blank(rest);
    let rest = after_word(rest, "distinct")
        .or_else(|| after_word(rest, "reduced"))
        .unwrap_or(rest);
    skip_blank(rest).strip_prefix('*')
}

/// The text from the first word SELECT on that is neither in a comment nor part of an IRI or name.
fn skip_to_select(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        rest = skip_blank(rest);
        if after_word(rest, "select").is_some() {
            return Some(rest);
        }
        let first = rest.chars().next()?;
        rest = match first {
            '<' => rest.split_once('>')?.1,
            _ if is_name(first) => rest.trim_start_matches(|c| is_name(c) || c == ':'),
            _ => rest.get(first.len_utf8()..)?,
        };
    }
}

fn skip_blank(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix('#') {
        rest = comment
            .split_once('\n')
            .map_or("", |(_, rest)| rest)
            .trim_start();
    }
    rest
}

/// What follows `word`, in upper or lower case, if the text begins with it.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(word.len())?;
    let ends = !rest.starts_with(|c| is_name(c) || c == ':');
    (start.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-' || c == '.'
}

/// Where `?name` or `$name` occurs first.
fn first_place(text: &str, name: &str) -> usize {
    let places = text.match_indices(name).filter(|(at, _)| {
        let (before, rest) = text.split_at_checked(*at).unwrap_or((text, ""));
        let whole = rest.get(name.len()..).is_some_and(|rest| {
            !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '\u{b7}')
        });
        whole && before.ends_with(['?', '$'])
    });
    places.map(|(at, _)| at).min().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(text: &str) -> Vec<String> {
        let mut query = spargebra::SparqlParser::new().parse_query(text).unwrap();
        order_variables(text, &mut query);
        let Query::Select { pattern, .. } = query else {
            panic!("{text}")
        };
        let mut names = Vec::new();
        let mut open = vec![&pattern];
        while let Some(pattern) = open.pop() {
            match pattern {
                GraphPattern::Slice { inner, .. } | GraphPattern::Distinct { inner } => {
                    open.push(inner);
                }
                GraphPattern::Project { variables, .. } => {
                    names.extend(variables.iter().map(|v| v.as_str().to_owned()));
                }
                _ => {}
            }
        }
        names
    }

    #[test]
    fn a_star_gives_the_order_of_the_text() {
        assert_eq!(variables("SELECT * { ?s ?p ?o }"), ["s", "p", "o"]);
        assert_eq!(
            variables("select distinct*{ ?z ?zz $a } LIMIT 1"),
            ["z", "zz", "a"]
        );
        let text =
            "# SELECT ?a\nPREFIX select: <http://a/SELECT> SELECT # x\n * { ?b select:p ?a }";
        assert_eq!(variables(text), ["b", "a"]);
    }

    #[test]
    fn a_list_is_left_alone() {
        assert_eq!(variables("SELECT ?o ?s { ?s ?p ?o }"), ["o", "s"]);
        assert_eq!(variables("SELECT ?o { { SELECT * { ?s ?p ?o } } }"), ["o"]);
    }
}
