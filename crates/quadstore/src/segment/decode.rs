//! Decoding of the streams that columns of a group are made of.
//!
//! Streams come from disk: whatever the bytes are, decoding gives values or an error, never panics
//! and allocates nothing whose size the bytes decide beyond a group's 1,024 values.

#![expect(
    clippy::indexing_slicing,
    reason = "kernels: lengths are checked once for each stream, before its loops"
)]

use super::bits::{Frame, bits_of, get, packed_bytes, unpack};
use super::delta::{Delta, Segment};
use super::format::{
    DICTIONARY_ENTRIES_MAX, DICTIONARY_HEADER_BYTES, FRAME_ENTRY_BYTES, FRAMES_MAX, GROUP_ROWS,
    PACKED_HEADER_BYTES, RUNS_HEADER_BYTES, SPLIT_HEADER_BYTES, STREAM_DEPTH_MAX, TAG_CONSTANT,
    TAG_DELTA, TAG_DICTIONARY, TAG_PACKED, TAG_RUNS, TAG_SPLIT,
};
use super::scratch::Scratch;

/// Why bytes are not a stream.
pub(crate) type Malformed = &'static str;

const SHORT: Malformed = "a stream that ends early";

/// Takes little-endian numbers off the front of a slice.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<usize, Malformed> {
        Ok(usize::from(u16::from_le_bytes(self.array()?)))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn packed(&mut self, count: usize, width: u32) -> Result<&'a [u8], Malformed> {
        self.take(packed_bytes(count, width))
    }
}

/// The one value of a stream whose values are all equal, if it says so.
pub(crate) fn constant(stream: &[u8]) -> Option<u64> {
    match stream.split_first() {
        Some((&TAG_CONSTANT, rest)) => rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
        _ => None,
    }
}

/// Decodes the first `out.len()` (at most 1,024) values of a stream of that many values.
pub(crate) fn decode(stream: &[u8], out: &mut [u64]) -> Result<(), Malformed> {
    decode_nested(stream, out, 1)
}

/// The value at `index` of a stream of `count` values if the encoding allows to get it without
/// decoding the others.
pub(crate) fn decode_one(
    stream: &[u8],
    count: usize,
    index: usize,
) -> Result<Option<u64>, Malformed> {
    one_nested(stream, count, index, 1)
}

fn one_nested(
    stream: &[u8],
    count: usize,
    index: usize,
    depth: usize,
) -> Result<Option<u64>, Malformed> {
    debug_assert!(index < count);
    if depth > STREAM_DEPTH_MAX {
        return Err("streams nested too deep");
    }
    let mut bytes = Bytes(stream);
    match bytes.u8()? {
        TAG_CONSTANT => bytes.u64().map(Some),
        TAG_PACKED => {
            let (frame, packed) = packed_stream(&mut bytes, count)?;
            Ok(Some(get(packed, frame, count, index)))
        }
        TAG_DICTIONARY => {
            let Codes {
                entries,
                values,
                frame,
                codes,
            } = dictionary_stream(&mut bytes, count)?;
            let code = usize::try_from(get(codes, frame, count, index)).unwrap_or(usize::MAX);
            if code >= entries {
                return Err("a code beyond its dictionary");
            }
            one_nested(values, entries, code, depth + 1)
        }
        TAG_DELTA => Delta::new(bytes, count)?.value(count, index),
        _ => Ok(None),
    }
}

pub(super) fn decode_nested(stream: &[u8], out: &mut [u64], depth: usize) -> Result<(), Malformed> {
    if depth > STREAM_DEPTH_MAX {
        return Err("streams nested too deep");
    }
    if out.is_empty() || out.len() > GROUP_ROWS {
        return Err("a stream of no or too many values");
    }
    let mut bytes = Bytes(stream);
    match bytes.u8()? {
        TAG_CONSTANT => out.fill(bytes.u64()?),
        TAG_PACKED => {
            let (frame, packed) = packed_stream(&mut bytes, out.len())?;
            unpack(packed, frame, out);
        }
        TAG_DELTA => delta(bytes, out)?,
        TAG_RUNS => runs(bytes, out, depth)?,
        TAG_DICTIONARY => dictionary(bytes, out, depth)?,
        TAG_SPLIT => split(bytes, out, depth)?,
        _ => return Err("an unknown encoding"),
    }
    Ok(())
}

