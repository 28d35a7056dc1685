//! Quads as sort keys, one layout for a whole load.
//!
//! Sorting moves and compares keys, so they should be small: where the value ranges of a load allow
//! it, a quad is one `u128` whose order is the quad's order in a permutation. The object keeps its 64
//! bits; a subject becomes its number among blank nodes followed by IRIs; predicate and graph become
//! their ranks in the sorted lists of all that occur (no bits at all if there is one). Where that is
//! more than 128 bits in total, [`Wide`] keys are the four ids side by side.
//!
//! # Invariants
//! 1. Packing keeps order and `unpack(pack(q)) == q` (property test `packing_keeps_order`).

#![expect(
    clippy::indexing_slicing,
    reason = "dealing out by predicate is an inner loop; its slots are counted from the same keys"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "ranks of predicates that are dealt out have at most DEALT_BITS_MAX bits"
)]

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rapidhash::fast::RandomState;
use stoa_terms::{Kind, Permutation, TermId};

use crate::{Error, Result};

/// A quad in the order of a permutation, as something to sort.
pub(super) trait SortKey: Copy + Ord + Send + Sync + 'static {
    /// The key's bytes; as many for every key, and ordered like the keys.
    type Bytes: AsRef<[u8]> + AsMut<[u8]> + Copy + Default;
    /// Comes after all keys of quads.
    const END: Self;
    fn to_bytes(self) -> Self::Bytes;
    fn from_bytes(bytes: Self::Bytes) -> Self;
}

impl SortKey for u128 {
    type Bytes = [u8; 16];
    const END: Self = Self::MAX;

    fn to_bytes(self) -> [u8; 16] {
        Self::to_be_bytes(self)
    }

    fn from_bytes(bytes: [u8; 16]) -> Self {
        Self::from_be_bytes(bytes)
    }
}

/// Four ids in the order of a permutation.
pub(super) type Wide = [u64; 4];

impl SortKey for Wide {
    type Bytes = [u8; 32];
    const END: Self = [u64::MAX; 4];

    fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (eight, id) in bytes.chunks_exact_mut(8).zip(self) {
            eight.copy_from_slice(&id.to_be_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; 32]) -> Self {
        let (eights, _) = bytes.as_chunks::<8>();
        let mut ids = eights.iter().map(|&eight| u64::from_be_bytes(eight));
        std::array::from_fn(|_| ids.next().unwrap_or_default())
    }
}

/// With more bits of predicates than this, sorting beats dealing out.
const DEALT_BITS_MAX: u32 = 16;

/// How quads become keys of type `K`.
pub(super) trait Packing: Sync {
    type Key: SortKey;
    /// A quad as its columns are packed; the order of columns is left to [`Packing::pack`].
    type Codes: Copy;
    /// Translates a quad (subject, predicate, object, graph).
    fn codes(&self, quad: [TermId; 4]) -> Result<Self::Codes>;
    /// The key of a quad in a permutation.
    fn pack(&self, permutation: Permutation, codes: Self::Codes) -> Self::Key;
    /// Appends the quads of keys, their ids in the order of the permutation.
    fn unpack(&self, permutation: Permutation, keys: &[Self::Key], quads: &mut Vec<[TermId; 4]>);
    /// Appends to `to`, which is empty, the sorted keys of `sorted` brought from `order.node_first()`
    /// to `order.predicate_first()`.
    fn derive(&self, order: Orders, sorted: &[Self::Key], to: &mut Vec<Self::Key>);
}

/// Two permutations of which the second is the first, sorted by predicate with ties left alone: it
/// needs no sort of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Orders {
    /// SPOG and PSOG.
    Subject,
    /// OPSG and POSG.
    Object,
}

impl Orders {
    pub(super) const ALL: [Self; 2] = [Self::Subject, Self::Object];

    pub(super) const fn node_first(self) -> Permutation {
        match self {
            Self::Subject => Permutation::Spog,
            Self::Object => Permutation::Opsg,
        }
    }

    pub(super) const fn predicate_first(self) -> Permutation {
        match self {
            Self::Subject => Permutation::Psog,
            Self::Object => Permutation::Posg,
        }
    }
}

/// Keys of four ids; for loads that [`Compact`] cannot hold.
pub(super) struct Whole;

impl Packing for Whole {
    type Key = Wide;
    type Codes = [TermId; 4];

    fn codes(&self, quad: [TermId; 4]) -> Result<[TermId; 4]> {
        Ok(quad)
    }

