//! A load or a compaction made again from its change file, when a database is restored.
//!
//! The file tells what the load changed, or all that the compaction wrote, with the ids that it gave. New terms go into
//! partitions of the dictionary as they come, quads into the sort and the merges of any load.
//!
//! # Limits
//! As for a load; its vocabulary is empty, since all terms have their ids.
#![expect(
    clippy::indexing_slicing,
    reason = "arrays with one entry a permutation or a kind, indexed by its number"
)]

use std::thread::Scope;

use stoa_storage::{ChangeFileReader, Checkpoint};
use stoa_terms::{Kind, TermId};

use super::change_file::{ChangeSink, read};
use super::commit::{self, Extras};
use super::merge_terms::MergedTerms;
use super::packing::{Orders, Packing as _, Whole, Wide};
use super::quad_sort::{Run, RunBuilder};
use super::spill::SpillFile;
use super::{BulkCommit, BulkLoad, BulkOptions, BulkWriter, Shared, limits};
use crate::commit::LoadRecord;
use crate::dictionary::{Dictionary, Partition, PartitionOptions, PartitionWriter};
use crate::quad_store::Commit;
use crate::segment::Row;
use crate::{Error, QuadStore, Result};

/// What a change file tells besides the quads that were added.
pub(super) struct Again {
    pub(super) terms: MergedTerms,
    pub(super) graphs: Vec<(TermId, bool)>,
    /// The quads that were removed in each order, by its number, if there are any.
    pub(super) removed: Option<[Vec<Run<Wide>>; 4]>,
}

/// Makes the load of a record, which was committed at a time, once more.
pub(crate) fn load_again(
    store: &QuadStore,
    mut file: ChangeFileReader,
    (told, time_us): (&LoadRecord, u64),
    options: BulkOptions,
) -> Result<()> {
    let load = store.bulk_load(BulkOptions {
        scheme: Some(told.scheme),
        ..options
    })?;
    let shared = &*load.shared;
    let mut commit = commit::begin(store, &shared.options)?;
    commit.set_time(time_us);
    let again = Reading::run(&load, &commit, &mut file, told)?;
    let message = told.head.message.clone();
    let options = BulkCommit {
        message,
        replaced: None,
    };
    let extras = Extras {
        again: Some(again),
        ..Extras::default()
    };
    let built = commit::build_over(store, shared, &mut commit, options, extras)?;
    let done = commit::finish(shared, commit, built)?;
    check_counts(&file, told, (done.quads_new, done.quads_removed))
}

/// Writes what a compaction wrote into trees that `over`, which was begun, builds upon next.
pub(crate) fn build_again(
    store: &QuadStore,
    mut file: ChangeFileReader,
    told: &LoadRecord,
    over: &mut Commit<'_>,
    options: BulkOptions,
) -> Result<()> {
    let load = store.bulk_load(options)?;
    let extras = Extras {
        again: Some(Reading::run(&load, over, &mut file, told)?),
        ..Extras::default()
    };
    let built = commit::build_over(store, &load.shared, over, BulkCommit::default(), extras)?;
    let counts = built.merged.first();
    let counts = counts.map_or((0, 0), |merged| (merged.inserted, merged.deleted));
    check_counts(&file, told, counts)?;
    over.go_on(built.merged, built.derived, built.dictionary)
}

/// Compares how many quads were added and removed with what the log tells.
fn check_counts(file: &ChangeFileReader, told: &LoadRecord, found: (u64, u64)) -> Result<()> {
    let expected = (told.head.added, told.head.removed);
    if found == expected {
        return Ok(());
    }
    let counts = |(added, removed)| format!("{added} quads added and {removed} removed");
    let (expected, found) = (counts(expected), counts(found));
    Err(file.damaged(expected, found).into())
}

