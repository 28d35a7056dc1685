//! RDF/XML, one thread a file.
//!
//! # Limits
//! Memory: an element's text, at most what a line of N-Triples may take, the open elements, at most
//! [`XML_DEPTH_MAX`], and every `rdf:ID`, since two of the same are a mistake. Entities may not stand
//! for more than [`XML_ENTITY_BYTES_MAX`], so that a small file cannot become a large one. Comments
//! may be of any length. Nothing outside of the file is ever read.

use hashbrown::HashMap;
use oxrdf::GraphName;
use oxrdfxml::{RdfXmlParseError, RdfXmlParser};
use rapidhash::fast::RandomState;

use crate::error::{Error, Result};
use crate::limits::{LINE_BYTES_MAX, XML_DEPTH_MAX, XML_DOCTYPE_BYTES_MAX, XML_ENTITY_BYTES_MAX};
use crate::load::document::too_deep;
use crate::load::sink::QuadSink;
use crate::load::source::Stream;
use crate::load::terms::Terms;
use crate::load::tracked::{Guard, Refusal, Tracked};
use crate::load::xml_literal;
use crate::load::xml_tags::{Tags, check_reference};
use crate::load::xml_text::Merger;

/// Quads between two calls of `advance`.
const ADVANCE_QUADS: u64 = 1 << 10;

/// Parses a stream into a sink. Now and then `advance` gets the number of new quads and may end the
/// work. `text_bytes_max` bounds what one element may take.
pub(crate) fn parse<S: QuadSink>(
    stream: &mut Stream,
    base: Option<&str>,
    text_bytes_max: usize,
    sink: &mut S,
    advance: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let text_bytes_max = text_bytes_max.min(LINE_BYTES_MAX);
    let mut parser = RdfXmlParser::new();
    if let Some(base) = base {
        parser = parser
            .with_base_iri(base)
            .map_err(|error| Error::InvalidOption {
                option: "--base",
                reason: error.to_string(),
            })?;
    }
    stream.normalize_line_ends();
    let tracked = Tracked::new(stream, XmlGuard::new(text_bytes_max), text_bytes_max);
    let mut parser = parser.for_reader(Tracked::reader(&tracked));
    let mut terms = Terms::default();
    let mut quads = 0;
    while let Some(triple) = parser.next() {
        match triple {
            Ok(mut triple) => {
                tracked.borrow_mut().quad();
                let is_named = tracked.borrow().guard().names_xml_literal();
                xml_literal::canonicalize(&mut triple.object, is_named);
                let quad = triple.in_graph(GraphName::DefaultGraph);
                let done = terms.hand_over(&quad, sink);
                let tracked = tracked.borrow();
                let place = tracked.end();
                match done {
                    Ok(true) => quads += 1,
                    Ok(false) => return Err(too_deep(tracked.stream(), place)),
                    Err(error) => return Err(tracked.stream().source.refused(place.0, error)),
                }
            }
            Err(error) => {
                let offset = parser.buffer_position();
                let mut tracked = tracked.borrow_mut();
                let of_reader = match &error {
                    RdfXmlParseError::Io(_) => tracked.error(),
                    RdfXmlParseError::Syntax(_) => None,
                };
                return Err(of_reader.unwrap_or_else(|| {
                    // The parser stands behind the tag that it does not like.
                    let start = tracked.guard().merger.tag_before(offset).unwrap_or(offset);
                    let (line, column) = tracked.place(start);
                    let reason = match error {
                        RdfXmlParseError::Io(error) => error.to_string(),
                        RdfXmlParseError::Syntax(error) => error.to_string(),
                    };
                    tracked.stream().source.damaged(line, column, reason)
                }));
            }
        }
        if quads == ADVANCE_QUADS {
            advance(quads)?;
            quads = 0;
        }
    }
    // The parser takes the end of a file for the end of all elements.
    let tracked = tracked.borrow();
    if let Some(reason) = tracked.guard().missing() {
        let (line, column) = tracked.end();
        let reason = reason.to_owned();
        return Err(tracked.stream().source.damaged(line, column, reason));
    }
    advance(quads)
}

