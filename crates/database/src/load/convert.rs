//! Inputs of any format as lines of N-Quads, for a database that is somewhere else.
//!
//! Blank nodes get labels that say of which input they are, so that all lines together mean what the inputs
//! mean.
//!
//! # Limits
//! Memory: for each thread a piece of [`PIECE_BYTES`], terms of [`TERMS_BYTES`], and what the longest line takes.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use oxrdf::BaseDirection;

use crate::error::{Error, Result};
use crate::load::driver::{self, Job};
use crate::load::sink::{LiteralSuffix, QuadSink};
use crate::load::store::{line_bytes_max, sources};
use crate::load::{Progress, Skipped};
use crate::options::LoadOptions;
use crate::results::escape;
use crate::runtime::Runtime;

/// Bytes of lines that are handed on together.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of terms that are kept to be repeated in lines.
const TERMS_BYTES: usize = 4 << 20;

/// What [`Runtime::convert`] did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConvertSummary {
    /// Files and streams that were read.
    pub inputs: u64,
    /// Bytes that were read, as they lie on disk.
    pub bytes_read: u64,
    /// Quads that the inputs hold, repetitions included.
    pub quads: u64,
    /// What was left out of inputs that are read leniently.
    pub skipped: Skipped,
}

/// Takes whole lines.
type Out<'a> = &'a (dyn Fn(Vec<u8>) -> io::Result<()> + Sync);

impl Runtime {
    /// Reads inputs as [`Database::load`](crate::Database::load) does and hands their quads on as N-Quads,
    /// in no order: `out` is called from several threads, with whole lines. The scheme of the options is
    /// not looked at.
    ///
    /// ```
    /// # use std::sync::Mutex;
    /// # use stoa_database::*;
    /// let runtime = Runtime::new(RuntimeOptions::default())?;
    /// let options = LoadOptions {
    ///     inputs: vec![Input::from_bytes("a.ttl", "<http://a/s> <http://a/p> 1 .")],
    ///     ..LoadOptions::default()
    /// };
    /// let lines = Mutex::new(Vec::new());
    /// let out = |piece: Vec<u8>| Ok(lines.lock().unwrap().extend(piece));
    /// assert_eq!(runtime.convert(&options, &out, &())?.quads, 1);
    /// let expected = "<http://a/s> <http://a/p> \"1\"^^<http://www.w3.org/2001/XMLSchema#integer> .\n";
    /// assert_eq!(lines.into_inner().unwrap(), expected.as_bytes());
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of inputs as `Database::load` has them; `Output` if `out` fails.
    pub fn convert(
        &self,
        options: &LoadOptions,
        out: Out<'_>,
        progress: &dyn Progress,
    ) -> Result<ConvertSummary> {
        let sources = sources(options, progress)?;
        let memory_bytes = options.memory_bytes.unwrap_or_else(|| self.memory_bytes());
        let total = sources
            .iter()
            .map(|source| source.bytes)
            .sum::<Option<u64>>();
        progress.phase("reading", total);
        let job = Job {
            sources: &sources,
            format: options.format,
            base: options.base.as_deref(),
            is_lenient: options.lenient,
            contexts: Arc::new(options.contexts.clone()),
            json_ld: &options.json_ld,
            threads: options.threads.unwrap_or_else(|| self.threads()).max(1),
            line_bytes_max: line_bytes_max(memory_bytes),
            cancel: &options.cancel,
            progress,
        };
        let graph = options.graph.as_deref();
        let parsed = driver::run(&job, &|| Ok(Lines::new(out, graph)), &Lines::flush)?;
        Ok(ConvertSummary {
            inputs: u64::try_from(sources.len()).unwrap_or(u64::MAX),
            bytes_read: parsed.bytes_read,
            quads: parsed.quads,
            skipped: parsed.skipped,
        })
    }
}

/// Writes lines.
struct Lines<'a> {
    out: Out<'a>,
    /// Takes what belongs to the default graph.
    graph: Option<&'a str>,
    file: u64,
    epoch: u64,
    /// The terms of the epoch as they are written.
    terms: Vec<u8>,
    lines: Vec<u8>,
}

