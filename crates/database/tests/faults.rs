//! Each operator beside each fault: a query that is cancelled or out of time, a disk that cannot be read or written or is
//! full, damaged pages, and others that take the memory.
//!
//! Each case is first run without a fault, which counts its checks, reads and writes; then a fault is put at some of them,
//! one after the other. The query ends with the error that says so, having written nothing wrong, or gives the right
//! answer. Memory and temporary files are given back, and the next query is right. What others commit while it runs changes
//! nothing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cases;
mod world;

use self::cases::Case;
use self::world::{Counts, Fault, Ran, World};
use stoa_database::{Error, QueryOptions};

/// At how many places of a case each fault is put.
const PLACES: u64 = 20;

/// How often a case is run at most for a helper to be in time.
const RUNS_UNTIL_HELPED: u64 = 300;

#[test]
fn joins() {
    run_all(cases::JOINS);
}

#[test]
fn joins_on_disk() {
    run_all(cases::JOINS_ON_DISK);
}

#[test]
fn groups() {
    run_all(cases::GROUPS);
}

#[test]
fn orders_and_paths() {
    run_all(cases::ORDERS_AND_PATHS);
}

#[test]
fn planning() {
    let world = run_all(cases::PLANNING);
    assert!(world.ways_to_numbers() > 0, "no numbers of texts are kept");
}

#[test]
fn threads() {
    run_all(cases::THREADS);
}

#[test]
fn every_operator_has_a_case() {
    // The first two read and hold nothing; the third one asks another endpoint (tests/service.rs).
    const WITHOUT: [&str; 3] = ["unit", "empty", "service"];
    let source = include_str!("../../executor/src/profile.rs");
    let (_, source) = source.split_once("fn operator_name(").unwrap();
    let (source, _) = source.split_once("\n}\n").unwrap();
    let names: Vec<&str> = source.split('"').skip(1).step_by(2).collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names.iter().filter(|name| !WITHOUT.contains(name)) {
        let mut cases = cases::ALL.iter().copied().flatten();
        let has = |case: &Case| case.told.iter().any(|told| told.starts_with(name));
        assert!(cases.any(has), "{name} has no case");
    }
}

