//! What the root of the storage says about quads and terms.
//!
//! # Format
//! docs/format.md#quad-root

use stoa_storage::format::ROOT_PAYLOAD_BYTES_MAX;
use stoa_storage::{PartRef, Structure};
use stoa_terms::Permutation;

use crate::error::{Error, Result};
use crate::history::Retention;
use crate::permutation::TreeRoot;
use crate::permutation::format::TREE_ROOT_BYTES;

/// The first four bytes of the payload, little-endian: `QUAD`.
pub(crate) const ROOT_MAGIC: u32 = u32::from_le_bytes(*b"QUAD");
/// Trees of a root, whether a scheme has them or not.
pub(crate) const ROOT_TREES: u32 = 10;
/// Where the number of trees stands.
pub(crate) const ROOT_TREE_COUNT: usize = 4;
/// Where the first number that no blank node has stands.
pub(crate) const ROOT_NEXT_BLANK_NODE: usize = 8;
/// Where the quads of the default graph are noted.
pub(crate) const ROOT_DEFAULT_QUADS: usize = 16;
/// Where the number of the scheme stands.
pub(crate) const ROOT_SCHEME: usize = 24;
/// Where it says whether there are permutations that begin with the graph.
pub(crate) const ROOT_GRAPH_FIRST: usize = 28;
/// Where the kind of retention stands.
pub(crate) const ROOT_RETENTION: usize = 32;
/// Where it says whether the checkpoint ends with a bulk load.
pub(crate) const ROOT_IS_LOAD: usize = 36;
/// Where the number of commits or seconds of the retention stands.
pub(crate) const ROOT_RETAINED: usize = 40;
/// Where the quads are noted that the bulk load added.
pub(crate) const ROOT_LOADED: usize = 48;
/// Where the number of the numbering of terms stands.
pub(crate) const ROOT_NUMBERING: usize = 56;
/// Where the quads are noted that the bulk load removed.
pub(crate) const ROOT_UNLOADED: usize = 64;
/// Where the roots of the trees begin.
pub(crate) const ROOT_TREE_ROOTS: usize = 72;
/// Where the length of the dictionary's descriptor stands, two bytes, before the descriptor.
pub(crate) const ROOT_DICTIONARY: usize = ROOT_TREE_ROOTS + TREES * TREE_ROOT_BYTES;
/// The longest message of a bulk load, in bytes.
pub(crate) const LOAD_MESSAGE_BYTES_MAX: usize = 1024;
/// [`ROOT_TREES`] as the length of an array.
const TREES: usize = ROOT_TREES as usize;
/// The largest descriptor of a dictionary, in bytes.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 1024;
/// Number of the default scheme.
pub(crate) const SCHEME_FULL: u32 = 0;
/// Number of the lean scheme.
pub(crate) const SCHEME_LEAN: u32 = 1;
/// Number of a retention of nothing.
pub(crate) const RETENTION_NONE: u32 = 0;
/// Number of a retention of everything.
pub(crate) const RETENTION_ALL: u32 = 1;
/// Number of a retention of some commits.
pub(crate) const RETENTION_COMMITS: u32 = 2;
/// Number of a retention of some seconds.
pub(crate) const RETENTION_SECONDS: u32 = 3;
/// Number of the retention of what costs little.
pub(crate) const RETENTION_AUTO: u32 = 4;

const _: () = assert!(
    ROOT_TREE_COUNT == 4
        && ROOT_NEXT_BLANK_NODE == ROOT_TREE_COUNT + 4
        && ROOT_DEFAULT_QUADS == ROOT_NEXT_BLANK_NODE + 8
        && ROOT_SCHEME == ROOT_DEFAULT_QUADS + 8
        && ROOT_GRAPH_FIRST == ROOT_SCHEME + 4
        && ROOT_RETENTION == ROOT_GRAPH_FIRST + 4
        && ROOT_IS_LOAD == ROOT_RETENTION + 4
        && ROOT_RETAINED == ROOT_IS_LOAD + 4
        && ROOT_LOADED == ROOT_RETAINED + 8
        && ROOT_NUMBERING == ROOT_LOADED + 8
        && ROOT_UNLOADED == ROOT_NUMBERING + 8
        && ROOT_TREE_ROOTS == ROOT_UNLOADED + 8
        && ROOT_DICTIONARY + 2 + DICTIONARY_BYTES_MAX + 2 + LOAD_MESSAGE_BYTES_MAX + PartRef::BYTES
            <= ROOT_PAYLOAD_BYTES_MAX,
    "`encode` writes its fields one after the other, and they fit the storage's root"
);

/// Which sort orders a store keeps; chosen with its first commit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scheme {
    /// PSOG, POSG, SPOG and OPSG, and where graphs share subjects GPSO and GPOS.
    #[default]
    Full,
    /// PSOG and POSG with the pairs SP and OP: about half of the space, and slower reads of all that
    /// belongs to a subject or object.
    Lean,
}

