//! Namespaces: prefixes that clients agree on, kept in the database.
//!
//! They are quads of a graph of their own, so that they come and go with the data: dumped, loaded and
//! committed like all else. A prefix is a subject; clients of this protocol see the graph among
//! neither contexts nor statements.

use hyper::{Method, Response, StatusCode};
use stoa_database::oxrdf::vocab::xsd;
use stoa_database::oxrdf::{GraphName, Literal, NamedNode, Quad, Term};
use stoa_database::{
    CancelHandle, CommitSummary, Database, Error, QueryOptions, QueryResult, State,
    StatementGraphs, StatementPattern, Transaction,
};

use super::values::Parameters;
use super::{Request, done, table, told};
use crate::http::body::{NAME_BYTES_MAX, ResponseBody, read_text};
use crate::http::problem::Problem;
use crate::http::route::CancelOnDrop;
use crate::http::writing::write;

/// The graph of namespaces.
pub(super) const NAMESPACES: &str = "urn:stoa:namespaces";

/// What subjects begin with; the prefix follows.
const SUBJECT: &str = "urn:stoa:prefix:";

const PREFIX: &str = "http://purl.org/vocab/vann/preferredNamespacePrefix";
const NAMESPACE: &str = "http://purl.org/vocab/vann/preferredNamespaceUri";

/// Answers requests about all namespaces.
pub(super) async fn all(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    if *request.incoming.method() == Method::DELETE {
        return change(&request, Change::Clear).await;
    }
    let query = format!(
        "SELECT ?prefix ?namespace {{ GRAPH <{NAMESPACES}> {{ ?s <{PREFIX}> ?prefix ; <{NAMESPACE}> \
         ?namespace }} }} ORDER BY ?prefix"
    );
    let parameters = Parameters::of(request.query())?.reading()?;
    let accept = parameters.accept(request.incoming.headers())?;
    let asked = request.asked(parameters.at)?;
    table(&request, query, asked, accept).await
}

/// Answers requests about the namespace of one prefix.
pub(super) async fn one(
    request: Request<'_>,
    prefix: String,
) -> Result<Response<ResponseBody>, Problem> {
    match *request.incoming.method() {
        Method::DELETE => change(&request, Change::Remove(prefix)).await,
        Method::PUT => {
            request.check_writer()?;
            let Request {
                incoming, service, ..
            } = request;
            let (head, body) = incoming.into_parts();
            let (namespace, _memory) =
                read_text(service, &head.headers, body, NAME_BYTES_MAX).await?;
            if namespace.trim().is_empty() {
                return Err(Problem::bad_request("a namespace is the text of an IRI"));
            }
            let database = request.database.clone();
            let wanted = Change::Set(prefix, namespace.trim().to_owned());
            let summary = write(service, move || wanted.apply(&database)).await?;
            Ok(done(StatusCode::NO_CONTENT, &summary))
        }
        _ => {
            let database = request.database.clone();
            let asked = request.asked(Parameters::of(request.query())?.checked()?.at)?;
            let timeout = Some(request.service.settings.timeout);
            let cancel = CancelHandle::new();
            let _guard = CancelOnDrop::new(cancel.clone());
            let found = write(request.service, move || {
                let (state, headers) = asked.open(&database, timeout, &cancel)?;
                Ok(find(&state, &prefix)?.map(|found| (found, headers)))
            });
            let found = found.await?;
            found
                .map(|(found, headers)| told(found, &headers))
                .ok_or_else(|| {
                    Problem::new(
                        StatusCode::NOT_FOUND,
                        "no-such-prefix",
                        "this prefix has no namespace",
                    )
                })
        }
    }
}

async fn change(request: &Request<'_>, change: Change) -> Result<Response<ResponseBody>, Problem> {
    request.check_writer()?;
    let database = request.database.clone();
    let summary = write(request.service, move || change.apply(&database)).await?;
    Ok(done(StatusCode::NO_CONTENT, &summary))
}

/// The namespace of a prefix.
fn find(state: &State, prefix: &str) -> Result<Option<String>, Problem> {
    let query = format!(
        "SELECT ?namespace {{ GRAPH <{NAMESPACES}> {{ {} <{NAMESPACE}> ?namespace }} }}",
        subject(prefix)
    );
    let QueryResult::Solutions(mut solutions) = state.query(&query, &QueryOptions::default())?
    else {
        return Ok(None);
    };
    let Some(solution) = solutions.next().transpose()? else {
        return Ok(None);
    };
    Ok(match solution.get("namespace") {
        Some(Term::Literal(namespace)) => Some(namespace.value().to_owned()),
        _ => None,
    })
}

/// What is wanted of namespaces.
enum Change {
    Clear,
    Remove(String),
    Set(String, String),
}

impl Change {
    fn apply(&self, database: &Database) -> Result<CommitSummary, Problem> {
        let done = database.transact(|transaction| self.make(transaction));
        Ok(done?.1)
    }

    fn make(&self, transaction: &mut Transaction) -> Result<(), Error> {
        let graph = GraphName::from(NamedNode::new_unchecked(NAMESPACES));
        let prefix = match self {
            Self::Clear => None,
            Self::Remove(prefix) | Self::Set(prefix, _) => Some(subject(prefix)),
        };
        let before = StatementPattern {
            subject: prefix.clone().map(Into::into),
            graphs: StatementGraphs::Only(vec![graph.clone()]),
            ..StatementPattern::default()
        };
        transaction.remove_statements(&before, &CancelHandle::new())?;
        if let (Self::Set(prefix, namespace), Some(subject)) = (self, prefix) {
            let quad = |predicate, object: Literal| {
                let predicate = NamedNode::new_unchecked(predicate);
                Quad::new(subject.clone(), predicate, object, graph.clone())
            };
            let namespace = Literal::new_typed_literal(namespace, xsd::ANY_URI);
            let quads = [
                quad(PREFIX, Literal::new_simple_literal(prefix)),
                quad(NAMESPACE, namespace),
            ];
            transaction.insert(&mut quads.into_iter())?;
        }
        Ok(())
    }
}

/// The subject of a prefix, whatever characters that has.
fn subject(prefix: &str) -> NamedNode {
    let mut iri = SUBJECT.to_owned();
    for byte in prefix.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            iri.push(char::from(byte));
        } else {
            iri += &format!("%{byte:02X}");
        }
    }
    NamedNode::new_unchecked(iri)
}

#[cfg(test)]
mod tests {
    use super::subject;

    #[test]
    fn every_prefix_has_a_subject_of_its_own() {
        for (prefix, iri) in [
            ("", "urn:stoa:prefix:"),
            ("foaf", "urn:stoa:prefix:foaf"),
            ("a> \u{e9}%", "urn:stoa:prefix:a%3E%20%C3%A9%25"),
        ] {
            assert_eq!(subject(prefix).as_str(), iri);
        }
    }
}
