//! What the parameters of the benchmark's queries are drawn from.
//!
//! The driver needs no file of the generator (see [`super::pools`]).

use super::date::{self, days};
use super::model::Model;
use super::pools::Pools;
use super::random::Random;
use super::writer::INSTANCES;

/// A kind of parameter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A leaf of the type tree, uniform.
    LeafType,
    /// A type: first a depth from this one to the leaves', uniform, then a type of it, uniform.
    TypeFrom(u64),
    /// A feature of the type drawn last or of an ancestor of it, other than those drawn already.
    Feature,
    /// 1 to 500.
    Bound,
    Product,
    Review,
    Offer,
    Producer,
    Country,
    /// A word of a product's label.
    Word,
    /// The benchmark's today, as a dateTime.
    Today,
    /// A day and those 28 and 56 days later: `$K` becomes `$K0`, `$K1`, `$K2`.
    Day,
}

impl Kind {
    /// The kind with this name in the files of queries.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "leaf-type" => Self::LeafType,
            "type" => Self::TypeFrom(0),
            "type-below-root" => Self::TypeFrom(1),
            "feature" => Self::Feature,
            "bound" => Self::Bound,
            "product" => Self::Product,
            "review" => Self::Review,
            "offer" => Self::Offer,
            "producer" => Self::Producer,
            "country" => Self::Country,
            "word" => Self::Word,
            "today" => Self::Today,
            "day" => Self::Day,
            _ => return None,
        })
    }
}

/// The parameters of one query, drawn one after the other.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    pools: &'a Pools,
    random: &'a mut Random,
    product_type: u64,
    features: Vec<u64>,
}

impl Pools {
    /// Begins the parameters of one query.
    pub(crate) fn draw<'a>(&'a self, random: &'a mut Random) -> Draw<'a> {
        Draw {
            pools: self,
            random,
            product_type: 1,
            features: Vec::new(),
        }
    }
}

fn iri(path: &str) -> String {
    format!("<{INSTANCES}{path}>")
}

impl Draw<'_> {
    /// What stands for the parameter `name`: pairs of a name and its text.
    pub(crate) fn next(&mut self, name: &str, kind: Kind) -> Vec<(String, String)> {
        if kind == Kind::Day {
            return self.days(name);
        }
        vec![(name.to_owned(), self.text(kind))]
    }

    /// A type of exactly this depth, in place of a draw of [`Kind::TypeFrom`].
    pub(crate) fn type_of_depth(&mut self, depth: u64) -> String {
        let types = &self.pools.types;
        let first = types.partition_point(|node| node.depth < depth) as u64;
        let end = types.partition_point(|node| node.depth <= depth) as u64;
        self.product_type = first + 1 + self.random.below((end - first).max(1));
        iri(&format!("ProductType{}", self.product_type))
    }

    fn text(&mut self, kind: Kind) -> String {
        let pools = self.pools;
        match kind {
            Kind::LeafType => self.type_of_depth(self.pools.depth()),
            Kind::TypeFrom(lowest) => {
                let depth = self.random.between(lowest, self.pools.depth());
                self.type_of_depth(depth)
            }
            Kind::Feature => self.feature(),
            Kind::Bound => self.random.between(1, 500).to_string(),
            Kind::Product => {
                let product = self.random.between(1, pools.producers.total());
                let producer = pools.producers.owner(product);
                iri(&format!("dataFromProducer{producer}/Product{product}"))
            }
            Kind::Review => {
                let review = self.random.between(1, pools.sites.total());
                let site = pools.sites.owner(review);
                iri(&format!("dataFromRatingSite{site}/Review{review}"))
            }
            Kind::Offer => {
                let offer = self.random.between(1, pools.vendors.total());
                let vendor = pools.vendors.owner(offer);
                iri(&format!("dataFromVendor{vendor}/Offer{offer}"))
            }
            Kind::Producer => {
                let producer = self.random.between(1, pools.producers.count());
                iri(&format!("dataFromProducer{producer}/Producer{producer}"))
            }
            Kind::Country => {
                let country = Model::country(self.random).0;
                format!("<http://downlode.org/rdf/iso-3166/countries#{country}>")
            }
            Kind::Word => {
                let words = &self.pools.label_words;
                let index = self.random.below(words.len() as u64);
                let word = usize::try_from(index).ok().and_then(|at| words.get(at));
                word.cloned().unwrap_or_default()
            }
            Kind::Today | Kind::Day => {
                "\"2008-06-20T00:00:00\"^^<http://www.w3.org/2001/XMLSchema#dateTime>".to_owned()
            }
        }
    }

    fn feature(&mut self) -> String {
        let pool = self.feature_pool();
        let drawn = &self.features;
        let fresh = pool.iter().filter(|feature| !drawn.contains(feature));
        let candidates: Vec<u64> = if self.pools.repeat_features {
            pool
        } else {
            fresh.copied().collect()
        };
        let index = self.random.below((candidates.len() as u64).max(1));
        let feature = usize::try_from(index)
            .ok()
            .and_then(|at| candidates.get(at));
        let feature = feature.copied().unwrap_or(1);
        self.features.push(feature);
        iri(&format!("ProductFeature{feature}"))
    }

    /// The features of the type drawn last and of all its ancestors.
    fn feature_pool(&self) -> Vec<u64> {
        let mut pool = Vec::new();
        let mut node = self.pools.product_type(self.product_type);
        while let Some(product_type) = node {
            let (first, last) = product_type.features;
            pool.extend(first..=last);
            node = self.pools.product_type(product_type.parent);
        }
        pool
    }

    fn days(&mut self, name: &str) -> Vec<(String, String)> {
        let offset = i64::try_from(self.random.below(310)).unwrap_or(0);
        let first = days(2007, 6, 20) + offset;
        (0..3)
            .map(|index| {
                let mut text = Vec::new();
                date::write(first + 28 * index, &mut text);
                (
                    format!("{name}{index}"),
                    String::from_utf8_lossy(&text).into_owned(),
                )
            })
            .collect()
    }
}
