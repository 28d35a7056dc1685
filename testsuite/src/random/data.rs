//! Random data: a few dozen quads over a tiny universe of terms.
//!
//! Predicates lean to a kind of object each (links, numbers, text, anything, dates), so that
//! expressions find arguments that suit them; every kind turns up everywhere now and then. Each blank
//! node has a triple that names it, by which a test finds it again behind the label that a database
//! gives it.

use oxrdf::vocab::rdf;
use oxrdf::{BlankNode, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term, Triple};

use stoa_terms::Kind;
use stoa_terms::inline::encode_literal;
use stoa_terms::key::literal_key;

use super::Random;

/// Where the IRIs of the universe lie.
pub const BASE: &str = "http://e/";

/// An IRI of the universe.
#[must_use]
pub fn iri(local: impl AsRef<str>) -> NamedNode {
    NamedNode::new_unchecked(format!("{BASE}{}", local.as_ref()))
}

/// The predicate whose object names a blank node.
#[must_use]
pub fn label_predicate() -> NamedNode {
    iri("label")
}

/// Data and the terms that it was made of, for queries to pick from.
#[derive(Clone, Debug)]
pub struct Data {
    /// The quads, without duplicates.
    pub quads: Vec<Quad>,
    /// Subjects that are IRIs.
    pub nodes: Vec<NamedNode>,
    /// Predicates, from links to dates.
    pub predicates: Vec<NamedNode>,
    /// Literals.
    pub literals: Vec<Literal>,
    /// Named graphs that hold at least one quad.
    pub graphs: Vec<NamedNode>,
}

fn typed(kind: &str, texts: &[&str]) -> Vec<Literal> {
    let datatype = if kind.contains(':') {
        NamedNode::new_unchecked(kind)
    } else {
        NamedNode::new_unchecked(format!("http://www.w3.org/2001/XMLSchema#{kind}"))
    };
    texts
        .iter()
        .map(|text| Literal::new_typed_literal(*text, datatype.clone()))
        .collect()
}

/// Numbers of all types, canonical or not.
#[must_use]
pub fn numbers() -> Vec<Literal> {
    let mut all = typed("integer", &["1", "2", "3", "10", "-5", "007", "+1", "0"]);
    all.extend(typed(
        "decimal",
        &["1.5", "2.0", "0.5", "-2.50", "10.25", "1.0"],
    ));
    all.extend(typed(
        "double",
        &["1.0E0", "2.5E0", "1e2", "100", "-0.5", "INF", "NaN"],
    ));
    all.extend(typed("float", &["1.5", "0.1"]));
    // Beyond 64 bits, and 18 digits behind the point; sums that leave and come back.
    all.extend(typed(
        "integer",
        &["9223372036854775807", "-12345678901234567890123"],
    ));
    all.extend(typed(
        "decimal",
        &["100000000000000000000.5", "0.00000000000000000001"],
    ));
    all.extend(typed("double", &["1.0E23"]));
    all.extend(typed("int", &["7", "2"]));
    all
}

/// Text with and without language.
#[must_use]
pub fn texts() -> Vec<Literal> {
    let long = "a long text that no id can hold in itself, ".repeat(8);
    let mut all: Vec<Literal> = [
        "",
        "a",
        "b",
        "ab",
        "abc",
        "apple",
        "Banana",
        "10",
        "true",
        "caf\u{e9}",
        "\u{1f600}x",
        "say \"hi\"\n",
        "2.5",
        "a longer text",
        "2020-01-01T00:00:00Z",
    ]
    .into_iter()
    .map(Literal::new_simple_literal)
    .collect();
    all.extend([format!("{long}x"), format!("{long}y")].map(Literal::new_simple_literal));
    for (text, language) in [
        ("a", "en"),
        ("abc", "en"),
        ("abc", "de"),
        ("chat", "fr"),
        ("color", "en-us"),
        ("", "en"),
    ] {
        all.push(Literal::new_language_tagged_literal_unchecked(
            text, language,
        ));
    }
    all
}

/// Dates and times with and without time zone; two of them are the same moment.
#[must_use]
pub fn dates() -> Vec<Literal> {
    let mut all = typed(
        "date",
        &[
            "2020-01-01",
            "2020-01-02Z",
            "2019-12-31+05:00",
            "2021-06-15",
        ],
    );
    all.extend(typed(
        "dateTime",
        &[
            "2020-01-01T00:00:00Z",
            "2020-01-01T01:00:00+01:00",
            "2019-06-01T10:20:30-08:00",
            "2020-01-01T12:30:15.5",
            "2020-01-01T00:00:00",
            "1999-12-31T23:59:59Z",
        ],
    ));
    all
}

/// Booleans, ill-typed literals, unknown datatypes.
#[must_use]
pub fn odd() -> Vec<Literal> {
    let mut all = typed("boolean", &["true", "false", "1"]);
    all.extend(typed("integer", &["abc"]));
    all.extend(typed("http://e/dt", &["x", "1"]));
    all
}

