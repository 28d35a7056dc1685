//! What goes wrong around a database: each is told, and changes nothing.
//!
//! Others of the kind: unknown commits and times before what is kept are in history.rs and memento.rs, restores over a
//! database in backup.rs, commits of transactions that timed out in rdf4j.rs, pages of foreign origins in access.rs, two
//! processes on one folder in interrupted.rs.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{ONE, Server, assert_failed, dump, loaded, output, stoa, text};

/// Two databases, `db` and `other`, each with a commit in its log behind a load.
fn two() -> tempfile::TempDir {
    let folder = loaded();
    output(folder.path(), &["load", "--db", "other", "one.nt"]);
    for db in ["db", "other"] {
        let update = "INSERT DATA { <http://a/two> <http://a/p> 2 }";
        output(folder.path(), &["update", "--db", db, update]);
    }
    folder
}

#[test]
fn a_log_of_another_database_or_timeline_is_refused() {
    let folder = two();
    let folder = folder.path();
    output(folder, &["backup", "--db", "db", "--to", "kept"]);
    // The same database on another line of its history.
    output(folder, &["restore", "--from", "kept", "--db", "again"]);
    let before = dump(folder);
    let (log, own) = (folder.join("db/log-0000"), folder.join("own"));
    fs::copy(&log, &own).unwrap();
    let refused = |db: &str, parts: &[&str]| {
        for arguments in [
            &["dump", "--db", db][..],
            &["info", "--db", db],
            &["check", "--db", db],
            &["query", "--db", db, "ASK {}"],
            &["update", "--db", db, "CLEAR ALL"],
            &["load", "--db", db, "one.nt"],
            &["serve", "--db", db, "--bind", "127.0.0.1:0"],
        ] {
            let failed = stoa(folder, arguments);
            let whose = ["log file log-0000 does not belong to this database"];
            assert_failed(&failed, 1, &[&whose[..], parts].concat());
        }
    };
    fs::copy(folder.join("other/log-0000"), &log).unwrap();
    refused("db", &["timeline 1, generation 1, found database"]);
    // Its own log makes it whole again.
    fs::copy(&own, &log).unwrap();
    assert_eq!(dump(folder), before);
    let (log, restored) = (folder.join("again/log-0000"), folder.join("restored"));
    fs::copy(&log, &restored).unwrap();
    fs::copy(&own, &log).unwrap();
    refused("again", &["found database", "timeline 1, generation 1"]);
    fs::copy(&restored, &log).unwrap();
    assert_eq!(output(folder, &["dump", "--db", "again"]), before);
}

#[test]
fn an_archive_of_another_database_is_refused() {
    let folder = two();
    let folder = folder.path();
    for db in ["db", "other"] {
        output(
            folder,
            &["backup", "--db", db, "--to", &format!("kept-{db}")],
        );
    }
    // The log as an archive of the other database has it.
    let name = "log-0000000000000001-1-00000000";
    fs::create_dir(folder.join("archive")).unwrap();
    fs::copy(
        folder.join("kept-other").join(name),
        folder.join("archive").join(name),
    )
    .unwrap();
    let serve = [
        "serve",
        "--db",
        "db",
        "--bind",
        "127.0.0.1:0",
        "--archive-log",
        "archive",
    ];
    let failed = stoa(folder, &serve);
    assert_failed(&failed, 1, &[name, "does not belong to this database"]);
    let restore = [
        "restore",
        "--from",
        "kept-db",
        "--archive-log",
        "archive",
        "--db",
        "new",
    ];
    let failed = stoa(folder, &restore);
    assert_failed(&failed, 1, &[name, "does not belong to this database"]);
    // A backup goes only to those of its own database.
    let failed = stoa(folder, &["backup", "--db", "db", "--to", "kept-other"]);
    assert_failed(&failed, 1, &["backups of something else"]);
    assert_eq!(dump(folder).lines().count(), 2);
}

