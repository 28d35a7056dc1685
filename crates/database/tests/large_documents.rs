//! Documents of any length as commits of their own: PUT, POST and LOAD, where a transaction would need several
//! times the memory that there is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;
use std::io::{self, Cursor, Read};
use std::sync::Arc;

use stoa_database::federation::{Fetch, FetchRequest, Response};
use stoa_database::oxrdf::{GraphName, NamedNode};
use stoa_database::{
    Access, AloneOptions, CancelHandle, CommitInfo, CommitSummary, Database, DocumentOptions,
    Error, GraphFormat, Input, OpenOptions, Retention, Runtime, RuntimeOptions, StatementGraphs,
    TransactionOptions, UpdateOptions,
};

/// Lines of [`long`]: some 12 MB, whose terms and quads take a transaction ten times as much.
const LINES: usize = 200_000;

/// Less than half of what a transaction would need.
const MEMORY: u64 = 32 << 20;

fn long(name: &str) -> String {
    let mut lines = String::new();
    for n in 0..LINES {
        writeln!(
            lines,
            "<http://a/{name}/{n}> <http://a/p> <http://a/object/{n}> ."
        )
        .unwrap();
    }
    lines
}

struct World {
    database: Database,
    folder: tempfile::TempDir,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(RuntimeOptions {
        memory_bytes: Some(MEMORY),
        threads: Some(2),
        load: Some(Arc::new(Documents)),
        ..RuntimeOptions::default()
    });
    let open = OpenOptions {
        access: Access::Exclusive,
        create: true,
    };
    let database = Database::open(&runtime.unwrap(), folder.path().join("db"), &open).unwrap();
    database.set_retention(Retention::All).unwrap();
    World { database, folder }
}

fn graph(name: &str) -> NamedNode {
    NamedNode::new(format!("http://a/{name}")).unwrap()
}

/// As a PUT of N-Triples to a graph.
fn put(name: &str) -> AloneOptions {
    let graph = graph(name);
    AloneOptions {
        document: DocumentOptions {
            format: Some(GraphFormat::NTriples),
            graph: Some(graph.clone().into()),
            ..DocumentOptions::default()
        },
        replaces: Some(StatementGraphs::Only(vec![graph.clone().into()])),
        creates: Some(graph),
        message: Some("a PUT".to_owned()),
    }
}

/// As a POST to the default graph.
fn post() -> AloneOptions {
    AloneOptions {
        document: DocumentOptions {
            format: Some(GraphFormat::NTriples),
            ..DocumentOptions::default()
        },
        ..AloneOptions::default()
    }
}

impl World {
    fn try_load(&self, text: &str, options: &AloneOptions) -> Result<CommitSummary, Error> {
        let text = Cursor::new(text.as_bytes().to_vec());
        self.database.load_alone("the request", text, options)
    }

    /// The commit, and how many quads it added and removed.
    fn load(&self, text: &str, options: &AloneOptions) -> [u64; 3] {
        let done = self.try_load(text, options).unwrap();
        [done.commit, done.added, done.removed]
    }

    fn count(&self, graph: impl Into<GraphName>) -> u64 {
        let graphs = StatementGraphs::Only(vec![graph.into()]);
        self.database.count_statements(&graphs).unwrap()
    }

    fn commits(&self) -> Vec<CommitInfo> {
        let mut commits = Vec::new();
        let mut each = |info| {
            commits.push(info);
            Ok(true)
        };
        self.database.commits(&mut each).unwrap();
        commits
    }

    fn update(&self, text: &str) -> Result<[u64; 3], Error> {
        let options = UpdateOptions {
            message: Some("an update".to_owned()),
            ..UpdateOptions::default()
        };
        let done = self.database.update(text, &options)?;
        Ok([done.commit, done.added, done.removed])
    }

    /// Everything is as it must be, and nothing temporary is left.
    fn assert_sound(&self) {
        let report = self.database.check(&(), &CancelHandle::new()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let temporary = self.folder.path().join("db/tmp");
        let left = std::fs::read_dir(temporary).map_or(0, |files| files.count());
        assert_eq!(left, 0, "temporary files are left");
    }
}

#[test]
fn a_graph_is_replaced_by_documents_of_any_length() {
    let world = world();
    let text = long("one");
    // What the transaction needs is more than there is.
    let mut transaction = world
        .database
        .begin(&TransactionOptions::default())
        .unwrap();
    let options = put("g").document;
    let refused = transaction.load(Input::from_bytes("the request", text.as_bytes()), &options);
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::MemoryExceeded { .. }), "{error}");
    drop(transaction);

    let lines = LINES as u64;
    assert_eq!(world.load(&text, &put("g")), [1, lines, 0]);
    assert_eq!(world.count(graph("g")), lines);
    // Half of it again, and something else.
    let half = &text[..text.len() / 2];
    let half = &half[..half.rfind('\n').unwrap() + 1];
    let kept = half.lines().count() as u64;
    let other = format!("{half}<http://a/s> <http://a/p> <http://a/o> .\n");
    assert_eq!(world.load(&other, &put("g")), [2, 1, lines - kept]);
    assert_eq!(world.load(&text, &put("h")), [3, lines, 0]);
    // A short document whose transaction would have to hold all that it replaces.
    let short = "<http://a/s> <http://a/p> <http://a/o> .";
    assert_eq!(world.load(short, &put("h")), [4, 1, lines]);
    assert_eq!(world.count(graph("g")), kept + 1);
    let all = AloneOptions {
        replaces: Some(StatementGraphs::All),
        ..post()
    };
    assert_eq!(world.load(&text, &all), [5, lines, kept + 2]);
    for name in ["g", "h"] {
        assert!(!world.database.graph_exists(&graph(name)).unwrap());
    }
    let told: Vec<_> = world
        .commits()
        .into_iter()
        .map(|info| (info.added, info.removed, info.message))
        .collect();
    let message = Some("a PUT".to_owned());
    let expected = [
        (lines, kept + 2, None),
        (1, lines, message.clone()),
        (lines, 0, message.clone()),
        (1, lines - kept, message.clone()),
        (lines, 0, message),
    ];
    assert_eq!(told, expected);
    world.assert_sound();
}

