//! Dictionary, permutations and snapshots: quads on disk.
