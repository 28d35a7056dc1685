//! Writing the files of a database from a backup.

use super::manifest::{EarlierRoot, Entry, Manifest, failed};
use super::packs::{Packs, damaged};
use super::restore::{Backups, RestoreLog};
use crate::bytes::{len_u64, put, to_usize};
use crate::disk::{Disk, File, OpenMode};
use crate::error::{Error, Result};
use crate::extent::{ExtentId, PartRef};
use crate::file_header::FileHeader;
use crate::format::{
    KIND_DATA, KIND_ROOT, PAGE_BYTES, RESTORING_FILE, ROOT_FILE_BYTES, data_file_name,
};
use crate::free_list;
use crate::free_space::{FreeSpace, PageRange};
use crate::history::{Retained, encode_directory, encode_root, joined};
use crate::log::{Lsn, Relabelled};
use crate::root_slot::{RootRecord, slot_of, slot_offset};
use crate::store::Identity;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A database that is written from a backup.
pub(super) struct Rebuild<'a> {
    pub(super) source: &'a Backups,
    pub(super) target: &'a Arc<dyn Disk>,
    pub(super) cancel: &'a AtomicBool,
    pub(super) progress: &'a dyn Fn(u64, u64),
}

impl Rebuild<'_> {
    /// Writes everything; the root comes last, under a name that does not count.
    pub(super) fn write(
        &self,
        mut manifest: Manifest,
        timeline: u64,
        log: Option<(&RestoreLog, Lsn)>,
    ) -> Result<()> {
        // First of all: where it is, the rest is known to be ours.
        let marker = self.create(RESTORING_FILE)?;
        self.sync_directory()?;
        let old = manifest.root.identity;
        manifest.root.identity.timeline = timeline;
        match log {
            Some((log, end)) => {
                let relabelled = Relabelled {
                    from: old,
                    to: manifest.root.identity,
                };
                let places = (log.begin, end);
                relabelled.copy(&log.files, places, self.target.as_ref(), self.cancel)?;
            }
            None => manifest.without_log()?,
        }
        let files = self.data_files(&manifest.root.identity)?;
        self.copy(&manifest.entries, &files, &old)?;
        let root = self.settle(manifest, &files)?;
        for (number, file) in (0..).zip(&files) {
            let name = data_file_name(number);
            file.sync()
                .map_err(|error| failed(self.target.as_ref(), &name, "sync", 0, error))?;
        }
        let mut bytes = vec![0; to_usize(ROOT_FILE_BYTES)];
        let header = FileHeader::new(&root.identity, KIND_ROOT, 0);
        put(&mut bytes, 0, &header.encode());
        let slot = to_usize(slot_offset(slot_of(root.checkpoint)));
        put(&mut bytes, slot, &root.encode());
        self.write_at(RESTORING_FILE, marker.as_ref(), &bytes, 0)?;
        marker
            .sync()
            .map_err(|error| failed(self.target.as_ref(), RESTORING_FILE, "sync", 0, error))?;
        self.sync_directory()
    }

    /// Makes the data files, with their headers.
    fn data_files(&self, identity: &Identity) -> Result<Vec<Arc<dyn File>>> {
        let files = (0..identity.data_files).map(|number| {
            let name = data_file_name(number);
            let file = self.create(&name)?;
            let header = FileHeader::new(identity, KIND_DATA, number.into());
            self.write_at(&name, file.as_ref(), &header.encode(), 0)?;
            Ok(file)
        });
        files.collect()
    }

    /// Copies all extents to their places.
    fn copy(&self, entries: &[Entry], files: &[Arc<dyn File>], identity: &Identity) -> Result<()> {
        let total = entries.iter().map(Entry::bytes).sum();
        let mut done = 0;
        let mut packs = Packs::new(self.source.disk.as_ref(), *identity);
        let mut bytes = Vec::new();
        for entry in entries {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            packs.read(entry, &mut bytes)?;
            let number = entry.extent.file();
            let file = files
                .get(usize::from(number))
                .ok_or_else(|| damaged(entry, "an extent of a data file", "one of no data file"))?;
            let name = data_file_name(number);
            self.write_at(&name, file.as_ref(), &bytes, entry.extent.byte_offset())?;
            done += entry.bytes();
            (self.progress)(done, total);
        }
        Ok(())
    }

    /// Writes the earlier roots, their directory, and the list of what nothing uses; gives the root that names them.
    fn settle(&self, manifest: Manifest, files: &[Arc<dyn File>]) -> Result<RootRecord> {
        let Manifest {
            mut root,
            earlier,
            entries,
            ..
        } = manifest;
        let (ends, gaps) = gaps(&entries, files.len());
        let mut free = FreeSpace::with_ends(ends);
        for gap in gaps {
            let inserted = free.insert(gap);
            inserted.map_err(|gap| {
                let at = PartRef {
                    extent: gap.first,
                    ..PartRef::NONE
                };
                at.corruption("extents that do not overlap", "others")
            })?;
        }
        let mut retained = Vec::with_capacity(earlier.len());
        for (number, EarlierRoot { root, payload }) in (0..).zip(earlier) {
            let ranges = carried(&entries, number);
            let part = self.allocate(&mut free, files, &encode_root(&ranges, &payload))?;
            retained.push(Retained {
                root,
                pages: ranges.iter().map(|range| range.pages).sum(),
                part,
                pin: Arc::new(()),
            });
        }
        root.history = match retained.is_empty() {
            true => PartRef::NONE,
            false => self.allocate(&mut free, files, &encode_directory(&retained))?,
        };
        root.free_list = PartRef::NONE;
        if free.range_count() > 0 {
            let pages = free_list::pages_for(free.range_count());
            let extent = free.allocate(pages);
            let list = free_list::encode(&free, pages);
            root.free_list = self.write_part(extent, files, &list)?;
        }
        root.free_pages = free.free_pages();
        root.file_ends = free.ends().to_vec();
        Ok(root)
    }

    /// Writes a part into an extent of its own.
    fn allocate(
        &self,
        free: &mut FreeSpace,
        files: &[Arc<dyn File>],
        bytes: &[u8],
    ) -> Result<PartRef> {
        let pages = len_u64(bytes).div_ceil(PAGE_BYTES).max(1);
        self.write_part(free.allocate(pages), files, bytes)
    }

    fn write_part(
        &self,
        extent: ExtentId,
        files: &[Arc<dyn File>],
        bytes: &[u8],
    ) -> Result<PartRef> {
        let name = data_file_name(extent.file());
        let file = files.get(usize::from(extent.file()));
        let file = file.expect("allocated in one of the files");
        self.write_at(&name, file.as_ref(), bytes, extent.byte_offset())?;
        // A data file ends with a page.
        let rest = vec![0; to_usize(len_u64(bytes).next_multiple_of(PAGE_BYTES) - len_u64(bytes))];
        let behind = extent.byte_offset() + len_u64(bytes);
        self.write_at(&name, file.as_ref(), &rest, behind)?;
        Ok(PartRef::of(extent, 0, bytes))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.target
            .open(name, OpenMode::Create)
            .map_err(|error| failed(self.target.as_ref(), name, "create", 0, error))
    }

    fn write_at(&self, name: &str, file: &dyn File, bytes: &[u8], offset: u64) -> Result<()> {
        file.write_at(bytes, offset)
            .map_err(|error| failed(self.target.as_ref(), name, "write", len_u64(bytes), error))
    }

    fn sync_directory(&self) -> Result<()> {
        self.target
            .sync_directory()
            .map_err(|error| Error::io(self.target.location(), "sync", 0, error))
    }
}

/// The ends of the files, in pages, and the pages between their extents.
fn gaps(entries: &[Entry], files: usize) -> (Vec<u64>, Vec<PageRange>) {
    let mut ends = vec![1; files];
    let mut gaps = Vec::new();
    for entry in entries {
        let number = entry.extent.file();
        let Some(end) = ends.get_mut(usize::from(number)) else {
            continue;
        };
        let page = entry.extent.page();
        if page > *end {
            gaps.push(PageRange {
                first: ExtentId::new(number, *end),
                pages: page - *end,
            });
        }
        *end = (*end).max(page + u64::from(entry.pages));
    }
    (ends, gaps)
}

/// The pages of the extents that an earlier root is the last to use.
fn carried(entries: &[Entry], number: u32) -> Vec<PageRange> {
    let last = entries.iter().filter(|entry| entry.roots.1 == number);
    let ranges = last.map(|entry| PageRange {
        first: entry.extent,
        pages: entry.pages.into(),
    });
    joined(&ranges.collect::<Vec<_>>())
}
