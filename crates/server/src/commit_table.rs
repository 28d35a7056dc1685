//! Lists of commits as text: what `stoa log` prints and `/log` answers.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Value, json};
use stoa_database::{CommitInfo, time_text};

/// Columns of the list.
const COLUMNS: [&str; 6] = ["commit", "time", "added", "removed", "kind", "message"];

/// How a list is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Columns for people
    Table,
    /// An array of objects, one a line
    Json,
    /// Comma-separated values
    Csv,
    /// Tab-separated values
    Tsv,
}

/// A commit as it is listed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CommitRow {
    pub(crate) commit: u64,
    time: String,
    added: u64,
    removed: u64,
    kind: String,
    message: Option<String>,
}

impl TableFormat {
    pub(crate) const ALL: [Self; 4] = [Self::Json, Self::Csv, Self::Tsv, Self::Table];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
        }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Table => "text/plain",
            Self::Json => "application/json",
            Self::Csv => "text/csv",
            Self::Tsv => "text/tab-separated-values",
        }
    }
}

impl From<CommitInfo> for CommitRow {
    fn from(info: CommitInfo) -> Self {
        Self {
            commit: info.commit,
            time: time_text(info.time_us),
            added: info.added,
            removed: info.removed,
            kind: if info.is_load { "load" } else { "change" }.to_owned(),
            message: info.message,
        }
    }
}

impl CommitRow {
    /// Reads what a list in JSON has on one line; `None` for a line without a commit.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub(crate) fn parse(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim();
        let line = line.strip_prefix('[').unwrap_or(line);
        let line = line.strip_suffix(']').unwrap_or(line);
        let line = line.strip_suffix(',').unwrap_or(line);
        if line.is_empty() {
            return Ok(None);
        }
        let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let row = || {
            Some(Self {
                commit: number("commit")?,
                time: text("time")?,
                added: number("added")?,
                removed: number("removed")?,
                kind: text("kind")?,
                message: text("message"),
            })
        };
        row()
            .map(Some)
            .ok_or_else(|| "it tells no commit".to_owned())
    }
}

/// Writes a list piece by piece.
pub(crate) struct CommitTable {
    format: TableFormat,
    count: u64,
}

impl CommitTable {
    pub(crate) const fn new(format: TableFormat) -> Self {
        Self { format, count: 0 }
    }

    /// How many commits were written.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Writes what comes before the first commit.
    pub(crate) fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        match self.format {
            TableFormat::Table => write_row(out, &COLUMNS.map(str::to_owned)),
            TableFormat::Csv => write!(out, "{}\r\n", COLUMNS.join(",")),
            TableFormat::Tsv => writeln!(out, "{}", COLUMNS.join("\t")),
            TableFormat::Json => out.write_all(b"["),
        }
    }

    pub(crate) fn add(&mut self, row: &CommitRow, out: &mut impl Write) -> io::Result<()> {
        self.count += 1;
        if self.format == TableFormat::Json {
            let entry = json!({
                "commit": row.commit,
                "time": row.time,
                "added": row.added,
                "removed": row.removed,
                "kind": row.kind,
                "message": row.message,
            });
            let before = if self.count > 1 { ",\n " } else { "" };
            return write!(out, "{before}{entry}");
        }
        let cells = [
            row.commit.to_string(),
            row.time.clone(),
            row.added.to_string(),
            row.removed.to_string(),
            row.kind.clone(),
            row.message.clone().unwrap_or_default(),
        ];
        match self.format {
            TableFormat::Csv => write!(out, "{}\r\n", cells.map(|cell| csv(&cell)).join(",")),
            TableFormat::Tsv => writeln!(out, "{}", cells.map(|cell| line(&cell)).join("\t")),
            _ => write_row(out, &cells.map(|cell| line(&cell))),
        }
    }

    /// Writes what comes behind the last commit.
    pub(crate) fn end(&self, out: &mut impl Write) -> io::Result<()> {
        match self.format {
            TableFormat::Json => out.write_all(b"]\n"),
            _ => Ok(()),
        }
    }
}

/// A row of the table.
fn write_row(out: &mut impl Write, cells: &[String; 6]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(commit: u64, message: Option<&str>) -> CommitRow {
        CommitInfo {
            commit,
            time_us: 1_500_000,
            added: 3,
            removed: 1,
            message: message.map(str::to_owned),
            is_load: message.is_none(),
        }
        .into()
    }

    fn written(format: TableFormat, rows: &[CommitRow]) -> String {
        let (mut table, mut out) = (CommitTable::new(format), Vec::new());
        table.begin(&mut out).unwrap();
        for row in rows {
            table.add(row, &mut out).unwrap();
        }
        table.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_is_read_again_line_by_line() {
        let rows = [
            row(3, None),
            row(2, Some("a, \"b\"\n],\u{e9}")),
            row(1, Some("[x")),
        ];
        for rows in [&rows[..], &rows[..1], &[]] {
            let text = written(TableFormat::Json, rows);
            let read: Vec<CommitRow> = text
                .lines()
                .filter_map(|line| CommitRow::parse(line).unwrap())
                .collect();
            assert_eq!(read, rows, "{text}");
        }
        assert!(CommitRow::parse("{}").is_err());
        assert!(CommitRow::parse("<html>").is_err());
    }

    #[test]
    fn texts_stay_in_their_fields() {
        let rows = [row(2, Some("a, \"b\"\n\u{1b}"))];
        assert_eq!(
            written(TableFormat::Csv, &rows),
            "commit,time,added,removed,kind,message\r\n\
             2,1970-01-01T00:00:01.5Z,3,1,change,\"a, \"\"b\"\"\n\u{1b}\"\r\n"
        );
        assert_eq!(
            written(TableFormat::Tsv, &rows).lines().last(),
            Some("2\t1970-01-01T00:00:01.5Z\t3\t1\tchange\ta, \"b\"\\n\\u{1b}")
        );
    }
}
