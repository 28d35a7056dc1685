//! Hash tables over packed keys of term ids.
//!
//! [`GroupTable`] numbers distinct keys densely, in the order in which they are first seen: groups
//! of aggregation, rows of DISTINCT, outer bindings. [`JoinTable`] finds the rows of a columnar
//! build side by key. Both are open addressing with linear probing over slots of 32 bits; the keys
//! stand apart, packed.
//!
//! Slots are chosen by the lower bits of a hash, and [`partition`] takes the upper ones: one table
//! for each partition can be filled by a worker of its own ([`JoinTables`]), and no table knows of it.
//!
//! # Invariants
//! 1. At most seven eighths of the slots are taken, so probing ends (`assert!` in `grow`).
//! 2. A chain of [`JoinTable`] holds rows of one key only, in ascending order (test
//!    `join_table_finds_rows_in_order`).
//! 3. All rows of a key are in one partition (test `partitions_have_what_one_table_has`).

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: slots are masked by a power of two, rows are numbered by these very tables"
)]

use stoa_terms::TermId;

mod dense;

use self::dense::Dense;
use crate::error::{Error, Result};

const SECRET: u64 = 0x2d35_8dcc_aa6c_78a5;
const SECRET_LAST: u64 = 0x8bb8_4b93_962e_acc9;
const EMPTY: u32 = u32::MAX;
const SLOTS_MIN: usize = 16;

/// After how many rows of a build side cancellation is looked at.
const CHECK_ROWS: usize = 64 * 1024;

/// The end of a chain of rows.
pub(crate) const NONE: u32 = u32::MAX;

