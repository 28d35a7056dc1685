//! Blocks: front-coded entries, compressed.
//!
//! # Format
//! docs/format.md#dictionary-blocks

#![expect(
    clippy::cast_possible_truncation,
    reason = "a block has at most 1,024 entries and a text is below 2 GB, which the writer checks"
)]

use std::cell::RefCell;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, DCtx, compress_bound};

use super::Damaged;
use super::entries::Entries;
use super::format::{
    BLOCK_HEADER_BYTES, CODEC_PLAIN, CODEC_WORDS, CODEC_ZSTD, CODEC_ZSTD_DICTIONARY, read_varint,
    take, write_varint,
};
use super::model::{Model, ModelEncoder, ZSTD_LEVEL};
use super::words::WordBuffers;

/// Every how many blocks both codecs are tried.
const TRIAL_INTERVAL: u32 = 32;
/// Beyond its stored bytes times this, the size of a block's suffixes is taken for damage.
const EXPANSION_MAX: usize = 1 << 16;

/// What stands before the body of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BlockHeader {
    pub(crate) codec: u8,
    /// The number of the model in its partition.
    pub(crate) model: u8,
    /// The number of entries.
    pub(crate) entries: u16,
    /// The bytes of all suffixes.
    pub(crate) suffix_bytes: u32,
    /// How many long entries of the partition stand before this block.
    pub(crate) first_text: u64,
}

impl BlockHeader {
    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(self.codec);
        out.push(self.model);
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.suffix_bytes.to_le_bytes());
        out.extend_from_slice(&self.first_text.to_le_bytes());
        debug_assert_eq!(out.len() - start, BLOCK_HEADER_BYTES);
    }

    /// The header of a block, and its body.
    pub(crate) fn read(mut bytes: &[u8]) -> Result<(Self, &[u8]), Damaged> {
        let input = &mut bytes;
        let header = (|| {
            Some(Self {
                codec: take::<1>(input)?[0],
                model: take::<1>(input)?[0],
                entries: u16::from_le_bytes(take(input)?),
                suffix_bytes: u32::from_le_bytes(take(input)?),
                first_text: u64::from_le_bytes(take(input)?),
            })
        })()
        .ok_or(Damaged("block header"))?;
        if header.entries == 0 || header.codec > CODEC_WORDS {
            return Err(Damaged("block header"));
        }
        Ok((header, bytes))
    }
}

/// A decoded block, or the first entries of one.
pub(crate) struct Block {
    pub(crate) entries: Entries,
    is_whole: bool,
    /// How many long entries of the partition stand before this block.
    pub(crate) first_text: u64,
}

impl Block {
    /// Decodes the body of a block; `model` is the one that the header names. Where that is cheaper, only the first
    /// `wanted` entries.
    pub(crate) fn decode(
        header: &BlockHeader,
        body: &[u8],
        model: Option<&Model>,
        wanted: usize,
    ) -> Result<Self, Damaged> {
        let count = usize::from(header.entries);
        let suffix_bytes = header.suffix_bytes as usize;
        if suffix_bytes / EXPANSION_MAX > body.len() + 1 {
            return Err(Damaged("block size"));
        }
        let entries = match header.codec {
            CODEC_PLAIN => read_plain(body, count, suffix_bytes)?,
            CODEC_ZSTD => unpack(body, count, suffix_bytes, None)?,
            CODEC_ZSTD_DICTIONARY => unpack(body, count, suffix_bytes, model)?,
            _ => model
                .and_then(|model| model.words.as_deref())
                .ok_or(Damaged("model of a block"))?
                .decode(body, (count, wanted), suffix_bytes)?,
        };
        Ok(Self {
            is_whole: entries.len() == count,
            entries,
            first_text: header.first_text,
        })
    }

    /// Whether so many of the first entries are here, or all that the block has.
    pub(crate) fn reaches(&self, entries: usize) -> bool {
        self.is_whole || entries <= self.entries.len()
    }
}

