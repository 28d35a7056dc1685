//! What the root of the storage says about quads and terms.
//!
//! # Format
//! docs/format.md#quad-root

use crate::error::{Error, Result};
use crate::permutation::TreeRoot;
use crate::permutation::tree::TREE_ROOT_BYTES;

/// The version of everything that this crate writes.
pub(crate) const QUAD_FORMAT: u32 = 1;
/// Trees of a root: four permutations, the pairs, the catalogue.
pub(crate) const TREES: usize = 6;
/// Bytes before the trees: version (32 bits), trees (32 bits), next blank node, quads of the default
/// graph.
pub(crate) const ROOT_HEADER_BYTES: usize = 24;
/// The largest descriptor of a dictionary, in bytes.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 1024;

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
        bytes.extend_from_slice(&QUAD_FORMAT.to_le_bytes());
        bytes.extend_from_slice(&(TREES as u32).to_le_bytes());
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
        let version = bytes
            .first_chunk()
            .map(|version| u32::from_le_bytes(*version));
        if let Some(found) = version
            && found != QUAD_FORMAT
        {
            return Err(Error::Format {
                found,
                supported: QUAD_FORMAT,
            });
        }
        Self::decode_fields(bytes).ok_or_else(|| Error::Corruption {
            structure: "root",
            expected: "trees and a dictionary".to_owned(),
            found: format!("{} other bytes", bytes.len()),
        })
    }

    fn decode_fields(bytes: &[u8]) -> Option<Self> {
        let (header, mut bytes) = bytes.split_first_chunk::<ROOT_HEADER_BYTES>()?;
        let (numbers, _) = header.as_chunks::<8>();
        let [versions, next_blank_node, default_quads] = numbers else {
            return None;
        };
        let [_, _, _, _, trees @ ..] = versions;
        if u32::from_le_bytes(*trees) != TREES as u32 {
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
