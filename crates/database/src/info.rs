//! What `stoa info` and `stoa check` tell about a database.

/// What is in a database and how it lies on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// Quads in all graphs.
    pub quads: u64,
    /// Named graphs that exist.
    pub named_graphs: u64,
    /// Terms in the dictionary.
    pub terms: u64,
    /// Blank nodes, which are in no dictionary.
    pub blank_nodes: u64,
    /// Triple terms.
    pub triple_terms: u64,
    /// The share of literal objects in quads that are inline, from 0 to 1; `None` if there is no
    /// literal.
    pub inline_share: Option<f64>,
    /// The permutations.
    pub permutations: Vec<PartInfo>,
    /// The parts of the dictionary.
    pub dictionary: Vec<PartInfo>,
    /// All bytes of data files.
    pub data_bytes: u64,
    /// Bytes of them that are free for reuse.
    pub free_bytes: u64,
    /// The number of the last commit.
    pub commit: u64,
    /// The version of the format on disk.
    pub format_version: u32,
    /// The id of the database, in hexadecimal digits.
    pub database_id: String,
    /// How files are read and written, such as `pread`.
    pub io: String,
}

impl Info {
    /// Bytes of data files for each quad; `None` without quads.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn bytes_per_quad(&self) -> Option<f64> {
        (self.quads > 0).then(|| self.data_bytes as f64 / self.quads as f64)
    }
}

/// A part of a database.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PartInfo {
    /// Its name, such as `PSOG` or `iri`.
    pub name: String,
    /// What it holds: quads or terms.
    pub entries: u64,
    /// Its bytes on disk.
    pub bytes: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckSummary {
    /// Extents whose checksums were compared.
    pub extents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Quads that all permutations hold alike.
    pub quads: u64,
    /// Terms that were resolved both ways.
    pub terms: u64,
    /// What is damaged, each with file and extent; empty if all is well.
    pub problems: Vec<String>,
}