thread_local! {
    /// A context is some 160 KB and slow to make.
    static DECOMPRESSOR: RefCell<(DCtx<'static>, Vec<u8>)> =
        RefCell::new((DCtx::create(), Vec::new()));
}

fn unpack(
    body: &[u8],
    count: usize,
    suffix_bytes: usize,
    model: Option<&Model>,
) -> Result<Entries, Damaged> {
    // Per entry two numbers of at most five bytes and a hash.
    let size_max = suffix_bytes + count * 14;
    DECOMPRESSOR.with_borrow_mut(|(context, buffer)| {
        buffer.clear();
        buffer.reserve(size_max);
        let result = match model {
            Some(model) => {
                let dictionary = model.decoder().ok_or(Damaged("model of a block"))?;
                context.decompress_using_ddict(buffer, body, dictionary.as_ddict())
            }
            None => context.decompress(buffer, body),
        };
        result.map_err(|_| Damaged("zstd frame"))?;
        let entries = read_plain(buffer, count, suffix_bytes);
        if buffer.capacity() > 1 << 20 {
            *buffer = Vec::new();
        }
        entries
    })
}

/// Appends the body of a plain block: for each entry its shared length and its suffix's length, twice
/// that and 1 if it is long; the hashes of the long ones; the suffixes.
pub(crate) fn plain_body(entries: &Entries, out: &mut Vec<u8>) {
    for index in 0..entries.len() {
        let (start, end) = entries.suffix_range(index);
        write_varint(out, entries.shared(index) as u64);
        let long = u64::from(entries.is_long(index));
        write_varint(out, ((end - start) as u64) << 1 | long);
    }
    for hash in entries.hashes() {
        out.extend_from_slice(&hash.to_le_bytes());
    }
    out.extend_from_slice(entries.bytes());
}

fn read_plain(mut body: &[u8], count: usize, suffix_bytes: usize) -> Result<Entries, Damaged> {
    let mut cuts = body;
    let mut long = 0;
    for _ in 0..count {
        read_varint(&mut body).ok_or(Damaged("entry"))?;
        long += (read_varint(&mut body).ok_or(Damaged("entry"))? & 1) as usize;
    }
    let (mut hashes, suffixes) = body.split_at_checked(long * 4).ok_or(Damaged("hashes"))?;
    if suffixes.len() != suffix_bytes {
        return Err(Damaged("length of the suffixes"));
    }
    let mut builder = Entries::builder(count, suffix_bytes);
    builder.bytes_mut().0.copy_from_slice(suffixes);
    for _ in 0..count {
        let shared = read_varint(&mut cuts).and_then(|shared| u32::try_from(shared).ok());
        let length = read_varint(&mut cuts).and_then(|length| u32::try_from(length).ok());
        let (Some(shared), Some(length)) = (shared, length) else {
            return Err(Damaged("entry"));
        };
        let hash = if length & 1 == 1 {
            Some(u32::from_le_bytes(
                take(&mut hashes).ok_or(Damaged("hashes"))?,
            ))
        } else {
            None
        };
        let (_, position) = builder.bytes_mut();
        *position += (length >> 1) as usize;
        if *position > suffix_bytes {
            return Err(Damaged("length of the suffixes"));
        }
        builder.end_entry(shared, hash)?;
    }
    builder.finish(suffix_bytes)
}

/// Compresses blocks with one model, on one thread.
pub(crate) struct BlockEncoder<'a> {
    model: &'a ModelEncoder,
    zstd: Option<Compressor<'a>>,
    body: Vec<u8>,
    packed: Vec<u8>,
    bits: Vec<u8>,
    word_buffers: WordBuffers,
    /// Blocks until both codecs are tried again.
    until_trial: u32,
    /// The codec that won then.
    prefers_words: bool,
}

impl<'a> BlockEncoder<'a> {
    pub(crate) fn new(model: &'a ModelEncoder) -> Self {
        let zstd = match &model.dictionary {
            Some(dictionary) => Compressor::with_prepared_dictionary(dictionary),
            None => Compressor::new(ZSTD_LEVEL),
        };
        // Where zstd cannot be set up, for want of memory, blocks are stored without it.
        let zstd = zstd.ok().and_then(|mut zstd| {
            zstd.set_parameter(CParameter::ContentSizeFlag(false))
                .ok()?;
            zstd.set_parameter(CParameter::DictIdFlag(false)).ok()?;
            Some(zstd)
        });
        Self {
            model,
            zstd,
            body: Vec::new(),
            packed: Vec::new(),
            bits: Vec::new(),
            word_buffers: WordBuffers::default(),
            until_trial: 0,
            prefers_words: false,
        }
    }

    /// Tries both codecs on the next block.
    pub(crate) fn forget_choice(&mut self) {
        self.until_trial = 0;
    }

    /// Appends a block of `entries`, of which there are 1 to 65,535.
    pub(crate) fn encode(&mut self, entries: &Entries, first_text: u64, out: &mut Vec<u8>) {
        let words = self.model.words();
        let is_trial = self.until_trial == 0 && words.is_some();
        self.until_trial = if is_trial {
            TRIAL_INTERVAL - 1
        } else {
            self.until_trial.saturating_sub(1)
        };
        self.bits.clear();
        if let Some((model, encoder)) = words
            && (is_trial || self.prefers_words)
        {
            encoder.encode(model, entries, &mut self.word_buffers, &mut self.bits);
        }
        self.body.clear();
        self.packed.clear();
        if is_trial || !self.prefers_words {
            self.pack(entries);
        }
        if is_trial {
            self.prefers_words = self.bits.len() < self.packed.len();
        }
        let (codec, body) = if self.prefers_words {
            (CODEC_WORDS, &self.bits)
        } else if self.packed.len() >= self.body.len() {
            (CODEC_PLAIN, &self.body)
        } else if self.model.dictionary.is_some() {
            (CODEC_ZSTD_DICTIONARY, &self.packed)
        } else {
            (CODEC_ZSTD, &self.packed)
        };
        let header = BlockHeader {
            codec,
            model: self.model.number,
            entries: entries.len() as u16,
            suffix_bytes: entries.bytes().len() as u32,
            first_text,
        };
        header.write(out);
        out.extend_from_slice(body);
    }

    /// Fills `body` and `packed`, which gets the body itself where zstd fails.
    fn pack(&mut self, entries: &Entries) {
        plain_body(entries, &mut self.body);
        self.packed.reserve(compress_bound(self.body.len()));
        let done = self.zstd.as_mut().is_some_and(|zstd| {
            zstd.compress_to_buffer(&self.body, &mut self.packed)
                .is_ok()
        });
        if !done {
            self.packed.clone_from(&self.body);
        }
    }
}
