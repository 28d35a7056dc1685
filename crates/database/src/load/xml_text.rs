//! What the parser of RDF/XML gets of a file: texts in one piece.
//!
//! XML has no comments, processing instructions and CDATA sections in its texts, they only stand there:
//! `a<!-- b -->c<![CDATA[<d]]>` is the text `ac<d`. The parser takes the pieces for several texts,
//! which it refuses. So comments are left out, as are processing instructions within the first element,
//! where also the contents of CDATA sections become text with references. In XML literals nothing
//! changes, as the parser leaves both out there, too.
//!
//! # Limits
//! Memory: the places of the last [`MARKS_MAX`] tags, since the parser counts the bytes that it gets.

use std::collections::VecDeque;

use crate::load::xml::At;

/// How many `<` are remembered: more than the parser can read ahead, 8 KiB, so that it has come to one
/// of them.
const MARKS_MAX: usize = 1 << 14;

/// Leaves out and rewrites.
#[derive(Default)]
pub(super) struct Merger {
    /// For the parser, not yet fetched.
    out: Vec<u8>,
    /// How many bytes went there.
    out_offset: u64,
    /// What may yet turn out to be left out, at most `<![CDATA[`, and the offset of its `<`.
    held: Vec<u8>,
    held_offset: u64,
    /// How many `]` the CDATA section ends with so far, two of which may be part of its end.
    brackets: usize,
    /// The last `<`: its offsets for the parser and in the file.
    marks: VecDeque<(u64, u64)>,
}

impl Merger {
    /// Takes the next byte, at an offset of the file, between two states; `is_inside` the first element.
    pub(super) fn take(&mut self, step: (At, At), is_inside: bool, byte: u8, offset: u64) {
        match step {
            (At::Text, At::Open) => {
                self.held_offset = offset;
                self.held.push(byte);
            }
            (At::Open, At::Bang | At::Target(_)) | (At::Bang, At::Bang | At::CdataStart(_)) => {
                self.held.push(byte);
            }
            (_, At::Comment) | (At::Comment, _) => self.held.clear(),
            (At::Target(_) | At::Instruction, _) | (At::CdataStart(_), _) if is_inside => {
                self.held.clear();
            }
            (At::Cdata, at) if is_inside => self.take_cdata(at, byte),
            _ => {
                self.release();
                self.push(&[byte]);
            }
        }
    }

    /// Exchanges bytes of the file for those that the parser gets for them.
    pub(super) fn hand_over(&mut self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.append(&mut self.out);
    }

    /// The offset in the file of the last `<` among so many bytes of the parser.
    pub(super) fn tag_before(&self, out_offset: u64) -> Option<u64> {
        let behind = self.marks.partition_point(|(at, _)| *at < out_offset);
        let (_, offset) = self.marks.get(behind.checked_sub(1)?)?;
        Some(*offset)
    }

    fn take_cdata(&mut self, next: At, byte: u8) {
        if next != At::Cdata {
            self.brackets = 0;
        } else if byte == b']' && self.brackets < 2 {
            self.brackets += 1;
        } else if byte == b']' {
            self.push(b"]");
        } else {
            for _ in 0..std::mem::take(&mut self.brackets) {
                self.push(b"]");
            }
            match byte {
                b'&' => self.push(b"&amp;"),
                b'<' => self.push(b"&lt;"),
                b'>' => self.push(b"&gt;"),
                byte => self.push(&[byte]),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.out_offset += u64::try_from(bytes.len()).unwrap_or(0);
    }

    /// What is held is for the parser.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        if self.marks.len() == MARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back((self.out_offset, self.held_offset));
        let held = std::mem::take(&mut self.held);
        self.push(&held);
        self.held = held;
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_behind_what_is_left_out() {
        let mut merger = Merger::default();
        // a<!-- --><b/>
        let bytes = b"a<!--.--><b/>";
        let mut at = At::Text;
        for (offset, byte) in (0..).zip(*bytes) {
            let next = match (at, byte) {
                (At::Text, b'<') => At::Open,
                (At::Open, b'!') => At::Bang,
                (At::Open, _) => At::Tag(0, true),
                (At::Bang, _) if offset == 4 => At::Comment,
                (At::Comment | At::Tag(..), b'>') => At::Text,
                (at, _) => at,
            };
            merger.take((at, next), true, byte, offset);
            at = next;
        }
        let mut out = Vec::new();
        merger.hand_over(&mut out);
        assert_eq!(out, b"a<b/>");
        assert_eq!(merger.tag_before(1), None);
        assert_eq!(merger.tag_before(2), Some(9));
        assert_eq!(merger.tag_before(5), Some(9));
    }
}
