//! Characteristic sets as bytes.
//!
//! # Format
//! docs/format.md#characteristic-sets

use super::CharacteristicSets;
use super::format::SETS_MAGIC;
use crate::dictionary::format::write_varint;

/// The bytes of characteristic sets.
pub(super) fn encode(sets: &CharacteristicSets) -> Vec<u8> {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&SETS_MAGIC.to_le_bytes());
    bytes.extend_from_slice(&u32::from(sets.is_all).to_le_bytes());
    bytes.extend_from_slice(&number(sets.predicates.len()));
    bytes.extend_from_slice(&number(sets.subjects.len()));
    bytes.extend_from_slice(&number(sets.members.len()));
    for predicate in &sets.predicates {
        bytes.extend_from_slice(&predicate.to_le_bytes());
    }
    for set in sets.sets() {
        write_varint(&mut bytes, set.members.len() as u64);
        write_varint(&mut bytes, set.subjects);
        let mut next = 0;
        for (member, quads) in set.members.iter().zip(set.quads) {
            write_varint(&mut bytes, u64::from(member - next));
            write_varint(&mut bytes, *quads);
            next = member + 1;
        }
    }
    bytes
}
