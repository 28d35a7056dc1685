//! Random requests of SPARQL Update, as trees and as text.
//!
//! Templates name no variables that the pattern computes: how a computed number is written is open, and
//! what is written stays.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use oxrdf::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term, Triple as Data3};

use super::Random;
use super::ast::{Element, Group, Select, Slot, Triple, Var, in_scope};
use super::data::{Data, iri};
use super::print;
use super::query::Generator;
use crate::oracle::text::computed;

/// A quad of a template: the graph, if one is written, and the triple.
pub type Template = (Option<Slot>, Triple);

/// What CLEAR and DROP are about.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// DEFAULT
    Default,
    /// NAMED
    Named,
    /// ALL
    All,
    /// GRAPH
    Graph(NamedNode),
}

/// ADD, COPY, MOVE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transfer {
    /// ADD
    Add,
    /// COPY
    Copy,
    /// MOVE
    Move,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// INSERT DATA
    InsertData(Vec<Quad>),
    /// DELETE DATA
    DeleteData(Vec<Quad>),
    /// DELETE WHERE
    DeleteWhere(Vec<Template>),
    /// DELETE and INSERT
    Modify {
        /// WITH
        with: Option<NamedNode>,
        /// The template of DELETE, if it is written.
        delete: Option<Vec<Template>>,
        /// The template of INSERT, if it is written.
        insert: Option<Vec<Template>>,
        /// USING
        using: Vec<NamedNode>,
        /// USING NAMED
        using_named: Vec<NamedNode>,
        /// WHERE
        pattern: Group,
    },
    /// CREATE
    Create(bool, NamedNode),
    /// CLEAR
    Clear(bool, Target),
    /// DROP
    Drop(bool, Target),
    /// ADD, COPY, MOVE; silent or not; `None` is the default graph.
    Transfer(Transfer, bool, Option<NamedNode>, Option<NamedNode>),
}

/// The graphs that updates name.
#[must_use]
pub fn graphs() -> Vec<NamedNode> {
    ["g0", "g1", "s0", "nowhere"].map(iri).to_vec()
}

/// A request of one to three operations.
#[must_use]
pub fn request(random: &mut Random, data: &Data) -> Vec<Operation> {
    let many = 1 + random.below(3);
    (0..many)
        .map(|number| operation(random, data, number))
        .collect()
}

fn operation(random: &mut Random, data: &Data, number: usize) -> Operation {
    let silent = random.chance(50);
    match random.below(20) {
        // A label of a blank node belongs to one operation.
        0..=2 => Operation::InsertData(quads(random, data, Some(number))),
        3 | 4 => Operation::DeleteData(quads(random, data, None)),
        5 | 6 => Operation::DeleteWhere(delete_where(random, data)),
        7 => Operation::Create(silent, graph(random)),
        8 => Operation::Clear(silent, target(random)),
        9 => Operation::Drop(silent, target(random)),
        10 => {
            let kind = *random.pick(&[Transfer::Add, Transfer::Copy, Transfer::Move]);
            Operation::Transfer(kind, silent, place(random), place(random))
        }
        _ => modify(random, data),
    }
}

fn graph(random: &mut Random) -> NamedNode {
    random.pick(&graphs()).clone()
}

fn place(random: &mut Random) -> Option<NamedNode> {
    random.chance(70).then(|| graph(random))
}

fn target(random: &mut Random) -> Target {
    match random.below(12) {
        0 => Target::Default,
        1 => Target::Named,
        2 => Target::All,
        _ => Target::Graph(graph(random)),
    }
}

