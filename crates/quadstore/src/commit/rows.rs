//! The rows of a record: sorted, each column told as the difference to the row before.
//!
//! # Format
//! docs/format.md#commit-records

use super::record::{Reader, put, put_difference, take, take_difference};
use crate::segment::Row;

/// A place in a list of rows.
struct Cursor {
    /// How many rows follow.
    left: u64,
    /// The row before; none before the first.
    last: Option<Row>,
}

impl Cursor {
    /// Before the first of so many rows; `None` if there are others.
    fn begin(rest: &mut &[u8], count: u64) -> Option<Self> {
        (take(rest)? == count).then_some(Self {
            left: count,
            last: None,
        })
    }

    /// The next row, of which there is one; `None` if there is something else.
    fn next(&mut self, rest: &mut &[u8]) -> Option<Row> {
        let mut row = self.last.unwrap_or_default();
        for value in &mut row {
            take_difference(rest, value)?;
        }
        if self.last.is_some_and(|last| row <= last) {
            return None;
        }
        self.left -= 1;
        self.last = Some(row);
        Some(row)
    }
}

pub(super) fn put_rows(out: &mut Vec<u8>, rows: &[Row]) {
    put(out, rows.len() as u64);
    let mut last: Row = [0; 4];
    for row in rows {
        for (last, value) in last.iter_mut().zip(row) {
            put_difference(out, last, *value);
        }
    }
}

/// Tells as many rows.
pub(super) fn take_rows(rest: &mut &[u8], count: u64, mut tell: impl FnMut(Row)) -> Option<()> {
    let mut cursor = Cursor::begin(rest, count)?;
    while cursor.left > 0 {
        tell(cursor.next(rest)?);
    }
    Some(())
}

/// The rows that a record tells, decoded as they are asked for: those that were removed, then those that were added.
pub(crate) struct RecordRows {
    /// The two lists.
    bytes: Vec<u8>,
    /// How many of the bytes were read.
    read: usize,
    cursor: Cursor,
    /// How many rows the second list has, until it is at work.
    added: Option<u64>,
}

impl RecordRows {
    /// Those of a record without its terms; `None` if it is none.
    pub(crate) fn of(kind: u8, mut payload: Vec<u8>) -> Option<Self> {
        let mut reader = Reader::new(kind, &payload)?;
        reader.terms(|_, _| ())?;
        reader.graphs(|_| ())?;
        let (mut lists, removed, added) = reader.lists();
        let start = payload.len() - lists.len();
        let cursor = Cursor::begin(&mut lists, removed)?;
        let read = payload.len() - lists.len() - start;
        payload.drain(..start);
        payload.shrink_to_fit();
        Some(Self {
            bytes: payload,
            read,
            cursor,
            added: Some(added),
        })
    }

    /// The bytes of memory that they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Appends what `of` makes of the next rows and whether they were removed, until there are `limit`; `None` if
    /// something else than rows follows.
    pub(crate) fn next<T>(
        &mut self,
        limit: usize,
        of: impl Fn(Row, bool) -> T,
        out: &mut Vec<T>,
    ) -> Option<()> {
        let mut rest = self.bytes.get(self.read..)?;
        while out.len() < limit {
            if self.cursor.left > 0 {
                let row = self.cursor.next(&mut rest)?;
                out.push(of(row, self.added.is_some()));
                continue;
            }
            match self.added.take() {
                Some(added) => self.cursor = Cursor::begin(&mut rest, added)?,
                None if rest.is_empty() => break,
                None => return None,
            }
        }
        self.read = self.bytes.len() - rest.len();
        Some(())
    }
}
