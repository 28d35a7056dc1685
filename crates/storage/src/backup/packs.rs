//! The files with extents in a directory of backups.

use super::manifest::{Entry, failed};
use crate::bytes::to_usize;
use crate::disk::{Disk, File, OpenMode};
use crate::error::{Error, Result};
use crate::file_header::FileHeader;
use crate::format::{KIND_EXTENTS, PAGE_BYTES, PAGE_LENGTH, extents_file_name};
use crate::store::Identity;
use hashbrown::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

/// Reads extents, of files that are opened when they are needed.
pub(super) struct Packs<'a> {
    disk: &'a dyn Disk,
    /// Whose they are.
    identity: Identity,
    files: HashMap<u32, Arc<dyn File>, rapidhash::fast::RandomState>,
}

impl<'a> Packs<'a> {
    pub(super) fn new(disk: &'a dyn Disk, identity: Identity) -> Self {
        Self {
            disk,
            identity,
            files: HashMap::default(),
        }
    }

    /// Reads an extent and compares it with its hash.
    pub(super) fn read(&mut self, entry: &Entry, bytes: &mut Vec<u8>) -> Result<()> {
        let name = extents_file_name(entry.file);
        let failed = |error| failed(self.disk, &name, "read", 0, error);
        let file = match self.files.get(&entry.file) {
            Some(file) => Arc::clone(file),
            None => {
                let file = self.disk.open(&name, OpenMode::Read).map_err(failed)?;
                let mut page = [0; PAGE_LENGTH];
                file.read_at(&mut page, 0).map_err(failed)?;
                let header = FileHeader::decode(&page, &name)?;
                let expected = FileHeader::new(&self.identity, KIND_EXTENTS, entry.file);
                header.check_belongs(&expected, &name)?;
                self.files.insert(entry.file, Arc::clone(&file));
                file
            }
        };
        let offset = entry.page.saturating_mul(PAGE_BYTES);
        let length = file.len().map_err(failed)?;
        if offset.saturating_add(entry.bytes()) > length {
            return Err(damaged(entry, "an extent", "the end of the file"));
        }
        bytes.clear();
        bytes.resize(to_usize(entry.bytes()), 0);
        file.read_at(bytes, offset).map_err(failed)?;
        let hash = xxh3_128(bytes);
        if hash != entry.hash {
            let expected = format!("an extent with hash {:032x}", entry.hash);
            return Err(damaged(entry, &expected, &format!("hash {hash:032x}")));
        }
        Ok(())
    }
}

/// An error at the place of an extent.
pub(super) fn damaged(entry: &Entry, expected: &str, found: &str) -> Error {
    let offset = entry.page.saturating_mul(PAGE_BYTES);
    let name = extents_file_name(entry.file);
    Error::corruption(name, offset, entry.bytes(), expected, found)
}
