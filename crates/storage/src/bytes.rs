//! Little-endian encoding and decoding over slices, without panics.

/// Reads fixed-width numbers from the front of a slice; `None` at its end.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
}

/// Writes `value` over the bytes of `target` that begin at `offset`.
///
/// Panics if it does not fit; offsets are constants of `format.rs`.
pub(crate) fn put(target: &mut [u8], offset: usize, value: &[u8]) {
    target
        .get_mut(offset..offset + value.len())
        .expect("offsets of the format lie within their page")
        .copy_from_slice(value);
}

/// A length in memory as a 64-bit number.
pub(crate) fn len_u64(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// A number of bytes that is to be held in memory.
pub(crate) fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("sizes in memory fit the address space")
}
