//! Matching in time linear in the text: patterns without back-references.
//!
//! Most searches are done by the `regex-automata` crate as a whole, with all its short cuts. It cannot be interrupted, so
//! it gets a search only if that takes at most [`WHOLE_STEPS_MAX`] steps in the worst case: so many positions of the
//! pattern times so many bytes. Longer searches are driven from here byte by byte, and take steps on the way: a lazy DFA
//! finds the end of the leftmost match, another one its beginning backwards, and if the groups are wanted a program that
//! remembers where it has been ([`super::backtracking`]) finds these within the match.
//!
//! Both ways find the same matches (`tests::both_ways_find_the_same`).
//!
//! # Limits
//! The program of a pattern may take [`COMPILED_BYTES_MAX`], a lazy DFA [`LAZY_BYTES_MAX`].

use std::ops::Range;
use std::sync::{MutexGuard, OnceLock, PoisonError};

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa;
use regex_automata::meta;
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::{Hir, HirKind};
use stoa_storage::sync::Mutex;

use super::backtracking::Program;
use super::{COMPILED_BYTES_MAX, LAZY_BYTES_MAX, PatternError, Places};
use crate::steps::{STEPS_PER_CHECK, Steps};

/// A search that may take more steps than this is done byte by byte: some milliseconds.
const WHOLE_STEPS_MAX: u64 = 2 << 20;

/// A pattern without back-references.
pub(super) struct Linear {
    /// As the crates write it.
    source: String,
    regex: meta::Regex,
    cache: Mutex<meta::Cache>,
    /// In how many places a search can be at once, at most.
    positions: u64,
    /// [`WHOLE_STEPS_MAX`], or less in tests.
    whole_steps_max: u64,
    /// For long searches, made when there is one.
    stepped: OnceLock<Option<Stepped>>,
}

impl Linear {
    pub(super) fn new(source: String) -> Result<Self, PatternError> {
        let unreadable = |_| PatternError::Syntax("what the matcher cannot read");
        let hir = regex_syntax::parse(&source).map_err(unreadable)?;
        let config = meta::Config::new()
            .nfa_size_limit(Some(COMPILED_BYTES_MAX))
            .hybrid_cache_capacity(LAZY_BYTES_MAX);
        let mut builder = meta::Builder::new();
        let regex = builder.configure(config).build_from_hir(&hir);
        let regex = regex.map_err(|_| PatternError::TooLarge)?;
        Ok(Self {
            cache: Mutex::new(regex.create_cache()),
            regex,
            positions: positions(&hir),
            whole_steps_max: WHOLE_STEPS_MAX,
            source,
            stepped: OnceLock::new(),
        })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// What it takes in memory, with what its searches keep.
    pub(super) fn size_bytes(&self) -> usize {
        let stepped = self.stepped.get().and_then(Option::as_ref);
        self.regex.memory_usage()
            + self.cache().memory_usage()
            + stepped.map_or(0, Stepped::size_bytes)
    }

    fn cache(&self) -> MutexGuard<'_, meta::Cache> {
        // A search that panicked leaves a cache that the next one clears.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the steps of a search of so many bytes; whether it may be done as a whole.
    fn is_short(&self, bytes: usize, steps: &Steps<'_>) -> Option<bool> {
        let most = self.positions.saturating_mul(bytes as u64 + 1);
        if most > self.whole_steps_max {
            return Some(false);
        }
        steps.take(most).map(|()| true)
    }

    /// Whether a part of the text matches.
    pub(super) fn is_match(&self, text: &str, steps: &Steps<'_>) -> Option<bool> {
        if self.is_short(text.len(), steps)? {
            let input = Input::new(text).earliest(true);
            let found = self.regex.search_half_with(&mut self.cache(), &input);
            return Some(found.is_some());
        }
        let stepped = self.stepped(steps)?;
        let found = stepped.forward.end(text.as_bytes(), 0, true, steps)?;
        Some(found.is_some())
    }

    /// The leftmost match from `at` on, with its groups if they are wanted; false if there is none.
    pub(super) fn find(
        &self,
        text: &str,
        at: usize,
        with_groups: bool,
        places: &mut Places,
        steps: &Steps<'_>,
    ) -> Option<bool> {
        places.clear();
        if self.is_short(text.len() - at, steps)? {
            let input = Input::new(text).range(at..);
            self.find_in(input, with_groups, places);
            return Some(!places.is_empty());
        }
        let stepped = self.stepped(steps)?;
        let Some((start, end)) = stepped.find(text.as_bytes(), at, steps)? else {
            return Some(false);
        };
        if !with_groups {
            places.push(Some((start, end)));
        } else if self.is_short(end - start, steps)? {
            let input = Input::new(text).range(start..end).anchored(Anchored::Yes);
            self.find_in(input, true, places);
        } else {
            let program = stepped.program(&self.source, steps)?;
            program.groups_of(text, start, end, places, steps)?;
        }
        Some(!places.is_empty())
    }

    fn find_in(&self, input: Input<'_>, with_groups: bool, places: &mut Places) {
        let mut cache = self.cache();
        if !with_groups {
            let found = self.regex.search_with(&mut cache, &input);
            places.extend(found.map(|found| Some((found.start(), found.end()))));
            return;
        }
        let mut captures: Captures = self.regex.create_captures();
        self.regex
            .search_captures_with(&mut cache, &input, &mut captures);
        if captures.is_match() {
            let groups = captures.iter();
            places.extend(groups.map(|group| group.map(|group| (group.start, group.end))));
        }
    }

    fn stepped(&self, steps: &Steps<'_>) -> Option<&Stepped> {
        let stepped = self.stepped.get_or_init(|| Stepped::new(&self.source));
        if stepped.is_none() {
            return steps.keep(Err(super::too_large()));
        }
        stepped.as_ref()
    }
}

/// How many positions a pattern has: the states in which a search can be at once, but for constant factors.
fn positions(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Capture(capture) => positions(&capture.sub).saturating_add(1),
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min).max(1);
            let once = positions(&repeated.sub).saturating_add(1);
            once.saturating_mul(times.into())
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            let parts = parts.iter().map(positions);
            parts.fold(1, u64::saturating_add)
        }
    }
}

