//! Rows in an order that no tree has, by look-ups in a tree of another order.
//!
//! A *source* says which keys of the other tree belong to the rows that are wanted: the pairs of the
//! lean scheme, all predicates of a graph for a node, or a plain list. Keys are taken by whole nodes
//! (what comes first in the wanted order), a batch of nodes at a time; their rows are read in the
//! order of the tree and then sorted.
//!
//! # Invariants
//! 1. Keys of a source ascend by position, then by node, so that batches follow each other in the
//!    wanted order (test `every_order_is_read_in_every_scheme`).
//!
//! # Limits
//! At most `HELD_ROWS` rows are held (5 MB): where a batch has more, half of its nodes are taken, and
//! the rows of a single node come in the wanted order anyway.

use stoa_terms::{IdRange, Permutation, TermId};

use crate::error::Result;
use crate::permutation::RowReader;
use crate::read::{Columns, QuadColumns};
use crate::segment::Row;

/// Rows that are held to be sorted.
pub(super) const HELD_ROWS: usize = 1 << 17;
/// Nodes of the first batch, and of the largest.
const NODES_FIRST: usize = 16;
const NODES_MAX: usize = 4096;
/// Keys that are asked of a source at a time.
const KEYS_STEP: usize = 4096;

/// Which place of a stored row each place of a wanted row comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Places([usize; 4]);

impl Places {
    /// Nothing moves.
    pub(super) const SAME: Self = Self([0, 1, 2, 3]);

    /// From rows of `stored` to rows of `wanted`.
    pub(super) fn between(wanted: Permutation, stored: Permutation) -> Self {
        let stored = stored.order();
        Self(wanted.order().map(|position| {
            let found = stored.iter().position(|other| *other == position);
            found.unwrap_or_default()
        }))
    }

    /// Whether nothing moves.
    pub(super) const fn is_identity(self) -> bool {
        matches!(self.0, [0, 1, 2, 3])
    }

    /// The stored place of a wanted one.
    pub(super) fn stored(self, place: usize) -> usize {
        self.0.get(place).copied().unwrap_or(place)
    }

    /// The stored columns that give the wanted ones.
    pub(super) fn columns(self, wanted: Columns) -> Columns {
        let places = (0..4).filter(|place| wanted.contains(*place));
        places.fold(Columns::NONE, |set, place| set.with(self.stored(place)))
    }

    /// Brings columns that were read into their wanted places.
    pub(super) fn arrange(self, out: &mut QuadColumns) {
        if self.is_identity() {
            return;
        }
        let mut stored = std::mem::take(&mut out.columns);
        for (column, place) in out.columns.iter_mut().zip(self.0) {
            if let Some(stored) = stored.get_mut(place) {
                *column = std::mem::take(stored);
            }
        }
    }

    /// A wanted row, given its stored columns and its number.
    fn row(self, stored: &QuadColumns, row: usize) -> Row {
        self.0.map(|place| {
            let column = stored.columns.get(place);
            let id = column.and_then(|column| column.get(row));
            id.map_or(0, |id| id.to_bits())
        })
    }
}

/// A key of the tree that is looked up in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// What the reader is told its rows belong to.
    position: u32,
    /// What stands first in the wanted order.
    node: u64,
    /// The leading columns in the tree.
    low: Row,
}

/// Where keys come from.
pub(super) enum Source {
    /// Positions and keys.
    Keys(std::vec::IntoIter<(u32, Row)>),
    /// Positions and nodes; each is looked up under each predicate of a graph.
    Nodes {
        nodes: std::vec::IntoIter<(u32, u64)>,
        graph: u64,
        predicates: Vec<u64>,
    },
    /// The subjects of a graph from its pairs, likewise.
    Subjects {
        reader: RowReader,
        graph: u64,
        predicates: Vec<u64>,
    },
    /// Pairs of node and predicate.
    Pairs(RowReader),
}

