//! Characteristic sets from bytes.
//!
//! # Format
//! docs/format.md#characteristic-sets

use super::CharacteristicSets;
use super::format::{MEMBERS_KEPT, SET_MEMBERS_MAX, SETS_KEPT, SETS_MAGIC};
use crate::dictionary::format::{read_varint, take};

/// The sets in `bytes`; `None` if they are not such as are written.
pub(super) fn decode(mut bytes: &[u8]) -> Option<CharacteristicSets> {
    let bytes = &mut bytes;
    let mut number = || take(bytes).map(u32::from_le_bytes);
    if number()? != SETS_MAGIC {
        return None;
    }
    let is_all = match number()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let mut count = || usize::try_from(number()?).ok();
    let (predicates, sets, members) = (count()?, count()?, count()?);
    if sets > SETS_KEPT || members > MEMBERS_KEPT || predicates > members || sets > members {
        return None;
    }
    let mut found = CharacteristicSets {
        is_all,
        predicates: Vec::with_capacity(predicates),
        subjects: Vec::with_capacity(sets),
        starts: Vec::with_capacity(sets + 1),
        members: Vec::with_capacity(members),
        quads: Vec::with_capacity(members),
        places: Vec::new(),
        sets_with: Vec::new(),
    };
    for _ in 0..predicates {
        found.predicates.push(take(bytes).map(u64::from_le_bytes)?);
    }
    found.starts.push(0);
    for _ in 0..sets {
        decode_set(bytes, predicates, &mut found)?;
    }
    let is_sound = bytes.is_empty()
        && found.members.len() == members
        && found.predicates.is_sorted_by(|one, next| one < next)
        && found.sets().is_sorted_by(|a, b| a.members < b.members);
    if !is_sound {
        return None;
    }
    found.list_places();
    // Each predicate is of some set.
    let used = found.places.array_windows().all(|[start, end]| start < end);
    used.then_some(found)
}

fn decode_set(bytes: &mut &[u8], predicates: usize, into: &mut CharacteristicSets) -> Option<()> {
    let count = usize::try_from(read_varint(bytes)?).ok()?;
    let subjects = read_varint(bytes)?;
    if count == 0 || count > SET_MEMBERS_MAX || subjects == 0 {
        return None;
    }
    let mut next = 0_u64;
    for _ in 0..count {
        let member = next.checked_add(read_varint(bytes)?)?;
        let quads = read_varint(bytes)?;
        if member >= predicates as u64 || quads < subjects {
            return None;
        }
        into.members.push(u32::try_from(member).ok()?);
        into.quads.push(quads);
        next = member + 1;
    }
    if into.members.len() > MEMBERS_KEPT {
        return None;
    }
    into.subjects.push(subjects);
    into.starts.push(u32::try_from(into.members.len()).ok()?);
    Some(())
}
