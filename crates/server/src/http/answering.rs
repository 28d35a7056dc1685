//! Answers made in the worker pool, and the body that their bytes come through.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::HeaderMap;
use stoa_database::oxrdf::NamedNode;
use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::sync::Mutex;
use stoa_database::{
    CancelHandle, Database, Dump, Error, GraphFormat, Note, OutputPiece, Patch, Query, QueryKind,
    QueryOptions, Reservation, Step, SyntaxError, Task, TaskProgress, TaskStream, nonblocking,
};
use tokio::time::Instant;

use super::accept::negotiate;
use super::body::KeptBody;
use super::commits::CommitAnswer;
use super::description::Description;
use super::encoding::{Coding, ENCODED_BYTES_MIN, Encoder};
use super::memento::Asked;
use super::notes;
use super::parameters::{Explain, Parameters};
use super::problem::Problem;
use super::rdf4j::OpenTransaction;
use super::unsent::Unsent;
use crate::memory::exceeded;

/// An answer from its request to its last byte.
pub(crate) struct AnswerTask {
    work: Work,
    /// What was written and is not encoded yet.
    plain: Vec<u8>,
    /// The coding that the client wants; used if the answer is long enough.
    coding: Coding,
    /// Whether the client takes a short answer as it is.
    takes_plain: bool,
    encoder: Option<Encoder>,
    /// Told to the reactor before the first chunk.
    head: Arc<Mutex<Head>>,
    /// Notes on the query, for a problem that stops it.
    notes: Vec<Note>,
    /// What was asked, as long as the answer may have to begin anew.
    request: Option<Box<QueryRequest>>,
    /// The memory of what was sent.
    _memory: Option<Reservation>,
}

/// What kinds of answers there are.
pub(super) enum Work {
    /// A query that is still to be parsed and planned.
    Prepare(Box<QueryRequest>),
    /// What is still to be found out, which may read from disk; `None` once it is.
    Open(Option<Opening>),
    /// The answer to a query, in this format.
    Answer(Box<Answer>, ResultFormat),
    Dump(Box<Dump>),
    Patch(Box<Patch>),
    Commits(Box<CommitAnswer>),
    Description(Box<Description>),
    /// A query that is run to tell what its operators do, and whether that is to be JSON.
    Analyze(Box<Query>, bool),
    /// A text that is there as a whole.
    Text(String),
}

/// Finds out what the answer is.
pub(super) type Opening = Box<dyn FnOnce() -> Result<Opened, Problem> + Send>;

/// An answer whose head is known.
pub(super) struct Opened {
    pub(super) work: Work,
    pub(super) content_type: &'static str,
    pub(super) headers: HeaderMap,
}

/// What the head of a response says of its body.
#[derive(Default)]
pub(super) struct Head {
    pub(super) content_type: &'static str,
    pub(super) coding: Coding,
    /// Notes on the query, and what an earlier state is.
    pub(super) headers: HeaderMap,
}

/// What a client asks for.
pub(super) struct QueryRequest {
    pub(super) source: QuerySource,
    /// Which state is asked; not for one of a transaction.
    pub(super) asked: Asked,
    /// What is wanted instead of the answer.
    pub(super) explain: Option<Explain>,
    pub(super) text: String,
    pub(super) options: QueryOptions,
    pub(super) format: Option<ResultFormat>,
    pub(super) accept: Option<String>,
    /// Formats that turned out not to hold the answer.
    pub(super) failed: Vec<ResultFormat>,
    /// When it came: the time that it waits for its turn counts.
    pub(super) arrived: Instant,
    /// Whether what was sent is short.
    pub(super) is_short: bool,
    /// The memory of what was sent, kept to the end of the answer.
    pub(super) memory: Option<Reservation>,
}

/// What a query reads.
pub(super) enum QuerySource {
    Database(Database),
    Transaction(Arc<OpenTransaction>),
}

impl QueryRequest {
    /// Whether the thread that has read it may begin it: it is short, and waits for nobody.
    fn may_begin(&self) -> bool {
        self.is_short && !self.asked.is_earlier() && matches!(self.source, QuerySource::Database(_))
    }