/// Loads so much that its backup takes more than a small disk has.
fn load_much(folder: &Path) -> String {
    let lines: String = (0..30_000)
        .map(|n| format!("<http://a/{n}> <http://a/p> \"a text, as long as others are\" .\n"))
        .collect();
    fs::write(folder.join("many.nt"), lines).unwrap();
    output(folder, &["load", "--db", "db", "many.nt"]);
    dump(folder)
}

#[test]
fn a_backup_that_finds_no_room_leaves_the_one_before() {
    let folder = loaded();
    let folder = folder.path();
    let backup = ["backup", "--db", "db", "--to", "kept"];
    output(folder, &backup);
    let before = load_much(folder);
    // The shell counts blocks of 512 or 1,024 bytes.
    let script = "ulimit -f 30 && exec \"$0\" backup --db db --to kept";
    let failed = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_stoa")])
        .current_dir(folder)
        .output()
        .unwrap();
    assert_failed(
        &failed,
        1,
        &["cannot write kept/extents-0001", "File too large"],
    );
    let restore = |db: &str| {
        output(folder, &["restore", "--from", "kept", "--db", db]);
        output(folder, &["dump", "--db", db])
    };
    assert_eq!(restore("first"), ONE);
    output(folder, &backup);
    assert_eq!(restore("second"), before);
}

#[test]
fn a_backup_to_a_full_disk_is_told() {
    let folder = loaded();
    let folder = folder.path();
    let before = load_much(folder);
    fs::create_dir(folder.join("small")).unwrap();
    // A file system of its own, which vanishes with the process.
    let script = r#"
        mount -t tmpfs -o size=40k tmpfs small || exit 77
        "$0" backup --db db --to small/kept
        echo "exit $?"
        mkfifo said
        "$0" serve --db db --bind 127.0.0.1:0 --backup-dir small 2> said &
        exec 3< said
        read -r line <&3
        url=${line#listening on }
        "$0" backup --server "$url" --to kept
        echo "exit $?"
        "$0" update --server "$url" 'INSERT DATA { <http://a/z> <http://a/p> 1 }'
        echo "exit $?"
        kill $!
        wait $!
        echo "exit $?"
    "#;
    let run = Command::new("unshare")
        .args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_stoa")])
        .current_dir(folder)
        .output();
    let run = match run {
        Ok(run) if run.status.code() != Some(77) && !run.stdout.is_empty() => run,
        Ok(run) => {
            let reason = text(&run.stderr);
            eprintln!("skipped: no private mount namespace: {}", reason.trim());
            return;
        }
        Err(error) => {
            eprintln!("skipped: cannot run unshare: {error}");
            return;
        }
    };
    let said = text(&run.stderr);
    assert_eq!(
        text(&run.stdout),
        "exit 1\nexit 1\nexit 0\nexit 0\n",
        "{said}"
    );
    let told = "no space left on the disk to write small/kept/";
    assert_eq!(said.matches(told).count(), 2, "{said}");
    // The server went on.
    assert!(said.contains("1 quad added, 0 removed; commit 3"), "{said}");
    assert_eq!(dump(folder).lines().count(), before.lines().count() + 1);
}

#[test]
fn two_servers_on_one_folder_are_told_about_each_other() {
    let folder = loaded();
    let folder = folder.path();
    let server = Server::start(folder, &[]);
    let serve = ["serve", "--db", "db", "--bind", "127.0.0.1:0"];
    let holder = format!("process {} (", server.process.0.id());
    let second = stoa(folder, &serve);
    assert_failed(&second, 1, &["db is in use by", &holder]);
    // Under a name, and beside another, as well.
    let named = stoa(
        folder,
        &[
            "serve",
            "--create",
            "--db",
            "a=new",
            "--db",
            "b=db",
            "--bind",
            "127.0.0.1:0",
        ],
    );
    assert_failed(&named, 1, &["db is in use by", &holder]);
    // The first one goes on, and so does who comes after it.
    let url = format!("http://{}/", server.address);
    assert_eq!(output(folder, &["dump", "--server", &url]), ONE);
    drop(server);
    let server = Server::start(folder, &[]);
    let url = format!("http://{}/", server.address);
    assert_eq!(output(folder, &["dump", "--server", &url]), ONE);
}
