//! Matching that tries one way after the other: patterns with back-references, and ends of lines as XPath has them.
//!
//! A pattern becomes a [`Program`] of instructions. A search runs it from each character of the text on; where there are
//! several ways to go on it takes the first, and keeps the others for when that leads nowhere. That can take
//! exponential time, so each instruction is a step, and a search has [`SEARCH_STEPS_MAX`] of them.
//!
//! Without back-references a way that came to an instruction at a place of the text before has led nowhere, so a search
//! that remembers these pairs takes linear time ([`Program::groups_of`]).
//!
//! What regular expressions of the crates lack is written as a group with a name: `gN` is a group of the pattern by its
//! number, `rN_M` a reference to it, `iN_M` one that any case will do for, `b_M` and `e_M` are the beginning and the end
//! of a line; `M` makes names differ.
//!
//! # Limits
//! [`PROGRAM_MAX`] instructions, [`WAYS_MAX`] ways kept at a time, which count as the query's memory as do the remembered
//! pairs.

use regex_syntax::hir::{Capture, Class, Hir, HirKind, Look, Repetition};

use super::{PatternError, Places};
use crate::error::Error;
use crate::steps::Steps;

const PROGRAM_MAX: usize = 1 << 17;

/// About a second.
const SEARCH_STEPS_MAX: u64 = 100_000_000;

const WAYS_MAX: usize = 1 << 22;

/// After so many instructions steps are taken for them.
const PIECE_STEPS: u64 = 4096;

enum Instruction {
    /// These bytes come next.
    Literal(Box<[u8]>),
    /// A character of these ranges comes next.
    Class(Box<[(char, char)]>),
    /// Here first, then there.
    Either(usize, usize),
    Jump(usize),
    /// Keeps the place in a slot.
    Keep(usize),
    /// Goes on only if the place has changed since it was kept in the slot.
    Moved(usize),
    TextBegins,
    TextEnds,
    LineBegins,
    LineEnds,
    /// The text of a group comes next, in any case if so told. One that took no part is empty.
    Again(usize, bool),
    Match,
}

/// A pattern as instructions.
pub(super) struct Program {
    instructions: Vec<Instruction>,
    groups: usize,
    slots: usize,
}

impl Program {
    pub(super) fn new(source: &str) -> Result<Self, PatternError> {
        let unreadable = |_| PatternError::Syntax("what the matcher cannot read");
        let hir = regex_syntax::parse(source).map_err(unreadable)?;
        let mut groups = 0;
        count_groups(&hir, &mut groups);
        let mut compiler = Compiler {
            instructions: Vec::new(),
            bytes: 0,
            slots: 2 * (groups + 1),
        };
        compiler.add(&Hir::capture(Capture {
            index: 0,
            name: Some("g0".into()),
            sub: Box::new(hir),
        }))?;
        compiler.push(Instruction::Match)?;
        Ok(Self {
            instructions: compiler.instructions,
            groups,
            slots: compiler.slots,
        })
    }

    pub(super) fn size_bytes(&self) -> usize {
        let own = |instruction: &Instruction| match instruction {
            Instruction::Literal(bytes) => bytes.len(),
            Instruction::Class(ranges) => size_of_val::<[_]>(ranges),
            _ => 0,
        };
        let all = self.instructions.iter().map(own).sum::<usize>();
        all + self.instructions.capacity() * size_of::<Instruction>()
    }

    /// The leftmost match from `at` on; false if there is none.
    pub(super) fn find(
        &self,
        text: &str,
        at: usize,
        places: &mut Places,
        steps: &Steps<'_>,
    ) -> Option<bool> {
        places.clear();
        let mut search = Search::new(self, text, steps);
        let starts = text
            .get(at..)?
            .char_indices()
            .map(|(offset, _)| at + offset);
        for start in starts.chain([text.len()]) {
            if search.runs_from(start, None)? {
                places.extend(search.groups());
                return Some(true);
            }
        }
        // What the last steps were taken for.
        steps.take(search.taken % PIECE_STEPS)?;
        Some(false)
    }

    /// The groups of a match that is known to lie there, of a pattern without back-references.
    pub(super) fn groups_of(
        &self,
        text: &str,
        start: usize,
        end: usize,
        places: &mut Places,
        steps: &Steps<'_>,
    ) -> Option<()> {
        places.clear();
        let pairs = self.instructions.len().saturating_mul(end - start + 1);
        let words = pairs.div_ceil(u64::BITS as usize);
        let mut memory = steps.context().memory(crate::memory::UNNAMED);
        steps.keep(memory.require(words as u64 * 8))?;
        let mut search = Search::new(self, text, steps);
        search.seen = Some(Seen {
            start,
            words: vec![0; words],
        });
        if search.runs_from(start, Some(end))? {
            places.extend(search.groups());
        }
        Some(())
    }
}

