//! Rows of many keys in one group, by one pass over keys and rows.

#![expect(
    clippy::indexing_slicing,
    reason = "rows are counted by the group; columns by the key's depth, which is at most four"
)]

use stoa_terms::TermId;

use super::{Column, Even, Group, gallop, is_uneven};
use crate::error::Result;
use crate::segment::Row;

/// So many keys in a group, or fewer, are looked for one by one, since that decodes a few values only; of uneven
/// differences all are unpacked each time.
const KEYS_FEW: usize = 4;

/// Rows of a group that an interval holds; at least one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Match {
    pub(crate) interval: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Match {
    /// How many rows they are.
    pub(crate) const fn rows(&self) -> usize {
        self.end - self.start
    }
}

impl Group {
    /// Finds the rows whose first `depth` columns (1 to 4) are one of `keys`, which ascend; one may come several
    /// times. The first of them is interval `first`. Appends what it finds to `matches`, in the order of the keys.
    pub(crate) fn match_keys(
        &mut self,
        depth: usize,
        keys: &[Row],
        first: usize,
        matches: &mut Vec<Match>,
    ) -> Result<()> {
        let Some(place) = self.varying(depth, keys) else {
            return self.match_each(depth, keys, first, matches);
        };
        if !matches!(self.columns[place], Column::Constant(_)) {
            self.open(place)?;
        }
        if let Some(even) = self.even(place)? {
            return self.match_in_even(&even, place, keys, first, matches);
        }
        let rows = self.rows;
        let keys = keys.iter().map(|key| key[place]).zip(first..);
        match &self.columns[place] {
            Column::Constant(value) => {
                let equal = keys.filter(|(key, _)| *key == value.to_bits());
                matches.extend(equal.map(|(_, interval)| Match {
                    interval,
                    start: 0,
                    end: rows,
                }));
            }
            Column::Runs(runs) => {
                let mut from = 0;
                for (key, interval) in keys {
                    from += gallop(&runs.heads[from..], |head| *head < key);
                    let until = from + gallop(&runs.heads[from..], |head| *head <= key);
                    if until > from {
                        matches.push(Match {
                            interval,
                            start: from.checked_sub(1).map_or(0, |before| runs.end(before)),
                            end: runs.end(until - 1),
                        });
                    }
                }
            }
            Column::Packed | Column::Decoded(_) => {
                let values = self.column(place)?;
                let mut from = 0;
                for (key, interval) in keys {
                    from += gallop(&values[from..], |value| *value < key);
                    let end = from + gallop(&values[from..], |value| *value <= key);
                    if end > from {
                        matches.push(Match {
                            interval,
                            start: from,
                            end,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the rows that are of an interval: those whose first columns are neither below `low` nor above `high`, 1 to 4
    /// of them; without a bound all on its side.
    pub(crate) fn match_between(
        &mut self,
        low: Option<&[TermId]>,
        high: Option<&[TermId]>,
        interval: usize,
        out: &mut Vec<Match>,
    ) -> Result<()> {
        let start = match low {
            Some(low) => self.search(low, false, 0, self.rows)?,
            None => 0,
        };
        let end = match high {
            Some(high) => self.search(high, true, start, self.rows)?,
            None => self.rows,
        };
        if start < end {
            out.push(Match {
                interval,
                start,
                end,
            });
        }
        Ok(())
    }

    /// As [`Self::match_keys`] in a column of equal differences, where each row is found by a division.
    fn match_in_even(
        &mut self,
        even: &Even,
        place: usize,
        keys: &[Row],
        first: usize,
        matches: &mut Vec<Match>,
    ) -> Result<()> {
        let mut from = 0;
        for (key, interval) in keys.iter().zip(first..) {
            if from == self.rows {
                break;
            }
            let wanted = key[place];
            let (start, end) = match even.equal(from, self.rows, wanted) {
                Some(rows) => rows,
                None => self.equal(place, TermId::from_bits(wanted), from, self.rows)?,
            };
            // The same key may come again.
            from = start;
            if start < end {
                matches.push(Match {
                    interval,
                    start,
                    end,
                });
            }
        }
        Ok(())
    }

    /// The last column of the keys, if they are many and agree with each other and all rows in those before it.
    fn varying(&self, depth: usize, keys: &[Row]) -> Option<usize> {
        let (Some(least), Some(most)) = (keys.first(), keys.last()) else {
            return None;
        };
        let place = depth.checked_sub(1)?;
        let agree = |place: usize| {
            let constant = self.constant(place).map(TermId::to_bits);
            least[place] == most[place] && constant == Some(least[place])
        };
        let few = match is_uneven(self.stream(place)) {
            true => 1,
            false => KEYS_FEW,
        };
        (keys.len() > few && (0..place).all(agree)).then_some(place)
    }

    fn match_each(
        &mut self,
        depth: usize,
        keys: &[Row],
        first: usize,
        matches: &mut Vec<Match>,
    ) -> Result<()> {
        let (mut from, mut last): (usize, Option<(&Row, usize, usize)>) = (0, None);
        for (key, interval) in keys.iter().zip(first..) {
            let (start, end) = match last {
                Some((known, start, end)) if known == key => (start, end),
                _ => self.equal_rows(&key.map(TermId::from_bits)[..depth], from, self.rows)?,
            };
            (from, last) = (end, Some((key, start, end)));
            if start < end {
                matches.push(Match {
                    interval,
                    start,
                    end,
                });
            }
        }
        Ok(())
    }

    /// Appends the values of the rows of `matches`, which are `rows` together.
    pub(crate) fn copy_matches(
        &mut self,
        place: usize,
        matches: &[Match],
        rows: usize,
        out: &mut Vec<TermId>,
    ) -> Result<()> {
        if let Some(value) = self.constant(place) {
            out.resize(out.len() + rows, value);
            return Ok(());
        }
        if matches.len() <= KEYS_FEW {
            for found in matches {
                self.copy(place, found.start, found.end, out)?;
            }
            return Ok(());
        }
        let values = self.column(place)?;
        if rows == matches.len() {
            let values = matches.iter().map(|found| values[found.start]);
            out.extend(values.map(TermId::from_bits));
            return Ok(());
        }
        out.reserve(rows);
        for found in matches {
            let values = values[found.start..found.end].iter();
            out.extend(values.map(|bits| TermId::from_bits(*bits)));
        }
        Ok(())
    }
}
