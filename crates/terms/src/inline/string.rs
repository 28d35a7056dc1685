//! Inline `xsd:string`s: up to seven bytes, left-aligned, above their number.

#![expect(
    clippy::indexing_slicing,
    reason = "lengths are at most seven, checked where they enter"
)]

use crate::{Kind, TermId};

const LENGTH_MAX: usize = 7;
const LENGTH_BITS: u32 = 4;

pub(super) fn encode(text: &str) -> Option<TermId> {
    let bytes = text.as_bytes();
    if bytes.len() > LENGTH_MAX {
        return None;
    }
    let mut aligned = [0_u8; 8];
    aligned[..bytes.len()].copy_from_slice(bytes);
    // The eighth byte is zero: shifting right by four leaves room for the length below.
    let payload = (u64::from_be_bytes(aligned) >> LENGTH_BITS) | bytes.len() as u64;
    Some(TermId::new(Kind::ShortString, payload))
}

pub(super) fn write(id: TermId, out: &mut Vec<u8>) -> bool {
    let payload = id.payload();
    let length = (payload & 0xf) as usize;
    let aligned = ((payload & !0xf) << LENGTH_BITS).to_be_bytes();
    if length > LENGTH_MAX
        || aligned[length..].iter().any(|byte| *byte != 0)
        || std::str::from_utf8(&aligned[..length]).is_err()
    {
        return false;
    }
    out.extend_from_slice(&aligned[..length]);
    true
}
