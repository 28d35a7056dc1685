//! Work that writes: on threads of its own, since it waits for disks, other writers and clients; but short updates,
//! where nothing has to be waited for, on the thread that read them.
//!
//! # Concurrency
//! [`RUNNING_MAX`] threads at once, [`WAITING_MAX`] more requests wait for their turn, in order. Work that reads the body
//! of its request has [`ARRIVING_MAX`] threads instead, so that clients that send slowly keep nobody else from writing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;
use stoa_database::{CommitSummary, Database, UpdateOptions, nonblocking};
use tokio::sync::{Semaphore, oneshot};

use super::Service;
use super::body::{Held, ResponseBody, whole};
use super::problem::Problem;
use super::reactor;

/// Writers that work at once, those not counted that only wait for the disk.
const RUNNING_MAX: usize = 64;

/// Writers whose bodies arrive at once.
const ARRIVING_MAX: usize = 128;

/// Writers that wait for their turn.
const WAITING_MAX: usize = 256;

/// The number of the commit that a request made, or of the last one if it changed nothing.
pub(super) const STOA_COMMIT: HeaderName = HeaderName::from_static("stoa-commit");

/// Quads that were not there and are now.
const STOA_ADDED: HeaderName = HeaderName::from_static("stoa-added");

/// Quads that were there and are not now.
const STOA_REMOVED: HeaderName = HeaderName::from_static("stoa-removed");

/// The places of a server for writers.
pub(crate) struct WritePlaces {
    running: Arc<Semaphore>,
    arriving: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Default for WritePlaces {
    fn default() -> Self {
        Self {
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
            arriving: Arc::new(Semaphore::new(ARRIVING_MAX)),
            waiting: AtomicUsize::new(0),
        }
    }
}

/// Does work that may block, such as an update with its commit, to its end, even if the client goes
/// away.
///
/// # Errors
/// What the work gives; 503 if too many wait already.
pub(super) async fn write<T: Send + 'static>(
    service: &Service,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    write_at(service, &service.write_places.running, work).await
}

/// The same for work that reads the body of its request.
///
/// # Errors
/// As [`write()`].
pub(super) async fn write_arriving<T: Send + 'static>(
    service: &Service,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    write_at(service, &service.write_places.arriving, work).await
}

async fn write_at<T: Send + 'static>(
    service: &Service,
    places: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (tell, told) = oneshot::channel();
    run(service, places, move || drop(tell.send(work()))).await?;
    told.await.map_err(|_| failed())?
}

/// Runs an update to its end, even if the client goes away: on this thread if it is short and need not wait. No
/// thread waits until it is durable, but for this one where it has no other connection.
///
/// # Errors
/// As [`write()`].
pub(super) async fn update(
    service: &Service,
    database: &Database,
    (text, memory): Held<String>,
    options: UpdateOptions,
    is_short: bool,
) -> Result<CommitSummary, Problem> {
    let (tell, told) = oneshot::channel();
    let done = move |outcome: stoa_database::Result<CommitSummary>| {
        drop(tell.send(outcome.map_err(Problem::from)));
    };
    let database = database.clone();
    let decide = move || {
        let _held_with_the_text = &memory;
        database.submit_update(&text, &options)
    };
    let decided = is_short
        .then(|| reactor::busy(|| nonblocking::run(|| catch_unwind(AssertUnwindSafe(&decide)))));
    match decided.flatten() {
        Some(decided) => {
            let submitted = decided.map_err(|_| failed())??;
            if reactor::is_alone() {
                reactor::busy(|| submitted.then(done));
            } else {
                // It is left to another thread.
                nonblocking::run(|| submitted.then(done));
            }
        }
        None => {
            run(
                service,
                &service.write_places.running,
                move || match decide() {
                    Ok(submitted) => submitted.then(done),
                    Err(error) => done(Err(error)),
                },
            )
            .await?;
        }
    }
    told.await.map_err(|_| failed())?
}

/// Runs work on a thread of its own once there is a place, and returns when it has begun.
async fn run(
    service: &Service,
    places: &Arc<Semaphore>,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), Problem> {
    let permit = match Arc::clone(places).try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            let waiting = Waiting::enter(&service.write_places.waiting)?;
            let permit = Arc::clone(places).acquire_owned().await;
            drop(waiting);
            permit.map_err(|_| failed())?
        }
    };
    // Nobody waits for the thread: what it did is told by `work`, or it has panicked.
    drop(tokio::task::spawn_blocking(move || {
        work();
        drop(permit);
    }));
    Ok(())
}

/// The answer of a request that has changed something: a line of JSON, with the same in the head.
pub(super) fn told(told: &Value, changed: &CommitSummary) -> Response<ResponseBody> {
    let mut response = whole("application/json", format!("{told}\n"));
    mark(response.headers_mut(), changed);
    response
}

/// Says in the head of a response what a request has changed.
pub(super) fn mark(headers: &mut HeaderMap, summary: &CommitSummary) {
    headers.insert(STOA_COMMIT, HeaderValue::from(summary.commit));
    headers.insert(STOA_ADDED, HeaderValue::from(summary.added));
    headers.insert(STOA_REMOVED, HeaderValue::from(summary.removed));
}

/// Somebody who waits, counted until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Result<Self, Problem> {
        let waiting = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "too many requests that write are running and waiting; try again in a moment",
            ));
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread has panicked.
fn failed() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "the request met a fault of Stoa's own; whether it has changed something stands at /log; please report it",
    )
}
