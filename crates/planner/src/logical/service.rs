//! SERVICE: its pattern as text again, and the variables that it binds.
//!
//! # References
//! SPARQL 1.1 Federated Query, section 2.

use hashbrown::HashSet;
use rapidhash::fast::RandomState;
use spargebra::algebra::{Expression, GraphPattern};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern, Variable as Name};

use super::translate::Translator;
use super::{Node, Op};
use crate::physical::{ServiceCall, ServiceEndpoint};

type Names<'a> = HashSet<&'a str, RandomState>;

impl<'a> Translator<'a> {
    #[inline(never)]
    pub(super) fn service(
        &mut self,
        name: &'a NamedNodePattern,
        inner: &'a GraphPattern,
        silent: bool,
    ) -> Node {
        let endpoint = match name {
            NamedNodePattern::NamedNode(iri) => ServiceEndpoint::Constant(iri.clone()),
            NamedNodePattern::Variable(name) => {
                ServiceEndpoint::Variable(self.variable(name.as_str()))
            }
        };
        let mut names: Vec<&'a str> = Vec::new();
        inner.on_in_scope_variable(|name| {
            if !names.contains(&name.as_str()) {
                names.push(name.as_str());
            }
        });
        let always = always_bound(inner);
        let mut variables = Vec::with_capacity(names.len());
        let mut bound = Vec::new();
        for name in names {
            let variable = self.variable(name);
            if always.contains(name) {
                bound.push(variable);
            }
            variables.push((variable, name.to_owned()));
        }
        Node::service(ServiceCall {
            endpoint,
            silent,
            pattern: text(inner).into(),
            variables,
            bound,
        })
    }
}

/// Whether a node asks another endpoint.
pub(crate) fn asks_others(node: &Node) -> bool {
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        if matches!(node.op, Op::Service(_)) {
            return true;
        }
        open.extend(node.parts());
    }
    false
}

/// The variables that every solution of a pattern binds.
fn always_bound(pattern: &GraphPattern) -> Names<'_> {
    use GraphPattern as P;
    let mut names = Names::default();
    match pattern {
        P::Bgp { patterns } => patterns
            .iter()
            .for_each(|triple| triple_names(triple, &mut names)),
        P::Path {
            subject, object, ..
        } => {
            term_names(subject, &mut names);
            term_names(object, &mut names);
        }
        P::Join { left, right } | P::Lateral { left, right } => {
            names = always_bound(left);
            names.extend(always_bound(right));
        }
        P::Union { left, right } => {
            let right = always_bound(right);
            names = always_bound(left);
            names.retain(|name| right.contains(name));
        }
        P::Graph { name, inner } => {
            names = always_bound(inner);
            if let NamedNodePattern::Variable(name) = name {
                names.insert(name.as_str());
            }
        }
        P::Values {
            variables,
            bindings,
        } => names.extend(
            variables
                .iter()
                .enumerate()
                .filter(|(column, _)| {
                    bindings
                        .iter()
                        .all(|row| matches!(row.get(*column), Some(Some(_))))
                })
                .map(|(_, name)| name.as_str()),
        ),
        P::Service {
            inner,
            silent: false,
            ..
        }
        | P::LeftJoin { left: inner, .. }
        | P::Minus { left: inner, .. }
        | P::Filter { inner, .. }
        | P::Extend { inner, .. }
        | P::OrderBy { inner, .. }
        | P::Distinct { inner }
        | P::Reduced { inner }
        | P::Slice { inner, .. } => names = always_bound(inner),
        P::Project { inner, variables }
        | P::Group {
            inner, variables, ..
        } => {
            names = always_bound(inner);
            names.retain(|name| variables.iter().any(|kept| kept.as_str() == *name));
        }
        P::Service { silent: true, .. } => {}
    }
    names
}

fn triple_names<'a>(triple: &'a TriplePattern, names: &mut Names<'a>) {
    term_names(&triple.subject, names);
    if let NamedNodePattern::Variable(name) = &triple.predicate {
        names.insert(name.as_str());
    }
    term_names(&triple.object, names);
}

fn term_names<'a>(term: &'a TermPattern, names: &mut Names<'a>) {
    match term {
        TermPattern::Variable(name) => drop(names.insert(name.as_str())),
        TermPattern::Triple(triple) => triple_names(triple, names),
        TermPattern::NamedNode(_) | TermPattern::Literal(_) | TermPattern::BlankNode(_) => {}
    }
}

/// A pattern as it stands between the braces of a group.
fn text(pattern: &GraphPattern) -> String {
    let mut pattern = pattern.clone();
    keep_apart(&mut pattern);
    pattern.to_string()
}

/// spargebra writes a group that is filtered and then joined without braces of its own, so that its
/// FILTER would see what it is joined with. As a subquery it has its own.
fn keep_apart(pattern: &mut GraphPattern) {
    use GraphPattern as P;
    match pattern {
        P::Bgp { .. } | P::Path { .. } | P::Values { .. } => {}
        P::Join { left, right } | P::Minus { left, right } | P::Lateral { left, right } => {
            keep_apart(left);
            keep_apart(right);
            enclose(left);
        }
        P::LeftJoin {
            left,
            right,
            expression,
        } => {
            keep_apart(left);
            keep_apart(right);
            enclose(left);
            // The condition of OPTIONAL is a FILTER of its group, too.
            enclose(right);
            expression.iter_mut().for_each(keep_apart_in);
        }
        P::Union { left, right } => {
            keep_apart(left);
            keep_apart(right);
        }
        P::Filter { expr, inner } => {
            keep_apart_in(expr);
            keep_apart(inner);
        }
        P::Extend {
            inner, expression, ..
        } => {
            keep_apart_in(expression);
            keep_apart(inner);
            enclose(inner);
        }
        P::Graph { inner, .. }
        | P::Service { inner, .. }
        | P::OrderBy { inner, .. }
        | P::Project { inner, .. }
        | P::Distinct { inner }
        | P::Reduced { inner }
        | P::Slice { inner, .. }
        | P::Group { inner, .. } => keep_apart(inner),
    }
}

