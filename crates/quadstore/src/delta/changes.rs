//! What somebody wants changed, and which of it has an effect.
//!
//! Whether a quad exists is looked up once, on the thread of whoever wants it changed, by batches and
//! against the snapshot that it reads ([`crate::Snapshot::probe`]). At commit only what was committed
//! since is looked at, in memory: terms that were new get their ids ([`Probed::resolve`]), then quads
//! that were committed meanwhile are noticed ([`Probed::recheck`]); what then differs from what is
//! wanted is effective ([`Probed::effective`]).
//!
//! Graphs are cleared by their names alone ([`GraphMask`]). What a clearing commit adds to a cleared graph is an
//! effective addition whether or not the quad was there; such quads are counted (`Cleared::kept`), so that the
//! numbers of a commit are those of the difference that it makes.

use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use std::sync::Arc;

use super::Delta;
use super::graphs::{GraphDelta, net_graphs};
use super::mask::GraphMask;
use super::terms::{Resolved, Terms};
use crate::error::{Error, Result};
use crate::read::{Columns, LookupRows, LookupSpec};
use crate::segment::Row;
use crate::snapshot::Snapshot;

/// Quads that are looked up together.
const PROBED_QUADS: usize = 8192;

/// Subject, predicate, object, graph.
type Quad = [TermId; 4];

/// Changes that somebody wants. Graphs are cleared first, then quads are removed: what is added is there in the end.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Graphs that are to lose all their quads.
    pub cleared: GraphMask,
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
    /// Graphs of which no quad is to be there but those that are to be added.
    pub(super) cleared: GraphMask,
    graphs: Vec<GraphDelta>,
    terms: Arc<Terms>,
}

/// Changes that have an effect on what they were probed against.
#[derive(Clone, Debug, Default)]
pub struct EffectiveChanges {
    /// In PSOG, ascending.
    added: Vec<Row>,
    removed: Vec<Row>,
    cleared: Cleared,
    graphs: Vec<GraphDelta>,
    terms: Arc<Terms>,
}

/// The graphs that a commit clears, before it removes and adds quads. None of the quads that it removes is in them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Cleared {
    pub(crate) graphs: GraphMask,
    /// The quads that were in them.
    pub(crate) quads: u64,
    /// How many of these the commit adds again.
    pub(crate) kept: u64,
    /// How many quads of the root are hidden that were not before.
    pub(crate) hidden: u64,
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
            cleared: changes.cleared.clone(),
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
        if !later.cleared.is_none() {
            // A cleared graph holds what was added after that alone; whoever adds it has a probe of its own in `later`.
            let later_rows = &later.probes;
            let is_later = |probe: &Probe| {
                let found = later_rows.binary_search_by_key(&probe.row, |other| other.row);
                found.is_ok()
            };
            self.probes
                .retain(|probe| !probe.is_in(&later.cleared) || is_later(probe));
            self.cleared = self.cleared.union(&later.cleared);
        }
        self.graphs = net_graphs(self.graphs.iter().chain(&later.graphs));
    }

    /// Whether nothing is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.probes.is_empty() && self.graphs.is_empty() && self.cleared.is_none()
    }

    /// How much is wanted.
    pub(crate) fn len(&self) -> usize {
        self.probes.len() + self.graphs.len() + self.cleared.listed().len()
    }

    /// What the list of it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let lists = size_of_val(self.probes.as_slice()) + size_of_val(self.graphs.as_slice());
        (lists + self.cleared.memory_bytes()) as u64
    }

    /// Puts other ids in the place of those that `id` knows, before [`Probed::recheck`].
    pub(crate) fn rewrite(&mut self, id: impl Fn(TermId) -> TermId) {
        self.cleared = self.cleared.renumbered(&id);
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
        if since.clears() {
            for probe in &mut self.probes {
                probe.exists &= !probe.is_in(&since.cleared.graphs);
            }
        }
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

    /// Whether graphs are to be cleared.
    pub(crate) fn clears(&self) -> bool {
        !self.cleared.is_none()
    }

    /// The changes that have an effect. Of graphs that are cleared that is not known yet: see
    /// [`Snapshot::count_cleared`].
    #[must_use]
    pub fn effective(&self) -> EffectiveChanges {
        let mut kept = 0;
        let mut is_effective = |probe: &Probe| {
            let is_cleared = probe.is_in(&self.cleared);
            kept += u64::from(is_cleared && !probe.removed && probe.exists);
            // In a cleared graph nothing is left to remove, and nothing is there before it is added.
            match is_cleared {
                true => !probe.removed,
                false => probe.exists == probe.removed,
            }
        };
        let mut rows = |removed: bool| {
            let wanted = |probe: &&Probe| probe.removed == removed && is_effective(probe);
            let rows = self.probes.iter().filter(wanted).map(|probe| probe.row);
            rows.collect::<Vec<Row>>()
        };
        let (added, removed) = (rows(false), rows(true));
        let graphs = [gains(&added, 1), gains(&removed, -1), self.graphs.clone()];
        EffectiveChanges {
            graphs: net_graphs(graphs.iter().flatten()),
            terms: Arc::clone(&self.terms),
            cleared: Cleared {
                graphs: self.cleared.clone(),
                kept,
                ..Cleared::default()
            },
            added,
            removed,
        }
    }
}

