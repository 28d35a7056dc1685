//! What a dataset holds, counted: quads by graph, by predicate, by class.
//!
//! Predicates and classes are found by skipping from one to the next in PSOG and POSG, and counted by
//! two descents each, so the work grows with their number, not with the quads.
//!
//! # References
//! Describing Linked Datasets with the VoID Vocabulary, W3C Interest Group Note.

use oxrdf::vocab::rdf;
use oxrdf::{NamedNode, Term};
use stoa_quadstore::{Columns, QuadColumns, ScanSpec, Snapshot};
use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

use crate::error::{Error, Result};
use crate::limits::{PARTITIONS_COUNTED_MAX, PARTITIONS_LISTED_MAX};
use crate::query::CancelHandle;

/// Counts of a dataset. Quads in several graphs count in each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DatasetStatistics {
    /// The commit that was counted.
    pub commit: u64,
    /// Quads in all graphs.
    pub quads: u64,
    /// Triples of the default graph.
    pub default_graph: u64,
    /// Triples of the named graphs.
    pub graphs: Partitions,
    /// Quads of each predicate.
    pub predicates: Partitions,
    /// Quads that say that something is of a class, for each class.
    pub classes: Partitions,
}

/// Parts of a dataset by an IRI, the largest first.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Partitions {
    /// How many parts there are; `None` if there were too many to count.
    pub total: Option<u64>,
    /// The largest parts: all, or [`crate::limits::PARTITIONS_LISTED_MAX`]. Empty if there were too
    /// many to count.
    pub largest: Vec<(NamedNode, u64)>,
}

impl DatasetStatistics {
    pub(crate) fn of(snapshot: &Snapshot, cancel: &CancelHandle) -> Result<Self> {
        let graphs = snapshot
            .graphs()?
            .into_iter()
            .filter(|entry| entry.graph != TermId::DEFAULT_GRAPH)
            .map(|entry| (entry.graph, entry.quads))
            .collect();
        let type_id = snapshot.term_id(rdf::TYPE.into())?;
        Ok(Self {
            commit: snapshot.commit(),
            quads: snapshot.quads(),
            default_graph: snapshot.graph_quads(TermId::DEFAULT_GRAPH)?,
            graphs: Partitions::of(snapshot, Some(graphs))?,
            predicates: counted(snapshot, Permutation::Psog, None, cancel)?,
            classes: match type_id {
                Some(id) => counted(snapshot, Permutation::Posg, Some(id), cancel)?,
                None => Partitions::of(snapshot, Some(Vec::new()))?,
            },
        })
    }
}

/// The distinct values behind a prefix of a permutation, with their numbers of quads.
fn counted(
    snapshot: &Snapshot,
    permutation: Permutation,
    prefix: Option<TermId>,
    cancel: &CancelHandle,
) -> Result<Partitions> {
    let mut parts = Vec::new();
    let mut next = Some(TermId::MIN);
    let mut key: Vec<TermId> = prefix.into_iter().collect();
    let depth = key.len();
    let mut row = QuadColumns::default();
    while let Some(first) = next {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if parts.len() >= PARTITIONS_COUNTED_MAX {
            return Partitions::of(snapshot, None);
        }
        let mut scan = snapshot.scan(&ScanSpec {
            permutation,
            prefix: key.clone(),
            ranges: vec![IdRange {
                first,
                last: TermId::MAX,
            }],
            graphs: GraphSet::All,
            columns: Columns::of(&[depth]),
            with_graph: true,
        })?;
        row.clear();
        if !scan.next(1, &mut row)? {
            break;
        }
        let found = row.columns.get(depth).and_then(|column| column.first());
        let Some(&id) = found else { break };
        key.push(id);
        let quads = snapshot.count(permutation, &key, &[], &GraphSet::All)?.rows;
        key.truncate(depth);
        parts.push((id, quads));
        next = id.to_bits().checked_add(1).map(TermId::from_bits);
    }
    Partitions::of(snapshot, Some(parts))
}

impl Partitions {
    /// Sorts by size and names what is listed; literals and blank nodes count but are not listed.
    fn of(snapshot: &Snapshot, parts: Option<Vec<(TermId, u64)>>) -> Result<Self> {
        let Some(mut parts) = parts else {
            return Ok(Self::default());
        };
        parts.sort_unstable_by_key(|&(id, quads)| (std::cmp::Reverse(quads), id));
        let mut listed = Self {
            total: u64::try_from(parts.len()).ok(),
            largest: Vec::new(),
        };
        for (id, quads) in parts.into_iter().take(PARTITIONS_LISTED_MAX) {
            if let Term::NamedNode(name) = snapshot.term(id)? {
                listed.largest.push((name, quads));
            }
        }
        Ok(listed)
    }
}
