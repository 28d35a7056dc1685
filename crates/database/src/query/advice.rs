//! What to do about a token that cannot stand where it does.
//!
//! The mistakes are those that people make: habits of SQL, of Turtle and of other languages, what was
//! forgotten, and slips of the pen. Where none is recognised the token is just unexpected.

use super::prefixes::{declared, undeclared};
use super::similar::nearest;
use super::token::{Token, is_open_string};
use super::update::OPERATIONS;

/// What is wrong, and what may have been meant instead.
type Advice = (String, Option<String>);

/// The words of the language that are long enough to be misspelt recognisably.
const KEYWORDS: [&str; 99] = [
    "ABS",
    "ASK",
    "ASC",
    "AVG",
    "BASE",
    "BIND",
    "BNODE",
    "BOUND",
    "CEIL",
    "COALESCE",
    "CONCAT",
    "CONSTRUCT",
    "CONTAINS",
    "COUNT",
    "DATATYPE",
    "DAY",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ENCODE_FOR_URI",
    "EXISTS",
    "FILTER",
    "FLOOR",
    "FROM",
    "GRAPH",
    "GROUP",
    "GROUP_CONCAT",
    "HAVING",
    "HOURS",
    "IF",
    "IN",
    "IRI",
    "ISBLANK",
    "ISIRI",
    "ISLITERAL",
    "ISNUMERIC",
    "ISTRIPLE",
    "ISURI",
    "LANG",
    "LANGDIR",
    "LANGMATCHES",
    "LATERAL",
    "LCASE",
    "LIMIT",
    "MAX",
    "MD5",
    "MIN",
    "MINUS",
    "MINUTES",
    "MONTH",
    "NAMED",
    "NOT",
    "NOW",
    "OBJECT",
    "OFFSET",
    "OPTIONAL",
    "ORDER",
    "PREDICATE",
    "PREFIX",
    "RAND",
    "REDUCED",
    "REGEX",
    "REPLACE",
    "ROUND",
    "SAMETERM",
    "SAMPLE",
    "SECONDS",
    "SELECT",
    "SEPARATOR",
    "SERVICE",
    "SHA1",
    "SHA256",
    "SHA384",
    "SHA512",
    "SILENT",
    "STR",
    "STRAFTER",
    "STRBEFORE",
    "STRDT",
    "STRENDS",
    "STRLANG",
    "STRLANGDIR",
    "STRLEN",
    "STRSTARTS",
    "STRUUID",
    "SUBJECT",
    "SUBSTR",
    "SUM",
    "TIMEZONE",
    "TRIPLE",
    "UCASE",
    "UNDEF",
    "UNION",
    "URI",
    "UUID",
    "VALUES",
    "VERSION",
    "WHERE",
    "YEAR",
];

/// Words behind which a group in braces comes.
const BEFORE_GROUP: [&str; 6] = ["optional", "minus", "union", "exists", "lateral", "where"];

/// Clauses behind the group of a query.
const MODIFIERS: [&str; 6] = ["group", "having", "order", "limit", "offset", "values"];

/// The tokens of a text up to one that cannot stand there.
struct Place<'a> {
    text: &'a str,
    tokens: &'a [Token],
    bad: usize,
}

/// What is wrong with the token number `bad` of a text, or with its end.
pub(super) fn advice(text: &str, tokens: &[Token], bad: usize) -> Advice {
    let place = Place { text, tokens, bad };
    if bad >= tokens.len() {
        return (place.at_end(), None);
    }
    if let Some(advice) = place.of_name() {
        return advice;
    }
    let shown = shown(place.word(0));
    if let Some(message) = place.said() {
        return (message, None);
    }
    if let Some(hint) = place.hint() {
        return (format!("unexpected {shown}: {hint}"), None);
    }
    let token = place.word(0);
    let is_keyword = |keyword: &&str| keyword.eq_ignore_ascii_case(token);
    match nearest(token, KEYWORDS).filter(|_| !KEYWORDS.iter().any(is_keyword)) {
        None => (format!("unexpected {shown}"), None),
        Some(near) => (
            format!("unexpected {shown}; did you mean {near}?"),
            Some(near.to_owned()),
        ),
    }
}

/// A token for a message.
fn shown(word: &str) -> String {
    let chars = word.chars().take(60);
    chars
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|other| word.eq_ignore_ascii_case(other))
}

fn is_variable(word: &str) -> bool {
    word.len() > 1 && word.starts_with(['?', '$'])
}

/// Whether it is a word without a prefix, such as a keyword.
fn is_bare(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic()) && !word.contains(':')
}

