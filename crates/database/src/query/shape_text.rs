//! The shape of a query or an update as it is summed and shown: its text without what differs from one run of a
//! template to the next. What a plan depends on is more: [`super::shape`].
//!
//! Constants, that is IRIs, prefixed names, literals with their tag or datatype, numbers with their sign, `true` and
//! `false`, become `_`, but for predicates, the classes behind `a` or `rdf:type`, names of functions, and the prologue.
//! The lists of IN and the data of VALUES, INSERT DATA and DELETE DATA become one `_` however long they are. Comments
//! and white space go, and keywords are in capitals. Two texts have the same shape if these words are the same.
//!
//! Where a name stands is seen from the tokens before it, without parsing: a text that is no SPARQL has a shape, too.

use std::hash::{BuildHasher, Hasher};

use rapidhash::fast::RandomState;

use super::token::{self, Token};

/// What a constant becomes.
const CONSTANT: &str = "_";

/// The longest word that is written in capitals.
const WORD_BYTES_MAX: usize = 24;

/// A number that texts of one shape share.
pub(crate) fn key(text: &str, tokens: &[Token], hasher: &RandomState) -> u64 {
    let mut hasher = hasher.build_hasher();
    walk(text, tokens, |word| {
        hasher.write(word.as_bytes());
        // No word has it.
        hasher.write_u8(b' ');
    });
    hasher.finish()
}

/// The shape of a text as one line.
pub(crate) fn written(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    walk(text, &token::tokens(text), |word| {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    });
    line
}

fn walk(text: &str, tokens: &[Token], emit: impl FnMut(&str)) {
    let mut walker = Walker {
        text,
        tokens,
        next: 0,
        levels: Vec::with_capacity(8),
        level: Level::Clause,
        keyword: Keyword::Other,
        is_behind_operand: false,
        emit,
    };
    while let Some(word) = walker.take() {
        walker.step(word);
    }
}

/// What a pair of brackets holds.
#[derive(Clone, Copy)]
enum Level {
    /// What stands outside of groups: SELECT, FROM, GROUP BY and the like.
    Clause,
    /// A group, a template, or what else has triples.
    Triples(State),
    /// An expression; a list of them behind IN.
    Expression { is_list: bool },
    /// Parts of a path.
    Path,
    /// A collection.
    Collection,
}

/// What comes next among triples.
#[derive(Clone, Copy)]
enum State {
    Subject,
    Verb,
    /// More of the path, or an object; whether the path is `a` alone.
    VerbOrObject {
        is_type: bool,
    },
    /// An object, which is a class or not.
    Object {
        is_type: bool,
    },
    /// Behind an object.
    End {
        is_type: bool,
    },
}

/// The last keyword, as far as it matters.
#[derive(Clone, Copy, PartialEq)]
enum Keyword {
    /// A word that may stand before an expression, or a symbol.
    Other,
    Filter,
    In,
    Values,
    Data,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Iri,
    Name,
    Text,
    Number,
    Variable,
    Label,
    Word,
    Symbol,
}

fn kind_of(word: &str) -> Kind {
    match word.as_bytes() {
        [b'"' | b'\'', ..] => Kind::Text,
        [b'<', .., b'>'] => Kind::Iri,
        [b'?' | b'$', _, ..] => Kind::Variable,
        [b'0'..=b'9', ..] => Kind::Number,
        [b'_', b':', ..] => Kind::Label,
        [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':' | 0x80.., ..] => match word.contains(':') {
            true => Kind::Name,
            false => Kind::Word,
        },
        _ => Kind::Symbol,
    }
}

struct Walker<'a, E> {
    text: &'a str,
    tokens: &'a [Token],
    next: usize,
    /// Those around the one at hand.
    levels: Vec<Level>,
    level: Level,
    keyword: Keyword,
    /// Whether the last word ended something that a sign may stand behind.
    is_behind_operand: bool,
    emit: E,
}

