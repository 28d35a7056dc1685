//! EXPLAIN and EXPLAIN ANALYZE: the plan of a query, and what its operators did.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};
use stoa_executor::{Adjacency, OperatorProfile};
use stoa_planner::Explanation;
use stoa_storage::ReadCounts;

/// The plan of a query, and what became of it as far as it was run.
///
/// [`Display`](fmt::Display) gives a tree of text, [`Analysis::to_json`] an object.
#[derive(Clone, Debug)]
pub struct Analysis {
    pub(super) plan: Explanation,
    /// What the operators did, in the order of the plan's; `None` if the query was not timed.
    pub(super) operators: Option<Vec<OperatorProfile>>,
    /// Whether the query ended with an error before it was done, so that the rows are those until then.
    pub is_partial: bool,
    /// From the text to the plan.
    pub planning: Duration,
    /// For which query the plan was made.
    pub origin: PlanOrigin,
    /// How long the query was at work or waited in [`crate::Query::next`]; what passed between the calls of
    /// [`crate::Query::poll`] is left out.
    pub running: Duration,
    /// What it looked up and read, as [`crate::Query::reads`].
    pub reads: ReadCounts,
    /// The most memory that operators had reserved at one time, in bytes.
    pub memory_peak_bytes: u64,
    /// How many bytes operators put into temporary files.
    pub spilled_bytes: u64,
    /// How long the query waited for memory that others held before it began.
    pub waited: Duration,
    /// How many threads were at work at one time at most.
    pub threads: u64,
    /// For how many rows what a condition on a text gives was known, since it had been tried on the same term before.
    pub known_rows: u64,
}

/// For which query a plan was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PlanOrigin {
    /// This one.
    #[default]
    New,
    /// An earlier one with the same constants.
    Same,
    /// An earlier one of the same shape with other constants, whose rows it estimates.
    Shape,
}

impl Analysis {
    /// What an operator did; the time is that of its inputs, too, on all threads that ran it. What helpers run adds
    /// up, so that inputs may show more than who reads them.
    fn done(&self, number: usize) -> Option<&OperatorProfile> {
        self.operators.as_ref()?.get(number)
    }

