//! What a commit writes to the log: its changes, so that recovery makes the same commit again.
//!
//! Numbers are of variable length; ids are told as the difference to the one before them in the same
//! column, so that sorted rows take few bytes.
//!
//! A commit that clears graphs has a record of another kind, which names the graphs and not their quads.
//!
//! # Format
//! docs/format.md#commit-records

use stoa_storage::NewRecord;
use stoa_terms::TermId;

use super::rows::{put_rows, take_rows};
use crate::delta::{Cleared, EffectiveChanges, GraphChange, GraphMask, Sizes};
use crate::error::{Error, Result};
use crate::segment::Row;

/// The kind of a log record that is a commit.
pub(crate) const RECORD_COMMIT: u32 = 1;
/// The kind of a log record that is a commit which clears graphs.
pub(crate) const RECORD_CLEARING: u32 = 8;
/// How a clearing record names graphs: those that are cleared, or those that are not.
pub(crate) const CLEARED_SOME: u64 = 0;
pub(crate) const CLEARED_ALL_BUT: u64 = 1;
/// Bytes of seven bits that a number of 64 bits takes at most.
const NUMBER_BYTES_MAX: usize = 10;
/// So many bytes of a record are read at first for its head, then twice as many.
const HEAD_BYTES: usize = 256;
/// A row takes at least a byte a column.
const ROW_BYTES_MIN: usize = 4;

/// A kind as the log takes it.
const fn kind(kind: u32) -> u8 {
    let [kind, ..] = kind.to_le_bytes();
    kind
}

/// A record as it was read.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) head: Head,
    pub(crate) changes: EffectiveChanges,
}

/// The beginning of a record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Head {
    /// The numbering of terms that its ids are of.
    pub(crate) numbering: u64,
    /// What the author of the commit says of it.
    pub(crate) message: Option<String>,
    pub(crate) added: u64,
    pub(crate) removed: u64,
}

/// The record of a commit with the payload of its changes.
pub(crate) fn of_commit<'a>(
    commit: u64,
    changes: &EffectiveChanges,
    payload: &'a [u8],
) -> NewRecord<'a> {
    NewRecord {
        kind: kind(match changes.clears() {
            true => RECORD_CLEARING,
            false => RECORD_COMMIT,
        }),
        commit,
        payload,
    }
}

/// About as many bytes as the record of changes takes at most, without the message.
pub(crate) fn bytes_max(changes: &EffectiveChanges) -> u64 {
    let rows = changes.added().len() + changes.removed().len();
    changes.memory_bytes() + (rows * 8) as u64 + 64
}

/// The payload of the record of a commit, whose ids are of a numbering.
pub(crate) fn encode(changes: &EffectiveChanges, message: Option<&str>, numbering: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, numbering);
    let message = message.unwrap_or_default();
    put(&mut out, message.len() as u64);
    out.extend_from_slice(message.as_bytes());
    put(&mut out, changes.added_count());
    put(&mut out, changes.removed_count());
    put(&mut out, changes.next_blank_node());
    if changes.clears() {
        put_cleared(&mut out, changes.clearing());
    }
    let terms = changes.terms().count();
    put(&mut out, terms as u64);
    let mut last = 0;
    for (_, key, id) in changes.terms() {
        put_difference(&mut out, &mut last, id.to_bits());
        put(&mut out, key.len() as u64);
        out.extend_from_slice(key);
    }
    let graphs: Vec<GraphChange> = changes.graphs().collect();
    put(&mut out, graphs.len() as u64);
    let mut last = 0;
    for change in graphs {
        put_difference(&mut out, &mut last, change.graph.to_bits());
        out.push(u8::from(change.created));
    }
    put_rows(&mut out, changes.removed_rows());
    put_rows(&mut out, changes.added_rows());
    out
}

/// The record of a kind with a payload; `None` if it is none.
pub(crate) fn decode(kind: u8, payload: &[u8]) -> Option<Record> {
    let head = decode_head(payload)?;
    let mut reader = Reader::new(kind, payload)?;
    let cleared = reader.cleared().clone();
    let sizes = reader.sizes()?;
    let mut terms = Vec::with_capacity(sizes.terms);
    reader.terms(|id, key| terms.push((id, key.to_vec())))?;
    let mut graphs = Vec::with_capacity(sizes.graphs);
    reader.graphs(|change| graphs.push(change))?;
    let mut removed = Vec::with_capacity(sizes.removed);
    reader.removed(|row| removed.push(row))?;
    let mut added = Vec::with_capacity(sizes.added);
    let next_blank_node = reader.added(|row| added.push(row))?;
    let changes = EffectiveChanges::of_rows(added, removed, &graphs, terms, next_blank_node)?;
    Some(Record {
        head,
        changes: changes.after_clearing(cleared),
    })
}