/// What searches byte by byte.
struct Stepped {
    forward: Automaton,
    backward: Automaton,
    program: OnceLock<Option<Program>>,
}

impl Stepped {
    /// `None` if it takes too much.
    fn new(source: &str) -> Option<Self> {
        let hir = regex_syntax::parse(source).ok()?;
        Some(Self {
            forward: Automaton::new(&hir, false)?,
            backward: Automaton::new(&hir, true)?,
            program: OnceLock::new(),
        })
    }

    fn size_bytes(&self) -> usize {
        let program = self.program.get().and_then(Option::as_ref);
        self.forward.size_bytes()
            + self.backward.size_bytes()
            + program.map_or(0, Program::size_bytes)
    }

    fn program(&self, source: &str, steps: &Steps<'_>) -> Option<&Program> {
        let program = self.program.get_or_init(|| Program::new(source).ok());
        if program.is_none() {
            return steps.keep(Err(super::too_large()));
        }
        program.as_ref()
    }

    /// Where the leftmost match from `at` on lies.
    fn find(&self, text: &[u8], at: usize, steps: &Steps<'_>) -> Option<Option<(usize, usize)>> {
        let Some(end) = self.forward.end(text, at, false, steps)? else {
            return Some(None);
        };
        let start = self.backward.start(text, at, end, steps)?;
        Some(start.map(|start| (start, end)))
    }
}

/// A lazy DFA, and what it costs.
struct Automaton {
    dfa: dfa::DFA,
    /// What the last search left for the next one; a search has it to itself.
    cache: Mutex<Option<dfa::Cache>>,
    /// What a byte costs if it leads to a state that was not known.
    byte_steps: u64,
}

