//! SERVICE and LOAD: queries to other endpoints and documents, fetched by whoever runs the database.
//!
//! The database opens no sockets. It makes the text of a request, hands it to a [`Fetch`], and parses
//! what comes back while it arrives, on the thread of the fetcher. A document is handed on piece by
//! piece to whoever loads it.
//!
//! # Concurrency
//! [`Fetch::fetch`] is called by workers of queries and must return at once. [`Response::read`] is
//! called by a thread of the fetcher: it waits while the query is behind, and fails when the query
//! wants no more.
//!
//! # References
//! SPARQL 1.1 Federated Query; SPARQL 1.1 Protocol, section 2.1.2 (query via POST); SPARQL 1.1 Update,
//! section 3.1.4 (LOAD).

mod document;

use std::fmt::{self, Write as _};
use std::io::Read;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use oxrdf::Term;
use sparesults::{QueryResultsFormat, QueryResultsParser, ReaderQueryResultsParserOutput};
use stoa_executor::service::{AnswerWriter, Interest, ServiceClient, ServiceRequest};

use crate::limits::{SERVICE_BATCH_BYTES, SERVICE_BATCH_SOLUTIONS};
pub(crate) use document::{Document, GoOn, Incoming, failed};
use document::{DocumentWriter, Waiting};

/// What an endpoint is asked to answer in, best first.
const ACCEPT: &str = "application/sparql-results+json, application/sparql-results+xml;q=0.8, \
                      text/tab-separated-values;q=0.5";

/// Fetches from other machines.
pub trait Fetch: fmt::Debug + Send + Sync {
    /// Begins to fetch and returns at once; the outcome goes to `response`, from another thread.
    /// The fetcher decides what may be asked at all, and answers with [`Response::fail`] otherwise.
    fn fetch(&self, request: FetchRequest, response: Response);
}

/// How something is fetched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FetchMethod {
    /// Without a body: a document.
    Get,
    /// With a body: an answer of an endpoint.
    Post,
}

/// One request.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// An absolute IRI, as the query or its data name it.
    pub url: String,
    /// How it is sent.
    pub method: FetchMethod,
    /// For the field `Content-Type` of a POST.
    pub content_type: &'static str,
    /// For the field `Accept`.
    pub accept: &'static str,
    /// The body of a POST.
    pub body: Vec<u8>,
    /// After how long nobody wants the answer any more.
    pub time_left: Option<Duration>,
}

/// Where the outcome of a request goes. Dropping it is a failure.
pub struct Response(Outcome);

enum Outcome {
    Solutions(SolutionsWriter),
    Document(DocumentWriter),
}

struct SolutionsWriter {
    answer: AnswerWriter,
    variables: Vec<String>,
}

impl Response {
    /// What tells when the query wants no more, so that the connection can be dropped.
    #[must_use]
    pub fn demand(&self) -> Demand {
        Demand(match &self.0 {
            Outcome::Solutions(writer) => Wanted::Solutions(writer.answer.interest()),
            Outcome::Document(writer) => Wanted::Document(writer.waiting()),
        })
    }

    /// Ends the request as failed.
    pub fn fail(self, reason: impl Into<String>) {
        match self.0 {
            Outcome::Solutions(writer) => writer.answer.finish(Err(reason.into())),
            Outcome::Document(writer) => writer.fail(reason.into()),
        }
    }

    /// Reads the answer of a successful request to its end. Solutions are parsed, JSON, XML or TSV as
    /// `content_type` says, and this thread waits while the query is behind.
    pub fn read(self, content_type: Option<&str>, body: impl Read) {
        match self.0 {
            Outcome::Solutions(writer) => writer.read(content_type, body),
            Outcome::Document(writer) => writer.read(content_type, body),
        }
    }
}

impl SolutionsWriter {
    fn read(self, content_type: Option<&str>, body: impl Read) {
        let outcome = self.parse(content_type, body);
        match outcome {
            // Nobody is there to be told.
            Err(None) => drop(self.answer),
            Err(Some(reason)) => self.answer.finish(Err(reason)),
            Ok(()) => self.answer.finish(Ok(())),
        }
    }

    /// Hands solutions on while they come; fails with `None` if nobody wants them any more.
    fn parse(&self, content_type: Option<&str>, body: impl Read) -> Result<(), Option<String>> {
        let named = content_type.unwrap_or("none");
        let format = QueryResultsFormat::from_media_type(named)
            // CSV does not tell IRIs from literals.
            .filter(|format| *format != QueryResultsFormat::Csv)
            .ok_or_else(|| format!("its answer has the content type {named}"))?;
        let broken = |error: &dyn fmt::Display| format!("its answer is damaged: {error}");
        let parser = QueryResultsParser::from_format(format).for_reader(body);
        let solutions = match parser.map_err(|error| broken(&error))? {
            ReaderQueryResultsParserOutput::Solutions(solutions) => solutions,
            ReaderQueryResultsParserOutput::Boolean(_) => {
                return Err(Some("it answers true or false instead of solutions".into()));
            }
        };
        let places: Vec<Option<usize>> = self
            .variables
            .iter()
            .map(|name| {
                let mut all = solutions.variables().iter();
                all.position(|variable| variable.as_str() == name)
            })
            .collect();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for solution in solutions {
            let solution = solution.map_err(|error| broken(&error))?;
            let row: Vec<Option<Term>> = places
                .iter()
                .map(|place| place.and_then(|place| solution.get(place)).cloned())
                .collect();
            bytes += row.iter().flatten().map(weight).sum::<usize>() + size_of_val(&*row);
            batch.push(row);
            if batch.len() >= SERVICE_BATCH_SOLUTIONS || bytes >= SERVICE_BATCH_BYTES {
                let batch = std::mem::take(&mut batch);
                let bytes = std::mem::take(&mut bytes);
                self.answer.push(batch, bytes).map_err(|_| None)?;
            }
        }
        self.answer.push(batch, bytes).map_err(|_| None)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").finish_non_exhaustive()
    }
}

