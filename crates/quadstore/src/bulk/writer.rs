//! The side of a bulk load that parsing threads drive: terms to local numbers, quads to blocks.
//!
//! Each thread has a [`BulkWriter`] with a vocabulary of its own, so threads share nothing but the
//! temporary file. When the vocabulary has grown to the writer's share of the memory it is sorted
//! and spilled on the writer's own thread, and the next epoch begins with an empty one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stoa_terms::{Kind, TermId};

use super::Shared;
use super::partial::{Contents, Partial};
use super::quad_buffer::{LocalTerm, QuadBuffer};
use super::vocabulary::{KEY_BYTES_MAX, TermTable};
use crate::{Error, Result};

/// After this many quads a writer looks at the cancel flag and reports its progress.
const QUADS_BETWEEN_CHECKS: u32 = 4096;

/// Takes the terms and quads that one thread reads; see the module header.
pub struct BulkWriter {
    shared: Arc<Shared>,
    vocabulary: TermTable,
    quads: QuadBuffer,
    epoch: u64,
    /// Local numbers that occur as predicates, and as graphs, of this epoch.
    predicates: TermSet,
    graphs: TermSet,
    /// Graphs that are to exist even if they hold no quads.
    created: Vec<LocalTerm>,
    /// Quads since the last check.
    unchecked: u32,
    /// What this writer has added to the shared count of memory in use.
    reported_bytes: usize,
    key: Vec<u8>,
    finished: bool,
}

impl BulkWriter {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        shared.writers.fetch_add(1, Ordering::AcqRel);
        let block_bytes = (shared.writer_bytes / 16).min(1 << 20);
        Self {
            shared,
            vocabulary: TermTable::new(block_bytes),
            quads: QuadBuffer::new(),
            epoch: 0,
            predicates: TermSet::default(),
            graphs: TermSet::default(),
            created: Vec::new(),
            unchecked: 0,
            reported_bytes: 0,
            key: Vec::new(),
            finished: false,
        }
    }

    /// The local term of an inline id, or of [`TermId::DEFAULT_GRAPH`].
    #[must_use]
    pub fn inline(id: TermId) -> LocalTerm {
        LocalTerm::inline(id)
    }

    /// The local term of an IRI or literal, by its dictionary key.
    ///
    /// # Errors
    /// If the key is longer than 256 MB or the vocabulary is full: only [`BulkWriter::quad`] can
    /// make room in it, so that the terms of one quad stay valid together.
    pub fn intern(&mut self, kind: Kind, key: &[u8]) -> Result<LocalTerm> {
        let number = intern(&mut self.vocabulary, kind, key)?;
        Ok(LocalTerm::local(number, 0, self.epoch))
    }

    /// The local term of a blank node: `label` within the document numbered `scope`.
    ///
    /// # Errors
    /// As [`BulkWriter::intern`].
    pub fn blank(&mut self, scope: u64, label: &[u8]) -> Result<LocalTerm> {
        self.key.clear();
        self.key.extend_from_slice(&scope.to_be_bytes());
        self.key.extend_from_slice(label);
        let number = intern(&mut self.vocabulary, Kind::BlankNode, &self.key)?;
        Ok(LocalTerm::local(number, 0, self.epoch))
    }

    /// The local term of a triple term.
    ///
    /// # Errors
    /// As [`BulkWriter::intern`]; also if triple terms are nested more than 1,023 deep, or if a part
    /// is of an earlier epoch.
    pub fn triple(&mut self, s: LocalTerm, p: LocalTerm, o: LocalTerm) -> Result<LocalTerm> {
        let parts = [s, p, o];
        self.check_epoch(&parts)?;
        let depth = parts.iter().map(|part| part.depth()).max().unwrap_or(0) + 1;
        if depth > LocalTerm::DEPTH_MAX {
            return Err(Error::Storage(stoa_storage::Error::LimitExceeded {
                what: "nesting of triple terms",
                limit: LocalTerm::DEPTH_MAX,
                found: depth,
            }));
        }
        self.key.clear();
        for part in parts {
            self.key.extend_from_slice(&part.to_bits().to_le_bytes());
        }
        let number = intern(&mut self.vocabulary, Kind::Triple, &self.key)?;
        Ok(LocalTerm::local(number, depth, self.epoch))
    }

    /// Adds a quad. Afterwards the epoch may have changed: local terms made before are then void.
    ///
    /// # Errors
    /// If the load was cancelled, a temporary file cannot be written, or a term is of an earlier
    /// epoch.
    pub fn quad(&mut self, s: LocalTerm, p: LocalTerm, o: LocalTerm, g: LocalTerm) -> Result<()> {
        let quad = [s, p, o, g];
        self.check_epoch(&quad)?;
        let [_, previous_p, _, previous_g] = *self.quads.previous();
        if p != previous_p {
            self.predicates.insert(p);
        }
        if g != previous_g {
            self.graphs.insert(g);
        }
        self.quads.push(quad, &self.shared.quads_file)?;
        self.unchecked += 1;
        if self.unchecked == QUADS_BETWEEN_CHECKS {
            self.report()?;
        }
        if self.vocabulary.memory_bytes() >= self.shared.writer_bytes {
            self.seal(false)?;
        }
        Ok(())
    }

    /// Lets a graph exist, even if it holds no quads.
    ///
    /// # Errors
    /// If the term is of an earlier epoch.
    pub fn create_graph(&mut self, graph: LocalTerm) -> Result<()> {
        self.check_epoch(&[graph])?;
        self.graphs.insert(graph);
        self.created.push(graph);
        Ok(())
    }

    /// Changes when the local terms made so far became void.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Hands over what was written; without it the load cannot be committed.
    ///
    /// # Errors
    /// If a temporary file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.report()?;
        let keep = self.shared.used_bytes.load(Ordering::Acquire) <= self.shared.terms_bytes;
        self.seal(keep)?;
        self.finished = true;
        Ok(())
    }

    fn check_epoch(&self, terms: &[LocalTerm]) -> Result<()> {
        if terms.iter().all(|term| term.is_of_epoch(self.epoch)) {
            return Ok(());
        }
        Err(Error::Internal("a local term was used after its epoch"))
    }

    /// Counts quads and memory, and obeys the cancel flag.
    fn report(&mut self) -> Result<()> {
        let shared = &self.shared;
        let added = u64::from(std::mem::take(&mut self.unchecked));
        let read = shared.quads_read.fetch_add(added, Ordering::AcqRel) + added;
        let bytes = self.vocabulary.memory_bytes();
        shared.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        shared
            .used_bytes
            .fetch_sub(self.reported_bytes, Ordering::AcqRel);
        self.reported_bytes = bytes;
        shared.options.progress.advance(read);
        shared.check_cancelled()?;
        // Writers that came and went may hold more than their part; then those at work hold less.
        if shared.used_bytes.load(Ordering::Acquire) > shared.terms_bytes
            && bytes > shared.writer_bytes / 4
        {
            self.seal(false)?;
        }
        Ok(())
    }

    /// Hands over vocabulary and quads, and begins the next epoch.
    fn seal(&mut self, keep_in_memory: bool) -> Result<()> {
        let shared = &self.shared;
        let (quads, count) = self.quads.take(&shared.quads_file)?;
        let block_bytes = (shared.writer_bytes / 16).min(1 << 20);
        let vocabulary = std::mem::replace(&mut self.vocabulary, TermTable::new(block_bytes));
        let epoch = self.epoch;
        self.epoch += 1;
        let contents = Contents {
            quads,
            predicates: self.predicates.take(epoch),
            graphs: self.graphs.take(epoch),
            created: std::mem::take(&mut self.created),
        };
        if count > 0 || !contents.created.is_empty() || vocabulary.len() > 0 {
            let partial = Partial::seal(vocabulary, contents, keep_in_memory, &shared.terms_file)?;
            shared
                .used_bytes
                .fetch_add(partial.memory_bytes, Ordering::AcqRel);
            shared.add(partial);
        }
        shared
            .used_bytes
            .fetch_sub(self.reported_bytes, Ordering::AcqRel);
        self.reported_bytes = 0;
        Ok(())
    }
}

