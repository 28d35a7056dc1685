//! The sink that writes into the store, and the load as a whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};

use oxiri::Iri;
use oxrdf::{GraphName, NamedNode};
use stoa_quadstore::{
    BulkCommit, BulkLoad, BulkOptions, BulkProgress, BulkSummary, BulkWriter, GraphsOf, LocalTerm,
    QuadStore, Snapshot,
};
use stoa_storage::sync::Mutex;
use stoa_terms::{GraphSet, Kind, TermId};

use crate::error::{Error, Result};
use crate::load::driver::{self, Job, Parsed};
use crate::load::jsonld;
use crate::load::sink::{LiteralSuffix, QuadSink};
use crate::load::source::{self, Source};
use crate::load::{LoadSummary, Progress};
use crate::options::LoadOptions;
use crate::runtime::Runtime;
use crate::statements::{StatementGraphs, graph_set};

/// Writes into a bulk load.
struct StoreSink<'a> {
    writer: BulkWriter,
    file: u64,
    /// Takes what belongs to the default graph.
    graph: Option<Graph<'a>>,
    /// What it is called in an epoch.
    graph_term: Option<(u64, LocalTerm)>,
    refuse_graphs: bool,
    key: Vec<u8>,
}

/// The name of a graph.
#[derive(Clone, Copy)]
enum Graph<'a> {
    Iri(&'a str),
    /// A blank node of the document.
    Blank(&'a str),
}

impl<'a> Graph<'a> {
    fn of(options: &'a LoadOptions, beside: &Beside<'a>) -> Option<Self> {
        match (options.graph.as_deref(), beside.graph) {
            (Some(iri), _) => Some(Self::Iri(iri)),
            (None, Some(GraphName::NamedNode(iri))) => Some(Self::Iri(iri.as_str())),
            (None, Some(GraphName::BlankNode(node))) => Some(Self::Blank(node.as_str())),
            (None, Some(GraphName::DefaultGraph) | None) => None,
        }
    }
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
            (Some(_), _) if self.refuse_graphs => return Err(Error::NamesGraphs),
            (Some(graph), _) => graph,
            (None, None) => BulkWriter::inline(TermId::DEFAULT_GRAPH),
            (None, Some(graph)) => {
                let epoch = self.writer.epoch();
                match self.graph_term {
                    Some((of, term)) if of == epoch => term,
                    _ => {
                        let term = match graph {
                            Graph::Iri(iri) => self.writer.intern(Kind::Iri, iri.as_bytes())?,
                            Graph::Blank(label) => {
                                self.writer.blank(self.file, label.as_bytes())?
                            }
                        };
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
pub(crate) fn line_bytes_max(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / LINE_SHARE).unwrap_or(usize::MAX)
}

/// What a load does beside adding quads.
#[derive(Default)]
pub(super) struct Beside<'a> {
    /// The graph that takes the triples of the default graph, if the options name none.
    pub(super) graph: Option<&'a GraphName>,
    /// Whether a quad that names a graph is an error.
    pub(super) refuse_graphs: bool,
    /// Graphs whose quads go unless the load brings them.
    pub(super) replaces: Option<&'a StatementGraphs>,
    /// A graph that is to exist even if the inputs have no quads.
    pub(super) creates: Option<&'a NamedNode>,
    /// What the list of commits says of it.
    pub(super) message: Option<&'a str>,
    /// Whether nothing is committed where there is nothing to do.
    pub(super) may_be_none: bool,
}

/// Loads all inputs as one commit.
pub(crate) fn load(
    runtime: &Runtime,
    store: &QuadStore,
    options: &LoadOptions,
    progress: &dyn Progress,
) -> Result<LoadSummary> {
    load_with(runtime, store, options, &Beside::default(), progress).map(|(summary, _)| summary)
}

/// The same, and more; gives the time of the commit as well, in microseconds since 1970.
pub(super) fn load_with(
    runtime: &Runtime,
    store: &QuadStore,
    options: &LoadOptions,
    beside: &Beside<'_>,
    progress: &dyn Progress,
) -> Result<(LoadSummary, u64)> {
    let sources = sources(options, progress)?;
    let memory_bytes = options
        .memory_bytes
        .unwrap_or_else(|| runtime.memory_bytes());
    let threads = options.threads.unwrap_or_else(|| runtime.threads()).max(1);
    let (relay, events) = Relay::start();
    let bulk = store.bulk_load(BulkOptions {
        memory_bytes,
        scheme: options.scheme,
        threads,
        progress: relay,
        cancel: options.cancel.flag(),
    })?;
    let parsed = parse(
        &bulk,
        (&sources, threads, memory_bytes),
        options,
        beside,
        progress,
    )?;
    if parsed.quads == 0 {
        if beside.may_be_none && beside.replaces.is_none() && beside.creates.is_none() {
            let commit = store.snapshot().commit();
            let summary = LoadSummary {
                commit,
                ..LoadSummary::default()
            };
            return Ok((summary, 0));
        }
        if let Some(graph) = beside.creates {
            let mut writer = bulk.writer();
            let graph = writer.intern(Kind::Iri, graph.as_str().as_bytes())?;
            writer.create_graph(graph)?;
            writer.finish()?;
        }
    }
    let summary = commit(bulk, beside, &events, &parsed, progress)?;
    let told = LoadSummary {
        inputs: u64::try_from(sources.len()).unwrap_or(u64::MAX),
        bytes_read: parsed.bytes_read,
        quads_read: summary.quads_read,
        quads_new: summary.quads_new,
        quads_removed: summary.quads_removed,
        terms_new: summary.terms_new,
        commit: summary.commit,
        temp_peak_bytes: summary.temp_peak_bytes,
        skipped: parsed.skipped,
    };
    Ok((told, summary.time_us))
}

/// Parses all inputs into a bulk load.
fn parse(
    bulk: &BulkLoad,
    (sources, threads, memory_bytes): (&[Source], usize, u64),
    options: &LoadOptions,
    beside: &Beside<'_>,
    progress: &dyn Progress,
) -> Result<Parsed> {
    let total = sources
        .iter()
        .map(|source| source.bytes)
        .sum::<Option<u64>>();
    progress.phase("reading", total);
    let job = Job {
        sources,
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
    driver::run(
        &job,
        &|| {
            Ok(StoreSink {
                writer: bulk.writer(),
                file: 0,
                graph: Graph::of(options, beside),
                graph_term: None,
                refuse_graphs: beside.refuse_graphs,
                key: Vec::new(),
            })
        },
        &|sink: StoreSink<'_>| Ok(sink.writer.finish()?),
    )
}

/// What a thread of a load takes beside its share of what is divided, in bytes: segments and blocks that are
/// being written.
const THREAD_BYTES: u64 = 32 << 20;

/// How many threads work in a load that shares the memory with others, of which it may take so much.
pub(crate) fn threads_within(runtime: &Runtime, memory_bytes: u64) -> usize {
    let threads = usize::try_from(memory_bytes / THREAD_BYTES).unwrap_or(usize::MAX);
    runtime.threads().min(threads.saturating_add(1))
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
    beside: &Beside<'_>,
    events: &Receiver<Event>,
    parsed: &Parsed,
    progress: &dyn Progress,
) -> Result<BulkSummary> {
    let replaced = beside.replaces.map(|graphs| {
        move |snapshot: &Snapshot| {
            let found = graph_set(snapshot, graphs)?;
            Ok(found.unwrap_or(GraphSet::Some(Vec::new())))
        }
    });
    let options = BulkCommit {
        message: beside.message.map(str::to_owned),
        replaced: replaced.as_ref().map(|graphs| graphs as &GraphsOf<'_>),
    };
    std::thread::scope(|scope| {
        let committing = std::thread::Builder::new()
            .name("load commit".to_owned())
            .spawn_scoped(scope, move || bulk.commit_with(options))
            .map_err(Error::Threads)?;
        // What the store counts while it takes what was read is not what is shown of reading.
        let mut is_shown = false;
        // Ends when the load has dropped its end.
        for event in events {
            match event {
                Event::Phase(name, total) => {
                    is_shown = name != READING;
                    if is_shown {
                        progress.phase(&name, total);
                    }
                }
                Event::Advance(counter) => {
                    let done = counter.take();
                    if is_shown {
                        progress.advance(done, parsed.quads);
                    }
                }
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