    /// The plan, and what the head of the response says of the state that is read.
    fn prepare(&self) -> Result<(Query, HeaderMap), Problem> {
        let left = || self.options.after(self.arrived.elapsed());
        match &self.source {
            QuerySource::Database(database) => {
                let timeout = self.options.timeout;
                let timeout = timeout.map(|all| all.saturating_sub(self.arrived.elapsed()));
                let (state, headers) = self.asked.open(database, timeout, &self.options.cancel)?;
                Ok((state.prepare(&self.text, &left())?, headers))
            }
            QuerySource::Transaction(open) => {
                Ok((open.prepare(&self.text, &left())?, HeaderMap::new()))
            }
        }
    }
}

impl QueryRequest {
    /// What is to be done with a query that is planned, and what kind of document comes of it.
    fn work(&self, query: Query) -> Result<(Work, &'static str), Problem> {
        let Some(explain) = self.explain else {
            let (format, content_type) = choose_format(query.kind(), self)?;
            let answer = Answer::new(query, format)?;
            return Ok((Work::Answer(Box::new(answer), format), content_type));
        };
        let json = match self.format {
            Some(format) => format == ResultFormat::Solutions(SolutionsFormat::Json),
            None => negotiate(
                self.accept.as_deref(),
                &[
                    ("text/plain", false),
                    ("application/json", true),
                    ("application/sparql-results+json", false),
                ],
            )
            .unwrap_or(false),
        };
        let work = match (explain, json) {
            (Explain::Analyze, _) => Work::Analyze(Box::new(query), json),
            (Explain::Plan, true) => Work::Text(line(&query.analysis()?.to_json())),
            (Explain::Plan, false) => Work::Text(query.analysis()?.to_string()),
        };
        Ok(match json {
            true => (work, "application/json"),
            false => (work, "text/plain; charset=utf-8"),
        })
    }
}

impl Work {
    /// Whether the thread that has read the request may begin it.
    pub(super) fn may_begin(&self) -> bool {
        matches!(self, Self::Prepare(request) if request.may_begin())
    }
}

impl AnswerTask {
    pub(super) fn new(
        mut work: Work,
        coding: Coding,
        takes_plain: bool,
    ) -> (Self, Arc<Mutex<Head>>) {
        let memory = match &mut work {
            Work::Prepare(request) => request.memory.take(),
            _ => None,
        };
        let content_type = match &work {
            Work::Description(description) => description.content_type,
            _ => "application/octet-stream",
        };
        let head = Arc::new(Mutex::new(Head {
            content_type,
            ..Head::default()
        }));
        let task = Self {
            work,
            plain: Vec::new(),
            coding,
            takes_plain,
            encoder: None,
            head: Arc::clone(&head),
            notes: Vec::new(),
            request: None,
            _memory: memory,
        };
        (task, head)
    }

