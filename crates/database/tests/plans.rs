//! Plans that are used again: which texts share one, and that answers are those of the text.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use stoa_database::{
    Access, CompactOptions, Database, Input, LoadOptions, OpenOptions, PlanOrigin, QueryOptions,
    QueryResult, Runtime, RuntimeOptions, UpdateOptions,
};

use PlanOrigin::{New, Same, Shape};

const PROLOGUE: &str = "PREFIX : <http://a/> PREFIX other: <http://b/>\n";

struct Fixture {
    database: Database,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new(turtle: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(RuntimeOptions {
            memory_bytes: Some(256 << 20),
            ..RuntimeOptions::default()
        })
        .unwrap();
        let writing = OpenOptions {
            access: Access::Exclusive,
            create: true,
        };
        let database = Database::open(&runtime, folder.path().join("db"), &writing).unwrap();
        let fixture = Self {
            database,
            _folder: folder,
        };
        fixture.load(turtle);
        fixture
    }

    fn load(&self, turtle: &str) {
        let text = format!("{PROLOGUE}{turtle}");
        let inputs = vec![Input::from_bytes("x.trig", text)];
        let options = LoadOptions {
            inputs,
            ..LoadOptions::default()
        };
        self.database.load(options, &()).unwrap();
    }

    fn update(&self, text: &str) {
        let text = format!("{PROLOGUE}{text}");
        self.database
            .update(&text, &UpdateOptions::default())
            .unwrap();
    }

    /// The answer as sorted lines, and for which query the plan was made.
    fn ask(&self, text: &str) -> (String, PlanOrigin) {
        self.ask_with(text, &QueryOptions::default())
    }

    fn ask_with(&self, text: &str, options: &QueryOptions) -> (String, PlanOrigin) {
        let text = format!("{PROLOGUE}{text}");
        let query = self.database.prepare(&text, options).unwrap();
        let origin = query.analysis().unwrap().origin;
        let told = query.explain();
        let of_shape = told.contains("planned for an earlier query");
        let of_same = told.contains("planned when the same was asked before");
        assert_eq!((of_same, of_shape), (origin == Same, origin == Shape));
        let mut lines: Vec<String> = match query.run().unwrap() {
            QueryResult::Boolean(answer) => vec![answer.to_string()],
            QueryResult::Solutions(solutions) => solutions
                .map(|solution| {
                    let solution = solution.unwrap();
                    let values = solution.values().iter();
                    let values =
                        values.map(|term| term.as_ref().map_or("-".to_owned(), |t| t.to_string()));
                    values.collect::<Vec<_>>().join(" ")
                })
                .collect(),
            QueryResult::Graph(triples) => {
                triples.map(|triple| triple.unwrap().to_string()).collect()
            }
        };
        lines.sort();
        let short = |line: String| line.replace("http://a/", "").replace("http://b/", "b:");
        (
            lines.into_iter().map(short).collect::<Vec<_>>().join(", "),
            origin,
        )
    }

    /// Asks the first text, and the last one, then all, which are answered by the plan of the last one.
    fn shared<const N: usize>(&self, texts: [(&str, &str); N]) {
        let (first, last) = (texts.first().unwrap().0, texts.last().unwrap().0);
        assert_eq!(self.ask(first).1, New, "{first}");
        // By then the first one's plan is for its own constants.
        assert_eq!(self.ask(first).1, Same, "{first}");
        assert_eq!(self.ask(last).1, New, "{last}");
        for (text, expected) in texts {
            let (answer, origin) = self.ask(text);
            assert_eq!(answer, expected, "{text}");
            let expected_origin = if text == last { Same } else { Shape };
            assert_eq!(origin, expected_origin, "{text}");
            self.alone(text, expected);
        }
    }

    /// As the one before, for texts that are planned each on its own.
    fn apart<const N: usize>(&self, texts: [(&str, &str); N]) {
        for (text, expected) in texts {
            assert_eq!(self.ask(text), (expected.to_owned(), New), "{text}");
            self.alone(text, expected);
        }
        // By then the plans of all but the first of a shape are for all constants that may be others.
        for (text, expected) in texts {
            assert_eq!(self.ask(text), (expected.to_owned(), Same), "{text}");
        }
    }