/// Where a byte stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum At {
    Text,
    /// Behind `<`.
    Open,
    /// In a tag: the quotation mark that is open, or 0; whether it begins an element.
    Tag(u8, bool),
    /// Behind `<!`.
    Bang,
    Comment,
    /// Behind `<![`: how much of [`CDATA`] there was.
    CdataStart(usize),
    Cdata,
    /// Behind `<?`: how much of [`XML`] there was.
    Target(usize),
    Instruction,
    /// In `<!DOCTYPE`; how many `<` are open.
    Doctype(u32),
}

/// Follows the text to know how deep elements are nested and how long they are.
struct XmlGuard {
    at: At,
    depth: usize,
    has_elements: bool,
    length: usize,
    /// How long the text before what may be a comment is, which may go on behind it.
    text_length: usize,
    length_max: usize,
    /// The last two bytes.
    last: [u8; 2],
    doctype: Vec<u8>,
    has_entities: bool,
    /// How much of [`XML_LITERAL`] the tag has just had.
    named: usize,
    /// How many bytes were looked at, and before how many of them the last tag began.
    offset: u64,
    tag_offset: u64,
    /// What the tag had so far.
    tag: Vec<u8>,
    tags: Tags,
    /// What stands behind `&` in a text or attribute.
    reference: Option<Vec<u8>>,
    /// Before how many bytes the `&` of a text stands that no `;` has followed.
    ampersand: Option<u64>,
    merger: Merger,
}

/// A reference that is longer is none to a character.
const REFERENCE_BYTES_MAX: usize = 16;

/// What begins a CDATA section behind `<![`.
const CDATA: &[u8] = b"CDATA[";

/// What no processing instruction may be called.
const XML: &[u8] = b"xml";

/// The end of the datatype of XML literals.
const XML_LITERAL: &[u8] = b"XMLLiteral";

impl XmlGuard {
    fn new(length_max: usize) -> Self {
        Self {
            at: At::Text,
            depth: 0,
            has_elements: false,
            length: 0,
            text_length: 0,
            length_max,
            last: [0; 2],
            doctype: Vec::new(),
            has_entities: false,
            named: 0,
            offset: 0,
            tag_offset: 0,
            tag: Vec::new(),
            tags: Tags::default(),
            reference: None,
            ampersand: None,
            merger: Merger::default(),
        }
    }

    /// Whether a tag has named the datatype of XML literals.
    fn names_xml_literal(&self) -> bool {
        self.named == XML_LITERAL.len()
    }

