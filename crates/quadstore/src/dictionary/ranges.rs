//! Ranges of strings as lists of id ranges.
//!
//! The list has the inline short strings and, for each ordered partition of [`Kind::Literal`], the ids
//! between two look-ups. The ids of a permuted partition that lie between are read and become as many
//! ranges as they need; where there are too many, the range of the whole partition stands for them and
//! the list is not exact. New terms of the delta are listed as those of a permuted partition. Literals sort by lexical
//! form first, so a range holds all literals of that kind with a lexical form in the range, whatever their language or datatype: a superset, from which the
//! caller's comparison picks.

use std::ops::Bound;

use stoa_terms::key::push_lexical;
use stoa_terms::{IdRange, Kind, TermId};

use super::Dictionary;
use crate::error::Result;
use crate::read::{IdRanges, StringRange};

/// Follows the lexical form `s` in a bound that is above all keys with `s` (they go on with 0) and
/// below those of longer forms that begin with it (they go on with 1 or more).
const AFTER_LEXICAL: u8 = 1;
/// Bytes of an inline string, and bits of its length.
const SHORT_BYTES: usize = 7;
const SHORT_LENGTH_BITS: u32 = 4;

/// So many ids of a permuted partition are listed one by one: 16 MB.
const PERMUTED_IDS_MAX: u64 = 1 << 20;

/// Keys from the first on, below the second.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    pub(crate) below: Option<Vec<u8>>,
}

impl Dictionary {
    /// The ids of the strings, and of all other literals of [`Kind::Literal`], whose lexical form
    /// lies in `range`.
    pub(crate) fn string_ranges(&self, range: &StringRange) -> Result<IdRanges> {
        let keys = KeyRange::of(range);
        let mut ids = self.key_ranges(Kind::Literal, &keys, PERMUTED_IDS_MAX)?;
        // The kind of short strings is below that of literals.
        ids.ranges.splice(..0, short_range(range));
        Ok(ids)
    }

    /// The ids of the IRIs that start with `prefix`.
    pub(crate) fn iri_ranges(&self, prefix: &str) -> Result<IdRanges> {
        let keys = KeyRange::of_prefix(Kind::Iri, prefix);
        self.key_ranges(Kind::Iri, &keys, PERMUTED_IDS_MAX)
    }

    /// See [`crate::Snapshot::prefix_ranges`].
    pub(crate) fn prefix_ranges(
        &self,
        prefix: &str,
        kinds: &[Kind],
        ids_max: u64,
    ) -> Result<IdRanges> {
        let mut all = IdRanges {
            ranges: Vec::new(),
            is_exact: true,
        };
        for &kind in kinds {
            if kind == Kind::ShortString {
                all.ranges
                    .extend(short_range(&StringRange::Prefix(prefix.to_owned())));
                continue;
            }
            let found = self.key_ranges(kind, &KeyRange::of_prefix(kind, prefix), ids_max)?;
            all.ranges.extend(found.ranges);
            all.is_exact &= found.is_exact;
        }
        Ok(all)
    }

    /// The ids of terms with such keys; at most `ids_max` of them are listed one by one in each part that is not in order.
    fn key_ranges(&self, kind: Kind, keys: &KeyRange, ids_max: u64) -> Result<IdRanges> {
        let mut ids = IdRanges {
            ranges: Vec::new(),
            is_exact: true,
        };
        for partition in self.of_kind(kind) {
            let descriptor = &partition.descriptor;
            let from = partition.lower_bound(&self.source, &keys.from)?;
            let below = match &keys.below {
                Some(below) => partition.lower_bound(&self.source, below)?,
                None => descriptor.count,
            };
            if from >= below {
                continue;
            }
            let range = |from: u64, last: u64| IdRange {
                first: TermId::new(kind, descriptor.first_payload + from),
                last: TermId::new(kind, descriptor.first_payload + last),
            };
            let is_whole = below - from == descriptor.count;
            if descriptor.permuted.is_none() || is_whole {
                ids.ranges.push(range(from, below - 1));
            } else if below - from > ids_max {
                ids.ranges.push(range(0, descriptor.count - 1));
                ids.is_exact = false;
            } else {
                let ordinals: Vec<u64> = (from..below).collect();
                let mut found = partition.ids(&self.source, &ordinals)?;
                ids.ranges.extend(as_ranges(&mut found));
            }
        }
        for terms in self.delta_of(kind) {
            let from = terms.lower_bound(&keys.from);
            let below = match &keys.below {
                Some(below) => terms.lower_bound(below),
                None => terms.len(),
            };
            if below.saturating_sub(from) as u64 > ids_max {
                ids.ranges.push(IdRange {
                    first: TermId::new(kind, terms.first()),
                    last: TermId::new(kind, terms.end() - 1),
                });
                ids.is_exact &= below - from == terms.len();
                continue;
            }
            let mut found: Vec<TermId> = (from..below).map(|place| terms.id(place)).collect();
            ids.ranges.extend(as_ranges(&mut found));
        }
        Ok(ids)
    }
}

