//! Tests of root slots: round trip, tearing, damage.

use super::{RootRecord, Slot, SlotState, read_slot, slot_of};
use crate::extent::{ExtentId, PartRef};
use crate::format::{ROOT_PAYLOAD_BYTES_MAX, ROOT_SLOT_BYTES, SECTOR_BYTES};
use crate::log::{LogMark, Lsn};
use crate::store::Identity;
use proptest::prelude::*;

fn record(checkpoint: u64, payload: Vec<u8>) -> RootRecord {
    RootRecord {
        identity: Identity {
            data_files: 3,
            ..Identity::new(0x0123_4567_89ab_cdef)
        },
        checkpoint,
        commit: checkpoint / 2,
        free_list: PartRef::of(ExtentId::new(2, 77), 0, b"list"),
        free_pages: 5,
        file_ends: vec![1, 99, 12_345],
        log: LogMark {
            position: Lsn::new(checkpoint ^ 1_000),
            opening: 7,
            time: 1_700_000_000_000_000,
        },
        history: PartRef::of(ExtentId::new(1, 3), 0, b"roots"),
        payload,
    }
}

fn whole(record: RootRecord) -> SlotState {
    SlotState::Whole(Box::new(record))
}

/// Sectors of `new` where `mask` has a bit, of `old` elsewhere.
fn mix(old: &Slot, new: &Slot, mask: u8) -> Slot {
    let mut mixed = *old;
    for sector in (0..8).filter(|sector| mask >> sector & 1 == 1) {
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        mixed[range.clone()].copy_from_slice(&new[range]);
    }
    mixed
}

#[test]
fn a_slot_gives_back_its_root() {
    for length in [0, 1, 500, ROOT_PAYLOAD_BYTES_MAX] {
        for checkpoint in [1, 2, u64::MAX] {
            let record = record(checkpoint, vec![7; length]);
            let state = read_slot(slot_of(checkpoint), &record.encode());
            assert_eq!(state, whole(record));
        }
    }
    assert_eq!(read_slot(0, &[0; ROOT_SLOT_BYTES]), SlotState::Empty);
}

#[test]
fn a_root_with_more_free_pages_than_pages_is_damaged() {
    for free_pages in [12_446, u64::MAX] {
        let record = RootRecord {
            free_pages,
            ..record(1, Vec::new())
        };
        let state = read_slot(slot_of(1), &record.encode());
        assert!(matches!(state, SlotState::Damaged(_)), "{free_pages}");
    }
}

#[test]
fn files_with_more_bytes_than_can_be_numbered_are_damage() {
    let record = RootRecord {
        file_ends: vec![1, u64::MAX >> 8, 1],
        ..record(1, Vec::new())
    };
    let state = read_slot(slot_of(1), &record.encode());
    assert!(matches!(state, SlotState::Damaged(_)), "{state:?}");
}

#[test]
fn a_torn_slot_is_not_taken_for_a_root_nor_for_damage() {
    let old = record(3, vec![1; ROOT_PAYLOAD_BYTES_MAX]);
    let new = record(5, vec![2; ROOT_PAYLOAD_BYTES_MAX]);
    let retried = record(5, vec![3; ROOT_PAYLOAD_BYTES_MAX]);
    for mask in 0..=u8::MAX {
        let expected = match mask {
            0 => whole(old.clone()),
            u8::MAX => whole(new.clone()),
            _ => SlotState::Torn,
        };
        assert_eq!(
            read_slot(1, &mix(&old.encode(), &new.encode(), mask)),
            expected
        );
        let first = mix(&[0; ROOT_SLOT_BYTES], &new.encode(), mask);
        let state = read_slot(1, &first);
        match mask {
            0 => assert_eq!(state, SlotState::Empty),
            u8::MAX => assert_eq!(state, whole(new.clone())),
            _ => assert_eq!(state, SlotState::Torn),
        }
        // Both attempts at checkpoint 5 were cut: all sectors say 5, but they do not fit together.
        let state = read_slot(1, &mix(&new.encode(), &retried.encode(), mask));
        match mask {
            0 => assert_eq!(state, whole(new.clone())),
            u8::MAX => assert_eq!(state, whole(retried.clone())),
            _ => assert_eq!(state, SlotState::Torn),
        }
    }
}

#[test]
fn a_flipped_bit_is_damage_and_the_other_sectors_tell_the_checkpoint() {
    let slot = record(4, vec![9; 100]).encode();
    for byte in 0..ROOT_SLOT_BYTES {
        let mut flipped = slot;
        flipped[byte] ^= 1 << (byte % 8);
        let SlotState::Damaged(damage) = read_slot(0, &flipped) else {
            panic!("byte {byte} was flipped unseen");
        };
        assert_eq!(damage.offset, byte / SECTOR_BYTES * SECTOR_BYTES);
        assert_eq!(damage.checkpoint, Some(4));
        let mut empty = [0; ROOT_SLOT_BYTES];
        empty[byte] = 0x10;
        assert!(matches!(read_slot(0, &empty), SlotState::Damaged(_)));
    }
}

#[test]
fn a_slot_in_the_wrong_place_is_damage() {
    let slot = record(4, Vec::new()).encode();
    assert!(matches!(read_slot(1, &slot), SlotState::Damaged(_)));
    let mut swapped = slot;
    swapped.rotate_left(SECTOR_BYTES);
    assert!(matches!(read_slot(0, &swapped), SlotState::Damaged(_)));
}

proptest! {
    #[test]
    fn any_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), ROOT_SLOT_BYTES)) {
        let slot: Slot = bytes.try_into().unwrap();
        prop_assert!(matches!(read_slot(0, &slot), SlotState::Damaged(_)));
    }
}
