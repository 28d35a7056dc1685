//! Random queries, data for them, and statistics that have nothing to do with the data.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "helpers of tests, which fail by panicking"
)]

use std::cell::RefCell;
use std::fmt::Write;

use oxrdf::{Literal, NamedNode, Term};
use stoa_planner::{Statistics, StatisticsError, SubjectGroup, SubjectSets};
use stoa_terms::{GraphSet, Position, TermId};

use super::Store;

/// A small generator of random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

const VARIABLES: &[&str] = &["?a", "?b", "?c", "?d", "?e"];
const NODES: &[&str] = &["<urn:a>", "<urn:b>", "<urn:c>"];
const PREDICATES: &[&str] = &["<urn:p>", "<urn:q>"];
const VALUES: &[&str] = &["1", "2", "3", "2.0", "\"x\"", "<urn:a>", "<urn:b>"];
const GRAPHS: &[&str] = &["<urn:g>", "<urn:h>", "<urn:none>"];

pub(crate) struct Generator {
    pub(crate) random: Random,
    /// Numbers of variables that BIND makes.
    pub(crate) made: u32,
}

impl Generator {
    fn term(&mut self, constants: &[&'static str]) -> &'static str {
        if self.random.below(8) == 0 {
            self.random.one(constants)
        } else {
            self.random.one(VARIABLES)
        }
    }

    /// A cycle of three or four patterns, each in either direction.
    fn cycle(&mut self) -> String {
        let corners = 3 + self.random.below(2);
        let mut text = String::new();
        for corner in 0..corners {
            let (a, b) = (corner, (corner + 1) % corners);
            let (a, b) = match self.random.below(2) {
                0 => (a, b),
                _ => (b, a),
            };
            let corners = ["?a", "?b", "?c", "?d"];
            let predicate = self.random.one(PREDICATES);
            let (a, b) = (corners[a as usize], corners[b as usize]);
            writeln!(text, "{a} {predicate} {b} .").unwrap();
        }
        text
    }

    fn triples(&mut self) -> String {
        if self.random.below(12) == 0 {
            return self.cycle();
        }
        let mut text = String::new();
        for _ in 0..=self.random.below(2) {
            let subject = self.term(NODES);
            let predicate = match self.random.below(14) {
                0 => self.random.one(VARIABLES).to_owned(),
                1..=3 => self.path(3),
                _ => self.random.one(PREDICATES).to_owned(),
            };
            let object = match self.random.below(12) {
                0 => "[]",
                _ => self.term(VALUES),
            };
            writeln!(text, "{subject} {predicate} {object} .").unwrap();
        }
        text
    }

    fn path(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self
                .random
                .one(&["<urn:p>", "<urn:q>", "<urn:none>", "<urn:p>"])
                .to_owned();
        }
        let below = depth - 1;
        match self.random.below(12) {
            0 | 1 => format!("({}|{})", self.path(below), self.path(below)),
            2 | 3 => format!("({}/{})", self.path(below), self.path(below)),
            4 => format!("^({})", self.path(below)),
            5 | 6 => format!("({})*", self.path(below)),
            7 => format!("({})+", self.path(below)),
            8 => format!("({})?", self.path(below)),
            9 => self
                .random
                .one(&[
                    "!<urn:p>",
                    "!(<urn:p>|^<urn:q>)",
                    "!()",
                    "!^<urn:none>",
                    "!(^<urn:p>|<urn:p>)",
                ])
                .to_owned(),
            _ => self.path(0),
        }
    }

    fn expression(&mut self, depth: u32) -> String {
        let variable = self.random.one(VARIABLES);
        match self.random.below(if depth > 0 { 14 } else { 9 }) {
            0 => format!("BOUND({variable})"),
            1 => format!("!BOUND({variable})"),
            2 => format!("{variable} = {}", self.random.one(VALUES)),
            3 => format!("{variable} != {}", self.random.one(VARIABLES)),
            4 => format!(
                "{variable} {} {}",
                self.random.one(&["<", ">=", ">"]),
                self.random.below(4)
            ),
            5 => format!("{variable} = {}", self.random.one(VARIABLES)),
            6 => format!(
                "{variable} IN ({}, {})",
                self.random.one(VALUES),
                self.random.one(VALUES)
            ),
            7 => format!("isIRI({variable})"),
            8 => format!("sameTerm({variable}, {})", self.random.one(NODES)),
            9 | 10 => format!(
                "({} {} {})",
                self.expression(depth - 1),
                self.random.one(&["&&", "||"]),
                self.expression(depth - 1)
            ),
            11 => format!("EXISTS {}", self.group(depth - 1)),
            12 => format!("NOT EXISTS {}", self.group(depth - 1)),
            _ => format!("!({})", self.expression(depth - 1)),
        }
    }

    fn group(&mut self, depth: u32) -> String {
        let mut text = "{ ".to_owned();
        if self.random.below(6) > 0 {
            text += &self.triples();
        }
        let parts = if depth == 0 { 0 } else { self.random.below(3) };
        for _ in 0..parts {
            let part = self.part(depth - 1);
            writeln!(text, "{part}").unwrap();
        }
        text + "}"
    }

    fn part(&mut self, depth: u32) -> String {
        match self.random.below(21) {
            17 | 18 => self.repeated(depth),
            19 | 20 => self.open_subquery(depth),
            0..=2 => format!("FILTER({})", self.expression(depth)),
            3..=5 => format!("OPTIONAL {}", self.group(depth)),
            6 | 7 => format!("{} UNION {}", self.group(depth), self.group(depth)),
            8 => format!("MINUS {}", self.group(depth)),
            9 => format!("GRAPH {} {}", self.random.one(GRAPHS), self.group(depth)),
            10 | 11 => format!(
                "GRAPH {} {}",
                self.random.one(&["?g", "?a"]),
                self.group(depth)
            ),
            12 => {
                self.made += 1;
                let value = match self.random.below(3) {
                    0 => self.random.one(VARIABLES).to_owned(),
                    1 => self.random.one(VALUES).to_owned(),
                    _ => self.expression(depth),
                };
                // One that stands earlier in the group is refused by the parser, and passed over.
                let variable = self.random.one(VARIABLES);
                match self.random.below(4) {
                    0 => format!("BIND({value} AS {variable})"),
                    _ => format!("BIND({value} AS ?made{})", self.made),
                }
            }
            13 => {
                let (a, b) = (self.random.one(VARIABLES), self.random.one(VALUES));
                let more = self.random.one(&["UNDEF", "2", "<urn:b>"]);
                format!("VALUES ({a} ?f) {{ ({b} {more}) (<urn:a> UNDEF) }}")
            }
            14 => self.subquery(depth),
            15 => self.triples(),
            _ => self.group(depth),
        }
    }

    /// A group or a subquery twice, the second time with other names for some variables.
    fn repeated(&mut self, depth: u32) -> String {
        let part = match self.random.below(2) {
            0 => self.group(depth),
            _ => self.subquery(depth),
        };
        let mut again = part.clone();
        for variable in VARIABLES {
            if self.random.below(2) == 0 {
                again = again.replace(variable, &variable.replace('?', "?r"));
            }
        }
        match self.random.below(4) {
            0 => format!("{part} UNION {again}"),
            1 => format!("{part} UNION {{ {again} FILTER({}) }}", self.expression(0)),
            2 => format!("{part} OPTIONAL {{ {again} }}"),
            _ => format!("{part} {again}"),
        }
    }

    /// A subquery that becomes a part of the group around it, if what stands in it and beside it lets it.
    fn open_subquery(&mut self, depth: u32) -> String {
        let (a, b, c) = (
            self.random.one(VARIABLES),
            self.random.one(VARIABLES),
            self.random.one(VARIABLES),
        );
        self.made += 1;
        let made = self.made;
        let mut group = self.triples();
        for _ in 0..=self.random.below(2) {
            group += &match self.random.below(9) {
                0..=2 => format!("FILTER({})\n", self.expression(depth.min(1))),
                3 => format!("BIND({c} AS ?made{made})\n"),
                4 => format!("BIND({} AS ?own{made})\n", self.expression(0)),
                5 => format!("OPTIONAL {{ {} }}\n", self.triples()),
                6 => format!(
                    "OPTIONAL {{ {c} <urn:p> {a} FILTER({}) }}\n",
                    self.expression(0)
                ),
                7 => format!("VALUES {c} {{ <urn:a> 1 UNDEF }}\n"),
                _ => self.triples(),
            };
        }
        let select = match self.random.below(6) {
            0 => a.to_owned(),
            1 => format!("{a} ?made{made}"),
            2 => format!("({} AS ?value{made}) {a}", self.expression(0)),
            3 => "*".to_owned(),
            _ if a == b => a.to_owned(),
            _ => format!("{a} {b}"),
        };
        let order = self.random.one(&["", "", "ORDER BY ?b"]);
        let subquery = format!("{{ SELECT {select} WHERE {{ {group} }} {order} }}");
        match self.random.below(8) {
            0 => format!(
                "GRAPH {} {subquery}",
                self.random.one(&["?g", "<urn:g>", a])
            ),
            1 => format!("OPTIONAL {subquery}"),
            2 => format!("{subquery} UNION {}", self.group(0)),
            3 => format!("{{ SELECT {a} WHERE {{ {} {subquery} }} }}", self.triples()),
            4 => format!("{subquery} {}", self.triples()),
            _ => subquery,
        }
    }

    fn subquery(&mut self, depth: u32) -> String {
        if self.random.below(3) == 0 {
            return self.open_subquery(depth);
        }
        let (a, b) = (self.random.one(VARIABLES), self.random.one(VARIABLES));
        self.made += 1;
        let made = self.made;
        let group = self.group(depth);
        match self.random.below(13) {
            10..=12 => self.over_not_exists(depth),
            // By all that is projected, so that it is certain what is cut off.
            6 | 7 => {
                let limit = ["LIMIT 1", "LIMIT 2", "OFFSET 1 LIMIT 2", "OFFSET 1"];
                let limit = self.random.one(&limit);
                format!("{{ SELECT {a} {b} WHERE {group} ORDER BY {a} {b} {limit} }}")
            }
            8 => format!("{{ SELECT DISTINCT {a} WHERE {group} ORDER BY DESC({a}) LIMIT 2 }}"),
            9 => format!(
                "{{ SELECT ({} AS {a}) {b} WHERE {group} }}",
                self.expression(1)
            ),
            5 => format!("{{ SELECT (COUNT(DISTINCT *) AS ?made{made}) WHERE {group} }}"),
            0 => format!("{{ SELECT DISTINCT {a} WHERE {group} }}"),
            1 => format!("{{ SELECT {a} (COUNT({b}) AS ?made{made}) WHERE {group} GROUP BY {a} }}"),
            2 => format!("{{ SELECT (COUNT(*) AS ?made{made}) WHERE {group} }}"),
            3 => format!(
                "{{ SELECT {a} (COUNT(DISTINCT {b}) AS ?made{made}) WHERE {group} GROUP BY {a} HAVING (COUNT(*) > 1) }}"
            ),
            _ => format!("{{ SELECT {a} WHERE {group} }}"),
        }
    }

    /// Aggregates over NOT EXISTS, most of which are the difference of total and part.
    fn over_not_exists(&mut self, depth: u32) -> String {
        let odd = |usual: &[&'static str], random: &mut Self| match random.random.below(6) {
            0 => random.group(depth),
            _ => random.random.one(usual).to_owned(),
        };
        let groups = [
            "{ SELECT DISTINCT ?a WHERE { ?a <urn:p> ?x } }",
            "{ SELECT DISTINCT ?a WHERE { ?x ?y ?a } }",
            "VALUES ?a { <urn:a> <urn:b> 1 }",
            "<urn:a> <urn:p> ?a",
        ];
        let total = [
            "?b <urn:p> ?c .",
            "?b <urn:q> ?c . ?c <urn:p> ?d FILTER(?d != ?b)",
            "?b <urn:p> ?c OPTIONAL { ?c <urn:q> ?e }",
        ];
        let pattern = [
            "{ ?b <urn:p> ?a }",
            "{ ?a <urn:q> ?b }",
            "{ ?a ?p ?x . ?x ?q ?b }",
            "{ ?a <urn:p> ?c . ?b <urn:q> ?c }",
        ];
        let groups = odd(&groups, self);
        let total = odd(&total, self);
        let pattern = odd(&pattern, self);
        let argument = self.random.one(&["?c", "?b = ?c", "?e", "?a", "?x", "1"]);
        let made = self.made;
        format!(
            "{{ SELECT ?a (COUNT(*) AS ?made{made}) (COUNT({argument}) AS ?also{made}) \
             WHERE {{ {groups} {total} FILTER NOT EXISTS {pattern} }} GROUP BY ?a }}"
        )
    }

    pub(crate) fn query(&mut self) -> String {
        let from = match self.random.below(8) {
            0 => "FROM <urn:g> ",
            1 => "FROM <urn:g> FROM <urn:h> FROM NAMED <urn:h> ",
            2 => "FROM NAMED <urn:g> ",
            _ => "",
        };
        if self.random.below(5) == 0 {
            // By all that is projected, so that LIMIT cuts at a certain place.
            let distinct = self.random.one(&["", "DISTINCT "]);
            let order = ["?a ?b ?c", "DESC(?b) ?a ?c", "?c DESC(?a) DESC(?b)"];
            let order = self.random.one(&order);
            let limit = ["LIMIT 3", "OFFSET 1 LIMIT 4", "OFFSET 2", ""];
            let limit = self.random.one(&limit);
            let group = self.group(3);
            return format!(
                "SELECT {distinct}?a ?b ?c {from}WHERE {group} ORDER BY {order} {limit}"
            );
        }
        let what = [
            "*",
            "*",
            "DISTINCT *",
            "?a",
            "?b ?nothing",
            "DISTINCT ?a ?c",
        ];
        let what = self.random.one(&what);
        format!("SELECT {what} {from}WHERE {}", self.group(3))
    }
}

/// Counts that have nothing to do with the data, so that all kinds of plans are chosen. Plans must
/// be right whatever the counts.
pub(crate) struct Lying<'a> {
    pub(crate) store: &'a Store,
    pub(crate) random: RefCell<Random>,
}

