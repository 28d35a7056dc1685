//! Tests of patterns: what they match, their limits, and that searches can be ended.

use super::*;
use crate::expression::tests::{Looks, context, context_at};

/// What a call gives, and the error that ends the query.
fn given<T>(
    context: &QueryContext,
    call: impl FnOnce(&Steps<'_>) -> Option<T>,
) -> Result<Option<T>> {
    let steps = Steps::new(context);
    let given = call(&steps);
    steps.check().map(|()| given)
}

fn matches(pattern: &str, flags: &str, text: &str) -> Option<bool> {
    let pattern = compile(pattern, flags).ok()?;
    given(&context(), |steps| pattern.is_match(text, steps)).unwrap()
}

#[test]
fn patterns_are_those_of_xpath() {
    assert_eq!(matches("^a.c$", "", "abc"), Some(true));
    assert_eq!(matches("^ali", "i", "Alice"), Some(true));
    assert_eq!(matches("a.c", "", "a\nc"), Some(false));
    assert_eq!(matches("a.c", "s", "a\nc"), Some(true));
    assert_eq!(matches("^b", "m", "a\nb"), Some(true));
    assert_eq!(matches("a b # c", "x", "ab#c"), Some(true));
    assert_eq!(matches("[ ]b", "x", " b"), Some(true));
    assert_eq!(matches("a.c", "q", "abc"), Some(false));
    assert_eq!(matches("a.c", "q", "a.c"), Some(true));
    assert_eq!(matches("^[a-z-[aeiou]]+$", "", "xyz"), Some(true));
    assert_eq!(matches("^[a-z-[aeiou]]+$", "", "xaz"), Some(false));
    assert_eq!(matches("^\\i\\c*$", "", "a-1"), Some(true));
    assert_eq!(matches("^\\w+$", "", "ab_c"), Some(false));
    assert_eq!(matches("^\\w+$", "", "ab\u{e9}1"), Some(true));
    assert_eq!(matches("a", "z", "a"), None);
}

#[test]
fn what_the_matchers_lack_is_there() {
    assert_eq!(matches("^(a|b)\\1$", "", "aa"), Some(true));
    assert_eq!(matches("^(a|b)\\1$", "", "ab"), Some(false));
    assert_eq!(matches("^(a)\\1$", "i", "aA"), Some(true));
    assert_eq!(matches("^(a)?b\\1$", "", "b"), Some(true));
    assert_eq!(matches("^(a)\\10$", "", "aa0"), Some(true));
    assert_eq!(matches("\\1(a)", "", "aa"), None);
    assert_eq!(matches("(a\\1)", "", "aa"), None);
    assert_eq!(matches("^\\p{Lu}$", "i", "a"), Some(false));
    assert_eq!(matches("^[\\p{Lu}b]$", "i", "B"), Some(true));
    assert_eq!(matches("^[^a]$", "i", "A"), Some(false));
    assert_eq!(matches("^[a-c]$", "i", "B"), Some(true));
    assert_eq!(matches("^[a-z-[c]]$", "i", "C"), Some(false));
    assert_eq!(matches("^a.b$", "iq", "^A.B$"), Some(true));
    assert_eq!(matches("^\\p{IsBasicLatin}+$", "", "ab"), Some(true));
    assert_eq!(matches("^\\P{IsBasicLatin}$", "", "\u{e9}"), Some(true));
    assert_eq!(matches("^[\\p{IsGreek}x]+$", "", "\u{3b1}x"), Some(true));
    assert_eq!(matches("\\p{Greek}", "", "a"), None);
    assert_eq!(matches("\\p{IsNone}", "", "a"), None);
    assert_eq!(matches("^\\i$", "", "1"), Some(false));
    assert_eq!(matches("^\\c$", "", "1"), Some(true));
    assert_eq!(matches("^[\\i-[:]]\\c*$", "", ":a"), Some(false));
    assert_eq!(matches("^$", "m", "a\n"), Some(false));
    assert_eq!(matches("^$", "m", "a\n\nb"), Some(true));
    assert_eq!(matches("a$", "m", "a\n"), Some(true));
    assert_eq!(matches("a$", "", "a\n"), Some(false));
    for wrong in [
        "[",
        "[]",
        "[^]",
        "a**",
        "*",
        "a{2,1}",
        "a{",
        "(?i:a)",
        "\\",
        "\\b",
        "[b-a]",
        "[[a]]",
        ")",
        "[a-[b]c]",
        "a|*",
        "\\0",
        "a{99999999999}",
    ] {
        assert_eq!(matches(wrong, "", "a"), None, "{wrong}");
    }
    assert_eq!(matches("]}-&&~~--", "", "]}-&&~~--"), Some(true));
    assert_eq!(matches("^[-a][a-][&&~~][+--]$", "", "-a~,"), Some(true));
    assert_eq!(matches(&"(".repeat(60_000), "", "a"), None);
    assert_eq!(matches(&"[a-".repeat(20_000), "", "a"), None);
    assert_eq!(matches("a", "z", "a"), None);
    assert_eq!(matches("(", "", "a"), None);
    assert_eq!(matches("^\\s$", "", "\t"), Some(true));
    assert_eq!(matches("^\\s$", "", "\u{a0}"), Some(false));
    assert_eq!(matches("^[\\s]$", "", "\u{b}"), Some(false));
    assert_eq!(matches("^\\S$", "", "\u{a0}"), Some(true));
    assert_eq!(matches("^.$", "", "\r"), Some(false));
    assert_eq!(matches("^.$", "s", "\r"), Some(true));
    assert_eq!(matches("^[.]$", "", "x"), Some(false));
    assert_eq!(matches("(?:a)b", "", "ab"), Some(true));
    assert_eq!(matches("(?i)b", "", "B"), None);
    assert_eq!(
        matches("(((a{1,100}){1,100}){1,100}){1,100}", "", "a"),
        None
    );
}

#[test]
fn back_references_can_be_repeated() {
    assert_eq!(matches("^(a)\\1{2}$", "", "aaa"), Some(true));
    assert_eq!(matches("^(a)\\1{2}$", "", "aa"), Some(false));
    assert_eq!(matches("^(ab)\\1*$", "", "ababab"), Some(true));
    assert_eq!(matches("^(ab|c)+\\1$", "", "abcabab"), Some(true));
    assert_eq!(matches("^(a)+?(b)?\\2c$", "", "aac"), Some(true));
    assert_eq!(matches("^(a){0}(b)\\2$", "", "bb"), Some(true));
}

#[test]
fn a_search_that_goes_back_for_too_long_ends_the_query() {
    let pattern = compile("^(a*)*(a*)*\\1\\2b$", "").unwrap();
    let context = context();
    let is_match = |text: &str| given(&context, |steps| pattern.is_match(text, steps));
    assert!(matches!(
        is_match(&"a".repeat(200)),
        Err(Error::LimitExceeded(_))
    ));
    assert_eq!(is_match("aab").unwrap(), Some(true));
}

/// Patterns and texts that take long, for each way of searching.
fn hostile() -> Vec<(&'static str, &'static str, String)> {
    let text = "a".repeat(1 << 20);
    vec![
        ("linear, no match", "(x|y)+b", text.clone()),
        ("many states", "[^x]*a[^x]{200}b", text.clone()),
        ("a long text", "a+", text.clone()),
        ("groups of a long match", "(a*)(a*)b?(a*)", text.clone()),
        ("a back-reference", "(a)\\1x", text.clone()),
        ("exponential", "^(a*)*\\1b$", "a".repeat(100)),
    ]
}

#[test]
fn searches_end_with_the_query() {
    for (name, pattern, text) in hostile() {
        let pattern = compile(pattern, "").unwrap();
        // One look is left when the time is up: the search that takes it is the last.
        for left in [1, 3] {
            let clock = Looks::new(left + 1);
            let context = context_at(&clock, 512 << 20);
            let outcome = given(&context, |steps| {
                pattern.each_match(&text, true, steps, |_| Some(()))
            });
            assert!(matches!(outcome, Err(Error::DeadlineExceeded)), "{name}");
            assert!(clock.taken() <= left + 3, "{name}: {} looks", clock.taken());
        }
    }
}

#[test]
fn the_cancel_flag_ends_a_search() {
    for (name, pattern, text) in hostile() {
        let pattern = compile(pattern, "").unwrap();
        let context = context_at(&Looks::new(u64::MAX), 512 << 20);
        context.cancel();
        let outcome = given(&context, |steps| pattern.is_match(&text, steps));
        // A match at the very beginning is found before anything is asked.
        let is_short = matches!(name, "a long text" | "groups of a long match");
        assert!(
            is_short || matches!(outcome, Err(Error::Cancelled)),
            "{name}"
        );
    }
}

#[test]
fn long_matches_have_their_groups() {
    let pattern = compile("(b*)(a*)(c?)", "").unwrap();
    let text = format!("{}x", "a".repeat(1 << 20));
    let context = context_at(&Looks::new(u64::MAX), 512 << 20);
    let mut all = Vec::new();
    let found = given(&context, |steps| {
        pattern.each_match(&text, true, steps, |places| {
            all.push(places.clone());
            Some(())
        })
    });
    assert_eq!(found.unwrap(), Some(()));
    let end = 1 << 20;
    assert_eq!(
        all.first().unwrap(),
        &[
            Some((0, end)),
            Some((0, 0)),
            Some((0, end)),
            Some((end, end))
        ]
    );
}

#[test]
fn reading_a_pattern_has_a_limit() {
    for (pattern, flags) in [
        ("\\w".repeat(20_000), ""),
        ("[\\i-[\\c]]".repeat(5_000), ""),
        ("[\u{1}-\u{ffff}]".repeat(8_000), "i"),
        ("\\p{L}{1000}".repeat(100), ""),
        ("(a{1000}){1000}".to_owned(), ""),
        ("(a)\\1{100000000}".to_owned(), ""),
        ("((a)\\2){1000,100000}".to_owned(), ""),
    ] {
        let refused = compile(&pattern, flags).map(drop);
        let shown: String = pattern.chars().take(20).collect();
        assert_eq!(refused, Err(PatternError::TooLarge), "{shown}");
    }
}

#[test]
fn large_patterns_are_reserved() {
    let pattern = compile("\\w{1,40}", "").unwrap();
    let bytes = pattern.size_bytes();
    assert!((512 << 10..COMPILED_BYTES_MAX).contains(&bytes), "{bytes}");
    let context = context();
    pattern.reserve(&context).unwrap();
    assert!(context.meters().memory_bytes() >= bytes as u64);
    drop(pattern);
    assert_eq!(context.meters().memory_bytes(), 0);
    let small = context_at(&Looks::new(1), 9 << 20);
    let patterns: Vec<_> = (0..20).map(|_| compile("\\w{1,40}", "").unwrap()).collect();
    let reserved = patterns
        .iter()
        .try_for_each(|pattern| pattern.reserve(&small));
    assert!(matches!(reserved, Err(Error::MemoryExceeded { .. })));
}

#[test]
fn refusals_say_why() {
    assert_eq!(check("a", "z"), Err(PatternError::Flag('z')));
    assert_eq!(
        check("(\\p{L}{1000}){100}", ""),
        Err(PatternError::TooLarge)
    );
    assert_eq!(check(&"a".repeat(1 << 17), ""), Err(PatternError::TooLong));
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(check(&nested(200), ""), Ok(()));
    assert_eq!(check(&nested(201), ""), Err(PatternError::TooDeep));
    let wrong = check("(", "").unwrap_err();
    assert_eq!(wrong.to_string(), "a ( that is not closed");
}

#[test]
fn usual_patterns_are_within_the_limits() {
    let words: Vec<String> = (0..5_000).map(|n| format!("word{n}")).collect();
    for pattern in [
        "^\\w{3,20}$",
        "^[\\w.-]{1,64}$",
        "^\\p{L}{2,50}$",
        "^.{1,2000}$",
        &words.join("|"),
    ] {
        assert!(compile(pattern, "").is_ok(), "{pattern}");
    }
    assert!(compile("(\\p{L}{1000}){100}", "").is_err());
}
