//! The document of a comparison.

use std::fmt::Write as _;

use serde_json::Value;

use super::charts::{Caption, Series, bars, boxes, lines, number};
use super::results::{Engine, Results};

/// REPORT.md, and the plots that it shows by name.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) text: String,
    pub(crate) plots: Vec<(String, String)>,
}

/// Writes everything that there are results of.
pub(crate) fn document(results: &Results) -> Document {
    let mut document = Document {
        text: String::new(),
        plots: Vec::new(),
    };
    document.head(results);
    document.missing(results);
    document.load(results);
    let steps = results.steps();
    document.throughput(results, &steps);
    document.transactions(results, &steps);
    for step in steps.iter().filter(|step| *step != "cold") {
        document.queries(results, step);
    }
    if steps.iter().any(|step| step == "cold") {
        document.cold(results);
    }
    document.verification(results, &steps);
    document
}

/// How the text of a report begins; what follows is made of results only.
const PREFACE: &str = "\
Every engine has the same data, the same queries in the same order, the same machine, and the same memory to plan with. \
The driver runs on that machine, too, so that the server's time on processors is the steadier measure. Times are those of \
answers that came whole: a template with a wrong answer, an error or a time-out says so in the place of its time.";

/// What makes results whose settings do not name a script.
const SCRIPT: &str = "bench/compare.sh";

/// Columns beside the first one that are not of numbers.
const TEXT_COLUMNS: [&str; 6] = [
    "value",
    "version",
    "engine",
    "step",
    "reason",
    "queries with wrong answers",
];

impl Document {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn section(&mut self, title: &str) {
        // Writing to a string cannot fail.
        writeln!(self.text, "\n## {title}\n").unwrap_or_default();
    }