/// Makes a filtered group a subquery.
fn enclose(pattern: &mut GraphPattern) {
    if !matches!(pattern, GraphPattern::Filter { .. }) {
        return;
    }
    let inner = std::mem::take(pattern);
    let mut variables: Vec<Name> = Vec::new();
    inner.on_in_scope_variable(|name| {
        if !variables.contains(name) {
            variables.push(name.clone());
        }
    });
    *pattern = GraphPattern::Project {
        inner: Box::new(inner),
        variables,
    };
}

/// The same for the patterns of EXISTS.
fn keep_apart_in(expression: &mut Expression) {
    use Expression as E;
    match expression {
        E::NamedNode(_) | E::Literal(_) | E::Variable(_) | E::Bound(_) => {}
        E::Exists(pattern) => keep_apart(pattern),
        E::Or(left, right)
        | E::And(left, right)
        | E::Equal(left, right)
        | E::SameTerm(left, right)
        | E::Greater(left, right)
        | E::GreaterOrEqual(left, right)
        | E::Less(left, right)
        | E::LessOrEqual(left, right)
        | E::Add(left, right)
        | E::Subtract(left, right)
        | E::Multiply(left, right)
        | E::Divide(left, right) => {
            keep_apart_in(left);
            keep_apart_in(right);
        }
        E::UnaryPlus(inner) | E::UnaryMinus(inner) | E::Not(inner) => keep_apart_in(inner),
        E::If(condition, then, otherwise) => {
            for inner in [condition, then, otherwise] {
                keep_apart_in(inner);
            }
        }
        E::In(needle, list) => {
            keep_apart_in(needle);
            list.iter_mut().for_each(keep_apart_in);
        }
        E::Coalesce(list) | E::FunctionCall(_, list) => list.iter_mut().for_each(keep_apart_in),
    }
}

#[cfg(test)]
mod tests {
    use spargebra::{Query, SparqlParser};

    use super::*;

    fn parsed(text: &str) -> GraphPattern {
        let text = format!("SELECT * {{ {text} }}");
        match SparqlParser::new().parse_query(&text).unwrap() {
            Query::Select {
                pattern: GraphPattern::Project { inner, .. },
                ..
            } => *inner,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_text_means_the_pattern() {
        for group in [
            "",
            "?s ?p ?o . ?o <http://a/p>/<http://a/q>* ?x",
            "?s ?p ?o OPTIONAL { ?o ?q ?x FILTER(?x > ?s) } MINUS { ?s <http://a/p> 1 }",
            "{ ?s ?p ?o } UNION { ?s ?q \"a\\\"b\"@en } BIND(STR(?s) AS ?t) FILTER(?t != 'x')",
            "GRAPH ?g { ?s ?p ?o } VALUES (?s ?o) { (<http://a/s> UNDEF) }",
            "?s ?p ?o FILTER NOT EXISTS { ?o ?p ?s } SERVICE SILENT <http://b/> { ?s ?p ?o }",
            "{ SELECT DISTINCT ?s { ?s ?p ?o } ORDER BY DESC(?o) LIMIT 3 OFFSET 1 }",
        ] {
            let pattern = parsed(group);
            let again = text(&parsed(&text(&pattern)));
            assert_eq!(again, text(&pattern), "{group}");
        }
        // Names are made up anew each time.
        let pattern = parsed("{ SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s }");
        assert!(text(&parsed(&text(&pattern))).contains("GROUP BY ?s"));
    }

    #[test]
    fn a_filter_keeps_to_its_group() {
        let group = "{ ?s ?p ?o FILTER(!BOUND(?x)) } ?s <http://a/q> ?x";
        let again = parsed(&text(&parsed(group)));
        let GraphPattern::Join { left, .. } = again else {
            panic!("{again}");
        };
        assert!(left.to_string().contains("FILTER"), "{left}");
    }

    #[test]
    fn what_is_always_bound() {
        for (group, expected) in [
            ("?s ?p ?o OPTIONAL { ?s ?p ?x }", vec!["o", "p", "s"]),
            ("{ ?s ?p ?o } UNION { ?s ?q 1 }", vec!["s"]),
            ("VALUES (?a ?b) { (1 2) (3 UNDEF) }", vec!["a"]),
            ("SERVICE SILENT <http://b/> { ?s ?p ?o }", vec![]),
            ("GRAPH ?g { <http://a/s> !<http://a/p> ?o }", vec!["g", "o"]),
            ("{ SELECT ?s (1 AS ?n) { ?s ?p 1 } }", vec!["s"]),
        ] {
            let pattern = parsed(group);
            let mut names: Vec<&str> = always_bound(&pattern).into_iter().collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{group}");
        }
    }
}
