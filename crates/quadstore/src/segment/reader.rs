//! Reads headers and groups of segments.
//!
//! Both are parts that storage has verified; what stands in them is checked once more as it is used,
//! so that no bytes whatever lead to a panic.
//!
//! # Format
//! docs/format.md#segments

#![expect(
    clippy::indexing_slicing,
    reason = "lengths are checked when a header or group is opened; groups are counted from it"
)]

use std::cmp::Ordering;

use stoa_storage::{Part, PartRef, Store};
use stoa_terms::{IdRange, TermId};

mod matching;

pub(crate) use matching::Match;

use super::Row;
use super::decode::{RunArrays, constant, decode, decode_one, decode_range, decode_runs};
use super::delta::{Even, equal_in_delta, is_uneven};
use super::format::{
    GROUP_ENTRY_BYTES, GROUP_ENTRY_CRC, GROUP_ENTRY_KEY, GROUP_ENTRY_LENGTH, GROUP_ENTRY_OFFSET,
    GROUP_HEADER_BYTES, GROUP_ROWS, HEADER_BYTES, HEADER_ROWS, SEGMENT_MAGIC, SEGMENT_ROWS,
};
use super::scratch::Scratch;
use super::within::{Rows, rows_within};
use crate::error::{Error, Result};

/// The header of a segment.
#[derive(Clone)]
pub(crate) struct Header {
    part: Part,
    rows: usize,
}

