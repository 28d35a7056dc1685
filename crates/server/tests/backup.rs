//! Backups and restores from the command line.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{ONE, Server, assert_failed, dump, loaded, output, stoa, text};

/// Loads one more quad; returns it.
fn load(folder: &Path, name: &str) -> String {
    let quad = format!("<http://a/{name}> <http://a/p> \"o\" .\n");
    fs::write(folder.join("more.nt"), &quad).unwrap();
    output(folder, &["load", "--db", "db", "more.nt"]);
    quad
}

#[test]
fn backups_are_incremental_and_each_can_be_restored() {
    let folder = loaded();
    let folder = folder.path();
    let backup = ["backup", "--db", "db", "--to", "kept"];
    let first = stoa(folder, &backup);
    let message = text(&first.stderr);
    assert!(first.status.success(), "{message}");
    assert!(message.contains("backup 0 holds commit 1;"), "{message}");
    load(folder, "two");
    let second = text(&stoa(folder, &backup).stderr);
    assert!(second.contains("backup 1 holds commit 2;"), "{second}");
    let third = text(&stoa(folder, &backup).stderr);
    assert!(third.contains("; 0 B were copied,"), "{third}");

    let restore = [
        "restore", "--from", "kept", "--db", "again", "--io", "pread",
    ];
    let restored = stoa(folder, &restore);
    let message = text(&restored.stderr);
    assert!(restored.status.success(), "{message}");
    assert!(
        message.contains("again: 2 quads as of commit 2, from backup 2"),
        "{message}"
    );
    assert_eq!(output(folder, &["dump", "--db", "again"]), dump(folder));
    let early = [
        &restore[..4],
        &["old", "--at", "1", "--memory", "256M", "--threads", "1"],
    ]
    .concat();
    output(folder, &early);
    assert_eq!(output(folder, &["dump", "--db", "old"]), ONE);
    assert!(stoa(folder, &["check", "--db", "old"]).status.success());

    // Never over a database, not even the one that it is of.
    for db in ["db", "again"] {
        let over = stoa(folder, &["restore", "--from", "kept", "--db", db]);
        assert_failed(&over, 1, &["already is a database"]);
    }
    // The new timeline has backups of its own.
    let other = stoa(folder, &["backup", "--db", "again", "--to", "kept"]);
    assert_failed(
        &other,
        1,
        &["backups of something else", "take another folder"],
    );
    output(folder, &["backup", "--db", "again", "--to", "kept2"]);
}

#[test]
fn what_cannot_be_restored_is_told_and_makes_nothing() {
    let folder = loaded();
    let folder = folder.path();
    let bare = ["backup", "--db", "db", "--to", "kept", "--no-history"];
    output(folder, &bare);
    let restore = |from, more: &[&str]| {
        stoa(
            folder,
            &[&["restore", "--from", from, "--db", "new"], more].concat(),
        )
    };
    for (from, more, code, parts) in [
        (
            "absent",
            &[][..],
            1,
            &["absent is not a backup", "no such directory"][..],
        ),
        ("db", &[], 1, &["db is not a backup", "backup-NNNN"]),
        (
            "kept",
            &["--at", "0"],
            1,
            &["commit 0 is not there", "begins with commit 1"],
        ),
        (
            "kept",
            &["--at", "noon"],
            2,
            &["give the number of a commit"],
        ),
    ] {
        assert_failed(&restore(from, more), code, parts);
        assert!(!folder.join("new").exists());
    }
    let beyond = restore("kept", &["--at", "7"]);
    assert_failed(&beyond, 1, &["commit 7 is not there", "end with commit 1"]);
    assert!(!folder.join("new").exists());
    // What fails later leaves nothing, either.
    let extents = folder.join("kept/extents-0000");
    let whole = fs::read(&extents).unwrap();
    fs::write(&extents, &whole[..whole.len() - 4096]).unwrap();
    assert_failed(&restore("kept", &[]), 1, &["extents-0000"]);
    assert!(!folder.join("new").exists());
    fs::write(&extents, &whole).unwrap();
    assert!(restore("kept", &[]).status.success());
    let absent = stoa(folder, &["backup", "--db", "absent", "--to", "more"]);
    assert_failed(&absent, 1, &["absent is not a database"]);
    assert!(!folder.join("more").exists());
    fs::create_dir(folder.join("more")).unwrap();
    fs::write(folder.join("more/letter.txt"), "").unwrap();
    let foreign = stoa(folder, &["backup", "--db", "db", "--to", "more"]);
    assert_failed(&foreign, 1, &["letter.txt"]);
}