pub(super) fn frame(base: u64, shift: u8, width: u8) -> Result<Frame, Malformed> {
    if shift > 63 || width > 64 {
        return Err("a frame of impossible width");
    }
    Ok(Frame {
        base,
        shift: u32::from(shift),
        width: u32::from(width),
    })
}

pub(super) fn packed_stream<'a>(
    bytes: &mut Bytes<'a>,
    count: usize,
) -> Result<(Frame, &'a [u8]), Malformed> {
    let (width, shift) = (bytes.u8()?, bytes.u8()?);
    let frame = frame(bytes.u64()?, shift, width)?;
    Ok((frame, bytes.packed(count, frame.width)?))
}

fn delta(bytes: Bytes<'_>, out: &mut [u64]) -> Result<(), Malformed> {
    let delta = Delta::new(bytes, out.len())?;
    unpack(delta.packed, delta.frame, out);
    // The first difference and those at restarts are placeholders.
    for segment in delta.segments(out.len()) {
        let Segment { start, first, end } = segment?;
        match delta.frame.width {
            0 => count_up(first, delta.frame.base, &mut out[start..end]),
            _ => sum(first, &mut out[start..end]),
        }
    }
    Ok(())
}

/// Turns differences into values: the first of them becomes `first`.
fn sum(first: u64, out: &mut [u64]) {
    let mut value = first;
    let mut differences = out.iter_mut();
    if let Some(difference) = differences.next() {
        *difference = first;
    }
    for difference in differences {
        value = value.wrapping_add(*difference);
        *difference = value;
    }
}

/// The same where all differences are `step`.
fn count_up(first: u64, step: u64, out: &mut [u64]) {
    for (value, index) in out.iter_mut().zip(0_u64..) {
        *value = first.wrapping_add(step.wrapping_mul(index));
    }
}

/// Ends and values of runs, of which there may be as many as rows.
pub(crate) struct RunArrays {
    /// Behind the last row of each run; ascends up to the number of rows.
    pub(super) ends: Scratch,
    pub(super) heads: Scratch,
}

/// The runs of a stream of `rows` values; `bytes` stand behind its tag.
pub(super) fn run_arrays(
    mut bytes: Bytes<'_>,
    rows: usize,
    depth: usize,
) -> Result<RunArrays, Malformed> {
    let width = bytes.u8()?;
    let count = bytes.u16()?;
    if count == 0 || count > rows {
        return Err("no or too many runs");
    }
    let frame = frame(1, 0, width)?;
    let packed = bytes.packed(count, frame.width)?;
    let mut runs = RunArrays {
        ends: Scratch::new(count),
        heads: Scratch::new(count),
    };
    unpack(packed, frame, &mut runs.ends);
    let mut end = 0_u64;
    for length in &mut *runs.ends {
        end = end.saturating_add(*length);
        if *length == 0 {
            return Err("an empty run");
        }
        *length = end;
    }
    if end != rows as u64 {
        return Err("runs that do not fill their group");
    }
    decode_nested(bytes.0, &mut runs.heads, depth + 1)?;
    Ok(runs)
}

impl RunArrays {
    /// Value and end of each run, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        self.from(0)
    }

    /// The same from the run with this number on.
    pub(super) fn from(&self, run: usize) -> impl Iterator<Item = (u64, usize)> {
        let runs = self.heads[run..].iter().zip(&self.ends[run..]);
        runs.map(|(head, end)| (*head, end_row(*end)))
    }

    /// Behind the last row of a run.
    pub(super) fn end(&self, run: usize) -> usize {
        end_row(self.ends[run])
    }

    /// The first run that ends behind a row.
    pub(super) fn run_at(&self, row: usize) -> usize {
        self.ends.partition_point(|end| *end <= row as u64)
    }
}

/// The end of a run, which is at most 1,024.
const fn end_row(end: u64) -> usize {
    (end & 0xffff) as usize
}

fn runs(bytes: Bytes<'_>, out: &mut [u64], depth: usize) -> Result<(), Malformed> {
    let runs = run_arrays(bytes, out.len(), depth)?;
    let mut start = 0;
    for (head, end) in runs.iter() {
        out[start..end].fill(head);
        start = end;
    }
    Ok(())
}

