//! Reads a regular expression of XPath and writes it for the crates that match.
//!
//! One pass, group by group, without recursion. All characters are written as themselves or by number,
//! so that nothing of a pattern gets a meaning that XPath does not give it. With the flag `i` each
//! character and range is written with its variants, because categories such as `\p{Lu}` and negated
//! classes are not what the flag of the crates makes of them.
//!
//! More lenient than the grammar: `]` and `}` may stand for themselves, and any punctuation may be
//! escaped.
//!
//! # References
//! XPath functions and operators 3.1, section 5.6.1; XML Schema 1.1 part 2, appendix G.

use std::fmt::{self, Write as _};

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::blocks;
use crate::function::xml_name;

/// Groups within groups; the crates have limits of this size as well.
const DEPTH_MAX: usize = 200;

/// Why a pattern or its flags are refused.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PatternError {
    /// A flag that is none of `i`, `s`, `m`, `x` and `q`.
    Flag(char),
    /// The pattern breaks the grammar.
    Syntax(&'static str),
    /// More bytes of text than are taken.
    TooLong,
    /// More groups or classes within each other than are taken.
    TooDeep,
    /// More steps, or memory, to compile it than it is given.
    TooLarge,
}

impl PatternError {
    /// Whether it is right as XPath has it, and beyond our limits.
    #[must_use]
    pub const fn is_limit(&self) -> bool {
        matches!(self, Self::TooLong | Self::TooDeep | Self::TooLarge)
    }
}

/// What reading a pattern may cost: about as many ranges of characters, from some thousand of which a class such as
/// `\w` is made.
const READ_STEPS_MAX: usize = 1 << 19;

/// What the largest classes cost.
const CLASS_STEPS: usize = 1 << 10;

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag} is not one of the flags i, s, m, x and q"),
            Self::Syntax(message) => f.write_str(message),
            Self::TooLong => write!(f, "it has more than {} KB", super::PATTERN_BYTES_MAX >> 10),
            Self::TooDeep => write!(f, "it nests more than {DEPTH_MAX} groups or classes"),
            Self::TooLarge => write!(
                f,
                "it takes more than {} MB when compiled: repeat less, or smaller classes",
                super::COMPILED_BYTES_MAX >> 20
            ),
        }
    }
}

/// The five flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    any_case: bool,
    dot_all: bool,
    lines: bool,
    no_space: bool,
    pub(super) literal: bool,
}

impl Flags {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let mut flags = Self::default();
        for flag in text.chars() {
            match flag {
                'i' => flags.any_case = true,
                's' => flags.dot_all = true,
                'm' => flags.lines = true,
                'x' => flags.no_space = true,
                'q' => flags.literal = true,
                other => return Err(PatternError::Flag(other)),
            }
        }
        Ok(flags)
    }
}

/// A pattern for the crates.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) text: String,
    /// Whether it has a back-reference, which only a matcher that goes back can do.
    pub(super) has_reference: bool,
    /// Whether it looks at the ends of lines.
    pub(super) has_line_end: bool,
    /// How many groups it has.
    pub(super) groups: usize,
}

/// Translates a pattern: for the linear matcher, or with `exact` for the one that goes back
/// (`super::backtracking`), whose ends of lines leave out the end of a text behind a last newline.
pub(super) fn translate(
    pattern: &str,
    flags: Flags,
    exact: bool,
) -> Result<Translated, PatternError> {
    let characters = if flags.no_space && !flags.literal {
        without_space(pattern)
    } else {
        pattern.chars().collect()
    };
    let mut reader = Reader {
        characters,
        at: 0,
        flags,
        exact,
        out: String::with_capacity(pattern.len() * 2),
        steps: 0,
        names: 0,
        open: Vec::new(),
        closed: Vec::new(),
        has_reference: false,
        has_line_end: false,
    };
    if flags.literal {
        for character in std::mem::take(&mut reader.characters) {
            reader.character(character)?;
        }
    } else {
        reader.read()?;
    }
    Ok(Translated {
        groups: reader.closed.len(),
        text: reader.out,
        has_reference: reader.has_reference,
        has_line_end: reader.has_line_end,
    })
}

