//! REGEX and REPLACE: XPath's regular expressions, brought to the syntax of the crates ([`pattern`]).
//!
//! Patterns without back-references take time linear in the text ([`linear`]). Those with one, and ends of lines in texts
//! that end with a newline, go to a matcher that tries one way after the other ([`backtracking`]).
//!
//! # Limits
//! Compiling a pattern is the largest piece of work that cannot be interrupted, so patterns have up to 64 KB, about
//! half a million steps to be read in, and 4 MB when compiled. A pattern within the grammar of XPath but beyond these
//! limits ends the query with an error, and so does a search that goes back for too long: an expression error would
//! leave out rows without a word. Searches take steps, which let other queries have their turn ([`crate::steps`]).
//! What patterns and their searches take in memory is reserved where it is more than [`FREE_PATTERN_BYTES`] for one: a
//! query may have thousands.

mod backtracking;
mod blocks;
mod linear;
mod pattern;
#[cfg(test)]
mod tests;

use std::sync::PoisonError;

use regex_syntax::hir::literal::{ExtractKind, Extractor};
use stoa_storage::nonblocking;
use stoa_storage::sync::Mutex;

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::expression::{Cell, Tag};
use crate::memory::{Memory, UNNAMED};
use crate::steps::Steps;
use backtracking::Program;
use linear::Linear;
pub use pattern::PatternError;
use pattern::{Flags, translate};

const PATTERN_BYTES_MAX: usize = 64 << 10;
/// `\w` and `\p{L}` are large classes, and repetitions multiply them: `\w{1,64}` takes more than a megabyte.
const COMPILED_BYTES_MAX: usize = 4 << 20;
const LAZY_BYTES_MAX: usize = 2 << 20;

/// A pattern that takes no more is not worth reserving, in bytes.
const FREE_PATTERN_BYTES: usize = 32 << 10;

/// What compiling the smallest pattern takes.
const COMPILE_STEPS: u64 = 16 << 10;

/// A compiled pattern.
pub(crate) struct Pattern {
    /// `None` if it has a back-reference.
    linear: Option<Linear>,
    /// For texts that end with a newline, if it looks at ends of lines; for all without `linear`.
    backtracking: Option<Program>,
    groups: usize,
    /// What is reserved for it, once that is more than a little.
    memory: Mutex<Option<Memory>>,
}

/// Compiles a pattern with the flags `i`, `s`, `m`, `x` and `q`.
///
/// # Errors
/// If one of them is wrong, or a limit is exceeded.
pub(crate) fn compile(pattern: &str, flags: &str) -> std::result::Result<Pattern, PatternError> {
    build(pattern, flags)
}

/// A pattern that was computed. `None` if it is an expression error, and where the query must end.
pub(crate) fn compile_in(pattern: &str, flags: &str, steps: &Steps<'_>) -> Option<Pattern> {
    let built = build(pattern, flags);
    let (taken, bytes) = cost(&built);
    steps.take(taken)?;
    match built {
        Ok(pattern) => {
            steps.keep(pattern.reserve_bytes(bytes, steps.context()))?;
            Some(pattern)
        }
        Err(error) => {
            steps.keep(refused(&error));
            None
        }
    }
}

/// Counts what compiling a pattern that is constant has taken: its steps, and its memory.
///
/// # Errors
/// If the query must end.
pub(crate) fn count(
    pattern: &std::result::Result<Pattern, PatternError>,
    context: &QueryContext,
) -> Result<()> {
    let (steps, bytes) = cost(pattern);
    context.take_steps(steps)?;
    match pattern {
        Ok(pattern) => pattern.reserve_bytes(bytes, context),
        Err(_) => Ok(()),
    }
}

/// The steps that compiling a pattern has taken, and the bytes that it takes now.
fn cost(pattern: &std::result::Result<Pattern, PatternError>) -> (u64, usize) {
    match pattern {
        Ok(pattern) => {
            let bytes = pattern.size_bytes();
            (COMPILE_STEPS + bytes as u64 / 2, bytes)
        }
        Err(error) if error.is_limit() => (COMPILED_BYTES_MAX as u64, 0),
        Err(_) => (COMPILE_STEPS, 0),
    }
}

