//! Stacks for queries that parser, planner and operators recurse deeply for.

use stoa_executor::turns;
use stoa_storage::nonblocking;

use super::Text;
use super::text_memory::Keyword;
use super::token::Token;
use crate::error::{Error, Result};

/// A shorter text has no chain that any stack is too small for, and its brackets are counted anyway.
const SHORT_BYTES: usize = 2 << 10;

/// For how many elements a word counts of whose number the parser takes the square: so many as are allowed take it about a
/// second. What DESCRIBE names is put into a chain as well.
const BIND_ELEMENTS: usize = 2;
const DESCRIBED_ELEMENTS: usize = 5;
const AGGREGATE_ELEMENTS: usize = 10;
const LATERAL_ELEMENTS: usize = 50;

/// Fails if work needs a thread with such a stack, and this one must not block.
pub(super) fn check(bytes: Option<usize>) -> Result<()> {
    match bytes {
        None => Ok(()),
        Some(_) => Ok(nonblocking::check()?),
    }
}

/// Runs `work`, on a thread with a stack of so many bytes if it needs one.
///
/// # Errors
/// As [`on_stack`]; if it needs one and this thread must not block, nothing is done.
pub(super) fn run<T: Send>(
    bytes: Option<usize>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match bytes {
        None => work(),
        Some(stack) => {
            check(bytes)?;
            on_stack(stack, work)
        }
    }
}

/// Runs `work` on a thread with a stack of so many bytes and waits for it. Only what is used of a
/// stack takes memory.
///
/// # Errors
/// `Threads` if there is no thread, else those of `work`.
pub(super) fn on_stack<T: Send>(
    bytes: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    // Whoever waits here has its turns on that thread.
    let turns = turns::current();
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("stoa-deep-query".to_owned())
            .stack_size(bytes)
            .spawn_scoped(scope, || turns::with(turns, work))
            .map_err(Error::Threads)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// How many groups, operations and ends of statements a text has: chains of them become as deep a tree
/// in the parser, which moreover looks at all that comes before a BIND. What lists of IN and VALUES
/// hold does not count.
///
/// # Errors
/// `LimitExceeded` if there are more than [`stoa_planner::ELEMENTS_MAX`].
pub(super) fn chained(text: &Text<'_>) -> Result<usize> {
    chained_in(text.text, &text.tokens)
}

/// As [`chained`], of some tokens of a text.
///
/// # Errors
/// As [`chained`].
pub(super) fn chained_in(text: &str, tokens: &[Token]) -> Result<usize> {
    let bytes = match (tokens.first(), tokens.last()) {
        (Some(first), Some(last)) => last.end - first.start,
        _ => 0,
    };
    if bytes <= SHORT_BYTES {
        return Ok(0);
    }
    let mut count = 0_usize;
    let mut data = Data::No;
    let mut open: Vec<bool> = Vec::new();
    let mut before = "";
    let mut is_described = false;
    for token in tokens {
        let word = token.of(text);
        data = data.after(word);
        if data == Data::Inside {
            before = word;
            continue;
        }
        match word {
            "{" | "[" => open.push(true),
            "(" | "<<" | "<<(" | "{|" => open.push(false),
            "}" | "]" | ")" | ">>" | ")>>" | "|}" => {
                open.pop();
            }
            _ => {}
        }
        count += usize::from(match word {
            "{" | "[" | "(" | "=" | "!=" | "<" | ">" | "<=" | ">=" | "&&" | "||" | "*" | "/"
            | "|" | "!" | "^" => true,
            // The sign of a number in a list.
            "+" | "-" => !matches!(before, "," | "("),
            // In a list of IN they do not make a chain.
            "." | ";" | "," => open.last() == Some(&true),
            _ => false,
        });
        is_described &= !["{", "WHERE", "FROM"]
            .iter()
            .any(|end| word.eq_ignore_ascii_case(end));
        count += match is_described {
            true => DESCRIBED_ELEMENTS,
            false => elements(word),
        };
        is_described |= word.eq_ignore_ascii_case("DESCRIBE");
        before = word;
    }
    if count > stoa_planner::ELEMENTS_MAX {
        return Err(stoa_planner::Error::TooLarge.into());
    }
    Ok(count)
}

/// For how many elements a word counts.
fn elements(word: &str) -> usize {
    if word.eq_ignore_ascii_case("BIND") {
        BIND_ELEMENTS
    } else if word.eq_ignore_ascii_case("LATERAL") {
        LATERAL_ELEMENTS
    } else if Keyword::of(word) == Some(Keyword::Aggregate) {
        AGGREGATE_ELEMENTS
    } else {
        0
    }
}

/// Whether tokens belong to the data of VALUES.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Data {
    No,
    /// Behind VALUES, in front of the brace.
    Variables,
    Inside,
}

impl Data {
    fn after(self, word: &str) -> Self {
        match (self, word) {
            (Self::Inside, "}") => Self::No,
            (Self::Inside, _) | (Self::Variables, "{") => Self::Inside,
            (Self::Variables, "(" | ")") => Self::Variables,
            (Self::Variables, word) if word.starts_with(['?', '$']) => Self::Variables,
            (_, word) if word.eq_ignore_ascii_case("values") => Self::Variables,
            _ => Self::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    fn of(text: &str) -> Result<usize> {
        chained(&Text {
            text,
            tokens: tokens(text),
        })
    }

    /// As many elements as this text has when it is long enough to be looked at.
    fn count(text: &str) -> usize {
        of(&format!("{text} <{}>", "x".repeat(SHORT_BYTES))).unwrap()
    }

    #[test]
    fn chains_are_counted_and_data_is_not() {
        assert_eq!(count("SELECT * { ?s ?p ?o . ?o ?p 1, 2 ; ?q 3 }"), 5);
        assert_eq!(count("ASK { FILTER(?a IN (-1, -2, +3, ?b)) }"), 3);
        assert_eq!(count("ASK { FILTER(?a - 1 - 1 = 1 || true) }"), 6);
        assert_eq!(count("ASK { VALUES (?a ?b) { (1 -2) (3 4) } ?s ?p ?o }"), 2);
        assert_eq!(count("SELECT (SUM(?a) AS ?b) { ?s ?p ?o LATERAL { } }"), 64);
        assert_eq!(count("DESCRIBE <a> ?b p:c WHERE { ?b ?p ?o }"), 16);
        assert_eq!(count("DESCRIBE <a> <b>"), 15);
        assert_eq!(count("ASK { values ?a{ 1 -2 -3 } { } UNION { } }"), 3);
        assert_eq!(count("ASK { ?s <a/b>/<d> 'a.b.c' . # {{{\n }"), 3);
        let long = "?s ?p ?o . ".repeat(stoa_planner::ELEMENTS_MAX);
        let error = of(&format!("ASK {{ {long} }}")).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded { .. }), "{error}");
        let rows = "(1 -1) ".repeat(stoa_planner::ELEMENTS_MAX);
        assert_eq!(count(&format!("ASK {{ VALUES (?a ?b) {{ {rows} }} }}")), 2);
    }
}
