//! Tells a SPARQL Update from a query that is wrong.

use super::token::Token;

/// How the operations of SPARQL 1.1 Update begin.
const OPERATIONS: [&str; 10] = [
    "ADD", "CLEAR", "COPY", "CREATE", "DELETE", "DROP", "INSERT", "LOAD", "MOVE", "WITH",
];

/// The keyword of the first operation, in capitals, if the text, cut into `tokens`, is an update.
pub(super) fn update_keyword(text: &str, tokens: &[Token]) -> Option<&'static str> {
    let mut words = tokens.iter().map(|token| token.of(text));
    loop {
        let word = words.next()?;
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if is("PREFIX") {
            words.nth(1)?;
        } else if is("BASE") || is("VERSION") {
            words.next()?;
        } else {
            return OPERATIONS.into_iter().find(|keyword| is(keyword));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;

    fn update_keyword(text: &str) -> Option<&'static str> {
        super::update_keyword(text, &tokens(text))
    }

    #[test]
    fn the_first_operation_behind_the_prologue_is_found() {
        let prologue = "# INSERT\nBASE <http://delete/> PREFIX load: <http://a/> VERSION \"1.2\"";
        assert_eq!(
            update_keyword(&format!("{prologue} insert data {{}}")),
            Some("INSERT")
        );
        assert_eq!(
            update_keyword("PREFIX : <http://a/> Clear ALL"),
            Some("CLEAR")
        );
        assert_eq!(
            update_keyword(&format!("{prologue} SELECT * {{ ?insert ?p ?o }}")),
            None
        );
        assert_eq!(update_keyword("PREFIX"), None);
        assert_eq!(update_keyword(""), None);
    }
}