    fn table<'a>(&mut self, head: &[&str], rows: impl Iterator<Item = Vec<String>> + 'a) {
        self.line(&format!("| {} |", head.join(" | ")));
        let is_text = |at: usize, name: &str| at == 0 || TEXT_COLUMNS.contains(&name);
        let rules = head
            .iter()
            .enumerate()
            .map(|(at, name)| match is_text(at, name) {
                true => "---",
                false => "---:",
            });
        self.line(&format!("|{}|", rules.collect::<Vec<_>>().join("|")));
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            self.line(&format!("| {} |", cells.join(" | ")));
        }
    }

    fn plot(&mut self, name: &str, title: &str, svg: String) {
        self.line(&format!("\n![{title}]({name}.svg)\n"));
        self.plots.push((format!("{name}.svg"), svg));
    }

    fn head(&mut self, results: &Results) {
        let scale = results.setting("scale");
        let dataset = results.setting("dataset");
        self.line(&format!(
            "# {dataset} at {scale}: {}\n",
            results.setting("date")
        ));
        let script = results.settings.get("script").and_then(Value::as_str);
        self.line(&format!(
            "{PREFACE} `{}` says how the figures were made, and makes them again.",
            script.unwrap_or(SCRIPT)
        ));
        self.section("Machine and settings");
        let rows = [
            ("processor", results.setting("processor")),
            ("cores", results.setting("cores")),
            ("memory, MB", results.setting("memory_mb")),
            ("kernel", results.setting("kernel")),
            ("commit of this repository", results.setting("commit")),
            ("dataset", dataset),
            (
                "products, edges, people or warehouses",
                results.setting("size"),
            ),
            ("triples", results.setting("triples")),
            (
                "memory that an engine may plan with, MB",
                results.setting("engine_memory_mb"),
            ),
            ("time-out of a query", results.setting("query_timeout")),
            (
                "a step begins no further mix after",
                results.setting("step_time"),
            ),
            (
                "mixes for warm-up, mixes that count (bi: 1, 10)",
                format!(
                    "{}, {}",
                    results.setting("warm_up"),
                    results.setting("mixes")
                ),
            ),
        ];
        let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
        self.table(&["setting", "value"], rows.into_iter());
        self.section("Engines");
        let engines = results.engines.iter().map(|engine| {
            let version = Some(&engine.version).filter(|version| !version.is_empty());
            vec![
                engine.name.clone(),
                version.map_or("-".to_owned(), Clone::clone),
            ]
        });
        self.table(&["engine", "version"], engines);
    }

    /// What has no figures, and why.
    fn missing(&mut self, results: &Results) {
        let failed = results.engines.iter().flat_map(|engine| {
            let failed = engine.failed.iter();
            failed.map(|(step, reason)| vec![engine.name.clone(), step.clone(), reason.clone()])
        });
        let failed: Vec<_> = failed.collect();
        if !failed.is_empty() {
            self.section("What did not run");
            self.table(&["engine", "step", "reason"], failed.into_iter());
        }
    }

    fn load(&mut self, results: &Results) {
        self.section("Load");
        let rows = results.engines.iter().filter_map(|engine| {
            let figure = |name| engine.figure("load", name);
            let (triples, seconds) = (figure("triples")?, figure("seconds")?);
            Some(vec![
                engine.name.clone(),
                number(seconds),
                number(triples / seconds),
                or_dash(figure("cpu_seconds")),
                or_dash(figure("disk_bytes").map(|bytes| bytes / triples)),
                or_dash(figure("peak_bytes").map(|bytes| bytes / 1e6)),
            ])
        });
        let head = [
            "engine",
            "seconds",
            "triples/s",
            "CPU s",
            "bytes/triple on disk",
            "peak memory MB",
        ];
        self.table(&head, rows);
    }

    /// The steps that differ by the number of clients alone.
    fn throughput(&mut self, results: &Results, steps: &[String]) {
        let has_mixes = |step: &&String| {
            let mut engines = results.engines.iter();
            engines.any(|engine| engine.figure(step, "mixes_an_hour").is_some())
        };
        let mixes: Vec<&String> = steps.iter().filter(has_mixes).collect();
        if mixes.is_empty() {
            return;
        }
        self.section("Throughput");
        let rows = results.engines.iter().flat_map(|engine| {
            mixes.iter().filter_map(|step| {
                let figure = |name| engine.figure(step, name);
                Some(vec![
                    engine.name.clone(),
                    (*step).clone(),
                    or_dash(figure("clients")),
                    number(figure("mixes")?),
                    or_dash(figure("mixes_an_hour")),
                    or_dash(figure("server_cpu_ms_a_mix")),
                    or_dash(figure("server_resident_bytes").map(|bytes| bytes / 1e6)),
                    or_dash(figure("server_peak_bytes").map(|bytes| bytes / 1e6)),
                    or_dash(figure("power")),
                    or_dash(figure("throughput")),
                    or_dash(figure("update_cpu_ms_a_mix")),
                ])
            })
        });
        let head = [
            "engine",
            "step",
            "clients",
            "mixes",
            "mixes an hour",
            "server CPU ms a mix",
            "memory MB",
            "peak MB",
            "power",
            "throughput",
            "of the CPU ms for updates",
        ];
        self.table(&head, rows);
        for (mix, clients) in by_clients(&mixes) {
            if clients.len() < 2 {
                continue;
            }
            let series = present(results.engines.iter().map(|engine| {
                let values = clients
                    .iter()
                    .map(|clients| engine.figure(&format!("{mix}-{clients}"), "mixes_an_hour"));
                (engine, values.collect())
            }));
            let labels: Vec<String> = clients.iter().map(ToString::to_string).collect();
            let title = format!("{mix}: throughput by clients");
            let caption = Caption {
                title: &title,
                axis: "mixes an hour",
            };
            let svg = lines(caption, "clients", &labels, &series);
            self.plot(&format!("{mix}-throughput"), &title, svg);
        }
    }

    /// Steps whose transactions count when they are there after a restart.
    fn transactions(&mut self, results: &Results, steps: &[String]) {
        let rows = results.engines.iter().flat_map(|engine| {
            steps.iter().filter_map(|step| {
                let figure = |name| engine.figure(step, name);
                let orders = figure("new_orders_a_minute")?;
                Some(vec![
                    engine.name.clone(),
                    step.clone(),
                    or_dash(figure("warehouses")),
                    or_dash(figure("clients")),
                    number(orders),
                    or_dash(figure("new_orders_lost")),
                    or_dash(figure("new_orders_unexpected")),
                    or_dash(figure("violations")),
                    or_dash(repeats(engine, step)),
                    or_dash(figure("server_cpu_ms_a_transaction")),
                    or_dash(figure("server_peak_bytes").map(|bytes| bytes / 1e6)),
                ])
            })
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return;
        }
        self.section("Transactions");
        self.line(
            "New orders a minute are those that a client was told to be done and that were there after the server was started \
             again. Violations are those of the four consistency conditions, repeats the tries that gave way to other transactions.\n",
        );
        let head = [
            "engine",
            "step",
            "warehouses",
            "clients",
            "new orders a minute",
            "acknowledged and lost",
            "there unexpectedly",
            "violations",
            "repeats",
            "server CPU ms a transaction",
            "peak MB",
        ];
        self.table(&head, rows.into_iter());
    }

    /// Each query of a step against each engine.
    fn queries(&mut self, results: &Results, step: &str) {
        let names = query_names(results, step);
        let engines: Vec<&Engine> = results
            .engines
            .iter()
            .filter(|engine| engine.steps.contains_key(step))
            .collect();
        if names.is_empty() || engines.is_empty() {
            return;
        }
        self.section(&format!(
            "{step}: {} time of each query, ms",
            kind_of_time(step)
        ));
        let mut head = vec!["query"];
        head.extend(engines.iter().map(|engine| engine.name.as_str()));
        let rows = names.iter().map(|name| {
            let cells = engines.iter().map(|engine| cell(query(engine, step, name)));
            std::iter::once(name.clone()).chain(cells).collect()
        });
        self.table(&head, rows);
        let series = present(engines.iter().map(|engine| {
            let means = names.iter().map(|name| mean(query(engine, step, name)?));
            (*engine, means.collect())
        }));
        let title = format!("{step}: {} time of each query", kind_of_time(step));
        let caption = Caption {
            title: &title,
            axis: "ms",
        };
        self.plot(
            &format!("{step}-queries"),
            &title,
            bars(caption, &names, &series),
        );
        self.distributions(&engines, step, &names);
    }

    fn distributions(&mut self, engines: &[&Engine], step: &str, names: &[String]) {
        let has_times = |engine: &&&Engine| {
            let mut names = names.iter();
            names.any(|name| query(engine, step, name).and_then(quantiles).is_some())
        };
        if engines.iter().filter(has_times).count() == 0 {
            return;
        }
        self.line(&format!("\n### {step}: distribution of the times, ms\n"));
        let rows = names.iter().flat_map(|name| {
            engines.iter().filter_map(|engine| {
                let [low, median, high, most, nearly] = quantiles(query(engine, step, name)?)?;
                let figures = [low, median, high, most, nearly].map(number);
                let mut row = vec![name.clone(), engine.name.clone()];
                row.extend(figures);
                Some(row)
            })
        });
        let head = ["query", "engine", "p25", "p50", "p75", "p95", "p99"];
        self.table(&head, rows);
        let series = present(engines.iter().map(|engine| {
            let values = names
                .iter()
                .map(|name| quantiles(query(engine, step, name)?));
            (*engine, values.collect())
        }));
        let title = format!("{step}: distribution of the times of each query");
        let caption = Caption {
            title: &title,
            axis: "ms; box from p25 to p75 with p50 in white, marks at p95 and p99",
        };
        let svg = boxes(caption, names, &series);
        self.plot(&format!("{step}-distribution"), &title, svg);
    }

    fn cold(&mut self, results: &Results) {
        self.section("Cold and warm");
        self.line(
            "The server is started again after the system has forgotten its files. Mixes an hour of one client: cold, then \
             the same queries once more, then others.\n",
        );
        let engines = results.engines.iter();
        let rows = engines.clone().filter_map(|engine| {
            let figure = |name| or_dash(engine.figure("cold", name));
            engine.steps.get("cold")?;
            Some(vec![
                engine.name.clone(),
                figure("start_s"),
                figure("first_answer_ms"),
                figure("cold_mixes_an_hour"),
                figure("same_seed_mixes_an_hour"),
                figure("other_seed_mixes_an_hour"),
                figure("steady_after_s"),
            ])
        });
        let head = [
            "engine",
            "start s",
            "first answer ms",
            "cold",
            "warm, same seed",
            "warm, other seed",
            "steady after s",
        ];
        self.table(&head, rows);
        let slices = |engine: &Engine| -> Vec<Option<f64>> {
            let step = engine.steps.get("cold");
            let slices = step.and_then(|step| step.whole.get("slices_mixes_an_hour")?.as_array());
            let figures = slices.into_iter().flatten();
            figures.map(Value::as_f64).collect()
        };
        let series = present(engines.map(|engine| (engine, slices(engine))));
        let longest = series.iter().map(|it| it.values.len()).max().unwrap_or(0);
        if longest == 0 {
            return;
        }
        let labels: Vec<String> = (1..=longest).map(|slice| (slice * 5).to_string()).collect();
        let title = "cold: throughput after the start";
        let caption = Caption {
            title,
            axis: "mixes an hour",
        };
        let svg = lines(caption, "seconds, end of the slice", &labels, &series);
        self.plot("cold", title, svg);
        let mut head = vec!["engine"];
        head.extend(labels.iter().map(String::as_str));
        self.line("Mixes an hour in each slice, by the second that it ends at:\n");
        let rows = series.iter().map(|series| {
            let cells = (0..longest).map(|at| or_dash(series.values.get(at).copied().flatten()));
            std::iter::once(series.name.clone()).chain(cells).collect()
        });
        self.table(&head, rows);
    }

    /// How many answers were compared, and what came of it.
    fn verification(&mut self, results: &Results, steps: &[String]) {
        self.section("Verification");
        self.line(
            "Answers compared with those of another engine: Stoa's with Oxigraph's, all others' with Stoa's. Those of mixes that \
             write are not compared.\n",
        );
        let rows = results.engines.iter().flat_map(|engine| {
            steps.iter().filter_map(|name| {
                let step = engine.steps.get(name)?;
                let sum =
                    |count: &str| -> f64 { step.queries.iter().map(|it| figure(it, count)).sum() };
                if step.queries.is_empty() {
                    return None;
                }
                let doubtful = step.queries.iter().filter(|it| figure(it, "wrong") > 0.0);
                let doubtful: Vec<&str> = doubtful
                    .filter_map(|it| it.get("query")?.as_str())
                    .collect();
                let counts = ["right", "wrong", "not_verified", "errors", "time_outs"];
                let mut row = vec![engine.name.clone(), name.clone()];
                row.extend(counts.map(|count| number(sum(count))));
                row.push(doubtful.join(", "));
                Some(row)
            })
        });
        let head = [
            "engine",
            "step",
            "right",
            "wrong",
            "not verifiable",
            "errors",
            "time-outs",
            "queries with wrong answers",
        ];
        self.table(&head, rows);
    }
}