/// A change file that is being read.
struct Reading<'scope, 'env> {
    shared: &'env Shared,
    scope: &'scope Scope<'scope, 'env>,
    checkpoint: &'env Checkpoint<'env>,
    dictionary: &'env Dictionary,
    /// By the number of the kind.
    writers: [Option<PartitionWriter<'scope>>; Kind::ALL.len()],
    /// The payload of the next term of each kind; 0 before the first.
    next: [u64; Kind::ALL.len()],
    kind: Kind,
    partitions: Vec<Partition>,
    terms_new: u64,
    graphs: Vec<(TermId, bool)>,
    quads: BulkWriter,
    removed: [(Orders, RunBuilder<Wide>); 2],
    is_removing: bool,
}

impl Reading<'_, '_> {
    fn run(
        load: &BulkLoad,
        commit: &Commit<'_>,
        file: &mut ChangeFileReader,
        told: &LoadRecord,
    ) -> Result<Again> {
        let shared = &*load.shared;
        let spill = SpillFile::new(&shared.space)?;
        let capacity = limits::replaced_capacity(shared.options.memory_bytes, size_of::<Wide>());
        let dictionary = commit.snapshot().dictionary();
        let mut again = std::thread::scope(|scope| {
            let mut reading = Reading {
                shared,
                scope,
                checkpoint: commit.checkpoint(),
                dictionary,
                writers: [const { None }; Kind::ALL.len()],
                next: [0; Kind::ALL.len()],
                kind: Kind::Iri,
                partitions: Vec::new(),
                terms_new: 0,
                graphs: Vec::new(),
                quads: load.writer(),
                removed: Orders::ALL.map(|order| (order, RunBuilder::new(&spill, capacity))),
                is_removing: false,
            };
            read(file, told.file, &mut reading)?;
            reading.finish()
        })?;
        again.terms.next_blank_node = told.next_blank_node;
        Ok(again)
    }

    fn finish(mut self) -> Result<Again> {
        for kind in 0..self.writers.len() {
            self.end_partition(kind)?;
        }
        self.quads.finish()?;
        let mut removed = [const { Vec::new() }; 4];
        for (order, builder) in self.removed {
            let (runs, derived) = builder.finish(|from, to| Whole.derive(order, from, to));
            removed[order.node_first() as usize] = runs;
            removed[order.predicate_first() as usize] = derived;
        }
        let iris = self.next[Kind::Iri as usize];
        Ok(Again {
            terms: MergedTerms {
                partitions: self.partitions,
                next_blank_node: 0,
                next_iri: iris.max(self.dictionary.next_payload(Kind::Iri)),
                terms_new: self.terms_new,
            },
            graphs: self.graphs,
            removed: self.is_removing.then_some(removed),
        })
    }

    fn end_partition(&mut self, kind: usize) -> Result<()> {
        if let Some(writer) = self.writers[kind].take() {
            self.partitions.push(writer.finish()?);
        }
        Ok(())
    }
}

impl ChangeSink for Reading<'_, '_> {
    fn terms(&mut self, first: TermId, begins: bool) -> Result<()> {
        let kind = first.kind() as usize;
        self.kind = first.kind();
        let next = match self.next[kind] {
            0 => self.dictionary.next_payload(self.kind),
            next => next,
        };
        if first.payload() != next || !(begins || self.writers[kind].is_some()) {
            return Err(Error::Corruption {
                structure: "change file",
                expected: format!("terms of {:?} from {next} on", self.kind),
                found: format!("{}", first.payload()),
            });
        }
        self.next[kind] = next;
        if !begins {
            return Ok(());
        }
        self.end_partition(kind)?;
        let options = PartitionOptions {
            kind: self.kind,
            first_payload: next,
            threads: (self.shared.options.threads / 2).max(1),
        };
        let writer = PartitionWriter::start(self.scope, self.checkpoint, options)?;
        self.writers[kind] = Some(writer);
        Ok(())
    }

    fn term(&mut self, key: &[u8]) -> Result<()> {
        let kind = self.kind as usize;
        let writer = self.writers[kind].as_mut();
        writer
            .ok_or(Error::Internal("a term without a partition"))?
            .push(key)?;
        self.next[kind] += 1;
        self.terms_new += 1;
        Ok(())
    }

    fn graph(&mut self, graph: TermId, created: bool) -> Result<()> {
        self.graphs.push((graph, created));
        Ok(())
    }

    fn row(&mut self, [p, s, o, g]: Row, removed: bool) -> Result<()> {
        let quad = [s, p, o, g].map(TermId::from_bits);
        if !removed {
            let [s, p, o, g] = quad.map(BulkWriter::inline);
            return self.quads.quad(s, p, o, g);
        }
        self.is_removing = true;
        for (order, builder) in &mut self.removed {
            let key = Whole.pack(order.node_first(), quad);
            builder.push(key, |from, to| Whole.derive(*order, from, to))?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        self.shared.check_cancelled()
    }
}
