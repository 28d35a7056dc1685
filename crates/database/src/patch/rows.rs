//! Reads the rows of an RDF Patch into a transaction, or into a bulk update.
//!
//! A row is a line. `A` and `D` rows hold a quad in the syntax of N-Quads and become changes; `TX`, `TC` and `TA`
//! bracket them. What a `TA` ends is rolled back. `PA` and `PD` rows are checked and counted: prefixes are no part of
//! the data. Of the headers only `id` and `prev` matter: if they name another database, blank nodes are that one's.
//!
//! # Invariants
//! 1. A patch that breaks off before its `TC` is refused (test `a_patch_that_breaks_off_changes_nothing`).
//! 2. Of several rows about one quad the last one counts, across batches as well (test
//!    `the_last_row_about_a_quad_counts`).
//!
//! # References
//! RDF Patch, <https://afs.github.io/rdf-patch/>

use stoa_quadstore::{ChangeCounts, Savepoint};

use crate::error::{Error, Result};
use crate::load::into::{Expected, Sink};
use crate::load::line::{Failure, LineParser, column};
use crate::load::seen::Seen;
use crate::options::DocumentOptions;
use crate::query::CancelHandle;
use crate::runtime::Runtime;
use crate::update::{CHANGES_SHARE, Destination};

/// What stands before the number of the commit in the name of a state of a database.
const NAME_PREFIX: &str = "<urn:stoa:";

/// Reads patches, one after the other, into one transaction.
pub(super) struct PatchReader<'a> {
    lines: LineParser<Sink<'a>>,
    sink: Sink<'a>,
    /// The id of the database that the transaction belongs to, as headers have it.
    database: String,
    /// The state at the last `TX`, while its transaction is open.
    begun: Option<Begun>,
    /// How many `TX` there were.
    transactions: u64,
    /// Which of them are taken back, as far as that is known.
    taken_back: &'a mut Vec<u64>,
    rows: u64,
    prefixes: u64,
}

/// Where a transaction of a patch began.
struct Begun {
    savepoint: Option<Savepoint>,
    rows: u64,
    counts: ChangeCounts,
    unmet: u64,
}

/// What the rows of patches came to.
pub(super) struct Rows {
    /// `A` and `D` rows, but for those that a `TA` took back.
    pub(super) changes: u64,
    /// How many of them had an effect.
    pub(super) effects: u64,
    /// `PA` and `PD` rows.
    pub(super) prefixes: u64,
    /// Rows that had no effect, if each must have one.
    pub(super) unmet: u64,
    /// The first of them.
    pub(super) examples: Vec<String>,
}

impl<'a> PatchReader<'a> {
    /// `is_strict` says whether rows that have no effect are noted. A bulk update cannot take rows back: a `TA` in it is
    /// an error that adds the number of its `TX` to `taken_back`, so that another run leaves these rows out.
    pub(super) fn new(
        runtime: &Runtime,
        destination: &'a mut (dyn Destination + Send),
        (database_id, is_strict): (u128, bool),
        taken_back: &'a mut Vec<u64>,
        cancel: &CancelHandle,
    ) -> Result<Self> {
        let is_bulk = destination.is_bulk();
        let options = DocumentOptions {
            keep_blank_nodes: true,
            cancel: cancel.clone(),
            ..DocumentOptions::default()
        };
        let mut sink = Sink::new(runtime, destination, &options)?;
        sink.expected = is_strict.then(Expected::default);
        sink.seen = is_bulk.then(|| Seen::new(runtime.memory(), is_strict));
        sink.changes_bytes_max = runtime.memory_bytes() / CHANGES_SHARE;
        Ok(Self {
            lines: LineParser::new(),
            sink,
            database: format!("{database_id:032x}"),
            begun: None,
            transactions: 0,
            taken_back,
            rows: 0,
            prefixes: 0,
        })
    }

