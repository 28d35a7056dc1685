//! What inputs are given to.

pub mod damage;
pub mod http;
pub mod log;
pub mod query;
pub mod rdf;
pub mod request;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stoa_database::{
    Access, CancelHandle, Clock, Database, Error, GraphFormat, Input, LoadOptions, LoadSummary,
    OpenOptions, Runtime, RuntimeOptions,
};
use stoa_storage::SimulatedDisk;

/// A clock that goes on by a millisecond with each look at it, so that a query ends after so much work
/// on any machine.
#[derive(Debug, Default)]
struct WorkClock(AtomicU64);

impl Clock for WorkClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1_800_000_000)
    }
}

fn runtime(memory_bytes: u64) -> Runtime {
    Runtime::new(RuntimeOptions {
        memory_bytes: Some(memory_bytes),
        threads: Some(1),
        seed: Some(1),
        clock: Some(Arc::new(WorkClock::default())),
        ..RuntimeOptions::default()
    })
    .expect("a runtime can be made")
}

/// A database on a disk in memory.
fn open(runtime: &Runtime, disk: &SimulatedDisk, access: Access) -> Result<Database, Error> {
    let options = OpenOptions {
        create: access == Access::Exclusive,
        access,
    };
    Database::open_on(runtime, Arc::new(disk.clone()), &options)
}

fn load(
    database: &Database,
    bytes: &[u8],
    format: Option<GraphFormat>,
) -> Result<LoadSummary, Error> {
    let context = br#"{"@context":{"name":"http://a/name","@vocab":"http://a/"}}"#;
    let options = LoadOptions {
        inputs: vec![Input::from_bytes("input", bytes)],
        format,
        base: Some("http://base/".to_owned()),
        contexts: vec![("http://a/context".to_owned(), context.to_vec())],
        threads: Some(1),
        cancel: CancelHandle::new(),
        ..LoadOptions::default()
    };
    database.load(options, &())
}

/// The kind of a message: without what is quoted in it, numbers, and names of things.
fn kind_of(message: &dyn fmt::Display) -> String {
    let text = message.to_string();
    let mut kind: String = text
        .chars()
        .filter(|c| c.is_ascii_alphabetic() || matches!(c, ' ' | ':'))
        .take(120)
        .collect();
    // A name from the input must not make every message a kind of its own.
    if let Some(at) = text.find(['"', '<', '\'', '`', '?'])
        && let Some(front) = text.get(..at.min(120))
    {
        kind = front.chars().filter(|c| !c.is_ascii_digit()).collect();
    }
    kind
}

/// An error as what came of an input, unless no input may bring it about.
fn told(error: &Error) -> Result<String, String> {
    match error {
        Error::Internal(_) => Err(error.to_string()),
        other => Ok(kind_of(other)),
    }
}
