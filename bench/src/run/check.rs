//! Comparing an answer with that of a second endpoint.
//!
//! Rows are compared as multisets, numbers by value. Of ORDER BY only the keys count: rows with the same keys may come in
//! any order, and a LIMIT that cuts through them may keep any of them. For that the second endpoint is asked without the
//! LIMIT, as far as the keys of the last row reach, and with the keys as variables of their own.

use anyhow::{Context as _, bail};
use oxrdf::vocab::xsd;
use oxrdf::{Term, Variable};
use spargebra::algebra::{GraphPattern, OrderExpression};
use spargebra::{Query, SparqlParser};

use super::answer::{Answer, Row, order, same_row, same_term};
use super::endpoint::{Endpoint, Failure, Measured};

/// What a query says about the order and number of its rows.
#[derive(Debug)]
struct Shape {
    /// The query without its LIMIT and OFFSET; the keys of ORDER BY are its last variables.
    whole: Query,
    keys: usize,
    distinct: bool,
    offset: usize,
    limit: Option<usize>,
}

/// The verdict about one answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Right,
    /// What is wrong.
    Wrong(String),
    /// Nothing can be said: why.
    Unknown(String),
}

/// Why nothing can be said when an endpoint did not answer in time.
pub(crate) const TIME_OUT: &str = "time-out";

/// What it says of an answer that the endpoint does not give once more: one that is late is not wrong.
pub(crate) fn not_again(error: &anyhow::Error) -> Verdict {
    match format!("{error:#}") {
        late if late == TIME_OUT => Verdict::Unknown("time-out when asked again".to_owned()),
        wrong => Verdict::Wrong(wrong),
    }
}

/// Asks both endpoints and compares; `timed` is what was measured of the answer that is to be verified.
pub(crate) fn check(
    query: &str,
    timed: &Measured,
    tested: &Endpoint,
    trusted: &Endpoint,
) -> Verdict {
    let answer = match asked(tested, query) {
        Ok(answer) => answer,
        Err(error) => return not_again(&error),
    };
    if let Answer::Solutions { rows, .. } = &answer
        && rows.len() as u64 != timed.rows
    {
        let (now, then) = (rows.len(), timed.rows);
        return Verdict::Wrong(format!(
            "{then} rows when it was timed, {now} when asked again"
        ));
    }
    match compare(query, &answer, |query| asked(trusted, query)) {
        Ok(None) => Verdict::Right,
        Ok(Some(difference)) => Verdict::Wrong(difference),
        Err(error) => Verdict::Unknown(format!("{error:#}")),
    }
}

fn asked(endpoint: &Endpoint, query: &str) -> anyhow::Result<Answer> {
    let mut body = Vec::new();
    match endpoint.ask(query, Some(&mut body)).failure {
        None => Answer::parse(&body),
        Some(Failure::TimeOut) => bail!(TIME_OUT),
        Some(Failure::Error(message)) => bail!(message),
    }
}

/// Says how `answer` differs from what `ask` answers to the query, if it does.
///
/// # Errors
/// When the query cannot be read, or `ask` has no answer.
pub(crate) fn compare(
    query: &str,
    answer: &Answer,
    ask: impl Fn(&str) -> anyhow::Result<Answer>,
) -> anyhow::Result<Option<String>> {
    let parsed = SparqlParser::new()
        .parse_query(query)
        .context("the query is not understood")?;
    let describe = matches!(parsed, Query::Describe { .. });
    let Answer::Solutions { variables, rows } = answer else {
        let expected = ask(query)?;
        return Ok(match (&expected, answer) {
            // Engines describe a resource by what they like.
            (Answer::Graph(expected), Answer::Graph(found)) if describe => (expected.is_empty()
                != found.is_empty())
            .then(|| format!("{} triples, expected {}", found.len(), expected.len())),
            (Answer::Graph(expected), Answer::Graph(found)) if expected != found => {
                let missing = expected.difference(found).next();
                let more = found.difference(expected).next();
                Some(format!("missing: {missing:?}; too much: {more:?}"))
            }
            (Answer::Boolean(expected), Answer::Boolean(found)) if expected != found => {
                Some(format!("{found}, expected {expected}"))
            }
            (Answer::Graph(_), Answer::Graph(_)) | (Answer::Boolean(_), Answer::Boolean(_)) => None,
            _ => Some("an answer of another form".to_owned()),
        });
    };
    let shape = Shape::of(parsed)?;
    let (expected, keys) = shape.expected(variables, ask)?;
    Ok(shape.difference(rows, &expected, &keys))
}

impl Shape {
    fn of(query: Query) -> anyhow::Result<Self> {
        let Query::Select {
            dataset,
            pattern,
            base_iri,
        } = query
        else {
            bail!("solutions for a query that is no SELECT");
        };
        let (pattern, offset, limit) = match pattern {
            GraphPattern::Slice {
                inner,
                start,
                length,
            } => (*inner, start, length),
            pattern => (pattern, 0, None),
        };
        let (pattern, distinct) = match pattern {
            GraphPattern::Distinct { inner } => (*inner, true),
            pattern => (pattern, false),
        };
        let GraphPattern::Project {
            inner,
            mut variables,
        } = pattern
        else {
            bail!("a SELECT without a projection");
        };
        let mut keys = 0;
        let inner = match *inner {
            GraphPattern::OrderBy { inner, expression } => {
                let mut inner = *inner;
                for key in &expression {
                    let (OrderExpression::Asc(expression) | OrderExpression::Desc(expression)) =
                        key;
                    let variable = Variable::new_unchecked(format!("sortKey{keys}"));
                    inner = GraphPattern::Extend {
                        inner: Box::new(inner),
                        variable: variable.clone(),
                        expression: expression.clone(),
                    };
                    variables.push(variable);
                    keys += 1;
                }
                GraphPattern::OrderBy {
                    inner: Box::new(inner),
                    expression,
                }
            }
            inner => inner,
        };
        let whole = GraphPattern::Project {
            inner: Box::new(inner),
            variables,
        };
        Ok(Self {
            whole: Query::Select {
                dataset,
                pattern: whole,
                base_iri,
            },
            keys,
            distinct,
            offset,
            limit,
        })
    }

