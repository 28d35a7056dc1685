//! A piece of JSON in memory: all its values one behind the other, and one string with all texts.
//!
//! A value is a token; behind an array or object stand the tokens of what is in it, keys in front of their
//! values. So a piece takes two allocations, which the next one uses again, and a value is named by a
//! number.
//!
//! # Invariants
//! 1. `next` of a token is the number of the first token behind the value. What is shadowed is skipped
//!    by those who read.
//!
//! # Limits
//! [`TOKEN_BYTES`] for each value and key, and their texts. Pieces are shorter than 4 GB.

use std::rc::Rc;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

/// What a value is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Kind {
    Null,
    True,
    False,
    Number,
    String,
    Array,
    Object,
    /// A key that occurs again later in its object: the last one counts.
    Shadowed,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    kind: Kind,
    /// Where the text begins, and its length in bytes.
    start: u32,
    length: u32,
    next: u32,
    /// Lines behind the first one of the piece.
    line: u32,
    column: u32,
}

/// What a value takes, in bytes.
pub(super) const TOKEN_BYTES: usize = size_of::<Token>();

/// Objects with more keys are searched for repeated ones by a table.
const KEYS_COMPARED_MAX: usize = 12;

/// A piece of JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    tokens: Vec<Token>,
    text: String,
    first_line: u64,
    /// The URL of the context that it is from, if it is not from the document.
    pub(super) origin: Option<Rc<str>>,
}

/// A value in a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'t> {
    tape: &'t Tape,
    at: u32,
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn wide(number: u32) -> usize {
    number as usize
}

impl Tape {
    /// Empties it and keeps its room, unless that is large.
    pub(super) fn clear(&mut self, line: u64) {
        const KEPT_BYTES: usize = 1 << 20;
        self.tokens.clear();
        self.text.clear();
        self.tokens.shrink_to(KEPT_BYTES / TOKEN_BYTES);
        self.text.shrink_to(KEPT_BYTES);
        self.first_line = line;
    }

    fn push(&mut self, kind: Kind, text: &str, (line, column): (u64, u64)) -> u32 {
        let at = narrow(self.tokens.len());
        let line = line.saturating_sub(self.first_line);
        self.tokens.push(Token {
            kind,
            start: narrow(self.text.len()),
            length: narrow(text.len()),
            next: at + 1,
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        });
        self.text.push_str(text);
        at
    }

    /// Adds a value without parts.
    pub(super) fn scalar(&mut self, kind: Kind, text: &str, place: (u64, u64)) {
        self.push(kind, text, place);
    }

    /// Begins an array or object, to be closed.
    pub(super) fn open(&mut self, kind: Kind, place: (u64, u64)) -> u32 {
        self.push(kind, "", place)
    }

    /// Ends what [`Self::open`] began; may be repeated when more has come.
    pub(super) fn close(&mut self, at: u32) {
        let next = narrow(self.tokens.len());
        let Some(token) = self.tokens.get_mut(wide(at)) else {
            return;
        };
        token.next = next;
        if token.kind == Kind::Object {
            self.shadow_repeated_keys(at, next);
        }
    }

    pub(super) fn kind(&self, at: u32) -> Kind {
        self.tokens
            .get(wide(at))
            .map_or(Kind::Null, |token| token.kind)
    }

    /// Leaves nothing of what was added from `at` on.
    pub(super) fn truncate(&mut self, at: u32) {
        if let Some(token) = self.tokens.get(wide(at)) {
            self.text.truncate(wide(token.start));
            self.tokens.truncate(wide(at));
        }
    }

    /// How many tokens there are.
    pub(super) fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// A copy of the object that everything is in, as it was when the token `at` was to come.
    pub(super) fn clone_before(&self, at: u32) -> Self {
        let mut copy = Self {
            tokens: self.tokens.get(..wide(at)).unwrap_or(&[]).to_vec(),
            text: self.text.clone(),
            first_line: self.first_line,
            origin: self.origin.clone(),
        };
        copy.close(0);
        copy
    }

    /// The number of the next token.
    pub(super) fn len(&self) -> u32 {
        narrow(self.tokens.len())
    }

    fn text_of(&self, token: &Token) -> &str {
        let start = wide(token.start);
        self.text
            .get(start..start + wide(token.length))
            .unwrap_or_default()
    }

    fn shadow_repeated_keys(&mut self, object: u32, end: u32) {
        let mut keys: Vec<u32> = Vec::new();
        let mut at = object + 1;
        while at < end {
            keys.push(at);
            at = self.skip(at + 1);
        }
        let mut repeated = Vec::new();
        if keys.len() <= KEYS_COMPARED_MAX {
            for (i, earlier) in keys.iter().enumerate() {
                let text = self.value(*earlier).text();
                let later = keys.get(i + 1..).unwrap_or(&[]);
                if later.iter().any(|key| self.value(*key).text() == text) {
                    repeated.push(*earlier);
                }
            }
        } else {
            let mut last: HashMap<&str, u32, RandomState> = HashMap::default();
            for key in keys {
                repeated.extend(last.insert(self.value(key).text(), key));
            }
        }
        for at in repeated {
            if let Some(token) = self.tokens.get_mut(wide(at)) {
                token.kind = Kind::Shadowed;
            }
        }
    }

    fn skip(&self, at: u32) -> u32 {
        // Always further, whatever happens.
        self.tokens
            .get(wide(at))
            .map_or(u32::MAX, |token| token.next.max(at + 1))
    }

