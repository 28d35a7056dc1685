//! The consistency conditions, asked of whatever endpoint has the data.
//!
//! What is asked for are sums and counts of each warehouse and district; that they agree is seen here. A warehouse or
//! district that is missing from an answer, or is there twice, does not agree, either.
//!
//! # References
//! TPC-C 3.3.2.1 to 3.3.2.4.

use std::collections::BTreeMap;

use super::reads::prologue;
use super::session::{Ask, Named, Rows};
use crate::run::endpoint::Failure;
use crate::tpcc::{DISTRICTS, Scale, district, warehouse};

/// What each of the conditions says.
pub(super) const CONDITIONS: [&str; 4] = [
    "W_YTD = sum(D_YTD)",
    "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
    "max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER",
    "sum(O_OL_CNT) = rows of ORDER-LINE",
];

/// A violation: the condition, from 1, and how it is violated.
pub(super) type Violation = (usize, String);

/// Figures of one node, such as a district.
type Figures<const N: usize> = BTreeMap<String, [i64; N]>;

/// Checks all four; gives what violates them.
///
/// # Errors
/// When there is no answer.
pub(super) fn check(ask: &impl Ask, scale: Scale) -> Result<Vec<Violation>, Failure> {
    let warehouses: Vec<String> = (1..=scale.warehouses).map(warehouse).collect();
    let numbers = (1..=scale.warehouses).flat_map(|of| (1..=DISTRICTS).map(move |it| (of, it)));
    let districts: Vec<String> = numbers.map(|(of, number)| district(of, number)).collect();
    let mut found = Found(Vec::new());
    first(ask, &warehouses, &mut found)?;
    second_and_third(ask, &districts, &mut found)?;
    fourth(ask, &districts, &mut found)?;
    found.0.sort();
    Ok(found.0)
}

/// Violations found so far.
struct Found(Vec<Violation>);

impl Found {
    fn unless(&mut self, holds: bool, condition: usize, how: impl FnOnce() -> String) {
        if !holds {
            self.0.push((condition, how()));
        }
    }

    /// The figures of each node that a row tells of; a node that has several rows violates the condition.
    fn figures<const N: usize>(
        &mut self,
        condition: usize,
        rows: &Rows,
        read: impl Fn(Named<'_>) -> Result<[i64; N], Failure>,
    ) -> Result<Figures<N>, Failure> {
        let mut figures = BTreeMap::new();
        for row in rows.iter() {
            let node = row.written("node")?;
            let before = figures.insert(node.clone(), read(row)?);
            self.unless(before.is_none(), condition, || {
                format!("{node} has several values of what it has one of")
            });
        }
        Ok(figures)
    }
}

fn whole(row: Named<'_>, name: &str) -> Result<i64, Failure> {
    i64::try_from(row.count(name)?).map_err(|error| Failure::Error(error.to_string()))
}

fn first(ask: &impl Ask, warehouses: &[String], found: &mut Found) -> Result<(), Failure> {
    let rows = ask.rows(&format!(
        "{}SELECT ?node ?ytd (SUM(?part) AS ?sum) {{ ?d t:warehouse ?node ; t:ytd ?part . ?node t:ytd ?ytd }} GROUP BY ?node ?ytd",
        prologue()
    ))?;
    let sums = found.figures(1, &rows, |row| Ok([row.cents("ytd")?, row.cents("sum")?]))?;
    for node in warehouses {
        match sums.get(node) {
            Some([ytd, sum]) => found.unless(ytd == sum, 1, || {
                format!("{node}: W_YTD is {ytd} cents, sum(D_YTD) {sum}")
            }),
            None => found.unless(false, 1, || format!("{node} is missing")),
        }
    }
    Ok(())
}

fn second_and_third(
    ask: &impl Ask,
    districts: &[String],
    found: &mut Found,
) -> Result<(), Failure> {
    let rows = ask.rows(&format!(
        "{}SELECT ?node ?next (MAX(?k) AS ?last) {{ ?o t:orderOf ?node ; t:number ?k . ?node t:next ?next }} GROUP BY ?node ?next",
        prologue()
    ))?;
    let orders = found.figures(2, &rows, |row| {
        Ok([whole(row, "next")?, whole(row, "last")?])
    })?;
    let rows = ask.rows(&format!(
        "{}SELECT ?node (MIN(?k) AS ?first) (MAX(?k) AS ?last) (COUNT(?k) AS ?count) {{ ?o t:waitsIn ?node ; t:number ?k }} GROUP BY ?node",
        prologue()
    ))?;
    let waiting = found.figures(3, &rows, |row| {
        Ok([
            whole(row, "first")?,
            whole(row, "last")?,
            whole(row, "count")?,
        ])
    })?;
    for node in districts {
        let Some([next, last]) = orders.get(node) else {
            found.unless(false, 2, || format!("{node} is missing"));
            continue;
        };
        found.unless(next - 1 == *last, 2, || {
            format!("{node}: D_NEXT_O_ID is {next}, max(O_ID) {last}")
        });
        // Where nothing waits there is nothing to compare.
        let Some([oldest, newest, count]) = waiting.get(node) else {
            continue;
        };
        found.unless(newest == last, 2, || {
            format!("{node}: max(NO_O_ID) is {newest}, max(O_ID) {last}")
        });
        found.unless(newest - oldest + 1 == *count, 3, || {
            format!("{node}: NEW-ORDER has {count} rows from {oldest} to {newest}")
        });
    }
    Ok(())
}

fn fourth(ask: &impl Ask, districts: &[String], found: &mut Found) -> Result<(), Failure> {
    let rows = ask.rows(&format!(
        "{}SELECT ?node (SUM(?lines) AS ?sum) {{ ?o t:orderOf ?node ; t:lines ?lines }} GROUP BY ?node",
        prologue()
    ))?;
    let sums = found.figures(4, &rows, |row| Ok([whole(row, "sum")?]))?;
    let rows = ask.rows(&format!(
        "{}SELECT ?node (COUNT(?l) AS ?count) {{ ?l t:order ?o . ?o t:orderOf ?node }} GROUP BY ?node",
        prologue()
    ))?;
    let counts = found.figures(4, &rows, |row| Ok([whole(row, "count")?]))?;
    for node in districts {
        let sum = sums.get(node).map_or(0, |[sum]| *sum);
        let count = counts.get(node).map_or(0, |[count]| *count);
        found.unless(sum > 0 && sum == count, 4, || {
            format!("{node}: sum(O_OL_CNT) is {sum}, ORDER-LINE has {count} rows")
        });
    }
    Ok(())
}
