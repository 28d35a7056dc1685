//! Huffman codes whose length shows in their first bits: lengths from counts, encoding, decoding.
//!
//! Symbols are numbered by *rank*: by code length, then by the order in which the lengths were
//! given. Codes ascend with ranks. All codes that begin with the same [`PREFIX_BITS`] bits have one
//! length (or are one code), so that a small table gives length and rank without a branch. That costs
//! at most one bit for one code in 2^10 at each length: under 0.01 bits a symbol.
//!
//! # Format
//! docs/format.md#word-model

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tables are sized by the constants that bound the indexes; symbols number less than 2^32"
)]

/// The longest code, in bits.
pub(crate) const CODE_BITS_MAX: usize = 22;
/// The bits that tell the length of a code.
pub(crate) const PREFIX_BITS: usize = 10;
/// Room for a value for each length, in whole vectors.
const LANES: usize = 24;

/// A code.
pub(crate) struct Code {
    /// By the first bits: what has to be added to a code to get its rank (modulo 2^32), and how many
    /// bits of 64 do not belong to it.
    prefixes: Vec<(u32, u32)>,
    /// By length less one: the rank at which longer codes begin.
    rank_limits: [u32; LANES],
    /// By length: what has to be added to a rank to get its code (modulo 2^32).
    bias: [u32; 32],
    symbols: u32,
}

impl Code {
    /// The code of symbols with these lengths (1 to [`CODE_BITS_MAX`]), and the order of their
    /// ranks. `None` if there are fewer codes than symbols: such lengths are damaged.
    pub(crate) fn new(lengths: &[u8]) -> Option<(Self, Vec<u32>)> {
        if lengths.len() < 2 || lengths.len() > 1 << CODE_BITS_MAX {
            return None;
        }
        let mut counts = [0_u32; CODE_BITS_MAX + 1];
        for length in lengths {
            if *length == 0 || usize::from(*length) > CODE_BITS_MAX {
                return None;
            }
            counts[usize::from(*length)] += 1;
        }
        let mut code = Self {
            // Codes that no symbol has: any rank does, but the length must not be 0.
            prefixes: vec![(0, 64 - PREFIX_BITS as u32); 1 << PREFIX_BITS],
            rank_limits: [u32::MAX; LANES],
            bias: [0; 32],
            symbols: lengths.len() as u32,
        };
        let (mut next, mut rank) = (0_u64, 0_u32);
        let mut starts = [0_u32; CODE_BITS_MAX + 1];
        for length in 1..=CODE_BITS_MAX {
            next <<= 1;
            if counts[length] > 0 && length > PREFIX_BITS {
                next = next.next_multiple_of(1 << (length - PREFIX_BITS));
            }
            let first = next;
            code.bias[length] = (next as u32).wrapping_sub(rank);
            starts[length] = rank;
            next += u64::from(counts[length]);
            rank += counts[length];
            if next > 1 << length {
                return None;
            }
            if length < CODE_BITS_MAX {
                code.rank_limits[length - 1] = rank;
            }
            code.fill_prefixes(length, first, next);
        }
        let mut order = vec![0; lengths.len()];
        for (symbol, length) in lengths.iter().enumerate() {
            let start = &mut starts[usize::from(*length)];
            order[*start as usize] = symbol as u32;
            *start += 1;
        }
        Some((code, order))
    }

    /// Notes the codes `first..next` of `length`.
    fn fill_prefixes(&mut self, length: usize, first: u64, next: u64) {
        if first == next {
            return;
        }
        let entry = (self.bias[length].wrapping_neg(), 64 - length as u32);
        let (from, to) = if length <= PREFIX_BITS {
            let shift = PREFIX_BITS - length;
            (first << shift, next << shift)
        } else {
            let shift = length - PREFIX_BITS;
            (first >> shift, next.div_ceil(1 << shift))
        };
        self.prefixes[from as usize..to as usize].fill(entry);
    }

    /// Code and length of the symbol of `rank`.
    #[inline]
    pub(crate) fn code(&self, rank: u32) -> (u32, u32) {
        let length = self.length(rank);
        (rank.wrapping_add(self.bias[length as usize & 31]), length)
    }

    /// The length of the code of `rank`.
    #[inline]
    pub(crate) fn length(&self, rank: u32) -> u32 {
        let shorter = self
            .rank_limits
            .iter()
            .map(|limit| u32::from(*limit <= rank));
        1 + shorter.sum::<u32>()
    }

    /// Rank, below the number of symbols, and length of the code at the head of `bits`, which are
    /// left-aligned.
    #[inline]
    pub(crate) fn decode(&self, bits: u64) -> (u32, u32) {
        let (bias, rest) = self.prefixes[(bits >> (64 - PREFIX_BITS)) as usize];
        let rank = ((bits >> (rest & 63)) as u32).wrapping_add(bias);
        // Codes that no symbol has must not lead beyond the last one.
        (rank.min(self.symbols - 1), 64 - rest)
    }
}

