//! Loads that are ended from outside: signals, a full disk, a second process. The database is as it
//! was, and nothing of them stays behind.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, Command, Stdio};

use crate::support::{
    ONE, Running, Server, assert_failed, command, commit, dump, loaded, output, stoa, text,
};
use rustix::process::{Pid, Signal, kill_process};

fn lines(count: u64) -> String {
    let mut lines = String::new();
    for n in 0..count {
        let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(
            lines,
            "<http://a/s{noise:x}> <http://a/p> \"value {noise} of {n}\" ."
        )
        .unwrap();
    }
    lines
}

/// A load from standard input, which has begun to read.
struct Load {
    process: Running,
    stdin: Option<ChildStdin>,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Load {
    fn start(folder: &Path) -> Self {
        let mut child = command(folder)
            .args([
                "load", "--db", "db", "--format", "nt", "--memory", "16M", "-",
            ])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut load = Self {
            stdin: child.stdin.take(),
            stderr: BufReader::new(child.stderr.take().unwrap()),
            process: Running(child),
            said: String::new(),
        };
        load.wait_for("reading");
        load
    }

    /// Waits until the process has said a line.
    fn wait_for(&mut self, line: &str) {
        while !self.said.lines().any(|said| said == line) {
            assert_ne!(
                self.stderr.read_line(&mut self.said).unwrap(),
                0,
                "{}",
                self.said
            );
        }
    }

    fn feed(&mut self, text: &str) {
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).unwrap();
    }

    /// Waits for the end; gives the exit code, if it was no signal, and all that was said.
    fn end(mut self) -> (Option<i32>, String) {
        self.stderr.read_to_string(&mut self.said).unwrap();
        (self.process.0.wait().unwrap().code(), self.said)
    }
}

fn assert_as_before(folder: &Path) {
    assert_eq!((dump(folder).as_str(), commit(folder)), (ONE, 1));
    let left = fs::read_dir(folder.join("db/tmp")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "temporary files are left");
    output(folder, &["check", "--db", "db"]);
}

#[test]
fn a_load_that_is_interrupted_leaves_the_database_as_it_was() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = loaded();
        let mut load = Load::start(folder.path());
        // More than fits into a pipe: most of it has been read, and spilled. The end never comes.
        load.feed(&lines(100_000));
        load.signal(signal);
        // Kept open until the process has ended: it must not wait for more.
        let stdin = load.stdin.take();
        let (code, said) = load.end();
        assert_eq!(code, Some(130), "{said}");
        assert!(
            said.contains("as it was") && said.contains("cancelled"),
            "{said}"
        );
        drop(stdin);
        assert_as_before(folder.path());
        output(folder.path(), &["load", "--db", "db", "one.nt"]);
    }
}

