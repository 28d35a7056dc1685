//! The queries: one for each operator and situation, made from what the data are like.
//!
//! Where an answer is only a number, it is the count of what the operator gives, so that sending rows takes no time.

mod aggregates;
mod graphs;
mod joins;
mod paths;
#[cfg(test)]
mod tests;
mod texts;

use super::profile::{Asker, Predicate, Profile, TYPE};
use super::set::{Entry, Expect, Set};

/// A query, or why the data have no such situation.
type Text = anyhow::Result<Result<String, String>>;

/// Makes the queries of a dataset.
pub(super) struct Builder<'a> {
    asker: &'a Asker<'a>,
    profile: &'a Profile,
    entries: Vec<Entry>,
    pick: Pick,
}

/// What most queries are about.
struct Pick {
    /// The predicate with the most triples.
    large: Option<Predicate>,
    /// A predicate that shares subjects with the large one and has the fewest triples of those.
    small: Option<Predicate>,
    /// The second largest with subjects in common with the large one.
    second: Option<Predicate>,
    /// The largest predicate to nodes.
    link: Option<Predicate>,
    /// A node that many triples of `link` lead to, and one that few lead to.
    hub: Option<String>,
    leaf: Option<String>,
    /// A subject of the large predicate with the most of its triples.
    subject: Option<String>,
}

/// What is said when something is not there.
fn reason(what: &str) -> String {
    format!("the data have no {what}")
}

/// The count of a pattern's solutions, as a query.
fn count(pattern: &str) -> String {
    format!("SELECT (COUNT(*) AS ?n) {{ {pattern} }}")
}

/// The node at one end of a predicate that has the most or the fewest triples of it.
fn extreme(
    asker: &Asker<'_>,
    predicate: &str,
    end: &str,
    order: &str,
) -> anyhow::Result<Option<String>> {
    let first = asker.first(&format!(
        "SELECT {end} (COUNT(*) AS ?n) {{ ?s {predicate} ?o FILTER(isIRI({end})) }} GROUP BY {end} ORDER BY {order} {end} LIMIT 1"
    ))?;
    Ok(first.and_then(|row| row.into_iter().next()))
}

impl Pick {
    fn new(asker: &Asker<'_>, profile: &Profile) -> anyhow::Result<Self> {
        let large = profile.predicates.first().cloned();
        let partners: Vec<Predicate> = profile
            .stars
            .iter()
            .filter_map(|(one, other)| match &large {
                Some(large) if *one == large.iri => profile.predicate(other).cloned(),
                Some(large) if *other == large.iri => profile.predicate(one).cloned(),
                _ => None,
            })
            .collect();
        let link = profile.predicates.iter().find(|it| it.links()).cloned();
        let end = |end, order| match &link {
            Some(link) => extreme(asker, &link.iri, end, order),
            None => Ok(None),
        };
        Ok(Self {
            second: partners.iter().max_by_key(|it| it.count).cloned(),
            small: partners.iter().min_by_key(|it| it.count).cloned(),
            hub: end("?o", "DESC(?n)")?,
            leaf: end("?o", "?n")?,
            subject: match &large {
                Some(large) => extreme(asker, &large.iri, "?s", "DESC(?n)")?,
                None => None,
            },
            link,
            large,
        })
    }
}

impl<'a> Builder<'a> {
    /// # Errors
    /// When the endpoint does not answer what the queries are made from.
    pub(super) fn set(asker: &'a Asker<'a>, profile: &'a Profile) -> anyhow::Result<Set> {
        let mut builder = Self {
            asker,
            profile,
            entries: Vec::new(),
            pick: Pick::new(asker, profile)?,
        };
        builder.scans();
        builder.joins()?;
        builder.optionals();
        builder.aggregates();
        builder.orders();
        builder.ranges()?;
        builder.texts()?;
        builder.paths()?;
        builder.combined()?;
        builder.exports();
        builder.describes();
        builder.graphs()?;
        Ok(Set {
            triples: profile.triples,
            entries: builder.entries,
        })
    }

