//! GROUP BY, DISTINCT, ORDER BY.

use super::{Builder, Expect, reason};
use crate::run::operators::profile::TYPE;

/// Datatypes of numbers.
pub(super) const NUMBERS: [&str; 8] = [
    "integer",
    "decimal",
    "double",
    "float",
    "int",
    "long",
    "nonNegativeInteger",
    "positiveInteger",
];

impl Builder<'_> {
    pub(super) fn aggregates(&mut self) {
        let large = self.large();
        let typed = match self.profile.classes.is_empty() {
            false => Ok(()),
            true => Err(reason("rdf:type")),
        };
        let few = typed.map(|()| {
            format!("SELECT ?c (COUNT(?s) AS ?n) {{ ?s <{TYPE}> ?c }} GROUP BY ?c ORDER BY DESC(?n) ?c LIMIT 50")
        });
        self.add("group/few", few, Expect::Some);
        let predicates = self.profile.predicates.len() as u64;
        let by =
            "SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p ORDER BY DESC(?n) ?p LIMIT 40";
        self.add(
            "group/by-predicate",
            Ok(by.to_owned()),
            Expect::Rows(predicates.min(40)),
        );
        let by = |what: &str| {
            large.clone().map(|p| {
                format!("SELECT {what} (COUNT(*) AS ?n) {{ ?s {p} ?o }} GROUP BY {what} ORDER BY DESC(?n) {what} LIMIT 10")
            })
        };
        let (subjects, objects) = (by("?s"), by("?o"));
        self.add("group/many-subjects", subjects, Expect::Some);
        self.add("group/many-objects", objects, Expect::Some);
        let all =
            "SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s ORDER BY DESC(?n) ?s LIMIT 10";
        self.add("group/all-subjects", Ok(all.to_owned()), Expect::Some);
        let two = large.clone().map(|p| {
            format!("SELECT (COUNT(*) AS ?groups) (MAX(?n) AS ?most) {{ SELECT ?q ?o (COUNT(*) AS ?n) {{ ?s {p} ?x ; ?q ?o }} GROUP BY ?q ?o }}")
        });
        self.add("group/two-keys-of-join", two, Expect::Rows(1));
        for (name, of) in [("subjects", "?s"), ("objects", "?o")] {
            let text = format!("SELECT (COUNT(DISTINCT {of}) AS ?n) {{ ?s ?p ?o }}");
            self.add(&format!("count-distinct/{name}"), Ok(text), Expect::Count);
        }
        let each = "SELECT ?p (COUNT(DISTINCT ?o) AS ?n) { ?s ?p ?o } GROUP BY ?p ORDER BY DESC(?n) ?p LIMIT 40";
        self.add(
            "count-distinct/by-predicate",
            Ok(each.to_owned()),
            Expect::Some,
        );
        let concatenated = self.sides().map(|(_, small)| {
            format!("SELECT (SUM(STRLEN(?t)) AS ?n) {{ SELECT ?s (GROUP_CONCAT(STR(?o); SEPARATOR=\" \") AS ?t) {{ ?s {small} ?o }} GROUP BY ?s }}")
        });
        self.add("group-concat/small", concatenated, Expect::Count);
        let concatenated = large.clone().map(|p| {
            format!("SELECT (SUM(STRLEN(?t)) AS ?n) {{ SELECT ?s (GROUP_CONCAT(STR(?o); SEPARATOR=\" \") AS ?t) {{ ?s {p} ?o }} GROUP BY ?s }}")
        });
        self.add("group-concat/large", concatenated, Expect::Count);
        let having = large.clone().map(|p| {
            format!("SELECT (COUNT(*) AS ?n) {{ SELECT ?s {{ ?s {p} ?o }} GROUP BY ?s HAVING(COUNT(*) > 1) }}")
        });
        self.add("group/having", having, Expect::Rows(1));
        let none = "SELECT (COUNT(*) AS ?n) { ?s <http://stoa.example/nowhere> ?o }";
        self.add("group/of-nothing", Ok(none.to_owned()), Expect::Rows(1));
        let extremes = large
            .map(|p| format!("SELECT (MIN(STR(?o)) AS ?a) (MAX(STR(?o)) AS ?b) {{ ?s {p} ?o }}"));
        self.add("group/min-max-texts", extremes, Expect::Rows(1));
        self.numbers();
        self.distincts();
    }

    fn numbers(&mut self) {
        let numeric = self.with_objects(&NUMBERS).map(|it| it.iri.clone());
        let numeric = numeric.ok_or_else(|| reason("predicate to numbers"));
        let all = numeric.clone().map(|p| {
            format!("SELECT (MIN(?o) AS ?a) (MAX(?o) AS ?b) (AVG(?o) AS ?c) (SUM(?o) AS ?d) (COUNT(?o) AS ?n) {{ ?s {p} ?o }}")
        });
        self.add("group/numbers", all, Expect::Rows(1));
        let each = numeric.map(|p| {
            format!("SELECT ?q ?v (AVG(?o) AS ?a) (COUNT(*) AS ?n) {{ ?s {p} ?o ; ?q ?v }} GROUP BY ?q ?v ORDER BY DESC(?n) ?q ?v LIMIT 20")
        });
        self.add("group/mean-of-many", each, Expect::Some);
    }

    fn distincts(&mut self) {
        let of = |what: &str, pattern: String| {
            format!("SELECT (COUNT(*) AS ?n) {{ SELECT DISTINCT {what} {{ {pattern} }} }}")
        };
        let large = self.large();
        self.add(
            "distinct/few",
            Ok("SELECT DISTINCT ?p { ?s ?p ?o }".to_owned()),
            Expect::Some,
        );
        let many = large.clone().map(|p| of("?o", format!("?s {p} ?o")));
        self.add("distinct/objects", many, Expect::Count);
        let pairs = large
            .clone()
            .map(|p| of("?s ?q", format!("?s {p} ?o ; ?q ?v")));
        self.add("distinct/pairs-of-join", pairs, Expect::Count);
        let all = of("?s ?p", "?s ?p ?o".to_owned());
        self.add("distinct/all-pairs", Ok(all), Expect::Count);
        let limited = large.map(|p| format!("SELECT DISTINCT ?s {{ ?s {p} ?o }} LIMIT 100"));
        self.add("distinct/limit", limited, Expect::Some);
    }

    pub(super) fn orders(&mut self) {
        let large = self.large();
        let of = |order: &str, end: &str| {
            large
                .clone()
                .map(|p| format!("SELECT ?s ?o {{ ?s {p} ?o }} ORDER BY {order} {end}"))
        };
        let [by_object, by_subject, two, offset] = [
            of("?o ?s", "LIMIT 100"),
            of("DESC(?s) ?o", "LIMIT 100"),
            of("STRLEN(STR(?o)) ?o ?s", "LIMIT 100"),
            of("?o ?s", "OFFSET 10000 LIMIT 100"),
        ];
        self.add("order/limit-objects", by_object, Expect::Some);
        self.add("order/limit-subjects-descending", by_subject, Expect::Some);
        self.add("order/limit-computed", two, Expect::Some);
        self.add("order/offset", offset, Expect::Any);
        let unlimited = self
            .bounded(100_000)
            .map(|p| format!("SELECT ?s ?o {{ ?s {p} ?o }} ORDER BY ?o ?s"));
        self.add("order/all", unlimited, Expect::Some);
        let numeric = self.with_objects(&NUMBERS).map(|it| it.iri.clone());
        let numeric = numeric.ok_or_else(|| reason("predicate to numbers"));
        let text =
            numeric.map(|p| format!("SELECT ?s ?o {{ ?s {p} ?o }} ORDER BY DESC(?o) ?s LIMIT 100"));
        self.add("order/limit-numbers", text, Expect::Some);
        let join = self.sides().map(|(large, small)| {
            format!("SELECT ?s ?a ?b {{ ?s {large} ?a ; {small} ?b }} ORDER BY ?b ?a ?s LIMIT 100")
        });
        self.add("order/limit-of-join", join, Expect::Some);
    }

    /// The largest predicate with at most this many triples.
    pub(super) fn bounded(&self, most: u64) -> Result<String, String> {
        let found = self.profile.predicates.iter().find(|it| it.count <= most);
        found
            .map(|it| it.iri.clone())
            .ok_or_else(|| reason(&format!("predicate with at most {most} triples")))
    }
}