/// Takes the payload of a record apart. To be asked for its pieces in the order of its functions; each is
/// `None` if there is something else.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    numbering: u64,
    added: u64,
    removed: u64,
    next_blank_node: u64,
    cleared: Cleared,
}

impl<'a> Reader<'a> {
    pub(super) fn new(kind: u8, payload: &'a [u8]) -> Option<Self> {
        let mut rest = payload;
        let head = take_head(&mut rest)?;
        let next_blank_node = take(&mut rest)?;
        let cleared = match u32::from(kind) {
            RECORD_COMMIT => Cleared::default(),
            RECORD_CLEARING => take_cleared(&mut rest)?,
            _ => return None,
        };
        Some(Self {
            rest,
            numbering: head.numbering,
            added: head.added.checked_add(cleared.kept)?,
            removed: head.removed.checked_sub(cleared.quads - cleared.kept)?,
            next_blank_node,
            cleared,
        })
    }

    /// The graphs that were cleared before anything else.
    pub(super) fn cleared(&self) -> &Cleared {
        &self.cleared
    }

    /// The numbering of terms that the ids are of.
    pub(super) fn numbering(&self) -> u64 {
        self.numbering
    }

    /// How much follows: never more than fits the bytes that there are.
    pub(super) fn sizes(&self) -> Option<Sizes> {
        let mut ahead = Self {
            cleared: Cleared::default(),
            ..*self
        };
        let (mut terms, mut key_bytes) = (0, 0);
        ahead.terms(|_, key| {
            terms += 1;
            key_bytes += key.len();
        })?;
        let count = |count: u64, least: usize| {
            let count = usize::try_from(count).ok()?;
            (count <= ahead.rest.len() / least).then_some(count)
        };
        Some(Sizes {
            added: count(self.added, ROW_BYTES_MIN)?,
            removed: count(self.removed, ROW_BYTES_MIN)?,
            graphs: count(take(&mut &*ahead.rest)?, 2)?,
            terms,
            key_bytes,
        })
    }

    /// Tells the new terms and their keys.
    pub(super) fn terms(&mut self, mut tell: impl FnMut(TermId, &'a [u8])) -> Option<()> {
        let mut last = 0;
        for _ in 0..take(&mut self.rest)? {
            let id = TermId::from_bits(take_difference(&mut self.rest, &mut last)?);
            let length = take(&mut self.rest)?;
            tell(id, take_bytes(&mut self.rest, length)?);
        }
        Some(())
    }

    /// Tells what is wanted of graphs.
    pub(super) fn graphs(&mut self, mut tell: impl FnMut(GraphChange)) -> Option<()> {
        let mut last = 0;
        for _ in 0..take(&mut self.rest)? {
            let graph = TermId::from_bits(take_difference(&mut self.rest, &mut last)?);
            let created = match take_bytes(&mut self.rest, 1)? {
                [0] => false,
                [1] => true,
                _ => return None,
            };
            tell(GraphChange { graph, created });
        }
        Some(())
    }

    /// The lists of rows, once terms and graphs were told, and how many were removed and added.
    pub(super) fn lists(self) -> (&'a [u8], u64, u64) {
        (self.rest, self.removed, self.added)
    }

    /// Tells the rows that were removed, ascending.
    pub(super) fn removed(&mut self, tell: impl FnMut(Row)) -> Option<()> {
        take_rows(&mut self.rest, self.removed, tell)
    }

    /// Tells the rows that were added, ascending; returns the first number that no blank node has after
    /// the commit, 0 if it brought none.
    pub(super) fn added(mut self, tell: impl FnMut(Row)) -> Option<u64> {
        take_rows(&mut self.rest, self.added, tell)?;
        self.rest.is_empty().then_some(self.next_blank_node)
    }
}

/// What a record tells first, of which `read` gives so many bytes as there is room for, none at its end.
///
/// # Errors
/// If there is no such thing, and what reading gives.
pub(crate) fn read_head(
    mut read: impl FnMut(&mut [u8]) -> stoa_storage::Result<usize>,
) -> Result<Head> {
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        bytes.resize(start + HEAD_BYTES.max(start), 0);
        let more = read(bytes.get_mut(start..).unwrap_or_default())?;
        bytes.truncate(start + more);
        if let Some(head) = decode_head(&bytes) {
            return Ok(head);
        }
        if more == 0 {
            return Err(Error::Corruption {
                structure: "log",
                expected: "the changes of a commit".to_owned(),
                found: format!("{} other bytes", bytes.len()),
            });
        }
    }
}

