//! Interactive transactions over HTTP: begun by one request, used by others, ended by one more.
//!
//! # Concurrency
//! A transaction does one thing at a time; a request that comes while another is at work gets 409, so
//! that no thread waits. Queries hold it only until they are planned: they read what it was then.
//! Whoever says nothing for [`Transactions::idle`] loses the transaction; a ping is enough.
//!
//! # Limits
//! [`OPEN_MAX`] transactions are open at once, [`CLIENT_OPEN_MAX`] of one client. The last [`ENDED_MAX`] that ended are known by name, so
//! that who comes late learns why.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode};
use stoa_database::sync::Mutex;
use stoa_database::{
    CancelHandle, CommitSummary, Query, QueryOptions, Transaction, TransactionOptions,
};
use tokio::time::Instant;

use super::statements::{Update, format};
use super::upload::Upload;
use super::values::Parameters;
use super::{Request, done, empty, text};
use crate::http::answering::{Opened, QueryRequest, QuerySource, Work, options};
use crate::http::body::{BODY_BYTES_MAX, NAME_BYTES_MAX, ResponseBody, read_text, reserve};
use crate::http::clients::{ClientPlace, ClientPlaces};
use crate::http::memento::{Asked, not_at};
use crate::http::parameters::{self, split_content_type};
use crate::http::problem::Problem;
use crate::http::route::{joined, run};
use crate::http::sparql::wanted_format;
use crate::http::upload::write_with_body;
use crate::http::writing::write;

/// The most transactions that are open at once.
const OPEN_MAX: usize = 1_000;

/// The most that one client has open at once.
const CLIENT_OPEN_MAX: usize = 100;

/// How many of those that ended are known by name.
const ENDED_MAX: usize = 1_000;

/// The open transactions of a server.
pub(crate) struct Transactions {
    registry: Mutex<Registry>,
    /// Those that each client may have.
    places: ClientPlaces,
    /// How long one may be left alone.
    idle: Duration,
}

#[derive(Default)]
struct Registry {
    open: BTreeMap<String, Arc<OpenTransaction>>,
    /// How others ended, the last one at the back.
    ended: VecDeque<(String, &'static str)>,
}

/// A transaction that requests share.
pub(crate) struct OpenTransaction {
    /// The repository that it belongs to.
    repository: String,
    state: Mutex<State>,
    /// Requests that are at work.
    active: AtomicUsize,
    last_use: Mutex<Instant>,
    /// Ends what is under way when the transaction is rolled back.
    cancel: CancelHandle,
    _place: ClientPlace,
}

enum State {
    Open(Box<Transaction>),
    /// It can only be rolled back, for this reason.
    Failed(String),
    Ended,
}

impl Transactions {
    /// Transactions that may be left alone for `idle`.
    pub(crate) fn new(idle: Duration) -> Self {
        Self {
            registry: Mutex::default(),
            places: ClientPlaces::new(
                "open transactions",
                "commit some or roll them back",
                CLIENT_OPEN_MAX,
            ),
            idle,
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, id: String, open: OpenTransaction) -> Result<(), Problem> {
        let mut registry = self.registry();
        if registry.open.len() >= OPEN_MAX {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "too many transactions are open; try again in a moment",
            ));
        }
        registry.open.insert(id, Arc::new(open));
        Ok(())
    }

    fn find(&self, repository: &str, id: &str) -> Result<Arc<OpenTransaction>, Problem> {
        self.expire(Instant::now());
        let registry = self.registry();
        if let Some(open) = registry.open.get(id)
            && open.repository == repository
        {
            return Ok(Arc::clone(open));
        }
        let ended = registry.ended.iter().find(|(ended, _)| ended == id);
        Err(match ended {
            Some((_, how)) => gone(how),
            None => Problem::new(
                StatusCode::NOT_FOUND,
                "no-such-transaction",
                "there is no such transaction",
            ),
        })
    }

    /// Forgets a transaction, and gives it if it was open.
    fn end(&self, id: &str, how: &'static str) -> Option<Arc<OpenTransaction>> {
        let mut registry = self.registry();
        let open = registry.open.remove(id)?;
        registry.note(id.to_owned(), how);
        Some(open)
    }

    /// Rolls back those that have been left alone for too long.
    pub(crate) fn expire(&self, now: Instant) {
        let mut registry = self.registry();
        let late: Vec<String> = registry
            .open
            .iter()
            .filter(|(_, open)| open.is_late(now, self.idle))
            .map(|(id, _)| id.clone())
            .collect();
        let mut dropped = Vec::new();
        for id in late {
            dropped.extend(registry.open.remove(&id));
            registry.note(id, "timed out, as nothing came for it, and was rolled back");
        }
        // What a transaction holds is given back when nobody has the lock.
        drop(registry);
        drop(dropped);
    }
}

impl Registry {
    fn note(&mut self, id: String, how: &'static str) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, how));
    }
}

