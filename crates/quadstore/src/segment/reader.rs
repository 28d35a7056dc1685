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

use stoa_storage::{Part, PartRef, Store};
use stoa_terms::TermId;

use super::Row;
use super::decode::{constant, decode, decode_one};
use super::format::{
    GROUP_ENTRY_BYTES, GROUP_ENTRY_CRC, GROUP_ENTRY_KEY, GROUP_ENTRY_LENGTH, GROUP_ENTRY_OFFSET,
    GROUP_HEADER_BYTES, GROUP_ROWS, HEADER_BYTES, HEADER_ROWS, SEGMENT_MAGIC, SEGMENT_ROWS,
};
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

    /// The rows of the segment, 1 to 16,384.
    pub(crate) fn rows(&self) -> usize {
        self.rows
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
#[derive(Clone, Default)]
enum Column {
    #[default]
    Packed,
    Constant(TermId),
    Decoded(Vec<TermId>),
}

/// A group of a segment. Columns are decoded when they are first needed.
pub(crate) struct Group {
    part: Part,
    rows: usize,
    /// Where the streams of the columns begin, and where the last one ends.
    bounds: [usize; 5],
    columns: [Column; 4],
    spare: Vec<Vec<TermId>>,
}

impl Group {
    /// The group of `rows` rows (1 to 1,024) in `part`; `spare` gives memory to reuse.
    pub(crate) fn new(part: Part, rows: usize, spare: Vec<Vec<TermId>>) -> Result<Self> {
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
            spare,
        })
    }

    /// Gives the memory of the decoded columns back.
    pub(crate) fn into_spare(self) -> Vec<Vec<TermId>> {
        let mut spare = self.spare;
        for column in self.columns {
            if let Column::Decoded(values) = column {
                spare.push(values);
            }
        }
        spare
    }

    /// The rows of the group.
    pub(crate) fn rows(&self) -> usize {
        self.rows
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

    /// All values of a column that is not constant.
    pub(crate) fn column(&mut self, place: usize) -> Result<&[TermId]> {
        if !matches!(self.columns[place], Column::Decoded(_)) {
            let mut bits = [0_u64; GROUP_ROWS];
            let bits = &mut bits[..self.rows];
            decode(self.stream(place), bits).map_err(|found| self.malformed(found))?;
            let mut values = self.spare.pop().unwrap_or_default();
            values.clear();
            values.extend(bits.iter().map(|bits| TermId::from_bits(*bits)));
            self.columns[place] = Column::Decoded(values);
        }
        match &self.columns[place] {
            Column::Decoded(values) => Ok(values),
            _ => Err(Error::Internal("a column was decoded and is not there")),
        }
    }

    /// The value of one row.
    pub(crate) fn value(&mut self, place: usize, row: usize) -> Result<TermId> {
        match &self.columns[place] {
            Column::Constant(value) => Ok(*value),
            Column::Decoded(values) => Ok(values[row]),
            Column::Packed => {
                let one = decode_one(self.stream(place), self.rows, row)
                    .map_err(|found| self.malformed(found))?;
                match one {
                    Some(bits) => Ok(TermId::from_bits(bits)),
                    None => Ok(self.column(place)?[row]),
                }
            }
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
        /// From here on decoding everything is cheaper than getting values one by one.
        const FEW: usize = 32;
        if let Some(value) = self.constant(place) {
            out.resize(out.len() + (end - start), value);
        } else if end - start <= FEW {
            for row in start..end {
                out.push(self.value(place, row)?);
            }
        } else {
            out.extend_from_slice(&self.column(place)?[start..end]);
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
        let (mut low, mut high) = (start, end);
        for (place, wanted) in key.iter().enumerate() {
            // Rows between low and high equal the key in the columns before.
            let least = self.partition(place, low, high, |value| value < *wanted)?;
            let most = self.partition(place, least, high, |value| value <= *wanted)?;
            if least == most {
                return Ok(least);
            }
            (low, high) = (least, most);
        }
        Ok(if after { high } else { low })
    }

    fn partition(
        &mut self,
        place: usize,
        start: usize,
        end: usize,
        below: impl Fn(TermId) -> bool,
    ) -> Result<usize> {
        if let Some(value) = self.constant(place) {
            return Ok(if below(value) { end } else { start });
        }
        let (mut low, mut high) = (start, end);
        while low < high {
            let middle = low.midpoint(high);
            if below(self.value(place, middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
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
        let group = Group::new(part, place.len(), Vec::new())?;
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
