//! The word codec: texts as Huffman codes of whole words, from a model trained on a sample.
//!
//! A text is cut into runs of word bytes (letters, digits, all of UTF-8's multi-byte characters) and
//! runs of other bytes. A run that the model knows is one symbol; any other is spelled byte by byte.
//! Between two word symbols one space is implied. A last symbol ends the text. Codes are static, so
//! there is nothing to adapt and blocks may be small; a uniformly drawn word of a list of 89,523
//! takes 16.5 bits, where zstd with a dictionary needs about 30 and FSST 42.
//!
//! # Format
//! docs/format.md#word-model
//!
//! # References
//! Moura, Navarro, Ziviani, Baeza-Yates: Fast and flexible word searching on compressed text (2000).
//! Measurements: docs/design/0001-dictionary-compression.md

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "indexes are ranks that the code bounds, or positions checked once per symbol"
)]

use hashbrown::HashTable;

use super::Damaged;
use super::entries::Entries;
use super::format::{read_varint, write_varint};
use super::huffman::{BitReader, BitWriter, Code, code_lengths};

/// The longest run that can be a symbol, in bytes.
pub(crate) const WORD_BYTES_MAX: usize = 32;
/// The most runs that a model holds.
pub(crate) const WORDS_MAX: usize = (1 << RANK_BITS) - FIRST_WORD;
/// Bits of a rank in the encoder's table.
const RANK_BITS: u32 = 18;
/// Symbols before the first word: 256 bytes and the end of a text.
const FIRST_WORD: usize = 257;
const END: usize = 256;
/// Classes of the code of shared lengths: twice the bit length of the number, plus 1 if long.
pub(crate) const SHARED_CLASSES: usize = 24;
/// Text bytes in a slot.
const SLOT_TEXT: usize = 15;
/// Bytes that decoding writes at once and so may write beyond the end of a symbol.
const SLACK: usize = 16;

// The last byte of a slot: length in the lower four bits, and what the symbol is.
const IS_WORD: u8 = 0x10;
const IS_END: u8 = 0x20;
const IS_POOLED: u8 = 0x40;

/// The words of a partition and their codes.
pub(crate) struct WordModel {
    code: Code,
    shared: Code,
    /// Rank of each shared class, and back.
    shared_rank: [u32; SHARED_CLASSES],
    shared_class: Vec<u32>,
    /// By rank: up to 15 bytes of text and the byte that tells what it is; of longer symbols the
    /// offset in `pool` (4 bytes, little-endian) and the length.
    slots: Vec<[u8; 16]>,
    pool: Vec<u8>,
    /// Ranks of the 256 bytes and of the end.
    fixed_rank: Vec<u32>,
}

/// Whether `byte` is a part of words.
#[inline]
const fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Words, code lengths of all symbols (bytes, end, words), and of the classes of shared lengths.
struct Parts {
    words: Vec<Box<[u8]>>,
    lengths: Vec<u8>,
    shared_lengths: Vec<u8>,
}

impl WordModel {
    /// A model for blocks like `sample`; `None` if no run of the sample repeats.
    pub(crate) fn train(sample: &[&Entries]) -> Option<Self> {
        let words = frequent_runs(sample);
        if words.is_empty() {
            return None;
        }
        let symbols = FIRST_WORD + words.len();
        // Counting needs a model; in this first one all codes are as long as their number demands.
        let (first, order) = Self::build(&Parts {
            words: words.clone(),
            lengths: code_lengths(&vec![1; symbols]),
            shared_lengths: code_lengths(&[1; SHARED_CLASSES]),
        })?;
        let encoder = WordEncoder::new(&first);
        let mut by_rank = vec![1_u64; symbols];
        let mut classes = [1_u64; SHARED_CLASSES];
        let mut buffers = WordBuffers::default();
        for entries in sample {
            encoder.find_runs(&first, entries, &mut buffers);
            let mut run = 0;
            for index in 0..entries.len() {
                classes[shared_class(entries.shared(index), entries.is_long(index))] += 1;
                run = encoder.symbols(&buffers, run, |symbol| {
                    let rank = match symbol {
                        Symbol::Run(rank) => rank,
                        Symbol::Fixed(symbol) => first.fixed_rank[symbol],
                    };
                    by_rank[rank as usize] += 1;
                });
                by_rank[first.fixed_rank[END] as usize] += 1;
            }
        }
        let mut counts = vec![0; symbols];
        for (symbol, count) in order.into_iter().zip(&by_rank) {
            counts[symbol as usize] = *count;
        }
        let (model, _) = Self::build(&Parts {
            words,
            lengths: code_lengths(&counts),
            shared_lengths: code_lengths(&classes),
        })?;
        Some(model)
    }

