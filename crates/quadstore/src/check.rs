//! `check`: reads everything, verifies each checksum and invariant, reports what is wrong.
//!
//! - Every tree: nodes and segments are what their parents say, rows ascend, first keys, rows and
//!   distinct values are as noted.
//! - All permutations hold the same quads: for each the sum of a 128-bit hash of every quad, which
//!   does not depend on the order, must be the same.
//! - In the lean scheme, the quads read through the pairs SP and OP are the same quads again, and there
//!   are no other pairs.
//! - The pairs of graph and subject, and the catalogue's counts, are those of the quads: again by
//!   sums of hashes.
//! - Every id can be what it stands for: ids of the dictionary are below the next one, inline ids
//!   have a value, subjects, predicates and graphs are of kinds that may stand there.
//! - The dictionary: see its own check.
//! - The roots of earlier checkpoints that are kept: the nodes, segments, characteristic sets and partitions of the dictionary that no
//!   later one has, each by itself; sums are taken for the current root alone.
//! - The characteristic sets are those of the quads, counted anew.
//! - The log: every record behind the oldest root that is kept, and the change files that wait for its archive.
//! - Storage: every byte of every file, and that every page is used or free.
//!
//! # Limits
//! Memory: the list of all parts and extents, 40 bytes for about 1,000 rows. Cancellation is looked at before
//! each segment.

#![expect(
    clippy::indexing_slicing,
    reason = "rows have four columns; leaves and groups are counted by what is indexed"
)]

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashSet;
use rapidhash::fast::RandomState;
use stoa_storage::{PartRef, Store};
use stoa_terms::{GraphSet, Kind, Permutation, TermId, inline};
use xxhash_rust::xxh3::xxh3_128;

use crate::characteristic_sets::{CharacteristicSets, Recount, SetLimits, Table, read};
use crate::dictionary::CheckedPartitions;
use crate::error::{Error, Result};
use crate::info::trees;
use crate::permutation::Tree;
use crate::permutation::node::{Child, Node};
use crate::permutation::tree::child_node;
use crate::read::{Columns, QuadColumns, ScanSpec};
use crate::root::{Scheme, TreeName};
use crate::segment::Row;
use crate::segment::format::GROUP_ROWS;
use crate::segment::reader::{Header, read_rows};
use crate::segment::writer::distinct;
use crate::snapshot::Snapshot;

/// What a problem of the characteristic sets is told under.
const SETS: &str = "characteristic sets";
/// The most problems that a report lists.
const PROBLEMS_MAX: usize = 100;

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckReport {
    /// What is wrong; empty if all is well. At most 100, see `suppressed`.
    pub problems: Vec<Problem>,
    /// How many further problems were found.
    pub suppressed: u64,
    /// Quads checked, in each permutation.
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

    /// Takes down an error as a problem of a part, unless it ends the check.
    pub(crate) fn add_error(&mut self, part: &str, error: &Error) {
        self.add(part, message(error));
    }

    fn add(&mut self, part: &str, message: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem {
                part: part.to_owned(),
                message,
            });
        } else {
            self.suppressed += 1;
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// What was checked: `PSOG`, `dictionary`, `graphs`, `files`.
    pub part: String,
    /// What is wrong, with file and place where there are any.
    pub message: String,
}

/// Is told what is being checked, how many rows or terms of it are done, and how many there are.
pub type CheckProgress<'a> = dyn FnMut(&str, u64, u64) + 'a;

/// Checks everything. [`Error::Cancelled`] once `cancel` is set.
pub(crate) fn check(
    snapshot: &Snapshot,
    cancel: &AtomicBool,
    progress: &mut CheckProgress<'_>,
) -> Result<CheckReport> {
    let mut check = Check {
        snapshot,
        cancel,
        progress,
        report: CheckReport::default(),
        parts: Vec::new(),
        sums: Sums::default(),
        seen: Seen::default(),
        is_earlier: false,
    };
    check.trees()?;
    check.dictionary()?;
    check.earlier()?;
    check.files()?;
    Ok(check.report)
}

