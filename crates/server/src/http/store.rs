//! The Graph Store Protocol; here, what reads.
//!
//! `?default` and `?graph=IRI` name a graph; below `/store/` the address itself does. Without any of
//! them the whole dataset is meant.
//!
//! # References
//! SPARQL 1.1 Graph Store HTTP Protocol sections 4 and 5.2.

mod multipart;
mod write;

use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Response, StatusCode};
use stoa_database::oxrdf::NamedNode;
use stoa_database::{CancelHandle, Database, DumpScope, GraphFormat, Moment};

use super::Service;
use super::answering::{Opened, Work, choose, graph_content_type, graph_offers};
use super::body::ResponseBody;
use super::memento::Asked;
use super::parameters::{check_once, moment, pairs, unknown};
use super::problem::Problem;
use super::route::{Client, joined, run};

pub(super) use write::change;

/// Formats of one graph, in our order of preference.
const GRAPH_FORMATS: [GraphFormat; 6] = [
    GraphFormat::Turtle,
    GraphFormat::NTriples,
    GraphFormat::RdfXml,
    GraphFormat::JsonLd,
    GraphFormat::TriG,
    GraphFormat::NQuads,
];

/// Formats of the whole dataset.
const DATASET_FORMATS: [GraphFormat; 3] =
    [GraphFormat::NQuads, GraphFormat::TriG, GraphFormat::JsonLd];

/// Answers GET and HEAD.
pub(super) async fn store(
    request: &hyper::Request<Incoming>,
    client: &Client,
    service: &Service,
    database: &Database,
    below: Option<&str>,
) -> Result<Response<ResponseBody>, Problem> {
    let Scope {
        graphs: scope,
        format: format_name,
        at,
    } = scope(request.uri().query().unwrap_or(""), client, below)?;
    let asked = Asked::of(request, client)?.at(at);
    let formats: &[GraphFormat] = if scope == DumpScope::All {
        &DATASET_FORMATS
    } else {
        &GRAPH_FORMATS
    };
    let (format, content_type) = match format_name {
        Some(name) => GraphFormat::from_name(&name)
            .filter(|format| formats.contains(format))
            .map(|format| (format, graph_content_type(format)))
            .ok_or_else(|| {
                Problem::bad_request(format!("the parameter format cannot be '{name}' here"))
            })?,
        None => {
            let accept = joined(request.headers(), &ACCEPT)?;
            choose(accept.as_deref(), &graph_offers(formats))?
        }
    };
    let cancel = CancelHandle::new();
    let (database, to_dump) = (database.clone(), cancel.clone());
    let timeout = Some(service.settings.timeout);
    let work = Work::Open(Some(Box::new(move || {
        let (state, headers) = asked.open(&database, timeout, &to_dump)?;
        if let DumpScope::Graph(graph) = &scope
            && !state.graph_exists(graph)?
        {
            return Err(no_such_graph(graph));
        }
        let dump = state.start_dump(format, &scope, &to_dump)?;
        Ok(Opened {
            work: Work::Dump(Box::new(dump)),
            content_type,
            headers,
        })
    })));
    run(service, client, work, cancel).await
}

fn no_such_graph(graph: &NamedNode) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no-such-graph",
        format!("there is no graph <{}>", graph.as_str()),
    )
}

/// What a request means.
struct Scope {
    graphs: DumpScope,
    /// The format by its name.
    format: Option<String>,
    at: Option<Moment>,
}

/// What a request means by its address.
fn scope(query: &str, client: &Client, below: Option<&str>) -> Result<Scope, Problem> {
    let (mut format, mut at) = (None, None);
    let mut scopes = Vec::new();
    let pairs = pairs(query)?;
    check_once(&pairs, &["default", "graph"])?;
    for (name, value) in pairs {
        match name.as_str() {
            "default" => scopes.push(DumpScope::DefaultGraph),
            "graph" => scopes.push(DumpScope::Graph(graph(&value)?)),
            "format" | "output" => format = Some(value),
            "at" => at = Some(moment(&name, &value)?),
            _ => {
                return Err(unknown(
                    &name,
                    "/store takes graph, default, format (or output) and at",
                ));
            }
        }
    }
    if below.is_some() {
        scopes.push(DumpScope::Graph(graph(&client.endpoint)?));
    }
    if scopes.len() > 1 {
        return Err(Problem::bad_request(
            "a request names one graph: by graph=IRI, by default, or by its address",
        ));
    }
    Ok(Scope {
        graphs: scopes.pop().unwrap_or_default(),
        format,
        at,
    })
}

fn graph(iri: &str) -> Result<NamedNode, Problem> {
    NamedNode::new(iri).map_err(|error| {
        Problem::bad_request(format!("the graph {iri} is not an absolute IRI: {error}"))
    })
}