fn gone(how: &str) -> Problem {
    Problem::new(
        StatusCode::GONE,
        "transaction-ended",
        format!("the transaction {how}"),
    )
}

fn failed(reason: &str) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "transaction-failed",
        format!("the transaction can only be rolled back, since {reason}"),
    )
}

/// A request that uses a transaction, until it is dropped.
struct Using<'a>(&'a OpenTransaction);

impl<'a> Using<'a> {
    fn new(open: &'a OpenTransaction) -> Self {
        open.active.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.touch();
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenTransaction {
    fn new(repository: &str, transaction: Transaction, place: ClientPlace) -> Self {
        Self {
            repository: repository.to_owned(),
            state: Mutex::new(State::Open(Box::new(transaction))),
            active: AtomicUsize::new(0),
            last_use: Mutex::new(Instant::now()),
            cancel: CancelHandle::new(),
            _place: place,
        }
    }

    fn touch(&self) {
        *self.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_late(&self, now: Instant, idle: Duration) -> bool {
        let last = *self.last_use.lock().unwrap_or_else(PoisonError::into_inner);
        self.active.load(Ordering::Relaxed) == 0 && now.saturating_duration_since(last) >= idle
    }

    /// The state, unless a request is at work.
    fn state(&self) -> Result<MutexGuard<'_, State>, Problem> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::WouldBlock) => Err(Problem::new(
                StatusCode::CONFLICT,
                "transaction-busy",
                "another request is at work in the transaction; wait for its answer",
            )),
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut state = poisoned.into_inner();
                *state = State::Failed("a request met a fault of Stoa's own".to_owned());
                Ok(state)
            }
        }
    }

    /// Works with the transaction. If the work fails and `spoils`, the transaction can only be rolled
    /// back.
    fn with<T>(
        &self,
        spoils: bool,
        work: impl FnOnce(&mut Transaction) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let _using = Using::new(self);
        let mut state = self.state()?;
        let done = match &mut *state {
            State::Open(transaction) => work(transaction),
            State::Failed(reason) => return Err(failed(reason)),
            State::Ended => return Err(gone("has ended")),
        };
        if spoils && let Err(problem) = &done {
            let detail = &problem.detail;
            *state = State::Failed(format!("a request stopped half way: {detail}"));
        }
        done
    }

    /// Plans a query over what the transaction sees now.
    pub(in crate::http) fn prepare(
        &self,
        text: &str,
        options: &QueryOptions,
    ) -> Result<Query, Problem> {
        self.with(false, |transaction| Ok(transaction.prepare(text, options)?))
    }

    /// Commits. After an error the transaction is still known, to be rolled back.
    fn commit(&self) -> Result<CommitSummary, Problem> {
        let _using = Using::new(self);
        let mut state = self.state()?;
        match std::mem::replace(&mut *state, State::Ended) {
            State::Open(transaction) => transaction.commit().map_err(|error| {
                let problem = Problem::from(error);
                *state = State::Failed(format!("it was not committed: {}", problem.detail));
                problem
            }),
            State::Failed(reason) => {
                let problem = failed(&reason);
                *state = State::Failed(reason);
                Err(problem)
            }
            State::Ended => Err(gone("has ended")),
        }
    }
}

