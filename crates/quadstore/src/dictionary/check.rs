//! Verifies the whole dictionary, and tells what it takes on disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stoa_storage::PartRef;
use stoa_terms::{Kind, TermId, inline, key};

use super::{Dictionary, KINDS, Partition, PartitionReader, triple_parts};
use crate::error::{Error, Result};
use crate::read::TermTexts;

/// Partitions that were checked, by kind, first payload and number of terms: those of earlier roots are mostly
/// the same.
#[derive(Default)]
pub(crate) struct CheckedPartitions(BTreeMap<(Kind, u64, u64), Vec<Partition>>);

impl CheckedPartitions {
    /// Adds a partition; `false` if it was there.
    fn insert(&mut self, partition: &Partition) -> bool {
        let key = (partition.kind, partition.first_payload, partition.count);
        let known = self.0.entry(key).or_default();
        let is_new = !known.contains(partition);
        if is_new {
            known.push(partition.clone());
        }
        is_new
    }
}

/// How many terms are looked up at once.
const BATCH: usize = 1024;

/// What a check of the dictionary went through.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct DictionaryCheck {
    /// The terms that were checked.
    pub(crate) terms: u64,
    /// The bytes of all parts.
    pub(crate) bytes: u64,
}

impl Dictionary {
    /// Reads everything: keys ascend within a partition, no key has two ids, each id gives its key
    /// and each key its id, terms are well-formed and not such as are inline. Calls `problem` for what
    /// is wrong, damage included. [`Error::Cancelled`] once `cancel` is set. Partitions that were `checked` are
    /// left out, and the others are among these then.
    pub(crate) fn check(
        &self,
        checked: &mut CheckedPartitions,
        cancel: &AtomicBool,
        problem: &mut dyn FnMut(String),
    ) -> Result<DictionaryCheck> {
        let mut check = DictionaryCheck::default();
        for kind in KINDS {
            let partitions = self.of_kind(kind).iter();
            let partitions = partitions.filter(|one| checked.insert(&one.descriptor));
            let partitions: Vec<Arc<PartitionReader>> = partitions.cloned().collect();
            if partitions.is_empty() {
                continue;
            }
            match self.check_kind(kind, &partitions, cancel, problem) {
                Ok(terms) => {
                    check.terms += terms;
                    let expected: u64 = partitions
                        .iter()
                        .map(|partition| partition.descriptor.count)
                        .sum();
                    if terms != expected {
                        problem(format!(
                            "{kind:?}: {expected} terms expected, {terms} found"
                        ));
                    }
                }
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => problem(format!("{kind:?}: {}", with_source(&error))),
            }
        }
        let visited = self.visit_parts(&mut |part| {
            check.bytes += u64::from(part.length);
            Ok(())
        });
        if let Err(error) = visited {
            problem(with_source(&error));
        }
        Ok(check)
    }

    fn check_kind(
        &self,
        kind: Kind,
        partitions: &[Arc<PartitionReader>],
        cancel: &AtomicBool,
        problem: &mut dyn FnMut(String),
    ) -> Result<u64> {
        let mut cursor = self.cursor_over(partitions);
        let mut terms = 0;
        let mut last: Option<Vec<u8>> = None;
        let mut keys = TermTexts::default();
        let mut ids = Vec::with_capacity(BATCH);
        loop {
            let next = cursor.next()?;
            let at_end = next.is_none();
            if let Some((key, id)) = next {
                match &mut last {
                    Some(last) => {
                        if last.as_slice() == key {
                            problem(format!("{id:?} is the second id of one term"));
                        } else if last.as_slice() > key {
                            problem(format!("the key of {id:?} is less than the one before"));
                        }
                        last.clear();
                        last.extend_from_slice(key);
                    }
                    none => *none = Some(key.to_vec()),
                }
                if let Some(what) = malformed(kind, key) {
                    problem(format!("{id:?}: {what}"));
                }
                keys.push(key);
                ids.push(id);
                terms += 1;
            }
            if ids.len() == BATCH || (at_end && !ids.is_empty()) {
                if cancel.load(Ordering::Relaxed) {
                    return Err(Error::Cancelled);
                }
                self.check_batch(kind, &keys, &ids, problem)?;
                keys.clear();
                ids.clear();
            }
            if at_end {
                return Ok(terms);
            }
        }
    }

