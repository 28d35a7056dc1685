//! RDF/XML, one thread a file.
//!
//! # Limits
//! Memory: an element's text, at most what a line of N-Triples may take, the open elements, at most
//! [`XML_DEPTH_MAX`], and every `rdf:ID`, since two of the same are a mistake. Entities may not stand
//! for more than [`XML_ENTITY_BYTES_MAX`], so that a small file cannot become a large one. Nothing
//! outside of the file is ever read.

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
use crate::load::tracked::{Guard, Tracked};
use crate::load::xml_literal;

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
                return Err(tracked.error().unwrap_or_else(|| {
                    // The parser stands behind the tag that it does not like.
                    let start = tracked.find_back(b'<', offset).unwrap_or(offset);
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
enum At {
    Text,
    /// Behind `<`.
    Open,
    /// In a tag: the quotation mark that is open, or 0; whether it begins an element.
    Tag(u8, bool),
    /// Behind `<!`.
    Bang,
    /// In a comment; the last bytes that may belong to its end.
    Comment,
    Cdata,
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
    length_max: usize,
    /// The last two bytes.
    last: [u8; 2],
    doctype: Vec<u8>,
    has_entities: bool,
    /// How much of [`XML_LITERAL`] the tag has just had.
    named: usize,
}

/// The end of the datatype of XML literals.
const XML_LITERAL: &[u8] = b"XMLLiteral";

impl XmlGuard {
    fn new(length_max: usize) -> Self {
        Self {
            at: At::Text,
            depth: 0,
            has_elements: false,
            length: 0,
            length_max,
            last: [0; 2],
            doctype: Vec::new(),
            has_entities: false,
            named: 0,
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

    fn open(&mut self, byte: u8) -> At {
        match byte {
            b'!' => At::Bang,
            b'?' => At::Instruction,
            b'/' => {
                self.depth = self.depth.saturating_sub(1);
                At::Tag(0, false)
            }
            _ => {
                self.has_elements = true;
                self.depth += 1;
                At::Tag(0, true)
            }
        }
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
        if matches!(self.at, At::Tag(..)) && !self.names_xml_literal() {
            self.named = match XML_LITERAL.get(self.named) {
                Some(expected) if *expected == byte => self.named + 1,
                _ => usize::from(byte == b'X'),
            };
        }
        let next = match (self.at, byte) {
            (At::Text, b'<') => {
                self.length = 0;
                At::Open
            }
            (At::Open, byte) => self.open(byte),
            (At::Tag(0, begins), b'>') => {
                if begins && last[1] == b'/' {
                    self.depth = self.depth.saturating_sub(1);
                }
                At::Text
            }
            (At::Tag(0, begins), b'"' | b'\'') => At::Tag(byte, begins),
            (At::Tag(quote, begins), byte) if quote == byte => At::Tag(0, begins),
            (At::Bang, b'-') if last[1] == b'-' => At::Comment,
            (At::Bang, b'-') => At::Bang,
            (At::Bang, b'[') => At::Cdata,
            (At::Bang, b'>') => At::Text,
            (At::Bang, _) => At::Doctype(0),
            (At::Comment, b'>') if last == *b"--" => At::Text,
            (At::Cdata, b'>') if last == *b"]]" => At::Text,
            (At::Instruction, b'>') if last[1] == b'?' => At::Text,
            (At::Doctype(open), byte) => self.doctype(byte, open)?,
            (at, _) => at,
        };
        if next != self.at && next == At::Text {
            self.length = 0;
        }
        self.at = next;
        self.last = [last[1], byte];
        self.length += 1;
        if byte == b'&' && self.has_entities {
            self.length += XML_ENTITY_BYTES_MAX;
        }
        if self.depth > XML_DEPTH_MAX {
            return Err(format!("elements are nested deeper than {XML_DEPTH_MAX}"));
        }
        if self.length > self.length_max {
            return Err(format!(
                "a text or tag is longer than {} bytes, the most that --memory allows",
                self.length_max
            ));
        }
        Ok(())
    }
}

impl Guard for XmlGuard {
    fn look(&mut self, bytes: &[u8]) -> Result<(), String> {
        for byte in bytes {
            self.step(*byte)?;
        }
        Ok(())
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
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::load::patient::Halt;
    use crate::load::sink::recording::RecordingSink;
    use crate::load::{Input, source};

    const HEAD: &str = "<?xml version=\"1.0\"?>\n<rdf:RDF xmlns:e=\"http://e/\" \
        xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n";

    fn read(text: impl Into<Vec<u8>>, bytes_max: usize) -> Result<Vec<String>> {
        let input = Input::from_bytes("x.rdf", text);
        let source = source::expand(&[input], &()).unwrap().remove(0);
        let mut stream = source.open(Arc::default(), &Halt::default()).unwrap();
        let mut sink = RecordingSink::default();
        let base = Some("http://base/dir/");
        parse(&mut stream, base, bytes_max, &mut sink, &mut |_| Ok(()))?;
        let mut quads: Vec<String> = sink.quads.iter().map(ToString::to_string).collect();
        quads.sort();
        Ok(quads)
    }

    fn error(text: impl Into<Vec<u8>>) -> String {
        read(text, usize::MAX).unwrap_err().to_string()
    }

    #[test]
    fn ends_of_lines_are_line_feeds() {
        let text = format!(
            "{HEAD}<e:C rdf:about=\"s\"><e:p>a\r\nb\rc\n\r\nd&#xD;\r\n</e:p></e:C></rdf:RDF>"
        );
        let quads = read(text.replace("?>\n", "?>\r\n"), usize::MAX).unwrap();
        assert!(
            quads
                .iter()
                .any(|quad| quad.contains(r#""a\nb\nc\n\nd\r\n""#)),
            "{quads:?}"
        );
        // The place of a mistake is that of the user's text.
        let broken = format!("{HEAD}<e:C rdf:about=\"s\">\n</e:D>").replace('\n', "\r\n");
        assert!(error(broken).contains("line 4"));
    }

    #[test]
    fn documents_are_read() {
        let text = format!(
            "\u{feff}{HEAD}<!-- <a><b> --><e:C rdf:about=\"s\" e:q='x>y/'><e:p>1 &amp; 2</e:p>\
             <e:p><![CDATA[<x>]]></e:p><e:r><rdf:Description rdf:nodeID=\"n\"/></e:r></e:C></rdf:RDF>"
        );
        let expected = [
            "<http://base/dir/s> <http://e/p> \"1 & 2\"",
            "<http://base/dir/s> <http://e/p> \"<x>\"",
            "<http://base/dir/s> <http://e/q> \"x>y/\"",
            "<http://base/dir/s> <http://e/r> _:n",
            "<http://base/dir/s> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://e/C>",
        ];
        assert_eq!(read(text.clone(), usize::MAX).unwrap(), expected);
        let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
        let cut = error(&packed[..packed.len() - 1]);
        assert!(cut.ends_with("the zstd data is cut off"), "{cut}");
    }

    #[test]
    fn mistakes_are_placed() {
        let filler = "<e:C><e:p>\u{e9}</e:p></e:C>\n".repeat(10_000);
        for (text, place) in [
            ("<e:C rdf:ID=\"1a\"/>", "line 10003, column 1: "),
            (" <e:C rdf:about=\"a b\"/>", "line 10003, column 2: "),
            ("<e:C><e:p></e:C>", "line 10003, column 11: "),
        ] {
            let message = error(format!("{HEAD}{filler}{text}\n</rdf:RDF>\n"));
            assert!(message.starts_with(&format!("x.rdf: {place}")), "{message}");
        }
        let cut = error(format!("{HEAD}<e:C><e:p>"));
        assert!(cut.starts_with("x.rdf: line 3, column "), "{cut}");
        assert!(cut.contains("ends within an element"), "{cut}");
        assert_eq!(
            error(" \n"),
            "x.rdf: line 2, column 1: there is no element: this is no RDF/XML"
        );
    }

    #[test]
    fn xml_literals_are_canonical() {
        let literal = "<e:p rdf:parseType=\"Literal\">It's <e:b f='1' a='&lt;'/><br/></e:p>";
        let given = "<e:q rdf:datatype=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral\">\
            &lt;br/> &amp;quot;</e:q>";
        let text = format!("{HEAD}<e:C rdf:about=\"s\">{literal}{given}</e:C></rdf:RDF>");
        let quads = read(text, usize::MAX).unwrap();
        let written =
            "\"It's <e:b xmlns:e=\\\"http://e/\\\" a=\\\"&lt;\\\" f=\\\"1\\\"></e:b><br></br>\"";
        assert!(quads[0].contains(written), "{}", quads[0]);
        assert!(quads[1].contains("\"<br/> &quot;\""), "{}", quads[1]);
    }

    #[test]
    fn entities_cannot_make_a_small_file_large() {
        let good = "<?xml version=\"1.0\"?>\n<!DOCTYPE rdf:RDF [\n<!ENTITY e \"http://e/\">\n\
            <!ENTITY f \"&e;f/\">\n]>\n<rdf:RDF xmlns:e=\"&e;\" \
            xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\
            <rdf:Description rdf:about=\"&f;s\" e:p=\"o\"/></rdf:RDF>";
        assert_eq!(
            read(good, usize::MAX).unwrap(),
            ["<http://e/f/s> <http://e/p> \"o\""]
        );
        let mut text = "<!DOCTYPE rdf:RDF [<!ENTITY a0 \"laugh\">".to_owned();
        for i in 1..30 {
            let before = format!("&a{};", i - 1).repeat(10);
            text += &format!("<!ENTITY a{i} \"{before}\">\n");
        }
        text += &format!("]>{HEAD}<e:C><e:p>&a29;</e:p></e:C></rdf:RDF>");
        assert!(error(text).contains("stands for more than"));
        let uses = good.replace("\"o\"", &format!("\"{}\"", "&e;".repeat(10_000)));
        let message = read(uses, 1 << 20).unwrap_err().to_string();
        assert!(message.contains("longer than 1048576 bytes"), "{message}");
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = format!("{HEAD}{}", "<e:C><e:p>".repeat(XML_DEPTH_MAX));
        assert!(error(deep).contains("nested deeper"));
        let long = format!("{HEAD}<e:C><e:p>{}", "x".repeat(3 << 20));
        let message = read(long, 1 << 20).unwrap_err().to_string();
        assert!(message.contains("1048576 bytes"), "{message}");
    }
}