#[test]
fn an_archive_of_the_log_belongs_to_one_database() {
    let folder = loaded();
    let folder = folder.path();
    let server = Server::start(folder, &["--archive-log", "log"]);
    let status = server.ask("GET /status HTTP/1.1", "");
    assert!(status.contains("\"archive\":{"), "{status}");
    assert!(folder.join("log").is_dir());
    drop(server);
    let absent = folder.join("absent/log");
    let served = stoa(
        folder,
        &[
            "serve",
            "--db",
            "db",
            "--archive-log",
            absent.to_str().unwrap(),
        ],
    );
    assert_failed(&served, 1, &["cannot create", "absent/log"]);
    output(folder, &["backup", "--db", "db", "--to", "kept"]);
    let restore = ["restore", "--from", "kept", "--db", "new", "--archive-log"];
    let none = stoa(folder, &[&restore[..], &["nowhere"]].concat());
    assert_failed(&none, 1, &["cannot list nowhere"]);
    output(folder, &[&restore[..], &["log"]].concat());
    assert_eq!(output(folder, &["dump", "--db", "new"]), ONE);
}

#[test]
fn what_outlives_a_database_lies_outside_of_it() {
    let folder = loaded();
    let folder = folder.path();
    for inside in ["db", "db/more", "./db/../db"] {
        let archiving = [
            "serve",
            "--db",
            "db",
            "--bind",
            "127.0.0.1:0",
            "--archive-log",
            inside,
        ];
        let backup = ["backup", "--db", "db", "--to", inside];
        for command in [&archiving[..], &backup] {
            assert_failed(
                &stoa(folder, command),
                1,
                &["would be lost with the database db"],
            );
        }
    }
    assert!(!folder.join("db/more").exists());
    // Nor is there a folder of a backup that could not begin.
    let failed = stoa(folder, &["backup", "--db", "db", "--to", "db/root/kept"]);
    assert_failed(&failed, 1, &["would be lost"]);
    fs::write(folder.join("file"), "").unwrap();
    let failed = stoa(folder, &["backup", "--db", "db", "--to", "file"]);
    assert_failed(&failed, 1, &["cannot list file", "a folder is wanted"]);
    assert_eq!(dump(folder), ONE);
}

