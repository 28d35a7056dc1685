//! The queries made from small data, and asked of another engine: all answers are as the statistics say.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use oxrdf::{Dataset, GraphName, NamedNode, Quad};
use oxttl::NTriplesParser;

use super::*;
use crate::run::endpoint::{Connection, Endpoint};
use crate::run::operators::{State, once};
use crate::run::tests::{answered, decoded};

/// A genealogy in the default graph, and a part of it in two named graphs.
fn data() -> Dataset {
    let mut dataset = Dataset::new();
    let text = crate::graphs::some_people(400);
    for (at, triple) in NTriplesParser::new().for_slice(&text).enumerate() {
        let triple = triple.unwrap();
        dataset.insert(&triple.clone().in_graph(GraphName::DefaultGraph));
        if at % 5 == 0 {
            let graph = if at % 15 == 0 { "small" } else { "large" };
            let graph = NamedNode::new_unchecked(format!("http://stoa.example/{graph}"));
            let Quad {
                subject,
                predicate,
                object,
                ..
            } = triple.in_graph(GraphName::DefaultGraph);
            dataset.insert(&Quad::new(subject, predicate, object, graph));
        }
    }
    dataset
}

fn serve(dataset: &Dataset, mut stream: TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.to_ascii_lowercase();
    let length = length.split("content-length: ").nth(1);
    let length = length.map_or(0, |it| it.lines().next().unwrap().parse().unwrap());
    let mut form = vec![0; length];
    stream.read_exact(&mut form).unwrap();
    let text = if length > 0 {
        String::from_utf8(form).unwrap()
    } else {
        head.split(' ').nth(1).unwrap().to_owned()
    };
    let body = answered(dataset, &decoded(text.split_once("query=").unwrap().1));
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
}

/// The address of an endpoint of another engine.
fn engine(dataset: Dataset) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/sparql", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(&dataset, stream.unwrap());
        }
    });
    address
}

#[test]
fn queries_follow_from_the_data_and_are_answered_as_expected() {
    let endpoint = Endpoint::new(&engine(data()), Connection::Each, None);
    let asker = Asker(&endpoint);
    let made = || {
        let profile = Profile::ask(&asker).unwrap();
        Builder::set(&asker, &profile).unwrap()
    };
    let set = made();
    assert_eq!(set.hash(), made().hash());
    let names: BTreeSet<&str> = set.entries.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names.len(), set.entries.len(), "a name is there twice");
    let mut skipped = Vec::new();
    for entry in &set.entries {
        match &entry.query {
            Ok(query) => {
                let state = once(&endpoint, query, entry, true).1;
                assert_eq!(state, State::Answered, "{}: {query}", entry.name);
            }
            Err(reason) => skipped.push((entry.name.as_str(), reason.as_str())),
        }
    }
    assert!(set.counts().0 >= 120, "{skipped:?}");
    // What only larger data have.
    let small = ["export/100k", "export/1m", "export/10m", "values/1000"];
    for name in small {
        assert!(skipped.iter().any(|it| it.0 == name), "{name}: {skipped:?}");
    }
    assert!(skipped.len() <= 10, "{skipped:?}");
}

#[test]
fn without_data_there_is_no_set() {
    let endpoint = Endpoint::new(&engine(Dataset::new()), Connection::Each, None);
    let said = Profile::ask(&Asker(&endpoint)).unwrap_err().to_string();
    assert!(said.contains("default graph is empty"), "{said}");
}
