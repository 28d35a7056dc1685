//! Changes to the files of a log.

use stoa_storage::{crc32c, format};

use super::Files;
use super::base::is_log;
use crate::target::damage::{Change, change_root};

/// Where a fragment stands.
pub(super) struct Place {
    /// Which of the files.
    pub(super) file: usize,
    /// In the file, in bytes.
    pub(super) offset: usize,
    /// In the log.
    pub(super) position: u64,
}

/// The fragments of all log files, as far as each has one behind the other.
pub(super) fn fragments(files: &Files) -> Vec<Place> {
    let mut found = Vec::new();
    for (file, (name, bytes)) in files.iter().enumerate() {
        let mut offset = usize::try_from(format::LOG_CONTENT_OFFSET).unwrap_or(0);
        while is_log(name)
            && let Some(length) = read_length(bytes, offset)
            && let Some(position) = bytes.get(offset + format::FRAGMENT_POSITION..)
            && let Some(position) = position.first_chunk()
        {
            found.push(Place {
                file,
                offset,
                position: u64::from_le_bytes(*position),
            });
            offset += span(length);
        }
    }
    found
}

/// The length of the payload of the fragment at `offset`; `None` if there is none.
fn read_length(bytes: &[u8], offset: usize) -> Option<usize> {
    let header = bytes.get(offset..offset + format::FRAGMENT_HEADER_BYTES)?;
    let field = header.get(format::FRAGMENT_LENGTH..)?.first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*field)).ok()?;
    let is_there = header.iter().any(|byte| *byte != 0);
    (is_there && offset + span(length) <= bytes.len()).then_some(length)
}

/// The length of a fragment with so much payload.
fn span(length: usize) -> usize {
    (format::FRAGMENT_HEADER_BYTES + length).next_multiple_of(format::FRAGMENT_ALIGNMENT)
}

/// Changes files; returns whether checksums lie now.
pub(super) fn apply(change: &Change, files: &mut Files) -> bool {
    let logs: Vec<usize> = (0..files.len())
        .filter(|file| files.get(*file).is_some_and(|(name, _)| is_log(name)))
        .collect();
    let pick = |number: usize| logs.get(number % logs.len().max(1)).copied();
    let root = files.iter().position(|(name, _)| name == format::ROOT_FILE);
    // Seldom the root: other targets damage it.
    let at = match change.small % 16 {
        5 => root,
        _ => pick(change.short),
    };
    let (Some(at), Some(other)) = (at, pick(change.short >> 8)) else {
        return false;
    };
    match change.kind % 16 {
        0..=2 => flip(change, files, at),
        3 | 4 => truncate(change, files, at),
        5 | 6 => copy(change, files, other, at),
        7 => zero(change, files, at),
        8 => insert(change, files, other, at),
        9 => exchange(files, at, other),
        10 => rename(change, files, at),
        11 | 12 => return lie_in_fragment(change, files),
        13 => return lie_in_header(change, files, at),
        14 => {
            let kind = change.kind >> 4 << 3;
            return change_root(&Change { kind, ..*change }, files);
        }
        _ => drop_bytes(change, files, at),
    }
    false
}

/// A place in a file, rather in a header.
fn place(change: &Change, files: &Files, at: usize) -> usize {
    let length = files.get(at).map_or(0, |(_, bytes)| bytes.len());
    let own: Vec<usize> = fragments(files)
        .into_iter()
        .filter(|place| place.file == at)
        .map(|place| place.offset)
        .collect();
    let any = change.a % length.max(1);
    match change.small >> 4 & 3 {
        0 => any,
        1 => any % 8_192,
        _ => match own.get(change.a % own.len().max(1)) {
            Some(offset) => (offset + change.b % 80) % length.max(1),
            None => any,
        },
    }
}

fn bytes_of(files: &mut Files, at: usize) -> Option<&mut Vec<u8>> {
    files.get_mut(at).map(|(_, bytes)| bytes)
}

fn flip(change: &Change, files: &mut Files, at: usize) {
    let place = place(change, files, at);
    if let Some(byte) = bytes_of(files, at).and_then(|bytes| bytes.get_mut(place)) {
        *byte ^= change.small | 1;
    }
}