impl Source {
    /// Appends further keys; `false` if there are none.
    fn refill(&mut self, keys: &mut Vec<Key>) -> Result<bool> {
        let product = |keys: &mut Vec<Key>, (position, node): (u32, u64), graph, list: &[u64]| {
            keys.extend(list.iter().map(|predicate| Key {
                position,
                node,
                low: [graph, *predicate, node, 0],
            }));
        };
        match self {
            Self::Keys(list) => {
                let start = keys.len();
                // Each key stands alone, whatever it shares with its neighbours.
                let alone = (0_u64..).zip(list.by_ref().take(KEYS_STEP));
                keys.extend(alone.map(|(_, (position, low))| Key {
                    position,
                    node: u64::from(position),
                    low,
                }));
                Ok(keys.len() > start)
            }
            Self::Nodes {
                nodes,
                graph,
                predicates,
            } => {
                let mut some = false;
                for node in nodes.take(KEYS_STEP.div_ceil(predicates.len().max(1))) {
                    product(keys, node, *graph, predicates);
                    some = true;
                }
                Ok(some)
            }
            Self::Subjects {
                reader,
                graph,
                predicates,
            } => {
                let mut out = QuadColumns::default();
                let nodes = KEYS_STEP.div_ceil(predicates.len().max(1));
                let more = reader.next(nodes, &mut out, None)?;
                let [_, subjects, ..] = &out.columns;
                for subject in subjects {
                    product(keys, (0, subject.to_bits()), *graph, predicates);
                }
                Ok(more)
            }
            Self::Pairs(reader) => {
                let (mut out, mut index) = (QuadColumns::default(), Vec::new());
                let more = reader.next(KEYS_STEP, &mut out, Some(&mut index))?;
                let [nodes, predicates, ..] = &out.columns;
                let pairs = nodes.iter().zip(predicates).zip(index);
                keys.extend(pairs.map(|((node, predicate), position)| Key {
                    position,
                    node: node.to_bits(),
                    low: [predicate.to_bits(), node.to_bits(), 0, 0],
                }));
                Ok(more)
            }
        }
    }
}

/// Rows that are kept: those with these first columns, then in these ranges.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) prefix: Vec<TermId>,
    pub(super) ranges: Vec<IdRange>,
}

impl Kept {
    fn keeps(&self, row: &Row) -> bool {
        let starts = self
            .prefix
            .iter()
            .zip(row)
            .all(|(id, value)| id.to_bits() == *value);
        let next = row.get(self.prefix.len()).copied().unwrap_or_default();
        let inside =
            |range: &IdRange| (range.first.to_bits()..=range.last.to_bits()).contains(&next);
        starts && (self.ranges.is_empty() || self.ranges.iter().any(inside))
    }
}

/// See the module header.
pub(super) struct Composed {
    /// Reads the tree that keys are of, all columns.
    reader: RowReader,
    /// Leading columns that a key gives.
    depth: usize,
    places: Places,
    wanted: Columns,
    source: Option<Source>,
    /// Keys from `at` on are still to be looked up.
    keys: Vec<Key>,
    at: usize,
    /// Nodes of the next batch.
    nodes: usize,
    /// The position of each key of the batch at work.
    positions: Vec<u32>,
    /// Whether rows of the batch go out as they come.
    streaming: bool,
    held: Vec<(u32, Row)>,
    held_at: usize,
    /// Everything is one batch, and only some of it is kept.
    whole: Option<Kept>,
    stored: QuadColumns,
    index: Vec<u32>,
}

impl Composed {
    /// Rows of `source`, whose keys give the first `depth` columns of the rows of `reader`; that one
    /// reads all columns.
    pub(super) fn new(
        reader: RowReader,
        depth: usize,
        places: Places,
        wanted: Columns,
        source: Source,
    ) -> Self {
        Self {
            reader,
            depth,
            places,
            wanted,
            source: Some(source),
            keys: Vec::new(),
            at: 0,
            nodes: NODES_FIRST,
            positions: Vec::new(),
            streaming: false,
            held: Vec::new(),
            held_at: 0,
            whole: None,
            stored: QuadColumns::default(),
            index: Vec::new(),
        }
    }

    /// Sorts all rows together, which must be few, and keeps some.
    pub(super) fn whole(mut self, kept: Kept) -> Self {
        self.whole = Some(kept);
        self
    }

    /// Starts again with other keys.
    pub(super) fn restart(&mut self, source: Source) {
        self.source = Some(source);
        self.keys.clear();
        self.at = 0;
        self.streaming = false;
        self.held.clear();
        self.held_at = 0;
    }