    /// The model and, by rank, which symbol of `parts` it is.
    fn build(parts: &Parts) -> Option<(Self, Vec<u32>)> {
        let (code, order) = Code::new(&parts.lengths)?;
        let (shared, shared_class) = Code::new(&parts.shared_lengths)?;
        let mut shared_rank = [0; SHARED_CLASSES];
        for (rank, class) in shared_class.iter().enumerate() {
            *shared_rank.get_mut(*class as usize)? = rank as u32;
        }
        let mut model = Self {
            code,
            shared,
            shared_rank,
            shared_class,
            slots: Vec::with_capacity(order.len()),
            pool: Vec::new(),
            fixed_rank: vec![0; FIRST_WORD],
        };
        for (rank, symbol) in order.iter().enumerate() {
            let symbol = *symbol as usize;
            if symbol < FIRST_WORD {
                model.fixed_rank[symbol] = rank as u32;
            }
            let slot = if symbol == END {
                let mut slot = [0; 16];
                slot[SLOT_TEXT] = IS_END;
                slot
            } else if symbol < END {
                slot_of(&[symbol as u8], 0, &mut model.pool)
            } else {
                let word = parts.words.get(symbol - FIRST_WORD)?;
                let class = if is_word_byte(*word.first()?) {
                    IS_WORD
                } else {
                    0
                };
                slot_of(word, class, &mut model.pool)
            };
            model.slots.push(slot);
        }
        Some((model, order))
    }

