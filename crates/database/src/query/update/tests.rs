//! Operations of requests, their prologues, and mistakes in them.

use super::*;
use crate::query::token::tokens;

fn with(text: &str, base: Option<&str>) -> Result<Vec<String>> {
    with_request(
        text,
        base,
        &[],
        (&MemoryBudget::unlimited(), |_, _| ()),
        |operations| Ok(operations.iter().map(|it| format!("{it:?}")).collect()),
    )
}

fn of(text: &str) -> Vec<String> {
    with(text, None).unwrap()
}

/// Line, column and message of a mistake.
fn mistake(text: &str) -> (usize, usize, String) {
    match with(text, None) {
        Err(Error::Syntax(error)) => (error.line, error.column, error.message),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_query_and_an_update_are_told_apart() {
    let of = |text: &str| not_a_query(text, &tokens(text)).map(|(at, _)| at);
    let prologue = "# INSERT\nBASE <http://delete/> PREFIX load: <http://a/> VERSION \"1.2\" ";
    assert_eq!(
        of(&format!("{prologue}insert data {{}}")),
        Some(prologue.len())
    );
    assert_eq!(of("PREFIX : <http://a/> Clear ALL"), Some(21));
    assert_eq!(of(&format!("{prologue}SELECT * {{ ?insert ?p ?o }}")), None);
    assert_eq!(of("PREFIX"), None);
    assert_eq!(of(""), None);
    let (line, column, message) = mistake("PREFIX : <http://a/>\n select * { ?s ?p ?o }");
    assert_eq!((line, column), (2, 2));
    assert!(message.starts_with("SELECT begins a query"), "{message}");
}

#[test]
fn nothing_is_an_update_of_nothing() {
    for text in [
        "",
        "# nothing",
        "PREFIX : <http://a/>",
        "BASE <http://a/> # x",
    ] {
        assert!(of(text).is_empty(), "{text}");
    }
}

#[test]
fn later_prologues_hold_from_where_they_stand() {
    let found = of("PREFIX : <http://a/> INSERT DATA { :s :p 1 } ;\n\
         PREFIX : <http://b/> INSERT DATA { :s :p 2 } ;\n\
         BASE <http://c/d> PREFIX x: <#> PREFIX : <e/> INSERT DATA { <s> x:p :o } ;\n\
         BASE <http://c/d> PREFIX : <e/> INSERT DATA { :s <p> 4 } ; # the end\n\
         BASE <f> INSERT DATA { <s> x:p :o } ;");
    let parts = [
        ["http://a/s", "http://a/p", "\"1\""],
        ["http://b/s", "http://b/p", "\"2\""],
        ["http://c/s", "http://c/d#p", "http://c/e/o"],
        ["http://c/e/s", "http://c/p", "\"4\""],
        ["http://c/s", "http://c/d#p", "http://c/e/o"],
    ];
    assert_eq!(found.len(), parts.len());
    for (operation, parts) in found.iter().zip(parts) {
        for part in parts {
            let quoted = part.trim_matches('"');
            assert!(operation.contains(quoted), "{operation} has no {part}");
        }
    }
    // A prefix is not known before it is declared.
    let text = "CREATE GRAPH x:g ; PREFIX x: <http://a/> DROP GRAPH x:g";
    let (line, column, message) = mistake(text);
    assert_eq!((line, column), (1, 14), "{message}");
    assert!(
        message.starts_with("the prefix x: is not declared"),
        "{message}"
    );
}

#[test]
fn repeated_prologues_do_not_make_sections() {
    let one = "PREFIX : <http://a/> BASE <http://b/> INSERT DATA { :s :p <o> } ;\n";
    let text = one.repeat(3);
    let cut = tokens(&text);
    let outline = Outline::of(Words {
        text: &text,
        tokens: &cut,
    });
    assert_eq!(outline.operations.len(), 4 - 1);
    assert_eq!(outline.sections.len(), 1);
    assert_eq!(of(&text).len(), 3);
}

#[test]
fn graphs_of_transfers_are_kept() {
    let text = "PREFIX : <http://a/> ADD :x TO DEFAULT ; copy silent graph <http://b/?a&b> to :y ;\n\
                MOVE GRAPH :x TO GRAPH :x ; DROP GRAPH :x";
    let found = of(text);
    assert_eq!(found.len(), 4);
    assert!(
        found[0].contains("Add") && found[0].contains("DefaultGraph"),
        "{}",
        found[0]
    );
    assert!(
        found[1].contains("Copy") && found[1].contains("silent: true"),
        "{}",
        found[1]
    );
    assert!(found[1].contains("http://b/?a&b"), "{}", found[1]);
    assert!(
        found[2].contains("Move") && found[2].contains("silent: false"),
        "{}",
        found[2]
    );
    assert!(found[3].contains("drops: true"), "{}", found[3]);
}

#[test]
fn a_pattern_without_variables_in_templates_is_asked() {
    let found = of(
        "INSERT { <http://a/s> <http://a/p> 1 } WHERE { ?s ?p ?o } ;\n\
                    INSERT { [] <http://a/p> 1 } WHERE { ?s ?p ?o } ;\n\
                    DELETE { ?s ?p <http://a/o> } INSERT { GRAPH ?g { ?s ?p 2 } } WHERE { ?s ?p ?g }",
    );
    assert!(found[0].contains("Ask"), "{}", found[0]);
    assert!(found[1].contains("Select"), "{}", found[1]);
    assert!(found[2].contains("Select"), "{}", found[2]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn mistakes_have_places() {
    for (text, line, column, message) in [
        (
            "INSRT DATA { }",
            1,
            1,
            "unexpected INSRT; did you mean INSERT?",
        ),
        (
            "CLEAR ALL ;\nUPDATE x",
            2,
            1,
            "unexpected UPDATE: an operation begins with INSERT, DELETE, WITH, LOAD, CLEAR, DROP, CREATE, \
             ADD, COPY or MOVE",
        ),
        (
            "CLEAR ALL\nDROP ALL",
            2,
            1,
            "unexpected DROP: is a semicolon missing before it?",
        ),
        (
            "CLEAR <http://a/g>",
            1,
            7,
            "unexpected <http://a/g>: what is cleared or dropped is GRAPH with an IRI, DEFAULT, NAMED or ALL",
        ),
        (
            "INSERT DATA { <http://a/s> <http://a/p> ?o }",
            1,
            41,
            "INSERT DATA takes no variables: write INSERT { ... } WHERE { ... }",
        ),
        (
            "DELETE { ?s ?p _:b } WHERE { ?s ?p ?o }",
            1,
            16,
            "DELETE takes no blank nodes, which name nothing that is stored: take a variable",
        ),
        (
            "DELETE WHERE { ?s ?p [] }",
            1,
            22,
            "DELETE takes no blank nodes, which name nothing that is stored: take a variable",
        ),
        (
            "INSERT DATA { _:b <http://a/p> 1 } ;\nINSERT DATA { _:b <http://a/p> 2 }",
            2,
            15,
            "a label of a blank node belongs to one INSERT DATA: take another one",
        ),
        (
            "INSERT DATA { <http://a/s> <http://a/p> 1",
            1,
            42,
            "unexpected end of the update: the { in line 1 is not closed",
        ),
        (
            "CLEAR ALL ;\nDELETE WHERE { ?s label ?o }",
            2,
            19,
            "unexpected label",
        ),
        (
            "CLEAR ALL ;\n@prefix p: <http://a/> .",
            2,
            1,
            "unexpected @prefix: write PREFIX without @, and no dot behind it",
        ),
        (
            "CLEAR ALL ;\nPREFIX p: <http://a/> .\nDROP ALL",
            2,
            23,
            "unexpected .: nothing ends a PREFIX or BASE",
        ),
        (
            "INSERT WHERE { ?s ?p ?o }",
            1,
            8,
            "unexpected WHERE: behind INSERT comes DATA or a template in braces",
        ),
        (
            "PREFIX a: <http://a/> CLEAR ALL ; PREFIX b: <http://b/>\nCREATE GRAPH c:g",
            2,
            14,
            "the prefix c: is not declared; add PREFIX c: with its IRI before the update",
        ),
    ] {
        assert_eq!(mistake(text), (line, column, message.to_owned()), "{text}");
    }
}

#[test]
fn data_may_be_long_and_patterns_may_not() {
    let quads = "<http://a/s> <http://a/p> 1 , 2 ; <http://a/q> 3 .\n".repeat(30_000);
    assert_eq!(of(&format!("INSERT DATA {{ {quads} }}")).len(), 1);
    let patterns = "?s ?p ?o .\n".repeat(stoa_planner::ELEMENTS_MAX + 1);
    let refused = with(&format!("DELETE WHERE {{ {patterns} }}"), None);
    assert!(
        matches!(refused, Err(Error::LimitExceeded { .. })),
        "{refused:?}"
    );
    // Each prologue makes the text of all later sections longer.
    let mut text = String::new();
    for number in 0..20_000 {
        text.push_str(&format!(
            "PREFIX p{number}: <http://a/{number}/> CLEAR ALL ;\n"
        ));
    }
    let refused = with(&text, None);
    assert!(
        matches!(refused, Err(Error::LimitExceeded { .. })),
        "{refused:?}"
    );
}
