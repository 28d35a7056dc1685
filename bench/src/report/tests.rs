//! A report of a small folder of results.

use std::fs;
use std::path::PathBuf;

use super::charts::{Caption, Series, bars, number};
use super::{Arguments, report};

/// A folder of its own below the temporary ones.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("stoa-report-{}-{name}", std::process::id()));
    fs::remove_dir_all(&folder).unwrap_or_default();
    fs::create_dir_all(&folder).unwrap();
    folder
}

const SETTINGS: &str = r#"{"date": "2026-01-02", "scale": "1m", "dataset": "bsbm", "size": 2848, "triples": 1000, "commit": "abc",
"processor": "A|B <fast>", "cores": 2, "memory_mb": 100, "kernel": "k", "engine_memory_mb": 50, "engines": "stoa other third",
"steps": "explore-1 explore-4 cold", "query_timeout": "60s", "step_time": "5m", "mixes": 500, "warm_up": 100}"#;

fn run(mixes_an_hour: u64) -> String {
    format!(
        r#"{{"kind": "run", "clients": 1, "mixes": 500, "mixes_an_hour": {mixes_an_hour}, "power": 3.5, "throughput": 7}}"#
    )
}

fn query(name: &str, mean: f64, wrong: u64, time_outs: u64) -> String {
    format!(
        r#"{{"kind": "query", "query": "{name}", "count": 9, "mean_ms": {mean}, "p25_ms": {mean}, "p50_ms": {mean}, "p75_ms": {mean}, "p95_ms": {mean}, "p99_ms": {mean}, "right": 5, "wrong": {wrong}, "errors": 0, "time_outs": {time_outs}}}"#
    )
}

const TRANSACTIONS: &str = r#"{"kind": "run", "workload": "tpcc-rdf", "warehouses": 2, "clients": 4, "new_orders_a_minute": 1234.5, "new_orders_lost": 1, "new_orders_unexpected": 0, "violations": 2, "server_cpu_ms_a_transaction": 0.5, "server_peak_bytes": null}
{"kind": "query", "query": "new-order", "count": 9, "mean_ms": 3.5, "repeats": 12, "errors": 0, "time_outs": 0, "wrong": 0}"#;

const OPERATORS: &str = r#"{"kind": "run", "workload": "operators"}
{"kind": "query", "query": "join/chain", "count": 3, "p50_ms": 7.5, "answer": "right"}
{"kind": "query", "query": "join/star", "count": 0, "p50_ms": null, "answer": "time-out"}
{"kind": "query", "query": "graph/one", "count": 0, "p50_ms": null, "answer": "skipped"}"#;

#[test]
fn everything_measured_is_shown_and_what_is_missing_is_named() {
    let folder = folder("whole");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("settings.json", SETTINGS);
    write("stoa/version", "stoa 0.1\n");
    write(
        "stoa/load.jsonl",
        r#"{"kind": "load", "triples": 1000, "seconds": 0.5, "cpu_seconds": 0.75, "peak_bytes": 2000000, "disk_bytes": 31000}"#,
    );
    let first = [run(12_345), query("1", 2.0, 0, 0), query("2", 20.0, 0, 0)].join("\n");
    write("stoa/explore-1.jsonl", &first);
    write("stoa/explore-4.jsonl", &run(40_000));
    write(
        "stoa/cold.jsonl",
        r#"{"kind": "cold", "start_s": 0.25, "first_answer_ms": 8.5, "cold_mixes_an_hour": 100, "same_seed_mixes_an_hour": 300, "other_seed_mixes_an_hour": 200, "slices_mixes_an_hour": [100, 200], "steady_after_s": null}"#,
    );
    let second = [run(999), query("1", 4.0, 1, 0), query("2", 40.0, 0, 3)].join("\n");
    write("other/explore-1.jsonl", &second);
    write("other/explore-4.jsonl", &run(3_000));
    write("stoa/operators.jsonl", OPERATORS);
    write("stoa/tpcc-rdf-4.jsonl", TRANSACTIONS);
    write("third/install.failed", "there is no Java\n");
    report(&Arguments {
        folder: folder.clone(),
    })
    .unwrap();
    let text = fs::read_to_string(folder.join("REPORT.md")).unwrap();
    for expected in [
        "| processor | A\\|B <fast> |",
        "| stoa | stoa 0.1 |",
        "| third | install | there is no Java |",
        "| stoa | 0.5 | 2,000 | 0.75 | 31 | 2 |",
        "| stoa | explore-1 | 1 | 500 | 12,345 | - | - | - | 3.5 | 7 |",
        "| 1 | 2 | wrong: 1 of 10 |",
        "| 2 | 20 | time-out: 3 of 12 |",
        "| stoa | 0.25 | 8.5 | 100 | 300 | 200 | - |",
        "| join/chain | 7.5 |",
        "| join/star | time-out: 1 of 1 |",
        "| graph/one | - |",
        "| stoa | operators | 1 | 0 | 0 | 0 | 1 |",
        "| stoa | tpcc-rdf-4 | 2 | 4 | 1,235 | 1 | 0 | 2 | 12 | 0.5 | - |",
        "| other | explore-1 | 10 | 1 | 0 | 0 | 3 | 1 |",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let plots = text.split("](").skip(1);
    let plots: Vec<&str> = plots.filter_map(|rest| rest.split(')').next()).collect();
    assert_eq!(
        plots,
        [
            "explore-throughput.svg",
            "explore-1-queries.svg",
            "explore-1-distribution.svg",
            "operators-queries.svg",
            "tpcc-rdf-4-queries.svg",
            "cold.svg"
        ]
    );
    for plot in plots {
        let svg = fs::read_to_string(folder.join(plot)).unwrap();
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
            "{plot}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_without_results_is_refused_and_an_empty_comparison_is_not() {
    let folder = folder("empty");
    let arguments = Arguments {
        folder: folder.clone(),
    };
    let error = report(&arguments).unwrap_err();
    assert!(format!("{error:#}").contains("settings.json"));
    fs::write(folder.join("settings.json"), r#"{"engines": "stoa"}"#).unwrap();
    report(&arguments).unwrap();
    let text = fs::read_to_string(folder.join("REPORT.md")).unwrap();
    assert!(text.contains("it was not begun"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bars_end_where_the_axis_says() {
    let caption = Caption {
        title: "a < b",
        axis: "ms",
    };
    let series = [Series {
        name: "stoa".to_owned(),
        values: vec![Some(10.0), None],
    }];
    let svg = bars(caption, &["1".to_owned(), "2".to_owned()], &series);
    // The axis begins a power of ten below the smallest value, so that this one has a bar.
    assert!(svg.contains("<title>a &lt; b</title>"));
    assert!(svg.contains(">no figure</text>"));
    assert!(svg.contains("text-anchor=\"middle\">10</text>"), "{svg}");
    assert!(svg.contains("width=\"640.0\""), "{svg}");
}

#[test]
fn numbers_have_about_three_digits() {
    let shown = [0.0, 0.001_23, 0.5, 12.345, 345.6, 1_234_567.0].map(number);
    assert_eq!(shown, ["0", "0.0012", "0.5", "12.3", "346", "1,234,567"]);
}