fn truncate(change: &Change, files: &mut Files, at: usize) {
    let place = place(change, files, at);
    if let Some(bytes) = bytes_of(files, at) {
        bytes.truncate(place);
    }
}

/// A range of one file: sectors, or what begins at a fragment.
fn range(change: &Change, files: &Files, at: usize) -> (usize, usize) {
    let place = place(change, files, at);
    let length = (1 + change.b % 9) * format::SECTOR_BYTES;
    if change.small >> 6 == 0 {
        return (place, place + length);
    }
    let from = place / format::SECTOR_BYTES * format::SECTOR_BYTES;
    (from, from + length)
}

fn bytes_in(change: &Change, files: &Files, at: usize) -> Vec<u8> {
    let (from, to) = range(change, files, at);
    let bytes = files.get(at).map_or(&[][..], |(_, bytes)| bytes);
    let to = to.min(bytes.len());
    bytes.get(from..to).unwrap_or_default().to_vec()
}

/// A write that went elsewhere: over other bytes of the file or of another one, or behind its end.
fn copy(change: &Change, files: &mut Files, from: usize, to: usize) {
    let piece = bytes_in(change, files, from);
    let Some(bytes) = bytes_of(files, to) else {
        return;
    };
    let sectors = bytes.len() / format::SECTOR_BYTES;
    let at = match change.a % 5 {
        0 => bytes.len(),
        _ => change.b / 9 % (sectors + 1) * format::SECTOR_BYTES,
    };
    let room = bytes.len().max(at + piece.len());
    bytes.resize(room, 0);
    for (to, from) in bytes.iter_mut().skip(at).zip(piece) {
        *to = from;
    }
}

/// A write that was lost, and before it nothing stood there.
fn zero(change: &Change, files: &mut Files, at: usize) {
    let (from, to) = range(change, files, at);
    if let Some(bytes) = bytes_of(files, at) {
        let to = to.min(bytes.len());
        if let Some(range) = bytes.get_mut(from..to) {
            range.fill(0);
        }
    }
}

/// Puts bytes between others.
fn insert(change: &Change, files: &mut Files, from: usize, to: usize) {
    let piece = bytes_in(change, files, from);
    let place = place(change, files, to);
    if let Some(bytes) = bytes_of(files, to) {
        let place = place.min(bytes.len());
        bytes.splice(place..place, piece);
    }
}

/// Takes bytes out from between others.
fn drop_bytes(change: &Change, files: &mut Files, at: usize) {
    let (from, to) = range(change, files, at);
    if let Some(bytes) = bytes_of(files, at) {
        let to = to.min(bytes.len());
        bytes.drain(from.min(to)..to);
    }
}

/// Exchanges the contents of two files.
fn exchange(files: &mut Files, at: usize, other: usize) {
    let taken = bytes_of(files, at).map(std::mem::take).unwrap_or_default();
    let swapped = bytes_of(files, other).map(|bytes| std::mem::replace(bytes, taken));
    if let (Some(bytes), Some(swapped)) = (bytes_of(files, at), swapped)
        && at != other
    {
        *bytes = swapped;
    } else if let (true, Some(bytes)) = (at == other, bytes_of(files, at)) {
        // Nobody: it is empty then.
        bytes.clear();
    }
}

/// Removes a log file, copies it to a name, or gives it another one.
fn rename(change: &Change, files: &mut Files, at: usize) {
    let Some((name, bytes)) = files.get(at).cloned() else {
        return;
    };
    if !is_log(&name) {
        return;
    }
    if change.a % 3 < 2 {
        files.remove(at);
    }
    if !change.a.is_multiple_of(3) {
        let number = if change.small & 1 == 0 {
            u32::try_from(change.b % 12).unwrap_or(0)
        } else {
            u32::from_le_bytes(change.number)
        };
        let name = format::log_file_name(number);
        files.retain(|(other, _)| *other != name);
        files.push((name, bytes));
    }
}

