//! The triples of each class of instances.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

use super::date::{DAY_MS, TODAY, days};
use super::model::Model;
use super::random::{Random, Stream, whole};
use super::writer::{Datatype, Format, Writer};

const TYPE: (&str, &str) = ("rdf", "type");
const LABEL: (&str, &str) = ("rdfs", "label");
const COMMENT: (&str, &str) = ("rdfs", "comment");
const PUBLISHER: (&str, &str) = ("dc", "publisher");
const DATE: (&str, &str) = ("dc", "date");
const COUNTRY: (&str, &str) = ("b", "country");
const INSTITUTION: &str = "StandardizationInstitution1";

/// How far from its leaf probability a feature is taken over to a product.
const FEATURE_PROBABILITY: f64 = 0.25;

/// Writes instances of one model; paths are kept to be reused.
pub(super) struct Instances<'a> {
    model: &'a Model,
    format: Format,
    path: String,
}

/// A uniform day from `first` up to but not including `end`.
fn day(random: &mut Random, first: i64, end: i64) -> i64 {
    instant(random, first * DAY_MS, end * DAY_MS).div_euclid(DAY_MS)
}

/// A uniform instant in milliseconds from `first` up to but not including `end`.
fn instant(random: &mut Random, first: i64, end: i64) -> i64 {
    let span = u64::try_from(end - first).unwrap_or(1).max(1);
    first + i64::try_from(random.below(span)).unwrap_or(0)
}

impl<'a> Instances<'a> {
    pub(super) fn new(model: &'a Model, format: Format) -> Self {
        Self {
            model,
            format,
            path: String::new(),
        }
    }

    /// Begins the instance at the path that `arguments` give, and returns the path.
    fn begin(&mut self, writer: &mut Writer, arguments: std::fmt::Arguments<'_>) {
        self.set_path(arguments);
        writer.subject(&self.path);
    }

    fn set_path(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.path.clear();
        // Writing to a string cannot fail.
        self.path.write_fmt(arguments).unwrap_or_default();
    }

    fn label_and_comment(&self, writer: &mut Writer, random: &mut Random, low: u64, high: u64) {
        let words = &self.model.words;
        writer.plain(LABEL, |out| words.sentence(random, 1, 3, out));
        writer.plain(COMMENT, |out| words.sentence(random, low, high, out));
    }

    pub(super) fn product_type(&mut self, number: u64, writer: &mut Writer) {
        let mut random = Random::new(self.model.seed, Stream::Type, number);
        self.begin(writer, format_args!("ProductType{number}"));
        writer.named(TYPE, ("b", "ProductType"));
        let parent = self
            .model
            .product_type(number)
            .map_or(0, |node| node.parent);
        if parent == 0 {
            writer.plain(LABEL, |out| out.extend_from_slice(b"Thing"));
            writer.plain(COMMENT, |out| {
                out.extend_from_slice(b"The Product Type of all Products");
            });
        } else {
            self.label_and_comment(writer, &mut random, 20, 50);
            self.set_path(format_args!("ProductType{parent}"));
            writer.instance(("rdfs", "subClassOf"), &self.path);
        }
        self.standard(writer, &mut random);
    }

    pub(super) fn feature(&mut self, number: u64, writer: &mut Writer) {
        let mut random = Random::new(self.model.seed, Stream::Feature, number);
        self.begin(writer, format_args!("ProductFeature{number}"));
        writer.named(TYPE, ("b", "ProductFeature"));
        self.label_and_comment(writer, &mut random, 20, 50);
        self.standard(writer, &mut random);
    }

    fn standard(&self, writer: &mut Writer, random: &mut Random) {
        writer.instance(PUBLISHER, INSTITUTION);
        writer.date(DATE, day(random, days(2000, 6, 20), days(2000, 7, 23)));
    }

    pub(super) fn producer(&mut self, number: u64, writer: &mut Writer) {
        let mut random = Random::new(self.model.seed, Stream::Producer, number);
        self.begin(
            writer,
            format_args!("dataFromProducer{number}/Producer{number}"),
        );
        self.company(writer, &mut random, "Producer", number);
        writer.date(DATE, day(&mut random, days(2000, 8, 20), days(2005, 7, 23)));
    }

    pub(super) fn vendor(&mut self, number: u64, writer: &mut Writer) {
        let mut random = Random::new(self.model.seed, Stream::Vendor, number);
        self.begin(
            writer,
            format_args!("dataFromVendor{number}/Vendor{number}"),
        );
        self.company(writer, &mut random, "Vendor", number);
        writer.date(DATE, day(&mut random, TODAY - 97, TODAY));
    }