/// Issue 36, D1 and D2: commits that fill no log file, a load by the command, one by a server, a large PUT, a patch, a
/// compaction, and a commit that undoes another.
#[test]
fn backup_and_archive_lead_over_all_to_every_commit() {
    let folder = loaded();
    let folder = folder.path();
    output(folder, &["backup", "--db", "db", "--to", "kept"]);
    let archive = ["--archive-log", "log"];
    let mut dumps = vec![ONE.to_owned()];
    let insert = "INSERT DATA { <http://a/two> <http://a/p> 2 }";
    output(
        folder,
        &[&["update", "--db", "db"][..], &archive[..], &[insert]].concat(),
    );
    dumps.push(dump(folder));
    fs::write(
        folder.join("more.nt"),
        "<http://a/more> <http://a/p> \"text\" .\n",
    )
    .unwrap();
    output(
        folder,
        &[&["load", "--db", "db"][..], &archive[..], &["more.nt"]].concat(),
    );
    dumps.push(dump(folder));
    let server = Server::start(folder, &archive);
    let load = "POST /load HTTP/1.1\r\nContent-Type: application/n-triples";
    let answer = server.ask(load, "<http://a/sent> <http://a/p> \"sent\" .\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let text = "t".repeat(1 << 10);
    let large: String = (0..6_000)
        .map(|n| format!("<http://a/{n}> <http://a/large> \"{n}{text}\" .\n"))
        .collect();
    let put = "PUT /store?default HTTP/1.1\r\nContent-Type: application/n-triples";
    let answer = server.ask(put, &large);
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    drop(server);
    dumps.push(String::new());
    dumps.push(dump(folder));
    output(
        folder,
        &[&["update", "--db", "db"][..], &archive[..], &[insert]].concat(),
    );
    dumps.push(dump(folder));
    fs::write(
        folder.join("day.rdfp"),
        "TX .\nA <http://a/patched> <http://a/p> _:b .\nTC .\n",
    )
    .unwrap();
    let archived = |command: &[&str]| output(folder, &[command, &archive[..]].concat());
    archived(&["apply", "--db", "db", "day.rdfp"]);
    dumps.push(dump(folder));
    archived(&["compact", "--db", "db"]);
    archived(&["revert", "--db", "db", "6"]);
    dumps.push(dump(folder));
    archived(&["checkpoint", "--db", "db"]);
    let restore = ["restore", "--from", "kept", "--archive-log", "log", "--db"];
    for (index, expected) in dumps.iter().enumerate() {
        let (commit, db) = ((index + 1).to_string(), format!("at{index}"));
        output(
            folder,
            &[&restore[..], &[db.as_str(), "--at", &commit]].concat(),
        );
        let found = output(folder, &["dump", "--db", &db]);
        match index {
            // Nobody dumped it: the PUT came next.
            3 => assert!(
                found.contains("\"sent\"") && found.contains("\"text\""),
                "{found}"
            ),
            _ => assert!(found == *expected, "commit {commit}"),
        }
    }
}

#[test]
fn updates_between_backups_can_be_restored_one_by_one() {
    let folder = loaded();
    let folder = folder.path();
    output(folder, &["backup", "--db", "db", "--to", "kept"]);
    let mut dumps = vec![ONE.to_owned()];
    for n in 2..6 {
        let text = format!("INSERT DATA {{ <http://a/{n}> <http://a/p> {n} }}");
        output(
            folder,
            &["update", "--db", "db", "--archive-log", "log", &text],
        );
        dumps.push(dump(folder));
    }
    output(folder, &["backup", "--db", "db", "--to", "kept"]);
    for (index, expected) in dumps.iter().enumerate() {
        let (commit, db) = ((index + 1).to_string(), format!("at{index}"));
        output(
            folder,
            &["restore", "--from", "kept", "--db", &db, "--at", &commit],
        );
        assert_eq!(
            output(folder, &["dump", "--db", &db]),
            *expected,
            "{commit}"
        );
    }
    // Before everything it was empty.
    let nothing = String::new();
    let times = [
        ("2000-01-01", &nothing),
        ("2999-01-01T00:00:00Z", dumps.last().unwrap()),
    ];
    for (time, expected) in times {
        let db = format!("then{}", &time[..4]);
        let restore = ["restore", "--from", "kept", "--db", &db, "--at", time];
        let restored = stoa(folder, &restore);
        assert!(restored.status.success(), "{restored:?}");
        let told = String::from_utf8_lossy(&restored.stderr);
        let is_told = told.contains("nothing had been committed");
        assert_eq!(is_told, expected.is_empty(), "{told}");
        assert_eq!(output(folder, &["dump", "--db", &db]), *expected);
    }
    // Without its history a backup begins with its own root.
    let bare = ["backup", "--db", "db", "--to", "bare", "--no-history"];
    output(folder, &bare);
    let early = [
        "restore",
        "--from",
        "bare",
        "--db",
        "early",
        "--at",
        "2000-01-01",
    ];
    let early = stoa(folder, &early);
    assert_failed(&early, 1, &["a commit at that time is not there"]);
}

#[test]
fn a_compacted_database_holds_the_same_and_takes_less() {
    let folder = loaded();
    let folder = folder.path();
    for (from, to) in [("INSERT", 0..400), ("DELETE", 3..400)] {
        let quads = to.map(|n| format!("<http://a/{n}> <http://a/p> \"some text, number {n}\" . "));
        let text = format!("{from} DATA {{ {} }}", quads.collect::<String>());
        output(folder, &["update", "--db", "db", &text]);
    }
    output(folder, &["checkpoint", "--db", "db"]);
    let before = dump(folder);
    let compacted = stoa(
        folder,
        &[
            "compact",
            "--db",
            "db",
            "--memory",
            "256M",
            "--threads",
            "2",
        ],
    );
    let message = text(&compacted.stderr);
    assert!(compacted.status.success(), "{message}");
    assert!(message.contains("4 quads and 8 of 802 terms;"), "{message}");
    // Ids are others, and with them the order.
    let sorted = |dump: String| -> BTreeSet<String> { dump.lines().map(str::to_owned).collect() };
    assert_eq!(sorted(dump(folder)), sorted(before));
    assert!(stoa(folder, &["check", "--db", "db"]).status.success());
    let absent = stoa(folder, &["compact", "--db", "absent"]);
    assert_failed(&absent, 1, &["absent is not a database"]);
}

#[test]
fn a_server_makes_backups_where_it_may_and_compacts() {
    let folder = loaded();
    let folder = folder.path();
    fs::create_dir(folder.join("backups")).unwrap();
    let server = Server::start(folder, &["--backup-dir", "backups"]);
    let url = format!("http://{}/", server.address);
    let insert = "INSERT DATA { <http://a/later> <http://a/p> 1 }";
    let update = "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-update";
    server.ask(update, insert);
    let backup = stoa(folder, &["backup", "--server", &url, "--to", "mine"]);
    let message = text(&backup.stderr);
    assert!(
        message.contains("mine: backup 0 holds commit 2;"),
        "{message}"
    );
    let compacted = text(&stoa(folder, &["compact", "--server", &url]).stderr);
    assert!(compacted.contains("2 quads and"), "{compacted}");
    server.ask(update, "INSERT DATA { <http://a/last> <http://a/p> 1 }");
    let again = text(&stoa(folder, &["backup", "--server", &url, "--to", "mine"]).stderr);
    assert!(again.contains("mine: backup 1 holds commit 3;"), "{again}");
    for (target, status) in [
        ("/backup", "400"),
        ("/backup?name=..", "400"),
        ("/backup?name=a/b", "400"),
        ("/backup?name=", "400"),
        ("/backup?name=mine&more=1", "400"),
        (&format!("/backup?name={}", "a".repeat(300)), "400"),
    ] {
        let answer = server.ask(&format!("POST {target} HTTP/1.1"), "");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{target}: {answer}"
        );
    }
    let foreign = "POST /backup?name=mine HTTP/1.1\r\nOrigin: http://elsewhere.example";
    assert!(server.ask(foreign, "").starts_with("HTTP/1.1 403"));
    let foreign = "POST /compact HTTP/1.1\r\nOrigin: http://elsewhere.example";
    assert!(server.ask(foreign, "").starts_with("HTTP/1.1 403"));
    drop(server);
    let server = Server::start(folder, &[]);
    let off = server.ask("POST /backup?name=mine HTTP/1.1", "");
    assert!(
        off.starts_with("HTTP/1.1 403") && off.contains("--backup-dir"),
        "{off}"
    );
    drop(server);
    output(
        folder,
        &["restore", "--from", "backups/mine", "--db", "again"],
    );
    assert_eq!(output(folder, &["dump", "--db", "again"]), dump(folder));
    assert_eq!(dump(folder).lines().count(), 3);
}

