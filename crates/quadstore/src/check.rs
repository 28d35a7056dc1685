//! `check`: reads everything, verifies each checksum and invariant, reports what is wrong.

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckReport {
    /// What is wrong; empty if all is well. At most 100, see `suppressed`.
    pub problems: Vec<Problem>,
    /// How many further problems were found.
    pub suppressed: u64,
    /// Quads checked.
    pub quads: u64,
    /// Terms of the dictionary checked.
    pub terms: u64,
    /// Bytes of data read.
    pub bytes: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// What was checked: `PSOG`, `dictionary`, `graphs`.
    pub part: String,
    /// What is wrong, with file and extent where there are any.
    pub message: String,
}
