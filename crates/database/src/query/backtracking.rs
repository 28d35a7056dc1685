//! A limit to what the parser tries twice.
//!
//! spargebra reads what follows `!` again if the first way fails, and so the arguments of REGEX, REPLACE
//! and SUBSTR if there are fewer than it tried first. Nested, each level doubles the time: 133 of `!(`,
//! one of them not closed, would never end.

use stoa_storage::nonblocking;

use super::token::Token;
use crate::error::{Error, Result};
use crate::limits::QUERY_RETRIES_MAX;

/// So many doublings take little time.
const FEW: usize = 2;

/// Refuses a text whose brackets would be read more often than 2 to the power of
/// [`QUERY_RETRIES_MAX`] times, and fewer on a thread that must not block.
pub(super) fn check(text: &str, tokens: &[Token]) -> Result<()> {
    let mut open = Vec::new();
    let (mut doublings, mut next) = (0_usize, 0_usize);
    for token in tokens {
        let token = token.of(text);
        if token.ends_with(['(', '{']) || token == "{|" {
            open.push(next);
            doublings += std::mem::take(&mut next);
            if doublings > FEW {
                nonblocking::check()?;
            }
            if doublings > QUERY_RETRIES_MAX {
                return Err(Error::LimitExceeded {
                    what: "the nesting of !, REGEX, REPLACE and SUBSTR in the query",
                    limit: u64::try_from(QUERY_RETRIES_MAX).unwrap_or(u64::MAX),
                });
            }
        } else if token.starts_with([')', '}']) || token == "|}" {
            doublings -= open.pop().unwrap_or(0);
            next = 0;
        } else if token == "!" {
            next = 1;
        } else if ["REGEX", "REPLACE", "SUBSTR"]
            .iter()
            .any(|name| token.eq_ignore_ascii_case(name))
        {
            next += 1;
        } else if !token.starts_with(|c: char| c.is_alphabetic() || c == '<' || c == ':') {
            // No function whose arguments come next.
            next = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    fn fits(text: &str) -> bool {
        check(text, &tokens(text)).is_ok()
    }

    #[test]
    fn what_would_be_read_too_often_is_refused() {
        for open in [
            "!(",
            "! (",
            "REGEX(",
            "substr (",
            "REPLACE(1,",
            "!STR(",
            "!<f>(",
            "!a:f(",
            "!EXISTS{",
        ] {
            assert!(
                fits(&format!("ASK {{ FILTER({}1", open.repeat(12))),
                "{open}"
            );
            assert!(
                !fits(&format!("ASK {{ FILTER({}1", open.repeat(13))),
                "{open}"
            );
        }
        assert!(!fits(&format!("ASK {{ FILTER({}1", "!REGEX(".repeat(7))));
    }

    #[test]
    fn what_stands_side_by_side_or_is_read_once_fits() {
        for part in [
            "!(?a) && ",
            "REGEX(?a, 'x') || ",
            "(1 != ",
            "!?a && (",
            "STR(",
            "'!(' = (",
            "!BOUND(?x) && (",
            "REPLACE(?a, SUBSTR(?b, 1), STR(?c)) = STR(",
        ] {
            assert!(
                fits(&format!("ASK {{ FILTER({}1", part.repeat(500))),
                "{part}"
            );
        }
        assert!(fits(")}|})"));
    }
}
