//! Writes all quads of a database or of one graph, a batch at a time.
//!
//! [`Dump`] goes step by step, so that it can be left and taken up again. N-Quads come in the order of
//! SPOG; what has blocks for graphs comes graph by graph, the default graph first: a graph that holds
//! much of the database is filtered out of SPOG, the subjects of a smaller one are looked up there.
//! A dump of everything as N-Quads that need not pause decodes on several threads.
//!
//! # Limits
//! Memory: one batch for each thread, reserved from the budget; with too little of it, one batch.
//! Cancellation is checked at every batch.

use std::io::Write;

use oxrdf::NamedNode;
use stoa_quadstore::{
    Columns, GraphEntry, Lookup, LookupRows, LookupSpec, QuadColumns, Scan, ScanSpec, Snapshot,
};
use stoa_storage::Reservation;
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::limits::{DUMP_BATCH_BYTES, DUMP_BATCH_ROWS, DUMP_THREADS_MAX};
use crate::options::DumpFormat;
use crate::query::CancelHandle;
use crate::results::{GraphWriter, TermViews};
use crate::runtime::Runtime;
use crate::statements::{StatementPattern, Statements};

/// A graph with at least this share of all quads is read by a scan of all.
const SCANNED_SHARE: u64 = 8;

/// Writes all quads of a snapshot; returns how many.
pub(crate) fn dump(
    runtime: &Runtime,
    snapshot: &Snapshot,
    format: DumpFormat,
    out: &mut dyn Write,
    cancel: &CancelHandle,
) -> Result<u64> {
    match format {
        DumpFormat::NQuads => n_quads(runtime, snapshot, out, cancel),
        DumpFormat::TriG | DumpFormat::JsonLd => {
            let scope = DumpScope::All;
            let format = match format {
                DumpFormat::JsonLd => GraphFormat::JsonLd,
                _ => GraphFormat::TriG,
            };
            let mut dump = Dump::new(runtime, snapshot.clone(), format, &scope, cancel.clone())?;
            let mut bytes = Vec::new();
            while dump.step(&mut bytes)? {
                out.write_all(&bytes).map_err(Error::Output)?;
                bytes.clear();
            }
            out.write_all(&bytes).map_err(Error::Output)?;
            Ok(dump.quads())
        }
    }
}

/// A scan of SPOG.
fn scan(snapshot: &Snapshot, graphs: GraphSet) -> Result<Scan> {
    Ok(snapshot.scan(&ScanSpec {
        permutation: Permutation::Spog,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs,
        columns: Columns::ALL,
        with_graph: true,
    })?)
}

fn check(cancel: &CancelHandle) -> Result<()> {
    if cancel.is_cancelled() {
        return Err(Error::Cancelled);
    }
    Ok(())
}

/// Rounds of as many batches as there are threads; what they wrote goes out in order.
fn n_quads(
    runtime: &Runtime,
    snapshot: &Snapshot,
    out: &mut dyn Write,
    cancel: &CancelHandle,
) -> Result<u64> {
    let threads = runtime.threads().min(DUMP_THREADS_MAX);
    let wanted = DUMP_BATCH_BYTES.saturating_mul(u64::try_from(threads).unwrap_or(u64::MAX));
    let reserved = runtime.memory().try_reserve(wanted);
    let threads = if reserved.is_ok() { threads } else { 1 };
    let mut encoders: Vec<Encoder> = (0..threads)
        .map(|_| Encoder::new(GraphFormat::NQuads, true))
        .collect();
    let mut scan = scan(snapshot, GraphSet::All)?;
    let mut quads = 0;
    let mut more = true;
    while more {
        let mut filled = 0;
        for encoder in &mut encoders {
            check(cancel)?;
            more = scan.next(DUMP_BATCH_ROWS, &mut encoder.batch)?;
            if !more {
                break;
            }
            filled += 1;
        }
        let (encoders, _) = encoders.split_at_mut(filled);
        if let [encoder] = encoders {
            encoder.encode_batch(snapshot)?;
        } else {
            encode_all(encoders, snapshot)?;
        }
        for encoder in encoders {
            out.write_all(&encoder.bytes).map_err(Error::Output)?;
            encoder.bytes.clear();
            quads += std::mem::take(&mut encoder.quads);
        }
    }
    Ok(quads)
}