    /// What a file that ends here lacks.
    fn missing(&self) -> Option<&'static str> {
        if self.depth > 0 || self.at != At::Text {
            Some("the file ends within an element")
        } else if !self.has_elements {
            Some("there is no element: this is no RDF/XML")
        } else {
            None
        }
    }

    fn open(&mut self, byte: u8) -> Result<At, String> {
        Ok(match byte {
            b'!' => At::Bang,
            b'?' => At::Target(0),
            b'/' => {
                self.tags.end(self.depth);
                self.depth = self.depth.saturating_sub(1);
                At::Tag(0, false)
            }
            _ => {
                if self.has_elements && self.depth == 0 {
                    return Err("there is an element behind the end of the first one".to_owned());
                }
                self.has_elements = true;
                self.depth += 1;
                self.tag.clear();
                self.tag.push(byte);
                At::Tag(0, true)
            }
        })
    }

    /// Looks for what no document of XML may have.
    fn check(&mut self, byte: u8) -> Result<(), String> {
        let is_noncharacter = matches!(byte, 0xBE | 0xBF) && self.last == [0xEF, 0xBF];
        if is_noncharacter || (byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) {
            let code = match byte {
                0xBE => 0xFFFE,
                0xBF => 0xFFFF,
                byte => u32::from(byte),
            };
            return Err(format!("XML has no character U+{code:04X}"));
        }
        if self.at == At::Text && byte == b'>' && self.last == *b"]]" {
            return Err("a text has ]]>, which must be ]]&gt;".to_owned());
        }
        match (self.at, byte) {
            (At::Text, b'&') => self.ampersand = Some(self.offset),
            (At::Text, b';') => self.ampersand = None,
            // A comment may not stand within a reference.
            (At::Text, b'<') if self.ampersand.is_some() => {
                return Err("an & begins no reference: it must be &amp;".to_owned());
            }
            _ => {}
        }
        let in_text = matches!(self.at, At::Text | At::Tag(b'"' | b'\'', _));
        match (&mut self.reference, byte) {
            (Some(reference), b';') => {
                let checked = check_reference(reference);
                self.reference = None;
                checked?;
            }
            (_, b'&') if in_text => self.reference = Some(Vec::new()),
            (Some(reference), byte) if reference.len() < REFERENCE_BYTES_MAX => {
                reference.push(byte);
            }
            _ => self.reference = None,
        }
        Ok(())
    }

    fn doctype(&mut self, byte: u8, open: u32) -> Result<At, String> {
        self.doctype.push(byte);
        if self.doctype.len() > XML_DOCTYPE_BYTES_MAX {
            return Err(format!(
                "the DOCTYPE is longer than {XML_DOCTYPE_BYTES_MAX} bytes"
            ));
        }
        Ok(match (byte, open) {
            (b'<', open) => At::Doctype(open + 1),
            (b'>', 0) => {
                let doctype = std::mem::take(&mut self.doctype);
                self.has_entities = check_entities(&String::from_utf8_lossy(&doctype))?;
                At::Text
            }
            (b'>', open) => At::Doctype(open - 1),
            (_, open) => At::Doctype(open),
        })
    }

    fn step(&mut self, byte: u8) -> Result<(), String> {
        let last = self.last;
        self.check(byte)?;
        if let At::Tag(quote, true) = self.at
            && (quote != 0 || byte != b'>')
        {
            self.tag.push(byte);
        }
        if matches!(self.at, At::Tag(..)) && !self.names_xml_literal() {
            self.named = match XML_LITERAL.get(self.named) {
                Some(expected) if *expected == byte => self.named + 1,
                _ => usize::from(byte == b'X'),
            };
        }
        let before = self.at;
        self.at = self.next(byte)?;
        self.last = match self.at {
            // The end of a comment has nothing in common with its beginning.
            At::Comment if before == At::Bang => [0; 2],
            _ => [last[1], byte],
        };
        if self.depth > XML_DEPTH_MAX {
            return Err(format!("elements are nested deeper than {XML_DEPTH_MAX}"));
        }
        self.count(before, byte)
    }

    fn next(&mut self, byte: u8) -> Result<At, String> {
        let last = self.last;
        Ok(match (self.at, byte) {
            (At::Text, b'<') => {
                self.tag_offset = self.offset;
                At::Open
            }
            (At::Open, byte) => self.open(byte)?,
            (At::Tag(0, begins), b'>') => {
                if begins {
                    self.tags.start(&self.tag, self.depth)?;
                    if last[1] == b'/' {
                        self.depth = self.depth.saturating_sub(1);
                    }
                }
                At::Text
            }
            (At::Tag(0, begins), b'"' | b'\'') => At::Tag(byte, begins),
            (At::Tag(quote, begins), byte) if quote == byte => At::Tag(0, begins),
            (At::Bang, b'-') if last[1] == b'-' => At::Comment,
            (At::Bang, b'-') => At::Bang,
            (At::Bang, b'[') => At::CdataStart(0),
            (At::Bang, b'>') => At::Text,
            (At::Bang, _) if self.has_elements => {
                return Err("what begins with <! is no comment and no CDATA section".to_owned());
            }
            (At::Bang, _) => At::Doctype(0),
            (At::Comment, b'>') if last == *b"--" => At::Text,
            (At::Comment, _) if last == *b"--" => {
                return Err("a comment has --, which only its end may have".to_owned());
            }
            (At::CdataStart(at), byte) if CDATA.get(at) == Some(&byte) => match at + 1 {
                next if next < CDATA.len() => At::CdataStart(next),
                _ => At::Cdata,
            },
            (At::CdataStart(_), _) => {
                return Err("what begins with <![ is no CDATA section".to_owned());
            }
            (At::Cdata, b'>') if last == *b"]]" => At::Text,
            (At::Target(at), byte) => self.target(byte, at)?,
            (At::Instruction, b'>') if last[1] == b'?' => At::Text,
            (At::Doctype(open), byte) => self.doctype(byte, open)?,
            (at, _) => at,
        })
    }

    /// Checks how a processing instruction is called.
    fn target(&self, byte: u8, at: usize) -> Result<At, String> {
        let begins_name = byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':' | 0x80..);
        if at == 0 && !begins_name {
            return Err("a processing instruction has no name".to_owned());
        }
        let is_named_xml = at == XML.len() && (byte == b'?' || byte.is_ascii_whitespace());
        if is_named_xml && self.has_elements {
            return Err("<?xml may only stand at the beginning of the file".to_owned());
        }
        Ok(match XML.get(at) {
            Some(expected) if expected.eq_ignore_ascii_case(&byte) => At::Target(at + 1),
            _ => At::Instruction,
        })
    }

    /// Counts what the parser has to hold.
    fn count(&mut self, before: At, byte: u8) -> Result<(), String> {
        match (before, self.at) {
            (At::Text, At::Open) => {
                self.text_length = self.length;
                self.length = 1;
            }
            (At::Tag(..) | At::Doctype(_), At::Text) => self.length = 0,
            // A text goes on behind what the parser does not get.
            (At::Comment | At::Instruction, At::Text) | (At::CdataStart(_), At::Cdata) => {
                self.length = self.text_length;
            }
            (_, At::Comment) => {}
            (_, At::Instruction) if self.depth > 0 => {}
            (_, at) => {
                self.length += 1;
                if byte == b'&' && at != At::Cdata && self.has_entities {
                    self.length += XML_ENTITY_BYTES_MAX;
                }
            }
        }
        if self.length > self.length_max {
            return Err(format!(
                "a text or tag is longer than {} bytes, the most that --memory allows",
                self.length_max
            ));
        }
        Ok(())
    }

    fn look_at(&mut self, byte: u8) -> Result<(), Refusal> {
        let before = self.at;
        let of_tag = matches!(before, At::Tag(0, _) | At::Open) && byte == b'>';
        let ampersand = self.ampersand.filter(|_| byte == b'<');
        self.step(byte).map_err(|reason| Refusal {
            reason,
            offset: match (byte, ampersand) {
                _ if of_tag => self.tag_offset,
                (_, Some(ampersand)) => ampersand,
                // The last one of a noncharacter.
                (0xBE | 0xBF, _) => self.offset.saturating_sub(2),
                _ => self.offset,
            },
        })?;
        // XML 1.0, 3.3.3: white space of a value is spaces, but for what is written as references.
        let byte = match (self.at, byte) {
            (At::Tag(b'"' | b'\'', _), b'\t' | b'\n' | b'\r') => b' ',
            (_, byte) => byte,
        };
        self.merger
            .take((before, self.at), self.depth > 0, byte, self.offset);
        self.offset += 1;
        Ok(())
    }
}

