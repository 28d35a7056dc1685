//! `info`: what a store holds and how many bytes each part takes.

use stoa_storage::{Durability, Log, Store, Structure, StructureCounts};
use stoa_terms::{IdRange, Kind, Permutation};

use crate::dictionary;
use crate::error::Result;
use crate::history::Retention;
use crate::permutation::Tree;
use crate::permutation::node::Node;
use crate::permutation::tree::child_node;
use crate::quad_store::QuadStore;
use crate::root::{Scheme, TreeName};
use crate::snapshot::Snapshot;

/// What a store holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Info {
    /// Quads in all graphs.
    pub quads: u64,
    /// Which sort orders are kept.
    pub scheme: Scheme,
    /// The number of the last commit.
    pub commit: u64,
    /// The version of the format.
    pub format: u32,
    /// Graphs that hold quads or were created empty.
    pub graphs: u64,
    /// What is in no tree and no dictionary yet.
    pub delta: DeltaInfo,
    /// The permutations, the graph-subject pairs and the graph catalogue.
    pub trees: Vec<TreeInfo>,
    /// The parts of the dictionary: name, terms, bytes.
    pub dictionary: Vec<(String, u64, u64)>,
    /// For each kind of term in it: name, runs, and how many of these are permuted.
    pub dictionary_runs: Vec<(&'static str, usize, usize)>,
    /// Quads by the kind of their object, indexed by the kind's number.
    pub object_kinds: [u64; 16],
    /// The characteristic sets, if there are any.
    pub sets: Option<SetsInfo>,
    /// Bytes of the data files, free space included.
    pub data_bytes: u64,
    /// Bytes of the data files that are free for reuse.
    pub free_bytes: u64,
    /// The log, and what is kept for readers.
    pub log: LogInfo,
}

/// The write-ahead log, and what is kept for readers of earlier commits.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LogInfo {
    /// Bytes of records behind the last checkpoint: what the next opening reads.
    pub behind_bytes: u64,
    /// The commit that the last checkpoint holds.
    pub checkpoint_commit: u64,
    /// Bytes of the log's files.
    pub file_bytes: u64,
    /// Whether commits are acknowledged before they are on the device.
    pub is_relaxed: bool,
    /// The oldest commit that somebody reads.
    pub oldest_snapshot: u64,
    /// Bytes of data files that only readers of earlier checkpoints use.
    pub held_back_bytes: u64,
    /// Which earlier commits are kept.
    pub retention: Retention,
    /// The oldest commit that can be read.
    pub oldest_commit: u64,
    /// Bytes of data files that only retained checkpoints use.
    pub retained_bytes: u64,
    /// Why nothing is written any more, if so.
    pub failure: Option<String>,
    /// Why the last checkpoint in the background failed, if it did.
    pub checkpoint_failure: Option<String>,
    /// How far the archive is behind, if there is one.
    pub archive: Option<ArchiveInfo>,
}

/// What the archive of a log holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ArchiveInfo {
    /// The last commit in the archive; `None` if nothing was copied since the store was opened.
    pub commit: Option<u64>,
    /// Commits that the archive does not hold.
    pub behind_commits: u64,
    /// Bytes of the log that it does not hold.
    pub behind_bytes: u64,
    /// Seconds since it held everything; 0 if it does.
    pub behind_seconds: u64,
    /// The last commit over which the archive does not lead, as far as that is known: a bulk load or a
    /// compaction without a change file. A backup that holds the commit bridges the gap.
    pub gap: Option<u64>,
    /// Why the last copy failed; what was not copied is kept.
    pub failure: Option<String>,
}

/// What was committed since the last checkpoint, as it is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeltaInfo {
    /// Quads added; some may be removed again by a later batch.
    pub added: u64,
    /// Quads removed; some may be added again by a later batch.
    pub removed: u64,
    /// Quads of the last checkpoint that are hidden because their graphs were cleared; the next one removes them.
    pub hidden: u64,
    /// Terms that the dictionary on disk does not have.
    pub terms: u64,
    /// Pieces that all of it is kept in.
    pub batches: usize,
    /// Bytes of memory.
    pub bytes: u64,
}

/// What is kept of characteristic sets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SetsInfo {
    /// How many sets, and whether every subject has one of them; `None` if they cannot be read, or not now.
    pub sets: Option<(u64, bool)>,
    /// Bytes on disk, without padding.
    pub bytes: u64,
}

/// One tree of segments.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TreeInfo {
    /// `PSOG`, `GS`, `graphs`.
    pub name: &'static str,
    /// Rows.
    pub rows: u64,
    /// Leaves.
    pub segments: u64,
    /// Inner nodes.
    pub nodes: u64,
    /// Bytes on disk, padding included.
    pub bytes: u64,
}

/// The trees of the root of a snapshot.
pub(crate) fn trees(snapshot: &Snapshot) -> Vec<(TreeName, &Tree)> {
    let all = TreeName::ALL.into_iter();
    all.zip(&snapshot.0.base.trees)
        .filter(|(name, _)| snapshot.0.base.payload.has(*name))
        .map(|(name, tree)| (name, &**tree))
        .collect()
}

