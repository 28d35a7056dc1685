//! Streams of differences, searched without decoding all of their values.
//!
//! What stands at rising places of a sort order is looked for in ascending columns, few values at a time. Where all
//! differences are equal, as those of subjects that all have a predicate, a value is a product away. Else differences are
//! added up many at a time, up to the value that is wanted; of several values in one group all are decoded.

#![expect(
    clippy::indexing_slicing,
    reason = "a kernel: rows lie below the end that the caller gives, for which there are as many differences"
)]

use super::bits::{Frame, get, unpack};
use super::decode::{Bytes, Malformed, frame};
use super::format::{DELTA_HEADER_BYTES, GROUP_ROWS, RESTART_BYTES, TAG_DELTA};
use super::scratch::Scratch;

/// So many differences are added up at once.
const STEP: usize = 32;

/// Values are decoded alone if so many differences or fewer are unpacked for that, one by one.
const ALONE_MAX: usize = 96;

/// The parts of a stream of differences.
pub(super) struct Delta<'a> {
    /// Its base is the smallest difference.
    pub(super) frame: Frame,
    first: u64,
    restarts: &'a [[u8; RESTART_BYTES]],
    pub(super) packed: &'a [u8],
}

/// Rows whose differences add up, from one restart to the next.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) start: usize,
    /// The value of the first row.
    pub(super) first: u64,
    /// Behind the last row.
    pub(super) end: usize,
}

impl<'a> Delta<'a> {
    /// The stream of `count` values whose bytes stand behind its tag.
    pub(super) fn new(mut bytes: Bytes<'a>, count: usize) -> Result<Self, Malformed> {
        let (width, shift, restarts) = (bytes.u8()?, bytes.u8()?, usize::from(bytes.u8()?));
        let first = bytes.u64()?;
        let frame = frame(bytes.u64()?, shift, width)?;
        let restarts = bytes.take(restarts * RESTART_BYTES)?;
        Ok(Self {
            frame,
            first,
            restarts: restarts.as_chunks().0,
            packed: bytes.packed(count, frame.width)?,
        })
    }

    /// All rows in their order; an error in place of a segment that does not follow the one before.
    pub(super) fn segments(&self, count: usize) -> Segments<'a> {
        Segments {
            restarts: self.restarts,
            next: Some((0, self.first)),
            count,
        }
    }

    /// The value of one of `count` rows, if all differences are equal.
    pub(super) fn value(&self, count: usize, row: usize) -> Result<Option<u64>, Malformed> {
        if self.frame.width > 0 {
            return Ok(None);
        }
        for segment in self.segments(count) {
            let segment = segment?;
            if row < segment.end {
                let steps = row.saturating_sub(segment.start) as u64;
                let above = self.frame.base.wrapping_mul(steps);
                return Ok(Some(segment.first.wrapping_add(above)));
            }
        }
        Ok(None)
    }
}

impl Delta<'_> {
    /// Fills `out` with the values of `count` rows from row `start` on; `false` if that takes many differences.
    pub(super) fn range(
        &self,
        count: usize,
        start: usize,
        out: &mut [u64],
    ) -> Result<bool, Malformed> {
        let end = start + out.len();
        let mut filled = 0;
        for segment in self.segments(count) {
            let segment = segment?;
            if segment.end <= start {
                continue;
            }
            if segment.start >= end {
                break;
            }
            let from = segment.start.max(start);
            if from - segment.start + out.len() > ALONE_MAX {
                return Ok(false);
            }
            let mut value = segment.first;
            for row in segment.start..segment.end.min(end) {
                if row > segment.start {
                    let difference = get(self.packed, self.frame, count, row);
                    value = value.wrapping_add(difference);
                }
                if row >= from {
                    out[filled] = value;
                    filled += 1;
                }
            }
        }
        Ok(filled == out.len())
    }
}

/// See [`Delta::segments`].
pub(super) struct Segments<'a> {
    restarts: &'a [[u8; RESTART_BYTES]],
    /// Where the next one begins, and its first value.
    next: Option<(usize, u64)>,
    count: usize,
}

impl Iterator for Segments<'_> {
    type Item = Result<Segment, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (start, first) = self.next.take()?;
        let mut end = self.count;
        if let Some((restart, rest)) = self.restarts.split_first() {
            self.restarts = rest;
            let mut restart = Bytes(restart);
            match (restart.u16(), restart.u64()) {
                (Ok(at), Ok(value)) if start < at && at < self.count => {
                    end = at;
                    self.next = Some((at, value));
                }
                _ => return Some(Err("restarts out of order")),
            }
        }
        Some(Ok(Segment { start, first, end }))
    }
}

/// Whether a stream is one of differences that are not all equal.
pub(super) fn is_uneven(stream: &[u8]) -> bool {
    matches!(stream, [TAG_DELTA, width, ..] if *width > 0)
}

/// A stream of differences that are all equal, with few restarts: a value's row is a division away.
pub(super) struct Even {
    step: u64,
    segments: [Segment; SEGMENTS_MAX],
    count: usize,
}

/// Of streams with more segments each would be looked through for a value.
const SEGMENTS_MAX: usize = 8;