    /// Takes the next format that the client accepts where the answer turns out to have terms that its format cannot
    /// hold; not once some of it has gone out.
    fn begins_anew(&mut self, problem: &Problem) -> bool {
        let Work::Answer(answer, format) = &self.work else {
            return false;
        };
        if problem.code != "unsupported" || self.encoder.is_some() {
            return false;
        }
        let Some(mut request) = self.request.take() else {
            return false;
        };
        request.failed.push(*format);
        // Without another one the client is told what is wrong with the first.
        if choose_format(answer.query().kind(), &request).is_err() {
            return false;
        }
        self.plain.clear();
        self.work = Work::Prepare(request);
        true
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step of the work itself, into `plain`.
    fn work(&mut self, waker: &Waker) -> Result<TaskProgress, Problem> {
        match &mut self.work {
            Work::Answer(answer, _) => answer.poll(&mut self.plain, waker).map_err(Problem::from),
            Work::Dump(dump) => dump.poll(&mut self.plain, waker).map_err(Problem::from),
            Work::Patch(patch) => Ok(more(patch.step(&mut self.plain)?)),
            Work::Commits(commits) => Ok(more(commits.step(&mut self.plain)?)),
            Work::Analyze(query, json) => {
                let step = query.poll(waker);
                match step.map_err(|error| with_plan(error.into(), query, *json))? {
                    Poll::Ready(Step::Done) => {
                        let analysis = query.analysis()?;
                        self.work = Work::Text(match json {
                            true => line(&analysis.to_json()),
                            false => analysis.to_string(),
                        });
                    }
                    Poll::Ready(_) => (),
                    Poll::Pending => return Ok(TaskProgress::Asleep(query.wake_ns())),
                }
                Ok(TaskProgress::More)
            }
            Work::Text(text) => {
                self.plain.extend_from_slice(text.as_bytes());
                Ok(TaskProgress::Done)
            }
            Work::Open(opening) => {
                let opening = opening.take().ok_or_else(Self::panicked)?;
                let opened = opening()?;
                self.work = opened.work;
                let mut head = self.head();
                head.content_type = opened.content_type;
                head.headers = opened.headers;
                drop(head);
                Ok(TaskProgress::More)
            }
            Work::Description(description) => {
                description.write(&mut self.plain)?;
                Ok(TaskProgress::Done)
            }
            Work::Prepare(request) => {
                let (query, mut headers) = request.prepare()?;
                self.notes = query.notes().to_vec();
                for note in notes::header_values(&self.notes) {
                    headers.append(notes::STOA_NOTE, note);
                }
                let (work, content_type) = request.work(query)?;
                let may_fail = match &work {
                    Work::Answer(_, format) => request.format.is_none() && may_not_hold(*format),
                    _ => false,
                };
                let before = std::mem::replace(&mut self.work, work);
                if let (Work::Prepare(request), true) = (before, may_fail || nonblocking::is_on()) {
                    self.request = Some(request);
                }
                let mut head = self.head();
                head.content_type = content_type;
                head.headers = headers;
                drop(head);
                Ok(TaskProgress::More)
            }
        }
    }
}

/// The problem of a query that has ended before it was done, with what its operators did until then.
fn with_plan(mut problem: Problem, query: &Query, json: bool) -> Problem {
    // Without a stack for the plan there is none.
    if let Ok(analysis) = query.analysis() {
        let plan = match json {
            true => serde_json::from_str(&analysis.to_json()).unwrap_or_default(),
            false => analysis.to_string().into(),
        };
        problem.members.push(("plan", plan));
    }
    problem
}

/// Whether there are terms that the format cannot hold, such as texts with control characters in XML.
const fn may_not_hold(format: ResultFormat) -> bool {
    matches!(
        format,
        ResultFormat::Solutions(SolutionsFormat::Xml | SolutionsFormat::Binary)
            | ResultFormat::Graph(GraphFormat::RdfXml)
    )
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

const fn more(more: bool) -> TaskProgress {
    match more {
        true => TaskProgress::More,
        false => TaskProgress::Done,
    }
}

impl Task for AnswerTask {
    type Error = Problem;

    fn step(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<TaskProgress, Problem> {
        let progress = match self.work(waker) {
            Err(problem) if self.begins_anew(&problem) => return Ok(TaskProgress::More),
            progress => progress,
        };
        let progress = progress.map_err(|mut problem| {
            if !self.notes.is_empty() {
                problem.members.push(("notes", notes::json(&self.notes)));
            }
            problem
        })?;
        let more = progress != TaskProgress::Done;
        if self.encoder.is_none() {
            if more && self.plain.is_empty() {
                return Ok(progress);
            }
            let is_short = !more && self.plain.len() < ENCODED_BYTES_MIN;
            let coding = if is_short && self.takes_plain {
                Coding::Identity
            } else {
                self.coding
            };
            self.head().coding = coding;
            self.encoder = Some(Encoder::new(coding).map_err(not_encoded)?);
        }
        if !nonblocking::is_on() {
            self.request = None;
        }
        if let Some(encoder) = &mut self.encoder {
            encoder.push(&mut self.plain, out).map_err(not_encoded)?;
            if !more {
                encoder.finish(out).map_err(not_encoded)?;
            }
        }
        Ok(progress)
    }

    fn restart(&mut self) {
        if let Some(request) = self.request.take() {
            self.work = Work::Prepare(request);
        }
        self.plain.clear();
        self.encoder = None;
        self.notes.clear();
    }

    fn can_restart(&self) -> bool {
        self.request.is_some() || matches!(self.work, Work::Prepare(_))
    }

    fn panicked() -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the query met a fault of Stoa's own; please report it with the query",
        )
    }
}

fn not_encoded(error: std::io::Error) -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        format!("the answer could not be encoded: {error}"),
    )
}

