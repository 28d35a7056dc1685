//! A root slot: one root, spread over eight sectors that each carry a checksum.
//!
//! A disk writes a sector whole or not at all, but of the eight sectors of a slot any may be missing
//! after a power loss. The checksums of the sectors tell such a torn write (every sector is right,
//! but they are of different checkpoints) from damage (a sector is wrong): a torn slot was never
//! acknowledged and the other one counts; a damaged one may have been, and is an error.
//!
//! # Invariants
//! 1. `read_slot` gives back what `encode` was given, and no other bytes pass as a whole slot but
//!    by an accident of two checksums (tests in `root_slot/tests.rs`).
//!
//! # Format
//! docs/format.md#root-slots

#[cfg(test)]
mod tests;

use crate::bytes::{Decoder, put};
use crate::extent::PartRef;
use crate::format::{
    DATA_FILES_MAX, FORMAT_VERSION, PAGE_BYTES, ROOT_BYTES, ROOT_CHECKPOINT, ROOT_COMMIT,
    ROOT_COMMIT_TIME, ROOT_CRC, ROOT_DATA_FILES, ROOT_DATABASE_ID, ROOT_FEATURES, ROOT_FILE_ENDS,
    ROOT_FREE_LIST, ROOT_FREE_PAGES, ROOT_GENERATION, ROOT_HISTORY, ROOT_LOG_OPENING,
    ROOT_LOG_POSITION, ROOT_PAYLOAD, ROOT_PAYLOAD_BYTES_MAX, ROOT_PAYLOAD_LENGTH, ROOT_SLOT_BYTES,
    ROOT_SLOT_OFFSET, ROOT_SLOTS, ROOT_TIMELINE, ROOT_VERSION, SECTOR_BYTES, SECTOR_CHECKPOINT,
    SECTOR_CONTENT, SECTOR_CRC, SECTOR_INDEX, SECTOR_SLOT,
};
use crate::log::{LogMark, Lsn};
use crate::store::Identity;

/// The bytes of one slot.
pub(crate) type Slot = [u8; ROOT_SLOT_BYTES];

/// Everything that a slot holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RootRecord {
    pub(crate) identity: Identity,
    pub(crate) checkpoint: u64,
    pub(crate) commit: u64,
    pub(crate) free_list: PartRef,
    pub(crate) free_pages: u64,
    /// In pages, one for each data file.
    pub(crate) file_ends: Vec<u64>,
    /// Where the log goes on behind the commit.
    pub(crate) log: LogMark,
    /// The directory of retained roots.
    pub(crate) history: PartRef,
    pub(crate) payload: Vec<u8>,
}

/// What the bytes of a slot are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SlotState {
    /// Never written.
    Empty,
    /// A root.
    Whole(Box<RootRecord>),
    /// A write that power loss cut short.
    Torn,
    /// Bytes that nobody wrote.
    Damaged(Damage),
}

/// What is wrong with a slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Damage {
    /// Where in the slot, in bytes.
    pub(crate) offset: usize,
    pub(crate) length: usize,
    pub(crate) expected: String,
    pub(crate) found: String,
    /// The highest checkpoint that an undamaged sector names.
    pub(crate) checkpoint: Option<u64>,
}

/// The slot that a checkpoint is written to.
pub(crate) fn slot_of(checkpoint: u64) -> u64 {
    checkpoint % ROOT_SLOTS
}

/// Where a slot begins in the root file.
pub(crate) fn slot_offset(slot: u64) -> u64 {
    ROOT_SLOT_OFFSET + slot * ROOT_SLOT_BYTES as u64
}