fn runs_range(
    bytes: Bytes<'_>,
    count: usize,
    start: usize,
    out: &mut [u64],
    depth: usize,
) -> Result<(), Malformed> {
    let runs = run_arrays(bytes, count, depth)?;
    let mut filled = 0;
    for (head, end) in runs.iter() {
        if filled == out.len() {
            break;
        }
        // The part of the run that is wanted ends here in `out`.
        let end = end.saturating_sub(start).min(out.len());
        out[filled..end.max(filled)].fill(head);
        filled = end.max(filled);
    }
    Ok(())
}

/// The runs of a stream of `rows` values; `None` if it has another encoding.
pub(crate) fn decode_runs(stream: &[u8], rows: usize) -> Result<Option<RunArrays>, Malformed> {
    match stream.split_first() {
        Some((&TAG_RUNS, rest)) if (1..=GROUP_ROWS).contains(&rows) => {
            run_arrays(Bytes(rest), rows, 1).map(Some)
        }
        _ => Ok(None),
    }
}

/// Decodes the values from `start` on, as many as `out` holds, of a stream of `count` values.
///
/// Cheaper than all of them if they are few.
pub(crate) fn decode_range(
    stream: &[u8],
    count: usize,
    start: usize,
    out: &mut [u64],
) -> Result<(), Malformed> {
    range_nested(stream, count, start, out, 1)
}

fn range_nested(
    stream: &[u8],
    count: usize,
    start: usize,
    out: &mut [u64],
    depth: usize,
) -> Result<(), Malformed> {
    if depth > STREAM_DEPTH_MAX {
        return Err("streams nested too deep");
    }
    if count > GROUP_ROWS || start + out.len() > count {
        return Err("a stream of too few or too many values");
    }
    let mut bytes = Bytes(stream);
    match bytes.u8()? {
        TAG_CONSTANT => out.fill(bytes.u64()?),
        TAG_PACKED => {
            let (frame, packed) = packed_stream(&mut bytes, count)?;
            for (index, value) in out.iter_mut().enumerate() {
                *value = get(packed, frame, count, start + index);
            }
        }
        TAG_DICTIONARY => {
            let Codes {
                entries,
                values: stream,
                frame,
                codes,
            } = dictionary_stream(&mut bytes, count)?;
            let code = |index: usize| {
                let code = get(codes, frame, count, start + index);
                let entry = usize::try_from(code).ok().filter(|code| *code < entries);
                entry.ok_or("a code beyond its dictionary")
            };
            if let [one] = out
                && let Some(value) = one_nested(stream, entries, code(0)?, depth + 1)?
            {
                *one = value;
                return Ok(());
            }
            let mut values = [0; DICTIONARY_ENTRIES_MAX];
            decode_nested(stream, &mut values[..entries], depth + 1)?;
            for (index, value) in out.iter_mut().enumerate() {
                *value = values[code(index)?];
            }
        }
        TAG_SPLIT => split_range(bytes, count, start, out, depth)?,
        TAG_RUNS => runs_range(bytes, count, start, out, depth)?,
        TAG_DELTA if Delta::new(bytes, count)?.range(count, start, out)? => (),
        _ => {
            let mut all = [0; GROUP_ROWS];
            decode_nested(stream, &mut all[..count], depth)?;
            out.copy_from_slice(&all[start..start + out.len()]);
        }
    }
    Ok(())
}

/// The head of a dictionary stream.
pub(super) struct Codes<'a> {
    pub(super) entries: usize,
    /// The stream of the entries.
    pub(super) values: &'a [u8],
    pub(super) frame: Frame,
    pub(super) codes: &'a [u8],
}

pub(super) fn dictionary_stream<'a>(
    bytes: &mut Bytes<'a>,
    count: usize,
) -> Result<Codes<'a>, Malformed> {
    let entries = bytes.u16()?;
    if entries == 0 || entries > DICTIONARY_ENTRIES_MAX {
        return Err("no or too many entries in a dictionary");
    }
    let length = bytes.u16()?;
    let values = bytes.take(length)?;
    let frame = Frame {
        base: 0,
        shift: 0,
        width: code_width(entries),
    };
    Ok(Codes {
        entries,
        values,
        frame,
        codes: bytes.packed(count, frame.width)?,
    })
}

/// The bits of a code or selector among `count`, which is at least 1.
pub(crate) fn code_width(count: usize) -> u32 {
    bits_of(count as u64 - 1)
}