    /// The value with this number.
    pub(super) fn value(&self, at: u32) -> Value<'_> {
        Value { tape: self, at }
    }

    /// The value that was added first.
    pub(super) fn root(&self) -> Value<'_> {
        self.value(0)
    }
}

impl<'t> Value<'t> {
    fn token(self) -> Option<&'t Token> {
        self.tape.tokens.get(wide(self.at))
    }

    pub(super) fn kind(self) -> Kind {
        self.tape.kind(self.at)
    }

    /// The text of a string, number or key; empty of all others.
    pub(super) fn text(self) -> &'t str {
        self.token().map_or("", |token| self.tape.text_of(token))
    }

    pub(super) fn as_str(self) -> Option<&'t str> {
        (self.kind() == Kind::String).then(|| self.text())
    }

    pub(super) fn as_bool(self) -> Option<bool> {
        match self.kind() {
            Kind::True => Some(true),
            Kind::False => Some(false),
            _ => None,
        }
    }

    pub(super) fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    pub(super) fn is_array(self) -> bool {
        self.kind() == Kind::Array
    }

    pub(super) fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// Line and column, from 1.
    pub(super) fn place(self) -> (u64, u64) {
        let (line, column) = self
            .token()
            .map_or((0, 1), |token| (token.line, token.column));
        (
            self.tape.first_line.max(1) + u64::from(line),
            u64::from(column),
        )
    }

    /// The URL of the context that it is from, if it is not from the document.
    pub(super) fn origin(self) -> Option<&'t str> {
        self.tape.origin.as_deref()
    }

    /// The items of an array, or the value itself.
    pub(super) fn items(self) -> Items<'t> {
        let is_array = self.is_array();
        Items {
            tape: self.tape,
            at: if is_array { self.at + 1 } else { self.at },
            end: self.tape.skip(self.at),
        }
    }

    /// Keys and values of an object; nothing of all others.
    pub(super) fn entries(self) -> Entries<'t> {
        let end = self.tape.skip(self.at);
        Entries(Items {
            tape: self.tape,
            at: if self.is_object() { self.at + 1 } else { end },
            end,
        })
    }

    /// The value of a key of an object.
    pub(super) fn get(self, key: &str) -> Option<Value<'t>> {
        let mut found = self.entries().filter(|(name, _)| name.text() == key);
        found.next().map(|(_, value)| value)
    }

    /// A copy that lives by itself.
    pub(super) fn to_tape(self) -> Tape {
        let end = self.tape.skip(self.at).min(self.tape.len());
        let tokens = self.tape.tokens.get(wide(self.at)..wide(end));
        let tokens = tokens.unwrap_or(&[]);
        let text_start = tokens.first().map_or(0, |token| token.start);
        let text_end = tokens.last().map_or(0, |token| token.start + token.length);
        let copied = tokens.iter().map(|token| Token {
            start: token.start - text_start,
            next: token.next - self.at,
            ..*token
        });
        let text = self.tape.text.get(wide(text_start)..wide(text_end));
        Tape {
            tokens: copied.collect(),
            text: text.unwrap_or_default().to_owned(),
            first_line: self.tape.first_line,
            origin: self.tape.origin.clone(),
        }
    }

    /// Appends what tells the value from all others.
    pub(super) fn fingerprint(self, out: &mut Vec<u8>) {
        let end = self.tape.skip(self.at).min(self.tape.len());
        let tokens = self.tape.tokens.get(wide(self.at)..wide(end));
        for token in tokens.unwrap_or(&[]) {
            out.push(token.kind as u8);
            out.extend((token.next - self.at).to_le_bytes());
            out.extend(token.length.to_le_bytes());
            out.extend(self.tape.text_of(token).as_bytes());
        }
    }

    /// Whether both are the same but for the order of keys.
    pub(super) fn is_same(self, other: Value<'_>) -> bool {
        match (self.kind(), other.kind()) {
            (Kind::Object, Kind::Object) => {
                self.entries().count() == other.entries().count()
                    && self.entries().all(|(key, value)| {
                        other
                            .get(key.text())
                            .is_some_and(|other| value.is_same(other))
                    })
            }
            (Kind::Array, Kind::Array) => {
                self.items().count() == other.items().count()
                    && self
                        .items()
                        .zip(other.items())
                        .all(|(one, other)| one.is_same(other))
            }
            (one, two) => one == two && self.text() == other.text(),
        }
    }
}

/// Values that follow each other.
#[derive(Clone, Debug)]
pub(super) struct Items<'t> {
    tape: &'t Tape,
    at: u32,
    end: u32,
}

impl<'t> Iterator for Items<'t> {
    type Item = Value<'t>;

    fn next(&mut self) -> Option<Value<'t>> {
        if self.at >= self.end {
            return None;
        }
        let value = self.tape.value(self.at);
        self.at = self.tape.skip(self.at);
        Some(value)
    }
}

/// Keys with their values.
#[derive(Clone, Debug)]
pub(super) struct Entries<'t>(Items<'t>);

impl<'t> Iterator for Entries<'t> {
    type Item = (Value<'t>, Value<'t>);

    fn next(&mut self) -> Option<(Value<'t>, Value<'t>)> {
        loop {
            let key = self.0.next()?;
            let value = self.0.next()?;
            if key.kind() != Kind::Shadowed {
                return Some((key, value));
            }
        }
    }
}
