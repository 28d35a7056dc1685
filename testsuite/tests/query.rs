//! Every file of `testsuite/query` in every configuration.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::{Path, PathBuf};

use stoa_database::{ForcedChoices, ForcedJoin, Rewrites};
use stoa_testsuite::case::{Case, Configuration, Seen};

fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("query")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "test")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() >= 8, "the .test files are missing");
    files
}

/// Runs all files and reports all failures at once.
fn run(configuration: &Configuration) -> Seen {
    let mut seen = Seen::default();
    let mut failures = Vec::new();
    for path in files() {
        let outcome = Case::read(&path).and_then(|case| case.run(configuration, &mut seen));
        if let Err(error) = outcome {
            failures.push(format!("{error:#}"));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    println!("{}: {} queries", configuration.name, seen.queries);
    seen
}

#[test]
fn as_usual() {
    let seen = run(&Configuration {
        name: "as usual",
        ..Configuration::default()
    });
    assert!(seen.queries > 20 && seen.updates >= 10);
    assert_eq!((seen.opened, seen.threads), (files().len(), [2].into()));
}

#[test]
fn batches_of_three() {
    let configuration = Configuration {
        name: "batches of three",
        batch_rows: Some(3),
        ..Configuration::default()
    };
    assert_eq!(run(&configuration).largest_batch, 3);
}

#[test]
fn one_thread() {
    let configuration = Configuration {
        name: "one thread",
        one_thread: true,
        ..Configuration::default()
    };
    assert_eq!(run(&configuration).threads, [1].into());
}

#[test]
fn not_optimized() {
    let configuration = Configuration {
        name: "not optimized",
        naive: true,
        ..Configuration::default()
    };
    let plans = run(&configuration).plans;
    assert!(plans.contains("hash_join") && !plans.contains("index_nested_loop_join"));
}

#[test]
fn each_join_forced() {
    for (join, name) in [
        (ForcedJoin::Hash, "hash_join"),
        (ForcedJoin::Merge, "merge_join"),
        (ForcedJoin::IndexNestedLoop, "index_nested_loop_join"),
        (ForcedJoin::Leapfrog, "leapfrog_join"),
    ] {
        let configuration = Configuration {
            name,
            forced: ForcedChoices {
                join: Some(join),
                ..ForcedChoices::NONE
            },
            ..Configuration::default()
        };
        assert!(
            run(&configuration).plans.contains(name),
            "{name} was never chosen"
        );
    }
}

#[test]
fn no_more_than_two_inputs_of_a_join() {
    let plans = run(&Configuration {
        name: "joins of two inputs",
        forced: ForcedChoices {
            join: Some(ForcedJoin::Binary),
            ..ForcedChoices::NONE
        },
        ..Configuration::default()
    })
    .plans;
    assert!(plans.contains("merge_join") && !plans.contains("leapfrog_join"));
}

#[test]
fn key_filters_forced() {
    for force_join in [Some(ForcedJoin::Hash), None] {
        let configuration = Configuration {
            name: "key filters",
            forced: ForcedChoices {
                join: force_join,
                ..ForcedChoices::NONE
            },
            key_filters: true,
            ..Configuration::default()
        };
        let dropped = run(&configuration).dropped;
        assert!(dropped > 0, "no key filter dropped a row");
    }
}

#[test]
fn merge_joins_that_leap() {
    for batch_rows in [None, Some(2)] {
        let configuration = Configuration {
            name: "merge joins that leap",
            forced: ForcedChoices {
                join: Some(ForcedJoin::Merge),
                ..ForcedChoices::NONE
            },
            batch_rows,
            leaps: true,
            ..Configuration::default()
        };
        let leaps = run(&configuration).leaps;
        // With batches of few rows there is always more to leap over.
        assert!(leaps > 0 || batch_rows.is_none(), "no scan was sent ahead");
    }
}

#[test]
fn joins_switched_early() {
    for (batch_rows, after_rows) in [(None, 0), (Some(2), 2)] {
        let configuration = Configuration {
            name: "switched joins",
            forced: ForcedChoices {
                join: Some(ForcedJoin::IndexNestedLoop),
                partner_counts: Some(true),
                ..ForcedChoices::NONE
            },
            batch_rows,
            switch_after_rows: Some(after_rows),
            ..Configuration::default()
        };
        let switched = run(&configuration).switched;
        assert!(switched > 0, "no join was switched");
    }
}

#[test]
fn differences_of_aggregates_forced_and_refused() {
    for (name, forced) in [("differences", true), ("no differences", false)] {
        let configuration = Configuration {
            name,
            forced: ForcedChoices {
                difference: Some(forced),
                ..ForcedChoices::NONE
            },
            ..Configuration::default()
        };
        let plans = run(&configuration).plans;
        assert_eq!(plans.contains("aggregate_difference"), forced, "{name}");
    }
}

#[test]
fn sorted_by_ranges_forced_and_refused() {
    for (name, forced) in [("ranges", true), ("at once", false)] {
        let configuration = Configuration {
            name,
            forced: ForcedChoices {
                ranges: Some(forced),
                ..ForcedChoices::NONE
            },
            ..Configuration::default()
        };
        let plans = run(&configuration).plans;
        assert_eq!(plans.contains("range_sort"), forced, "{name}");
    }
}

#[test]
fn common_subplans_forced_and_refused() {
    for (name, forced) in [("common subplans", true), ("no common subplans", false)] {
        let configuration = Configuration {
            name,
            forced: ForcedChoices {
                common_subplans: Some(forced),
                ..ForcedChoices::NONE
            },
            ..Configuration::default()
        };
        let plans = run(&configuration).plans;
        assert_eq!(plans.contains("common_subplan"), forced, "{name}");
    }
}

#[test]
fn subqueries_left_as_they_are() {
    let usual = run(&Configuration {
        name: "as usual",
        ..Configuration::default()
    });
    let nested = run(&Configuration {
        name: "subqueries left as they are",
        without: Rewrites::UNNESTING,
        ..Configuration::default()
    });
    assert_ne!(
        usual.plans, nested.plans,
        "no subquery was a part of a group"
    );
}

#[test]
fn each_rewrite_left_out() {
    let plans = |name, without| {
        let seen = run(&Configuration {
            name,
            without,
            ..Configuration::default()
        });
        seen.plans
    };
    let usual = plans("as usual", Rewrites::NONE);
    assert_eq!(usual, plans("as usual", Rewrites::NONE), "plans vary");
    for (without, name) in Rewrites::EACH.into_iter().zip(Rewrites::NAMES) {
        assert!(plans(name, without) != usual, "no plan without {name}");
    }
}

#[test]
fn conditions_kept_by_terms_and_not() {
    for (name, after_rows) in [("kept", 0), ("not kept", u64::MAX)] {
        let configuration = Configuration {
            name,
            term_memo_after_rows: Some(after_rows),
            batch_rows: Some(2),
            ..Configuration::default()
        };
        assert_eq!(run(&configuration).known > 0, after_rows == 0, "{name}");
    }
}

/// The plans of all files, with a choice made wherever it can be, or nowhere.
fn plans_with(name: &'static str, choose: impl Fn(&mut ForcedChoices)) -> String {
    let mut configuration = Configuration {
        name,
        batch_rows: Some(2),
        ..Configuration::default()
    };
    choose(&mut configuration.forced);
    run(&configuration).plans
}

#[test]
fn joins_ordered_over_sequences() {
    let plans = |linear| {
        plans_with("joins over sequences", |forced| {
            forced.linear = Some(linear)
        })
    };
    assert_ne!(plans(true), plans(false), "no order was another one");
}

#[test]
fn conditions_with_parameters() {
    let plans = |with| plans_with("with parameters", |forced| forced.parameters = Some(with));
    assert_ne!(plans(true), plans(false), "no plan has parameters");
}

#[test]
fn exists_as_joins() {
    let plans = |as_joins| {
        plans_with("exists as joins", |forced| {
            forced.exists_joins = Some(as_joins)
        })
    };
    assert_ne!(plans(true), plans(false), "no EXISTS was a join");
}

#[test]
fn parts_run_for_the_bindings_of_others() {
    let plans = |run| {
        plans_with("parts for bindings", |forced| {
            forced.part_for_bindings = Some(run);
        })
    };
    assert_ne!(plans(true), plans(false), "no part was run for bindings");
}

#[test]
fn partners_counted_wherever_they_can_be() {
    let plans = |force_join, force_partner_counts| {
        let seen = run(&Configuration {
            name: "partners counted",
            forced: ForcedChoices {
                join: force_join,
                partner_counts: Some(force_partner_counts),
                ..ForcedChoices::NONE
            },
            ..Configuration::default()
        });
        seen.plans
    };
    let counted = "index_nested_loop_join ?_4=count(*) of";
    assert!(plans(Some(ForcedJoin::IndexNestedLoop), true).contains(counted));
    assert!(plans(None, true).contains("=count(*) of"));
    assert!(!plans(Some(ForcedJoin::IndexNestedLoop), false).contains(counted));
}

/// What is chosen by cost elsewhere is nowhere to be seen, in plans and in what they did.
#[test]
fn all_switched_off_that_can_be() {
    let seen = run(&Configuration {
        name: "all off",
        all_off: true,
        ..Configuration::default()
    });
    for operator in [
        "leapfrog_join",
        "parameterized_join",
        "aggregate_difference",
        "common_subplan",
        "range_sort",
    ] {
        assert!(!seen.plans.contains(operator), "{operator} was chosen");
    }
    let counts = |line: &str| line.contains("_join") && line.contains("=count(*) of");
    assert!(
        !seen.plans.lines().any(counts),
        "a join counts its partners"
    );
    let done = [seen.dropped, seen.leaps, seen.switched, seen.known];
    assert_eq!(done, [0; 4], "key filters, leaps, switches or memos");
}

#[test]
fn opened_again_before_each_query() {
    let configuration = Configuration {
        name: "reopened",
        reopen: true,
        ..Configuration::default()
    };
    let seen = run(&configuration);
    assert_eq!(seen.opened, files().len() + seen.queries + seen.updates);
}

#[test]
fn with_a_checkpoint_after_each_update() {
    let configuration = Configuration {
        name: "checkpoints",
        checkpoints: true,
        ..Configuration::default()
    };
    let seen = run(&configuration);
    assert!(seen.checkpoints >= 8, "{} checkpoints", seen.checkpoints);
}

#[test]
fn loaded_in_three_parts() {
    let usual = run(&Configuration {
        name: "one part",
        ..Configuration::default()
    })
    .loads;
    let configuration = Configuration {
        name: "three parts",
        three_parts: true,
        ..Configuration::default()
    };
    assert!(run(&configuration).loads > usual);
}

#[test]
fn in_the_lean_scheme() {
    let seen = run(&Configuration {
        name: "lean",
        lean: true,
        ..Configuration::default()
    });
    assert!(seen.lean_databases > 5);
}

#[test]
fn over_a_delta() {
    let seen = run(&Configuration {
        name: "over a delta",
        over_delta: true,
        ..Configuration::default()
    });
    // What is left after the last load of each file, since a load writes the delta first.
    assert!(seen.delta_changes > 150, "{} changes", seen.delta_changes);
}

#[test]
fn over_a_delta_in_the_lean_scheme() {
    let seen = run(&Configuration {
        name: "over a delta, lean",
        over_delta: true,
        lean: true,
        batch_rows: Some(3),
        ..Configuration::default()
    });
    // What is left after the last load of each file, since a load writes the delta first.
    assert!(seen.delta_changes > 150, "{} changes", seen.delta_changes);
    assert!(seen.lean_databases > 5);
}