    fn pack(&self, permutation: Permutation, codes: [TermId; 4]) -> Wide {
        permutation.permute(codes).map(TermId::to_bits)
    }

    fn unpack(&self, _: Permutation, keys: &[Wide], quads: &mut Vec<[TermId; 4]>) {
        quads.extend(keys.iter().map(|key| key.map(TermId::from_bits)));
    }

    fn derive(&self, _: Orders, sorted: &[Wide], to: &mut Vec<Wide>) {
        // Node and predicate change places in both pairs of orders.
        to.extend(
            sorted
                .iter()
                .map(|&[node, predicate, other, graph]| [predicate, node, other, graph]),
        );
        to.sort_unstable();
    }
}

/// Keys of 128 bits; see the module header.
pub(super) struct Compact {
    /// Blank nodes have codes below this, IRIs from it on.
    blank_nodes: u64,
    subject_bits: u32,
    predicates: Ranks,
    graphs: Ranks,
}

/// A quad's columns, each in its bits: subject, predicate, object, graph.
type Codes = [u64; 4];

impl Compact {
    /// The layout for quads whose subjects are blank nodes numbered below `blank_nodes` and IRIs
    /// numbered below `iris`, and whose predicates and graphs are all in the lists (in any order,
    /// repeats allowed). `None` if that needs more than 128 bits.
    pub(super) fn new(
        blank_nodes: u64,
        iris: u64,
        predicates: Vec<TermId>,
        graphs: Vec<TermId>,
    ) -> Option<Self> {
        let subjects = blank_nodes.checked_add(iris)?;
        let layout = Self {
            blank_nodes,
            subject_bits: bits(subjects),
            predicates: Ranks::new(predicates),
            graphs: Ranks::new(graphs),
        };
        (layout.subject_bits + layout.predicates.bits + layout.graphs.bits <= 64).then_some(layout)
    }

    /// A key's predicate, and its key with node and predicate exchanged.
    fn exchange(&self, order: Orders, key: u128) -> (u64, u128) {
        let (predicate_bits, below) = (self.predicates.bits, self.below_predicate(order));
        let low = key & mask(below);
        let predicate = (key >> below) & mask(predicate_bits);
        let node = key.checked_shr(below + predicate_bits).unwrap_or(0);
        let node_bits = match order {
            Orders::Subject => self.subject_bits,
            Orders::Object => 64,
        };
        let exchanged = (((predicate << node_bits) | node) << below) | low;
        (low_64(predicate), exchanged)
    }

    /// Bits below the predicate in the keys of `order.node_first()`.
    const fn below_predicate(&self, order: Orders) -> u32 {
        match order {
            Orders::Subject => 64 + self.graphs.bits,
            Orders::Object => self.subject_bits + self.graphs.bits,
        }
    }

    fn subject(&self, code: u64) -> TermId {
        match code.checked_sub(self.blank_nodes) {
            Some(iri) => TermId::new(Kind::Iri, iri & TermId::PAYLOAD_MAX),
            None => TermId::new(Kind::BlankNode, code & TermId::PAYLOAD_MAX),
        }
    }
}

impl Packing for Compact {
    type Key = u128;
    type Codes = Codes;

    fn codes(&self, quad: [TermId; 4]) -> Result<Codes> {
        let [subject, predicate, object, graph] = quad;
        let subject = match subject.kind() {
            Kind::BlankNode => subject.payload(),
            Kind::Iri => self.blank_nodes + subject.payload(),
            _ => return Err(Error::Internal("a subject is neither blank node nor IRI")),
        };
        Ok([
            subject,
            self.predicates.rank(predicate)?,
            object.to_bits(),
            self.graphs.rank(graph)?,
        ])
    }

    fn pack(&self, permutation: Permutation, codes: Codes) -> u128 {
        let [s, p, o, g] = codes.map(u128::from);
        let (sb, pb, gb) = (self.subject_bits, self.predicates.bits, self.graphs.bits);
        // Widths add up to at most 128, and 64 of them are the object's, so no shift is too long.
        match permutation {
            Permutation::Spog => (((((s << pb) | p) << 64) | o) << gb) | g,
            Permutation::Psog => (((((p << sb) | s) << 64) | o) << gb) | g,
            Permutation::Opsg => (((((o << pb) | p) << sb) | s) << gb) | g,
            Permutation::Posg => (((((p << 64) | o) << sb) | s) << gb) | g,
            Permutation::Gpso => (((((g << pb) | p) << sb) | s) << 64) | o,
            Permutation::Gpos => (((((g << pb) | p) << 64) | o) << sb) | s,
        }
    }

