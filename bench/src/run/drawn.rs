//! Queries of all benchmarks on one dataset, drawn once: what is asked one by one, not in mixes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use super::operators::texts;
use super::workload::{Name, Pools, Workload};
use crate::bsbm;
use crate::graphs::{genealogy, path_graph};

/// The set of the queries for each operator.
const OPERATORS: &str = "operators";

/// Which queries.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Draw {
    /// Number of products, if the data are BSBM's: explore, bi, and the queries for each operator
    #[arg(long, value_name = "N", group = "data", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) products: Option<u64>,
    /// Edges that a path-graph was generated with: paths
    #[arg(long, value_name = "N", group = "data", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000_000))]
    pub(super) edges: Option<u64>,
    /// People that a genealogy was generated with: genealogy
    #[arg(long, value_name = "N", group = "data", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub(super) people: Option<u64>,
    /// The seed that the data was generated from
    #[arg(long, value_name = "SEED", default_value_t = crate::bsbm::SEED)]
    pub(super) data_seed: u64,
    /// The same seed gives the same queries, those of the first mixes of `run`
    #[arg(long, value_name = "SEED", default_value_t = 808_080)]
    pub(super) seed: u64,
    /// Queries of each template but those for each operator; those that are equal are asked once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(super) draws: u64,
    /// The queries for each operator, as `run operators` takes them; without it those that are frozen for so many products,
    /// or else such as are made from the endpoint's data
    #[arg(long, value_name = "FILE")]
    pub(super) queries: Option<PathBuf>,
}

/// Queries of one template.
#[derive(Debug, PartialEq)]
pub(super) struct Template {
    /// The benchmark that it is of, such as `explore`.
    pub(super) set: String,
    pub(super) name: String,
    pub(super) queries: Vec<String>,
}

impl Draw {
    /// The templates of the mixes with their first queries, and of BSBM the queries for each operator, which may be made from
    /// the data of `url`.
    ///
    /// # Errors
    /// When it is not said what data there are, or queries cannot be drawn or made.
    pub(super) fn templates(&self, url: &str) -> anyhow::Result<Vec<Template>> {
        let mut templates = Vec::new();
        for name in self.mixes() {
            templates.extend(drawn(&self.workload(*name)?, self.draws));
        }
        if let Some(products) = self.products {
            let texts = texts(url, products, self.queries.as_deref())?;
            templates.extend(texts.into_iter().map(|(name, query)| Template {
                set: OPERATORS.to_owned(),
                name,
                queries: vec![query],
            }));
        }
        if templates.is_empty() {
            bail!("the size of the data is missing: --products, --edges or --people N");
        }
        Ok(templates)
    }

    /// The templates of updates on these data, with their first requests but those that insert what a file has.
    ///
    /// # Errors
    /// When a file of queries is damaged.
    pub(super) fn updates(&self) -> anyhow::Result<Vec<Template>> {
        if self.products.is_none() {
            return Ok(Vec::new());
        }
        let workload = self.workload(Name::ExploreUpdate)?;
        let drawn = drawn(&workload, self.draws);
        let templates = workload.templates.iter().zip(drawn);
        Ok(templates
            .filter(|(template, _)| template.writes && template.block().is_none())
            .map(|(_, drawn)| drawn)
            .collect())
    }

    /// The mixes that only ask.
    fn mixes(&self) -> &'static [Name] {
        match (self.products, self.edges, self.people) {
            (Some(_), ..) => &[Name::Explore, Name::Bi],
            (_, Some(_), _) => &[Name::Paths],
            (.., Some(_)) => &[Name::Genealogy],
            (None, None, None) => &[],
        }
    }

    fn workload(&self, name: Name) -> anyhow::Result<Workload> {
        let pools = match (self.edges, self.people) {
            (Some(edges), _) => Pools::Paths(path_graph::Pools::new(edges)),
            (_, Some(people)) => Pools::Genealogy(genealogy::Pools::new(people, self.data_seed)),
            (None, None) => {
                let products = self.products.context("--products N is missing")?;
                bsbm::Pools::new(products, self.data_seed, false).into()
            }
        };
        Workload::new(name, pools, self.seed, false)
    }
}

/// The first so many queries of each template in the order of the mixes, by themselves if it is in no mix; without those
/// that are equal to an earlier one.
pub(super) fn drawn(workload: &Workload, draws: u64) -> Vec<Template> {
    let mut drawn: Vec<Vec<String>> = vec![Vec::new(); workload.templates.len()];
    for instance in (0..draws).flat_map(|number| workload.mix(number)) {
        if let Some(queries) = drawn.get_mut(instance.template)
            && (queries.len() as u64) < draws
        {
            queries.push(instance.query);
        }
    }
    let named = workload.templates.iter().zip(drawn);
    named
        .map(|(template, mut queries)| {
            if queries.is_empty() {
                queries.extend((0..draws).map(|number| workload.alone(template, number)));
            }
            without_repeats(&mut queries);
            let set = workload.label();
            Template {
                name: format!("{set}/{}", template.name),
                set,
                queries,
            }
        })
        .collect()
}

/// Keeps the first of those that are equal.
pub(super) fn without_repeats(queries: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    queries.retain(|query| seen.insert(query.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_template_is_drawn_and_equal_queries_are_one() {
        let workload = |name, seed| {
            let pools = bsbm::Pools::new(100, bsbm::SEED, false);
            Workload::new(name, pools, seed, false).unwrap()
        };
        let explore = drawn(&workload(Name::Explore, 1), 3);
        let names: Vec<&str> = explore.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names.len(), names[0]), (12, "explore/1"));
        // Query 6 is in no mix.
        for template in &explore {
            let distinct: BTreeSet<&String> = template.queries.iter().collect();
            assert_eq!(distinct.len(), template.queries.len(), "{}", template.name);
            assert!((1..=3).contains(&distinct.len()), "{}", template.name);
            assert!(template.queries.iter().all(|query| !query.contains('$')));
        }
        assert_eq!(explore, drawn(&workload(Name::Explore, 1), 3));
        assert_ne!(explore, drawn(&workload(Name::Explore, 2), 3));
        assert_eq!(drawn(&workload(Name::Bi, 1), 1).len(), 8);
    }

    fn draw(products: Option<u64>, edges: Option<u64>, people: Option<u64>) -> Draw {
        Draw {
            products,
            edges,
            people,
            data_seed: bsbm::SEED,
            seed: 1,
            draws: 2,
            queries: None,
        }
    }

    #[test]
    fn each_dataset_has_its_own_sets() {
        let nobody = "http://127.0.0.1:1/";
        let sets = |draw: &Draw| {
            let templates = draw.templates(nobody).unwrap();
            let mut sets: Vec<String> = templates.into_iter().map(|it| it.set).collect();
            sets.dedup();
            sets
        };
        let bsbm = draw(Some(2_848), None, None);
        assert_eq!(sets(&bsbm), ["explore", "bi", "operators"]);
        assert_eq!(sets(&draw(None, Some(10_000), None)), ["paths"]);
        assert_eq!(sets(&draw(None, None, Some(1_000))), ["genealogy"]);
        assert!(draw(None, None, None).templates(nobody).is_err());
        let updates = bsbm.updates().unwrap();
        assert_eq!(updates.len(), 1);
        assert_eq!(
            (updates[0].name.as_str(), updates[0].queries.len()),
            ("explore-update/U2", 2)
        );
        assert!(draw(None, Some(10_000), None).updates().unwrap().is_empty());
    }
}