/// Every encoder on a thread of its own.
fn encode_all(encoders: &mut [Encoder], snapshot: &Snapshot) -> Result<()> {
    std::thread::scope(|scope| {
        let running = encoders
            .iter_mut()
            .map(|encoder| {
                std::thread::Builder::new()
                    .name("dump".to_owned())
                    .spawn_scoped(scope, move || encoder.encode_batch(snapshot))
                    .map_err(Error::Threads)
            })
            .collect::<Result<Vec<_>>>()?;
        for thread in running {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => return Err(Error::Internal("a dumping thread panicked".to_owned())),
            }
        }
        Ok(())
    })
}

/// From a batch of ids to bytes.
struct Encoder {
    writer: GraphWriter,
    batch: QuadColumns,
    views: TermViews,
    bytes: Vec<u8>,
    quads: u64,
    /// Whether quads are written with their graph; else as triples.
    with_graph: bool,
}

impl Encoder {
    fn new(format: GraphFormat, with_graph: bool) -> Self {
        Self {
            writer: GraphWriter::new(format),
            with_graph,
            batch: QuadColumns::default(),
            views: TermViews::default(),
            bytes: Vec::new(),
            quads: 0,
        }
    }

    fn encode_batch(&mut self, snapshot: &Snapshot) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let done = self.encode(&batch, snapshot);
        self.batch = batch;
        done
    }

    fn encode(&mut self, batch: &QuadColumns, snapshot: &Snapshot) -> Result<()> {
        let [subjects, predicates, objects, graphs] = &batch.columns;
        let rows = subjects.iter().zip(predicates).zip(objects).zip(graphs);
        let ids = rows.flat_map(|(((s, p), o), g)| [*s, *p, *o, *g]);
        self.views.load(ids, snapshot)?;
        for row in 0..batch.rows {
            let first = row * 4;
            let (Some(subject), Some(predicate), Some(object)) = (
                self.views.get(first)?,
                self.views.get(first + 1)?,
                self.views.get(first + 2)?,
            ) else {
                return Err(Error::Internal("a quad without a term".to_owned()));
            };
            let graph = self.views.get(first + 3)?.filter(|_| self.with_graph);
            self.writer.quad(
                [&subject, &predicate, &object],
                graph.as_ref(),
                &mut self.bytes,
            )?;
            self.quads += 1;
        }
        Ok(())
    }
}

/// What a dump holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DumpScope {
    /// All quads of all graphs.
    #[default]
    All,
    /// The triples of the default graph.
    DefaultGraph,
    /// The triples of one named graph.
    Graph(NamedNode),
}

/// A dump that is written piece by piece, all of it from one snapshot.
pub struct Dump {
    snapshot: Snapshot,
    cancel: CancelHandle,
    encoder: Encoder,
    /// Graphs that are still to come.
    waiting: std::vec::IntoIter<GraphEntry>,
    current: Option<Source>,
    rows: LookupRows,
    _memory: Option<Reservation>,
}

/// Where the quads of the current graph, or all quads, come from.
enum Source {
    Scan(Scan),
    Statements(Box<Statements>),
    /// The subjects of a graph, looked up in SPOG batch by batch.
    Subjects {
        subjects: Scan,
        lookup: Box<Lookup>,
        /// Whether the look-up of the last batch of subjects may have more.
        is_open: bool,
    },
}

impl Dump {
    pub(crate) fn new(
        runtime: &Runtime,
        snapshot: Snapshot,
        format: GraphFormat,
        scope: &DumpScope,
        cancel: CancelHandle,
    ) -> Result<Self> {
        let is_all = *scope == DumpScope::All;
        if is_all && !format.has_graphs() {
            return Err(Error::InvalidOption {
                option: "--format",
                reason: format!("{format} has no graphs: take nq or trig"),
            });
        }
        let (mut graphs, mut current) = (Vec::new(), None);
        match scope {
            DumpScope::All if format == GraphFormat::NQuads => {
                current = Some(Source::Scan(scan(&snapshot, GraphSet::All)?));
            }
            DumpScope::All => {
                graphs = snapshot.graphs()?;
                graphs.retain(|entry| entry.graph != TermId::DEFAULT_GRAPH);
                graphs.insert(0, entry(&snapshot, TermId::DEFAULT_GRAPH)?);
            }
            DumpScope::DefaultGraph => graphs.push(entry(&snapshot, TermId::DEFAULT_GRAPH)?),
            DumpScope::Graph(name) => {
                if let Some(graph) = snapshot.term_id(name.as_ref().into())? {
                    graphs.push(entry(&snapshot, graph)?);
                }
            }
        }
        let memory = runtime.memory().try_reserve(DUMP_BATCH_BYTES).ok();
        Ok(Self {
            snapshot,
            cancel,
            encoder: Encoder::new(format, is_all),
            waiting: graphs.into_iter(),
            current,
            rows: LookupRows::default(),
            _memory: memory,
        })
    }