#[test]
fn a_failure_does_not_wait_for_standard_input() {
    let folder = loaded();
    fs::write(folder.path().join("bad.nt"), "bad\n").unwrap();
    let mut child = command(folder.path())
        .args(["load", "--db", "db", "--format", "nt", "-", "bad.nt"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take();
    assert_failed(&child.wait_with_output().unwrap(), 1, &["bad.nt", "line 1"]);
    drop(stdin);
    assert_as_before(folder.path());
}

#[test]
fn an_interruption_at_any_phase_leaves_the_old_state_or_the_new_one() {
    let text = lines(100_000);
    for phase in [
        "writing terms",
        "sorting quads",
        "writing quads",
        "committing",
    ] {
        let folder = loaded();
        let mut load = Load::start(folder.path());
        load.feed(&text);
        load.stdin = None;
        load.wait_for(phase);
        load.signal(Signal::INT);
        let (code, said) = load.end();
        if code == Some(0) {
            // It was past the last place where it looks.
            assert_eq!(
                (commit(folder.path()), dump(folder.path()).lines().count()),
                (2, 100_001)
            );
        } else {
            assert_eq!(code, Some(130), "{phase}: {said}");
            assert_as_before(folder.path());
        }
    }
}

#[test]
fn a_load_that_is_killed_leaves_the_database_as_it_was() {
    let folder = loaded();
    let mut load = Load::start(folder.path());
    load.feed(&lines(100_000));
    load.signal(Signal::KILL);
    assert_eq!(load.end().0, None);
    assert_as_before(folder.path());
    // As left by a process that died between making a temporary file and taking its name away.
    fs::write(folder.path().join("db/tmp/4711-0"), "x").unwrap();
    output(folder.path(), &["info", "--db", "db"]);
    fs::write(folder.path().join("two.nt"), lines(2)).unwrap();
    output(folder.path(), &["load", "--db", "db", "two.nt"]);
    assert_eq!(
        fs::read_dir(folder.path().join("db/tmp")).unwrap().count(),
        0
    );
    assert_eq!(
        (dump(folder.path()).lines().count(), commit(folder.path())),
        (3, 2)
    );
    output(folder.path(), &["check", "--db", "db"]);
}

#[test]
fn two_processes_on_one_folder_are_told_about_each_other() {
    let folder = loaded();
    let server = Server::start(folder.path(), &[]);
    let holder = format!("process {} (", server.process.0.id());
    for arguments in [
        ["load", "--db", "db", "one.nt"].as_slice(),
        ["serve", "--db", "db", "--bind", "127.0.0.1:0"].as_slice(),
        ["query", "--db", "db", "ASK {}"].as_slice(),
        ["dump", "--db", "db"].as_slice(),
        ["info", "--db", "db"].as_slice(),
        ["check", "--db", "db"].as_slice(),
    ] {
        assert_failed(
            &stoa(folder.path(), arguments),
            1,
            &["db is in use by", &holder, "serve"],
        );
    }
    drop(server);
    assert_as_before(folder.path());

    let mut load = Load::start(folder.path());
    load.feed(&lines(10));
    let holder = format!("process {} (", load.process.0.id());
    let second = stoa(folder.path(), &["load", "--db", "db", "one.nt"]);
    assert_failed(&second, 1, &["db is in use by", &holder, "load"]);
    load.stdin = None;
    assert_eq!(load.end().0, Some(0));
    assert_eq!(
        (dump(folder.path()).lines().count(), commit(folder.path())),
        (11, 2)
    );
}

#[test]
fn a_file_that_may_not_grow_ends_the_load_with_a_message() {
    let folder = loaded();
    fs::write(folder.path().join("many.nt"), lines(50_000)).unwrap();
    let limited = |kilobytes: u32, arguments: &str| {
        // The shell counts blocks of 512 or 1,024 bytes.
        let script = format!("ulimit -f {kilobytes} && exec \"$0\" {arguments}");
        Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_stoa")])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    // In the temporary files, and in the data file.
    for memory in ["16M", "1G"] {
        let load = format!("load --db db --memory {memory} many.nt");
        assert_failed(
            &limited(1_000, &load),
            1,
            &["as it was", "cannot write db/", "File too large"],
        );
        assert_as_before(folder.path());
    }
    assert!(limited(1_000_000, "load --db db many.nt").status.success());
    let cut = limited(100, "dump --db db > cut.nq");
    assert_failed(&cut, 1, &["File too large"]);
}

#[test]
fn a_full_disk_ends_the_load_with_a_message() {
    let folder = loaded();
    fs::create_dir(folder.path().join("small")).unwrap();
    fs::write(folder.path().join("many.nt"), lines(100_000)).unwrap();
    fs::write(folder.path().join("two.nt"), lines(2)).unwrap();
    // A file system of its own, which vanishes with the process.
    let script = r#"
        mount -t tmpfs -o size=3m tmpfs small || exit 77
        cp -r db small/db
        for memory in 16M 1G; do
            "$0" load --db small/db --memory $memory many.nt
            echo "exit $?"
            "$0" dump --db small/db
            "$0" check --db small/db && ls small/db/tmp
        done
        "$0" load --db small/db two.nt && "$0" dump --db small/db | wc -l
    "#;
    let run = Command::new("unshare")
        .args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_stoa")])
        .current_dir(folder.path())
        .output();
    let run = match run {
        Ok(run) if run.status.code() != Some(77) && !run.stdout.is_empty() => run,
        Ok(run) => {
            eprintln!(
                "skipped: no private mount namespace: {}",
                text(&run.stderr).trim()
            );
            return;
        }
        Err(error) => {
            eprintln!("skipped: cannot run unshare: {error}");
            return;
        }
    };
    let (said, printed) = (text(&run.stderr), text(&run.stdout));
    let state = format!("exit 1\n{ONE}");
    assert_eq!(printed, format!("{state}{state}3\n"), "{said}");
    assert_eq!(
        said.matches("no space left on the disk to write small/db/")
            .count(),
        2,
        "{said}"
    );
    assert_eq!(said.matches("all is well").count(), 2, "{said}");
}