/// Fails if a pattern is refused for its size, and not for what it says.
pub(crate) fn refused(error: &PatternError) -> Result<()> {
    match error.is_limit() {
        true => Err(too_large()),
        false => Ok(()),
    }
}

/// The query must end: whether a text matches cannot be told.
const fn too_large() -> Error {
    Error::LimitExceeded(
        "a pattern of REGEX or REPLACE has more than 64 KB, nests more than 200 groups, or takes more than 4 MB or too many \
         steps to compile; repeat and nest less, or use smaller classes",
    )
}

/// Whether calls with this pattern and these flags can have a value.
///
/// # Errors
/// Why they cannot.
pub fn check(pattern: &str, flags: &str) -> std::result::Result<(), PatternError> {
    build(pattern, flags).map(drop)
}

fn build(pattern: &str, flags: &str) -> std::result::Result<Pattern, PatternError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLong);
    }
    let flags = Flags::parse(flags)?;
    if nonblocking::check().is_err() {
        // It may take long, and so may a search; what is refused is done elsewhere as a whole.
        return Err(PatternError::TooLarge);
    }
    let translated = translate(pattern, flags, false)?;
    let groups = translated.groups;
    let (has_reference, has_line_end) = (translated.has_reference, translated.has_line_end);
    let linear = match has_reference {
        true => None,
        false => Some(Linear::new(translated.text)?),
    };
    let backtracking = match has_reference || has_line_end {
        true => Some(Program::new(&translate(pattern, flags, true)?.text)?),
        false => None,
    };
    Ok(Pattern {
        linear,
        backtracking,
        groups,
        memory: Mutex::new(None),
    })
}

/// The bytes that all matches of a pattern begin with, or end with, if there are any; the longer of both.
fn required(pattern: &str) -> Option<Vec<u8>> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let of = |kind| Extractor::new().kind(kind).extract(&hir);
    let (begins, ends) = (of(ExtractKind::Prefix), of(ExtractKind::Suffix));
    let common = [begins.longest_common_prefix(), ends.longest_common_suffix()];
    let longest = common.into_iter().flatten().max_by_key(|part| part.len())?;
    (!longest.is_empty()).then(|| longest.to_vec())
}

/// Where a match and its groups lie in a text.
type Places = Vec<Option<(usize, usize)>>;

impl Pattern {
    /// Which matcher is for a text.
    fn matcher(&self, text: &str) -> Option<Matcher<'_>> {
        match (&self.linear, &self.backtracking) {
            (Some(_), Some(program)) if text.ends_with('\n') => {
                Some(Matcher::Backtracking(program))
            }
            (Some(linear), _) => Some(Matcher::Linear(linear)),
            (None, Some(program)) => Some(Matcher::Backtracking(program)),
            (None, None) => None,
        }
    }

    /// Whether a part of the text matches; `None` if the query must end.
    fn is_match(&self, text: &str, steps: &Steps<'_>) -> Option<bool> {
        match self.matcher(text)? {
            Matcher::Linear(linear) => linear.is_match(text, steps),
            Matcher::Backtracking(program) => program.find(text, 0, &mut Places::new(), steps),
        }
    }

    /// Bytes that occur in every text that matches; `None` if none are known.
    pub(crate) fn required(&self) -> Option<Vec<u8>> {
        match (&self.linear, &self.backtracking) {
            (Some(linear), None) => required(linear.source()),
            _ => None,
        }
    }

    /// What it takes in memory, with what its searches keep.
    fn size_bytes(&self) -> usize {
        let program = self.backtracking.as_ref().map_or(0, Program::size_bytes);
        self.linear
            .as_ref()
            .map_or(program, |linear| linear.size_bytes() + program)
    }

    /// Reserves what it takes by now, unless that is little.
    ///
    /// # Errors
    /// [`Error::MemoryExceeded`] if there is no room.
    pub(crate) fn reserve(&self, context: &QueryContext) -> Result<()> {
        self.reserve_bytes(self.size_bytes(), context)
    }

    fn reserve_bytes(&self, bytes: usize, context: &QueryContext) -> Result<()> {
        if bytes <= FREE_PATTERN_BYTES {
            return Ok(());
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = memory.get_or_insert_with(|| context.memory(UNNAMED));
        memory.require(bytes as u64)
    }

    /// Hands on each match; `None` if the query must end, or `each` said so.
    fn each_match(
        &self,
        text: &str,
        with_groups: bool,
        steps: &Steps<'_>,
        mut each: impl FnMut(&Places) -> Option<()>,
    ) -> Option<()> {
        let matcher = self.matcher(text)?;
        let mut places = Places::new();
        let (mut at, mut last_end) = (0, None);
        while at <= text.len() {
            let found = match matcher {
                Matcher::Linear(linear) => {
                    linear.find(text, at, with_groups, &mut places, steps)?
                }
                Matcher::Backtracking(program) => program.find(text, at, &mut places, steps)?,
            };
            let (true, Some(Some((start, end)))) = (found, places.first().copied()) else {
                break;
            };
            at = end;
            if start == end {
                let next = text.get(end..)?.chars().next();
                at += next.map_or(1, char::len_utf8);
                // Nothing right behind a match is no match.
                if last_end == Some(end) {
                    continue;
                }
            }
            last_end = Some(end);
            each(&places)?;
        }
        Some(())
    }
}

