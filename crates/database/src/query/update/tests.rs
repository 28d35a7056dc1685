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

/// Statements of all forms that data may have, some within GRAPH; no blank node without a label, which would get another
/// name each time.
fn statements(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let statement = match number % 12 {
            0 => format!(":s{number} :p :o{number} . "),
            1 => format!(
                "<s.{number}> <#p.> \"a . b }} {{ # c\"@en , 'x.'^^:t.t ; :q 1.5 , -2 , +0.5e3 , TRUE .\n"
            ),
            2 => format!("GRAPH :g{number} {{ :a.b :p.{number} 1 . :c :d 2.0 }} "),
            3 => format!("GRAPH <g> {{ :a :p {number} ; . }} . "),
            4 => format!("_:b{} :p _:b{number} . # a comment . }}\n", number % 7),
            5 => format!(":s :p <<( :x{number} :y \"z . \" )>> . "),
            6 => format!(
                "graph :many {{ {} }} ",
                (0..40)
                    .map(|n| format!(":m{number} :n {n} . "))
                    .collect::<String>()
            ),
            7 => format!(":s{number} a :C ; :l '''long . ' text''' . "),
            8 => format!(":x\\.y{number} :p :z%2E . "),
            9 => format!("<http://a/(b,c)&d{number}> :p \"\\u0041.\" . "),
            10 => format!("GRAPH :e{number} {{ }} "),
            _ => format!(":last{number} :p false , {number}.0 . "),
        };
        text.push_str(&statement);
    }
    text
}

/// The quads of each operation with data, in their order.
fn quads_of(text: &str) -> Vec<Vec<String>> {
    let work = |operations: &[Operation]| {
        let of_one = |operation: &Operation| {
            let mut quads = Vec::new();
            match operation {
                Operation::InsertData(data) => data.each(&mut |some| {
                    quads.extend(some.iter().map(Quad::to_string));
                    Ok(())
                })?,
                Operation::DeleteData(data) => data.each(&mut |some| {
                    quads.extend(some.iter().map(GroundQuad::to_string));
                    Ok(())
                })?,
                _ => {}
            }
            Ok(quads)
        };
        operations.iter().map(of_one).collect()
    };
    let budget = MemoryBudget::unlimited();
    with_request(text, None, &[], (&budget, |_, _| ()), work).unwrap()
}

#[test]
fn long_data_is_that_of_its_pieces() {
    let prologue = "BASE <http://b/c/> PREFIX : <http://a/> ";
    // A label belongs to one operation.
    let (short, long) = (statements(60).replace("_:b", "_:c"), statements(9_000));
    let ground: String = statements(9_000).replace("_:b", ":b");
    let text = format!(
        "{prologue} INSERT DATA {{ {short} }} ; CLEAR DEFAULT ; insert data {{{long}}} ;\n\
         PREFIX : <http://other/> DELETE DATA {{ {ground}}} ; INSERT DATA {{ :x :y :z }}"
    );
    let tokens = tokens(&text);
    let outline = Outline::of(Words {
        text: &text,
        tokens: &tokens,
    });
    let pieces: Vec<Option<usize>> = outline
        .data
        .iter()
        .map(|it| Some(it.as_ref()?.len()))
        .collect();
    assert!(
        matches!(*pieces, [None, None, Some(7..), Some(7..), None]),
        "{pieces:?}"
    );
    let found = quads_of(&text);
    // One after the other, each statement is short.
    let one_by_one = |prefix: &str, keyword: &str, text: &str| {
        let parsed = parser(None).unwrap();
        let text = format!("BASE <http://b/c/> PREFIX : <{prefix}> {keyword} DATA {{ {text} }}");
        let rewritten = {
            let tokens = super::super::token::tokens(&text);
            let edits = rewrite::edits(&Words {
                text: &text,
                tokens: &tokens,
            });
            rewrite::apply(&text, &edits.unwrap_or_default()).text
        };
        let mut operations = parsed.parse_update(&rewritten).unwrap().operations;
        match operations.pop().unwrap() {
            GraphUpdateOperation::InsertData { data } => {
                data.iter().map(Quad::to_string).collect::<Vec<_>>()
            }
            GraphUpdateOperation::DeleteData { data } => {
                data.iter().map(GroundQuad::to_string).collect()
            }
            other => panic!("{other}"),
        }
    };
    assert_eq!(found[0], one_by_one("http://a/", "INSERT", &short));
    assert_eq!(found[2], one_by_one("http://a/", "INSERT", &long));
    assert_eq!(found[3], one_by_one("http://other/", "DELETE", &ground));
    assert_eq!(found[4].len(), 1);
    assert!(found[2].len() > 15_000, "{}", found[2].len());
}

#[test]
fn a_mistake_in_long_data_is_told_where_it_stands() {
    let before = statements(9_000);
    let lines = before.matches('\n').count();
    let text = format!(
        "BASE <http://b/c/> PREFIX : <http://a/> INSERT DATA {{ {before}\n :a :b . {before} }}"
    );
    let (line, _, message) = mistake(&text);
    assert_eq!(line, lines + 2, "{message}");
    // Braces that do not match are no data, and told as ever.
    let text =
        format!("PREFIX : <http://a/> INSERT DATA {{ {before} }} }}").replace("<s.", "<http://b/");
    mistake(&text);
}

/// Each piece has the declarations: without a limit for how many there are, a long prologue took a gigabyte.
#[test]
fn a_long_prologue_makes_long_pieces() {
    let prologue: String = (0..20_000)
        .map(|number| format!("PREFIX p{number}: <http://a/{number}/> "))
        .collect();
    let data: String = (0..60_000)
        .map(|number| format!("p1:{number} p2:a 1 . "))
        .collect();
    let text = format!("{prologue} INSERT DATA {{ {data} }}");
    let tokens = tokens(&text);
    let outline = Outline::of(Words {
        text: &text,
        tokens: &tokens,
    });
    let operations = outline.parse(None).unwrap();
    let [Operation::InsertData(Data::Pieces { texts, .. })] = operations.as_slice() else {
        panic!("{} operations", operations.len());
    };
    let bytes: usize = texts.iter().map(String::len).sum();
    assert!(
        texts.len() > 1 && bytes < 2 * text.len(),
        "{} of {bytes}",
        texts.len()
    );
}