/// Mixes with the numbers of clients that they were run with: `explore-4` is explore with 4.
fn by_clients(steps: &[&String]) -> Vec<(String, Vec<u64>)> {
    let mut mixes: Vec<(String, Vec<u64>)> = Vec::new();
    for step in steps {
        let Some((mix, clients)) = step.rsplit_once('-') else {
            continue;
        };
        let Ok(clients) = clients.parse() else {
            continue;
        };
        match mixes.iter_mut().find(|(name, _)| name == mix) {
            Some((_, all)) => all.push(clients),
            None => mixes.push((mix.to_owned(), vec![clients])),
        }
    }
    mixes
}

/// The queries of a step in the order in which the first engine that has them reports them.
fn query_names(results: &Results, step: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let steps = results.engines.iter().filter_map(|it| it.steps.get(step));
    for query in steps.flat_map(|step| &step.queries) {
        let name = query.get("query").and_then(Value::as_str).unwrap_or("?");
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn query<'a>(engine: &'a Engine, step: &str, name: &str) -> Option<&'a Value> {
    engine.steps.get(step)?.query(name)
}

fn figure(value: &Value, name: &str) -> f64 {
    value.get(name).and_then(Value::as_f64).unwrap_or(0.0)
}

/// The mean time of a query whose answers are all in order, ms.
fn mean(query: &Value) -> Option<f64> {
    let bad = ["wrong", "errors", "time_outs"].map(|count| figure(query, count));
    let mean = query.get("mean_ms")?.as_f64()?;
    (bad == [0.0; 3]).then_some(mean)
}