    /// The answer without plans of others.
    fn alone(&self, text: &str, expected: &str) {
        let options = QueryOptions {
            plans: false,
            ..QueryOptions::default()
        };
        assert_eq!(
            self.ask_with(text, &options),
            (expected.to_owned(), New),
            "{text}"
        );
    }
}

fn people() -> Fixture {
    Fixture::new(
        ":ann :knows :bob , :cid ; :name \"Ann\" , \"Anna\"@en ; :age 30 .
         :bob :knows :ann ; :name \"Bob\" ; :age 40 .
         :cid :knows :cid ; :name \"Cid\" ; :likes other:tea .
         :g1 { :ann :in :rome } :g2 { :bob :in :oslo }",
    )
}

#[test]
fn subjects_and_objects_are_parameters() {
    let people = people();
    people.shared([
        ("SELECT ?x { :ann :knows ?x }", "<bob>, <cid>"),
        ("SELECT ?x { :bob :knows ?x }", "<ann>"),
        (
            "SELECT ?x { <http://a/cid> :knows ?x } # <http://c/>",
            "<cid>",
        ),
        ("SELECT  ?x\n{ other:tea :knows ?x }", ""),
    ]);
    // What no data holds has a plan of its own, which is used again while that is so.
    people.shared([
        ("SELECT ?y { :nobody :age ?y }", ""),
        ("SELECT ?y { :nothing :age ?y }", ""),
    ]);
    people.shared([
        ("SELECT ?x { ?x :name \"Ann\" }", "<ann>"),
        ("SELECT ?x { ?x :name 'Bob' }", "<bob>"),
        ("SELECT ?x { ?x :name \"\"\"Cid\"\"\" }", "<cid>"),
    ]);
    people.shared([
        ("ASK { :ann :knows :bob }", "true"),
        ("ASK { :bob :knows :cid }", "false"),
    ]);
}

#[test]
fn terms_that_were_the_same_stay_the_same() {
    let people = people();
    people.apart([
        ("SELECT ?x { :ann :knows ?x . ?x :knows :ann }", "<bob>"),
        ("SELECT ?x { :ann :knows ?x . ?x :knows :cid }", "<cid>"),
    ]);
    people.shared([
        ("SELECT ?a { ?a :knows :bob , :cid }", "<ann>"),
        ("SELECT ?a { ?a :knows :cid , :ann }", ""),
    ]);
    people.apart([(
        "SELECT ?a { ?a :knows :cid , <http://a/cid> }",
        "<ann>, <cid>",
    )]);
}

#[test]
fn constants_elsewhere_belong_to_the_plan() {
    let people = people();
    people.apart([
        ("SELECT ?x { :ann :name ?x }", "\"Ann\", \"Anna\"@en"),
        (
            "SELECT ?x { :ann :age ?x }",
            "\"30\"^^<http://www.w3.org/2001/XMLSchema#integer>",
        ),
        ("SELECT ?x { GRAPH :g1 { ?x :in ?y } }", "<ann>"),
        ("SELECT ?x { GRAPH :g2 { ?x :in ?y } }", "<bob>"),
        (
            "SELECT ?x { VALUES ?x { :ann :bob } ?x :age ?y }",
            "<ann>, <bob>",
        ),
        ("SELECT ?x { VALUES ?x { :cid :bob } ?x :age ?y }", "<bob>"),
        (
            "SELECT ?x { ?y :name ?x FILTER(STRSTARTS(?x, \"A\")) }",
            "\"Ann\", \"Anna\"@en",
        ),
        (
            "SELECT ?x { ?y :name ?x FILTER(STRSTARTS(?x, \"B\")) }",
            "\"Bob\"",
        ),
        ("SELECT ?z { ?z :knows ?x FILTER(?x = :ann) }", "<bob>"),
        ("SELECT ?z { ?z :knows ?x FILTER(?x = :bob) }", "<ann>"),
        (
            "SELECT ?z { GRAPH ?g { ?z :in ?y } FILTER(?g = :g1) }",
            "<ann>",
        ),
        (
            "SELECT ?z { GRAPH ?g { ?z :in ?y } FILTER(?g = :g2) }",
            "<bob>",
        ),
        (
            "SELECT ?x { :ann (:knows|:age)+ ?x FILTER(isIRI(?x)) }",
            "<ann>, <bob>, <cid>",
        ),
        ("SELECT ?x { :ann (:name|:age)+ ?x FILTER(isIRI(?x)) }", ""),
        ("SELECT ?x FROM :g1 { ?x :in ?y }", "<ann>"),
        ("SELECT ?x FROM :g2 { ?x :in ?y }", "<bob>"),
        (
            "SELECT (GROUP_CONCAT(?x; separator=\"-\") AS ?c) { ?y :name \"Bob\" . ?y :name ?x }",
            "\"Bob\"",
        ),
        (
            "SELECT (GROUP_CONCAT(?x; separator=\"Bob\") AS ?c) { ?y :name \"Bob\" . ?y :name ?x }",
            "\"Bob\"",
        ),
    ]);
    // A term that is a predicate in one place and a subject in another is no parameter.
    people.load(":knows :name \"knowing\" . :likes :name \"liking\" .");
    people.apart([
        (
            "SELECT ?n { :knows :name ?n . ?x :knows :bob }",
            "\"knowing\"",
        ),
        ("SELECT ?n { :likes :name ?n . ?x :likes :bob }", ""),
    ]);
}

