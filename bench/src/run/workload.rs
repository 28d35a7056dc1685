//! Mixes of queries and updates: templates, their order, and the parameters of each mix.

#[cfg(test)]
mod tests;

use anyhow::Context as _;

use crate::bsbm::random::Random;
use crate::bsbm::{self, Blocks, Kind};
use crate::graphs::{genealogy, path_graph};

/// The texts of a folder of queries, by name; `N.bsbm` is the original of a query that is mended by default.
macro_rules! queries {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../queries/", $folder, "/", $name, ".rq")))),*]
    };
}

const EXPLORE: &[(&str, &str)] =
    queries!("explore": "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11" "12");
const EXPLORE_ORDER: [&str; 25] = [
    "1", "2", "2", "3", "2", "2", "4", "2", "2", "5", "7", "7", "5", "7", "7", "8", "9", "9", "8",
    "9", "9", "10", "10", "11", "12",
];

const UPDATES: &[(&str, &str)] = queries!("updates": "U1" "U2");
/// What comes before the queries of Explore in a mix that writes.
const UPDATES_ORDER: [&str; 5] = ["U1", "U2", "U1", "U2", "U2"];

const BI: &[(&str, &str)] = queries!("bi": "1" "2" "3" "4" "5" "5.bsbm" "6" "7" "7.bsbm" "8");
const BI_ORDER: [&str; 15] = [
    "1", "3", "2", "2", "4", "5", "5", "6", "5", "6", "6", "7", "8", "7", "6",
];
/// Each query once, as the drill-down of BIBM runs them.
const BI_ONCE: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];

const LOOK_UPS: &[(&str, &str)] = queries!("look-ups": "triple" "star");

const PATHS: &[(&str, &str)] = queries!("paths": "2" "4" "10" "100" "around" "closure" "both");
const PATHS_ORDER: [&str; 7] = ["2", "4", "10", "100", "around", "closure", "both"];

const GENEALOGY: &[(&str, &str)] = queries!("genealogy": "1" "2" "3" "4" "5" "6");
const GENEALOGY_ORDER: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

/// Which mix is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Name {
    /// 25 short queries of a customer of a shop
    Explore,
    /// Five updates, then the queries of explore
    ExploreUpdate,
    /// 15 queries that aggregate
    Bi,
    /// The 8 queries of bi; those with a product type once for each depth of the tree, from broad to narrow
    BiDrilldown,
    /// One triple of a product
    LookUp,
    /// All triples of a product
    Star,
    /// Paths of 2 to 100 nodes and what lies around a node, in a path-graph
    Paths,
    /// Six queries about people, places, events and films
    Genealogy,
}

impl Name {
    /// Whether the mix changes the data.
    pub(crate) fn writes(self) -> bool {
        self == Self::ExploreUpdate
    }
}

/// Mixes from this number on are warm-up: they have parameters of their own, and write nothing.
pub(super) const WARM_UP: u64 = 1 << 32;

/// The kind of a parameter that is the next update transaction.
const BLOCK: &str = "block";

/// What parameters are drawn from.
#[derive(Debug)]
pub(crate) enum Pools {
    Bsbm(Box<bsbm::Pools>),
    Paths(path_graph::Pools),
    Genealogy(genealogy::Pools),
}

impl From<bsbm::Pools> for Pools {
    fn from(pools: bsbm::Pools) -> Self {
        Self::Bsbm(Box::new(pools))
    }
}

impl Pools {
    /// How many products the data have, where there are some.
    pub(crate) fn products(&self) -> Option<u64> {
        match self {
            Self::Bsbm(pools) => Some(pools.products()),
            Self::Paths(_) | Self::Genealogy(_) => None,
        }
    }

    /// The depth of the tree of types, where there is one.
    fn depth(&self) -> u64 {
        match self {
            Self::Bsbm(pools) => pools.depth(),
            Self::Paths(_) | Self::Genealogy(_) => 0,
        }
    }