/// What stands in a field now.
fn lie(change: &Change, field: &mut [u8]) {
    let length = field.len();
    let new: [u8; 8] = match change.kind >> 4 & 7 {
        0 => [0xff; 8],
        1 => [0; 8],
        2 => 0x7fff_ffff_ffff_ffff_u64.to_le_bytes(),
        3 => 0xffff_ffff_ffff_fff8_u64.to_le_bytes(),
        4 => (u64::from(u32::from_le_bytes(change.number)) << 3).to_le_bytes(),
        _ => u64::from(u32::from_le_bytes(change.number)).to_le_bytes(),
    };
    if change.kind & 0x80 != 0 {
        // A little more or less.
        if let Some(byte) = field.first_mut() {
            *byte = byte.wrapping_add(change.small & 0x1f);
        }
        return;
    }
    field.copy_from_slice(new.get(..length).unwrap_or_default());
}

/// Changes a field of a fragment and keeps its checksum right.
fn lie_in_fragment(change: &Change, files: &mut Files) -> bool {
    const FIELDS: &[(usize, usize)] = &[
        (format::FRAGMENT_LENGTH, 4),
        (format::FRAGMENT_IDENTITY, 8),
        (format::FRAGMENT_POSITION, 8),
        (format::FRAGMENT_DURABLE, 8),
        (format::FRAGMENT_COMMIT, 8),
        (format::FRAGMENT_TIME, 8),
        (format::FRAGMENT_BEFORE, 8),
        (format::FRAGMENT_OPENING, 4),
        (format::FRAGMENT_KIND, 1),
        (format::FRAGMENT_FLAGS, 1),
        (format::FRAGMENT_ZERO, 2),
    ];
    let places = fragments(files);
    let Some(place) = places.get(change.short % places.len().max(1)) else {
        return false;
    };
    let Some(&(field, length)) = FIELDS.get(change.a % FIELDS.len()) else {
        return false;
    };
    let Some(bytes) = bytes_of(files, place.file) else {
        return false;
    };
    let end = read_length(bytes, place.offset).map_or(0, |length| place.offset + span(length));
    if let Some(field) = bytes
        .get_mut(place.offset + field..)
        .and_then(|rest| rest.get_mut(..length))
    {
        lie(change, field);
    }
    // A longer one, if the file reaches so far.
    let end = read_length(bytes, place.offset).map_or(end, |length| place.offset + span(length));
    seal(bytes, place.offset, end, format::FRAGMENT_CRC);
    true
}

/// Changes a field of a file header or of a log header and keeps its checksum right.
fn lie_in_header(change: &Change, files: &mut Files, at: usize) -> bool {
    let Some(bytes) = bytes_of(files, at) else {
        return false;
    };
    let in_page = change.a.is_multiple_of(3);
    let (start, most) = if in_page {
        (0, format::HEADER_CRC)
    } else {
        (format::PAGE_LENGTH, format::LOG_HEADER_END)
    };
    let field = match (in_page, change.a / 3 % 4) {
        (false, 0 | 1) => format::LOG_HEADER_START,
        (false, 2) => format::LOG_HEADER_NUMBER,
        (false, _) => format::LOG_HEADER_IDENTITY,
        (true, _) => 8 + change.short % most.saturating_sub(8).max(1),
    };
    let length = if field == format::LOG_HEADER_NUMBER {
        4
    } else {
        8
    };
    if let Some(field) = bytes
        .get_mut(start + field..)
        .and_then(|rest| rest.get_mut(..length))
    {
        lie(change, field);
    }
    if !in_page {
        seal(
            bytes,
            start,
            start + format::LOG_HEADER_END,
            format::LOG_HEADER_CRC,
        );
        return true;
    }
    let Some(page) = bytes.get_mut(..format::PAGE_LENGTH) else {
        return true;
    };
    let mut bare = page.to_vec();
    if let Some(place) = bare.get_mut(format::HEADER_CRC..format::HEADER_CRC + 4) {
        place.fill(0);
    }
    let checksum = crc32c(&bare).to_le_bytes();
    if let Some(place) = page.get_mut(format::HEADER_CRC..format::HEADER_CRC + 4) {
        place.copy_from_slice(&checksum);
    }
    true
}

/// Writes the checksum of what stands behind it, up to `end`.
fn seal(bytes: &mut [u8], start: usize, end: usize, crc: usize) {
    let content = bytes.get(start + crc + 4..end).unwrap_or_default();
    let checksum = crc32c(content).to_le_bytes();
    if let Some(place) = bytes.get_mut(start + crc..start + crc + 4) {
        place.copy_from_slice(&checksum);
    }
}
