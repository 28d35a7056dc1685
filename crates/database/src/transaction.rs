//! Transactions: queries and changes that take effect together, or not at all.
//!
//! A transaction reads the state that the database had when it began, and its own changes. When it commits, and
//! others have changed what it read meanwhile, that is a conflict and nothing happens; what only adds and
//! removes given quads is never in conflict. So what transactions did is always what they would have done one
//! after the other, in the order of their commits.

use std::fmt;

use hashbrown::HashMap;
use oxrdf::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term};
use rapidhash::fast::RandomState;
use stoa_quadstore::{Changes, CommitOptions, GraphChange, NewTerms, Snapshot};
use stoa_terms::{GraphSet, Kind, TermId};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::options::QueryOptions;
use crate::query::{self, Query, QueryResult};
use crate::runtime::Runtime;
use crate::statements::StatementGraphs;

pub use stoa_quadstore::{ChangeCounts, TransactionOptions};

/// Quads that are looked up and changed together.
const CHANGED_QUADS: usize = 1 << 13;

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CommitSummary {
    /// The number of the commit. If there was nothing to do, that of the last one that was seen.
    pub commit: u64,
    /// Quads that were not there before.
    pub added: u64,
    /// Quads that are not there any more.
    pub removed: u64,
    /// Terms that the dictionary did not have before.
    pub terms: u64,
    /// When it was made, in microseconds since 1970-01-01T00:00:00Z; never before an earlier commit. 0 if
    /// there was nothing to do.
    pub time_us: u64,
}

impl From<stoa_quadstore::Committed> for CommitSummary {
    fn from(committed: stoa_quadstore::Committed) -> Self {
        Self {
            commit: committed.commit,
            added: committed.added,
            removed: committed.removed,
            terms: committed.terms,
            time_us: committed.time_us,
        }
    }
}

/// A transaction that is under way. Dropping it undoes it.
///
/// ```
/// use stoa_database::{
///     Access, Database, Error, OpenOptions, QueryOptions, QueryResult, Runtime, RuntimeOptions,
///     TransactionOptions,
/// };
/// use stoa_database::oxrdf::{GraphName, NamedNode, Quad};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("db");
/// # let runtime = Runtime::new(RuntimeOptions::default())?;
/// # let writing = OpenOptions { access: Access::Exclusive, create: true };
/// # let database = Database::open(&runtime, &path, &writing)?;
/// let seat = NamedNode::new("http://example.org/seat/1").unwrap();
/// let taken_by = NamedNode::new("http://example.org/takenBy").unwrap();
/// let reserve = |who: &str| {
///     let mut transaction = database.begin(&TransactionOptions::default())?;
///     let ask = format!("ASK {{ {seat} {taken_by} ?who }}");
///     let free = transaction.query(&ask, &QueryOptions::default())?;
///     assert!(matches!(free, QueryResult::Boolean(false)));
///     let who = NamedNode::new(format!("http://example.org/{who}")).unwrap();
///     let quad = Quad::new(seat.clone(), taken_by.clone(), who, GraphName::DefaultGraph);
///     transaction.insert(&mut std::iter::once(quad))?;
///     Ok::<_, Error>(transaction)
/// };
/// // Both find the seat free; one of them gets it.
/// let (alice, bob) = (reserve("alice")?, reserve("bob")?);
/// assert_eq!(alice.commit()?.added, 1);
/// assert!(matches!(bob.commit(), Err(Error::Conflict { .. })));
/// # Ok::<_, Error>(())
/// ```
pub struct Transaction {
    database: Database,
    inner: stoa_quadstore::Transaction,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("base", &self.inner.base())
            .field("has_changes", &self.inner.has_changes())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Begins a transaction on the state that the database has now.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn begin(&self, options: &TransactionOptions) -> Result<Transaction> {
        Ok(Transaction {
            database: self.clone(),
            inner: self.store().begin(options.clone())?,
        })
    }