/// Sums of hashes, wrapping; `None` for a tree that could not be read to its end.
#[derive(Default)]
struct Sums {
    /// Quads, by each permutation and, in the lean scheme, as read through each tree of pairs.
    quads: Vec<(&'static str, Option<u128>)>,
    /// Pairs of graph and subject, by the quads and by the tree of pairs.
    pairs: [Option<u128>; 2],
    /// Graphs weighted by their quads, by the quads and by the catalogue.
    graphs: [Option<u128>; 2],
}

/// What was read, so that earlier roots are read only where they are different.
#[derive(Default)]
struct Seen {
    /// Extents of nodes and segments.
    extents: HashSet<u64, RandomState>,
    partitions: CheckedPartitions,
}

struct Check<'a> {
    snapshot: &'a Snapshot,
    cancel: &'a AtomicBool,
    progress: &'a mut CheckProgress<'a>,
    report: CheckReport,
    parts: Vec<PartRef>,
    sums: Sums,
    seen: Seen,
    /// Whether it is about an earlier root, of which only what is not in a later one is read.
    is_earlier: bool,
}

impl Check<'_> {
    /// Reads what earlier roots have of their own, the newest first.
    fn earlier(&mut self) -> Result<()> {
        let retained = self.snapshot.store().retained();
        let count = retained.len() as u64;
        for (done, root) in (1..).zip(retained.iter().rev()) {
            let opened = self.snapshot.store().retained_root(root.checkpoint);
            let opened = opened.map_err(Error::from).and_then(|root| {
                let snapshot = root.map(|root| self.snapshot.open_root(root));
                snapshot.transpose()
            });
            let before = self.report.problems.len();
            let outcome = match opened {
                Ok(Some(snapshot)) => self.earlier_root(&snapshot),
                // It expired meanwhile.
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            self.settle("earlier commits", outcome)?;
            for problem in self.report.problems.iter_mut().skip(before) {
                problem.message = format!("as of commit {}: {}", root.commit, problem.message);
            }
            (self.progress)("earlier commits", done, count);
        }
        Ok(())
    }

    fn earlier_root(&mut self, snapshot: &Snapshot) -> Result<()> {
        let mut check = Check {
            snapshot,
            cancel: self.cancel,
            progress: &mut |_, _, _| {},
            report: std::mem::take(&mut self.report),
            parts: Vec::new(),
            sums: Sums::default(),
            seen: std::mem::take(&mut self.seen),
            is_earlier: true,
        };
        let outcome = check.own_parts();
        let Check { report, seen, .. } = check;
        (self.report, self.seen) = (report, seen);
        outcome
    }

    /// Reads what was not read yet of the trees and the dictionary.
    fn own_parts(&mut self) -> Result<()> {
        self.read_sets()?;
        for (name, tree) in trees(self.snapshot) {
            let mut rows = TreeRows::new(name, self.snapshot);
            let mut walk = Walk {
                check: self,
                name: name.name(),
                rows: &mut rows,
                total: tree.rows(),
                done: 0,
                whole: true,
            };
            walk.tree(tree)?;
            for problem in rows.problems {
                self.report.add(name.name(), problem);
            }
        }
        let terms = self.report.terms;
        self.dictionary()?;
        self.report.terms = terms;
        Ok(())
    }

    fn trees(&mut self) -> Result<()> {
        let mut default_quads = None;
        let sets = self.read_sets()?;
        for (name, tree) in trees(self.snapshot) {
            let mut rows = TreeRows::new(name, self.snapshot);
            if let Some(sets) = sets.as_ref().filter(|_| name == TreeName::Spog) {
                let empty = Table::of(sets, SetLimits::default()).emptied();
                rows.recount = Some(Recount::into_table(empty));
            }
            let mut walk = Walk {
                check: self,
                name: name.name(),
                rows: &mut rows,
                total: tree.rows(),
                done: 0,
                whole: true,
            };
            walk.tree(tree)?;
            let whole = walk.whole;
            let done = walk.done;
            rows.finish();
            if let Some(recount) = rows.recount.take().filter(|_| whole) {
                self.sets(recount, sets.as_ref());
            }
            for problem in rows.problems {
                self.report.add(name.name(), problem);
            }
            if name.permutation().is_some() {
                self.sums
                    .quads
                    .push((name.name(), whole.then_some(rows.quads)));
            }
            if !whole {
                continue;
            }
            match name {
                TreeName::Gs => self.sums.pairs[1] = Some(rows.pairs),
                TreeName::Graphs => {
                    self.sums.graphs[1] = Some(rows.graphs);
                    default_quads = Some(rows.default_quads);
                }
                TreeName::Psog => self.report.quads = done,
                TreeName::Spog => {
                    self.sums.pairs[0] = Some(rows.pairs);
                    self.sums.graphs[0] = Some(rows.graphs);
                }
                _ => {}
            }
        }
        if self.snapshot.scheme() == Scheme::Lean {
            for (pairs, order) in [
                (TreeName::Sp, Permutation::Spog),
                (TreeName::Op, Permutation::Opsg),
            ] {
                let outcome = self.through_pairs(pairs, order);
                self.settle(pairs.name(), outcome)?;
            }
        }
        let noted = self.snapshot.0.base.payload.default_quads;
        if default_quads.is_some_and(|found| found != noted) {
            let message = format!("the root notes {noted} quads in the default graph");
            self.report.add("graphs", message);
        }
        self.compare();
        Ok(())
    }

    /// The characteristic sets, if there are any that can be read.
    fn read_sets(&mut self) -> Result<Option<CharacteristicSets>> {
        let Some(part) = self.snapshot.0.base.payload.sets else {
            return Ok(None);
        };
        self.parts.push(part);
        let is_new = self.seen.extents.insert(part.extent.to_u64());
        if self.is_earlier && !is_new {
            return Ok(None);
        }
        match read(self.snapshot.store(), &part) {
            Ok(sets) => Ok(Some(sets)),
            Err(error) => {
                self.settle(SETS, Err(error))?;
                Ok(None)
            }
        }
    }

    /// Compares the characteristic sets with what was counted.
    fn sets(&mut self, recount: Recount, sets: Option<&CharacteristicSets>) {
        let table = recount.finish();
        if sets.is_some_and(|sets| !table.equals(sets)) {
            let message = "hold other subjects or quads than the quads".to_owned();
            self.report.add(SETS, message);
        }
    }

    fn compare(&mut self) {
        let mut quads = std::mem::take(&mut self.sums.quads).into_iter();
        if let Some((first_name, Some(first))) = quads.next() {
            for (name, sum) in quads {
                if sum.is_some_and(|sum| sum != first) {
                    self.report
                        .add(name, format!("holds other quads than {first_name}"));
                }
            }
        }
        let sums = [
            ("GS", self.sums.pairs, "other pairs of graph and subject"),
            ("graphs", self.sums.graphs, "other counts of quads"),
        ];
        for (name, sums, what) in sums {
            if let [Some(wanted), Some(found)] = sums
                && wanted != found
            {
                self.report
                    .add(name, format!("holds {what} than the quads"));
            }
        }
    }

    /// Reads all quads through a tree of pairs of the lean scheme.
    fn through_pairs(&mut self, pairs: TreeName, order: Permutation) -> Result<()> {
        let spec = ScanSpec {
            permutation: order,
            prefix: Vec::new(),
            ranges: Vec::new(),
            graphs: GraphSet::All,
            columns: Columns::ALL,
            with_graph: true,
        };
        let mut scan = self.snapshot.scan(&spec)?;
        let mut rows = TreeRows::new(order.into(), self.snapshot);
        let (mut out, mut last, mut distinct) = (QuadColumns::default(), None, 0);
        let (mut done, total) = (0, self.snapshot.quads());
        while scan.next(4096, &mut out)? {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let [a, b, c, d] = &out.columns;
            for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
                let row = [a, b, c, d].map(|id| id.to_bits());
                distinct += u64::from(last.replace([row[0], row[1]]) != Some([row[0], row[1]]));
                rows.take(&[row]);
            }
            done += out.rows as u64;
            (self.progress)(pairs.name(), done, total);
        }
        rows.finish();
        if distinct != self.snapshot.tree(pairs).rows() {
            let message = "holds other pairs than the quads".to_owned();
            self.report.add(pairs.name(), message);
        }
        self.sums.quads.push((pairs.name(), Some(rows.quads)));
        if pairs == TreeName::Sp {
            self.sums.pairs[0] = Some(rows.pairs);
            self.sums.graphs[0] = Some(rows.graphs);
        }
        Ok(())
    }

    fn dictionary(&mut self) -> Result<()> {
        let dictionary = self.snapshot.dictionary();
        (self.progress)("dictionary", 0, 0);
        let report = &mut self.report;
        let summary = dictionary.check(&mut self.seen.partitions, self.cancel, &mut |problem| {
            report.add("dictionary", problem);
        })?;
        self.report.terms = summary.terms;
        let parts = &mut self.parts;
        let visited = dictionary.visit_parts(&mut |part| {
            parts.push(part);
            Ok(())
        });
        self.settle("dictionary", visited)
    }

    fn files(&mut self) -> Result<()> {
        (self.progress)("files", 0, 0);
        let report = &mut self.report;
        let summary = self.snapshot.store().check(
            std::mem::take(&mut self.parts),
            &mut |error| report.add("files", message(&error.into())),
            self.cancel,
        );
        match summary {
            Ok(summary) => {
                self.report.bytes = summary.bytes;
                Ok(())
            }
            Err(stoa_storage::Error::Cancelled) => Err(Error::Cancelled),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an error a problem, but for cancellation.
    fn settle(&mut self, name: &str, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => Ok(()),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(error) => {
                self.report.add(name, message(&error));
                Ok(())
            }
        }
    }
}

