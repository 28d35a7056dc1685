//! `log`: the commits that are kept; `diff`: what changed between two of them.

use std::io::{BufWriter, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use serde_json::json;
use stoa_database::{CancelHandle, CommitInfo, Error, time_text};

use super::arguments::{Diff, ListFormat, Log};
use super::commands::open_to_read;
use super::output::say;
use super::sizes::{count, counted};

/// Columns of the list.
const COLUMNS: [&str; 6] = ["commit", "time", "added", "removed", "kind", "message"];

pub(super) fn log(arguments: &Log) -> anyhow::Result<ExitCode> {
    let database = open_to_read(&arguments.folder)?;
    let format = arguments.format.unwrap_or_else(|| {
        if std::io::stdout().is_terminal() {
            ListFormat::Table
        } else {
            ListFormat::Tsv
        }
    });
    let out = BufWriter::new(std::io::stdout().lock());
    let mut list = List {
        out,
        format,
        count: 0,
    };
    let limit = arguments.limit.unwrap_or(u64::MAX);
    list.begin()?;
    if limit > 0 {
        database.commits(&mut |info| {
            list.add(&info).map_err(Error::Output)?;
            Ok(list.count < limit)
        })?;
    }
    let listed = list.count;
    list.end()?;
    let (oldest, retention) = (database.oldest_commit(), database.retention());
    if listed < limit {
        say(&format!(
            "{} of {} commits listed; the oldest state that can be read is commit {oldest} (--retain {retention})",
            count(listed),
            count(database.commit()),
        ));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn diff(arguments: &Diff, interrupted: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let database = open_to_read(&arguments.folder)?;
    let cancel = CancelHandle::from_flag(Arc::clone(interrupted));
    let mut patch = database.diff(&arguments.from, &arguments.to, &cancel)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut lines = Vec::new();
    let mut more = true;
    while more {
        more = patch.step(&mut lines)?;
        out.write_all(&lines)
            .context("cannot write to standard output")?;
        lines.clear();
    }
    out.flush().context("cannot write to standard output")?;
    say(&format!(
        "{} added, {} removed",
        counted(patch.added(), "quad"),
        count(patch.removed())
    ));
    Ok(ExitCode::SUCCESS)
}

/// A list of commits that is being written.
struct List<W> {
    out: W,
    format: ListFormat,
    count: u64,
}

impl<W: Write> List<W> {
    fn begin(&mut self) -> anyhow::Result<()> {
        let written = match self.format {
            ListFormat::Table => write_row(&mut self.out, &COLUMNS.map(str::to_owned)),
            ListFormat::Csv => writeln!(self.out, "{}\r", COLUMNS.join(",")),
            ListFormat::Tsv => writeln!(self.out, "{}", COLUMNS.join("\t")),
            ListFormat::Json => self.out.write_all(b"["),
        };
        written.context("cannot write to standard output")
    }

    fn add(&mut self, info: &CommitInfo) -> std::io::Result<()> {
        let kind = if info.is_load { "load" } else { "change" };
        let message = info.message.as_deref().unwrap_or_default();
        let time = time_text(info.time_us);
        self.count += 1;
        if self.format == ListFormat::Json {
            let entry = json!({
                "commit": info.commit,
                "time": time,
                "added": info.added,
                "removed": info.removed,
                "kind": kind,
                "message": info.message,
            });
            let before = if self.count > 1 { ",\n " } else { "" };
            return write!(self.out, "{before}{entry}");
        }
        let cells = [
            info.commit.to_string(),
            time,
            info.added.to_string(),
            info.removed.to_string(),
            kind.to_owned(),
            message.to_owned(),
        ];
        match self.format {
            ListFormat::Csv => writeln!(self.out, "{}\r", cells.map(|cell| csv(&cell)).join(",")),
            ListFormat::Tsv => writeln!(self.out, "{}", cells.map(|cell| line(&cell)).join("\t")),
            _ => write_row(&mut self.out, &cells.map(|cell| line(&cell))),
        }
    }

    fn end(mut self) -> anyhow::Result<()> {
        if self.format == ListFormat::Json {
            self.out
                .write_all(b"]\n")
                .context("cannot write to standard output")?;
        }
        self.out.flush().context("cannot write to standard output")
    }
}

/// A row of the table.
fn write_row(out: &mut impl Write, cells: &[String; 6]) -> std::io::Result<()> {
    let [commit, time, added, removed, kind, message] = cells;
    let row = format!("{commit:>8}  {time:<27}  {added:>10}  {removed:>10}  {kind:<6}  {message}");
    writeln!(out, "{}", row.trim_end())
}

/// A text on one line, which commands no terminal.
fn line(text: &str) -> String {
    let escaped = |letter: char| match letter {
        letter if letter.is_control() => letter.escape_default().to_string(),
        letter => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// A text as a field of CSV.
fn csv(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