    /// Does work in a transaction and commits it. If others have changed what it read meanwhile, it is done
    /// again from the start; after some times alone, so that it always comes to an end. The work must not
    /// commit anything else to the database itself, nor wait for somebody who does.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// let graph = oxrdf::NamedNode::new_unchecked("http://example.org/graph");
    /// let (existed, summary) = database.transact(|transaction| {
    ///     let existed = transaction.graph_exists(&graph)?;
    ///     transaction.create_graph(&graph)?;
    ///     Ok(existed)
    /// })?;
    /// assert_eq!((existed, summary.commit), (false, 1));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the work; `ReadOnly`, `RefusesWrites`, `DiskFull` and what else the disk gives.
    pub fn transact<T>(
        &self,
        mut work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, CommitSummary)> {
        self.transact_with(&CommitOptions::default(), &mut work)
    }

    /// The same, committed in another way.
    pub(crate) fn transact_with<T>(
        &self,
        options: &CommitOptions,
        work: &mut dyn FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, CommitSummary)> {
        let (done, submitted) = self.repeat(&|| Ok(()), |attempt| {
            let mut transaction = self.begin(&TransactionOptions::default())?;
            let done = work(&mut transaction)?;
            let submitted = attempt.submit(transaction.inner, options.clone())?;
            Ok((done, submitted))
        })?;
        Ok((done, submitted.wait()?.into()))
    }
}