    /// The parameters of a query; those of a type are of this depth, if there is one.
    fn values(
        &self,
        template: &Template,
        depth: Option<u64>,
        random: &mut Random,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let mut values = Vec::new();
        let unknown = |kind: &str| format!("query {}: parameter {kind}", template.name);
        if let Self::Bsbm(pools) = self {
            let mut draw = pools.draw(random);
            for (name, kind) in &template.parameters {
                if kind == BLOCK {
                    continue;
                }
                let known = Kind::named(kind).with_context(|| unknown(kind))?;
                match (depth, known) {
                    (Some(depth), Kind::TypeFrom(_)) => {
                        values.push((name.clone(), draw.type_of_depth(depth)));
                    }
                    _ => values.extend(draw.next(name, known)),
                }
            }
            return Ok(values);
        }
        for (name, kind) in &template.parameters {
            let text = match self {
                Self::Paths(pools) => pools.draw(kind, random),
                Self::Genealogy(pools) => pools.draw(kind, random),
                Self::Bsbm(_) => None,
            };
            values.push((name.clone(), text.with_context(|| unknown(kind))?));
        }
        Ok(values)
    }
}

/// A query with parameters.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) name: String,
    text: &'static str,
    /// Names, and the kinds that they are drawn as.
    parameters: Vec<(String, String)>,
    /// Whether it is an update.
    pub(crate) writes: bool,
}

/// A query or an update to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// The index of its template.
    pub(crate) template: usize,
    pub(crate) query: String,
    /// Whether it is an update.
    pub(crate) writes: bool,
}

/// A mix whose instances follow from a seed and the mix's number, whoever runs it.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: Name,
    pub(crate) templates: Vec<Template>,
    /// Indexes of templates.
    order: Vec<usize>,
    pools: Pools,
    seed: u64,
    /// What U1 inserts.
    blocks: Blocks,
}

impl Template {
    /// Reads the header of a file: a comment that says what it is, then `# draw: NAME=KIND ...`.
    fn new(name: &str, text: &'static str) -> anyhow::Result<Self> {
        let draw = text
            .lines()
            .find_map(|line| line.strip_prefix("# draw:"))
            .with_context(|| format!("query {name} has no line `# draw:`"))?;
        let mut parameters = Vec::new();
        for parameter in draw.split_whitespace() {
            let parsed = parameter
                .split_once('=')
                .map(|(name, kind)| (name.to_owned(), kind.to_owned()));
            parameters
                .push(parsed.with_context(|| format!("query {name}: parameter {parameter}"))?);
        }
        let header = text.lines().take_while(|line| line.starts_with('#'));
        let skipped = header.map(|line| line.len() + 1).sum();
        let text = text.get(skipped..).unwrap_or("");
        Ok(Self {
            name: name.trim_end_matches(".bsbm").to_owned(),
            text,
            parameters,
            writes: text.starts_with("INSERT") || text.starts_with("DELETE"),
        })
    }

    /// The name of the parameter that is the next update transaction, if there is one.
    pub(crate) fn block(&self) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        let found = parameters.find(|(_, kind)| kind == BLOCK);
        found.map(|(name, _)| name.as_str())
    }
}