/// The highest number of a group.
fn count_groups(hir: &Hir, most: &mut usize) {
    match hir.kind() {
        HirKind::Capture(capture) => {
            if let Some(Special::Group(group)) = Special::of(capture) {
                *most = (*most).max(group);
            }
            count_groups(&capture.sub, most);
        }
        HirKind::Repetition(repeated) => count_groups(&repeated.sub, most),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().for_each(|part| count_groups(part, most));
        }
        _ => {}
    }
}

/// What a group of the source stands for.
enum Special {
    Group(usize),
    Again(usize, bool),
    LineBegins,
    LineEnds,
}

impl Special {
    fn of(capture: &Capture) -> Option<Self> {
        let Some(name) = &capture.name else {
            return usize::try_from(capture.index).ok().map(Self::Group);
        };
        let (kind, rest) = name.split_at_checked(1)?;
        let number = rest
            .split('_')
            .next()
            .and_then(|number| number.parse().ok());
        Some(match (kind, number) {
            ("g", Some(group)) => Self::Group(group),
            ("r", Some(group)) => Self::Again(group, false),
            ("i", Some(group)) => Self::Again(group, true),
            ("b", _) => Self::LineBegins,
            ("e", _) => Self::LineEnds,
            _ => return None,
        })
    }
}

struct Compiler {
    instructions: Vec<Instruction>,
    /// What the instructions take beside themselves.
    bytes: usize,
    slots: usize,
}

impl Compiler {
    fn push(&mut self, instruction: Instruction) -> Result<usize, PatternError> {
        self.bytes += match &instruction {
            Instruction::Literal(bytes) => bytes.len(),
            Instruction::Class(ranges) => size_of_val::<[_]>(ranges),
            _ => 0,
        };
        if self.instructions.len() >= PROGRAM_MAX || self.bytes > super::COMPILED_BYTES_MAX {
            return Err(PatternError::TooLarge);
        }
        self.instructions.push(instruction);
        Ok(self.instructions.len() - 1)
    }

    fn here(&self) -> usize {
        self.instructions.len()
    }

    fn set(&mut self, at: usize, instruction: Instruction) {
        if let Some(slot) = self.instructions.get_mut(at) {
            *slot = instruction;
        }
    }

    fn add(&mut self, hir: &Hir) -> Result<(), PatternError> {
        match hir.kind() {
            HirKind::Empty => Ok(()),
            HirKind::Literal(literal) => {
                let bytes = Instruction::Literal(literal.0.clone());
                self.push(bytes).map(drop)
            }
            HirKind::Class(class) => {
                let ranges = match class {
                    Class::Unicode(class) => {
                        let ranges = class.ranges().iter();
                        ranges.map(|range| (range.start(), range.end())).collect()
                    }
                    Class::Bytes(class) => {
                        let ranges = class.ranges().iter();
                        ranges
                            .map(|range| (range.start().into(), range.end().into()))
                            .collect()
                    }
                };
                self.push(Instruction::Class(ranges)).map(drop)
            }
            HirKind::Look(look) => {
                let instruction = match look {
                    Look::Start => Instruction::TextBegins,
                    Look::End => Instruction::TextEnds,
                    Look::StartLF => Instruction::LineBegins,
                    Look::EndLF => Instruction::LineEnds,
                    _ => return Err(PatternError::Syntax("what the matcher cannot read")),
                };
                self.push(instruction).map(drop)
            }
            HirKind::Capture(capture) => self.add_capture(capture),
            HirKind::Repetition(repeated) => self.add_repetition(repeated),
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.add(part)),
            HirKind::Alternation(parts) => self.add_alternation(parts),
        }
    }

    fn add_capture(&mut self, capture: &Capture) -> Result<(), PatternError> {
        let instruction = match Special::of(capture) {
            Some(Special::Group(group)) => {
                self.push(Instruction::Keep(2 * group))?;
                self.add(&capture.sub)?;
                Instruction::Keep(2 * group + 1)
            }
            Some(Special::Again(group, any_case)) => Instruction::Again(group, any_case),
            Some(Special::LineBegins) => Instruction::LineBegins,
            Some(Special::LineEnds) => Instruction::LineEnds,
            None => return Err(PatternError::Syntax("what the matcher cannot read")),
        };
        self.push(instruction).map(drop)
    }

    fn add_alternation(&mut self, parts: &[Hir]) -> Result<(), PatternError> {
        let mut ends = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            if number + 1 == parts.len() {
                self.add(part)?;
                break;
            }
            let split = self.push(Instruction::Match)?;
            self.add(part)?;
            ends.push(self.push(Instruction::Match)?);
            let next = self.here();
            self.set(split, Instruction::Either(split + 1, next));
        }
        let end = self.here();
        ends.into_iter()
            .for_each(|at| self.set(at, Instruction::Jump(end)));
        Ok(())
    }

    fn add_repetition(&mut self, repeated: &Repetition) -> Result<(), PatternError> {
        for _ in 0..repeated.min {
            let before = self.here();
            self.add(&repeated.sub)?;
            if self.here() == before {
                // Nothing, however often.
                return Ok(());
            }
        }
        let either = |first, then| match repeated.greedy {
            true => Instruction::Either(first, then),
            false => Instruction::Either(then, first),
        };
        match repeated.max {
            None => {
                let slot = self.slots;
                self.slots += 1;
                let split = self.push(Instruction::Match)?;
                self.push(Instruction::Keep(slot))?;
                self.add(&repeated.sub)?;
                self.push(Instruction::Moved(slot))?;
                self.push(Instruction::Jump(split))?;
                let end = self.here();
                self.set(split, either(split + 1, end));
            }
            Some(max) => {
                let mut splits = Vec::new();
                for _ in repeated.min..max {
                    splits.push(self.push(Instruction::Match)?);
                    self.add(&repeated.sub)?;
                }
                let end = self.here();
                for split in splits {
                    self.set(split, either(split + 1, end));
                }
            }
        }
        Ok(())
    }
}