    /// Bytes that the model takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.len() * 16 + self.pool.len() + (32 << 10)
    }

    fn text(&self, rank: u32) -> &[u8] {
        let slot = &self.slots[rank as usize];
        let tag = slot[SLOT_TEXT];
        if tag & IS_POOLED != 0 {
            let start = u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]) as usize;
            &self.pool[start..start + usize::from(slot[4])]
        } else {
            &slot[..usize::from(tag & 0xF)]
        }
    }

    /// Whether the symbol of `rank` is this run; sixteen bytes can be read from `start`.
    #[inline]
    fn is_run(&self, rank: u32, bytes: &[u8], start: usize, length: usize) -> bool {
        if length > SLOT_TEXT {
            return self.text(rank) == &bytes[start..start + length];
        }
        let class = if is_word_byte(bytes[start]) {
            IS_WORD
        } else {
            0
        };
        let tag = class | length as u8;
        let slot = head(bytes, start, length) | u128::from(tag) << 120;
        u128::from_le_bytes(self.slots[rank as usize]) == slot
    }

    /// Appends the model's bytes, which [`WordModel::read`] takes; compressible.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut words: Vec<(&[u8], u8)> = Vec::new();
        let mut fixed = [0_u8; FIRST_WORD];
        for (symbol, rank) in self.fixed_rank.iter().enumerate() {
            fixed[symbol] = self.code.length(*rank) as u8;
        }
        for rank in 0..self.slots.len() as u32 {
            let text = self.text(rank);
            if self
                .fixed_rank
                .get(text.first().map_or(END, |byte| usize::from(*byte)))
                == Some(&rank)
            {
                continue;
            }
            words.push((text, self.code.length(rank) as u8));
        }
        words.sort_unstable();
        write_varint(out, words.len() as u64);
        out.extend_from_slice(&fixed);
        out.extend(
            self.shared_rank
                .iter()
                .map(|rank| self.shared.length(*rank) as u8),
        );
        out.extend(words.iter().map(|word| word.1));
        let mut previous: &[u8] = &[];
        let mut texts = Vec::new();
        for (word, _) in words {
            let shared = word
                .iter()
                .zip(previous)
                .take_while(|(a, b)| a == b)
                .count();
            // Both are at most 32, so a byte each.
            out.extend_from_slice(&[shared as u8, (word.len() - shared) as u8]);
            texts.extend_from_slice(&word[shared..]);
            previous = word;
        }
        out.extend_from_slice(&texts);
    }

    /// Reads what [`WordModel::write`] wrote.
    pub(crate) fn read(mut bytes: &[u8]) -> Result<Self, Damaged> {
        let count = read_varint(&mut bytes).ok_or(Damaged("word count"))?;
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= WORDS_MAX)
            .ok_or(Damaged("word count"))?;
        let (lengths, rest) = bytes
            .split_at_checked(FIRST_WORD + SHARED_CLASSES + count)
            .ok_or(Damaged("code lengths"))?;
        let (cuts, mut texts) = rest
            .split_at_checked(2 * count)
            .ok_or(Damaged("word lengths"))?;
        let (fixed, lengths) = lengths.split_at(FIRST_WORD);
        let (shared_lengths, word_lengths) = lengths.split_at(SHARED_CLASSES);
        let mut words: Vec<Box<[u8]>> = Vec::with_capacity(count);
        for cut in cuts.chunks_exact(2) {
            let (shared, length) = (usize::from(cut[0]), usize::from(cut[1]));
            let previous: &[u8] = words.last().map_or(&[], |word| word);
            let head = previous.get(..shared).ok_or(Damaged("word prefix"))?;
            let (tail, rest) = texts.split_at_checked(length).ok_or(Damaged("word text"))?;
            texts = rest;
            let word = [head, tail].concat();
            let class = word.first().map(|byte| is_word_byte(*byte));
            let one_class = word.iter().all(|byte| Some(is_word_byte(*byte)) == class);
            if word.is_empty() || word.len() > WORD_BYTES_MAX || !one_class {
                return Err(Damaged("word"));
            }
            words.push(word.into());
        }
        Self::build(&Parts {
            words,
            lengths: [fixed, word_lengths].concat(),
            shared_lengths: shared_lengths.to_vec(),
        })
        .map(|(model, _)| model)
        .ok_or(Damaged("code lengths"))
    }

    /// Decodes the first `wanted` of `count` entries, which have `suffix_bytes` bytes of suffixes together.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        (count, wanted): (usize, usize),
        suffix_bytes: usize,
    ) -> Result<Entries, Damaged> {
        let mut reader = BitReader::new(bytes);
        let mut builder = Entries::builder(count.min(wanted), suffix_bytes + SLACK);
        for _ in 0..count.min(wanted) {
            let (class, length) = self.shared.decode(reader.peek());
            reader.skip(length);
            let class = self.shared_class[class as usize];
            let bits = class >> 1;
            let shared = match bits {
                0 => 0,
                1 => 1,
                _ => 1 << (bits - 1) | reader.take(bits - 1),
            };
            self.decode_text(&mut reader, builder.bytes_mut(), suffix_bytes)?;
            let hash = (class & 1 != 0).then(|| reader.take(32));
            builder.end_entry(shared, hash)?;
            if reader.is_overrun() {
                return Err(Damaged("end of a bit stream"));
            }
        }
        match wanted < count {
            true => builder.finish_some(),
            false => builder.finish(suffix_bytes),
        }
    }

    /// Decodes one text to its end.
    #[inline]
    fn decode_text(
        &self,
        reader: &mut BitReader<'_>,
        (out, at): (&mut [u8], &mut usize),
        limit: usize,
    ) -> Result<(), Damaged> {
        let mut position = *at;
        let mut after_word = 0_u8;
        loop {
            let (rank, length) = self.code.decode(reader.peek());
            reader.skip(length);
            let slot = &self.slots[rank as usize];
            let tag = slot[SLOT_TEXT];
            if tag & IS_END != 0 {
                *at = position;
                return Ok(());
            }
            let word = tag & IS_WORD;
            // `out` is `limit + SLACK` long: a slot can be copied whole if it begins by `limit`.
            let space = usize::from((after_word & word) >> 4);
            if position + space > limit {
                return Err(Damaged("length of a text"));
            }
            out[position] = b' ';
            position += space;
            after_word = word;
            if tag & IS_POOLED == 0 {
                out[position..position + SLACK].copy_from_slice(slot);
                position += usize::from(tag & 0xF);
            } else {
                let text = self.text(rank);
                let target = out
                    .get_mut(position..position + text.len())
                    .ok_or(Damaged("length of a text"))?;
                target.copy_from_slice(text);
                position += text.len();
            }
            if position > limit {
                return Err(Damaged("length of a text"));
            }
        }
    }
}

/// Twice the bit length of `shared`, plus 1 for a long entry.
fn shared_class(shared: usize, is_long: bool) -> usize {
    let bits = (usize::BITS - shared.leading_zeros()) as usize;
    (bits << 1 | usize::from(is_long)).min(SHARED_CLASSES - 1)
}

