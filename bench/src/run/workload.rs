//! Query mixes: templates, their order, and the parameters of each mix.

use anyhow::Context as _;

use crate::bsbm::random::Random;
use crate::bsbm::{self, Kind};
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

const BI: &[(&str, &str)] = queries!("bi": "1" "2" "3" "4" "5" "5.bsbm" "6" "7" "7.bsbm" "8");
const BI_ORDER: [&str; 15] = [
    "1", "3", "2", "2", "4", "5", "5", "6", "5", "6", "6", "7", "8", "7", "6",
];
/// Each query once, as the drill-down of BIBM runs them.
const BI_ONCE: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];

const PATHS: &[(&str, &str)] = queries!("paths": "2" "4" "10" "100" "around" "closure" "both");
const PATHS_ORDER: [&str; 7] = ["2", "4", "10", "100", "around", "closure", "both"];

const GENEALOGY: &[(&str, &str)] = queries!("genealogy": "1" "2" "3" "4" "5" "6");
const GENEALOGY_ORDER: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

/// Which mix is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Name {
    /// 25 short queries of a customer of a shop
    Explore,
    /// 15 queries that aggregate
    Bi,
    /// The 8 queries of bi; those with a product type once for each depth of the tree, from broad to narrow
    BiDrilldown,
    /// Paths of 2 to 100 nodes and what lies around a node, in a path-graph
    Paths,
    /// Six queries about people, places, events and films
    Genealogy,
}

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
}

/// A query to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// The index of its template.
    pub(crate) template: usize,
    pub(crate) query: String,
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
        Ok(Self {
            name: name.trim_end_matches(".bsbm").to_owned(),
            text: text.get(skipped..).unwrap_or(""),
            parameters,
        })
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
        let (texts, names): (_, &[&str]) = match name {
            Name::Explore => (EXPLORE, &EXPLORE_ORDER),
            Name::Bi => (BI, &BI_ORDER),
            Name::BiDrilldown => (BI, &BI_ONCE),
            Name::Paths => (PATHS, &PATHS_ORDER),
            Name::Genealogy => (GENEALOGY, &GENEALOGY_ORDER),
        };
        let mut templates: Vec<Template> = Vec::new();
        for &(name, text) in texts {
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
        })
    }

    /// The queries of mix `number`, in order.
    pub(crate) fn mix(&self, number: u64) -> Vec<Instance> {
        let mut random = bsbm::Pools::random(self.seed, number);
        let mut instances = Vec::new();
        for &index in &self.order {
            let Some(template) = self.templates.get(index) else {
                continue;
            };
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
                instances.push(Instance {
                    template: index,
                    // `new` has seen that each kind can be drawn.
                    query: substituted(template.text, &values.unwrap_or_default()),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: Name, quirks: bool) -> Workload {
        let pools = match name {
            Name::Paths => Pools::Paths(path_graph::Pools::new(1_000)),
            Name::Genealogy => Pools::Genealogy(genealogy::Pools::new(1_000, 1)),
            _ => bsbm::Pools::new(1_000, 1, quirks).into(),
        };
        Workload::new(name, pools, 808_080, quirks).unwrap()
    }

    #[test]
    fn mixes_are_whole_and_repeatable() {
        for (name, queries, templates) in [
            (Name::Explore, 25, 12),
            (Name::Bi, 15, 8),
            (Name::Paths, 7, 7),
            (Name::Genealogy, 6, 6),
        ] {
            let workload = workload(name, false);
            assert_eq!(workload.templates.len(), templates);
            let mix = workload.mix(7);
            assert_eq!(mix.len(), queries);
            let texts = |number| -> Vec<String> {
                workload
                    .mix(number)
                    .into_iter()
                    .map(|it| it.query)
                    .collect()
            };
            assert_eq!(texts(7), texts(7));
            assert_ne!(texts(7), texts(8));
            for instance in mix {
                assert!(!instance.query.contains('$'), "{}", instance.query);
                spargebra::SparqlParser::new()
                    .parse_query(&instance.query)
                    .unwrap();
            }
        }
    }

    #[test]
    fn pools_of_a_file_give_the_queries_of_products_and_seed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pools.json");
        bsbm::Pools::new(1_000, 7, false).save(&path).unwrap();
        for name in [Name::Explore, Name::Bi, Name::BiDrilldown] {
            for quirks in [false, true] {
                let texts = |pools: bsbm::Pools| -> Vec<String> {
                    assert_eq!(pools.products(), 1_000);
                    let workload = Workload::new(name, pools, 3, quirks).unwrap();
                    (0..20)
                        .flat_map(|number| workload.mix(number))
                        .map(|it| it.query)
                        .collect()
                };
                let made = texts(bsbm::Pools::new(1_000, 7, quirks));
                assert_eq!(texts(bsbm::Pools::load(&path, quirks).unwrap()), made);
                assert_ne!(texts(bsbm::Pools::new(1_000, 8, quirks)), made);
            }
        }
    }

    #[test]
    fn the_drill_down_asks_for_each_depth() {
        // The tree of 1,000 products has depths 0 to 3.
        assert_eq!(
            workload(Name::BiDrilldown, false).mix(0).len(),
            4 + 3 + 3 + 4 + 4
        );
    }

    #[test]
    fn quirks_are_the_original_queries() {
        let texts = |quirks| {
            workload(Name::Bi, quirks)
                .mix(0)
                .into_iter()
                .map(|it| it.query)
        };
        let with =
            texts(true).filter(|text| text.contains("GROUP BY ?c ?p }\n  { SELECT ?c ?p (COUNT"));
        assert_eq!(with.count(), 3);
        assert_eq!(
            texts(false)
                .filter(|text| text.contains("?p LIMIT 1000"))
                .count(),
            2
        );
        assert_eq!(
            texts(true)
                .filter(|text| text.contains("DESC(?n) LIMIT 1000"))
                .count(),
            2
        );
    }

    #[test]
    fn features_are_drawn_once_but_for_the_quirk() {
        let repeats = |quirks| {
            let workload = workload(Name::Explore, quirks);
            let features = |query: String| {
                let mut found: Vec<String> = query
                    .match_indices("ProductFeature")
                    .filter_map(|(at, _)| query[at..].split('>').next().map(str::to_owned))
                    .collect();
                found.sort();
                found.windows(2).any(|pair| pair[0] == pair[1])
            };
            (0..400)
                .flat_map(|number| workload.mix(number))
                // Query 1 names each feature once.
                .filter(|instance| instance.template == 0)
                .filter(|instance| features(instance.query.clone()))
                .count()
        };
        assert_eq!(repeats(false), 0);
        assert!(repeats(true) > 0);
    }
}
