//! RDF4J's binary format of statements, `application/x-binary-rdf`, versions 1 and 2, as it is read.
//!
//! Records follow each other: declarations of values, which later records refer to by number, and
//! statements of four values. Version 2 has numbers of variable length and texts in an encoding that
//! the head names.
//!
//! # Limits
//! A text has at most [`TEXT_BYTES_MAX`] bytes; declared values take at most [`DECLARED_BYTES_MAX`]
//! together; triple terms are nested [`DEPTH_MAX`] deep at most.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};

use stoa_database::oxrdf::{
    BlankNode, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term, Triple,
};

use crate::http::problem::Problem;

const MAGIC: [u8; 4] = *b"BRDF";

const NAMESPACE: u8 = 0;
const STATEMENT: u8 = 1;
const COMMENT: u8 = 2;
const DECLARATION: u8 = 3;
const END: u8 = 127;

const NULL: u8 = 0;
const IRI: u8 = 1;
const BLANK_NODE: u8 = 2;
const PLAIN_LITERAL: u8 = 3;
const LANGUAGE_LITERAL: u8 = 4;
const TYPED_LITERAL: u8 = 5;
const REFERENCE: u8 = 6;
const TRIPLE: u8 = 7;

/// The longest text, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// What the values that are declared at one time may take, in bytes. The writer of RDF4J declares some
/// thousands.
const DECLARED_BYTES_MAX: usize = 128 << 20;

/// What a declared value takes beside its text.
const DECLARED_BYTES: usize = 128;

/// How deep triple terms may be nested.
const DEPTH_MAX: usize = 128;

/// A statement. Labels of blank nodes are as the document has them.
#[derive(Debug, PartialEq)]
pub(super) struct Statement {
    pub(super) subject: NamedOrBlankNode,
    pub(super) predicate: NamedNode,
    pub(super) object: Term,
    pub(super) context: Option<NamedOrBlankNode>,
}

impl From<Quad> for Statement {
    fn from(quad: Quad) -> Self {
        Self {
            subject: quad.subject,
            predicate: quad.predicate,
            object: quad.object,
            context: match quad.graph_name {
                GraphName::NamedNode(node) => Some(node.into()),
                GraphName::BlankNode(node) => Some(node.into()),
                GraphName::DefaultGraph => None,
            },
        }
    }
}

/// Reads the statements of a document.
pub(super) struct Reader<R> {
    input: BufReader<R>,
    version: u32,
    is_utf16: bool,
    declared: BTreeMap<u32, (Term, usize)>,
    declared_bytes: usize,
    /// How many records were read, for messages.
    records: u64,
    is_over: bool,
}

/// Why a document cannot be read.
enum Fault {
    Io(io::Error),
    Damage(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn damage<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Damage(what.into()))
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// As [`Reader::next`].
    pub(super) fn new(input: R) -> Result<Self, Problem> {
        let mut reader = Self {
            input: BufReader::new(input),
            version: 0,
            is_utf16: false,
            declared: BTreeMap::new(),
            declared_bytes: 0,
            records: 0,
            is_over: false,
        };
        match reader.head() {
            Ok(()) => Ok(reader),
            Err(fault) => Err(reader.problem(fault)),
        }
    }

    /// The next statement; `None` at the end.
    ///
    /// # Errors
    /// 400 if the document is damaged or breaks off; what was read before is right.
    pub(super) fn next(&mut self) -> Result<Option<Statement>, Problem> {
        self.record().map_err(|fault| self.problem(fault))
    }

    fn problem(&self, fault: Fault) -> Problem {
        let reason = match fault {
            Fault::Io(error) => error.to_string(),
            Fault::Damage(what) => what,
        };
        let mut problem = Problem::bad_request(format!(
            "the binary document is damaged in record {}: {reason}",
            self.records
        ));
        problem.code = "data";
        problem
    }

    fn head(&mut self) -> Result<(), Fault> {
        let mut magic = [0; 4];
        self.input.read_exact(&mut magic)?;
        if magic != MAGIC {
            return damage("it does not begin as one");
        }
        self.version = self.fixed()?;
        match self.version {
            1 => self.is_utf16 = true,
            2 => {
                let charset = self.text()?.to_ascii_uppercase();
                self.is_utf16 = match charset.as_str() {
                    "UTF-8" | "US-ASCII" => false,
                    "UTF-16BE" | "UTF-16" => true,
                    other => return damage(format!("its texts are in {other}, not UTF-8")),
                };
            }
            other => return damage(format!("it has version {other}, not 1 or 2")),
        }
        Ok(())
    }

    fn record(&mut self) -> Result<Option<Statement>, Fault> {
        while !self.is_over {
            self.records += 1;
            match self.byte()? {
                STATEMENT => return self.statement().map(Some),
                DECLARATION => self.declaration()?,
                NAMESPACE => {
                    self.text()?;
                    self.text()?;
                }
                COMMENT => {
                    self.text()?;
                }
                END => self.is_over = true,
                other => return damage(format!("there is no kind {other} of records")),
            }
        }
        Ok(None)
    }