/// What is committed while a server compacts is there, and earlier commits stay.
#[test]
fn a_server_compacts_while_it_is_written_to() {
    let folder = loaded();
    let folder = folder.path();
    let server = Server::start(folder, &["--retain", "all"]);
    let url = format!("http://{}/", server.address);
    let mut count = 0;
    let mut insert = || {
        let text = format!("INSERT DATA {{ <http://a/n{count}> <http://a/p> <http://b/{count}> }}");
        let update = "POST /sparql HTTP/1.1\r\nContent-Type: application/sparql-update";
        let answer = server.ask(update, &text);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        count += 1;
    };
    insert();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let compacting = scope.spawn(|| stoa(folder, &["compact", "--server", &url]));
            loop {
                insert();
                if compacting.is_finished() {
                    break;
                }
            }
            let compacted = compacting.join().unwrap();
            assert!(compacted.status.success(), "{}", text(&compacted.stderr));
        });
    }
    drop(server);
    assert_eq!(dump(folder).lines().count(), count + 1);
    assert!(stoa(folder, &["check", "--db", "db"]).status.success());
    let total = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }";
    for commit in [1, 2, 3, count, count + 1] {
        let at = commit.to_string();
        let found = output(folder, &["query", "--db", "db", "--at", &at, total]);
        assert!(
            found.contains(&format!("\"{at}\"^^")),
            "commit {at}: {found}"
        );
    }
}

/// Issue 36, D4 and P4: earlier commits are in backups unless they are left out, and damage in backups is found.
#[test]
fn backups_have_the_history_and_are_checked() {
    let folder = loaded();
    let folder = folder.path();
    let insert = "INSERT DATA { <http://a/s> <http://a/p> 2 }";
    output(folder, &["update", "--db", "db", "--retain", "all", insert]);
    output(folder, &["checkpoint", "--db", "db"]);
    let insert = "INSERT DATA { <http://a/s> <http://a/p> 3 }";
    output(folder, &["update", "--db", "db", insert]);
    output(folder, &["backup", "--db", "db", "--to", "kept"]);
    let bare = ["backup", "--db", "db", "--to", "bare", "--no-history"];
    output(folder, &bare);
    output(folder, &["restore", "--from", "kept", "--db", "again"]);
    output(folder, &["restore", "--from", "bare", "--db", "alone"]);
    let dump = |db: &str| stoa(folder, &["dump", "--db", db, "--at", "1"]);
    assert_eq!(text(&dump("again").stdout), ONE);
    assert_failed(&dump("alone"), 1, &["commit 1 is not kept any more"]);
    let check = ["check", "--backup", "kept", "--backup", "bare"];
    let told = stoa(folder, &check);
    assert!(told.status.success());
    let told = text(&told.stderr);
    assert!(told.contains("checked kept, 1 backup,"), "{told}");
    assert!(told.contains("all is well"), "{told}");
    let extents = folder.join("kept/extents-0000");
    let mut bytes = fs::read(&extents).unwrap();
    *bytes.get_mut(5_000).unwrap() ^= 1;
    fs::write(&extents, bytes).unwrap();
    let told = stoa(folder, &check);
    assert_eq!(told.status.code(), Some(1));
    assert!(text(&told.stdout).contains("extents-0000"), "{told:?}");
    assert!(text(&told.stderr).contains("make a new backup"), "{told:?}");
    fs::create_dir(folder.join("empty")).unwrap();
    let nothing = stoa(folder, &["check", "--backup", "empty"]);
    assert_failed(&nothing, 1, &["neither backups nor"]);
}