impl Transaction {
    /// The number of the commit that it reads.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.inner.base()
    }

    /// Answers a query over what the transaction began with and its changes so far; later ones are not
    /// seen. Solutions are computed while they are taken: those that are taken after the commit are not
    /// part of what it checks.
    ///
    /// # Errors
    /// As [`Database::query`].
    pub fn query(&self, text: &str, options: &QueryOptions) -> Result<QueryResult> {
        QueryResult::new(self.prepare(text, options)?)
    }

    /// Parses and plans a query, for writers of results.
    ///
    /// # Errors
    /// As [`Database::prepare`].
    pub fn prepare(&self, text: &str, options: &QueryOptions) -> Result<Query> {
        query::prepare(self.runtime(), self.view(), None, text, options)
    }

    /// Adds quads. A blank node with a label as answers show it, `b` and its number, is that node; any
    /// other label is one new node throughout the call.
    ///
    /// # Errors
    /// `MemoryExceeded`, and what the disk gives; the transaction is as it was before then.
    pub fn insert(&mut self, quads: &mut dyn Iterator<Item = Quad>) -> Result<ChangeCounts> {
        self.change_quads(quads, Change::Insert)
    }

    /// Removes quads; those that are not there are none. Blank nodes are those of [`Transaction::insert`]; a
    /// quad with another label is in no database.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn remove(&mut self, quads: &mut dyn Iterator<Item = Quad>) -> Result<ChangeCounts> {
        self.change_quads(quads, Change::Remove)
    }

    /// Removes all quads of a graph, and the graph. Takes milliseconds, however many quads there are.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn clear_graph(&mut self, graph: &GraphName) -> Result<ChangeCounts> {
        self.clear_graphs(&StatementGraphs::Only(vec![graph.clone()]))
    }

    /// Removes all quads of some graphs, and the graphs. Takes milliseconds, however many quads there are.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn clear_graphs(&mut self, graphs: &StatementGraphs) -> Result<ChangeCounts> {
        let view = self.view();
        let ids = |graphs: &[GraphName]| {
            let mut ids = Vec::new();
            for graph in graphs {
                ids.extend(graph_id(&view, graph)?);
            }
            ids.sort_unstable();
            ids.dedup();
            Ok::<_, Error>(ids)
        };
        let (cleared, mut named) = match graphs {
            StatementGraphs::All => (GraphSet::All, view.graph_names()?),
            StatementGraphs::Only(graphs) => match ids(graphs)?.as_slice() {
                [] => return Ok(ChangeCounts::default()),
                [one] => (GraphSet::One(*one), vec![*one]),
                some => (GraphSet::Some(some.to_vec()), some.to_vec()),
            },
            StatementGraphs::AllBut(graphs) => {
                let cleared = GraphSet::AllBut(ids(graphs)?);
                let mut named = view.graph_names()?;
                named.retain(|graph| cleared.contains(*graph));
                (cleared, named)
            }
        };
        named.retain(|graph| *graph != TermId::DEFAULT_GRAPH);
        let dropped = named.into_iter().map(|graph| GraphChange {
            graph,
            created: false,
        });
        Ok(self.inner.clear(&cleared, dropped.collect(), &|| true)?)
    }

    /// Makes a graph exist even if it is empty.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn create_graph(&mut self, graph: &NamedNode) -> Result<()> {
        let mut terms = NewTerms::default();
        let view = self.view().unrecorded();
        let ids = terms.ids(&view, &[graph.clone().into()])?;
        let graphs = ids.into_iter().map(|graph| GraphChange {
            graph,
            created: true,
        });
        let changes = Changes {
            graphs: graphs.collect(),
            ..Changes::default()
        };
        self.inner.change(&terms, &changes)?;
        Ok(())
    }

    /// Whether a named graph holds quads or was created empty.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn graph_exists(&self, graph: &NamedNode) -> Result<bool> {
        let view = self.view();
        Ok(match view.term_id(graph.as_ref().into())? {
            Some(id) => view.graph_exists(id)?,
            None => false,
        })
    }

    /// A new blank node.
    #[must_use]
    pub fn blank_node(&self) -> BlankNode {
        BlankNode::new_unchecked(format!("b{}", self.inner.blank_node().payload()))
    }

    /// Commits; returns when that is as durable as the runtime was made for.
    ///
    /// # Errors
    /// `Conflict` if others changed what the transaction read, `SnapshotExpired` if that cannot be told,
    /// `ReadOnly`, `RefusesWrites`, `DiskFull` and what else the disk gives.
    pub fn commit(self) -> Result<CommitSummary> {
        self.commit_with(CommitOptions::default())
    }

    /// Commits with a message for the list of commits.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with_message(self, message: impl Into<String>) -> Result<CommitSummary> {
        self.commit_with(CommitOptions {
            message: Some(message.into()),
        })
    }

    pub(crate) fn commit_with(self, options: CommitOptions) -> Result<CommitSummary> {
        let submitted = self.database.attempt().submit(self.inner, options)?;
        Ok(submitted.wait()?.into())
    }

    /// Ends the transaction without a trace.
    pub fn roll_back(self) {}

    /// What it reads, recorded.
    pub(crate) fn view(&self) -> Snapshot {
        self.inner.snapshot()
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.database.runtime()
    }

    pub(crate) fn inner(&mut self) -> &mut stoa_quadstore::Transaction {
        &mut self.inner
    }

    fn change_quads(
        &mut self,
        quads: &mut dyn Iterator<Item = Quad>,
        change: Change,
    ) -> Result<ChangeCounts> {
        let (savepoint, mut counts) = (self.inner.savepoint(), ChangeCounts::default());
        let mut nodes = Nodes::default();
        loop {
            let mut some = Vec::new();
            while some.len() < CHANGED_QUADS
                && let Some(quad) = quads.next()
            {
                some.push(quad);
            }
            if some.is_empty() {
                return Ok(counts);
            }
            match self.change_some(some, change, &mut nodes) {
                Ok(more) => {
                    counts.added += more.added;
                    counts.removed += more.removed;
                }
                Err(error) => {
                    self.inner.roll_back_to(savepoint);
                    return Err(error);
                }
            }
        }
    }

    /// Changes some quads; `nodes` are the new blank nodes so far, by their labels.
    fn change_some(
        &mut self,
        mut quads: Vec<Quad>,
        change: Change,
        nodes: &mut Nodes,
    ) -> Result<ChangeCounts> {
        let mut terms = NewTerms::default();
        let mut labels = Vec::new();
        quads.retain(|quad| {
            labels.clear();
            labels_of(quad, &mut labels);
            labels.iter().all(|label| {
                let id = self.node(label, change, nodes);
                id.inspect(|id| terms.set_blank(label.as_str(), *id))
                    .is_some()
            })
        });
        let view = self.inner.snapshot().unrecorded();
        let mut names: Vec<Term> = Vec::with_capacity(quads.len() * 4);
        for quad in &quads {
            names.push(quad.subject.clone().into());
            names.push(quad.predicate.clone().into());
            names.push(quad.object.clone());
            names.extend(graph_term(&quad.graph_name));
        }
        let mut ids = terms.ids(&view, &names)?.into_iter();
        let mut changes = Changes::default();
        let list = match change {
            Change::Insert => &mut changes.added,
            Change::Remove => &mut changes.removed,
        };
        for quad in &quads {
            let mut next = || {
                let id = ids.next();
                id.ok_or_else(|| Error::Internal("a term without an id".to_owned()))
            };
            let triple = [next()?, next()?, next()?];
            let graph = match graph_term(&quad.graph_name) {
                Some(_) => next()?,
                None => TermId::DEFAULT_GRAPH,
            };
            let [subject, predicate, object] = triple;
            list.push([subject, predicate, object, graph]);
        }
        Ok(self.inner.change(&terms, &changes)?)
    }

    /// The node of a label; none if nothing can have it.
    fn node(&self, label: &BlankNode, change: Change, nodes: &mut Nodes) -> Option<TermId> {
        let given = numbered(label).filter(|id| self.inner.is_blank_node(*id));
        if given.is_some() {
            return given;
        }
        if change == Change::Remove {
            return None;
        }
        let new = || self.inner.blank_node();
        Some(*nodes.entry(label.clone()).or_insert_with(new))
    }
}