impl Probe {
    /// Whether the quad is in one of these graphs.
    fn is_in(&self, graphs: &GraphMask) -> bool {
        let [.., graph] = self.row;
        graphs.contains(TermId::from_bits(graph))
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
            cleared: Cleared::default(),
            added,
            removed,
        })
    }

    /// The same changes after graphs were cleared.
    #[must_use]
    pub(crate) fn after_clearing(mut self, cleared: Cleared) -> Self {
        self.cleared = cleared;
        self
    }

    /// Whether graphs are cleared.
    pub(crate) fn clears(&self) -> bool {
        !self.cleared.graphs.is_none()
    }

    /// The graphs that are cleared.
    pub(crate) fn clearing(&self) -> &Cleared {
        &self.cleared
    }

    /// The graphs that are cleared, and how many quads of the root are hidden thereby.
    pub(super) fn cleared(&self) -> (&GraphMask, u64) {
        (&self.cleared.graphs, self.cleared.hidden)
    }

    /// How many quads there are that were not there before.
    #[must_use]
    pub fn added_count(&self) -> u64 {
        (self.added.len() as u64).saturating_sub(self.cleared.kept)
    }

    /// How many quads were there and are not there any more.
    #[must_use]
    pub fn removed_count(&self) -> u64 {
        let cleared = self.cleared.quads.saturating_sub(self.cleared.kept);
        self.removed.len() as u64 + cleared
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

    /// Quads that were not there and are now; those of cleared graphs may have been there.
    pub fn added(&self) -> impl ExactSizeIterator<Item = Quad> + '_ {
        quads(&self.added)
    }

    /// Quads that were there and are not now, without those of cleared graphs.
    pub fn removed(&self) -> impl ExactSizeIterator<Item = Quad> + '_ {
        quads(&self.removed)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.clears() && !self.has_batch()
    }

    /// Whether there is anything besides graphs that are cleared.
    pub(super) fn has_batch(&self) -> bool {
        !(self.added.is_empty()
            && self.removed.is_empty()
            && self.graphs.is_empty()
            && self.terms.is_empty())
    }

    /// The new terms, under their final ids.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.terms = Arc::new(terms);
    }

    /// The ids of all rows and graphs, with repeats.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TermId> + '_ {
        let rows = self.added.iter().chain(&self.removed).flatten().copied();
        let graphs = self.graphs.iter().map(|change| change.graph);
        let cleared = self.cleared.graphs.listed().iter().copied();
        rows.chain(graphs).map(TermId::from_bits).chain(cleared)
    }

    /// Puts other ids in the place of those that `id` knows; their order must stay.
    pub(crate) fn renumber(&mut self, id: impl Fn(TermId) -> TermId) {
        self.cleared.graphs = self.cleared.graphs.renumbered(&id);
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
        self.clears()
            || !(self.added.is_empty() && self.removed.is_empty() && self.graphs.is_empty())
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
        let graphs = size_of_val(&*self.graphs) + self.cleared.graphs.memory_bytes();
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
        let mut effective = self.probe(changes)?.effective();
        self.count_cleared(&mut effective)?;
        let delta = self.delta_with(&effective)?;
        Ok((self.with_delta(delta, self.commit()), effective))
    }

    /// The delta with more changes, which are effective on top of this snapshot.
    pub(crate) fn delta_with(&self, changes: &EffectiveChanges) -> Result<Delta> {
        let budget = self.store().cache().budget();
        self.delta().with(changes, self.has_graph_first(), budget)
    }

    /// Counts what clearing graphs removes from this snapshot. Where that is nothing, no graph is cleared. Takes
    /// look-ups for the graphs that are named, and none for their quads.
    ///
    /// # Errors
    /// If the catalogue of graphs cannot be read.
    pub fn count_cleared(&self, changes: &mut EffectiveChanges) -> Result<()> {
        if !changes.clears() {
            return Ok(());
        }
        let graphs = std::mem::take(&mut changes.cleared.graphs);
        let quads = self.quads_of_all(&graphs)?;
        changes.cleared = match quads {
            0 => Cleared::default(),
            quads => Cleared {
                hidden: self.hidden_by(&graphs)?,
                quads,
                kept: changes.cleared.kept,
                graphs,
            },
        };
        Ok(())
    }

    /// Looks anew which of the quads are there that are added to graphs which are cleared.
    pub(crate) fn probe_kept(&self, probed: &mut Probed) -> Result<()> {
        let mut kept = Probed {
            probes: probed.probes.clone(),
            ..Probed::default()
        };
        kept.probes
            .retain(|probe| !probe.removed && probe.is_in(&probed.cleared));
        self.find_probed(&mut kept, &|| true)?;
        let mut found = kept.probes.iter().peekable();
        for probe in &mut probed.probes {
            if let Some(kept) = found.next_if(|kept| kept.row == probe.row) {
                probe.exists = kept.exists;
            }
        }
        Ok(())
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
