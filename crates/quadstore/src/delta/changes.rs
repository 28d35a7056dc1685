//! What somebody wants changed, and which of it has an effect.
//!
//! Whether a quad exists is looked up once, on the thread of whoever wants it changed, by batches and
//! against the snapshot that it reads ([`crate::Snapshot::probe`]). At commit only what was committed
//! since is looked at, in memory: terms that were new get their ids ([`Probed::resolve`]), then quads
//! that were committed meanwhile are noticed ([`Probed::recheck`]); what then differs from what is
//! wanted is effective ([`Probed::effective`]).

use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use std::sync::Arc;

use super::graphs::{GraphDelta, net_graphs};
use super::terms::{Resolved, Terms};
use crate::error::Result;
use crate::read::{Columns, LookupRows, LookupSpec};
use crate::segment::Row;
use crate::snapshot::Snapshot;

/// Quads that are looked up together.
const PROBED_QUADS: usize = 8192;

/// Subject, predicate, object, graph.
type Quad = [TermId; 4];

/// Changes that somebody wants. Removals come first: what is in both lists is there in the end.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Quads that are not to be there.
    pub removed: Vec<Quad>,
    /// Quads that are to be there.
    pub added: Vec<Quad>,
    /// What is wanted of graphs as such, in the order of time.
    pub graphs: Vec<GraphChange>,
}

/// What is wanted of a graph as such.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GraphChange {
    /// Its name.
    pub graph: TermId,
    /// Whether it is to exist even if it holds no quads. A graph that holds some exists anyway.
    pub created: bool,
}

/// A quad that somebody wants changed.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// In PSOG.
    row: Row,
    removed: bool,
    /// Whether the quad is there.
    exists: bool,
}

/// Changes, and for each whether its quad is there.
#[derive(Clone, Debug, Default)]
pub struct Probed {
    /// Ascending, each row once.
    probes: Vec<Probe>,
    graphs: Vec<GraphDelta>,
    terms: Arc<Terms>,
}

/// Changes that have an effect on what they were probed against.
#[derive(Clone, Debug, Default)]
pub struct EffectiveChanges {
    /// In PSOG, ascending.
    added: Vec<Row>,
    removed: Vec<Row>,
    graphs: Vec<GraphDelta>,
    terms: Arc<Terms>,
}

fn psog(quad: &Quad) -> Row {
    Permutation::Psog.permute(*quad).map(TermId::to_bits)
}

fn quads(rows: &[Row]) -> impl ExactSizeIterator<Item = Quad> + '_ {
    rows.iter().map(|row| {
        let [predicate, subject, object, graph] = row.map(TermId::from_bits);
        [subject, predicate, object, graph]
    })
}

impl Probed {
    fn new(changes: &Changes) -> Self {
        let probe = |quad: &Quad, removed| Probe {
            row: psog(quad),
            removed,
            exists: false,
        };
        let removed = changes.removed.iter().map(|quad| probe(quad, true));
        let added = changes.added.iter().map(|quad| probe(quad, false));
        let mut probes: Vec<Probe> = removed.chain(added).collect();
        sort(&mut probes);
        let graphs: Vec<GraphDelta> = changes
            .graphs
            .iter()
            .filter(|change| change.graph != TermId::DEFAULT_GRAPH)
            .map(|change| GraphDelta {
                created: Some(change.created),
                ..GraphDelta::none(change.graph.to_bits())
            })
            .collect();
        Self {
            probes,
            graphs: net_graphs(graphs.iter()),
            terms: Arc::default(),
        }
    }

    /// Puts the ids that new terms got in the place of private ones; before [`Probed::recheck`].
    ///
    /// # Errors
    /// If `resolved` was not made by [`crate::NewTerms::resolve`] on top of the current snapshot.
    pub fn resolve(&mut self, resolved: &Resolved) -> Result<()> {
        let id = |bits: u64| resolved.id(TermId::from_bits(bits)).to_bits();
        for probe in &mut self.probes {
            probe.row = probe.row.map(id);
        }
        // Two terms may have turned out to be one.
        sort(&mut self.probes);
        for change in &mut self.graphs {
            change.graph = id(change.graph);
        }
        self.graphs = net_graphs(self.graphs.iter());
        self.terms = Arc::new(resolved.terms()?);
        Ok(())
    }

    /// Takes notice of what was committed since the changes were probed; in the order of the commits.
    pub fn recheck(&mut self, since: &EffectiveChanges) {
        for (rows, exists) in [(&since.removed, false), (&since.added, true)] {
            let mut probes = self.probes.as_mut_slice();
            let mut rows = rows.as_slice();
            // Both ascend: whichever is behind jumps to the other.
            while let (Some(probe), Some(row)) = (probes.first_mut(), rows.first()) {
                if probe.row < *row {
                    let behind = probes.partition_point(|probe| probe.row < *row);
                    probes = probes.get_mut(behind..).unwrap_or_default();
                } else if *row < probe.row {
                    let behind = rows.partition_point(|row| *row < probe.row);
                    rows = rows.get(behind..).unwrap_or_default();
                } else {
                    probe.exists = exists;
                    probes = probes.get_mut(1..).unwrap_or_default();
                    rows = rows.get(1..).unwrap_or_default();
                }
            }
        }
    }