impl Automaton {
    fn new(hir: &Hir, is_backward: bool) -> Option<Self> {
        let config = thompson::Config::new()
            .reverse(is_backward)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(COMPILED_BYTES_MAX));
        let nfa = thompson::Compiler::new()
            .configure(config)
            .build_from_hir(hir)
            .ok()?;
        // The longest match backwards is the one that begins leftmost.
        let kind = match is_backward {
            true => MatchKind::All,
            false => MatchKind::LeftmostFirst,
        };
        let config = dfa::Config::new()
            .match_kind(kind)
            .cache_capacity(LAZY_BYTES_MAX)
            .skip_cache_capacity_check(true);
        let dfa = dfa::Builder::new()
            .configure(config)
            .build_from_nfa(nfa)
            .ok()?;
        Some(Self {
            cache: Mutex::new(None),
            byte_steps: positions(hir).min(STEPS_PER_CHECK),
            dfa,
        })
    }

    fn size_bytes(&self) -> usize {
        let cache = self.kept().as_ref().map_or(0, dfa::Cache::memory_usage);
        self.dfa.memory_usage() + cache
    }

    fn kept(&self) -> MutexGuard<'_, Option<dfa::Cache>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches with a cache. No lock is held meanwhile, since a search gives way to others.
    fn with_cache<T>(&self, search: impl FnOnce(&mut dfa::Cache) -> T) -> T {
        let kept = self.kept().take();
        let mut cache = kept.unwrap_or_else(|| self.dfa.create_cache());
        let found = search(&mut cache);
        *self.kept() = Some(cache);
        found
    }

    /// So many bytes are gone over before steps are taken for them.
    fn piece_bytes(&self) -> usize {
        usize::try_from(STEPS_PER_CHECK / self.byte_steps)
            .unwrap_or(1)
            .max(1)
    }

    /// The end of the leftmost match from `at` on, or of any match if the earliest is wanted.
    fn end(
        &self,
        text: &[u8],
        at: usize,
        earliest: bool,
        steps: &Steps<'_>,
    ) -> Option<Option<usize>> {
        self.with_cache(|cache| self.end_with(cache, text, at, earliest, steps))
    }

    fn end_with(
        &self,
        cache: &mut dfa::Cache,
        text: &[u8],
        at: usize,
        earliest: bool,
        steps: &Steps<'_>,
    ) -> Option<Option<usize>> {
        let input = Input::new(text).range(at..);
        let start = self.dfa.start_state_forward(cache, &input).ok();
        let mut state = start.or_else(|| unexpected(steps))?;
        let mut last = None;
        let mut place = at;
        for piece in text.get(at..)?.chunks(self.piece_bytes()) {
            steps.take(self.byte_steps * piece.len() as u64)?;
            for &byte in piece {
                state = self.next(cache, state, byte, steps)?;
                // A match is told one byte late.
                if state.is_tagged() {
                    if state.is_match() {
                        last = Some(place);
                        if earliest {
                            return Some(last);
                        }
                    } else if state.is_dead() {
                        return Some(last);
                    }
                }
                place += 1;
            }
        }
        let state = self.dfa.next_eoi_state(cache, state).ok();
        if state.or_else(|| unexpected(steps))?.is_match() {
            last = Some(text.len());
        }
        Some(last)
    }

    /// The beginning of the longest match that ends at `end`, and begins at `at` or later.
    fn start(
        &self,
        text: &[u8],
        at: usize,
        end: usize,
        steps: &Steps<'_>,
    ) -> Option<Option<usize>> {
        self.with_cache(|cache| self.start_with(cache, text, at..end, steps))
    }

    fn start_with(
        &self,
        cache: &mut dfa::Cache,
        text: &[u8],
        range: Range<usize>,
        steps: &Steps<'_>,
    ) -> Option<Option<usize>> {
        let (at, end) = (range.start, range.end);
        let input = Input::new(text).range(range).anchored(Anchored::Yes);
        let start = self.dfa.start_state_reverse(cache, &input).ok();
        let mut state = start.or_else(|| unexpected(steps))?;
        let mut last = None;
        let mut place = end;
        for piece in text.get(at..end)?.rchunks(self.piece_bytes()) {
            steps.take(self.byte_steps * piece.len() as u64)?;
            for &byte in piece.iter().rev() {
                state = self.next(cache, state, byte, steps)?;
                if state.is_tagged() {
                    if state.is_match() {
                        last = Some(place);
                    } else if state.is_dead() {
                        return Some(last);
                    }
                }
                place -= 1;
            }
        }
        // What stands before is looked at, but is no part of the match.
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        let state = match before {
            Some(byte) => self.next(cache, state, *byte, steps)?,
            None => {
                let state = self.dfa.next_eoi_state(cache, state).ok();
                state.or_else(|| unexpected(steps))?
            }
        };
        if state.is_match() {
            last = Some(at);
        }
        Some(last)
    }

    fn next(
        &self,
        cache: &mut dfa::Cache,
        state: LazyStateID,
        byte: u8,
        steps: &Steps<'_>,
    ) -> Option<LazyStateID> {
        let next = self.dfa.next_state(cache, state, byte).ok();
        next.or_else(|| unexpected(steps))
    }
}

