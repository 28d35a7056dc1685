//! Hash functions: of the UTF-8 of a plain string, in lower-case hexadecimal.

use std::fmt::Write as _;

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use crate::expression::{Cell, Tag};

pub(super) fn md5<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    digest::<Md5>(cells, out)
}

pub(super) fn sha1<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    digest::<Sha1>(cells, out)
}

pub(super) fn sha256<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    digest::<Sha256>(cells, out)
}

pub(super) fn sha384<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    digest::<Sha384>(cells, out)
}

pub(super) fn sha512<'c>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    digest::<Sha512>(cells, out)
}

fn digest<'c, D: Digest>(cells: &[Cell<'c>], out: &mut String) -> Option<Tag<'c>> {
    let text = cells.first()?.plain()?;
    for byte in D::digest(text.as_bytes()) {
        write!(out, "{byte:02x}").ok()?;
    }
    Some(Tag::Plain)
}