/// A format of an answer, and what the head of the response calls it.
type Offer = (ResultFormat, &'static str);

/// The format that the client wants most, of those that can hold the answer as far as it is known.
fn choose_format(kind: QueryKind, request: &QueryRequest) -> Result<Offer, Problem> {
    if let Some(format) = request.format {
        let format = of_kind(kind, format);
        return Ok((format, content_type(format)));
    }
    let mut offers = offers(kind);
    offers.retain(|(_, (format, _))| !request.failed.contains(format));
    choose(request.accept.as_deref(), &offers)
}

/// What a name means for an answer of this kind: `json` and `xml` have a meaning for solutions and one for graphs.
fn of_kind(kind: QueryKind, format: ResultFormat) -> ResultFormat {
    match (kind, format) {
        (QueryKind::Graph, ResultFormat::Solutions(SolutionsFormat::Json)) => {
            ResultFormat::Graph(GraphFormat::JsonLd)
        }
        (QueryKind::Graph, ResultFormat::Solutions(SolutionsFormat::Xml)) => {
            ResultFormat::Graph(GraphFormat::RdfXml)
        }
        (_, format) => format,
    }
}

fn content_type(format: ResultFormat) -> &'static str {
    match format {
        ResultFormat::Solutions(format) => format.content_type(),
        ResultFormat::Graph(format) => graph_content_type(format),
    }
}

/// What an answer of this kind can be had as.
fn offers(kind: QueryKind) -> Vec<(&'static str, Offer)> {
    if kind == QueryKind::Graph {
        let formats = [
            GraphFormat::Turtle,
            GraphFormat::NTriples,
            GraphFormat::RdfXml,
            GraphFormat::JsonLd,
            GraphFormat::NQuads,
            GraphFormat::TriG,
        ];
        let offers = graph_offers(&formats).into_iter();
        return offers
            .map(|(media_type, (format, told))| (media_type, (ResultFormat::Graph(format), told)))
            .collect();
    }
    let is_boolean = kind == QueryKind::Boolean;
    let formats = SolutionsFormat::NEGOTIABLE.into_iter();
    let formats = formats.filter(|format| !(is_boolean && *format == SolutionsFormat::Binary));
    let mut offers: Vec<_> = formats
        .map(|format| (format.media_type(), format))
        .collect();
    offers.extend([
        ("application/json", SolutionsFormat::Json),
        ("application/xml", SolutionsFormat::Xml),
        ("text/xml", SolutionsFormat::Xml),
        ("text/plain", SolutionsFormat::Table),
    ]);
    let told = |(media_type, format): (&'static str, SolutionsFormat)| {
        let offer = (ResultFormat::Solutions(format), format.content_type());
        (media_type, offer)
    };
    let mut offers: Vec<_> = offers.into_iter().map(told).collect();
    if is_boolean {
        // The word alone, which is what CSV has.
        let word = ResultFormat::Solutions(SolutionsFormat::Csv);
        offers.push(("text/boolean", (word, "text/boolean; charset=us-ascii")));
    }
    offers
}

/// The offers of formats of triples, each with the content type to be told: by their media types, N-Triples also by
/// `text/plain`, which it had before it got one.
pub(super) fn graph_offers(
    formats: &[GraphFormat],
) -> Vec<(&'static str, (GraphFormat, &'static str))> {
    let of = |format: &GraphFormat| (format.media_type(), (*format, graph_content_type(*format)));
    let mut offers: Vec<_> = formats.iter().map(of).collect();
    if formats.contains(&GraphFormat::NTriples) {
        offers.push((
            "text/plain",
            (GraphFormat::NTriples, "text/plain; charset=utf-8"),
        ));
    }
    offers
}

