//! Joins, OPTIONAL, MINUS, EXISTS; and what is joined with UNION, VALUES, BIND and subqueries.

use super::{Builder, Expect, Text, count, reason};

impl Builder<'_> {
    pub(super) fn joins(&mut self) -> anyhow::Result<()> {
        let second = self.pick.second.as_ref().map(|it| it.iri.clone());
        let second = second.ok_or_else(|| reason("two predicates of the same subject"));
        let both = self.large().and_then(|large| Ok((large, second?)));
        self.counted(
            "join/star-2-large",
            both.map(|(p, q)| format!("?s {p} ?a ; {q} ?b")),
        );
        let sides = self.sides();
        self.counted(
            "join/star-2-small-large",
            sides.map(|(large, small)| format!("?s {large} ?a ; {small} ?b")),
        );
        for width in [3, 5, 8] {
            let star = self.star(width)?;
            self.counted(&format!("join/star-{width}"), star);
        }
        let bound = self.star_of_hub()?;
        self.counted("join/star-3-bound", bound);
        for length in [2, 3, 4] {
            let chain = self.chain(length, false)?;
            self.counted(&format!("join/chain-{length}-large"), chain);
            let chain = self.chain(length, true)?;
            self.counted(&format!("join/chain-{length}-small"), chain);
        }
        let chain = self.chain_to_hub()?;
        self.counted("join/chain-2-bound-end", chain);
        let cycle = self.two_predicates_one_object()?;
        self.counted("join/cycle-2", cycle);
        let triangle = self.triangle()?;
        self.counted("join/cycle-3", triangle);
        let keys = self.two_columns()?;
        self.counted("join/two-column-key", keys);
        let product = self.profile.predicates.last().map(|it| it.iri.clone());
        let product = product.ok_or_else(|| reason("predicate")).map(|p| {
            format!("{{ SELECT ?a {{ ?a {p} ?x }} ORDER BY ?a ?x LIMIT 300 }} {{ SELECT ?b {{ ?b {p} ?y }} ORDER BY ?b ?y LIMIT 300 }}")
        });
        self.counted("join/product", product);
        let meeting = self
            .leaf()
            .map(|(p, o)| format!("?x {p} {o} . ?x {p} ?y . ?z {p} ?y"));
        self.counted("join/common-object", meeting);
        let negated = self
            .hub()
            .map(|(p, o)| format!("?s {p} {o} ; {p} ?x FILTER(?x != {o})"));
        self.maybe("join/not-equal", negated);
        Ok(())
    }

    /// Predicates that some subject has all together, the large one and the most frequent ones.
    fn star(&self, width: usize) -> Text {
        let mut members = vec![match self.large() {
            Ok(large) => large,
            Err(why) => return Ok(Err(why)),
        }];
        // The rarest first: a star of the most frequent ones alone may multiply without bound.
        let all = self.profile.predicates.iter().rev();
        for candidate in all.filter(|it| it.count <= 3 * it.subjects) {
            if members.len() == width {
                break;
            }
            if members.contains(&candidate.iri) {
                continue;
            }
            members.push(candidate.iri.clone());
            if !self.asker.any(&star_of(&members))? {
                members.pop();
            }
        }
        Ok(if members.len() == width {
            Ok(star_of(&members))
        } else {
            Err(reason(&format!("subject with {width} suitable predicates")))
        })
    }

    fn star_of_hub(&self) -> Text {
        let (link, hub) = match self.hub() {
            Ok(pair) => pair,
            Err(why) => return Ok(Err(why)),
        };
        let mut text = format!("?s {link} {hub}");
        let mut count = 1;
        for candidate in self.profile.predicates.iter().filter(|it| it.iri != link) {
            let longer = format!("{text} ; {} ?o{count}", candidate.iri);
            if self.asker.any(&longer)? {
                text = longer;
                count += 1;
            }
            if count == 3 {
                return Ok(Ok(text));
            }
        }
        Ok(Err(reason("subject with three predicates, one to the hub")))
    }

    /// A chain of links, each from the last one's object: greedy from the largest or the smallest predicate.
    fn chain(&self, length: usize, small: bool) -> Text {
        let mut pairs = self.profile.chains.clone();
        let size = |iri: &str| self.profile.predicate(iri).map_or(0, |it| it.count);
        // The kind of the first step comes first; the next one of a small chain is small, too.
        pairs.sort_by_key(|(one, other)| {
            let key = size(one).saturating_mul(size(other));
            if small { key } else { u64::MAX - key }
        });
        for (first, second) in &pairs {
            let mut steps = vec![first.clone(), second.clone()];
            while steps.len() < length {
                let last = steps.last().cloned().unwrap_or_default();
                let mut next = pairs.iter().filter(|(one, _)| *one == last);
                let found = next.find_map(|(_, other)| {
                    let mut longer = steps.clone();
                    longer.push(other.clone());
                    match self.asker.any(&chain_of(&longer)) {
                        Ok(true) => Some(Ok(longer)),
                        Ok(false) => None,
                        Err(error) => Some(Err(error)),
                    }
                });
                match found {
                    Some(longer) => steps = longer?,
                    None => break,
                }
            }
            if steps.len() == length {
                return Ok(Ok(chain_of(&steps)));
            }
        }
        Ok(Err(reason(&format!("chain of {length} predicates"))))
    }

    fn chain_to_hub(&self) -> Text {
        let (link, hub) = match self.hub() {
            Ok(pair) => pair,
            Err(why) => return Ok(Err(why)),
        };
        for (first, second) in &self.profile.chains {
            let text = format!("?a {first} ?b . ?b {second} {hub}");
            if *second == link && self.asker.any(&text)? {
                return Ok(Ok(text));
            }
        }
        Ok(Err(reason("chain to the hub")))
    }

    /// Two predicates that lead from a subject to the same object.
    fn two_predicates_one_object(&self) -> Text {
        for (one, other) in &self.profile.stars {
            let links = |iri| self.profile.predicate(iri).is_some_and(|it| it.links());
            if links(one) && links(other) {
                let text = format!("?s {one} ?o ; {other} ?o");
                if self.asker.any(&text)? {
                    return Ok(Ok(text));
                }
            }
        }
        Ok(Err(reason(
            "subject with the same object by two predicates",
        )))
    }

    /// A chain of two whose ends a third predicate connects.
    fn triangle(&self) -> Text {
        for (first, second) in self.profile.chains.iter().take(60) {
            for (one, other) in &self.profile.stars {
                let third = match first {
                    first if first == one => other,
                    first if first == other => one,
                    _ => continue,
                };
                let text = format!("?a {first} ?b . ?b {second} ?c . ?a {third} ?c");
                if self.profile.predicate(third).is_some_and(|it| it.links())
                    && self.asker.any(&text)?
                {
                    return Ok(Ok(text));
                }
            }
        }
        Ok(Err(reason("triangle")))
    }

    /// Two patterns with two variables in common, each from its own star; the first from what leads to one node.
    fn two_columns(&self) -> Text {
        let (link, leaf) = match self.leaf() {
            Ok(pair) => pair,
            Err(why) => return Ok(Err(why)),
        };
        let from = format!("?x {link} {leaf}");
        let mut found: Vec<String> = Vec::new();
        for candidate in self.profile.predicates.iter().filter(|it| it.links()) {
            let text = format!("{from} ; {} ?v", candidate.iri);
            if self.asker.any(&text)? {
                found.push(candidate.iri.clone());
            }
            if let [one, other] = found.as_slice() {
                return Ok(Ok(format!(
                    "{from} ; {one} ?u ; {other} ?v . ?y {one} ?u ; {other} ?v"
                )));
            }
        }
        Ok(Err(reason("subject with two predicates to nodes")))
    }

    pub(super) fn optionals(&mut self) {
        let sides = self.sides();
        let of = |text: fn(&str, &str) -> String| {
            sides
                .clone()
                .map(|(large, small)| [text(&large, &small), text(&small, &large)])
        };
        let pair = of(|left, right| format!("?s {left} ?a OPTIONAL {{ ?s {right} ?b }}"));
        self.both("optional", pair, true);
        let pair = of(|left, right| {
            format!("?s {left} ?a OPTIONAL {{ ?s {right} ?b }} FILTER(!BOUND(?b))")
        });
        self.both("optional-unbound", pair, false);
        let pair = of(|left, right| format!("?s {left} ?a MINUS {{ ?s {right} ?b }}"));
        self.both("minus", pair, false);
        let pair = of(|left, right| format!("?s {left} ?a FILTER EXISTS {{ ?s {right} ?b }}"));
        self.both("exists", pair, true);
        let pair = of(|left, right| format!("?s {left} ?a FILTER NOT EXISTS {{ ?s {right} ?b }}"));
        self.both("not-exists", pair, false);
        let several = self
            .profile
            .predicates
            .iter()
            .filter(|it| it.count <= 3 * it.subjects);
        let several: String = several
            .take(4)
            .enumerate()
            .map(|(at, it)| format!(" OPTIONAL {{ ?s {} ?o{at} }}", it.iri))
            .collect();
        let text = sides
            .clone()
            .map(|(_, small)| format!("?s {small} ?a{several}"));
        self.counted("optional/several", text);
        let nested = sides.map(|(large, small)| {
            format!("?s ?p ?o FILTER(?p = {small}) OPTIONAL {{ ?s {small} ?a OPTIONAL {{ ?s {large} ?b FILTER(?b != ?a) }} }}")
        });
        self.counted("optional/nested-filter", nested);
        let disjoint = self
            .leaf()
            .map(|(p, o)| format!("?s {p} {o} MINUS {{ ?x {p} ?y }}"));
        self.counted("minus/nothing-in-common", disjoint);
        let or = self
            .hub()
            .map(|(p, o)| format!("?s {p} ?x FILTER(?x = {o} || EXISTS {{ ?x {p} ?y }})"));
        self.counted("exists/in-or", or);
    }

    /// A query with the large side left, and one with the small side left.
    fn both(&mut self, operator: &str, pair: Result<[String; 2], String>, some: bool) {
        let (first, second) = match pair {
            Ok([first, second]) => (Ok(first), Ok(second)),
            Err(why) => (Err(why.clone()), Err(why)),
        };
        for (situation, pattern) in [("large-small", first), ("small-large", second)] {
            let name = format!("{operator}/{situation}");
            if some {
                self.counted(&name, pattern);
            } else {
                self.maybe(&name, pattern);
            }
        }
    }

    pub(super) fn combined(&mut self) -> anyhow::Result<()> {
        let sides = self.sides();
        let union = sides
            .clone()
            .map(|(large, small)| format!("{{ ?s {large} ?a }} UNION {{ ?s {small} ?a }}"));
        self.counted("union/two", union.clone());
        let distinct = union.map(|it| format!("{{ SELECT DISTINCT ?s {{ {it} }} }}"));
        self.counted("union/distinct", distinct);
        let many = self.profile.predicates.iter().rev().take(10);
        let many: Vec<String> = many.map(|it| format!("{{ ?s {} ?o }}", it.iri)).collect();
        self.counted("union/ten", Ok(many.join(" UNION ")));
        let (_, small) = match sides.clone() {
            Ok(pair) => pair,
            Err(why) => (String::new(), why),
        };
        let joined = sides.clone().map(|(large, small)| {
            format!("{{ ?s {large} ?x }} UNION {{ ?x {large} ?s }} ?s {small} ?a")
        });
        self.counted("union/then-join", joined);
        for size in [1, 100, 1_000] {
            let values = if sides.is_ok() {
                let query = format!(
                    "SELECT DISTINCT ?s {{ ?s {small} ?o FILTER(isIRI(?s)) }} ORDER BY ?s LIMIT {size}"
                );
                let nodes = self.asker.column(&query)?;
                if nodes.len() < size {
                    Err(reason(&format!("{size} subjects of a small predicate")))
                } else {
                    Ok(format!("VALUES ?s {{ {} }} ?s ?p ?o", nodes.join(" ")))
                }
            } else {
                Err(small.clone())
            };
            self.counted(&format!("values/{size}"), values);
        }
        let chain = self.profile.chains.last().cloned();
        let chain = chain.ok_or_else(|| reason("chain of 2 predicates"));
        let bind = chain.map(|(p, q)| format!("?a {p} ?b BIND(?b AS ?x) ?x {q} ?c"));
        self.counted("bind/then-join", bind);
        let text = self.large().map(|p| {
            format!("{{ SELECT DISTINCT ?t {{ ?s {p} ?o BIND(CONCAT(STR(?o), \"-\") AS ?t) }} }}")
        });
        self.counted("bind/computed-distinct", text);
        let top = sides.clone().map(|(large, small)| {
            format!("SELECT ?s ?n ?a {{ {{ SELECT ?s (COUNT(*) AS ?n) {{ ?s {large} ?o }} GROUP BY ?s }} ?s {small} ?a }} ORDER BY DESC(?n) ?s LIMIT 20")
        });
        self.add("subquery/group-then-join", top, Expect::Some);
        let limited = sides.map(|(_, small)| {
            count(&format!(
                "{{ SELECT DISTINCT ?s {{ ?s {small} ?x }} ORDER BY ?s LIMIT 50 }} ?s ?p ?o"
            ))
        });
        self.add("subquery/limit-then-join", limited, Expect::Count);
        Ok(())
    }
}

fn star_of(members: &[String]) -> String {
    let arms: Vec<String> = members
        .iter()
        .enumerate()
        .map(|(at, iri)| format!("{iri} ?o{at}"))
        .collect();
    format!("?s {}", arms.join(" ; "))
}

fn chain_of(steps: &[String]) -> String {
    let links = steps.iter().enumerate();
    let links: Vec<String> = links
        .map(|(at, iri)| format!("?v{at} {iri} ?v{}", at + 1))
        .collect();
    links.join(" . ")
}