/// Ids, in any order, as ranges that ascend.
fn as_ranges(ids: &mut [TermId]) -> impl Iterator<Item = IdRange> + '_ {
    ids.sort_unstable();
    let next = |a: &TermId, b: &TermId| a.to_bits() + 1 == b.to_bits();
    ids.chunk_by(next).filter_map(|run| {
        Some(IdRange {
            first: *run.first()?,
            last: *run.last()?,
        })
    })
}

/// The least string that is greater than all that begin with `prefix`; `None` if there is none.
fn successor(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    // The bytes of UTF-8 are below 0xFF.
    let last = prefix.last_mut()?;
    *last = last.checked_add(1)?;
    Some(prefix)
}

fn lexical(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() + 1);
    push_lexical(text, &mut key);
    key
}

fn after(text: &str) -> Vec<u8> {
    let mut key = lexical(text);
    key.push(AFTER_LEXICAL);
    key
}

impl KeyRange {
    /// Whether a key lies in the range.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let is_below = |below: &Vec<u8>| key < below.as_slice();
        key >= self.from.as_slice() && self.below.as_ref().is_none_or(is_below)
    }

    /// The keys of the terms of a kind whose text, for literals the lexical form, starts with `prefix`.
    pub(crate) fn of_prefix(kind: Kind, prefix: &str) -> Self {
        let from = match kind {
            Kind::Iri => prefix.as_bytes().to_vec(),
            _ => lexical(prefix),
        };
        Self {
            below: successor(from.clone()),
            from,
        }
    }

    /// The keys of the literals with a lexical form in a range.
    pub(crate) fn of(range: &StringRange) -> Self {
        match range {
            StringRange::Prefix(prefix) => Self::of_prefix(Kind::Literal, prefix),
            StringRange::Between { lower, upper } => Self {
                from: match lower {
                    Bound::Included(text) => lexical(text),
                    Bound::Excluded(text) => after(text),
                    Bound::Unbounded => Vec::new(),
                },
                below: match upper {
                    Bound::Included(text) => Some(after(text)),
                    Bound::Excluded(text) => Some(lexical(text)),
                    Bound::Unbounded => None,
                },
            },
        }
    }
}

/// The payload of the inline string of at most seven bytes of `text`, and whether that is all of it.
fn short_payload(text: &str, fill: u8) -> (u64, bool) {
    let bytes = text.as_bytes();
    let mut payload = 0;
    for index in 0..SHORT_BYTES {
        payload = payload << 8 | u64::from(bytes.get(index).copied().unwrap_or(fill));
    }
    let length = bytes.len().min(SHORT_BYTES) as u64;
    (
        payload << SHORT_LENGTH_BITS | length,
        bytes.len() <= SHORT_BYTES,
    )
}

/// The first payload of inline strings that are above `text`, or not below it.
fn short_from(text: &str, is_included: bool) -> u64 {
    let (payload, is_whole) = short_payload(text, 0);
    payload + u64::from(!(is_included && is_whole))
}

fn short_range(range: &StringRange) -> Option<IdRange> {
    let (from, below) = match range {
        StringRange::Prefix(prefix) => {
            let (from, is_whole) = short_payload(prefix, 0);
            let (last, _) = short_payload(prefix, u8::MAX);
            let last = last | ((1 << SHORT_LENGTH_BITS) - 1);
            if !is_whole {
                return None;
            }
            (from, last + 1)
        }
        StringRange::Between { lower, upper } => (
            match lower {
                Bound::Included(text) => short_from(text, true),
                Bound::Excluded(text) => short_from(text, false),
                Bound::Unbounded => 0,
            },
            match upper {
                Bound::Included(text) => short_from(text, false),
                Bound::Excluded(text) => short_from(text, true),
                Bound::Unbounded => TermId::PAYLOAD_MAX + 1,
            },
        ),
    };
    (from < below).then(|| IdRange {
        first: TermId::new(Kind::ShortString, from),
        last: TermId::new(Kind::ShortString, below - 1),
    })
}
