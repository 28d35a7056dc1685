//! The owners, types and words that parameters are drawn from, and the file that keeps them.
//!
//! They follow from the number of products and the seed, so a driver makes them itself; the file is for data that another
//! version of the generator has made, and for drivers of others.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::model::{Model, Owners, ProductType};
use super::random::{Random, Stream};

/// What a file of pools says that it is.
const KIND: &str = "bsbm pools 1";

/// Features of a type at most; the generator gives up to 75.
const FEATURES_MAX: u64 = 10_000;

/// Draws parameters for one dataset.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(super) types: Vec<ProductType>,
    pub(super) producers: Owners,
    pub(super) vendors: Owners,
    pub(super) sites: Owners,
    pub(super) label_words: Vec<String>,
    /// Draw features with repetition, as the original driver does by mistake.
    pub(super) repeat_features: bool,
}

impl Pools {
    /// Pools of the dataset that `generate bsbm` makes of the same number of products and seed.
    pub(crate) fn new(products: u64, seed: u64, repeat_features: bool) -> Self {
        Self {
            repeat_features,
            ..Self::of(Model::new(products, seed, true))
        }
    }

    /// Pools of a dataset, all products, offers and reviews of it, those of update transactions included.
    pub(super) fn of(model: Model) -> Self {
        Self {
            label_words: label_words(&model),
            types: model.types,
            producers: model.producers,
            vendors: model.vendors,
            sites: model.sites,
            repeat_features: false,
        }
    }

    /// How many products the dataset has.
    pub(crate) fn products(&self) -> u64 {
        self.producers.total()
    }

    /// The depth of the leaf types.
    pub(crate) fn depth(&self) -> u64 {
        self.types.last().map_or(0, |leaf| leaf.depth)
    }

    pub(super) fn product_type(&self, number: u64) -> Option<&ProductType> {
        self.types
            .get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// The random numbers of mix `number` of a run.
    pub(crate) fn random(seed: u64, number: u64) -> Random {
        Random::new(seed, Stream::Mix, number)
    }

    /// Writes them as an object of JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let types = self
            .types
            .iter()
            .map(|node| json!([node.parent, node.depth, node.features.0, node.features.1]));
        let value = json!({
            "kind": KIND,
            "products": self.products(),
            "offers": self.vendors.total(),
            "reviews": self.sites.total(),
            "today": "2008-06-20",
            "types: parent, depth, first and last feature": types.collect::<Vec<_>>(),
            "last product of each producer": self.producers.lasts(),
            "last offer of each vendor": self.vendors.lasts(),
            "last review of each rating site": self.sites.lasts(),
            "words of product labels": self.label_words,
        });
        std::fs::write(path, format!("{value}\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads what [`Self::save`] has written.
    ///
    /// # Errors
    /// When the file cannot be read, or is no such file.
    pub(crate) fn load(path: &Path, repeat_features: bool) -> anyhow::Result<Self> {
        let read = || {
            let text = std::fs::read_to_string(path)?;
            Self::parse(&serde_json::from_str(&text)?, repeat_features)
        };
        read().with_context(|| format!("reading pools of {}", path.display()))
    }

    fn parse(value: &Value, repeat_features: bool) -> anyhow::Result<Self> {
        let kind = value.get("kind").and_then(Value::as_str);
        ensure!(kind == Some(KIND), "it is not of kind {KIND}");
        let owners = |name: &str, all: &str| {
            let owners = Owners::of(list(value, name, |last| last.as_u64())?);
            let owners = owners.with_context(|| format!("{name}: not ascending numbers"))?;
            let count = value.get(all).and_then(Value::as_u64);
            ensure!(
                count == Some(owners.total()),
                "{name}: the last is not that of all {all}"
            );
            Ok(owners)
        };
        let name = "types: parent, depth, first and last feature";
        let types = list(value, name, |node| {
            let number = |at: usize| node.get(at)?.as_u64();
            Some(ProductType {
                parent: number(0)?,
                depth: number(1)?,
                features: (number(2)?, number(3)?),
            })
        })?;
        for (node, index) in types.iter().zip(0..) {
            // Breadth first: a parent comes before its children, and depths do not decrease.
            let parent = usize::try_from(node.parent).ok();
            let above = match parent.and_then(|parent| parent.checked_sub(1)) {
                None => None,
                Some(parent) if parent < index => types.get(parent).map(|parent| parent.depth),
                Some(parent) => bail!("type {} has the parent {}", index + 1, parent + 1),
            };
            let depth = above.map_or(0, |depth| depth + 1);
            let before = index.checked_sub(1).and_then(|before| types.get(before));
            let falls = before.is_some_and(|before| before.depth > depth);
            ensure!(
                node.depth == depth && !falls && (index == 0) == above.is_none(),
                "type {} is not at depth {}",
                index + 1,
                node.depth
            );
            let (first, last) = node.features;
            let few = last < first || last - first < FEATURES_MAX;
            ensure!(few, "type {} has features {first} to {last}", index + 1);
        }
        let words = "words of product labels";
        Ok(Self {
            types,
            producers: owners("last product of each producer", "products")?,
            vendors: owners("last offer of each vendor", "offers")?,
            sites: owners("last review of each rating site", "reviews")?,
            label_words: list(value, words, |word| word.as_str().map(str::to_owned))?,
            repeat_features,
        })
    }
}

/// The items of a list that is not empty.
fn list<T>(
    value: &Value,
    name: &str,
    item: impl Fn(&Value) -> Option<T>,
) -> anyhow::Result<Vec<T>> {
    let items = value.get(name).and_then(Value::as_array);
    let items = items.map(|items| items.iter().map(item).collect::<Option<Vec<T>>>());
    match items {
        Some(Some(items)) if !items.is_empty() => Ok(items),
        _ => bail!("{name}: missing or damaged"),
    }
}

/// The distinct words of all products' labels.
fn label_words(model: &Model) -> Vec<String> {
    let mut words = BTreeSet::new();
    let mut label = Vec::new();
    for product in 1..=model.products {
        label.clear();
        let mut random = Random::new(model.seed, Stream::Product, product);
        model.words.sentence(&mut random, 1, 3, &mut label);
        let label = String::from_utf8_lossy(&label);
        words.extend(label.split(' ').map(str::to_owned));
    }
    words.into_iter().collect()
}
