//! JSON-LD, one thread a file.
//!
//! A small document is read as a whole, with its keys in any order. Of a large one that is an array,
//! one object is held at a time; one that is an object must have its keys in the order of Streaming
//! JSON-LD (`@context` first, then `@id` and `@type`), and is refused with a clear message if it has
//! not.
//!
//! Contexts that a document names by their URL are those that the caller gave; nothing is fetched.
//!
//! Dots in the folders of a base are removed first ([`without_dots`]), of those within a document as far
//! as it is looked at to choose between the two ways.
//!
//! # Limits
//! What an object takes in memory is many times its text, so a share of the memory is the most that
//! may be read without giving a quad.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11/>, <https://www.w3.org/TR/json-ld11-streaming/>

use std::sync::Arc;

use oxjsonld::{JsonLdParseError, JsonLdParser, JsonLdProfile, JsonLdRemoteDocument};

use crate::error::{Error, Result};
use crate::limits::{JSONLD_WHOLE_BYTES_MAX, LINE_BYTES_MAX};
use crate::load::base::{without_dots, without_dots_in_json};
use crate::load::document::too_deep;
use crate::load::sink::QuadSink;
use crate::load::source::Stream;
use crate::load::terms::Terms;
use crate::load::tracked::Tracked;

/// Contexts by their URL.
pub(crate) type Contexts = Arc<Vec<(String, Vec<u8>)>>;

/// Quads between two calls of `advance`.
const ADVANCE_QUADS: u64 = 1 << 10;

/// How many bytes an object takes in memory for each byte of its text, at most.
const GROWTH: usize = 16;

/// Parses a stream into a sink. Now and then `advance` gets the number of new quads and may end the
/// work. `bytes_max` bounds what an object may take of memory.
pub(crate) fn parse<S: QuadSink>(
    stream: &mut Stream,
    base: Option<&str>,
    contexts: &Contexts,
    bytes_max: usize,
    sink: &mut S,
    advance: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let object_bytes_max = bytes_max.min(LINE_BYTES_MAX) / GROWTH;
    let mut parser = JsonLdParser::new();
    if needs_streaming(stream, object_bytes_max) {
        parser = parser.with_profile(JsonLdProfile::Streaming);
    }
    if let Ok((start, _)) = stream.look_ahead(0)
        && let Some(changed) = without_dots_in_json(start)
    {
        stream.skip(changed.len());
        stream.put_back(changed);
    }
    if let Some(base) = base {
        parser =
            parser
                .with_base_iri(without_dots(base))
                .map_err(|error| Error::InvalidOption {
                    option: "--base",
                    reason: error.to_string(),
                })?;
    }
    let known = Arc::clone(contexts);
    let tracked = Tracked::new(stream, (), object_bytes_max.max(1 << 10));
    let parser = parser
        .for_reader(Tracked::reader(&tracked))
        .with_load_document_callback(move |url, _| context(&known, url));
    let mut terms = Terms::default();
    let mut quads = 0;
    for quad in parser {
        let mut tracked = tracked.borrow_mut();
        match quad {
            Ok(quad) => {
                tracked.quad();
                match terms.hand_over(&quad, sink) {
                    Ok(true) => quads += 1,
                    Ok(false) => return Err(too_deep(tracked.stream(), tracked.end())),
                    Err(error) => {
                        return Err(tracked.stream().source.refused(tracked.end().0, error));
                    }
                }
            }
            Err(error) => {
                return Err(tracked.error().unwrap_or_else(|| {
                    let (place, reason) = describe(error);
                    let (line, column) = place.unwrap_or_else(|| tracked.end());
                    tracked.stream().source.damaged(line, column, reason)
                }));
            }
        }
        drop(tracked);
        if quads == ADVANCE_QUADS {
            advance(quads)?;
            quads = 0;
        }
    }
    advance(quads)
}

/// Whether a document is an object too large to be held.
fn needs_streaming(stream: &mut Stream, object_bytes_max: usize) -> bool {
    let whole_bytes_max = JSONLD_WHOLE_BYTES_MAX.min(object_bytes_max);
    // An error comes again when the text is read.
    match stream.look_ahead(whole_bytes_max) {
        Ok((start, false)) => {
            let first = start.iter().find(|b| !b.is_ascii_whitespace());
            first == Some(&b'{')
        }
        _ => false,
    }
}

/// A context that the caller gave.
fn context(
    contexts: &Contexts,
    url: &str,
) -> Result<JsonLdRemoteDocument, Box<dyn std::error::Error + Send + Sync>> {
    match contexts.iter().find(|(known, _)| known == url) {
        Some((_, document)) => Ok(JsonLdRemoteDocument {
            document: document.clone(),
            document_url: url.to_owned(),
        }),
        None => Err("contexts are never fetched; give a copy with --context URL=FILE".into()),
    }
}