    fn declaration(&mut self) -> Result<(), Fault> {
        let number = self.number()?;
        let mut bytes = DECLARED_BYTES;
        let Some(value) = self.value(0, &mut bytes)? else {
            return damage("nothing is declared");
        };
        self.declared_bytes += bytes;
        if let Some((_, before)) = self.declared.insert(number, (value, bytes)) {
            self.declared_bytes -= before;
        }
        if self.declared_bytes > DECLARED_BYTES_MAX {
            return damage(format!(
                "declared values take more than {DECLARED_BYTES_MAX} bytes"
            ));
        }
        Ok(())
    }

    fn statement(&mut self) -> Result<Statement, Fault> {
        let mut bytes = 0;
        let mut value = |reader: &mut Self| reader.value(0, &mut bytes);
        let (subject, predicate) = (value(self)?, value(self)?);
        let (object, context) = (value(self)?, value(self)?);
        let (Some(subject), Some(predicate), Some(object)) = (subject, predicate, object) else {
            return damage("a statement has no subject, predicate or object");
        };
        let Term::NamedNode(predicate) = predicate else {
            return damage("a predicate is no IRI");
        };
        Ok(Statement {
            subject: node(subject)?,
            predicate,
            object,
            context: context.map(node).transpose()?,
        })
    }

    /// A value; adds to `bytes` what its texts take.
    fn value(&mut self, depth: usize, bytes: &mut usize) -> Result<Option<Term>, Fault> {
        if depth > DEPTH_MAX {
            return damage(format!("triple terms are nested deeper than {DEPTH_MAX}"));
        }
        let mut text = |reader: &mut Self| {
            let text = reader.text()?;
            *bytes += text.len();
            Ok::<_, Fault>(text)
        };
        Ok(Some(match self.byte()? {
            NULL => return Ok(None),
            IRI => iri(text(self)?)?.into(),
            BLANK_NODE => {
                let label = text(self)?;
                match BlankNode::new(label.as_str()) {
                    Ok(node) => node.into(),
                    Err(_) => return damage(format!("'{label}' is no label of a blank node")),
                }
            }
            PLAIN_LITERAL => Literal::new_simple_literal(text(self)?).into(),
            LANGUAGE_LITERAL => {
                let (label, language) = (text(self)?, text(self)?);
                match Literal::new_language_tagged_literal(label, language.as_str()) {
                    Ok(literal) => literal.into(),
                    Err(_) => return damage(format!("'{language}' is no language tag")),
                }
            }
            TYPED_LITERAL => {
                let (label, datatype) = (text(self)?, text(self)?);
                Literal::new_typed_literal(label, iri(datatype)?).into()
            }
            REFERENCE => {
                let number = self.number()?;
                match self.declared.get(&number) {
                    Some((value, _)) => value.clone(),
                    None => return damage(format!("there is no value {number}")),
                }
            }
            TRIPLE => self.triple(depth, bytes)?,
            other => return damage(format!("there is no kind {other} of values")),
        }))
    }

    fn triple(&mut self, depth: usize, bytes: &mut usize) -> Result<Term, Fault> {
        let subject = self.value(depth + 1, bytes)?;
        let predicate = self.value(depth + 1, bytes)?;
        let object = self.value(depth + 1, bytes)?;
        match (subject, predicate, object) {
            (Some(subject), Some(Term::NamedNode(predicate)), Some(object)) => {
                Ok(Triple::new(node(subject)?, predicate, object).into())
            }
            _ => damage("a triple term has no subject, predicate or object that can be one"),
        }
    }

    fn text(&mut self) -> Result<String, Fault> {
        let units = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        // Version 1 counts the units of UTF-16, version 2 bytes.
        let bytes = if self.version == 1 {
            units.saturating_mul(2)
        } else {
            units
        };
        if bytes > TEXT_BYTES_MAX {
            return damage(format!("a text has more than {TEXT_BYTES_MAX} bytes"));
        }
        let mut text = Vec::new();
        let limit = u64::try_from(bytes).unwrap_or(u64::MAX);
        if (&mut self.input).take(limit).read_to_end(&mut text)? < bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let decoded = if self.is_utf16 {
            let units = text.chunks(2).map(|unit| match unit {
                [high, low] => u16::from_be_bytes([*high, *low]),
                _ => 0xfffd,
            });
            char::decode_utf16(units)
                .collect::<Result<String, _>>()
                .ok()
        } else {
            String::from_utf8(text).ok()
        };
        decoded.map_or_else(|| damage("a text is not in its encoding"), Ok)
    }

    fn number(&mut self) -> Result<u32, Fault> {
        if self.version == 1 {
            return self.fixed();
        }
        let mut number = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        damage("a number has more than 32 bits")
    }

    fn fixed(&mut self) -> Result<u32, Fault> {
        let mut bytes = [0; 4];
        self.input.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }
}

fn iri(text: String) -> Result<NamedNode, Fault> {
    match NamedNode::new(text.as_str()) {
        Ok(node) => Ok(node),
        Err(error) => damage(format!("'{text}' is no absolute IRI: {error}")),
    }
}

