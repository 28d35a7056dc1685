//! bench/compare.sh with engines that are scripts: it is interrupted, goes on where it was, names what did not run, and
//! writes into copies.
//!
//! All engines are one endpoint of this test, so that every answer agrees with every other.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};

/// An engine that notes what it is told, under its own name; the one called `broken` cannot be installed, the one called
/// `plain` takes no updates. Started for writing it changes its database.
const ENGINE: &str = r#"#!/usr/bin/env bash
set -eu
name=$(basename "$0" .sh)
echo "$name $1" >>"$CALLS"
case $1 in
  install) [ "$name" != broken ] || { echo "no package of that name" >&2; exit 1; }; mkdir -p "$2/engine" ;;
  load) mkdir -p "$2/database"; echo data >"$2/database/file"; echo "seconds 0.5"; echo "disk_bytes 1000" ;;
  start | restart)
    [ -d "$2/database" ]
    [ "${3:-}" != writing ] || { echo changed >>"$2/database/file"; echo "$name begins with $(wc -l <"$2/database/file")" >>"$CALLS"; }
    touch "$2/up"
    echo "$ENDPOINT $PROCESS"
    ;;
  address) [ ! -e "$2/up" ] || echo "$ENDPOINT $PROCESS" ;;
  variants) [ "$name" != oxigraph ] || echo other ;;
  stop) rm -f "$2/up" ;;
  version) echo "$name 1.0" ;;
  update-address) [ "$name" = plain ] || echo "$ENDPOINT update" ;;
  delete) [ ! -e "$2/database" ] || echo "$name ends with $(wc -l <"$2/database/file")" >>"$CALLS"; rm -rf "$2/database" "$2/up" ;;
esac
"#;

/// A comparison in a folder of its own.
struct Comparison {
    folder: tempfile::TempDir,
    engines: &'static str,
    steps: &'static str,
    endpoint: String,
    /// A message for each query of a mix that arrives; the answer waits for the second message back.
    arrived: Receiver<()>,
    answer: Sender<()>,
}

