//! The sink that writes into the store, and the load as a whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use oxiri::Iri;
use stoa_quadstore::{
    BulkLoad, BulkOptions, BulkProgress, BulkSummary, BulkWriter, LocalTerm, QuadStore,
};
use stoa_storage::Reservation;
use stoa_terms::{Kind, TermId};

use crate::error::{Error, Result};
use crate::load::driver::{self, Job, Parsed};
use crate::load::jsonld;
use crate::load::sink::{LiteralSuffix, QuadSink};
use crate::load::source::{self, Source};
use crate::load::{LoadSummary, Progress};
use crate::options::LoadOptions;
use crate::runtime::Runtime;

/// Writes into a bulk load.
struct StoreSink<'a> {
    writer: BulkWriter,
    file: u64,
    /// Takes what belongs to the default graph.
    graph: Option<&'a str>,
    /// What it is called in an epoch.
    graph_term: Option<(u64, LocalTerm)>,
    key: Vec<u8>,
}

impl QuadSink for StoreSink<'_> {
    type Term = LocalTerm;

    fn start_file(&mut self, number: u64) {
        self.file = number;
    }

    fn epoch(&self) -> u64 {
        self.writer.epoch()
    }

    fn iri(&mut self, iri: &str) -> Result<LocalTerm> {
        Ok(self.writer.intern(Kind::Iri, iri.as_bytes())?)
    }

    fn blank(&mut self, label: &str) -> Result<LocalTerm> {
        Ok(self.writer.blank(self.file, label.as_bytes())?)
    }

    fn literal(&mut self, lexical: &str, suffix: LiteralSuffix<'_>) -> Result<LocalTerm> {
        if let Some(id) = suffix.inline(lexical) {
            return Ok(BulkWriter::inline(id));
        }
        self.key.clear();
        let kind = suffix.key(lexical, &mut self.key);
        Ok(self.writer.intern(kind, &self.key)?)
    }

    fn triple(
        &mut self,
        subject: LocalTerm,
        predicate: LocalTerm,
        object: LocalTerm,
    ) -> Result<LocalTerm> {
        Ok(self.writer.triple(subject, predicate, object)?)
    }

    fn quad(
        &mut self,
        subject: LocalTerm,
        predicate: LocalTerm,
        object: LocalTerm,
        graph: Option<LocalTerm>,
    ) -> Result<()> {
        let graph = match (graph, self.graph) {
            (Some(graph), _) => graph,
            (None, None) => BulkWriter::inline(TermId::DEFAULT_GRAPH),
            (None, Some(iri)) => {
                let epoch = self.writer.epoch();
                match self.graph_term {
                    Some((of, term)) if of == epoch => term,
                    _ => {
                        let term = self.writer.intern(Kind::Iri, iri.as_bytes())?;
                        self.graph_term = Some((epoch, term));
                        term
                    }
                }
            }
        };
        Ok(self.writer.quad(subject, predicate, object, graph)?)
    }
}

/// The share of the memory that one line or token may take: there are several copies of it at a time,
/// such as the line, the key of its term, and its block of the dictionary.
const LINE_SHARE: u64 = 8;

/// The most that one line or token may take, in bytes.
pub(super) fn line_bytes_max(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / LINE_SHARE).unwrap_or(usize::MAX)
}

/// Loads all inputs as one commit.
pub(crate) fn load(
    runtime: &Runtime,
    store: &QuadStore,
    options: &LoadOptions,
    progress: &dyn Progress,
) -> Result<LoadSummary> {
    let sources = sources(options, progress)?;
    let memory_bytes = options
        .memory_bytes
        .unwrap_or_else(|| runtime.memory_bytes());
    let reserved = options.reserve.then(|| reserve(runtime, memory_bytes));
    let reserved = reserved.transpose()?;
    let threads = options.threads.unwrap_or_else(|| runtime.threads()).max(1);
    let (relay, events) = Relay::start();
    let bulk = store.bulk_load(BulkOptions {
        memory_bytes,
        scheme: options.scheme,
        threads,
        progress: relay,
        cancel: options.cancel.flag(),
    })?;
    let total = sources
        .iter()
        .map(|source| source.bytes)
        .sum::<Option<u64>>();
    progress.phase("reading", total);
    let job = Job {
        sources: &sources,
        format: options.format,
        base: options.base.as_deref(),
        is_lenient: options.lenient,
        contexts: Arc::new(options.contexts.clone()),
        json_ld: &options.json_ld,
        threads,
        line_bytes_max: line_bytes_max(memory_bytes),
        cancel: &options.cancel,
        progress,
    };
    let parsed = driver::run(
        &job,
        &|| {
            Ok(StoreSink {
                writer: bulk.writer(),
                file: 0,
                graph: options.graph.as_deref(),
                graph_term: None,
                key: Vec::new(),
            })
        },
        &|sink: StoreSink<'_>| Ok(sink.writer.finish()?),
    )?;
    let summary = commit(bulk, &events, &parsed, progress)?;
    drop(reserved);
    Ok(LoadSummary {
        inputs: u64::try_from(sources.len()).unwrap_or(u64::MAX),
        bytes_read: parsed.bytes_read,
        quads_read: summary.quads_read,
        quads_new: summary.quads_new,
        terms_new: summary.terms_new,
        commit: summary.commit,
        temp_peak_bytes: summary.temp_peak_bytes,
        skipped: parsed.skipped,
    })
}

