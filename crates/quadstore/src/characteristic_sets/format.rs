//! Where the numbers of characteristic sets stand on disk.
//!
//! # Format
//! docs/format.md#characteristic-sets

/// The first four bytes, little-endian: `CSET`.
pub(crate) const SETS_MAGIC: u32 = u32::from_le_bytes(*b"CSET");
/// Where it says whether every subject has one of the sets.
pub(crate) const SETS_ARE_ALL: usize = 4;
/// Where the number of predicates stands.
pub(crate) const SETS_PREDICATES: usize = 8;
/// Where the number of sets stands.
pub(crate) const SETS_COUNT: usize = 12;
/// Where the number of members stands: of all sets the predicates.
pub(crate) const SETS_MEMBERS: usize = 16;
/// Where the predicates begin.
pub(crate) const SETS_HEADER_BYTES: usize = 20;
/// How many sets are kept.
pub(crate) const SETS_KEPT: usize = 10_000;
/// How many members they have.
pub(crate) const MEMBERS_KEPT: usize = 65_536;
/// How many members one set has.
pub(crate) const SET_MEMBERS_MAX: usize = 256;

const _: () = assert!(
    SETS_ARE_ALL == 4
        && SETS_PREDICATES == SETS_ARE_ALL + 4
        && SETS_COUNT == SETS_PREDICATES + 4
        && SETS_MEMBERS == SETS_COUNT + 4
        && SETS_HEADER_BYTES == SETS_MEMBERS + 4,
    "`encode` writes its fields one after the other"
);