    /// The rows of the trusted endpoint from the first one on, as far as they matter, with the values of `variables`; and
    /// their keys.
    fn expected(
        &self,
        variables: &[String],
        ask: impl Fn(&str) -> anyhow::Result<Answer>,
    ) -> anyhow::Result<(Vec<Row>, Vec<Row>)> {
        let end = self.limit.map(|limit| self.offset.saturating_add(limit));
        let mut fetched = end.filter(|_| self.keys > 0).map(|end| 2 * end + 1_000);
        loop {
            let answer = ask(&self.text(fetched))?;
            let Answer::Solutions {
                variables: columns,
                rows,
            } = answer
            else {
                bail!("the trusted endpoint answers with something else");
            };
            let count = rows.len();
            let (rows, keys) = self.split(variables, &columns, rows)?;
            let (Some(limit), Some(end)) = (fetched, end) else {
                return Ok((rows, keys));
            };
            // The rows that tie with the last one that is wanted must all be there.
            let ends = count < limit
                || match (keys.get(end.saturating_sub(1)), keys.last()) {
                    (Some(wanted), Some(last)) => !tie(wanted, last),
                    _ => false,
                };
            if ends {
                return Ok((rows, keys));
            }
            fetched = Some(limit * 8);
        }
    }

    fn text(&self, limit: Option<usize>) -> String {
        let mut query = self.whole.clone();
        if let (Some(limit), Query::Select { pattern, .. }) = (limit, &mut query) {
            *pattern = GraphPattern::Slice {
                inner: Box::new(pattern.clone()),
                start: 0,
                length: Some(limit),
            };
        }
        query.to_string()
    }

    /// Tells the values of the query's variables from those of its keys, and leaves repeated rows out under DISTINCT.
    fn split(
        &self,
        variables: &[String],
        columns: &[String],
        rows: Vec<Row>,
    ) -> anyhow::Result<(Vec<Row>, Vec<Row>)> {
        let keys: Vec<String> = (0..self.keys).map(|key| format!("sortKey{key}")).collect();
        let place = |name: &String| {
            columns
                .iter()
                .position(|column| column == name)
                .with_context(|| format!("the trusted endpoint has no variable ?{name}"))
        };
        let values: Vec<usize> = variables.iter().map(place).collect::<Result<_, _>>()?;
        let keys: Vec<usize> = keys.iter().map(place).collect::<Result<_, _>>()?;
        let pick = |row: &Row, places: &[usize]| -> Row {
            places
                .iter()
                .map(|&at| row.get(at).cloned().flatten())
                .collect()
        };
        let mut seen = std::collections::BTreeSet::new();
        let kept = rows
            .iter()
            .filter(|row| !self.distinct || seen.insert(format!("{:?}", pick(row, &values))));
        Ok(kept
            .map(|row| (pick(row, &values), pick(row, &keys)))
            .unzip())
    }

    fn difference(&self, found: &[Row], expected: &[Row], keys: &[Row]) -> Option<String> {
        let wanted = expected.len().saturating_sub(self.offset);
        let wanted = self.limit.map_or(wanted, |limit| wanted.min(limit));
        if found.len() != wanted {
            return Some(format!("{} rows, expected {wanted}", found.len()));
        }
        let mut start = 0;
        while start < expected.len() {
            let first = keys.get(start)?;
            let same = keys.iter().skip(start);
            let end = start + same.take_while(|key| tie(key, first)).count();
            // Where the rows that tie lie within what was found.
            let from = start.saturating_sub(self.offset).min(found.len());
            let to = end.saturating_sub(self.offset).min(found.len());
            let (group, part) = (expected.get(start..end)?, found.get(from..to)?);
            if let Some(row) = foreign(part, group) {
                let expected = group.first().map(shown).unwrap_or_default();
                let number = from + 1;
                return Some(format!(
                    "row {number} is not expected there: {row}; but such as {expected}"
                ));
            }
            start = end;
        }
        None
    }
}

/// Whether rows with these keys may come in any order: the keys are the same, or the same as far as one that is a float or a
/// double, whose last digits follow from the order of a sum and decide before the keys behind it do.
fn tie(left: &Row, right: &Row) -> bool {
    for (left, right) in left.iter().zip(right) {
        if !same_term(left.as_ref(), right.as_ref()) {
            return false;
        }
        let inexact = |term: &Option<Term>| matches!(term, Some(Term::Literal(it)) if it.datatype() == xsd::FLOAT || it.datatype() == xsd::DOUBLE);
        if inexact(left) || inexact(right) {
            return true;
        }
    }
    true
}

/// A row of `part` that is not in `group`, or not as often.
fn foreign(part: &[Row], group: &[Row]) -> Option<String> {
    let sorted = |rows: &[Row]| {
        let mut rows = rows.to_vec();
        rows.sort_by(|left, right| order(left, right));
        rows
    };
    let (part, group) = (sorted(part), sorted(group));
    let mut rest = group.iter();
    part.into_iter()
        .find(|row| !rest.any(|other| same_row(row, other)))
        .map(|row| shown(&row))
}

fn shown(row: &Row) -> String {
    let cells = row.iter().map(|cell| match cell {
        Some(term) => term.to_string(),
        None => "-".to_owned(),
    });
    cells.collect::<Vec<_>>().join(" ")
}