    /// As [`RowReader::next`], with the positions of keys for the indexes of intervals.
    pub(super) fn next(
        &mut self,
        max_rows: usize,
        out: &mut QuadColumns,
        index: Option<&mut Vec<u32>>,
    ) -> Result<bool> {
        if self.streaming {
            self.stored.clear();
            self.index.clear();
            let room = max_rows.saturating_sub(out.rows);
            let interval = Some(&mut self.index);
            self.streaming = self.reader.next(room, &mut self.stored, interval)?;
            if self.streaming {
                self.hold();
                self.emit(max_rows, out, index);
                return Ok(true);
            }
        }
        if self.held_at == self.held.len() && !self.load()? {
            return Ok(false);
        }
        self.emit(max_rows, out, index);
        Ok(true)
    }

    /// Reads a batch; `false` if there are no more keys.
    fn load(&mut self) -> Result<bool> {
        self.held.clear();
        self.held_at = 0;
        loop {
            let end = self.batch_end()?;
            let Some(batch) = self
                .keys
                .get_mut(self.at..end)
                .filter(|keys| !keys.is_empty())
            else {
                return Ok(false);
            };
            batch.sort_by_key(|key| (key.low, key.position));
            let mut intervals = self.reader.take_intervals();
            intervals.depth = self.depth;
            intervals.highs.clear();
            intervals.lows.clear();
            intervals.lows.extend(batch.iter().map(|key| key.low));
            self.positions.clear();
            self.positions.extend(batch.iter().map(|key| key.position));
            // A batch that is taken again in part must be in order.
            batch.sort_by_key(|key| (key.position, key.node));
            self.reader.restart(intervals);
            if self.nodes == 1 && self.whole.is_none() {
                self.at = end;
                self.streaming = true;
                self.nodes = 2;
                return Ok(true);
            }
            if self.collect()? {
                self.at = end;
                self.nodes = (self.nodes * 2).min(NODES_MAX);
                return Ok(true);
            }
            self.nodes = 1.max(self.nodes / 4);
        }
    }

    /// Reads and sorts all rows of the batch; `false`, and nothing, if they are too many.
    fn collect(&mut self) -> Result<bool> {
        loop {
            self.stored.clear();
            self.index.clear();
            let interval = Some(&mut self.index);
            if !self.reader.next(KEYS_STEP, &mut self.stored, interval)? {
                break;
            }
            self.hold();
            if self.held.len() > HELD_ROWS && self.whole.is_none() {
                self.held.clear();
                return Ok(false);
            }
        }
        self.held.sort_unstable();
        Ok(true)
    }

    /// Takes over the rows that were read.
    fn hold(&mut self) {
        if self.held_at == self.held.len() {
            self.held.clear();
            self.held_at = 0;
        }
        for (row, interval) in self.index.iter().enumerate() {
            let position = self.positions.get(*interval as usize);
            let position = position.copied().unwrap_or_default();
            let row = self.places.row(&self.stored, row);
            match &self.whole {
                // All rows are sorted together, whatever key they belong to.
                Some(kept) if kept.keeps(&row) => self.held.push((0, row)),
                Some(_) => {}
                None => self.held.push((position, row)),
            }
        }
    }

    /// Hands on rows that are held.
    fn emit(&mut self, max_rows: usize, out: &mut QuadColumns, index: Option<&mut Vec<u32>>) {
        let room = max_rows.saturating_sub(out.rows);
        let end = self.held.len().min(self.held_at + room);
        let rows = self.held.get(self.held_at..end).unwrap_or_default();
        for (place, column) in out.columns.iter_mut().enumerate() {
            if self.wanted.contains(place) {
                let values = rows.iter().filter_map(|(_, row)| row.get(place));
                column.extend(values.map(|value| TermId::from_bits(*value)));
            }
        }
        if let Some(index) = index {
            index.extend(rows.iter().map(|(position, _)| *position));
        }
        out.rows += rows.len();
        self.held_at = end;
    }

    /// Where the next batch ends among the keys: behind whole nodes.
    fn batch_end(&mut self) -> Result<usize> {
        self.keys.drain(..self.at);
        self.at = 0;
        let nodes = if self.whole.is_some() {
            usize::MAX
        } else {
            self.nodes
        };
        loop {
            let mut found = 0;
            for (index, pair) in self.keys.windows(2).enumerate() {
                let same = |key: &Key| (key.position, key.node);
                let [one, next] = pair else { continue };
                found += usize::from(same(one) != same(next));
                if found == nodes {
                    return Ok(index + 1);
                }
            }
            let more = match &mut self.source {
                Some(source) => source.refill(&mut self.keys)?,
                None => false,
            };
            if !more {
                self.source = None;
                return Ok(self.keys.len());
            }
        }
    }
}