fn slot_of(text: &[u8], class: u8, pool: &mut Vec<u8>) -> [u8; 16] {
    let mut slot = [0; 16];
    if text.len() <= SLOT_TEXT {
        slot[..text.len()].copy_from_slice(text);
        slot[SLOT_TEXT] = class | text.len() as u8;
    } else {
        slot[..4].copy_from_slice(&(pool.len() as u32).to_le_bytes());
        slot[4] = text.len() as u8;
        slot[SLOT_TEXT] = class | IS_POOLED;
        pool.extend_from_slice(text);
    }
    slot
}

/// The runs that occur at least twice, at most [`WORDS_MAX`], sorted.
fn frequent_runs(sample: &[&Entries]) -> Vec<Box<[u8]>> {
    let mut table: HashTable<u32> = HashTable::new();
    let mut runs: Vec<(&[u8], u64, u32)> = Vec::new();
    let mut buffers = WordBuffers::default();
    for entries in sample {
        buffers.fill(entries);
        for run in &buffers.runs {
            let (start, length) = run.range();
            let text = &entries.bytes()[start..start + length];
            let is_byte = length < 2 && text.first().is_none_or(|byte| !is_word_byte(*byte));
            if length > WORD_BYTES_MAX || is_byte {
                continue;
            }
            let hash = hash_run(&buffers.bytes, start, length);
            match table.find(hash, |index| runs[*index as usize].0 == text) {
                Some(index) => runs[*index as usize].2 += 1,
                None => {
                    let index = runs.len() as u32;
                    runs.push((text, hash, 1));
                    table.insert_unique(hash, index, |index| runs[*index as usize].1);
                }
            }
        }
    }
    runs.retain(|run| run.2 >= 2);
    if runs.len() > WORDS_MAX {
        runs.sort_unstable_by_key(|run| (std::cmp::Reverse(run.2), run.0));
        runs.truncate(WORDS_MAX);
    }
    let mut words: Vec<Box<[u8]>> = runs.into_iter().map(|run| run.0.into()).collect();
    words.sort_unstable();
    words
}

/// The table that finds the symbol of a run; it belongs to one model, which each call is given.
///
/// A block is encoded in passes over arrays (find the runs, hash them, look them up, compare), so that
/// the cache misses of many look-ups overlap instead of adding up.
pub(crate) struct WordEncoder {
    /// Open addressing: the upper 14 bits of the hash above the rank and 1; 0 is empty.
    table: Vec<u32>,
    mask: usize,
    /// Code and length of the 256 bytes and of the end.
    fixed: Vec<(u32, u32)>,
}

/// What encoding works with, kept from block to block.
#[derive(Default)]
pub(crate) struct WordBuffers {
    /// The suffixes and some zeros, so that sixteen bytes can be read anywhere.
    bytes: Vec<u8>,
    /// Bit `n` of word `m`: byte `64 m + n` is a part of a word.
    masks: Vec<u64>,
    runs: Vec<Run>,
    hashes: Vec<u64>,
    found: Vec<u32>,
}

/// A run of word bytes, or of others.
#[derive(Clone, Copy)]
struct Run {
    start: u32,
    length: u32,
}

/// Not found.
const NONE: u32 = u32::MAX;
/// Set in the length of the last run of an entry, which may be empty.
const LAST: u32 = 1 << 31;
/// Set in the length of a run of word bytes that a run of one space stands before.
const SPACED: u32 = 1 << 30;

impl Run {
    #[inline]
    fn range(self) -> (usize, usize) {
        (
            self.start as usize,
            (self.length & !(LAST | SPACED)) as usize,
        )
    }
}

impl WordEncoder {
    pub(crate) fn new(model: &WordModel) -> Self {
        let size = (model.slots.len() * 2).next_power_of_two();
        let mut encoder = Self {
            table: vec![0; size],
            mask: size - 1,
            fixed: model
                .fixed_rank
                .iter()
                .map(|rank| model.code.code(*rank))
                .collect(),
        };
        for rank in 0..model.slots.len() as u32 {
            let text = model.text(rank);
            let fixed = text.first().map_or(END, |byte| usize::from(*byte));
            if model.fixed_rank[fixed] == rank {
                continue;
            }
            let mut padded = [0; WORD_BYTES_MAX + 16];
            padded[..text.len()].copy_from_slice(text);
            let hash = hash_run(&padded, 0, text.len());
            let mut at = hash as usize & encoder.mask;
            while encoder.table[at] != 0 {
                at = (at + 1) & encoder.mask;
            }
            encoder.table[at] = fingerprint(hash) | (rank + 1);
        }
        encoder
    }

