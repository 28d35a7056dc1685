//! What the blocks of a partition are compressed with: words and a zstd dictionary.
//!
//! A model is trained on the first blocks of a partition, stored once, loaded when a block needs it
//! and shared by all readers. Blocks name their model by number, so a partition may have several.
//!
//! # Format
//! docs/format.md#dictionary-models

use std::sync::Arc;

use zstd::dict::{DecoderDictionary, EncoderDictionary};

use super::Damaged;
use super::block::{BlockEncoder, plain_body};
use super::entries::Entries;
use super::format::{read_varint, write_varint};
use super::words::{WordEncoder, WordModel};

/// The level at which blocks are compressed: higher ones gain under 2 % and cost twice the time.
pub(crate) const ZSTD_LEVEL: i32 = 3;
/// The level for models, which are written once.
const MODEL_LEVEL: i32 = 9;
/// The size of a zstd dictionary, in bytes.
const DICTIONARY_BYTES: usize = 256 * 1024;
/// A model is larger than this only if it is damaged.
const MODEL_BYTES_MAX: usize = 64 << 20;
/// How many blocks of the sample are compressed to judge a model.
const TRIAL_BLOCKS: usize = 48;

/// A model in memory, for readers and writers.
pub(crate) struct Model {
    pub(crate) words: Option<Arc<WordModel>>,
    dictionary: Vec<u8>,
    decoder: Option<DecoderDictionary<'static>>,
}

impl Model {
    /// A model of nothing: blocks use the codecs that need none.
    pub(crate) fn empty() -> Self {
        Self::new(None, Vec::new())
    }

    fn new(words: Option<Arc<WordModel>>, dictionary: Vec<u8>) -> Self {
        let decoder = (!dictionary.is_empty()).then(|| DecoderDictionary::copy(&dictionary));
        Self {
            words,
            dictionary,
            decoder,
        }
    }

    /// The cheapest model for `sample`, whose blocks stand for `scale` times as much data; `None` if
    /// that is not a twentieth cheaper than `last`.
    pub(crate) fn train(
        sample: &[&Entries],
        scale: u64,
        last: Option<&ModelEncoder>,
    ) -> Option<Self> {
        let step = sample.len().div_ceil(TRIAL_BLOCKS).max(1);
        let trial: Vec<&Entries> = sample.iter().step_by(step).copied().collect();
        let factor = scale * step as u64;
        let words = WordModel::train(sample).map(Arc::new);
        let dictionary = sample_dictionary(sample);
        let candidates = [
            Self::empty(),
            Self::new(None, dictionary.clone()),
            Self::new(words.clone(), Vec::new()),
            Self::new(words, dictionary),
        ];
        let costs = candidates.into_iter().map(|model| {
            let stored = if model.is_empty() {
                0
            } else {
                model.write().len() as u64
            };
            let encoder = ModelEncoder::new(Arc::new(model), 0);
            (cost(&trial, &encoder) * factor + stored, encoder.model)
        });
        let (least, model) = costs.min_by_key(|candidate| candidate.0)?;
        if last.is_some_and(|last| least > cost(&trial, last) * factor / 20 * 19) {
            return None;
        }
        Arc::into_inner(model)
    }

