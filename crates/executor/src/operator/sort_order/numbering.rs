//! Numbers for the distinct ids of a column, given by several threads.
//!
//! Ids are scattered by their hash, piece by piece; each part of the hashes numbers its own in the order of the rows;
//! then rows take their numbers, piece by piece again.
//!
//! # Limits
//! [`NUMBERED_BYTES`] a row.

use std::ops::Range;
use std::sync::Arc;

use stoa_terms::TermId;

use super::team::Team;
use crate::context::QueryContext;
use crate::error::Result;
use crate::operator::parallel::{InOrder, Turn};
use crate::operator::row_store::RowStore;
use crate::table::{GroupTable, hash_columns, partition};

/// The id, its number in its part, the number of the row, and where all differ its place in a table that has just grown.
pub(super) const NUMBERED_BYTES: usize = 8 + 4 + 4 + 64;

/// Parts for each thread.
const PARTS_PER_THREAD: usize = 4;

/// However many threads there are.
const PARTS_MAX: usize = 64;

/// A column of rows.
pub(super) type Column = (Arc<RowStore>, usize);

/// The distinct ids by number, and the number of each row.
type Numbered = (Vec<TermId>, Vec<u32>);

/// See the module header.
pub(super) struct Numbering {
    column: Column,
    /// How many rows a piece has.
    piece: usize,
    /// The logarithm of the number of parts.
    bits: u32,
    helpers: usize,
    stage: Stage,
}

enum Stage {
    Scatter(InOrder<Parts>, Vec<Parts>),
    Insert(InOrder<Inserted>, Vec<Inserted>),
    Number(InOrder<Vec<u32>>, Numbered),
}

/// The ids of a piece by part, in the order of their rows.
type Parts = Vec<Vec<TermId>>;

/// What one part has numbered.
struct Inserted {
    ids: Vec<TermId>,
    /// By piece, in the order of the rows.
    numbers: Vec<Vec<u32>>,
}

impl Numbering {
    pub(super) fn new(column: Column, team: Team) -> Self {
        let rows = column.0.len();
        let (helpers, piece) = (team.helpers(rows), team.piece(rows));
        let parts = PARTS_PER_THREAD * (1 + helpers);
        let bits = parts.min(PARTS_MAX).next_power_of_two().ilog2();
        let of = (Arc::clone(&column.0), column.1);
        let pieces = rows.div_ceil(piece);
        let scatter = InOrder::new(pieces, helpers, pieces, move |number, _| {
            let ids = piece_of(&of, number, piece);
            let mut parts = vec![Vec::new(); 1 << bits];
            for (id, part) in ids.iter().zip(parts_of(ids, bits)) {
                if let Some(part) = parts.get_mut(part) {
                    part.push(*id);
                }
            }
            Ok(parts)
        });
        Self {
            column,
            piece,
            bits,
            helpers,
            stage: Stage::Scatter(scatter, Vec::with_capacity(pieces)),
        }
    }

    /// Goes on for a while; what came of it once that is done.
    pub(super) fn step(&mut self, context: &QueryContext) -> Result<Option<Numbered>> {
        match &mut self.stage {
            Stage::Scatter(pieces, done) => match pieces.next(context)? {
                Turn::Given(parts) => done.push(parts),
                Turn::Working => (),
                Turn::Done => {
                    let scattered = std::mem::take(done);
                    self.stage = Stage::Insert(self.insert(scattered), Vec::new());
                }
            },
            Stage::Insert(parts, done) => match parts.next(context)? {
                Turn::Given(inserted) => done.push(inserted),
                Turn::Working => (),
                Turn::Done => {
                    let inserted = std::mem::take(done);
                    self.stage = self.number(inserted);
                }
            },
            Stage::Number(pieces, (ids, numbers)) => match pieces.next(context)? {
                Turn::Given(some) => numbers.extend(some),
                Turn::Working => (),
                Turn::Done => {
                    let (ids, numbers) = (std::mem::take(ids), std::mem::take(numbers));
                    return Ok(Some((ids, numbers)));
                }
            },
        }
        Ok(None)
    }

    fn insert(&self, scattered: Vec<Parts>) -> InOrder<Inserted> {
        let parts = 1 << self.bits;
        InOrder::new(parts, self.helpers, parts, move |part, context| {
            let mut table = GroupTable::new(1);
            let mut numbers = Vec::with_capacity(scattered.len());
            for piece in &scattered {
                context.check()?;
                let ids = piece.get(part).map_or(&[][..], Vec::as_slice);
                let mut some = Vec::new();
                table.insert(&[ids], ids.len(), &mut some)?;
                numbers.push(some);
            }
            let ids = table.key_column(0, 0..table.len());
            Ok(Inserted { ids, numbers })
        })
    }

    fn number(&self, inserted: Vec<Inserted>) -> Stage {
        // Numbers of a part go on where those of the one before end.
        let (mut ids, mut firsts) = (Vec::new(), Vec::with_capacity(inserted.len()));
        let mut numbers = Vec::with_capacity(inserted.len());
        for part in inserted {
            firsts.push(u32::try_from(ids.len()).unwrap_or(u32::MAX));
            ids.extend(part.ids);
            numbers.push(part.numbers);
        }
        let (column, piece, bits) = (
            (Arc::clone(&self.column.0), self.column.1),
            self.piece,
            self.bits,
        );
        let pieces = column.0.len().div_ceil(piece);
        let all = Vec::with_capacity(column.0.len());
        let work = InOrder::new(pieces, self.helpers, pieces, move |number, _| {
            let of_part = |part: &Vec<Vec<u32>>| part.get(number).cloned().unwrap_or_default();
            let mut parts: Vec<_> = numbers
                .iter()
                .map(|part| of_part(part).into_iter())
                .collect();
            let rows = piece_of(&column, number, piece);
            let numbers = parts_of(rows, bits).map(|part| {
                let next = parts.get_mut(part).and_then(Iterator::next);
                next.unwrap_or(0) + firsts.get(part).copied().unwrap_or(0)
            });
            Ok(numbers.collect())
        });
        Stage::Number(work, (ids, all))
    }
}

/// The ids of a piece.
fn piece_of((rows, column): &Column, number: usize, piece: usize) -> &[TermId] {
    let ids = rows.rows().column(*column);
    let range: Range<usize> = number * piece..ids.len().min((number + 1) * piece);
    ids.get(range).unwrap_or_default()
}

/// The part of each id.
fn parts_of(ids: &[TermId], bits: u32) -> impl Iterator<Item = usize> {
    let mut hashes = Vec::new();
    hash_columns(&[ids], ids.len(), &mut hashes);
    hashes.into_iter().map(move |hash| partition(hash, bits))
}
