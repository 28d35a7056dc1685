//! The quads of a snapshot on their way into a bulk load, with the texts of their terms.

use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use crate::bulk::{BulkLoad, BulkWriter, LocalTerm};
use crate::error::{Error, Result};
use crate::read::{Columns, QuadColumns, ScanSpec, TermTexts};
use crate::root::Scheme;
use crate::snapshot::{Scan, Snapshot};

/// Quads that are read at a time.
pub(super) const BATCH_QUADS: usize = 4096;
/// Terms that are read at a time; each may be long.
pub(super) const BATCH_TERMS: usize = 512;

/// Reads all quads of a snapshot in an order.
pub(super) fn all_quads(state: &Snapshot, permutation: Permutation) -> Result<Scan> {
    state.scan(&ScanSpec {
        permutation,
        prefix: Vec::new(),
        ranges: Vec::new(),
        graphs: GraphSet::All,
        columns: Columns::ALL,
        with_graph: true,
    })
}

/// Gives all quads of a snapshot, and its empty graphs, to a load.
pub(super) fn feed(old: &Snapshot, load: &BulkLoad) -> Result<()> {
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
    let mut scan = all_quads(old, permutation)?;
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
pub(super) fn is_stored(id: TermId) -> bool {
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
