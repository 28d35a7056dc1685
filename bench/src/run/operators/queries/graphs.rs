//! Queries in one of many graphs.

use super::{Builder, Expect, count, reason};

impl Builder<'_> {
    pub(super) fn graphs(&mut self) -> anyhow::Result<()> {
        let graphs = &self.profile.graphs;
        let largest = graphs.first().map(|it| it.0.clone());
        let largest = largest.ok_or_else(|| reason("named graphs"));
        let smallest = match graphs.len() {
            0 => Err(reason("named graphs")),
            1 => Err("the data have only one named graph".to_owned()),
            _ => graphs
                .last()
                .map(|it| it.0.clone())
                .ok_or_else(|| reason("named graphs")),
        };
        let predicate = match &largest {
            Ok(graph) => self.asker.first(&format!(
                "SELECT ?p (COUNT(*) AS ?n) {{ GRAPH {graph} {{ ?s ?p ?o }} }} GROUP BY ?p ORDER BY DESC(?n) ?p LIMIT 1"
            ))?,
            Err(_) => None,
        };
        let predicate = predicate.and_then(|row| row.into_iter().next());
        let within = largest.clone().and_then(|graph| {
            Ok((
                graph,
                predicate.ok_or_else(|| reason("predicate in a named graph"))?,
            ))
        });
        let all = |graph: String| format!("GRAPH {graph} {{ ?s ?p ?o }}");
        self.counted("graph/large", largest.clone().map(all));
        self.counted("graph/small", smallest.clone().map(all));
        let one = within
            .clone()
            .map(|(g, p)| format!("GRAPH {g} {{ ?s {p} ?o }}"));
        self.counted("graph/predicate-in-one", one);
        let every = within
            .clone()
            .map(|(_, p)| format!("GRAPH ?g {{ ?s {p} ?o }}"));
        self.counted("graph/predicate-in-any", every);
        let join = within
            .clone()
            .map(|(g, p)| format!("GRAPH {g} {{ ?s {p} ?a ; ?q ?b }}"));
        self.counted("graph/join-in-one", join);
        let across = smallest
            .clone()
            .map(|g| format!("GRAPH {g} {{ ?s ?p ?o }} GRAPH ?h {{ ?s ?q ?v }}"));
        self.counted("graph/join-across", across);
        let list = largest.clone().map(|_| {
            "SELECT ?g (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g ORDER BY DESC(?n) ?g LIMIT 20".to_owned()
        });
        self.add("graph/group", list, Expect::Some);
        let from = smallest.map(|g| format!("SELECT (COUNT(*) AS ?n) FROM {g} {{ ?s ?p ?o }}"));
        self.add("graph/from", from, Expect::Count);
        let distinct = largest.map(|_| count("{ SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } } }"));
        self.add("graph/distinct", distinct, Expect::Count);
        Ok(())
    }
}
