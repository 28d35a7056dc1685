//! Golden plans: `tests/plans/*.test` hold a query and the plan that is expected for it.
//! `UPDATE=1 cargo test -p stoa-planner --test all explain` rewrites them; read the diff.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode, Term};
use spargebra::SparqlParser;
use stoa_planner::expression::{Expression, Function};
use stoa_planner::{
    ForcedJoin, Names, PlannerOptions, PrefixRanges, Rewrites, Statistics, StatisticsError,
    SubjectGroup, SubjectSets, TextOf, explain, plan,
};
use stoa_terms::{GraphSet, IdRange, Kind, Position, TermId, inline};

/// Counts like those of BSBM with 28,482 products, without the quads.
#[derive(Default)]
struct Catalogue {
    ids: RefCell<BTreeMap<String, TermId>>,
}

/// Predicate, rows, subjects, objects.
const PREDICATES: &[(&str, u64, u64, u64)] = &[
    ("a", 1_200_000, 900_000, 400),
    ("publisher", 880_000, 880_000, 900),
    ("label", 31_000, 31_000, 28_000),
    ("pf", 570_000, 28_482, 10_000),
    ("pN1", 28_482, 28_482, 2_000),
    ("pN3", 28_482, 28_482, 1_500),
    ("pN4", 14_000, 14_000, 2_000),
    ("pT1", 28_482, 28_482, 28_400),
    ("producer", 28_482, 28_482, 566),
    ("product", 569_640, 569_640, 28_482),
    ("price", 569_640, 569_640, 100_000),
    ("vendor", 569_640, 569_640, 290),
    ("country", 15_000, 15_000, 10),
    ("validTo", 569_640, 569_640, 1_000),
    ("reviewFor", 284_820, 284_820, 28_482),
    ("reviewer", 284_820, 284_820, 14_600),
    ("title", 284_820, 284_820, 284_000),
    ("rating1", 199_000, 199_000, 10),
    ("rating2", 199_000, 199_000, 10),
    ("name", 14_600, 14_600, 14_000),
    ("date", 284_820, 284_820, 3_000),
    // Edges of graphs: terms as frequent as any other, and many at a few hubs.
    ("even", 1_000_000, 100_000, 100_000),
    // What subjects have is known of these: they seldom have the last two together.
    ("common", 400_000, 400_000, 1_000),
    ("frequent", 569_000, 450_000, 1_000),
    ("seldom", 70_000, 70_000, 1_000),
    ("skewed", 20_000, 10_000, 10_000),
    // Half of either are of one kind, which is most of a group of few kinds.
    ("kind", 200_000, 200_000, 1_000),
    ("wants", 10_000, 10_000, 900),
    ("group", 1_000, 1_000, 100),
];

/// What the term "K0" has: as object of the first two, as subject of the last one.
const FREQUENT: &[(&str, u64)] = &[("kind", 100_000), ("wants", 5_000), ("group", 1)];

impl Catalogue {
    fn predicate(&self, id: TermId) -> (u64, u64, u64) {
        let ids = self.ids.borrow();
        let name = ids
            .iter()
            .find(|(_, other)| **other == id)
            .map(|(name, _)| name);
        let found = name.and_then(|name| PREDICATES.iter().find(|(p, ..)| name == p));
        found.map_or((0, 1, 1), |&(_, rows, subjects, objects)| {
            (rows, subjects, objects)
        })
    }
}

impl Catalogue {
    fn name(&self, id: TermId) -> Option<String> {
        let ids = self.ids.borrow();
        let mut found = ids.iter().filter(|(_, other)| **other == id);
        found.next().map(|(name, _)| name.clone())
    }

    /// The rows that a predicate has with "K0".
    fn frequent(&self, predicate: TermId) -> Option<u64> {
        let name = self.name(predicate)?;
        let mut known = FREQUENT.iter();
        known
            .find(|(other, _)| *other == name)
            .map(|(_, rows)| *rows)
    }
}

impl Statistics for Catalogue {
    fn term_id(&self, term: &Term) -> Result<Option<TermId>, StatisticsError> {
        let name = match term {
            Term::Literal(literal) => {
                if let Some(id) = inline::encode_literal(literal.as_ref()) {
                    return Ok(Some(id));
                }
                literal.value().to_owned()
            }
            Term::NamedNode(iri) => {
                let name = iri.as_str().rsplit(['#', '/']).next().unwrap_or_default();
                if name == "type" {
                    "a".to_owned()
                } else {
                    name.to_owned()
                }
            }
            _ => return Ok(None),
        };
        if name.starts_with("nowhere") {
            return Ok(None);
        }
        let mut ids = self.ids.borrow_mut();
        let next = ids.len() as u64;
        Ok(Some(
            *ids.entry(name).or_insert(TermId::new(Kind::Iri, next)),
        ))
    }