/// The lazy DFAs here never give up, nor is there a byte that they stop at.
fn unexpected<T>(steps: &Steps<'_>) -> Option<T> {
    steps.keep(Err(crate::Error::Internal("a lazy DFA that gave up")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::context;

    /// All texts of these characters up to a length.
    fn texts(characters: &[char], length: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut last = 0;
        for _ in 0..length {
            let before = all.len();
            for number in last..before {
                let longer = characters
                    .iter()
                    .map(|next| format!("{}{next}", all[number]));
                let longer: Vec<_> = longer.collect();
                all.extend(longer);
            }
            last = before;
        }
        all
    }

    fn found(linear: &Linear, text: &str, with_groups: bool, steps: &Steps<'_>) -> Vec<Places> {
        let mut all = Vec::new();
        for at in 0..=text.len() {
            if !text.is_char_boundary(at) {
                continue;
            }
            let mut places = Places::new();
            let found = linear
                .find(text, at, with_groups, &mut places, steps)
                .unwrap();
            assert_eq!(found, !places.is_empty());
            while places.last() == Some(&None) {
                places.pop();
            }
            all.push(places);
        }
        all
    }

    #[test]
    fn both_ways_find_the_same() {
        let context = context();
        let steps = Steps::new(&context);
        let texts = texts(&['a', 'b', '\u{e9}', '\n'], 5);
        let mut matches = 0;
        for source in [
            "a",
            "ab|a",
            "a|ab",
            "(a)(b)?",
            "(?:\\A)a",
            "a(?:\\z)",
            "(?m:^)b",
            "b(?m:$)",
            "(a|ab)(\u{e9}|b\u{e9})?",
            "a*?b",
            "(a+?)(b*)",
            "(a*)(ab)*(b*)",
            "(a{2,3})b",
            "(a|b){2}",
            "[^a]b",
            "((a)|(b))+",
            "a(b|\n)*a",
            "(?:(a)|b)*\u{e9}",
            "(a|b|\u{e9})*?\n",
        ] {
            let whole = Linear::new(source.to_owned()).unwrap();
            let mut stepped = Linear::new(source.to_owned()).unwrap();
            stepped.whole_steps_max = 0;
            for text in &texts {
                for with_groups in [false, true] {
                    let expected = found(&whole, text, with_groups, &steps);
                    matches += expected.iter().filter(|places| !places.is_empty()).count();
                    let places = found(&stepped, text, with_groups, &steps);
                    assert_eq!(places, expected, "{source:?} in {text:?}");
                }
                let is_match = whole.is_match(text, &steps);
                assert_eq!(
                    stepped.is_match(text, &steps),
                    is_match,
                    "{source:?} in {text:?}"
                );
            }
        }
        assert!(matches > 10_000, "{matches}");
        steps.check().unwrap();
    }

    #[test]
    fn the_matcher_that_goes_back_finds_the_same() {
        let context = context();
        let steps = Steps::new(&context);
        for source in [
            "a",
            "ab|a",
            "(a)(b)?",
            "a(?:\\z)",
            "a*?b",
            "(a+?)(b*)",
            "(a*)(ab)*(b*)",
            "(a|b){2}",
            "((a)|(b))+",
        ] {
            let linear = Linear::new(source.to_owned()).unwrap();
            let program = Program::new(source).unwrap();
            for text in texts(&['a', 'b', '\u{e9}'], 5) {
                let (mut expected, mut places) = (Places::new(), Places::new());
                linear.find(&text, 0, true, &mut expected, &steps).unwrap();
                program.find(&text, 0, &mut places, &steps).unwrap();
                assert_eq!(places, expected, "{source:?} in {text:?}");
            }
        }
    }
}
