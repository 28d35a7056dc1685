//! Every option that a help shows does something.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::{
    ONE, QUERY, Running, Server, assert_failed, command, dump, loaded, output, stoa, text,
};

/// The options that the tests below see at work; `--allow-service` is seen in service.rs, those of `update` in
/// update.rs, `--token` in access.rs, `--server` in load_server.rs and remote.rs, `--transaction-timeout` in rdf4j.rs, `--io` and
/// `--scheme` by the tests of storage and of schemes, `backup`, `restore`, `compact`, `--backup-dir` and
/// `--archive-log`, `--archive-every` and `--archive-backlog` in backup.rs, `--retain`, `--at`, `log`, `diff`, `apply`, `revert`
/// and `forget` in history.rs, `--create` in bad_input.rs.
const SHOWN: [(&str, &[&str]); 16] = [
    (
        "load",
        &[
            "--archive-log",
            "--base",
            "--context",
            "--db",
            "--expand-context",
            "--format",
            "--graph",
            "--io",
            "--lenient",
            "--memory",
            "--rdf-direction",
            "--retain",
            "--scheme",
            "--server",
            "--threads",
            "--token",
        ],
    ),
    (
        "query",
        &[
            "--allow-service",
            "--at",
            "--base",
            "--db",
            "--default-graph",
            "--explain",
            "--file",
            "--format",
            "--io",
            "--memory",
            "--server",
            "--timeout",
            "--token",
        ],
    ),
    (
        "update",
        &[
            "--allow-load",
            "--allow-service",
            "--archive-log",
            "--base",
            "--create",
            "--db",
            "--default-graph",
            "--durability",
            "--file",
            "--io",
            "--memory",
            "--message",
            "--retain",
            "--server",
            "--timeout",
            "--token",
        ],
    ),
    (
        "serve",
        &[
            "--allow-load",
            "--allow-service",
            "--archive-backlog",
            "--archive-every",
            "--archive-log",
            "--backup-dir",
            "--bind",
            "--client-timeout",
            "--cors",
            "--create",
            "--db",
            "--default-graph",
            "--durability",
            "--head-timeout",
            "--host",
            "--io",
            "--memory",
            "--memory-wait",
            "--retain",
            "--threads",
            "--timeout",
            "--token",
            "--transaction-timeout",
        ],
    ),
    (
        "dump",
        &[
            "--at", "--db", "--format", "--io", "--memory", "--server", "--token",
        ],
    ),
    ("info", &["--db", "--io"]),
    ("check", &["--backup", "--db", "--io"]),
    ("diff", &["--db", "--io", "--server", "--token"]),
    (
        "apply",
        &[
            "--archive-log",
            "--db",
            "--io",
            "--memory",
            "--message",
            "--server",
            "--strict",
            "--token",
        ],
    ),
    (
        "revert",
        &[
            "--archive-log",
            "--db",
            "--force",
            "--io",
            "--memory",
            "--message",
            "--server",
            "--token",
        ],
    ),
    (
        "forget",
        &["--before", "--db", "--io", "--server", "--token"],
    ),
    (
        "log",
        &["--db", "--format", "--io", "--limit", "--server", "--token"],
    ),
    (
        "checkpoint",
        &[
            "--archive-log",
            "--db",
            "--io",
            "--memory",
            "--server",
            "--threads",
            "--token",
        ],
    ),
    (
        "backup",
        &[
            "--db",
            "--io",
            "--no-history",
            "--server",
            "--to",
            "--token",
        ],
    ),
    (
        "compact",
        &[
            "--archive-log",
            "--db",
            "--io",
            "--memory",
            "--server",
            "--threads",
            "--token",
        ],
    ),
    (
        "restore",
        &[
            "--archive-log",
            "--at",
            "--db",
            "--from",
            "--io",
            "--memory",
            "--threads",
        ],
    ),
];

/// The options that a help describes.
fn options(help: &str) -> BTreeSet<String> {
    help.lines()
        .filter(|line| line.starts_with("  ") && line.trim_start().starts_with('-'))
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")))
        .filter_map(|word| word.split('[').next())
        .map(str::to_owned)
        .collect()
}

/// The commands that a help lists.
fn commands(help: &str) -> BTreeSet<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_option_in_a_help_is_seen_at_work() {
    let here = Path::new(".");
    let help = output(here, &["--help"]);
    let mut commands = commands(&help);
    assert!(commands.remove("help"));
    let shown: BTreeSet<String> = SHOWN.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(commands, shown);
    for (name, names) in SHOWN {
        let help = output(here, &[name, "--help"]);
        let mut described = options(&help);
        assert!(described.remove("--help"), "{help}");
        let seen: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(described, seen, "{name}");
    }
}

