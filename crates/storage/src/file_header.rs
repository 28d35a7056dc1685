//! The first page of every file: what it is and to which database it belongs.
//!
//! The layout of this page is the same in every version of the format, so that a version can refuse
//! what others wrote.
//!
//! # Format
//! docs/format.md#file-header

use crate::bytes::{Decoder, put};
use crate::error::{Error, Result};
use crate::format::{
    FEATURES_KNOWN, FEATURES_REQUIRED_MASK, FORMAT_VERSION, HEADER_CRC, HEADER_DATABASE_ID,
    HEADER_FEATURES, HEADER_FILE_NUMBER, HEADER_GENERATION, HEADER_KIND, HEADER_MAGIC,
    HEADER_TIMELINE, HEADER_VERSION, MAGIC, PAGE_BYTES, PAGE_LENGTH,
};
use crate::store::Identity;

/// A page in memory.
pub(crate) type Page = [u8; PAGE_LENGTH];

/// What the header page of a file says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileHeader {
    pub(crate) version: u32,
    pub(crate) kind: u32,
    pub(crate) number: u32,
    pub(crate) database_id: u128,
    pub(crate) timeline: u64,
    pub(crate) generation: u64,
    pub(crate) features: u64,
}

impl FileHeader {
    /// The header of file `number` of a kind in a database that this build writes.
    pub(crate) fn new(identity: &Identity, kind: u32, number: u32) -> Self {
        Self {
            version: FORMAT_VERSION,
            kind,
            number,
            database_id: identity.database_id,
            timeline: identity.timeline,
            generation: identity.generation,
            features: identity.features,
        }
    }

    pub(crate) fn encode(&self) -> Page {
        let mut page = [0; PAGE_LENGTH];
        put(&mut page, HEADER_MAGIC, &MAGIC);
        put(&mut page, HEADER_VERSION, &self.version.to_le_bytes());
        put(&mut page, HEADER_KIND, &self.kind.to_le_bytes());
        put(
            &mut page,
            HEADER_DATABASE_ID,
            &self.database_id.to_le_bytes(),
        );
        put(&mut page, HEADER_TIMELINE, &self.timeline.to_le_bytes());
        put(&mut page, HEADER_GENERATION, &self.generation.to_le_bytes());
        put(&mut page, HEADER_FEATURES, &self.features.to_le_bytes());
        put(&mut page, HEADER_FILE_NUMBER, &self.number.to_le_bytes());
        let crc = crate::crc32c(&page);
        put(&mut page, HEADER_CRC, &crc.to_le_bytes());
        page
    }

    /// The header in `page` of `file`, or [`Error::Corruption`]. The version is not judged.
    pub(crate) fn decode(page: &Page, file: &str) -> Result<Self> {
        let corruption = |expected: String, found: String| {
            Error::corruption(file, 0, PAGE_BYTES, expected, found)
        };
        let mut decoder = Decoder::new(page);
        let fields = (|| {
            let magic = decoder.array::<8>()?;
            let header = Self {
                version: decoder.u32()?,
                kind: decoder.u32()?,
                database_id: decoder.u128()?,
                timeline: decoder.u64()?,
                generation: decoder.u64()?,
                features: decoder.u64()?,
                number: decoder.u32()?,
            };
            Some((magic, header, decoder.u32()?))
        })();
        let (magic, header, expected) = fields.expect("a page is longer than its header");
        let mut bare = *page;
        put(&mut bare, HEADER_CRC, &[0; 4]);
        let found = crate::crc32c(&bare);
        if magic != MAGIC {
            return Err(corruption(
                format!("\"{}\"", MAGIC.escape_ascii()),
                format!("\"{}\"", magic.escape_ascii()),
            ));
        }
        if found != expected {
            return Err(corruption(
                format!("a file header with crc32c {expected:08x}"),
                format!("crc32c {found:08x}"),
            ));
        }
        Ok(header)
    }

    /// Refuses a version or a feature that this build does not know.
    pub(crate) fn check_version(&self, directory: &str) -> Result<()> {
        let versions = |version: u32| format!("format version {version}");
        if self.version > FORMAT_VERSION {
            return Err(Error::NewerFormat {
                directory: directory.to_owned(),
                found: versions(self.version),
                supported: versions(FORMAT_VERSION),
            });
        }
        if self.version < FORMAT_VERSION {
            return Err(Error::OlderFormat {
                directory: directory.to_owned(),
                found: versions(self.version),
                supported: versions(FORMAT_VERSION),
            });
        }
        let unknown = self.features & FEATURES_REQUIRED_MASK & !FEATURES_KNOWN;
        if unknown != 0 {
            return Err(Error::NewerFormat {
                directory: directory.to_owned(),
                found: format!("feature flags {unknown:#x}"),
                supported: format!("feature flags {FEATURES_KNOWN:#x}"),
            });
        }
        Ok(())
    }

    /// Checks that this is the header that the root says the file must have.
    pub(crate) fn check_belongs(&self, expected: &Self, file: &str) -> Result<()> {
        if self == expected {
            return Ok(());
        }
        let describe = |header: &Self| {
            format!(
                "kind {} number {} of database {:032x} (timeline {}, generation {}, version {}, \
                 features {:#x})",
                header.kind,
                header.number,
                header.database_id,
                header.timeline,
                header.generation,
                header.version,
                header.features
            )
        };
        Err(Error::corruption(
            file,
            0,
            PAGE_BYTES,
            describe(expected),
            describe(self),
        ))
    }
}
