//! Who sorts: whoever runs the query, and helpers where it is much.

use crate::context::QueryContext;

/// Pieces for each thread: some take longer than others.
const PIECES_PER_THREAD: usize = 8;

/// How many rows are done in one go at most, some milliseconds.
pub(super) const PIECE_ROWS: usize = 32 * 1024;

/// How many are done in one go at least.
const PIECE_ROWS_MIN: usize = 8;

/// See the module header.
#[derive(Clone, Copy)]
pub(super) struct Team {
    helpers: usize,
    /// What is fewer is not shared.
    rows_min: u64,
}

impl Team {
    /// Those that may sort what the query has. What begins where a thread must not block goes on elsewhere, so whether
    /// helpers may be asked is seen each time (`InOrder`).
    pub(super) fn new(context: &QueryContext) -> Self {
        let settings = context.settings();
        let helpers = settings.helpers.as_ref();
        Self {
            helpers: helpers.map_or(0, |helpers| helpers.threads()),
            rows_min: settings.parallel_rows_min,
        }
    }

    /// One alone.
    pub(super) const ALONE: Self = Self {
        helpers: 0,
        rows_min: u64::MAX,
    };

    /// How many helpers there are for so many rows.
    pub(super) const fn helpers(self, rows: usize) -> usize {
        match rows as u64 >= self.rows_min {
            true => self.helpers,
            false => 0,
        }
    }

    /// How many of so many rows are done in one go.
    pub(super) fn piece(self, rows: usize) -> usize {
        match self.helpers(rows) {
            0 => PIECE_ROWS,
            helpers => {
                let pieces = PIECES_PER_THREAD * (1 + helpers);
                rows.div_ceil(pieces).clamp(PIECE_ROWS_MIN, PIECE_ROWS)
            }
        }
    }

    /// How many parts of so many rows are begun ahead of the one that is taken next, that one included.
    pub(super) const fn ahead(self, rows: usize) -> usize {
        1 + 2 * self.helpers(rows)
    }
}