#[test]
fn what_is_compared_described_and_constructed_is_a_parameter() {
    let people = people();
    people.shared([
        ("SELECT ?x { :ann :knows ?x FILTER(?x != :bob) }", "<cid>"),
        ("SELECT ?x { :ann :knows ?x FILTER(?x != :cid) }", "<bob>"),
        ("SELECT ?x { :bob :knows ?x FILTER(?x != :cid) }", "<ann>"),
    ]);
    people.shared([
        (
            "DESCRIBE :bob",
            "<bob> <age> \"40\"^^<http://www.w3.org/2001/XMLSchema#integer>, <bob> <knows> <ann>, \
             <bob> <name> \"Bob\"",
        ),
        (
            "DESCRIBE :cid",
            "<cid> <knows> <cid>, <cid> <likes> <b:tea>, <cid> <name> \"Cid\"",
        ),
    ]);
    people.shared([
        (
            "CONSTRUCT { :ann :met ?x } { :ann :knows ?x }",
            "<ann> <met> <bob>, <ann> <met> <cid>",
        ),
        (
            "CONSTRUCT { :bob :met ?x } { :bob :knows ?x }",
            "<bob> <met> <ann>",
        ),
    ]);
    people.shared([
        ("SELECT ?x { :ann :knows* ?x }", "<ann>, <bob>, <cid>"),
        ("SELECT ?x { :cid :knows* ?x }", "<cid>"),
        ("SELECT ?x { other:tea :knows* ?x }", "<b:tea>"),
    ]);
}

#[test]
fn values_that_are_compared_belong_to_the_plan() {
    let people = people();
    people.apart([
        ("SELECT ?x { ?x :age ?a FILTER(?a > 30) }", "<bob>"),
        ("SELECT ?x { ?x :age ?a FILTER(?a > 20) }", "<ann>, <bob>"),
        (
            "SELECT ?x { ?x :age ?a FILTER(?a > 10 || ?a > 35) }",
            "<ann>, <bob>",
        ),
        (
            "SELECT ?x { ?x :age ?a FILTER(?a > 35 || ?a > 10) }",
            "<ann>, <bob>",
        ),
        ("SELECT ?x { ?x :name ?a FILTER(?a = \"Bob\") }", "<bob>"),
        ("SELECT ?x { ?x :name ?a FILTER(?a = \"Ann\") }", "<ann>"),
        ("SELECT ?x { ?x :age ?a FILTER(?a > -5) }", "<ann>, <bob>"),
        ("SELECT ?x { ?x :age ?a FILTER(?a > +35) }", "<bob>"),
        ("SELECT ?x { :ann :knows ?x } ORDER BY ?x LIMIT 1", "<bob>"),
        (
            "SELECT ?x { :ann :knows ?x } ORDER BY ?x LIMIT 2",
            "<bob>, <cid>",
        ),
    ]);
}

