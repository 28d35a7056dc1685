//! A set of queries as a file, so that all engines get exactly the same.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

/// What an answer must be like for its time to count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Expect {
    /// Nothing is known.
    Any,
    /// At least one row or triple.
    Some,
    /// Exactly so many rows.
    Rows(u64),
    /// One row, whose number is at least 1.
    Count,
}

/// A query, or why there is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// Operator and situation, such as `join/chain-2`.
    pub(super) name: String,
    /// The text, or why the data have no such situation.
    pub(super) query: Result<String, String>,
    pub(super) expect: Expect,
    /// Whether the answer is too large to be held: it is compared by counts and a hash.
    pub(super) large: bool,
}

/// All queries for a dataset.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Set {
    pub(super) triples: u64,
    pub(super) entries: Vec<Entry>,
}

impl Expect {
    fn to_json(self) -> Value {
        match self {
            Self::Any => json!("any"),
            Self::Some => json!("some"),
            Self::Rows(rows) => json!(rows),
            Self::Count => json!("count"),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        match (value.as_str(), value.as_u64()) {
            (Some("any"), _) => Some(Self::Any),
            (Some("some"), _) => Some(Self::Some),
            (Some("count"), _) => Some(Self::Count),
            (_, Some(rows)) => Some(Self::Rows(rows)),
            _ => None,
        }
    }
}

impl Entry {
    fn to_json(&self) -> Value {
        match &self.query {
            Ok(query) => json!({
                "name": self.name,
                "query": query,
                "expect": self.expect.to_json(),
                "large": self.large,
            }),
            Err(reason) => json!({ "name": self.name, "skipped": reason }),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        let skipped = text("skipped");
        Some(Self {
            name: text("name")?,
            query: match skipped {
                Some(reason) => Err(reason),
                None => Ok(text("query")?),
            },
            expect: value
                .get("expect")
                .map_or(Some(Expect::Any), Expect::from_json)?,
            large: value.get("large").and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

impl Set {
    /// Queries and the number of situations that the data do not have.
    pub(super) fn counts(&self) -> (usize, usize) {
        let queries = self.entries.iter().filter(|it| it.query.is_ok()).count();
        (queries, self.entries.len() - queries)
    }

    fn body(&self) -> Value {
        let entries: Vec<Value> = self.entries.iter().map(Entry::to_json).collect();
        json!({ "triples": self.triples, "queries": entries })
    }

    /// Names the set in reports; sets with the same hash are the same queries with the same expectations.
    pub(super) fn hash(&self) -> String {
        let digest = Sha1::digest(self.body().to_string());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// # Errors
    /// When the file cannot be written.
    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let file = json!({ "hash": self.hash(), "set": self.body() });
        fs::write(path, format!("{file:#}\n"))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// # Errors
    /// When the file cannot be read, or is not as it was saved.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// The set that is frozen for BSBM with so many products, if there is one.
    ///
    /// # Errors
    /// When it is damaged.
    pub(super) fn frozen(products: u64) -> anyhow::Result<Option<Self>> {
        let text = match products {
            2_848 => include_str!("../../../queries/operators/bsbm-2848.json"),
            28_482 => include_str!("../../../queries/operators/bsbm-28482.json"),
            284_826 => include_str!("../../../queries/operators/bsbm-284826.json"),
            _ => return Ok(None),
        };
        Self::parse(text, "the frozen set").map(Some)
    }

    /// Reads what was saved under `name`.
    fn parse(text: &str, name: &str) -> anyhow::Result<Self> {
        let file: Value =
            serde_json::from_str(text).with_context(|| format!("{name} is no set of queries"))?;
        let entries = file.pointer("/set/queries").and_then(Value::as_array);
        let entries: Option<Vec<Entry>> =
            entries.and_then(|entries| entries.iter().map(Entry::from_json).collect());
        let set = entries.zip(file.pointer("/set/triples").and_then(Value::as_u64));
        let (entries, triples) = set.with_context(|| format!("{name} is no set of queries"))?;
        let set = Self { triples, entries };
        if file.get("hash").and_then(Value::as_str) != Some(&set.hash()) {
            bail!(
                "{name} was changed since it was saved: its hash is {}",
                set.hash()
            );
        }
        Ok(set)
    }
}
