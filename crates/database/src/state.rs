//! What a database holds, or held, after one commit: whoever asks it several things gets answers that go together.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use oxrdf::NamedNode;
use stoa_quadstore::Snapshot;

use crate::database::Database;
use crate::dump::{self, Dump, DumpScope};
use crate::error::Result;
use crate::format::GraphFormat;
use crate::history;
use crate::moment::Moment;
use crate::options::{DumpFormat, QueryOptions};
use crate::query::{self, CancelHandle, PlanCache, Query, QueryResult};
use crate::runtime::Runtime;
use crate::statements::{self, StatementGraphs, StatementPattern};

/// The state after a commit. It holds what it needs to be read, so keep it no longer than that.
#[derive(Clone)]
pub struct State {
    runtime: Runtime,
    snapshot: Snapshot,
    plans: Option<Arc<PlanCache>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("commit", &self.commit())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// The state at a moment; without one, as it is now. An earlier one is made of a checkpoint and the log behind
    /// it, which ends with `timeout` or `cancel`; who asks for it again, or for the one after it, gets it sooner.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// database.set_retention(Retention::All)?;
    /// database.update("INSERT DATA { <http://a/s> <http://a/p> 1 }", &UpdateOptions::default())?;
    /// database.update("CLEAR ALL", &UpdateOptions::default())?;
    /// let cancel = CancelHandle::new();
    /// let first = database.state(Some(&Moment::Commit(1)), None, &cancel)?;
    /// assert_eq!((first.commit(), first.count_statements(&StatementGraphs::All)?), (1, 1));
    /// let mut dump = Vec::new();
    /// first.dump(DumpFormat::NQuads, &mut dump, &cancel)?;
    /// assert!(dump.starts_with(b"<http://a/s> "));
    /// assert_eq!(database.state(None, None, &cancel)?.commit(), 2);
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchCommit` if it is not there yet or is not kept any more, `Timeout`, `Cancelled`, `MemoryExceeded`, and
    /// what the disk gives.
    pub fn state(
        &self,
        at: Option<&Moment>,
        timeout: Option<Duration>,
        cancel: &CancelHandle,
    ) -> Result<State> {
        let (store, runtime) = (self.store(), self.runtime());
        match at {
            None => Ok(self.now()),
            Some(at) => {
                let snapshot = history::snapshot(store, at, timeout, cancel, &*runtime.clock())?;
                Ok(State::of(runtime, snapshot))
            }
        }
    }
}

impl State {
    /// The state as a snapshot gives it.
    pub(crate) fn of(runtime: &Runtime, snapshot: Snapshot) -> Self {
        Self {
            runtime: runtime.clone(),
            snapshot,
            plans: None,
        }
    }

    /// The same, with plans that may be used again.
    pub(crate) fn with_plans(self, plans: &Arc<PlanCache>) -> Self {
        Self {
            plans: Some(Arc::clone(plans)),
            ..self
        }
    }

    /// The number of the commit.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.snapshot.commit()
    }

    /// As [`Database::query`]; the moment of the options is not looked at.
    ///
    /// # Errors
    /// As [`Database::query`].
    pub fn query(&self, text: &str, options: &QueryOptions) -> Result<QueryResult> {
        QueryResult::new(self.prepare(text, options)?)
    }

    /// As [`Database::prepare`]; the moment of the options is not looked at.
    ///
    /// # Errors
    /// As [`Database::prepare`].
    pub fn prepare(&self, text: &str, options: &QueryOptions) -> Result<Query> {
        let plans = self.plans.as_deref();
        query::prepare(&self.runtime, self.snapshot.clone(), plans, text, options)
    }

    /// As [`Database::dump`].
    ///
    /// # Errors
    /// `Output` if `out` fails, `Cancelled`, and what the disk gives.
    pub fn dump(
        &self,
        format: DumpFormat,
        out: &mut dyn Write,
        cancel: &CancelHandle,
    ) -> Result<u64> {
        dump::dump(&self.runtime, &self.snapshot, format, out, cancel)
    }

    /// As [`Database::start_dump`].
    ///
    /// # Errors
    /// `InvalidOption` if the format has no graphs but the dump has, and what the disk gives.
    pub fn start_dump(
        &self,
        format: GraphFormat,
        scope: &DumpScope,
        cancel: &CancelHandle,
    ) -> Result<Dump> {
        let snapshot = self.snapshot.clone();
        Dump::new(&self.runtime, snapshot, format, scope, cancel)
    }

    /// As [`Database::statements`].
    ///
    /// # Errors
    /// What the disk gives.
    pub fn statements(
        &self,
        pattern: &StatementPattern,
        format: GraphFormat,
        cancel: &CancelHandle,
    ) -> Result<Dump> {
        let snapshot = self.snapshot.clone();
        Dump::of_statements(&self.runtime, snapshot, pattern, format, cancel)
    }

    /// As [`Database::count_statements`].
    ///
    /// # Errors
    /// What the disk gives.
    pub fn count_statements(&self, graphs: &StatementGraphs) -> Result<u64> {
        statements::count(&self.snapshot, graphs)
    }

    /// As [`Database::graph_exists`].
    ///
    /// # Errors
    /// What the disk gives.
    pub fn graph_exists(&self, graph: &NamedNode) -> Result<bool> {
        Ok(match self.snapshot.term_id(graph.as_ref().into())? {
            Some(id) => self.snapshot.graph_exists(id)?,
            None => false,
        })
    }
}