impl Header {
    /// The header in `part`.
    pub(crate) fn new(part: Part) -> Result<Self> {
        let number = |at: usize| {
            let bytes = part.get(at..at + 4)?;
            Some(u32::from_le_bytes(*bytes.first_chunk()?))
        };
        let rows =
            number(HEADER_ROWS).map_or(0, |rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let sound = number(0) == Some(SEGMENT_MAGIC)
            && (1..=SEGMENT_ROWS).contains(&rows)
            && part.len() == HEADER_BYTES + rows.div_ceil(GROUP_ROWS) * GROUP_ENTRY_BYTES;
        if sound {
            Ok(Self { part, rows })
        } else {
            Err(Error::corrupt(
                part.reference(),
                "the header of a segment",
                "other bytes",
            ))
        }
    }

    /// Where the groups lie of a segment whose header, which was verified, is at `part` of `extent`.
    pub(crate) fn groups_in(part: PartRef, extent: &[u8]) -> Option<Vec<PartRef>> {
        let from = usize::try_from(part.offset).ok()?;
        let length = usize::try_from(part.length).ok()?;
        let header = extent.get(from..)?.get(..length)?;
        let entries = header.get(HEADER_BYTES..)?.chunks_exact(GROUP_ENTRY_BYTES);
        let groups = entries.map(|entry| {
            let number = |at: usize| Some(u32::from_le_bytes(*entry.get(at..)?.first_chunk()?));
            Some(PartRef {
                extent: part.extent,
                offset: number(GROUP_ENTRY_OFFSET)?,
                length: number(GROUP_ENTRY_LENGTH)?,
                crc32c: number(GROUP_ENTRY_CRC)?,
            })
        });
        groups.collect()
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.rows.div_ceil(GROUP_ROWS)
    }

    /// The rows of a group.
    pub(crate) fn group_rows(&self, group: usize) -> usize {
        (self.rows - group * GROUP_ROWS).min(GROUP_ROWS)
    }

    /// The first row of a group.
    pub(crate) fn first_key(&self, group: usize) -> Row {
        let entry = &self.entry(group)[GROUP_ENTRY_KEY..];
        let mut key = [0; 4];
        for (value, bytes) in key.iter_mut().zip(entry.as_chunks::<8>().0) {
            *value = u64::from_le_bytes(*bytes);
        }
        key
    }

    /// Where a group lies.
    pub(crate) fn group(&self, group: usize) -> PartRef {
        let entry = self.entry(group);
        let number = |at: usize| {
            entry[at..]
                .first_chunk()
                .map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        PartRef {
            extent: self.part.reference().extent,
            offset: number(GROUP_ENTRY_OFFSET),
            length: number(GROUP_ENTRY_LENGTH),
            crc32c: number(GROUP_ENTRY_CRC),
        }
    }

    fn entry(&self, group: usize) -> &[u8] {
        let start = HEADER_BYTES + group * GROUP_ENTRY_BYTES;
        &self.part[start..start + GROUP_ENTRY_BYTES]
    }

    /// The last group whose first key is at most `key` (0 if there is none).
    pub(crate) fn group_before(&self, key: &Row) -> usize {
        let mut group = 0;
        let (mut low, mut high) = (1, self.groups());
        while low < high {
            let middle = low.midpoint(high);
            if self.first_key(middle) <= *key {
                group = middle;
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        group
    }
}

/// One column of a group, decoded as far as it was asked for.
#[derive(Default)]
enum Column {
    #[default]
    Packed,
    Constant(TermId),
    Runs(RunArrays),
    Decoded(Scratch),
}

/// So many times a packed column is asked for a few values, which are decoded alone; then all are, once.
const ASKED_MAX: u8 = 4;
/// So many values are few.
const FEW: usize = 256;

/// A group of a segment. Columns are decoded when they are first needed.
pub(crate) struct Group {
    part: Part,
    rows: usize,
    /// Where the streams of the columns begin, and where the last one ends.
    bounds: [usize; 5],
    columns: [Column; 4],
    /// How often each column was asked for a few values while it was packed.
    asked: [u8; 4],
}

impl Group {
    /// The group of `rows` rows (1 to 1,024) in `part`.
    pub(crate) fn new(part: Part, rows: usize) -> Result<Self> {
        debug_assert!((1..=GROUP_ROWS).contains(&rows));
        let mut bounds = [GROUP_HEADER_BYTES; 5];
        let lengths = part.first_chunk::<GROUP_HEADER_BYTES>();
        let Some(lengths) = lengths else {
            return Err(Error::corrupt(
                part.reference(),
                "a row group",
                "fewer bytes",
            ));
        };
        for (place, length) in lengths.as_chunks::<2>().0.iter().enumerate() {
            bounds[place + 1] = bounds[place] + usize::from(u16::from_le_bytes(*length));
        }
        if bounds[4] != part.len() {
            return Err(Error::corrupt(
                part.reference(),
                format!("columns of {} bytes", part.len()),
                format!("{} bytes", bounds[4]),
            ));
        }
        let columns = [0, 1, 2, 3].map(|place| {
            constant(&part[bounds[place]..bounds[place + 1]]).map_or(Column::Packed, |bits| {
                Column::Constant(TermId::from_bits(bits))
            })
        });
        Ok(Self {
            part,
            rows,
            bounds,
            columns,
            asked: [0; 4],
        })
    }

    /// How many rows it has, 1 to 1,024.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The rows whose value in a column lies in one of `ranges`.
    pub(crate) fn within(&self, place: usize, ranges: &[IdRange]) -> Result<Rows> {
        rows_within(self.stream(place), self.rows, ranges).map_err(|found| self.malformed(found))
    }

    /// The value of all rows in this column, if they are known to be equal.
    pub(crate) fn constant(&self, place: usize) -> Option<TermId> {
        match self.columns[place] {
            Column::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn stream(&self, place: usize) -> &[u8] {
        &self.part[self.bounds[place]..self.bounds[place + 1]]
    }

    fn malformed(&self, found: &'static str) -> Error {
        Error::corrupt(self.part.reference(), "a column of a row group", found)
    }

    /// Decodes a column of runs as far as its runs.
    fn open(&mut self, place: usize) -> Result<()> {
        if matches!(self.columns[place], Column::Packed) {
            let runs = decode_runs(self.stream(place), self.rows);
            if let Some(runs) = runs.map_err(|found| self.malformed(found))? {
                self.columns[place] = Column::Runs(runs);
            }
        }
        Ok(())
    }

    /// Whether a few values are to be decoded alone; after some times all are to be decoded.
    fn asks_few(&mut self, place: usize) -> bool {
        let asked = &mut self.asked[place];
        *asked = asked.saturating_add(1);
        *asked <= ASKED_MAX && matches!(self.columns[place], Column::Packed)
    }

    /// All values of a column that is not constant.
    pub(crate) fn column(&mut self, place: usize) -> Result<&[u64]> {
        if !matches!(self.columns[place], Column::Decoded(_)) {
            let mut values = Scratch::new(self.rows);
            decode(self.stream(place), &mut values).map_err(|found| self.malformed(found))?;
            self.columns[place] = Column::Decoded(values);
        }
        match &self.columns[place] {
            Column::Decoded(values) => Ok(values),
            _ => Err(Error::Internal("a column was decoded and is not there")),
        }
    }

    /// Appends the values of the rows from `start` to `end`.
    pub(crate) fn copy(
        &mut self,
        place: usize,
        start: usize,
        end: usize,
        out: &mut Vec<TermId>,
    ) -> Result<()> {
        self.open(place)?;
        match &self.columns[place] {
            Column::Constant(value) => {
                out.resize(out.len() + (end - start), *value);
                return Ok(());
            }
            Column::Runs(runs) => {
                let base = out.len();
                for (head, run_end) in runs.from(runs.run_at(start)) {
                    let until = run_end.min(end);
                    out.resize(base + until - start, TermId::from_bits(head));
                    if until == end {
                        break;
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        if end - start <= FEW && self.asks_few(place) {
            let mut bits = [0_u64; FEW];
            let bits = &mut bits[..end - start];
            decode_range(self.stream(place), self.rows, start, bits)
                .map_err(|found| self.malformed(found))?;
            out.extend(bits.iter().map(|bits| TermId::from_bits(*bits)));
        } else {
            let values = &self.column(place)?[start..end];
            out.extend(values.iter().map(|bits| TermId::from_bits(*bits)));
        }
        Ok(())
    }

    /// The first row between `start` and `end` whose first columns are not below `key`, or, if
    /// `after`, are above it; `key` gives 1 to 4 leading columns.
    pub(crate) fn search(
        &mut self,
        key: &[TermId],
        after: bool,
        start: usize,
        end: usize,
    ) -> Result<usize> {
        let (low, high) = self.equal_rows(key, start, end)?;
        Ok(if after { high } else { low })
    }

    /// The rows between `start` and `end` whose first columns are `key`, 1 to 4 of them; if there are none, twice
    /// the row before which they would stand. Soonest found where they are close to `start`.
    pub(crate) fn equal_rows(
        &mut self,
        key: &[TermId],
        start: usize,
        end: usize,
    ) -> Result<(usize, usize)> {
        let (mut low, mut high) = (start, end);
        for (place, wanted) in key.iter().enumerate() {
            // Rows between low and high equal the key in the columns before.
            (low, high) = self.equal(place, *wanted, low, high)?;
            if low == high {
                break;
            }
        }
        Ok((low, high))
    }

    /// The rows between `start` and `end`, where the column ascends, that hold `wanted`; if there
    /// are none, twice the row before which they would stand.
    fn equal(
        &mut self,
        place: usize,
        wanted: TermId,
        start: usize,
        end: usize,
    ) -> Result<(usize, usize)> {
        if start == end {
            return Ok((start, end));
        }
        self.open(place)?;
        match &self.columns[place] {
            Column::Constant(value) => {
                return Ok(match value.cmp(&wanted) {
                    Ordering::Less => (end, end),
                    Ordering::Equal => (start, end),
                    Ordering::Greater => (start, start),
                });
            }
            Column::Runs(runs) => {
                let first = runs.run_at(start);
                let last = (runs.run_at(end - 1) + 1).min(runs.ends.len());
                let heads = &runs.heads[first..last];
                let start_of = |index: usize| match index {
                    0 => start,
                    _ => runs.end(first + index - 1).min(end),
                };
                let least = heads.partition_point(|head| *head < wanted.to_bits());
                let most = least + gallop(&heads[least..], |head| *head <= wanted.to_bits());
                return Ok((start_of(least), start_of(most)));
            }
            _ => {}
        }
        let wanted = wanted.to_bits();
        let even = self.even(place)?;
        if let Some(rows) = even.and_then(|even| even.equal(start, end, wanted)) {
            return Ok(rows);
        }
        if let Some(rows) = self.equal_few(place, wanted, start, end)? {
            return Ok(rows);
        }
        let values = &self.column(place)?[start..end];
        let least = gallop(values, |value| *value < wanted);
        let most = least + gallop(&values[least..], |value| *value <= wanted);
        Ok((start + least, start + most))
    }

    /// A packed column of equal differences.
    fn even(&self, place: usize) -> Result<Option<Even>> {
        if !matches!(self.columns[place], Column::Packed) {
            return Ok(None);
        }
        let even = Even::new(self.stream(place), self.rows);
        even.map_err(|found| self.malformed(found))
    }

    /// As [`Self::equal`] in a packed column, a few values of which are decoded alone; `None` if all should be.
    fn equal_few(
        &mut self,
        place: usize,
        wanted: u64,
        start: usize,
        end: usize,
    ) -> Result<Option<(usize, usize)>> {
        if !self.asks_few(place) {
            return Ok(None);
        }
        let stream = self.stream(place);
        let malformed = |found| self.malformed(found);
        let value = |row| decode_one(stream, self.rows, row).map_err(malformed);
        if value(start)?.is_some() {
            let below = |row, is_below: &dyn Fn(u64) -> bool| Ok(value(row)?.is_some_and(is_below));
            let least = partition(start, end, |row| below(row, &|value| value < wanted))?;
            let most = partition_near(least, end, |row| below(row, &|value| value <= wanted))?;
            return Ok(Some((least, most)));
        }
        if is_uneven(stream) {
            return match self.asked[place] {
                1 => equal_in_delta(stream, self.rows, (start, end), wanted)
                    .map(Some)
                    .map_err(malformed),
                _ => Ok(None),
            };
        }
        let mut bits = [0_u64; FEW];
        let Some(bits) = bits.get_mut(..end - start) else {
            return Ok(None);
        };
        decode_range(stream, self.rows, start, bits).map_err(malformed)?;
        let least = bits.partition_point(|value| *value < wanted);
        let most = bits.partition_point(|value| *value <= wanted);
        Ok(Some((start + least, start + most)))
    }
}

/// The first row between two that is not `below`.
fn partition(start: usize, end: usize, below: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    let (mut low, mut high) = (start, end);
    while low < high {
        let middle = low.midpoint(high);
        if below(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// The same, soonest where it is close to `start`; by steps that double, then by halves.
fn partition_near(
    start: usize,
    end: usize,
    below: impl Fn(usize) -> Result<bool>,
) -> Result<usize> {
    let (mut low, mut step) = (start, 1);
    while low + step <= end && below(low + step - 1)? {
        low += step;
        step *= 2;
    }
    partition(low, end.min(low + step - 1), below)
}

/// How many of the first values are `below`; found by steps that double, then by halves.
pub(crate) fn gallop<T>(values: &[T], below: impl Fn(&T) -> bool) -> usize {
    let mut step = 1;
    while values.get(step - 1).is_some_and(&below) {
        step *= 2;
    }
    let low = step / 2;
    let high = (step - 1).min(values.len());
    low + values[low..high].partition_point(below)
}

/// All rows of the segment whose header is `header`, of which there must be `rows`.
pub(crate) fn read_rows(store: &Store, header: PartRef, rows: u64) -> Result<Vec<Row>> {
    let header = Header::new(store.read_one(&header)?)?;
    let reference = header.part.reference();
    if u64::try_from(header.rows) != Ok(rows) {
        return Err(Error::corrupt(
            reference,
            format!("{rows} rows"),
            format!("{} rows", header.rows),
        ));
    }
    let groups: Vec<_> = (0..header.groups())
        .map(|group| header.group(group))
        .collect();
    let mut out = vec![[0; 4]; header.rows];
    let places = out.chunks_mut(GROUP_ROWS);
    let mut bits = [0_u64; GROUP_ROWS];
    for (place, part) in places.zip(store.read(&groups)?) {
        let group = Group::new(part, place.len())?;
        for column in 0..4 {
            let bits = &mut bits[..place.len()];
            decode(group.stream(column), bits).map_err(|found| group.malformed(found))?;
            for (row, value) in place.iter_mut().zip(bits) {
                row[column] = *value;
            }
        }
    }
    if out.is_sorted_by(|one, next| one < next) {
        Ok(out)
    } else {
        Err(Error::corrupt(
            reference,
            "rows in ascending order",
            "another order",
        ))
    }
}
