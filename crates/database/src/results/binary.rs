//! Solutions in the binary table of RDF4J, `application/x-binary-rdf-results-table`, version 4.
//!
//! Numbers have four bytes, the high one first; texts are UTF-8 behind their length. A row is one record
//! for each variable, or one for an empty row.

use super::term::{TermView, XSD_STRING};
use crate::error::{Error, Result};

const MAGIC: &[u8] = b"BRTR";
const VERSION: u32 = 4;

const NULL: u8 = 0;
const IRI: u8 = 4;
const BLANK_NODE: u8 = 5;
const PLAIN_LITERAL: u8 = 6;
const LANGUAGE_LITERAL: u8 = 7;
const TYPED_LITERAL: u8 = 8;
const EMPTY_ROW: u8 = 9;
const TRIPLE: u8 = 10;
const END: u8 = 127;

/// What comes before the first row.
pub(super) fn start(variables: &[String], out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    length(variables.len(), out)?;
    variables.iter().try_for_each(|name| text(name, out))
}

/// A row; unbound variables have no term.
pub(super) fn row<'a>(
    terms: impl Iterator<Item = Result<Option<TermView<'a>>>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (before, mut is_empty) = (out.len(), true);
    for found in terms {
        match found? {
            None => out.push(NULL),
            Some(found) => {
                is_empty = false;
                term(&found, out)?;
            }
        }
    }
    if is_empty {
        out.truncate(before);
        out.push(EMPTY_ROW);
    }
    Ok(())
}

/// What comes after the last row.
pub(super) fn finish(out: &mut Vec<u8>) {
    out.push(END);
}

/// The format has no base directions: they are left out.
fn term(of: &TermView<'_>, out: &mut Vec<u8>) -> Result<()> {
    match of {
        TermView::Iri(iri) => {
            out.push(IRI);
            text(iri, out)
        }
        TermView::BlankNode(label) => {
            out.push(BLANK_NODE);
            text(label, out)
        }
        TermView::Literal {
            lexical,
            language: Some(language),
            ..
        } => {
            out.push(LANGUAGE_LITERAL);
            text(lexical, out)?;
            text(language, out)
        }
        TermView::Literal {
            lexical, datatype, ..
        } if *datatype == XSD_STRING => {
            out.push(PLAIN_LITERAL);
            text(lexical, out)
        }
        TermView::Literal {
            lexical, datatype, ..
        } => {
            out.push(TYPED_LITERAL);
            text(lexical, out)?;
            out.push(IRI);
            text(datatype, out)
        }
        TermView::Triple(triple) => {
            out.push(TRIPLE);
            triple.iter().try_for_each(|part| term(part, out))
        }
    }
}

fn text(text: &str, out: &mut Vec<u8>) -> Result<()> {
    length(text.len(), out)?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Readers take lengths for signed numbers.
fn length(length: usize, out: &mut Vec<u8>) -> Result<()> {
    let length = i32::try_from(length).map_err(|_| {
        Error::Unsupported("a text of 2 GB in the binary format; take json or tsv".to_owned())
    })?;
    out.extend_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn each_kind_of_term_has_its_record() {
        let literal = |datatype, language| TermView::Literal {
            lexical: Cow::Borrowed("x"),
            datatype,
            language,
            direction: None,
        };
        let triple = [
            TermView::BlankNode(Cow::Borrowed("b1")),
            TermView::Iri("p:"),
            literal(XSD_STRING, None),
        ];
        let mut out = Vec::new();
        start(&["a".to_owned(), "b".to_owned()], &mut out).unwrap();
        let rows = [
            [Some(TermView::Iri("i:")), None],
            [Some(literal("d:", None)), Some(literal("", Some("en")))],
            [None, None],
            [Some(TermView::Triple(Box::new(triple))), None],
        ];
        for terms in rows {
            row(terms.into_iter().map(Ok), &mut out).unwrap();
        }
        finish(&mut out);
        let expected = b"BRTR\0\0\0\x04\0\0\0\x02\0\0\0\x01a\0\0\0\x01b\
            \x04\0\0\0\x02i:\x00\
            \x08\0\0\0\x01x\x04\0\0\0\x02d:\x07\0\0\0\x01x\0\0\0\x02en\
            \x09\
            \x0a\x05\0\0\0\x02b1\x04\0\0\0\x02p:\x06\0\0\0\x01x\x00\
            \x7f";
        assert_eq!(out, expected);
    }
}