    fn unpack(&self, permutation: Permutation, keys: &[u128], quads: &mut Vec<[TermId; 4]>) {
        let (sb, pb, gb) = (self.subject_bits, self.predicates.bits, self.graphs.bits);
        let (sm, pm, om, gm) = (mask(sb), mask(pb), mask(64), mask(gb));
        let subject = |code: u128| self.subject(low_64(code));
        let predicate = |code: u128| self.predicates.id(low_64(code));
        let object = |code: u128| TermId::from_bits(low_64(code));
        let graph = |code: u128| self.graphs.id(low_64(code));
        // One loop a permutation: this is where every row of every permutation passes. No shift is
        // as long as the key, since a column of at least 64 bits, or none, lies above it.
        match permutation {
            Permutation::Spog => quads.extend(keys.iter().map(|&key| {
                let rest = key >> gb;
                let (o, rest) = (rest & om, rest >> 64);
                [
                    subject(rest >> pb),
                    predicate(rest & pm),
                    object(o),
                    graph(key & gm),
                ]
            })),
            Permutation::Psog => quads.extend(keys.iter().map(|&key| {
                let rest = key >> gb;
                let (o, rest) = (rest & om, rest >> 64);
                [
                    predicate(rest >> sb),
                    subject(rest & sm),
                    object(o),
                    graph(key & gm),
                ]
            })),
            Permutation::Opsg => quads.extend(keys.iter().map(|&key| {
                let rest = key >> gb;
                let (s, rest) = (rest & sm, rest >> sb);
                [
                    object(rest >> pb),
                    predicate(rest & pm),
                    subject(s),
                    graph(key & gm),
                ]
            })),
            Permutation::Posg => quads.extend(keys.iter().map(|&key| {
                let rest = key >> gb;
                let (s, rest) = (rest & sm, rest >> sb);
                [
                    predicate(rest >> 64),
                    object(rest & om),
                    subject(s),
                    graph(key & gm),
                ]
            })),
            Permutation::Gpso => quads.extend(keys.iter().map(|&key| {
                let rest = key >> 64;
                let (s, rest) = (rest & sm, rest >> sb);
                [
                    graph(rest >> pb),
                    predicate(rest & pm),
                    subject(s),
                    object(key & om),
                ]
            })),
            Permutation::Gpos => quads.extend(keys.iter().map(|&key| {
                let rest = key >> sb;
                let (o, rest) = (rest & om, rest >> 64);
                [
                    graph(rest >> pb),
                    predicate(rest & pm),
                    object(o),
                    subject(key & sm),
                ]
            })),
        }
    }

    fn derive(&self, order: Orders, sorted: &[u128], to: &mut Vec<u128>) {
        if self.predicates.bits > DEALT_BITS_MAX {
            to.extend(sorted.iter().map(|&key| self.exchange(order, key).1));
            to.sort_unstable();
            return;
        }
        // Where the keys of each predicate begin, then where its next one goes.
        let mut next = vec![0_usize; 1 << self.predicates.bits];
        let shift = self.below_predicate(order);
        let predicate_mask = mask(self.predicates.bits);
        for &key in sorted {
            next[low_64((key >> shift) & predicate_mask) as usize] += 1;
        }
        let mut sum = 0;
        for slot in &mut next {
            sum += std::mem::replace(slot, sum);
        }
        to.resize(sorted.len(), 0);
        for &key in sorted {
            let (predicate, exchanged) = self.exchange(order, key);
            let slot = &mut next[predicate as usize];
            to[*slot] = exchanged;
            *slot += 1;
        }
    }
}

/// The lowest `bits` bits, at most 64.
const fn mask(bits: u32) -> u128 {
    (1 << bits) - 1
}

const fn low_64(value: u128) -> u64 {
    value as u64
}

/// Bits to tell `values` values apart.
const fn bits(values: u64) -> u32 {
    u64::BITS - values.saturating_sub(1).leading_zeros()
}

/// The sorted list of the ids that occur at a position, and the way back.
struct Ranks {
    sorted: Vec<TermId>,
    table: HashTable<(TermId, u64)>,
    hasher: RandomState,
    bits: u32,
}

