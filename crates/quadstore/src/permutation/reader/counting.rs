//! How many rows each interval has, where the rows themselves are not wanted.
//!
//! Rows that are found in a group go by as their number; a group that lies within an interval as a whole is not even
//! read, since its leaf knows how many rows it has. Where graphs are left out or put together, or a delta lies over the
//! tree, rows are taken as they would be for [`RowReader::next`], and counted.

use super::{RowReader, STEP_ROWS};
use crate::error::Result;
use crate::read::{LookupCounts, QuadColumns};

/// So many rows that are counted at once are a step more.
const ROWS_A_STEP: usize = 16;

impl RowReader {
    /// Adds numbers of rows to `out`, with the indexes of their intervals, until it has `counts_max`. Returns `false`, and
    /// nothing, if there are no more.
    pub(crate) fn next_counts(
        &mut self,
        counts_max: usize,
        out: &mut LookupCounts,
    ) -> Result<bool> {
        let more = match self.counts_groups {
            true => self.count_matches(counts_max, out),
            false => self.count_rows(counts_max, out),
        };
        self.tell();
        more
    }

    fn count_matches(&mut self, counts_max: usize, out: &mut LookupCounts) -> Result<bool> {
        let mut steps = STEP_ROWS;
        let counts_at_start = out.counts.len();
        while out.counts.len() < counts_max && steps > 0 {
            let Some(found) = self.current_match()? else {
                return Ok(out.counts.len() > counts_at_start);
            };
            self.next_match += 1;
            let interval = u32::try_from(found.interval).unwrap_or(u32::MAX);
            out.add(interval, found.rows() as u64);
            // A group that goes by as a number costs a look at its leaf, and there may be millions of one key.
            steps = steps.saturating_sub(1 + found.rows() / ROWS_A_STEP);
        }
        Ok(true)
    }

    fn count_rows(&mut self, rows_max: usize, out: &mut LookupCounts) -> Result<bool> {
        let (mut rows, mut index) = (QuadColumns::default(), Vec::new());
        let more = self.next_rows(rows_max, &mut rows, Some(&mut index))?;
        out.add_rows(&index);
        Ok(more)
    }
}