    fn count(&self, triple: [Option<TermId>; 3], _: &GraphSet) -> Result<u64, StatisticsError> {
        let of_frequent = triple
            .iter()
            .flatten()
            .any(|id| self.name(*id).as_deref() == Some("K0"));
        if let [_, Some(p), _] = triple
            && of_frequent
            && let Some(rows) = self.frequent(p)
        {
            return Ok(rows);
        }
        Ok(match triple {
            [None, None, None] => 10_000_000,
            [Some(_), None, None] => 25,
            [None, None, Some(_)] => 40,
            [None, Some(p), None] => self.predicate(p).0,
            [Some(_), Some(p), None] => {
                let (rows, subjects, _) = self.predicate(p);
                rows.div_ceil(subjects)
            }
            [None, Some(p), Some(_)] => {
                let (rows, _, objects) = self.predicate(p);
                rows.div_ceil(objects)
            }
            [Some(_), _, Some(_)] => 1,
        })
    }

    fn count_ranges(
        &self,
        triple: [Option<TermId>; 3],
        _: Position,
        ranges: &[IdRange],
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        let one = ranges.iter().all(|range| range.first == range.last);
        Ok(self
            .count(triple, graphs)?
            .div_ceil(if one { 1_000 } else { 4 }))
    }

    fn untold(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        let ids = self.ids.borrow();
        let of_texts = ["label", "title", "name"].map(|name| ids.get(name).copied());
        drop(ids);
        match triple {
            [_, Some(p), None] if position == Position::Object && of_texts.contains(&Some(p)) => {
                self.count(triple, graphs)
            }
            _ => Ok(0),
        }
    }

    fn distinct(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        _: &GraphSet,
    ) -> Result<u64, StatisticsError> {
        Ok(match (triple, position) {
            ([None, Some(p), None], Position::Subject) => self.predicate(p).1,
            ([None, Some(p), None], _) => self.predicate(p).2,
            ([None, None, None], Position::Predicate) => 60,
            ([None, None, None], _) => 2_000_000,
            _ => 10,
        })
    }

    /// Of products the numbers are known.
    fn sample(
        &self,
        triple: [Option<TermId>; 3],
        _: Option<(Position, &[IdRange])>,
        _: &GraphSet,
        _: usize,
    ) -> Result<Option<Vec<[TermId; 3]>>, StatisticsError> {
        let [Some(product), Some(predicate), None] = triple else {
            return Ok(None);
        };
        let number = inline::encode_i64(700);
        Ok(match self.name(predicate).as_deref() {
            Some("pN1" | "pN3" | "pN4") => number.map(|number| vec![[product, predicate, number]]),
            _ => None,
        })
    }

    fn group_sizes(
        &self,
        triple: [Option<TermId>; 3],
        position: Position,
        graphs: &GraphSet,
    ) -> Result<Vec<u64>, StatisticsError> {
        let ids = self.ids.borrow();
        let skewed = ids.get("skewed").copied();
        drop(ids);
        Ok(match triple {
            [None, Some(p), None] if Some(p) == skewed => vec![1, 1, 1, 5_000, 1, 1, 5_000, 1],
            _ => {
                let rows = self.count(triple, graphs)?;
                vec![rows / self.distinct(triple, position, graphs)?.max(1); 4]
            }
        })
    }

    fn top_values(
        &self,
        predicate: TermId,
        position: Position,
        _: &GraphSet,
        _: &dyn Fn() -> bool,
    ) -> Result<Vec<(TermId, u64)>, StatisticsError> {
        let rows = match (self.name(predicate).as_deref(), position) {
            (Some("kind" | "wants"), Position::Object) => self.frequent(predicate),
            _ => None,
        };
        let term = self.term_id(&NamedNode::new_unchecked("http://example.org/K0").into())?;
        Ok(term.zip(rows).into_iter().collect())
    }

    /// Of the functions those that golden plans call with constants.
    fn value(&self, call: &Expression) -> Result<Option<Term>, StatisticsError> {
        let Expression::Call(function, arguments) = call else {
            return Ok(None);
        };
        let texts = arguments.iter().map(|argument| match argument {
            Expression::Constant(constant) => match &constant.term {
                Term::Literal(literal) => Some(literal.value().to_owned()),
                _ => None,
            },
            _ => None,
        });
        let Some(text) = texts.collect::<Option<String>>() else {
            return Ok(None);
        };
        Ok(match function {
            Function::Concat => Some(Literal::new_simple_literal(text).into()),
            Function::Iri => Some(NamedNode::new_unchecked(text).into()),
            Function::CastDate => {
                let date = Literal::new_typed_literal(text, xsd::DATE);
                inline::encode_literal(date.as_ref()).map(|_| date.into())
            }
            _ => None,
        })
    }