    /// Tells if the plan is an earlier query's.
    fn tell_origin(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            PlanOrigin::New => Ok(()),
            PlanOrigin::Same => writeln!(f, "planned when the same was asked before"),
            PlanOrigin::Shape => writeln!(f, "planned for an earlier query of this shape"),
        }
    }

    /// An object with `form`, `reused`, `operators` in the order of the text, each with its `depth` and the
    /// `operator` as it is printed, `estimated_rows`, `sorted_by`, `subplan` (its number, for each that reads a common
    /// subplan, which stands below the first of them), and if the query was timed `rows`, `rows_in`,
    /// `rows_dropped` (what it made and did not give, since a join above has no partner for it), `switched_after` (how
    /// many rows were looked up before the rest was joined by hash, for a join that was switched), `keys` (how many keys of a join above a scan looked
    /// up instead of reading all rows), `leaps` (how often a merge join sent a scan over rows that it has no use for), `partitions` (of the table of a hash join that several threads made), `sweepers` (how many threads could sweep for a path search at once), `joiners` (the same of the parts of a hash join on disk), `looked_up` (how many nodes a path search looked up), `adjacency` (for a path search that
    /// read triples into memory, an object with how many `triples` and how many `bytes` they took with what was made of them), `adjacency_kept` (how many triples an earlier query had
    /// read for it), `calls`, `ms`, `spilled_bytes` and, if it
    /// reads, `reads`; and then `partial` (whether the query ended with an error, so that the rows are those until then), `planning_ms`, `waited_ms`, `running_ms`, `reads`, `memory_peak_bytes`, `spilled_bytes`, `threads` and
    /// `known_rows` (for how many rows what a condition on a text gives was known from an earlier row). `reads` is an object with `rnd`, `seq`,
    /// `same_segment`, `same_group`, `disk`, `read_ahead` and `bytes`, as in [`ReadCounts`].
    #[must_use]
    pub fn to_json(&self) -> String {
        let operators = self.plan.operators.iter().enumerate();
        let operators = operators.map(|(number, operator)| {
            let mut object = Map::from_iter([
                ("depth".to_owned(), operator.depth.into()),
                ("operator".to_owned(), operator.text.clone().into()),
                ("estimated_rows".to_owned(), operator.estimated_rows.into()),
                ("sorted_by".to_owned(), operator.sorted_by.clone().into()),
            ]);
            if let Some(subplan) = operator.subplan {
                object.insert("subplan".to_owned(), subplan.into());
            }
            if let Some(done) = self.done(number) {
                object.insert("rows".to_owned(), done.rows_out.into());
                object.insert("rows_in".to_owned(), done.rows_in.into());
                object.insert("rows_dropped".to_owned(), done.rows_dropped.into());
                if let Some(rows) = done.switched_after {
                    object.insert("switched_after".to_owned(), rows.into());
                }
                if done.keys > 0 {
                    object.insert("keys".to_owned(), done.keys.into());
                }
                if done.leaps > 0 {
                    object.insert("leaps".to_owned(), done.leaps.into());
                }
                if done.ranges > 0 {
                    object.insert("ranges".to_owned(), done.ranges.into());
                }
                if done.partitions > 0 {
                    object.insert("partitions".to_owned(), done.partitions.into());
                }
                if done.joiners > 0 {
                    object.insert("joiners".to_owned(), done.joiners.into());
                }
                insert_path(&mut object, done);
                object.insert("calls".to_owned(), done.calls.into());
                object.insert("ms".to_owned(), milliseconds(done.time).into());
                object.insert("spilled_bytes".to_owned(), done.spilled_bytes.into());
                if done.reads != ReadCounts::default() {
                    object.insert("reads".to_owned(), reads_json(&done.reads));
                }
            }
            Value::from(object)
        });
        let mut whole = Map::from_iter([
            ("form".to_owned(), self.plan.form.clone().into()),
            ("operators".to_owned(), operators.collect()),
            ("reused".to_owned(), (self.origin != PlanOrigin::New).into()),
        ]);
        if self.operators.is_some() {
            let planning = milliseconds(self.planning);
            whole.insert("partial".to_owned(), self.is_partial.into());
            whole.insert("planning_ms".to_owned(), planning.into());
            whole.insert("waited_ms".to_owned(), milliseconds(self.waited).into());
            let running = milliseconds(self.running);
            whole.insert("running_ms".to_owned(), running.into());
            whole.insert("reads".to_owned(), reads_json(&self.reads));
            let memory_peak = self.memory_peak_bytes;
            whole.insert("memory_peak_bytes".to_owned(), memory_peak.into());
            whole.insert("spilled_bytes".to_owned(), self.spilled_bytes.into());
            whole.insert("threads".to_owned(), self.threads.into());
            whole.insert("known_rows".to_owned(), self.known_rows.into());
        }
        Value::from(whole).to_string()
    }
}

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.operators.is_none() {
            write!(f, "{}", self.plan)?;
            return self.tell_origin(f);
        }
        writeln!(f, "{}", self.plan.form)?;
        for (number, operator) in self.plan.operators.iter().enumerate() {
            write!(f, "{operator}")?;
            match self.done(number) {
                Some(done) if done.calls > 0 => {
                    let ms = milliseconds(done.time);
                    write!(f, "  actual={} ms={ms:.3}", done.rows_out)?;
                    write_counts(f, done)?;
                    write_reads(f, &done.reads)?;
                    writeln!(f)?;
                }
                _ => writeln!(f, "  never run")?,
            }
        }
        self.tell_origin(f)?;
        if self.is_partial {
            writeln!(f, "ended before it was done; rows are those until then")?;
        }
        writeln!(
            f,
            "planning {:.3} ms, running {:.3} ms, threads {}, memory {} bytes, on disk {} bytes",
            milliseconds(self.planning),
            milliseconds(self.running),
            self.threads,
            self.memory_peak_bytes,
            self.spilled_bytes
        )?;
        let reads = &self.reads;
        writeln!(
            f,
            "rnd {}, seq {}, same segment {}, same group {}, disk {}, read-ahead {}, bytes {}",
            reads.rnd,
            reads.seq,
            reads.same_segment,
            reads.same_group,
            reads.disk,
            reads.read_ahead,
            reads.bytes
        )?;
        if self.known_rows > 0 {
            writeln!(f, "conditions known from earlier rows: {}", self.known_rows)?;
        }
        match self.waited {
            Duration::ZERO => Ok(()),
            waited => writeln!(f, "waited {:.3} ms for memory", milliseconds(waited)),
        }
    }
}

