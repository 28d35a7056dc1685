//! The columns of `SELECT *`, in the order in which the text first names them.
//!
//! The parser gives them by the alphabet, and its algebra does not tell a star from a list, so the
//! text is looked at: for the star itself, and for where each variable occurs first.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use spargebra::Query;
use spargebra::algebra::GraphPattern;

use super::token::Token;

/// Orders the variables of the outermost SELECT of a text with these tokens if it has a star.
pub(super) fn order_variables(text: &str, tokens: &[Token], query: &mut Query) {
    let Query::Select { pattern, .. } = query else {
        return;
    };
    let Some(places) = places_after_star(text, tokens) else {
        return;
    };
    let mut pattern = pattern;
    loop {
        match pattern {
            GraphPattern::Slice { inner, .. }
            | GraphPattern::Distinct { inner }
            | GraphPattern::Reduced { inner } => pattern = &mut **inner,
            GraphPattern::Project { variables, .. } => {
                let place = |name: &str| places.get(name).copied().unwrap_or(usize::MAX);
                variables.sort_by_key(|variable| place(variable.as_str()));
                return;
            }
            _ => return,
        }
    }
}

/// Where each variable stands first behind the star of the outermost SELECT, by its name without
/// the sign; `None` if that SELECT has a list.
fn places_after_star<'t>(
    text: &'t str,
    tokens: &[Token],
) -> Option<HashMap<&'t str, usize, RandomState>> {
    let mut rest = tokens.iter().map(|token| (token.start, token.of(text)));
    let is = |word: &'static str| move |token: &str| token.eq_ignore_ascii_case(word);
    rest.find(|(_, token)| is("select")(token))?;
    let mut next = rest.next()?.1;
    if is("distinct")(next) || is("reduced")(next) {
        next = rest.next()?.1;
    }
    if next != "*" {
        return None;
    }
    let mut places = HashMap::default();
    for (start, token) in rest {
        if let Some(name) = token.strip_prefix(['?', '$']) {
            places.entry(name).or_insert(start);
        }
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    fn variables(text: &str) -> Vec<String> {
        let mut query = spargebra::SparqlParser::new().parse_query(text).unwrap();
        order_variables(text, &tokens(text), &mut query);
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
