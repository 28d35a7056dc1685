//! What the instances refer to: the tree of product types, features, and who owns which numbers.

use super::random::{Random, Stream, real, whole};
use super::words::Words;

/// Countries of producers, vendors and persons, with the percentage up to each and its language.
const COUNTRIES: [(u64, &str, &str); 10] = [
    (40, "US", "en"),
    (50, "GB", "en"),
    (60, "JP", "ja"),
    (70, "CN", "zh"),
    (75, "DE", "de"),
    (80, "FR", "fr"),
    (85, "ES", "es"),
    (90, "RU", "ru"),
    (95, "KR", "ko"),
    (100, "AT", "de"),
];

/// Everything that instances are made from.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) seed: u64,
    pub(super) products: u64,
    /// The last product of the main data; those behind it, their offers and reviews are for updates.
    pub(super) last_main: u64,
    /// Whether products have the ancestors of their type as types, too.
    pub(super) chained: bool,
    pub(super) types: Vec<ProductType>,
    /// The number of the first leaf type.
    pub(super) first_leaf: u64,
    pub(super) features: u64,
    pub(super) producers: Owners,
    pub(super) vendors: Owners,
    pub(super) sites: Owners,
    pub(super) persons: Owners,
    pub(super) words: Words,
    pub(super) names: Words,
}

/// A node of the type tree; its number is its index plus one.
#[derive(Clone, Debug)]
pub(super) struct ProductType {
    /// The number of the parent; 0 for the root.
    pub(super) parent: u64,
    pub(super) depth: u64,
    /// The numbers of the features, first and last; none if first is above last.
    pub(super) features: (u64, u64),
}

/// Which consecutive numbers belong to which owner.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// The last number of each owner, ascending.
    lasts: Vec<u64>,
}

impl Owners {
    /// Deals `total` numbers out; `draw` says how many an owner takes.
    fn deal(total: u64, mut draw: impl FnMut(u64) -> u64) -> Self {
        let mut lasts = Vec::new();
        let mut last = 0;
        while last < total {
            last = (last + draw(lasts.len() as u64)).min(total);
            lasts.push(last);
        }
        Self { lasts }
    }

    /// Owners of these last numbers; none unless they ascend, from 1 or more. Owners of nothing repeat a number.
    pub(super) fn of(lasts: Vec<u64>) -> Option<Self> {
        let whole = lasts.first().is_some_and(|&first| first > 0) && lasts.is_sorted();
        whole.then_some(Self { lasts })
    }

    pub(super) fn lasts(&self) -> &[u64] {
        &self.lasts
    }

    /// How many numbers are owned.
    pub(super) fn total(&self) -> u64 {
        self.lasts.last().copied().unwrap_or(0)
    }

    pub(super) fn count(&self) -> u64 {
        self.lasts.len() as u64
    }

    /// The owner of `number`, both from 1.
    pub(super) fn owner(&self, number: u64) -> u64 {
        self.lasts.partition_point(|&last| last < number) as u64 + 1
    }

    /// The numbers of an owner: first and last; empty if first is above last.
    pub(super) fn range(&self, owner: u64) -> (u64, u64) {
        let at = |index: Option<usize>| index.and_then(|i| self.lasts.get(i)).copied();
        let index = usize::try_from(owner - 1).unwrap_or(usize::MAX);
        (
            at(index.checked_sub(1)).unwrap_or(0) + 1,
            at(Some(index)).unwrap_or(0),
        )
    }
}

impl Model {
    pub(super) fn new(products: u64, seed: u64, chained: bool) -> Self {
        let (types, first_leaf, features) = type_tree(products, seed);
        // int(share * z) + 1 with z normal around 3, as all owners of products, offers, reviews.
        let dealt = |total, stream, size: f64| {
            Owners::deal(total, |owner| {
                let mut random = Random::new(seed, stream, owner);
                whole(random.normal_within(3.0, 0.0, f64::INFINITY) * size / 3.0) + 1
            })
        };
        let sites = dealt(10 * products, Stream::Sites, 10_000.0);
        Self {
            seed,
            products,
            last_main: products,
            chained,
            first_leaf,
            features,
            producers: dealt(products, Stream::Producers, 50.0),
            vendors: dealt(20 * products, Stream::Vendors, 2_000.0),
            persons: persons(&sites, seed),
            sites,
            types,
            words: Words::of_texts(seed),
            names: Words::names(seed),
        }
    }