impl<'a, E: FnMut(&str)> Walker<'a, E> {
    fn take(&mut self) -> Option<&'a str> {
        let word = self.tokens.get(self.next)?.of(self.text);
        self.next += 1;
        Some(word)
    }

    fn peek(&self) -> &'a str {
        let next = self.tokens.get(self.next);
        next.map_or("", |token| token.of(self.text))
    }

    fn step(&mut self, word: &'a str) {
        match kind_of(word) {
            Kind::Iri | Kind::Name => self.name(word),
            Kind::Text => {
                if self.peek().starts_with('@') {
                    self.next += 1;
                } else if self.peek() == "^^" {
                    self.next += 2;
                }
                self.constant();
            }
            Kind::Number => self.constant(),
            Kind::Variable | Kind::Label => {
                (self.emit)(word);
                self.end_term();
            }
            Kind::Word => self.word(word),
            Kind::Symbol => self.symbol(word),
        }
    }

    /// An IRI or a prefixed name.
    fn name(&mut self, word: &'a str) {
        let is_kept = match self.level {
            Level::Path => true,
            Level::Triples(State::Verb) => {
                let is_type = is_type(word);
                self.level = Level::Triples(State::VerbOrObject { is_type });
                (self.emit)(word);
                return;
            }
            Level::Triples(
                State::VerbOrObject { is_type }
                | State::Object { is_type }
                | State::End { is_type },
            ) => is_type,
            Level::Triples(State::Subject) => self.keyword == Keyword::Filter,
            Level::Clause | Level::Expression { .. } => self.peek() == "(",
            Level::Collection => false,
        };
        if !is_kept {
            self.constant();
            return;
        }
        (self.emit)(word);
        self.end_term();
    }

    fn constant(&mut self) {
        let is_listed = matches!(self.level, Level::Expression { is_list: true });
        if !(is_listed && self.is_behind_operand) {
            (self.emit)(CONSTANT);
        }
        self.end_term();
    }

    /// A term, or what stands for one, is over.
    fn end_term(&mut self) {
        self.is_behind_operand = true;
        if let Level::Triples(state) = &mut self.level {
            *state = match *state {
                _ if self.keyword == Keyword::Filter => State::Subject,
                State::Subject => State::Verb,
                State::Verb => State::Object { is_type: false },
                State::VerbOrObject { is_type }
                | State::Object { is_type }
                | State::End { is_type } => State::End { is_type },
            };
        }
    }

    fn word(&mut self, word: &'a str) {
        if word == "a" && matches!(self.level, Level::Triples(State::Verb) | Level::Path) {
            if let Level::Triples(state) = &mut self.level {
                *state = State::VerbOrObject { is_type: true };
            }
            (self.emit)(word);
            return;
        }
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if is("true") || is("false") || word == CONSTANT {
            self.constant();
            return;
        }
        let mut capitals = [0; WORD_BYTES_MAX];
        match capitals.get_mut(..word.len()) {
            Some(capitals) => {
                capitals.copy_from_slice(word.as_bytes());
                capitals.make_ascii_uppercase();
                (self.emit)(std::str::from_utf8(capitals).unwrap_or(word));
            }
            None => (self.emit)(word),
        }
        self.is_behind_operand = false;
        if is("select") {
            self.level = Level::Clause;
        } else if let Level::Triples(state) = &mut self.level {
            *state = State::Subject;
        }
        let declared = match self.level {
            Level::Clause if is("prefix") => 2,
            Level::Clause if is("base") || is("version") => 1,
            _ => 0,
        };
        for _ in 0..declared {
            if let Some(word) = self.take() {
                (self.emit)(word);
            }
        }
        self.keyword = match self.keyword {
            _ if is("filter") => Keyword::Filter,
            _ if is("in") => Keyword::In,
            _ if is("values") => Keyword::Values,
            _ if is("data") => Keyword::Data,
            // FILTER NOT EXISTS, FILTER REGEX(
            Keyword::Filter if !is("exists") => Keyword::Filter,
            _ => Keyword::Other,
        };
    }

    fn symbol(&mut self, symbol: &'a str) {
        match symbol {
            "{" if matches!(self.keyword, Keyword::Values | Keyword::Data) => self.data(),
            "{" => self.open(symbol, Level::Triples(State::Subject)),
            "[" | "{|" => self.open(symbol, Level::Triples(State::Verb)),
            "<<" | "<<(" => self.open(symbol, Level::Triples(State::Subject)),
            "(" => {
                let inside = match self.level {
                    Level::Clause | Level::Expression { .. } => Level::Expression {
                        is_list: self.keyword == Keyword::In,
                    },
                    Level::Path | Level::Triples(State::Verb) => Level::Path,
                    Level::Triples(State::Subject) if !self.is_behind_term() => {
                        Level::Expression { is_list: false }
                    }
                    Level::Triples(_) | Level::Collection => Level::Collection,
                };
                self.open(symbol, inside);
            }
            "}" => {
                self.close(symbol);
                if let Level::Triples(state) = &mut self.level {
                    *state = State::Subject;
                }
            }
            "|}" => {
                self.close(symbol);
            }
            ")" | "]" | ">>" | ")>>" => {
                let closed = self.close(symbol);
                match (closed, &mut self.level) {
                    // Of FILTER, BIND and the like.
                    (Level::Expression { .. }, Level::Triples(state)) => *state = State::Subject,
                    (_, Level::Triples(state @ State::Verb)) => {
                        *state = State::VerbOrObject { is_type: false };
                    }
                    _ => self.end_term(),
                }
            }
            // The sign of a number.
            "-" | "+" if self.is_sign() => {}
            "," if matches!(self.level, Level::Expression { is_list: true }) => {
                // Only what is no constant begins another part of the list.
                if kind_of(self.peek()) == Kind::Variable {
                    (self.emit)(symbol);
                    self.is_behind_operand = false;
                }
            }
            _ => self.mark(symbol),
        }
    }

    /// A symbol that is no bracket.
    fn mark(&mut self, symbol: &'a str) {
        (self.emit)(symbol);
        self.is_behind_operand = false;
        if let Level::Triples(state) = &mut self.level {
            *state = match (symbol, *state) {
                (".", _) => State::Subject,
                (";", _) => State::Verb,
                (",", State::End { is_type }) => State::Object { is_type },
                ("/" | "|", _) => State::Verb,
                ("*" | "+" | "?", State::VerbOrObject { .. }) => {
                    State::VerbOrObject { is_type: false }
                }
                (_, state) => state,
            };
        }
    }

    /// Whether a bracket follows a term or a symbol, so that it begins a collection, and not an expression.
    fn is_behind_term(&self) -> bool {
        let before = self.next.checked_sub(2);
        let before = before.and_then(|number| self.tokens.get(number));
        let before = before.map_or("", |token| token.of(self.text));
        self.keyword != Keyword::Filter && kind_of(before) != Kind::Word
    }

    /// Whether a plus or minus before what comes next belongs to it.
    fn is_sign(&self) -> bool {
        let is_behind_operand = match self.level {
            Level::Triples(State::VerbOrObject { .. } | State::Object { .. }) => false,
            Level::Triples(_) => true,
            _ => self.is_behind_operand,
        };
        !is_behind_operand && kind_of(self.peek()) == Kind::Number
    }

    fn open(&mut self, symbol: &'a str, level: Level) {
        (self.emit)(symbol);
        self.levels.push(std::mem::replace(&mut self.level, level));
        self.pass_bracket();
    }

    /// What the brackets held that are closed.
    fn close(&mut self, symbol: &'a str) -> Level {
        (self.emit)(symbol);
        self.pass_bracket();
        let around = self.levels.pop().unwrap_or(Level::Clause);
        std::mem::replace(&mut self.level, around)
    }

    fn pass_bracket(&mut self) {
        self.is_behind_operand = false;
        // Variables in brackets may stand before data.
        if self.keyword != Keyword::Values {
            self.keyword = Keyword::Other;
        }
    }

    /// All up to the brace that ends data; those of graphs stand within.
    fn data(&mut self) {
        for word in ["{", CONSTANT, "}"] {
            (self.emit)(word);
        }
        // There may be a million of them.
        let mut depth = 1;
        while depth > 0
            && let Some(token) = self.tokens.get(self.next)
        {
            self.next += 1;
            if token.end - token.start == 1 {
                match self.text.as_bytes().get(token.start) {
                    Some(b'{') => depth += 1,
                    Some(b'}') => depth -= 1,
                    _ => {}
                }
            }
        }
        self.keyword = Keyword::Other;
        if let Level::Triples(state) = &mut self.level {
            *state = State::Subject;
        }
    }
}

