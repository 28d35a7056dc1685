//! What the tests of the binary share: running it, a small database, a server on a free port.
#![expect(clippy::unwrap_used, reason = "tools of tests")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// The one quad of the database that [`loaded`] makes.
pub(crate) const ONE: &str = "<http://a/s> <http://a/p> \"o\" .\n";

/// The media type and path of a query over HTTP.
pub(crate) const QUERY: &str = "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-query";

pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

pub(crate) fn stoa(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; gives its standard output.
pub(crate) fn output(folder: &Path, arguments: &[&str]) -> String {
    let output = stoa(folder, arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A folder with a database of one triple in `db`.
pub(crate) fn loaded() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("one.nt"), ONE).unwrap();
    output(folder.path(), &["load", "--db", "db", "one.nt"]);
    folder
}

/// All quads of `db`.
pub(crate) fn dump(folder: &Path) -> String {
    output(folder, &["dump", "--db", "db"])
}

/// The number of the last commit of `db`.
pub(crate) fn commit(folder: &Path) -> u64 {
    let info = output(folder, &["info", "--db", "db"]);
    let line = info.lines().find(|line| line.starts_with("commit"));
    line.unwrap()
        .split_whitespace()
        .last()
        .unwrap()
        .parse()
        .unwrap()
}

/// Asserts that a command fails with `code` and a message that contains every one of `parts`, which
/// is no panic, and that `db` is as [`loaded`] made it.
pub(crate) fn assert_fails(folder: &Path, arguments: &[&str], code: i32, parts: &[&str]) {
    assert_failed(&stoa(folder, arguments), code, parts);
    assert_eq!(dump(folder), ONE, "{arguments:?}");
    assert_eq!(commit(folder), 1, "{arguments:?}");
}

pub(crate) fn assert_failed(output: &Output, code: i32, parts: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
    assert!(!message.contains("panicked"), "{message}");
}

/// A running process, killed when it goes out of scope.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// `stoa serve` on a free port.
pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) address: String,
}

impl Server {
    /// Serves `db` in `folder`, which is made if it is absent.
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        let mut child = command(folder)
            .args(["serve", "--db", "db", "--create", "--bind", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on http://")
            .unwrap()
            .to_owned();
        Self {
            process: Running(child),
            address,
        }
    }

    pub(crate) fn send(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    pub(crate) fn ask(&self, head: &str, body: &str) -> String {
        let mut answer = Vec::new();
        self.send(head, body).read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }
}
