//! The Graph Store Protocol, as far as it writes: PUT, POST and DELETE.
//!
//! Each request is one commit. PUT replaces a graph, or with a format that has graphs and no
//! graph named, the whole dataset; POST adds to it, or makes a new graph of triples for which no graph
//! is named; DELETE removes a graph. Bodies are read as they come, and may have any length; several documents
//! in one go into a transaction. A client that goes away before it has its answer ends the request, unless it
//! is being committed.
//!
//! # References
//! SPARQL 1.1 Graph Store HTTP Protocol sections 5.3 to 5.5.

use std::io::Read;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode};
use stoa_database::oxrdf::{GraphName, NamedNode};
use stoa_database::{
    AloneOptions, CancelHandle, CommitSummary, Database, DocumentOptions, DumpScope, Error,
    GraphFormat, Input, StatementGraphs,
};

use super::multipart::{Part, parts};
use crate::http::Service;
use crate::http::body::{BODY_BYTES_MAX, ResponseBody, read_bytes};
use crate::http::parameters::{parameter_of, split_content_type};
use crate::http::problem::Problem;
use crate::http::route::{CancelOnDrop, Client, joined};
use crate::http::upload::{BODY, format_of, write_with_body};
use crate::http::writing::{mark, write};

/// Answers PUT, POST and DELETE.
pub(in crate::http) async fn change(
    request: hyper::Request<Incoming>,
    client: &Client,
    service: &Service,
    database: &Database,
    below: Option<&str>,
) -> Result<Response<ResponseBody>, Problem> {
    service.settings.check_write(request.headers())?;
    let scope = super::scope(request.uri().query().unwrap_or(""), client, below)?;
    let graph = match scope.graphs {
        DumpScope::All => None,
        DumpScope::DefaultGraph => Some(GraphName::DefaultGraph),
        DumpScope::Graph(graph) => Some(GraphName::NamedNode(graph)),
    };
    let mut change = Change {
        database: database.clone(),
        graph,
        base: None,
        replaces: request.method() == Method::PUT,
    };
    if request.method() == Method::DELETE {
        let summary = write(service, move || change.delete()).await?;
        return Ok(changed(&summary, false, None));
    }
    let (head, body) = request.into_parts();
    let content = Content::of(&head.headers)?;
    let fresh = change.settle(&content, client)?;
    let (summary, created) = match content {
        Content::Document(format) => {
            let cancel = CancelHandle::new();
            let guard = CancelOnDrop::new(cancel.clone());
            let work = move |reader| Ok(change.load(format, reader, cancel)?);
            let done = write_with_body(service, &head.headers, body, work).await;
            drop(guard.disarm());
            done?
        }
        Content::Parts(boundary) => {
            let (bytes, memory) = read_bytes(service, &head.headers, body, BODY_BYTES_MAX).await?;
            write(service, move || {
                let _memory = memory;
                Ok(change.load_parts(&parts(&bytes, &boundary)?)?)
            })
            .await?
        }
    };
    Ok(changed(&summary, created, fresh.as_ref()))
}

/// What the body of a request is.
enum Content {
    Document(GraphFormat),
    /// Several documents, and what stands between them.
    Parts(String),
}

impl Content {
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let content_type = joined(headers, &CONTENT_TYPE)?.unwrap_or_default();
        let (media_type, _) = split_content_type(&content_type);
        if media_type == "multipart/form-data" {
            let boundary = parameter_of(&content_type, "boundary");
            let boundary = boundary
                .filter(|boundary| !boundary.is_empty())
                .ok_or_else(|| {
                    Problem::bad_request("the Content-Type has no boundary between the parts")
                })?;
            return Ok(Self::Parts(boundary.to_owned()));
        }
        format_of(headers).map(Self::Document)
    }
}

/// What a request wants changed.
struct Change {
    database: Database,
    /// Without one, all graphs.
    graph: Option<GraphName>,
    /// What relative IRIs are relative to.
    base: Option<String>,
    /// Whether what was there before goes.
    replaces: bool,
}

impl Change {
    /// Finds graph and base for a body. Gives the graph's name if it is a new one.
    fn settle(&mut self, content: &Content, client: &Client) -> Result<Option<NamedNode>, Problem> {
        let mut fresh = None;
        let has_graphs = matches!(content, Content::Document(format) if format.has_graphs());
        if self.graph.is_none() && !has_graphs {
            if self.replaces {
                return Err(Problem::bad_request(
                    "name the graph that is replaced, with graph=IRI or default; a format that has \
                     graphs replaces all of them",
                ));
            }
            fresh = Some(self.new_graph(client)?);
            self.graph = fresh.clone().map(GraphName::NamedNode);
        }
        self.base = match &self.graph {
            Some(GraphName::NamedNode(graph)) => Some(graph.as_str().to_owned()),
            // A Host that is none gives no base.
            _ => NamedNode::new(&client.endpoint)
                .ok()
                .map(NamedNode::into_string),
        };
        Ok(fresh)
    }