/// Line and column, from 1, if they are known, and what is wrong.
fn describe(error: JsonLdParseError) -> (Option<(u64, u64)>, String) {
    match error {
        JsonLdParseError::Io(error) => (None, error.to_string()),
        JsonLdParseError::Syntax(error) => {
            let place = error.location().map(|range| {
                let start = range.start;
                (start.line.saturating_add(1), start.column.saturating_add(1))
            });
            // The place stands in front of the reason once already.
            let text = error.to_string();
            let reason = match text.split_once(": ") {
                Some((start, reason)) if start.starts_with("Parser error at ") => reason,
                _ => &text,
            };
            (place, reason.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::load::patient::Halt;
    use crate::load::sink::recording::RecordingSink;
    use crate::load::{Input, source};

    fn read(text: impl Into<Vec<u8>>, bytes_max: usize) -> Result<Vec<String>> {
        let input = Input::from_bytes("x.jsonld", text);
        let source = source::expand(&[input], &()).unwrap().remove(0);
        let mut stream = source.open(Arc::default(), &Halt::default()).unwrap();
        let mut sink = RecordingSink::default();
        let contexts: Contexts = Arc::new(vec![(
            "http://c/known".to_owned(),
            br#"{"@context": {"p": "http://e/p"}}"#.to_vec(),
        )]);
        let base = Some("http://base/");
        parse(
            &mut stream,
            base,
            &contexts,
            bytes_max,
            &mut sink,
            &mut |_| Ok(()),
        )?;
        let mut quads: Vec<String> = sink.quads.iter().map(ToString::to_string).collect();
        quads.sort();
        Ok(quads)
    }

    #[test]
    fn documents_are_read_with_keys_in_any_order() {
        let text = "\u{feff}{\"p\": [1, {\"@value\": \"x\", \"@language\": \"EN\"}], \"@id\": \"s\",\n\
                    \"@context\": {\"p\": \"http://e/p\"}}";
        let expected = [
            "<http://base/s> <http://e/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer>",
            "<http://base/s> <http://e/p> \"x\"@en",
        ];
        assert_eq!(read(text, usize::MAX).unwrap(), expected);
    }

    #[test]
    fn contexts_are_never_fetched() {
        let with = |url: &str| format!("{{\"@context\": \"{url}\", \"@id\": \"s\", \"p\": \"o\"}}");
        let known = read(with("http://c/known"), usize::MAX).unwrap();
        assert_eq!(known, ["<http://base/s> <http://e/p> \"o\""]);
        let message = read(with("http://c/other"), usize::MAX)
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("x.jsonld: line 1, column ")
                && message.contains("http://c/other")
                && message.contains("never fetched"),
            "{message}"
        );
    }

    #[test]
    fn mistakes_are_placed() {
        let message = read("{\"@id\": \"s\",\n \"http://e/p\": 1,,}", usize::MAX);
        let message = message.unwrap_err().to_string();
        assert!(
            message.starts_with("x.jsonld: line 2, column 18: Object keys must be strings"),
            "{message}"
        );
        for text in ["", "{", "1", "{\"@id\": 1, \"http://e/p\": 1}"] {
            if let Err(error) = read(text, usize::MAX) {
                assert!(
                    error.to_string().starts_with("x.jsonld: line 1, "),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn large_documents_take_little_memory() {
        let mut nodes = String::new();
        for i in 0..20_000 {
            let comma = if i == 0 { "" } else { ",\n" };
            write!(
                nodes,
                "{comma}{{\"http://e/p\": {i}, \"@id\": \"http://e/{i}\"}}"
            )
            .unwrap();
        }
        let bytes_max = 1 << 18;
        assert!(nodes.len() > 4 * bytes_max / GROWTH);
        let array = format!("[{nodes}]");
        assert_eq!(read(array, bytes_max).unwrap().len(), 20_000);
        let ordered = nodes.replace(
            "\"http://e/p\": 7, \"@id\": \"http://e/7\"",
            "\"@id\": \"x:y\"",
        );
        let mut first = String::new();
        for i in 0..20_000 {
            let comma = if i == 0 { "" } else { ",\n" };
            write!(first, "{comma}{{\"@id\": \"http://e/{i}\", \"p\": {i}}}").unwrap();
        }
        let graph = format!("{{\"@context\": {{\"p\": \"http://e/p\"}}, \"@graph\": [{first}]}}");
        assert_eq!(read(graph, bytes_max).unwrap().len(), 20_000);
        let late = format!("{{\"@graph\": [{ordered}], \"@context\": {{\"p\": \"http://e/p\"}}}}");
        let message = read(late, bytes_max).unwrap_err().to_string();
        assert!(message.contains("@context"), "{message}");
    }
}