/// An error and its causes.
fn message(error: &Error) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    message
}

/// A walk over one tree.
struct Walk<'a, 'b> {
    check: &'a mut Check<'b>,
    name: &'static str,
    rows: &'a mut TreeRows<'b>,
    total: u64,
    done: u64,
    whole: bool,
}

impl Walk<'_, '_> {
    fn tree(&mut self, tree: &Tree) -> Result<()> {
        let store = Store::clone(self.check.snapshot.store());
        self.node(&store, &tree.above)
    }

    fn node(&mut self, store: &Store, node: &Node) -> Result<()> {
        for (index, child) in node.children.iter().enumerate() {
            if self.check.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let is_new = self.check.seen.extents.insert(child.part.extent.to_u64());
            if self.check.is_earlier && !is_new {
                continue;
            }
            let outcome = if node.level == 1 {
                self.leaf(store, child)
            } else {
                self.check.parts.push(child.part);
                child_node(store, node, index).and_then(|below| {
                    self.entry(&below, child);
                    self.node(store, &below)
                })
            };
            if outcome.is_err() {
                self.whole = false;
                self.check.settle(self.name, outcome)?;
            }
        }
        Ok(())
    }

    /// Compares what a node says about a lower node with its children.
    fn entry(&mut self, node: &Node, entry: &Child) {
        let found = Child::over(&node.children, entry.part, entry.checkpoint);
        if found.as_ref() != Some(entry) {
            self.problem(
                entry,
                "the entry of a node does not agree with its children",
            );
        }
    }

