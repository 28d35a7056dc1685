//! Canonical Huffman codes: lengths from counts, encoding, decoding by table.
//!
//! Symbols are numbered by *rank*: by code length, then by the order in which the lengths were
//! given. A code is its length's first code plus the distance in ranks, so that lengths are all
//! that needs to be stored.
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
/// Codes up to this length are decoded by one table look-up.
const FAST_BITS: usize = 12;
/// Marks an entry of the fast table that only tells the shortest length to try.
const SLOW: u32 = 0x80;

/// A canonical code.
pub(crate) struct Code {
    first_code: [u32; CODE_BITS_MAX + 1],
    first_rank: [u32; CODE_BITS_MAX + 1],
    /// One past the last code of a length, left-aligned in 64 bits; `u64::MAX` where that overflows.
    limit: [u64; CODE_BITS_MAX + 1],
    /// By the next 12 bits: rank << 8 | length, or [`SLOW`] | least length.
    fast: Vec<u32>,
    symbols: u32,
}

impl Code {
    /// The code of symbols with these lengths (1 to [`CODE_BITS_MAX`]), and the order of their
    /// ranks. `None` if the lengths leave codes unused or use them twice: such bytes are damaged.
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
            first_code: [0; CODE_BITS_MAX + 1],
            first_rank: [0; CODE_BITS_MAX + 1],
            limit: [0; CODE_BITS_MAX + 1],
            fast: vec![0; 1 << FAST_BITS],
            symbols: lengths.len() as u32,
        };
        let (mut next, mut rank) = (0_u64, 0_u32);
        let mut starts = [0_u32; CODE_BITS_MAX + 1];
        for length in 1..=CODE_BITS_MAX {
            next <<= 1;
            code.first_code[length] = next as u32;
            code.first_rank[length] = rank;
            starts[length] = rank;
            next += u64::from(counts[length]);
            rank += counts[length];
            if next > 1 << length {
                return None;
            }
            code.limit[length] = if next == 1 << length {
                u64::MAX
            } else {
                next << (64 - length)
            };
        }
        if next != 1 << CODE_BITS_MAX {
            return None;
        }
        let mut order = vec![0; lengths.len()];
        for (symbol, length) in lengths.iter().enumerate() {
            let start = &mut starts[usize::from(*length)];
            order[*start as usize] = symbol as u32;
            *start += 1;
        }
        code.fill_fast(&counts);
        Some((code, order))
    }

    fn fill_fast(&mut self, counts: &[u32; CODE_BITS_MAX + 1]) {
        for length in 1..=CODE_BITS_MAX {
            for index in 0..counts[length] {
                let bits = (self.first_code[length] + index) as usize;
                let rank = self.first_rank[length] + index;
                if length <= FAST_BITS {
                    let shift = FAST_BITS - length;
                    self.fast[bits << shift..(bits + 1) << shift].fill(rank << 8 | length as u32);
                } else {
                    let entry = &mut self.fast[bits >> (length - FAST_BITS)];
                    if *entry == 0 {
                        *entry = SLOW | length as u32;
                    }
                }
            }
        }
    }

    /// The number of symbols.
    pub(crate) fn symbols(&self) -> usize {
        self.symbols as usize
    }

    /// The code of the symbol of `rank` whose length is `length`.
    #[inline]
    pub(crate) fn code(&self, rank: u32, length: u32) -> u32 {
        let length = length as usize;
        self.first_code[length].wrapping_add(rank.wrapping_sub(self.first_rank[length]))
    }

    /// The length of the code of `rank`.
    pub(crate) fn length(&self, rank: u32) -> u32 {
        let mut length = 1;
        while length < CODE_BITS_MAX && self.first_rank[length + 1] <= rank {
            length += 1;
        }
        length as u32
    }

    /// Rank and length of the code at the head of `bits`, which are left-aligned.
    #[inline]
    pub(crate) fn decode(&self, bits: u64) -> (u32, u32) {
        let entry = self.fast[(bits >> (64 - FAST_BITS)) as usize];
        if entry & SLOW == 0 {
            return (entry >> 8, entry & 0x7F);
        }
        let mut length = ((entry & 0x7F) as usize).min(CODE_BITS_MAX);
        while length < CODE_BITS_MAX && bits >= self.limit[length] {
            length += 1;
        }
        (self.code_rank(bits, length), length as u32)
    }

    #[inline]
    fn code_rank(&self, bits: u64, length: usize) -> u32 {
        let code = (bits >> (64 - length)) as u32;
        let rank = self.first_rank[length].wrapping_add(code.wrapping_sub(self.first_code[length]));
        // A complete code has no other ranks; the bound only lets callers index without checks.
        rank.min(self.symbols - 1)
    }
}

/// Code lengths, 1 to [`CODE_BITS_MAX`], of symbols that occur `counts` times; at least two symbols.
pub(crate) fn code_lengths(counts: &[u64]) -> Vec<u8> {
    let symbols = counts.len();
    assert!(symbols >= 2 && symbols <= 1 << (CODE_BITS_MAX - 2));
    let mut order: Vec<usize> = (0..symbols).collect();
    order.sort_by_key(|index| counts[*index]);
    let mut weights: Vec<u64> = order.iter().map(|index| counts[*index].max(1)).collect();
    loop {
        let depths = depths(&weights);
        if depths
            .iter()
            .all(|depth| usize::from(*depth) <= CODE_BITS_MAX)
        {
            let mut lengths = vec![0; symbols];
            for (index, depth) in order.iter().zip(depths) {
                lengths[*index] = depth;
            }
            return lengths;
        }
        // Flatter weights make a flatter tree; all equal, the depth is that of a balanced one.
        for weight in &mut weights {
            *weight = weight.div_ceil(2) + 1;
        }
    }
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