/// What a search goes back to.
enum Way {
    /// An instruction and a place.
    Branch(usize, usize),
    /// What was in a slot before.
    Restore(usize, Option<usize>),
}

/// Pairs of an instruction and a place that a search has come to.
struct Seen {
    start: usize,
    words: Vec<u64>,
}

impl Seen {
    /// Whether the pair is new.
    fn is_new(&mut self, at: usize, place: usize, program: usize) -> bool {
        let pair = (place - self.start).saturating_mul(program) + at;
        let bit = 1 << (pair % u64::BITS as usize);
        let Some(word) = self.words.get_mut(pair / u64::BITS as usize) else {
            return false;
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

struct Search<'s, 'c> {
    program: &'s Program,
    text: &'s str,
    steps: &'s Steps<'c>,
    slots: Vec<Option<usize>>,
    ways: Vec<Way>,
    memory: crate::memory::Memory,
    seen: Option<Seen>,
    taken: u64,
}

impl<'s, 'c> Search<'s, 'c> {
    fn new(program: &'s Program, text: &'s str, steps: &'s Steps<'c>) -> Self {
        Self {
            program,
            text,
            steps,
            slots: Vec::new(),
            ways: Vec::new(),
            memory: steps.context().memory(crate::memory::UNNAMED),
            seen: None,
            taken: 0,
        }
    }

    fn groups(&self) -> impl Iterator<Item = Option<(usize, usize)>> {
        let groups = self.slots.chunks(2).take(self.program.groups + 1);
        groups.map(|group| match group {
            [Some(start), Some(end)] => Some((*start, *end)),
            _ => None,
        })
    }

    /// Takes a step, and tells the query of many.
    fn step(&mut self) -> Option<()> {
        self.taken += 1;
        if !self.taken.is_multiple_of(PIECE_STEPS) {
            return Some(());
        }
        if self.taken > SEARCH_STEPS_MAX && self.seen.is_none() {
            return self.steps.keep(Err(Error::LimitExceeded(
                "a search for a pattern with a back-reference, or of lines, took more than 100 million steps; write \
                 it without nested repetitions, or search in a part of the text with SUBSTR",
            )));
        }
        self.steps.take(PIECE_STEPS)
    }

    fn keep(&mut self, way: Way) -> Option<()> {
        if self.ways.len() == self.ways.capacity() && self.ways.len() >= 1 << 12 {
            if self.ways.len() >= WAYS_MAX {
                return self.steps.keep(Err(Error::LimitExceeded(
                    "a search for a pattern with a back-reference, or of lines, kept more than 4 million ways; \
                     search in a part of the text with SUBSTR",
                )));
            }
            // While the list grows both are there.
            let bytes = 3 * self.ways.len() * size_of::<Way>();
            self.steps.keep(self.memory.require(bytes as u64))?;
        }
        self.ways.push(way);
        Some(())
    }

    fn put(&mut self, slot: usize, place: usize) -> Option<()> {
        let before = self.slots.get(slot).copied().flatten();
        if !self.ways.is_empty() {
            self.keep(Way::Restore(slot, before))?;
        }
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = Some(place);
        }
        Some(())
    }

    /// Whether there is a match that begins at `start`, and ends at `end` if one is given.
    fn runs_from(&mut self, start: usize, end: Option<usize>) -> Option<bool> {
        self.slots.clear();
        self.slots.resize(self.program.slots, None);
        self.ways.clear();
        let mut way = Some((0, start));
        while let Some((at, place)) = way {
            self.step()?;
            let next = match self.program.instructions.get(at) {
                _ if !self.is_new(at, place) => None,
                None => None,
                Some(Instruction::Match) => {
                    if end.is_none_or(|end| end == place) {
                        return Some(true);
                    }
                    None
                }
                Some(Instruction::Jump(to)) => Some((*to, place)),
                Some(Instruction::Either(first, then)) => {
                    self.keep(Way::Branch(*then, place))?;
                    Some((*first, place))
                }
                Some(Instruction::Keep(slot)) => {
                    self.put(*slot, place)?;
                    Some((at + 1, place))
                }
                Some(instruction) => self
                    .goes_on(instruction, place)
                    .map(|place| (at + 1, place)),
            };
            way = next.or_else(|| self.back());
        }
        Some(false)
    }

    fn is_new(&mut self, at: usize, place: usize) -> bool {
        let program = self.program.instructions.len();
        let seen = self.seen.as_mut();
        seen.is_none_or(|seen| seen.is_new(at, place, program))
    }

    /// The next way that was kept.
    fn back(&mut self) -> Option<(usize, usize)> {
        loop {
            match self.ways.pop()? {
                Way::Branch(at, place) => return Some((at, place)),
                Way::Restore(slot, before) => {
                    if let Some(slot) = self.slots.get_mut(slot) {
                        *slot = before;
                    }
                }
            }
        }
    }

    /// Where an instruction that looks at the text leads; `None` if it leads nowhere.
    fn goes_on(&mut self, instruction: &Instruction, place: usize) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let before = place.checked_sub(1).and_then(|before| bytes.get(before));
        let holds = |condition: bool| condition.then_some(place);
        match instruction {
            Instruction::Literal(literal) => {
                let rest = bytes.get(place..)?;
                rest.starts_with(literal).then(|| place + literal.len())
            }
            Instruction::Class(ranges) => {
                let character = self.text.get(place..)?.chars().next()?;
                let after = ranges.partition_point(|(_, last)| *last < character);
                let (first, _) = ranges.get(after)?;
                (*first <= character).then(|| place + character.len_utf8())
            }
            Instruction::Moved(slot) => {
                // What is remembered ends loops by itself.
                let kept = self.slots.get(*slot).copied().flatten();
                holds(self.seen.is_some() || kept != Some(place))
            }
            Instruction::TextBegins => holds(place == 0),
            Instruction::TextEnds => holds(place == bytes.len()),
            Instruction::LineBegins => {
                holds(place == 0 || (before == Some(&b'\n') && place < bytes.len()))
            }
            Instruction::LineEnds => holds(match bytes.get(place) {
                Some(byte) => *byte == b'\n',
                None => before != Some(&b'\n'),
            }),
            Instruction::Again(group, any_case) => {
                let slots = self.slots.get(2 * group..2 * group + 2)?;
                let &[Some(start), Some(end)] = slots else {
                    return Some(place);
                };
                let wanted = self.text.get(start..end)?;
                // Where this fails, so does the next step.
                self.steps.take_bytes(wanted.len())?;
                let rest = self.text.get(place..)?;
                match any_case {
                    false => rest.starts_with(wanted).then(|| place + wanted.len()),
                    true => same_in_any_case(wanted, rest).map(|length| place + length),
                }
            }
            Instruction::Match
            | Instruction::Jump(_)
            | Instruction::Either(..)
            | Instruction::Keep(_) => None,
        }
    }
}

/// The length of the beginning of `text` that is `wanted` but for case.
fn same_in_any_case(wanted: &str, text: &str) -> Option<usize> {
    let mut length = 0;
    let mut characters = text.chars();
    for one in wanted.chars() {
        let other = characters.next()?;
        let is_same = one == other
            || one.to_lowercase().eq(other.to_lowercase())
            || one.to_uppercase().eq(other.to_uppercase());
        if !is_same {
            return None;
        }
        length += other.len_utf8();
    }
    Some(length)
}
