//! The server over real sockets: the protocol, its errors, and clients that stop reading.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tempfile::TempDir;

use crate::support::{QUERY, Server, output};

/// Serves `triples` triples.
fn serve(triples: usize) -> (Server, TempDir) {
    let folder = TempDir::new().unwrap();
    let data: String = (0..triples)
        .map(|n| format!("<http://a/s{n}> <http://a/p> \"a value of some length, number {n}\" .\n"))
        .collect();
    std::fs::write(folder.path().join("data.nt"), data).unwrap();
    output(folder.path(), &["load", "--db", "db", "data.nt"]);
    (Server::start(folder.path(), &[]), folder)
}

#[test]
fn queries_are_answered_in_the_format_that_is_asked_for() {
    let (server, _folder) = serve(2);
    let select = "SELECT ?o { <http://a/s1> ?p ?o }";
    let json = server.ask(QUERY, select);
    assert!(json.starts_with("HTTP/1.1 200") && json.contains("\"value\":\"a value of some"));
    let csv = server.ask(&format!("{QUERY}\r\nAccept: text/csv"), select);
    assert!(csv.contains("text/csv") && csv.contains("o\r\n\"a value of some length, number 1\""));
    let get = server.ask(
        "GET /sparql?query=ASK%20%7B%20%3Fs+%3Fp+%3Fo%20%7D HTTP/1.1",
        "",
    );
    assert!(get.contains("\"boolean\":true"), "{get}");
    let turtle = server.ask(QUERY, "CONSTRUCT WHERE { <http://a/s1> ?p ?o }");
    assert!(turtle.contains("text/turtle") && turtle.contains("<http://a/s1> <http://a/p>"));
    assert!(server.ask("GET /health HTTP/1.1", "").ends_with("ok\n"));
    assert!(server.ask("GET / HTTP/1.1", "").contains("<textarea"));
    let status = server.ask("GET /status HTTP/1.1", "");
    for part in [
        "\"commit\":1",
        "\"durability\":\"full\"",
        "\"heldBackBytes\":0",
    ] {
        assert!(status.contains(part), "{status}");
    }
}

/// `null` says that nothing is counted, which no counts at all would not.
#[test]
fn locks_are_told_by_a_build_that_counts_them() {
    let (server, _folder) = serve(1);
    let status = server.ask("GET /status HTTP/1.1", "");
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let locks = status.get("locks").unwrap();
    if cfg!(feature = "lock-meters") {
        let is_taken = |lock: &serde_json::Value| lock["acquisitions"].as_u64() > Some(0);
        assert!(locks.as_array().unwrap().iter().any(is_taken), "{locks}");
    } else {
        assert!(locks.is_null(), "{locks}");
    }
}

#[test]
fn plans_are_told_and_what_came_of_them() {
    let (server, _folder) = serve(3);
    let path =
        |asked: &str| format!("GET /sparql?query=SELECT+*%7B%3Fs+%3Fp+%3Fo%7D&{asked} HTTP/1.1");
    let plan = server.ask(&path("explain"), "");
    assert!(
        plan.contains("text/plain") && plan.contains("index_scan"),
        "{plan}"
    );
    assert!(!plan.contains("actual="), "{plan}");
    let analyzed = server.ask(&path("explain=analyze"), "");
    assert!(analyzed.contains("actual=3 ms="), "{analyzed}");
    let accept = "\r\nAccept: application/json";
    let json = server.ask(&format!("{}{accept}", path("explain=analyze")), "");
    assert!(
        json.contains("application/json") && json.contains("\"rows\":3"),
        "{json}"
    );
    // The plan of the first is taken again, unless that is not wanted.
    let reused = "planned when the same was asked before";
    assert!(server.ask(&path("explain=analyze"), "").contains(reused));
    let fresh = server.ask(&path("explain=analyze&plan=fresh"), "");
    assert!(
        fresh.starts_with("HTTP/1.1 200") && !fresh.contains(reused),
        "{fresh}"
    );
    let wrong = server.ask(&path("plan=old"), "");
    assert!(
        wrong.starts_with("HTTP/1.1 400") && wrong.contains("reused or fresh"),
        "{wrong}"
    );
    let json = server.ask(&path("explain=plan&format=json"), "");
    assert!(
        json.contains("\"estimated_rows\":3.0") && !json.contains("\"rows\""),
        "{json}"
    );
    let wrong = server.ask(&path("explain=plain"), "");
    assert!(
        wrong.starts_with("HTTP/1.1 400") && wrong.contains("plan or analyze"),
        "{wrong}"
    );
    let late = server.ask(&path("explain=analyze&timeout=0.000000001"), "");
    assert!(
        late.starts_with("HTTP/1.1 503") || late.starts_with("HTTP/1.1 504"),
        "{late}"
    );
}

