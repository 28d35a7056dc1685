//! Which values of a packed column lie in ranges, found without decoding them where the encoding allows.
//!
//! A range is carried over to the packed numbers once for each stream, and packed numbers are compared as they come out
//! of the words, sixteen at a time, so that no value is put together or written. Runs and entries of dictionaries are
//! compared once each, and a frame outside of the range is left out unread (Willhalm et al. 2009, "SIMD-scan"; Lang et
//! al. 2016, "Data Blocks").

#![expect(
    clippy::indexing_slicing,
    reason = "kernels: lengths are checked once for each stream, before its loops"
)]

use stoa_terms::IdRange;

use super::bits::{Frame, unpack};
use super::decode::{
    Bytes, Malformed, RunArrays, decode_nested, dictionary_stream, packed_stream, run_arrays,
    split_stream,
};
use super::format::{
    DICTIONARY_ENTRIES_MAX, FRAMES_MAX, GROUP_ROWS, LANES, STREAM_DEPTH_MAX, TAG_CONSTANT,
    TAG_DICTIONARY, TAG_PACKED, TAG_RUNS, TAG_SPLIT,
};

const WORDS: usize = GROUP_ROWS / 64;

/// A bit for each row of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Rows([u64; WORDS]);

impl Rows {
    const NONE: Self = Self([0; WORDS]);
    pub(crate) const ALL: Self = Self([u64::MAX; WORDS]);

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn contains(&self, row: usize) -> bool {
        self.0[row / 64] >> (row % 64) & 1 == 1
    }

    fn insert(&mut self, row: usize) {
        self.0[row / 64] |= 1 << (row % 64);
    }

    fn insert_all(&mut self, start: usize, end: usize) {
        let mut row = start;
        while row < end {
            let (word, bit) = (row / 64, row % 64);
            let count = (end - row).min(64 - bit);
            self.0[word] |= (u64::MAX >> (64 - count)) << bit;
            row += count;
        }
    }

    pub(crate) fn intersect_with(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= other;
        }
    }

    fn union_with(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// The first row from `start` on, before `end`, that is in the set.
    pub(crate) fn next(&self, start: usize, end: usize) -> Option<usize> {
        let mut row = start;
        while row < end {
            let left = self.0[row / 64] >> (row % 64);
            if left != 0 {
                let found = row + left.trailing_zeros() as usize;
                return (found < end).then_some(found);
            }
            row = (row / 64 + 1) * 64;
        }
        None
    }
}

/// The rows of a stream of `count` values, 1 to 1,024, whose values lie in one of `ranges`.
pub(crate) fn rows_within(
    stream: &[u8],
    count: usize,
    ranges: &[IdRange],
) -> Result<Rows, Malformed> {
    within_nested(stream, count, ranges, 1)
}

fn holds(ranges: &[IdRange], value: u64) -> bool {
    let mut ranges = ranges.iter();
    ranges.any(|range| (range.first.to_bits()..=range.last.to_bits()).contains(&value))
}

fn within_nested(
    stream: &[u8],
    count: usize,
    ranges: &[IdRange],
    depth: usize,
) -> Result<Rows, Malformed> {
    if depth > STREAM_DEPTH_MAX {
        return Err("streams nested too deep");
    }
    if count == 0 || count > GROUP_ROWS {
        return Err("a stream of no or too many values");
    }
    let mut bytes = Bytes(stream);
    let mut rows = Rows::NONE;
    match bytes.u8()? {
        TAG_CONSTANT => {
            if holds(ranges, bytes.u64()?) {
                rows.insert_all(0, count);
            }
        }
        TAG_PACKED => {
            let (frame, packed) = packed_stream(&mut bytes, count)?;
            let Some(largest) = frame.largest() else {
                return decoded(stream, count, ranges, depth);
            };
            for range in ranges {
                if let Some(numbers) = packed_range(range, frame, largest) {
                    rows.union_with(&numbers_within(packed, frame, count, numbers));
                }
            }
        }
        TAG_RUNS => rows = runs(&run_arrays(bytes, count, depth)?, ranges),
        TAG_DICTIONARY => {
            let codes = dictionary_stream(&mut bytes, count)?;
            let mut values = [0; DICTIONARY_ENTRIES_MAX];
            let values = &mut values[..codes.entries];
            decode_nested(codes.values, values, depth + 1)?;
            let mut wanted = [false; DICTIONARY_ENTRIES_MAX];
            for (wanted, value) in wanted.iter_mut().zip(&*values) {
                *wanted = holds(ranges, *value);
            }
            let mut numbers = [0; GROUP_ROWS];
            let numbers = &mut numbers[..count];
            unpack(codes.codes, codes.frame, numbers);
            if numbers.iter().any(|code| *code >= codes.entries as u64) {
                return Err("a code beyond its dictionary");
            }
            for (row, code) in numbers.iter().enumerate() {
                rows.0[row / 64] |= u64::from(wanted[(*code & 0xff) as usize]) << (row % 64);
            }
        }
        TAG_SPLIT => return split(bytes, count, ranges, depth),
        _ => return decoded(stream, count, ranges, depth),
    }
    Ok(rows)
}