/// Loads 3,000 quads into a named graph of `db`.
fn load_more(folder: &Path) {
    let mut data = String::new();
    for n in 0..3_000 {
        data += &format!("<http://a/s{n}> <http://a/p> \"some value, {n}\" <http://a/g> .\n");
    }
    fs::write(folder.join("more.nq"), data).unwrap();
    output(folder, &["load", "--db", "db", "more.nq"]);
}

/// A query that takes hours.
const SLOW: &str =
    "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(?c < ?f) }";

/// A query that computes one text that 96 MB do not hold.
const LARGE: &str = "SELECT (GROUP_CONCAT(CONCAT(STR(?a), STR(?d))) AS ?g) { ?a ?b ?c . ?d ?e ?f }";

fn query(folder: &Path, options: &[&str]) -> Output {
    stoa(folder, &[&["query", "--db", "db"], options].concat())
}

#[test]
fn json_ld_is_read_as_options_say() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(
        folder.join("plain.json"),
        r#"{"id": "http://b/s", "text": {"@value": "x", "@language": "AR", "@direction": "rtl"}}"#,
    )
    .unwrap();
    fs::write(
        folder.join("context.jsonld"),
        r#"{"@context": {"id": "@id", "text": "http://b/text"}}"#,
    )
    .unwrap();
    fs::write(folder.join("bad.jsonld"), r#"{"@context": {"@base": 1}}"#).unwrap();
    let load = |db: &str, options: &[&str]| {
        let named = ["load", "--db", db, "--format", "jsonld", "plain.json"];
        stoa(folder, &[named.as_slice(), options].concat())
    };
    let bad = load("bad", &["--expand-context", "bad.jsonld"]);
    assert_failed(&bad, 2, &["--expand-context", "invalid base IRI"]);
    assert!(!folder.join("bad").exists());
    let direction = load("bad", &["--rdf-direction", "up"]);
    assert_failed(&direction, 2, &["dirlang, i18n, compound or none"]);
    for (form, expected) in [
        (None, "\"x\"@ar--rtl"),
        (Some("dirlang"), "\"x\"@ar--rtl"),
        (Some("i18n"), "\"x\"^^<https://www.w3.org/ns/i18n#ar_rtl>"),
        (Some("compound"), "#direction> \"rtl\""),
        (Some("none"), "\"x\"@ar ."),
    ] {
        let mut options = vec!["--expand-context", "context.jsonld"];
        options.extend(form.into_iter().flat_map(|form| ["--rdf-direction", form]));
        let db = form.unwrap_or("default");
        assert!(load(db, &options).status.success());
        let quads = output(folder, &["dump", "--db", db]);
        assert!(quads.contains(expected), "{form:?}: {quads}");
    }
}

#[test]
fn contexts_of_json_ld_are_given_and_not_fetched() {
    let folder = loaded();
    let folder = folder.path();
    fs::write(
        folder.join("context.jsonld"),
        r#"{"@context": {"p": "http://b/p"}}"#,
    )
    .unwrap();
    fs::write(
        folder.join("named.jsonld"),
        r#"{"@context": "http://c/?a=b", "@id": "http://b/s", "p": "o"}"#,
    )
    .unwrap();
    let unknown = stoa(folder, &["load", "--db", "third", "named.jsonld"]);
    assert_failed(&unknown, 1, &["http://c/?a=b", "--context URL=FILE"]);
    let context = ["--context", "http://c/?a=b=context.jsonld"];
    let load = [
        &["load", "--db", "third"],
        context.as_slice(),
        &["named.jsonld"],
    ]
    .concat();
    output(folder, &load);
    assert_eq!(
        output(folder, &["dump", "--db", "third"]),
        "<http://b/s> <http://b/p> \"o\" .\n"
    );
    let json = output(folder, &["dump", "--db", "third", "--format", "jsonld"]);
    assert!(json.contains("\"@id\":\"http://b/s\""), "{json}");
}