#[test]
fn commits_change_no_answer() {
    /// At how many checks of a case others commit.
    const PLACES: u64 = 4;
    let mut world = World::new();
    let mut wrong = Vec::new();
    let mut met = 0;
    for case in cases::ALL.iter().copied().flatten() {
        let result = undisturbed(&mut world, case).and_then(|(expected, _)| {
            world.settle(true);
            for place in 0..PLACES {
                let at = 1 + expected.counts.checks * place / PLACES;
                let ran = run(&mut world, case, case.options(), Fault::Hidden(at))?;
                met += u64::from(world.bring_back());
                judged(case, &expected, Fault::Nothing, &ran)
                    .map_err(|what| format!("a commit at check {at}: {what}"))?;
            }
            Ok(())
        });
        if let Err(what) = result {
            wrong.push(format!("{}: {what}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(
        met > 2 * cases::ALL.iter().copied().flatten().count() as u64,
        "{met}"
    );
}

/// Tells all that is wrong with some cases; gives where they were run.
fn run_all(cases: &[Case]) -> World {
    let mut world = World::new();
    let mut wrong = Vec::new();
    for case in cases {
        if let Err(what) = beside_faults(&mut world, case) {
            wrong.push(format!("{}: {what}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    world.commit();
    world
}

/// The lines of the right answer, and what it takes.
struct Expected {
    lines: Vec<String>,
    counts: Counts,
    spilled_bytes: u64,
}

fn beside_faults(world: &mut World, case: &Case) -> Result<(), String> {
    let (expected, mut threads) = undisturbed(world, case)?;
    for (kind, faults, is_met_always) in faults(case, &expected) {
        let mut met = 0;
        for fault in faults {
            let ran = run(world, case, case.options(), fault)?;
            threads = threads.max(ran.threads);
            match judged(case, &expected, fault, &ran) {
                Ok(is_met) => met += u64::from(is_met),
                Err(what) => return Err(format!("{fault:?} of {:?}: {what}", expected.counts)),
            }
            let next = Case::NEXT;
            let ran = run(world, &next, next.options(), Fault::Nothing)?;
            if ran.outcome.is_err() || ran.lines.len() != 17 {
                return Err(format!(
                    "after {fault:?} {:?}, {:?}",
                    ran.outcome, ran.lines
                ));
            }
        }
        if met == 0 && is_met_always {
            return Err(format!("{kind} is never met: {:?}", expected.counts));
        }
        let ran = run(world, case, case.options(), Fault::Nothing)?;
        judged(case, &expected, Fault::Nothing, &ran)
            .map_err(|what| format!("after {kind}: {what}"))?;
    }
    helped(world, case, threads)
}

/// Runs a case that is about threads until more than one runs it: a query may be over before a helper has come.
fn helped(world: &mut World, case: &Case, mut threads: u64) -> Result<(), String> {
    for _ in 0..RUNS_UNTIL_HELPED {
        if threads > 1 || !case.has_threads {
            return Ok(());
        }
        threads = run(world, case, case.options(), Fault::Nothing)?.threads;
    }
    Err("it is never helped".to_owned())
}

fn run(world: &mut World, case: &Case, options: QueryOptions, fault: Fault) -> Result<Ran, String> {
    if case.is_planned_anew {
        world.reopen();
    }
    let ran = world.run(case, options, fault);
    ran.map_err(|what| format!("{fault:?} leaves something: {what}"))
}

/// Runs a case without faults, and looks whether its operators are run as it says.
fn undisturbed(world: &mut World, case: &Case) -> Result<(Expected, u64), String> {
    let timed = QueryOptions {
        timed: true,
        ..case.options()
    };
    let naive = QueryOptions {
        naive: true,
        plans: false,
        ..QueryOptions::default()
    };
    world.settle(true);
    if case.is_run_before {
        run(world, case, case.options(), Fault::Nothing)?;
    }
    let told = run(world, case, timed, Fault::Nothing)?;
    told.outcome.as_ref().map_err(ToString::to_string)?;
    for wanted in case.told {
        if !told.told.lines().any(|line| has(line, wanted)) {
            return Err(format!("no `{wanted}` in\n{}", told.told));
        }
    }
    let is_on_disk = told.spilled_bytes > 0;
    if is_on_disk != case.is_on_disk {
        return Err(format!("on disk: {is_on_disk}\n{}", told.told));
    }
    let ran = run(world, case, case.options(), Fault::Nothing)?;
    let expected = Expected {
        lines: in_order(case, told.lines),
        counts: ran.counts,
        spilled_bytes: told.spilled_bytes,
    };
    if expected.lines.len() < 10 {
        return Err(format!("an answer of {:?}", expected.lines));
    }
    let other = run(world, case, naive, Fault::Nothing)?;
    // Once more as it will be run, so that all is in memory that stays there.
    let again = run(world, case, case.options(), Fault::Nothing)?;
    let next = Case::NEXT;
    run(world, &next, next.options(), Fault::Nothing)?;
    world.settle(false);
    for ran in [ran, other, again] {
        judged(case, &expected, Fault::Nothing, &ran)?;
    }
    Ok((expected, told.threads))
}

/// Whether a line has all of what is wanted of it, which `..` stands between, or one of what `|` stands between.
fn has(line: &str, wanted: &str) -> bool {
    let mut parts = wanted.split(" .. ");
    parts.all(|part| part.split('|').any(|either| line.contains(either)))
}

/// Kinds of faults with their places, and whether one of these must be met.
fn faults(case: &Case, expected: &Expected) -> Vec<(&'static str, Vec<Fault>, bool)> {
    let Counts {
        checks,
        reads,
        writes,
    } = expected.counts;
    let at =
        |count: u64, fault: fn(u64) -> Fault| -> Vec<Fault> { places(count).map(fault).collect() };
    let spilled = expected.spilled_bytes;
    let is_on_disk = case.is_on_disk;
    let full = [1, spilled / 4, spilled / 2, 2 * spilled];
    // Operators finish with what was reserved for them, and many need less memory than that.
    let taken = [0, 64 << 10, 1 << 20];
    vec![
        ("cancellation", at(checks, Fault::Cancelled), true),
        ("a time-out", at(checks, Fault::Late), true),
        ("a read that fails", at(reads, Fault::Unread), true),
        ("damage", at(reads, Fault::Damaged), true),
        (
            "a write that fails",
            at(if is_on_disk { writes } else { 0 }, Fault::Unwritten),
            is_on_disk,
        ),
        (
            "a full disk",
            match is_on_disk {
                true => full.map(Fault::Full).to_vec(),
                false => Vec::new(),
            },
            is_on_disk && !case.goes_on_without_disk,
        ),
        (
            "memory that others take",
            taken.map(Fault::Taken).to_vec(),
            false,
        ),
    ]
}

/// Some numbers from 1 to `count`, the first and the last one among them.
fn places(count: u64) -> impl Iterator<Item = u64> {
    let places = PLACES.min(count);
    (0..places).map(move |place| 1 + (count - 1) * place / (places - 1).max(1))
}

fn in_order(case: &Case, mut lines: Vec<String>) -> Vec<String> {
    if !case.is_ordered {
        lines.sort();
    }
    lines
}

/// Whether the fault was met; an error if it was not told, or what was written is wrong.
fn judged(case: &Case, expected: &Expected, fault: Fault, ran: &Ran) -> Result<bool, String> {
    let lines = in_order(case, ran.lines.clone());
    let error = match &ran.outcome {
        Ok(()) if lines == expected.lines => {
            let is_early = match fault {
                Fault::Cancelled(at) => at * 2 < expected.counts.checks,
                // The time is counted from the first reading on.
                Fault::Late(at) => at > 1 && at * 2 < expected.counts.checks,
                _ => false,
            };
            // Threads do not always check as often.
            return match is_early && !case.has_threads {
                true => Err("it went on to its end".to_owned()),
                false => Ok(false),
            };
        }
        Ok(()) => {
            let found = lines.len();
            return Err(format!(
                "a wrong answer of {found} lines: {:.2000}",
                lines.concat()
            ));
        }
        Err(error) => error,
    };
    let is_told = match fault {
        Fault::Nothing | Fault::Hidden(_) => false,
        Fault::Cancelled(_) => matches!(error, Error::Cancelled),
        Fault::Late(_) => matches!(error, Error::Timeout),
        Fault::Unread(_) | Fault::Unwritten(_) => matches!(error, Error::Io { .. }),
        Fault::Damaged(_) => matches!(error, Error::Corruption { .. }),
        Fault::Full(_) => matches!(error, Error::DiskFull { .. } | Error::TemporarySpace { .. }),
        Fault::Taken(_) => matches!(error, Error::MemoryExceeded { .. }),
    };
    if !is_told {
        return Err(format!("{error:?}"));
    }
    match is_part(case, &lines, &expected.lines) {
        true => Ok(true),
        false => Err(format!("what was written before {error} is wrong")),
    }
}

/// Whether some lines are the first ones of an answer, or where it has no order some of them; both are in order.
fn is_part(case: &Case, some: &[String], all: &[String]) -> bool {
    if case.is_ordered {
        return all.starts_with(some);
    }
    let mut all = all.iter();
    some.iter().all(|line| all.any(|other| other == line))
}