impl Scheme {
    /// `default` or `lean`, as the command line takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "default",
            Self::Lean => "lean",
        }
    }

    /// The permutations that every store of the scheme has.
    #[must_use]
    pub const fn permutations(self) -> &'static [Permutation] {
        match self {
            Self::Full => &Permutation::ALL,
            Self::Lean => &[Permutation::Psog, Permutation::Posg],
        }
    }
}

/// The trees of a store, in the order of their roots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum TreeName {
    Psog,
    Posg,
    Spog,
    Opsg,
    Gpso,
    Gpos,
    /// Pairs of graph and subject.
    Gs,
    /// Pairs of subject and predicate.
    Sp,
    /// Pairs of object and predicate.
    Op,
    /// The graph catalogue.
    Graphs,
}

impl TreeName {
    /// What storage counts reads of it under.
    pub(crate) const fn structure(self) -> Structure {
        Structure::new(self as u8 + 1)
    }

    /// All of them.
    pub(crate) const ALL: [Self; TREES] = [
        Self::Psog,
        Self::Posg,
        Self::Spog,
        Self::Opsg,
        Self::Gpso,
        Self::Gpos,
        Self::Gs,
        Self::Sp,
        Self::Op,
        Self::Graphs,
    ];

    /// `PSOG`, `GS`, `graphs`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Psog => "PSOG",
            Self::Posg => "POSG",
            Self::Spog => "SPOG",
            Self::Opsg => "OPSG",
            Self::Gpso => "GPSO",
            Self::Gpos => "GPOS",
            Self::Gs => "GS",
            Self::Sp => "SP",
            Self::Op => "OP",
            Self::Graphs => "graphs",
        }
    }

    /// The permutation whose quads the tree keeps, if it keeps quads.
    pub(crate) const fn permutation(self) -> Option<Permutation> {
        Some(match self {
            Self::Psog => Permutation::Psog,
            Self::Posg => Permutation::Posg,
            Self::Spog => Permutation::Spog,
            Self::Opsg => Permutation::Opsg,
            Self::Gpso => Permutation::Gpso,
            Self::Gpos => Permutation::Gpos,
            Self::Gs | Self::Sp | Self::Op | Self::Graphs => return None,
        })
    }
}

impl From<Permutation> for TreeName {
    fn from(permutation: Permutation) -> Self {
        match permutation {
            Permutation::Psog => Self::Psog,
            Permutation::Posg => Self::Posg,
            Permutation::Spog => Self::Spog,
            Permutation::Opsg => Self::Opsg,
            Permutation::Gpso => Self::Gpso,
            Permutation::Gpos => Self::Gpos,
        }
    }
}

/// What a bulk load did, which has no record in the log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Loaded {
    /// Quads that were not there before.
    pub(crate) added: u64,
    /// Quads that are not there any more.
    pub(crate) removed: u64,
    /// What its author says of it.
    pub(crate) message: Option<String>,
}

/// Decoded payload of the storage's root.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct RootPayload {
    /// The first number that no blank node has.
    pub(crate) next_blank_node: u64,
    /// Quads in the default graph.
    pub(crate) default_quads: u64,
    /// Which trees there are.
    pub(crate) scheme: Scheme,
    /// Whether GPSO and GPOS are kept; never in the lean scheme.
    pub(crate) graph_first: bool,
    /// Which earlier commits are kept.
    pub(crate) retention: Retention,
    /// What the commit did that the checkpoint ends with, if that is a bulk load.
    pub(crate) loaded: Option<Loaded>,
    /// Which numbering of terms this is; ids mean the same in all roots and records of one.
    pub(crate) numbering: u64,
    /// By the number of the tree's name; empty for those that are not kept.
    pub(crate) trees: [TreeRoot; TREES],
    /// What the dictionary wrote.
    pub(crate) dictionary: Vec<u8>,
    /// Where the characteristic sets stand, if there are any.
    pub(crate) sets: Option<PartRef>,
}

impl RootPayload {
    /// Whether the store keeps a tree.
    pub(crate) fn has(&self, tree: TreeName) -> bool {
        match tree {
            TreeName::Psog | TreeName::Posg | TreeName::Gs | TreeName::Graphs => true,
            TreeName::Spog | TreeName::Opsg => self.scheme == Scheme::Full,
            TreeName::Sp | TreeName::Op => self.scheme == Scheme::Lean,
            TreeName::Gpso | TreeName::Gpos => self.graph_first,
        }
    }

    /// The root of a tree.
    #[expect(clippy::indexing_slicing, reason = "one root for each name")]
    pub(crate) fn tree(&self, name: TreeName) -> &TreeRoot {
        &self.trees[name as usize]
    }

    /// The same, to be changed.
    #[expect(clippy::indexing_slicing, reason = "one root for each name")]
    pub(crate) fn tree_mut(&mut self, name: TreeName) -> &mut TreeRoot {
        &mut self.trees[name as usize]
    }

