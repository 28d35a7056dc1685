//! Loading: from files in several formats to a commit.

pub(crate) mod alone;
mod convert;
mod detect;
mod document;
mod driver;
pub(crate) mod into;
mod iri;
mod jsonld;
mod language;
pub(crate) mod line;
pub(crate) mod patient;
pub(crate) mod pieces;
pub(crate) mod seen;
mod sink;
mod skipped;
pub(crate) mod source;
pub(crate) mod spooled;
pub(crate) mod store;
mod terms;
mod terse;
mod text;
mod tracked;
mod turns;
mod xml;
mod xml_literal;
mod xml_tags;
mod xml_text;

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::query::CancelHandle;

pub use alone::AloneOptions;
pub use convert::ConvertSummary;
pub(crate) use into::load_into;
pub use skipped::Skipped;
pub(crate) use store::{load, threads_within, verify};
pub(crate) use turns::{LoadTurn, LoadTurns};

/// Bytes of an input that are handed on at once.
const PIECE_BYTES: usize = 256 << 10;

/// Something to load.
#[derive(Clone)]
#[non_exhaustive]
pub enum Input {
    /// A file, or a folder whose files with a known extension are loaded.
    Path(PathBuf),
    /// Standard input.
    Stdin,
    /// Bytes from anywhere else; read once.
    Reader {
        /// What messages call it.
        name: String,
        /// The bytes.
        reader: SharedReader,
    },
}

/// A reader that an [`Input`] shares.
pub type SharedReader = Arc<Mutex<Option<Box<dyn Read + Send>>>>;

impl Input {
    /// Bytes in memory; `name` is what messages call them, and may end in an extension.
    #[must_use]
    pub fn from_bytes(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self::from_reader(name, io::Cursor::new(bytes.into()))
    }

    /// What `reader` gives; `name` is what messages call it, and may end in an extension.
    #[must_use]
    pub fn from_reader(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self::Reader {
            name: name.into(),
            reader: Arc::new(Mutex::new(Some(Box::new(reader)))),
        }
    }
}

impl Input {
    /// Hands the text of a file or stream, decompressed, to `out` piece by piece.
    ///
    /// # Errors
    /// `Input` if it cannot be read, `Output` with what `out` gives, `Cancelled`.
    pub fn pieces(
        &self,
        cancel: &CancelHandle,
        out: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    ) -> Result<()> {
        let halt = patient::Halt {
            cancel: cancel.clone(),
            failed: CancelHandle::new(),
        };
        for source in source::expand(std::slice::from_ref(self), &())? {
            let mut stream = source.open(Arc::default(), &halt)?;
            loop {
                if cancel.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                let mut piece = Vec::new();
                let read = stream.read(PIECE_BYTES, &mut piece);
                if read.map_err(|error| source.unreadable(error))? == 0 {
                    break;
                }
                out(piece).map_err(Error::Output)?;
            }
        }
        Ok(())
    }
}

impl From<&str> for Input {
    /// A path; `-` is standard input.
    fn from(name: &str) -> Self {
        if name == "-" {
            Self::Stdin
        } else {
            Self::Path(PathBuf::from(name))
        }
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::Stdin
        } else {
            Self::Path(path)
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Stdin => f.write_str("Stdin"),
            Self::Reader { name, .. } => f.debug_tuple("Reader").field(name).finish(),
        }
    }
}

/// What a caller may show of a running load. Called from several threads.
pub trait Progress: Send + Sync {
    /// A new phase begins. `total` is what `advance` will reach, if it is known; while the inputs
    /// are read, in bytes as they lie on disk.
    fn phase(&self, name: &str, total: Option<u64>);
    /// The phase has come this far; `quads` have been read since the load began.
    fn advance(&self, done: u64, quads: u64);
    /// Something that the user should know: a file that is skipped, an input whose format was told
    /// from its content.
    fn note(&self, text: &str);
}

/// Shows nothing.
impl Progress for () {
    fn phase(&self, _name: &str, _total: Option<u64>) {}
    fn advance(&self, _done: u64, _quads: u64) {}
    fn note(&self, _text: &str) {}
}

/// What a load did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LoadSummary {
    /// Files and streams that were read.
    pub inputs: u64,
    /// Bytes that were read, as they lie on disk.
    pub bytes_read: u64,
    /// Quads that the inputs hold, repetitions included.
    pub quads_read: u64,
    /// Quads that the database did not have before.
    pub quads_new: u64,
    /// Quads that it does not have any more, where a load replaces graphs.
    pub quads_removed: u64,
    /// Terms that the dictionary did not have before.
    pub terms_new: u64,
    /// The number of the commit that made them visible.
    pub commit: u64,
    /// The most bytes of temporary files at any time.
    pub temp_peak_bytes: u64,
    /// What a lenient load left out; nothing of any other.
    pub skipped: Skipped,
}
