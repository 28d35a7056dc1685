//! The update operation of the SPARQL Protocol.
//!
//! The answer is what was changed, as JSON and in the head.
//!
//! # References
//! SPARQL 1.1 Protocol section 2.2.

use std::time::Duration;

use hyper::Response;
use serde_json::json;
use stoa_database::oxrdf::{GraphName, NamedNode};
use stoa_database::{Database, UpdateOptions};

use super::body::{Held, ResponseBody};
use super::memento::not_at;
use super::parameters::Parameters;
use super::problem::Problem;
use super::rdf4j::NIL;
use super::writing;
use super::{Service, Settings};

/// Runs an update, which a client that may write has sent. Relative IRIs are relative to the address of the
/// endpoint.
pub(super) async fn update(
    text: Held<String>,
    parameters: &Parameters,
    endpoint: String,
    service: &Service,
    database: &Database,
) -> Result<Response<ResponseBody>, Problem> {
    let options = options(parameters, endpoint, &service.settings)?;
    let is_short = parameters.is_short();
    let summary = writing::update(service, database, text, options, is_short).await?;
    let told = json!({
        "commit": summary.commit,
        "added": summary.added,
        "removed": summary.removed,
    });
    Ok(writing::told(&told, &summary))
}

/// The options of an update as the server and the request say.
///
/// # Errors
/// 400 for parameters that only queries have, and for graphs that are no IRIs.
pub(super) fn options(
    parameters: &Parameters,
    endpoint: String,
    settings: &Settings,
) -> Result<UpdateOptions, Problem> {
    parameters.check_update()?;
    if parameters.at.is_some() {
        return Err(not_at());
    }
    let mut inserted = graphs("insert-graph-uri", &parameters.insert_graphs)?;
    let insert_graph = match (inserted.pop(), inserted.is_empty()) {
        (_, false) => {
            return Err(Problem::bad_request(
                "the parameter insert-graph-uri is given twice: what is added goes into one graph",
            ));
        }
        (Some(GraphName::NamedNode(graph)), true) => Some(graph),
        (_, true) => None,
    };
    let asked = parameters
        .timeout
        .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    // A Host that is none gives no base.
    let address = || NamedNode::new(endpoint).ok().map(NamedNode::into_string);
    Ok(UpdateOptions {
        base: parameters.base.clone().or_else(address),
        timeout: Some(asked.map_or(settings.timeout, |asked| asked.min(settings.timeout))),
        default_graph_union: parameters
            .default_graph_union
            .unwrap_or(settings.default_graph_union),
        using_graphs: iris("using-graph-uri", &parameters.using_graphs)?,
        using_named_graphs: iris("using-named-graph-uri", &parameters.using_named_graphs)?,
        insert_graph,
        remove_graphs: graphs("remove-graph-uri", &parameters.remove_graphs)?,
        bindings: parameters.bindings.clone(),
        message: parameters.message.clone(),
        ..UpdateOptions::default()
    })
}

/// Graphs that take the place of the default graph, which is one of them by the names that RDF4J has for it.
fn graphs(parameter: &str, values: &[String]) -> Result<Vec<GraphName>, Problem> {
    let is_default = |value: &str| value == "null" || NIL.contains(&value);
    let graph = |value: &String| match is_default(value) {
        true => Ok(GraphName::DefaultGraph),
        false => {
            let iris = iris(parameter, std::slice::from_ref(value))?;
            Ok(iris
                .into_iter()
                .next()
                .map_or(GraphName::DefaultGraph, GraphName::NamedNode))
        }
    };
    values.iter().map(graph).collect()
}

fn iris(parameter: &str, values: &[String]) -> Result<Vec<NamedNode>, Problem> {
    let iri = |value: &String| {
        NamedNode::new(value).map_err(|error| {
            Problem::bad_request(format!(
                "{parameter}: {value} is not an absolute IRI: {error}"
            ))
        })
    };
    values.iter().map(iri).collect()
}
