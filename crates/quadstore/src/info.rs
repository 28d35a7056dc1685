//! `info`: what a store holds and how many bytes each part takes.

/// What a store holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Info {
    /// Quads in all graphs.
    pub quads: u64,
    /// The number of the last commit.
    pub commit: u64,
    /// Graphs that hold quads or were created empty, the default graph included.
    pub graphs: u64,
    /// The permutations, the graph-subject pairs and the graph catalogue.
    pub trees: Vec<TreeInfo>,
    /// The parts of the dictionary: name, terms, bytes.
    pub dictionary: Vec<(String, u64, u64)>,
    /// Quads by the kind of their object, indexed by the kind's number.
    pub object_kinds: [u64; 16],
    /// Bytes in use in the data files.
    pub data_bytes: u64,
    /// Bytes of the data files that are free for reuse.
    pub free_bytes: u64,
}

/// One tree of segments.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TreeInfo {
    /// `PSOG`, `GS`, `graphs`.
    pub name: &'static str,
    /// Rows.
    pub rows: u64,
    /// Leaves.
    pub segments: u64,
    /// Inner nodes.
    pub nodes: u64,
    /// Bytes on disk, padding included.
    pub bytes: u64,
}