impl RootRecord {
    /// The bytes of the slot `slot_of(self.checkpoint)`.
    ///
    /// Panics if the payload is longer than `ROOT_PAYLOAD_BYTES_MAX` or there are too many files:
    /// both are checked before.
    pub(crate) fn encode(&self) -> Slot {
        assert!(
            self.payload.len() <= ROOT_PAYLOAD_BYTES_MAX && self.file_ends.len() <= DATA_FILES_MAX
        );
        let mut root = [0; ROOT_BYTES];
        let identity = &self.identity;
        let data_files = u32::from(identity.data_files);
        let payload_length = u32::try_from(self.payload.len()).expect("the payload fits a slot");
        put(&mut root, ROOT_DATA_FILES, &data_files.to_le_bytes());
        put(
            &mut root,
            ROOT_DATABASE_ID,
            &identity.database_id.to_le_bytes(),
        );
        put(&mut root, ROOT_TIMELINE, &identity.timeline.to_le_bytes());
        put(
            &mut root,
            ROOT_GENERATION,
            &identity.generation.to_le_bytes(),
        );
        put(&mut root, ROOT_FEATURES, &identity.features.to_le_bytes());
        put(&mut root, ROOT_CHECKPOINT, &self.checkpoint.to_le_bytes());
        put(&mut root, ROOT_COMMIT, &self.commit.to_le_bytes());
        put(&mut root, ROOT_FREE_LIST, &self.free_list.encode());
        put(&mut root, ROOT_VERSION, &FORMAT_VERSION.to_le_bytes());
        put(&mut root, ROOT_FREE_PAGES, &self.free_pages.to_le_bytes());
        for (index, end) in self.file_ends.iter().enumerate() {
            put(&mut root, ROOT_FILE_ENDS + 8 * index, &end.to_le_bytes());
        }
        put(
            &mut root,
            ROOT_PAYLOAD_LENGTH,
            &payload_length.to_le_bytes(),
        );
        put(&mut root, ROOT_LOG_OPENING, &self.log.opening.to_le_bytes());
        let position = self.log.position.to_u64();
        put(&mut root, ROOT_LOG_POSITION, &position.to_le_bytes());
        put(&mut root, ROOT_COMMIT_TIME, &self.log.time.to_le_bytes());
        put(&mut root, ROOT_HISTORY, &self.history.encode());
        put(&mut root, ROOT_PAYLOAD, &self.payload);
        let crc = crate::crc32c(&root);
        put(&mut root, ROOT_CRC, &crc.to_le_bytes());
        self.spread(&root)
    }

    /// Spreads the root over the sectors of its slot.
    fn spread(&self, root: &[u8; ROOT_BYTES]) -> Slot {
        let mut slot = [0; ROOT_SLOT_BYTES];
        let [slot_number, ..] = slot_of(self.checkpoint).to_le_bytes();
        let sectors = slot.chunks_exact_mut(SECTOR_BYTES);
        let contents = root.chunks_exact(SECTOR_BYTES - SECTOR_CONTENT);
        for (index, (sector, content)) in (0_u8..).zip(sectors.zip(contents)) {
            put(sector, SECTOR_CHECKPOINT, &self.checkpoint.to_le_bytes());
            put(sector, SECTOR_INDEX, &[index]);
            put(sector, SECTOR_SLOT, &[slot_number]);
            put(sector, SECTOR_CONTENT, content);
            let crc = sector_crc(sector);
            put(sector, SECTOR_CRC, &crc.to_le_bytes());
        }
        slot
    }

    /// The root in the bytes of all sectors, whose checksum is right.
    fn decode(root: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(root);
        let _crc = decoder.u32()?;
        let data_files = u16::try_from(decoder.u32()?).ok()?;
        let count = usize::from(data_files);
        let identity = Identity {
            database_id: decoder.u128()?,
            timeline: decoder.u64()?,
            generation: decoder.u64()?,
            features: decoder.u64()?,
            data_files,
        };
        let checkpoint = decoder.u64()?;
        let commit = decoder.u64()?;
        let free_list = PartRef::decode(&decoder.array()?);
        let _version = decoder.u32()?;
        let free_pages = decoder.u64()?;
        let mut file_ends = Vec::with_capacity(DATA_FILES_MAX);
        for _ in 0..DATA_FILES_MAX {
            file_ends.push(decoder.u64()?);
        }
        let payload_length = usize::try_from(decoder.u32()?).ok()?;
        let log = LogMark {
            opening: decoder.u32()?,
            position: Lsn::new(decoder.u64()?),
            time: decoder.u64()?,
        };
        let history = PartRef::decode(&decoder.array()?);
        let payload = decoder.bytes(payload_length)?.to_vec();
        if count == 0 || count > DATA_FILES_MAX {
            return None;
        }
        file_ends.truncate(count);
        let end = file_ends
            .iter()
            .try_fold(0_u64, |sum, end| sum.checked_add(*end))?;
        end.checked_mul(PAGE_BYTES)?;
        if file_ends.contains(&0) || free_pages > end {
            return None;
        }
        Some(Self {
            identity,
            checkpoint,
            commit,
            free_list,
            free_pages,
            file_ends,
            log,
            history,
            payload,
        })
    }
}

