//! Inputs: found, opened, decompressed, and read piece by piece.
//!
//! This is the one place that opens files other than those of databases.
//!
//! # Limits
//! Files are read, not mapped, so that what they take of memory is known.

use std::fs;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

use crate::error::{DataError, Error, Result};
use crate::format::{Compression, GraphFormat};
use crate::limits::FOLDER_DEPTH_MAX;
use crate::load::patient::{self, Halt, Patient};
use crate::load::{Input, Progress};

/// Bytes that are taken from a file at once.
const READ_BYTES: usize = 256 << 10;

/// What the dictionary of an xz stream may take, in KiB: what `xz -9` asks for and twice as much. The
/// size stands in the file, so it must not be believed.
const XZ_MEMORY_KIB: u32 = 129 << 10;

/// One file or stream.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// What messages call it.
    pub(crate) name: String,
    /// As its extension tells.
    pub(crate) format: Option<GraphFormat>,
    /// Its size on disk, if it has one.
    pub(crate) bytes: Option<u64>,
    input: Input,
}

impl Source {
    /// The URL of the file, the base of relative IRIs in it.
    pub(crate) fn url(&self) -> Option<String> {
        let Input::Path(path) = &self.input else {
            return None;
        };
        file_url(&std::path::absolute(path).ok()?)
    }

    /// Opens the source as it is, compressed or not. A stream can be opened once.
    pub(crate) fn open_raw(&self, halt: &Halt) -> io::Result<Box<dyn Read + Send>> {
        match &self.input {
            Input::Path(path) => {
                let metadata = fs::metadata(path)?;
                if metadata.is_dir() {
                    return Err(ErrorKind::IsADirectory.into());
                }
                let path = path.clone();
                #[expect(clippy::disallowed_methods, reason = "the one place for input files")]
                let open = move || fs::File::open(path);
                if metadata.is_file() {
                    return Ok(Box::new(open()?));
                }
                Ok(Box::new(Patient::start(open, halt.clone())?))
            }
            Input::Stdin => {
                let open = || Ok(io::stdin());
                Ok(Box::new(Patient::start(open, halt.clone())?))
            }
            Input::Reader { reader, .. } => reader
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take()
                .ok_or_else(|| io::Error::other("it has been read already")),
        }
    }

    /// Opens the source and reads its first bytes to tell how it is compressed. What is read from
    /// disk is added to `bytes_read`. An input that keeps its reader waiting fails after `halt`.
    pub(crate) fn open(&self, bytes_read: Arc<AtomicU64>, halt: &Halt) -> Result<Stream> {
        let broken = Arc::new(AtomicBool::new(false));
        let opened = self.open_raw(halt).and_then(|inner| {
            let mut raw = RawReader {
                inner,
                bytes_read,
                broken: Arc::clone(&broken),
            };
            let mut start = Vec::new();
            let looked = u64::try_from(Compression::MAGIC_BYTES).unwrap_or(u64::MAX);
            (&mut raw).take(looked).read_to_end(&mut start)?;
            let compression = Compression::from_magic(&start);
            if compression == Compression::None && self.is_stub(&start) {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "it is cut off: its name says that it is compressed, but nothing is in it",
                ));
            }
            let raw = BufReader::with_capacity(READ_BYTES, Cursor::new(start).chain(raw));
            Ok::<(Box<dyn Read + Send>, _), io::Error>(match compression {
                Compression::Gzip => (Box::new(MultiGzDecoder::new(raw)), compression),
                Compression::Zstd => (
                    Box::new(zstd::stream::read::Decoder::with_buffer(raw)?),
                    compression,
                ),
                Compression::Bzip2 => (Box::new(MultiBzDecoder::new(raw)), compression),
                Compression::Xz => (
                    Box::new(XzReader::new_mem_limit(raw, true, XZ_MEMORY_KIB)),
                    compression,
                ),
                Compression::None => (Box::new(raw), compression),
            })
        });
        let (reader, compression) = opened.map_err(|source| self.unreadable(source))?;
        Ok(Stream {
            source: self.clone(),
            reader,
            compression,
            broken,
            ahead: Vec::new(),
            ahead_taken: 0,
        })
    }

    /// Whether the name tells of a compression of which not even the first bytes are there. Plain
    /// text under such a name is read as it is.
    fn is_stub(&self, start: &[u8]) -> bool {
        let (_, named) = Compression::strip_extension(&self.name);
        named != Compression::None && named.magic().starts_with(start)
    }

    pub(crate) fn unreadable(&self, source: io::Error) -> Error {
        if patient::is_ended(&source) {
            return Error::Cancelled;
        }
        Error::Input {
            input: self.name.clone(),
            source,
        }
    }

    /// The error of a sink; where it is about the size of a term, with its place.
    pub(crate) fn refused(&self, line: u64, error: Error) -> Error {
        match error {
            Error::LimitExceeded { .. } => self.damaged(line, 1, error.to_string()),
            other => other,
        }
    }

    pub(crate) fn damaged(&self, line: u64, column: u64, reason: impl Into<String>) -> Error {
        Error::Data(DataError {
            input: self.name.clone(),
            line,
            column,
            reason: reason.into(),
        })
    }
}

