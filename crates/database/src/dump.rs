//! Writes all quads of a database, a batch at a time.
//!
//! N-Quads come in the order of SPOG. TriG comes graph by graph, the default graph first: a graph
//! that holds much of the database is filtered out of SPOG, the subjects of a smaller one are looked
//! up there.
//!
//! # Limits
//! Memory: one batch. Cancellation is checked at every batch.

use std::io::Write;

use stoa_quadstore::{Columns, LookupRows, LookupSpec, QuadColumns, ScanSpec, Snapshot};
use stoa_terms::{GraphSet, Permutation, TermId};

use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::limits::DUMP_BATCH_ROWS;
use crate::options::DumpFormat;
use crate::query::CancelHandle;
use crate::results::{GraphWriter, TermViews};

/// A graph with at least this share of all quads is read by a scan of all.
const SCANNED_SHARE: u64 = 8;

/// Writes all quads of a snapshot; returns how many.
pub(crate) fn dump(
    snapshot: &Snapshot,
    format: DumpFormat,
    out: &mut dyn Write,
    cancel: &CancelHandle,
) -> Result<u64> {
    let mut dump = Dump {
        snapshot,
        out,
        cancel,
        writer: GraphWriter::new(match format {
            DumpFormat::NQuads => GraphFormat::NQuads,
            DumpFormat::TriG => GraphFormat::TriG,
        }),
        views: TermViews::default(),
        bytes: Vec::new(),
        quads: 0,
    };
    match format {
        DumpFormat::NQuads => dump.scan(GraphSet::All)?,
        DumpFormat::TriG => {
            dump.graph(
                TermId::DEFAULT_GRAPH,
                snapshot.graph_quads(TermId::DEFAULT_GRAPH)?,
            )?;
            for entry in snapshot.graphs()? {
                if entry.graph != TermId::DEFAULT_GRAPH {
                    dump.graph(entry.graph, entry.quads)?;
                }
            }
        }
    }
    dump.writer.finish(&mut dump.bytes)?;
    dump.flush()?;
    Ok(dump.quads)
}

struct Dump<'a> {
    snapshot: &'a Snapshot,
    out: &'a mut dyn Write,
    cancel: &'a CancelHandle,
    writer: GraphWriter,
    views: TermViews,
    bytes: Vec<u8>,
    quads: u64,
}

impl Dump<'_> {
    fn graph(&mut self, graph: TermId, quads: u64) -> Result<()> {
        if quads.saturating_mul(SCANNED_SHARE) >= self.snapshot.quads() {
            return self.scan(GraphSet::One(graph));
        }
        let mut lookup = self.snapshot.lookup(&LookupSpec {
            permutation: Permutation::Spog,
            key_length: 1,
            graphs: GraphSet::One(graph),
            columns: Columns::ALL,
            with_graph: true,
        })?;
        let mut subjects = self.snapshot.scan_graph_subjects(graph)?;
        let mut batch = QuadColumns::default();
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

    fn scan(&mut self, graphs: GraphSet) -> Result<()> {
        let mut scan = self.snapshot.scan(&ScanSpec {
            permutation: Permutation::Spog,
            prefix: Vec::new(),
            ranges: Vec::new(),
            graphs,
            columns: Columns::ALL,
            with_graph: true,
        })?;
        let mut batch = QuadColumns::default();
        while scan.next(DUMP_BATCH_ROWS, &mut batch)? {
            self.write(&batch)?;
        }
        Ok(())
    }

    fn write(&mut self, batch: &QuadColumns) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let [subjects, predicates, objects, graphs] = &batch.columns;
        let rows = subjects.iter().zip(predicates).zip(objects).zip(graphs);
        let ids = rows.flat_map(|(((s, p), o), g)| [*s, *p, *o, *g]);
        self.views.load(ids, self.snapshot)?;
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
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.out.write_all(&self.bytes).map_err(Error::Output)?;
        self.bytes.clear();
        Ok(())
    }
}
