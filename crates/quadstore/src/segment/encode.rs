//! Encoding of columns: tries what the values suggest and takes the smallest stream.
//!
//! One pass over the values gives the sizes of constant, packed and delta streams; run lengths,
//! dictionaries and kind splits are built only where a count says that they may win.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: a column has at most 1,024 values, which bounds every index and count"
)]

use super::bits::{Frame, bits_of, pack, packed_bytes};
use super::decode::code_width;
use super::format::{
    CONSTANT_BYTES, DELTA_HEADER_BYTES, DICTIONARY_ENTRIES_MAX, DICTIONARY_HEADER_BYTES,
    FRAME_ENTRY_BYTES, FRAMES_MAX, GROUP_ROWS, PACKED_HEADER_BYTES, RESTART_BYTES, RESTARTS_MAX,
    RUNS_HEADER_BYTES, SPLIT_HEADER_BYTES, STREAM_DEPTH_MAX, TAG_CONSTANT, TAG_DELTA,
    TAG_DICTIONARY, TAG_PACKED, TAG_RUNS, TAG_SPLIT,
};

/// Appends the smallest stream of `values`, of which there are 1 to 1,024.
pub(crate) fn encode(values: &[u64], out: &mut Vec<u8>) {
    assert!(
        (1..=GROUP_ROWS).contains(&values.len()),
        "a column has 1 to 1,024 values"
    );
    encode_nested(values, 1, out);
}

/// What one pass over the values tells.
struct Shape {
    least: u64,
    most: u64,
    /// Trailing bits that all values have in common.
    shift: u32,
    runs: usize,
    /// Bit `k` is set if a value is of kind `k`.
    kinds: u16,
}

fn shape(values: &[u64]) -> Shape {
    let first = values[0];
    let (mut least, mut most, mut varying) = (first, first, 0);
    for value in values {
        least = least.min(*value);
        most = most.max(*value);
        varying |= value ^ first;
    }
    let changes = values.iter().zip(&values[1..]);
    let runs = 1 + changes.filter(|(one, next)| one != next).count();
    let mut kinds = 1_u16 << (least >> 60) | 1 << (most >> 60);
    if kinds.count_ones() > 1 {
        kinds = values.iter().fold(0, |set, value| set | 1 << (value >> 60));
    }
    Shape {
        least,
        most,
        shift: varying.trailing_zeros().min(63),
        runs,
        kinds,
    }
}

fn encode_nested(values: &[u64], depth: usize, out: &mut Vec<u8>) {
    let shape = shape(values);
    if shape.least == shape.most {
        out.push(TAG_CONSTANT);
        out.extend_from_slice(&shape.least.to_le_bytes());
        return;
    }
    let frame = Frame {
        base: shape.least,
        shift: shape.shift,
        width: bits_of((shape.most - shape.least) >> shape.shift),
    };
    let packed = PACKED_HEADER_BYTES + packed_bytes(values.len(), frame.width);
    let mut best = packed;
    let delta = Delta::plan(values, &shape).filter(|delta| delta.size < best);
    best = delta.as_ref().map_or(best, |delta| delta.size);
    let mut other = Vec::new();
    if depth < STREAM_DEPTH_MAX {
        if shape.runs * 2 <= values.len() {
            keep_smaller(&mut best, &mut other, runs(values, shape.runs, depth));
        }
        let stream = dictionary(values, depth, best);
        keep_smaller(&mut best, &mut other, stream);
        let kinds = shape.kinds.count_ones() as usize;
        if (2..=FRAMES_MAX).contains(&kinds) {
            keep_smaller(&mut best, &mut other, split(values, shape.kinds, depth));
        }
    }
    if !other.is_empty() {
        out.extend_from_slice(&other);
    } else if let Some(delta) = delta {
        delta.write(values, out);
    } else {
        out.push(TAG_PACKED);
        out.extend_from_slice(&[frame.width as u8, frame.shift as u8]);
        out.extend_from_slice(&frame.base.to_le_bytes());
        pack(values, frame, out);
    }
}

fn keep_smaller(best: &mut usize, kept: &mut Vec<u8>, stream: Vec<u8>) {
    if !stream.is_empty() && stream.len() < *best {
        *best = stream.len();
        *kept = stream;
    }
}

/// A delta stream before it is written.
struct Delta {
    frame: Frame,
    restarts: usize,
    size: usize,
}

impl Delta {
    /// The cheapest width, differences above which are restarts; `None` if too many would be.
    fn plan(values: &[u64], shape: &Shape) -> Option<Self> {
        // A negative difference is a large one here, and so becomes a restart.
        let differences = || {
            values
                .iter()
                .zip(&values[1..])
                .map(|(one, next)| next.wrapping_sub(*one))
        };
        let step = differences().min()?;
        let mut by_width = [0_usize; 65];
        for difference in differences() {
            by_width[bits_of((difference - step) >> shape.shift) as usize] += 1;
        }
        let mut restarts = 0;
        let mut best: Option<Self> = None;
        for width in (0..=64_u32).rev() {
            let size =
                DELTA_HEADER_BYTES + restarts * RESTART_BYTES + packed_bytes(values.len(), width);
            if restarts <= RESTARTS_MAX && best.as_ref().is_none_or(|best| size < best.size) {
                let frame = Frame {
                    base: step,
                    shift: shape.shift,
                    width,
                };
                best = Some(Self {
                    frame,
                    restarts,
                    size,
                });
            }
            restarts += by_width[width as usize];
        }
        best
    }

