//! The checker finds what is planted; the client sees what a bad endpoint does; updates go where they belong.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use oxrdf::Dataset;
use sparesults::{QueryResultsFormat, QueryResultsSerializer};
use spareval::{QueryEvaluator, QueryResults};
use spargebra::SparqlParser;

use super::answer::Answer;
use super::check::{Verdict, check, compare};
use super::clients::{self, Plan, Sample};
use super::endpoint::{Connection, Endpoint, Failure, Measured, UpdateForm, Updates};
use super::meter::Process;
use super::workload::{Name, Workload};
use super::{Arguments, run};
use crate::bsbm::Blocks;

/// An answer with these rows of integers, `-` for an unbound one.
pub(super) fn answer(variables: &[&str], rows: &[&str]) -> String {
    let head: String = variables
        .iter()
        .map(|it| format!("<variable name=\"{it}\"/>"))
        .collect();
    let rows: String = rows
        .iter()
        .map(|row| {
            let cells = row.split_whitespace().zip(variables);
            let cells: String = cells
                .filter(|(cell, _)| *cell != "-")
                .map(|(cell, name)| format!(
                    "<binding name=\"{name}\"><literal datatype=\"http://www.w3.org/2001/XMLSchema#double\">{cell}</literal></binding>"
                ))
                .collect();
            format!("<result>{cells}</result>")
        })
        .collect();
    format!(
        "<sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head>{head}</head><results>{rows}</results></sparql>"
    )
}

fn parsed(variables: &[&str], rows: &[&str]) -> Answer {
    Answer::parse(answer(variables, rows).as_bytes()).unwrap()
}

/// What is found wrong with `found` when the trusted rows are `expected`, as many as the query asked for.
fn difference(query: &str, found: &[&str], columns: &[&str], expected: &[&str]) -> Option<String> {
    compare(query, &parsed(&["a"], found), |_| {
        Ok(parsed(columns, expected))
    })
    .unwrap()
}

const ALL: &str = "SELECT ?a { ?s ?p ?a }";

#[test]
fn rows_are_a_multiset() {
    assert_eq!(
        difference(ALL, &["1", "2", "2"], &["a"], &["2", "1", "2"]),
        None
    );
    assert_eq!(difference(ALL, &["1", "-"], &["a"], &["-", "1"]), None);
    for wrong in [
        &["1", "2", "3"][..],
        &["1", "1", "2"],
        &["1", "2"],
        &["1", "2", "2", "2"],
        &["1", "2", "-"],
    ] {
        assert!(
            difference(ALL, wrong, &["a"], &["2", "1", "2"]).is_some(),
            "{wrong:?}"
        );
    }
}

#[test]
fn numbers_are_compared_by_value_within_a_tolerance() {
    assert_eq!(
        difference(ALL, &["1.0000001", "2e3"], &["a"], &["2000", "1"]),
        None
    );
    assert!(difference(ALL, &["1.001"], &["a"], &["1"]).is_some());
}

#[test]
fn of_an_order_its_keys_count() {
    let query = "SELECT ?a { ?s ?p ?a ; ?q ?k } ORDER BY ?k";
    let columns = ["a", "sortKey0"];
    let expected = ["1 10", "2 10", "3 20"];
    assert_eq!(
        difference(query, &["2", "1", "3"], &columns, &expected),
        None
    );
    let wrong = difference(query, &["3", "1", "2"], &columns, &expected);
    assert!(wrong.unwrap().contains("row 1"));
}

#[test]
fn any_cut_through_ties_is_right() {
    let query = "SELECT ?a { ?s ?p ?a ; ?q ?k } ORDER BY ?k OFFSET 1 LIMIT 2";
    let columns = ["a", "sortKey0"];
    let expected = ["1 10", "2 10", "3 20", "4 20", "5 30"];
    for right in [["1", "3"], ["2", "3"], ["1", "4"], ["2", "4"]] {
        assert_eq!(
            difference(query, &right, &columns, &expected),
            None,
            "{right:?}"
        );
    }
    for wrong in [
        &["1", "2"][..],
        &["3", "4"],
        &["1", "5"],
        &["1"],
        &["3", "1"],
    ] {
        assert!(
            difference(query, wrong, &columns, &expected).is_some(),
            "{wrong:?}"
        );
    }
    // Without an order any rows will do, but not rows of nowhere.
    let query = "SELECT ?a { ?s ?p ?a } LIMIT 2";
    assert_eq!(
        difference(query, &["3", "1"], &["a"], &["1", "2", "3"]),
        None
    );
    assert!(difference(query, &["3", "3"], &["a"], &["1", "2", "3"]).is_some());
}

