//! A part of a plan that cannot be split: the thread of the query reads it, and cuts what it gives into pieces for all.
//!
//! Twice as many rows are collected for each cut as for the one before it, so that the first pieces come soon and what works
//! on later ones has many rows to work on; of what is looked up next as many as may be, since each piece has the keys of a
//! range, and of what an apply takes.
//!
//! # Limits
//! The rows that are collected are reserved, twice, since pieces of those before may still wait, until all are worked off.

use stoa_terms::TermId;

use super::morsels::Morsel;
use super::parts::{Handing, Part};
use crate::batch::{Batch, Step};
use crate::context::QueryContext;
use crate::error::Result;
use crate::memory::{Memory, STEP_BYTES};
use crate::operator::{Node, position};

/// Into how many pieces for each thread rows are cut.
const PIECES_PER_THREAD: usize = 8;

/// With fewer rows a piece is not worth the operators that are built for it.
const PIECE_ROWS_MIN: usize = if cfg!(test) { 1 } else { 64 };

/// How many ids for each piece tell where pieces end.
const SAMPLED_IDS: usize = 32;

/// Up to how many rows are collected.
const COLLECTED_ROWS_MAX: usize = 64 * 1024;

/// See the module header.
pub(super) struct Handed {
    /// The number of the part.
    part: usize,
    /// That of its first operator.
    number: usize,
    node: Node,
    /// The column by whose ids rows are put into pieces.
    by: Option<usize>,
    pieces_per_thread: usize,
    collected: Batch,
    /// How many rows are collected next.
    wanted: usize,
    is_done: bool,
    memory: Memory,
}

impl Handed {
    /// For a part with this place among all, which `node` gives.
    pub(super) fn new(
        place: usize,
        part: Part<'_>,
        handing: Handing,
        node: Node,
        context: &QueryContext,
    ) -> Self {
        let by = handing.by;
        Self {
            part: place,
            number: part.number,
            by: by.and_then(|variable| position(&part.plan.columns, variable)),
            collected: Batch::default(),
            node,
            wanted: match by.is_some() || handing.below_apply {
                true => COLLECTED_ROWS_MAX,
                false => context.batch_rows(),
            },
            pieces_per_thread: match handing.below_apply {
                true => 1,
                false => PIECES_PER_THREAD,
            },
            is_done: false,
            memory: context.memory("gather"),
        }
    }

    /// The part as it is, with the number of its first operator.
    pub(super) fn into_node(self) -> (usize, Node) {
        (self.number, self.node)
    }

    /// Whether all of it was given.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Reads some of the part; gives pieces for so many threads if enough was collected.
    pub(super) fn advance(
        &mut self,
        threads: usize,
        context: &QueryContext,
    ) -> Result<Vec<Morsel>> {
        match self.node.next(context)? {
            Step::Batch(batch) if self.collected.is_empty() => self.collected = batch,
            Step::Batch(batch) => {
                let bytes = self.collected.bytes() + batch.bytes();
                self.memory.require(2 * bytes)?;
                self.collected.append(&batch);
            }
            Step::Yield => return Ok(Vec::new()),
            Step::Done => self.is_done = true,
        }
        let is_enough = self.is_done || self.collected.rows >= self.wanted;
        Ok(match is_enough || !self.may_grow(context) {
            true => self.cut(threads),
            false => Vec::new(),
        })
    }

    /// Whether there is room for another batch beside what was collected.
    fn may_grow(&mut self, context: &QueryContext) -> bool {
        let batch = self.collected.columns.len() * context.batch_rows() * size_of::<TermId>();
        let bytes = self.collected.bytes() + batch as u64;
        bytes < STEP_BYTES || self.memory.try_require(2 * bytes)
    }

    /// What was collected, in pieces.
    fn cut(&mut self, threads: usize) -> Vec<Morsel> {
        let rows = std::mem::take(&mut self.collected);
        if rows.is_empty() {
            return Vec::new();
        }
        self.wanted = (2 * self.wanted).min(COLLECTED_ROWS_MAX);
        let most = rows.rows.div_ceil(PIECE_ROWS_MIN);
        let count = (self.pieces_per_thread * threads).min(most);
        let pieces = match self.by {
            Some(by) => by_ids(&rows, by, count),
            None => in_order(&rows, count),
        };
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        let morsel = |piece| Morsel::Rows(self.part, piece);
        pieces.map(morsel).collect()
    }
}

/// Rows in about so many pieces, as they come.
fn in_order(rows: &Batch, pieces: usize) -> Vec<Batch> {
    let size = rows.rows.div_ceil(pieces.max(1)).max(1);
    let starts = (0..rows.rows).step_by(size);
    let piece = |start: usize| {
        let mut piece = Batch::with_columns(rows.columns.len());
        piece.append_range(rows, start, rows.rows.min(start + size));
        piece
    };
    starts.map(piece).collect()
}

/// Rows in so many pieces, each with the ids of a range, of about one size as far as a sample tells.
fn by_ids(rows: &Batch, column: usize, pieces: usize) -> Vec<Batch> {
    let ids = rows.column(column);
    let step = (ids.len() / (SAMPLED_IDS * pieces.max(1))).max(1);
    let mut sample: Vec<TermId> = ids.iter().step_by(step).copied().collect();
    sample.sort_unstable();
    // The first id of each piece but the first one.
    let bounds = (1..pieces).filter_map(|piece| sample.get(piece * sample.len() / pieces));
    let bounds: Vec<TermId> = bounds.copied().collect();
    let mut places = vec![Vec::new(); pieces];
    for (row, id) in (0_u32..).zip(ids) {
        let piece = bounds.partition_point(|bound| bound <= id);
        if let Some(places) = places.get_mut(piece) {
            places.push(row);
        }
    }
    places.iter().map(|rows_of| rows.gather(rows_of)).collect()
}
