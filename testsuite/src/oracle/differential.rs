//! Comparing the product with both oracles on one case, and making a failing case smaller.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context as _, bail};
use oxrdf::{BlankNode, Dataset as Quads, GraphName, NamedOrBlankNode, Quad, Term};
use stoa_database::{ForcedChoices, ForcedJoin, GraphFormat, QueryOptions, Rewrites, Scheme};

use super::answer::{Expected, expected, judge};
use super::reference::{self, DIFFERENCES};
use super::{Dataset, Fault, Seen};
use crate::compare::{Answer, Solutions};
use crate::over_delta;
use crate::random::ast::Query;
use crate::random::data::{Data, label_predicate};
use crate::random::{print, shrink};
use crate::scratch::Scratch;

/// How data is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Whether a part of it is in a delta.
    pub over_delta: bool,
    /// The sort orders.
    pub scheme: Scheme,
}

/// Data in a scratch database and in memory.
pub struct Bench {
    /// The data.
    pub data: Data,
    stored: Stored,
    scratch: Scratch,
    memory: Quads,
    /// The labels of blank nodes: the database's and the data's.
    labels: BTreeMap<String, String>,
}

/// What a run met.
#[derive(Debug, Default)]
pub struct Tally {
    /// How often each algebra node, modifier and function was run by the naive evaluator.
    pub counts: BTreeMap<String, u64>,
    /// How often each physical operator was in a plan that was run.
    pub operators: BTreeMap<String, u64>,
    /// How many cases were run without a rewrite where their plan is another one then.
    pub left_out: BTreeMap<String, u64>,
    /// Cases that passed.
    pub passed: u64,
    /// Those of them with an empty answer.
    pub empty: u64,
    /// Queries that were no test, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Cases where only spareval differed, by row of the table.
    pub excused: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.counts, &other.counts),
            (&mut self.operators, &other.operators),
            (&mut self.left_out, &other.left_out),
        ] {
            for (name, count) in theirs {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
        for (mine, theirs) in [
            (&mut self.skipped, &other.skipped),
            (&mut self.excused, &other.excused),
        ] {
            for (name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
        self.passed += other.passed;
        self.empty += other.empty;
    }

    fn operators_of(&mut self, plan: &str) {
        if plan.contains("planned for an earlier query") {
            *self.operators.entry(REUSED_PLAN.to_owned()).or_default() += 1;
        }
        let tells = |line: &str, what: &str| line.trim_start().starts_with(what);
        let is_prefix = plan.lines().zip(plan.lines().skip(1)).any(|(line, next)| {
            (tells(line, "filter strstarts(") || tells(line, "filter regex("))
                && tells(next, "index_scan")
                && next.contains(" in ")
        });
        *self.operators.entry(PREFIX.to_owned()).or_default() += u64::from(is_prefix);
        for line in plan.lines().skip(1) {
            let mut words = line.split_whitespace();
            let Some(operator) = words.next() else {
                continue;
            };
            let mut name = operator.to_owned();
            if operator.ends_with("_join") || operator == "apply" {
                let kind = words.next().unwrap_or("");
                if ["left", "semi", "anti", "minus", "mark"].contains(&kind) {
                    name = format!("{operator} {kind}");
                }
            }
            if line.contains("hasotherforms(") {
                *self
                    .operators
                    .entry("equality as a join".to_owned())
                    .or_default() += 1;
            }
            if operator == "index_nested_loop_join" && line.contains("=count(*) of") {
                name.push_str(" counted");
            }
            if line.contains("slice by ") {
                "slice by".clone_into(&mut name);
            }
            if operator == "path_search" {
                let start = words.nth(1).unwrap_or("");
                name = format!("path_search from {start}");
                if line.contains(" of nodes ") {
                    let checked = "path_search of nodes".to_owned();
                    *self.operators.entry(checked).or_default() += 1;
                }
            }
            *self.operators.entry(name).or_default() += 1;
        }
    }
}

/// What came of a case.
#[derive(Debug)]
pub enum Verdict {
    /// All agree.
    Passed,
    /// It is no test.
    Skipped(&'static str),
    /// They differ; the first says who.
    Failed(&'static str, String),
}

/// A way to run a query, by number; 0 is the default.
#[must_use]
pub fn configuration(number: usize) -> (&'static str, QueryOptions) {
    let mut options = QueryOptions {
        plans: number == REUSED,
        ..QueryOptions::default()
    };
    let (name, batch_rows) = named(number);
    options.batch_rows = batch_rows;
    match number {
        1 | 2 => options.naive = true,
        4 => {
            options.forced.join = Some(ForcedJoin::Merge);
            options.leap_rows_min = Some(0);
        }
        5 | 6 => options.forced.join = Some(ForcedJoin::Hash),
        7 => {
            options.forced.join = Some(ForcedJoin::IndexNestedLoop);
            options.forced.partner_counts = Some(true);
        }
        8 => {
            options.parallel_rows_min = Some(0);
            options.force_adjacency = Some(true);
            options.forced.partner_counts = Some(true);
        }
        9 => options.forced.difference = Some(true),
        10 => {
            options.forced.difference = Some(true);
            options.parallel_rows_min = Some(0);
        }
        11 => {
            options.spill_after = Some(EACH_ON_DISK);
            options.forced.partner_counts = Some(true);
        }
        12 => options.forced.samples = Some(true),
        13 => {
            options.forced.join = Some(ForcedJoin::Hash);
            options.parallel_rows_min = Some(0);
            options.spill_after = Some((0, 5));
        }
        14 => options.forced.join = Some(ForcedJoin::Leapfrog),
        15 => {
            options.forced.join = Some(ForcedJoin::Leapfrog);
            options.parallel_rows_min = Some(0);
            options.spill_after = Some((0, 2));
        }
        16 => options.forced.join = Some(ForcedJoin::Binary),
        17..=20 => with_key_filters(number, &mut options),
        21..=23 => with_switches(number, &mut options),
        24 => {
            options.forced.sets = Some(true);
            options.forced.top_values = Some(true);
        }
        25 | 26 => by_ranges(number, &mut options),
        ADJACENCIES => options.force_adjacency = Some(true),
        MEMOS => options.term_memo_after_rows = Some(0),
        OFF => switch_off(&mut options),
        27..=29 => with_common_subplans(number, &mut options),
        NESTED => options.without = Rewrites::UNNESTING,
        31 | EXISTS_JOINS | FOR_BINDINGS | PARAMETERS => with_plans(number, &mut options),
        _ => {}
    }
    (name, options)
}

/// Those in which plans are of a kind that few queries have by cost.
fn with_plans(number: usize, options: &mut QueryOptions) {
    match number {
        31 => {
            options.forced.linear = Some(true);
            options.forced.partner_counts = Some(false);
            options.leap_rows_min = Some(0);
        }
        EXISTS_JOINS => {
            options.forced.exists_joins = Some(true);
            options.forced.part_for_bindings = Some(false);
        }
        FOR_BINDINGS => {
            options.forced.exists_joins = Some(false);
            options.forced.part_for_bindings = Some(true);
            options.parallel_rows_min = Some(0);
        }
        PARAMETERS => {
            options.forced.parameters = Some(true);
            options.parallel_rows_min = Some(0);
            options.switch_after_rows = Some(2);
        }
        _ => {}
    }
}

/// What a way is called, and the size of its batches if it is not the usual one.
fn named(number: usize) -> (&'static str, Option<usize>) {
    match number {
        0 => ("optimized", None),
        1 => ("naive", None),
        2 => ("naive, batches of 3", Some(3)),
        3 => ("batches of 3", Some(3)),
        4 => ("merge joins that leap, batches of 2", Some(2)),
        5 => ("hash joins", None),
        6 => ("hash joins, batches of 3", Some(3)),
        7 => ("index joins that count, batches of 3", Some(3)),
        8 => (
            "shared by threads, counting partners, paths in memory",
            None,
        ),
        9 => ("differences of aggregates, batches of 3", Some(3)),
        10 => ("differences of aggregates, shared by threads", None),
        11 => ("on disk, counting partners, batches of 3", Some(3)),
        12 => ("sampled, batches of 3", Some(3)),
        14 => ("leapfrog joins, batches of 3", Some(3)),
        15 => ("leapfrog joins, shared by threads, on disk", None),
        16 => ("joins of two inputs", None),
        17 => ("hash joins with key filters, batches of 3", Some(3)),
        18 => ("naive, with key filters, on disk", None),
        19 => ("shared by threads, with key filters", None),
        20 => ("shared by threads, hash joins with key filters", None),
        21 => ("index joins switched after two rows, batches of 2", Some(2)),
        22 => ("index joins switched at once, shared by threads", None),
        23 => ("joins switched after two rows, batches of 2", Some(2)),
        24 => (
            "by characteristic sets and top values, batches of 3",
            Some(3),
        ),
        25 => ("sorted by ranges, batches of 3", Some(3)),
        26 => (
            "sorted by ranges, shared by threads, hash joins, on disk",
            None,
        ),
        ADJACENCIES => ("paths in memory, batches of 3", Some(3)),
        MEMOS => ("conditions kept by terms, batches of 3", Some(3)),
        OFF => ("all off that is chosen by cost, batches of 3", Some(3)),
        27 => ("common subplans, batches of 3", Some(3)),
        28 => ("naive, common subplans, on disk", None),
        29 => (
            "common subplans, key filters, sorted by ranges, shared by threads",
            None,
        ),
        NESTED => ("subqueries left as they are, batches of 3", Some(3)),
        31 => (
            "joins ordered over sequences, partners not counted, batches of 3",
            Some(3),
        ),
        DRAWN => ("some rewrites left out", None),
        EXISTS_JOINS => ("EXISTS as joins, batches of 3", Some(3)),
        FOR_BINDINGS => (
            "parts run for the bindings of others, shared by threads, batches of 3",
            Some(3),
        ),
        PARAMETERS => ("with parameters, shared by threads, batches of 3", Some(3)),
        REUSED => ("the plan of a query with other constants", None),
        _ => ("shared by threads, hash joins, on disk", None),
    }
}

/// Those in which ORDER BY and DISTINCT take ranges wherever they can.
fn by_ranges(number: usize, options: &mut QueryOptions) {
    options.forced.ranges = Some(true);
    options.range_rows = Some(1);
    if number == 26 {
        options.forced.join = Some(ForcedJoin::Hash);
        options.parallel_rows_min = Some(0);
        options.spill_after = Some((0, 5));
    }
}

/// Those in which hash joins have key filters wherever they can.
fn with_key_filters(number: usize, options: &mut QueryOptions) {
    options.key_filter_rows_min = Some(0);
    match number {
        17 => options.forced.join = Some(ForcedJoin::Hash),
        18 => {
            options.naive = true;
            options.spill_after = Some((0, 5));
        }
        19 => options.parallel_rows_min = Some(0),
        _ => {
            options.forced.join = Some(ForcedJoin::Hash);
            options.parallel_rows_min = Some(0);
        }
    }
}

/// Those in which joins by look-ups go over to hash joins.
fn with_switches(number: usize, options: &mut QueryOptions) {
    options.switch_after_rows = Some(2);
    options.forced.partner_counts = Some(true);
    match number {
        21 => options.forced.join = Some(ForcedJoin::IndexNestedLoop),
        22 => {
            options.forced.join = Some(ForcedJoin::IndexNestedLoop);
            options.switch_after_rows = Some(0);
            options.parallel_rows_min = Some(0);
        }
        _ => {}
    }
}

/// Refuses whatever is done where it is worth while, so that the plain way stands alone.
pub fn switch_off(options: &mut QueryOptions) {
    options.parallel_rows_min = Some(u64::MAX);
    options.key_filter_rows_min = Some(u64::MAX);
    options.leap_rows_min = Some(u64::MAX);
    options.switch_after_rows = Some(u64::MAX);
    options.term_memo_after_rows = Some(u64::MAX);
    options.forced = ForcedChoices::OFF;
    options.force_adjacency = Some(false);
}

/// Those in which subplans that stand in several places are run once wherever they can be.
fn with_common_subplans(number: usize, options: &mut QueryOptions) {
    options.forced.common_subplans = Some(true);
    match number {
        27 => {}
        28 => {
            options.naive = true;
            options.spill_after = Some((0, 2));
        }
        _ => {
            options.forced.ranges = Some(true);
            options.range_rows = Some(1);
            options.forced.join = Some(ForcedJoin::Hash);
            options.key_filter_rows_min = Some(0);
            options.parallel_rows_min = Some(0);
        }
    }
}

/// How many configurations there are.
pub const CONFIGURATIONS: usize = 40;

/// The configurations in which ORDER BY and DISTINCT take ranges wherever they can.
pub const BY_RANGES: [usize; 2] = [25, 26];

/// The configurations that do something about conditions, for which few queries are of the kind.
pub const ABOUT_CONDITIONS: [usize; 2] = [PARAMETERS, MEMOS];

/// The configuration that takes the plan of another query if there is one; the last one, since updates are planned each.
pub const REUSED: usize = CONFIGURATIONS - 1;

/// The configuration in which path searches read all triples of a step into memory.
const ADJACENCIES: usize = REUSED - 1;

/// The configuration in which subqueries stay as they are.
const NESTED: usize = 30;

/// The configuration in which some rewrites are left out, others for each query.
const DRAWN: usize = 32;

/// The configuration in which single matches, or several, are found before the rest of their group wherever they can be.
const PARAMETERS: usize = 33;

/// The configuration in which EXISTS is a join wherever it can be.
const EXISTS_JOINS: usize = 34;

/// The configuration in which parts of groups are run for the bindings of the others wherever they can be.
const FOR_BINDINGS: usize = 35;

/// The configuration in which what conditions gave is kept for terms from the first row on.
const MEMOS: usize = ADJACENCIES - 1;

/// The configuration in which nothing is done that can be switched off.
pub const OFF: usize = MEMOS - 1;

/// What is counted where that was of use.
pub const KNOWN: &str = "condition known of a term";

/// What is counted for a scan of the terms whose text begins with something.
pub const PREFIX: &str = "ranges of a prefix";

/// Operators, and computed terms, go to disk with the second row.
const EACH_ON_DISK: (u64, usize) = (0, 2);

/// What is counted where computed terms were on disk.
pub const COMPUTED_ON_DISK: &str = "computed terms on disk";

/// What is counted where one had triples in memory, and where another one had read them.
pub const ADJACENCY: &str = "adjacency of a path search";
pub const ADJACENCY_KEPT: &str = "adjacency of an earlier path search";

/// What is counted where several threads did the sweeps of one.
pub const SWEEPERS: &str = "sweeps by several threads";

/// What is counted where several threads joined parts that were on disk.
pub const JOINERS: &str = "parts joined by several threads";

/// What is counted for a plan that was.
pub const REUSED_PLAN: &str = "plan of another query";

/// What is counted for a plan that is another one if subqueries are left as they are.
pub const UNNESTED: &str = "subquery as a part of a group";

/// What is counted where ORDER BY took several ranges.
pub const RANGES: &str = "ranges of an order";

/// What is counted where a key filter dropped a row.
pub const KEY_FILTER: &str = "key filter";

/// What is counted where a scan looked up the keys of a join.
pub const KEYS: &str = "keys of a scan";

/// What is counted where a merge join sent a scan over rows.
pub const LEAPS: &str = "leaps of a scan";

/// What is counted where several threads made the table of a hash join.
pub const PARTITIONS: &str = "partitions of a hash join";

/// What is counted where a join was switched before it had looked up a row, and after.
pub const SWITCHED: &str = "switched join";
pub const SWITCHED_LATE: &str = "switched join after some rows";

impl Bench {
    /// Loads data.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub fn new(data: Data, stored: Stored) -> anyhow::Result<Self> {
        let scratch = Scratch::with_threads(2).with_scheme(stored.scheme);
        if stored.over_delta {
            over_delta::load(
                &scratch,
                (&data.text(), GraphFormat::NQuads, "urn:base", None),
            )?;
        } else {
            scratch.load(data.text(), GraphFormat::NQuads, None, None)?;
        }
        let memory = data.quads.iter().collect();
        let mut bench = Self {
            data,
            stored,
            scratch,
            memory,
            labels: BTreeMap::new(),
        };
        let text = format!("SELECT ?node ?name {{ ?node {} ?name }}", label_predicate());
        let (answer, _) = bench.ask(&text, &QueryOptions::default())?;
        let Answer::Solutions(Solutions { rows, variables }) = answer else {
            bail!("no labels")
        };
        let order = usize::from(variables.first().map(String::as_str) != Some("node"));
        for row in rows {
            if let (Some(Some(Term::BlankNode(node))), Some(Some(Term::Literal(name)))) =
                (row.get(order), row.get(1 - order))
            {
                bench
                    .labels
                    .insert(node.as_str().to_owned(), name.value().to_owned());
            }
        }
        Ok(bench)
    }

    /// The answer of the product, with the data's labels, and the plan.
    fn ask(&self, text: &str, options: &QueryOptions) -> anyhow::Result<(Answer, String)> {
        let run = || -> anyhow::Result<(Answer, String)> {
            let query = self
                .scratch
                .database()
                .prepare(text, options)
                .context("prepare")?;
            let plan = query.explain();
            Ok((crate::answer::answer(query, &mut 0)?, plan))
        };
        // A panic is a difference like others: the case is printed and made smaller.
        let (mut answer, plan) = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result?,
            Err(_) => bail!("it panicked"),
        };
        match &mut answer {
            Answer::Boolean(_) => {}
            Answer::Solutions(solutions) => {
                for cell in solutions.rows.iter_mut().flatten().flatten() {
                    self.rename(cell);
                }
            }
            Answer::Graph(graph) => {
                let mut renamed = Quads::new();
                for quad in graph.iter() {
                    let mut subject = Term::from(quad.subject.into_owned());
                    let mut object = quad.object.into_owned();
                    self.rename(&mut subject);
                    self.rename(&mut object);
                    let subject: NamedOrBlankNode = match subject {
                        Term::NamedNode(node) => node.into(),
                        Term::BlankNode(node) => node.into(),
                        _ => continue,
                    };
                    let predicate = quad.predicate.into_owned();
                    renamed.insert(&Quad::new(
                        subject,
                        predicate,
                        object,
                        GraphName::DefaultGraph,
                    ));
                }
                **graph = renamed;
            }
        }
        Ok((answer, plan))
    }

    /// Counts what a query does that its plan does not show.
    fn count_done(&self, text: &str, options: &QueryOptions, tally: &mut Tally) {
        let is_counted = options.key_filter_rows_min.is_some()
            || options.leap_rows_min.is_some()
            || options.switch_after_rows.is_some()
            || options.forced.ranges.is_some()
            || options.force_adjacency.is_some()
            || options.term_memo_after_rows.is_some()
            || options.spill_after == Some(EACH_ON_DISK);
        if !is_counted {
            return;
        }
        let options = QueryOptions {
            timed: true,
            ..options.clone()
        };
        let query = self.scratch.database().prepare(text, &options);
        let done = query.and_then(crate::answer::done).unwrap_or_default();
        for (name, count) in [
            (KEY_FILTER, done.dropped),
            (KEYS, done.keys),
            (LEAPS, done.leaps),
            (SWITCHED, done.switched),
            (SWITCHED_LATE, done.switched_late),
            (RANGES, done.ranged),
            (ADJACENCY, done.adjacencies + done.adjacencies_kept),
            (ADJACENCY_KEPT, done.adjacencies_kept),
            (COMPUTED_ON_DISK, done.computed_spilled),
            (KNOWN, done.known),
            (PARTITIONS, done.partitions),
            (SWEEPERS, done.sweepers),
            (JOINERS, done.joiners),
        ] {
            *tally.operators.entry(name.to_owned()).or_default() += u64::from(count > 0);
        }
    }

    fn rename(&self, term: &mut Term) {
        if let Term::BlankNode(node) = term
            && let Some(label) = self.labels.get(node.as_str())
        {
            *term = BlankNode::new_unchecked(label.as_str()).into();
        }
        if let Term::Triple(triple) = term {
            let mut subject = Term::from(triple.subject.clone());
            self.rename(&mut subject);
            if let Term::BlankNode(node) = subject {
                triple.subject = node.into();
            }
            self.rename(&mut triple.object);
        }
    }

    /// The text with another term of the data in the place of one constant, two each for some of its constants.
    fn with_other_constants(&self, text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        for quad in &self.data.quads {
            if let NamedOrBlankNode::NamedNode(subject) = &quad.subject {
                terms.push(subject.to_string());
            }
            if matches!(quad.object, Term::NamedNode(_) | Term::Literal(_)) {
                terms.push(quad.object.to_string());
            }
        }
        terms.sort();
        terms.dedup();
        let used: Vec<&String> = terms.iter().filter(|term| text.contains(*term)).collect();
        let texts = used.iter().enumerate().flat_map(|(number, term)| {
            let is_iri = term.starts_with('<');
            let others = terms
                .iter()
                .filter(|other| other.starts_with('<') == is_iri);
            let others = others.filter(|other| !text.contains(*other));
            let others = others.skip(number * 3).take(2);
            let texts = others.map(|other| text.replace(*term, other));
            texts.collect::<Vec<_>>()
        });
        texts.take(8).collect()
    }

    /// Runs a case; `empty_allowed` says whether one with an empty answer counts.
    pub fn check(
        &self,
        query: &Query,
        configurations: &[usize],
        empty_allowed: bool,
        tally: &mut Tally,
    ) -> Verdict {
        let dataset = Dataset::new(&self.data.quads, query);
        let seen = Seen::default();
        let expected = match expected(query, &dataset, &seen) {
            Ok(expected) => expected,
            Err(Fault::Open(reason)) => return Verdict::Skipped(reason),
            Err(Fault::TooLarge) => return Verdict::Skipped("too large"),
            Err(Fault::Error) => return Verdict::Skipped("expression error"),
        };
        if expected.is_empty() && !empty_allowed {
            return Verdict::Skipped("empty");
        }
        let text = print::query(query);
        let reference = catch_unwind(AssertUnwindSafe(|| reference::answer(&self.memory, &text)))
            .unwrap_or_else(|_| {
                if text.contains("ORDER BY") || text.contains("MIN(") || text.contains("MAX(") {
                    seen.note(reference::PANIC);
                }
                Err(anyhow::anyhow!("spareval panicked"))
            });
        if let Err(error) = &reference
            && error.to_string() == "spargebra"
        {
            return Verdict::Failed("syntax", format!("{:?}", error.source()));
        }
        if let Err(error) = &reference
            && error.to_string().contains("is not a valid RDF 1.2 term")
        {
            seen.note(reference::NO_TRIPLE);
        }
        let judges = Judges {
            text: &text,
            expected: &expected,
            dataset: &dataset,
            reference: &reference,
        };
        let mut usual = String::new();
        // What the first run of a path search has read the second one finds.
        let twice = |number: &usize| if *number == ADJACENCIES { 2 } else { 1 };
        let mut runs = configurations
            .iter()
            .flat_map(|number| std::iter::repeat_n(number, twice(number)));
        let checked = runs
            .try_for_each(|number| self.check_in(*number, &judges, &mut usual, tally))
            .and_then(|()| self.check_left_out(&judges, &usual, tally));
        if let Err(difference) = checked {
            return Verdict::Failed("stoa", difference);
        }
        if let Some(failed) = judge_reference(query, &expected, reference, &dataset, &seen, tally) {
            return failed;
        }
        for (name, count) in seen.counts.borrow().iter() {
            *tally.counts.entry((*name).to_owned()).or_default() += count;
        }
        if text.contains("{ SELECT") {
            *tally.counts.entry("subquery".to_owned()).or_default() += 1;
        }
        tally.passed += 1;
        tally.empty += u64::from(expected.is_empty());
        Verdict::Passed
    }

    /// Runs a case in one configuration, and tells how it differs. `usual` is the plan of the first one.
    fn check_in(
        &self,
        number: usize,
        judges: &Judges<'_>,
        usual: &mut String,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let text = judges.text;
        let (name, mut options) = configuration(number);
        if number == DRAWN {
            options.without = drawn(text);
        }
        if number == REUSED {
            // The first plan is kept for its own constants, the second one for others, whatever comes of it.
            for other in self.with_other_constants(text) {
                drop(self.scratch.database().prepare(&other, &options));
            }
        }
        let plan = self.check_with((name, &options), judges)?;
        match number {
            0 => usual.clone_from(&plan),
            NESTED if !usual.is_empty() && plan != *usual => {
                *tally.operators.entry(UNNESTED.to_owned()).or_default() += 1;
            }
            _ => {}
        }
        tally.operators_of(&plan);
        self.count_done(text, &options, tally);
        Ok(())
    }

    /// Runs a case without each of the rewrites that no case has been run without so far, where the plan is another one
    /// than the usual one then. Some are of use so seldom that chance would leave them out where they change nothing.
    fn check_left_out(
        &self,
        judges: &Judges<'_>,
        usual: &str,
        tally: &mut Tally,
    ) -> Result<(), String> {
        for (without, name) in Rewrites::EACH.into_iter().zip(Rewrites::NAMES) {
            let options = QueryOptions {
                without,
                ..configuration(0).1
            };
            let differs = || {
                let query = self.scratch.database().prepare(judges.text, &options);
                query.is_ok_and(|query| query.explain() != usual)
            };
            if !usual.is_empty() && !tally.left_out.contains_key(name) && differs() {
                self.check_with(("a rewrite left out", &options), judges)?;
                tally.left_out.insert(name.to_owned(), 1);
            }
        }
        Ok(())
    }

    /// Runs a case in a way that is called so, and tells how it differs; its plan if it does not.
    fn check_with(
        &self,
        (name, options): (&str, &QueryOptions),
        judges: &Judges<'_>,
    ) -> Result<String, String> {
        let name = match options.without {
            Rewrites::NONE => name.to_owned(),
            without => format!("{name} ({without})"),
        };
        let (answer, plan) = self
            .ask(judges.text, options)
            .map_err(|error| format!("{name}: {error:#}"))?;
        if let Err(difference) = judge(judges.expected, &answer, judges.dataset) {
            let other = match judges.reference {
                Ok(other) => judge(judges.expected, other, judges.dataset),
                Err(error) => Err(error.to_string()),
            };
            let other = other.map_or_else(|e| e, |()| "as expected".to_owned());
            return Err(format!(
                "{name}:\n{difference}\nspareval:\n{other}\nplan:\n{plan}"
            ));
        }
        Ok(plan)
    }
}

/// Rewrites that follow from a text by chance.
fn drawn(text: &str) -> Rewrites {
    let hash = text.bytes().fold(0_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let each = (20..).zip(Rewrites::EACH);
    let drawn = each.filter(|(bit, _)| hash >> bit & 1 == 1);
    drawn.fold(Rewrites::NONE, |all, (_, one)| all.and(one))
}

/// What answers to a case are compared with.
struct Judges<'a> {
    text: &'a str,
    expected: &'a Expected,
    dataset: &'a Dataset,
    reference: &'a anyhow::Result<Answer>,
}

fn judge_reference(
    query: &Query,
    expected: &Expected,
    reference: anyhow::Result<Answer>,
    dataset: &Dataset,
    seen: &Seen,
    tally: &mut Tally,
) -> Option<Verdict> {
    let judged = match reference {
        Ok(answer) => judge(expected, &answer, dataset),
        Err(error) => Err(format!("{error:#}")),
    };
    let difference = judged.err()?;
    match DIFFERENCES
        .iter()
        .find(|known| (known.applies)(query, seen))
    {
        Some(known) => {
            *tally.excused.entry(known.name).or_default() += 1;
            None
        }
        None => Some(Verdict::Failed("spareval", difference)),
    }
}

/// A smaller case that fails likewise, and what it says.
///
/// # Errors
/// If a scratch database cannot be made.
pub fn smaller(bench: &Bench, query: &Query, who: &'static str) -> anyhow::Result<String> {
    let all: Vec<usize> = (0..CONFIGURATIONS).collect();
    let fails = |bench: &Bench, query: &Query| match bench.check(
        query,
        &all,
        true,
        &mut Tally::default(),
    ) {
        Verdict::Failed(other, report) if other == who => Some(report),
        _ => None,
    };
    let mut query = query.clone();
    let mut report = fails(bench, &query).unwrap_or_default();
    let mut trials = 0;
    while let Some((next, said)) = shrink::query(&query).into_iter().find_map(|candidate| {
        trials += 1;
        (trials < 3_000).then(|| fails(bench, &candidate).map(|said| (candidate, said)))?
    }) {
        query = next;
        report = said;
    }
    let mut data = bench.data.clone();
    let mut size = data.quads.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < data.quads.len() {
            let mut candidate = data.clone();
            let mut place = 0;
            candidate.quads.retain(|quad| {
                place += 1;
                // Blank nodes keep their names.
                quad.predicate == label_predicate() || place <= at || place > at + size
            });
            if candidate.quads.len() == data.quads.len() {
                at += size;
                continue;
            }
            candidate.find_graphs();
            match fails(&Bench::new(candidate.clone(), bench.stored)?, &query) {
                Some(said) => {
                    data = candidate;
                    report = said;
                }
                None => at += size,
            }
        }
        size /= 2;
    }
    Ok(format!(
        "data:\n{}query:\n{}\n{report}",
        data.text(),
        print::query(&query)
    ))
}