    /// The quads of a pattern, with their graphs if the format has some.
    pub(crate) fn of_statements(
        runtime: &Runtime,
        snapshot: Snapshot,
        pattern: &StatementPattern,
        format: GraphFormat,
        cancel: CancelHandle,
    ) -> Result<Self> {
        let current = Statements::of(&snapshot, pattern)?;
        let memory = runtime.memory().try_reserve(DUMP_BATCH_BYTES).ok();
        Ok(Self {
            snapshot,
            cancel,
            encoder: Encoder::new(format, format.has_graphs()),
            waiting: Vec::new().into_iter(),
            current: current.map(|statements| Source::Statements(Box::new(statements))),
            rows: LookupRows::default(),
            _memory: memory,
        })
    }

    /// How many quads were written so far.
    #[must_use]
    pub fn quads(&self) -> u64 {
        self.encoder.quads
    }

    /// Appends the next batch of quads. Returns whether there is more.
    ///
    /// # Errors
    /// `Cancelled`, `Unsupported` if the format cannot write a term, and what the disk gives.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        check(&self.cancel)?;
        let more = match &mut self.current {
            Some(source) => {
                let mut batch = std::mem::take(&mut self.encoder.batch);
                let more = source.next(&mut batch, &mut self.rows)?;
                let done = self.encoder.encode(&batch, &self.snapshot);
                self.encoder.batch = batch;
                done?;
                if !more {
                    self.current = None;
                }
                true
            }
            None => match self.waiting.next() {
                Some(entry) => {
                    self.current = Some(Source::of(&self.snapshot, &entry)?);
                    true
                }
                None => {
                    self.encoder.writer.finish(&mut self.encoder.bytes)?;
                    false
                }
            },
        };
        out.append(&mut self.encoder.bytes);
        Ok(more)
    }
}

fn entry(snapshot: &Snapshot, graph: TermId) -> Result<GraphEntry> {
    Ok(GraphEntry {
        graph,
        quads: snapshot.graph_quads(graph)?,
    })
}

impl Source {
    fn of(snapshot: &Snapshot, entry: &GraphEntry) -> Result<Self> {
        if entry.quads.saturating_mul(SCANNED_SHARE) >= snapshot.quads() {
            return Ok(Self::Scan(scan(snapshot, GraphSet::One(entry.graph))?));
        }
        let lookup = snapshot.lookup(&LookupSpec {
            permutation: Permutation::Spog,
            key_length: 1,
            graphs: GraphSet::One(entry.graph),
            columns: Columns::ALL,
            with_graph: true,
            is_counted: false,
        })?;
        Ok(Self::Subjects {
            subjects: snapshot.scan_graph_subjects(entry.graph)?,
            lookup: Box::new(lookup),
            is_open: false,
        })
    }

    /// Replaces `batch` by the next quads; false if there are no more.
    fn next(&mut self, batch: &mut QuadColumns, rows: &mut LookupRows) -> Result<bool> {
        match self {
            Self::Scan(scan) => Ok(scan.next(DUMP_BATCH_ROWS, batch)?),
            Self::Statements(statements) => statements.next(DUMP_BATCH_ROWS, batch),
            Self::Subjects {
                subjects,
                lookup,
                is_open,
            } => {
                if !*is_open {
                    if !subjects.next(DUMP_BATCH_ROWS, batch)? {
                        batch.clear();
                        return Ok(false);
                    }
                    let [_, keys, _, _] = &batch.columns;
                    lookup.start(&[keys])?;
                }
                *is_open = lookup.next(DUMP_BATCH_ROWS, rows)?;
                if *is_open {
                    std::mem::swap(batch, &mut rows.columns);
                } else {
                    batch.clear();
                }
                Ok(true)
            }
        }
    }
}