/// The `file:` URL of an absolute path.
fn file_url(path: &Path) -> Option<String> {
    use std::fmt::Write as _;
    let path = path.to_str()?;
    let mut url = String::from("file://");
    for b in path.bytes() {
        if b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&b) {
            url.push(char::from(b));
        } else {
            write!(url, "%{b:02X}").expect("writing to a string cannot fail");
        }
    }
    Some(url)
}

/// Counts what is read, and remembers whether the file itself failed rather than its compression.
struct RawReader {
    inner: Box<dyn Read + Send>,
    bytes_read: Arc<AtomicU64>,
    broken: Arc<AtomicBool>,
}

impl Read for RawReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(count) => {
                let bytes = u64::try_from(count).unwrap_or(u64::MAX);
                self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
                Ok(count)
            }
            Err(error) => {
                if error.kind() != ErrorKind::Interrupted {
                    self.broken.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }
}

/// An open source, decompressed.
pub(crate) struct Stream {
    pub(crate) source: Source,
    reader: Box<dyn Read + Send>,
    compression: Compression,
    broken: Arc<AtomicBool>,
    /// Bytes that were looked at, and how many of them have been taken.
    ahead: Vec<u8>,
    ahead_taken: usize,
}

impl Stream {
    /// Bytes in memory.
    pub(crate) fn from_bytes(name: &str, bytes: &[u8]) -> Self {
        let input = Input::from_bytes(name, Vec::new());
        Self {
            source: Source {
                name: name.to_owned(),
                format: None,
                bytes: None,
                input,
            },
            reader: Box::new(Cursor::new(bytes.to_vec())),
            compression: Compression::None,
            broken: Arc::default(),
            ahead: Vec::new(),
            ahead_taken: 0,
        }
    }

    /// Up to `bytes` from the start of the text, and whether that is all of it.
    pub(crate) fn look_ahead(&mut self, bytes: usize) -> io::Result<(&[u8], bool)> {
        self.ahead.drain(..self.ahead_taken);
        self.ahead_taken = 0;
        while self.ahead.len() < bytes {
            let missing = bytes - self.ahead.len();
            let mut ahead = std::mem::take(&mut self.ahead);
            let read = self.read_from_reader(missing, &mut ahead);
            self.ahead = ahead;
            if read? == 0 {
                return Ok((&self.ahead, true));
            }
        }
        Ok((&self.ahead, false))
    }

    /// Appends at most `bytes` to `out`; 0 at the end.
    pub(crate) fn read(&mut self, bytes: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        let ahead = self.ahead.get(self.ahead_taken..).unwrap_or(&[]);
        if ahead.is_empty() {
            return self.read_from_reader(bytes, out);
        }
        let count = bytes.min(ahead.len());
        out.extend(ahead.get(..count).unwrap_or(ahead));
        self.skip(count);
        Ok(count)
    }

    /// Leaves out the next `bytes`, which have been looked at.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.ahead_taken = self.ahead.len().min(self.ahead_taken + bytes);
        if self.ahead_taken == self.ahead.len() {
            self.ahead = Vec::new();
            self.ahead_taken = 0;
        }
    }

    /// Gives back what was read last, to be read again.
    pub(crate) fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.extend(self.ahead.drain(self.ahead_taken..));
        self.ahead = bytes;
        self.ahead_taken = 0;
    }

    /// Makes line feeds of all ends of lines, as parsers of XML must (section 2.11 of XML 1.0).
    pub(crate) fn normalize_line_ends(&mut self) {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.drain(..std::mem::take(&mut self.ahead_taken));
        let ahead = Cursor::new(ahead);
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(LineEnds {
            inner: ahead.chain(rest),
            after_return: false,
        });
    }

    fn read_from_reader(&mut self, bytes: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        let limit = u64::try_from(bytes).unwrap_or(u64::MAX);
        let before = out.len();
        // What was read before an error stays in `out`.
        self.reader.by_ref().take(limit).read_to_end(out)?;
        Ok(out.len() - before)
    }

    /// What an error while reading means at this place of the text.
    pub(crate) fn failed(&self, error: io::Error, line: u64, column: u64) -> Error {
        if self.broken.load(Ordering::Relaxed) || self.compression == Compression::None {
            return self.source.unreadable(error);
        }
        let name = self.compression.name();
        let reason = if error.kind() == ErrorKind::UnexpectedEof {
            format!("the {name} data is cut off")
        } else {
            format!("the {name} data is damaged: {error}")
        };
        self.source.damaged(line, column, reason)
    }
}

