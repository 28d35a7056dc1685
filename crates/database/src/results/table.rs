//! Solutions as a table for reading in a terminal.
//!
//! The first rows are held back to find out how wide the columns are; the rest is written with the
//! same widths as it comes, so a long answer still streams.
//!
//! # Limits
//! At most [`SAMPLE_ROWS`] rows, or rows of [`SAMPLE_BYTES`], are held; a cell is cut at [`CELL_WIDTH_MAX`] characters, with an
//! ellipsis that shows it.

use super::solutions::until;
use super::term::{TermView, TermViews, XSD_STRING};
use crate::error::Result;

/// Rows that are held back to measure the columns.
const SAMPLE_ROWS: usize = 1000;
/// Rows that are held take no more, but for the last one.
const SAMPLE_BYTES: usize = 256 << 10;
/// The width of a column at most, in characters.
const CELL_WIDTH_MAX: usize = 80;

pub(super) struct Table {
    header: Vec<String>,
    sample: Vec<Vec<String>>,
    sample_bytes: usize,
    lines: Lines,
    header_written: bool,
}

/// Lines of a table whose columns are measured.
#[derive(Clone)]
pub(super) struct Lines {
    widths: Vec<usize>,
}

impl Table {
    pub(super) fn new(variables: &[String]) -> Self {
        let header: Vec<String> = variables.iter().map(|name| format!("?{name}")).collect();
        let widths = header.iter().map(|cell| cell.chars().count()).collect();
        Self {
            header,
            sample: Vec::new(),
            sample_bytes: 0,
            lines: Lines { widths },
            header_written: false,
        }
    }

    /// How further rows are written, once the columns are measured.
    pub(super) fn lines(&self) -> Option<Lines> {
        self.header_written.then(|| self.lines.clone())
    }

    pub(super) fn row(&mut self, views: &TermViews, at: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.header_written {
            return self.lines.row(views, at, out);
        }
        let cells = self.lines.cells(views, at)?;
        for (width, cell) in self.lines.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        let bytes = cells.iter().map(|cell| size_of::<String>() + cell.len());
        self.sample_bytes += bytes.sum::<usize>();
        self.sample.push(cells);
        if self.sample.len() == SAMPLE_ROWS || self.sample_bytes >= SAMPLE_BYTES {
            self.flush(out);
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.header_written {
            self.flush(out);
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        self.lines.line(&std::mem::take(&mut self.header), out);
        let widths = self.lines.widths.iter();
        let rule: Vec<String> = widths.map(|&width| "-".repeat(width)).collect();
        self.lines.line(&rule, out);
        for cells in std::mem::take(&mut self.sample) {
            self.lines.line(&cells, out);
        }
        self.header_written = true;
    }
}

impl Lines {
    /// Writes rows whose terms lie in `views` row by row, until `out` has so many bytes; returns how many.
    pub(super) fn rows_until(
        &self,
        views: &TermViews,
        rows: usize,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize> {
        until(0..rows, out, bytes_max, |row, out| {
            self.row(views, row * self.widths.len(), out)
        })
    }

    fn row(&self, views: &TermViews, at: usize, out: &mut Vec<u8>) -> Result<()> {
        self.line(&self.cells(views, at)?, out);
        Ok(())
    }

    fn cells(&self, views: &TermViews, at: usize) -> Result<Vec<String>> {
        let mut cells = Vec::with_capacity(self.widths.len());
        for column in 0..self.widths.len() {
            let term = views.get(at + column)?;
            cells.push(term.map_or_else(String::new, |term| cell(&term)));
        }
        Ok(cells)
    }

    fn line(&self, cells: &[String], out: &mut Vec<u8>) {
        let last = cells.len().saturating_sub(1);
        for (index, (cell, &width)) in cells.iter().zip(&self.widths).enumerate() {
            if index > 0 {
                out.extend_from_slice(b"  ");
            }
            out.extend_from_slice(cell.as_bytes());
            if index < last {
                let missing = width.saturating_sub(cell.chars().count());
                out.resize(out.len() + missing, b' ');
            }
        }
        out.push(b'\n');
    }
}

/// The text of a term as a person reads it: strings bare, numbers bare, the rest as in Turtle.
fn cell(term: &TermView<'_>) -> String {
    match term {
        TermView::Literal {
            lexical,
            datatype,
            language: None,
            ..
        } if *datatype == XSD_STRING
            || datatype.starts_with("http://www.w3.org/2001/XMLSchema#") =>
        {
            cut(lexical.chars())
        }
        TermView::Literal {
            lexical,
            language: Some(language),
            ..
        } => cut(lexical.chars().chain(['@']).chain(language.chars())),
        _ => {
            let mut text = Vec::new();
            term.write_turtle(&mut text);
            cut(String::from_utf8_lossy(&text).chars())
        }
    }
}

/// As many characters as a cell has room for.
fn cut(characters: impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    // Where the last character begins that has room beside an ellipsis.
    let mut place = 0;
    for (number, c) in characters.enumerate() {
        if number == CELL_WIDTH_MAX {
            text.truncate(place);
            text.push('\u{2026}');
            return text;
        }
        if number == CELL_WIDTH_MAX - 1 {
            place = text.len();
        }
        text.push(if c.is_control() { ' ' } else { c });
    }
    text
}
