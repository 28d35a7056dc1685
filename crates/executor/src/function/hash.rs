//! Hash functions: of the UTF-8 of a plain string, in lower-case hexadecimal.

use std::fmt::Write as _;

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use crate::expression::{Cell, Tag};
use crate::steps::{PIECE_BYTES, Steps};

pub(super) fn md5<'c>(cells: &[Cell<'c>], out: &mut String, steps: &Steps<'_>) -> Option<Tag<'c>> {
    digest::<Md5>(cells, out, steps)
}

pub(super) fn sha1<'c>(cells: &[Cell<'c>], out: &mut String, steps: &Steps<'_>) -> Option<Tag<'c>> {
    digest::<Sha1>(cells, out, steps)
}

pub(super) fn sha256<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    digest::<Sha256>(cells, out, steps)
}

pub(super) fn sha384<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    digest::<Sha384>(cells, out, steps)
}

pub(super) fn sha512<'c>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    digest::<Sha512>(cells, out, steps)
}

fn digest<'c, D: Digest>(
    cells: &[Cell<'c>],
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    let text = cells.first()?.plain()?;
    let mut digest = D::new();
    for piece in text.as_bytes().chunks(PIECE_BYTES) {
        // A hash takes some times as long as a look.
        steps.take(piece.len() as u64)?;
        digest.update(piece);
    }
    for byte in digest.finalize() {
        write!(out, "{byte:02x}").ok()?;
    }
    Some(Tag::Plain)
}