fn reserve(runtime: &Runtime, bytes: u64) -> Result<Reservation> {
    let reserved = runtime.memory().try_reserve(bytes);
    reserved.map_err(|exceeded| Error::MemoryExceeded {
        operator: "a load".to_owned(),
        requested_bytes: exceeded.requested,
        limit_bytes: exceeded.limit,
    })
}

/// The inputs of a load, once its options are found to be sound.
pub(super) fn sources(options: &LoadOptions, progress: &dyn Progress) -> Result<Vec<Source>> {
    check_iri("--graph", options.graph.as_deref())?;
    check_iri("--base", options.base.as_deref())?;
    jsonld::verify(&options.contexts, &options.json_ld)?;
    source::expand(&options.inputs, progress)
}

/// See [`LoadOptions::verify`].
pub(crate) fn verify(options: &LoadOptions) -> Result<()> {
    sources(options, &()).map(drop)
}

pub(super) fn check_iri(option: &'static str, iri: Option<&str>) -> Result<()> {
    match iri.map(Iri::parse) {
        Some(Err(error)) => Err(Error::InvalidOption {
            option,
            reason: format!("'{}' is not an absolute IRI: {error}", iri.unwrap_or("")),
        }),
        _ => Ok(()),
    }
}

/// Commits on a thread of its own and shows the progress on this one.
fn commit(
    bulk: BulkLoad,
    events: &Receiver<Event>,
    parsed: &Parsed,
    progress: &dyn Progress,
) -> Result<BulkSummary> {
    std::thread::scope(|scope| {
        let committing = std::thread::Builder::new()
            .name("load commit".to_owned())
            .spawn_scoped(scope, move || bulk.commit())
            .map_err(Error::Threads)?;
        // Ends when the load has dropped its end.
        for event in events {
            match event {
                Event::Phase(name, _) if name == READING => {}
                Event::Phase(name, total) => progress.phase(&name, total),
                Event::Advance(counter) => progress.advance(counter.take(), parsed.quads),
            }
        }
        match committing.join() {
            Ok(summary) => Ok(summary?),
            Err(_) => Err(Error::Internal("the committing thread panicked".to_owned())),
        }
    })
}

/// The phase that the parsing threads report better than the store.
const READING: &str = "reading";

/// What a load reports while it commits.
enum Event {
    Phase(String, Option<u64>),
    Advance(Arc<Counter>),
}

/// How far a phase has come, and whether that is on its way already.
#[derive(Default)]
struct Counter {
    done: AtomicU64,
    sent: AtomicBool,
}

impl Counter {
    fn take(&self) -> u64 {
        self.sent.store(false, Ordering::Release);
        self.done.load(Ordering::Relaxed)
    }
}

/// Carries reports from the store's threads, which may outlive a borrowed [`Progress`].
struct Relay {
    events: Mutex<Sender<Event>>,
    counter: Arc<Counter>,
}

impl Relay {
    fn start() -> (Arc<dyn BulkProgress>, Receiver<Event>) {
        let (sender, receiver) = channel();
        let relay = Self {
            events: Mutex::new(sender),
            counter: Arc::default(),
        };
        (Arc::new(relay), receiver)
    }

    fn send(&self, event: Event) {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody listens any more after a failure.
        drop(events.send(event));
    }
}

impl BulkProgress for Relay {
    fn phase(&self, name: &str, total: Option<u64>) {
        self.counter.done.store(0, Ordering::Relaxed);
        self.send(Event::Phase(name.to_owned(), total));
    }

    fn advance(&self, done: u64) {
        self.counter.done.store(done, Ordering::Relaxed);
        if !self.counter.sent.swap(true, Ordering::AcqRel) {
            self.send(Event::Advance(Arc::clone(&self.counter)));
        }
    }
}