/// Judges the bytes of slot `number`.
pub(crate) fn read_slot(number: u64, slot: &Slot) -> SlotState {
    let mut root = Vec::with_capacity(ROOT_BYTES);
    let mut checkpoints = Vec::new();
    let mut damage: Option<Damage> = None;
    for (index, sector) in (0_u8..).zip(slot.chunks_exact(SECTOR_BYTES)) {
        match read_sector(number, index, sector) {
            Ok((checkpoint, content)) => {
                checkpoints.push(checkpoint);
                root.extend_from_slice(content);
            }
            Err((expected, found)) => {
                damage.get_or_insert(Damage {
                    offset: usize::from(index) * SECTOR_BYTES,
                    length: SECTOR_BYTES,
                    expected,
                    found,
                    checkpoint: None,
                });
            }
        }
    }
    let newest = checkpoints.iter().copied().max();
    if let Some(damage) = damage {
        return SlotState::Damaged(Damage {
            checkpoint: newest.filter(|checkpoint| *checkpoint > 0),
            ..damage
        });
    }
    if newest == Some(0) {
        return SlotState::Empty;
    }
    // Two attempts at one checkpoint, of which power loss cut both, can differ as well.
    let expected = Decoder::new(&root).u32();
    put(&mut root, ROOT_CRC, &[0; 4]);
    if checkpoints.iter().any(|other| Some(*other) != newest)
        || expected != Some(crate::crc32c(&root))
    {
        return SlotState::Torn;
    }
    match RootRecord::decode(&root).filter(|record| Some(record.checkpoint) == newest) {
        Some(record) => SlotState::Whole(Box::new(record)),
        None => SlotState::Damaged(Damage {
            offset: 0,
            length: ROOT_SLOT_BYTES,
            expected: "a root".to_owned(),
            found: "fields that contradict each other".to_owned(),
            checkpoint: newest,
        }),
    }
}

/// The checkpoint and the content of a sector; 0 if it was never written.
fn read_sector(slot: u64, index: u8, sector: &[u8]) -> Result<(u64, &[u8]), (String, String)> {
    let content = sector.get(SECTOR_CONTENT..).unwrap_or_default();
    if sector.iter().all(|byte| *byte == 0) {
        return Ok((0, content));
    }
    let mut decoder = Decoder::new(sector);
    let fields = (|| Some((decoder.u32()?, decoder.u64()?, decoder.array::<4>()?)))();
    let (expected, checkpoint, place) = fields.unwrap_or_default();
    let found = sector_crc(sector);
    if found != expected {
        return Err((
            format!("crc32c {expected:08x}"),
            format!("crc32c {found:08x}"),
        ));
    }
    let [slot_number, ..] = slot.to_le_bytes();
    let right_place = [index, slot_number, 0, 0];
    if place != right_place || checkpoint == 0 || slot_of(checkpoint) != slot {
        return Err((
            format!("sector {index} of slot {slot}"),
            format!("sector {place:?} of checkpoint {checkpoint}"),
        ));
    }
    Ok((checkpoint, content))
}

fn sector_crc(sector: &[u8]) -> u32 {
    crate::crc32c(sector.get(SECTOR_CHECKPOINT..).unwrap_or_default())
}