/// By the values themselves.
fn decoded(
    stream: &[u8],
    count: usize,
    ranges: &[IdRange],
    depth: usize,
) -> Result<Rows, Malformed> {
    let mut values = [0; GROUP_ROWS];
    let values = &mut values[..count];
    decode_nested(stream, values, depth)?;
    let mut rows = Rows::NONE;
    for (row, value) in values.iter().enumerate() {
        rows.0[row / 64] |= u64::from(holds(ranges, *value)) << (row % 64);
    }
    Ok(rows)
}

/// The least and the largest packed number whose value lies in a range; `largest` is the largest of the frame's values.
fn packed_range(range: &IdRange, frame: Frame, largest: u64) -> Option<(u64, u64)> {
    let (first, last) = (range.first.to_bits(), range.last.to_bits().min(largest));
    if last < frame.base {
        return None;
    }
    let low = first.saturating_sub(frame.base);
    let step = (1 << frame.shift) - 1;
    let low = (low >> frame.shift) + u64::from(low & step != 0);
    let high = (last - frame.base) >> frame.shift;
    (low <= high).then_some((low, high))
}

fn numbers_within(packed: &[u8], frame: Frame, count: usize, (low, high): (u64, u64)) -> Rows {
    let mut rows = Rows::NONE;
    let largest = frame.number_max();
    if low == 0 && high >= largest {
        rows.insert_all(0, count);
    } else if count == GROUP_ROWS && frame.width < u64::BITS {
        block_within(packed, frame, (low, high), &mut rows);
    } else {
        let numbers = Frame {
            base: 0,
            shift: 0,
            ..frame
        };
        let mut values = [0; GROUP_ROWS];
        let values = &mut values[..count];
        unpack(packed, numbers, values);
        for (row, value) in values.iter().enumerate() {
            let is_within = (low..=high).contains(value);
            rows.0[row / 64] |= u64::from(is_within) << (row % 64);
        }
    }
    rows
}

/// As the loop that unpacks a block, but for what becomes of the numbers, which have fewer than 64 bits: both
/// differences of one within the range have no sign.
fn block_within(packed: &[u8], frame: Frame, (low, high): (u64, u64), rows: &mut Rows) {
    let width = frame.width as usize;
    let mask = frame.number_max();
    let words = &packed.as_chunks::<{ LANES * 8 }>().0[..width];
    for row in 0..GROUP_ROWS / LANES {
        let bit = row * width;
        let (word, shift) = (bit / 64, bit % 64);
        let lows = words[word].as_chunks::<8>().0;
        let highs = words[(word + 1).min(width - 1)].as_chunks::<8>().0;
        let mut within = 0;
        for lane in 0..LANES {
            let first = u64::from_le_bytes(lows[lane]) >> shift;
            let second = u64::from_le_bytes(highs[lane]) << 1 << (63 - shift);
            let number = (first | second) & mask;
            let outside = number.wrapping_sub(low) | high.wrapping_sub(number);
            within |= (!outside >> 63) << lane;
        }
        rows.0[row / 4] |= within << (row % 4 * LANES);
    }
}

fn runs(runs: &RunArrays, ranges: &[IdRange]) -> Rows {
    let mut rows = Rows::NONE;
    let mut start = 0;
    for (head, end) in runs.iter() {
        if holds(ranges, head) {
            rows.insert_all(start, end);
        }
        start = end;
    }
    rows
}

fn split(
    bytes: Bytes<'_>,
    count: usize,
    ranges: &[IdRange],
    depth: usize,
) -> Result<Rows, Malformed> {
    let split = split_stream(bytes, count)?;
    let mut of_frames = [Rows::NONE; FRAMES_MAX];
    let mut ends = [0; FRAMES_MAX];
    let streams = split.streams.iter().take(split.frames).enumerate();
    for (frame, (values, stream)) in streams {
        of_frames[frame] = within_nested(stream, *values, ranges, depth + 1)?;
        ends[frame] = *values;
    }
    let mut rows = Rows::NONE;
    let mut next = [0; FRAMES_MAX];
    for (row, selector) in split.selectors.iter().enumerate() {
        let frame = (*selector & 7) as usize;
        if next[frame] == ends[frame] {
            return Err("selectors that do not fit their frames");
        }
        if of_frames[frame].contains(next[frame]) {
            rows.insert(row);
        }
        next[frame] += 1;
    }
    Ok(rows)
}