impl Drop for BulkWriter {
    fn drop(&mut self) {
        if self.finished {
            self.shared.writers.fetch_sub(1, Ordering::AcqRel);
        }
        self.shared
            .used_bytes
            .fetch_sub(self.reported_bytes, Ordering::AcqRel);
    }
}

fn intern(vocabulary: &mut TermTable, kind: Kind, key: &[u8]) -> Result<u32> {
    vocabulary.intern(kind, key).ok_or_else(|| {
        let (limit, found) = (KEY_BYTES_MAX as u64, key.len() as u64);
        let what = if found > limit {
            "length of a term in bytes"
        } else {
            "terms between two quads"
        };
        Error::Storage(stoa_storage::Error::LimitExceeded { what, limit, found })
    })
}

/// A set of terms: a bit for each local number, and a list of the inline ones.
#[derive(Default)]
struct TermSet {
    bits: Vec<u64>,
    /// The default graph; and any ids, where a load is made again.
    inline: BTreeSet<TermId>,
}

impl TermSet {
    fn insert(&mut self, term: LocalTerm) {
        match term.split() {
            Ok(number) => {
                let word = number as usize / 64;
                if word >= self.bits.len() {
                    self.bits.resize(word + 1, 0);
                }
                if let Some(bits) = self.bits.get_mut(word) {
                    *bits |= 1 << (number % 64);
                }
            }
            Err(id) => {
                self.inline.insert(id);
            }
        }
    }

    /// The terms of the set, which is empty afterwards.
    fn take(&mut self, epoch: u64) -> Vec<LocalTerm> {
        let inline = std::mem::take(&mut self.inline).into_iter();
        let mut terms: Vec<LocalTerm> = inline.map(LocalTerm::inline).collect();
        for (word, bits) in (0_u32..).zip(self.bits.drain(..)) {
            for bit in 0..64 {
                if bits & (1 << bit) != 0 {
                    terms.push(LocalTerm::local(word * 64 + bit, 0, epoch));
                }
            }
        }
        terms
    }
}
