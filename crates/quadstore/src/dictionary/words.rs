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
use rapidhash::v3::rapidhash_v3;

use super::Damaged;
use super::entries::Entries;
use super::format::{read_varint, write_varint};
use super::huffman::{BitReader, BitWriter, Code, code_lengths};

/// The longest run that can be a symbol, in bytes.
pub(crate) const WORD_BYTES_MAX: usize = 32;
/// The most runs that a model holds.
pub(crate) const WORDS_MAX: usize = 1 << 18;
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
const fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

const WORD_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_word_byte(byte as u8);
        byte += 1;
    }
    table
};

/// The end of the run of equal class that begins at `start` (below `end`).
#[inline]
fn run_end(bytes: &[u8], start: usize, end: usize) -> usize {
    let class = WORD_BYTES[usize::from(bytes[start])];
    let run = &bytes[start..end];
    run.iter()
        .position(|byte| WORD_BYTES[usize::from(*byte)] != class)
        .map_or(end, |length| start + length)
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
        for entries in sample {
            for index in 0..entries.len() {
                classes[shared_class(entries.shared(index), entries.is_long(index))] += 1;
                let range = entries.suffix_range(index);
                encoder.symbols(&first, entries.bytes(), range, |rank, _| {
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

    /// Number of symbols.
    pub(crate) fn symbols(&self) -> usize {
        self.slots.len()
    }

    /// Bytes that the model takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.len() * 16 + self.pool.len() + (1 << 12) * 8 + 4096
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

    /// Decodes `count` entries with `suffix_bytes` bytes of suffixes together.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        count: usize,
        suffix_bytes: usize,
    ) -> Result<Entries, Damaged> {
        let mut reader = BitReader::new(bytes);
        let mut builder = Entries::builder(count, suffix_bytes + SLACK);
        for _ in 0..count {
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
        builder.finish(suffix_bytes)
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
    let mut runs: Vec<(&[u8], u32)> = Vec::new();
    for entries in sample {
        let bytes = entries.bytes();
        for index in 0..entries.len() {
            let (mut at, end) = entries.suffix_range(index);
            while at < end {
                let stop = run_end(bytes, at, end);
                let run = &bytes[at..stop];
                at = stop;
                if run.len() > WORD_BYTES_MAX || (run.len() == 1 && !is_word_byte(run[0])) {
                    continue;
                }
                let hash = rapidhash_v3(run);
                match table.find(hash, |index| runs[*index as usize].0 == run) {
                    Some(index) => runs[*index as usize].1 += 1,
                    None => {
                        let index = runs.len() as u32;
                        runs.push((run, 1));
                        table.insert_unique(hash, index, |index| {
                            rapidhash_v3(runs[*index as usize].0)
                        });
                    }
                }
            }
        }
    }
    runs.retain(|run| run.1 >= 2);
    if runs.len() > WORDS_MAX {
        runs.sort_unstable_by_key(|run| (std::cmp::Reverse(run.1), run.0));
        runs.truncate(WORDS_MAX);
    }
    let mut words: Vec<Box<[u8]>> = runs.into_iter().map(|run| run.0.into()).collect();
    words.sort_unstable();
    words
}

/// The table that finds the symbol of a run; it belongs to one model, which each call is given.
pub(crate) struct WordEncoder {
    /// Open addressing: fingerprint (upper 16 bits) | code length << 32 | rank + 1; 0 is empty.
    table: Vec<u64>,
    mask: usize,
    /// Rank << 8 | length of the codes of the 256 bytes and of the end.
    fixed: Vec<u32>,
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
                .map(|rank| rank << 8 | model.code.length(*rank))
                .collect(),
        };
        for rank in 0..model.slots.len() as u32 {
            let text = model.text(rank);
            let fixed = text.first().map_or(END, |byte| usize::from(*byte));
            if model.fixed_rank[fixed] == rank {
                continue;
            }
            let hash = hash_run(text);
            let mut at = hash as usize & encoder.mask;
            while encoder.table[at] != 0 {
                at = (at + 1) & encoder.mask;
            }
            let length = u64::from(model.code.length(rank));
            encoder.table[at] = hash >> 48 << 48 | length << 32 | u64::from(rank + 1);
        }
        encoder
    }

    /// Rank and code length of the symbol of a run.
    #[inline]
    fn find(&self, model: &WordModel, run: &[u8]) -> Option<(u32, u32)> {
        if run.len() > WORD_BYTES_MAX {
            return None;
        }
        let hash = hash_run(run);
        let mut at = hash as usize & self.mask;
        loop {
            let entry = self.table[at];
            if entry == 0 {
                return None;
            }
            if (entry ^ hash) >> 48 == 0 {
                let rank = entry as u32 - 1;
                if model.text(rank) == run {
                    return Some((rank, (entry >> 32) as u32 & 0xFFFF));
                }
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Calls `emit` with rank and code length of each symbol of a text, but for its end.
    #[inline]
    fn symbols(
        &self,
        model: &WordModel,
        bytes: &[u8],
        (start, end): (usize, usize),
        mut emit: impl FnMut(u32, u32),
    ) {
        let mut at = start;
        let mut after_word = false;
        while at < end {
            let stop = run_end(bytes, at, end);
            let run = &bytes[at..stop];
            if run == b" " && after_word && stop < end {
                let next_stop = run_end(bytes, stop, end);
                if let Some((rank, length)) = self.find(model, &bytes[stop..next_stop]) {
                    emit(rank, length);
                } else {
                    self.spell(&bytes[at..next_stop], &mut emit);
                    after_word = false;
                }
                at = next_stop;
                continue;
            }
            let is_word = is_word_byte(run[0]);
            if let Some((rank, length)) = self.find(model, run) {
                emit(rank, length);
                after_word = is_word;
            } else {
                self.spell(run, &mut emit);
                after_word = false;
            }
            at = stop;
        }
    }

    #[inline]
    fn spell(&self, run: &[u8], emit: &mut impl FnMut(u32, u32)) {
        for byte in run {
            let fixed = self.fixed[usize::from(*byte)];
            emit(fixed >> 8, fixed & 0xFF);
        }
    }

    /// Appends the bits of all entries.
    pub(crate) fn encode(&self, model: &WordModel, entries: &Entries, out: &mut Vec<u8>) {
        let mut writer = BitWriter::default();
        let end = self.fixed[END];
        let mut hashes = entries.hashes();
        for index in 0..entries.len() {
            let is_long = entries.is_long(index);
            let shared = entries.shared(index);
            let class = shared_class(shared, is_long);
            let rank = model.shared_rank[class];
            let length = model.shared.length(rank);
            writer.put(model.shared.code(rank, length), length, out);
            let bits = (class >> 1) as u32;
            if bits > 1 {
                let low = shared as u32 & ((1 << (bits - 1)) - 1);
                writer.put(low, bits - 1, out);
            }
            let range = entries.suffix_range(index);
            self.symbols(model, entries.bytes(), range, |rank, length| {
                writer.put(model.code.code(rank, length), length, out);
            });
            writer.put(model.code.code(end >> 8, end & 0xFF), end & 0xFF, out);
            if is_long {
                writer.put(hashes.next().unwrap_or(0), 32, out);
            }
        }
        writer.finish(out);
    }
}

#[inline]
fn hash_run(run: &[u8]) -> u64 {
    rapidhash_v3(run)
}
