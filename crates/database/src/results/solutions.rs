//! Solutions of SELECT and the answer of ASK as JSON, XML, CSV and TSV; solutions in other forms by siblings.

use std::ops::Range;
use std::sync::Arc;

use oxrdf::BaseDirection;

use super::ahead::Form;
use super::binary;
use super::escape;
use super::format::SolutionsFormat;
use super::table::Table;
use super::term::{TermView, TermViews, XSD_STRING};
use crate::error::{Error, Result};

/// Writes the solutions of one SELECT.
pub struct SolutionsWriter {
    form: Arc<SolutionForm>,
    rows: u64,
    table: Table,
}

/// How a solution is written, whatever was before it.
pub(super) struct SolutionForm {
    format: SolutionsFormat,
    variables: Vec<String>,
    /// `"name":` of each variable, escaped once (JSON), or `<binding name="name">` (XML).
    labels: Vec<Vec<u8>>,
}

impl SolutionsWriter {
    /// A writer of solutions with these variables (names without `?`).
    #[must_use]
    pub fn new(format: SolutionsFormat, variables: Vec<String>) -> Self {
        let labels = variables
            .iter()
            .map(|name| {
                let mut label = Vec::new();
                if format == SolutionsFormat::Xml {
                    label.extend_from_slice(b"<binding name=\"");
                    xml_name(name, &mut label);
                    label.extend_from_slice(b"\">");
                } else {
                    escape::json_string(name, &mut label);
                    label.push(b':');
                }
                label
            })
            .collect();
        let table = Table::new(&variables);
        let form = SolutionForm {
            format,
            variables,
            labels,
        };
        Self {
            form: Arc::new(form),
            rows: 0,
            table,
        }
    }

    /// How solutions behind those written are, where that does not depend on them any more.
    pub(super) fn form(&self) -> Option<Form> {
        match self.form.format {
            SolutionsFormat::Table => self.table.lines().map(Form::Table),
            _ => (self.rows > 0).then(|| Form::Solutions(Arc::clone(&self.form))),
        }
    }

    /// How many solutions were written, those included that their form wrote.
    pub(super) fn set_rows(&mut self, rows: u64) {
        self.rows = rows;
    }

    /// How many solutions were written.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes what comes before the first solution.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] if the binary format cannot hold a name.
    pub fn start(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self.form.format {
            SolutionsFormat::Json => {
                out.extend_from_slice(b"{\"head\":{\"vars\":[");
                for (index, name) in self.form.variables.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    escape::json_string(name, out);
                }
                out.extend_from_slice(b"]},\"results\":{\"bindings\":[");
            }
            SolutionsFormat::Xml => {
                out.extend_from_slice(XML_START);
                for name in &self.form.variables {
                    out.extend_from_slice(b"<variable name=\"");
                    xml_name(name, out);
                    out.extend_from_slice(b"\"/>");
                }
                out.extend_from_slice(b"</head>\n<results>\n");
            }
            SolutionsFormat::Csv => {
                self.separated(out, b",", escape::csv);
                out.extend_from_slice(b"\r\n");
            }
            SolutionsFormat::Tsv => {
                self.separated(out, b"\t", |name, out| {
                    out.push(b'?');
                    out.extend_from_slice(name.as_bytes());
                });
                out.push(b'\n');
            }
            SolutionsFormat::Table => {}
            SolutionsFormat::Binary => binary::start(&self.form.variables, out)?,
        }
        Ok(())
    }

    fn separated(&self, out: &mut Vec<u8>, by: &[u8], write: impl Fn(&str, &mut Vec<u8>)) {
        for (index, name) in self.form.variables.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(by);
            }
            write(name, out);
        }
    }

    /// Writes `rows` solutions whose terms lie in `views` row by row, one for each variable.
    ///
    /// # Errors
    /// [`crate::Error::Internal`] if a term cannot be decoded, [`crate::Error::Unsupported`] if XML
    /// cannot hold a term, as it has a control character, or the binary format, as it is too long.
    pub fn rows_of(&mut self, views: &TermViews, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        self.rows_until(views, 0..rows, out, usize::MAX).map(|_| ())
    }

    /// The same for some rows, until `out` has so many bytes; returns how many were written.
    pub(super) fn rows_until(
        &mut self,
        views: &TermViews,
        rows: Range<usize>,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize> {
        let written = if self.form.format == SolutionsFormat::Table {
            let width = self.form.variables.len();
            let table = &mut self.table;
            until(rows, out, bytes_max, |row, out| {
                table.row(views, row * width, out)
            })?
        } else {
            self.form
                .rows_until(views, rows, self.rows, out, bytes_max)?
        };
        self.rows += written as u64;
        Ok(written)
    }

    /// Writes what comes after the last solution.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match self.form.format {
            SolutionsFormat::Json => out.extend_from_slice(b"\n]}}\n"),
            SolutionsFormat::Xml => out.extend_from_slice(b"</results>\n</sparql>\n"),
            SolutionsFormat::Csv | SolutionsFormat::Tsv => {}
            SolutionsFormat::Table => self.table.finish(out),
            SolutionsFormat::Binary => binary::finish(out),
        }
    }
}