    pub(super) fn offers(&self) -> u64 {
        20 * self.products
    }

    pub(super) fn reviews(&self) -> u64 {
        10 * self.products
    }

    pub(super) fn leaf_count(&self) -> u64 {
        self.types.len() as u64 - (self.first_leaf - 1)
    }

    /// Instances that have triples of their own.
    pub(super) fn instances(&self) -> u64 {
        self.types.len() as u64
            + self.features
            + self.producers.count()
            + self.products
            + self.vendors.count()
            + self.offers()
            + self.persons.count()
            + self.reviews()
    }

    pub(super) fn product_type(&self, number: u64) -> Option<&ProductType> {
        self.types
            .get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Country and language of an instance that draws them first of all.
    pub(super) fn country(random: &mut Random) -> (&'static str, &'static str) {
        let percent = random.below(100);
        let found = COUNTRIES.iter().find(|country| percent < country.0);
        found.map_or(("US", "en"), |country| (country.1, country.2))
    }

    /// The product of an offer, for which this gives the offer's random numbers, too, from behind that draw on.
    pub(super) fn offered(&self, offer: u64) -> (u64, Random) {
        let mut random = Random::new(self.seed, Stream::Offer, offer);
        (self.popular_product(&mut random), random)
    }

    /// As [`Self::offered`], of a review.
    pub(super) fn reviewed(&self, review: u64) -> (u64, Random) {
        let mut random = Random::new(self.seed, Stream::Review, review);
        (self.popular_product(&mut random), random)
    }

    /// The product of an offer or a review: the middle ones are the popular ones.
    fn popular_product(&self, random: &mut Random) -> u64 {
        let z = random.normal_within(2.0, 0.0, 4.0);
        (whole(real(self.products) * z / 4.0) + 1).min(self.products)
    }
}

/// Persons write consecutive reviews of one site; some write none.
fn persons(sites: &Owners, seed: u64) -> Owners {
    let mut lasts = Vec::new();
    for site in 1..=sites.count() {
        let (first, last) = sites.range(site);
        let mut written = first - 1;
        while written < last {
            let mut random = Random::new(seed, Stream::Persons, lasts.len() as u64);
            written += whole(20.0 * random.normal_within(3.0, 0.0, f64::INFINITY) / 3.0);
            written = written.min(last);
            lasts.push(written);
        }
    }
    Owners { lasts }
}

/// The types breadth first, the number of the first leaf, and how many features there are.
fn type_tree(products: u64, seed: u64) -> (Vec<ProductType>, u64, u64) {
    let log = real(products.max(10)).log10();
    let depth = whole((log / 2.0).round()) + 1;
    let last_branching = match whole((1.5 * log + 1.0).round()) % 3 {
        0 => 2,
        1 => 4,
        _ => 8,
    };
    let mut types = vec![ProductType {
        parent: 0,
        depth: 0,
        features: (1, 0),
    }];
    let mut level = 1..=1_u64;
    for current in 1..=depth {
        let branching = match current {
            1 => 2 * whole(log.round()),
            _ if current == depth => last_branching,
            _ => 8,
        };
        for parent in level.clone() {
            for _ in 0..branching {
                types.push(ProductType {
                    parent,
                    depth: current,
                    features: (1, 0),
                });
            }
        }
        level = level.end() + 1..=types.len() as u64;
    }
    let first_leaf = *level.start();
    // S of the reference is D(D+1)/2 - 1; a type at depth d draws from its (d+1)-th share.
    let shares = depth * (depth + 1) / 2 - 1;
    let mut features = 0;
    for (index, product_type) in types.iter_mut().enumerate().skip(1) {
        let step = (product_type.depth + 1).min(depth);
        let mut random = Random::new(seed, Stream::Tree, index as u64);
        let count = random.between(35 * step / shares.max(1), 75 * step / shares.max(1));
        product_type.features = (features + 1, features + count);
        features += count;
    }
    (types, first_leaf, features)
}