#[derive(Clone, Copy)]
enum Matcher<'p> {
    Linear(&'p Linear),
    Backtracking(&'p Program),
}

/// REGEX of the first cell.
pub(crate) fn matches(cells: &[Cell<'_>], pattern: &Pattern, steps: &Steps<'_>) -> Option<bool> {
    let (text, _) = cells.first()?.string()?;
    pattern.is_match(&text, steps)
}

/// REPLACE in the first cell by the third one; an error if the pattern matches an empty string or
/// the replacement has a `$` or `\` that means nothing.
pub(crate) fn replace<'c>(
    cells: &[Cell<'c>],
    pattern: &Pattern,
    out: &mut String,
    steps: &Steps<'_>,
) -> Option<Tag<'c>> {
    let (text, tag) = cells.first()?.string()?;
    let replacement = cells.get(2)?.plain()?;
    let literal = match cells.get(3) {
        Some(flags) => flags.plain()?.contains('q'),
        None => false,
    };
    if pattern.is_match("", steps)? {
        return None;
    }
    let pieces = if literal {
        vec![Piece::Text(replacement.into_owned())]
    } else {
        pieces(&replacement, pattern.groups)?
    };
    let with_groups = pieces.iter().any(|piece| matches!(piece, Piece::Group(_)));
    let mut copied = 0;
    pattern.each_match(&text, with_groups, steps, |places| {
        let (start, end) = (*places.first()?)?;
        let before = out.len();
        out.push_str(text.get(copied..start)?);
        for piece in &pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(group) => {
                    if let Some(Some((start, end))) = places.get(*group) {
                        out.push_str(text.get(*start..*end)?);
                    }
                }
            }
        }
        copied = end;
        steps.take_bytes(out.len() - before)
    })?;
    out.push_str(text.get(copied..)?);
    Some(tag)
}

/// A part of a replacement.
enum Piece {
    Text(String),
    Group(usize),
}

/// Takes a replacement apart: `$N` is a group (as many digits as name an existing one, the rest is
/// text; one that does not exist is empty), `\$` and `\\` are themselves.
fn pieces(replacement: &str, groups: usize) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut characters = replacement.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next()? {
                escaped @ ('\\' | '$') => text.push(escaped),
                _ => return None,
            },
            '$' => {
                let mut group = usize::try_from(characters.next()?.to_digit(10)?).ok()?;
                while let Some(digit) = characters.peek().and_then(|next| next.to_digit(10)) {
                    let longer = group
                        .checked_mul(10)?
                        .checked_add(usize::try_from(digit).ok()?)?;
                    if longer > groups {
                        break;
                    }
                    group = longer;
                    characters.next();
                }
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                if group <= groups {
                    pieces.push(Piece::Group(group));
                }
            }
            other => text.push(other),
        }
    }
    pieces.push(Piece::Text(text));
    Some(pieces)
}