impl SolutionForm {
    /// As [`SolutionsWriter::rows_until`] behind so many solutions, but not as a table.
    pub(super) fn rows_until(
        &self,
        views: &TermViews,
        rows: Range<usize>,
        before: u64,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize> {
        let mut numbers = before..;
        until(rows, out, bytes_max, |row, out| {
            let number = numbers.next().unwrap_or(u64::MAX);
            self.row(views, row * self.variables.len(), number, out)
        })
    }

    fn row(&self, views: &TermViews, at: usize, number: u64, out: &mut Vec<u8>) -> Result<()> {
        match self.format {
            SolutionsFormat::Json => self.json_row(views, at, number, out)?,
            SolutionsFormat::Xml => self.xml_row(views, at, number, out)?,
            SolutionsFormat::Csv => {
                for column in 0..self.variables.len() {
                    if column > 0 {
                        out.push(b',');
                    }
                    if let Some(term) = views.get(at + column)? {
                        csv_term(&term, out);
                    }
                }
                out.extend_from_slice(b"\r\n");
            }
            SolutionsFormat::Tsv => {
                for column in 0..self.variables.len() {
                    if column > 0 {
                        out.push(b'\t');
                    }
                    if let Some(term) = views.get(at + column)? {
                        term.write_turtle(out);
                    }
                }
                out.push(b'\n');
            }
            SolutionsFormat::Table => {
                return Err(Error::Internal("a row of a table by itself".to_owned()));
            }
            SolutionsFormat::Binary => {
                let columns = 0..self.variables.len();
                binary::row(columns.map(|column| views.get(at + column)), out)?;
            }
        }
        Ok(())
    }

    fn json_row(&self, views: &TermViews, at: usize, number: u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(if number == 0 { b"\n{" } else { b",\n{" });
        let mut first = true;
        for (column, label) in self.labels.iter().enumerate() {
            if let Some(term) = views.get(at + column)? {
                if !first {
                    out.push(b',');
                }
                first = false;
                out.extend_from_slice(label);
                json_term(&term, out);
            }
        }
        out.push(b'}');
        Ok(())
    }

    fn xml_row(&self, views: &TermViews, at: usize, number: u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(b"<result>");
        for (column, label) in self.labels.iter().enumerate() {
            if let Some(term) = views.get(at + column)? {
                out.extend_from_slice(label);
                xml_term(&term, out).map_err(|c| self.not_xml(column, number, c))?;
                out.extend_from_slice(b"</binding>");
            }
        }
        out.extend_from_slice(b"</result>\n");
        Ok(())
    }

    /// The error of a term that XML cannot hold.
    #[cold]
    fn not_xml(&self, column: usize, number: u64, c: char) -> Error {
        let name = self.variables.get(column).map_or("", String::as_str);
        let (row, code) = (number + 1, u32::from(c));
        Error::Unsupported(format!(
            "XML cannot express ?{name} of solution {row}: it has no character U+{code:04X}; take json, csv or tsv"
        ))
    }
}

/// Writes rows until `out` has so many bytes; returns how many.
pub(super) fn until(
    rows: Range<usize>,
    out: &mut Vec<u8>,
    bytes_max: usize,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<()>,
) -> Result<usize> {
    let mut written = 0;
    for row in rows {
        write(row, out)?;
        written += 1;
        if out.len() >= bytes_max {
            break;
        }
    }
    Ok(written)
}

const XML_START: &[u8] = b"<?xml version=\"1.0\"?>\n\
    <sparql xmlns=\"http://www.w3.org/2005/sparql-results#\" \
    xmlns:its=\"http://www.w3.org/2005/11/its\" its:version=\"2.0\">\n<head>";

/// Writes the answer of ASK. CSV, TSV and the tables have no form for it; they get the word and a
/// line end.
pub fn write_boolean(value: bool, format: SolutionsFormat, out: &mut Vec<u8>) {
    match format {
        SolutionsFormat::Json => {
            out.extend_from_slice(b"{\"head\":{},\"boolean\":");
            out.extend_from_slice(value.to_string().as_bytes());
            out.extend_from_slice(b"}\n");
        }
        SolutionsFormat::Xml => {
            out.extend_from_slice(XML_START);
            out.extend_from_slice(b"</head>\n<boolean>");
            out.extend_from_slice(value.to_string().as_bytes());
            out.extend_from_slice(b"</boolean>\n</sparql>\n");
        }
        SolutionsFormat::Csv
        | SolutionsFormat::Tsv
        | SolutionsFormat::Table
        | SolutionsFormat::Binary => {
            out.extend_from_slice(value.to_string().as_bytes());
            out.push(b'\n');
        }
    }
}

/// The grammar of SPARQL lets no character into names that XML does not have.
fn xml_name(name: &str, out: &mut Vec<u8>) {
    let written = escape::xml(name, out);
    debug_assert_eq!(written, Ok(()), "{name}");
}

fn json_term(term: &TermView<'_>, out: &mut Vec<u8>) {
    match term {
        TermView::Iri(iri) => {
            out.extend_from_slice(b"{\"type\":\"uri\",\"value\":");
            escape::json_string(iri, out);
        }
        TermView::BlankNode(label) => {
            out.extend_from_slice(b"{\"type\":\"bnode\",\"value\":");
            escape::json_string(label, out);
        }
        TermView::Literal {
            lexical,
            datatype,
            language,
            direction,
        } => {
            out.extend_from_slice(b"{\"type\":\"literal\",\"value\":");
            escape::json_string(lexical, out);
            if let Some(language) = language {
                out.extend_from_slice(b",\"xml:lang\":");
                escape::json_string(language, out);
                if let Some(direction) = direction {
                    out.extend_from_slice(b",\"its:dir\":\"");
                    out.extend_from_slice(direction_name(*direction).as_bytes());
                    out.push(b'"');
                }
            } else if *datatype != XSD_STRING {
                out.extend_from_slice(b",\"datatype\":");
                escape::json_string(datatype, out);
            }
        }
        TermView::Triple(triple) => {
            let [subject, predicate, object] = &**triple;
            out.extend_from_slice(b"{\"type\":\"triple\",\"value\":{\"subject\":");
            json_term(subject, out);
            out.extend_from_slice(b",\"predicate\":");
            json_term(predicate, out);
            out.extend_from_slice(b",\"object\":");
            json_term(object, out);
            out.push(b'}');
        }
    }
    out.push(b'}');
}

/// Fails with a character that XML cannot hold.
fn xml_term(term: &TermView<'_>, out: &mut Vec<u8>) -> Result<(), char> {
    match term {
        TermView::Iri(iri) => {
            out.extend_from_slice(b"<uri>");
            escape::xml(iri, out)?;
            out.extend_from_slice(b"</uri>");
        }
        TermView::BlankNode(label) => {
            out.extend_from_slice(b"<bnode>");
            escape::xml(label, out)?;
            out.extend_from_slice(b"</bnode>");
        }
        TermView::Literal {
            lexical,
            datatype,
            language,
            direction,
        } => {
            out.extend_from_slice(b"<literal");
            if let Some(language) = language {
                out.extend_from_slice(b" xml:lang=\"");
                escape::xml(language, out)?;
                out.push(b'"');
                if let Some(direction) = direction {
                    out.extend_from_slice(b" its:dir=\"");
                    out.extend_from_slice(direction_name(*direction).as_bytes());
                    out.push(b'"');
                }
            } else if *datatype != XSD_STRING {
                out.extend_from_slice(b" datatype=\"");
                escape::xml(datatype, out)?;
                out.push(b'"');
            }
            out.push(b'>');
            escape::xml(lexical, out)?;
            out.extend_from_slice(b"</literal>");
        }
        TermView::Triple(triple) => {
            let [subject, predicate, object] = &**triple;
            out.extend_from_slice(b"<triple><subject>");
            xml_term(subject, out)?;
            out.extend_from_slice(b"</subject><predicate>");
            xml_term(predicate, out)?;
            out.extend_from_slice(b"</predicate><object>");
            xml_term(object, out)?;
            out.extend_from_slice(b"</object></triple>");
        }
    }
    Ok(())
}

/// CSV keeps only the text of a term; a triple term is written as in Turtle.
fn csv_term(term: &TermView<'_>, out: &mut Vec<u8>) {
    match term {
        TermView::Iri(iri) => escape::csv(iri, out),
        TermView::BlankNode(label) => {
            out.extend_from_slice(b"_:");
            out.extend_from_slice(label.as_bytes());
        }
        TermView::Literal { lexical, .. } => escape::csv(lexical, out),
        TermView::Triple(_) => {
            let mut text = Vec::new();
            term.write_turtle(&mut text);
            escape::csv(&String::from_utf8_lossy(&text), out);
        }
    }
}

pub(super) fn direction_name(direction: BaseDirection) -> &'static str {
    match direction {
        BaseDirection::Ltr => "ltr",
        BaseDirection::Rtl => "rtl",
    }
}