#[test]
fn terms_that_come_from_other_words_too_belong_to_the_plan() {
    let data = Fixture::new(
        ":a :is true ; :was true ; :list (1) ; :next () ; :name \"ab\" , \"cd\" ; :size .5 , 5 , 7 .
         :b :is true ; :was false ; :list (1) ; :next :end ; :name \"ab\" ; :size 5 .",
    );
    let boolean = "<http://www.w3.org/2001/XMLSchema#boolean>";
    let nil = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#nil>";
    let string = "<http://www.w3.org/2001/XMLSchema#string>";
    let is = |text: &str| format!("SELECT ?x {{ ?x :is true . ?x :was \"{text}\"^^{boolean} }}");
    let next = |end: &str| format!("SELECT ?x {{ ?x :list (1) . ?x :next {end} }}");
    let name =
        |a: &str, b: &str| format!("SELECT ?x {{ ?x :name {a} . ?x :name {b} . ?x :next ?y }}");
    data.apart([
        (&is("true"), "<a>"),
        (&is("false"), "<b>"),
        (&next(nil), "<a>"),
        (&next(":end"), "<b>"),
        (&name("\"ab\"", &format!("\"ab\"^^{string}")), "<a>, <b>"),
        (&name("\"ab\"", &format!("\"cd\"^^{string}")), "<a>"),
        (&name("\"a\\u0062\"", "\"ab\""), "<a>, <b>"),
        (&name("\"a\\u0062\"", "\"cd\""), "<a>"),
        (
            "BASE <http://a/> SELECT ?x { ?x :next <end> . ?x :next <http://a/end> }",
            "<b>",
        ),
        (
            "BASE <http://a/> SELECT ?x { ?x :next <end> . ?x :next <http://a/no> }",
            "",
        ),
        ("SELECT ?x { ?x :size 5 . ?x :size ?y FILTER(?y < .5) }", ""),
        (
            "SELECT ?x { ?x :size 7 . ?x :size ?y FILTER(?y < .7) }",
            "<a>",
        ),
    ]);
    // Nor may a term take a place that comes from another word in a later text.
    data.apart([
        (
            "SELECT ?x { ?x :next ?y FILTER(?y = :end && ?y = <http://\\u0061/end>) }",
            "<b>",
        ),
        (
            "SELECT ?x { ?x :next ?y FILTER(?y = :no && ?y = <http://\\u0061/end>) }",
            "",
        ),
    ]);
    let next = |end: &str| {
        format!(
            "BASE <http://a/e> PREFIX x: <> PREFIX a: <http://a/> SELECT ?x {{ ?x a:next {end} }}"
        )
    };
    data.apart([
        (&next("<end>"), "<b>"),
        (&next("x:nd"), "<b>"),
        (&next("x:end"), ""),
    ]);
    // What is computed at planning is no constant of the text.
    let integer = "<http://www.w3.org/2001/XMLSchema#integer>";
    let five = |size: u32| {
        format!("SELECT ?y {{ ?x :size \"{size}\"^^{integer} ; :was true BIND(2 + 3 AS ?y) }}")
    };
    let answer = format!("\"5\"^^{integer}");
    data.shared([(&five(5), &answer), (&five(7), &answer)]);
    // Of a path between two nodes it matters whether they are one.
    data.apart([
        ("ASK { :nobody :next* :nothing }", "false"),
        ("ASK { () :next* :nothing }", "false"),
        (&format!("ASK {{ () :next* {nil} }}"), "true"),
    ]);
}