#[test]
fn behind_a_sum_of_floats_keys_do_not_decide() {
    // The helper's numbers are doubles.
    let query = "SELECT ?a { ?s ?p ?a ; ?q ?k } ORDER BY ?k ?a";
    let columns = ["a", "sortKey0", "sortKey1"];
    let expected = ["1 10 1", "2 10.00001 2", "3 20 3"];
    assert_eq!(
        difference(query, &["2", "1", "3"], &columns, &expected),
        None
    );
    assert!(difference(query, &["1", "3", "2"], &columns, &expected).is_some());
}

#[test]
fn the_trusted_endpoint_is_asked_until_the_ties_end() {
    let query = "SELECT ?a { ?s ?p ?a ; ?q ?k } ORDER BY ?k LIMIT 1";
    let rows: Vec<String> = (0..5_000).map(|row| format!("{row} 1")).collect();
    let ask = |text: &str| {
        let limit = text
            .rsplit_once("LIMIT ")
            .unwrap()
            .1
            .trim()
            .parse()
            .unwrap();
        assert!(text.contains("?sortKey0"), "{text}");
        let rows: Vec<&str> = rows.iter().map(String::as_str).take(limit).collect();
        Ok(parsed(&["a", "sortKey0"], &rows))
    };
    assert_eq!(
        compare(query, &parsed(&["a"], &["4999"]), ask).unwrap(),
        None
    );
    assert!(
        compare(query, &parsed(&["a"], &["5000"]), ask)
            .unwrap()
            .is_some()
    );
}

#[test]
fn distinct_rows_with_several_keys_count_once() {
    let query = "SELECT DISTINCT ?a { ?s ?p ?a ; ?q ?k } ORDER BY ?k";
    let expected = ["1 10", "2 10", "1 20"];
    assert_eq!(
        difference(query, &["2", "1"], &["a", "sortKey0"], &expected),
        None
    );
}

#[test]
fn other_forms() {
    let boolean = |value| {
        let text = format!(
            "<sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head/><boolean>{value}</boolean></sparql>"
        );
        Answer::parse(text.as_bytes()).unwrap()
    };
    assert_eq!(
        compare("ASK {}", &boolean(true), |_| Ok(boolean(true))).unwrap(),
        None
    );
    assert!(
        compare("ASK {}", &boolean(true), |_| Ok(boolean(false)))
            .unwrap()
            .is_some()
    );
    let graph = |objects: &[&str]| {
        let triples: String = objects
            .iter()
            .map(|it| format!("<x:p>{it}</x:p>"))
            .collect();
        let text = format!(
            "<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" xmlns:x=\"http://x/\"><rdf:Description rdf:about=\"http://a\">{triples}</rdf:Description></rdf:RDF>"
        );
        Answer::parse(text.as_bytes()).unwrap()
    };
    let compared = |query, left: &[&str], right: &[&str]| {
        compare(query, &graph(left), |_| Ok(graph(right))).unwrap()
    };
    let construct = "CONSTRUCT WHERE { ?s ?p ?o }";
    assert_eq!(compared(construct, &["1", "2"], &["2", "1"]), None);
    assert!(compared(construct, &["1"], &["2", "1"]).is_some());
    let describe = "DESCRIBE <http://a>";
    assert_eq!(compared(describe, &["1"], &["2", "1"]), None);
    assert!(compared(describe, &[], &["1"]).is_some());
}

/// An endpoint that answers every request with these bytes and closes; gives its address.
pub(super) fn fake(bytes: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/sparql", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            stream.write_all(bytes.as_bytes()).unwrap_or_default();
            if bytes.is_empty() {
                // Says nothing until the client goes.
                stream.read_to_end(&mut head).unwrap_or_default();
            }
        }
    });
    address
}

/// What a client sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Such as `GET /sparql?query=ASK+%7B%7D`.
    pub(super) target: String,
    /// All lines of the head.
    pub(super) head: String,
    pub(super) body: String,
}

/// An endpoint that answers each request with what `answer` makes of it, one after the other, and closes; gives
/// its address.
pub(super) fn serve(mut answer: impl FnMut(&Request) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/sparql", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if let Some(request) = request(&mut stream) {
                let bytes = answer(&request);
                stream.write_all(bytes.as_bytes()).unwrap_or_default();
            }
        }
    });
    address
}

fn request(stream: &mut TcpStream) -> Option<Request> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let found = name.eq_ignore_ascii_case("content-length");
        found.then(|| value.trim().parse().ok()).flatten()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    let target = head.lines().next()?.trim_end_matches(" HTTP/1.1");
    Some(Request {
        target: target.to_owned(),
        body: String::from_utf8(body).ok()?,
        head,
    })
}

/// An answer of this status without a body.
pub(super) fn status(status: &str, head: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n{head}\r\n")
}

