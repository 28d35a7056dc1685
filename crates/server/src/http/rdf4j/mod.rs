//! The REST protocol of RDF4J, as its client `HTTPRepository` speaks it: each database of the server is a
//! repository.
//!
//! | address below `/repositories/NAME` | methods                  | what it is                        |
//! |------------------------------------|--------------------------|-----------------------------------|
//! |                                    | GET, POST                | queries, with `$name=` bindings   |
//! | `/statements`                      | GET, PUT, POST, DELETE   | quads by pattern; updates         |
//! | `/size`, `/contexts`               | GET                      | how many quads; names of graphs   |
//! | `/namespaces`, `/namespaces/P`     | GET, PUT, DELETE         | prefixes                          |
//! | `/rdf-graphs/service`              | as `/store`              | the Graph Store Protocol          |
//! | `/transactions`, `/transactions/ID` | POST, PUT, DELETE       | interactive transactions          |
//!
//! `/protocol` tells the version, `/repositories` lists the databases. The one that is served at the root
//! has the name [`ROOT`]. Errors are texts that begin with the kind that the client makes its exceptions
//! from; answers that it reads as numbers have no line end.
//!
//! # References
//! The RDF4J REST API, protocol version 12.

mod binary;
mod documents;
mod labels;
mod namespaces;
mod statements;
mod transactions;
mod upload;
mod values;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};
use stoa_database::oxrdf::NamedNode;
use stoa_database::{CancelHandle, CommitSummary, Database, Moment, QueryOptions};
use tokio::time::Instant;

use super::Service;
use super::answering::{QueryRequest, QuerySource, Work};
use super::body::{ResponseBody, whole};
use super::memento::Asked;
use super::parameters::{SHORT_BYTES, percent_decoded};
use super::problem::Problem;
use super::route::{Client, run};
use super::sparql::sparql;
use super::store::{change, store};
use super::writing::mark;

pub(crate) use labels::Labels;
pub(crate) use transactions::{OpenTransaction, Transactions};
pub(super) use upload::NIL;
use values::Parameters;
pub(super) use values::term;

/// The version of the protocol. The client wants transactions from 7 on.
const VERSION: &str = "12";

/// The repository that is the database at the root of the server.
pub(crate) const ROOT: &str = "default";

/// What stands at an address below that of a repository.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part<'a> {
    Queries,
    Statements,
    Size,
    Contexts,
    Namespaces,
    /// By the prefix as the address has it.
    Namespace(&'a str),
    GraphStore,
    Transactions,
    /// By its number.
    Transaction(&'a str),
}

impl<'a> Part<'a> {
    /// What a path means that follows the name of a repository.
    pub(super) fn of(rest: &'a str) -> Option<Self> {
        Some(match rest {
            "" => Self::Queries,
            "/statements" => Self::Statements,
            "/size" => Self::Size,
            "/contexts" => Self::Contexts,
            "/namespaces" => Self::Namespaces,
            "/rdf-graphs/service" => Self::GraphStore,
            "/transactions" => Self::Transactions,
            // No prefix and no number of a transaction has a slash.
            _ => {
                let (kind, name) = rest.strip_prefix('/')?.split_once('/')?;
                match kind {
                    _ if name.contains('/') => return None,
                    // There is the empty prefix.
                    "namespaces" => Self::Namespace(name),
                    "transactions" if !name.is_empty() => Self::Transaction(name),
                    _ => return None,
                }
            }
        })
    }

    /// The methods that are answered.
    pub(super) fn allow(self) -> &'static str {
        match self {
            Self::Queries => "GET, HEAD, POST, OPTIONS",
            Self::Statements | Self::GraphStore => "GET, HEAD, PUT, POST, DELETE, OPTIONS",
            Self::Size | Self::Contexts => "GET, HEAD, OPTIONS",
            Self::Namespaces => "GET, HEAD, DELETE, OPTIONS",
            Self::Namespace(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
            Self::Transactions => "POST, OPTIONS",
            Self::Transaction(_) => "PUT, POST, DELETE, OPTIONS",
        }
    }
}

/// A request to a repository.
pub(super) struct Request<'a> {
    pub(super) incoming: hyper::Request<Incoming>,
    pub(super) client: &'a Client,
    pub(super) service: &'a Service,
    /// The name of the repository.
    pub(super) name: &'a str,
    pub(super) database: &'a Database,
}

impl Request<'_> {
    fn check_writer(&self) -> Result<(), Problem> {
        self.service.settings.check_write(self.incoming.headers())
    }

    /// Which state is asked.
    fn asked(&self, at: Option<Moment>) -> Result<Asked, Problem> {
        Ok(Asked::of(&self.incoming, self.client)?.at(at))
    }

    fn query(&self) -> &str {
        self.incoming.uri().query().unwrap_or("")
    }
}