    /// Reads `bytes`, which begin at the start of a line and end at the end of one or of the patch. A failure tells the
    /// line within them, from 0.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut rest = bytes;
        let mut number = 0;
        while !rest.is_empty() {
            let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (line, behind) = rest.split_at(end);
            let row = match std::str::from_utf8(line) {
                Ok(line) => self.row(line),
                Err(error) => {
                    let valid = line.get(..error.valid_up_to()).unwrap_or(&[]);
                    wrong(&String::from_utf8_lossy(valid), "invalid UTF-8")
                }
            };
            row.map_err(|failure| failure.below(number))?;
            let line_end = if behind.starts_with(b"\r\n") { 2 } else { 1 };
            rest = behind.get(line_end..).unwrap_or(&[]);
            number += 1;
        }
        Ok(())
    }

    /// Ends a patch: the next one has headers of its own.
    ///
    /// # Errors
    /// A failure without a line if the patch is not whole.
    pub(super) fn end_patch(&mut self) -> Result<(), Failure> {
        if self.begun.is_some() {
            return wrong("", "the patch breaks off: its last row TC . is missing");
        }
        self.sink.hand_over().map_err(failed)?;
        self.sink.end_operation().map_err(failed)
    }

    /// What was read.
    pub(super) fn finish(self) -> Rows {
        let (unmet, examples) = match self.sink.expected {
            Some(expected) => (expected.unmet, expected.examples),
            None => (0, Vec::new()),
        };
        Rows {
            changes: self.rows,
            effects: self.sink.counts.added + self.sink.counts.removed,
            prefixes: self.prefixes,
            unmet,
            examples,
        }
    }

    fn row(&mut self, line: &str) -> Result<(), Failure> {
        let row = line.trim_start_matches([' ', '\t']);
        let start = line.len() - row.len();
        let end = row.find([' ', '\t']).unwrap_or(row.len());
        let (code, rest) = row.split_at(end);
        let behind = start + end;
        match code {
            "A" | "D" => self.change(line, behind, code == "D"),
            "TX" => {
                ends(line, behind, rest)?;
                self.begin(line)
            }
            "TC" => {
                ends(line, behind, rest)?;
                match self.begun.take() {
                    Some(_) => self.sink.hand_over().map_err(failed),
                    None => wrong("", "TC without a TX before it"),
                }
            }
            "TA" => {
                ends(line, behind, rest)?;
                self.abort()
            }
            "H" => self.header(line, rest),
            "PA" | "PD" => {
                if !rest.trim_end().ends_with('.') {
                    return wrong(line, "expected '.' at the end of the row");
                }
                self.prefixes += 1;
                Ok(())
            }
            _ if row.is_empty() || row.starts_with('#') => Ok(()),
            _ => {
                let found: String = code.chars().take(20).collect();
                let before = line.get(..start).unwrap_or("");
                wrong(
                    before,
                    format!(
                        "expected a row of RDF Patch, which begins with H, TX, TC, TA, PA, PD, A or D, found '{found}'"
                    ),
                )
            }
        }
    }

    fn change(&mut self, line: &str, behind: usize, is_removal: bool) -> Result<(), Failure> {
        self.sink.turn(is_removal);
        if self.sink.is_foreign && is_removal {
            // A label that was accepted in a row that adds may not be in this one.
            self.sink.forget_tokens();
        }
        if let Some(expected) = &mut self.sink.expected {
            let text = line.get(behind..).unwrap_or("");
            expected.name_row(text.trim());
        }
        self.lines.parse_quad(line, behind, &mut self.sink)?;
        self.rows += 1;
        Ok(())
    }

    fn begin(&mut self, line: &str) -> Result<(), Failure> {
        if self.begun.is_some() {
            return wrong(
                line,
                "TX within a transaction: TC or TA is missing before it",
            );
        }
        self.sink.hand_over().map_err(failed)?;
        self.transactions += 1;
        self.sink.discards = self.taken_back.contains(&self.transactions);
        self.begun = Some(Begun {
            savepoint: self.sink.destination.savepoint(),
            rows: self.rows,
            counts: self.sink.counts,
            unmet: self.unmet(),
        });
        Ok(())
    }

    fn abort(&mut self) -> Result<(), Failure> {
        let Some(begun) = self.begun.take() else {
            return wrong("", "TA without a TX before it");
        };
        self.sink.drop_batch().map_err(failed)?;
        if self.sink.destination.is_bulk() && !self.sink.discards {
            self.taken_back.push(self.transactions);
            return Err(failed(Error::Internal(
                "a transaction that is taken back".to_owned(),
            )));
        }
        if !self.sink.discards {
            self.sink.destination.roll_back_to(begun.savepoint);
        }
        self.sink.discards = false;
        self.rows = begun.rows;
        self.sink.counts = begun.counts;
        if let Some(expected) = &mut self.sink.expected {
            expected.roll_back_to(begun.unmet);
        }
        Ok(())
    }

    fn unmet(&self) -> u64 {
        self.sink
            .expected
            .as_ref()
            .map_or(0, |expected| expected.unmet)
    }

    /// `H name value .`
    fn header(&mut self, line: &str, rest: &str) -> Result<(), Failure> {
        let Some(header) = rest.trim_end().strip_suffix('.') else {
            return wrong(line, "expected '.' at the end of the row");
        };
        let mut words = header.split_whitespace();
        let (name, value) = (words.next(), words.next());
        if let (Some("id" | "prev" | "previous"), Some(value)) = (name, value)
            && let Some(state) = value.strip_prefix(NAME_PREFIX)
            && state.split(':').next() != Some(self.database.as_str())
        {
            self.sink.make_foreign();
        }
        Ok(())
    }
}

/// Asserts that a row ends with a dot.
fn ends(line: &str, behind: usize, rest: &str) -> Result<(), Failure> {
    let rest = rest.trim_start();
    let after = rest.strip_prefix('.').map(str::trim_start);
    match after {
        Some(after) if after.is_empty() || after.starts_with('#') => Ok(()),
        _ => wrong(
            line.get(..behind).unwrap_or(""),
            "expected '.' and the end of the row",
        ),
    }
}

/// The failure of a row that is wrong behind `before`.
fn wrong<T>(before: &str, reason: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Syntax {
        line: 0,
        column: column(before),
        reason: reason.into(),
    })
}

fn failed(error: Error) -> Failure {
    Failure::Sink { line: 0, error }
}