fn quantiles(query: &Value) -> Option<[f64; 5]> {
    mean(query)?;
    let names = ["p25_ms", "p50_ms", "p75_ms", "p95_ms", "p99_ms"];
    let values = names.map(|name| figure(query, name));
    values.iter().all(|value| *value > 0.0).then_some(values)
}

/// The mean time, or what is wrong instead and how often.
fn cell(query: Option<&Value>) -> String {
    let Some(query) = query else {
        return "-".to_owned();
    };
    if let Some(mean) = mean(query) {
        return number(mean);
    }
    let all = ["count", "wrong", "errors", "time_outs"];
    let all: f64 = all.iter().map(|count| figure(query, count)).sum();
    if all == 0.0 {
        return "-".to_owned();
    }
    let bad = [
        ("wrong", "wrong"),
        ("errors", "error"),
        ("time_outs", "time-out"),
    ];
    let bad = bad.iter().filter(|(count, _)| figure(query, count) > 0.0);
    let bad = bad.map(|(count, word)| format!("{word}: {} of {all}", figure(query, count)));
    bad.collect::<Vec<_>>().join(", ")
}

/// Queries of single operators are run too few times for a mean.
fn kind_of_time(step: &str) -> &'static str {
    if step == "operators" {
        "median"
    } else {
        "mean"
    }
}

/// Engines that have a figure at all.
fn present<'a, T>(all: impl Iterator<Item = (&'a Engine, Vec<Option<T>>)>) -> Vec<Series<T>> {
    let series = all.map(|(engine, values)| Series {
        name: engine.name.clone(),
        values,
    });
    series
        .filter(|series| series.values.iter().any(Option::is_some))
        .collect()
}

/// How often transactions of a step gave way to others.
fn repeats(engine: &Engine, step: &str) -> Option<f64> {
    let queries = engine.steps.get(step)?.queries.iter();
    let repeats = queries.filter_map(|query| query.get("repeats").and_then(Value::as_f64));
    repeats.reduce(|sum, more| sum + more)
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}