/// Quads of the data or like it; with blank nodes where there is a number for their labels.
fn quads(random: &mut Random, data: &Data, blank: Option<usize>) -> Vec<Quad> {
    let many = 1 + random.below(4);
    let quads = (0..many).map(|_| {
        if random.chance(40) && !data.quads.is_empty() {
            let quad = random.pick(&data.quads).clone();
            if !has_blank(&quad) {
                return quad;
            }
        }
        let node = |random: &mut Random| -> NamedOrBlankNode {
            match blank {
                Some(number) if random.chance(20) => {
                    let label = format!("d{number}{}", random.pick(&["a", "b"]));
                    BlankNode::new_unchecked(label).into()
                }
                _ => random.pick(&data.nodes).clone().into(),
            }
        };
        let subject = node(random);
        let predicate = random.pick(&data.predicates).clone();
        let object: Term = match random.below(10) {
            0..=3 => node(random).into(),
            4 => Data3::new(node(random), iri("p0"), random.pick(&data.literals).clone()).into(),
            _ => random.pick(&data.literals).clone().into(),
        };
        let graph = place(random).map_or(GraphName::DefaultGraph, GraphName::from);
        Quad::new(subject, predicate, object, graph)
    });
    quads.collect()
}

/// Whether a blank node stands in a quad.
fn has_blank(quad: &Quad) -> bool {
    quad.to_string().contains("_:")
}

fn slot_of_graph(random: &mut Random, scope: &[Var]) -> Slot {
    match scope.is_empty() || random.chance(60) {
        true => Slot::Term(graph(random).into()),
        false => Slot::Var(*random.pick(scope)),
    }
}

fn delete_where(random: &mut Random, data: &Data) -> Vec<Template> {
    let many = 1 + random.below(2);
    let mut template = Vec::new();
    for _ in 0..many {
        let triple = Generator::new(random, data).triple(&[], None);
        let graph = random.chance(40).then(|| slot_of_graph(random, &[0, 1]));
        template.push((graph, triple));
    }
    template
}

fn modify(random: &mut Random, data: &Data) -> Operation {
    let pattern = Generator::new(random, data).group(&[], 2);
    let made = computed(&Select::all(pattern.clone()));
    let scope: Vec<Var> = in_scope(&pattern)
        .into_iter()
        .filter(|var| !made.contains(var))
        .collect();
    let both = random.below(3);
    let mut list = |blank: bool| -> Vec<Template> {
        let many = 1 + random.below(2);
        (0..many)
            .map(|_| {
                let graph = random.chance(25).then(|| slot_of_graph(random, &scope));
                (graph, triple(random, data, &scope, blank))
            })
            .collect()
    };
    let delete = (both != 0).then(|| list(false));
    let insert = (both != 1).then(|| list(true));
    let mut names = |chance: usize| -> Vec<NamedNode> {
        let mut names: BTreeSet<NamedNode> = BTreeSet::new();
        while random.chance(chance) {
            names.insert(graph(random));
        }
        names.into_iter().collect()
    };
    let using = names(15);
    let using_named = names(10);
    Operation::Modify {
        with: random.chance(25).then(|| graph(random)),
        delete,
        insert,
        using,
        using_named,
        pattern,
    }
}

/// A triple of a template.
fn triple(random: &mut Random, data: &Data, scope: &[Var], blank: bool) -> Triple {
    let var = |random: &mut Random| match scope.is_empty() {
        // Unbound: the triple is left out.
        true => Slot::Var(7),
        false => Slot::Var(*random.pick(scope)),
    };
    let subject = match random.below(10) {
        0 if blank => Slot::Blank(99),
        1 | 2 => Slot::Term(random.pick(&data.nodes).clone().into()),
        _ => var(random),
    };
    let predicate = match random.below(10) {
        0..=4 => Slot::Term(random.pick(&data.predicates).clone().into()),
        5 => Slot::Term(iri("made").into()),
        _ => var(random),
    };
    let object = match random.below(14) {
        0 if blank => Slot::Blank(99),
        1 => Slot::Term(random.pick(&data.literals).clone().into()),
        2 => {
            let made = Slot::Term(iri("made").into());
            Slot::Triple(Box::new([var(random), made, var(random)]))
        }
        _ => var(random),
    };
    [subject, predicate, object]
}