/// Leaves out white space but within classes.
fn without_space(pattern: &str) -> Vec<char> {
    let mut kept = Vec::with_capacity(pattern.len());
    let (mut depth, mut escaped) = (0_usize, false);
    for character in pattern.chars() {
        if depth == 0 && matches!(character, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        kept.push(character);
    }
    kept
}

struct Reader {
    characters: Vec<char>,
    at: usize,
    flags: Flags,
    exact: bool,
    out: String,
    /// What reading it has cost.
    steps: usize,
    /// Names given to what is no group.
    names: usize,
    /// The groups that are open, by number; `None` for those that capture nothing.
    open: Vec<Option<usize>>,
    /// For each group, from 1, whether it is closed.
    closed: Vec<bool>,
    has_reference: bool,
    has_line_end: bool,
}

const fn wrong<T>(message: &'static str) -> Result<T, PatternError> {
    Err(PatternError::Syntax(message))
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += 1;
        Some(character)
    }

    fn take_if(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn read(&mut self) -> Result<(), PatternError> {
        // Whether a quantifier may follow.
        let mut atom = false;
        while let Some(character) = self.take() {
            atom = match character {
                '|' => {
                    self.out.push('|');
                    false
                }
                '(' => {
                    self.open_group()?;
                    false
                }
                ')' => {
                    let Some(group) = self.open.pop() else {
                        return wrong("a ) that closes nothing");
                    };
                    if let Some(closed) = group.and_then(|n| self.closed.get_mut(n - 1)) {
                        *closed = true;
                    }
                    self.out.push(')');
                    true
                }
                '*' | '+' | '?' | '{' => {
                    if !atom {
                        return wrong("nothing before a quantifier to repeat");
                    }
                    self.quantifier(character)?;
                    false
                }
                '^' | '$' => {
                    self.anchor(character)?;
                    true
                }
                '.' => {
                    let any = if self.flags.dot_all {
                        "(?s:.)"
                    } else {
                        "[^\\n\\r]"
                    };
                    self.out.push_str(any);
                    true
                }
                '[' => {
                    let class = self.class(0)?;
                    self.out.push_str(&class);
                    true
                }
                '\\' => {
                    self.escape()?;
                    true
                }
                other => {
                    self.character(other)?;
                    true
                }
            };
        }
        if self.open.is_empty() {
            Ok(())
        } else {
            wrong("a ( that is not closed")
        }
    }

    fn open_group(&mut self) -> Result<(), PatternError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(PatternError::TooDeep);
        }
        if self.take_if('?') {
            if !self.take_if(':') {
                return wrong("(? that is not (?:, which is all that XPath knows");
            }
            self.out.push_str("(?:");
            self.open.push(None);
        } else {
            self.closed.push(false);
            self.open.push(Some(self.closed.len()));
            match self.exact {
                true => {
                    let _ = write!(self.out, "(?P<g{}>", self.closed.len());
                }
                false => self.out.push('('),
            }
        }
        Ok(())
    }

    fn quantifier(&mut self, first: char) -> Result<(), PatternError> {
        self.out.push(first);
        if first == '{' {
            let least = self.number()?;
            let _ = write!(self.out, "{least}");
            if self.take_if(',') {
                self.out.push(',');
                if self.peek() != Some('}') {
                    let most = self.number()?;
                    if most < least {
                        return wrong("a quantifier whose numbers do not ascend");
                    }
                    let _ = write!(self.out, "{most}");
                }
            }
            if !self.take_if('}') {
                return wrong("a { that is not a quantifier such as {2,3}");
            }
            self.out.push('}');
        }
        if self.take_if('?') {
            self.out.push('?');
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u32, PatternError> {
        let mut value = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.at += 1;
            let next = value.unwrap_or(0_u32).checked_mul(10);
            value = next.and_then(|value| value.checked_add(digit));
            if value.is_none() {
                return Err(PatternError::TooLarge);
            }
        }
        match value {
            Some(value) => Ok(value),
            None => wrong("a { that is not a quantifier such as {2,3}"),
        }
    }

    fn anchor(&mut self, anchor: char) -> Result<(), PatternError> {
        self.has_line_end |= self.flags.lines;
        let text = match (anchor, self.flags.lines, self.exact) {
            ('^', false, _) => "(?:\\A)",
            (_, false, _) => "(?:\\z)",
            ('^', true, false) => "(?m:^)",
            (_, true, false) => "(?m:$)",
            ('^', true, true) => return self.special("b"),
            (_, true, true) => return self.special("e"),
        };
        self.out.push_str(text);
        Ok(())
    }

    /// What only the matcher that goes back knows, as a group with a name that nothing else has. It is not empty, since
    /// the crates take an empty group that is repeated for one that is not.
    fn special(&mut self, kind: &str) -> Result<(), PatternError> {
        self.spend(1)?;
        self.names += 1;
        let _ = write!(self.out, "(?P<{kind}_{}>a)", self.names);
        Ok(())
    }

    /// Counts what reading the pattern costs.
    fn spend(&mut self, steps: usize) -> Result<(), PatternError> {
        self.steps += steps;
        match self.steps <= READ_STEPS_MAX {
            true => Ok(()),
            false => Err(PatternError::TooLarge),
        }
    }

    /// A character that stands for itself, and its variants.
    fn character(&mut self, character: char) -> Result<(), PatternError> {
        if self.flags.any_case {
            let ranges = self.variants(character, character)?;
            if ranges != literal(character) {
                let _ = write!(self.out, "[{ranges}]");
                return Ok(());
            }
        }
        self.out.push_str(&literal(character));
        Ok(())
    }

    /// The members of a class for a range of characters.
    fn variants(&mut self, first: char, last: char) -> Result<String, PatternError> {
        if self.flags.any_case {
            // Each character of the range is looked up.
            let size = u32::from(last).abs_diff(u32::from(first)) as usize;
            self.spend(4 + size.min(2 * CLASS_STEPS))?;
        }
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(first, last)]);
        // It fails without tables of Unicode only, which this build has.
        if self.flags.any_case && class.try_case_fold_simple().is_err() {
            class = ClassUnicode::new([ClassUnicodeRange::new(first, last)]);
        }
        let mut text = String::new();
        for range in class.ranges() {
            text.push_str(&literal(range.start()));
            if range.start() != range.end() {
                text.push('-');
                text.push_str(&literal(range.end()));
            }
        }
        self.spend(class.ranges().len())?;
        Ok(text)
    }

    /// What follows a backslash outside of classes.
    fn escape(&mut self) -> Result<(), PatternError> {
        match self.peek() {
            Some('1'..='9') => self.reference(),
            Some('0') => wrong("\\0, which is no group"),
            _ => match self.class_escape()? {
                Escape::Class(class) => {
                    self.out.push_str(&class);
                    Ok(())
                }
                Escape::Character(character) => self.character(character),
            },
        }
    }

    fn reference(&mut self) -> Result<(), PatternError> {
        let mut group = 0_usize;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            let longer = group * 10 + digit as usize;
            // As many digits as name a group.
            if group > 0 && longer > self.closed.len() {
                break;
            }
            group = longer;
            self.at += 1;
        }
        if self.closed.get(group.wrapping_sub(1)) != Some(&true) {
            return wrong("a back-reference to a group that is not closed before it");
        }
        self.has_reference = true;
        let kind = if self.flags.any_case { "i" } else { "r" };
        match self.exact {
            true => self.special(&format!("{kind}{group}")),
            // The linear matcher is not given it.
            false => Ok(()),
        }
    }

    /// What follows a backslash, in classes and outside.
    fn class_escape(&mut self) -> Result<Escape, PatternError> {
        let Some(letter) = self.take() else {
            return wrong("a \\ at the end");
        };
        self.spend(match letter {
            'd' | 'D' | 'w' | 'W' | 'i' | 'I' | 'c' | 'C' | 'p' | 'P' => CLASS_STEPS,
            _ => 4,
        })?;
        Ok(Escape::Class(match letter {
            'n' => return Ok(Escape::Character('\n')),
            'r' => return Ok(Escape::Character('\r')),
            't' => return Ok(Escape::Character('\t')),
            's' => "[ \\t\\n\\r]".to_owned(),
            'S' => "[^ \\t\\n\\r]".to_owned(),
            'd' => "\\p{Nd}".to_owned(),
            'D' => "\\P{Nd}".to_owned(),
            'w' => "[^\\p{P}\\p{Z}\\p{C}]".to_owned(),
            'W' => "[\\p{P}\\p{Z}\\p{C}]".to_owned(),
            'i' => names("[", &[&xml_name::START]),
            'I' => names("[^", &[&xml_name::START]),
            'c' => names("[", &[&xml_name::START, &xml_name::MORE]),
            'C' => names("[^", &[&xml_name::START, &xml_name::MORE]),
            'p' | 'P' => self.property(letter == 'P')?,
            other if other.is_ascii_punctuation() => return Ok(Escape::Character(other)),
            _ => return wrong("an escape that XPath does not know"),
        }))
    }

    /// `{Lu}` or `{IsBasicLatin}`
    fn property(&mut self, negated: bool) -> Result<String, PatternError> {
        if !self.take_if('{') {
            return wrong("a \\p without braces");
        }
        let rest = self.characters.get(self.at..).unwrap_or_default();
        let Some(length) = rest.iter().position(|c| *c == '}') else {
            return wrong("a \\p{ that is not closed");
        };
        let name: String = rest.iter().take(length).collect();
        self.at += length + 1;
        if CATEGORIES.contains(&name.as_str()) {
            let letter = if negated { 'P' } else { 'p' };
            return Ok(format!("\\{letter}{{{name}}}"));
        }
        let block = name.strip_prefix("Is").and_then(blocks::find);
        let Some((first, last)) = block else {
            return wrong("a category or block that is none, such as \\p{Lu} or \\p{IsBasicLatin}");
        };
        let sign = if negated { "^" } else { "" };
        Ok(format!("[{sign}\\x{{{first:X}}}-\\x{{{last:X}}}]"))
    }

    /// What follows a `[`.
    fn class(&mut self, depth: usize) -> Result<String, PatternError> {
        if depth > DEPTH_MAX {
            return Err(PatternError::TooDeep);
        }
        let sign = if self.take_if('^') { "^" } else { "" };
        let mut members = String::new();
        loop {
            let Some(character) = self.take() else {
                return wrong("a [ that is not closed");
            };
            let first = match character {
                ']' if members.is_empty() => return wrong("a class without members"),
                ']' => return Ok(format!("[{sign}{members}]")),
                '[' => return wrong("a [ within a class: write \\["),
                '-' if self.peek() == Some('[') => {
                    self.at += 1;
                    if members.is_empty() {
                        return wrong("a class without members");
                    }
                    let without = self.class(depth + 1)?;
                    if !self.take_if(']') {
                        return wrong("more behind a subtraction, which ends a class");
                    }
                    return Ok(format!("[[{sign}{members}]--{without}]"));
                }
                '\\' => match self.class_escape()? {
                    Escape::Class(class) => {
                        members.push_str(&class);
                        continue;
                    }
                    Escape::Character(character) => character,
                },
                other => other,
            };
            let last = self.range_end()?.unwrap_or(first);
            if last < first {
                return wrong("a range whose ends do not ascend");
            }
            members.push_str(&self.variants(first, last)?);
        }
    }

    /// The end of a range, if a hyphen and a character that can end one follow.
    fn range_end(&mut self) -> Result<Option<char>, PatternError> {
        let next = self.characters.get(self.at + 1).copied();
        if self.peek() != Some('-') || matches!(next, None | Some('[' | ']')) {
            return Ok(None);
        }
        let hyphen = self.at;
        self.at += 1;
        match self.take() {
            Some('\\') => match self.class_escape()? {
                Escape::Character(character) => Ok(Some(character)),
                Escape::Class(_) => {
                    // The hyphen stands for itself.
                    self.at = hyphen;
                    Ok(None)
                }
            },
            other => Ok(other),
        }
    }
}

/// What an escape stands for.
enum Escape {
    Character(char),
    /// A class as the crates write it, which may stand in another.
    Class(String),
}

fn names(open: &str, lists: &[&[(char, char)]]) -> String {
    let mut text = open.to_owned();
    for (first, last) in lists.iter().copied().flatten() {
        let _ = write!(text, "{}-{}", literal(*first), literal(*last));
    }
    text.push(']');
    text
}

/// A character as the crates write it.
fn literal(character: char) -> String {
    if character.is_alphanumeric() {
        character.to_string()
    } else {
        format!("\\x{{{:X}}}", u32::from(character))
    }
}

/// The categories of Unicode that XML Schema knows.
const CATEGORIES: [&str; 36] = [
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Z", "Zs", "Zl", "Zp", "S", "Sm", "Sc", "Sk", "So", "C",
    "Cc", "Cf", "Co", "Cn",
];
