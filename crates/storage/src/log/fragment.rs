//! A fragment: a header and as much of a record's payload as one file and one checksum hold.
//!
//! # Invariants
//! 1. `judge` gives back what `encode` was given, and nothing else passes (tests in
//!    `log/tests.rs`).
//!
//! # Format
//! docs/format.md#fragments

use crate::bytes::{Decoder, put, to_usize};
use crate::format::{
    FRAGMENT_ALIGNMENT, FRAGMENT_BEFORE, FRAGMENT_COMMIT, FRAGMENT_CRC, FRAGMENT_DURABLE,
    FRAGMENT_FIRST, FRAGMENT_FLAGS, FRAGMENT_GIVEN_UP, FRAGMENT_HEADER_BYTES, FRAGMENT_IDENTITY,
    FRAGMENT_KIND, FRAGMENT_LAST, FRAGMENT_LENGTH, FRAGMENT_OPENING, FRAGMENT_PAYLOAD_BYTES_MAX,
    FRAGMENT_POSITION, FRAGMENT_TIME,
};
use crate::store::Identity;

/// The same as the length of a header, for sums of positions.
pub(super) const HEADER_BYTES: u64 = FRAGMENT_HEADER_BYTES as u64;

/// What the header of a fragment says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fragment {
    /// Length of the payload, in bytes.
    pub(super) length: u32,
    pub(super) identity: u64,
    pub(super) position: u64,
    /// The end of a record; everything before it was durable when this was made.
    pub(super) durable: u64,
    pub(super) commit: u64,
    pub(super) time: u64,
    /// Bytes of the record's payload in fragments before this one.
    pub(super) before: u64,
    pub(super) opening: u32,
    pub(super) kind: u8,
    pub(super) flags: u32,
}

/// Why bytes are not the fragment that was looked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Mismatch {
    pub(super) expected: String,
    pub(super) found: String,
    /// Whether nothing was ever written here, or only what the file held before it was recycled.
    pub(super) untouched: bool,
}

/// A number that tells the fragments of a database, timeline and generation from those of others.
pub(super) fn identity_mark(identity: &Identity) -> u64 {
    let [low, high] = [identity.database_id, identity.database_id >> 64].map(|half| {
        u64::try_from(half & u128::from(u64::MAX)).expect("half of a database id has 64 bits")
    });
    let timeline = identity.timeline.rotate_left(21);
    // Not zero, so that zeros are nobody's.
    (low ^ high ^ timeline ^ identity.generation.rotate_left(42)) | 1
}

/// The length of a fragment with a payload of `length` bytes.
pub(super) fn span(length: usize) -> usize {
    (FRAGMENT_HEADER_BYTES + length).next_multiple_of(FRAGMENT_ALIGNMENT)
}

impl Fragment {
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether the record ends here, whole or given up.
    pub(super) fn ends(&self) -> bool {
        self.has(FRAGMENT_LAST | FRAGMENT_GIVEN_UP)
    }

    /// The length of the whole fragment.
    pub(super) fn span(&self) -> usize {
        span(to_usize(self.length.into()))
    }

    /// Appends header, `payload` and padding to `target`; `self.length` is that of the payload.
    pub(super) fn encode(&self, payload: &[u8], target: &mut Vec<u8>) {
        assert!(payload.len() <= FRAGMENT_PAYLOAD_BYTES_MAX);
        let start = target.len();
        target.resize(start + FRAGMENT_HEADER_BYTES, 0);
        target.extend_from_slice(payload);
        target.resize(start + span(payload.len()), 0);
        let bytes = target.get_mut(start..).expect("it was just made as long");
        let length = u32::try_from(payload.len()).expect("the length was checked");
        let [flags, ..] = self.flags.to_le_bytes();
        put(bytes, FRAGMENT_LENGTH, &length.to_le_bytes());
        put(bytes, FRAGMENT_IDENTITY, &self.identity.to_le_bytes());
        put(bytes, FRAGMENT_POSITION, &self.position.to_le_bytes());
        put(bytes, FRAGMENT_DURABLE, &self.durable.to_le_bytes());
        put(bytes, FRAGMENT_COMMIT, &self.commit.to_le_bytes());
        put(bytes, FRAGMENT_TIME, &self.time.to_le_bytes());
        put(bytes, FRAGMENT_BEFORE, &self.before.to_le_bytes());
        put(bytes, FRAGMENT_OPENING, &self.opening.to_le_bytes());
        put(bytes, FRAGMENT_KIND, &[self.kind]);
        put(bytes, FRAGMENT_FLAGS, &[flags]);
        let crc = checksum(bytes);
        put(bytes, FRAGMENT_CRC, &crc.to_le_bytes());
    }

    /// The fields of a header and its checksum, not judged; `None` if there are too few bytes.
    pub(super) fn decode(header: &[u8]) -> Option<(u32, Self)> {
        let mut decoder = Decoder::new(header);
        let crc = decoder.u32()?;
        let fragment = Self {
            length: decoder.u32()?,
            identity: decoder.u64()?,
            position: decoder.u64()?,
            durable: decoder.u64()?,
            commit: decoder.u64()?,
            time: decoder.u64()?,
            before: decoder.u64()?,
            opening: decoder.u32()?,
            kind: {
                let [kind] = decoder.array()?;
                kind
            },
            flags: {
                let [flags] = decoder.array::<1>()?;
                flags.into()
            },
        };
        let _zero = decoder.array::<2>()?;
        Some((crc, fragment))
    }

    /// The fragment at the front of `bytes`, which reach to the end of the longest one or of the
    /// file, if it is the one at `position` of the database with this mark.
    pub(super) fn judge(bytes: &[u8], mark: u64, position: u64) -> Result<Self, Mismatch> {
        let expected = format!("a log record at position {position}");
        let mismatch = |untouched, found: String| Mismatch {
            expected: expected.clone(),
            found,
            untouched,
        };
        let Some((crc, fragment)) = Self::decode(bytes) else {
            let found = format!("{} bytes before the end of the file", bytes.len());
            return Err(mismatch(bytes.iter().all(|byte| *byte == 0), found));
        };
        let header = bytes.get(..FRAGMENT_HEADER_BYTES).unwrap_or_default();
        if header.iter().all(|byte| *byte == 0) {
            return Err(mismatch(true, "zeros".to_owned()));
        }
        if fragment.identity != mark {
            return Err(mismatch(false, "bytes that are no log record".to_owned()));
        }
        if fragment.position != position {
            let recycled = fragment.position < position;
            let found = format!("one of position {}", fragment.position);
            return Err(mismatch(recycled, found));
        }
        if to_usize(fragment.length.into()) > FRAGMENT_PAYLOAD_BYTES_MAX {
            return Err(mismatch(false, format!("a length of {}", fragment.length)));
        }
        let Some(whole) = bytes.get(..fragment.span()) else {
            return Err(mismatch(false, "one that is cut short".to_owned()));
        };
        let found = checksum(whole);
        if found != crc {
            let found = format!("crc32c {found:08x} where it says {crc:08x}");
            return Err(mismatch(false, found));
        }
        if fragment.durable > position || fragment.has(FRAGMENT_FIRST) != (fragment.before == 0) {
            return Err(mismatch(
                false,
                "fields that contradict each other".to_owned(),
            ));
        }
        Ok(fragment)
    }
}

fn checksum(fragment: &[u8]) -> u32 {
    crate::crc32c(fragment.get(FRAGMENT_LENGTH..).unwrap_or_default())
}
