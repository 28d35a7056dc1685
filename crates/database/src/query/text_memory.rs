//! What the text of a request takes in memory while it is parsed and planned, and afterwards.
//!
//! Parser, algebra and plan allocate as they like, so their memory is estimated from the number of tokens and reserved
//! before the text is parsed. crates/database/tests/bounded has texts of many kinds, whose peaks must lie below the estimate.
//!
//! # Limits
//! Texts of up to [`FREE_TOKENS`] tokens are not reserved.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_storage::{BudgetExceeded, MemoryBudget, Reservation};

use super::token::{self, Token};
use crate::error::{Error, Result};
use crate::limits::{QUERY_ELEMENTS_MAX, QUERY_NESTING_MAX};

/// A word, or a brace that opens a group, takes so many bytes in parser, algebra, planner and plan together, at most
/// about.
const WORD_BYTES: usize = 700;
/// The same for a string, of which parser, algebra and local terms have a copy each.
const STRING_BYTES: usize = 1_400;
/// The same for other punctuation.
const MARK_BYTES: usize = 50;
/// One part of so many stays for the plan, which is there as long as the query runs.
const PLANNED_PART: u64 = 3;
/// The text itself is copied so often: rewritten, and in the terms of algebra and plan.
const COPIES: usize = 4;
/// A token of long data takes so much: itself, what is written in its place, and what becomes of it beside the piece that is parsed;
const TOKEN_BYTES: usize = 100;
/// a label of a blank node more, which is looked for elsewhere.
const LABEL_BYTES: usize = 200;
/// Shorter texts are not worth counting.
const FREE_TOKENS: usize = 256;
const FREE_BYTES: usize = 16 << 10;
/// The tokens of longer texts are counted before they are listed, or reserved in pieces of this size while they are.
const LISTED_BYTES: usize = 64 << 10;

/// Each operator of a plan has the variables below it. A variable of an operator takes so many bytes; of the operators of
/// a group half are above a variable.
const PAIR_BYTES: u64 = 10;

/// An aggregate is a column of its own below the expressions that take its value, and of what they are made into.
const AGGREGATE_VARIABLES: u64 = 4;

/// Groups within each other that are told apart; no query has more.
const GROUPS_MAX: usize = QUERY_NESTING_MAX + 1;

/// Memory that is reserved for a text.
pub(crate) struct TextMemory {
    reservation: Option<Reservation>,
    /// How much of it is for the variables of operators.
    columns_bytes: u64,
}

impl TextMemory {
    /// Cuts a text into tokens, and reserves what it takes. `what` names the text in the error.
    ///
    /// # Errors
    /// `MemoryExceeded` if there is no room.
    pub(super) fn with_tokens(
        text: &str,
        budget: &MemoryBudget,
        what: &'static str,
    ) -> Result<(Self, Vec<Token>)> {
        if text.len() > LISTED_BYTES {
            let mut taken = Taken::default();
            token::each(text, |token| taken.add(text, token));
            let memory = Self::reserve(COPIES * text.len(), &taken, (budget, what))?;
            return Ok((memory, token::tokens(text)));
        }
        let tokens = token::tokens(text);
        if tokens.len() <= FREE_TOKENS && text.len() <= FREE_BYTES {
            return Ok((Self::none(), tokens));
        }
        let mut taken = Taken::default();
        tokens.iter().for_each(|token| taken.add(text, *token));
        let memory = Self::reserve(COPIES * text.len(), &taken, (budget, what))?;
        Ok((memory, tokens))
    }

    /// Cuts a text into tokens, and reserves what these and the text take; [`TextMemory::parse`] reserves the rest.
    ///
    /// # Errors
    /// As [`TextMemory::with_tokens`].
    pub(super) fn listed(
        text: &str,
        budget: &MemoryBudget,
        what: &'static str,
    ) -> Result<(Self, Vec<Token>)> {
        if text.len() <= FREE_BYTES {
            return Ok((Self::none(), token::tokens(text)));
        }
        let mut memory = Self::reserve(COPIES * text.len(), &Taken::default(), (budget, what))?;
        let mut tokens = Vec::new();
        let mut bytes = 0;
        let mut refused = None;
        token::each(text, |token| {
            let is_label = token.of(text).starts_with("_:");
            bytes += TOKEN_BYTES + if is_label { LABEL_BYTES } else { 0 };
            if bytes >= LISTED_BYTES {
                let more = memory.grow(std::mem::take(&mut bytes), what);
                refused = refused.take().or(more.err());
            }
            if refused.is_none() {
                tokens.push(token);
            }
        });
        refused.map_or(Ok(()), Err)?;
        memory.grow(bytes, what)?;
        Ok((memory, tokens))
    }