    /// Of texts that begin with "nothing" there are none, and those with "scattered" lie among others.
    fn prefix_ranges(
        &self,
        prefix: &str,
        of: TextOf,
    ) -> Result<Option<PrefixRanges>, StatisticsError> {
        if prefix.starts_with("nothing") {
            return Ok(Some(PrefixRanges {
                ranges: Vec::new(),
                is_exact: true,
            }));
        }
        let start = prefix.len() as u64 * 1_000;
        let range = |kind| IdRange {
            first: TermId::new(kind, start),
            last: TermId::new(kind, start + 99),
        };
        let kinds: &[Kind] = match of {
            TextOf::Strings => &[Kind::Literal],
            TextOf::Terms => &[Kind::Iri, Kind::Literal],
        };
        Ok(Some(PrefixRanges {
            ranges: kinds.iter().map(|kind| range(*kind)).collect(),
            is_exact: !prefix.starts_with("scattered"),
        }))
    }

    fn subject_sets(
        &self,
        predicates: &[TermId],
        _: &GraphSet,
        _: usize,
    ) -> Result<Option<SubjectSets>, StatisticsError> {
        // Subjects that have the same, what they have, and the quads of each with it.
        let sets: [(u64, &[(&str, u64)]); 4] = [
            (330_000, &[("common", 1), ("frequent", 1)]),
            (119_000, &[("frequent", 2)]),
            (1_000, &[("common", 1), ("frequent", 1), ("seldom", 1)]),
            (69_000, &[("common", 1), ("seldom", 1)]),
        ];
        let ids = self.ids.borrow();
        let id = |name: &str| ids.get(name).copied();
        let known = ["common", "frequent", "seldom"].map(id);
        if !predicates.iter().all(|one| known.contains(&Some(*one))) {
            return Ok(None);
        }
        let groups = sets.iter().map(|(subjects, members)| {
            let quads = predicates.iter().map(|one| {
                let member = members.iter().find(|(name, _)| id(name) == Some(*one));
                member.map_or(0, |(_, each)| subjects * each)
            });
            let quads: Vec<u64> = quads.collect();
            let bits = (0..).zip(&quads);
            SubjectGroup {
                has: bits.fold(0, |has, (bit, quads)| has | u64::from(*quads > 0) << bit),
                subjects: *subjects,
                quads,
            }
        });
        Ok(Some(SubjectSets {
            groups: groups.filter(|group| group.has.count_ones() > 1).collect(),
            ..SubjectSets::default()
        }))
    }

    fn quads(&self) -> u64 {
        10_000_000
    }
}

const PREFIXES: &str = "PREFIX : <http://example.org/> \
    PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> ";

fn explained(text: &str) -> String {
    let mut options = PlannerOptions::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        match line {
            "plain" => options.optimize = false,
            "merge" => options.forced.join = Some(ForcedJoin::Merge),
            "hash" => options.forced.join = Some(ForcedJoin::Hash),
            "lookup" => options.forced.join = Some(ForcedJoin::IndexNestedLoop),
            "leapfrog" => options.forced.join = Some(ForcedJoin::Leapfrog),
            "binary" => options.forced.join = Some(ForcedJoin::Binary),
            "difference" => options.forced.difference = Some(true),
            "refused" => options.forced.difference = Some(false),
            "sets" => options.forced.sets = Some(true),
            "no sets" => options.forced.sets = Some(false),
            "top values" => options.forced.top_values = Some(true),
            "no top values" => options.forced.top_values = Some(false),
            "ranges" => options.forced.ranges = Some(true),
            "at once" => options.forced.ranges = Some(false),
            "common" => options.forced.common_subplans = Some(true),
            "apart" => options.forced.common_subplans = Some(false),
            "linear" => options.forced.linear = Some(true),
            "not linear" => options.forced.linear = Some(false),
            "parameters" => options.forced.parameters = Some(true),
            "no parameters" => options.forced.parameters = Some(false),
            "exists joins" => options.forced.exists_joins = Some(true),
            "no exists joins" => options.forced.exists_joins = Some(false),
            "for bindings" => options.forced.part_for_bindings = Some(true),
            "not for bindings" => options.forced.part_for_bindings = Some(false),
            "nested" => options.without = Rewrites::UNNESTING,
            "no semi-joins" => options.without = Rewrites::SEMI_JOINS,
            "no implied joins" => options.without = Rewrites::IMPLIED_JOINS,
            "no folding" => options.without = Rewrites::FOLDING,
            "no equal joins" => options.without = Rewrites::EQUAL_JOINS,
            "not once" => options.without = Rewrites::ONCE,
            "no index groups" => options.without = Rewrites::INDEX_GROUPS,
            "no id ranges" => options.without = Rewrites::ID_RANGES,
            "no top-k" => options.without = Rewrites::TOP_K,
            "no early projection" => options.without = Rewrites::EARLY_PROJECTION,
            "no path steps" => options.without = Rewrites::PATH_STEPS,
            "no rising" => options.without = Rewrites::RISING,
            "no binds in place" => options.without = Rewrites::BINDS_IN_PLACE,
            "no pushdown" => options.without = Rewrites::PUSHDOWN,
            "no graph narrowing" => options.without = Rewrites::GRAPH_NARROWING,
            "no seeding" => options.without = Rewrites::SEEDING,
            "no computed keys" => options.without = Rewrites::COMPUTED_KEYS,
            "partner counts" => options.forced.partner_counts = Some(true),
            "no partner counts" => options.forced.partner_counts = Some(false),
            "union" => options.default_graph_union = true,
            _ => {}
        }
    }
    let query = SparqlParser::new()
        .parse_query(&format!("{PREFIXES}{text}"))
        .expect("a valid query");
    match plan(&query, &options, &Catalogue::default()) {
        Ok(plan) => explain(&plan, &Names::NONE).to_string(),
        Err(error) => format!("error: {error}\n"),
    }
}

