//! Log files outside of their database: copied for one on another timeline, with the same records at the same positions
//! under its mark, and checked.

use super::Lsn;
use super::file::{Found, LogFile, encode_headers, judged, path};
use super::fragment::{Fragment, identity_mark};
use super::recovery::{find_files, missing};
use super::scan::{Cursor, Scan, Step};
use crate::bytes::len_u64;
use crate::disk::{Access, Disk, OpenMode};
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, Page};
use crate::format::{
    FRAGMENT_HEADER_BYTES, LOG_CONTENT_OFFSET, LOG_FILE_PREFIX, PAGE_LENGTH, kept_log_file_name,
};
use crate::limits::LOG_WINDOW_BYTES;
use crate::store::Identity;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whose log it is, and whose it becomes.
pub(crate) struct Relabelled {
    pub(crate) from: Identity,
    pub(crate) to: Identity,
}

impl Relabelled {
    /// Copies the files of `source` that hold records between the positions `begin` and `end`, of which the last one ends a
    /// record, and makes them durable; their names are the caller's to make durable.
    pub(crate) fn copy(
        &self,
        source: &Arc<dyn Disk>,
        (begin, end): (Lsn, Lsn),
        target: &dyn Disk,
        cancel: &AtomicBool,
    ) -> Result<()> {
        let found = find_files(source.as_ref(), &self.from, Access::Shared, begin.to_u64())?;
        let files: Vec<Arc<LogFile>> = found.headed.into_iter().map(Arc::new).collect();
        if files.first().is_none_or(|file| file.start > begin.to_u64()) {
            return Err(missing(files.first(), begin.to_u64()));
        }
        for (index, file) in files.iter().enumerate() {
            let next = files.get(index + 1).map_or(u64::MAX, |next| next.start);
            let end = end.to_u64().min(next);
            if file.start >= end && index > 0 {
                break;
            }
            self.copy_file(source, file, end, target, cancel)?;
        }
        Ok(())
    }

    /// Copies the fragments of a file before a position.
    fn copy_file(
        &self,
        source: &Arc<dyn Disk>,
        file: &Arc<LogFile>,
        end: u64,
        target: &dyn Disk,
        cancel: &AtomicBool,
    ) -> Result<()> {
        let name = file.name();
        let failed = |operation, bytes: usize, error| {
            Error::io(path(target, &name), operation, bytes as u64, error)
        };
        let copy = target
            .open(&name, OpenMode::Create)
            .map_err(|error| failed("create", 0, error))?;
        let write = |bytes: &[u8], at| {
            copy.write_at(bytes, at)
                .map_err(|error| failed("write", bytes.len(), error))
        };
        write(&encode_headers(&self.to, file.number, file.start), 0)?;
        let mark = identity_mark(&self.to);
        let (mut bytes, mut at) = (Vec::new(), LOG_CONTENT_OFFSET);
        let old = identity_mark(&self.from);
        each_fragment(source, file, &name, (old, end), &mut |fragment, payload| {
            let relabelled = Fragment {
                identity: mark,
                ..fragment
            };
            relabelled.encode(payload, &mut bytes);
            if bytes.len() >= LOG_WINDOW_BYTES {
                if cancel.load(Ordering::Relaxed) {
                    return Err(Error::Cancelled);
                }
                write(&bytes, at)?;
                at += len_u64(&bytes);
                bytes.clear();
            }
            Ok(())
        })?;
        write(&bytes, at)?;
        copy.sync().map_err(|error| failed("sync", 0, error))
    }
}

/// Checks every record of a kept log file, which ends with one; returns its length in bytes.
///
/// # Errors
/// [`Error::Corruption`] if a byte is not what was written.
pub(crate) fn check_kept_log(disk: &Arc<dyn Disk>, name: &str) -> Result<u64> {
    let failed = |error| Error::io(path(disk.as_ref(), name), "read", 0, error);
    let file = disk.open(name, OpenMode::Read).map_err(failed)?;
    let length = file.len().map_err(failed)?;
    let mut page: Page = [0; PAGE_LENGTH];
    file.read_at(&mut page, 0).map_err(failed)?;
    let header = FileHeader::decode(&page, name)?;
    let identity = Identity {
        timeline: header.timeline,
        generation: header.generation,
        ..Identity::new(header.database_id)
    };
    let own = kept_log_file_name(identity.timeline, identity.generation, header.number);
    let not_own = |expected: String| {
        let found = format!("the headers of {own}");
        Err(Error::corruption(
            name,
            0,
            LOG_CONTENT_OFFSET,
            expected,
            found,
        ))
    };
    if !name.starts_with(LOG_FILE_PREFIX) || own != name {
        return not_own("those of its name".to_owned());
    }
    let Found::Headed(opened) = judged(disk.as_ref(), file, &identity, header.number, name)? else {
        return not_own("two headers".to_owned());
    };
    let end = opened.start + length.saturating_sub(LOG_CONTENT_OFFSET);
    let mark = identity_mark(&identity);
    each_fragment(disk, &Arc::new(opened), name, (mark, end), &mut |_, _| {
        Ok(())
    })?;
    Ok(length)
}

/// Hands on the fragments of a file with their payloads, all of which up to a position are there.
fn each_fragment(
    disk: &Arc<dyn Disk>,
    file: &Arc<LogFile>,
    name: &str,
    (mark, end): (u64, u64),
    take: &mut dyn FnMut(Fragment, &[u8]) -> Result<()>,
) -> Result<()> {
    let cursor = Cursor {
        index: 0,
        position: file.start,
    };
    let mut scan = Scan::new(Arc::clone(disk), vec![Arc::clone(file)], mark, cursor, 0);
    while scan.cursor.position < end {
        match scan.step()? {
            Step::Fragment(fragment) => take(fragment, scan.payload())?,
            Step::Bad(bad) => {
                let length = FRAGMENT_HEADER_BYTES as u64;
                let (expected, found) = (bad.mismatch.expected, bad.mismatch.found);
                return Err(Error::corruption(name, bad.offset, length, expected, found));
            }
        }
    }
    Ok(())
}
