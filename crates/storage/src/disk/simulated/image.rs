//! One file of the simulated disk: what programs see, what is durable, and the writes between.

use crate::bytes::to_usize;
use crate::format::SECTOR_BYTES;

/// A small generator of random numbers (SplitMix64), so that a seed repeats a run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// A change that is not durable yet.
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

/// The bytes of one file.
#[derive(Default)]
pub(super) struct Image {
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

impl Image {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            seen: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    /// By how much the file grows if it must reach to `end`.
    pub(super) fn growth(&self, end: u64) -> u64 {
        end.saturating_sub(self.len())
    }

    /// Fills `buffer` from `offset` as far as there are bytes.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.seen.get(offset..))
            .unwrap_or_default();
        let length = rest.len().min(buffer.len());
        let pair = (buffer.get_mut(..length), rest.get(..length));
        if let (Some(target), Some(source)) = pair {
            target.copy_from_slice(source);
        }
        length
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        write(&mut self.seen, offset, bytes);
        self.pending.push(Change::Write {
            offset,
            bytes: bytes.to_vec(),
        });
    }

    pub(super) fn set_len(&mut self, length: u64) {
        self.seen.resize(to_usize(length), 0);
        self.pending.push(Change::SetLen(length));
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            match change {
                Change::Write { offset, bytes } => write(&mut self.durable, offset, &bytes),
                Change::SetLen(length) => self.durable.resize(to_usize(length), 0),
            }
        }
    }

    /// Some changes are durable, the others will never be, though programs still see them.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.settle(random);
    }

    /// Some changes are durable, the others are gone.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        self.settle(random);
        self.seen.clone_from(&self.durable);
    }

    pub(super) fn flip(&mut self, offset: u64, mask: u8) -> bool {
        let Ok(offset) = usize::try_from(offset) else {
            return false;
        };
        let bytes = [self.seen.get_mut(offset), self.durable.get_mut(offset)];
        let mut flipped = false;
        for byte in bytes.into_iter().flatten() {
            *byte ^= mask;
            flipped = true;
        }
        flipped
    }

    /// Keeps, drops or tears every pending change, in any order.
    fn settle(&mut self, random: &mut Random) {
        let mut pending = std::mem::take(&mut self.pending);
        if random.coin() {
            shuffle(&mut pending, random);
        }
        for change in pending {
            match (random.below(3), change) {
                (0, _) => {}
                (1, Change::Write { offset, bytes }) => self.tear(offset, &bytes, random),
                (_, Change::Write { offset, bytes }) => write(&mut self.durable, offset, &bytes),
                (_, Change::SetLen(length)) => self.durable.resize(to_usize(length), 0),
            }
        }
    }

    /// Writes some of the sectors of a write.
    fn tear(&mut self, offset: u64, bytes: &[u8], random: &mut Random) {
        let sector = SECTOR_BYTES as u64;
        let mut offset = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = to_usize(sector - offset % sector).min(rest.len());
            let (piece, others) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            if random.coin() {
                write(&mut self.durable, offset, piece);
            }
            offset += length as u64;
            rest = others;
        }
    }
}

fn write(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = to_usize(offset);
    let end = start + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    if let Some(target) = file.get_mut(start..end) {
        target.copy_from_slice(bytes);
    }
}

fn shuffle(changes: &mut [Change], random: &mut Random) {
    for last in (1..changes.len()).rev() {
        let other = random.below(last as u64 + 1);
        changes.swap(last, to_usize(other));
    }
}
