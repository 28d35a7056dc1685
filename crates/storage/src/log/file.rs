//! One log file: its name, its two header pages, and where its fragments stand.
//!
//! A file is *headed* if both header pages say that it is the file of its name. A file whose headers
//! are zero, missing or of a lower number was made or renamed but not yet taken into use when the
//! process or the machine stopped: nothing in it was acknowledged.
//!
//! # Format
//! docs/format.md#log-files

use super::fragment::identity_mark;
use crate::bytes::{Decoder, put, to_usize};
use crate::disk::{Disk, File, OpenMode};
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, Page};
use crate::format::{
    KIND_LOG, LOG_CONTENT_OFFSET, LOG_FILE_PREFIX, LOG_HEADER_CRC, LOG_HEADER_END,
    LOG_HEADER_IDENTITY, LOG_HEADER_NUMBER, LOG_HEADER_OFFSET, LOG_HEADER_START, PAGE_BYTES,
    PAGE_LENGTH, log_file_name,
};
use crate::limits::LOG_POSITION_MAX;
use crate::nonblocking;
use crate::store::Identity;
use std::sync::Arc;

/// The two header pages.
pub(super) type Headers = [u8; 2 * PAGE_LENGTH];

/// An open log file.
pub(super) struct LogFile {
    pub(super) number: u32,
    /// The position of the first fragment.
    pub(super) start: u64,
    pub(super) file: Arc<dyn File>,
}

/// What a file of the directory is.
pub(super) enum Found {
    Headed(LogFile),
    Unheaded(u32, Arc<dyn File>),
}

impl LogFile {
    pub(super) fn name(&self) -> String {
        log_file_name(self.number)
    }

    /// Where a position stands in the file.
    pub(super) fn offset(&self, position: u64) -> u64 {
        LOG_CONTENT_OFFSET + position.saturating_sub(self.start)
    }

    /// Fills `buffer` as far as the file reaches.
    pub(super) fn read(&self, disk: &dyn Disk, buffer: &mut [u8], offset: u64) -> Result<usize> {
        read(disk, self.file.as_ref(), &self.name(), buffer, offset)
    }
}

/// Reads from a log file that need not be headed.
pub(super) fn read(
    disk: &dyn Disk,
    file: &dyn File,
    name: &str,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize> {
    nonblocking::check()?;
    file.read_at(buffer, offset)
        .map_err(|error| Error::io(path(disk, name), "read", 0, error))
}

/// The name of a file in messages about the operating system.
pub(super) fn path(disk: &dyn Disk, name: &str) -> String {
    format!("{}/{name}", disk.location())
}

/// The number that a file name tells; `None` if it is not the name of a log file.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let number: u32 = name.strip_prefix(LOG_FILE_PREFIX)?.parse().ok()?;
    (log_file_name(number) == name).then_some(number)
}

/// The header pages of a log file.
pub(super) fn encode_headers(identity: &Identity, number: u32, start: u64) -> Headers {
    let mut headers = [0; 2 * PAGE_LENGTH];
    let header = FileHeader::new(identity, KIND_LOG, number);
    put(&mut headers, 0, &header.encode());
    let mut fields = [0; LOG_HEADER_END];
    put(&mut fields, LOG_HEADER_NUMBER, &number.to_le_bytes());
    put(&mut fields, LOG_HEADER_START, &start.to_le_bytes());
    let mark = identity_mark(identity);
    put(&mut fields, LOG_HEADER_IDENTITY, &mark.to_le_bytes());
    let crc = header_crc(&fields);
    put(&mut fields, LOG_HEADER_CRC, &crc.to_le_bytes());
    put(&mut headers, to_usize(LOG_HEADER_OFFSET), &fields);
    headers
}

fn header_crc(fields: &[u8]) -> u32 {
    crate::crc32c(fields.get(LOG_HEADER_NUMBER..).unwrap_or_default())
}

/// Opens a log file and judges its headers.
///
/// [`Error::ForeignLog`] if they are another database's, [`Error::Corruption`] if nobody's.
pub(super) fn open(
    disk: &dyn Disk,
    identity: &Identity,
    number: u32,
    mode: OpenMode,
) -> Result<Found> {
    let name = log_file_name(number);
    let file = disk
        .open(&name, mode)
        .map_err(|error| Error::io(path(disk, &name), "open", 0, error))?;
    judged(disk, file, identity, number, &name)
}

/// Judges the headers of a log file, whatever it is called.
///
/// [`Error::ForeignLog`] if they are another database's, [`Error::Corruption`] if nobody's.
pub(super) fn judged(
    disk: &dyn Disk,
    file: Arc<dyn File>,
    identity: &Identity,
    number: u32,
    name: &str,
) -> Result<Found> {
    let mut headers: Headers = [0; 2 * PAGE_LENGTH];
    // What the file does not reach stays zero.
    read(disk, file.as_ref(), name, &mut headers, 0)?;
    Ok(match judge_headers(&headers, identity, number, name)? {
        Some(start) => Found::Headed(LogFile {
            number,
            start,
            file,
        }),
        None => Found::Unheaded(number, file),
    })
}

/// The position of the first fragment; `None` if the file is not headed.
pub(super) fn judge_headers(
    headers: &Headers,
    identity: &Identity,
    number: u32,
    name: &str,
) -> Result<Option<u64>> {
    let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let (page, second) = headers
        .split_first_chunk::<PAGE_LENGTH>()
        .expect("there are two pages");
    if zeros(page) {
        return Ok(None);
    }
    let recycled = !check_page(page, identity, number, name)?;
    if recycled || zeros(second) {
        return Ok(None);
    }
    let corruption = |expected: String, found: String| {
        Error::corruption(name, LOG_HEADER_OFFSET, PAGE_BYTES, expected, found)
    };
    let fields = second.get(..LOG_HEADER_END).unwrap_or_default();
    let mut decoder = Decoder::new(fields);
    let decoded = (|| {
        Some((
            decoder.u32()?,
            decoder.u32()?,
            decoder.u64()?,
            decoder.u64()?,
        ))
    })();
    let (crc, found_number, start, mark) = decoded.expect("the page is longer than its fields");
    let found = header_crc(fields);
    if crc != found || !zeros(second.get(LOG_HEADER_END..).unwrap_or_default()) {
        return Err(corruption(
            format!("a log header with crc32c {crc:08x}"),
            format!("crc32c {found:08x}, or bytes behind it"),
        ));
    }
    if found_number < number {
        return Ok(None);
    }
    let is_position = start % 8 == 0 && start <= LOG_POSITION_MAX;
    if found_number != number || mark != identity_mark(identity) || !is_position {
        return Err(corruption(
            format!("the log header of file {number} of this database"),
            format!("that of file {found_number}, from position {start}"),
        ));
    }
    Ok(Some(start))
}

/// Checks the first page; `false` if it is that of a lower number.
fn check_page(page: &Page, identity: &Identity, number: u32, name: &str) -> Result<bool> {
    let header = FileHeader::decode(page, name)?;
    let whose = |database: u128, timeline: u64, generation: u64| {
        format!("database {database:032x}, timeline {timeline}, generation {generation}")
    };
    let expected = whose(identity.database_id, identity.timeline, identity.generation);
    let found = whose(header.database_id, header.timeline, header.generation);
    if expected != found {
        return Err(Error::ForeignLog {
            file: name.to_owned(),
            expected,
            found,
        });
    }
    if header.number < number && header.kind == KIND_LOG {
        return Ok(false);
    }
    header.check_belongs(&FileHeader::new(identity, KIND_LOG, number), name)?;
    Ok(true)
}
