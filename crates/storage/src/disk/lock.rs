//! The lock of a directory on the real disk: `flock` on a file that also says who holds it.
//!
//! The text in the file is what the last holder wrote. Several processes can share the lock, and a
//! reader may have ended since, so that the living holders are looked up in `/proc/locks` first.

use super::{Access, Lock, LockError};
use crate::format::LOCK_FILE;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

struct FileLock {
    /// Closing the file releases the lock.
    _file: fs::File,
}

impl Lock for FileLock {}

/// Takes the lock of `directory`, or says who holds it.
pub(super) fn lock(
    directory: &Path,
    access: Access,
    holder: &str,
) -> Result<Box<dyn Lock>, LockError> {
    let path = directory.join(LOCK_FILE);
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    let (mut file, writable) = match (opened, access) {
        (Ok(file), _) => (file, true),
        // Readers may open a database that they are not allowed to write.
        (Err(_), Access::Shared) => (fs::OpenOptions::new().read(true).open(&path)?, false),
        (Err(error), Access::Exclusive) => return Err(error.into()),
    };
    let operation = match access {
        Access::Shared => FlockOperation::NonBlockingLockShared,
        Access::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(&file, operation) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let holders = living_holders(&file);
            let holder = if holders.is_empty() {
                written_holder(&mut file)
            } else {
                holders.join(", ")
            };
            return Err(LockError::Held(holder));
        }
        Err(error) => return Err(io::Error::from(error).into()),
    }
    if writable {
        let text = format!("{} {holder}\n", std::process::id());
        // The text only serves messages: a full disk must not keep readers out.
        drop(
            file.set_len(0)
                .and_then(|()| file.write_all_at(text.as_bytes(), 0)),
        );
    }
    Ok(Box::new(FileLock { _file: file }))
}

/// What the last holder wrote, `PID COMMAND`.
fn written_holder(file: &mut fs::File) -> String {
    let mut text = Vec::new();
    // A bounded read: somebody may have put anything into the file.
    let read = file.take(4096).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    match (read, line.split_once(' ')) {
        (Ok(_), Some((pid, command))) => format!("process {pid} ({command})"),
        _ => "another process".to_owned(),
    }
}

/// The processes that hold a `flock` on `file` now, where the kernel tells.
fn living_holders(file: &fs::File) -> Vec<String> {
    let (Ok(metadata), Ok(locks)) = (file.metadata(), fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    let inode = metadata.ino().to_string();
    let mut holders = Vec::new();
    for line in locks.lines() {
        // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:131075 0 EOF
        let mut fields = line.split_whitespace().skip(1);
        let kind = fields.next();
        let (pid, place) = (fields.nth(2), fields.next());
        let (Some("FLOCK"), Some(pid), Some(place)) = (kind, pid, place) else {
            continue;
        };
        if place.rsplit(':').next() == Some(inode.as_str()) && !pid.starts_with('-') {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let holder = format!("process {pid} ({})", command.trim_end());
            if !command.is_empty() && !holders.contains(&holder) {
                holders.push(holder);
            }
        }
    }
    holders
}