/// What an operator did, where it did any of it.
fn write_counts(f: &mut fmt::Formatter<'_>, done: &OperatorProfile) -> fmt::Result {
    if done.rows_dropped > 0 {
        write!(f, " dropped={}", done.rows_dropped)?;
    }
    if let Some(rows) = done.switched_after {
        write!(f, " switched={rows}")?;
    }
    if done.keys > 0 {
        write!(f, " keys={}", done.keys)?;
    }
    if done.leaps > 0 {
        write!(f, " leaps={}", done.leaps)?;
    }
    if done.ranges > 0 {
        write!(f, " ranges={}", done.ranges)?;
    }
    if done.partitions > 0 {
        write!(f, " partitions={}", done.partitions)?;
    }
    if done.joiners > 0 {
        write!(f, " joiners={}", done.joiners)?;
    }
    write_path(f, done)?;
    if done.spilled_bytes > 0 {
        write!(f, " spilled={}", done.spilled_bytes)?;
    }
    Ok(())
}

/// What a path search did.
fn write_path(f: &mut fmt::Formatter<'_>, done: &OperatorProfile) -> fmt::Result {
    if done.sweepers > 0 {
        write!(f, " sweepers={}", done.sweepers)?;
    }
    if done.looked_up > 0 {
        write!(f, " looked_up={}", done.looked_up)?;
    }
    if let Some(Adjacency { triples, bytes }) = done.adjacency {
        write!(f, " adjacency={triples} adjacency_bytes={bytes}")?;
    }
    if done.adjacency_kept > 0 {
        write!(f, " adjacency_kept={}", done.adjacency_kept)?;
    }
    Ok(())
}

/// The same in JSON.
fn insert_path(object: &mut Map<String, Value>, done: &OperatorProfile) {
    if done.sweepers > 0 {
        object.insert("sweepers".to_owned(), done.sweepers.into());
    }
    if done.looked_up > 0 {
        object.insert("looked_up".to_owned(), done.looked_up.into());
    }
    if let Some(Adjacency { triples, bytes }) = done.adjacency {
        let taken = [("triples", triples), ("bytes", bytes)];
        let taken = taken.map(|(name, value)| (name.to_owned(), value.into()));
        object.insert("adjacency".to_owned(), Map::from_iter(taken).into());
    }
    if done.adjacency_kept > 0 {
        object.insert("adjacency_kept".to_owned(), done.adjacency_kept.into());
    }
}

/// What an operator that reads has read, behind the rest of its line.
fn write_reads(f: &mut fmt::Formatter<'_>, reads: &ReadCounts) -> fmt::Result {
    if *reads == ReadCounts::default() {
        return Ok(());
    }
    let ReadCounts {
        rnd,
        seq,
        same_segment,
        same_group,
        disk,
        read_ahead,
        bytes,
    } = reads;
    write!(
        f,
        " rnd={rnd} seq={seq} same_segment={same_segment} same_group={same_group}"
    )?;
    if *disk > 0 {
        write!(f, " disk={disk} read_ahead={read_ahead} bytes={bytes}")?;
    }
    Ok(())
}

fn reads_json(reads: &ReadCounts) -> Value {
    json!({
        "rnd": reads.rnd,
        "seq": reads.seq,
        "same_segment": reads.same_segment,
        "same_group": reads.same_group,
        "disk": reads.disk,
        "read_ahead": reads.read_ahead,
        "bytes": reads.bytes,
    })
}

/// To the microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
