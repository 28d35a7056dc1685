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
use crate::error::{Error, Result};
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
        self.rewrite(|id| resolved.id(id));
        self.terms = Arc::new(resolved.terms()?);
        Ok(())
    }

    /// These changes and then those of a later operation, which was probed against a snapshot that
    /// shows these: of one quad, or graph, the later wish counts, and whether it was there before both.
    pub(crate) fn then(&mut self, later: &Self) {
        let mut earlier = std::mem::take(&mut self.probes).into_iter().peekable();
        let mut both = Vec::with_capacity(earlier.len() + later.probes.len());
        for probe in &later.probes {
            while let Some(before) = earlier.next_if(|before| before.row < probe.row) {
                both.push(before);
            }
            let before = earlier.next_if(|before| before.row == probe.row);
            both.push(Probe {
                exists: before.map_or(probe.exists, |before| before.exists),
                ..*probe
            });
        }
        both.extend(earlier);
        self.probes = both;
        self.graphs = net_graphs(self.graphs.iter().chain(&later.graphs));
    }

    /// Whether nothing is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.probes.is_empty() && self.graphs.is_empty()
    }

    /// How much is wanted.
    pub(crate) fn len(&self) -> usize {
        self.probes.len() + self.graphs.len()
    }

    /// What the list of it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let lists = size_of_val(self.probes.as_slice()) + size_of_val(self.graphs.as_slice());
        lists as u64
    }

    /// Puts other ids in the place of those that `id` knows, before [`Probed::recheck`].
    pub(crate) fn rewrite(&mut self, id: impl Fn(TermId) -> TermId) {
        let id = |bits: u64| id(TermId::from_bits(bits)).to_bits();
        for probe in &mut self.probes {
            probe.row = probe.row.map(id);
        }
        // Two terms may have turned out to be one.
        sort(&mut self.probes);
        for change in &mut self.graphs {
            change.graph = id(change.graph);
        }
        self.graphs = net_graphs(self.graphs.iter());
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
        let graphs = [gains(&added, 1), gains(&removed, -1), self.graphs.clone()];
        EffectiveChanges {
            graphs: net_graphs(graphs.iter().flatten()),
            terms: Arc::clone(&self.terms),
            added,
            removed,
        }
    }
}

/// What graphs gain by rows that are added (`sign` 1), or removed (-1).
fn gains(rows: &[Row], sign: i64) -> Vec<GraphDelta> {
    let mut gains: Vec<GraphDelta> = Vec::new();
    for [.., graph] in rows {
        match gains.last_mut().filter(|last| last.graph == *graph) {
            Some(last) => last.gained += sign,
            None => gains.push(GraphDelta {
                gained: sign,
                ..GraphDelta::none(*graph)
            }),
        }
    }
    gains
}

