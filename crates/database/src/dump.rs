//! Writes all quads of a database or of one graph, a batch at a time.
//!
//! [`Dump`] goes step by step, so that it can be left and taken up again; a long one is written by several threads
//! ([`crate::results::output`]). N-Quads come in the order of
//! SPOG; what has blocks for graphs comes graph by graph, the default graph first: a graph that holds
//! much of the database is filtered out of SPOG, the subjects of a smaller one are looked up there.
//!
//! # Limits
//! Memory: texts and output of a piece, reserved from the budget; where memory is short, pieces are shorter.
//! Cancellation is checked at every batch.

use std::io::Write;
use std::sync::Arc;
use std::task::{Poll, Waker};

use oxrdf::NamedNode;
use stoa_executor::pool::Progress;
use stoa_executor::{Batch, QueryContext, QuerySettings, Step};
use stoa_quadstore::{
    Columns, GraphEntry, Lookup, LookupRows, LookupSpec, QuadColumns, Scan, ScanSpec, Snapshot,
};
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::limits::DUMP_BATCH_ROWS;
use crate::options::DumpFormat;
use crate::query::CancelHandle;
use crate::results::GraphWriter;
use crate::results::output::{self, Output, Writer};
use crate::results::pieces::DUMP_PIECE_BYTES;
use crate::runtime::{Runtime, date_time};
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
    let format = match format {
        DumpFormat::NQuads => GraphFormat::NQuads,
        DumpFormat::TriG => GraphFormat::TriG,
        DumpFormat::JsonLd => GraphFormat::JsonLd,
    };
    let scope = DumpScope::All;
    let mut dump = Dump::new(runtime, snapshot.clone(), format, &scope, cancel)?;
    let mut bytes = Vec::new();
    while dump.step(&mut bytes)? {
        out.write_all(&bytes).map_err(Error::Output)?;
        bytes.clear();
    }
    out.write_all(&bytes).map_err(Error::Output)?;
    Ok(dump.quads())
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

/// What those who decode quads share.
fn context(runtime: &Runtime, snapshot: Snapshot, cancel: &CancelHandle) -> Arc<QueryContext> {
    let memory = runtime.memory().clone();
    let now = date_time(runtime.clock().now());
    let mut settings = QuerySettings::new(memory, runtime.executor_clock(), now, 0);
    (settings.cancel, settings.cancel_outer) = cancel.flags();
    settings.batch_rows = DUMP_BATCH_ROWS;
    settings.helpers = Some(runtime.helpers());
    Arc::new(QueryContext::new(snapshot, settings))
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
    quads: Quads,
    output: Output,
}

/// The quads of a dump.
struct Quads {
    context: Arc<QueryContext>,
    /// Graphs that are still to come.
    waiting: std::vec::IntoIter<GraphEntry>,
    current: Option<Source>,
    /// Whether the graph goes with each quad.
    with_graph: bool,
    rows: LookupRows,
    /// What is too few for a batch.
    few: Batch,
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
        cancel: &CancelHandle,
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
        let context = context(runtime, snapshot, cancel);
        let quads = Quads {
            context,
            waiting: graphs.into_iter(),
            current,
            with_graph: is_all,
            rows: LookupRows::default(),
            few: Batch::default(),
        };
        Ok(Self::of(quads, format))
    }

    fn of(quads: Quads, format: GraphFormat) -> Self {
        let writer = Writer::Graph(Box::new(GraphWriter::new(format)));
        Self {
            quads,
            output: Output::new(writer, DUMP_PIECE_BYTES),
        }
    }

    /// The quads of a pattern, with their graphs if the format has some.
    pub(crate) fn of_statements(
        runtime: &Runtime,
        snapshot: Snapshot,
        pattern: &StatementPattern,
        format: GraphFormat,
        cancel: &CancelHandle,
    ) -> Result<Self> {
        let current = Statements::of(&snapshot, pattern)?;
        let quads = Quads {
            context: context(runtime, snapshot, cancel),
            waiting: Vec::new().into_iter(),
            current: current.map(|statements| Source::Statements(Box::new(statements))),
            with_graph: format.has_graphs(),
            rows: LookupRows::default(),
            few: Batch::default(),
        };
        Ok(Self::of(quads, format))
    }

    /// How many quads were written so far, or are being written.
    #[must_use]
    pub fn quads(&self) -> u64 {
        self.output.rows()
    }

    /// How many threads were at work at one time at most.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.quads.context.meters().threads_peak()
    }

    /// Appends the next batch of quads. Returns whether there is more. Where other threads write what comes next, this
    /// thread sleeps a moment.
    ///
    /// # Errors
    /// `Cancelled`, `Unsupported` if the format cannot write a term, and what the disk gives.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        self.output.step(&mut self.quads, out)
    }

    /// As [`Dump::step`], but never waits: asleep if there is nothing to do before `waker` is called.
    ///
    /// # Errors
    /// As [`Dump::step`].
    pub fn poll(&mut self, out: &mut Vec<u8>, waker: &Waker) -> Result<Progress> {
        self.output.poll(&mut self.quads, out, waker)
    }
}

impl output::Source for Quads {
    fn context(&self) -> &Arc<QueryContext> {
        &self.context
    }

    fn next(&mut self) -> Result<Step> {
        self.context.check()?;
        let Some(source) = &mut self.current else {
            let Some(entry) = self.waiting.next() else {
                return Ok(match std::mem::take(&mut self.few) {
                    few if few.is_empty() => Step::Done,
                    few => Step::Batch(few),
                });
            };
            self.current = Some(Source::of(self.context.snapshot(), &entry)?);
            return Ok(Step::Yield);
        };
        let most = self.context.batch_rows();
        let mut quads = QuadColumns::default();
        if !source.next(most, &mut quads, &mut self.rows)? {
            self.current = None;
        }
        let mut columns = Vec::from(quads.columns);
        if !self.with_graph {
            columns.truncate(3);
        }
        let mut batch = Batch::from_columns(columns);
        if !self.few.is_empty() {
            self.few.append(&batch);
            batch = std::mem::take(&mut self.few);
        }
        if batch.rows < most.div_ceil(2) {
            self.few = batch;
            return Ok(Step::Yield);
        }
        Ok(Step::Batch(batch))
    }

    fn poll(&mut self, _: &Waker) -> Result<Poll<Step>> {
        self.next().map(Poll::Ready)
    }

    fn wake_ns(&self) -> Option<u64> {
        None
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

    /// Replaces `batch` by the next quads, at most so many; false if there are no more.
    fn next(
        &mut self,
        batch_rows: usize,
        batch: &mut QuadColumns,
        rows: &mut LookupRows,
    ) -> Result<bool> {
        match self {
            Self::Scan(scan) => Ok(scan.next(batch_rows, batch)?),
            Self::Statements(statements) => statements.next(batch_rows, batch),
            Self::Subjects {
                subjects,
                lookup,
                is_open,
            } => {
                if !*is_open {
                    if !subjects.next(batch_rows, batch)? {
                        batch.clear();
                        return Ok(false);
                    }
                    let [_, keys, _, _] = &batch.columns;
                    lookup.start(&[keys])?;
                }
                *is_open = lookup.next(batch_rows, rows)?;
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

#[cfg(test)]
mod tests;