/// Whether a query still waits for a response.
#[derive(Clone, Debug)]
pub struct Demand(Wanted);

#[derive(Clone, Debug)]
enum Wanted {
    Solutions(Interest),
    Document(Waiting),
}

impl Demand {
    /// Whether the query wants no more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Wanted::Solutions(interest) => interest.is_lost(),
            Wanted::Document(waiting) => waiting.is_lost(),
        }
    }

    /// Ready when the query wants no more: it was cancelled, has failed, or has all it needs.
    pub fn poll_lost(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.0 {
            Wanted::Solutions(interest) => interest.poll_lost(context),
            Wanted::Document(waiting) => waiting.poll_lost(context),
        }
    }
}

/// About how many bytes a term takes.
pub(crate) fn weight(term: &Term) -> usize {
    let mut bytes = 0;
    let mut rest = Some(term);
    while let Some(term) = rest.take() {
        bytes += match term {
            Term::NamedNode(iri) => iri.as_str().len(),
            Term::BlankNode(node) => node.as_str().len(),
            Term::Literal(literal) => literal.value().len() + literal.datatype().as_str().len(),
            Term::Triple(triple) => {
                rest = Some(&triple.object);
                triple.predicate.as_str().len() + size_of_val(&**triple)
            }
        };
    }
    bytes
}

/// What the executor asks endpoints with.
#[derive(Debug)]
pub(crate) struct Federation {
    pub(crate) fetch: Arc<dyn Fetch>,
}

impl ServiceClient for Federation {
    fn ask(&self, request: ServiceRequest, answer: AnswerWriter) {
        let text = query_text(&request);
        let mut body = b"query=".to_vec();
        encode(&text, &mut body);
        let fetch = FetchRequest {
            url: request.endpoint,
            method: FetchMethod::Post,
            content_type: "application/x-www-form-urlencoded",
            accept: ACCEPT,
            body,
            time_left: request.time_left,
        };
        let variables = request.variables;
        let response = Response(Outcome::Solutions(SolutionsWriter { answer, variables }));
        self.fetch.fetch(fetch, response);
    }
}

/// The query that is sent. The pattern has a group of its own, so that VALUES is joined with all of
/// it.
fn query_text(request: &ServiceRequest) -> String {
    let mut text = String::from("SELECT");
    if request.variables.is_empty() {
        text.push_str(" *");
    }
    for name in &request.variables {
        text.push_str(" ?");
        text.push_str(name);
    }
    text.push_str(" WHERE {");
    if !request.bound.is_empty() {
        text.push_str(" VALUES (");
        for name in &request.bound {
            text.push_str(" ?");
            text.push_str(name);
        }
        text.push_str(" ) {");
        for binding in &request.bindings {
            text.push_str(" (");
            for term in binding {
                match term {
                    // A String takes everything.
                    Some(term) => write!(text, " {term}").unwrap_or_default(),
                    None => text.push_str(" UNDEF"),
                }
            }
            text.push_str(" )");
        }
        text.push_str(" }");
    }
    text.push_str(" { ");
    text.push_str(&request.pattern);
    text.push_str(" } }");
    text
}

/// Adds text as a value of a form.
fn encode(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |four: u8| DIGITS.get(usize::from(four)).copied().unwrap_or(b'0');
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            b' ' => out.push(b'+'),
            byte => out.extend([b'%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::{Literal, NamedNode};

    use super::*;

    #[test]
    fn bindings_are_sent_beside_the_pattern() {
        let request = ServiceRequest {
            endpoint: "http://a.example/".to_owned(),
            pattern: "?s ?p ?o .".into(),
            variables: vec!["s".to_owned(), "o".to_owned()],
            bound: vec!["s".to_owned()],
            bindings: vec![
                vec![Some(NamedNode::new_unchecked("http://a/s").into())],
                vec![Some(Literal::new_simple_literal("a\"b\n").into())],
            ],
            time_left: None,
        };
        let text = query_text(&request);
        assert_eq!(
            text,
            "SELECT ?s ?o WHERE { VALUES ( ?s ) { ( <http://a/s> ) ( \"a\\\"b\\n\" ) } \
             { ?s ?p ?o . } }"
        );
        assert!(spargebra::SparqlParser::new().parse_query(&text).is_ok());
        let mut form = Vec::new();
        encode("a b&c\u{e9}", &mut form);
        assert_eq!(form, b"a+b%26c%C3%A9");
    }
}
