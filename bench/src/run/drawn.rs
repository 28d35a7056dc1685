//! Queries of all benchmarks on BSBM, drawn once: what is asked one by one, not in mixes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::operators::texts;
use super::workload::{Name, Workload};
use crate::bsbm::Pools;

/// Which queries.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Draw {
    /// Number of products of the data
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) products: u64,
    /// The seed that the data was generated from
    #[arg(long, value_name = "SEED", default_value_t = crate::bsbm::SEED)]
    pub(super) data_seed: u64,
    /// The same seed gives the same queries, those of the first mixes of `run`
    #[arg(long, value_name = "SEED", default_value_t = 808_080)]
    pub(super) seed: u64,
    /// Queries of each template of explore and bi; those that are equal are asked once
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
    pub(super) name: String,
    pub(super) queries: Vec<String>,
}

impl Draw {
    /// The templates of explore and bi with their first queries, and the queries for each operator, which may be made
    /// from the data of `url`.
    ///
    /// # Errors
    /// When queries cannot be drawn or made.
    pub(super) fn templates(&self, url: &str) -> anyhow::Result<Vec<Template>> {
        let mut templates = Vec::new();
        for name in [Name::Explore, Name::Bi] {
            let pools = Pools::new(self.products, self.data_seed, false);
            let workload = Workload::new(name, pools, self.seed, false)?;
            templates.extend(drawn(&workload, self.draws));
        }
        let texts = texts(url, self.products, self.queries.as_deref())?;
        templates.extend(texts.into_iter().map(|(name, query)| Template {
            name,
            queries: vec![query],
        }));
        Ok(templates)
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
            let mut seen = BTreeSet::new();
            queries.retain(|query| seen.insert(query.clone()));
            Template {
                name: format!("{}/{}", workload.label(), template.name),
                queries,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_template_is_drawn_and_equal_queries_are_one() {
        let workload = |name, seed| {
            let pools = Pools::new(100, crate::bsbm::SEED, false);
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
}