    /// A graph below the address of the store that nobody has named yet.
    fn new_graph(&self, client: &Client) -> Result<NamedNode, Problem> {
        let runtime = self.database.runtime();
        let (high, low) = (runtime.random(), runtime.random());
        NamedNode::new(format!("{}/{high:016x}{low:016x}", client.endpoint)).map_err(|error| {
            Problem::bad_request(format!("the Host of the request names no address: {error}"))
        })
    }

    fn options(&self, format: GraphFormat) -> DocumentOptions {
        DocumentOptions {
            format: Some(format),
            base: self.base.clone(),
            graph: self.graph.clone(),
            // What a request puts into one graph must not reach others (Graph Store Protocol 5.3, 5.5).
            refuse_graphs: self.graph.is_some(),
            ..DocumentOptions::default()
        }
    }

    /// Whether the graph is there. Asked outside of the transaction, since the answer changes nothing but the
    /// status: what only adds is never in conflict.
    fn exists(&self) -> Result<bool, Error> {
        match &self.graph {
            Some(GraphName::NamedNode(graph)) => self.database.graph_exists(graph),
            _ => Ok(true),
        }
    }

    /// Loads a document. Says, too, whether the graph is a new one.
    fn load(
        &self,
        format: GraphFormat,
        reader: Box<dyn Read + Send>,
        cancel: CancelHandle,
    ) -> Result<(CommitSummary, bool), Error> {
        let existed = self.exists()?;
        let options = AloneOptions {
            document: DocumentOptions {
                cancel,
                ..self.options(format)
            },
            replaces: self.replaced(),
            creates: self.created(existed).cloned(),
            ..AloneOptions::default()
        };
        let summary = self.database.load_alone(BODY, reader, &options)?;
        Ok((summary, !existed))
    }

    /// The graphs that the request replaces.
    fn replaced(&self) -> Option<StatementGraphs> {
        self.replaces.then(|| match &self.graph {
            Some(graph) => StatementGraphs::Only(vec![graph.clone()]),
            None => StatementGraphs::All,
        })
    }

    /// The graph that an empty document makes.
    fn created(&self, existed: bool) -> Option<&NamedNode> {
        match &self.graph {
            Some(GraphName::NamedNode(graph)) if self.replaces || !existed => Some(graph),
            _ => None,
        }
    }

    /// The same with documents that can be read again.
    fn load_parts(&self, parts: &[Part<'_>]) -> Result<(CommitSummary, bool), Error> {
        let existed = self.exists()?;
        let done = self.database.transact(|transaction| {
            if let Some(graphs) = self.replaced() {
                transaction.clear_graphs(&graphs)?;
            }
            let mut added = 0;
            for part in parts {
                let input = Input::from_bytes(part.name.as_str(), part.body);
                let counts = transaction.load(input, &self.options(part.format))?;
                added += counts.added;
            }
            if let Some(graph) = self.created(existed)
                && added == 0
            {
                transaction.create_graph(graph)?;
            }
            Ok(())
        });
        Ok((done?.1, !existed))
    }

    fn delete(&self) -> Result<CommitSummary, Problem> {
        let Some(graph) = &self.graph else {
            return Err(Problem::bad_request(
                "name the graph that is deleted, with graph=IRI or default",
            ));
        };
        let (missing, summary) = self.database.transact(|transaction| {
            if let GraphName::NamedNode(graph) = graph
                && !transaction.graph_exists(graph)?
            {
                return Ok(Some(graph));
            }
            transaction.clear_graph(graph)?;
            Ok(None)
        })?;
        match missing {
            Some(graph) => Err(super::no_such_graph(graph)),
            None => Ok(summary),
        }
    }
}

/// The response to what has changed something.
fn changed(
    summary: &CommitSummary,
    created: bool,
    fresh: Option<&NamedNode>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Full::new(Bytes::new())));
    *response.status_mut() = if created {
        StatusCode::CREATED
    } else {
        StatusCode::NO_CONTENT
    };
    let headers = response.headers_mut();
    mark(headers, summary);
    if let Some(fresh) = fresh
        && let Ok(location) = HeaderValue::from_str(fresh.as_str())
    {
        headers.insert(LOCATION, location);
    }
    response
}
