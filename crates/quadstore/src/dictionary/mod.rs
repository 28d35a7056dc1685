//! The two-way map between terms and their ids.

use oxrdf::TermRef;
use stoa_terms::{IdRange, TermId};

use crate::error::{Error, Result};
use crate::read::{StringRange, TermTexts};
use crate::snapshot::Snapshot;

/// The dictionary of one snapshot.
pub(crate) struct Dictionary;

impl Dictionary {
    /// The dictionary that `root` describes.
    pub(crate) fn open(store: &std::sync::Arc<stoa_storage::Store>, root: &[u8]) -> Result<Self> {
        let _ = (store, root);
        Ok(Self)
    }

    /// Name, terms and bytes of each part.
    pub(crate) fn info(&self) -> Vec<(String, u64, u64)> {
        Vec::new()
    }
}

impl Snapshot {
    /// The id of `term` if the store knows the term.
    pub fn term_id(&self, term: TermRef<'_>) -> Result<Option<TermId>> {
        let _ = (term, self.dictionary(), self.store());
        Err(Error::Internal("not built yet"))
    }

    /// The ids of `terms`, one for each.
    pub fn term_ids(&self, terms: &[oxrdf::Term]) -> Result<Vec<Option<TermId>>> {
        let _ = terms;
        Err(Error::Internal("not built yet"))
    }

    /// Appends to `out` one text for each id: the key of a term of the dictionary, else nothing.
    pub fn texts(&self, ids: &[TermId], out: &mut TermTexts) -> Result<()> {
        let _ = (ids, out);
        Err(Error::Internal("not built yet"))
    }

    /// Subject, predicate and object of a triple term.
    pub fn triple(&self, id: TermId) -> Result<[TermId; 3]> {
        let _ = id;
        Err(Error::Internal("not built yet"))
    }

    /// The term of `id`.
    pub fn term(&self, id: TermId) -> Result<oxrdf::Term> {
        let _ = id;
        Err(Error::Internal("not built yet"))
    }

    /// The ids of all strings in a range, as a list of id ranges.
    pub fn string_ranges(&self, range: &StringRange) -> Result<Vec<IdRange>> {
        let _ = range;
        Err(Error::Internal("not built yet"))
    }
}