/// Answers a request to a repository.
pub(super) async fn repository(
    request: Request<'_>,
    part: Part<'_>,
) -> Result<Response<ResponseBody>, Problem> {
    match part {
        Part::Queries => {
            sparql(
                request.incoming,
                request.client,
                request.service,
                request.database,
            )
            .await
        }
        Part::Statements => statements::statements(request).await,
        Part::Size => statements::size(request).await,
        Part::Contexts => contexts(&request).await,
        Part::Namespaces => namespaces::all(request).await,
        Part::Namespace(prefix) => namespaces::one(request, percent_decoded(prefix)?).await,
        Part::GraphStore => graph_store(request).await,
        Part::Transactions => transactions::begin(request).await,
        Part::Transaction(id) => transactions::transaction(request, id).await,
    }
}

async fn graph_store(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let Request {
        incoming,
        client,
        service,
        database,
        ..
    } = request;
    if incoming.method() == hyper::Method::GET || incoming.method() == hyper::Method::HEAD {
        return store(&incoming, client, service, database, None).await;
    }
    change(incoming, client, service, database, None).await
}

async fn contexts(request: &Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let query = format!(
        "SELECT ?contextID {{ GRAPH ?contextID {{}} FILTER(?contextID != <{}>) }}",
        namespaces::NAMESPACES
    );
    let parameters = Parameters::of(request.query())?.reading()?;
    let accept = parameters.accept(request.incoming.headers())?;
    let asked = request.asked(parameters.at)?;
    table(request, query, asked, accept).await
}

/// Tells the version of the protocol.
pub(super) fn protocol() -> Response<ResponseBody> {
    text(VERSION.to_owned())
}

/// Lists the repositories of the server.
pub(super) async fn repositories(
    incoming: hyper::Request<Incoming>,
    client: &Client,
    service: &Service,
) -> Result<Response<ResponseBody>, Problem> {
    let may_write = service.settings.writers.check(incoming.headers()).is_ok();
    let root = service
        .databases
        .root
        .iter()
        .map(|database| (ROOT, database));
    let named = service.databases.named.iter();
    let all: Vec<(&str, &Database)> = root
        .chain(named.map(|(name, database)| (name.as_str(), database)))
        .collect();
    let mut rows = String::new();
    for (name, _) in &all {
        // The Host header stands in the address; names need no escaping.
        let address = NamedNode::new(format!("{}/{name}", client.endpoint.trim_end_matches('/')))
            .map_err(|error| {
            Problem::bad_request(format!("the Host of the request names no address: {error}"))
        })?;
        rows += &format!("({address} \"{name}\" \"{name}\" true {may_write}) ");
    }
    let variables = "?uri ?id ?title ?readable ?writable";
    let query = format!("SELECT {variables} {{ VALUES ({variables}) {{ {rows}}} }}");
    let Some((name, database)) = all.first().copied() else {
        return Err(Problem::bad_request("there is no database"));
    };
    let parameters = Parameters::of(incoming.uri().query().unwrap_or(""))?.reading()?;
    let accept = parameters.accept(incoming.headers())?;
    let request = Request {
        incoming,
        client,
        service,
        name,
        database,
    };
    table(&request, query, Asked::default(), accept).await
}

/// Answers with the solutions of a query of our own.
async fn table(
    request: &Request<'_>,
    query: String,
    asked: Asked,
    accept: Option<String>,
) -> Result<Response<ResponseBody>, Problem> {
    let cancel = CancelHandle::new();
    let work = Work::Prepare(Box::new(QueryRequest {
        source: QuerySource::Database(request.database.clone()),
        asked,
        explain: None,
        is_short: query.len() <= SHORT_BYTES,
        text: query,
        options: QueryOptions {
            timeout: Some(request.service.settings.timeout),
            notes: false,
            cancel: cancel.clone(),
            ..QueryOptions::default()
        },
        arrived: Instant::now(),
        format: None,
        accept,
        failed: Vec::new(),
        memory: None,
    }));
    run(request.service, request.client, work, cancel).await
}

/// A text as it is, without a line end.
fn text(text: String) -> Response<ResponseBody> {
    whole("text/plain; charset=utf-8", text)
}

/// The same, of a state that the head tells more of.
fn told(content: String, headers: &HeaderMap) -> Response<ResponseBody> {
    let mut response = text(content);
    for (name, value) in headers {
        response.headers_mut().append(name, value.clone());
    }
    response
}

/// The response to what has changed something.
fn done(status: StatusCode, summary: &CommitSummary) -> Response<ResponseBody> {
    let mut response = empty(status);
    mark(response.headers_mut(), summary);
    response
}

fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Full::new(Bytes::new())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn addresses_of_a_repository() {
        for (rest, part) in [
            ("", Some(Part::Queries)),
            ("/statements", Some(Part::Statements)),
            ("/namespaces/", Some(Part::Namespace(""))),
            ("/namespaces/foaf", Some(Part::Namespace("foaf"))),
            ("/transactions", Some(Part::Transactions)),
            ("/transactions/1", Some(Part::Transaction("1"))),
            ("/rdf-graphs/service", Some(Part::GraphStore)),
            ("/", None),
            ("/namespaces/foaf/", None),
            ("/transactions/", None),
            ("/transactions/1/", None),
            ("/nothing", None),
            ("s", None),
        ] {
            assert_eq!(Part::of(rest), part, "{rest}");
        }
    }
}