    /// The zstd dictionary for readers.
    pub(crate) fn decoder(&self) -> Option<&DecoderDictionary<'static>> {
        self.decoder.as_ref()
    }

    /// Whether blocks can do without this model.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_none() && self.dictionary.is_empty()
    }

    /// Bytes that the model takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The decoder keeps a copy.
        self.words.as_ref().map_or(0, |words| words.memory_bytes()) + 2 * self.dictionary.len()
    }

    /// The bytes to store.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut words = Vec::new();
        if let Some(model) = &self.words {
            model.write(&mut words);
        }
        let mut body = Vec::with_capacity(words.len() + self.dictionary.len() + 16);
        write_varint(&mut body, words.len() as u64);
        body.extend_from_slice(&words);
        body.extend_from_slice(&self.dictionary);
        let mut out = Vec::new();
        write_varint(&mut out, body.len() as u64);
        // Compression into memory fails only if memory does; then the bytes are stored as they are.
        match zstd::bulk::compress(&body, MODEL_LEVEL) {
            Ok(compressed) if compressed.len() < body.len() => out.extend_from_slice(&compressed),
            _ => {
                out.clear();
                out.push(0);
                out.extend_from_slice(&body);
            }
        }
        out
    }

    /// Reads what [`Model::write`] wrote.
    pub(crate) fn read(mut bytes: &[u8]) -> Result<Self, Damaged> {
        let size = read_varint(&mut bytes)
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size <= MODEL_BYTES_MAX)
            .ok_or(Damaged("model size"))?;
        let body = if size == 0 {
            bytes.to_vec()
        } else {
            let body = zstd::bulk::decompress(bytes, size).map_err(|_| Damaged("model"))?;
            if body.len() != size {
                return Err(Damaged("model size"));
            }
            body
        };
        let mut rest = body.as_slice();
        let words = read_varint(&mut rest)
            .and_then(|length| usize::try_from(length).ok())
            .and_then(|length| rest.split_at_checked(length))
            .ok_or(Damaged("model words"))?;
        let (words, dictionary) = words;
        let words = if words.is_empty() {
            None
        } else {
            Some(Arc::new(WordModel::read(words)?))
        };
        Ok(Self::new(words, dictionary.to_vec()))
    }
}

/// A model with all that compressing takes; shared by the threads that compress.
pub(crate) struct ModelEncoder {
    pub(crate) model: Arc<Model>,
    /// The number of the model in its partition.
    pub(crate) number: u8,
    words: Option<WordEncoder>,
    pub(crate) dictionary: Option<EncoderDictionary<'static>>,
}

impl ModelEncoder {
    pub(crate) fn new(model: Arc<Model>, number: u8) -> Self {
        Self {
            number,
            words: model.words.as_deref().map(WordEncoder::new),
            dictionary: (!model.dictionary.is_empty())
                .then(|| EncoderDictionary::copy(&model.dictionary, ZSTD_LEVEL)),
            model,
        }
    }

    /// The words of the model and their table.
    pub(crate) fn words(&self) -> Option<(&WordModel, &WordEncoder)> {
        self.model.words.as_deref().zip(self.words.as_ref())
    }
}

/// What `trial` takes on disk.
fn cost(trial: &[&Entries], model: &ModelEncoder) -> u64 {
    let mut encoder = BlockEncoder::new(model);
    let mut out = Vec::new();
    for entries in trial {
        encoder.encode(entries, 0, &mut out);
        encoder.forget_choice();
    }
    out.len() as u64
}

/// Bytes of the bodies of blocks all over the sample, at most an eighth of it.
fn sample_dictionary(sample: &[&Entries]) -> Vec<u8> {
    let total: usize = sample.iter().map(|entries| entries.bytes().len()).sum();
    let wanted = DICTIONARY_BYTES.min(total / 8);
    if wanted < 1024 {
        return Vec::new();
    }
    // Pieces of many blocks, spread evenly, tell more than a few whole ones.
    let piece = 2048.min(wanted);
    let pieces = wanted.div_ceil(piece);
    let mut dictionary = Vec::with_capacity(wanted);
    let mut body = Vec::new();
    for index in 0..pieces {
        let Some(entries) = sample.get(index * sample.len() / pieces) else {
            break;
        };
        body.clear();
        plain_body(entries, &mut body);
        let start = body.len().saturating_sub(piece);
        dictionary.extend_from_slice(body.get(start..).unwrap_or(&[]));
    }
    // A dictionary that began with zstd's magic number would be taken for a formatted one.
    dictionary.insert(0, 0);
    dictionary
}