    /// The bytes of the payload.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let loaded = self.loaded.clone().unwrap_or_default();
        let message = loaded.message.unwrap_or_default();
        let length = |bytes: &[u8], longest: usize| {
            let length = u16::try_from(bytes.len()).ok();
            let length = length.filter(|length| usize::from(*length) <= longest);
            length.ok_or(Error::Internal(
                "the descriptor of the dictionary or a message is too long",
            ))
        };
        let dictionary_length = length(&self.dictionary, DICTIONARY_BYTES_MAX)?;
        let message_length = length(message.as_bytes(), LOAD_MESSAGE_BYTES_MAX)?;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&ROOT_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&ROOT_TREES.to_le_bytes());
        bytes.extend_from_slice(&self.next_blank_node.to_le_bytes());
        bytes.extend_from_slice(&self.default_quads.to_le_bytes());
        let scheme = match self.scheme {
            Scheme::Full => SCHEME_FULL,
            Scheme::Lean => SCHEME_LEAN,
        };
        bytes.extend_from_slice(&scheme.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.graph_first).to_le_bytes());
        let (retention, retained) = match self.retention {
            Retention::None => (RETENTION_NONE, 0),
            Retention::All => (RETENTION_ALL, 0),
            Retention::Commits(count) => (RETENTION_COMMITS, count),
            Retention::Seconds(seconds) => (RETENTION_SECONDS, seconds),
            Retention::Auto => (RETENTION_AUTO, 0),
        };
        bytes.extend_from_slice(&retention.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.loaded.is_some()).to_le_bytes());
        bytes.extend_from_slice(&retained.to_le_bytes());
        bytes.extend_from_slice(&loaded.added.to_le_bytes());
        bytes.extend_from_slice(&self.numbering.to_le_bytes());
        bytes.extend_from_slice(&loaded.removed.to_le_bytes());
        for tree in &self.trees {
            tree.encode(&mut bytes);
        }
        bytes.extend_from_slice(&dictionary_length.to_le_bytes());
        bytes.extend_from_slice(&self.dictionary);
        bytes.extend_from_slice(&message_length.to_le_bytes());
        bytes.extend_from_slice(message.as_bytes());
        if let Some(sets) = &self.sets {
            bytes.extend_from_slice(&sets.encode());
        }
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
        let (mut halves, _) = header.as_chunks::<4>();
        let mut short = || {
            let (half, rest) = halves.split_first()?;
            halves = rest;
            Some(u32::from_le_bytes(*half))
        };
        if short()? != ROOT_MAGIC || short()? != ROOT_TREES {
            return None;
        }
        let mut long = || Some(u64::from(short()?) | u64::from(short()?) << 32);
        let (next_blank_node, default_quads) = (long()?, long()?);
        let scheme = match short()? {
            SCHEME_FULL => Scheme::Full,
            SCHEME_LEAN => Scheme::Lean,
            _ => return None,
        };
        let graph_first = match short()? {
            0 => false,
            1 if scheme == Scheme::Full => true,
            _ => return None,
        };
        let (retention, is_load) = (short()?, short()?);
        let mut long = || Some(u64::from(short()?) | u64::from(short()?) << 32);
        let (retained, added, numbering, removed) = (long()?, long()?, long()?, long()?);
        let mut payload = Self {
            next_blank_node,
            default_quads,
            scheme,
            graph_first,
            retention: decode_retention(retention, retained)?,
            loaded: match (is_load, added, removed) {
                (0, 0, 0) => None,
                (1, added, removed) => Some(Loaded {
                    added,
                    removed,
                    message: None,
                }),
                _ => return None,
            },
            numbering,
            ..Self::default()
        };
        for name in TreeName::ALL {
            let (root, rest) = bytes.split_first_chunk::<TREE_ROOT_BYTES>()?;
            let root = TreeRoot::decode(root)?;
            if root.top.is_some() && !payload.has(name) {
                return None;
            }
            *payload.tree_mut(name) = root;
            bytes = rest;
        }
        payload.dictionary = take_text(&mut bytes)?.to_vec();
        let message = str::from_utf8(take_text(&mut bytes)?).ok()?;
        if !message.is_empty() {
            payload.loaded.as_mut()?.message = Some(message.to_owned());
        }
        if let Some((sets, rest)) = bytes.split_first_chunk() {
            // Without quads there are none.
            payload.trees.iter().find(|tree| tree.top.is_some())?;
            payload.sets = Some(PartRef::decode(sets)).filter(|sets| !sets.is_none());
            payload.sets?;
            bytes = rest;
        }
        bytes.is_empty().then_some(payload)
    }
}

/// The retention of a kind and a number.
fn decode_retention(kind: u32, number: u64) -> Option<Retention> {
    match (kind, number) {
        (RETENTION_NONE, 0) => Some(Retention::None),
        (RETENTION_ALL, 0) => Some(Retention::All),
        (RETENTION_COMMITS, count) => Some(Retention::Commits(count)),
        (RETENTION_SECONDS, seconds) => Some(Retention::Seconds(seconds)),
        (RETENTION_AUTO, 0) => Some(Retention::Auto),
        _ => None,
    }
}

/// Takes a length of two bytes, and as many bytes.
fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    *bytes = rest;
    Some(text)
}