    fn problem(&mut self, entry: &Child, what: &str) {
        let error = entry.part.corruption(what, "something else");
        let message = message(&error.into());
        self.check.report.add(self.name, message);
    }

    fn leaf(&mut self, store: &Store, entry: &Child) -> Result<()> {
        self.check.parts.push(entry.part);
        let header = Header::new(store.read_one(&entry.part)?)?;
        for group in 0..header.groups() {
            self.check.parts.push(header.group(group));
        }
        let rows = read_rows(store, entry.part, entry.rows)?;
        let last = &rows[rows.len() - 1];
        let agrees = rows[0] == entry.first
            && last[..2] == entry.last
            && distinct(&rows) == (entry.distinct_one, entry.distinct_two)
            && (0..header.groups())
                .all(|group| header.first_key(group) == rows[group * GROUP_ROWS]);
        if !agrees {
            self.problem(
                entry,
                "the entry and keys of a segment to agree with its rows",
            );
        }
        self.rows.take(&rows);
        self.done += entry.rows;
        (self.check.progress)(self.name, self.done, self.total);
        Ok(())
    }
}

/// What the rows of one tree add up to.
struct TreeRows<'a> {
    name: TreeName,
    snapshot: &'a Snapshot,
    last: Option<Row>,
    quads: u128,
    pairs: u128,
    graphs: u128,
    default_quads: u64,
    /// The graphs of the subject at work, in SPOG.
    subject_graphs: Vec<u64>,
    /// Counts subjects by their predicates, in SPOG.
    recount: Option<Recount>,
    problems: Vec<String>,
}