#[test]
fn plans_are_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let update = std::env::var_os("UPDATE").is_some();
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of plans")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(files.len() > 10, "plans are missing");
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        let (query, expected) = text.split_once("----\n").unwrap_or((&text, ""));
        let actual = explained(query);
        if actual == expected {
            continue;
        }
        if update {
            std::fs::write(&file, format!("{}\n----\n{actual}", query.trim_end()))
                .expect("a writable file");
        } else {
            wrong.push(format!(
                "{}\n{actual}instead of\n{expected}",
                file.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Not a benchmark: a bound that is far off, so that planning that got slow by a factor is seen.
#[test]
fn planning_asks_little() {
    #[derive(Default)]
    struct Counting(Catalogue, RefCell<usize>, RefCell<usize>);
    impl Statistics for Counting {
        fn term_id(&self, term: &Term) -> Result<Option<TermId>, StatisticsError> {
            self.0.term_id(term)
        }
        fn count(
            &self,
            triple: [Option<TermId>; 3],
            graphs: &GraphSet,
        ) -> Result<u64, StatisticsError> {
            *self.1.borrow_mut() += 1;
            self.0.count(triple, graphs)
        }
        fn distinct(
            &self,
            triple: [Option<TermId>; 3],
            position: Position,
            graphs: &GraphSet,
        ) -> Result<u64, StatisticsError> {
            *self.1.borrow_mut() += 1;
            self.0.distinct(triple, position, graphs)
        }
        fn top_values(
            &self,
            predicate: TermId,
            position: Position,
            graphs: &GraphSet,
            go_on: &dyn Fn() -> bool,
        ) -> Result<Vec<(TermId, u64)>, StatisticsError> {
            *self.2.borrow_mut() += 1;
            self.0.top_values(predicate, position, graphs, go_on)
        }
        fn partners(
            &self,
            triples: &[[Option<TermId>; 3]],
            graphs: &GraphSet,
        ) -> Result<Vec<u64>, StatisticsError> {
            *self.2.borrow_mut() += triples.len();
            let counts = triples.iter().map(|triple| self.0.count(*triple, graphs));
            counts.collect()
        }
        fn quads(&self) -> u64 {
            self.0.quads()
        }
    }
    let asked_more = |text: &str| {
        let query = SparqlParser::new()
            .parse_query(&format!("{PREFIXES}{text}"))
            .expect("a valid query");
        let statistics = Counting::default();
        plan(&query, &PlannerOptions::default(), &statistics).expect("planned");
        (statistics.1.into_inner(), statistics.2.into_inner())
    };
    let asked = |text: &str| {
        let (counts, more) = asked_more(text);
        assert_eq!(more, 0, "{text}");
        counts
    };
    assert_eq!(asked("SELECT * { :x :label ?o }"), 1);
    assert_eq!(asked("SELECT * { ?s :label ?o . ?s :pN1 ?n }"), 4);
    assert_eq!(asked("SELECT * { ?s :label ?o . ?s :label ?n }"), 2);
    // What is cheap asks for no frequent terms, though there are some. What is not asks for two lists, and either for what
    // it has of the other's.
    assert_eq!(asked("SELECT * { :x :kind ?k . ?d :wants ?k }"), 4);
    let (_, more) = asked_more("SELECT * { ?p :kind ?k . ?d :wants ?k }");
    assert_eq!(more, 2);
    // Below the millisecond for two lists there is one, the longer one.
    let (_, more) = asked_more("SELECT * { ?p :kind ?k . ?k :group ?g }");
    assert_eq!(more, 2);
}
