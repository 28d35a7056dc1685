//! Packing of values of 0 to 64 bits.
//!
//! A block of 1,024 values is packed in sixteen lanes of 64-bit words: value `i` stands in lane
//! `i % 16` at bit `i / 16 * width` of that lane, and the words of all lanes alternate. So sixteen
//! neighbours are unpacked by the same shifts, and the compiler uses the widest registers there are,
//! while values come out in their order. Any other number of values is packed without lanes, lowest
//! bits first.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: indexes are bounded by the lengths that callers check, or by constants"
)]

use super::format::{GROUP_ROWS, LANES};

const WORD: usize = 8;
const LANES_BYTES: usize = LANES * WORD;

/// A value of so many bits lies within eight bytes, wherever it begins.
const NARROW_BITS_MAX: usize = 57;

/// How values stand in a packed stream: `value = base + (packed << shift)`, wrapping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Frame {
    pub(crate) base: u64,
    /// 0 to 63.
    pub(crate) shift: u32,
    /// 0 to 64.
    pub(crate) width: u32,
}

impl Frame {
    /// The largest packed number.
    pub(crate) const fn number_max(self) -> u64 {
        mask(self.width)
    }

    /// The value of the largest packed number; `None` if values wrap around.
    pub(crate) const fn largest(self) -> Option<u64> {
        let above = self.number_max() << self.shift;
        match above >> self.shift == self.number_max() {
            true => self.base.checked_add(above),
            false => None,
        }
    }
}

