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
    widths: Vec<usize>,
    header_written: bool,
}

impl Table {
    pub(super) fn new(variables: &[String]) -> Self {
        let header: Vec<String> = variables.iter().map(|name| format!("?{name}")).collect();
        let widths = header.iter().map(|cell| cell.chars().count()).collect();
        Self {
            header,
            sample: Vec::new(),
            widths,
            header_written: false,
        }
    }

    pub(super) fn row(&mut self, views: &TermViews, at: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut cells = Vec::with_capacity(self.header.len());
        for column in 0..self.header.len() {
            cells.push(
                views
                    .get(at + column)?
                    .map_or_else(String::new, |term| cell(&term)),
            );
        }
        if self.header_written {
            self.line(&cells, out);
            return Ok(());
        }
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
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
        let header = std::mem::take(&mut self.header);
        self.line(&header, out);
        let rule: Vec<String> = self.widths.iter().map(|&width| "-".repeat(width)).collect();
        self.line(&rule, out);
        self.header = header;
        for cells in std::mem::take(&mut self.sample) {
            self.line(&cells, out);
        }
        self.header_written = true;
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