#[test]
fn responses_say_how_long_they_took() {
    let (server, _folder) = serve(2);
    let update = "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-update";
    for (head, body) in [
        (QUERY, "SELECT * { ?s ?p ?o }"),
        (QUERY, "SELECT * {"),
        (update, "INSERT DATA { <http://a/s> <http://a/p> 1 }"),
        ("GET /nothing HTTP/1.1", ""),
    ] {
        let answer = server.ask(head, body);
        let field = answer.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("server-timing").then_some(value)
        });
        let milliseconds = field.and_then(|field| field.strip_prefix("answer;dur="));
        let milliseconds: f64 = milliseconds.expect(&answer).parse().unwrap();
        assert!(milliseconds >= 0.0, "{answer}");
    }
}

#[test]
fn errors_are_problem_documents() {
    let (server, _folder) = serve(1);
    for (head, body, status, part) in [
        (QUERY, "SELECT * {", "400", "\"line\":1"),
        (
            QUERY,
            "SELECT * { SERVICE <http://a/> { ?s ?p ?o } }",
            "403",
            "SERVICE is off",
        ),
        (
            "POST /sparql HTTP/1.1\r\nContent-Type: text/plain",
            "ASK {}",
            "415",
            "sparql-query",
        ),
        (
            "DELETE /sparql HTTP/1.1",
            "",
            "405",
            "GET, HEAD, POST, OPTIONS",
        ),
        (
            "POST /sparql HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded",
            "",
            "400",
            "neither a query nor an update",
        ),
        ("GET /nothing HTTP/1.1", "", "404", "/sparql"),
        (
            "POST /sparql HTTP/1.1\r\nAccept: image/png\r\nContent-Type: application/sparql-query",
            "ASK {}",
            "406",
            "sparql-results+json",
        ),
    ] {
        let answer = server.ask(head, body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
        assert!(
            answer.contains("application/problem+json") && answer.contains(part),
            "{answer}"
        );
    }
}

/// Even where one thread reads all requests and begins them.
#[test]
fn a_query_that_takes_long_keeps_nobody_from_an_answer() {
    let (_, folder) = serve(5_000);
    let server = Server::start(folder.path(), &["--threads", "1"]);
    let pairs =
        "SELECT (COUNT(*) AS ?n) { ?a ?p ?b . ?c ?q ?d . ?e ?r ?f FILTER(?b < ?d && ?d < ?f) }";
    let long = server.send(QUERY, pairs);
    for round in 0..20 {
        let one = server.ask(QUERY, "SELECT ?o { <http://a/s7> ?p ?o }");
        assert!(one.contains("number 7"), "{one}");
        let update = "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-update";
        let insert = format!("INSERT DATA {{ <http://a/s> <http://a/p> {round} }}");
        let done = server.ask(update, &insert);
        assert!(done.contains("\"added\":1"), "{done}");
    }
    long.set_nonblocking(true).unwrap();
    let unfinished = (&long).read(&mut [0]).unwrap_err();
    assert_eq!(unfinished.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_short_answer_tells_its_length_and_a_long_one_comes_in_chunks() {
    let (server, _folder) = serve(60_000);
    let short = server.ask(QUERY, "ASK { ?s ?p ?o }");
    let (head, body) = short.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", body.len());
    assert!(
        head.contains(&length) && body.trim_end().ends_with('}'),
        "{short}"
    );
    let long = server.ask(QUERY, "SELECT * { ?s ?p ?o }");
    let (head, _) = long.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
}

/// Whichever thread takes a connection may give it to another one.
#[test]
fn connections_that_are_open_at_once_are_all_served() {
    let (_, folder) = serve(2);
    let server = Server::start(folder.path(), &["--threads", "3"]);
    let connect = |_| TcpStream::connect(&server.address).unwrap();
    let mut open: Vec<TcpStream> = (0..24).map(connect).collect();
    let body = "ASK { ?s ?p ?o }";
    let length = body.len();
    for _ in 0..3 {
        for stream in &mut open {
            let head = format!("{QUERY}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
            stream
                .write_all(format!("{head}{body}").as_bytes())
                .unwrap();
        }
        for stream in &mut open {
            let mut answer = [0; 1_024];
            let read = stream.read(&mut answer).unwrap();
            let answer = String::from_utf8_lossy(&answer[..read]);
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
}

#[test]
fn clients_that_stop_reading_keep_nobody_from_an_answer() {
    let (server, _folder) = serve(60_000);
    let all = "SELECT * { ?s ?p ?o }";
    let mut stopped: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = server.send(QUERY, all);
            let mut start = [0; 64];
            stream.read_exact(&mut start).unwrap();
            assert!(start.starts_with(b"HTTP/1.1 200"));
            stream
        })
        .collect();
    let one = server.ask(QUERY, "SELECT ?o { <http://a/s7> ?p ?o }");
    assert!(one.contains("number 7"), "{one}");
    // One that goes on reading still gets all of its answer.
    let mut rest = String::new();
    stopped.pop().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("\"s\":").count(), 60_000);
    assert!(rest.trim_end().ends_with("0"), "the last chunk is there");
}

/// Resident memory of a process now, in bytes.
fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// What a stopped client may cost the server: a batch with its texts, and what waits to be sent.
const CLIENT_BYTES_MAX: u64 = 8 << 20;

#[test]
fn clients_that_stop_reading_do_not_grow_memory() {
    let (server, _folder) = serve(3_000);
    let one_row = || {
        let answer = server.ask(QUERY, "SELECT ?o { <http://a/s7> ?p ?o }");
        assert!(answer.contains("number 7"), "{answer}");
    };
    one_row();
    let process = server.process.0.id();
    let before = resident_bytes(process);
    // Some 3 GB for each client, of which the sockets take a few megabytes.
    let large = "SELECT * { ?a ?b ?c . ?d ?e ?f }";
    let clients: u64 = 50;
    let mut stopped: Vec<TcpStream> = (0..clients)
        .map(|_| {
            let mut stream = server.send(QUERY, large);
            let mut start = [0; 64];
            stream.read_exact(&mut start).unwrap();
            assert!(start.starts_with(b"HTTP/1.1 200"));
            stream
        })
        .collect();
    // Until nothing arrives any more at any of them: the server has written all that it can.
    let (mut arrived, mut unchanged) = (0, 0);
    while unchanged < 100 {
        one_row();
        let now = stopped
            .iter()
            .map(|stream| rustix::io::ioctl_fionread(stream).unwrap())
            .sum();
        unchanged = if now == arrived { unchanged + 1 } else { 0 };
        arrived = now;
        let grown = resident_bytes(process).saturating_sub(before);
        assert!(
            grown <= clients * CLIENT_BYTES_MAX,
            "{} MB for {clients} clients",
            grown >> 20
        );
    }
    assert!(arrived >= clients << 10, "{arrived}");
    // They have been left where they stopped, not cut off.
    let mut more = vec![0; 16 << 20];
    stopped.pop().unwrap().read_exact(&mut more).unwrap();
}

/// What `/status` says is running, as soon as there is something with a plan.
fn running(server: &Server, head: &str) -> serde_json::Value {
    loop {
        let status = server.ask(head, "");
        let (_, body) = status.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        if status["queries"][0]["reads"]["seq"].is_u64() {
            return status;
        }
        std::thread::yield_now();
    }
}

#[test]
fn running_queries_are_listed_and_ended() {
    const SECRET: &str = "0123456789abcdef";
    let (server, folder) = serve(3_000);
    let status = server.ask("GET /status HTTP/1.1", "");
    assert!(status.contains("\"queries\":[]"), "{status}");
    drop(server);
    std::fs::write(folder.path().join("token"), SECRET).unwrap();
    let server = Server::start(folder.path(), &["--token", "token"]);

    // Takes hours.
    let slow =
        "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(?c < ?f && ?f < ?i) }";
    let mut answer = server.send(QUERY, slow);
    let stranger = running(&server, "GET /status HTTP/1.1");
    assert!(stranger["queries"][0]["text"].is_null(), "{stranger}");
    let token = format!("\r\nAuthorization: Bearer {SECRET}");
    let told = running(&server, &format!("GET /status HTTP/1.1{token}"));
    let query = &told["queries"][0];
    assert_eq!(query["text"], slow);
    assert_eq!(query["kind"], "query");
    assert!(query["threads"].as_u64() >= Some(1), "{told}");

    let end = format!("DELETE /status/queries/{} HTTP/1.1", query["id"]);
    assert!(server.ask(&end, "").starts_with("HTTP/1.1 401"));
    let ended = server.ask(&format!("{end}{token}"), "");
    assert!(ended.starts_with("HTTP/1.1 204"), "{ended}");
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 503")
            && text.contains("cancelled")
            && !text.contains("retry-after"),
        "{text}"
    );
    let status = server.ask("GET /status HTTP/1.1", "");
    assert!(status.contains("\"queries\":[]"), "{status}");
    for number in [query["id"].to_string(), "x".to_owned(), String::new()] {
        let end = format!("DELETE /status/queries/{number} HTTP/1.1{token}");
        let none = server.ask(&end, "");
        assert!(none.starts_with("HTTP/1.1 404"), "{none}");
    }
    let get = server.ask("GET /status/queries/1 HTTP/1.1", "");
    assert!(get.starts_with("HTTP/1.1 405"), "{get}");
}

#[test]
fn a_running_update_is_ended() {
    let (server, _folder) = serve(3_000);
    // Takes hours.
    let slow = "INSERT { ?a <http://a/q> ?f } WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(?c < ?f && ?f < ?i) }";
    let mut answer = server.send(
        "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-update",
        slow,
    );
    // What the thread that read it could not do is begun once more, under another number.
    let ended = loop {
        let status = server.ask("GET /status HTTP/1.1", "");
        let (_, body) = status.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        if status["queries"][0]["kind"] == "update" {
            assert_eq!(status["queries"][0]["text"], slow);
            let id = &status["queries"][0]["id"];
            let ended = server.ask(&format!("DELETE /status/queries/{id} HTTP/1.1"), "");
            if !ended.starts_with("HTTP/1.1 404") {
                break ended;
            }
        }
        std::thread::yield_now();
    };
    assert!(ended.starts_with("HTTP/1.1 204"), "{ended}");
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 503") && text.contains("cancelled"),
        "{text}"
    );
    let ask = server.ask(QUERY, "ASK { ?s <http://a/q> ?o }");
    assert!(ask.contains("\"boolean\":false"), "{ask}");
}

#[test]
fn status_tells_of_shapes_and_sort_orders() {
    const SECRET: &str = "0123456789abcdef";
    let (server, folder) = serve(300);
    drop(server);
    std::fs::write(folder.path().join("token"), SECRET).unwrap();
    let server = Server::start(folder.path(), &["--token", "token"]);
    for number in 0..3 {
        let select = format!("SELECT ?o {{ <http://a/s{number}> <http://a/p> ?o }}");
        let answer = server.ask(QUERY, &select);
        assert!(answer.contains("a value of some length"), "{answer}");
    }
    let told = |head: &str| -> serde_json::Value {
        let status = server.ask(head, "");
        let (_, body) = status.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    };
    let token = format!("GET /status HTTP/1.1\r\nAuthorization: Bearer {SECRET}");
    // A run counts once the server has done with it, which may be after the answer has come.
    let status = loop {
        let status = told(&token);
        if status["shapes"][0]["count"] == 3 {
            break status;
        }
        std::thread::yield_now();
    };
    let shapes = status["shapes"].as_array().unwrap();
    assert_eq!(shapes.len(), 1, "{status}");
    let shape = &shapes[0];
    assert_eq!(shape["shape"], "SELECT ?o { _ <http://a/p> ?o }");
    assert!(shape["example"].as_str().unwrap().contains("<http://a/s"));
    assert_eq!(
        (&shape["kind"], &shape["errors"]),
        (&"query".into(), &0.into())
    );
    assert_eq!(
        (&shape["rows"], &shape["reads"]["rnd"]),
        (&3.into(), &3.into())
    );
    assert_eq!(shape["reads"]["seq"], 3);
    assert!(shape["seconds"].as_f64() >= shape["secondsMax"].as_f64());
    assert_eq!(status["shapesDropped"]["shapes"], 0);

    // Only the first found nothing in memory.
    let orders = status["databases"][0]["permutations"].as_array().unwrap();
    let sum = |what: &str| -> u64 {
        let counts = orders.iter().map(|order| order[what].as_u64().unwrap());
        counts.sum()
    };
    let names: Vec<_> = orders
        .iter()
        .map(|order| order["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "PSOG",
            "POSG",
            "SPOG",
            "OPSG",
            "GS",
            "graphs",
            "dictionary",
            "other"
        ]
    );
    assert!(sum("touches") >= 3 && sum("residentBytes") > 0, "{status}");
    let of_queries = shape["reads"]["disk"].as_u64().unwrap();
    assert!(of_queries > 0 && sum("disk") >= of_queries, "{status}");
    assert!(sum("bytes") >= 4096, "{status}");

    let stranger = told("GET /status HTTP/1.1");
    assert!(stranger["shapes"][0]["shape"].is_null() && stranger["shapes"][0]["example"].is_null());
    assert_eq!(stranger["shapes"][0]["count"], 3);
}
