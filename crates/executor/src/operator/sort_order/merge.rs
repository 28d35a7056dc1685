//! The merge of lists of terms that are sorted by key, their texts read a slice at a time.
//!
//! # Limits
//! One slice of texts a list, about [`SLICE_BYTES`] or of more than four lists together four times that, reserved. A
//! step reads a few slices.

use std::cmp::Ordering;

use stoa_quadstore::TermTexts;
use stoa_terms::{Kind, TermId, inline, key};

use super::team::PIECE_ROWS;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::memory::Memory;

/// About how many bytes of texts are read at a time.
pub(super) const SLICE_BYTES: usize = 256 << 10;
const SLICE_ROWS_FIRST: usize = 16;
const SLICE_ROWS_MAX: usize = 8 << 10;
/// How many slices a step reads at most.
pub(super) const STEP_SLICES: usize = 8;

/// How many texts to read next, from how long the last ones were.
pub(super) struct Slices {
    rows: usize,
    /// About how many bytes a slice has.
    target: usize,
}

impl Default for Slices {
    fn default() -> Self {
        Self::of(SLICE_BYTES)
    }
}

impl Slices {
    /// Slices of about so many bytes, at most [`SLICE_BYTES`].
    pub(super) fn of(target: usize) -> Self {
        Self {
            rows: (SLICE_ROWS_FIRST * target / SLICE_BYTES).max(1),
            target,
        }
    }

    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// Notes how many bytes the last slice had.
    pub(super) fn note(&mut self, bytes: usize) {
        if bytes > self.target {
            self.rows = (self.rows / 2).max(1);
        } else if bytes < self.target / 2 {
            self.rows = (self.rows * 2).min(SLICE_ROWS_MAX);
        }
    }
}

/// A sorted list of numbers of ids.
struct Stream {
    numbers: Vec<u32>,
    next: usize,
    /// Texts of the numbers from `texts_from`.
    texts: TermTexts,
    texts_from: usize,
    slices: Slices,
}

/// Where a merge finds ids by their numbers, and where it puts numbers: those in order, and those of
/// literals that are no strings.
pub(super) type Target<'a> = (&'a [TermId], &'a mut Vec<u32>, &'a mut Vec<u32>);

pub(super) struct Merge {
    /// IRIs or literals.
    kind: Kind,
    streams: Vec<Stream>,
    /// The streams by their next key, the smallest one last.
    queue: Vec<usize>,
    is_ready: bool,
    /// How many strings or IRIs are wanted, the smallest ones.
    wanted: usize,
    /// What the owner of the account holds beside the texts, in bytes.
    held: u64,
}

impl Merge {
    pub(super) fn new(kind: Kind, wanted: usize, held: u64) -> Self {
        Self {
            kind,
            streams: Vec::new(),
            queue: Vec::new(),
            is_ready: false,
            wanted,
            held,
        }
    }

    /// Adds numbers of ids whose keys ascend.
    pub(super) fn add(&mut self, numbers: Vec<u32>) {
        if !numbers.is_empty() {
            self.streams.push(Stream {
                numbers,
                next: 0,
                texts: TermTexts::default(),
                texts_from: 0,
                slices: Slices::default(),
            });
        }
    }

    /// Adds numbers of ids of the dictionary that ascend.
    pub(super) fn add_sections(
        &mut self,
        numbers: &[u32],
        ids: &[TermId],
        memory: &mut Memory,
        context: &QueryContext,
    ) -> Result<()> {
        let id = |number: &u32| ids.get(*number as usize).copied().unwrap_or_default();
        let mut rest = numbers;
        for section in context.snapshot().key_sections(self.kind) {
            let count = rest.partition_point(|number| id(number).payload() < section.payloads.end);
            let (some, others) = rest.split_at(count);
            rest = others;
            if section.is_ordered {
                self.add(some.to_vec());
                continue;
            }
            // Ids were given in another order than that of the keys.
            let mut places: Vec<(u64, u32)> = Vec::new();
            let bytes = some.len() * size_of::<(u64, u32)>();
            memory.require(self.held + bytes as u64)?;
            places.reserve_exact(some.len());
            for slice in some.chunks(PIECE_ROWS) {
                context.check()?;
                let ids: Vec<_> = slice.iter().map(id).collect();
                let found = context.snapshot().key_places(&ids)?;
                places.extend(found.into_iter().zip(slice.iter().copied()));
            }
            places.sort_unstable();
            self.add(places.into_iter().map(|(_, number)| number).collect());
        }
        match rest {
            [] => Ok(()),
            _ => Err(Error::Internal("an id that no section holds")),
        }
    }