    /// Reserves what it takes to parse some tokens of the text.
    ///
    /// # Errors
    /// As [`TextMemory::with_tokens`].
    pub(super) fn parse<'a>(
        &mut self,
        text: &str,
        tokens: impl Iterator<Item = &'a Token> + Clone,
        budget: &MemoryBudget,
        what: &'static str,
    ) -> Result<()> {
        if self.reservation.is_none() && tokens.clone().nth(FREE_TOKENS).is_none() {
            return Ok(());
        }
        let mut taken = Taken::default();
        tokens.for_each(|token| taken.add(text, *token));
        let bytes = match &self.reservation {
            // What `listed` did not count.
            None => COPIES * text.len(),
            Some(_) => 0,
        };
        let more = Self::reserve(bytes, &taken, (budget, what))?;
        self.columns_bytes += more.columns_bytes;
        match (&mut self.reservation, more.reservation) {
            (Some(all), Some(more)) => all.join(more),
            (none, more) => *none = more,
        }
        Ok(())
    }

    /// Reserves so many bytes more, if there is a reservation.
    fn grow(&mut self, bytes: usize, what: &'static str) -> Result<()> {
        let Some(reservation) = &mut self.reservation else {
            return Ok(());
        };
        reservation
            .grow(bytes as u64)
            .map_err(|exceeded| too_long(exceeded, what))
    }

    const fn none() -> Self {
        Self {
            reservation: None,
            columns_bytes: 0,
        }
    }

    /// Reserves so many bytes, and what the tokens take.
    fn reserve(
        bytes: usize,
        taken: &Taken<'_>,
        (budget, what): (&MemoryBudget, &'static str),
    ) -> Result<Self> {
        let columns_bytes = taken.pairs().saturating_mul(PAIR_BYTES);
        let bytes = ((bytes + taken.bytes) as u64).saturating_add(columns_bytes);
        match budget.try_reserve(bytes) {
            Ok(reservation) => Ok(Self {
                reservation: Some(reservation),
                columns_bytes,
            }),
            Err(exceeded) => Err(too_long(exceeded, what)),
        }
    }

    /// The text was planned: what parser and algebra took is free.
    pub(super) fn planned(mut self) -> Self {
        if let Some(reservation) = &mut self.reservation {
            let others = reservation.bytes() - self.columns_bytes;
            reservation.shrink(others - others / PLANNED_PART);
        }
        self
    }
}

/// The error of a text, which `what` names, for which there is no memory.
fn too_long(exceeded: BudgetExceeded, what: &'static str) -> Error {
    Error::MemoryExceeded {
        operator: what.to_owned(),
        requested_bytes: exceeded.requested,
        limit_bytes: exceeded.limit,
    }
}

/// What the tokens of a text take.
#[derive(Default)]
struct Taken<'t> {
    bytes: usize,
    /// The groups that are open, after what stands outside of all.
    groups: Vec<Group>,
    /// The variables that were met, and whether more than once: one that stands in one place, and that nobody wants, is in no
    /// operator but that one.
    variables: HashMap<&'t str, bool, RandomState>,
    /// All variables are wanted.
    all_wanted: bool,
    /// Pairs of operators and variables in the groups that were closed.
    pairs: u64,
    /// The token before, if it is one that counts.
    before: Option<Keyword>,
}

/// A word that counts, or by which what follows counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keyword {
    /// What a template may stand behind.
    Template,
    /// Behind which a star stands for all variables.
    Projection,
    /// The name of an aggregate.
    Aggregate,
    Exists,
    As,
}

/// A group of a text.
#[derive(Default)]
struct Group {
    /// Patterns, groups in it and expressions that bind variables, about.
    operators: u64,
    /// Expressions that bind variables.
    bound: u64,
    /// The variables that are met in it first.
    variables: u64,
    /// It is a template, from which no operators are made.
    is_template: bool,
}

impl<'t> Taken<'t> {
    fn add(&mut self, text: &'t str, token: Token) {
        self.bytes += token_bytes(text, token);
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let depth = self.groups.len();
        let Some(group) = self.groups.last_mut() else {
            return;
        };
        let word = token.of(text);
        let keyword = Keyword::of(word);
        let before = std::mem::replace(&mut self.before, keyword);
        match word.as_bytes() {
            b"{" => {
                group.operators += 1;
                let is_template = before == Some(Keyword::Template) || group.is_template;
                if depth <= GROUPS_MAX {
                    self.groups.push(Group {
                        is_template,
                        ..Group::default()
                    });
                }
            }
            b"}" if depth > 1 => self.close(),
            // The next operation of an update.
            b";" if depth == 1 => {
                self.close();
                self.variables.clear();
            }
            _ if group.is_template => {}
            b"." | b";" | b"," => group.operators += 1,
            b"*" if before == Some(Keyword::Projection) => self.all_wanted = true,
            [b'?' | b'$', _, ..] => {
                let is_column = before == Some(Keyword::As) && depth == 1;
                let is_met = self.variables.get(word).copied();
                let counts = match self.all_wanted || is_column {
                    true => is_met != Some(true),
                    false => is_met == Some(false),
                };
                group.variables += u64::from(counts);
                self.variables.insert(word, counts || is_met.is_some());
            }
            _ => match keyword {
                Some(Keyword::Aggregate) => group.variables += AGGREGATE_VARIABLES,
                // Whether it holds is a column as well.
                Some(Keyword::Exists) => group.variables += 1,
                Some(Keyword::As) => {
                    group.operators += 1;
                    group.bound += 1;
                }
                Some(Keyword::Template | Keyword::Projection) | None => {}
            },
        }
    }