fn dictionary(mut bytes: Bytes<'_>, out: &mut [u64], depth: usize) -> Result<(), Malformed> {
    let Codes {
        entries,
        values: stream,
        frame,
        codes,
    } = dictionary_stream(&mut bytes, out.len())?;
    // Unused places hold 0, so that a masked code needs no check in the loop; codes beyond the
    // entries are found afterwards by their maximum.
    let mut values = [0; DICTIONARY_ENTRIES_MAX];
    decode_nested(stream, &mut values[..entries], depth + 1)?;
    unpack(codes, frame, out);
    let mut largest = 0;
    for value in out.iter_mut() {
        largest = largest.max(*value);
        *value = values[(*value & 0xff) as usize];
    }
    if largest < entries as u64 {
        Ok(())
    } else {
        Err("a code beyond its dictionary")
    }
}

/// The head of a split stream of `count` values.
pub(super) struct Split<'a> {
    pub(super) frames: usize,
    /// For each frame its number of values and its stream.
    pub(super) streams: [(usize, &'a [u8]); FRAMES_MAX],
    /// The frame of each value.
    pub(super) selectors: Scratch,
}

pub(super) fn split_stream(mut bytes: Bytes<'_>, count: usize) -> Result<Split<'_>, Malformed> {
    let frames = usize::from(bytes.u8()?);
    if !(2..=FRAMES_MAX).contains(&frames) {
        return Err("no or too many frames");
    }
    let mut entries = Bytes(bytes.take(frames * FRAME_ENTRY_BYTES)?);
    let frame = Frame {
        base: 0,
        shift: 0,
        width: code_width(frames),
    };
    let mut split = Split {
        frames,
        streams: [(0, &[]); FRAMES_MAX],
        selectors: Scratch::new(count),
    };
    let packed = bytes.packed(count, frame.width)?;
    unpack(packed, frame, &mut split.selectors);
    for stream in &mut split.streams[..frames] {
        let (values, length) = (entries.u16()?, entries.u16()?);
        *stream = (values, bytes.take(length)?);
    }
    Ok(split)
}

fn split(bytes: Bytes<'_>, out: &mut [u64], depth: usize) -> Result<(), Malformed> {
    let split = split_stream(bytes, out.len())?;
    let mut values = Scratch::new(GROUP_ROWS);
    let mut next = [0; FRAMES_MAX];
    let mut ends = [0; FRAMES_MAX];
    let mut start = 0;
    for (frame, (count, stream)) in split.streams.iter().take(split.frames).enumerate() {
        let place = values
            .get_mut(start..start + count)
            .ok_or("frames larger than their group")?;
        decode_nested(stream, place, depth + 1)?;
        next[frame] = start;
        start += count;
        ends[frame] = start;
    }
    for (value, selector) in out.iter_mut().zip(&*split.selectors) {
        let frame = (*selector & 7) as usize;
        *value = values[next[frame] & (GROUP_ROWS - 1)];
        next[frame] += 1;
    }
    if next == ends {
        Ok(())
    } else {
        Err("selectors that do not fit their frames")
    }
}

fn split_range(
    bytes: Bytes<'_>,
    count: usize,
    start: usize,
    out: &mut [u64],
    depth: usize,
) -> Result<(), Malformed> {
    let split = split_stream(bytes, count)?;
    let (before, rest) = split.selectors.split_at(start);
    let wanted = &rest[..out.len()];
    let mut values = Scratch::new(out.len());
    let mut next = [0; FRAMES_MAX];
    let mut used = 0;
    for (frame, (count, stream)) in split.streams.iter().take(split.frames).enumerate() {
        let occurs = |selectors: &[u64]| {
            let selected = selectors.iter().filter(|other| **other == frame as u64);
            selected.count()
        };
        let here = occurs(wanted);
        next[frame] = used;
        if here > 0 {
            let place = &mut values[used..used + here];
            range_nested(stream, *count, occurs(before), place, depth + 1)?;
            used += here;
        }
    }
    for (value, selector) in out.iter_mut().zip(wanted) {
        let frame = (*selector & 7) as usize;
        if frame >= split.frames {
            return Err("a selector beyond the frames");
        }
        // As many were decoded as selectors of this frame are wanted.
        *value = values[next[frame]];
        next[frame] += 1;
    }
    Ok(())
}

const _: () = {
    assert!(PACKED_HEADER_BYTES == 1 + 1 + 1 + 8);
    assert!(RUNS_HEADER_BYTES == 1 + 1 + 2);
    assert!(DICTIONARY_HEADER_BYTES == 1 + 2 + 2);
    assert!(SPLIT_HEADER_BYTES == 1 + 1);
};