#[test]
fn a_lenient_load_says_what_it_skipped() {
    let folder = loaded();
    let folder = folder.path();
    let mut lines = ONE.replace("\"o\"", "\"more\"");
    lines += &"<http://a/s> <http://a/p> \"no end .\n".repeat(1_200);
    fs::write(folder.join("bad.nt"), &lines).unwrap();
    let turtle = "@prefix a: <http://a/> .\na:s a:p a:o ;; .\na:s a:p no:o .\n";
    fs::write(folder.join("bad.ttl"), turtle).unwrap();
    let load = ["load", "--db", "db", "bad.nt", "bad.ttl"];
    // Of two damaged files either may be noticed first.
    let one = ["load", "--db", "db", "bad.nt"];
    assert_failed(&stoa(folder, &one), 1, &["bad.nt: line 2, column 27: "]);
    let skipped = stoa(folder, &[&load[..], &["--lenient"]].concat());
    let said = text(&skipped.stderr);
    assert!(skipped.status.success(), "{said}");
    let listed = said
        .lines()
        .filter(|line| line.starts_with("skipped bad.nt: line "))
        .count();
    assert_eq!(listed, 100, "{said}");
    for line in [
        "only the first 100 are listed",
        "bad.nt: 1,200 skipped",
        "bad.ttl: 1 skipped",
        "1,201 damaged lines or statements were skipped",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert_eq!(dump(folder).lines().count(), 3);
    let nothing = stoa(folder, &["load", "--db", "db", "--lenient", "one.nt"]);
    let said = text(&nothing.stderr);
    assert!(said.contains("nothing was skipped"), "{said}");
}

#[test]
fn the_options_of_load() {
    let folder = loaded();
    let folder = folder.path();
    fs::write(folder.join("relative.txt"), "<s> <p> <o> .").unwrap();
    let options = [
        "--format",
        "ttl",
        "--base",
        "http://b/",
        "--graph",
        "http://a/g",
    ];
    let load = [
        &["load", "--db", "other"],
        options.as_slice(),
        &["relative.txt"],
    ]
    .concat();
    output(folder, &load);
    assert_eq!(
        output(folder, &["dump", "--db", "other"]),
        "<http://b/s> <http://b/p> <http://b/o> <http://a/g> .\n"
    );
    // A line may take an eighth of the memory.
    let long = format!("<http://a/s> <http://a/p> \"{}\" .\n", "x".repeat(6 << 20));
    fs::write(folder.join("long.nt"), long).unwrap();
    let refused = stoa(
        folder,
        &["load", "--db", "db", "--memory", "16M", "long.nt"],
    );
    assert_failed(&refused, 1, &["long.nt", "2097152 bytes", "--memory"]);
    output(
        folder,
        &["load", "--db", "db", "--memory", "512M", "long.nt"],
    );
    // While a load waits for its input all its threads are there.
    let mut child = command(folder)
        .args([
            "load",
            "--db",
            "other",
            "--format",
            "ttl",
            "--threads",
            "5",
            "-",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (stdin, stderr) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
    let mut running = Running(child);
    for line in BufReader::new(stderr).lines() {
        if line.unwrap() == "reading" {
            break;
        }
    }
    // The threads start one after the other.
    let threads = || threads_named(running.0.id(), "load ");
    while threads() < 6 {
        assert!(Path::new(&format!("/proc/{}", running.0.id())).exists());
        std::thread::yield_now();
    }
    assert_eq!(threads(), 6, "five, and one that reads");
    drop(stdin);
    assert!(running.0.wait().unwrap().success());
}

/// How many threads of a process have a name that starts so.
fn threads_named(process: u32, start: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(start))
        .count()
}

#[test]
fn the_options_of_query_and_dump() {
    let folder = loaded();
    let folder = folder.path();
    load_more(folder);
    fs::write(
        folder.join("count.rq"),
        "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
    )
    .unwrap();
    let count = ["--file", "count.rq", "--format", "csv"];
    assert_eq!(text(&query(folder, &count).stdout), "n\r\n1\r\n");
    let union = [count.as_slice(), &["--default-graph", "union"]].concat();
    assert_eq!(text(&query(folder, &union).stdout), "n\r\n3001\r\n");
    let relative = query(
        folder,
        &[
            "--base",
            "http://a/",
            "--format",
            "csv",
            "SELECT ?o { <s> ?p ?o }",
        ],
    );
    assert_eq!(text(&relative.stdout), "o\r\no\r\n");
    let explained = query(folder, &["--explain", "ASK { ?s ?p ?o }"]);
    assert!(text(&explained.stdout).contains("index_scan"));
    let some = "SELECT ?s { ?s ?p ?o } ORDER BY ?s LIMIT 2";
    let union = ["--default-graph", "union"];
    let analyzed = query(folder, &[&union[..], &["--explain=analyze", some]].concat());
    let analyzed = text(&analyzed.stdout);
    assert!(analyzed.contains("actual=2 ms="), "{analyzed}");
    assert!(analyzed.contains("seq 3001,"), "{analyzed}");
    let json = ["--explain=analyze", "--format", "json", some];
    let json = query(folder, &[&union[..], &json].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["operators"][0]["rows"], 2);
    assert_eq!(json["reads"]["seq"], 3001);
    assert!(json["running_ms"].as_f64().unwrap() > 0.0);
    let wrong = query(folder, &["--explain=plain", some]);
    assert_failed(&wrong, 2, &["plain", "plan, analyze"]);

    let slow = query(
        folder,
        &["--default-graph", "union", "--timeout", "50ms", SLOW],
    );
    assert_failed(&slow, 1, &["ran longer than --timeout allows"]);
    let large = query(
        folder,
        &["--default-graph", "union", "--memory", "96M", LARGE],
    );
    assert_failed(
        &large,
        1,
        &[
            "hash_aggregate needs",
            "--memory, which is 100663296 bytes (96M)",
            "31457280 bytes",
        ],
    );
    let little = query(folder, &["--memory", "16M", "ASK {}"]);
    assert_failed(&little, 2, &["--memory: at least 96 MB are needed"]);

    let trig = output(folder, &["dump", "--db", "db", "--format", "trig"]);
    assert!(trig.contains("<http://a/g> {"), "{trig}");
    assert!(dump(folder).starts_with(ONE));
    let within = ["dump", "--db", "db", "--memory", "96M"];
    assert_eq!(output(folder, &within), dump(folder));
    let little = stoa(folder, &["dump", "--db", "db", "--memory", "16M"]);
    assert_failed(&little, 2, &["--memory: at least 96 MB are needed"]);
}

/// How many connections to its port a server holds open.
fn connections(server: &Server) -> usize {
    let port: u16 = server.address.rsplit(':').next().unwrap().parse().unwrap();
    let local = format!("0100007F:{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table
        .lines()
        .filter(|line| {
            let mut fields = line.split_whitespace();
            let (address, state) = (fields.nth(1), fields.nth(1));
            let (listening, held) = (state == Some("0A"), fields.nth(5) != Some("0"));
            address == Some(local.as_str()) && !listening && held
        })
        .count()
}

/// Asserts that the server answers under the name that `--host` gave it, and under no other.
fn assert_hosts(server: &Server) {
    for (host, status) in [("db.example", "200"), ("other.example", "421")] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let head = format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
}

#[test]
fn the_options_of_serve() {
    let folder = loaded();
    let folder = folder.path();
    load_more(folder);
    let options = [
        "--threads",
        "3",
        "--timeout",
        "100ms",
        "--default-graph",
        "union",
        "--cors",
        "https://example.org",
        "--host",
        "db.example",
    ];
    let server = Server::start(folder, &options);
    assert_hosts(&server);
    // A thread takes its name when it begins to run.
    let workers = || threads_named(server.process.0.id(), "stoa-worker-");
    while workers() < 3 {
        std::thread::yield_now();
    }
    assert_eq!(workers(), 3);
    let count = server.ask(QUERY, "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }");
    assert!(count.contains("\"3001\""), "{count}");
    let page = format!("{QUERY}\r\nOrigin: https://example.org");
    let allowed = server.ask(&page, "ASK {}").to_ascii_lowercase();
    assert!(
        allowed.contains("access-control-allow-origin: https://example.org"),
        "{allowed}"
    );
    let slow = server.ask(QUERY, SLOW);
    assert!(
        slow.starts_with("HTTP/1.1 503") && slow.contains("timeout= of the request"),
        "{slow}"
    );
    drop(server);

    let options = [
        "--memory",
        "96M",
        "--client-timeout",
        "100ms",
        "--default-graph",
        "union",
    ];
    let server = Server::start(folder, &options);
    let until_idle = || {
        while connections(&server) > 0 {
            std::thread::yield_now();
        }
    };
    let large = server.ask(QUERY, LARGE);
    assert!(
        large.starts_with("HTTP/1.1 503") && large.contains("100663296 bytes (96M)"),
        "{large}"
    );

    // A client that takes nothing is cut off, and the end of the answer is missing.
    let mut stream = server.send(QUERY, "SELECT * { ?a ?b ?c . ?d ?e ?f }");
    let mut start = [0; 64];
    stream.read_exact(&mut start).unwrap();
    until_idle();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap_or_default();
    assert!(!rest.ends_with(b"\r\n0\r\n\r\n"));
}
