//! Random expressions, of a kind that suits where they stand, now and then of any kind.

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode, Term};

use super::ast::{Aggregate, Expr, Var};
use super::query::Generator;

fn call(function: &'static str, arguments: Vec<Expr>) -> Expr {
    Expr::Call(function, arguments)
}

/// A plain string.
pub(super) fn text(value: impl AsRef<str>) -> Expr {
    Expr::Term(Literal::new_simple_literal(value.as_ref()).into())
}

/// An integer.
pub(super) fn integer(value: usize) -> Expr {
    Expr::Term(Literal::new_typed_literal(value.to_string(), xsd::INTEGER).into())
}

/// Regular expressions, of those that mean the same everywhere and match no empty text more than of
/// those that are XPath's own.
const PATTERNS: [&str; 28] = [
    "a",
    "[0-9]+",
    "b$",
    "^a",
    "an",
    "(a)(b)",
    "o.",
    "[^a-c]",
    "a",
    "[0-9]+",
    "an",
    "a|b",
    "[^a-c]",
    "\\p{Lu}",
    "[\\p{Lu}x]",
    "\\P{IsBasicLatin}",
    "\\p{IsLatin-1Supplement}",
    "[a-z-[aeiou]]+",
    "\\i\\c*",
    "^\\i\\c*$",
    "(.)\\1",
    "\\s",
    "\\w+ \\w",
    "a.*?n",
    "^.+$",
    "$",
    "(?:a|b){2}",
    "(a",
];

/// Flags of regular expressions, and no flags.
const FLAGS: [&str; 9] = ["i", "i", "i", "s", "m", "x", "q", "im", "z"];

/// Casts that 17.5 does not list.
pub const DERIVED: [&str; 27] = [
    "xsd:byte",
    "xsd:short",
    "xsd:int",
    "xsd:long",
    "xsd:unsignedByte",
    "xsd:unsignedShort",
    "xsd:unsignedInt",
    "xsd:unsignedLong",
    "xsd:positiveInteger",
    "xsd:nonNegativeInteger",
    "xsd:negativeInteger",
    "xsd:nonPositiveInteger",
    "xsd:dateTimeStamp",
    "xsd:gYear",
    "xsd:gMonth",
    "xsd:gDay",
    "xsd:gYearMonth",
    "xsd:gMonthDay",
    "xsd:hexBinary",
    "xsd:base64Binary",
    "xsd:anyURI",
    "xsd:language",
    "xsd:normalizedString",
    "xsd:token",
    "xsd:NMTOKEN",
    "xsd:Name",
    "xsd:NCName",
];

/// A text that one of [`DERIVED`] takes.
fn text_to_cast(cast: &str) -> &'static str {
    match cast {
        "xsd:negativeInteger" | "xsd:nonPositiveInteger" => "-12",
        "xsd:dateTimeStamp" => "2001-02-03T04:05:06Z",
        "xsd:gYear" => "2001",
        "xsd:gMonth" => "--02",
        "xsd:gDay" => "---03",
        "xsd:gYearMonth" => "2001-02",
        "xsd:gMonthDay" => "--02-03",
        "xsd:hexBinary" => "0aFf",
        "xsd:base64Binary" => "Cv8=",
        "xsd:anyURI"
        | "xsd:language"
        | "xsd:normalizedString"
        | "xsd:token"
        | "xsd:NMTOKEN"
        | "xsd:Name"
        | "xsd:NCName" => "en",
        _ => "12",
    }
}

