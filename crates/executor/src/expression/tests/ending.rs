//! Expressions that take long for one batch, or one row, end with the query.

use super::{Looks, context_at, run};
use crate::Error;

/// A text of `length` characters, from a VALUES block.
fn text(length: usize) -> String {
    format!("VALUES ?t {{ \"{}\" }}", "aB c".repeat(length / 4))
}

/// Queries that take long within one batch, by name.
fn hostile() -> Vec<(&'static str, String)> {
    let numbers: String = (0..1_000).map(|n| format!("\"{n}\" ")).collect();
    let digits = "7".repeat(900);
    let of_text = |expression: &str| {
        let text = text(8 << 20);
        format!("SELECT (STRLEN(STR({expression})) AS ?x) {{ {text} }}")
    };
    vec![
        (
            "a pattern for each row",
            format!(
                "SELECT ?n {{ VALUES ?n {{ {numbers} }} FILTER(REGEX(\"b\", CONCAT(\"(\", ?n, \"|a){{1,300}}\"))) }}"
            ),
        ),
        (
            "nested replacements",
            "SELECT (STRLEN(REPLACE(REPLACE(REPLACE(REPLACE(?t, \"a\", \"aaaaaaaaaa\"), \"a\", \"aaaaaaaaaa\"), \
             \"a\", \"aaaaaaaaaa\"), \"a\", \"aaaaaaaaaa\")) AS ?x) { VALUES ?t { \"aaaaaaaaaaaaaaaaaaaa\" } }"
                .to_owned(),
        ),
        ("REGEX", of_text("REGEX(?t, \"(x|y)+z\")")),
        ("UCASE", of_text("UCASE(?t)")),
        ("LCASE", of_text("LCASE(?t)")),
        ("SUBSTR", of_text("SUBSTR(?t, 2)")),
        ("CONTAINS", of_text("CONTAINS(?t, \"aC\")")),
        ("STRBEFORE", of_text("STRBEFORE(?t, \"aC\")")),
        ("STRAFTER", of_text("STRAFTER(?t, \"aC\")")),
        ("ENCODE_FOR_URI", of_text("ENCODE_FOR_URI(?t)")),
        ("MD5", of_text("MD5(?t)")),
        ("SHA1", of_text("SHA1(?t)")),
        ("SHA256", of_text("SHA256(?t)")),
        ("SHA384", of_text("SHA384(?t)")),
        ("SHA512", of_text("SHA512(?t)")),
        (
            "many rows of long numbers",
            format!(
                "SELECT ?n {{ VALUES ?n {{ {numbers} }} \
                 FILTER((xsd:integer(?n) + {digits}) * {digits} + xsd:integer(?n) * {digits} - {digits} \
                        * (xsd:integer(?n) - {digits}) < xsd:integer(?n) * (xsd:integer(?n) + {digits})) }}"
            ),
        ),
    ]
}

#[test]
fn long_expressions_end_when_the_time_is_up() {
    for (name, query) in hostile() {
        let endless = Looks::new(u64::MAX);
        let finished = run(&query, &context_at(&endless, 1 << 30));
        assert!(finished.is_ok(), "{name}: {finished:?}");
        let looks = endless.taken();
        // Others look at the clock at the beginning and the end of the query.
        let left = looks / 2;
        let clock = Looks::new(left);
        let ended = run(&query, &context_at(&clock, 1 << 30));
        assert!(
            matches!(ended, Err(Error::DeadlineExceeded)),
            "{name}: {ended:?}"
        );
        assert!(looks > 16, "{name}: {looks} looks in all");
        let beyond = clock.taken() - left;
        assert!(beyond <= 2, "{name}: {beyond} looks after the time was up");
    }
}
