//! Earlier commits: which are kept, what is known of them, and the state after one.

use std::time::Duration;

use oxsdatatypes::{DateTime, DayTimeDuration, Decimal};
pub use stoa_quadstore::{CommitInfo, Retention};
use stoa_quadstore::{QuadStore, Snapshot};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::query::CancelHandle;
use crate::runtime::Clock;

impl Database {
    /// Which earlier commits are kept; it is stored in the database.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.store().retention()
    }

    /// Chooses which earlier commits are kept, from now on; space of what is kept no more is free at once.
    ///
    /// # Errors
    /// `ReadOnly`, and what the disk gives; nothing is changed then.
    pub fn set_retention(&self, retention: Retention) -> Result<()> {
        if self.store().store().access() == stoa_storage::Access::Shared {
            return Err(Error::ReadOnly);
        }
        Ok(self.store().set_retention(retention)?)
    }

    /// Gives free at once what only commits before a moment need; returns the oldest commit that can be read then. That
    /// may be an earlier one, of the last checkpoint before the moment.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// assert_eq!(database.retention(), Retention::Auto);
    /// for number in 1..4 {
    ///     let text = format!("INSERT DATA {{ <http://a/s> <http://a/p> {number} }}");
    ///     database.update(&text, &UpdateOptions::default())?;
    /// }
    /// assert_eq!(database.oldest_commit(), 0);
    /// assert_eq!(database.forget_before(&Moment::Commit(3))?, 3);
    /// assert_eq!(database.oldest_commit(), 3);
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSuchCommit` if it has not come yet, `ReadOnly`, and what the disk gives.
    pub fn forget_before(&self, moment: &Moment) -> Result<u64> {
        let store = self.store();
        if store.store().access() == stoa_storage::Access::Shared {
            return Err(Error::ReadOnly);
        }
        let before = match commit_of(store, moment) {
            // It is forgotten already.
            Err(Error::NoSuchCommit {
                is_expired: true, ..
            }) => return Ok(store.oldest_commit()),
            commit => commit?,
        };
        Ok(store.forget_before(before)?)
    }

    /// The oldest commit that can be read.
    #[must_use]
    pub fn oldest_commit(&self) -> u64 {
        self.store().oldest_commit()
    }

    /// The commit of a moment: of a time the last one that is not later.
    ///
    /// # Errors
    /// `NoSuchCommit` if it is not there yet or is not kept any more, and what the disk gives.
    pub fn commit_of(&self, moment: &Moment) -> Result<u64> {
        commit_of(self.store(), moment)
    }

    /// The time of a commit that can be read, in microseconds since 1970; 0 for that of a new database.
    ///
    /// # Errors
    /// What the disk gives.
    pub fn time_of(&self, commit: u64) -> Result<u64> {
        Ok(self.store().time_of(commit)?)
    }

    /// Tells `each` of the commits that are kept, the newest first, until it returns `false`. What was
    /// before the oldest of them can be read as well.
    ///
    /// ```
    /// # use stoa_database::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let runtime = Runtime::new(RuntimeOptions::default())?;
    /// # let writing = OpenOptions { access: Access::Exclusive, create: true };
    /// # let database = Database::open(&runtime, folder.path().join("db"), &writing)?;
    /// database.set_retention(Retention::All)?;
    /// for subject in ["a", "b"] {
    ///     let line = format!("<http://a/{subject}> <http://a/p> 1 .");
    ///     let inputs = vec![Input::from_bytes("one.ttl", line)];
    ///     database.load(LoadOptions { inputs, ..LoadOptions::default() }, &())?;
    /// }
    /// let mut commits = Vec::new();
    /// database.commits(&mut |info| {
    ///     commits.push((info.commit, info.added));
    ///     Ok(true)
    /// })?;
    /// assert_eq!(commits, [(2, 1), (1, 1)]);
    ///
    /// let first = QueryOptions { at: Some(Moment::Commit(1)), ..QueryOptions::default() };
    /// let text = "ASK { <http://a/b> ?p ?o }";
    /// assert!(matches!(database.query(text, &first)?, QueryResult::Boolean(false)));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// What the disk gives, and what `each` does.
    pub fn commits(&self, each: &mut dyn FnMut(CommitInfo) -> Result<bool>) -> Result<()> {
        let mut list = self.list_commits(None);
        while let Some(info) = list.next()?
            && each(info)?
        {}
        Ok(())
    }

    /// The same, to be taken one by one; if there is a commit to begin before, only those before it.
    #[must_use]
    pub fn list_commits(&self, before: Option<u64>) -> CommitList {
        CommitList(self.store().list_commits(before))
    }
}

/// The commits that are kept, the newest first.
pub struct CommitList(stoa_quadstore::CommitList);

impl CommitList {
    /// The next commit; `None` if there is none.
    ///
    /// # Errors
    /// `MemoryExceeded`, and what the disk gives.
    #[expect(
        clippy::should_implement_trait,
        reason = "an error ends it, which an iterator does not tell"
    )]
    pub fn next(&mut self) -> Result<Option<CommitInfo>> {
        Ok(self.0.next()?)
    }
}

/// The commit of a moment.
pub(crate) fn commit_of(store: &QuadStore, moment: &Moment) -> Result<u64> {
    use stoa_quadstore::Error::{CommitExpired, CommitUnknown};
    match *moment {
        Moment::Commit(commit) => {
            let (oldest, last) = (store.oldest_commit(), store.snapshot().commit());
            if commit > last {
                Err(CommitUnknown { commit, last }.into())
            } else if commit < oldest {
                Err(CommitExpired { commit, oldest }.into())
            } else {
                Ok(commit)
            }
        }
        Moment::Time(time) => Ok(store.commit_at(time)?),
    }
}

/// What is read at a moment, unless it takes longer than `timeout` to make.
pub(crate) fn snapshot(
    store: &QuadStore,
    at: &Moment,
    timeout: Option<Duration>,
    cancel: &CancelHandle,
    clock: &dyn Clock,
) -> Result<Snapshot> {
    let end = timeout.map(|timeout| clock.monotonic().saturating_add(timeout));
    let is_late = || end.is_some_and(|end| clock.monotonic() >= end);
    let commit = commit_of(store, at)?;
    match store.at(commit, &|| cancel.is_cancelled() || is_late()) {
        Err(stoa_quadstore::Error::Cancelled) if !cancel.is_cancelled() => Err(Error::Timeout),
        snapshot => Ok(snapshot?),
    }
}

/// A time in microseconds since 1970 as `xsd:dateTime` in UTC, `1970-01-01T00:00:01.5Z`.
#[must_use]
pub fn time_text(time_us: u64) -> String {
    let time = || {
        let seconds = Decimal::from(i64::try_from(time_us).ok()?);
        let seconds = seconds.checked_div(Decimal::from(1_000_000))?;
        let epoch: DateTime = "1970-01-01T00:00:00Z".parse().ok()?;
        epoch.checked_add_day_time_duration(DayTimeDuration::new(seconds))
    };
    time().map_or_else(|| format!("{time_us} us"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (time, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_500_000, "1970-01-01T00:00:01.5Z"),
            (1_795_276_800_000_001, "2026-11-21T16:00:00.000001Z"),
        ] {
            assert_eq!(time_text(time), text);
            assert_eq!(text.parse(), Ok(Moment::Time(time)));
        }
        assert_eq!(time_text(u64::MAX), "18446744073709551615 us");
    }
}
