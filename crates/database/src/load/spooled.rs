//! `Spooled`: a document in a temporary file, from which it is read.
//!
//! # Limits
//! Memory: a piece of [`PIECE_BYTES`]. Temporary files take at most half of what would be free on their disk.

use std::io::{self, Read};
use std::sync::Arc;

use stoa_storage::{TempFile, TempSpace};

use crate::error::{Error, Result};

/// So much is written and read at once, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// After so many bytes the free space is looked at, and before the first one.
const LOOK_BYTES: u64 = 64 << 20;

/// See the module header.
pub(crate) struct Spooled {
    file: Arc<TempFile>,
    at: u64,
}

impl Spooled {
    /// Writes everything that `reader` gives into a file in `space`. `name` is what messages call it.
    ///
    /// # Errors
    /// `Input` if the reader fails; `TemporarySpace`, `DiskFull`, and what else the disk gives.
    pub(crate) fn write(space: &TempSpace, name: &str, reader: &mut impl Read) -> Result<Self> {
        let mut file = space.file()?;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        loop {
            if file.len().is_multiple_of(LOOK_BYTES) && !space.leaves_room()? {
                return Err(Error::TemporarySpace {
                    spilled_bytes: space.bytes(),
                });
            }
            piece.clear();
            let limit = PIECE_BYTES as u64;
            let read = reader.by_ref().take(limit).read_to_end(&mut piece);
            let read = read.map_err(|source| Error::Input {
                input: name.to_owned(),
                source,
            })?;
            if read == 0 {
                return Ok(Self {
                    file: Arc::new(file),
                    at: 0,
                });
            }
            file.append(&piece)?;
        }
    }

    /// The same document from its beginning.
    pub(crate) fn again(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            at: 0,
        }
    }
}

impl Read for Spooled {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.file.len() - self.at;
        let length = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let out = out.get_mut(..length).unwrap_or_default();
        if !out.is_empty() {
            let read = self.file.read_at(out, self.at);
            read.map_err(io::Error::other)?;
            self.at += length as u64;
        }
        Ok(length)
    }
}
