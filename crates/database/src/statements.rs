//! Quads by a pattern: read, counted and removed.
//!
//! A pattern names terms or leaves them open. What is bound decides the order that is read, so that
//! at most a subject's or an object's quads are looked through in vain.
//!
//! # Limits
//! Memory: a batch. Removing hands [`REMOVED_QUADS`] quads at a time to the transaction, which keeps
//! them, or to a bulk update, which does not.

use oxrdf::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Term, Triple};
use stoa_quadstore::{Changes, Columns, NewTerms, QuadColumns, Scan, ScanSpec, Snapshot};
use stoa_terms::{GraphSet, Kind, Permutation, TermId};

use crate::database::Database;
use crate::dump::Dump;
use crate::error::{Error, Result};
use crate::format::GraphFormat;
use crate::query::CancelHandle;
use crate::transaction::{ChangeCounts, CommitSummary, Transaction};

/// Quads that are removed together.
const REMOVED_QUADS: usize = 1 << 16;

/// Which quads are meant. A blank node is one of the database by the label that answers show, `b` and
/// its number.
#[derive(Clone, Debug, Default)]
pub struct StatementPattern {
    /// The subject, if it is given.
    pub subject: Option<NamedOrBlankNode>,
    /// The predicate, if it is given.
    pub predicate: Option<NamedNode>,
    /// The object, if it is given.
    pub object: Option<Term>,
    /// The graphs.
    pub graphs: StatementGraphs,
}

/// The graphs of a [`StatementPattern`].
#[derive(Clone, Debug, Default)]
pub enum StatementGraphs {
    /// All of them, the default graph included.
    #[default]
    All,
    /// These.
    Only(Vec<GraphName>),
    /// All but these.
    AllBut(Vec<GraphName>),
}

/// The quads of a pattern, a batch at a time.
pub(crate) struct Statements {
    scan: Scan,
    permutation: Permutation,
    /// An object that is looked for among a subject's quads.
    object: Option<TermId>,
}

impl Statements {
    /// The quads of a snapshot; `None` if there can be none, as a term is not known.
    pub(crate) fn of(snapshot: &Snapshot, pattern: &StatementPattern) -> Result<Option<Self>> {
        let Some(graphs) = graph_set(snapshot, &pattern.graphs)? else {
            return Ok(None);
        };
        let subject = pattern.subject.clone().map(Term::from);
        let predicate = pattern.predicate.clone().map(Term::from);
        let mut ids = [None; 3];
        let terms = [&subject, &predicate, &pattern.object];
        for (id, term) in ids.iter_mut().zip(terms) {
            if let Some(term) = term {
                *id = term_id(snapshot, term)?;
                if id.is_none() {
                    return Ok(None);
                }
            }
        }
        let mut left = None;
        let (permutation, prefix) = match ids {
            [Some(s), Some(p), Some(o)] => (Permutation::Spog, vec![s, p, o]),
            [Some(s), Some(p), None] => (Permutation::Spog, vec![s, p]),
            [Some(s), None, object] => {
                left = object;
                (Permutation::Spog, vec![s])
            }
            [None, Some(p), Some(o)] => (Permutation::Posg, vec![p, o]),
            [None, Some(p), None] => (Permutation::Psog, vec![p]),
            [None, None, Some(o)] => (Permutation::Opsg, vec![o]),
            [None, None, None] => (Permutation::Spog, Vec::new()),
        };
        let scan = snapshot.scan(&ScanSpec {
            permutation,
            prefix,
            ranges: Vec::new(),
            graphs,
            columns: Columns::ALL,
            with_graph: true,
        })?;
        Ok(Some(Self {
            scan,
            permutation,
            object: left,
        }))
    }

    /// Replaces `out` by at most `max_rows` quads, a column for each of subject, predicate, object and
    /// graph; false if there are no more.
    pub(crate) fn next(&mut self, max_rows: usize, out: &mut QuadColumns) -> Result<bool> {
        if !self.scan.next(max_rows, out)? {
            out.clear();
            return Ok(false);
        }
        let [first, second, third, graphs] = std::mem::take(&mut out.columns);
        let [subjects, predicates, objects] = match self.permutation {
            Permutation::Psog => [second, first, third],
            Permutation::Posg => [third, first, second],
            Permutation::Opsg => [third, second, first],
            _ => [first, second, third],
        };
        out.columns = [subjects, predicates, objects, graphs];
        if let Some(object) = self.object {
            keep(out, object);
        }
        Ok(true)
    }
}

