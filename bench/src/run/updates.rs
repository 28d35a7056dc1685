//! The patterns of updates as queries, for what asks without changing anything.

use anyhow::Context as _;
use spargebra::algebra::GraphPattern;
use spargebra::term::{
    GraphNamePattern, GroundQuadPattern, NamedNodePattern, QuadPattern, TermPattern, Variable,
};
use spargebra::{GraphUpdateOperation, Query, SparqlParser};

/// For each operation of an update that has a WHERE the query that the server runs for it: SELECT of the variables of both
/// templates, or ASK where there are none. Templates without quoted triples.
///
/// # Errors
/// When the text is no update.
pub(super) fn wheres(update: &str) -> anyhow::Result<Vec<String>> {
    let request = SparqlParser::new().parse_update(update);
    let request = request.with_context(|| format!("no update: {update}"))?;
    let operations = request.operations.into_iter();
    let queries = operations.filter_map(|operation| {
        let GraphUpdateOperation::DeleteInsert {
            delete,
            insert,
            using,
            pattern,
        } = operation
        else {
            return None;
        };
        let mut variables = Vec::new();
        for quad in delete.into_iter().map(filled).chain(insert) {
            add_variables(quad, &mut variables);
        }
        let query = match variables.is_empty() {
            true => Query::Ask {
                dataset: using,
                pattern: *pattern,
                base_iri: None,
            },
            false => Query::Select {
                dataset: using,
                pattern: GraphPattern::Project {
                    inner: pattern,
                    variables,
                },
                base_iri: None,
            },
        };
        Some(query.to_string())
    });
    Ok(queries.collect())
}

fn filled(quad: GroundQuadPattern) -> QuadPattern {
    QuadPattern {
        subject: quad.subject.into(),
        predicate: quad.predicate,
        object: quad.object.into(),
        graph_name: quad.graph_name,
    }
}

/// Adds the variables of a template that are not there yet, in their order.
fn add_variables(quad: QuadPattern, variables: &mut Vec<Variable>) {
    let of_term = |term| match term {
        TermPattern::Variable(variable) => Some(variable),
        _ => None,
    };
    let predicate = match quad.predicate {
        NamedNodePattern::Variable(variable) => Some(variable),
        NamedNodePattern::NamedNode(_) => None,
    };
    let graph = match quad.graph_name {
        GraphNamePattern::Variable(variable) => Some(variable),
        _ => None,
    };
    let all = [
        of_term(quad.subject),
        predicate,
        of_term(quad.object),
        graph,
    ];
    for variable in all.into_iter().flatten() {
        if !variables.contains(&variable) {
            variables.push(variable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_where_is_the_query_of_its_templates_variables() {
        let update = "PREFIX : <http://e/> DELETE { ?b :p ?c } INSERT { ?a :q ?d ; :q 1 } WHERE { ?a :p ?b BIND(?b + 1 AS ?d) ?b :p ?c . ?x :p ?c } ;
            INSERT DATA { :a :p 1 } ; DELETE WHERE { :a ?p ?o } ; INSERT { :a :p 2 } WHERE { ?s :p 3 }";
        let queries = wheres(update).unwrap();
        let heads: Vec<&str> = queries
            .iter()
            .map(|query| query.split(" WHERE").next().unwrap())
            .collect();
        assert_eq!(heads, ["SELECT ?b ?c ?a ?d", "SELECT ?p ?o", "ASK"]);
        for query in &queries {
            SparqlParser::new().parse_query(query).expect(query);
        }
        assert!(queries[0].contains("BIND"), "{}", queries[0]);
        assert!(wheres("SELECT * {}").is_err());
    }
}
