//! Changes bytes behind a checksum so that it stays right.
//!
//! A CRC is linear: for any change there are four bytes that bring the checksum back. With them a
//! damaged part of a database passes for a sound one, and what reads it must stand on its own.

/// The polynomial of CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

fn forward(mut state: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        state ^= u32::from(*byte);
        for _ in 0..8 {
            state = (state >> 1) ^ if state & 1 == 1 { POLYNOMIAL } else { 0 };
        }
    }
    state
}

/// The state before `bytes`, of which the state behind them is known.
fn backward(mut state: u32, bytes: &[u8]) -> u32 {
    for byte in bytes.iter().rev() {
        for _ in 0..8 {
            let carry = state >> 31;
            state = ((state ^ if carry == 1 { POLYNOMIAL } else { 0 }) << 1) | carry;
        }
        state ^= u32::from(*byte);
    }
    state
}

/// Changes the four bytes at `at` so that the CRC-32C of all is `wanted`; nothing if they reach beyond
/// the end.
pub fn forge(bytes: &mut [u8], at: usize, wanted: u32) {
    let Some((before, rest)) = bytes.split_at_mut_checked(at) else {
        return;
    };
    let Some((place, behind)) = rest.split_first_chunk_mut::<4>() else {
        return;
    };
    let start = forward(u32::MAX, before);
    let end = backward(!wanted, behind);
    *place = (backward(end, &[0; 4]) ^ start).to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_bytes_have_the_checksum() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        let wanted = stoa_storage::crc32c(&bytes);
        for at in [0, 1, 100, 252] {
            bytes[(at + 50) % 250] ^= 0x5a;
            forge(&mut bytes, at, wanted);
            assert_eq!(stoa_storage::crc32c(&bytes), wanted, "{at}");
        }
        assert_ne!(bytes, (0..=255).collect::<Vec<u8>>());
        forge(&mut bytes, 253, 0);
        assert_eq!(stoa_storage::crc32c(&bytes), wanted);
    }
}
