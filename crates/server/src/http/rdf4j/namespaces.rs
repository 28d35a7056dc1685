//! Namespaces: prefixes that clients agree on, kept in the database.
//!
//! They are quads of a graph of their own, so that they come and go with the data: dumped, loaded and
//! committed like all else. A prefix is a subject; clients of this protocol see the graph among
//! neither contexts nor statements.

use hyper::header::ACCEPT;
use hyper::{Response, StatusCode};
use stoa_database::oxrdf::{NamedNode, Term};
use stoa_database::{Database, QueryOptions, QueryResult};

use super::{Request, table, text};
use crate::http::body::ResponseBody;
use crate::http::problem::Problem;
use crate::http::route::joined;
use crate::http::writing::write;

/// The graph of namespaces.
pub(super) const NAMESPACES: &str = "urn:stoa:namespaces";

/// What subjects begin with; the prefix follows.
const SUBJECT: &str = "urn:stoa:prefix:";

const PREFIX: &str = "http://purl.org/vocab/vann/preferredNamespacePrefix";
const NAMESPACE: &str = "http://purl.org/vocab/vann/preferredNamespaceUri";

/// Answers requests about all namespaces.
pub(super) async fn all(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    let query = format!(
        "SELECT ?prefix ?namespace {{ GRAPH <{NAMESPACES}> {{ ?s <{PREFIX}> ?prefix ; <{NAMESPACE}> \
         ?namespace }} }} ORDER BY ?prefix"
    );
    let accept = joined(request.incoming.headers(), &ACCEPT)?;
    table(&request, query, accept).await
}

/// Answers requests about the namespace of one prefix.
pub(super) async fn one(
    request: Request<'_>,
    prefix: String,
) -> Result<Response<ResponseBody>, Problem> {
    let database = request.database.clone();
    let found = write(request.service, move || find(&database, &prefix)).await?;
    found.map(text).ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-prefix",
            "this prefix has no namespace",
        )
    })
}

/// The namespace of a prefix.
fn find(database: &Database, prefix: &str) -> Result<Option<String>, Problem> {
    let query = format!(
        "SELECT ?namespace {{ GRAPH <{NAMESPACES}> {{ {} <{NAMESPACE}> ?namespace }} }}",
        subject(prefix)
    );
    let QueryResult::Solutions(mut solutions) = database.query(&query, &QueryOptions::default())?
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