impl Even {
    /// The stream of `count` values, if it is such a one and no value comes twice within a segment.
    pub(super) fn new(stream: &[u8], count: usize) -> Result<Option<Self>, Malformed> {
        let Some(rest) = stream.strip_prefix(&[TAG_DELTA, 0]) else {
            return Ok(None);
        };
        let is_small = matches!(rest, [_, restarts, ..] if usize::from(*restarts) < SEGMENTS_MAX);
        if !is_small {
            return Ok(None);
        }
        let delta = Delta::new(Bytes(&stream[1..]), count)?;
        let none = Segment {
            start: 0,
            first: 0,
            end: 0,
        };
        let mut even = Self {
            step: delta.frame.base,
            segments: [none; SEGMENTS_MAX],
            count: 0,
        };
        for segment in delta.segments(count) {
            even.segments[even.count] = segment?;
            even.count += 1;
        }
        Ok((even.step > 0).then_some(even))
    }

    /// The rows between `start` and `end`, where the values ascend, that hold `wanted`, or twice the row before which they
    /// would stand; `None` where a segment may repeat the last value of the one before.
    pub(super) fn equal(&self, start: usize, end: usize, wanted: u64) -> Option<(usize, usize)> {
        let mut segments = self.segments[..self.count].iter();
        while let Some(segment) = segments.next() {
            if segment.end <= start {
                continue;
            }
            let (from, until) = (segment.start.max(start), segment.end.min(end));
            let value = |row: usize| {
                let steps = (row - segment.start) as u64;
                segment.first.wrapping_add(self.step.wrapping_mul(steps))
            };
            if wanted > value(until - 1) {
                if until == end {
                    return Some((end, end));
                }
                continue;
            }
            let Some(above) = wanted.checked_sub(value(from)) else {
                return Some((from, from));
            };
            let steps = usize::try_from(above / self.step).unwrap_or(usize::MAX);
            let row = from + steps.min(until - 1 - from);
            if above % self.step > 0 {
                return Some((row + 1, row + 1));
            }
            let next = segments.next();
            let repeats = row + 1 == until && next.is_some_and(|next| next.first == wanted);
            return (!repeats).then_some((row, row + 1));
        }
        None
    }
}

/// The rows between `start` and `end` of a stream of `count` differences, where the values ascend, that hold `wanted`,
/// or twice the row before which they would stand.
pub(super) fn equal_in_delta(
    stream: &[u8],
    count: usize,
    (start, end): (usize, usize),
    wanted: u64,
) -> Result<(usize, usize), Malformed> {
    let (_, rest) = stream.split_at_checked(1).ok_or("an empty stream")?;
    if count > GROUP_ROWS || end > count || start >= end {
        return Err("a stream of too few or too many values");
    }
    let delta = Delta::new(Bytes(rest), count)?;
    let mut differences = Scratch::new(count);
    unpack(delta.packed, delta.frame, &mut differences);
    let mut cursor = Cursor::new(&delta, count, start, &differences)?;
    let least = cursor.skip_below(wanted, end)?;
    let most = match wanted.checked_add(1) {
        Some(above) => cursor.skip_below(above, end)?,
        None => end,
    };
    Ok((least, most))
}

/// A row and its value.
struct Cursor<'a> {
    segments: Segments<'a>,
    differences: &'a [u64],
    row: usize,
    value: u64,
    /// The end of the row's segment.
    until: usize,
}

impl<'a> Cursor<'a> {
    fn new(
        delta: &Delta<'a>,
        count: usize,
        row: usize,
        differences: &'a [u64],
    ) -> Result<Self, Malformed> {
        let mut segments = delta.segments(count);
        loop {
            let segment = segments.next().ok_or("restarts out of order")??;
            if row < segment.end {
                let before = &differences[segment.start + 1..=row.max(segment.start)];
                return Ok(Self {
                    segments,
                    differences,
                    row,
                    value: segment.first.wrapping_add(total(before)),
                    until: segment.end,
                });
            }
        }
    }

    /// Goes to the first row from here on whose value is not below `wanted`, or to `end`.
    fn skip_below(&mut self, wanted: u64, end: usize) -> Result<usize, Malformed> {
        while self.row < end && self.value < wanted {
            let until = self.until.min(end);
            while self.row + STEP < until {
                let above = total(&self.differences[self.row + 1..=self.row + STEP]);
                let value = self.value.wrapping_add(above);
                if value >= wanted {
                    break;
                }
                (self.row, self.value) = (self.row + STEP, value);
            }
            self.row += 1;
            while self.row < until {
                self.value = self.value.wrapping_add(self.differences[self.row]);
                if self.value >= wanted {
                    return Ok(self.row);
                }
                self.row += 1;
            }
            if self.row == self.until
                && let Some(segment) = self.segments.next()
            {
                let segment = segment?;
                (self.value, self.until) = (segment.first, segment.end);
            }
        }
        Ok(self.row.min(end))
    }
}

fn total(differences: &[u64]) -> u64 {
    let sum = |sum: u64, difference: &u64| sum.wrapping_add(*difference);
    differences.iter().fold(0, sum)
}

const _: () = assert!(DELTA_HEADER_BYTES == 1 + 1 + 1 + 1 + 8 + 8);