    /// What producers and vendors have in common; `self.path` is the instance's own.
    fn company(&self, writer: &mut Writer, random: &mut Random, class: &str, number: u64) {
        writer.named(TYPE, ("b", class));
        self.label_and_comment(writer, random, 20, 50);
        // The original tools write vendors' homepages in lower case.
        let host = if class == "Vendor" { "vendor" } else { class };
        writer.iri(
            ("foaf", "homepage"),
            &format!("http://www.{host}{number}.com/"),
        );
        writer.named(COUNTRY, ("c", Model::country(random).0));
        writer.instance(PUBLISHER, &self.path);
    }

    pub(super) fn product(&mut self, number: u64, writer: &mut Writer) {
        let model = self.model;
        let mut random = Random::new(model.seed, Stream::Product, number);
        let producer = model.producers.owner(number);
        self.begin(
            writer,
            format_args!("dataFromProducer{producer}/Product{number}"),
        );
        writer.named(TYPE, ("b", "Product"));
        self.label_and_comment(writer, &mut random, 50, 150);
        let leaves = model.leaf_count();
        let z = random.normal_within(0.0, 0.0, 2.0);
        let leaf = model.first_leaf + scaled(leaves, z).min(leaves - 1);
        let path = self.type_path(leaf);
        for &number in path.iter().take(if model.chained { usize::MAX } else { 1 }) {
            self.set_path(format_args!("ProductType{number}"));
            writer.instance(TYPE, &self.path);
        }
        self.set_path(format_args!(
            "dataFromProducer{producer}/Producer{producer}"
        ));
        writer.instance(("b", "producer"), &self.path);
        self.properties(writer, &mut random);
        for number in path {
            let (first, last) = model
                .product_type(number)
                .map_or((1, 0), |node| node.features);
            for feature in first..=last {
                if random.chance(FEATURE_PROBABILITY) {
                    self.set_path(format_args!("ProductFeature{feature}"));
                    writer.instance(("b", "productFeature"), &self.path);
                }
            }
        }
        self.set_path(format_args!(
            "dataFromProducer{producer}/Producer{producer}"
        ));
        writer.instance(PUBLISHER, &self.path);
        writer.date(
            DATE,
            day(&mut random, days(2000, 10, 20), days(2007, 1, 23)),
        );
    }

    /// A type and its ancestors up to the root.
    fn type_path(&self, leaf: u64) -> Vec<u64> {
        let mut path = vec![leaf];
        let mut current = leaf;
        while let Some(node) = self
            .model
            .product_type(current)
            .filter(|node| node.parent != 0)
        {
            current = node.parent;
            path.push(current);
        }
        path
    }