/// Where a term stands among those of its epoch.
#[derive(Clone, Copy)]
struct Written {
    start: usize,
    end: usize,
}

impl<'a> Lines<'a> {
    fn new(out: Out<'a>, graph: Option<&'a str>) -> Self {
        Self {
            out,
            graph,
            file: 0,
            epoch: 0,
            terms: Vec::new(),
            lines: Vec::new(),
        }
    }

    fn term(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Written {
        let start = self.terms.len();
        write(&mut self.terms);
        let end = self.terms.len();
        Written { start, end }
    }

    fn put(&mut self, term: Written) {
        let text = self.terms.get(term.start..term.end).unwrap_or_default();
        self.lines.extend_from_slice(text);
        self.lines.push(b' ');
    }

    fn hand_on(&mut self) -> Result<()> {
        let next = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
        let piece = std::mem::replace(&mut self.lines, next);
        (self.out)(piece).map_err(Error::Output)
    }

    /// Hands on what is left.
    fn flush(mut self) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        self.hand_on()
    }
}

impl QuadSink for Lines<'_> {
    type Term = Written;

    fn start_file(&mut self, number: u64) {
        self.file = number;
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn iri(&mut self, iri: &str) -> Result<Written> {
        Ok(self.term(|out| escape::iri(iri, out)))
    }

    fn blank(&mut self, label: &str) -> Result<Written> {
        let file = self.file;
        // The letter behind the number keeps both forms apart.
        let is_plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut name = format!("_:f{file}{}", if is_plain { 'n' } else { 'x' });
        if is_plain {
            name.push_str(label);
        } else {
            for byte in label.bytes() {
                write!(name, "{byte:02x}").map_err(|_| Error::Internal("a label".to_owned()))?;
            }
        }
        Ok(self.term(|out| out.extend_from_slice(name.as_bytes())))
    }

    fn literal(&mut self, lexical: &str, suffix: LiteralSuffix<'_>) -> Result<Written> {
        Ok(self.term(|out| {
            escape::turtle_string(lexical, out);
            match suffix {
                LiteralSuffix::None => {}
                LiteralSuffix::Datatype(datatype) => {
                    out.extend_from_slice(b"^^");
                    escape::iri(datatype, out);
                }
                LiteralSuffix::Language(language, direction) => {
                    out.push(b'@');
                    out.extend_from_slice(language.as_bytes());
                    out.extend_from_slice(match direction {
                        None => b"",
                        Some(BaseDirection::Ltr) => b"--ltr",
                        Some(BaseDirection::Rtl) => b"--rtl",
                    });
                }
            }
        }))
    }

    fn triple(&mut self, subject: Written, predicate: Written, object: Written) -> Result<Written> {
        Ok(self.term(|out| {
            out.extend_from_slice(b"<<(");
            for part in [subject, predicate, object] {
                out.push(b' ');
                if part.end <= out.len() {
                    out.extend_from_within(part.start..part.end);
                }
            }
            out.extend_from_slice(b" )>>");
        }))
    }

    fn quad(
        &mut self,
        subject: Written,
        predicate: Written,
        object: Written,
        graph: Option<Written>,
    ) -> Result<()> {
        for term in [subject, predicate, object] {
            self.put(term);
        }
        match (graph, self.graph) {
            (Some(graph), _) => self.put(graph),
            (None, Some(iri)) => {
                escape::iri(iri, &mut self.lines);
                self.lines.push(b' ');
            }
            (None, None) => {}
        }
        self.lines.extend_from_slice(b".\n");
        if self.terms.len() >= TERMS_BYTES {
            // The room for a very long term is not kept.
            self.terms = Vec::with_capacity(TERMS_BYTES);
            self.epoch += 1;
        }
        if self.lines.len() >= PIECE_BYTES {
            self.hand_on()?;
        }
        Ok(())
    }
}