impl Snapshot {
    /// What the snapshot holds and how many bytes each part takes; reads inner nodes only and, under a
    /// delta, the catalogue of graphs.
    pub fn info(&self) -> Result<Info> {
        let mut object_kinds = [0; 16];
        for (quads, kind) in object_kinds.iter_mut().zip(Kind::ALL) {
            let range = IdRange::of_kind(kind);
            *quads = self.count_all(Permutation::Opsg, range)?;
        }
        let mut infos = Vec::new();
        for (name, tree) in trees(self) {
            let mut info = TreeInfo {
                name: name.name(),
                rows: tree.rows(),
                ..TreeInfo::default()
            };
            measure(self.store(), &tree.above, &mut info)?;
            infos.push(info);
        }
        Ok(Info {
            scheme: self.scheme(),
            quads: self.quads(),
            commit: self.commit(),
            format: stoa_storage::format::FORMAT_VERSION,
            graphs: match self.delta().is_empty() {
                true => self.tree(TreeName::Graphs).rows(),
                false => self.graphs()?.len() as u64,
            },
            delta: self.delta().info(),
            trees: infos,
            dictionary: self.dictionary().info(),
            dictionary_runs: self.dictionary().runs(),
            object_kinds,
            sets: self.sets_info()?,
            data_bytes: self.store().data_bytes(),
            free_bytes: self.store().free_bytes(),
            log: LogInfo::default(),
        })
    }
}

impl Snapshot {
    fn sets_info(&self) -> Result<Option<SetsInfo>> {
        let Some(part) = self.0.base.payload.sets else {
            return Ok(None);
        };
        let sets = self.characteristic_sets()?;
        Ok(Some(SetsInfo {
            sets: sets.map(|sets| (sets.len() as u64, sets.is_all())),
            bytes: part.length.into(),
        }))
    }
}

impl QuadStore {
    /// What was looked up and read since the store was opened, in the trees that are kept, the `dictionary` and `other`:
    /// that is what checkpoints, loads and checks read to go through all of it.
    #[must_use]
    pub fn structures(&self) -> Vec<(&'static str, StructureCounts)> {
        let all = self.store().structures();
        let counts = |structure: Structure| {
            let found = all.get(usize::from(structure.number()));
            found.copied().unwrap_or_default()
        };
        let snapshot = self.0.published();
        let trees = trees(&snapshot).into_iter();
        let mut named: Vec<_> = trees
            .map(|(name, _)| (name.name(), counts(name.structure())))
            .collect();
        named.push(("dictionary", counts(dictionary::STRUCTURE)));
        named.push(("other", counts(Structure::OTHER)));
        named
    }

    /// The log, and what is kept for readers.
    #[must_use]
    pub fn log_info(&self) -> LogInfo {
        let inner = &*self.0;
        let (published, mark) = (inner.published(), inner.mark());
        let root = &published.0.base.root;
        let log = inner.log().ok();
        let failure = log.and_then(Log::failure);
        LogInfo {
            behind_bytes: mark
                .position
                .to_u64()
                .saturating_sub(root.log.position.to_u64()),
            checkpoint_commit: root.commit,
            file_bytes: log.map_or(inner.found_bytes, Log::file_bytes),
            is_relaxed: log.is_some_and(|log| log.durability() == Durability::Relaxed),
            oldest_snapshot: published.oldest_held(),
            held_back_bytes: self.store().held_back_bytes(),
            retention: self.retention(),
            oldest_commit: self.oldest_commit(),
            retained_bytes: self.store().retained_bytes(),
            failure: failure.or_else(|| self.store().failure()),
            checkpoint_failure: self.checkpoint_failure(),
            archive: log.and_then(|log| self.archive_info(log)),
        }
    }

    fn archive_info(&self, log: &Log) -> Option<ArchiveInfo> {
        let failure = log.has_archive().then(|| log.archive_failure())?;
        let (archived, end) = (log.archived(), log.end().position.to_u64());
        let (newest, known) = (self.0.newest().commit(), archived.unwrap_or_default());
        let behind_bytes = end.saturating_sub(known.position.to_u64());
        let since_us = match archived {
            Some(archived) if behind_bytes > 0 => self.0.now().saturating_sub(archived.time_us),
            _ => 0,
        };
        Some(ArchiveInfo {
            commit: archived.map(|archived| archived.commit),
            behind_commits: newest.saturating_sub(known.commit),
            behind_bytes,
            behind_seconds: since_us / 1_000_000,
            gap: self.0.gap(),
            failure,
        })
    }
}

fn measure(store: &Store, node: &Node, info: &mut TreeInfo) -> Result<()> {
    for (index, child) in node.children.iter().enumerate() {
        info.bytes += u64::from(child.extent_bytes).next_multiple_of(4096);
        if node.level == 1 {
            info.segments += 1;
        } else {
            info.nodes += 1;
            measure(store, &*child_node(store, node, index)?, info)?;
        }
    }
    Ok(())
}
