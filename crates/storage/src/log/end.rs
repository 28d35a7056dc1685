//! The mark of the end of the log: how far it surely reaches, in a sector of the root file.
//!
//! A clean stop writes it once the log is durable. Without it the very last records, whose loss no later record tells,
//! look like a write that was cut short when they are overwritten (test
//! `the_end_of_a_closed_log_is_missed_when_it_is_overwritten`). The mark stays right ever after, since a log only grows.
//! A process that is killed leaves the mark of the stop before it: what it appended since is told by the log alone.
//!
//! # Format
//! docs/format.md#root-slots

use super::Lsn;
use crate::bytes::{Decoder, put};
use crate::error::{Error, Result};
use crate::format::{
    LOG_END_CRC, LOG_END_POSITION, LOG_END_ZERO, ROOT_FILE, ROOT_LOG_END_OFFSET, SECTOR_BYTES,
};

/// The sector that says that the log reaches to `position`.
pub(crate) fn encode_end(position: Lsn) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    put(
        &mut sector,
        LOG_END_POSITION,
        &position.to_u64().to_le_bytes(),
    );
    let sum = checksum(&sector);
    put(&mut sector, LOG_END_CRC, &sum.to_le_bytes());
    sector
}

/// How far the log reaches at least; 0 if nothing was written yet.
///
/// [`Error::Corruption`] for other bytes than were written.
pub(crate) fn decode_end(sector: &[u8]) -> Result<Lsn> {
    if sector.iter().all(|byte| *byte == 0) {
        return Ok(Lsn::default());
    }
    let damaged = || {
        Error::corruption(
            ROOT_FILE,
            ROOT_LOG_END_OFFSET,
            SECTOR_BYTES as u64,
            "the mark of the end of the log with its checksum",
            "other bytes",
        )
    };
    if sector.len() != SECTOR_BYTES {
        return Err(damaged());
    }
    let mut fields = Decoder::new(sector);
    match (fields.u32(), fields.u32(), fields.u64()) {
        (Some(sum), Some(_), Some(position)) if sum == checksum(sector) => Ok(Lsn::new(position)),
        _ => Err(damaged()),
    }
}

fn checksum(sector: &[u8]) -> u32 {
    crc32c::crc32c(sector.get(LOG_END_ZERO..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_changed_bit_passes() {
        let sector = encode_end(Lsn::new(123_456));
        assert_eq!(decode_end(&sector).unwrap(), Lsn::new(123_456));
        for bit in 0..8 * SECTOR_BYTES {
            let mut changed = sector;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_end(&changed).is_err(), "{bit}");
        }
        assert_eq!(decode_end(&[0; SECTOR_BYTES]).unwrap(), Lsn::default());
        // A database of before, whose root file ends there.
        assert_eq!(decode_end(&[]).unwrap(), Lsn::default());
    }
}
