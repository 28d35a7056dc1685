//! Sorts references to keys by the keys' bytes.
//!
//! A multikey sort over eight bytes at a time: what is common to a group is skipped, the next eight
//! bytes of each key are copied beside its reference, the group is sorted by them as numbers, and
//! groups that remain equal are sorted by what follows. So IRIs with long common beginnings are
//! read once a level rather than once a comparison.
#![expect(
    clippy::indexing_slicing,
    reason = "depths never exceed the length of a key, bounds of groups come from the slice itself"
)]

use super::vocabulary::{RecordPosition, TermTable};

/// Groups up to this size are sorted by comparing whole keys.
const SMALL: usize = 16;

/// A reference to a key, with eight of its bytes.
#[derive(Clone, Copy)]
struct Cached {
    bytes: u64,
    position: RecordPosition,
}

/// Sorts `positions` by their keys in `vocabulary`, which must differ from one another.
pub(super) fn sort_by_key(positions: &mut [RecordPosition], vocabulary: &TermTable) {
    let mut refs: Vec<Cached> = positions
        .iter()
        .map(|&position| Cached { bytes: 0, position })
        .collect();
    // Explicit, because keys that are prefixes of one another would recurse as deep as they are long.
    let mut groups = vec![(0, refs.len(), 0)];
    while let Some((start, end, depth)) = groups.pop() {
        sort_group(&mut refs[start..end], start, depth, vocabulary, &mut groups);
    }
    for (position, cached) in positions.iter_mut().zip(&refs) {
        *position = cached.position;
    }
}

/// Sorts one group whose keys agree in their first `depth` bytes as far as the next eight bytes
/// after their common prefix tell, and pushes the groups that are still equal.
fn sort_group(
    refs: &mut [Cached],
    start: usize,
    depth: usize,
    vocabulary: &TermTable,
    groups: &mut Vec<(usize, usize, usize)>,
) {
    if refs.len() <= SMALL {
        refs.sort_unstable_by(|a, b| {
            vocabulary.key(a.position)[depth..].cmp(&vocabulary.key(b.position)[depth..])
        });
        return;
    }
    let depth = common_prefix(refs, depth, vocabulary);
    for cached in refs.iter_mut() {
        cached.bytes = eight_bytes(vocabulary.key(cached.position), depth);
    }
    refs.sort_unstable_by_key(|cached| cached.bytes);
    let mut from = 0;
    while from < refs.len() {
        let bytes = refs[from].bytes;
        let mut to = from + 1;
        while to < refs.len() && refs[to].bytes == bytes {
            to += 1;
        }
        if to - from > 1 {
            // Keys that end within the eight bytes were padded with zeros: they come first, the
            // shorter before the longer; all others go on behind the eight bytes.
            let group = &mut refs[from..to];
            let reach = depth + 8;
            group.sort_unstable_by_key(|cached| {
                vocabulary.key(cached.position).len().min(reach + 1)
            });
            let ended =
                group.partition_point(|cached| vocabulary.key(cached.position).len() <= reach);
            if group.len() - ended > 1 {
                groups.push((start + from + ended, start + to, reach));
            }
        }
        from = to;
    }
}

/// How many bytes all keys of the group share, at least `depth`.
fn common_prefix(refs: &[Cached], depth: usize, vocabulary: &TermTable) -> usize {
    let first = vocabulary.key(refs[0].position);
    let mut common = first.len();
    for cached in &refs[1..] {
        let key = vocabulary.key(cached.position);
        common = common.min(key.len());
        let mut at = depth;
        while at < common && eight_bytes(key, at) == eight_bytes(first, at) {
            at += 8;
        }
        while at < common && key[at] == first[at] {
            at += 1;
        }
        common = common.min(at);
        if common <= depth {
            return depth;
        }
    }
    common
}

/// Eight bytes of `key` from `depth` on as a number that orders like them; zeros behind the end.
fn eight_bytes(key: &[u8], depth: usize) -> u64 {
    if let Some(bytes) = key.get(depth..depth + 8) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        return u64::from_be_bytes(eight);
    }
    let rest = &key[depth.min(key.len())..];
    let mut eight = [0; 8];
    eight[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use stoa_terms::Kind;

    fn check(keys: &BTreeSet<Vec<u8>>, shuffle: u64) {
        let mut shuffled: Vec<&Vec<u8>> = keys.iter().collect();
        shuffled.sort_by_key(|key| rapidhash::v3::rapidhash_v3(key) ^ shuffle);
        let mut vocabulary = TermTable::new(1 << 12);
        for key in &shuffled {
            vocabulary.intern(Kind::Literal, key).unwrap();
        }
        let mut positions = Vec::new();
        vocabulary.for_each(|position, _| positions.push(position));
        sort_by_key(&mut positions, &vocabulary);
        let sorted: Vec<&[u8]> = positions.iter().map(|&p| vocabulary.key(p)).collect();
        let expected: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        assert!(sorted == expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn sorts_like_byte_order(
            keys in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'a', b'b', 255]), 0..30),
                0..400,
            ),
            shuffle: u64,
        ) {
            check(&keys, shuffle);
        }
    }

    #[test]
    fn sorts_iris_and_chains_of_prefixes() {
        let mut keys: BTreeSet<Vec<u8>> = (0..5_000_u32)
            .map(|n| format!("http://example.org/a/long/common/path/{}/{n}", n % 7).into_bytes())
            .collect();
        keys.extend((0..300).map(|n| vec![b'a'; n * 8]));
        keys.extend((0..300).map(|n| vec![0; n]));
        check(&keys, 7);
    }
}