/// A text as forms and addresses have it, without its escapes.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next().unwrap()).to_digit(16).unwrap();
        bytes.push(match byte {
            b'%' => u8::try_from(digit() * 16 + digit()).unwrap(),
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

/// What another engine answers, in XML.
pub(super) fn answered(dataset: &Dataset, query: &str) -> Vec<u8> {
    let query = SparqlParser::new().parse_query(query).expect(query);
    let results = QueryEvaluator::new()
        .prepare(&query)
        .execute(dataset)
        .unwrap();
    let writer = QueryResultsSerializer::from_format(QueryResultsFormat::Xml);
    match results {
        QueryResults::Boolean(value) => writer
            .serialize_boolean_to_writer(Vec::new(), value)
            .unwrap(),
        QueryResults::Solutions(solutions) => {
            let variables = solutions.variables().to_vec();
            let mut writer = writer
                .serialize_solutions_to_writer(Vec::new(), variables)
                .unwrap();
            for solution in solutions {
                writer.serialize(&solution.unwrap()).unwrap();
            }
            writer.finish().unwrap()
        }
        QueryResults::Graph(triples) => {
            let mut writer = oxrdfxml::RdfXmlSerializer::new().for_writer(Vec::new());
            for triple in triples {
                writer.serialize_triple(&triple.unwrap()).unwrap();
            }
            writer.finish().unwrap()
        }
    }
}

fn with_head(head: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/sparql-results+xml\r\nConnection: close\r\n{head}\r\n{body}"
    )
}

pub(super) fn whole(body: &str) -> String {
    with_head(&format!("Content-Length: {}\r\n", body.len()), body)
}

fn ask(bytes: String) -> Measured {
    let timeout = Some(Duration::from_millis(300));
    Endpoint::new(&fake(bytes), Connection::Each, timeout).ask("ASK {}", None)
}

#[test]
fn what_a_bad_endpoint_does_is_no_answer() {
    let body = answer(&["a"], &["1", "2"]);
    let right = ask(whole(&body));
    assert_eq!(
        (right.failure, right.rows, right.bytes),
        (None, 2, body.len() as u64)
    );
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    let bad = [
        with_head(&format!("Content-Length: {}\r\n", body.len() + 1), &body),
        with_head("Transfer-Encoding: chunked\r\n", &chunk),
        with_head(
            &format!("X-SPARQL-MaxRows: 2\r\nContent-Length: {}\r\n", body.len()),
            &body,
        ),
        // An error after the status: the transfer is whole, the answer is not.
        whole(&body.replace("</results></sparql>", "out of memory")),
        with_head("", body.trim_end_matches("</sparql>")),
        "HTTP/1.1 500 Oh\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwhy?".to_owned(),
    ];
    for bytes in bad {
        let failure = ask(bytes.clone()).failure;
        assert!(
            matches!(failure, Some(Failure::Error(_))),
            "{bytes}: {failure:?}"
        );
    }
    let silent = ask(String::new());
    assert_eq!(silent.failure, Some(Failure::TimeOut));
}

#[test]
fn planted_answers_are_found_over_http() {
    let verdict = |tested: &[&str], timed_rows: u64| {
        let endpoint = |rows: &[&str]| {
            Endpoint::new(&fake(whole(&answer(&["a"], rows))), Connection::Each, None)
        };
        let timed = Measured {
            rows: timed_rows,
            ..Measured::default()
        };
        check(ALL, &timed, &endpoint(tested), &endpoint(&["1", "2"]))
    };
    assert_eq!(verdict(&["2", "1"], 2), Verdict::Right);
    assert!(matches!(verdict(&["2", "3"], 2), Verdict::Wrong(_)));
    assert!(matches!(verdict(&["2"], 1), Verdict::Wrong(_)));
    // Right when it is asked again, but it was cut off when it was timed.
    assert!(matches!(verdict(&["2", "1"], 1), Verdict::Wrong(_)));
}

#[test]
fn an_answer_that_is_late_when_asked_again_is_not_wrong() {
    let late = Endpoint::new(
        &fake(String::new()),
        Connection::Each,
        Some(Duration::from_millis(50)),
    );
    let trusted = Endpoint::new(
        &fake(whole(&answer(&["a"], &["1"]))),
        Connection::Each,
        None,
    );
    let verdict = check(ALL, &Measured::default(), &late, &trusted);
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
}

fn plan(url: String) -> Plan {
    Plan {
        url,
        clients: 1,
        warm_up: 0,
        mixes: 2,
        connection: Connection::Each,
        timeout: Some(Duration::from_millis(300)),
        server: Some(Process(std::process::id())),
        at_most: None,
        restart: None,
        updates: None,
    }
}

fn explore() -> Workload {
    let pools = crate::bsbm::Pools::new(100, 1, false);
    Workload::new(Name::Explore, pools, 1, false).unwrap()
}

#[test]
fn after_a_time_out_the_server_is_started_again() {
    let next = fake(whole(&answer(&["a"], &["1"])));
    let plan = Plan {
        restart: Some(format!("echo {next} {}", std::process::id())),
        ..plan(fake(String::new()))
    };
    let run = clients::run(&explore(), &plan, &|| ());
    assert_eq!((run.mixes, run.url), (2, next));
    let failed = |sample: &&Sample| sample.measured.failure.is_some();
    assert_eq!(run.samples.len(), 50);
    assert_eq!(run.samples.iter().filter(failed).count(), 1);
    assert_eq!(run.samples[0].measured.failure, Some(Failure::TimeOut));
    // A command that fails is said, and the run goes on.
    let plan = Plan {
        restart: Some("exit 3".to_owned()),
        url: fake(String::new()),
        mixes: 1,
        timeout: Some(Duration::from_millis(5)),
        ..plan
    };
    let run = clients::run(&explore(), &plan, &|| ());
    let failure = run.samples[0].measured.failure.clone();
    assert!(matches!(failure, Some(Failure::Error(said)) if said.contains("exit 3")));
}

#[test]
fn no_mix_is_begun_when_the_time_is_over() {
    let plan = Plan {
        at_most: Some(Duration::ZERO),
        ..plan(fake(whole(&answer(&["a"], &["1"]))))
    };
    let run = clients::run(&explore(), &plan, &|| ());
    assert_eq!((run.mixes, run.samples.len()), (0, 0));
}

#[test]
fn updates_go_where_and_how_it_is_said() {
    let insert = "<http://a> <http://b> \"c & d\" .";
    for (form, expected) in [
        (
            UpdateForm::Body,
            "INSERT DATA { <http://a> <http://b> \"c & d\" .\n }\n",
        ),
        (UpdateForm::Update, "update=INSERT+DATA+%7B+%3Chttp"),
        (UpdateForm::Query, "query=INSERT+DATA+%7B+%3Chttp"),
    ] {
        let (sender, requests) = channel();
        let url = serve(move |request| {
            sender.send(request.clone()).unwrap_or_default();
            if request.target.starts_with("POST") {
                status("204 No Content", "")
            } else {
                whole(&answer(&["a"], &["1", "2"]))
            }
        });
        let plan = Plan {
            mixes: 1,
            warm_up: 1,
            timeout: None,
            updates: Some(Updates {
                url: url.replace("/sparql", "/update"),
                form,
            }),
            ..plan(url)
        };
        let blocks = Blocks::parse(&format!("{insert}\n\n#__SEP__\n")).unwrap();
        let pools = crate::bsbm::Pools::new(100, 1, false);
        let workload = Workload::new(Name::ExploreUpdate, pools, 1, false).unwrap();
        let run = clients::run(&workload.with_blocks(blocks), &plan, &|| ());
        assert_eq!((run.mixes, run.samples.len()), (1, 30));
        let failed = run.samples.iter().find(|it| it.measured.failure.is_some());
        assert!(failed.is_none(), "{failed:?}");
        // What was written has no rows.
        assert_eq!(
            (run.samples[0].measured.rows, run.samples[5].measured.rows),
            (0, 2)
        );
        assert!(run.update_time.is_some());
        let asked: Vec<Request> = requests.try_iter().collect();
        assert_eq!(asked.len(), 25 + 30);
        assert!(
            asked[..25]
                .iter()
                .all(|it| it.target.starts_with("GET /sparql?query="))
        );
        let written: Vec<&Request> = asked
            .iter()
            .filter(|it| it.target == "POST /update")
            .collect();
        assert_eq!(written.len(), 5);
        let body = form == UpdateForm::Body;
        let media = written[0].head.to_lowercase();
        assert_eq!(media.contains("application/sparql-update"), body);
        assert!(written[0].body.starts_with(expected), "{:?}", written[0]);
        // The second insert is past the end of the file.
        assert!(!written[2].body.contains("http"), "{:?}", written[2]);
    }
}

#[test]
fn a_mix_that_writes_is_not_verified_and_needs_its_transactions() {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        run: Arguments,
    }
    let said = |options: &[&str]| {
        let words = [
            "run",
            "explore-update",
            "http://127.0.0.1:9/",
            "--products",
            "100",
        ];
        let words = words.iter().chain(options);
        let command = <Command as clap::Parser>::try_parse_from(words).unwrap();
        run(&command.run).unwrap_err().to_string()
    };
    assert!(said(&[]).contains("--updates FILE is missing"));
    let check = ["--updates", "u", "--check", "http://127.0.0.1:9/"];
    assert!(said(&check).contains("--check is for mixes that do not write"));
    let restart = ["--updates", "u", "--restart", "true", "--timeout", "1s"];
    assert!(said(&restart).contains("--restart is for mixes"));
    assert!(said(&["--updates", "/nowhere/u"]).contains("/nowhere/u"));
}
