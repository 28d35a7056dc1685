//! Which tree, or which two, the rows of a scan or look-up are read from.
//!
//! A caller names the order that it wants, and gets it in every scheme:
//!
//! | wanted                                     | read                                              |
//! |--------------------------------------------|---------------------------------------------------|
//! | a permutation that is kept                 | it                                                |
//! | one graph of many, GPSO and GPOS are kept  | these; for a node, under each predicate of the graph |
//! | one small graph, they are not kept         | the graph's subjects, one after the other         |
//! | SPOG, OPSG in the lean scheme              | PSOG, POSG, through the pairs SP, OP              |

use std::sync::{Arc, PoisonError};

use oxrdf::{NamedNode, Term};
use stoa_terms::{GraphSet, IdRange, Permutation, Position, TermId};

use super::composed::{Composed, HELD_ROWS, Kept, Places, Source};
use super::seek_scan::in_tree;
use super::{Snapshot, Visible};
use crate::error::{Error, Result};
use crate::permutation::{Intervals, RowFilter, RowReader};
use crate::read::{Columns, LookupCounts, LookupRows, LookupSpec, QuadColumns, ScanSpec};
use crate::root::TreeName;
use crate::segment::Row;

/// A graph is read through its subjects if it has this many times fewer of them than there are rows
/// to filter: a look-up costs about as much as filtering so many rows.
const ROWS_A_SUBJECT: u64 = 128;
/// A graph with more subjects is not read through them; their list takes 32 bytes each.
const SUBJECTS_LISTED: u64 = 1 << 18;
/// All of a node in one graph is looked up under each predicate of the graph if it has at most so
/// many: a look-up that finds nothing reads no row, and takes about a microsecond.
const GRAPH_PREDICATES_MAX: usize = 1024;
/// All of many nodes in one graph is looked up so if the graph has at most so many predicates.
const PREDICATES_OF_MANY_MAX: usize = 64;

/// The predicates of so many graphs are remembered: at most 8 KB each.
const GRAPHS_KNOWN_MAX: usize = 1024;