    /// Where there are many lists, slices are smaller, so that all of them together take what four take otherwise.
    pub(super) fn share_slices(&mut self) {
        let target = (4 * SLICE_BYTES / self.streams.len().max(1)).min(SLICE_BYTES);
        for stream in &mut self.streams {
            stream.slices = Slices::of(target);
        }
    }

    /// How many terms there are.
    pub(super) fn count(&self) -> usize {
        self.streams.iter().map(|stream| stream.numbers.len()).sum()
    }

    /// Whether most of them are not wanted, nor their texts read.
    pub(super) fn wants_few(&self) -> bool {
        self.wanted < self.count() / 2
    }

    /// How many lists there are.
    pub(super) const fn lists(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is one list at most, which is in order as it is.
    pub(super) fn is_merged(&self, ids: &[TermId]) -> bool {
        match self.streams.as_slice() {
            [] => true,
            [only] => self.kind == Kind::Iri || is_short(only, ids),
            _ => false,
        }
    }

    /// Cuts what was not begun into merges that follow each other, so many at most. `held` is what the account holds.
    pub(super) fn cut(
        &self,
        pieces: usize,
        ids: &[TermId],
        (memory, held): (&mut Memory, u64),
        context: &QueryContext,
    ) -> Result<Vec<Self>> {
        let (kind, streams) = (self.kind, self.streams.as_slice());
        let mut texts = Texts {
            ids,
            texts: TermTexts::default(),
            memory,
            held,
            context,
        };
        // For each list where its pieces end.
        let ends: Vec<Vec<usize>> = match streams {
            [only] => {
                let count = only.numbers.len();
                vec![(1..pieces).map(|piece| piece * count / pieces).collect()]
            }
            _ => {
                let keys = texts.keys_between(streams, pieces)?;
                let mut ends_of = |stream: &Stream| {
                    let ends = keys.iter().map(|key| texts.position(stream, key));
                    ends.collect::<Result<Vec<_>>>()
                };
                streams.iter().map(&mut ends_of).collect::<Result<_>>()?
            }
        };
        let mut merges: Vec<Self> = (0..pieces)
            .map(|_| Self::new(kind, usize::MAX, 0))
            .collect();
        for (stream, ends) in streams.iter().zip(ends) {
            let mut start = 0;
            let ends = ends.into_iter().chain([stream.numbers.len()]);
            for (merge, end) in merges.iter_mut().zip(ends) {
                let some = stream.numbers.get(start..end).unwrap_or_default();
                merge.add(some.to_vec());
                start = end;
            }
        }
        Ok(merges)
    }

    /// Merges some more; true when all is done, or as many are in order as are wanted.
    pub(super) fn step(
        &mut self,
        (ids, out, others): Target<'_>,
        memory: &mut Memory,
        context: &QueryContext,
    ) -> Result<bool> {
        if self.is_merged(ids) {
            out.extend(self.streams.iter().flat_map(|only| &only.numbers));
            return Ok(true);
        }
        if out.len() >= self.wanted {
            return Ok(true);
        }
        if !self.is_ready {
            for index in 0..self.streams.len() {
                self.refill(index, ids, memory, context)?;
            }
            let mut queue: Vec<usize> = (0..self.streams.len()).collect();
            queue.sort_unstable_by(|a, b| self.head(*b).cmp(self.head(*a)));
            self.queue = queue;
            self.is_ready = true;
        }
        let mut slices = 0;
        for _ in 0..PIECE_ROWS {
            let Some(&index) = self.queue.last() else {
                return Ok(true);
            };
            let is_string = self.kind == Kind::Iri || key::is_string(self.head(index));
            let Some(stream) = self.streams.get_mut(index) else {
                return Err(Error::Internal("a list that is not merged"));
            };
            let number = stream.numbers.get(stream.next).copied();
            match is_string {
                true => out.extend(number),
                false => others.extend(number),
            }
            if out.len() >= self.wanted {
                return Ok(true);
            }
            stream.next += 1;
            if stream.next == stream.numbers.len() {
                stream.texts = TermTexts::default();
                self.queue.pop();
                continue;
            }
            if stream.next - stream.texts_from == stream.texts.len() {
                self.refill(index, ids, memory, context)?;
                slices += 1;
            }
            self.sift(index);
            if slices == STEP_SLICES {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Brings the stream at the end of the queue to its place.
    fn sift(&mut self, index: usize) {
        let Some((_, rest)) = self.queue.split_last() else {
            return;
        };
        let key = self.head(index);
        // Mostly it stays where it is.
        if rest.last().is_none_or(|other| self.head(*other) >= key) {
            return;
        }
        let place = rest.partition_point(|other| self.head(*other).cmp(key) == Ordering::Greater);
        if let Some(moved) = self.queue.get_mut(place..) {
            moved.rotate_right(1);
        }
    }

    /// The key that a stream goes on with.
    fn head(&self, index: usize) -> &[u8] {
        self.streams.get(index).map_or(&[], |stream| {
            stream.texts.get(stream.next - stream.texts_from)
        })
    }

    fn refill(
        &mut self,
        index: usize,
        ids: &[TermId],
        memory: &mut Memory,
        context: &QueryContext,
    ) -> Result<()> {
        context.check()?;
        let texts = |stream: &Stream| stream.texts.memory_bytes();
        let all: usize = self.streams.iter().map(texts).sum();
        let Some(stream) = self.streams.get_mut(index) else {
            return Ok(());
        };
        let held = self.held + (all - texts(stream)) as u64;
        let end = stream.numbers.len().min(stream.next + stream.slices.rows());
        let some: Vec<TermId> = stream
            .numbers
            .get(stream.next..end)
            .unwrap_or_default()
            .iter()
            .map(|number| ids.get(*number as usize).copied().unwrap_or_default())
            .collect();
        if stream.texts.size_bytes() > 2 * SLICE_BYTES {
            stream.texts = TermTexts::default();
        }
        stream.texts.clear();
        stream.texts_from = stream.next;
        if is_short(stream, ids) {
            push_short(&some, &mut stream.texts)?;
            return memory.require(held + stream.texts.memory_bytes() as u64);
        }
        context.texts_within(&some, &mut stream.texts, memory, held)?;
        stream.slices.note(stream.texts.size_bytes());
        Ok(())
    }
}

/// Looks at single keys.
struct Texts<'a> {
    ids: &'a [TermId],
    texts: TermTexts,
    memory: &'a mut Memory,
    held: u64,
    context: &'a QueryContext,
}

impl Texts<'_> {
    /// How many keys are looked at for each that is chosen.
    const SAMPLED: usize = 4;

    /// Longer keys are cut: what lies between is to be of about one size, no more.
    const CUT_BYTES: usize = 256;

    /// Keys that leave about as many of all lists between each other.
    fn keys_between(&mut self, streams: &[Stream], pieces: usize) -> Result<Vec<Vec<u8>>> {
        let all: usize = streams.iter().map(|stream| stream.numbers.len()).sum();
        let step = (all / (pieces * Self::SAMPLED)).max(1);
        let mut keys = Vec::new();
        for stream in streams {
            for place in (step / 2..stream.numbers.len()).step_by(step) {
                let key = self.read(stream, place)?;
                keys.push(key.get(..Self::CUT_BYTES).unwrap_or(key).to_vec());
            }
        }
        keys.sort_unstable();
        let count = keys.len();
        let chosen = (1..pieces).filter_map(|piece| keys.get(piece * count / pieces).cloned());
        Ok(chosen.collect())
    }

    /// How many keys of a list are smaller.
    fn position(&mut self, stream: &Stream, key: &[u8]) -> Result<usize> {
        let (mut low, mut high) = (0, stream.numbers.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.read(stream, middle)? < key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }

    fn read(&mut self, stream: &Stream, place: usize) -> Result<&[u8]> {
        let number = stream.numbers.get(place).copied().unwrap_or(0);
        let id = self.ids.get(number as usize).copied().unwrap_or_default();
        self.texts.clear();
        if is_short(stream, self.ids) {
            push_short(&[id], &mut self.texts)?;
        } else {
            let (memory, held) = (&mut *self.memory, self.held);
            self.context
                .texts_within(&[id], &mut self.texts, memory, held)?;
        }
        Ok(self.texts.get(0))
    }
}

/// Adds the keys of inline strings.
fn push_short(ids: &[TermId], texts: &mut TermTexts) -> Result<()> {
    let (mut lexical, mut bytes) = (Vec::new(), Vec::new());
    for id in ids {
        lexical.clear();
        bytes.clear();
        if inline::write_lexical(*id, &mut lexical) {
            let text = std::str::from_utf8(&lexical)
                .map_err(|_| Error::Internal("a short string that is no text"))?;
            key::literal_key_parts(text, None, None, None, &mut bytes);
        }
        texts.push(&bytes);
    }
    Ok(())
}

/// Whether the list is that of inline strings.
fn is_short(stream: &Stream, ids: &[TermId]) -> bool {
    let first = stream.numbers.first();
    let id = first.and_then(|number| ids.get(*number as usize));
    id.is_some_and(|id| id.kind() == Kind::ShortString)
}
