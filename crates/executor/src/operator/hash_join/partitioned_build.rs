//! The table of a large right side, made by several threads: a table for each partition of the hashes.
//!
//! ```text
//! scatter   some rows -> their hashes and numbers, by partition    a piece for each so many rows, and for each key filter
//! link      the rows of a partition, of all pieces -> a table      a piece for each partition
//! ```
//!
//! The rows stay where they are; what is scattered are their numbers. A partition is so small that the slots of its table stay
//! in the cache while it is made, which one table of all rows does not.
//!
//! # Concurrency
//! Pieces are done by whoever runs the query and by helpers (`parallel::InOrder`); none waits for another one's lock.
//!
//! # Limits
//! What it takes is reserved before; where there is no room one thread makes one table, as of few rows. Cancellation is
//! checked at each piece, and every 65,536 rows within.
//!
//! # References
//! Kim and others: Sort vs. Hash Revisited: Fast Join Implementation on Modern Multi-Core CPUs, VLDB 2009. Balkesen,
//! Teubner, Alonso, Oezsu: Main-Memory Hash Joins on Multi-Core CPUs, ICDE 2013.

use std::ops::Range;
use std::sync::Arc;

use stoa_terms::TermId;

use super::super::key_filter::Wanted;
use super::super::parallel::{InOrder, Turn, threads};
use super::build_side::BuildSide;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::profile::Counters;
use crate::table::{JoinTable, JoinTables, Scattered, hash_columns};

/// How many rows a partition has at most, while there are not too many: their slots take 256 KB.
const PARTITION_ROWS: usize = 32 * 1024;

/// However many rows there are: what is written to at once stays in the cache.
const PARTITIONS_MAX: usize = 1024;

/// Partitions, and pieces of rows, for each thread at least: some take longer than others.
const PIECES_PER_THREAD: usize = 8;

/// How many rows are scattered in one go at most, which takes less than a millisecond.
const PIECE_ROWS_MAX: usize = 64 * 1024;

/// See the module header.
pub(super) struct PartitionedBuild {
    source: Arc<Source>,
    helpers: usize,
    stage: Stage,
}

/// What the table is made of.
struct Source {
    side: Arc<BuildSide>,
    /// The columns of the key, the compatible variables that all rows bind among them.
    key: Vec<usize>,
    shared: u64,
    /// Filters that are to be made of the keys.
    wanted: Vec<Wanted>,
    piece_rows: usize,
    /// The logarithm of the number of partitions.
    bits: u32,
}

enum Stage {
    /// Filters give nothing.
    Scattering(InOrder<Option<Scattered>>, Vec<Scattered>),
    Linking(InOrder<JoinTable>, Vec<JoinTable>),
}

impl PartitionedBuild {
    /// Begins with a right side that is complete, whose keys and compatible variables stand in these columns; `None`, and
    /// nothing is taken of `wanted`, if it is better made by one thread, or there is no room.
    pub(super) fn new(
        side: &Arc<BuildSide>,
        (keys, compatible): (&[usize], &[usize]),
        wanted: &mut Vec<Wanted>,
        context: &QueryContext,
    ) -> Option<Self> {
        // Left rows bind the same as a rule.
        let shared = side.bound_by_all()?;
        let bound = compatible.iter().enumerate();
        let bound = bound.filter(|(index, _)| shared & (1 << index) != 0);
        let key: Vec<usize> = keys
            .iter()
            .chain(bound.map(|(_, column)| column))
            .copied()
            .collect();
        let is_better_whole = match key.as_slice() {
            [] => true,
            // One table of bits, which is smaller than any of hashes.
            [column] => JoinTable::is_dense(side.column(*column)),
            _ => false,
        };
        if is_better_whole {
            return None;
        }
        let rows = side.rows().rows;
        let least = PIECES_PER_THREAD * threads(context);
        let partitions = (rows / PARTITION_ROWS).max(least).min(PARTITIONS_MAX);
        let bits = partitions.next_power_of_two().ilog2();
        let piece_rows = rows.div_ceil(least).clamp(1, PIECE_ROWS_MAX);
        let pieces = rows.div_ceil(piece_rows);
        // Each thread has hashes of a piece that are not scattered yet.
        let hashes = threads(context) * piece_rows * size_of::<u64>();
        let bytes = JoinTables::bytes_to_build(rows, pieces, bits) + hashes as u64;
        if !side.has_room(bytes) {
            return None;
        }
        let source = Arc::new(Source {
            side: Arc::clone(side),
            key,
            shared,
            wanted: std::mem::take(wanted),
            piece_rows,
            bits,
        });
        let own = Arc::clone(&source);
        let pieces = pieces + source.wanted.len();
        let helpers = threads(context) - 1;
        let work = InOrder::new(pieces, helpers, pieces, move |piece, context| {
            own.scatter(piece, context)
        });
        Some(Self {
            source,
            helpers,
            stage: Stage::Scattering(work, Vec::with_capacity(pieces)),
        })
    }

    /// Does some work; gives the right side when it has its table.
    pub(super) fn advance(
        &mut self,
        context: &QueryContext,
        counters: &Counters,
    ) -> Result<Option<Arc<BuildSide>>> {
        match &mut self.stage {
            Stage::Scattering(work, pieces) => match work.next(context)? {
                Turn::Given(piece) => pieces.extend(piece),
                Turn::Working => (),
                Turn::Done => {
                    let pieces = std::mem::take(pieces);
                    let source = Arc::clone(&self.source);
                    let partitions = 1 << source.bits;
                    let work = move |partition: usize, context: &QueryContext| {
                        source.link(&pieces, partition, context)
                    };
                    let work = InOrder::new(partitions, self.helpers, partitions, work);
                    self.stage = Stage::Linking(work, Vec::with_capacity(partitions));
                }
            },
            Stage::Linking(work, tables) => match work.next(context)? {
                Turn::Given(table) => tables.push(table),
                Turn::Working => (),
                Turn::Done => {
                    let Source {
                        side, shared, bits, ..
                    } = &*self.source;
                    counters.add_partitions(tables.len());
                    let tables = std::mem::take(tables);
                    side.put(*shared, JoinTables::of_partitions(tables, *bits));
                    return Ok(Some(Arc::clone(side)));
                }
            },
        }
        Ok(None)
    }
}

impl Source {
    /// Makes a filter, or scatters some rows. Filters come first, since they take longest.
    fn scatter(&self, piece: usize, context: &QueryContext) -> Result<Option<Scattered>> {
        context.check()?;
        if let Some(wanted) = self.wanted.get(piece) {
            wanted.make(self.side.rows(), context)?;
            return Ok(None);
        }
        let first = (piece - self.wanted.len()) * self.piece_rows;
        let end = self.side.rows().rows.min(first + self.piece_rows);
        let mut hashes = Vec::new();
        hash_columns(&self.key(first..end), end - first, &mut hashes);
        let first = u32::try_from(first)
            .map_err(|_| Error::Internal("a right side of more than 2^32 rows"))?;
        Ok(Some(Scattered::new(first, &hashes, self.bits)))
    }

    /// Makes the table of a partition.
    fn link(
        &self,
        pieces: &[Scattered],
        partition: usize,
        context: &QueryContext,
    ) -> Result<JoinTable> {
        let key = self.key(0..self.side.rows().rows);
        JoinTable::of_partition(&key, pieces, partition, || context.check())
    }

    /// The columns of the key in these rows.
    fn key(&self, rows: Range<usize>) -> Vec<&[TermId]> {
        let columns = self.key.iter();
        let columns = columns.filter_map(|column| self.side.column(*column).get(rows.clone()));
        columns.collect()
    }
}