/// Writes a request.
#[must_use]
pub fn text(request: &[Operation]) -> String {
    let parts: Vec<String> = request.iter().map(written).collect();
    parts.join(" ;\n")
}

fn written(operation: &Operation) -> String {
    let silent = |silent: bool| if silent { "SILENT " } else { "" };
    match operation {
        Operation::InsertData(quads) => format!("INSERT DATA {{ {}}}", data(quads)),
        Operation::DeleteData(quads) => format!("DELETE DATA {{ {}}}", data(quads)),
        Operation::DeleteWhere(template) => format!("DELETE WHERE {{ {}}}", templates(template)),
        Operation::Create(is_silent, graph) => {
            format!("CREATE {}GRAPH {graph}", silent(*is_silent))
        }
        Operation::Clear(is_silent, target) => {
            format!("CLEAR {}{}", silent(*is_silent), written_target(target))
        }
        Operation::Drop(is_silent, target) => {
            format!("DROP {}{}", silent(*is_silent), written_target(target))
        }
        Operation::Transfer(kind, is_silent, from, to) => {
            let name = match kind {
                Transfer::Add => "ADD",
                Transfer::Copy => "COPY",
                Transfer::Move => "MOVE",
            };
            let place = |place: &Option<NamedNode>| match place {
                Some(graph) => graph.to_string(),
                None => "DEFAULT".to_owned(),
            };
            format!(
                "{name} {}{} TO {}",
                silent(*is_silent),
                place(from),
                place(to)
            )
        }
        Operation::Modify {
            with,
            delete,
            insert,
            using,
            using_named,
            pattern,
        } => {
            let mut text = String::new();
            if let Some(with) = with {
                text.push_str(&format!("WITH {with} "));
            }
            if let Some(delete) = delete {
                text.push_str(&format!("DELETE {{ {}}} ", templates(delete)));
            }
            if let Some(insert) = insert {
                text.push_str(&format!("INSERT {{ {}}} ", templates(insert)));
            }
            for graph in using {
                text.push_str(&format!("USING {graph} "));
            }
            for graph in using_named {
                text.push_str(&format!("USING NAMED {graph} "));
            }
            text + "WHERE " + &print::group(pattern)
        }
    }
}

fn written_target(target: &Target) -> String {
    match target {
        Target::Default => "DEFAULT".to_owned(),
        Target::Named => "NAMED".to_owned(),
        Target::All => "ALL".to_owned(),
        Target::Graph(graph) => format!("GRAPH {graph}"),
    }
}

fn data(quads: &[Quad]) -> String {
    let mut out = String::new();
    for quad in quads {
        let triple = format!("{} {} {}", quad.subject, quad.predicate, quad.object);
        let written = match &quad.graph_name {
            GraphName::DefaultGraph => write!(out, "{triple} . "),
            graph => write!(out, "GRAPH {graph} {{ {triple} }} "),
        };
        // A String takes everything.
        written.unwrap_or_default();
    }
    out
}

fn templates(templates: &[Template]) -> String {
    let mut out = String::new();
    for (graph, triple) in templates {
        let triple = print::triples(std::slice::from_ref(triple));
        match graph {
            None => out.push_str(&triple),
            Some(graph) => out.push_str(&format!("GRAPH {}{{ {triple}}} ", print::slot(graph))),
        }
    }
    out
}

/// The pattern of DELETE WHERE.
#[must_use]
pub fn pattern(templates: &[Template]) -> Group {
    let elements = templates.iter().map(|(graph, triple)| {
        let triples = Element::Triples(vec![triple.clone()]);
        match graph {
            None => triples,
            Some(graph) => Element::Graph(
                graph.clone(),
                Group {
                    elements: vec![triples],
                },
            ),
        }
    });
    Group {
        elements: elements.collect(),
    }
}