    /// Finds the runs of all suffixes and the ranks of their symbols, [`NONE`] for unknown ones.
    fn find_runs(&self, model: &WordModel, entries: &Entries, buffers: &mut WordBuffers) {
        buffers.fill(entries);
        let bytes = &buffers.bytes;
        buffers.hashes.clear();
        buffers.hashes.extend(buffers.runs.iter().map(|run| {
            let (start, length) = run.range();
            hash_run(bytes, start, length)
        }));
        buffers.found.clear();
        let first = buffers
            .hashes
            .iter()
            .map(|hash| self.table[*hash as usize & self.mask]);
        buffers.found.extend(first);
        let both = buffers.found.iter_mut().zip(&buffers.hashes);
        for ((entry, hash), run) in both.zip(&buffers.runs) {
            let (start, length) = run.range();
            // Nearly always the first entry is right, or empty.
            let rank = (*entry & ((1 << RANK_BITS) - 1)).wrapping_sub(1);
            let is_likely = (*entry ^ fingerprint(*hash)) >> RANK_BITS == 0 && *entry != 0;
            *entry = if is_likely && model.is_run(rank, bytes, start, length) {
                rank
            } else {
                self.probe(model, *entry, *hash, &bytes[start..start + length])
            };
        }
    }

    /// The rank of the symbol of a run whose hash leads to `entry`, which is not that symbol.
    fn probe(&self, model: &WordModel, mut entry: u32, hash: u64, run: &[u8]) -> u32 {
        let mut at = hash as usize & self.mask;
        while entry != 0 && run.len() <= WORD_BYTES_MAX {
            let rank = (entry & ((1 << RANK_BITS) - 1)) - 1;
            if (entry ^ fingerprint(hash)) >> RANK_BITS == 0 && model.text(rank) == run {
                return rank;
            }
            at = (at + 1) & self.mask;
            entry = self.table[at];
        }
        NONE
    }

    /// Calls `emit` with code and length of each symbol of the entry whose first run is `from`, but
    /// for its end; returns the run after its last.
    #[inline]
    fn symbols(
        &self,
        buffers: &WordBuffers,
        mut from: usize,
        mut emit: impl FnMut(Symbol),
    ) -> usize {
        let mut after_word = false;
        loop {
            let run = buffers.runs[from];
            let (start, length) = run.range();
            let rank = buffers.found[from];
            // The space is implied between two words that are symbols.
            if run.length & SPACED != 0 && !(after_word && rank != NONE) {
                emit(Symbol::Fixed(usize::from(b' ')));
            }
            if rank != NONE {
                emit(Symbol::Run(rank));
                after_word = is_word_byte(buffers.bytes[start]);
            } else {
                for byte in &buffers.bytes[start..start + length] {
                    emit(Symbol::Fixed(usize::from(*byte)));
                }
                after_word = false;
            }
            from += 1;
            if run.length & LAST != 0 {
                return from;
            }
        }
    }

    /// How many bytes of the suffixes are in no symbol of the model but those of single bytes.
    pub(crate) fn uncovered(
        &self,
        model: &WordModel,
        entries: &Entries,
        buffers: &mut WordBuffers,
    ) -> u64 {
        self.find_runs(model, entries, buffers);
        let runs = buffers.runs.iter().zip(&buffers.found);
        runs.filter(|(_, rank)| **rank == NONE)
            .map(|(run, _)| run.range().1 as u64)
            .sum()
    }

    /// Appends the bits of all entries.
    pub(crate) fn encode(
        &self,
        model: &WordModel,
        entries: &Entries,
        buffers: &mut WordBuffers,
        out: &mut Vec<u8>,
    ) {
        self.find_runs(model, entries, buffers);
        let mut writer = BitWriter::default();
        let mut hashes = entries.hashes();
        let mut run = 0;
        for index in 0..entries.len() {
            let is_long = entries.is_long(index);
            let shared = entries.shared(index);
            let class = shared_class(shared, is_long);
            let (code, length) = model.shared.code(model.shared_rank[class]);
            writer.put(code, length, out);
            let bits = (class >> 1) as u32;
            if bits > 1 {
                let low = shared as u32 & ((1 << (bits - 1)) - 1);
                writer.put(low, bits - 1, out);
            }
            run = self.symbols(buffers, run, |symbol| {
                let (code, length) = match symbol {
                    Symbol::Run(rank) => model.code.code(rank),
                    Symbol::Fixed(symbol) => self.fixed[symbol],
                };
                writer.put(code, length, out);
            });
            let (code, length) = self.fixed[END];
            writer.put(code, length, out);
            if is_long {
                writer.put(hashes.next().unwrap_or(0), 32, out);
            }
        }
        writer.finish(out);
    }
}