/// The bits that `value` needs.
pub(crate) const fn bits_of(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// The bytes of `count` values of `width` bits.
pub(crate) const fn packed_bytes(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

const fn mask(width: u32) -> u64 {
    if width == 0 {
        0
    } else {
        u64::MAX >> (u64::BITS - width)
    }
}

/// Appends `values`, which the frame can hold.
pub(crate) fn pack(values: &[u64], frame: Frame, out: &mut Vec<u8>) {
    if frame.width == 0 {
        return;
    }
    if let Ok(block) = <&[u64; GROUP_ROWS]>::try_from(values) {
        pack_block(block, frame, out);
    } else {
        pack_some(values, frame, out);
    }
}

fn pack_block(values: &[u64; GROUP_ROWS], frame: Frame, out: &mut Vec<u8>) {
    let width = frame.width;
    let mut words = [0_u64; LANES];
    let mut filled = 0;
    for row in values.as_chunks::<LANES>().0 {
        let packed = row.map(|value| value.wrapping_sub(frame.base) >> frame.shift);
        for (word, value) in words.iter_mut().zip(packed) {
            *word |= value << filled;
        }
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
            filled -= u64::BITS;
            words = if filled == 0 {
                [0; LANES]
            } else {
                packed.map(|value| value >> (width - filled))
            };
        }
    }
}

fn pack_some(values: &[u64], frame: Frame, out: &mut Vec<u8>) {
    let mut waiting = 0_u128;
    let mut filled = 0;
    for value in values {
        waiting |= u128::from(value.wrapping_sub(frame.base) >> frame.shift) << filled;
        filled += frame.width;
        if filled >= u64::BITS {
            out.extend_from_slice(&(waiting as u64).to_le_bytes());
            waiting >>= u64::BITS;
            filled -= u64::BITS;
        }
    }
    let rest = filled.div_ceil(8) as usize;
    out.extend_from_slice(&waiting.to_le_bytes()[..rest]);
}

/// Unpacks as many values as `out` holds.
///
/// `bytes` must have at least [`packed_bytes`] bytes; the caller has checked it.
pub(crate) fn unpack(bytes: &[u8], frame: Frame, out: &mut [u64]) {
    if frame.width == 0 {
        out.fill(frame.base);
    } else if let Ok(block) = <&mut [u64; GROUP_ROWS]>::try_from(&mut *out) {
        unpack_block(bytes, frame, block);
    } else if frame.width as usize <= NARROW_BITS_MAX {
        unpack_narrow(bytes, frame, out);
    } else {
        unpack_wide(bytes, frame, out);
    }
}

/// Unpacks values of any width, with no regard to what lies behind `bytes`.
fn unpack_wide(bytes: &[u8], frame: Frame, out: &mut [u64]) {
    for (index, value) in out.iter_mut().enumerate() {
        *value = get_some(bytes, frame, index);
    }
}

/// Values of at most 57 bits, so that one load of eight bytes has each.
fn unpack_narrow(bytes: &[u8], frame: Frame, out: &mut [u64]) {
    // The loads of the last values reach beyond them, so these are unpacked from a copy with room behind. It is of at
    // most 64 bytes, and the values in it end less than 57 bytes later.
    const COPIED: usize = NARROW_BITS_MAX + WORD - 1;
    let mut copy = [0; COPIED + NARROW_BITS_MAX + WORD];
    let done = unpack_eights(bytes, frame, out);
    let rest = &bytes[done * frame.width as usize / 8..];
    let rest = &rest[..rest.len().min(COPIED)];
    copy[..rest.len()].copy_from_slice(rest);
    unpack_eights(&copy, frame, &mut out[done..]);
}

/// Eight values of `width` bits fill `width` bytes. Unpacks as many eights, and at the end what is left of one, as there
/// are bytes for with eight more behind them; returns how many values that are.
fn unpack_eights(bytes: &[u8], frame: Frame, out: &mut [u64]) -> usize {
    let width = frame.width as usize;
    let mask = mask(frame.width);
    let mut done = 0;
    for eight in out.chunks_mut(8) {
        let start = done * width / 8;
        let Some(window) = bytes.get(start..start + width + WORD) else {
            break;
        };
        for (index, value) in eight.iter_mut().enumerate() {
            let bit = index * width;
            let word = window[bit / 8..].first_chunk::<WORD>();
            let word = word.map_or(0, |word| u64::from_le_bytes(*word));
            *value = frame
                .base
                .wrapping_add((word >> (bit % 8) & mask) << frame.shift);
        }
        done += eight.len();
    }
    done
}

fn unpack_block(bytes: &[u8], frame: Frame, out: &mut [u64; GROUP_ROWS]) {
    let width = frame.width as usize;
    let words = &bytes.as_chunks::<LANES_BYTES>().0[..width];
    let mask = mask(frame.width);
    for (row, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let bit = row * width;
        let word = bit / 64;
        let shift = (bit % 64) as u32;
        let low = words[word].as_chunks::<WORD>().0;
        // The next word is only needed where the value goes on in it; where it does not, its bits
        // fall outside of the mask, so that no branch is needed.
        let high = words[(word + 1).min(width - 1)].as_chunks::<WORD>().0;
        for lane in 0..LANES {
            let low = u64::from_le_bytes(low[lane]) >> shift;
            let high = u64::from_le_bytes(high[lane]) << 1 << (63 - shift);
            out[lane] = frame
                .base
                .wrapping_add(((low | high) & mask) << frame.shift);
        }
    }
}

/// The value at `index` of a stream of `count` values.
///
/// `bytes` must have at least [`packed_bytes`] bytes; the caller has checked it.
pub(crate) fn get(bytes: &[u8], frame: Frame, count: usize, index: usize) -> u64 {
    if frame.width == 0 {
        frame.base
    } else if count == GROUP_ROWS {
        get_block(bytes, frame, index)
    } else {
        get_some(bytes, frame, index)
    }
}

fn get_block(bytes: &[u8], frame: Frame, index: usize) -> u64 {
    let words = bytes.as_chunks::<WORD>().0;
    let bit = index / LANES * frame.width as usize;
    let (word, shift) = (bit / 64, bit % 64);
    let lane = index % LANES;
    let mut value = u64::from_le_bytes(words[word * LANES + lane]) >> shift;
    if shift + frame.width as usize > 64 {
        value |= u64::from_le_bytes(words[(word + 1) * LANES + lane]) << (64 - shift);
    }
    frame
        .base
        .wrapping_add((value & mask(frame.width)) << frame.shift)
}

fn get_some(bytes: &[u8], frame: Frame, index: usize) -> u64 {
    let bit = index * frame.width as usize;
    let bytes = &bytes[bit / 8..];
    let word = if let Some(chunk) = bytes.first_chunk::<16>() {
        u128::from_le_bytes(*chunk)
    } else {
        let mut chunk = [0; 16];
        chunk[..bytes.len()].copy_from_slice(bytes);
        u128::from_le_bytes(chunk)
    };
    let value = (word >> (bit % 8)) as u64 & mask(frame.width);
    frame.base.wrapping_add(value << frame.shift)
}