/// Leaves the rows with an object.
fn keep(rows: &mut QuadColumns, object: TermId) {
    let [_, _, objects, _] = &rows.columns;
    let kept: Vec<bool> = objects.iter().map(|other| *other == object).collect();
    for column in &mut rows.columns {
        let mut kept = kept.iter();
        column.retain(|_| kept.next() == Some(&true));
    }
    rows.rows = kept.iter().filter(|kept| **kept).count();
}

/// The graphs of a set that are known; `None` if there are none.
pub(crate) fn graph_set(
    snapshot: &Snapshot,
    graphs: &StatementGraphs,
) -> stoa_quadstore::Result<Option<GraphSet>> {
    let (names, but) = match graphs {
        StatementGraphs::All => return Ok(Some(GraphSet::All)),
        StatementGraphs::Only(names) => (names, false),
        StatementGraphs::AllBut(names) => (names, true),
    };
    let mut ids = Vec::new();
    for name in names {
        ids.extend(graph_id(snapshot, name)?);
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(match (ids.as_slice(), but) {
        ([], true) => Some(GraphSet::All),
        ([], false) => None,
        (_, true) => Some(GraphSet::AllBut(ids)),
        ([TermId::DEFAULT_GRAPH], false) => Some(GraphSet::Default),
        ([one], false) => Some(GraphSet::One(*one)),
        (_, false) => Some(GraphSet::Some(ids)),
    })
}

fn graph_id(snapshot: &Snapshot, name: &GraphName) -> stoa_quadstore::Result<Option<TermId>> {
    match name {
        GraphName::NamedNode(node) => snapshot.term_id(node.as_ref().into()),
        GraphName::BlankNode(node) => Ok(blank_node_id(node)),
        GraphName::DefaultGraph => Ok(Some(TermId::DEFAULT_GRAPH)),
    }
}

/// The id of a term, if the snapshot knows it.
fn term_id(snapshot: &Snapshot, term: &Term) -> Result<Option<TermId>> {
    match term {
        Term::BlankNode(node) => Ok(blank_node_id(node)),
        Term::Triple(triple) => {
            let Triple {
                subject,
                predicate,
                object,
            } = &**triple;
            let subject = term_id(snapshot, &subject.clone().into())?;
            let predicate = snapshot.term_id(predicate.as_ref().into())?;
            let object = term_id(snapshot, object)?;
            let (Some(subject), Some(predicate), Some(object)) = (subject, predicate, object)
            else {
                return Ok(None);
            };
            Ok(snapshot.triple_id([subject, predicate, object])?)
        }
        term => Ok(snapshot.term_id(term.as_ref())?),
    }
}

/// The id of a blank node by the label that answers show.
fn blank_node_id(node: &BlankNode) -> Option<TermId> {
    let digits = node.as_str().strip_prefix('b')?;
    let is_canonical = digits == "0" || !digits.starts_with(['0', '+']);
    let number = digits.parse().ok().filter(|_| is_canonical)?;
    (number <= TermId::PAYLOAD_MAX).then(|| TermId::new(Kind::BlankNode, number))
}

/// How many quads some graphs hold.
pub(crate) fn count(snapshot: &Snapshot, graphs: &StatementGraphs) -> Result<u64> {
    let sum = |ids: &[TermId]| {
        let mut quads = 0;
        for id in ids {
            quads += snapshot.graph_quads(*id)?;
        }
        Ok::<_, Error>(quads)
    };
    Ok(match graph_set(snapshot, graphs)? {
        None => 0,
        Some(GraphSet::Default) => sum(&[TermId::DEFAULT_GRAPH])?,
        Some(GraphSet::One(graph)) => sum(&[graph])?,
        Some(GraphSet::Some(ids)) => sum(&ids)?,
        Some(GraphSet::AllBut(ids)) => snapshot.quads().saturating_sub(sum(&ids)?),
        Some(GraphSet::All | GraphSet::Named) => snapshot.quads(),
    })
}

/// The names of the named graphs that hold quads or were created empty.
pub(crate) fn graph_names(snapshot: &Snapshot) -> Result<Vec<NamedOrBlankNode>> {
    let graphs = snapshot.graph_names()?;
    graphs
        .into_iter()
        .map(|graph| match snapshot.term(graph)? {
            Term::NamedNode(node) => Ok(node.into()),
            Term::BlankNode(node) => Ok(node.into()),
            _ => Err(Error::Internal("a graph that no node names".to_owned())),
        })
        .collect()
}

impl Database {
    /// Removes the quads of a pattern as one commit, however many they are.
    ///
    /// # Errors
    /// `Cancelled`, `ReadOnly`, `RefusesWrites`, `DiskFull`, `NotAdmitted` if there are more than memory holds and others have
    /// it for too long, and what else the disk gives.
    pub fn remove_statements(
        &self,
        pattern: &StatementPattern,
        cancel: &CancelHandle,
    ) -> Result<CommitSummary> {
        let removed = self.transact(|transaction| transaction.remove_statements(pattern, cancel));
        match removed {
            Err(Error::MemoryExceeded { .. }) => {}
            removed => return removed.map(|(_, summary)| summary),
        }
        let ((), summary) = self.in_bulk(&cancel.go_on(), None, |update| {
            let Some(statements) = Statements::of(&update.snapshot(), pattern)? else {
                return Ok(());
            };
            each_batch(statements, cancel, &mut |changes| {
                Ok(update.change(&NewTerms::default(), changes)?)
            })
        })?;
        Ok(summary)
    }
}

/// Hands on the removal of all quads of a pattern.
fn each_batch(
    mut statements: Statements,
    cancel: &CancelHandle,
    remove: &mut dyn FnMut(&Changes) -> Result<()>,
) -> Result<()> {
    let mut batch = QuadColumns::default();
    let (mut more, mut changes) = (true, Changes::default());
    while more {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        more = statements.next(REMOVED_QUADS, &mut batch)?;
        let [subjects, predicates, objects, graphs] = &batch.columns;
        let rows = subjects.iter().zip(predicates).zip(objects).zip(graphs);
        let quads = rows.map(|(((s, p), o), g)| [*s, *p, *o, *g]);
        changes.removed.extend(quads);
        if !changes.removed.is_empty() && (!more || changes.removed.len() >= REMOVED_QUADS) {
            remove(&changes)?;
            changes.removed.clear();
        }
    }
    Ok(())
}

impl Transaction {
    /// Begins to write the quads of a pattern as the transaction sees them now. A format without graphs
    /// leaves them out.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn statements(
        &self,
        pattern: &StatementPattern,
        format: GraphFormat,
        cancel: &CancelHandle,
    ) -> Result<Dump> {
        Dump::of_statements(self.runtime(), self.view(), pattern, format, cancel)
    }

    /// How many quads some graphs hold as the transaction sees them.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn count_statements(&self, graphs: &StatementGraphs) -> Result<u64> {
        count(&self.view(), graphs)
    }

    /// The names of the named graphs that hold quads or were created empty.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn graph_names(&self) -> Result<Vec<NamedOrBlankNode>> {
        graph_names(&self.view())
    }

    /// Removes the quads of a pattern.
    ///
    /// # Errors
    /// `Cancelled`, `MemoryExceeded`, and what the disk gives; the transaction is as it was before then.
    pub fn remove_statements(
        &mut self,
        pattern: &StatementPattern,
        cancel: &CancelHandle,
    ) -> Result<ChangeCounts> {
        let Some(statements) = Statements::of(&self.view(), pattern)? else {
            return Ok(ChangeCounts::default());
        };
        let savepoint = self.inner().savepoint();
        let done = self.remove_all(statements, cancel);
        if done.is_err() {
            self.inner().roll_back_to(savepoint);
        }
        done
    }

    fn remove_all(
        &mut self,
        statements: Statements,
        cancel: &CancelHandle,
    ) -> Result<ChangeCounts> {
        let mut counts = ChangeCounts::default();
        each_batch(statements, cancel, &mut |changes| {
            let done = self.inner().change(&NewTerms::default(), changes)?;
            counts.removed += done.removed;
            Ok(())
        })?;
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbers_in_one_form() {
        let id = |label: &str| blank_node_id(&BlankNode::new(label).unwrap());
        for (label, number) in [
            ("b0", Some(0)),
            ("b17", Some(17)),
            ("b017", None),
            ("c1", None),
        ] {
            let expected = number.map(|number| TermId::new(Kind::BlankNode, number));
            assert_eq!(id(label), expected, "{label}");
        }
        for label in ["b", "b1x", "b18446744073709551616", "b18446744073709551615"] {
            assert_eq!(id(label), None, "{label}");
        }
    }
}