/// A symbol that stands for a run, by its rank, or for a byte.
#[derive(Clone, Copy)]
enum Symbol {
    Run(u32),
    Fixed(usize),
}

impl WordBuffers {
    /// Cuts the suffixes into runs; each entry has at least one, the last may be empty.
    fn fill(&mut self, entries: &Entries) {
        self.bytes.clear();
        self.bytes.extend_from_slice(entries.bytes());
        self.bytes
            .resize(entries.bytes().len().next_multiple_of(64) + 64, 0);
        self.masks.clear();
        self.masks
            .extend(self.bytes.chunks_exact(64).map(word_mask));
        self.runs.clear();
        for index in 0..entries.len() {
            let (mut start, end) = entries.suffix_range(index);
            let mut spaced = 0;
            loop {
                let stop = self.run_end(start, end);
                if stop == start + 1 && stop < end && self.bytes[start] == b' ' && spaced == 0 {
                    spaced = SPACED;
                    start = stop;
                    continue;
                }
                let last = if stop == end { LAST } else { 0 };
                self.runs.push(Run {
                    start: start as u32,
                    length: (stop - start) as u32 | last | spaced,
                });
                if stop == end {
                    break;
                }
                start = stop;
                spaced = 0;
            }
        }
    }

    /// The end of the run that begins at `start`, at most `end`.
    #[inline]
    fn run_end(&self, start: usize, end: usize) -> usize {
        if start >= end {
            return end;
        }
        let mut word = start / 64;
        let mask = self.masks[word] >> (start % 64);
        // Zeros while the class stays the same.
        let invert = 0_u64.wrapping_sub(mask & 1);
        let changes = (self.masks[word] ^ invert) >> (start % 64);
        if changes != 0 {
            return (start + changes.trailing_zeros() as usize).min(end);
        }
        word += 1;
        while word * 64 < end {
            let changes = self.masks[word] ^ invert;
            if changes != 0 {
                return (word * 64 + changes.trailing_zeros() as usize).min(end);
            }
            word += 1;
        }
        end
    }
}

/// For each of 64 bytes whether it is a part of a word.
#[inline]
fn word_mask(bytes: &[u8]) -> u64 {
    let mut classes = [0_u8; 64];
    for (class, byte) in classes.iter_mut().zip(bytes) {
        let letter = (*byte | 0x20).wrapping_sub(b'a') < 26;
        let digit = byte.wrapping_sub(b'0') < 10;
        *class = u8::from(letter | digit | (*byte >= 0x80));
    }
    let mut mask = 0;
    for (index, eight) in classes.chunks_exact(8).enumerate() {
        let word = eight
            .iter()
            .rev()
            .fold(0_u64, |word, class| word << 8 | u64::from(*class));
        // Gathers the lowest bits of eight bytes into the top byte.
        let gathered = word.wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= gathered << (8 * index);
    }
    mask
}

/// The first sixteen bytes from `start`, of which the first `length` (at most 16) are kept.
#[inline]
fn head(bytes: &[u8], start: usize, length: usize) -> u128 {
    let chunk = bytes.get(start..).and_then(<[u8]>::first_chunk::<16>);
    let head = u128::from_le_bytes(*chunk.unwrap_or(&[0; 16]));
    let drop = 128 - 8 * length.min(16) as u32;
    head.checked_shl(drop).map_or(0, |head| head >> drop)
}

/// A hash of the run; of those of more than 32 bytes, which are no symbols, any number.
#[inline]
fn hash_run(bytes: &[u8], start: usize, length: usize) -> u64 {
    let first = head(bytes, start, length);
    let mut hash = mix(first as u64 ^ length as u64, (first >> 64) as u64);
    if length > 16 {
        let second = head(bytes, start + 16, length - 16);
        hash = mix(hash ^ second as u64, (second >> 64) as u64);
    }
    hash
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9E37_79B9_7F4A_7C15) * u128::from(b ^ 0xE703_7ED1_A0B4_28DB);
    product as u64 ^ (product >> 64) as u64
}

/// The bits of a hash that an entry of the table keeps.
#[inline]
fn fingerprint(hash: u64) -> u32 {
    ((hash >> 50) as u32) << RANK_BITS
}
