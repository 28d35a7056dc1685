//! Documents of RDF: loaded into an empty database, dumped in several formats, loaded again.

use stoa_database::{Access, CancelHandle, DumpFormat, Error, GraphFormat, Runtime};
use stoa_storage::SimulatedDisk;

use super::{load, open, runtime, told};
use crate::driver::Target;

/// What a load may take, in bytes: the least that there is.
const MEMORY_BYTES: u64 = 16 << 20;

const fn target(name: &'static str, words: &'static [&'static str], cases: u64) -> Target {
    Target {
        name,
        words,
        input_bytes_max: 16 << 10,
        memory_bytes_max: 48 << 20,
        cases,
    }
}

/// N-Triples.
pub const NTRIPLES: Target = target("nt", LINES, 1_500);
/// N-Quads.
pub const NQUADS: Target = target("nq", LINES, 1_500);
/// Turtle.
pub const TURTLE: Target = target("ttl", TURTLE_WORDS, 3_000);
/// TriG.
pub const TRIG: Target = target("trig", TURTLE_WORDS, 3_000);
/// RDF/XML.
pub const RDFXML: Target = target("rdf", XML, 3_000);
/// JSON-LD.
pub const JSONLD: Target = target("jsonld", JSON, 4_000);
/// Anything, compressed or not: format and compression are told from the bytes.
pub const ANYTHING: Target = target("anything", LINES, 5_000);

/// Loads documents.
#[derive(Debug)]
pub struct Documents {
    format: Option<GraphFormat>,
    runtime: Runtime,
}

impl Documents {
    /// Documents in a format, or in whatever their bytes tell.
    #[must_use]
    pub fn new(format: Option<GraphFormat>) -> Self {
        Self {
            format,
            runtime: runtime(MEMORY_BYTES),
        }
    }

    /// Loads a document.
    ///
    /// # Errors
    /// For an internal error, or if what was dumped does not load or has another number of quads.
    pub fn run(&mut self, input: &[u8]) -> Result<String, String> {
        let fail = |error: Error| format!("after a load: {error}");
        let database =
            open(&self.runtime, &SimulatedDisk::new(1), Access::Exclusive).map_err(fail)?;
        let loaded = match load(&database, input, self.format) {
            Ok(summary) => summary.quads_new,
            Err(error) => {
                if database.quads() != 0 {
                    return Err(format!("{error}, but there are quads"));
                }
                return told(&error);
            }
        };
        for (format, read_as) in [
            (DumpFormat::NQuads, GraphFormat::NQuads),
            (DumpFormat::TriG, GraphFormat::TriG),
        ] {
            let mut out = Vec::new();
            database
                .dump(format, &mut out, &CancelHandle::new())
                .map_err(fail)?;
            let other =
                open(&self.runtime, &SimulatedDisk::new(1), Access::Exclusive).map_err(fail)?;
            let again = load(&other, &out, Some(read_as)).map_err(|error| {
                format!(
                    "its dump as {read_as:?}: {error}\n{}",
                    String::from_utf8_lossy(&out)
                )
            })?;
            if again.quads_new != loaded {
                return Err(format!(
                    "its dump as {read_as:?} has {} quads instead of {loaded}",
                    again.quads_new
                ));
            }
        }
        // Not everything can be said in JSON-LD.
        let mut out = Vec::new();
        let json = match database.dump(DumpFormat::JsonLd, &mut out, &CancelHandle::new()) {
            Ok(_) => String::new(),
            Err(error) => told(&error)?,
        };
        let check = database.check(&(), &CancelHandle::new()).map_err(fail)?;
        if !check.is_sound() {
            return Err(format!("damaged: {:?}", check.problems));
        }
        Ok(format!("{} {} {json}", loaded.min(3), check.terms.min(5)))
    }
}

const LINES: &[&str] = &[
    "<http://a/s> ",
    "<http://a/p> ",
    "<http://a/g> ",
    "_:b ",
    "_:b. ",
    "\"x\" ",
    "\"x\"@en ",
    "\"x\"@en--ltr ",
    "\"1\"^^<http://www.w3.org/2001/XMLSchema#integer> ",
    "<<( ",
    ")>> ",
    ".\n",
    ". ",
    "# x\n",
    "\\u00e9",
    "VERSION \"1.2\"\n",
    "^^",
    "@en-Latn-GB-x-a ",
    "@ar--rtl ",
    "@",
    "<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString> ",
    "\\t",
    "\\\"",
    "\"x\"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#dirLangString> ",
];

const TURTLE_WORDS: &[&str] = &[
    "@prefix : <http://a/> .\n",
    "PREFIX : <http://a/>\n",
    "@base <http://a/> .\n",
    "BASE <http://b/>\n",
    "VERSION \"1.2\"\n",
    ":a ",
    ":p ",
    "a ",
    "<a> ",
    "<> ",
    "<#x> ",
    "<//x> ",
    "_:b ",
    "[] ",
    "[ ",
    "] ",
    "( ",
    ") ",
    "() ",
    "<<( ",
    ")>> ",
    "<< ",
    ">> ",
    "{| ",
    "|} ",
    "~ ",
    "~ :r ",
    "{ ",
    "} ",
    "GRAPH :g { ",
    ":g { ",
    ". ",
    "; ",
    ", ",
    "1 ",
    "-1.5 ",
    "1e0 ",
    "true ",
    "\"x\" ",
    "'x' ",
    "\"\"\"x\"\"\" ",
    "'''x''' ",
    "@en ",
    "@en--ltr ",
    "^^:t ",
    "\\u0041",
    ":a\\,b ",
    ":%41 ",
    "# x\n",
    "@version \"1.2\" .\n",
];

const XML: &[&str] = &[
    "<?xml version=\"1.0\"?>",
    "<!DOCTYPE rdf:RDF [<!ENTITY a \"http://a/\">]>",
    "&a;",
    "&amp;",
    "&#65;",
    "<!-- x -->",
    "<![CDATA[x]]>",
    "<?x y?>",
    "<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" xmlns:a=\"http://a/\">",
    "</rdf:RDF>",
    "<rdf:Description>",
    "<rdf:Description rdf:about=\"x\">",
    "</rdf:Description>",
    "<a:p>",
    "</a:p>",
    "<a:p/>",
    "<rdf:li>",
    "</rdf:li>",
    "<rdf:_1/>",
    " rdf:about=\"\"",
    " rdf:ID=\"x\"",
    " rdf:nodeID=\"x\"",
    " rdf:resource=\"x\"",
    " rdf:datatype=\"http://a/t\"",
    " rdf:parseType=\"Literal\"",
    " rdf:parseType=\"Resource\"",
    " rdf:parseType=\"Collection\"",
    " rdf:parseType=\"Triple\"",
    " xml:lang=\"en\"",
    " xml:base=\"http://b/\"",
    " its:dir=\"rtl\"",
    " xmlns:b=\"http://b/\"",
    " rdf:version=\"1.2\"",
    " rdf:annotation=\"x\"",
    " a:p=\"x\"",
    " rdf:type=\"x\"",
    " rdf:aboutEach=\"x\"",
    " rdf:bagID=\"x\"",
    "<a:C>",
    "</a:C>",
    "x",
];

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"@context\"",
    "\"@id\"",
    "\"@type\"",
    "\"@value\"",
    "\"@language\"",
    "\"@direction\"",
    "\"@graph\"",
    "\"@list\"",
    "\"@set\"",
    "\"@reverse\"",
    "\"@container\"",
    "\"@index\"",
    "\"@base\"",
    "\"@vocab\"",
    "\"@prefix\"",
    "\"@nest\"",
    "\"@none\"",
    "\"@json\"",
    "\"@included\"",
    "\"@import\"",
    "\"@propagate\"",
    "\"@protected\"",
    "\"@version\"",
    "1.1",
    "\"@annotation\"",
    "\"@triple\"",
    "\"http://a/p\"",
    "\"http://a/context\"",
    "\"http://elsewhere/\"",
    "\"_:b\"",
    "\"a:b\"",
    "\"name\"",
    "null",
    "true",
    "false",
    "0",
    "-1.5e3",
    "1e400",
    "\"\"",
    "\"x\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"en\"",
    "\"rtl\"",
    "\"@id\":\"_:x\",",
    "\"@context\":{\"a\":\"http://a/\"},",
    "\"@type\":\"@id\"",
    "\"@type\":\"@json\"",
    "\"@container\":[\"@graph\",\"@id\"]",
];
