//! Solutions as a table for reading in a terminal.
//!
//! The first rows are held back to find out how wide the columns are; the rest is written with the
//! same widths as it comes, so a long answer still streams.
//!
//! # Limits
//! At most [`SAMPLE_ROWS`] rows are held; a cell is cut at [`CELL_WIDTH_MAX`] characters, with an
//! ellipsis that shows it.

use super::term::{TermView, TermViews, XSD_STRING};
use crate::error::Result;

/// Rows that are held back to measure the columns.
const SAMPLE_ROWS: usize = 1000;
/// The width of a column at most, in characters.
const CELL_WIDTH_MAX: usize = 80;

pub(super) struct Table {
    header: Vec<String>,
    sample: Vec<Vec<String>>,
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
        self.sample.push(cells);
        if self.sample.len() == SAMPLE_ROWS {
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
    /// Writes `rows` rows whose terms lie in `views` row by row.
    pub(super) fn rows_of(&self, views: &TermViews, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        (0..rows).try_for_each(|row| self.row(views, row * self.widths.len(), out))
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
    let text = match term {
        TermView::Literal {
            lexical,
            datatype,
            language: None,
            ..
        } if *datatype == XSD_STRING
            || datatype.starts_with("http://www.w3.org/2001/XMLSchema#") =>
        {
            lexical.to_string()
        }
        TermView::Literal {
            lexical,
            language: Some(language),
            ..
        } => {
            format!("{lexical}@{language}")
        }
        _ => {
            let mut text = Vec::new();
            term.write_turtle(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().count() <= CELL_WIDTH_MAX {
        return text;
    }
    let mut cut: String = text.chars().take(CELL_WIDTH_MAX - 1).collect();
    cut.push('\u{2026}');
    cut
}