    fn add(&mut self, name: &str, query: Result<String, String>, expect: Expect) {
        self.entries.push(Entry {
            name: name.to_owned(),
            query,
            expect,
            large: false,
        });
    }

    /// A count that the profile shows to be above 0.
    fn counted(&mut self, name: &str, pattern: Result<String, String>) {
        self.add(name, pattern.map(|it| count(&it)), Expect::Count);
    }

    /// A count that may be 0.
    fn maybe(&mut self, name: &str, pattern: Result<String, String>) {
        self.add(name, pattern.map(|it| count(&it)), Expect::Rows(1));
    }

    /// The most frequent predicate of a kind.
    fn with_objects(&self, datatypes: &[&str]) -> Option<&Predicate> {
        let all = self.profile.predicates.iter();
        all.filter(|it| 2 * it.of(datatypes) > it.count)
            .max_by_key(|it| it.count)
    }

    /// The large predicate and the one with few triples.
    fn sides(&self) -> Result<(String, String), String> {
        let pair = self.pick.large.as_ref().zip(self.pick.small.as_ref());
        pair.map(|(large, small)| (large.iri.clone(), small.iri.clone()))
            .ok_or_else(|| reason("two predicates of the same subject"))
    }

    fn large(&self) -> Result<String, String> {
        let large = self.pick.large.as_ref();
        large
            .map(|it| it.iri.clone())
            .ok_or_else(|| reason("predicate"))
    }

    fn link(&self) -> Result<String, String> {
        let link = self.pick.link.as_ref();
        link.map(|it| it.iri.clone())
            .ok_or_else(|| reason("predicate to nodes"))
    }

    fn hub(&self) -> Result<(String, String), String> {
        let hub = self
            .pick
            .hub
            .clone()
            .ok_or_else(|| reason("predicate to IRIs"))?;
        Ok((self.link()?, hub))
    }

    fn leaf(&self) -> Result<(String, String), String> {
        let leaf = self
            .pick
            .leaf
            .clone()
            .ok_or_else(|| reason("predicate to IRIs"))?;
        Ok((self.link()?, leaf))
    }

    fn subject(&self) -> Result<String, String> {
        self.pick
            .subject
            .clone()
            .ok_or_else(|| reason("subject with an IRI"))
    }

    fn scans(&mut self) {
        let rows = self.profile.triples.min(1_000);
        self.counted("scan/all", Ok("?s ?p ?o".to_owned()));
        self.counted("scan/predicate", self.large().map(|p| format!("?s {p} ?o")));
        self.counted(
            "scan/object-large",
            self.hub().map(|(p, o)| format!("?s {p} {o}")),
        );
        self.counted(
            "scan/object-small",
            self.leaf().map(|(p, o)| format!("?s {p} {o}")),
        );
        let query = self.hub().map(|(_, o)| format!("?s ?p {o}"));
        self.counted("scan/object-any-predicate", query);
        let query = self
            .subject()
            .map(|s| format!("SELECT ?p ?o {{ {s} ?p ?o }}"));
        self.add("scan/subject", query, Expect::Some);
        self.add(
            "scan/limit",
            Ok("SELECT * { ?s ?p ?o } LIMIT 1000".to_owned()),
            Expect::Rows(rows),
        );
        let class = self.profile.classes.first().map(|it| it.0.clone());
        let class = class.ok_or_else(|| reason("rdf:type"));
        self.counted(
            "scan/class-large",
            class.map(|c| format!("?s <{TYPE}> {c}")),
        );
        let class = self.profile.classes.last().map(|it| it.0.clone());
        let class = class.ok_or_else(|| reason("rdf:type"));
        self.counted(
            "scan/class-small",
            class.map(|c| format!("?s <{TYPE}> {c}")),
        );
        let ask = self.hub().map(|(p, o)| format!("ASK {{ ?s {p} {o} }}"));
        self.add("scan/ask", ask, Expect::Some);
    }
}
