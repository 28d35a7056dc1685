//! What the root of the storage says about quads and terms.
//!
//! # Format
//! docs/format.md#quad-root

use stoa_storage::format::ROOT_PAYLOAD_BYTES_MAX;

use crate::error::{Error, Result};
use crate::permutation::TreeRoot;
use crate::permutation::format::TREE_ROOT_BYTES;

/// The first four bytes of the payload, little-endian: `QUAD`.
pub(crate) const ROOT_MAGIC: u32 = u32::from_le_bytes(*b"QUAD");
/// Trees of a root: four permutations, the pairs, the catalogue.
pub(crate) const ROOT_TREES: u32 = 6;
/// Where the number of trees stands.
pub(crate) const ROOT_TREE_COUNT: usize = 4;
/// Where the first number that no blank node has stands.
pub(crate) const ROOT_NEXT_BLANK_NODE: usize = 8;
/// Where the quads of the default graph are noted.
pub(crate) const ROOT_DEFAULT_QUADS: usize = 16;
/// Where the roots of the trees begin.
pub(crate) const ROOT_TREE_ROOTS: usize = 24;
/// Where the length of the dictionary's descriptor stands, two bytes, before the descriptor.
pub(crate) const ROOT_DICTIONARY: usize = ROOT_TREE_ROOTS + TREES * TREE_ROOT_BYTES;
/// [`ROOT_TREES`] as the length of an array.
const TREES: usize = ROOT_TREES as usize;
/// The largest descriptor of a dictionary, in bytes.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 1024;

const _: () = assert!(
    ROOT_TREE_COUNT == 4
        && ROOT_NEXT_BLANK_NODE == ROOT_TREE_COUNT + 4
        && ROOT_DEFAULT_QUADS == ROOT_NEXT_BLANK_NODE + 8
        && ROOT_TREE_ROOTS == ROOT_DEFAULT_QUADS + 8
        && ROOT_DICTIONARY + 2 + DICTIONARY_BYTES_MAX <= ROOT_PAYLOAD_BYTES_MAX,
    "`encode` writes its fields one after the other, and they fit the storage's root"
);

/// Decoded payload of the storage's root.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct RootPayload {
    /// The first number that no blank node has.
    pub(crate) next_blank_node: u64,
    /// Quads in the default graph.
    pub(crate) default_quads: u64,
    /// PSOG, POSG, SPOG, OPSG, pairs, catalogue.
    pub(crate) trees: [TreeRoot; TREES],
    /// What the dictionary wrote.
    pub(crate) dictionary: Vec<u8>,
}

impl RootPayload {
    /// The bytes of the payload.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let length = u16::try_from(self.dictionary.len()).unwrap_or(u16::MAX);
        if usize::from(length) > DICTIONARY_BYTES_MAX {
            return Err(Error::Internal(
                "the descriptor of the dictionary is too long",
            ));
        }
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&ROOT_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&ROOT_TREES.to_le_bytes());
        bytes.extend_from_slice(&self.next_blank_node.to_le_bytes());
        bytes.extend_from_slice(&self.default_quads.to_le_bytes());
        for tree in &self.trees {
            tree.encode(&mut bytes);
        }
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&self.dictionary);
        Ok(bytes)
    }

    /// The payload in `bytes`; that of an empty store if there are none, as right after creation.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        Self::decode_fields(bytes).ok_or_else(|| Error::Corruption {
            structure: "root",
            expected: "trees and a dictionary".to_owned(),
            found: format!("{} other bytes", bytes.len()),
        })
    }

    fn decode_fields(bytes: &[u8]) -> Option<Self> {
        let (header, mut bytes) = bytes.split_first_chunk::<ROOT_TREE_ROOTS>()?;
        let (numbers, _) = header.as_chunks::<8>();
        let [kind, next_blank_node, default_quads] = numbers else {
            return None;
        };
        let expected = u64::from(ROOT_TREES) << 32 | u64::from(ROOT_MAGIC);
        if u64::from_le_bytes(*kind) != expected {
            return None;
        }
        let mut payload = Self {
            next_blank_node: u64::from_le_bytes(*next_blank_node),
            default_quads: u64::from_le_bytes(*default_quads),
            ..Self::default()
        };
        for tree in &mut payload.trees {
            let (root, rest) = bytes.split_first_chunk::<TREE_ROOT_BYTES>()?;
            *tree = TreeRoot::decode(root)?;
            bytes = rest;
        }
        let (length, dictionary) = bytes.split_first_chunk()?;
        if usize::from(u16::from_le_bytes(*length)) != dictionary.len() {
            return None;
        }
        payload.dictionary = dictionary.to_vec();
        Some(payload)
    }
}
