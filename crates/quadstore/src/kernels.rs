//! Private kernels as bench/kernels times them; nothing else may call these.
//!
//! # Format
//! docs/format.md#segments

use crate::segment::{decode, encode};

/// Appends the smallest stream of `values`, of which there are 1 to 1,024.
pub fn encode_column(values: &[u64], out: &mut Vec<u8>) {
    encode::encode(values, out);
}

/// Decodes a stream of `out.len()` values, 1 to 1,024; whether it is one.
#[must_use]
pub fn decode_column(stream: &[u8], out: &mut [u64]) -> bool {
    decode::decode(stream, out).is_ok()
}