/// Hands on `\r\n` and `\r` as `\n`.
struct LineEnds<R> {
    inner: R,
    after_return: bool,
}

impl<R: Read> Read for LineEnds<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.inner.read(buffer)?;
            let mut kept = 0;
            for at in 0..count {
                let byte = buffer.get(at).copied().unwrap_or(0);
                let is_second = byte == b'\n' && self.after_return;
                self.after_return = byte == b'\r';
                if !is_second && let Some(place) = buffer.get_mut(kept) {
                    *place = if byte == b'\r' { b'\n' } else { byte };
                    kept += 1;
                }
            }
            // Nothing but the second half of an end of line is no end of the text.
            if kept > 0 || count == 0 {
                return Ok(kept);
            }
        }
    }
}

/// The files that the inputs stand for; folders are searched for files with a known extension.
///
/// # Errors
/// If an input does not exist or cannot be read, so that it is known before anything is loaded.
pub(crate) fn expand(inputs: &[Input], progress: &dyn Progress) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for input in inputs {
        match input {
            Input::Path(path) => expand_path(path, progress, &mut sources)?,
            Input::Stdin if sources.iter().any(|it| matches!(it.input, Input::Stdin)) => {
                return Err(Error::InvalidOption {
                    option: "-",
                    reason: "standard input can be read only once".to_owned(),
                });
            }
            Input::Stdin => sources.push(Source {
                name: "standard input".to_owned(),
                format: None,
                bytes: None,
                input: input.clone(),
            }),
            Input::Reader { name, .. } => sources.push(Source {
                name: name.clone(),
                format: GraphFormat::from_file_name(name),
                bytes: None,
                input: input.clone(),
            }),
        }
    }
    Ok(sources)
}

fn expand_path(path: &Path, progress: &dyn Progress, sources: &mut Vec<Source>) -> Result<()> {
    let unreadable = |source| Error::Input {
        input: path.display().to_string(),
        source,
    };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_dir() {
        let source = source_of(path, &metadata);
        // Whether it may be read is asked now; not of pipes, which can be opened once only.
        if metadata.is_file() {
            source.open_raw(&Halt::default()).map_err(unreadable)?;
        }
        sources.push(source);
        return Ok(());
    }
    let before = sources.len();
    let mut skipped = Vec::new();
    let mut within = Vec::new();
    expand_folder(path, &mut within, &mut skipped, sources)?;
    for skipped in &skipped {
        progress.note(&format!("skipped {}", skipped.display()));
    }
    if sources.len() == before {
        return Err(unreadable(io::Error::new(
            ErrorKind::NotFound,
            "the folder has no file with a known extension (.nt .nq .ttl .trig .rdf .jsonld, also with .gz, .zst, .bz2 or .xz)",
        )));
    }
    Ok(())
}

/// Adds the files of a folder and of those in it; `within` are the real paths of the folders that it
/// lies in, so that a link to one of them is skipped.
fn expand_folder(
    folder: &Path,
    within: &mut Vec<PathBuf>,
    skipped: &mut Vec<PathBuf>,
    sources: &mut Vec<Source>,
) -> Result<()> {
    let unreadable = |path: &Path| {
        let input = path.display().to_string();
        move |source| Error::Input { input, source }
    };
    if within.len() > FOLDER_DEPTH_MAX {
        return Err(Error::LimitExceeded {
            what: "the depth of folders",
            limit: u64::try_from(FOLDER_DEPTH_MAX).unwrap_or(u64::MAX),
        });
    }
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|e| e.path()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map_err(unreadable(folder))?;
    paths.sort();
    within.push(folder.canonicalize().map_err(unreadable(folder))?);
    for path in paths {
        // What systems and editors hide in folders is not meant.
        if is_hidden(&path) {
            skipped.push(path);
            continue;
        }
        let metadata = fs::metadata(&path).map_err(unreadable(&path))?;
        if metadata.is_dir() {
            let is_loop = path
                .canonicalize()
                .is_ok_and(|target| within.contains(&target));
            if is_loop {
                skipped.push(path);
            } else {
                expand_folder(&path, within, skipped, sources)?;
            }
            continue;
        }
        let source = source_of(&path, &metadata);
        if metadata.is_file() && source.format.is_some() {
            source
                .open_raw(&Halt::default())
                .map_err(unreadable(&path))?;
            sources.push(source);
        } else {
            skipped.push(path);
        }
    }
    within.pop();
    Ok(())
}

/// Whether the name of a file or folder begins with a dot.
fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn source_of(path: &Path, metadata: &fs::Metadata) -> Source {
    Source {
        name: path.display().to_string(),
        format: path
            .file_name()
            .and_then(|name| GraphFormat::from_file_name(&name.to_string_lossy())),
        bytes: metadata.is_file().then_some(metadata.len()),
        input: Input::Path(path.to_owned()),
    }
}

#[cfg(test)]
mod tests;