impl Workload {
    /// The name of the mix, as it is given.
    pub(crate) fn label(&self) -> String {
        use clap::ValueEnum as _;
        let value = self.name.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// # Errors
    /// When a file of queries is damaged.
    pub(crate) fn new(
        name: Name,
        pools: impl Into<Pools>,
        seed: u64,
        quirks: bool,
    ) -> anyhow::Result<Self> {
        let pools = pools.into();
        let (texts, names) = match name {
            Name::Explore => (EXPLORE.to_vec(), EXPLORE_ORDER.to_vec()),
            Name::ExploreUpdate => (
                [UPDATES, EXPLORE].concat(),
                [UPDATES_ORDER.as_slice(), EXPLORE_ORDER.as_slice()].concat(),
            ),
            Name::Bi => (BI.to_vec(), BI_ORDER.to_vec()),
            Name::BiDrilldown => (BI.to_vec(), BI_ONCE.to_vec()),
            Name::LookUp => (LOOK_UPS.to_vec(), vec!["triple"]),
            Name::Star => (LOOK_UPS.to_vec(), vec!["star"]),
            Name::Paths => (PATHS.to_vec(), PATHS_ORDER.to_vec()),
            Name::Genealogy => (GENEALOGY.to_vec(), GENEALOGY_ORDER.to_vec()),
        };
        let mut templates: Vec<Template> = Vec::new();
        for (name, text) in texts {
            let template = Template::new(name, text)?;
            // A kind that nothing is drawn for shows here and not in the middle of a run.
            pools.values(&template, None, &mut bsbm::Pools::random(seed, 0))?;
            match templates
                .iter_mut()
                .find(|other| other.name == template.name)
            {
                None => templates.push(template),
                Some(mended) if quirks => *mended = template,
                Some(_) => {}
            }
        }
        let index = |name: &&str| {
            templates
                .iter()
                .position(|template| template.name == **name)
        };
        Ok(Self {
            name,
            order: names.iter().filter_map(index).collect(),
            templates,
            pools,
            seed,
            blocks: Blocks::default(),
        })
    }

    /// With update transactions to insert; past the last one, and without any, what is inserted is nothing.
    pub(crate) fn with_blocks(mut self, blocks: Blocks) -> Self {
        self.blocks = blocks;
        self
    }

    /// How many update transactions a mix inserts.
    pub(crate) fn blocks_of_a_mix(&self) -> u64 {
        let templates = self.order.iter();
        let templates = templates.filter_map(|&index| self.templates.get(index));
        templates
            .filter(|template| template.block().is_some())
            .count() as u64
    }

    /// A query of a template by itself, whether it is in the mix or not; each number gives another one.
    pub(crate) fn alone(&self, template: &Template, number: u64) -> String {
        let mut random = bsbm::Pools::random(self.seed, number);
        // `new` has seen that each kind can be drawn.
        let values = self.pools.values(template, None, &mut random);
        substituted(template.text, &values.unwrap_or_default())
    }

    /// The queries and updates of mix `number`, in order. Update transactions are dealt to the mixes in order, too.
    pub(crate) fn mix(&self, number: u64) -> Vec<Instance> {
        let mut block = number.saturating_mul(self.blocks_of_a_mix());
        let mut random = bsbm::Pools::random(self.seed, number);
        let mut instances = Vec::new();
        for &index in &self.order {
            let Some(template) = self.templates.get(index) else {
                continue;
            };
            if template.writes && number >= WARM_UP {
                continue;
            }
            let lowest = template
                .parameters
                .iter()
                .find_map(|(_, kind)| match Kind::named(kind) {
                    Some(Kind::TypeFrom(lowest)) => Some(lowest),
                    _ => None,
                });
            let depths = match (self.name, lowest) {
                (Name::BiDrilldown, Some(lowest)) => {
                    (lowest..=self.pools.depth()).map(Some).collect()
                }
                _ => vec![None],
            };
            for depth in depths {
                let values = self.pools.values(template, depth, &mut random);
                // `new` has seen that each kind can be drawn.
                let mut values = values.unwrap_or_default();
                if let Some(name) = template.block() {
                    values.push((name.to_owned(), self.blocks.get(block).to_owned()));
                    block += 1;
                }
                instances.push(Instance {
                    template: index,
                    query: substituted(template.text, &values),
                    writes: template.writes,
                });
            }
        }
        instances
    }
}

/// `text` with `$NAME` replaced by its value.
fn substituted(text: &str, values: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let end = after
            .find(|letter: char| !letter.is_ascii_alphanumeric())
            .unwrap_or(after.len());
        let (name, behind) = after.split_at(end);
        match values.iter().find(|(known, _)| known == name) {
            Some((_, value)) => out.push_str(value),
            None => {
                out.push('$');
                out.push_str(name);
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}