    fn write(&self, values: &[u64], out: &mut Vec<u8>) {
        let frame = self.frame;
        out.extend_from_slice(&[
            TAG_DELTA,
            frame.width as u8,
            frame.shift as u8,
            self.restarts as u8,
        ]);
        out.extend_from_slice(&values[0].to_le_bytes());
        out.extend_from_slice(&frame.base.to_le_bytes());
        let mut differences = [frame.base; GROUP_ROWS];
        for (index, pair) in values.windows(2).enumerate() {
            let difference = pair[1].wrapping_sub(pair[0]);
            if bits_of((difference - frame.base) >> frame.shift) <= frame.width {
                differences[index + 1] = difference;
            } else {
                out.extend_from_slice(&(index as u16 + 1).to_le_bytes());
                out.extend_from_slice(&pair[1].to_le_bytes());
            }
        }
        pack(&differences[..values.len()], frame, out);
    }
}

fn runs(values: &[u64], count: usize, depth: usize) -> Vec<u8> {
    let mut heads = Vec::with_capacity(count);
    let mut lengths = Vec::with_capacity(count);
    for run in values.chunk_by(|one, next| one == next) {
        heads.push(run[0]);
        lengths.push(run.len() as u64);
    }
    let longest = lengths.iter().copied().max().unwrap_or(1);
    let frame = Frame {
        base: 1,
        shift: 0,
        width: bits_of(longest - 1),
    };
    let mut out = Vec::with_capacity(RUNS_HEADER_BYTES + count * 4);
    out.extend_from_slice(&[TAG_RUNS, frame.width as u8]);
    out.extend_from_slice(&(heads.len() as u16).to_le_bytes());
    pack(&lengths, frame, &mut out);
    encode_nested(&heads, depth + 1, &mut out);
    out
}

/// The largest number of distinct values with which a dictionary may beat `size` bytes.
fn best_codes(count: usize, size: usize) -> usize {
    let width = (size.saturating_sub(CONSTANT_BYTES) * 8 / count).min(9);
    (1_usize << width).min(DICTIONARY_ENTRIES_MAX)
}

const SLOTS: usize = 1024;

/// A dictionary stream; empty if it cannot be smaller than `best` bytes.
fn dictionary(values: &[u64], depth: usize, best: usize) -> Vec<u8> {
    if values.len() < 8 {
        return Vec::new();
    }
    let entries_max = best_codes(values.len(), best);
    // An open hash table from values to the order of their first occurrence.
    let mut slots = [u16::MAX; SLOTS];
    let mut distinct = Vec::with_capacity(entries_max);
    let mut codes = [0_u64; GROUP_ROWS];
    for (index, value) in values.iter().enumerate() {
        let mut slot = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        let code = loop {
            let code = slots[slot];
            if code == u16::MAX {
                if distinct.len() == entries_max {
                    return Vec::new();
                }
                slots[slot] = distinct.len() as u16;
                distinct.push(*value);
                break slots[slot];
            }
            if distinct[usize::from(code)] == *value {
                break code;
            }
            slot = (slot + 1) % SLOTS;
        };
        codes[index] = u64::from(code);
    }
    let width = code_width(distinct.len());
    if DICTIONARY_HEADER_BYTES + CONSTANT_BYTES + packed_bytes(values.len(), width) >= best {
        return Vec::new();
    }
    // Sorted entries pack best.
    let mut order: Vec<usize> = (0..distinct.len()).collect();
    order.sort_unstable_by_key(|entry| distinct[*entry]);
    let mut rank = [0_u64; DICTIONARY_ENTRIES_MAX];
    for (place, entry) in order.iter().enumerate() {
        rank[*entry] = place as u64;
    }
    let codes = &mut codes[..values.len()];
    codes
        .iter_mut()
        .for_each(|code| *code = rank[*code as usize]);
    distinct.sort_unstable();
    let frame = Frame {
        base: 0,
        shift: 0,
        width,
    };
    let mut out = vec![TAG_DICTIONARY];
    out.extend_from_slice(&(distinct.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    encode_nested(&distinct, depth + 1, &mut out);
    let length = (out.len() - DICTIONARY_HEADER_BYTES) as u16;
    out[3..DICTIONARY_HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    pack(codes, frame, &mut out);
    out
}

fn split(values: &[u64], kinds: u16, depth: usize) -> Vec<u8> {
    let frames = kinds.count_ones() as usize;
    // The frame of a kind is its rank among the kinds that occur.
    let frame_of = |value: u64| (kinds & ((1_u16 << (value >> 60)) - 1)).count_ones() as usize;
    let mut parts: [Vec<u64>; FRAMES_MAX] = Default::default();
    let mut selectors = [0_u64; GROUP_ROWS];
    for (selector, value) in selectors.iter_mut().zip(values) {
        let frame = frame_of(*value);
        *selector = frame as u64;
        parts[frame].push(*value);
    }
    let selector = Frame {
        base: 0,
        shift: 0,
        width: code_width(frames),
    };
    let mut out = vec![TAG_SPLIT, frames as u8];
    out.resize(SPLIT_HEADER_BYTES + frames * FRAME_ENTRY_BYTES, 0);
    pack(&selectors[..values.len()], selector, &mut out);
    for (frame, part) in parts.iter().take(frames).enumerate() {
        let start = out.len();
        encode_nested(part, depth + 1, &mut out);
        let entry = SPLIT_HEADER_BYTES + frame * FRAME_ENTRY_BYTES;
        let length = (out.len() - start) as u16;
        out[entry..entry + 2].copy_from_slice(&(part.len() as u16).to_le_bytes());
        out[entry + 2..entry + 4].copy_from_slice(&length.to_le_bytes());
    }
    out
}
