//! The whole way, from a program under callgrind to the verdict, with work planted in it: 2 % more
//! passes, 5 % more does not.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

const ROUNDS: u64 = 200_000;

fn check(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_stoa-instructions"))
        .args(arguments)
        .output();
    output.unwrap()
}

fn check_spin(rounds: u64, counts: &Path, accept: bool) -> Output {
    let (rounds, counts) = (rounds.to_string(), counts.to_str().unwrap());
    let mut arguments = vec!["check-spin", &rounds, counts];
    arguments.extend(accept.then_some("--accept"));
    check(&arguments)
}

#[test]
fn five_percent_more_work_is_caught_and_two_is_not() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().join("counts.txt");
    let kept = check_spin(ROUNDS, &counts, true);
    assert!(kept.status.success(), "{kept:?}");
    for (rounds, passes) in [
        (ROUNDS, true),
        (ROUNDS + ROUNDS / 50, true),
        (ROUNDS + ROUNDS / 20, false),
    ] {
        let output = check_spin(rounds, &counts, false);
        assert_eq!(output.status.success(), passes, "{rounds}: {output:?}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert_eq!(table.contains("MORE"), !passes, "{table}");
    }
}

#[test]
fn wrong_arguments_are_told() {
    assert!(!check(&[]).status.success());
    assert!(
        !check(&["check", "nowhere.nt", "nowhere.txt"])
            .status
            .success()
    );
}