/// What the first bytes of a payload tell; `None` if they are too few, or none of a record.
pub(crate) fn decode_head(payload: &[u8]) -> Option<Head> {
    take_head(&mut &*payload)
}

pub(super) fn put_head(out: &mut Vec<u8>, head: &Head) {
    put(out, head.numbering);
    let message = head.message.as_deref().unwrap_or_default();
    put(out, message.len() as u64);
    out.extend_from_slice(message.as_bytes());
    put(out, head.added);
    put(out, head.removed);
}

pub(super) fn take_head(rest: &mut &[u8]) -> Option<Head> {
    let numbering = take(rest)?;
    let length = take(rest)?;
    let message = take_bytes(rest, length)?;
    let message = String::from_utf8(message.to_vec()).ok()?;
    Some(Head {
        numbering,
        message: Some(message).filter(|message| !message.is_empty()),
        added: take(rest)?,
        removed: take(rest)?,
    })
}

/// The graphs that are cleared, how many quads they held, and how many of these are added again.
fn put_cleared(out: &mut Vec<u8>, cleared: &Cleared) {
    put(out, cleared.quads);
    put(out, cleared.kept);
    put(
        out,
        match &cleared.graphs {
            GraphMask::Some(_) => CLEARED_SOME,
            GraphMask::AllBut(_) => CLEARED_ALL_BUT,
        },
    );
    let graphs = cleared.graphs.listed();
    put(out, graphs.len() as u64);
    let mut last = 0;
    for graph in graphs {
        put_difference(out, &mut last, graph.to_bits());
    }
}

fn take_cleared(rest: &mut &[u8]) -> Option<Cleared> {
    let (quads, kept) = (take(rest)?, take(rest)?);
    if kept > quads {
        return None;
    }
    let is_some = match take(rest)? {
        CLEARED_SOME => true,
        CLEARED_ALL_BUT => false,
        _ => return None,
    };
    let (mut graphs, mut last) = (Vec::new(), 0);
    for _ in 0..take(rest)? {
        graphs.push(TermId::from_bits(take_difference(rest, &mut last)?));
    }
    if !graphs.is_sorted_by(|one, next| one < next) {
        return None;
    }
    let graphs = match is_some {
        true => GraphMask::Some(graphs),
        false => GraphMask::AllBut(graphs),
    };
    // A commit without an effect has no record.
    let clears = !graphs.is_none() && quads > 0;
    clears.then_some(Cleared {
        graphs,
        quads,
        kept,
        hidden: 0,
    })
}

/// A difference of either sign as a number that is small if the difference is.
pub(crate) fn put_difference(out: &mut Vec<u8>, last: &mut u64, value: u64) {
    let difference = value.wrapping_sub(*last).cast_signed();
    put(
        out,
        ((difference << 1) ^ (difference >> 63)).cast_unsigned(),
    );
    *last = value;
}

pub(crate) fn take_difference(rest: &mut &[u8], last: &mut u64) -> Option<u64> {
    let number = take(rest)?;
    let difference = (number >> 1) ^ (number & 1).wrapping_neg();
    *last = last.wrapping_add(difference);
    Some(*last)
}

/// Seven bits a byte, the lowest first; all bytes but the last have bit 7 set.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

#[inline]
pub(crate) fn take(rest: &mut &[u8]) -> Option<u64> {
    match rest.split_first() {
        Some((byte, after)) if byte & 0x80 == 0 => {
            *rest = after;
            Some(u64::from(*byte))
        }
        _ => take_long(rest),
    }
}

