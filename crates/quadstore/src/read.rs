//! What a reader asks of a snapshot, and the columns it gets.

use std::ops::Bound;

use stoa_terms::{GraphSet, IdRange, Permutation, TermId};

/// A set of the four positions of a permutation, by their place in its order (0 to 3).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Columns(u8);

impl Columns {
    /// No position.
    pub const NONE: Self = Self(0);
    /// All four.
    pub const ALL: Self = Self(0b1111);

    /// The set of these places.
    ///
    /// # Panics
    /// If a place is above 3.
    #[must_use]
    pub fn of(places: &[usize]) -> Self {
        places
            .iter()
            .fold(Self::NONE, |set, place| set.with(*place))
    }

    /// The set and `place`.
    ///
    /// # Panics
    /// If `place` is above 3.
    #[must_use]
    pub const fn with(self, place: usize) -> Self {
        assert!(place < 4, "a quad has four positions");
        Self(self.0 | 1 << place)
    }

    /// Whether `place` is in the set.
    #[must_use]
    pub const fn contains(self, place: usize) -> bool {
        place < 4 && self.0 & (1 << place) != 0
    }
}

/// A range scan of one permutation.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// The permutation to read.
    pub permutation: Permutation,
    /// At most four ids, in the order of the permutation, that all rows start with.
    pub prefix: Vec<TermId>,
    /// Ranges for the position after the prefix; ascending and disjoint; empty means all.
    pub ranges: Vec<IdRange>,
    /// The graphs to read.
    pub graphs: GraphSet,
    /// The wanted positions, in the order of the permutation.
    pub columns: Columns,
    /// Whether the graph counts as a part of a row. If not, a triple that several graphs of the set
    /// hold is returned once, and the graph column holds one of them.
    pub with_graph: bool,
}

/// What a [`crate::Lookup`] looks up, but for the keys.
#[derive(Clone, Debug)]
pub struct LookupSpec {
    /// The permutation to read.
    pub permutation: Permutation,
    /// How many leading positions a key gives: 1 to 4.
    pub key_length: usize,
    /// The graphs to read.
    pub graphs: GraphSet,
    /// The wanted positions, in the order of the permutation; positions of the key may be among them.
    pub columns: Columns,
    /// As in [`ScanSpec::with_graph`].
    pub with_graph: bool,
    /// Whether [`crate::Lookup::next_counts`] is asked, and not [`crate::Lookup::next`].
    pub is_counted: bool,
}

/// Rows of quads, column by column.
#[derive(Clone, Debug, Default)]
pub struct QuadColumns {
    /// One vector for each position in the order of the permutation; empty if it was not wanted.
    pub columns: [Vec<TermId>; 4],
    /// The number of rows.
    pub rows: usize,
}

impl QuadColumns {
    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(Vec::clear);
        self.rows = 0;
    }
}

/// Rows that a look-up found.
#[derive(Clone, Debug, Default)]
pub struct LookupRows {
    /// For each row the index of its key among the keys given; rows of one key stand together.
    pub key_index: Vec<u32>,
    /// The rows.
    pub columns: QuadColumns,
}

impl LookupRows {
    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.key_index.clear();
        self.columns.clear();
    }
}

/// How many rows a look-up found.
#[derive(Clone, Debug, Default)]
pub struct LookupCounts {
    /// The indexes of keys among the keys given. A key may come several times in a row: its numbers add up.
    pub key_index: Vec<u32>,
    /// For each of them a number of its rows, at least 1.
    pub counts: Vec<u64>,
}

impl LookupCounts {
    /// Removes all numbers and keeps the memory.
    pub fn clear(&mut self) {
        self.key_index.clear();
        self.counts.clear();
    }

    /// Adds rows, given by the index of the key of each.
    pub(crate) fn add_rows(&mut self, key_index: &[u32]) {
        for rows in key_index.chunk_by(|a, b| a == b) {
            if let Some(key) = rows.first() {
                self.add(*key, rows.len() as u64);
            }
        }
    }

    /// Adds rows of a key.
    pub(crate) fn add(&mut self, key: u32, rows: u64) {
        match (self.key_index.last(), self.counts.last_mut()) {
            (Some(last), Some(count)) if *last == key => *count += rows,
            _ => {
                self.key_index.push(key);
                self.counts.push(rows);
            }
        }
    }
}

/// A number of rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Count {
    /// How many rows there are, or at most are.
    pub rows: u64,
    /// Whether `rows` is exact; otherwise it is an upper bound.
    pub exact: bool,
}

/// A graph that exists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GraphEntry {
    /// Its name, or [`TermId::DEFAULT_GRAPH`].
    pub graph: TermId,
    /// How many quads it holds.
    pub quads: u64,
}

/// A range of strings, by code points.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StringRange {
    /// All that start with this.
    Prefix(String),
    /// All between these.
    Between {
        /// The lower end.
        lower: Bound<String>,
        /// The upper end.
        upper: Bound<String>,
    },
}

/// The ids of terms that lie between two others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IdRanges {
    /// Ascending and disjoint.
    pub ranges: Vec<IdRange>,
    /// Whether no term of the ranges lies elsewhere; otherwise each must be compared.
    pub is_exact: bool,
}

/// Terms of one kind that are in the dictionary under neighbouring ids.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeySection {
    /// The payloads of the ids.
    pub payloads: std::ops::Range<u64>,
    /// Whether the order of the ids is that of the keys.
    pub is_ordered: bool,
}

/// Texts of terms, in one buffer.
#[derive(Clone, Debug, Default)]
pub struct TermTexts {
    pub(crate) bytes: Vec<u8>,
    /// Where in the buffer each text begins and ends.
    pub(crate) places: Vec<(usize, usize)>,
}

/// A shorter buffer of texts grows without asking.
const GROWN_BYTES: usize = 64 << 10;

impl TermTexts {
    /// The text at `index`, empty if there is none.
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        let (start, end) = self.places.get(index).copied().unwrap_or((0, 0));
        self.bytes.get(start..end).unwrap_or(&[])
    }

    /// The number of texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no texts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The buffer's texts together, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What the texts take, in bytes, unused capacity included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<(usize, usize)>()
    }

    /// Removes all texts and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Appends a text.
    pub fn push(&mut self, text: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.places.push((start, self.bytes.len()));
    }

    /// Makes room for so many bytes of texts before they are added. Where the buffer is long and has to grow, `fits` is told
    /// what old and new buffer take together; false if it says no.
    pub fn make_room(&mut self, more: usize, fits: &mut dyn FnMut(usize) -> bool) -> bool {
        let (needed, capacity) = (self.bytes.len().saturating_add(more), self.bytes.capacity());
        if needed <= capacity.max(GROWN_BYTES) {
            return true;
        }
        let grown = needed.max(capacity + capacity / 2);
        if !fits(self.memory_bytes().saturating_add(grown)) {
            return false;
        }
        self.bytes.reserve_exact(grown - self.bytes.len());
        true
    }

    /// Puts another text at `index`, which must be there; the old one's bytes stay in the buffer.
    pub fn set(&mut self, index: usize, text: &[u8]) {
        if let Some(place) = self.places.get_mut(index) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(text);
            *place = (start, self.bytes.len());
        }
    }
}
