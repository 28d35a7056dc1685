//! The driver finds what it is there to find: panics of any thread, wrong answers, too much memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use stoa_fuzz::driver::{Harness, Target, run};

const TARGET: Target = Target {
    name: "driver",
    words: &["needle"],
    input_bytes_max: 200,
    memory_bytes_max: 1 << 20,
    cases: 3_000,
};

/// What the driver says of a harness.
fn said(harness: &mut Harness<'_>) -> String {
    let seeds = vec![(PathBuf::from("seed"), b"some hay and more hay".to_vec())];
    match catch_unwind(AssertUnwindSafe(|| run(&TARGET, seeds, harness))) {
        Ok(()) => String::new(),
        Err(panic) => panic
            .downcast_ref::<String>()
            .expect("the driver panics with a text")
            .clone(),
    }
}

fn has_needle(input: &[u8]) -> bool {
    input.windows(6).any(|window| window == b"needle")
}

#[test]
fn a_harmless_target_passes() {
    assert_eq!(said(&mut |input| Ok(input.len().to_string())), "");
}

#[test]
fn a_panic_of_another_thread_is_found_and_made_smaller() {
    let said = said(&mut |input| {
        let work = || assert!(!has_needle(input), "found it");
        drop(std::thread::scope(|scope| scope.spawn(work).join()));
        Ok(String::new())
    });
    assert!(said.contains("found it"), "{said}");
    assert!(said.ends_with("\nneedle"), "{said}");
}

#[test]
fn a_wrong_answer_is_found() {
    let said = said(&mut |input| match has_needle(input) {
        true => Err("wrong".to_owned()),
        false => Ok(String::new()),
    });
    assert!(
        said.contains("wrong") && said.ends_with("\nneedle"),
        "{said}"
    );
}

#[test]
fn too_much_memory_is_found() {
    let said = said(&mut |input| {
        let bytes = if has_needle(input) { 2 << 20 } else { 1 << 10 };
        Ok(vec![0_u8; bytes].len().to_string())
    });
    assert!(
        said.contains("bytes of memory, 1048576 are allowed"),
        "{said}"
    );
    assert!(said.ends_with("\nneedle"), "{said}");
}