    /// Looks the keys up, and the ids.
    fn check_batch(
        &self,
        kind: Kind,
        keys: &TermTexts,
        ids: &[TermId],
        problem: &mut dyn FnMut(String),
    ) -> Result<()> {
        let sorted: Vec<&[u8]> = (0..keys.len()).map(|index| keys.get(index)).collect();
        let mut found = Vec::with_capacity(ids.len());
        // Keys out of order are reported already; looking them up would prove nothing.
        if sorted.is_sorted() {
            self.lookup_sorted(kind, &sorted, &mut found)?;
            for (id, found) in ids.iter().zip(&found) {
                if *found != Some(*id) {
                    problem(format!("the key of {id:?} gives {found:?}"));
                }
            }
        }
        if kind == Kind::Triple {
            for (parts, (key, id)) in self.triples(ids)?.iter().zip(sorted.iter().zip(ids)) {
                if triple_parts(key) != Some(*parts) {
                    problem(format!("{id:?} does not give its parts"));
                }
            }
            return Ok(());
        }
        let mut texts = TermTexts::default();
        self.texts(ids, &mut texts)?;
        for (index, (key, id)) in sorted.iter().zip(ids).enumerate() {
            if texts.get(index) != *key {
                problem(format!("{id:?} does not give its key"));
            }
        }
        Ok(())
    }

    /// Calls `visit` with all parts: list, models, pages of indexes, blocks.
    pub(crate) fn visit_parts(&self, visit: &mut dyn FnMut(PartRef) -> Result<()>) -> Result<()> {
        if !self.list.is_none() {
            visit(self.list)?;
        }
        for partition in self.partitions.iter() {
            partition.visit_parts(&self.source.store, &mut |part| visit(part))?;
        }
        Ok(())
    }

    /// For each kind that has terms: its name, the terms, the bytes on disk.
    pub(crate) fn info(&self) -> Vec<(String, u64, u64)> {
        let mut info = Vec::new();
        for kind in KINDS {
            let partitions = self.of_kind(kind);
            if partitions.is_empty() {
                continue;
            }
            let name = kind_name(kind);
            let descriptors = || partitions.iter().map(|partition| &partition.descriptor);
            info.push((
                name.to_owned(),
                descriptors().map(|descriptor| descriptor.count).sum(),
                descriptors()
                    .map(|descriptor| descriptor.block_bytes + descriptor.other_bytes)
                    .sum(),
            ));
            let texts = descriptors().filter_map(|descriptor| descriptor.texts);
            let texts: u64 = texts.map(|texts| texts.entries).sum();
            if texts > 0 {
                info.push((
                    format!("long texts of {name}"),
                    texts,
                    descriptors().map(|descriptor| descriptor.text_bytes).sum(),
                ));
            }
        }
        info
    }

    /// For each kind that has terms: its name, in how many runs they stand, and how many of these are
    /// permuted.
    pub(crate) fn runs(&self) -> Vec<(&'static str, usize, usize)> {
        let kinds = KINDS.into_iter().map(|kind| (kind, self.of_kind(kind)));
        kinds
            .filter(|(_, partitions)| !partitions.is_empty())
            .map(|(kind, partitions)| {
                let permuted = partitions.iter();
                let permuted = permuted.filter(|at| at.descriptor.permuted.is_some());
                (kind_name(kind), partitions.len(), permuted.count())
            })
            .collect()
    }
}

/// What `info` calls the terms of a kind.
const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Iri => "IRIs",
        Kind::NumericLiteral => "numeric literals",
        Kind::TemporalLiteral => "temporal literals",
        Kind::Literal => "other literals",
        _ => "triple terms",
    }
}

/// What is wrong with a key.
fn malformed(kind: Kind, key: &[u8]) -> Option<String> {
    match kind {
        Kind::Iri => std::str::from_utf8(key)
            .err()
            .map(|error| error.to_string()),
        Kind::Triple => triple_parts(key)
            .is_none()
            .then(|| "not three ids".to_owned()),
        _ => match key::parse_literal(key) {
            Ok(parts) => inline::encode_literal(parts.into_literal().as_ref())
                .map(|id| format!("the same term as the inline {id:?}")),
            Err(error) => Some(format!("no literal: {error:?}")),
        },
    }
}

fn with_source(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
