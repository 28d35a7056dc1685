//! Merges the vocabularies of all writers and epochs into the dictionary.
//!
//! One kind at a time (several kinds in parallel): the sorted keys of all partial vocabularies are
//! merged; keys are looked up in the dictionary, by batches, and get new ids in ascending order where
//! they are unknown; for each partial vocabulary the pairs (local number, id) go to the temporary
//! file. Blank nodes have no dictionary: each gets the next number. Triple terms follow, the
//! innermost first, when the ids of their parts are known: there the keys are ids, sorted anew.
#![expect(
    clippy::indexing_slicing,
    reason = "writers and cursors are numbered like the partial vocabularies; batch entries by the batch"
)]

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Scope;

use stoa_storage::Checkpoint;
use stoa_storage::sync::Mutex;
use stoa_terms::{Kind, TermId};

use super::Shared;
use super::change_file::ChangeWriter;
use super::loser_tree::LoserTree;
use super::partial::{KEYED_KINDS, KeyCursor, Partial, read_triple, resolve, write_id};
use super::quad_sort::{MergedRuns, RunBuilder};
use super::spill::{SpillFile, Stream, StreamWriter};
use crate::dictionary::{Dictionary, Partition, PartitionOptions, PartitionWriter, triple_key};
use crate::{Error, Result};

/// Keys, and bytes of keys, that are looked up together.
const BATCH_KEYS: usize = 8192;
const BATCH_BYTES: usize = 1 << 20;

/// What the merge made of the vocabularies.
pub(super) struct MergedTerms {
    pub(super) partitions: Vec<Partition>,
    pub(super) next_blank_node: u64,
    /// For each dictionary kind that had a new term, the payload after its last.
    pub(super) next_iri: u64,
    pub(super) terms_new: u64,
}

/// Everything that the merge of one kind needs to know.
pub(super) struct Merge<'a> {
    pub(super) shared: &'a Shared,
    pub(super) dictionary: &'a Dictionary,
    pub(super) checkpoint: &'a Checkpoint<'a>,
    pub(super) ids_file: &'a Arc<SpillFile>,
    pub(super) next_blank_node: u64,
    /// Gives the first of so many numbers for new blank nodes.
    pub(super) take_blank_nodes: &'a (dyn Fn(u64) -> u64 + Sync),
    /// Is told the new terms.
    pub(super) changes: Option<&'a Mutex<ChangeWriter>>,
}

/// The outcome for one kind (or one depth of triple terms).
struct KindMerged {
    partition: Option<Partition>,
    next_payload: u64,
    terms_new: u64,
    /// One stream of (local number, id) for each partial vocabulary.
    ids: Vec<Stream>,
}