impl Comparison {
    /// `dataset` is the name of the folder of the data.
    fn new(engines: &'static str, steps: &'static str, dataset: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rivals = folder.path().join("engines");
        fs::create_dir(&rivals).unwrap();
        for name in engines.split(' ') {
            let path = rivals.join(format!("{name}.sh"));
            fs::write(&path, ENGINE).unwrap();
            assert!(
                command("chmod")
                    .arg("+x")
                    .arg(&path)
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let (arrived_at, arrived) = channel();
        let (answer, answers) = channel();
        let triples = folder.path().join("work/data").join(dataset);
        let triples = triples.join("triples");
        let endpoint = serve(triples, arrived_at, answers);
        Self {
            folder,
            engines,
            steps,
            endpoint,
            arrived,
            answer,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> std::process::Child {
        let said = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("said"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("compare.sh");
        command("bash")
            .arg(script)
            .arg("100")
            .env("ENGINES", self.engines)
            .env("STEPS", self.steps)
            .env("RESULTS", self.path("results"))
            .env("WORK", self.path("work"))
            .env("RIVALS", self.path("engines"))
            .env("BENCH", env!("CARGO_BIN_EXE_stoa-bench"))
            .env("CALLS", self.path("calls"))
            .env("ENDPOINT", &self.endpoint)
            .env("PROCESS", std::process::id().to_string())
            .envs([("MIXES", "1"), ("WARM_UP", "0"), ("COLD_TIME", "1s")])
            .env_remove("KEEP_DATA")
            .env_remove("RETRY")
            .stderr(said.unwrap())
            .spawn()
            .unwrap()
    }

    /// Runs it to its end.
    fn finish(&self) -> ExitStatus {
        self.start().wait().unwrap()
    }

    /// What the engines were told, and how often.
    fn calls(&self, call: &str) -> usize {
        let calls = fs::read_to_string(self.path("calls")).unwrap();
        calls.lines().filter(|line| *line == call).count()
    }

    fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }
}

fn command(name: &str) -> Command {
    Command::new(name)
}

/// Answers every query with nothing, and counts with the number in a file. The first query of a mix is told of, and its
/// answer waits; later ones do not.
fn serve(triples: PathBuf, arrived: Sender<()>, answers: Receiver<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/sparql", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    std::thread::spawn(move || {
        let mut first = true;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(head) = head(&mut stream) else {
                continue;
            };
            let (form, body) = if head.contains("Accept: text/csv") {
                let count = fs::read_to_string(&triples).unwrap_or_default();
                ("text/csv", format!("n\n{count}"))
            } else {
                if first {
                    first = false;
                    arrived.send(()).unwrap_or_default();
                    answers.recv().unwrap_or_default();
                }
                let body = "<sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head/><results/></sparql>";
                ("application/sparql-results+xml", body.to_owned())
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {form}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap_or_default();
        }
    });
    address
}

fn head(stream: &mut TcpStream) -> Option<String> {
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
        let length = line.to_lowercase();
        length.strip_prefix("content-length:")?.trim().parse().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(head)
}

#[test]
fn an_interrupted_comparison_goes_on_where_it_was() {
    let steps = "explore-1 cold explore-2";
    let comparison = Comparison::new("stoa broken oxigraph", steps, "bsbm-100");
    let mut first = comparison.start();
    // Stoa's first step is under way.
    comparison.arrived.recv().unwrap();
    let process = first.id().to_string();
    assert!(command("kill").arg(process).status().unwrap().success());
    comparison.answer.send(()).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert!(comparison.exists("results/stoa/load.jsonl"));
    assert!(!comparison.exists("results/stoa/explore-1.jsonl"));
    assert!(!comparison.exists("work/stoa/up"), "a server is left");
    assert_eq!(comparison.calls("stoa load"), 1);

    let whole = comparison.finish().success();
    let said = fs::read_to_string(comparison.path("said")).unwrap();
    assert!(whole, "{said}");
    assert_eq!(comparison.calls("stoa load"), 1);
    assert_eq!(comparison.calls("oxigraph load"), 1);
    for name in ["stoa", "oxigraph"] {
        for step in ["load", "explore-1", "cold", "explore-2"] {
            assert!(
                comparison.exists(&format!("results/{name}/{step}.jsonl")),
                "{name} {step}"
            );
        }
        assert!(
            !comparison.exists(&format!("work/{name}/database")),
            "{name}"
        );
        assert!(!comparison.exists(&format!("work/{name}/up")), "{name}");
    }
    assert!(comparison.exists("results/oxigraph/explore-1-other.jsonl"));
    assert!(!comparison.exists("work/data/bsbm-100"));
    let report = fs::read_to_string(comparison.path("results/REPORT.md")).unwrap();
    for expected in [
        "| broken | install | no package of that name",
        "| stoa | stoa 1.0 |",
        "| stoa | explore-2 | 2 | 1 |",
        "## Cold and warm",
    ] {
        assert!(report.contains(expected), "{expected}\n{report}");
    }

    // A finished one is not begun again.
    assert!(!comparison.finish().success());
    assert_eq!(comparison.calls("stoa load"), 1);
}

#[test]
fn what_writes_runs_on_a_copy_and_names_engines_that_do_not() {
    let steps = "explore-update-1 explore-1 explore-update-2";
    let comparison = Comparison::new("stoa plain", steps, "bsbm-100-2-updates");
    comparison.answer.send(()).unwrap();
    let whole = comparison.finish().success();
    let said = fs::read_to_string(comparison.path("said")).unwrap();
    assert!(whole, "{said}");
    for step in ["load", "explore-update-1", "explore-1", "explore-update-2"] {
        let path = format!("results/stoa/{step}.jsonl");
        assert!(comparison.exists(&path), "{step}: {said}");
    }
    // Both steps that write began with what was loaded, a line, and so does what comes behind them.
    assert_eq!(comparison.calls("stoa begins with 2"), 2);
    assert_eq!(comparison.calls("stoa ends with 1"), 1);
    assert_eq!(comparison.calls("plain ends with 1"), 1);
    assert!(!comparison.exists("work/stoa/kept") && !comparison.exists("work/stoa/up"));
    assert!(comparison.exists("results/plain/explore-1.jsonl"));
    let report = fs::read_to_string(comparison.path("results/REPORT.md")).unwrap();
    for expected in [
        "| plain | explore-update-1 | its script names no address for updates",
        "| stoa | explore-update-2 | 2 | 1 |",
        "| U1 | ",
    ] {
        assert!(report.contains(expected), "{expected}\n{report}");
    }
    let data = fs::read_to_string(comparison.path("results/settings.json")).unwrap();
    assert!(data.contains("\"transactions\": 2}"), "{data}");
}
