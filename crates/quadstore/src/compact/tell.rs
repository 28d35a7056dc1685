//! All that the new trees of a compaction hold, as a change file.
//!
//! The archive of the log leads over a compaction by this file: a restore that comes from before it goes on with what the
//! file tells, under the new ids. It holds the whole database, as the trees themselves do; nothing less would do
//! without the old ids of all terms, and a restore would have to renumber and sort everything that it has.
//!
//! # Limits
//! The keys of 512 terms, and a block.

use std::sync::atomic::{AtomicBool, Ordering};

use stoa_storage::{ChangeFileSummary, NewChangeFile};
use stoa_terms::{Kind, Permutation, TermId};

use super::feed::{BATCH_QUADS, BATCH_TERMS, all_quads, is_stored};
use crate::bulk::ChangeWriter;
use crate::dictionary::triple_key;
use crate::error::{Error, Result};
use crate::read::{QuadColumns, TermTexts};
use crate::snapshot::Snapshot;

/// Writes all terms, graphs and quads of a snapshot without a delta; `None` if that takes more than the file may.
pub(super) fn tell(
    state: &Snapshot,
    mut file: ChangeWriter,
    cancel: &AtomicBool,
) -> Result<Option<(NewChangeFile, ChangeFileSummary)>> {
    let check_cancelled = || match cancel.load(Ordering::Relaxed) {
        true => Err(Error::Cancelled),
        false => Ok(()),
    };
    for kind in Kind::ALL {
        let mut terms = Terms::default();
        let end = match is_stored(TermId::new(kind, 0)) {
            true => state.dictionary().next_payload(kind),
            false => 0,
        };
        for first in (0..end).step_by(BATCH_TERMS) {
            check_cancelled()?;
            let batch = first..end.min(first + BATCH_TERMS as u64);
            let ids: Vec<TermId> = batch.map(|payload| TermId::new(kind, payload)).collect();
            terms.tell(state, &ids, &mut file)?;
        }
    }
    let mut created = Vec::new();
    for entry in state.graphs()? {
        if state.is_created(entry.graph)? {
            created.push((entry.graph, true));
        }
    }
    file.graphs(&created)?;
    let mut scan = all_quads(state, Permutation::Psog)?;
    let (mut quads, mut more) = (QuadColumns::default(), true);
    while more {
        check_cancelled()?;
        more = scan.next(BATCH_QUADS, &mut quads)?;
        let [p, s, o, g] = &quads.columns;
        for (((p, s), o), g) in p.iter().zip(s).zip(o).zip(g) {
            file.row(&[*p, *s, *o, *g].map(TermId::to_bits), false)?;
        }
    }
    file.finish()
}

/// Terms of one kind on their way into a file.
#[derive(Default)]
struct Terms {
    texts: TermTexts,
    /// The key that was told last.
    last: Option<Vec<u8>>,
}

impl Terms {
    /// Tells terms whose payloads follow each other. Where keys do not ascend, another partition begins.
    fn tell(&mut self, state: &Snapshot, ids: &[TermId], file: &mut ChangeWriter) -> Result<()> {
        let is_triples = ids.first().is_some_and(|id| id.kind() == Kind::Triple);
        let triples: Vec<[u8; 24]> = match is_triples {
            true => state.triples(ids)?.into_iter().map(triple_key).collect(),
            false => Vec::new(),
        };
        self.texts.clear();
        if !is_triples {
            state.texts(ids, &mut self.texts)?;
        }
        let key = |index: usize| -> &[u8] {
            match triples.get(index) {
                Some(key) => key,
                None => self.texts.get(index),
            }
        };
        let mut start = 0;
        while let Some(first) = ids.get(start) {
            let mut end = start + 1;
            while end < ids.len() && key(end - 1) < key(end) {
                end += 1;
            }
            let begins = self.last.as_deref().is_none_or(|last| key(start) <= last);
            file.terms(*first, begins, (start..end).map(key))?;
            self.last = Some(key(end - 1).to_vec());
            start = end;
        }
        Ok(())
    }
}