/// Whether a literal is no number, date or time, or one that its id tells.
fn is_usual(literal: &Literal) -> bool {
    let literal = literal.as_ref();
    let kind = literal_key(literal, &mut Vec::new());
    encode_literal(literal).is_some()
        || !matches!(kind, Kind::NumericLiteral | Kind::TemporalLiteral)
}

/// A triple term, now and then with another as its object.
fn triple_term(
    random: &mut Random,
    nodes: &[NamedNode],
    predicates: &[NamedNode],
    literals: &[Literal],
    depth: usize,
) -> Term {
    let object: Term = match random.below(10) {
        0 if depth > 0 => triple_term(random, nodes, predicates, literals, depth - 1),
        0..=4 => random.pick(nodes).clone().into(),
        _ => random.pick(literals).clone().into(),
    };
    let subject = random.pick(nodes).clone();
    Triple::new(subject, random.pick(predicates).clone(), object).into()
}

/// Gives some triples reifiers: nodes, of which the data says something, too.
fn reify(random: &mut Random, nodes: &[NamedNode], blanks: &[BlankNode], quads: &mut Vec<Quad>) {
    for _ in 0..3 {
        let about = random.pick(quads).clone();
        let reifier: NamedOrBlankNode = match random.below(10) {
            0..=2 => random.pick(blanks).clone().into(),
            _ => random.pick(nodes).clone().into(),
        };
        let triple = Triple::new(about.subject, about.predicate, about.object);
        let quad = Quad::new(reifier, rdf::REIFIES, triple, about.graph_name);
        if !quads.contains(&quad) {
            quads.push(quad);
        }
    }
}

impl Data {
    /// Makes data.
    #[must_use]
    pub fn random(random: &mut Random) -> Self {
        let mut pools = [numbers(), texts(), dates(), odd()];
        if random.chance(30) {
            // So that ids tell the order of all numbers and dates.
            pools.iter_mut().for_each(|pool| pool.retain(is_usual));
        }
        for pool in &mut pools {
            let keep = 4 + random.below(4);
            while pool.len() > keep {
                pool.swap_remove(random.below(pool.len()));
            }
        }
        let literals: Vec<Literal> = pools.iter().flatten().cloned().collect();
        let [numbers, texts, dates, _] = pools;
        let nodes: Vec<NamedNode> = (0..4).map(|n| iri(format!("s{n}"))).collect();
        let predicates: Vec<NamedNode> = (0..5).map(|n| iri(format!("p{n}"))).collect();
        let blanks = ["x", "y"].map(BlankNode::new_unchecked);
        let mut quads = Vec::new();
        for blank in &blanks {
            quads.push(Quad::new(
                blank.clone(),
                label_predicate(),
                Literal::new_simple_literal(blank.as_str()),
                GraphName::DefaultGraph,
            ));
        }
        for _ in 0..18 + random.below(25) {
            let node = |random: &mut Random| -> NamedOrBlankNode {
                if random.chance(15) {
                    random.pick(&blanks).clone().into()
                } else {
                    random.pick(&nodes).clone().into()
                }
            };
            let subject = node(random);
            let predicate = random.below(predicates.len());
            let object: Term = match if random.chance(15) { 3 } else { predicate } {
                _ if random.chance(8) => triple_term(random, &nodes, &predicates, &literals, 1),
                0 => node(random).into(),
                1 => random.pick(&numbers).clone().into(),
                2 => random.pick(&texts).clone().into(),
                4 => random.pick(&dates).clone().into(),
                _ if random.chance(20) => node(random).into(),
                _ if random.chance(10) => iri(format!("g{}", random.below(2))).into(),
                _ => random.pick(&literals).clone().into(),
            };
            let graph = match random.below(10) {
                0..=5 => GraphName::DefaultGraph,
                6 | 7 => iri("g0").into(),
                8 => iri("g1").into(),
                _ => iri("s0").into(),
            };
            let predicate = predicates.get(predicate).expect("one of them").clone();
            let quad = Quad::new(subject, predicate, object, graph);
            if !quads.contains(&quad) {
                quads.push(quad);
            }
        }
        reify(random, &nodes, &blanks, &mut quads);
        let mut data = Self {
            quads,
            nodes,
            predicates,
            literals,
            graphs: Vec::new(),
        };
        data.find_graphs();
        data
    }

    /// Brings [`Data::graphs`] up to date.
    pub fn find_graphs(&mut self) {
        self.graphs.clear();
        for quad in &self.quads {
            if let GraphName::NamedNode(graph) = &quad.graph_name
                && !self.graphs.contains(graph)
            {
                self.graphs.push(graph.clone());
            }
        }
    }

    /// The data as N-Quads.
    #[must_use]
    pub fn text(&self) -> String {
        self.quads
            .iter()
            .map(|quad| format!("{quad} .\n"))
            .collect()
    }
}
