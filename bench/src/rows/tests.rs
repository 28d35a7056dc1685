//! The comparison of rows with figures that are worked out by hand.

use super::*;

const ORIGINAL: &str =
    "# a comment\n100\t1\t500\t1.00\n2848\t2\t400\t20.00\n2848\t11\t500\t10.00\n";

/// A dataset whose answers of query 2 have these mean rows, and a variance of 36 in 100 executions.
fn dataset(mean: f64, errors: u64) -> String {
    let line = |query: &str, mean: f64, error: f64, errors: u64| {
        format!(
            "{{\"kind\":\"query\",\"query\":\"{query}\",\"count\":100,\"rows_mean\":{mean},\"rows_standard_error\":{error},\
             \"errors\":{errors},\"time_outs\":0,\"wrong\":0}}\n"
        )
    };
    "{\"kind\":\"run\"}\n".to_owned() + &line("2", mean, 0.6, errors) + &line("11", 10.0, 0.0, 0)
}

/// The exit of the command for datasets with these means.
fn verdict(means: &[f64], errors: u64) -> anyhow::Result<bool> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let results = means.iter().enumerate();
    explore_rows(&Arguments {
        products: 2_848,
        expected: file("expected.tsv", ORIGINAL),
        results: results
            .map(|(index, &mean)| file(&index.to_string(), &dataset(mean, errors)))
            .collect(),
    })
}

fn near(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} {right}");
}

fn line(means: &[f64]) -> Line {
    let datasets: Vec<Rows> = means
        .iter()
        .map(|&mean| rows(&dataset(mean, 0), "2").unwrap())
        .collect();
    compared(&expected(ORIGINAL, 2_848).unwrap()[0], &datasets)
}

#[test]
fn deviations_are_those_of_the_parts() {
    let line = line(&[21.0, 23.0, 22.0, 22.0]);
    near(line.mean, 22.0);
    near(line.spread, (2.0_f64 / 3.0).sqrt());
    // A variance of 2/3 between datasets, of which 0.36 come from the mixes; the original asked 400 times.
    let variance: f64 = 2.0 / 3.0 / 4.0 + (2.0 / 3.0 - 0.36) + 36.0 / 400.0;
    near(line.deviation, variance.sqrt());
    near(line.off(), 2.0);
}

#[test]
fn datasets_that_agree_too_well_have_the_deviation_of_their_mixes() {
    let line = line(&[21.9, 22.1, 22.0, 22.0]);
    near(line.deviation, (0.36_f64 / 4.0 + 36.0 / 400.0).sqrt());
}

#[test]
fn what_is_near_passes_and_what_is_far_fails() {
    assert!(verdict(&[20.5, 21.5, 21.0, 21.0], 0).unwrap());
    assert!(!verdict(&[24.5, 25.5, 25.0, 25.0], 0).unwrap());
    // The same distance passes where datasets differ by as much.
    assert!(verdict(&[20.0, 30.0, 22.0, 28.0], 0).unwrap());
}

#[test]
fn a_query_that_always_gives_the_same_rows_has_to_give_those() {
    let datasets = [rows(&dataset(20.0, 0), "11").unwrap(); 3];
    let same = compared(&expected(ORIGINAL, 2_848).unwrap()[1], &datasets);
    assert!(same.within());
    near(same.deviation, 0.0);
    let other = Line {
        original: 9.9,
        ..same
    };
    assert!(!other.within());
    assert!(table(&[other]).contains("| 0.10 rows | OFF |"));
}

#[test]
fn failures_and_missing_figures_are_errors() {
    let failure = |result: anyhow::Result<bool>| format!("{:#}", result.unwrap_err());
    assert!(failure(verdict(&[20.0, 20.0], 1)).contains("without a right answer"));
    assert!(rows(&dataset(20.0, 0), "3").is_err());
    assert!(expected(ORIGINAL, 5).is_err());
    assert!(expected("2848\t2\t400\n", 2_848).is_err());
}

#[test]
fn the_figures_of_the_original_are_read() {
    let text = include_str!("../../explore-rows.tsv");
    for products in [2_848, 28_482, 284_826] {
        let figures = expected(text, products).unwrap();
        assert_eq!(figures.len(), 9, "{products}");
        // Each mix asks query 2 six times.
        assert!((figures[1].executions - 3_000.0).abs() < 1e-9);
    }
}
