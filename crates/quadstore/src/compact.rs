//! Compaction: all quads and terms written anew, densely, and nothing else kept.
//!
//! The quads of the newest snapshot are read in one of its orders, their terms by batches from the
//! dictionary, and given to a bulk load that begins with nothing. So terms that no quad names are left
//! out, ids are given anew and ascend with the terms, and every segment is full. Blank nodes keep their
//! numbers, and graphs that exist though empty do so. One checkpoint puts the new trees and the new
//! dictionary in the place of the old ones, as one commit; until then everything is as it was.
//!
//! The new extents are written behind the old ones. Once nobody reads these, a second pass writes
//! everything once more to the front, and the files become as short as what they hold.
//!
//! # Concurrency
//! Readers go on, with the old ids until they take another snapshot. Commits wait until a pass is over.
//! A transaction that began before it is told to begin anew: the ids that it knows are others now.
//!
//! # Limits
//! Memory as a bulk load, of which a quarter is left for the local terms of known ids.

use std::sync::Arc;

use stoa_storage::ExtentId;
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use crate::backup::extents;
use crate::bulk::{BulkLoad, BulkOptions, BulkWriter, LocalTerm};
use crate::error::{Error, Result};
use crate::history::Retention;
use crate::quad_store::QuadStore;
use crate::read::{Columns, QuadColumns, ScanSpec, TermTexts};
use crate::root::Scheme;
use crate::snapshot::{Base, Snapshot};
use crate::{CheckpointOptions, bulk};

/// Quads that are read at a time.
const BATCH_QUADS: usize = 4096;
/// Terms that are read at a time; each may be long.
const BATCH_TERMS: usize = 512;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CompactSummary {
    /// The number of its commit, the last one if it took two passes.
    pub commit: u64,
    /// The quads of the store.
    pub quads: u64,
    /// Terms before and after, those that are not in the dictionary yet included.
    pub terms: [u64; 2],
    /// Bytes of the data files before and after.
    pub data_bytes: [u64; 2],
    /// Passes that were made: 1 if somebody reads the old extents, so that the files stay long.
    pub passes: u32,
}

impl QuadStore {
    /// Writes everything anew, densely, without terms that no quad names; see the module header.
    ///
    /// # Errors
    /// [`Error::HistoryKept`] if earlier commits are kept. If files cannot be read or written, or the compaction
    /// was cancelled: nothing is changed then, but that a first pass may have been made.
    pub fn compact(&self, options: &BulkOptions) -> Result<CompactSummary> {
        let terms = |info: &crate::Info| {
            let written = info.dictionary.iter().map(|(_, terms, _)| terms);
            written.sum::<u64>() + info.delta.terms
        };
        let retention = self.retention();
        if retention != Retention::None {
            return Err(Error::HistoryKept { retention });
        }
        let before = self.info()?;
        let mut summary = CompactSummary {
            terms: [terms(&before), 0],
            data_bytes: [before.data_bytes, 0],
            ..CompactSummary::default()
        };
        loop {
            summary.commit = self.compact_once(options)?;
            summary.passes += 1;
            let store = self.store();
            store.reclaim();
            let is_free = store.free_bytes() > store.data_bytes() / 4;
            if summary.passes == 2 || store.held_back_bytes() > 0 || !is_free {
                break;
            }
        }
        let after = self.info()?;
        summary.quads = after.quads;
        summary.terms = [terms(&before), terms(&after)];
        summary.data_bytes = [before.data_bytes, after.data_bytes];
        Ok(summary)
    }

    fn compact_once(&self, options: &BulkOptions) -> Result<u64> {
        let checkpoint = CheckpointOptions {
            threads: options.threads,
            memory_bytes: options.memory_bytes,
            cancel: Arc::clone(&options.cancel),
        };
        let (commit, old) = loop {
            if let Some(begun) = self.begin_compaction()? {
                break begun;
            }
            self.checkpoint_after_others(&checkpoint)?;
        };
        let load = self.bulk_load(BulkOptions {
            memory_bytes: options.memory_bytes - options.memory_bytes / 4,
            scheme: None,
            ..options.clone()
        })?;
        feed(&old, &load)?;
        drop(old);
        bulk::commit_over(self, load, commit)
    }
}

/// The extents below a root, each with its length in bytes.
pub(crate) fn whole_extents(base: &Base) -> Result<Vec<(ExtentId, u64)>> {
    let mut all = extents(base)?;
    all.sort_unstable_by_key(|extent| extent.part.extent);
    let of_one = all.chunk_by(|one, other| one.part.extent == other.part.extent);
    let lengths = of_one.filter_map(|parts| {
        let ends = parts.iter().map(|part| {
            let end = u64::from(part.part.offset) + u64::from(part.part.length);
            end.max(part.bytes.into())
        });
        Some((parts.first()?.part.extent, ends.max()?))
    });
    Ok(lengths.collect())
}