/// What becomes of graphs by rows that are added and removed, and by what is wanted of them.
fn graph_deltas(added: &[Row], removed: &[Row], wanted: &[GraphChange]) -> Vec<GraphDelta> {
    let wanted = wanted.iter().map(|change| GraphDelta {
        created: Some(change.created),
        ..GraphDelta::none(change.graph.to_bits())
    });
    let deltas = [gains(added, 1), gains(removed, -1), wanted.collect()];
    net_graphs(deltas.iter().flatten())
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

    /// As [`EffectiveChanges::of_commit`], of rows in PSOG that ascend; `None` if they do not, or ids of
    /// terms have gaps.
    pub(crate) fn of_rows(
        added: Vec<Row>,
        removed: Vec<Row>,
        wanted: &[GraphChange],
        terms: Vec<(TermId, Vec<u8>)>,
        next_blank_node: u64,
    ) -> Option<Self> {
        let ascend = |rows: &[Row]| rows.is_sorted_by(|one, next| one < next);
        if !ascend(&added) || !ascend(&removed) {
            return None;
        }
        Some(Self {
            graphs: graph_deltas(&added, &removed, wanted),
            terms: Arc::new(Terms::of_ids(terms, next_blank_node).ok()?),
            added,
            removed,
        })
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

    /// The new terms, under their final ids.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.terms = Arc::new(terms);
    }

    /// The ids of all rows and graphs, with repeats.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TermId> + '_ {
        let rows = self.added.iter().chain(&self.removed).flatten().copied();
        let graphs = self.graphs.iter().map(|change| change.graph);
        rows.chain(graphs).map(TermId::from_bits)
    }

    /// Puts other ids in the place of those that `id` knows; their order must stay.
    pub(crate) fn renumber(&mut self, id: impl Fn(TermId) -> TermId) {
        let id = |bits: u64| id(TermId::from_bits(bits)).to_bits();
        for row in self.added.iter_mut().chain(&mut self.removed) {
            *row = row.map(id);
        }
        for change in &mut self.graphs {
            change.graph = id(change.graph);
        }
        debug_assert!(self.added.is_sorted() && self.removed.is_sorted());
    }

    /// Leaves out what is wanted of graphs as such where it is so already: where `is_created` tells
    /// whether a graph exists even if it is empty.
    pub(crate) fn leave_out_met(
        &mut self,
        mut is_created: impl FnMut(TermId) -> Result<bool>,
    ) -> Result<()> {
        let wanted: Vec<GraphChange> = self.graphs().collect();
        let mut unmet = Vec::new();
        for change in &wanted {
            if is_created(change.graph)? != change.created {
                unmet.push(*change);
            }
        }
        if unmet.len() < wanted.len() {
            self.graphs = graph_deltas(&self.added, &self.removed, &unmet);
        }
        Ok(())
    }

    /// Whether anything but new terms comes with them.
    pub(crate) fn has_effect(&self) -> bool {
        !(self.added.is_empty() && self.removed.is_empty() && self.graphs.is_empty())
    }

    /// In PSOG, ascending.
    pub(crate) fn added_rows(&self) -> &[Row] {
        &self.added
    }

    /// In PSOG, ascending.
    pub(crate) fn removed_rows(&self) -> &[Row] {
        &self.removed
    }

    /// What all of it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let rows = size_of_val(&*self.added) + size_of_val(&*self.removed);
        let graphs = size_of_val(&*self.graphs);
        (rows + graphs + self.terms.memory_bytes() + size_of::<Self>()) as u64
    }

    pub(super) fn new_terms(&self) -> Arc<Terms> {
        Arc::clone(&self.terms)
    }

    /// What graphs gain and what is wanted of them, ascending.
    pub(crate) fn graph_deltas(&self) -> Vec<GraphDelta> {
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
        self.probe_while(changes, &|| true)
    }

    /// As [`Self::probe`], as long as `go_on` says so; [`Error::Cancelled`] if it does not.
    pub(crate) fn probe_while(
        &self,
        changes: &Changes,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Probed> {
        let mut probed = Probed::new(changes);
        self.find_probed(&mut probed, go_on)?;
        Ok(probed)
    }

    /// Looks anew which of the quads are there.
    pub(crate) fn probe_again(&self, probed: &mut Probed) -> Result<()> {
        self.find_probed(probed, &|| true)
    }

    fn find_probed(&self, probed: &mut Probed, go_on: &dyn Fn() -> bool) -> Result<()> {
        let mut lookup = self.lookup(&LookupSpec {
            permutation: Permutation::Psog,
            key_length: 4,
            graphs: GraphSet::All,
            columns: Columns::NONE,
            with_graph: true,
            is_counted: false,
        })?;
        let mut found = LookupRows::default();
        for probes in probed.probes.chunks_mut(PROBED_QUADS) {
            if !go_on() {
                return Err(Error::Cancelled);
            }
            probes.iter_mut().for_each(|probe| probe.exists = false);
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
        Ok(())
    }
}