impl Merge<'_> {
    /// Merges all terms; afterwards [`Partial::read_ids`] gives the ids of each partial vocabulary.
    pub(super) fn run(&self, partials: &mut [Partial]) -> Result<MergedTerms> {
        let total = partials
            .iter()
            .map(|partial| u64::from(partial.terms))
            .sum();
        self.shared
            .options
            .progress
            .phase("writing terms", Some(total));
        let done = AtomicU64::new(0);
        let mut merged = MergedTerms {
            partitions: Vec::new(),
            next_blank_node: self.next_blank_node,
            next_iri: self.dictionary.next_payload(Kind::Iri),
            terms_new: 0,
        };
        for (kind, outcome) in self.merge_keyed_kinds(partials, &done)? {
            match kind {
                Kind::BlankNode => merged.next_blank_node = outcome.next_payload,
                Kind::Iri => merged.next_iri = outcome.next_payload,
                _ => {}
            }
            if kind != Kind::BlankNode {
                merged.terms_new += outcome.terms_new;
            }
            merged.partitions.extend(outcome.partition);
            for (partial, ids) in partials.iter_mut().zip(outcome.ids) {
                partial.ids.push(ids);
            }
        }
        self.merge_triples(partials, &mut merged, &done)?;
        Ok(merged)
    }

    fn merge_keyed_kinds(
        &self,
        partials: &mut [Partial],
        done: &AtomicU64,
    ) -> Result<Vec<(Kind, KindMerged)>> {
        let mut jobs = Vec::new();
        for (list, kind) in KEYED_KINDS.into_iter().enumerate() {
            let cursors = partials
                .iter_mut()
                .map(|partial| partial.take_cursor(list))
                .collect::<Result<Vec<_>>>()?;
            jobs.push(Mutex::new(Some((kind, cursors))));
        }
        let next_job = AtomicUsize::new(0);
        let outcomes = Mutex::new(Vec::new());
        let threads = self.shared.options.threads.clamp(1, KEYED_KINDS.len());
        let compressors = (self.shared.options.threads / 2).max(1);
        std::thread::scope(|scope| {
            let work = || {
                while let Some(job) = jobs.get(next_job.fetch_add(1, Ordering::AcqRel)) {
                    let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let Some((kind, cursors)) = job else { continue };
                    let outcome = self.merge_kind(kind, cursors, scope, compressors, done);
                    let failed = outcome.is_err();
                    outcomes
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(outcome.map(|outcome| (kind, outcome)));
                    if failed {
                        next_job.store(jobs.len(), Ordering::Release);
                    }
                }
            };
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        outcomes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .into_iter()
            .collect()
    }

    fn merge_kind<'scope, 'env>(
        &'env self,
        kind: Kind,
        mut cursors: Vec<KeyCursor>,
        scope: &'scope Scope<'scope, 'env>,
        compressors: usize,
        done: &AtomicU64,
    ) -> Result<KindMerged> {
        let mut sink = Sink::new(self, kind, cursors.len(), done);
        let mut partition = None;
        let mut batch = Batch::default();
        let mut tree = LoserTree::new(cursors.len(), |a, b| comes_before(&cursors, a, b));
        while let Some(cursor) = cursors.get_mut(tree.winner()) {
            let Some(key) = cursor.key() else { break };
            if !batch.ends_with(key) {
                if batch.is_full() {
                    self.write_batch(&mut batch, &mut sink, &mut partition, scope, compressors)?;
                }
                batch.push(key);
            }
            batch
                .uses
                .push((batch.len() - 1, tree.winner(), cursor.local()));
            cursor.advance()?;
            tree.replay(|a, b| comes_before(&cursors, a, b));
        }
        self.write_batch(&mut batch, &mut sink, &mut partition, scope, compressors)?;
        let partition = partition.map(PartitionWriter::finish).transpose()?;
        sink.finish(partition)
    }

    /// Gives an id to each key of the batch, and writes it for each partial vocabulary.
    fn write_batch<'scope, 'env>(
        &'env self,
        batch: &mut Batch,
        sink: &mut Sink<'_>,
        partition: &mut Option<PartitionWriter<'scope>>,
        scope: &'scope Scope<'scope, 'env>,
        compressors: usize,
    ) -> Result<()> {
        self.shared.check_cancelled()?;
        let keys: Vec<&[u8]> = batch.keys().collect();
        let mut known = Vec::new();
        if sink.kind != Kind::BlankNode && !self.dictionary.is_empty(sink.kind) {
            self.dictionary
                .lookup_sorted(sink.kind, &keys, &mut known)?;
        }
        if sink.kind == Kind::BlankNode && !keys.is_empty() {
            // Transactions take some meanwhile.
            sink.next_payload = (self.take_blank_nodes)(keys.len() as u64);
        }
        let (begins, mut new) = (partition.is_none(), Vec::new());
        let first = TermId::new(sink.kind, sink.next_payload);
        let mut ids = Vec::with_capacity(keys.len());
        for (number, key) in keys.iter().enumerate() {
            if let Some(&Some(id)) = known.get(number) {
                ids.push(id);
                continue;
            }
            if sink.kind == Kind::BlankNode {
                ids.push(TermId::new(Kind::BlankNode, sink.next_payload));
            } else {
                let writer = match partition {
                    Some(writer) => writer,
                    None => partition.insert(PartitionWriter::start(
                        scope,
                        self.checkpoint,
                        PartitionOptions {
                            kind: sink.kind,
                            first_payload: sink.next_payload,
                            threads: compressors,
                        },
                    )?),
                };
                ids.push(writer.push(key)?);
                new.push(*key);
            }
            sink.next_payload += 1;
            sink.terms_new += 1;
        }
        if let Some(changes) = self.changes.filter(|_| !new.is_empty()) {
            let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
            changes.terms(first, begins, new.into_iter())?;
        }
        for &(key, partial, local) in &batch.uses {
            write_id(&mut sink.ids[partial], local, ids[key])?;
        }
        sink.count(batch.uses.len());
        batch.clear();
        Ok(())
    }

    fn merge_triples(
        &self,
        partials: &mut [Partial],
        merged: &mut MergedTerms,
        done: &AtomicU64,
    ) -> Result<()> {
        let mut depths: Vec<u64> = partials
            .iter()
            .flat_map(|partial| partial.triples.keys().copied())
            .collect();
        depths.sort_unstable();
        depths.dedup();
        let mut next_payload = self.dictionary.next_payload(Kind::Triple);
        for depth in depths {
            let outcome = self.merge_depth(depth, partials, next_payload, done)?;
            next_payload = outcome.next_payload;
            merged.terms_new += outcome.terms_new;
            merged.partitions.extend(outcome.partition);
            for (partial, ids) in partials.iter_mut().zip(outcome.ids) {
                partial.ids.push(ids);
            }
        }
        Ok(())
    }

    /// Merges the triple terms of one nesting depth; the ids of all shallower ones are known.
    fn merge_depth(
        &self,
        depth: u64,
        partials: &[Partial],
        next_payload: u64,
        done: &AtomicU64,
    ) -> Result<KindMerged> {
        let capacity = self.shared.options.memory_bytes / 4 / 32;
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX).max(1024);
        let triples: u64 = partials
            .iter()
            .map(|partial| u64::from(partial.terms))
            .sum();
        let capacity = capacity.min(usize::try_from(triples).unwrap_or(usize::MAX));
        let mut builder = RunBuilder::new(self.ids_file, capacity);
        for (number, partial) in (0_u64..).zip(partials) {
            let Some(stream) = partial.triples.get(&depth) else {
                continue;
            };
            self.shared.check_cancelled()?;
            let ids = partial.read_ids()?;
            let mut reader = stream.reader();
            while let Some((local, [s, p, o])) = read_triple(&mut reader)? {
                let record = [
                    resolve(s, &ids)?.to_bits(),
                    resolve(p, &ids)?.to_bits(),
                    resolve(o, &ids)?.to_bits(),
                    (number << 32) | u64::from(local),
                ];
                builder.push(record, |_, _| {})?;
            }
        }
        let mut runs = MergedRuns::new(builder.finish(|_, _| {}).0, &mut || {
            self.shared.check_cancelled()
        })?;
        let mut sink = Sink::new(self, Kind::Triple, partials.len(), done);
        sink.next_payload = next_payload;
        let compressors = (self.shared.options.threads / 2).max(1);
        std::thread::scope(|scope| {
            let mut partition = None;
            let mut batch = Batch::default();
            let mut records = Vec::new();
            loop {
                records.clear();
                runs.read(BATCH_KEYS, &mut records)?;
                if records.is_empty() {
                    break;
                }
                for &[s, p, o, user] in &records {
                    let key = triple_key([s, p, o].map(TermId::from_bits));
                    if !batch.ends_with(&key) {
                        if batch.is_full() {
                            self.write_batch(
                                &mut batch,
                                &mut sink,
                                &mut partition,
                                scope,
                                compressors,
                            )?;
                        }
                        batch.push(&key);
                    }
                    let partial = usize::try_from(user >> 32).map_err(|_| TOO_MANY)?;
                    let local = u32::try_from(user & u64::from(u32::MAX)).map_err(|_| TOO_MANY)?;
                    batch.uses.push((batch.len() - 1, partial, local));
                }
            }
            self.write_batch(&mut batch, &mut sink, &mut partition, scope, compressors)?;
            let partition = partition.map(PartitionWriter::finish).transpose()?;
            sink.finish(partition)
        })
    }
}