/// How the rows of a scan are read; trees by their names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// As they stand in this tree.
    Stored(&'static str),
    /// Put together from these trees, a batch at a time.
    Composed(&'static str),
    /// From this tree, leaving out rows of other graphs.
    Filtered(&'static str),
}

/// Rows in the wanted order.
pub(super) enum Way {
    /// They stand in one tree so.
    Tree(Box<RowReader>, Places),
    /// They are put together.
    Composed(Box<Composed>),
}

impl Way {
    /// Fills `out`, which is empty, and `index`, with at most `max_rows` rows; `false` at the end.
    pub(super) fn next(
        &mut self,
        max_rows: usize,
        out: &mut QuadColumns,
        index: Option<&mut Vec<u32>>,
    ) -> Result<bool> {
        match self {
            Self::Tree(reader, places) => {
                let more = reader.next(max_rows, out, index)?;
                places.arrange(out);
                Ok(more)
            }
            Self::Composed(composed) => composed.next(max_rows, out, index),
        }
    }

    /// Fills `out`, which is empty, with at most `counts_max` numbers of rows; `false` at the end.
    fn next_counts(&mut self, counts_max: usize, out: &mut LookupCounts) -> Result<bool> {
        match self {
            Self::Tree(reader, _) => reader.next_counts(counts_max, out),
            Self::Composed(composed) => {
                let (mut rows, mut index) = (QuadColumns::default(), Vec::new());
                let more = composed.next(counts_max, &mut rows, Some(&mut index))?;
                out.add_rows(&index);
                Ok(more)
            }
        }
    }
}

/// The permutation that begins with the graph and has the order of `wanted` behind it, if the first
/// `fixed` places of `wanted` are.
pub(super) const fn graph_first(wanted: Permutation, fixed: usize) -> Option<Permutation> {
    match wanted {
        Permutation::Psog => Some(Permutation::Gpso),
        Permutation::Posg => Some(Permutation::Gpos),
        Permutation::Spog if fixed >= 2 => Some(Permutation::Gpso),
        Permutation::Opsg if fixed >= 2 => Some(Permutation::Gpos),
        _ => None,
    }
}

/// The permutation with predicate and node exchanged.
pub(super) const fn predicate_first(wanted: Permutation) -> Permutation {
    match wanted {
        Permutation::Spog => Permutation::Psog,
        Permutation::Opsg => Permutation::Posg,
        other => other,
    }
}

/// The pairs of the node that a permutation begins with, and its predicates.
pub(super) const fn pairs(wanted: Permutation) -> TreeName {
    match wanted {
        Permutation::Opsg | Permutation::Posg => TreeName::Op,
        _ => TreeName::Sp,
    }
}

/// The first places of a wanted row as those of a stored one.
fn moved(places: Places, wanted: &Row, fixed: usize) -> Row {
    let mut row = [0; 4];
    for (place, value) in wanted.iter().enumerate().take(fixed) {
        if let Some(slot) = row.get_mut(places.stored(place)) {
            *slot = *value;
        }
    }
    row
}

/// The one graph that a filter lets pass, if it is one.
pub(super) fn only_graph(filter: &RowFilter) -> Option<TermId> {
    match filter.graphs {
        Some(GraphSet::Default) => Some(TermId::DEFAULT_GRAPH),
        Some(GraphSet::One(graph)) => Some(graph),
        _ => None,
    }
}

impl Snapshot {
    /// The rows of a scan of which `filter` is what the graph set leaves.
    pub(super) fn way(&self, spec: &ScanSpec, filter: RowFilter) -> Result<Way> {
        if let Permutation::Gpso | Permutation::Gpos = spec.permutation {
            return self.whole_graph(spec, &filter);
        }
        if let Some(graph) = only_graph(&filter) {
            let way = match self.0.base.payload.graph_first {
                true => self.under_graph(spec, graph)?,
                false => self.through_subjects(spec, graph)?,
            };
            if let Some(way) = way {
                return Ok(way);
            }
        }
        let stored = self.stored(spec.permutation);
        let places = Places::between(spec.permutation, stored);
        if places.is_identity() || spec.prefix.len() >= 2 {
            let prefix = stored_prefix(places, &[], &spec.prefix);
            let intervals = Intervals::new(&prefix, &spec.ranges)?;
            let columns = places.columns(spec.columns);
            let reader = self.reader(stored, columns, filter, intervals);
            return Ok(Way::Tree(Box::new(reader), places));
        }
        let of_pairs = Intervals::new(&spec.prefix, &spec.ranges)?;
        Ok(self.through_pairs(spec, filter, of_pairs))
    }

    /// How a scan of `wanted` behind `prefix` is read, without starting it.
    ///
    /// # Errors
    /// If the trees cannot be read.
    pub fn reading(
        &self,
        wanted: Permutation,
        prefix: &[TermId],
        graphs: &GraphSet,
    ) -> Result<Reading> {
        let fixed = prefix.len();
        let stored = self.stored(wanted);
        let filter = match self.visible(graphs, false)? {
            Visible::Nothing => return Ok(Reading::Stored(stored.name())),
            Visible::Rows(filter) => filter,
        };
        if let Some(graph) = only_graph(&filter) {
            if !self.0.base.payload.graph_first {
                let (rows, _) = self.rows_of(wanted, prefix, &[])?;
                let is_subject_fixed = wanted
                    .order()
                    .iter()
                    .take(fixed)
                    .any(|p| *p == Position::Subject);
                if !is_subject_fixed && self.has_few_subjects(graph, rows)? {
                    return Ok(Reading::Composed("the graph's subjects"));
                }
            } else if let Some(first) = graph_first(wanted, fixed) {
                return Ok(Reading::Stored(first.name()));
            } else if (fixed == 1 || (wanted == Permutation::Spog && fixed == 0))
                && let Some(predicates) = self.graph_predicates(graph)?
                && (fixed == 1 || predicates.len() <= PREDICATES_OF_MANY_MAX)
            {
                return Ok(Reading::Composed(match wanted {
                    Permutation::Opsg => "GPOS by predicates",
                    _ => "GPSO by predicates",
                }));
            }
        }
        if stored != wanted && fixed < 2 {
            return Ok(Reading::Composed(match wanted {
                Permutation::Opsg => "OP and POSG",
                _ => "SP and PSOG",
            }));
        }
        Ok(match filter.graphs {
            None => Reading::Stored(stored.name()),
            Some(_) => Reading::Filtered(stored.name()),
        })
    }

    /// A scan of a permutation that begins with the graph.
    fn whole_graph(&self, spec: &ScanSpec, filter: &RowFilter) -> Result<Way> {
        if !self.0.base.payload.has(spec.permutation.into()) {
            return Err(Error::Internal("a permutation that is not kept"));
        }
        if filter.merge_graphs && !spec.with_graph {
            return Err(Error::Internal(
                "triples cannot be merged where the graph stands first",
            ));
        }
        let mut intervals = Intervals::new(&spec.prefix, &spec.ranges)?;
        match (&filter.graphs, spec.prefix.first()) {
            (None, _) => (),
            (Some(graphs), Some(graph)) => {
                if !graphs.contains(*graph) {
                    intervals.lows.clear();
                }
            }
            (Some(_), None) => {
                return Err(Error::Internal(
                    "a set of graphs where the graph stands first",
                ));
            }
        }
        let places = Places::between(spec.permutation, spec.permutation);
        let reader = self.reader(spec.permutation, spec.columns, RowFilter::ALL, intervals);
        Ok(Way::Tree(Box::new(reader), places))
    }

    /// Rows of one graph by the permutations that begin with it.
    fn under_graph(&self, spec: &ScanSpec, graph: TermId) -> Result<Option<Way>> {
        let (wanted, fixed) = (spec.permutation, spec.prefix.len());
        if fixed > 3 || fixed == 3 && !spec.ranges.is_empty() {
            return Ok(None);
        }
        if let Some(stored) = graph_first(wanted, fixed) {
            let places = Places::between(wanted, stored);
            let prefix = stored_prefix(places, &[graph], &spec.prefix);
            let intervals = Intervals::new(&prefix, &spec.ranges)?;
            let columns = places.columns(spec.columns);
            let reader = self.reader(stored, columns, RowFilter::ALL, intervals);
            return Ok(Some(Way::Tree(Box::new(reader), places)));
        }
        let Some(mut predicates) = self.graph_predicates(graph)? else {
            return Ok(None);
        };
        let graph_bits = graph.to_bits();
        let source = match (wanted, spec.prefix.as_slice()) {
            (_, [node]) => {
                let inside = |predicate: &u64| {
                    let predicate = TermId::from_bits(*predicate);
                    let holds = |range: &IdRange| (range.first..=range.last).contains(&predicate);
                    spec.ranges.is_empty() || spec.ranges.iter().any(holds)
                };
                predicates.retain(inside);
                Source::Nodes {
                    nodes: vec![(0, node.to_bits())].into_iter(),
                    graph: graph_bits,
                    predicates,
                }
            }
            (Permutation::Spog, []) if predicates.len() <= PREDICATES_OF_MANY_MAX => {
                Source::Subjects {
                    reader: self.reader(
                        TreeName::Gs,
                        Columns::of(&[1]),
                        RowFilter::ALL,
                        Intervals::new(&[graph], &spec.ranges)?,
                    ),
                    graph: graph_bits,
                    predicates,
                }
            }
            _ => return Ok(None),
        };
        let composed = self.composed_under_graph(wanted, spec.columns, source);
        Ok(Some(Way::Composed(Box::new(composed))))
    }

    /// Rows of nodes under the predicates of one graph.
    fn composed_under_graph(
        &self,
        wanted: Permutation,
        columns: Columns,
        source: Source,
    ) -> Composed {
        let stored = graph_first(wanted, 2).unwrap_or(Permutation::Gpso);
        let places = Places::between(wanted, stored);
        let reader = self.reader(stored, Columns::ALL, RowFilter::ALL, Intervals::NONE);
        Composed::new(reader, 3, places, columns, source)
    }

    /// The predicates of a graph, ascending; `None` if they are many. Found by as many look-ups, the
    /// first time, and then known to the snapshot.
    fn graph_predicates(&self, graph: TermId) -> Result<Option<Vec<u64>>> {
        let known = || {
            let lists = self.0.graph_predicates.lock();
            lists.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(list) = known().get(&graph.to_bits()) {
            return Ok(list.clone());
        }
        let list = self.leading(TreeName::Gpso, &[graph], GRAPH_PREDICATES_MAX)?;
        let mut lists = known();
        if lists.len() >= GRAPHS_KNOWN_MAX {
            lists.clear();
        }
        lists.insert(graph.to_bits(), list.clone());
        Ok(list)
    }

    /// The predicates of all quads; none if there are more than `most`. The first call costs two
    /// look-ups for each, the others nothing.
    pub fn predicates(&self, most: usize) -> Result<Arc<[NamedNode]>> {
        if let Some(recorder) = self.recorder() {
            recorder.everything();
        }
        if let Some(names) = self.0.predicates.get() {
            return Ok(Arc::clone(names));
        }
        let ids = self.leading(TreeName::Psog, &[], most)?;
        let mut names = Vec::new();
        for id in ids.unwrap_or_default() {
            if let Term::NamedNode(name) = self.term(TermId::from_bits(id))? {
                names.push(name);
            }
        }
        Ok(Arc::clone(self.0.predicates.get_or_init(|| names.into())))
    }

    /// What [`Self::predicates`] gave, if it was called.
    #[must_use]
    pub fn predicates_known(&self) -> Option<Arc<[NamedNode]>> {
        self.0.predicates.get().map(Arc::clone)
    }

    /// The different values behind `prefix`, ascending; `None` if there are more than `most`. In PSOG those of hidden rows
    /// are among them.
    pub(super) fn leading(
        &self,
        tree: TreeName,
        prefix: &[TermId],
        most: usize,
    ) -> Result<Option<Vec<u64>>> {
        let place = prefix.len();
        let columns = Columns::of(&[place]);
        let intervals = Intervals::new(prefix, &[])?;
        let mut reader = match tree {
            // Leaving hidden rows out one by one would take long, and some values too many do no harm.
            TreeName::Psog => self.reader_of_all(tree, columns, RowFilter::ALL, intervals, None),
            _ => self.reader(tree, columns, RowFilter::ALL, intervals),
        };
        let (mut values, mut out) = (Vec::new(), QuadColumns::default());
        while reader.next(1, &mut out, None)? {
            let found = out.columns.get(place).and_then(|column| column.first());
            let Some(value) = found.map(|id| id.to_bits()) else {
                // Only rows that are removed so far.
                continue;
            };
            values.push(value);
            if values.len() > most {
                return Ok(None);
            }
            let Some(next) = value.checked_add(1) else {
                break;
            };
            let rest = IdRange {
                first: TermId::from_bits(next),
                last: TermId::from_bits(u64::MAX),
            };
            reader.restart(Intervals::new(prefix, &[rest])?);
            out.clear();
        }
        Ok(Some(values))
    }

    /// In the lean scheme, rows by the pairs of nodes and predicates in some intervals of these.
    fn through_pairs(&self, spec: &ScanSpec, filter: RowFilter, of_pairs: Intervals) -> Way {
        let source = Source::Pairs(self.reader(
            pairs(spec.permutation),
            Columns::of(&[0, 1]),
            RowFilter::ALL,
            of_pairs,
        ));
        let stored = predicate_first(spec.permutation);
        let places = Places::between(spec.permutation, stored);
        let reader = self.reader(stored, Columns::ALL, filter, Intervals::NONE);
        let composed = Composed::new(reader, 2, places, spec.columns, source);
        Way::Composed(Box::new(composed))
    }

    /// Rows of a graph by its subjects, if that is less than filtering the rows of all graphs.
    fn through_subjects(&self, spec: &ScanSpec, graph: TermId) -> Result<Option<Way>> {
        let Some(subjects) = self.few_subjects(spec, graph)? else {
            return Ok(None);
        };
        let (permutation, prefix) = (spec.permutation, spec.prefix.as_slice());
        // Whether keys of subjects give rows in the wanted order: with all else fixed, or nothing.
        let in_order = matches!(
            (permutation, prefix),
            (Permutation::Spog, []) | (Permutation::Psog, [_])
        ) || matches!(
            (permutation, prefix),
            (Permutation::Posg | Permutation::Opsg, [_, _])
        );
        if !in_order && self.quads_of(graph)? > HELD_ROWS as u64 {
            return Ok(None);
        }
        // Keys in PSOG where the predicate is fixed, behind the subject the object, else in SPOG.
        let (stored, head, tail) = match (permutation, prefix) {
            (Permutation::Psog | Permutation::Posg, [predicate]) => {
                (Permutation::Psog, Some(*predicate), None)
            }
            (Permutation::Posg, [predicate, object]) | (Permutation::Opsg, [object, predicate]) => {
                (Permutation::Psog, Some(*predicate), Some(*object))
            }
            _ => (Permutation::Spog, None, None),
        };
        let inside = |subject: &TermId| {
            let holds = |range: &IdRange| (range.first..=range.last).contains(subject);
            !in_order || spec.ranges.is_empty() || spec.ranges.iter().any(holds)
        };
        let lows = subjects.iter().filter(|subject| inside(subject));
        let lows = lows.map(|subject| {
            let ids = head.into_iter().chain([*subject]).chain(tail);
            let mut row = [0; 4];
            for (slot, id) in row.iter_mut().zip(ids) {
                *slot = id.to_bits();
            }
            row
        });
        let intervals = Intervals {
            depth: 1 + usize::from(head.is_some()) + usize::from(tail.is_some()),
            lows: lows.collect(),
            highs: Vec::new(),
        };
        self.in_intervals(spec, stored, graph, (in_order, intervals))
            .map(Some)
    }

    /// The rows of a graph in intervals of a permutation, whose keys are subjects or end with them and
    /// an object; sorted if they do not come in the wanted order.
    fn in_intervals(
        &self,
        spec: &ScanSpec,
        stored: Permutation,
        graph: TermId,
        (in_order, intervals): (bool, Intervals),
    ) -> Result<Way> {
        let filter = RowFilter {
            graphs: Some(GraphSet::One(graph)),
            merge_graphs: false,
        };
        let is_kept = self.0.base.payload.has(stored.into());
        if in_order && is_kept {
            let places = Places::between(spec.permutation, stored);
            let columns = places.columns(spec.columns);
            let reader = self.reader(stored, columns, filter, intervals);
            return Ok(Way::Tree(Box::new(reader), places));
        }
        if in_order {
            return Ok(self.through_pairs(spec, filter, intervals));
        }
        let (source, depth, stored) = if is_kept {
            let depth = intervals.depth;
            let keys: Vec<_> = intervals.lows.into_iter().map(|low| (0, low)).collect();
            (Source::Keys(keys.into_iter()), depth, stored)
        } else {
            let columns = Columns::of(&[0, 1]);
            let pairs = self.reader(TreeName::Sp, columns, RowFilter::ALL, intervals);
            (Source::Pairs(pairs), 2, Permutation::Psog)
        };
        let places = Places::between(spec.permutation, stored);
        let reader = self.reader(stored, Columns::ALL, filter, Intervals::NONE);
        let kept = Kept {
            prefix: spec.prefix.clone(),
            ranges: spec.ranges.clone(),
        };
        let composed = Composed::new(reader, depth, places, spec.columns, source);
        Ok(Way::Composed(Box::new(composed.whole(kept))))
    }

    /// The subjects of a graph, if they are not fixed by a scan and it is worth while to go through
    /// them.
    fn few_subjects(&self, spec: &ScanSpec, graph: TermId) -> Result<Option<Vec<TermId>>> {
        let order = spec.permutation.order();
        let fixed = order.iter().take(spec.prefix.len());
        let mut fixed =
            fixed.filter(|position| matches!(position, Position::Subject | Position::Graph));
        if fixed.next().is_some() {
            return Ok(None);
        }
        let (rows, _) = self.rows_of(spec.permutation, &spec.prefix, &spec.ranges)?;
        if !self.has_few_subjects(graph, rows)? {
            return Ok(None);
        }
        let of_graph = Intervals::new(&[graph], &[])?;
        let mut reader = self.reader(TreeName::Gs, Columns::of(&[1]), RowFilter::ALL, of_graph);
        let (mut subjects, mut out) = (Vec::new(), QuadColumns::default());
        while reader.next(4096, &mut out, None)? {
            let [_, found, ..] = &out.columns;
            subjects.extend_from_slice(found);
            out.clear();
        }
        Ok(Some(subjects))
    }

    /// Whether looking a graph's subjects up is less work than filtering so many rows.
    pub(super) fn has_few_subjects(&self, graph: TermId, rows: u64) -> Result<bool> {
        if rows < ROWS_A_SUBJECT {
            return Ok(false);
        }
        let of_graph = Intervals::new(&[graph], &[])?;
        let subjects = self.count_rows(TreeName::Gs, &of_graph)?;
        Ok(subjects <= SUBJECTS_LISTED && subjects <= rows / ROWS_A_SUBJECT)
    }
}

/// A wanted prefix as one of stored rows, behind what these have before it.
pub(super) fn stored_prefix(places: Places, before: &[TermId], prefix: &[TermId]) -> Vec<TermId> {
    let mut stored = before.to_vec();
    stored.resize(before.len() + prefix.len(), TermId::UNBOUND);
    for (place, id) in prefix.iter().enumerate() {
        if let Some(slot) = stored.get_mut(places.stored(place)) {
            *slot = *id;
        }
    }
    stored
}

/// How the keys of a look-up become keys of trees.
enum Keys {
    /// Positions change places; a graph may stand before them.
    Moved {
        places: Places,
        graph: Option<TermId>,
    },
    /// Each is a node, looked up under the predicates of a graph.
    Predicates { graph: TermId, predicates: Vec<u64> },
    /// Each is a node whose predicates stand in a tree of pairs.
    Pairs(TreeName),
}

/// Vectored look-up of batches of keys.
pub struct Lookup {
    way: Way,
    keys: Keys,
    spec: LookupSpec,
    /// The tree that is looked up in, and what passes there.
    stored: Permutation,
    filter: Option<GraphSet>,
    merge_graphs: bool,
    /// Graphs that a key may begin with, where keys begin with the graph.
    key_graphs: Option<GraphSet>,
    /// Whether the graph set is known to be empty.
    nothing: bool,
    /// For each sorted key its index in the batch.
    order: Vec<u32>,
    /// Keeps the extents.
    snapshot: Snapshot,
}

impl Snapshot {
    /// Prepares look-ups of batches of keys.
    pub fn lookup(&self, spec: &LookupSpec) -> Result<Lookup> {
        if !(1..=4).contains(&spec.key_length) {
            return Err(Error::Internal("a key of no or more than four positions"));
        }
        let (filter, nothing) = match self.visible(&spec.graphs, spec.with_graph)? {
            Visible::Nothing => (RowFilter::ALL, true),
            Visible::Rows(filter) => (filter, false),
        };
        let (wanted, fixed) = (spec.permutation, spec.key_length);
        let mut stored = self.stored(wanted);
        let (mut graphs, mut key_graphs) = (filter.graphs.clone(), None);
        let mut keys = Keys::Moved {
            places: Places::between(wanted, stored),
            graph: None,
        };
        let mut merge_graphs = filter.merge_graphs;
        if let Permutation::Gpso | Permutation::Gpos = wanted {
            if !self.0.base.payload.graph_first {
                return Err(Error::Internal("a permutation that is not kept"));
            }
            (key_graphs, merge_graphs) = (graphs.take(), false);
        } else if let Some(graph) = only_graph(&filter)
            && self.0.base.payload.graph_first
            && fixed <= 3
        {
            if let Some(first) = graph_first(wanted, fixed) {
                (stored, graphs) = (first, None);
                keys = Keys::Moved {
                    places: Places::between(wanted, first),
                    graph: Some(graph),
                };
            } else if let Some(predicates) = self
                .graph_predicates(graph)?
                .filter(|list| list.len() <= PREDICATES_OF_MANY_MAX)
            {
                stored = graph_first(wanted, 2).unwrap_or(stored);
                graphs = None;
                keys = Keys::Predicates { graph, predicates };
            }
        } else if stored != wanted && fixed < 2 {
            keys = Keys::Pairs(pairs(wanted));
        }
        let places = Places::between(wanted, stored);
        let filter = RowFilter {
            graphs: graphs.clone(),
            merge_graphs,
        };
        let columns = places.columns(spec.columns);
        let reader = self.reader(stored, columns, filter, Intervals::NONE);
        let reader = match spec.is_counted {
            true => reader.counting(),
            false => reader,
        };
        Ok(Lookup {
            way: Way::Tree(Box::new(reader), places),
            keys,
            spec: spec.clone(),
            stored,
            filter: graphs,
            merge_graphs,
            key_graphs,
            nothing,
            order: Vec::new(),
            snapshot: self.clone(),
        })
    }
}

impl Lookup {
    /// Takes a batch of keys: one slice of ids for each position of the key, all of one length.
    pub fn start(&mut self, keys: &[&[TermId]]) -> Result<()> {
        let count = keys.first().map_or(0, |column| column.len());
        let even = keys.iter().all(|column| column.len() == count);
        if keys.len() != self.spec.key_length || !even || u32::try_from(count).is_err() {
            return Err(Error::Internal("keys of another length than promised"));
        }
        if let Some(recorder) = self.snapshot.recorder() {
            recorder.keys(self.spec.permutation, keys, &self.spec.graphs);
        }
        let mut intervals = match &mut self.way {
            Way::Tree(reader, _) => reader.take_intervals(),
            Way::Composed(_) => Intervals::NONE,
        };
        intervals.take_keys(keys, &mut self.order);
        if self.nothing {
            intervals.lows.clear();
        }
        if let Some(graphs) = &self.key_graphs {
            let mut order = self.order.iter();
            let mut kept = Vec::with_capacity(self.order.len());
            intervals.lows.retain(|[graph, ..]| {
                let index = order.next();
                let keep = graphs.contains(TermId::from_bits(*graph));
                kept.extend(index.filter(|_| keep));
                keep
            });
            self.order = kept;
        }
        match &self.keys {
            Keys::Moved { places, graph } => {
                let (places, graph) = (*places, *graph);
                self.start_moved(intervals, places, graph);
            }
            Keys::Predicates { graph, predicates } => {
                let source = Source::Nodes {
                    nodes: nodes(&intervals).into_iter(),
                    graph: graph.to_bits(),
                    predicates: predicates.clone(),
                };
                self.compose(3, source);
            }
            Keys::Pairs(tree) => {
                let columns = Columns::of(&[0, 1]);
                let reader = self
                    .snapshot
                    .reader(*tree, columns, RowFilter::ALL, intervals);
                self.compose(2, Source::Pairs(reader));
            }
        }
        Ok(())
    }

    fn start_moved(&mut self, mut intervals: Intervals, places: Places, graph: Option<TermId>) {
        let mut depth = intervals.depth;
        if graph.is_some() || !places.is_identity() {
            for low in &mut intervals.lows {
                *low = moved(places, low, depth);
                if let Some(graph) = graph {
                    low[0] = graph.to_bits();
                }
            }
            depth += usize::from(graph.is_some());
            intervals.depth = depth;
        }
        if intervals.lows.is_sorted() {
            match &mut self.way {
                Way::Tree(reader, _) => reader.restart(intervals),
                Way::Composed(_) => {
                    let reader = self.tree_reader(places.columns(self.spec.columns), intervals);
                    let reader = match self.spec.is_counted {
                        true => reader.counting(),
                        false => reader,
                    };
                    self.way = Way::Tree(Box::new(reader), places);
                }
            }
            return;
        }
        let keys: Vec<_> = (0_u32..).zip(intervals.lows).collect();
        self.compose(depth, Source::Keys(keys.into_iter()));
    }

    fn tree_reader(&self, columns: Columns, intervals: Intervals) -> RowReader {
        let filter = RowFilter {
            graphs: self.filter.clone(),
            merge_graphs: self.merge_graphs,
        };
        self.snapshot
            .reader(self.stored, columns, filter, intervals)
    }

    /// Puts the rows of a source together.
    fn compose(&mut self, depth: usize, source: Source) {
        if let Way::Composed(composed) = &mut self.way {
            composed.restart(source);
            return;
        }
        let reader = self.tree_reader(Columns::ALL, Intervals::NONE);
        let places = Places::between(self.spec.permutation, self.stored);
        let composed = Composed::new(reader, depth, places, self.spec.columns, source);
        self.way = Way::Composed(Box::new(composed));
    }

    /// Clears `out` and fills it with at most `max_rows` further rows, in the order of the sorted
    /// keys. Returns `false` at the end of the batch. There may be fewer rows than asked for, even
    /// none, before.
    pub fn next(&mut self, max_rows: usize, out: &mut LookupRows) -> Result<bool> {
        out.clear();
        self.snapshot.check_kept()?;
        if self.spec.is_counted {
            return Err(Error::Internal("rows are read that were to be counted"));
        }
        let index = &mut out.key_index;
        let more = self.way.next(max_rows, &mut out.columns, Some(index))?;
        self.number(index);
        Ok(more)
    }

    /// As [`next`](Self::next), with numbers of rows in place of the rows: at most `counts_max`.
    pub fn next_counts(&mut self, counts_max: usize, out: &mut LookupCounts) -> Result<bool> {
        out.clear();
        self.snapshot.check_kept()?;
        if !self.spec.is_counted {
            return Err(Error::Internal("rows are counted that were to be read"));
        }
        let more = self.way.next_counts(counts_max, out)?;
        self.number(&mut out.key_index);
        Ok(more)
    }

    /// From the numbers of sorted keys to those of the batch.
    fn number(&self, index: &mut [u32]) {
        for index in index {
            let key = usize::try_from(*index).ok();
            if let Some(original) = key.and_then(|key| self.order.get(key)) {
                *index = *original;
            }
        }
    }
}

/// Sorted keys of one position, with their numbers.
fn nodes(intervals: &Intervals) -> Vec<(u32, u64)> {
    let nodes = intervals.lows.iter().map(|[node, ..]| *node);
    (0_u32..).zip(nodes).collect()
}

/// What the rows of a tree begin with that are read for a wanted prefix, and how many places that are; `None` where
/// they are not sorted by what stands behind the prefix.
fn leading(way: &Way, graph: Option<TermId>, prefix: &[TermId]) -> Option<(Row, usize)> {
    let Way::Tree(_, places) = way else {
        return None;
    };
    let stored = in_tree(*places, graph, prefix)?;
    let mut row = [0; 4];
    row.get(stored.len())?;
    for (slot, id) in row.iter_mut().zip(&stored) {
        *slot = id.to_bits();
    }
    Some((row, stored.len()))
}

/// A scan that can be resumed.
pub struct Scan {
    way: Way,
    /// What rows begin with where they stand in one tree, and the place of what they are sorted by behind it.
    leading: Option<(Row, usize)>,
    /// Keeps the extents.
    snapshot: Snapshot,
    /// What is to be recorded once something was read.
    unread: Option<ScanSpec>,
}

impl Snapshot {
    /// Starts a scan.
    pub fn scan(&self, spec: &ScanSpec) -> Result<Scan> {
        let (way, graph) = match self.visible(&spec.graphs, spec.with_graph)? {
            Visible::Nothing => (self.no_rows(), None),
            Visible::Rows(filter) => {
                let graph = only_graph(&filter);
                (self.way(spec, filter)?, graph)
            }
        };
        Ok(Scan {
            leading: leading(&way, graph, &spec.prefix),
            way,
            snapshot: self.clone(),
            unread: self.recorder().map(|_| spec.clone()),
        })
    }

    /// Scans the subjects of a graph, ascending; they stand in column 1.
    pub fn scan_graph_subjects(&self, graph: TermId) -> Result<Scan> {
        let intervals = Intervals::new(&[graph], &[])?;
        let columns = Columns::of(&[1]);
        let reader = self.reader(TreeName::Gs, columns, RowFilter::ALL, intervals);
        if let Some(recorder) = self.recorder() {
            recorder.rows(Permutation::Spog, &[], &[], &GraphSet::One(graph));
        }
        Ok(Scan {
            way: Way::Tree(Box::new(reader), Places::SAME),
            leading: None,
            snapshot: self.clone(),
            unread: None,
        })
    }

    fn no_rows(&self) -> Way {
        let reader = self.reader(
            TreeName::Psog,
            Columns::NONE,
            RowFilter::ALL,
            Intervals::NONE,
        );
        Way::Tree(Box::new(reader), Places::SAME)
    }

    /// The permutation that is read for rows in an order.
    pub(super) fn stored(&self, wanted: Permutation) -> Permutation {
        if self.0.base.payload.has(wanted.into()) {
            wanted
        } else {
            predicate_first(wanted)
        }
    }
}

impl Scan {
    /// Lets rows be left out whose term in a column (0 to 3, in the order of the permutation) lies in none of `ranges`.
    /// Those that stand in one tree are; those that a delta adds, or that are put together of several trees, are not.
    #[must_use]
    pub fn leaving_out(mut self, column: usize, ranges: &[IdRange]) -> Self {
        if let Way::Tree(reader, places) = &mut self.way {
            reader.leave_out(places.stored(column), ranges.to_vec());
        }
        self
    }

    /// Leaves out rows whose id behind the prefix is below `from`. Those of a tree are not decoded, its leaves between
    /// not even read; those that are put together of several trees may still come. A transaction takes them down as
    /// read. Returns about how many rows were passed, at least as far as they lie close by, so that the caller can learn
    /// when that is worth while.
    ///
    /// # Errors
    /// If the trees cannot be read, or the snapshot had to end.
    pub fn skip_to(&mut self, from: TermId) -> Result<usize> {
        self.snapshot.check_kept()?;
        let (Way::Tree(reader, _), Some((mut row, place))) = (&mut self.way, self.leading) else {
            return Ok(0);
        };
        if let Some(slot) = row.get_mut(place) {
            *slot = from.to_bits();
        }
        reader.skip_to(row, place + 1)
    }

    /// Clears `out` and fills it with at most `max_rows` further rows, sorted by the permutation.
    /// Returns `false` at the end. There may be fewer rows than asked for, even none, before.
    pub fn next(&mut self, max_rows: usize, out: &mut QuadColumns) -> Result<bool> {
        out.clear();
        self.snapshot.check_kept()?;
        if let Some(spec) = self.unread.take()
            && let Some(recorder) = self.snapshot.recorder()
        {
            recorder.rows(spec.permutation, &spec.prefix, &spec.ranges, &spec.graphs);
        }
        self.way.next(max_rows, out, None)
    }
}
