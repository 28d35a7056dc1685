//! What is sent differs, what is answered is checked, and rounds are told apart.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::*;
use crate::run::tests::{serve, status};

fn arguments(words: &[&str]) -> Arguments {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }
    let words = [&["inserts"], words].concat();
    let command = <Command as clap::Parser>::try_parse_from(words);
    command.unwrap().arguments
}

fn writer(arguments: &Arguments) -> Writer<'_> {
    Writer {
        arguments,
        subjects: vec!["urn:old:1".to_owned(), "urn:old:2".to_owned()],
        run: 7,
    }
}

#[test]
fn requests_are_updates_whose_quads_differ() {
    let arguments = arguments(&["http://x/", "--quads", "12"]);
    let writer = writer(&arguments);
    let mut quads = BTreeSet::new();
    for (client, number) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut request = String::new();
        writer.request(client, number, &mut request);
        spargebra::SparqlParser::new()
            .parse_update(&request)
            .unwrap();
        let lines = request.lines().filter(|line| line.ends_with(" ."));
        quads.extend(lines.map(str::to_owned));
    }
    assert_eq!(quads.len(), 48);
    assert!(!quads.iter().any(|quad| quad.contains("urn:old")));
}

#[test]
fn as_many_subjects_are_there_already_as_was_asked_for() {
    let words = ["http://x/", "--subjects", "f", "--existing", "30"];
    let arguments = arguments(&[&words[..], &["--quads", "12"]].concat());
    let writer = writer(&arguments);
    let old = (0..2_000).filter(|place| writer.old_subject(3, *place).is_some());
    let old = old.count();
    assert!((500..700).contains(&old), "{old}");
    // With two subjects for all of them, no quad is there twice.
    let mut quads = BTreeSet::new();
    for (client, number) in (0..4).flat_map(|client| (0..50).map(move |number| (client, number))) {
        let mut request = String::new();
        writer.request(client, number, &mut request);
        let lines = request.lines().filter(|line| line.ends_with(" ."));
        quads.extend(lines.map(str::to_owned));
    }
    assert_eq!(quads.len(), 200 * 12);
}

#[test]
fn requests_are_counted_in_place_of_a_time() {
    let url = serve(|_| status("204 No Content", ""));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("figures");
    let words = ["--clients", "3", "--rounds", "1", "--count", "4"];
    let output = ["--output", path.to_str().unwrap()];
    assert!(run(&arguments(&[&[url.as_str()], &words[..], &output].concat())).unwrap());
    let line: Value = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    assert_eq!(line["requests"], 12);
}

#[test]
fn rounds_of_appends_and_clients_are_told_apart() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let url = {
        let received = Arc::clone(&received);
        serve(move |request| {
            let mut received = received.lock().unwrap();
            received.push(request.body.clone());
            match received.len() {
                3 => status("500 No", ""),
                _ => status("204 No Content", ""),
            }
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("figures");
    let arguments = arguments(&[
        &url,
        "--clients",
        "1,2",
        "--rounds",
        "2",
        "--duration",
        "30ms",
        "--beside",
        "echo 2000; echo 1000; echo 3000",
        "--output",
        path.to_str().unwrap(),
    ]);
    assert!(!run(&arguments).unwrap(), "one request failed");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| line.parse().unwrap()).collect();
    let clients: Vec<_> = lines.iter().map(|line| line["clients"].as_u64()).collect();
    let round = [None, Some(1), None, Some(2)];
    assert_eq!(clients, [round, round].concat());
    assert_eq!(
        (&lines[0]["requests"], &lines[0]["seconds"]),
        (&json!(3), &json!(0.006))
    );
    let sum = |name: &str| -> u64 {
        let of_clients = lines.iter().filter(|line| line["kind"] == "inserts");
        of_clients.map(|line| line[name].as_u64().unwrap()).sum()
    };
    let received = received.lock().unwrap();
    assert_eq!(sum("failures"), 1);
    assert_eq!(sum("requests") + 1, received.len() as u64);
    let different: BTreeSet<&String> = received.iter().collect();
    assert_eq!(different.len(), received.len());
}

#[test]
fn what_was_not_added_is_a_failure() {
    let added = |count: u64, quads: &str| {
        let url = serve(move |_| status("200 OK", &format!("Stoa-Added: {count}\r\n")));
        let words = [
            "--clients",
            "1",
            "--rounds",
            "1",
            "--count",
            "2",
            "--quads",
            quads,
        ];
        run(&arguments(&[&[url.as_str()], &words[..]].concat())).unwrap()
    };
    assert!(added(10, "10"));
    assert!(!added(9, "10"));
}

#[test]
fn a_command_beside_that_fails_ends_the_run() {
    let url = serve(|_| status("204 No Content", ""));
    for (command, said) in [
        ("exit 3", "failed"),
        ("true", "wrote nothing"),
        ("echo soon", "microseconds"),
    ] {
        let error = run(&arguments(&[&url, "--count", "1", "--beside", command])).unwrap_err();
        assert!(format!("{error:#}").contains(said), "{error:#}");
    }
}