impl Guard for XmlGuard {
    fn look(&mut self, bytes: &mut Vec<u8>) -> Result<(), Refusal> {
        let looked = bytes.iter().try_for_each(|byte| self.look_at(*byte));
        self.merger.hand_over(bytes);
        looked
    }
}

/// Whether a DOCTYPE declares entities, none of which may stand for much.
fn check_entities(doctype: &str) -> Result<bool, String> {
    let mut lengths: HashMap<&str, usize, RandomState> = HashMap::default();
    for declaration in doctype.split('<').skip(1) {
        let Some(declaration) = declaration.strip_prefix("!ENTITY") else {
            continue;
        };
        let declaration = declaration.trim_start();
        let declaration = declaration.strip_prefix('%').unwrap_or(declaration);
        let declaration = declaration.trim_start();
        let Some((name, rest)) = declaration.split_once(|c: char| c.is_ascii_whitespace()) else {
            continue;
        };
        let value = rest.trim_start();
        let mut length = value.len();
        for reference in value.split('&').skip(1) {
            let name = reference.split(';').next().unwrap_or("");
            length = length.saturating_add(lengths.get(name).copied().unwrap_or(0));
        }
        if length > XML_ENTITY_BYTES_MAX {
            return Err(format!(
                "the entity {name} stands for more than {XML_ENTITY_BYTES_MAX} bytes"
            ));
        }
        lengths.insert(name, length);
    }
    Ok(!lengths.is_empty())
}

#[cfg(test)]
mod tests;