    /// The changes that have an effect.
    #[must_use]
    pub fn effective(&self) -> EffectiveChanges {
        let rows = |removed: bool| {
            let wanted = move |probe: &&Probe| probe.removed == removed && probe.exists == removed;
            self.probes.iter().filter(wanted).map(|probe| probe.row)
        };
        let (added, removed): (Vec<Row>, Vec<Row>) = (rows(false).collect(), rows(true).collect());
        let gained = |rows: &[Row], gained: i64| {
            let of = |row: &Row| {
                let [.., graph] = *row;
                GraphDelta {
                    gained,
                    ..GraphDelta::none(graph)
                }
            };
            rows.iter().map(of).collect::<Vec<_>>()
        };
        let graphs = [gained(&added, 1), gained(&removed, -1), self.graphs.clone()];
        EffectiveChanges {
            graphs: net_graphs(graphs.iter().flatten()),
            terms: Arc::clone(&self.terms),
            added,
            removed,
        }
    }
}

/// Puts probes in order; of one quad the addition stays.
fn sort(probes: &mut Vec<Probe>) {
    probes.sort_unstable_by_key(|probe| (probe.row, probe.removed));
    probes.dedup_by_key(|probe| probe.row);
}

impl EffectiveChanges {
    /// The changes that a commit was found to have, as it told them: quads added and removed, what was
    /// wanted of graphs, terms with their ids, and the first number that no blank node has after it
    /// (0 if it brought none). For recovery, which makes the same commits again in the same order.
    ///
    /// # Errors
    /// If the ids of the terms of a kind have gaps.
    pub fn of_commit(
        changes: &Changes,
        terms: Vec<(TermId, Vec<u8>)>,
        next_blank_node: u64,
    ) -> Result<Self> {
        let mut probed = Probed::new(changes);
        for probe in &mut probed.probes {
            probe.exists = probe.removed;
        }
        probed.terms = Arc::new(Terms::of_ids(terms, next_blank_node)?);
        Ok(probed.effective())
    }

    /// What was wanted of graphs as such.
    pub fn graphs(&self) -> impl Iterator<Item = GraphChange> + '_ {
        self.graphs.iter().filter_map(|change| {
            Some(GraphChange {
                graph: TermId::from_bits(change.graph),
                created: change.created?,
            })
        })
    }

    /// Kind, key (`stoa_terms::key`; of a triple term the ids of its parts) and id of each new term.
    pub fn terms(&self) -> impl Iterator<Item = (Kind, &[u8], TermId)> {
        self.terms.iter()
    }

    /// The first number that no blank node has after the commit; 0 if it brought none.
    #[must_use]
    pub fn next_blank_node(&self) -> u64 {
        self.terms.next_blank_node
    }

    /// Quads that were not there and are now.
    pub fn added(&self) -> impl ExactSizeIterator<Item = Quad> + '_ {
        quads(&self.added)
    }

    /// Quads that were there and are not now.
    pub fn removed(&self) -> impl ExactSizeIterator<Item = Quad> + '_ {
        quads(&self.removed)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.removed.is_empty()
            && self.graphs.is_empty()
            && self.terms.is_empty()
    }

    pub(super) fn added_rows(&self) -> &[Row] {
        &self.added
    }

    pub(super) fn removed_rows(&self) -> &[Row] {
        &self.removed
    }

    pub(super) fn new_terms(&self) -> Arc<Terms> {
        Arc::clone(&self.terms)
    }

    /// What graphs gain and what is wanted of them, ascending.
    pub(super) fn graph_deltas(&self) -> Vec<GraphDelta> {
        self.graphs.clone()
    }
}

impl Snapshot {
    /// The snapshot with changes that are in no commit, and those of them that have an effect: what a
    /// transaction reads that has written.
    ///
    /// # Errors
    /// If the trees cannot be read, or the memory budget does not allow for the changes.
    pub fn changed(&self, changes: &Changes) -> Result<(Self, EffectiveChanges)> {
        let effective = self.probe(changes)?.effective();
        let budget = self.store().cache().budget();
        let delta = self
            .delta()
            .with(&effective, self.has_graph_first(), budget)?;
        Ok((self.with_delta(delta, self.commit()), effective))
    }

    /// Looks up, by batches, which of the quads that are to change are there.
    ///
    /// # Errors
    /// If the trees cannot be read.
    pub fn probe(&self, changes: &Changes) -> Result<Probed> {
        let mut probed = Probed::new(changes);
        let mut lookup = self.lookup(&LookupSpec {
            permutation: Permutation::Psog,
            key_length: 4,
            graphs: GraphSet::All,
            columns: Columns::NONE,
            with_graph: true,
        })?;
        let mut found = LookupRows::default();
        for probes in probed.probes.chunks_mut(PROBED_QUADS) {
            let column = |place: usize| -> Vec<TermId> {
                let value = |probe: &Probe| probe.row.get(place).copied().unwrap_or_default();
                let values = probes.iter().map(value);
                values.map(TermId::from_bits).collect()
            };
            let keys = [column(0), column(1), column(2), column(3)];
            lookup.start(&keys.each_ref().map(Vec::as_slice))?;
            while lookup.next(PROBED_QUADS, &mut found)? {
                for index in &found.key_index {
                    if let Some(probe) = probes.get_mut(*index as usize) {
                        probe.exists = true;
                    }
                }
            }
        }
        Ok(probed)
    }
}
