//! Ranges of numbers and dates, and filters over all literals.

use super::aggregates::NUMBERS;
use super::{Builder, Expect, count, reason};

const LANGUAGE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString";

impl Builder<'_> {
    pub(super) fn ranges(&mut self) -> anyhow::Result<()> {
        let numeric = self.with_objects(&NUMBERS).map(|it| it.iri.clone());
        self.range("number", numeric, "predicate to numbers", |p, it| {
            format!(
                "{{ SELECT (AVG(?x) AS ?mean) {{ ?y {p} ?x }} }} ?s {p} ?o FILTER(?o {it} ?mean)"
            )
        })?;
        let dated = self
            .with_objects(&["date", "dateTime"])
            .map(|it| it.iri.clone());
        self.range("date", dated.clone(), "predicate to dates", |p, it| {
            format!("{{ SELECT (MAX(YEAR(?x)) AS ?year) {{ ?y {p} ?x }} }} ?s {p} ?o FILTER(YEAR(?o) {it} ?year)")
        })?;
        let dated = dated.ok_or_else(|| reason("predicate to dates"));
        let years = dated.map(|p| {
            format!("SELECT ?y (COUNT(*) AS ?n) {{ ?s {p} ?o BIND(YEAR(?o) AS ?y) }} GROUP BY ?y ORDER BY DESC(?n) ?y LIMIT 20")
        });
        self.add("range/group-by-year", years, Expect::Some);
        Ok(())
    }

    /// Everything, one value, an interval from the least value on, its join; and against a computed value.
    fn range(
        &mut self,
        kind: &str,
        predicate: Option<String>,
        missing: &str,
        computed: fn(&str, &str) -> String,
    ) -> anyhow::Result<()> {
        let mut bounds = Err(reason(missing));
        if let Some(p) = predicate {
            let query = format!("SELECT (MIN(?o) AS ?a) (MAX(?o) AS ?b) {{ ?s {p} ?o }}");
            bounds = match self.asker.first(&query)?.as_deref() {
                Some([low, high]) => Ok((p, low.clone(), high.clone())),
                _ => Err(reason(missing)),
            };
        }
        let of = |text: &dyn Fn(&str, &str, &str) -> String| {
            bounds.clone().map(|(p, low, high)| text(&p, &low, &high))
        };
        let all = of(&|p, low, high| format!("?s {p} ?o FILTER(?o >= {low} && ?o <= {high})"));
        let one = of(&|p, _, high| format!("?s {p} ?o FILTER(?o = {high})"));
        let most = of(&|p, low, _| format!("?s {p} ?o FILTER(?o > {low})"));
        let none = of(&|p, low, _| format!("?s {p} ?o FILTER(?o < {low})"));
        let top = of(&|p, _, high| format!("?s {p} ?o FILTER(?o >= {high}) ?s ?q ?v"));
        let mean = of(&|p, _, _| computed(p, "<="));
        self.counted(&format!("range/{kind}-all"), all);
        self.counted(&format!("range/{kind}-one"), one);
        self.maybe(&format!("range/{kind}-most"), most);
        self.maybe(&format!("range/{kind}-none"), none);
        self.counted(&format!("range/{kind}-join"), top);
        self.counted(&format!("range/{kind}-computed"), mean);
        Ok(())
    }

    pub(super) fn texts(&mut self) -> anyhow::Result<()> {
        let word = self.word()?;
        let literal = "?s ?p ?o FILTER(isLiteral(?o))";
        for (name, test) in [
            ("contains", "CONTAINS(STR(?o), \"$W\")"),
            (
                "contains-lower-case",
                "CONTAINS(LCASE(STR(?o)), LCASE(\"$W\"))",
            ),
            ("regex-word", "REGEX(STR(?o), \"$W\")"),
            ("regex-any-case", "REGEX(STR(?o), \"$W\", \"i\")"),
            ("regex-pattern", "REGEX(STR(?o), \"$W[a-z ]*\")"),
            (
                "strends-substr",
                "STRENDS(SUBSTR(STR(?o), 1, 1000), \"$W\") || CONTAINS(STR(?o), \"$W\")",
            ),
            (
                "strbefore",
                "STRBEFORE(CONCAT(\"x\", STR(?o)), \"$W\") != \"\"",
            ),
            (
                "replace",
                "STRLEN(REPLACE(STR(?o), \"$W\", \"\")) < STRLEN(STR(?o))",
            ),
        ] {
            let text = word
                .clone()
                .map(|word| format!("{literal} FILTER({})", test.replace("$W", &word)));
            self.counted(&format!("text/{name}"), text);
        }
        let first = word.clone().map(|word| word.chars().next().unwrap_or('a'));
        let starts =
            first.map(|first| format!("{literal} FILTER(STRSTARTS(STR(?o), \"{first}\"))"));
        self.maybe("text/strstarts", starts);
        let absent = format!("{literal} FILTER(REGEX(STR(?o), \"^zqx[0-9]+qz$\"))");
        self.maybe("text/regex-nothing", Ok(absent));
        let longest = "SELECT (MAX(STRLEN(STR(?o))) AS ?n) { ?s ?p ?o FILTER(isLiteral(?o)) }";
        self.add("text/strlen", Ok(longest.to_owned()), Expect::Count);
        let sum =
            format!("SELECT (SUM(STRLEN(?u)) AS ?n) {{ {literal} BIND(UCASE(STR(?o)) AS ?u) }}");
        self.add("text/ucase", Ok(sum), Expect::Count);
        let types = "SELECT ?d (COUNT(*) AS ?n) { ?s ?p ?o BIND(DATATYPE(?o) AS ?d) } GROUP BY ?d ORDER BY DESC(?n) ?d";
        self.add("text/datatypes", Ok(types.to_owned()), Expect::Some);
        self.languages(literal)?;
        Ok(())
    }

    fn languages(&mut self, literal: &str) -> anyhow::Result<()> {
        let tagged = self.with_objects(&[LANGUAGE]).map(|it| it.iri.clone());
        let mut language = Err(reason("predicate to texts with languages"));
        if let Some(p) = tagged {
            let query =
                format!("SELECT (MIN(LANG(?o)) AS ?l) {{ ?s {p} ?o FILTER(LANG(?o) != \"\") }}");
            if let Some([text]) = self.asker.first(&query)?.as_deref() {
                language = Ok(text.clone());
            }
        }
        let equal = language
            .clone()
            .map(|l| format!("{literal} FILTER(LANG(?o) = {l})"));
        self.counted("language/equal", equal);
        let matches = language
            .clone()
            .map(|l| format!("{literal} FILTER(LANGMATCHES(LANG(?o), {l}))"));
        self.counted("language/matches", matches);
        let group = language.map(|_| {
            "SELECT ?l (COUNT(*) AS ?n) { ?s ?p ?o FILTER(isLiteral(?o)) BIND(LANG(?o) AS ?l) } GROUP BY ?l ORDER BY DESC(?n) ?l".to_owned()
        });
        self.add("language/group", group, Expect::Some);
        Ok(())
    }

    /// A word of letters in a text of the data: of the last one in order.
    fn word(&self) -> anyhow::Result<Result<String, String>> {
        let texts = self
            .profile
            .predicates
            .iter()
            .filter(|it| 2 * it.of(&["string", LANGUAGE]) > it.count);
        for predicate in texts {
            let query = format!(
                "SELECT (MAX(STR(?o)) AS ?m) {{ ?s {} ?o FILTER(isLiteral(?o)) }}",
                predicate.iri
            );
            let text = self.asker.first(&query)?.unwrap_or_default().join("");
            let mut words = text.split(|letter: char| !letter.is_ascii_alphabetic());
            if let Some(word) = words.find(|word| word.len() >= 4) {
                return Ok(Ok(word.to_owned()));
            }
        }
        Ok(Err(reason(
            "predicate to texts with a word of four letters",
        )))
    }

    pub(super) fn exports(&mut self) {
        let triples = self.profile.triples;
        for (name, rows) in [("100k", 100_000), ("1m", 1_000_000), ("10m", 10_000_000)] {
            let query = if triples >= rows {
                Ok(format!("SELECT * {{ ?s ?p ?o }} LIMIT {rows}"))
            } else {
                Err(format!("the data have only {triples} triples"))
            };
            self.add(&format!("export/{name}"), query, Expect::Rows(rows));
            self.make_last_large();
        }
        let largest = self
            .profile
            .predicates
            .iter()
            .find(|it| it.count <= 12_000_000);
        let expect = largest.map_or(Expect::Any, |it| Expect::Rows(it.count));
        let query = largest.map(|it| format!("SELECT ?s ?o {{ ?s {} ?o }}", it.iri));
        let query = query.ok_or_else(|| reason("predicate with at most 12000000 triples"));
        self.add("export/predicate", query, expect);
        self.make_last_large();
        let construct = self.bounded(200_000).map(|p| {
            format!("CONSTRUCT {{ ?o <http://stoa.example/of> ?s }} WHERE {{ ?s {p} ?o FILTER(isIRI(?o)) }}")
        });
        self.add("export/construct", construct, Expect::Any);
    }

    fn make_last_large(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            last.large = true;
        }
    }

    pub(super) fn describes(&mut self) {
        let small = self.leaf().map(|(_, node)| format!("DESCRIBE {node}"));
        self.add("describe/small", small, Expect::Any);
        let large = self.subject().map(|node| format!("DESCRIBE {node}"));
        self.add("describe/most-triples", large, Expect::Some);
        let hub = self.hub().map(|(_, node)| format!("DESCRIBE {node}"));
        self.add("describe/hub", hub, Expect::Any);
        let some = self
            .leaf()
            .map(|(p, node)| format!("DESCRIBE ?s {{ ?s {p} {node} }}"));
        self.add("describe/found", some, Expect::Some);
        let branches = self.hub().map(|(p, node)| {
            count(&format!(
                "?s {p} ?o BIND(IF(?o = {node}, 1, 0) AS ?x) FILTER(COALESCE(?x + 1, 0) > 1)"
            ))
        });
        self.add("expression/if-coalesce", branches, Expect::Count);
    }
}