/// The offer that the client wants most.
///
/// # Errors
/// 406 with what is offered.
pub(super) fn choose<T: Copy>(accept: Option<&str>, offers: &[(&str, T)]) -> Result<T, Problem> {
    negotiate(accept, offers).ok_or_else(|| {
        let names: Vec<&str> = offers.iter().map(|offer| offer.0).collect();
        Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "not-acceptable",
            format!("the answer can be had as {}", names.join(", ")),
        )
    })
}

pub(super) fn graph_content_type(format: GraphFormat) -> &'static str {
    match format {
        GraphFormat::Turtle => "text/turtle; charset=utf-8",
        format => format.media_type(),
    }
}

/// The options of a query as the server and the request say; relative IRIs are relative to the
/// address of the endpoint.
pub(super) fn options(
    parameters: &Parameters,
    endpoint: String,
    settings: &super::Settings,
    cancel: CancelHandle,
) -> QueryOptions {
    let asked = parameters
        .timeout
        .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    // A Host that is none gives no base.
    let address = || NamedNode::new(endpoint).ok().map(NamedNode::into_string);
    QueryOptions {
        base: parameters.base.clone().or_else(address),
        bindings: parameters.bindings.clone(),
        timeout: Some(asked.map_or(settings.timeout, |asked| asked.min(settings.timeout))),
        default_graph_union: parameters
            .default_graph_union
            .unwrap_or(settings.default_graph_union),
        default_graphs: parameters.default_graphs.clone(),
        named_graphs: parameters.named_graphs.clone(),
        timed: parameters.explain == Some(Explain::Analyze),
        plans: !parameters.fresh_plan,
        cancel,
        ..QueryOptions::default()
    }
}

/// The body of an answer: chunks as the task makes them. An error after the first chunk breaks the
/// connection off without the last chunk, so that the answer cannot be taken for complete.
pub(super) struct AnswerBody {
    first: Option<OutputPiece>,
    stream: Option<TaskStream<AnswerTask>>,
    unsent: Unsent,
    cancel: CancelHandle,
    tell: fn(&str),
}

impl AnswerBody {
    /// `tell` is told why an answer breaks off, since its client cannot be.
    pub(super) fn new(
        first: Option<OutputPiece>,
        stream: TaskStream<AnswerTask>,
        cancel: CancelHandle,
        tell: fn(&str),
    ) -> Self {
        Self {
            first,
            stream: Some(stream),
            unsent: Unsent::default(),
            cancel,
            tell,
        }
    }