/// Code lengths, 1 to [`CODE_BITS_MAX`], of symbols that occur `counts` times; at least two symbols.
pub(crate) fn code_lengths(counts: &[u64]) -> Vec<u8> {
    let symbols = counts.len();
    assert!((2..=1 << (CODE_BITS_MAX - 3)).contains(&symbols));
    let mut order: Vec<usize> = (0..symbols).collect();
    order.sort_by_key(|index| counts[*index]);
    let mut weights: Vec<u64> = order.iter().map(|index| counts[*index].max(1)).collect();
    loop {
        let depths = depths(&weights);
        if depths
            .iter()
            .all(|depth| usize::from(*depth) < CODE_BITS_MAX)
        {
            let mut lengths = vec![0; symbols];
            let aligned = align(&depths);
            // The heaviest symbols, which come last, get the shortest codes.
            for (index, length) in order.iter().rev().zip(aligned) {
                lengths[*index] = length;
            }
            return lengths;
        }
        // Flatter weights make a flatter tree; all equal, the depth is that of a balanced one.
        for weight in &mut weights {
            *weight = weight.div_ceil(2) + 1;
        }
    }
}

/// Ascending lengths, such that those above [`PREFIX_BITS`] fill whole prefixes: what is left over at
/// one length goes to the next.
fn align(depths: &[u8]) -> Vec<u8> {
    let mut counts = [0_usize; CODE_BITS_MAX + 2];
    for depth in depths {
        counts[usize::from(*depth)] += 1;
    }
    let mut lengths = Vec::with_capacity(depths.len());
    for length in 1..=CODE_BITS_MAX {
        let mut count = counts[length];
        if length > PREFIX_BITS && length < CODE_BITS_MAX {
            let rest = count % (1 << (length - PREFIX_BITS));
            // If all that is left has this length, there is nothing to be aligned with.
            if lengths.len() + count < depths.len() {
                counts[length + 1] += rest;
                count -= rest;
            }
        }
        lengths.resize(lengths.len() + count, length as u8);
    }
    lengths
}

/// The depths of the leaves of the Huffman tree of ascending `weights`, by two queues.
fn depths(weights: &[u64]) -> Vec<u8> {
    let symbols = weights.len();
    let mut all = weights.to_vec();
    let mut parent = vec![0_usize; 2 * symbols - 1];
    let (mut leaf, mut node) = (0, symbols);
    while all.len() < 2 * symbols - 1 {
        let mut take = || {
            if leaf < symbols && (node >= all.len() || all[leaf] <= all[node]) {
                leaf += 1;
                leaf - 1
            } else {
                node += 1;
                node - 1
            }
        };
        let (left, right) = (take(), take());
        parent[left] = all.len();
        parent[right] = all.len();
        all.push(all[left] + all[right]);
    }
    let mut depth = vec![0_u8; 2 * symbols - 1];
    for index in (0..2 * symbols - 2).rev() {
        depth[index] = depth[parent[index]].saturating_add(1);
    }
    depth.truncate(symbols);
    depth
}

/// Writes bits, most significant first.
#[derive(Default)]
pub(crate) struct BitWriter {
    accumulator: u64,
    bits: u32,
}

impl BitWriter {
    /// Appends the lower `length` (at most 32) bits of `value`, whose other bits are 0.
    #[inline]
    pub(crate) fn put(&mut self, value: u32, length: u32, out: &mut Vec<u8>) {
        self.accumulator = self.accumulator << length | u64::from(value);
        self.bits += length;
        if self.bits >= 32 {
            self.bits -= 32;
            let word = (self.accumulator >> self.bits) as u32;
            out.extend_from_slice(&u32::to_be_bytes(word));
        }
    }

    /// Writes the bits that are left, filled up with zeros to a byte.
    pub(crate) fn finish(self, out: &mut Vec<u8>) {
        if self.bits > 0 {
            let rest = self.accumulator << (64 - self.bits);
            let bytes = u64::to_be_bytes(rest);
            out.extend_from_slice(&bytes[..self.bits.div_ceil(8) as usize]);
        }
    }
}

/// Reads bits, most significant first; beyond the end there are zeros.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The next bits, left-aligned; at least 57 of them are right.
    #[inline]
    pub(crate) fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.position >> 3..).unwrap_or(&[]);
        let bits = match rest.first_chunk::<8>() {
            Some(chunk) => u64::from_be_bytes(*chunk),
            None => {
                let mut chunk = [0; 8];
                chunk[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(chunk)
            }
        };
        bits << (self.position & 7)
    }

    #[inline]
    pub(crate) fn skip(&mut self, length: u32) {
        self.position += length as usize;
    }

    /// The next `length` (1 to 32) bits as a number.
    #[inline]
    pub(crate) fn take(&mut self, length: u32) -> u32 {
        let bits = self.peek() >> (64 - length);
        self.skip(length);
        bits as u32
    }

    /// Whether more bits were read than there are.
    pub(crate) fn is_overrun(&self) -> bool {
        self.position > self.bytes.len() * 8
    }
}