/// The step of rapidhash: a multiplication to 128 bits, folded.
#[inline]
const fn fold(left: u64, right: u64) -> u64 {
    let product = (left as u128) * (right as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline]
const fn hash_step(hash: u64, id: TermId) -> u64 {
    fold(hash ^ id.to_bits(), SECRET)
}

#[inline]
const fn hash_end(hash: u64) -> u64 {
    fold(hash ^ SECRET_LAST, SECRET)
}

/// The hash of one key.
pub(crate) fn hash_ids(key: &[TermId]) -> u64 {
    hash_end(
        key.iter()
            .fold(SECRET_LAST, |hash, id| hash_step(hash, *id)),
    )
}

/// The hashes of `rows` keys given column by column, into `out`.
pub(crate) fn hash_columns(columns: &[&[TermId]], rows: usize, out: &mut Vec<u64>) {
    out.clear();
    out.resize(rows, SECRET_LAST);
    for column in columns {
        for (hash, id) in out.iter_mut().zip(*column) {
            *hash = hash_step(*hash, *id);
        }
    }
    for hash in out.iter_mut() {
        *hash = hash_end(*hash);
    }
}

/// Other bits of the same key: another hash for each level.
pub(crate) const fn rehash(hash: u64, level: u32) -> u64 {
    fold(hash ^ SECRET.wrapping_mul(level as u64 + 1), SECRET_LAST)
}

/// Which of `2^bits` partitions a hash belongs to; `bits` is 1 to 16.
pub(crate) const fn partition(hash: u64, bits: u32) -> usize {
    (hash >> (u64::BITS - bits)) as usize
}

/// Distinct keys, numbered from 0.
pub(crate) struct GroupTable {
    width: usize,
    /// Numbers of groups.
    slots: Vec<u32>,
    /// The keys, `width` ids each.
    keys: Vec<TermId>,
    hashes: Vec<u64>,
    scratch: Vec<u64>,
}

impl GroupTable {
    /// An empty table of keys of `width` ids; 0 is allowed, then there is one key.
    pub(crate) fn new(width: usize) -> Self {
        Self {
            width,
            slots: vec![EMPTY; SLOTS_MIN],
            keys: Vec::new(),
            hashes: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// How many keys there are.
    pub(crate) const fn len(&self) -> usize {
        self.hashes.len()
    }

    /// How many ids a key has.
    pub(crate) const fn width(&self) -> usize {
        self.width
    }

    /// The key of a group.
    pub(crate) fn key(&self, group: usize) -> &[TermId] {
        &self.keys[group * self.width..(group + 1) * self.width]
    }

    /// Writes one position of the keys of `groups` to `out`.
    pub(crate) fn key_column(
        &self,
        position: usize,
        groups: std::ops::Range<usize>,
    ) -> Vec<TermId> {
        groups
            .map(|group| self.keys[group * self.width + position])
            .collect()
    }

    /// Numbers `rows` keys given column by column, adding those that are new; `out` gets the
    /// number of each.
    pub(crate) fn insert(
        &mut self,
        columns: &[&[TermId]],
        rows: usize,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        debug_assert_eq!(
            columns.len(),
            self.width,
            "a column for each part of the key"
        );
        out.clear();
        out.reserve(rows);
        let rows_apart = if self.width == 0 { rows.min(1) } else { rows };
        let mut hashes = std::mem::take(&mut self.scratch);
        hash_columns(columns, rows_apart, &mut hashes);
        // Where rows are sorted, many keys are that of the row before.
        let mut last: Option<(u64, u32)> = None;
        for (row, hash) in hashes.iter().enumerate() {
            let again = last.filter(|(known, group)| {
                known == hash && self.is_key(*group as usize, columns, row)
            });
            let group = match again {
                Some((_, group)) => group,
                None => self.insert_row(columns, row, *hash)?,
            };
            last = Some((*hash, group));
            out.push(group);
        }
        out.resize(rows, 0);
        self.scratch = hashes;
        Ok(())
    }

    fn insert_row(&mut self, columns: &[&[TermId]], row: usize, hash: u64) -> Result<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let group = self.slots[slot];
            if group == EMPTY {
                break;
            }
            if self.hashes[group as usize] == hash && self.is_key(group as usize, columns, row) {
                return Ok(group);
            }
            slot = (slot + 1) & mask;
        }
        let group = u32::try_from(self.len())
            .ok()
            .filter(|group| *group != EMPTY)
            .ok_or(Error::LimitExceeded("a table has more than 2^32 keys"))?;
        self.slots[slot] = group;
        self.hashes.push(hash);
        self.keys.extend(columns.iter().map(|column| column[row]));
        if self.len() * 8 > self.slots.len() * 7 {
            self.grow();
        }
        Ok(group)
    }

    /// The group of a key, if there is one.
    pub(crate) fn find(&self, columns: &[&[TermId]], row: usize, hash: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let group = self.slots[slot];
            if group == EMPTY {
                return None;
            }
            if self.hashes[group as usize] == hash && self.is_key(group as usize, columns, row) {
                return Some(group);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn is_key(&self, group: usize, columns: &[&[TermId]], row: usize) -> bool {
        self.key(group)
            .iter()
            .zip(columns)
            .all(|(id, column)| *id == column[row])
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        assert!(self.len() < size, "probing needs a free slot");
        self.slots.clear();
        self.slots.resize(size, EMPTY);
        for (group, hash) in self.hashes.iter().enumerate() {
            let mut slot = *hash as usize & (size - 1);
            while self.slots[slot] != EMPTY {
                slot = (slot + 1) & (size - 1);
            }
            self.slots[slot] = group as u32;
        }
    }

    /// How many bytes the table takes at most while `rows` further keys are added, what is copied
    /// in growing included.
    pub(crate) fn bytes_with(&self, rows: usize) -> u64 {
        let grown = |len: usize, capacity: usize, more: usize| {
            if len + more <= capacity {
                capacity
            } else {
                capacity + (len + more).max(2 * capacity)
            }
        };
        let ids = grown(self.keys.len(), self.keys.capacity(), rows * self.width)
            + grown(self.hashes.len(), self.hashes.capacity(), rows);
        let slots = if (self.len() + rows) * 8 > self.slots.len() * 7 {
            ((self.len() + rows) * 8 / 7 + 1)
                .next_power_of_two()
                .max(self.slots.len() * 2)
        } else {
            self.slots.len()
        };
        (ids * 8 + slots * 4) as u64
    }
}

/// The rows of a build side by the hash of their key, or by the key itself. The rows themselves stand with the caller.
pub(crate) struct JoinTable {
    /// The first row of each key, of one column whose ids lie close together.
    dense: Option<Dense>,
    /// The first row of each key; none if that is told above.
    slots: Vec<u32>,
    /// The next row of the same key, by place in `rows`.
    next: Vec<u32>,
    /// Hashes by place in `rows`; none without slots.
    hashes: Vec<u64>,
    /// Which rows of the build side are in the table, ascending.
    rows: Vec<u32>,
}

impl JoinTable {
    /// A table of these rows (ascending) of a build side, by the columns of the key. `check` is
    /// called now and then, and ends the building if it fails.
    pub(crate) fn build(
        key: &[&[TermId]],
        rows: Vec<u32>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Self> {
        if let [column] = key
            && let Some(dense) = Dense::of(column, &rows, &check)?
        {
            return Self::by_keys(column, dense, rows, check);
        }
        let mut hashes = Vec::with_capacity(rows.len());
        for (place, row) in rows.iter().enumerate() {
            if place % CHECK_ROWS == 0 {
                check()?;
            }
            let hash = key.iter().fold(SECRET_LAST, |hash, column| {
                hash_step(hash, column[*row as usize])
            });
            hashes.push(hash_end(hash));
        }
        Self::of_hashes(key, rows, hashes, check)
    }

    /// The same for the rows of one partition, which are given in pieces, in their order.
    pub(crate) fn of_partition(
        key: &[&[TermId]],
        pieces: &[Scattered],
        partition: usize,
        check: impl Fn() -> Result<()>,
    ) -> Result<Self> {
        check()?;
        let count = pieces
            .iter()
            .map(|piece| piece.range(partition).len())
            .sum();
        let (mut rows, mut hashes) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for piece in pieces {
            let range = piece.range(partition);
            rows.extend_from_slice(&piece.rows[range.clone()]);
            hashes.extend_from_slice(&piece.hashes[range]);
        }
        Self::of_hashes(key, rows, hashes, check)
    }

    /// The same where the hashes of the rows are known.
    fn of_hashes(
        key: &[&[TermId]],
        rows: Vec<u32>,
        hashes: Vec<u64>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Self> {
        let slot_count = (rows.len() * 2).next_power_of_two().max(SLOTS_MIN);
        let mut table = Self {
            dense: None,
            slots: vec![EMPTY; slot_count],
            next: vec![NONE; rows.len()],
            hashes,
            rows,
        };
        // From the last to the first, each put before its chain, so that chains ascend.
        for place in (0..table.rows.len()).rev() {
            if place % CHECK_ROWS == 0 {
                check()?;
            }
            let slot = table.slot(key, key, table.rows[place] as usize, table.hashes[place]);
            table.next[place] = table.slots[slot];
            table.slots[slot] = place as u32;
        }
        Ok(table)
    }

    /// A table without hashes.
    fn by_keys(
        column: &[TermId],
        mut dense: Dense,
        rows: Vec<u32>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Self> {
        let mut next = vec![NONE; rows.len()];
        for (place, row) in rows.iter().enumerate().rev() {
            if place % CHECK_ROWS == 0 {
                check()?;
            }
            next[place] = dense.put(column[*row as usize], place as u32);
        }
        Ok(Self {
            dense: Some(dense),
            slots: Vec::new(),
            next,
            hashes: Vec::new(),
            rows,
        })
    }

    /// Whether rows are found by their hashes.
    const fn needs_hashes(&self) -> bool {
        self.dense.is_none()
    }

    /// Whether a table of all rows needs no hashes if the key is this column.
    pub(crate) fn is_dense(column: &[TermId]) -> bool {
        Dense::is_worth(column.iter().copied())
    }

    /// How many bytes a table of so many rows takes.
    pub(crate) fn bytes_for(rows: usize) -> u64 {
        let slots = (rows * 2).next_power_of_two().max(SLOTS_MIN);
        (slots * 4 + rows * 16) as u64
    }

    /// The place of the first row whose key is that of `row` in `probe`, or [`NONE`]. The hash does not matter where it is
    /// not needed.
    pub(crate) fn first(
        &self,
        key: &[&[TermId]],
        probe: &[&[TermId]],
        row: usize,
        hash: u64,
    ) -> u32 {
        match (&self.dense, probe) {
            (Some(dense), [column]) => dense.first(column[row]),
            _ => self.slots[self.slot(key, probe, row, hash)],
        }
    }

    /// As [`Self::first`] for a key of one column.
    pub(crate) fn first_of_one(
        &self,
        key: &[TermId],
        probe: &[TermId],
        row: usize,
        hash: u64,
    ) -> u32 {
        if let Some(dense) = &self.dense {
            return dense.first(probe[row]);
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let place = self.slots[slot];
            if place == EMPTY {
                return NONE;
            }
            let place = place as usize;
            if self.hashes[place] == hash && key[self.rows[place] as usize] == probe[row] {
                return place as u32;
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The place that follows `place` in its chain, or [`NONE`].
    pub(crate) fn next(&self, place: u32) -> u32 {
        self.next[place as usize]
    }

    /// The row of the build side at a place.
    pub(crate) fn row(&self, place: u32) -> u32 {
        self.rows[place as usize]
    }

    /// The slot of the key, or the free slot where it would be put.
    fn slot(&self, key: &[&[TermId]], probe: &[&[TermId]], row: usize, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let place = self.slots[slot];
            if place == EMPTY {
                return slot;
            }
            let build_row = self.rows[place as usize] as usize;
            if self.hashes[place as usize] == hash
                && key
                    .iter()
                    .zip(probe)
                    .all(|(build, probe)| build[build_row] == probe[row])
            {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }
}

/// The tables of a build side: one for each partition of the hashes, or one for all.
pub(crate) struct JoinTables {
    tables: Vec<JoinTable>,
    /// How many bits of a hash tell its partition, if there are several.
    bits: u32,
}

impl JoinTables {
    /// One table.
    pub(crate) fn one(table: JoinTable) -> Self {
        Self {
            tables: vec![table],
            bits: 0,
        }
    }

    /// A table for each of `2^bits` partitions.
    pub(crate) fn of_partitions(tables: Vec<JoinTable>, bits: u32) -> Self {
        assert_eq!(tables.len(), 1 << bits, "a table for each partition");
        Self { tables, bits }
    }

    /// The table that has the keys with a hash.
    #[inline]
    pub(crate) fn at(&self, hash: u64) -> &JoinTable {
        match self.tables.as_slice() {
            [one] => one,
            tables => &tables[partition(hash, self.bits)],
        }
    }

    /// Whether rows are found by their hashes; else any will do.
    pub(crate) fn needs_hashes(&self) -> bool {
        match self.tables.as_slice() {
            [one] => one.needs_hashes(),
            _ => true,
        }
    }

    /// How many bytes they take.
    pub(crate) fn bytes(&self) -> u64 {
        let rows = self.tables.iter().map(|table| table.rows.len());
        rows.map(JoinTable::bytes_for).sum()
    }

    /// How many bytes they take at most, of so many rows in `2^bits` partitions, with the pieces that they are made of.
    pub(crate) fn bytes_to_build(rows: usize, pieces: usize, bits: u32) -> u64 {
        let (rows, partitions) = (rows as u64, 1 << bits);
        // The slots of a table are twice as many as its rows, rounded up.
        let tables = rows * (4 * 4 + 16) + partitions * 4 * SLOTS_MIN as u64;
        tables + rows * 12 + pieces as u64 * partitions * 4
    }
}

/// Some rows of a build side that follow each other, by the partitions of their hashes.
pub(crate) struct Scattered {
    /// Where the rows of each partition end.
    ends: Vec<u32>,
    /// The rows, those of a partition ascending.
    rows: Vec<u32>,
    hashes: Vec<u64>,
}

impl Scattered {
    /// Rows from `first` on with these hashes, for `2^bits` partitions; `bits` is 1 to 16.
    pub(crate) fn new(first: u32, hashes: &[u64], bits: u32) -> Self {
        let mut ends = vec![0_u32; 1 << bits];
        for hash in hashes {
            ends[partition(*hash, bits)] += 1;
        }
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        let mut scattered = Self {
            ends,
            rows: vec![0; hashes.len()],
            hashes: vec![0; hashes.len()],
        };
        // Each place is a start before the first row of the partition, and its end behind the last.
        for (row, hash) in (first..).zip(hashes) {
            let place = &mut scattered.ends[partition(*hash, bits)];
            scattered.rows[*place as usize] = row;
            scattered.hashes[*place as usize] = *hash;
            *place += 1;
        }
        scattered
    }

    fn range(&self, partition: usize) -> std::ops::Range<usize> {
        let start = match partition {
            0 => 0,
            _ => self.ends[partition - 1],
        };
        start as usize..self.ends[partition] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(values: impl IntoIterator<Item = u64>) -> Vec<TermId> {
        values.into_iter().map(TermId::from_bits).collect()
    }

    #[test]
    fn groups_are_numbered_as_they_come() {
        let mut table = GroupTable::new(2);
        let mut groups = Vec::new();
        let (a, b) = (ids([1, 1, 2, 1]), ids([5, 6, 5, 5]));
        table.insert(&[&a, &b], 4, &mut groups).unwrap();
        assert_eq!(groups, [0, 1, 2, 0]);
        let many = ids(0..10_000);
        table.insert(&[&many, &many], 10_000, &mut groups).unwrap();
        assert_eq!(table.len(), 10_003);
        let again = groups.clone();
        table.insert(&[&many, &many], 10_000, &mut groups).unwrap();
        assert_eq!((groups, table.len()), (again, 10_003));
        assert_eq!(table.key(2), ids([2, 5]).as_slice());
        assert_eq!(table.key_column(1, 0..3), ids([5, 6, 5]));
        let hash = hash_ids(&[a[1], b[1]]);
        assert_eq!(table.find(&[&a, &b], 1, hash), Some(1));
    }

    #[test]
    fn no_columns_are_one_key() {
        let mut table = GroupTable::new(0);
        let mut groups = Vec::new();
        table.insert(&[], 3, &mut groups).unwrap();
        assert_eq!((groups.as_slice(), table.len()), (&[0, 0, 0][..], 1));
    }

    /// For each of some ids the rows of a table over a column, which are those that have it.
    #[test]
    fn keys_that_lie_close_need_no_hashes() {
        let scattered = |rows: u64, apart: u64| {
            (0..rows).map(move |row| 1_000 + row.wrapping_mul(0x9E37_79B9) % (rows * apart))
        };
        for (apart, is_dense) in [(1, true), (50, true), (90, false)] {
            for rows in [63_u64, 64, 1_000] {
                let key = ids(scattered(rows, apart));
                let some: Vec<u32> = (0..rows as u32).filter(|row| row % 5 != 0).collect();
                let known = some.clone();
                let table = JoinTable::build(&[&key], some, || Ok(())).unwrap();
                assert_eq!(!table.needs_hashes(), is_dense && known.len() >= 64);
                let probe = ids((0..2_000 + rows * apart).chain([u64::MAX, 1 << 60]));
                let mut hashes = Vec::new();
                hash_columns(&[&probe], probe.len(), &mut hashes);
                for (row, hash) in hashes.into_iter().enumerate() {
                    let expected = known
                        .iter()
                        .filter(|other| key[**other as usize] == probe[row]);
                    let expected: Vec<u32> = expected.copied().collect();
                    let one = table.first_of_one(&key, &probe, row, hash);
                    assert_eq!(table.first(&[&key], &[&probe], row, hash), one);
                    let some = |place: u32| Some(place).filter(|place| *place != NONE);
                    let places = std::iter::successors(some(one), |at| some(table.next(*at)));
                    let found: Vec<u32> = places.map(|place| table.row(place)).collect();
                    assert_eq!(
                        found, expected,
                        "{rows} rows, {apart} apart, {:?}",
                        probe[row]
                    );
                }
            }
        }
    }

    #[test]
    fn join_table_finds_rows_in_order() {
        let key = ids((0..1000).map(|row| row % 7));
        let table = JoinTable::build(
            &[&key],
            (0..1000).filter(|row| row % 2 == 0).collect(),
            || Ok(()),
        )
        .unwrap();
        let probe = ids([3, 7]);
        let mut place = table.first(&[&key], &[&probe], 0, hash_ids(&probe[..1]));
        let mut found = Vec::new();
        while place != NONE {
            found.push(table.row(place));
            place = table.next(place);
        }
        let expected: Vec<u32> = (0..1000)
            .filter(|row| row % 2 == 0 && row % 7 == 3)
            .collect();
        assert_eq!(found, expected);
        assert_eq!(
            table.first(&[&key], &[&probe], 1, hash_ids(&probe[1..])),
            NONE
        );
    }

    #[test]
    fn partitions_have_what_one_table_has() {
        for (keys, bits, piece_rows) in [(7, 1, 10), (300, 4, 64), (1000, 10, 999), (1, 3, 1000)] {
            let key = ids((0..1000).map(|row| row * row % keys));
            let mut hashes = Vec::new();
            hash_columns(&[&key], key.len(), &mut hashes);
            let pieces = hashes.chunks(piece_rows).enumerate();
            let pieces: Vec<Scattered> = pieces
                .map(|(piece, hashes)| Scattered::new((piece * piece_rows) as u32, hashes, bits))
                .collect();
            let tables = (0..1 << bits)
                .map(|part| JoinTable::of_partition(&[&key], &pieces, part, || Ok(())).unwrap());
            let tables = JoinTables::of_partitions(tables.collect(), bits);
            let bytes = JoinTables::bytes_to_build(key.len(), pieces.len(), bits);
            assert!(
                tables.bytes() < bytes,
                "{} of {bytes} bytes",
                tables.bytes()
            );
            let one = JoinTable::build(&[&key], (0..1000).collect(), || Ok(())).unwrap();
            let one = JoinTables::one(one);
            let probe = ids(0..keys + 1);
            for row in 0..probe.len() {
                let hash = hash_ids(&probe[row..=row]);
                let found = |tables: &JoinTables| {
                    let table = tables.at(hash);
                    let mut place = table.first(&[&key], &[&probe], row, hash);
                    let mut found = Vec::new();
                    while place != NONE {
                        found.push(table.row(place));
                        place = table.next(place);
                    }
                    found
                };
                assert_eq!(found(&tables), found(&one));
            }
        }
    }

    #[test]
    fn partitions_are_even() {
        let mut sizes = [0_u32; 16];
        for id in 0..16_000 {
            sizes[partition(hash_ids(&ids([id])), 4)] += 1;
        }
        assert!(
            sizes.iter().all(|size| (800..1200).contains(size)),
            "{sizes:?}"
        );
    }
}