    /// Waits for the whole of the answer and gives it, in at most `bytes_max` bytes.
    ///
    /// # Errors
    /// What the answer breaks off with; 503 if there is no memory for it, 505 if it is longer.
    pub(super) async fn kept(mut self, bytes_max: u64) -> Result<KeptBody, Problem> {
        let mut kept = KeptBody::default();
        let mut first = self.first.take();
        loop {
            let next = match (first.take(), &mut self.stream) {
                (Some(chunk), _) => Some(Ok(chunk)),
                (None, Some(stream)) => poll_fn(|context| stream.poll_chunk(context)).await,
                (None, None) => None,
            };
            let Some(chunk) = next.transpose()? else {
                return Ok(kept);
            };
            if !chunk.has_room {
                return Err(Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "memory",
                    "other requests hold the memory that an answer to a client of HTTP/1.0 needs, which is made whole \
                     before it is sent: send the request again in a moment, or ask by HTTP/1.1",
                ));
            }
            kept.push(chunk);
            if kept.bytes() > bytes_max {
                return Err(Problem::new(
                    StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                    "http-version",
                    format!(
                        "an answer of more than {bytes_max} bytes needs HTTP/1.1, \
                         which can tell its end from a broken connection"
                    ),
                ));
            }
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
        ready!(self.unsent.poll_room(context));
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(self.unsent.hand_over(first)))));
        }
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        match stream.poll_chunk(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(chunk))) => {
                Poll::Ready(Some(Ok(Frame::data(self.unsent.hand_over(chunk)))))
            }
            Poll::Ready(Some(Err(problem))) => {
                self.stream = None;
                (self.tell)(&format!("an answer was broken off: {}", problem.detail));
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
        const BUSY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
        let detail = detail(&error);
        match &error {
            Error::Syntax(error) => syntax(error, detail),
            Error::Data(data) => Self::new(StatusCode::BAD_REQUEST, "data", detail)
                .with("line", data.line.into())
                .with("column", data.column.into()),
            Error::NamesGraphs => Self::new(StatusCode::BAD_REQUEST, "names-graphs", detail),
            // A body that broke off, or that is damaged.
            Error::Input { .. } => Self::new(StatusCode::BAD_REQUEST, "input", detail),
            Error::UnknownFormat { .. } => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                detail,
            ),
            Error::Unsupported(_) => Self::new(StatusCode::BAD_REQUEST, "unsupported", detail),
            Error::InvalidOption {
                option: "--format", ..
            } => Self::new(StatusCode::NOT_ACCEPTABLE, "not-acceptable", detail),
            Error::InvalidOption { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
            }
            Error::NoSuchCommit { is_expired, .. } => Self::new(
                if *is_expired {
                    StatusCode::GONE
                } else {
                    StatusCode::NOT_FOUND
                },
                "no-such-commit",
                detail,
            ),
            Error::LimitExceeded { .. } | Error::QueryLimit(_) => {
                Self::new(StatusCode::BAD_REQUEST, "limit", detail)
            }
            Error::ServiceOff => Self::new(StatusCode::FORBIDDEN, "service-off", detail),
            Error::Service { .. } => Self::new(StatusCode::BAD_GATEWAY, "service", detail),
            Error::LoadOff => Self::new(StatusCode::FORBIDDEN, "load-off", detail),
            Error::Load { .. } => Self::new(StatusCode::BAD_GATEWAY, "load", detail),
            Error::NoSuchGraph { .. } => Self::new(StatusCode::NOT_FOUND, "no-such-graph", detail),
            Error::GraphExists { .. } => Self::new(StatusCode::CONFLICT, "graph-exists", detail),
            Error::Timeout => Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", LATE),
            Error::MemoryExceeded { .. } => Self::new(BUSY, "memory", detail),
            Error::NotAdmitted { .. } => Self::new(BUSY, "memory-wait", detail),
            Error::TemporarySpace { .. } => Self::new(BUSY, "temporary-space", detail),
            Error::Cancelled => Self::new(StatusCode::SERVICE_UNAVAILABLE, "cancelled", ENDED),
            Error::Conflict { .. } => Self::new(StatusCode::CONFLICT, "conflict", detail),
            Error::OutcomeUnknown { commit, .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "outcome-unknown", detail)
                    .with("commit", (*commit).into())
            }
            Error::PatchConflict {
                quads, examples, ..
            } => Self::new(StatusCode::CONFLICT, "patch-conflict", detail)
                .with("quads", (*quads).into())
                .with("examples", examples.as_slice().into()),
            Error::SnapshotExpired { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "snapshot-expired", detail)
            }
            Error::ReadOnly => Self::new(StatusCode::FORBIDDEN, "read-only", detail),
            Error::RefusesWrites { .. } | Error::DiskFull { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "refuses-writes", detail)
            }
            Error::Backup { .. } | Error::Locked { .. } => {
                Self::new(StatusCode::CONFLICT, "backup", detail)
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail),
        }
    }
}

/// What is said of a query or an update that ran too long.
const LATE: &str = "it ran longer than the server's --timeout, or timeout= of the request where that is less, allows";

/// What is said of a query or an update that was cancelled.
const ENDED: &str =
    "it was ended before it was done, by DELETE /status/queries/ or since the server ends";

/// What is told of a text that does not follow the grammar.
fn syntax(error: &SyntaxError, detail: String) -> Problem {
    let mut problem = Problem::new(StatusCode::BAD_REQUEST, "syntax", detail);
    problem.members = vec![
        ("line", error.line.into()),
        ("column", error.column.into()),
        ("near", error.near.clone().into()),
    ];
    let suggestion = error.suggestion.clone();
    let suggestion = suggestion.map(|suggestion| ("suggestion", suggestion.into()));
    problem.members.extend(suggestion);
    problem
}

/// An error with its causes.
fn detail(error: &Error) -> String {
    let mut text = exceeded(error).unwrap_or_else(|| error.to_string());
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