impl Ranks {
    fn new(mut ids: Vec<TermId>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        let hasher = RandomState::default();
        let mut table = HashTable::with_capacity(ids.len());
        for (rank, &id) in (0..).zip(&ids) {
            table.insert_unique(hasher.hash_one(id.to_bits()), (id, rank), |&(id, _)| {
                hasher.hash_one(id.to_bits())
            });
        }
        Self {
            bits: bits(ids.len() as u64),
            sorted: ids,
            table,
            hasher,
        }
    }

    fn rank(&self, id: TermId) -> Result<u64> {
        if self.bits == 0 {
            return match self.sorted.first() {
                Some(&only) if only == id => Ok(0),
                _ => Err(Error::Internal("a predicate or graph was not announced")),
            };
        }
        self.table
            .find(self.hasher.hash_one(id.to_bits()), |entry| entry.0 == id)
            .map(|entry| entry.1)
            .ok_or(Error::Internal("a predicate or graph was not announced"))
    }

    fn id(&self, rank: u64) -> TermId {
        usize::try_from(rank)
            .ok()
            .and_then(|rank| self.sorted.get(rank))
            .copied()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quad() -> impl Strategy<Value = [TermId; 4]> {
        let subject = prop_oneof![
            (0_u64..5).prop_map(|n| TermId::new(Kind::BlankNode, n)),
            (0_u64..9).prop_map(|n| TermId::new(Kind::Iri, n)),
        ];
        let predicate = (0_u64..4).prop_map(|n| TermId::new(Kind::Iri, n * 2));
        let object = prop_oneof![
            any::<u64>().prop_map(TermId::from_bits),
            (0_u64..9).prop_map(|n| TermId::new(Kind::Iri, n)),
        ];
        let graph = prop_oneof![
            Just(TermId::DEFAULT_GRAPH),
            (0_u64..3).prop_map(|n| TermId::new(Kind::Iri, n)),
        ];
        (subject, predicate, object, graph).prop_map(|(s, p, o, g)| [s, p, o, g])
    }

    fn check<P: Packing>(packing: &P, quads: &[[TermId; 4]]) {
        for permutation in Permutation::ALL.into_iter().chain(Permutation::GRAPH_FIRST) {
            let keys: Vec<P::Key> = quads
                .iter()
                .map(|&quad| packing.pack(permutation, packing.codes(quad).unwrap()))
                .collect();
            let mut unpacked = Vec::new();
            packing.unpack(permutation, &keys, &mut unpacked);
            assert_eq!(unpacked.len(), quads.len());
            for ((&quad, &key), unpacked) in quads.iter().zip(&keys).zip(unpacked) {
                assert_eq!(unpacked, permutation.permute(quad));
                assert!(P::Key::from_bytes(key.to_bytes()) == key);
            }
            check_derived(packing, quads);
            for (pair, key_pair) in quads.windows(2).zip(keys.windows(2)) {
                assert_eq!(
                    permutation
                        .permute(pair[0])
                        .cmp(&permutation.permute(pair[1])),
                    key_pair[0].cmp(&key_pair[1])
                );
            }
        }
    }

    fn check_derived<P: Packing>(packing: &P, quads: &[[TermId; 4]]) {
        for order in Orders::ALL {
            let keys = |permutation| {
                let mut keys: Vec<P::Key> = quads
                    .iter()
                    .map(|&quad| packing.pack(permutation, packing.codes(quad).unwrap()))
                    .collect();
                keys.sort_unstable();
                keys
            };
            let mut derived = Vec::new();
            packing.derive(order, &keys(order.node_first()), &mut derived);
            assert!(derived == keys(order.predicate_first()));
        }
    }

    proptest! {
        #[test]
        fn packing_keeps_order(quads in prop::collection::vec(quad(), 1..40), one_graph: bool) {
            let mut quads = quads;
            if one_graph {
                quads.iter_mut().for_each(|quad| quad[3] = TermId::DEFAULT_GRAPH);
            }
            let column = |n: usize| quads.iter().map(|quad| quad[n]).collect();
            let compact = Compact::new(5, 9, column(1), column(3)).unwrap();
            check(&compact, &quads);
            check(&Whole, &quads);
        }
    }

    #[test]
    fn too_many_bits_are_refused() {
        let graphs = (0..4).map(|n| TermId::new(Kind::Iri, n)).collect();
        let predicates = vec![TermId::new(Kind::Iri, 0)];
        assert!(Compact::new(0, 1 << 63, predicates.clone(), graphs).is_none());
        assert!(Compact::new(0, 1 << 59, predicates, vec![TermId::DEFAULT_GRAPH]).is_some());
        assert!(Compact::new(0, 0, Vec::new(), Vec::new()).is_some());
    }
}