fn node(term: Term) -> Result<NamedOrBlankNode, Fault> {
    match term {
        Term::NamedNode(node) => Ok(node.into()),
        Term::BlankNode(node) => Ok(node.into()),
        other => damage(format!("{other} can be neither subject nor context")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document of RDF4J 5 for three statements, with a value that is declared.
    const V2: &[u8] = b"BRDF\0\0\0\x02\x05UTF-8\
        \x00\x01a\x09http://a/\x02\x02hi\
        \x03\x00\x01\x0ahttp://a/p\
        \x01\x01\x0ahttp://a/s\x06\x00\x05\x011\x28http://www.w3.org/2001/XMLSchema#integer\x00\
        \x01\x02\x02n1\x06\x00\x04\x01x\x02en\x01\x0ahttp://a/g\
        \x01\x02\x02n1\x06\x00\x07\x01\x0ahttp://a/s\x06\x00\x03\x02\xc3\xa9\x02\x01g\
        \x7fignored";

    fn read(bytes: &[u8]) -> Result<Vec<String>, String> {
        let told = |problem: Problem| problem.detail;
        let mut reader = Reader::new(bytes).map_err(told)?;
        let mut statements = Vec::new();
        while let Some(statement) = reader.next().map_err(told)? {
            let Statement {
                subject,
                predicate,
                object,
                context,
            } = statement;
            let context = context.map_or(String::new(), |context| format!(" {context}"));
            statements.push(format!("{subject} {predicate} {object}{context}"));
        }
        Ok(statements)
    }

    #[test]
    fn statements_of_both_versions_are_read() {
        let expected = [
            "<http://a/s> <http://a/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer>",
            "_:n1 <http://a/p> \"x\"@en <http://a/g>",
            "_:n1 <http://a/p> <<( <http://a/s> <http://a/p> \"\u{e9}\" )>> _:g",
        ];
        assert_eq!(read(V2).unwrap(), expected);
        let v1 = b"BRDF\0\0\0\x01\x01\x02\0\0\0\x01\0n\x01\0\0\0\x03\0a\0:\0b\x03\0\0\0\x02\xd8\x3d\xde\0\x00\x7f";
        assert_eq!(read(v1).unwrap(), ["_:n <a:b> \"\u{1f600}\""]);
    }

    #[test]
    fn a_document_that_is_cut_anywhere_is_refused() {
        let end = V2.len() - "ignored".len();
        for length in 0..end {
            assert!(read(&V2[..length]).is_err(), "{length}");
        }
        assert!(read(&V2[..end]).is_ok());
    }

    #[test]
    fn damage_is_told_and_takes_no_memory() {
        for (bytes, part) in [
            (b"BRTR\0\0\0\x02".as_slice(), "does not begin"),
            (b"BRDF\0\0\0\x03", "version 3"),
            (b"BRDF\0\0\0\x02\x05KOI8R", "KOI8R"),
            (b"BRDF\0\0\0\x02\x05UTF-8\x09", "kind 9 of records"),
            (b"BRDF\0\0\0\x02\x05UTF-8\x01\x09", "kind 9 of values"),
            (b"BRDF\0\0\0\x02\x05UTF-8\x01\x06\x05", "no value 5"),
            (
                b"BRDF\0\0\0\x02\x05UTF-8\x01\x01\xff\xff\xff\xff\x07",
                "more than 67108864 bytes",
            ),
            (
                b"BRDF\0\0\0\x02\x05UTF-8\x01\x01\xff\xff\xff\xff\xff",
                "32 bits",
            ),
            (
                b"BRDF\0\0\0\x02\x05UTF-8\x01\x01\xff\xff\xff\x07short",
                "record 1",
            ),
            (b"BRDF\0\0\0\x02\x05UTF-8\x01\x01\x01x", "no absolute IRI"),
            (b"BRDF\0\0\0\x02\x05UTF-8\x01\x03\x02\xff\xff", "encoding"),
            (
                b"BRDF\0\0\0\x02\x05UTF-8\x01\x03\x01x\x01\x02p:\x00\x00",
                "no subject",
            ),
            (
                b"BRDF\0\0\0\x02\x05UTF-8\x01\x03\x01x\x01\x02p:\x03\x01x\x00",
                "neither subject",
            ),
            (
                b"BRDF\0\0\0\x02\x05UTF-8\x01\x01\x02s:\x02\x01p\x03\x01x\x00",
                "predicate is no IRI",
            ),
            (
                b"BRDF\0\0\0\x02\x05UTF-8\x03\x01\x00",
                "nothing is declared",
            ),
        ] {
            let told = read(bytes).unwrap_err();
            assert!(told.contains(part), "{part}: {told}");
        }
        let mut deep = b"BRDF\0\0\0\x02\x05UTF-8\x01".to_vec();
        deep.extend([TRIPLE; 100_000]);
        assert!(read(&deep).unwrap_err().contains("deeper than 128"));
    }
}