    /// Numeric and textual properties 1 to 6; which of 4 to 6 there are depends on the shape.
    fn properties(&self, writer: &mut Writer, random: &mut Random) {
        const NUMERIC: [&str; 6] = [
            "productPropertyNumeric1",
            "productPropertyNumeric2",
            "productPropertyNumeric3",
            "productPropertyNumeric4",
            "productPropertyNumeric5",
            "productPropertyNumeric6",
        ];
        const TEXTUAL: [&str; 6] = [
            "productPropertyTextual1",
            "productPropertyTextual2",
            "productPropertyTextual3",
            "productPropertyTextual4",
            "productPropertyTextual5",
            "productPropertyTextual6",
        ];
        let shape = random.below(100);
        let probabilities = match shape {
            0..40 => [1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
            40..60 => [1.0, 1.0, 1.0, 0.5, 0.25, 0.0],
            _ => [1.0, 1.0, 1.0, 0.0, 0.25, 0.5],
        };
        for (name, probability) in NUMERIC.iter().zip(probabilities) {
            if random.chance(probability) {
                let z = random.normal_within(0.0, 0.0, 2.0);
                writer.integer(("b", name), (whole(1000.0 * z) + 1).min(2000));
            }
        }
        for (name, probability) in TEXTUAL.iter().zip(probabilities) {
            if random.chance(probability) {
                writer.typed(("b", name), Datatype::String, |out| {
                    self.model.words.sentence(random, 3, 15, out);
                });
            }
        }
    }

    pub(super) fn offer(&mut self, number: u64, writer: &mut Writer) {
        let model = self.model;
        let (product, mut random) = model.offered(number);
        let vendor = model.vendors.owner(number);
        self.begin(writer, format_args!("dataFromVendor{vendor}/Offer{number}"));
        writer.named(TYPE, ("b", "Offer"));
        let producer = model.producers.owner(product);
        self.set_path(format_args!("dataFromProducer{producer}/Product{product}"));
        writer.instance(("b", "product"), &self.path);
        self.set_path(format_args!("dataFromVendor{vendor}/Vendor{vendor}"));
        writer.instance(("b", "vendor"), &self.path);
        let cents = random.between(500, 999_999);
        writer.typed(("b", "price"), Datatype::Usd, |out| {
            out.extend_from_slice(format!("{}.{:02}", cents / 100, cents % 100).as_bytes());
        });
        let offered = instant(&mut random, (TODAY - 97) * DAY_MS, TODAY * DAY_MS);
        let back = i64::try_from(random.between(0, 90)).unwrap_or(0);
        let ahead = i64::try_from(random.between(7, 90)).unwrap_or(0);
        writer.midnight(("b", "validFrom"), offered.div_euclid(DAY_MS) - back);
        writer.midnight(("b", "validTo"), offered.div_euclid(DAY_MS) + ahead);
        let z = random.normal_within(2.0, 0.0, 14.2);
        writer.integer(("b", "deliveryDays"), (whole(21.0 * z / 14.2) + 1).min(21));
        self.set_path(format_args!("dataFromVendor{vendor}/Offer{number}/"));
        writer.instance(("b", "offerWebpage"), &self.path);
        self.set_path(format_args!("dataFromVendor{vendor}/Vendor{vendor}"));
        writer.instance(PUBLISHER, &self.path);
        writer.date(DATE, offered.div_euclid(DAY_MS));
    }

    /// A person and what he or she wrote about products of the main data.
    pub(super) fn person(&mut self, number: u64, writer: &mut Writer) {
        let model = self.model;
        let mut random = Random::new(model.seed, Stream::Person, number);
        let (first, last) = model.persons.range(number);
        // One without reviews belongs to the site of the next review.
        let site = model.sites.owner(first.min(model.reviews()));
        let (country, language) = Model::country(&mut random);
        self.begin(
            writer,
            format_args!("dataFromRatingSite{site}/Reviewer{number}"),
        );
        writer.named(TYPE, ("foaf", "Person"));
        writer.plain(("foaf", "name"), |out| {
            out.extend_from_slice(model.names.draw(&mut random).as_bytes());
        });
        let bytes = u32::try_from(random.below(1 << 32))
            .unwrap_or(0)
            .to_be_bytes();
        writer.plain(("foaf", "mbox_sha1sum"), |out| {
            for byte in Sha1::digest(bytes) {
                out.extend_from_slice(format!("{byte:x}").as_bytes());
            }
        });
        writer.named(COUNTRY, ("c", country));
        self.set_path(format_args!("dataFromRatingSite{site}/RatingSite{site}"));
        writer.instance(PUBLISHER, &self.path);
        writer.date(DATE, day(&mut random, TODAY, days(2008, 9, 23)));
        for review in first..=last {
            if model.reviewed(review).0 <= model.last_main {
                self.review(review, number, site, language, writer);
            }
        }
    }

    /// A review without its person.
    pub(super) fn single_review(&mut self, number: u64, writer: &mut Writer) {
        let model = self.model;
        let (person, site) = (model.persons.owner(number), model.sites.owner(number));
        let language = Model::country(&mut Random::new(model.seed, Stream::Person, person)).1;
        self.review(number, person, site, language, writer);
    }

    fn review(&mut self, number: u64, person: u64, site: u64, language: &str, writer: &mut Writer) {
        let model = self.model;
        let (product, mut random) = model.reviewed(number);
        self.begin(
            writer,
            format_args!("dataFromRatingSite{site}/Review{number}"),
        );
        // The original Turtle types reviews otherwise than the original N-Triples.
        let class = if self.format == Format::Nt {
            ("rev", "Review")
        } else {
            ("b", "Review")
        };
        writer.named(TYPE, class);
        let producer = model.producers.owner(product);
        self.set_path(format_args!("dataFromProducer{producer}/Product{product}"));
        writer.instance(("b", "reviewFor"), &self.path);
        self.set_path(format_args!("dataFromRatingSite{site}/Reviewer{person}"));
        writer.instance(("rev", "reviewer"), &self.path);
        let reviewed = instant(&mut random, (TODAY - 365) * DAY_MS, TODAY * DAY_MS);
        writer.midnight(("b", "reviewDate"), reviewed.div_euclid(DAY_MS));
        writer.plain(("dc", "title"), |out| {
            model.words.sentence(&mut random, 4, 15, out)
        });
        writer.tagged(("rev", "text"), language, |out| {
            model.words.sentence(&mut random, 50, 200, out);
        });
        for name in ["rating1", "rating2", "rating3", "rating4"] {
            if random.chance(0.7) {
                writer.integer(("b", name), random.between(1, 10));
            }
        }
        self.set_path(format_args!("dataFromRatingSite{site}/RatingSite{site}"));
        writer.instance(PUBLISHER, &self.path);
        let published = instant(&mut random, reviewed, TODAY * DAY_MS);
        writer.date(DATE, published.div_euclid(DAY_MS));
    }
}

/// `int(count * z / 2)`, for z from 0 to 2.
fn scaled(count: u64, z: f64) -> u64 {
    whole(super::random::real(count) * z / 2.0)
}