impl Lying<'_> {
    fn lie(&self) -> u64 {
        let mut random = self.random.borrow_mut();
        let size = random.below(24);
        random.below(1 << size)
    }
}

impl Statistics for Lying<'_> {
    fn term_id(&self, term: &Term) -> Result<Option<TermId>, StatisticsError> {
        self.store.term_id(term)
    }

    fn count(&self, _: [Option<TermId>; 3], _: &GraphSet) -> Result<u64, StatisticsError> {
        Ok(self.lie())
    }

    fn distinct(
        &self,
        _: [Option<TermId>; 3],
        _: Position,
        _: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        Ok(self.lie())
    }

    fn subject_sets(
        &self,
        predicates: &[TermId],
        _: &GraphSet,
        _: usize,
    ) -> Result<Option<SubjectSets>, StatisticsError> {
        let lies = || predicates.iter().map(|_| self.lie());
        let groups = (0..self.lie() % 4).map(|_| SubjectGroup {
            has: self.lie(),
            subjects: self.lie(),
            quads: lies().collect(),
        });
        Ok(Some(SubjectSets {
            groups: groups.collect(),
            others: self.lie() % 100,
            others_with: lies().zip(lies()).collect(),
        }))
    }

    fn top_values(
        &self,
        predicate: TermId,
        position: Position,
        graphs: &GraphSet,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<(TermId, u64)>, StatisticsError> {
        let top = self.store.top_values(predicate, position, graphs, go_on)?;
        Ok(top
            .into_iter()
            .map(|(term, _)| (term, self.lie()))
            .collect())
    }

    fn quads(&self) -> u64 {
        self.lie()
    }

    fn named_graphs(&self) -> u64 {
        self.lie()
    }
}

pub(crate) fn store(random: &mut Random) -> Store {
    let iri =
        |text: &str| -> Term { NamedNode::new_unchecked(text.trim_matches(['<', '>'])).into() };
    let mut store = Store::default();
    for _ in 0..26 {
        let subject = iri(random.one(NODES));
        let predicate = iri(random.one(PREDICATES));
        let object = match random.below(6) {
            0 => Literal::from(random.below(4) as i64).into(),
            1 => Literal::new_simple_literal("x").into(),
            2 => oxrdf_decimal().into(),
            _ => iri(random.one(NODES)),
        };
        let graph = match random.below(5) {
            0 => Some(iri("urn:g")),
            1 => Some(iri("urn:h")),
            _ => None,
        };
        store.insert(&subject, &predicate, &object, graph.as_ref());
    }
    store
}

fn oxrdf_decimal() -> Literal {
    Literal::new_typed_literal("2.0", oxrdf::vocab::xsd::DECIMAL)
}
