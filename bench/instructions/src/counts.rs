//! The kept counts, their file, and the comparison.
//!
//! The file is text: lines of tools with their versions, an empty line, and a line for each query
//! with its name, the instructions of one answer and the answer's bytes. Lines with `#` are for people.

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;

/// How much a count may differ, in thousandths.
const TOLERANCE: u64 = 30;

/// What the file begins with.
const HEAD: &str = "\
# Instructions of the queries in bench/instructions/queries and of updates; `make instructions-accept` writes this file.
# tool, version
";
const HEAD_OF_COUNTS: &str =
    "\n# query or update, instructions, bytes of the answer or quads added\n";

/// Counts, and the tools that gave them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Kept {
    /// Name and version.
    pub(crate) tools: Vec<(String, String)>,
    /// In the order of the queries.
    pub(crate) counts: Vec<Count>,
}

/// What one query takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Count {
    pub(crate) query: String,
    /// Of one answer.
    pub(crate) instructions: u64,
    /// The size of the answer in bytes, which tells whether it is still the same.
    pub(crate) answer_bytes: u64,
}

/// Puts together what the program wrote (name, runs, bytes of the answer) and what was counted.
///
/// # Errors
/// If the two do not belong together.
pub(crate) fn counts(output: &str, instructions: &[u64]) -> anyhow::Result<Vec<Count>> {
    let lines: Vec<&str> = output.lines().collect();
    anyhow::ensure!(
        lines.len() == instructions.len(),
        "{} queries ran and {} were counted",
        lines.len(),
        instructions.len()
    );
    let count = |(line, total): (&&str, &u64)| {
        let mut words = line.split_ascii_whitespace();
        let query = words.next()?.to_owned();
        let runs: u64 = words.next()?.parse().ok()?;
        Some(Count {
            query,
            instructions: total.checked_div(runs)?,
            answer_bytes: words.next()?.parse().ok()?,
        })
    };
    let counts = lines.iter().zip(instructions).map(count);
    let counts: Option<Vec<Count>> = counts.collect();
    counts.with_context(|| format!("the program wrote {output}"))
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for (tool, version) in &self.tools {
            writeln!(f, "{tool} {version}")?;
        }
        f.write_str(HEAD_OF_COUNTS)?;
        for count in &self.counts {
            let Count {
                query,
                instructions,
                answer_bytes,
            } = count;
            writeln!(f, "{query:<11} {instructions:>12} {answer_bytes:>8}")?;
        }
        Ok(())
    }
}

impl FromStr for Kept {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut kept = Self::default();
        let mut in_tools = true;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if line.is_empty() {
                in_tools = false;
                continue;
            }
            let wrong = || format!("a line of the kept counts: {line}");
            if in_tools {
                let (tool, version) = line.split_once(' ').with_context(wrong)?;
                kept.tools.push((tool.to_owned(), version.to_owned()));
                continue;
            }
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [query, instructions, answer_bytes] = *words.as_slice() else {
                anyhow::bail!(wrong());
            };
            kept.counts.push(Count {
                query: query.to_owned(),
                instructions: instructions.parse().with_context(wrong)?,
                answer_bytes: answer_bytes.parse().with_context(wrong)?,
            });
        }
        Ok(kept)
    }
}

/// Kept counts beside those of now.
#[derive(Debug)]
pub(crate) struct Comparison {
    rows: Vec<Row>,
    /// Tools of another version: what was kept, what there is.
    tools: Vec<(String, String, String)>,
}

#[derive(Debug)]
struct Row {
    query: String,
    kept: Option<u64>,
    now: Option<u64>,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Same,
    /// Less than kept by more than the tolerance: good, and to be accepted lest it be lost unseen.
    Fewer,
    More,
    /// Another answer: the counts say nothing.
    OtherAnswer,
    /// On one side only.
    Missing,
}

/// Compares.
pub(crate) fn compare(kept: &Kept, now: &Kept) -> Comparison {
    let of = |counts: &[Count], query: &str| counts.iter().find(|c| c.query == query).cloned();
    let gone = kept.counts.iter().map(|count| &count.query);
    let mut names: Vec<&String> = now.counts.iter().map(|count| &count.query).collect();
    names.extend(gone.filter(|query| of(&now.counts, query).is_none()));
    let rows = names.into_iter().map(|query| {
        let (before, after) = (of(&kept.counts, query), of(&now.counts, query));
        Row {
            query: query.clone(),
            kept: before.as_ref().map(|count| count.instructions),
            now: after.as_ref().map(|count| count.instructions),
            verdict: match (before, after) {
                (Some(before), Some(after)) => verdict(&before, &after),
                _ => Verdict::Missing,
            },
        }
    });
    let rows = rows.collect();
    let version = |tool: &str| kept.tools.iter().find(|(name, _)| name == tool);
    let tools = now.tools.iter().filter_map(|(tool, version_now)| {
        let before = version(tool).map_or("none", |(_, version)| version);
        (before != version_now).then(|| (tool.clone(), before.to_owned(), version_now.clone()))
    });
    Comparison {
        rows,
        tools: tools.collect(),
    }
}

fn verdict(before: &Count, after: &Count) -> Verdict {
    let (before_thousandths, after_thousandths) = (
        u128::from(before.instructions) * 1_000,
        u128::from(after.instructions) * 1_000,
    );
    let allowed = u128::from(before.instructions) * u128::from(TOLERANCE);
    if before.answer_bytes != after.answer_bytes {
        Verdict::OtherAnswer
    } else if after_thousandths > before_thousandths + allowed {
        Verdict::More
    } else if after_thousandths + allowed < before_thousandths {
        Verdict::Fewer
    } else {
        Verdict::Same
    }
}

impl Comparison {
    /// Whether no query takes more than was kept, beyond the tolerance, and all give what they gave.
    pub(crate) fn passes(&self) -> bool {
        let passes = |row: &Row| matches!(row.verdict, Verdict::Same | Verdict::Fewer);
        self.rows.iter().all(passes)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<11} {:>12} {:>12} {:>7}",
            "query", "kept", "now", "ratio"
        )?;
        let number = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        for row in &self.rows {
            let ratio = match (row.kept, row.now) {
                (Some(kept), Some(now)) if kept > 0 => {
                    let thousandths = u128::from(now) * 1_000 / u128::from(kept);
                    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
                }
                _ => "-".to_owned(),
            };
            let (kept, now) = (number(row.kept), number(row.now));
            write!(f, "{:<11} {kept:>12} {now:>12} {ratio:>7}", row.query)?;
            writeln!(
                f,
                "{}",
                match row.verdict {
                    Verdict::Same => "",
                    Verdict::Fewer => "  fewer",
                    Verdict::More => "  MORE",
                    Verdict::OtherAnswer => "  another answer",
                    Verdict::Missing => "  missing",
                }
            )?;
        }
        for (tool, before, now) in &self.tools {
            writeln!(
                f,
                "kept with {tool} {before}, now {now}: counts may differ for that alone"
            )?;
        }
        if !self.passes() {
            writeln!(
                f,
                "beyond {} %: find out why; if it is meant, make instructions-accept, and say why in the commit",
                TOLERANCE / 10
            )?;
        } else if self.rows.iter().any(|row| row.verdict == Verdict::Fewer) {
            writeln!(
                f,
                "fewer by {} % and more: keep it with make instructions-accept",
                TOLERANCE / 10
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