#[test]
fn what_was_not_there_is_looked_for_again() {
    let people = people();
    let plain = QueryOptions {
        notes: false,
        ..QueryOptions::default()
    };
    let texts = [
        "SELECT ?s { ?s :name \"say \\\"hello\\\"\" }",
        "BASE <http://a/> SELECT ?s { ?s :likes <nothing> }",
        "SELECT ?s { ?s :likes 007 }",
        "SELECT ?s { ?s a :Person }",
        "SELECT ?s { ?s :n\u{e9} ?o }",
    ];
    for text in texts {
        for origin in [New, Same, Same] {
            let expected = (String::new(), origin);
            assert_eq!(people.ask_with(text, &plain), expected, "{text}");
        }
    }
    people.update(
        "INSERT DATA { :ann :name \"say \\\"hello\\\"\" ; :likes :nothing , 007 ; a :Person ; :n\u{e9} 1 }",
    );
    for text in texts {
        assert_eq!(
            people.ask_with(text, &plain),
            ("<ann>".to_owned(), New),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_sparql_is_refused_whatever_was_asked_before() {
    let people = people();
    // The second time it is known which constants may be others.
    for text in [
        "SELECT ?x { :ann :knows ?x }",
        "SELECT ?x { :bob :knows ?x }",
        "SELECT ?x { ?x :name 'Bob' }",
        "SELECT ?x { ?x :name 'Ann' }",
        "SELECT ?x { ?x :name 'Bob'@en }",
        "SELECT ?x { ?x :name 'Ann'@en }",
        "SELECT ?x { ?x :name 'Bob'^^:type }",
        "SELECT ?x { ?x :name 'Ann'^^:type }",
        "DESCRIBE :absent",
        "DESCRIBE :nobody",
    ] {
        people.ask(text);
    }
    for text in [
        "SELECT ?x { :-ann :knows ?x }",
        "SELECT ?x { nobody:ann :knows ?x }",
        "SELECT ?x { <relative> :knows ?x }",
        "SELECT ?x { <http://a/%zz> :knows ?x }",
        "SELECT ?x { ?x :name '''Bob' }",
        "SELECT ?x { ?x :name 'Bob'@ }",
        "SELECT ?x { ?x :name 'Bob'@toolongforalanguage }",
        "SELECT ?x { ?x :name 'Bob'^^<type> }",
        "DESCRIBE 'absent'",
        "SELECT ?x \u{c}{ :ann :knows ?x }",
        "DESCRIBE 007",
    ] {
        let text = format!("{PROLOGUE}{text}");
        let options = QueryOptions::default();
        assert!(people.database.prepare(&text, &options).is_err(), "{text}");
    }
}

#[test]
fn a_plan_ends_with_what_it_relies_on() {
    let people = people();
    let (ann, nobody) = (
        "SELECT ?x { :ann :knows ?x }",
        "SELECT ?x { :nobody :knows ?x }",
    );
    people.shared([
        (ann, "<bob>, <cid>"),
        ("SELECT ?x { :bob :knows ?x }", "<ann>"),
    ]);
    assert_eq!(people.ask(nobody), (String::new(), New));
    assert_eq!(people.ask(nobody), (String::new(), Same));
    // It is a term of the data now.
    people.update("INSERT DATA { :nobody :knows :ann }");
    assert_eq!(people.ask(nobody).0, "<ann>");
    assert_eq!(people.ask(ann), ("<bob>, <cid>".to_owned(), Shape));
    // A predicate that the data did not have.
    let hates = "SELECT ?x { :ann :hates ?x }";
    people.alone(hates, "");
    people.ask(hates);
    people.update("INSERT DATA { :ann :hates :cid }");
    assert_eq!(people.ask(hates), ("<cid>".to_owned(), New));
    // Ids mean other terms after a compaction.
    people.update("DELETE DATA { :ann :knows :bob }");
    people.database.compact(&CompactOptions::default()).unwrap();
    assert_eq!(people.ask(ann), ("<cid>".to_owned(), New));
    assert_eq!(
        people.ask("SELECT ?x { :bob :knows ?x }"),
        ("<ann>".to_owned(), Shape)
    );
}

#[test]
fn what_has_other_counts_is_planned_anew() {
    let mut data = String::from(":rare :tag :one . ");
    for number in 0..2_000 {
        data += &format!(":thing{number} :tag :many ; :part :whole{} . ", number % 7);
    }
    let data = Fixture::new(&data);
    let query = |tag: &str, whole: &str| {
        data.ask(&format!(
            "SELECT (COUNT(*) AS ?n) {{ ?x :tag :{tag} ; :part :{whole} }}"
        ))
    };
    let integer = |n: u32| format!("\"{n}\"^^<http://www.w3.org/2001/XMLSchema#integer>");
    assert_eq!(query("many", "whole0"), (integer(286), New));
    assert_eq!(query("many", "whole1"), (integer(286), New));
    assert_eq!(query("many", "whole2"), (integer(286), Shape));
    assert_eq!(query("one", "whole1"), (integer(0), New));
    assert_eq!(query("many", "whole3"), (integer(286), Shape));
    assert_eq!(query("one", "whole4"), (integer(0), Shape));
}

#[test]
fn options_are_part_of_the_shape() {
    let people = people();
    let text = "SELECT ?x { ?x :in ?y }";
    let union = QueryOptions {
        default_graph_union: true,
        ..QueryOptions::default()
    };
    let one = QueryOptions {
        default_graphs: vec!["http://a/g1".to_owned()],
        ..QueryOptions::default()
    };
    for _ in 0..2 {
        assert_eq!(people.ask(text).0, "");
        assert_eq!(people.ask_with(text, &union).0, "<ann>, <bob>");
        assert_eq!(people.ask_with(text, &one).0, "<ann>");
    }
}

#[test]
fn little_is_kept_and_it_is_counted() {
    let people = people();
    let padding = "x".repeat(3_000);
    let text =
        |number: u32| format!("SELECT ?v{number}{padding} {{ :ann :knows ?v{number}{padding} }}");
    for number in 0..3_000 {
        people.ask(&text(number));
    }
    let counts = people.database.plan_counts();
    assert_eq!((counts.reused, counts.planned), (0, 3_000));
    assert!(counts.bytes <= 8 << 20, "{counts:?}");
    assert!(counts.shapes > 100 && counts.shapes < 2_000, "{counts:?}");
    // What was asked last is there, and what was asked first is not.
    people.ask(&text(2_999));
    assert_eq!(people.database.plan_counts().reused, 1);
    people.ask(&text(0));
    assert_eq!(people.database.plan_counts().planned, 3_001);
}

/// What a function of constants gives is a constant of the plan, and no other may take its place.
#[test]
fn what_functions_of_constants_gave_stays_in_the_plan() {
    let fixture = Fixture::new(":a :p :x ; :q :x . :b :p :y ; :q :x . :c :p :x ; :q :y .");
    let of = |object: &str, call: &str| {
        format!("SELECT ?s {{ ?s :p {object} ; :q ?o FILTER(?o = {call}) }}")
    };
    let texts = [
        (of(":x", "IRI(\"http://a/x\")"), "<a>"),
        (of(":x", "IRI(\"http://a/x\")"), "<a>"),
        (of(":y", "IRI(\"http://a/x\")"), "<b>"),
        (of(":x", "IRI(\"http://a/y\")"), "<c>"),
        (of(":y", "IRI(\"http://a/y\")"), ""),
        (of(":x", "IRI(CONCAT(\"http://a/\", \"x\"))"), "<a>"),
        (of(":x", "IRI(CONCAT(\"http://a/\", \"x\"))"), "<a>"),
        (of(":y", "IRI(CONCAT(\"http://a/\", \"x\"))"), "<b>"),
        (of(":x", "IRI(CONCAT(\"http://a/\", \"y\"))"), "<c>"),
        (of(":z", "IRI(CONCAT(\"http://a/\", \"z\"))"), ""),
        (of(":y", "IRI(CONCAT(\"http://a/\", \"x\"))"), "<b>"),
    ];
    for _ in 0..3 {
        for (text, answer) in &texts {
            assert_eq!(fixture.ask(text).0.trim(), *answer, "{text}");
        }
    }
    // The time of each run is its own.
    let now = "SELECT ?n { ?s :p :x BIND(NOW() AS ?n) } LIMIT 1";
    let first = fixture.ask(now).0;
    // Milliseconds are told, and many runs take some.
    let differs = (0..100_000).any(|_| fixture.ask(now).0 != first);
    assert!(differs, "{first}");
}

/// A function may make a long text of a short one: that is not kept in a plan.
#[test]
fn long_texts_are_not_computed_at_planning() {
    let fixture = Fixture::new(":a :p \"x\" .");
    let long = |times: usize| {
        let text = "a".repeat(times);
        format!("SELECT ?s {{ ?s :p ?o FILTER(?o != REPLACE(\"{text}\", \"a\", \"bbbb\")) }}")
    };
    let explained = |times| {
        let text = format!("{PROLOGUE}{}", long(times));
        let query = fixture.database.prepare(&text, &QueryOptions::default());
        query.unwrap().explain()
    };
    assert!(!explained(200).contains("replace("), "{}", explained(200));
    assert!(explained(300).contains("replace("));
    assert_eq!(fixture.ask(&long(300)).0.trim(), "<a>");
}