impl Generator<'_> {
    /// A variable in scope, rarely one that may not be bound.
    fn variable(&mut self, scope: &[Var]) -> Expr {
        if scope.is_empty() || (!self.strict && self.random.chance(4)) {
            return Expr::Var(self.random.below(6));
        }
        Expr::Var(*self.random.pick(scope))
    }

    fn constant(&mut self) -> Expr {
        Expr::Term(if self.random.chance(25) {
            Term::from(self.random.pick(&self.data.nodes).clone())
        } else {
            self.random.pick(&self.data.literals).clone().into()
        })
    }

    fn number_constant(&mut self) -> Expr {
        let numbers: Vec<&Literal> = self
            .data
            .literals
            .iter()
            .filter(|l| {
                [xsd::INTEGER, xsd::DECIMAL, xsd::DOUBLE].contains(&l.datatype())
                    && l.value() != "abc"
            })
            .collect();
        if numbers.is_empty() || self.random.chance(30) {
            return integer(self.random.below(5));
        }
        Expr::Term(Term::from((*self.random.pick(&numbers)).clone()))
    }

    /// Any expression.
    pub(super) fn any(&mut self, scope: &[Var], depth: usize) -> Expr {
        if depth == 0 || self.random.chance(35) {
            return if self.random.chance(80) {
                self.variable(scope)
            } else {
                self.constant()
            };
        }
        let next = depth - 1;
        match self.random.below(13) {
            12 => {
                let part = *self.random.pick(&["SUBJECT", "PREDICATE", "OBJECT"]);
                let triple = self.triple_term(scope, next);
                call(part, vec![triple])
            }
            0 | 1 => self.number(scope, depth),
            2 | 3 => self.string(scope, depth),
            4 => self.boolean(scope, depth),
            5 => call(
                "IF",
                vec![
                    self.boolean(scope, next),
                    self.any(scope, next),
                    self.any(scope, next),
                ],
            ),
            6 => {
                let many = 1 + self.random.below(3);
                call(
                    "COALESCE",
                    (0..many).map(|_| self.any(scope, next)).collect(),
                )
            }
            7 => call("DATATYPE", vec![self.any(scope, next)]),
            8 => self.term_maker(scope, next),
            9 => {
                if self.random.chance(22) {
                    return self.derived_cast(scope, next);
                }
                let cast = *self
                    .random
                    .pick(&["xsd:dateTime", "xsd:string", "xsd:date"]);
                call(cast, vec![self.any(scope, next)])
            }
            10 => call("TIMEZONE", vec![self.date(scope)]),
            _ => call("xsd:boolean", vec![self.any(scope, next)]),
        }
    }

    /// A cast that 17.5 does not list, now and then of a text that it takes.
    fn derived_cast(&mut self, scope: &[Var], depth: usize) -> Expr {
        let cast = match self.cast {
            Some(cast) => cast,
            None => *self.random.pick(&DERIVED),
        };
        let mut argument = self.any(scope, depth);
        if self.random.chance(15) {
            let bound = call("BOUND", vec![self.variable(scope)]);
            argument = call("IF", vec![bound, text(text_to_cast(cast)), argument]);
        }
        call(cast, vec![argument])
    }

    /// A triple term. What has one goes on to its parts or a test: the order of triple terms, and
    /// their equality where parts are values, are left open.
    fn triple_term(&mut self, scope: &[Var], depth: usize) -> Expr {
        let predicate = if self.random.chance(80) {
            Expr::Term(self.random.pick(&self.data.predicates).clone().into())
        } else {
            self.variable(scope)
        };
        let object = self.any(scope, depth);
        call("TRIPLE", vec![self.variable(scope), predicate, object])
    }

    /// A string with a direction, which goes on to a test likewise.
    fn directed(&mut self, scope: &[Var], depth: usize) -> Expr {
        let value = self.string(scope, depth);
        let direction = *self.random.pick(&["ltr", "rtl", "up"]);
        call("STRLANGDIR", vec![value, text("en"), text(direction)])
    }

    fn test_of_sparql_12(&mut self, scope: &[Var], depth: usize) -> Expr {
        match self.random.below(6) {
            0 => call("isTRIPLE", vec![self.any(scope, depth)]),
            1 => call("isTRIPLE", vec![self.triple_term(scope, depth)]),
            2 => {
                let (a, b) = (
                    self.triple_term(scope, depth),
                    self.triple_term(scope, depth),
                );
                call("sameTerm", vec![a, b])
            }
            3 => {
                let test = *self.random.pick(&["hasLANG", "hasLANGDIR"]);
                let value = if self.random.chance(50) {
                    self.directed(scope, depth)
                } else {
                    self.string(scope, depth)
                };
                call(test, vec![value])
            }
            _ => {
                let value = if self.random.chance(70) {
                    self.directed(scope, depth)
                } else {
                    self.string(scope, depth)
                };
                let expected = *self.random.pick(&["ltr", "rtl", ""]);
                call("=", vec![call("LANGDIR", vec![value]), text(expected)])
            }
        }
    }

    fn term_maker(&mut self, scope: &[Var], depth: usize) -> Expr {
        match self.random.below(4) {
            0 => call("IRI", vec![call("STR", vec![self.any(scope, depth)])]),
            1 => call("URI", vec![self.any(scope, depth)]),
            2 => {
                let datatype =
                    *self
                        .random
                        .pick(&[xsd::INTEGER, xsd::STRING, xsd::DOUBLE, xsd::DATE]);
                let datatype = Expr::Term(NamedNode::from(datatype).into());
                call("STRDT", vec![self.string(scope, depth), datatype])
            }
            _ => {
                let language = *self.random.pick(&["en", "de"]);
                call("STRLANG", vec![self.string(scope, depth), text(language)])
            }
        }
    }

    fn date(&mut self, scope: &[Var]) -> Expr {
        if scope.is_empty() || self.random.chance(60) {
            let dates = super::data::dates();
            return Expr::Term(self.random.pick(&dates).clone().into());
        }
        self.variable(scope)
    }

    /// An expression that is a number if all goes well.
    pub(super) fn number(&mut self, scope: &[Var], depth: usize) -> Expr {
        if depth == 0 || self.random.chance(25) {
            return if self.random.chance(70) {
                self.variable(scope)
            } else {
                self.number_constant()
            };
        }
        let next = depth - 1;
        match self.random.below(8) {
            0 | 1 => {
                let operator = *self.random.pick(&["+", "-", "*", "/"]);
                call(
                    operator,
                    vec![self.number(scope, next), self.number(scope, next)],
                )
            }
            2 => {
                let function = *self.random.pick(&["ABS", "CEIL", "FLOOR", "ROUND"]);
                call(function, vec![self.number(scope, next)])
            }
            3 => {
                let operator = *self.random.pick(&["unary -", "unary +"]);
                call(operator, vec![self.number(scope, next)])
            }
            4 => call("STRLEN", vec![self.string(scope, next)]),
            5 => {
                let function = *self
                    .random
                    .pick(&["YEAR", "MONTH", "DAY", "HOURS", "MINUTES", "SECONDS"]);
                call(function, vec![self.date(scope)])
            }
            _ => {
                let cast =
                    *self
                        .random
                        .pick(&["xsd:integer", "xsd:decimal", "xsd:double", "xsd:float"]);
                call(cast, vec![self.any(scope, next)])
            }
        }
    }

    /// An expression that is a string if all goes well.
    pub(super) fn string(&mut self, scope: &[Var], depth: usize) -> Expr {
        if depth == 0 || self.random.chance(15) {
            return match self.random.below(3) {
                0 => self.variable(scope),
                1 => call("STR", vec![self.variable(scope)]),
                _ => {
                    let texts = super::data::texts();
                    Expr::Term(self.random.pick(&texts).clone().into())
                }
            };
        }
        let next = depth - 1;
        match self.random.below(12) {
            0 | 1 => call("STR", vec![self.any(scope, next)]),
            2 => call("LANG", vec![self.any(scope, next)]),
            3 => {
                let many = self.random.below(4);
                call(
                    "CONCAT",
                    (0..many).map(|_| self.string(scope, next)).collect(),
                )
            }
            4 => {
                let mut arguments =
                    vec![self.string(scope, next), integer(1 + self.random.below(3))];
                if self.random.chance(50) {
                    arguments.push(integer(self.random.below(4)));
                }
                call("SUBSTR", arguments)
            }
            5 => {
                let function = *self.random.pick(&["UCASE", "LCASE", "ENCODE_FOR_URI"]);
                call(function, vec![self.string(scope, next)])
            }
            6 => {
                let function = *self.random.pick(&["STRBEFORE", "STRAFTER"]);
                call(function, vec![self.string(scope, next), self.needle()])
            }
            7 => {
                let hash = *self
                    .random
                    .pick(&["MD5", "SHA1", "SHA256", "SHA384", "SHA512"]);
                call(hash, vec![self.string(scope, next)])
            }
            8 => {
                let pattern = *self.random.pick(&PATTERNS);
                let with = if pattern.contains("(a)") { "<$1>" } else { "z" };
                let mut arguments = vec![self.string(scope, next), text(pattern), text(with)];
                if self.random.chance(30) {
                    arguments.push(text(self.random.pick(&FLAGS)));
                }
                call("REPLACE", arguments)
            }
            9 => call("TZ", vec![self.date(scope)]),
            10 => call("xsd:string", vec![self.any(scope, next)]),
            _ => {
                let (a, b) = (self.string(scope, next), self.string(scope, next));
                call("IF", vec![self.boolean(scope, next), a, b])
            }
        }
    }

    fn needle(&mut self) -> Expr {
        if self.random.chance(15) {
            let language = *self.random.pick(&["en", "de"]);
            return Expr::Term(
                Literal::new_language_tagged_literal_unchecked("a", language).into(),
            );
        }
        text(self.random.pick(&["a", "b", "an", "", "text", "1"]))
    }

    /// An expression that is true or false if all goes well.
    pub(super) fn boolean(&mut self, scope: &[Var], depth: usize) -> Expr {
        let next = depth.saturating_sub(1);
        match self.random.below(if depth == 0 { 8 } else { 18 }) {
            17 => self.test_of_sparql_12(scope, next),
            0..=2 => self.comparison(scope, next),
            3 => call("BOUND", vec![self.variable(scope)]),
            4 => {
                let test =
                    *self
                        .random
                        .pick(&["isIRI", "isURI", "isBlank", "isLiteral", "isNumeric"]);
                call(test, vec![self.any(scope, next)])
            }
            5 => self.text_test(scope, next),
            6 => {
                let language = call("LANG", vec![self.variable(scope)]);
                let range = text(self.random.pick(&["en", "*", "de", "en-us", "EN"]));
                call("LANGMATCHES", vec![language, range])
            }
            7 => self.always(),
            8 | 9 => {
                let operator = *self.random.pick(&["&&", "||"]);
                call(
                    operator,
                    vec![self.boolean(scope, next), self.boolean(scope, next)],
                )
            }
            10 => call("!", vec![self.boolean(scope, next)]),
            11 => call(
                "sameTerm",
                vec![self.any(scope, next), self.any(scope, next)],
            ),
            12 | 13 => {
                let operator = *self.random.pick(&["IN", "NOT IN"]);
                let mut arguments = vec![self.any(scope, next)];
                for _ in 0..self.random.below(4) {
                    arguments.push(self.any(scope, next));
                }
                call(operator, arguments)
            }
            14 => self.any(scope, next),
            _ => self.comparison(scope, next),
        }
    }

    fn comparison(&mut self, scope: &[Var], depth: usize) -> Expr {
        let operator = *self.random.pick(&["=", "!=", "<", "<=", ">", ">="]);
        let (left, right) = match self.random.below(5) {
            0 => (self.any(scope, depth), self.any(scope, depth)),
            1 => (self.number(scope, depth), self.number(scope, depth)),
            2 => (self.string(scope, depth), self.string(scope, depth)),
            3 => (self.variable(scope), self.variable(scope)),
            _ => (self.variable(scope), self.constant()),
        };
        call(operator, vec![left, right])
    }

    /// A test of what a text begins with, which some text of the data does.
    fn prefix_test(&mut self, scope: &[Var]) -> Expr {
        let data = self.data;
        let whole = match self.random.chance(35) {
            true => self.random.pick(&data.nodes).as_str(),
            false => self.random.pick(&data.literals).value(),
        };
        let length = whole.chars().count();
        let kept = match self.random.chance(30) {
            true => length,
            false => self.random.below(length.min(20) + 1),
        };
        let prefix: String = whole.chars().take(kept).collect();
        let mut tested = self.variable(scope);
        if self.random.chance(50) {
            tested = call("STR", vec![tested]);
        }
        if self.random.chance(50) {
            return call("STRSTARTS", vec![tested, text(prefix)]);
        }
        let mut pattern = String::from("^");
        for character in prefix.chars() {
            if "\\|.?*+(){}[]^$-".contains(character) {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        if kept > 0 {
            pattern += *self
                .random
                .pick(&["", "", "?", "*", "+", "{0,1}", "{1}", "|1", "."]);
        }
        call("REGEX", vec![tested, text(pattern)])
    }

    fn text_test(&mut self, scope: &[Var], depth: usize) -> Expr {
        if self.random.chance(40) {
            return self.prefix_test(scope);
        }
        if self.random.chance(30) {
            let pattern = text(self.random.pick(&PATTERNS));
            let mut arguments = vec![self.string(scope, depth), pattern];
            if self.random.chance(30) {
                arguments.push(text(self.random.pick(&FLAGS)));
            }
            return call("REGEX", arguments);
        }
        let test = *self.random.pick(&["CONTAINS", "STRSTARTS", "STRENDS"]);
        call(test, vec![self.string(scope, depth), self.needle()])
    }

    /// What is true whatever the functions without a fixed value give.
    fn always(&mut self) -> Expr {
        match self.random.below(5) {
            0 => call("<", vec![call("RAND", Vec::new()), integer(1)]),
            1 => call("isIRI", vec![call("UUID", Vec::new())]),
            2 => call(
                "=",
                vec![
                    call("STRLEN", vec![call("STRUUID", Vec::new())]),
                    integer(36),
                ],
            ),
            3 => call("isBlank", vec![call("BNODE", Vec::new())]),
            _ => call("=", vec![call("NOW", Vec::new()), call("NOW", Vec::new())]),
        }
    }

    /// An aggregate over variables in scope; SAMPLE only of keys, since it may choose.
    pub(super) fn aggregate(&mut self, scope: &[Var], keys: &[Var]) -> Expr {
        let function = *self.random.pick(&[
            "COUNT",
            "COUNT",
            "SUM",
            "AVG",
            "MIN",
            "MAX",
            "SAMPLE",
            "GROUP_CONCAT",
        ]);
        let distinct = self.random.chance(30);
        let mut aggregate = Aggregate {
            function,
            distinct,
            argument: None,
            separator: None,
        };
        match function {
            "COUNT" if self.random.chance(35) => {}
            "SAMPLE" => match keys.first() {
                Some(key) => aggregate.argument = Some(Expr::Var(*key)),
                None => aggregate.argument = Some(self.constant()),
            },
            "SUM" | "AVG" => {
                let argument = if self.random.chance(50) {
                    call(
                        "COALESCE",
                        vec![call("xsd:integer", vec![self.variable(scope)]), integer(1)],
                    )
                } else {
                    self.number(scope, 1)
                };
                aggregate.argument = Some(argument);
            }
            "GROUP_CONCAT" => {
                let argument = if self.random.chance(50) {
                    self.variable(scope)
                } else {
                    self.string(scope, 1)
                };
                aggregate.argument = Some(argument);
                if self.random.chance(60) {
                    aggregate.separator = Some("|".to_owned());
                }
                return call("STRLEN", vec![Expr::Aggregate(Box::new(aggregate))]);
            }
            _ => {
                let argument = if self.random.chance(70) {
                    self.variable(scope)
                } else {
                    self.any(scope, 1)
                };
                aggregate.argument = Some(argument);
            }
        }
        Expr::Aggregate(Box::new(aggregate))
    }
}
