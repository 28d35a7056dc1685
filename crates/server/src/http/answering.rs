//! Answering a query in the worker pool, and the body that its bytes come through.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame};
use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{
    CancelHandle, Database, Error, GraphFormat, QueryKind, QueryOptions, Task, TaskStream,
};

use super::accept::negotiate;
use super::parameters::Parameters;
use super::problem::Problem;

/// A query from its text to the last byte of its answer.
pub(crate) struct QueryTask {
    state: State,
    /// Told to the reactor before the first chunk.
    content_type: Arc<Mutex<Option<&'static str>>>,
}

enum State {
    Prepare(Box<Request>),
    Answer(Box<Answer>),
}

/// What a client asks for.
pub(super) struct Request {
    pub(super) database: Database,
    pub(super) text: String,
    pub(super) options: QueryOptions,
    pub(super) format: Option<ResultFormat>,
    pub(super) accept: Option<String>,
}

impl QueryTask {
    pub(super) fn new(request: Request) -> (Self, Arc<Mutex<Option<&'static str>>>) {
        let content_type = Arc::new(Mutex::new(None));
        let state = State::Prepare(Box::new(request));
        (
            Self {
                state,
                content_type: Arc::clone(&content_type),
            },
            content_type,
        )
    }
}

impl Task for QueryTask {
    type Error = Problem;

    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem> {
        match &mut self.state {
            State::Answer(answer) => answer.step(out).map_err(Problem::from),
            State::Prepare(request) => {
                let query = request.database.prepare(&request.text, &request.options)?;
                let format = choose_format(query.kind(), request)?;
                let content_type = match format {
                    ResultFormat::Solutions(format) => format.content_type(),
                    ResultFormat::Graph(format) => graph_content_type(format),
                };
                *self
                    .content_type
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(content_type);
                self.state = State::Answer(Box::new(Answer::new(query, format)?));
                Ok(true)
            }
        }
    }

    fn panicked() -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the query met a fault of Stoa's own; please report it with the query",
        )
    }
}

fn choose_format(kind: QueryKind, request: &Request) -> Result<ResultFormat, Problem> {
    if let Some(format) = request.format {
        return Ok(format);
    }
    let accept = request.accept.as_deref();
    let mut offers: Vec<(&str, ResultFormat)> = Vec::new();
    if kind == QueryKind::Graph {
        let formats = [
            GraphFormat::Turtle,
            GraphFormat::NTriples,
            GraphFormat::RdfXml,
            GraphFormat::NQuads,
            GraphFormat::TriG,
        ];
        offers.extend(formats.map(|format| (format.media_type(), ResultFormat::Graph(format))));
    } else {
        for format in SolutionsFormat::NEGOTIABLE {
            offers.push((format.media_type(), ResultFormat::Solutions(format)));
        }
        let solutions = ResultFormat::Solutions;
        offers.push(("application/json", solutions(SolutionsFormat::Json)));
        offers.push(("application/xml", solutions(SolutionsFormat::Xml)));
        offers.push(("text/xml", solutions(SolutionsFormat::Xml)));
    }
    negotiate(accept, &offers).ok_or_else(|| {
        let names: Vec<&str> = offers.iter().map(|offer| offer.0).collect();
        Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "not-acceptable",
            format!("the answer can be had as {}", names.join(", ")),
        )
    })
}

fn graph_content_type(format: GraphFormat) -> &'static str {
    match format {
        GraphFormat::Turtle => "text/turtle; charset=utf-8",
        format => format.media_type(),
    }
}

/// The options of a query as the server and the request say.
pub(super) fn options(
    parameters: &Parameters,
    settings: &super::Settings,
    cancel: CancelHandle,
) -> QueryOptions {
    let asked = parameters.timeout.map(std::time::Duration::from_secs_f64);
    QueryOptions {
        timeout: Some(asked.map_or(settings.timeout, |asked| asked.min(settings.timeout))),
        default_graph_union: settings.default_graph_union,
        default_graphs: parameters.default_graphs.clone(),
        named_graphs: parameters.named_graphs.clone(),
        cancel,
        ..QueryOptions::default()
    }
}

/// The body of an answer: chunks as the task makes them. An error after the first chunk breaks the
/// connection off without the last chunk, so that the answer cannot be taken for complete.
pub(super) struct AnswerBody {
    first: Option<Vec<u8>>,
    stream: Option<TaskStream<QueryTask>>,
    cancel: CancelHandle,
}

impl AnswerBody {
    pub(super) fn new(
        first: Option<Vec<u8>>,
        stream: TaskStream<QueryTask>,
        cancel: CancelHandle,
    ) -> Self {
        Self {
            first,
            stream: Some(stream),
            cancel,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(first)))));
        }
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        match stream.poll_chunk(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(chunk))) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(chunk))))),
            Poll::Ready(Some(Err(problem))) => {
                self.stream = None;
                Poll::Ready(Some(Err(std::io::Error::other(problem.detail))))
            }
            Poll::Ready(None) => {
                self.stream = None;
                Poll::Ready(None)
            }
        }
    }
}

impl Drop for AnswerBody {
    /// A client that went away: the query ends at its next batch.
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = detail(&error);
        match &error {
            Error::Syntax(syntax) => {
                let mut problem = Self::new(StatusCode::BAD_REQUEST, "syntax", detail);
                let place = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
                problem.place = Some((
                    place(syntax.line),
                    place(syntax.column),
                    syntax.near.clone(),
                ));
                problem
            }
            Error::Unsupported(_) => Self::new(StatusCode::BAD_REQUEST, "unsupported", detail),
            Error::InvalidOption { .. } => {
                Self::new(StatusCode::NOT_ACCEPTABLE, "not-acceptable", detail)
            }
            Error::LimitExceeded { .. } => Self::new(StatusCode::BAD_REQUEST, "limit", detail),
            Error::Timeout => Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", detail),
            Error::MemoryExceeded { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "memory", detail)
            }
            Error::Cancelled => Self::new(StatusCode::SERVICE_UNAVAILABLE, "cancelled", detail),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail),
        }
    }
}

/// An error with its causes.
fn detail(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
