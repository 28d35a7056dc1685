//! Writes all quads of a database, a batch at a time.
//!
//! N-Quads come in the order of SPOG; several threads decode a batch each. TriG comes graph by graph,
//! the default graph first: a graph that holds much of the database is filtered out of SPOG, the
//! subjects of a smaller one are looked up there.
//!
//! # Limits
//! Memory: one batch for each thread, reserved from the budget; with too little of it, one batch.
//! Cancellation is checked at every batch.

use std::io::Write;

use stoa_quadstore::{Columns, LookupRows, LookupSpec, QuadColumns, Scan, ScanSpec, Snapshot};
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::limits::{DUMP_BATCH_BYTES, DUMP_BATCH_ROWS, DUMP_THREADS_MAX};
use crate::options::DumpFormat;
use crate::query::CancelHandle;
use crate::results::{GraphWriter, TermViews};
use crate::runtime::Runtime;

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
        DumpFormat::TriG => trig(snapshot, out, cancel),
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
        .map(|_| Encoder::new(GraphFormat::NQuads))
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
}

impl Encoder {
    fn new(format: GraphFormat) -> Self {
        Self {
            writer: GraphWriter::new(format),
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
            let graph = self.views.get(first + 3)?;
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

fn trig(snapshot: &Snapshot, out: &mut dyn Write, cancel: &CancelHandle) -> Result<u64> {
    let mut dump = TrigDump {
        snapshot,
        out,
        cancel,
        encoder: Encoder::new(GraphFormat::TriG),
    };
    let default_quads = snapshot.graph_quads(TermId::DEFAULT_GRAPH)?;
    dump.graph(TermId::DEFAULT_GRAPH, default_quads)?;
    for entry in snapshot.graphs()? {
        if entry.graph != TermId::DEFAULT_GRAPH {
            dump.graph(entry.graph, entry.quads)?;
        }
    }
    dump.encoder.writer.finish(&mut dump.encoder.bytes)?;
    dump.flush()?;
    Ok(dump.encoder.quads)
}

struct TrigDump<'a> {
    snapshot: &'a Snapshot,
    out: &'a mut dyn Write,
    cancel: &'a CancelHandle,
    encoder: Encoder,
}

impl TrigDump<'_> {
    fn graph(&mut self, graph: TermId, quads: u64) -> Result<()> {
        let mut batch = QuadColumns::default();
        if quads.saturating_mul(SCANNED_SHARE) >= self.snapshot.quads() {
            let mut scan = scan(self.snapshot, GraphSet::One(graph))?;
            while scan.next(DUMP_BATCH_ROWS, &mut batch)? {
                self.write(&batch)?;
            }
            return Ok(());
        }
        let mut lookup = self.snapshot.lookup(&LookupSpec {
            permutation: Permutation::Spog,
            key_length: 1,
            graphs: GraphSet::One(graph),
            columns: Columns::ALL,
            with_graph: true,
        })?;
        let mut subjects = self.snapshot.scan_graph_subjects(graph)?;
        let mut rows = LookupRows::default();
        while subjects.next(DUMP_BATCH_ROWS, &mut batch)? {
            let [_, keys, _, _] = &batch.columns;
            lookup.start(&[keys])?;
            while lookup.next(DUMP_BATCH_ROWS, &mut rows)? {
                self.write(&rows.columns)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: &QuadColumns) -> Result<()> {
        check(self.cancel)?;
        self.encoder.encode(batch, self.snapshot)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.out
            .write_all(&self.encoder.bytes)
            .map_err(Error::Output)?;
        self.encoder.bytes.clear();
        Ok(())
    }
}