/// New blank nodes by their labels.
type Nodes = HashMap<BlankNode, TermId, RandomState>;

/// What happens to quads.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Change {
    Insert,
    Remove,
}

/// The node with a label as answers show it.
fn numbered(node: &BlankNode) -> Option<TermId> {
    let digits = node.as_str().strip_prefix('b')?;
    let number: u64 = digits.parse().ok()?;
    // One form for each number.
    let is_plain = digits == number.to_string() && number <= TermId::PAYLOAD_MAX;
    is_plain.then(|| TermId::new(Kind::BlankNode, number))
}

fn graph_term(graph: &GraphName) -> Option<Term> {
    match graph {
        GraphName::NamedNode(name) => Some(name.clone().into()),
        GraphName::BlankNode(node) => Some(node.clone().into()),
        GraphName::DefaultGraph => None,
    }
}

/// The id of a graph that may exist.
fn graph_id(view: &Snapshot, graph: &GraphName) -> Result<Option<TermId>> {
    Ok(match graph {
        GraphName::NamedNode(name) => view.term_id(name.as_ref().into())?,
        GraphName::BlankNode(node) => numbered(node),
        GraphName::DefaultGraph => Some(TermId::DEFAULT_GRAPH),
    })
}

/// The blank nodes of a quad, those within triple terms, too.
fn labels_of(quad: &Quad, out: &mut Vec<BlankNode>) {
    if let GraphName::BlankNode(node) = &quad.graph_name {
        out.push(node.clone());
    }
    let (mut subject, mut object) = (&quad.subject, &quad.object);
    loop {
        if let NamedOrBlankNode::BlankNode(node) = subject {
            out.push(node.clone());
        }
        match object {
            Term::BlankNode(node) => out.push(node.clone()),
            Term::Triple(triple) => {
                (subject, object) = (&triple.subject, &triple.object);
                continue;
            }
            _ => {}
        }
        return;
    }
}