/// Whether a predicate is `rdf:type`, as it is mostly written.
fn is_type(word: &str) -> bool {
    word == "rdf:type" || word == "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(text: &str, hasher: &RandomState) -> u64 {
        key(text, &token::tokens(text), hasher)
    }

    fn assert_shape(texts: &[&str], shape: &str) {
        let hasher = RandomState::new();
        for text in texts {
            assert_eq!(written(text), shape, "{text}");
            assert_eq!(key_of(text, &hasher), key_of(shape, &hasher), "{text}");
        }
    }

    #[test]
    fn constants_are_left_out_where_they_are_no_predicates() {
        assert_shape(
            &[
                "SELECT * { ?s <http://a/p> <http://a/o> }",
                "select *\n{ ?s <http://a/p> 'text'@en } # comment",
                "SELECT * { ?s <http://a/p> \"5\"^^xsd:integer }",
                "SELECT*{?s <http://a/p> -5}",
                "SELECT * { ?s <http://a/p> true }",
            ],
            "SELECT * { ?s <http://a/p> _ }",
        );
        assert_shape(
            &[
                "PREFIX : <http://a/> SELECT ?x { :s a :Class , :Other ; :p :o ; rdf:type :C . ?x :q 1, :r } LIMIT 10",
                "prefix : <http://a/> select ?x { <s> a :Class, :Other ; :p 'o'; rdf:type :C . ?x :q 2.5 , 3 } limit 3",
            ],
            "PREFIX : <http://a/> SELECT ?x { _ a :Class , :Other ; :p _ ; rdf:type :C . ?x :q _ , _ } LIMIT _",
        );
        assert_shape(&["DESCRIBE <http://a/x>", "DESCRIBE a:b"], "DESCRIBE _");
    }

    #[test]
    fn other_predicates_are_other_shapes() {
        let hasher = RandomState::new();
        let key = |text| key_of(text, &hasher);
        assert_ne!(key("ASK { ?s :p 1 }"), key("ASK { ?s :q 1 }"));
        assert_ne!(key("ASK { ?s a :A }"), key("ASK { ?s a :B }"));
        assert_ne!(key("ASK { ?s :p ?o }"), key("ASK { ?s :p ?r }"));
        assert_ne!(key("ASK { ?s :p/:q 1 }"), key("ASK { ?s :p/:r 1 }"));
    }

    #[test]
    fn paths_are_kept_and_their_ends_are_not() {
        assert_shape(
            &["ASK { :a ^:p/(:q|!(:r|^a))*/:s+ :b . :c :t? :d }"],
            "ASK { _ ^ :p / ( :q | ! ( :r | ^ a ) ) * / :s + _ . _ :t ? _ }",
        );
        assert_shape(&["ASK { ?s a/:p :b }"], "ASK { ?s a / :p _ }");
    }

    #[test]
    fn groups_expressions_and_terms_within_terms_are_told_apart() {
        assert_shape(
            &[
                "SELECT (COUNT(*) AS ?n) ?x FROM <g> { GRAPH :g { ?x :p [ :q :o ] . (1 :a) :r << :s :p :o >> } \
                 OPTIONAL { :s :p ?y } FILTER(?y > -1 && xsd:integer(?y) IN (:a, 2, 3) && ?y - 1 < :c) \
                 FILTER regex(?y, 'x', \"i\") FILTER NOT EXISTS { ?x :p :z } FILTER :f(:c) BIND(:c AS ?z) ?z :u :v } \
                 GROUP BY ?x HAVING (COUNT(*) > 5) ORDER BY :f(?x) OFFSET 5",
                "SELECT (COUNT(*) AS ?n) ?x FROM <h> { GRAPH :h { ?x :p [ :q 1 ] . (2 3) :r << 1 :p 2 >> } \
                 OPTIONAL { 1 :p ?y } FILTER(?y > 1 && xsd:integer(?y) IN (4) && ?y - 7 < 8) \
                 FILTER regex(?y, 'y', 'j') FILTER NOT EXISTS { ?x :p 1 } FILTER :f(2) BIND(3 AS ?z) ?z :u 4 } \
                 GROUP BY ?x HAVING (COUNT(*) > 7) ORDER BY :f(?x) OFFSET 7",
            ],
            "SELECT ( COUNT ( * ) AS ?n ) ?x FROM _ { GRAPH _ { ?x :p [ :q _ ] . ( _ _ ) :r << _ :p _ >> } \
             OPTIONAL { _ :p ?y } FILTER ( ?y > _ && xsd:integer ( ?y ) IN ( _ ) && ?y - _ < _ ) \
             FILTER REGEX ( ?y , _ , _ ) FILTER NOT EXISTS { ?x :p _ } FILTER :f ( _ ) BIND ( _ AS ?z ) ?z :u _ } \
             GROUP BY ?x HAVING ( COUNT ( * ) > _ ) ORDER BY :f ( ?x ) OFFSET _",
        );
        assert_shape(
            &["ASK { { SELECT ?a (:x AS ?b) { ?a :p :y } LIMIT 1 } ?a :q :r }"],
            "ASK { { SELECT ?a ( _ AS ?b ) { ?a :p _ } LIMIT _ } ?a :q _ }",
        );
    }

    #[test]
    fn data_is_one_constant() {
        assert_shape(
            &[
                "SELECT * { VALUES (?a ?b) { (1 :c) (2 UNDEF) } ?a :p :b } VALUES ?c { 3 }",
                "SELECT * { VALUES (?a ?b) {} ?a :p 7 } VALUES ?c { :x :y }",
            ],
            "SELECT * { VALUES ( ?a ?b ) { _ } ?a :p _ } VALUES ?c { _ }",
        );
        assert_shape(
            &[
                "INSERT DATA { :a :b :c . GRAPH :g { :d :e 1 } } ; DELETE { ?s :p 1 } WHERE { ?s :p 2 }",
                "insert data { } ; delete { ?s :p 3 } where { ?s :p :x }",
            ],
            "INSERT DATA { _ } ; DELETE { ?s :p _ } WHERE { ?s :p _ }",
        );
    }

    #[test]
    fn anything_has_a_shape() {
        for text in [
            "",
            "}",
            ")",
            "] |} >>",
            "\"",
            "( ( {",
            "PREFIX",
            "VALUES {",
            "\u{e9} a:\u{1f600} -",
        ] {
            written(text);
        }
    }
}