const TOO_MANY: Error = Error::Internal("more partial vocabularies than numbers for them");

fn comes_before(cursors: &[KeyCursor], a: usize, b: usize) -> bool {
    match (cursors[a].key(), cursors[b].key()) {
        (Some(a), Some(b)) => a < b,
        (a, _) => a.is_some(),
    }
}

/// Where the ids of one kind go.
struct Sink<'a> {
    kind: Kind,
    next_payload: u64,
    terms_new: u64,
    ids: Vec<StreamWriter>,
    shared: &'a Shared,
    done: &'a AtomicU64,
}

impl<'a> Sink<'a> {
    fn new(merge: &'a Merge<'_>, kind: Kind, partials: usize, done: &'a AtomicU64) -> Self {
        let next_payload = match kind {
            Kind::BlankNode => merge.next_blank_node,
            _ => merge.dictionary.next_payload(kind),
        };
        let ids = (0..partials).map(|_| StreamWriter::new(merge.ids_file, false));
        Self {
            kind,
            next_payload,
            terms_new: 0,
            ids: ids.collect(),
            shared: merge.shared,
            done,
        }
    }

    fn count(&self, terms: usize) {
        let done = self.done.fetch_add(terms as u64, Ordering::AcqRel) + terms as u64;
        self.shared.options.progress.advance(done);
    }

    fn finish(self, partition: Option<Partition>) -> Result<KindMerged> {
        Ok(KindMerged {
            partition,
            next_payload: self.next_payload,
            terms_new: self.terms_new,
            ids: self
                .ids
                .into_iter()
                .map(StreamWriter::finish)
                .collect::<Result<_>>()?,
        })
    }
}

/// Keys that get their ids together, and who waits for them.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    last_start: usize,
    /// (key of the batch, partial vocabulary, local number)
    uses: Vec<(usize, usize, u32)>,
}

impl Batch {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn is_full(&self) -> bool {
        self.len() >= BATCH_KEYS || self.bytes.len() >= BATCH_BYTES
    }

    fn ends_with(&self, key: &[u8]) -> bool {
        !self.ends.is_empty() && &self.bytes[self.last_start..] == key
    }

    fn push(&mut self, key: &[u8]) {
        self.last_start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.bytes[start..end])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.uses.clear();
        self.last_start = 0;
    }
}