fn is_term(word: &str) -> bool {
    is_variable(word)
        || word.starts_with(['"', '\''])
        || (word.starts_with('<') && word.ends_with('>') && word.len() > 1)
        || word.contains(':')
        || word.starts_with(|c: char| c.is_ascii_digit())
        || is_any(word, &["a", "true", "false"])
}

impl Place<'_> {
    /// The token so many behind the bad one, or before it.
    fn word(&self, offset: isize) -> &str {
        let number = self.bad.checked_add_signed(offset);
        let token = number.and_then(|number| self.tokens.get(number));
        token.map_or("", |token| token.of(self.text))
    }

    fn before(&self) -> &[Token] {
        self.tokens.get(..self.bad).unwrap_or_default()
    }

    fn words(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.before().iter().map(|token| token.of(self.text))
    }

    /// The brackets before the token that are not closed, the last one last.
    fn open(&self) -> Vec<Token> {
        let mut open = Vec::new();
        for token in self.before() {
            match token.of(self.text) {
                "{" | "(" | "[" | "<<" | "<<(" | "{|" => open.push(*token),
                "}" | ")" | "]" | ">>" | ")>>" | "|}" => {
                    open.pop();
                }
                _ => {}
            }
        }
        open
    }

    /// Whether a bracket is the last that is open.
    fn is_open(&self, bracket: &str) -> bool {
        let open = self.open();
        open.last()
            .is_some_and(|open| open.of(self.text) == bracket)
    }

    /// A bracket that is not closed, by its line.
    fn not_closed(&self, open: Token) -> String {
        let before = self.text.get(..open.start).unwrap_or_default();
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        format!("the {} in line {line} is not closed", open.of(self.text))
    }

    fn at_end(&self) -> String {
        if self.tokens.is_empty() {
            return "the query is empty".to_owned();
        }
        let unexpected = "unexpected end of the query";
        match self.open().last() {
            None => unexpected.to_owned(),
            Some(open) => format!("{unexpected}: {}", self.not_closed(*open)),
        }
    }

    /// Advice about IRIs and prefixed names.
    fn of_name(&self) -> Option<Advice> {
        let (word, next) = (self.word(0), self.word(1));
        let said = |message: String| Some((message, None));
        if word == "<>" && self.is_open("(") {
            return said("unexpected <>: inequality is written !=".to_owned());
        }
        if word.starts_with('<') && word.len() > 1 && word.ends_with('>') {
            return said(format!(
                "{} is not a valid IRI here; a relative one needs BASE or --base",
                shown(word)
            ));
        }
        let (prefix, local) = word.split_once(':')?;
        if word.starts_with(['"', '\'', '?', '$', '_', '@']) {
            return None;
        }
        let scheme = ["http", "https", "urn", "mailto", "file"].contains(&prefix);
        if scheme
            && (next == "/" || !local.is_empty() || self.word(-2).eq_ignore_ascii_case("prefix"))
        {
            let from = self.tokens.get(self.bad)?.start;
            let rest = self.text.get(from..)?;
            let end = rest.find(|c: char| c.is_whitespace() || "<>{}\"".contains(c));
            let iri = shown(rest.get(..end.unwrap_or(rest.len()))?);
            return said(format!("an IRI stands in angle brackets: <{iri}>"));
        }
        let mut known = declared(self.text, self.before());
        let is_known = known.any(|(name, _)| name == prefix);
        (!is_known).then(|| undeclared(prefix, self.text, self.before()))
    }

    /// A whole message, where "unexpected" would say less.
    fn said(&self) -> Option<String> {
        let word = self.word(0);
        if is_open_string(word) {
            return Some("the string is not closed".to_owned());
        }
        if word.starts_with("_:") && self.words().any(|before| before == word) {
            return Some(format!(
                "{} stands in another group already: take a variable",
                shown(word)
            ));
        }
        if word == "}" && !self.open().iter().any(|token| token.of(self.text) == "{") {
            return Some("unexpected }: there is no { that it closes".to_owned());
        }
        None
    }

    /// What follows "unexpected ...: ".
    fn hint(&self) -> Option<String> {
        self.of_prologue()
            .or_else(|| self.of_brackets())
            .or_else(|| self.of_select())
            .or_else(|| self.of_keyword())
            .or_else(|| self.of_expression())
            .or_else(|| self.of_triple())
    }

    fn of_prologue(&self) -> Option<String> {
        let (word, last) = (self.word(0), self.word(-1));
        let forms = ["select", "ask", "construct", "describe"];
        if last.eq_ignore_ascii_case("prefix") && is_bare(word) {
            return Some(format!(
                "a prefix ends with a colon, as in PREFIX {word}: <...>"
            ));
        }
        if self.words().any(|word| is_any(word, &forms)) {
            return None;
        }
        if is_any(word, &["@prefix", "@base"]) {
            let keyword = word.get(1..)?.to_ascii_uppercase();
            return Some(format!("write {keyword} without @, and no dot behind it"));
        }
        if last.ends_with('>') && matches!(word, "." | ";" | ",") {
            return Some("nothing ends a PREFIX or BASE".to_owned());
        }
        let is_near = nearest(word, KEYWORDS).is_some();
        let is_wrong = is_bare(word) && !is_near && !is_any(word, &["prefix", "base", "version"]);
        let in_update = self.words().any(|word| is_any(word, &OPERATIONS));
        (is_wrong && !in_update).then(|| {
            "a query begins with SELECT, ASK, CONSTRUCT or DESCRIBE, after PREFIX lines".to_owned()
        })
    }

    /// A bracket that does not fit to the one that is open.
    fn of_brackets(&self) -> Option<String> {
        let open = *self.open().last()?;
        let fits = match self.word(0) {
            "}" => "{",
            ")" => "(",
            "]" => "[",
            // In parentheses only EXISTS has braces, and its brace fits.
            "{" if open.of(self.text) == "(" => "",
            _ => return None,
        };
        (open.of(self.text) != fits).then(|| self.not_closed(open))
    }

    /// In the list of SELECT.
    fn of_select(&self) -> Option<String> {
        let list = self.words().rev().take_while(|word| *word != "{");
        let mut list: Vec<&str> = list.collect();
        list.reverse();
        let select = list
            .iter()
            .rposition(|word| word.eq_ignore_ascii_case("select"))?;
        let list = list.get(select + 1..)?;
        if list.iter().any(|word| is_any(word, &["where", "from"])) {
            return None;
        }
        let depth = list.iter().fold(0_usize, |depth, word| match *word {
            "(" => depth + 1,
            ")" => depth.saturating_sub(1),
            _ => depth,
        });
        let (word, next) = (self.word(0), self.word(1));
        if depth == 0 && word == "," {
            return Some("the items of SELECT stand without commas".to_owned());
        }
        if depth == 0 && next == "(" && is_bare(word) {
            return Some(format!(
                "an expression stands in parentheses with its name, as in ({word}(...) AS ?name)"
            ));
        }
        if depth == 0 && is_bare(word) {
            let is_near = nearest(word, ["DISTINCT", "REDUCED", "WHERE", "FROM"]).is_some();
            let is_keyword = is_any(word, &KEYWORDS) || word.eq_ignore_ascii_case("as");
            return (!is_near && !is_keyword)
                .then(|| format!("a variable begins with ?, as in ?{word}"));
        }
        if depth == 1 && word == ")" {
            return Some("an expression needs a name, as in (... AS ?name)".to_owned());
        }
        None
    }

    /// Behind a keyword, or where one cannot stand.
    fn of_keyword(&self) -> Option<String> {
        let (word, last) = (self.word(0), self.word(-1));
        let keyword = last.to_ascii_uppercase();
        if is_any(last, &["group", "order"]) && !word.eq_ignore_ascii_case("by") {
            return Some(format!("write {keyword} BY"));
        }
        if is_any(last, &BEFORE_GROUP) && word != "{" {
            return Some(format!("behind {keyword} comes a group in braces"));
        }
        if is_any(last, &["filter", "bind", "having"]) && word != "(" && is_term(word) {
            return Some(format!("what follows {keyword} stands in parentheses"));
        }
        if is_any(last, &["graph", "service"]) {
            return Some(format!("behind {keyword} comes an IRI or a variable"));
        }
        if is_any(last, &["from", "named"]) {
            return Some(format!("behind {keyword} comes an IRI"));
        }
        if is_any(last, &["limit", "offset"]) {
            return Some(format!("behind {keyword} comes a number from 0"));
        }
        let is_outside = !self.open().iter().any(|token| token.of(self.text) == "{");
        if is_any(word, &MODIFIERS) && is_outside && self.words().any(|word| word == "}") {
            return Some(
                "the order is GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET, VALUES".to_owned(),
            );
        }
        None
    }

    fn of_expression(&self) -> Option<String> {
        let (word, last, next) = (self.word(0), self.word(-1), self.word(1));
        let in_parentheses = self
            .open()
            .last()
            .is_some_and(|open| open.of(self.text) == "(");
        let hint = match word {
            "=" if matches!(last, "=" | "!=" | "<=" | ">=") => "equality is written =",
            "=" if last == "<" || last == ">" => "there is no blank in <= and >=",
            ">" if last == "<" => "inequality is written !=",
            "&" => "and is written &&",
            "|" if in_parentheses => "or is written ||",
            "?" if is_term(last) && in_parentheses => "a choice is written IF(..., ..., ...)",
            _ if !in_parentheses => return None,
            _ if is_any(word, &["and"]) => "and is written &&",
            _ if is_any(word, &["or"]) => "or is written ||",
            _ if is_any(word, &["like", "is", "between"]) => {
                "compare with = < >, or with CONTAINS, STRSTARTS, REGEX and BOUND"
            }
            ")" | "," => return self.of_arguments(),
            _ if last == "(" && self.word(-2).eq_ignore_ascii_case("bound") => {
                "BOUND takes one variable"
            }
            _ if is_variable(word) && is_term(last) => "is AS, a comma or an operator missing?",
            _ if last.eq_ignore_ascii_case("in") => "behind IN comes a list in parentheses",
            _ if is_bare(word) && next == "(" => {
                let is_near = nearest(word, KEYWORDS).is_some();
                let is_keyword = is_any(word, &KEYWORDS);
                return (!is_near && !is_keyword).then(|| format!("there is no function {word}"));
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// At the end of an argument of a function.
    fn of_arguments(&self) -> Option<String> {
        const ARGUMENTS: [(&str, &str); 26] = [
            ("regex", "2 or 3"),
            ("replace", "3 or 4"),
            ("substr", "2 or 3"),
            ("contains", "2"),
            ("strstarts", "2"),
            ("strends", "2"),
            ("strbefore", "2"),
            ("strafter", "2"),
            ("langmatches", "2"),
            ("sameterm", "2"),
            ("strdt", "2"),
            ("strlang", "2"),
            ("strlangdir", "3"),
            ("if", "3"),
            ("triple", "3"),
            ("str", "1"),
            ("lang", "1"),
            ("datatype", "1"),
            ("bound", "1"),
            ("strlen", "1"),
            ("ucase", "1"),
            ("lcase", "1"),
            ("abs", "1"),
            ("round", "1"),
            ("year", "1"),
            ("count", "1"),
        ];
        let open = *self.open().last()?;
        let number = self.before().iter().position(|token| *token == open)?;
        let name = self.tokens.get(number.checked_sub(1)?)?.of(self.text);
        let (_, arguments) = ARGUMENTS
            .iter()
            .find(|(function, _)| name.eq_ignore_ascii_case(function))?;
        let name = name.to_ascii_uppercase();
        let ends = !matches!(self.word(-1), "," | "(");
        (ends || self.word(0) == ")").then(|| {
            let plural = if *arguments == "1" { "" } else { "s" };
            format!("{name} takes {arguments} argument{plural}")
        })
    }

    /// Between the terms of triples.
    fn of_triple(&self) -> Option<String> {
        let (word, last) = (self.word(0), self.word(-1));
        if last == "^^" && is_bare(word) {
            return Some(format!("a datatype is an IRI, as in xsd:{word}"));
        }
        if word == "-" && is_variable(last) {
            return Some("names of variables have letters, digits and _ only".to_owned());
        }
        if matches!(last, "+" | "*" | "?" | "/" | "|") && is_variable(self.word(-2)) {
            return Some("a path is made of IRIs, not of variables".to_owned());
        }
        if !self.is_open("{") {
            return None;
        }
        // The terms since the last separator, which is next.
        let terms = self.words().rev().take_while(|word| is_term(word)).count();
        let separator = self.words().rev().nth(terms).unwrap_or_default();
        let starts = matches!(separator, "." | "{" | "}");
        if matches!(word, "}" | "." | ";") {
            return match (terms, separator) {
                (1, _) if starts => Some("its triple has no predicate and object".to_owned()),
                (2, _) if starts => Some("its triple has no object".to_owned()),
                (1, ";") => Some("its triple has no object".to_owned()),
                (0, ",") => Some("behind a comma comes an object".to_owned()),
                _ => None,
            };
        }
        if starts && terms == 1 && word.starts_with(['"', '\'']) {
            return Some("a literal cannot be a predicate".to_owned());
        }
        let is_whole = (starts && terms >= 3) || (separator == ";" && terms >= 2);
        if is_whole && (is_term(word) || word == "[") {
            return Some("is a dot missing before it?".to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests;