    /// Ends the innermost group, whose variables those around it have, too.
    fn close(&mut self) {
        let Some(group) = self.groups.pop() else {
            return;
        };
        self.pairs += group.pairs();
        if let Some(outer) = self.groups.last_mut() {
            outer.variables += group.variables;
        }
    }

    fn pairs(&self) -> u64 {
        let mut variables = 0;
        let open = self.groups.iter().rev().map(|group| {
            variables += group.variables;
            Group {
                variables,
                ..*group
            }
            .pairs()
        });
        self.pairs + open.sum::<u64>()
    }
}

impl Group {
    /// None where the query is refused for its number of patterns.
    fn pairs(&self) -> u64 {
        let most = QUERY_ELEMENTS_MAX as u64;
        match self.bound <= most && self.variables <= 3 * most {
            true => self.operators.saturating_mul(self.variables) / 2,
            false => 0,
        }
    }
}

impl Keyword {
    const ALL: [(&'static str, Self); 16] = [
        ("AS", Self::As),
        ("SUM", Self::Aggregate),
        ("AVG", Self::Aggregate),
        ("MIN", Self::Aggregate),
        ("MAX", Self::Aggregate),
        ("COUNT", Self::Aggregate),
        ("SAMPLE", Self::Aggregate),
        ("GROUP_CONCAT", Self::Aggregate),
        ("EXISTS", Self::Exists),
        ("SELECT", Self::Projection),
        ("DISTINCT", Self::Projection),
        ("REDUCED", Self::Projection),
        ("DESCRIBE", Self::Projection),
        ("CONSTRUCT", Self::Template),
        ("INSERT", Self::Template),
        ("DELETE", Self::Template),
    ];

    pub(super) fn of(word: &str) -> Option<Self> {
        // Most tokens of long texts are no words.
        if !word.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return None;
        }
        let found = Self::ALL
            .iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name));
        found.map(|(_, keyword)| *keyword)
    }
}

/// What a token takes.
fn token_bytes(text: &str, token: Token) -> usize {
    match token.of(text).as_bytes().first() {
        Some(b',' | b';' | b'.' | b'(' | b')' | b'}' | b'[' | b']') => MARK_BYTES,
        Some(b'"' | b'\'') => STRING_BYTES,
        _ => WORD_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> u64 {
        let mut taken = Taken::default();
        token::each(text, |token| taken.add(text, token));
        taken.pairs()
    }

    #[test]
    fn operators_have_the_variables_of_their_group() {
        let binds = |count: usize| {
            let bind = |number| format!(" BIND(1 AS ?x{number})");
            (0..count).map(bind).collect::<String>()
        };
        assert_eq!(taken(&format!("SELECT * {{ {} }}", binds(100))), 5_050);
        let optional = |number| format!("OPTIONAL {{ ?s ?p ?x{number} }} ");
        let optionals: String = (0..100).map(optional).collect();
        let patterns: String = (0..100)
            .map(|number| format!("?s ?p ?x{number} . "))
            .collect();
        let columns: String = (0..100)
            .map(|number| format!("(1 AS ?x{number}) "))
            .collect();
        for text in [
            format!("SELECT * {{ {optionals} }}"),
            format!("SELECT * {{ {patterns} }}"),
            format!("SELECT {columns} {{ ?s ?p ?o }}"),
        ] {
            assert!(
                (5_000..5_300).contains(&taken(&text)),
                "{}: {text}",
                taken(&text)
            );
        }
        // Operations of an update have nothing to do with each other; neither has a list with variables.
        let updates = "INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(1 AS ?x) BIND(2 AS ?y) } ; ";
        assert!(taken(&updates.repeat(1_000)) < 20_000);
        let template: String = (0..1_000)
            .map(|number| format!("?s ?p ?x{number} . "))
            .collect();
        assert!(taken(&format!("CONSTRUCT {{ {template} }} WHERE {{ ?s ?p ?o }}")) < 100);
        let list = "1, ".repeat(100_000);
        assert!(taken(&format!("SELECT * {{ ?s ?p ?o FILTER(?o IN ({list} 1)) }}")) < 200_000);
        assert_eq!(
            taken(&format!(
                "INSERT DATA {{ {} }}",
                "<s> <p> 1 . ".repeat(1_000)
            )),
            0
        );
        let lone = patterns.replace("?s ?p ?x", "?s <p> ?x");
        assert!(taken(&format!("SELECT (COUNT(*) AS ?n) {{ {lone} }}")) < 500);
        // What is refused for its length is not refused for its memory.
        let refused = format!("SELECT * {{ {} }}", binds(QUERY_ELEMENTS_MAX + 1));
        assert!(taken(&refused) < 100_000);
    }
}
