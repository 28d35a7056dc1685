//! What an update got from elsewhere: answers of SERVICE and documents of LOAD, kept so that a request that is
//! repeated does not ask again; and how long it has waited for memory.
//!
//! A repetition asks in the same order as the run before it, unless the data has changed what it asks; a
//! question that was not asked before goes out.
//!
//! # Concurrency
//! An answer is handed on while it comes by a thread of its own, as the workers of a query must not wait.
//!
//! # Limits
//! Everything is reserved from the memory budget; an answer that finds no room fails.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hashbrown::HashMap;
use oxrdf::Term;
use rapidhash::fast::RandomState;
use stoa_executor::execution::{nap, thread_waker};
use stoa_executor::service::{
    AnswerReader, AnswerWriter, ServiceClient, ServiceRequest, Solutions, answer,
};
use stoa_storage::Reservation;
use stoa_storage::sync::Mutex;

use crate::error::{Error, Result};
use crate::federation::{Document, GoOn, weight};
use crate::runtime::Runtime;

/// What was got for one request.
pub(super) struct Kept {
    runtime: Runtime,
    client: Option<Arc<dyn ServiceClient>>,
    waited_ns: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: HashMap<Question, Vec<Arc<Answer>>, RandomState>,
    documents: HashMap<String, Vec<Arc<Document>>, RandomState>,
    /// How many of them this run has used.
    answers_used: HashMap<Question, usize, RandomState>,
    documents_used: HashMap<String, usize, RandomState>,
}

/// What is asked of an endpoint.
#[derive(Clone, Eq, Hash, PartialEq)]
struct Question {
    endpoint: String,
    pattern: Arc<str>,
    variables: Vec<String>,
    bound: Vec<String>,
    bindings: Vec<Vec<Option<Term>>>,
}

/// A whole answer.
struct Answer {
    batches: Vec<(Solutions, usize)>,
    outcome: Result<(), String>,
    #[expect(dead_code, reason = "held for its drop")]
    reservation: Reservation,
}

impl Kept {
    pub(super) fn new(runtime: &Runtime) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            client: runtime.services(),
            waited_ns: Arc::default(),
            state: Mutex::default(),
        })
    }

    /// How long the operations of all runs have waited for memory. It is not more for a request of many operations, or
    /// one that is repeated: others may wait for it to commit.
    pub(super) const fn waited_ns(&self) -> &Arc<AtomicU64> {
        &self.waited_ns
    }

    /// Begins another run.
    pub(super) fn begin_run(&self) {
        let mut state = self.lock();
        state.answers_used.clear();
        state.documents_used.clear();
    }

    /// What asks endpoints, if anything does.
    pub(super) fn services(self: &Arc<Self>) -> Option<Arc<dyn ServiceClient>> {
        self.client.as_ref()?;
        Some(Arc::new(Services(Arc::clone(self))))
    }

    /// The document behind an IRI.
    pub(super) fn document(
        &self,
        url: &str,
        time_left: Option<Duration>,
        go_on: &GoOn,
    ) -> Result<Arc<Document>> {
        let used = {
            let mut state = self.lock();
            let used = state.documents_used.entry(url.to_owned()).or_default();
            *used += 1;
            *used - 1
        };
        let known = self
            .lock()
            .documents
            .get(url)
            .and_then(|all| all.get(used).cloned());
        if let Some(document) = known {
            return Ok(document);
        }
        let fetch = self.runtime.documents().ok_or(Error::LoadOff)?;
        let budget = self.runtime.memory();
        let document = Document::fetch(&*fetch, url, time_left, budget, go_on)?;
        let document = Arc::new(document);
        let mut state = self.lock();
        let all = state.documents.entry(url.to_owned()).or_default();
        all.push(Arc::clone(&document));
        Ok(document)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer that an earlier run got to this question, if there is one that this run has not used.
    fn known(&self, question: &Question) -> Option<Arc<Answer>> {
        let mut state = self.lock();
        let used = state.answers_used.entry(question.clone()).or_default();
        *used += 1;
        let number = *used - 1;
        state.answers.get(question)?.get(number).cloned()
    }

    /// Keeps an answer.
    fn keep(&self, question: Question, answer: Answer) {
        let mut state = self.lock();
        state
            .answers
            .entry(question)
            .or_default()
            .push(Arc::new(answer));
    }
}

/// Asks, or gives what was kept.
struct Services(Arc<Kept>);

impl ServiceClient for Services {
    fn ask(&self, request: ServiceRequest, writer: AnswerWriter) {
        let Some(client) = &self.0.client else {
            return writer.finish(Err("SERVICE is off".to_owned()));
        };
        let question = Question {
            endpoint: request.endpoint.clone(),
            pattern: Arc::clone(&request.pattern),
            variables: request.variables.clone(),
            bound: request.bound.clone(),
            bindings: request.bindings.clone(),
        };
        let kept = Arc::clone(&self.0);
        let known = kept.known(&question);
        let asked = known.is_none().then(|| {
            let (inner, reader) = answer();
            client.ask(request, inner);
            reader
        });
        let handing = std::thread::Builder::new()
            .name("stoa-update-service".to_owned())
            .spawn(move || match (known, asked) {
                (Some(known), _) => repeat(&known, writer),
                (None, Some(reader)) => hand_on(&kept, question, reader, writer),
                (None, None) => drop(writer),
            });
        // Without a thread the writer was dropped, which the query takes for a failure.
        drop(handing);
    }
}

/// Gives an answer once more.
fn repeat(answer: &Answer, writer: AnswerWriter) {
    for (solutions, bytes) in &answer.batches {
        if writer.push(solutions.clone(), *bytes).is_err() {
            return;
        }
    }
    writer.finish(answer.outcome.clone());
}

/// Hands an answer on while it comes, and keeps it, unless nobody wanted all of it.
fn hand_on(kept: &Kept, question: Question, mut reader: AnswerReader, writer: AnswerWriter) {
    let waker = thread_waker();
    let interest = writer.interest();
    let Ok(mut reservation) = kept.runtime.memory().try_reserve(0) else {
        return;
    };
    let mut batches = Vec::new();
    let outcome = loop {
        if interest.is_lost() {
            return;
        }
        match reader.poll(&waker) {
            Poll::Pending => nap(),
            Poll::Ready(Ok(Some(solutions))) => {
                let terms = solutions.iter().flatten().flatten();
                let bytes = terms.map(weight).sum::<usize>()
                    + solutions
                        .iter()
                        .map(|row| size_of_val(&**row))
                        .sum::<usize>();
                if let Err(error) = reservation.grow(bytes as u64) {
                    return writer.finish(Err(error.to_string()));
                }
                batches.push((solutions.clone(), bytes));
                if writer.push(solutions, bytes).is_err() {
                    return;
                }
            }
            Poll::Ready(Ok(None)) => break Ok(()),
            Poll::Ready(Err(reason)) => break Err(reason),
        }
    };
    let answer = Answer {
        batches,
        outcome: outcome.clone(),
        reservation,
    };
    // First: whoever reads the end may begin the next run.
    kept.keep(question, answer);
    writer.finish(outcome);
}