#[test]
fn what_is_wrong_with_a_long_document_changes_nothing() {
    let world = world();
    world.load("<http://a/s> <http://a/p> <http://a/o> .", &put("g"));
    let text = long("one");
    let wrong = format!("{text}<http://a/s> <http://a/p> oops .\n");
    for options in [put("g"), post()] {
        let error = world.try_load(&wrong, &options).unwrap_err();
        let Error::Data(error) = error else {
            panic!("{error}")
        };
        assert_eq!((error.line, error.column), (LINES as u64 + 1, 27));
    }
    // Its sender goes away.
    let broken = Cursor::new(text.clone().into_bytes()).chain(Broken);
    let error = world.database.load_alone("the request", broken, &put("g"));
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error}");
    // It is not wanted any more.
    let options = put("g");
    let cancel = options.document.cancel.clone();
    let cancelled = Cursor::new(text.clone().into_bytes()).chain(Cancels(cancel));
    let error = world
        .database
        .load_alone("the request", cancelled, &options);
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    // Its message is too long for a load.
    let options = AloneOptions {
        message: Some("x".repeat(2_000)),
        ..post()
    };
    let error = world.try_load(&text, &options).unwrap_err();
    assert!(matches!(error, Error::LimitExceeded { .. }), "{error}");
    assert_eq!((world.database.commit(), world.database.quads()), (1, 1));
    world.assert_sound();
}

/// Fails when it is read.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Cancels the load that reads it, which goes on with nothing but comments.
struct Cancels(CancelHandle);

impl Read for Cancels {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.cancel();
        out.fill(b'\n');
        Ok(out.len())
    }
}

#[test]
fn a_long_document_without_quads_is_one_commit_or_none() {
    let world = world();
    let comments = "# nothing\n".repeat(300_000);
    assert_eq!(world.load(&comments, &put("g")), [1, 0, 0]);
    assert!(world.database.graph_exists(&graph("g")).unwrap());
    assert_eq!(world.load(&comments, &post()), [1, 0, 0]);
    let line = "<http://a/s> <http://a/p> <http://a/o> .\n";
    assert_eq!(world.load(line, &put("h")), [2, 1, 0]);
    // The whole dataset: graphs that exist though empty go as well.
    let all = AloneOptions {
        replaces: Some(StatementGraphs::All),
        ..post()
    };
    assert_eq!(world.load(&format!("{comments}{line}"), &all), [3, 1, 1]);
    for name in ["g", "h"] {
        assert!(!world.database.graph_exists(&graph(name)).unwrap());
    }
    world.assert_sound();
}

/// Gives long documents to LOAD.
#[derive(Debug)]
struct Documents;

impl Fetch for Documents {
    fn fetch(&self, request: FetchRequest, response: Response) {
        let (name, wrong) = match request.url.as_str() {
            "http://docs/long" => ("loaded", ""),
            "http://docs/wrong" => ("wrong", "oops\n"),
            _ => ("broken", ""),
        };
        let text = Cursor::new(format!("{}{wrong}", long(name)).into_bytes());
        let read = move || match name {
            "broken" => response.read(Some("application/n-triples"), text.chain(Broken)),
            _ => response.read(Some("application/n-triples"), text),
        };
        std::thread::Builder::new().spawn(read).unwrap();
    }
}

#[test]
fn a_load_that_stands_alone_takes_documents_of_any_length() {
    let world = world();
    let lines = LINES as u64;
    let into = |name: &str| format!("LOAD <http://docs/{name}> INTO GRAPH <http://a/g>");
    assert_eq!(world.update(&into("long")).unwrap(), [1, lines, 0]);
    assert_eq!(world.update(&into("long")).unwrap(), [2, 0, 0]);
    assert_eq!(world.count(graph("g")), lines);
    assert_eq!(
        world.commits()[1].message.as_deref(),
        Some("an update"),
        "the message is kept"
    );
    let error = world.update(&into("wrong")).unwrap_err();
    let Error::Data(error) = error else {
        panic!("{error}")
    };
    assert_eq!((error.line, error.column), (lines + 1, 1));
    let error = world.update(&into("broken")).unwrap_err();
    assert!(matches!(error, Error::Load { .. }), "{error}");
    for name in ["wrong", "broken"] {
        let silent = into(name).replace("LOAD", "LOAD SILENT");
        assert_eq!(world.update(&silent).unwrap(), [2, 0, 0]);
    }
    // Beside other operations it has to fit.
    let error = world.update(&format!("{} ; CLEAR GRAPH <http://a/h>", into("long")));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("alone"), "{error}");
    assert_eq!(
        (world.database.commit(), world.database.quads()),
        (2, lines)
    );
    world.assert_sound();
}