impl<'a> TreeRows<'a> {
    fn new(name: TreeName, snapshot: &'a Snapshot) -> Self {
        Self {
            name,
            snapshot,
            last: None,
            quads: 0,
            pairs: 0,
            graphs: 0,
            default_quads: 0,
            subject_graphs: Vec::new(),
            recount: None,
            problems: Vec::new(),
        }
    }

    fn take(&mut self, rows: &[Row]) {
        for row in rows {
            if self.last.is_some_and(|last| last >= *row) {
                self.problem("rows of neighbouring segments do not ascend".to_owned());
            }
            let new = self.last.is_none_or(|last| last[0] != row[0]);
            match self.name.permutation() {
                Some(permutation) => self.quad(permutation, row, new),
                None if self.name == TreeName::Gs => {
                    self.pairs = self.pairs.wrapping_add(hash(&row[..2]));
                }
                None if self.name == TreeName::Graphs => self.graph(row),
                // The pairs of nodes are compared with the quads that are read through them.
                None => {}
            }
            self.last = Some(*row);
        }
    }

    fn quad(&mut self, permutation: Permutation, row: &Row, new: bool) {
        let mut quad = [0; 4];
        for (position, value) in permutation.order().into_iter().zip(row) {
            quad[position as usize] = *value;
        }
        self.quads = self.quads.wrapping_add(hash(&quad));
        if new && TermId::from_bits(row[0]) != TermId::DEFAULT_GRAPH {
            let may_stand = match permutation {
                Permutation::Psog => |kind| kind == Kind::Iri,
                Permutation::Spog | Permutation::Gpso | Permutation::Gpos => {
                    |kind| matches!(kind, Kind::Iri | Kind::BlankNode)
                }
                _ => |_| true,
            };
            self.id(TermId::from_bits(row[0]), may_stand);
        }
        if permutation == Permutation::Spog {
            if new {
                self.finish();
            }
            self.subject_graphs.push(row[3]);
            if let Some(recount) = &mut self.recount {
                recount.take(row[0], row[1]);
            }
            self.graphs = self.graphs.wrapping_add(hash(&row[3..]));
        }
    }

    /// Notes the pairs of the subject at work; `last` is its last row.
    fn finish(&mut self) {
        let Some([subject, ..]) = self.last else {
            return;
        };
        self.subject_graphs.sort_unstable();
        self.subject_graphs.dedup();
        for graph in self.subject_graphs.drain(..) {
            self.pairs = self.pairs.wrapping_add(hash(&[graph, subject]));
        }
    }

    /// A row of the catalogue.
    fn graph(&mut self, row: &Row) {
        let [graph, quads, created, zero] = *row;
        let id = TermId::from_bits(graph);
        if id == TermId::DEFAULT_GRAPH {
            self.default_quads = quads;
        } else {
            self.id(id, |kind| matches!(kind, Kind::Iri | Kind::BlankNode));
        }
        if created > 1 || zero != 0 || (quads == 0 && created == 0) {
            self.problem(format!("an impossible entry for graph {id:?}"));
        }
        let weighted = hash(&[graph]).wrapping_mul(u128::from(quads));
        self.graphs = self.graphs.wrapping_add(weighted);
    }

    fn id(&mut self, id: TermId, may_stand: impl Fn(Kind) -> bool) {
        let kind = id.kind();
        let exists = match kind {
            Kind::BlankNode => id.payload() < self.snapshot.0.base.payload.next_blank_node,
            Kind::Local => false,
            Kind::Triple => id.payload() < self.snapshot.dictionary().next_payload(kind),
            kind if kind.is_in_dictionary() => {
                id.payload() < self.snapshot.dictionary().next_payload(kind)
            }
            _ => inline::decode(id).is_some(),
        };
        if !exists || !may_stand(kind) {
            self.problem(format!("the id {id:?} cannot stand where it does"));
        }
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() <= PROBLEMS_MAX {
            self.problems.push(what);
        }
    }
}

fn hash(values: &[u64]) -> u128 {
    let mut bytes = [0; 32];
    for (place, value) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(values) {
        *place = value.to_le_bytes();
    }
    xxh3_128(&bytes[..values.len() * 8])
}

#[cfg(test)]
mod tests;