/// Gives all quads of a snapshot, and its empty graphs, to a load.
fn feed(old: &Snapshot, load: &BulkLoad) -> Result<()> {
    let mut feed = Feed {
        old,
        writer: load.writer(),
        epoch: 0,
        known: hashbrown::HashMap::default(),
        texts: TermTexts::default(),
    };
    feed.epoch = feed.writer.epoch();
    // A tree that the scheme has; by subjects where it can be, whose terms are near each other.
    let (permutation, order) = match old.scheme() {
        Scheme::Full => (Permutation::Spog, [0, 1, 2, 3]),
        Scheme::Lean => (Permutation::Psog, [1, 0, 2, 3]),
    };
    let mut scan = old.scan(&ScanSpec {
        permutation,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    })?;
    let (mut out, mut quads) = (QuadColumns::default(), Vec::new());
    loop {
        out.clear();
        let more = scan.next(BATCH_QUADS, &mut out)?;
        let [a, b, c, d] = &out.columns;
        let rows = a.iter().zip(b).zip(c).zip(d);
        quads.clear();
        quads.extend(rows.map(|(((a, b), c), d)| {
            let row = [*a, *b, *c, *d];
            order.map(|place: usize| row.get(place).copied().unwrap_or(TermId::UNBOUND))
        }));
        feed.quads(&quads)?;
        if !more {
            break;
        }
    }
    for entry in old.graphs()? {
        if old.is_created(entry.graph)? {
            feed.resolve(vec![entry.graph])?;
            let graph = feed.local(entry.graph)?;
            feed.writer.create_graph(graph)?;
        }
    }
    feed.writer.finish()
}

/// Terms of a snapshot on their way to a writer.
struct Feed<'a> {
    old: &'a Snapshot,
    writer: BulkWriter,
    /// The one for which terms are known.
    epoch: u64,
    known: hashbrown::HashMap<TermId, LocalTerm, rapidhash::fast::RandomState>,
    texts: TermTexts,
}

/// Whether the dictionary has a term, so that its id is another one after the compaction.
fn is_stored(id: TermId) -> bool {
    id.kind().is_in_dictionary() || id.kind() == Kind::Triple
}

impl Feed<'_> {
    fn quads(&mut self, quads: &[[TermId; 4]]) -> Result<()> {
        let mut rest = quads;
        while !rest.is_empty() {
            self.resolve(rest.as_flattened().to_vec())?;
            while let Some((quad, others)) = rest.split_first() {
                let [s, p, o, g] = *quad;
                let (s, p) = (self.local(s)?, self.local(p)?);
                let (o, g) = (self.local(o)?, self.local(g)?);
                self.writer.quad(s, p, o, g)?;
                rest = others;
                if self.writer.epoch() != self.epoch {
                    // The vocabulary was handed over, and the next one is empty.
                    self.epoch = self.writer.epoch();
                    self.known.clear();
                    break;
                }
            }
        }
        Ok(())
    }

    fn local(&self, id: TermId) -> Result<LocalTerm> {
        if !is_stored(id) {
            return Ok(BulkWriter::inline(id));
        }
        let known = self.known.get(&id).copied();
        known.ok_or(Error::Internal("a term that was not resolved"))
    }

    /// Lets the writer know the terms of ids, in which there may be others and repeats.
    fn resolve(&mut self, mut ids: Vec<TermId>) -> Result<()> {
        ids.retain(|id| is_stored(*id) && !self.known.contains_key(id));
        ids.sort_unstable();
        ids.dedup();
        let triples = ids.extract_if(.., |id| id.kind() == Kind::Triple);
        let triples: Vec<TermId> = triples.collect();
        for ids in ids.chunks(BATCH_TERMS) {
            self.texts.clear();
            self.old.texts(ids, &mut self.texts)?;
            for (index, id) in ids.iter().enumerate() {
                let local = self.writer.intern(id.kind(), self.texts.get(index))?;
                self.known.insert(*id, local);
            }
        }
        if triples.is_empty() {
            return Ok(());
        }
        let parts = self.old.triples(&triples)?;
        self.resolve(parts.as_flattened().to_vec())?;
        for (id, parts) in triples.iter().zip(parts) {
            let [s, p, o] = parts;
            let (s, p, o) = (self.local(s)?, self.local(p)?, self.local(o)?);
            let local = self.writer.triple(s, p, o)?;
            self.known.insert(*id, local);
        }
        Ok(())
    }
}