fn take_long(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..NUMBER_BYTES_MAX {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        if place == NUMBER_BYTES_MAX - 1 && bits > 1 {
            return None;
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

pub(crate) fn take_bytes<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stoa_terms::Kind;

    use super::*;
    use crate::commit::rows::RecordRows;

    fn changes(added: Vec<Row>, removed: Vec<Row>) -> EffectiveChanges {
        let iri = |payload| TermId::new(Kind::Iri, payload);
        let graphs = [true, false].map(|created| GraphChange {
            graph: iri(u64::from(created) + 7),
            created,
        });
        let terms = vec![
            (iri(5), b"http://example.org/a".to_vec()),
            (iri(6), b"http://example.org/b".to_vec()),
            (TermId::new(Kind::Literal, 0), vec![0; 300]),
        ];
        EffectiveChanges::of_rows(added, removed, &graphs, terms, 9).unwrap()
    }

    fn assert_equal(one: &EffectiveChanges, two: &EffectiveChanges) {
        assert_eq!(one.added_rows(), two.added_rows());
        assert_eq!(one.removed_rows(), two.removed_rows());
        assert!(one.terms().eq(two.terms()));
        assert!(one.graphs().eq(two.graphs()));
        assert_eq!(one.clearing(), two.clearing());
        assert_eq!(one.next_blank_node(), two.next_blank_node());
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let value = prop_oneof![0..9_u64, any::<u64>(), Just(u64::MAX)];
        let rows = prop::collection::btree_set(
            [value.clone(), value.clone(), value.clone(), value],
            0..40,
        );
        rows.prop_map(|rows| rows.into_iter().collect())
    }

    /// The graphs that a commit clears, if it does, and how many of their quads it adds again.
    fn clearings() -> impl Strategy<Value = Option<Cleared>> {
        let graphs = prop::collection::vec(any::<u64>().prop_map(TermId::from_bits), 0..4);
        let some = (graphs, any::<bool>(), 1..u64::MAX >> 1, 0..9_u64);
        let some = some.prop_map(|(graphs, all, quads, kept)| Cleared {
            graphs: match all || graphs.is_empty() {
                true => GraphMask::all_but(graphs),
                false => GraphMask::some(graphs),
            },
            quads,
            kept: kept.min(quads),
            hidden: 0,
        });
        prop::option::of(some)
    }

    /// The changes after a clearing that keeps no more than they add.
    fn after(changes: EffectiveChanges, cleared: Option<Cleared>) -> EffectiveChanges {
        let added = changes.added().len() as u64;
        let cleared = cleared.map(|cleared| Cleared {
            kept: cleared.kept.min(added),
            ..cleared
        });
        changes.after_clearing(cleared.unwrap_or_default())
    }

    proptest! {
        #[test]
        fn a_record_comes_back(added in rows(), removed in rows(), cleared in clearings(), message in "\\PC{0,9}") {
            let changes = after(changes(added, removed), cleared);
            let payload = encode(&changes, Some(&message), 7);
            let kind = of_commit(1, &changes, &payload).kind;
            let record = decode(kind, &payload).unwrap();
            assert_equal(&record.changes, &changes);
            let mut rows = RecordRows::of(kind, payload.clone()).unwrap();
            let mut told = Vec::new();
            for limit in (7..).step_by(7) {
                rows.next(limit, |row, is_removed| (row, is_removed), &mut told).unwrap();
                if told.len() < limit {
                    break;
                }
            }
            let count = told.len();
            rows.next(usize::MAX, |row, is_removed| (row, is_removed), &mut told).unwrap();
            prop_assert_eq!(told.len(), count);
            let all = changes.removed_rows().iter().map(|row| (*row, true));
            let all = all.chain(changes.added_rows().iter().map(|row| (*row, false)));
            prop_assert!(told.into_iter().eq(all));
            let head = decode_head(&payload).unwrap();
            prop_assert_eq!(head.numbering, 7);
            prop_assert_eq!(head.message.unwrap_or_default(), message);
            let counts = (changes.added_count(), changes.removed_count());
            prop_assert_eq!((head.added, head.removed), counts);
        }

        /// Whatever the bytes are, there is no panic, and what is shorter is no record.
        #[test]
        fn other_bytes_are_no_record(
            added in rows(), cleared in clearings(), cut in any::<prop::sample::Index>(), mask in 1..=255_u8,
        ) {
            let changes = after(changes(added, Vec::new()), cleared);
            let mut payload = encode(&changes, None, 0);
            let kind = of_commit(1, &changes, &payload).kind;
            let cut = cut.index(payload.len());
            prop_assert!(decode(kind, &payload[..cut]).is_none());
            prop_assert!(decode(kind + 1, &payload).is_none());
            payload[cut] ^= mask;
            drop(decode(kind, &payload));
        }
    }

    #[test]
    fn neighbouring_rows_take_few_bytes() {
        let id = |kind, payload| TermId::new(kind, payload).to_bits();
        let rows = (0..1000_u64).map(|n| {
            let (s, o) = (id(Kind::Iri, 5000 + n / 4), id(Kind::Literal, n * 7));
            [id(Kind::Iri, 3), s, o, 1]
        });
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable();
        let changes = EffectiveChanges::of_rows(rows, Vec::new(), &[], Vec::new(), 0).unwrap();
        assert!(encode(&changes, None, 0).len() < 1000 * 6);
    }
}