/// Begins a transaction.
pub(super) async fn begin(request: Request<'_>) -> Result<Response<ResponseBody>, Problem> {
    request.check_writer()?;
    let Request {
        incoming,
        client,
        service,
        name,
        database,
    } = request;
    let (head, body) = incoming.into_parts();
    // Settings such as the isolation level: no level asks for more than every transaction has.
    read_text(service, &head.headers, body, NAME_BYTES_MAX).await?;
    let place = service
        .transactions
        .places
        .take(client.connection.address)?;
    let to_read = database.clone();
    let transaction = write(service, move || {
        Ok(to_read.begin(&TransactionOptions::default())?)
    })
    .await?;
    let runtime = database.runtime();
    let id = format!("{:016x}{:016x}", runtime.random(), runtime.random());
    let location = HeaderValue::from_str(&format!("{}/{id}", client.endpoint))
        .map_err(|_| Problem::bad_request("the Host of the request names no address"))?;
    let open = OpenTransaction::new(name, transaction, place);
    service.transactions.insert(id, open)?;
    let mut response = empty(StatusCode::CREATED);
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// Answers what is asked of one transaction.
pub(super) async fn transaction(
    request: Request<'_>,
    id: &str,
) -> Result<Response<ResponseBody>, Problem> {
    request.check_writer()?;
    let parameters = Parameters::of(request.query())?;
    let service = request.service;
    let open = service.transactions.find(request.name, id)?;
    let action = match parameters.action.clone() {
        None if *request.incoming.method() == Method::DELETE => "ROLLBACK".to_owned(),
        action => action.unwrap_or_default(),
    };
    match action.as_str() {
        "ROLLBACK" => {
            open.cancel.cancel();
            let ended = service.transactions.end(id, "was rolled back");
            drop(open);
            write(service, move || {
                drop(ended);
                Ok(())
            })
            .await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        "PING" => {
            open.touch();
            Ok(text(service.transactions.idle.as_millis().to_string()))
        }
        "PREPARE" => {
            open.with(false, |_| Ok(()))?;
            Ok(empty(StatusCode::OK))
        }
        "COMMIT" => {
            let summary = write(service, move || open.commit()).await?;
            service.transactions.end(id, "was committed");
            Ok(done(StatusCode::OK, &summary))
        }
        "SIZE" => {
            let graphs = parameters.checked()?.graphs();
            let quads = write(service, move || {
                open.with(false, |transaction| {
                    Ok(transaction.count_statements(&graphs)?)
                })
            })
            .await?;
            Ok(text(quads.to_string()))
        }
        "GET" => export(request, parameters.reading()?, open).await,
        "QUERY" => query(request, open).await,
        "UPDATE" => update(request, open).await,
        "ADD" | "DELETE" => change(request, parameters.checked()?, open, action == "ADD").await,
        _ => Err(Problem::bad_request(
            "the parameter action is one of QUERY, UPDATE, ADD, DELETE, GET, SIZE, PING, PREPARE, \
             COMMIT and ROLLBACK",
        )),
    }
}

async fn update(
    request: Request<'_>,
    open: Arc<OpenTransaction>,
) -> Result<Response<ResponseBody>, Problem> {
    let service = request.service;
    let mut update = Update::of(request, true).await?;
    update.options.cancel = open.cancel.clone();
    write(service, move || {
        open.with(false, |transaction| {
            Ok(transaction.update(&update.text.0, &update.options)?)
        })
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Statements as the transaction sees them.
async fn export(
    request: Request<'_>,
    parameters: Parameters,
    open: Arc<OpenTransaction>,
) -> Result<Response<ResponseBody>, Problem> {
    let (format, content_type) = format(&request, &parameters)?;
    let cancel = CancelHandle::new();
    let to_dump = cancel.clone();
    let dump = write(request.service, move || {
        open.with(false, |transaction| {
            Ok(transaction.statements(&parameters.pattern(), format, &to_dump)?)
        })
    })
    .await?;
    let work = Work::Open(Some(Box::new(move || {
        Ok(Opened {
            work: Work::Dump(Box::new(dump)),
            content_type,
            headers: HeaderMap::new(),
        })
    })));
    run(request.service, request.client, work, cancel).await
}

async fn query(
    request: Request<'_>,
    open: Arc<OpenTransaction>,
) -> Result<Response<ResponseBody>, Problem> {
    let mut parameters = parameters::Parameters {
        has_action: true,
        ..parameters::Parameters::default()
    };
    parameters.add_form(request.query())?;
    let Request {
        incoming,
        client,
        service,
        ..
    } = request;
    let (head, body) = incoming.into_parts();
    let mut accept = joined(&head.headers, &hyper::header::ACCEPT)?;
    let content_type = joined(&head.headers, &hyper::header::CONTENT_TYPE)?.unwrap_or_default();
    let (media_type, _) = split_content_type(&content_type);
    let (body, mut memory) = read_text(service, &head.headers, body, BODY_BYTES_MAX).await?;
    if media_type == "application/sparql-query" {
        // The client puts an empty parameter of that name beside it.
        parameters.query = Some(body);
    } else {
        reserve(&mut memory, body.len() as u64)?;
        parameters.add_form(&body)?;
    }
    if parameters.at.is_some() {
        return Err(not_at());
    }
    parameters.check_query()?;
    let format = wanted_format(&parameters, &mut accept)?;
    let text = parameters.query.take().unwrap_or_default();
    let cancel = CancelHandle::new();
    let endpoint = client.endpoint.clone();
    let work = Work::Prepare(Box::new(QueryRequest {
        source: QuerySource::Transaction(open),
        asked: Asked::default(),
        explain: parameters.explain,
        text,
        options: options(&parameters, endpoint, &service.settings, cancel.clone()),
        arrived: Instant::now(),
        format,
        accept,
        failed: Vec::new(),
        is_short: false,
        memory: Some(memory),
    }));
    run(service, client, work, cancel).await
}

/// Adds or removes the statements of a document.
async fn change(
    request: Request<'_>,
    parameters: Parameters,
    open: Arc<OpenTransaction>,
    adds: bool,
) -> Result<Response<ResponseBody>, Problem> {
    let Request {
        incoming,
        service,
        name,
        ..
    } = request;
    let (head, body) = incoming.into_parts();
    let mut upload = Upload::of(&head.headers, parameters, &service.labels, name)?;
    upload.cancel = open.cancel.clone();
    write_with_body(service, &head.headers, body, move |reader| {
        open.with(!adds || upload.may_stop_half_way(), |transaction| {
            if adds {
                upload.add(transaction, reader)
            } else {
                upload.remove(transaction, reader)
            }
        })
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
