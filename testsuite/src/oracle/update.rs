//! SPARQL Update over a list of quads: section 4 of SPARQL 1.1 Update line by line.
//!
//! A graph store that records empty graphs (3.2): CREATE and CLEAR leave graphs that exist though empty, and
//! what is about a graph that does not exist fails.

use std::collections::{BTreeMap, BTreeSet};

use oxrdf::{BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term, Triple as Data3};

use super::answer::instance;
use super::evaluate::Evaluator;
use super::translate::Translator;
use super::{Dataset, Fault, Outcome, Seen, Solution};
use crate::random::ast::{Form, Group, Query, Slot, Var};
use crate::random::update::{Operation, Target, Template, Transfer, pattern};

/// More solutions of a pattern whose template has blank nodes are no test.
const NEW_NODES_MAX: usize = 12;

/// What a store holds.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Quads, each once.
    pub quads: Vec<Quad>,
    /// Graphs that exist though they may be empty.
    pub created: BTreeSet<NamedNode>,
}

impl Store {
    /// Whether a named graph exists.
    #[must_use]
    pub fn exists(&self, graph: &NamedNode) -> bool {
        let name = GraphName::from(graph.clone());
        self.created.contains(graph) || self.quads.iter().any(|quad| quad.graph_name == name)
    }

    /// The store after a request; `None` if it fails.
    ///
    /// # Errors
    /// Why it is no test.
    pub fn after(&self, request: &[Operation], seen: &Seen) -> Outcome<Option<Self>> {
        let mut store = self.clone();
        for operation in request {
            if !store.run(operation, seen)? {
                seen.count("failure");
                return Ok(None);
            }
        }
        Ok(Some(store))
    }

    fn add(&mut self, quad: Quad) {
        if !self.quads.contains(&quad) {
            self.quads.push(quad);
        }
    }

    fn remove(&mut self, quads: &[Quad]) {
        self.quads.retain(|quad| !quads.contains(quad));
    }

    /// Runs an operation; false if it fails.
    fn run(&mut self, operation: &Operation, seen: &Seen) -> Outcome<bool> {
        match operation {
            // 4.3.1: OpInsertData(GS, QuadPattern) = Dataset-UNION(GS, Dataset(QuadPattern, {}, GS, GS)), with new
            // blank nodes.
            Operation::InsertData(quads) => {
                seen.count("INSERT DATA");
                let mut made = BTreeMap::new();
                for quad in quads {
                    self.add(fresh(quad, &mut made));
                }
                Ok(true)
            }
            // 4.3.2: Dataset-DIFF.
            Operation::DeleteData(quads) => {
                seen.count("DELETE DATA");
                self.remove(quads);
                Ok(true)
            }
            Operation::DeleteWhere(template) => {
                seen.count("DELETE WHERE");
                let dataset = self.dataset(None, &[], &[]);
                self.modify(&dataset, (template, &[]), None, &pattern(template), seen)
            }
            Operation::Modify {
                with,
                delete,
                insert,
                using,
                using_named,
                pattern,
            } => {
                for (name, is_written) in [
                    ("WITH", with.is_some()),
                    ("DELETE", delete.is_some()),
                    ("INSERT", insert.is_some()),
                    ("USING", !using.is_empty()),
                    ("USING NAMED", !using_named.is_empty()),
                ] {
                    if is_written {
                        seen.count(name);
                    }
                }
                let dataset = self.dataset(with.as_ref(), using, using_named);
                let templates = (
                    delete.as_deref().unwrap_or_default(),
                    insert.as_deref().unwrap_or_default(),
                );
                self.modify(&dataset, templates, with.as_ref(), pattern, seen)
            }
            Operation::Create(silent, graph) => {
                seen.count("CREATE");
                let exists = self.exists(graph);
                self.created.insert(graph.clone());
                Ok(!exists || *silent)
            }
            Operation::Clear(silent, target) => {
                seen.count("CLEAR");
                Ok(self.clear(*silent, target, false))
            }
            Operation::Drop(silent, target) => {
                seen.count("DROP");
                Ok(self.clear(*silent, target, true))
            }
            Operation::Transfer(kind, silent, from, to) => {
                seen.count(match kind {
                    Transfer::Add => "ADD",
                    Transfer::Copy => "COPY",
                    Transfer::Move => "MOVE",
                });
                Ok(self.transfer(*kind, *silent, from.as_ref(), to.as_ref()))
            }
        }
    }

    /// The dataset of WHERE (3.1.3): USING, else WITH as the default graph.
    fn dataset(
        &self,
        with: Option<&NamedNode>,
        using: &[NamedNode],
        using_named: &[NamedNode],
    ) -> Dataset {
        let chosen = !using.is_empty() || !using_named.is_empty();
        let query = Query {
            form: Form::Ask(Group::default()),
            from: using.to_vec(),
            from_named: using_named.to_vec(),
        };
        let mut dataset = Dataset::new(&self.quads, &query);
        for graph in &self.created {
            if !chosen || using_named.contains(graph) {
                dataset.named.entry(graph.clone()).or_default();
            }
        }
        if let Some(with) = with.filter(|_| !chosen) {
            let triples = dataset.named.get(with).cloned();
            dataset.default = triples.unwrap_or_default();
        }
        dataset
    }

    /// 4.3.3: what the solutions make of the template of DELETE is taken away, then what they make of that of
    /// INSERT is added.
    fn modify(
        &mut self,
        dataset: &Dataset,
        (delete, insert): (&[Template], &[Template]),
        with: Option<&NamedNode>,
        pattern: &Group,
        seen: &Seen,
    ) -> Outcome<bool> {
        let mut translator = Translator { next: 100 };
        let algebra = translator.group(pattern);
        let evaluator = Evaluator::new(dataset, translator.next, seen);
        let solutions = evaluator.evaluate(&algebra, &dataset.default)?;
        if !solutions.is_empty() {
            seen.count("solutions");
        }
        if solutions.len() > NEW_NODES_MAX && has_blank(insert) {
            return Err(Fault::TooLarge);
        }
        let removed = made(delete, with, &solutions);
        let added = made(insert, with, &solutions);
        self.remove(&removed);
        for quad in added {
            self.add(quad);
        }
        Ok(true)
    }

    fn clear(&mut self, silent: bool, target: &Target, drops: bool) -> bool {
        let is_meant = |graph: &GraphName| match (target, graph) {
            (Target::All, _) => true,
            (Target::Default, graph) => *graph == GraphName::DefaultGraph,
            (Target::Named, graph) => *graph != GraphName::DefaultGraph,
            (Target::Graph(name), GraphName::NamedNode(graph)) => name == graph,
            (Target::Graph(_), _) => false,
        };
        if let Target::Graph(graph) = target
            && !self.exists(graph)
        {
            return silent;
        }
        if drops {
            self.created
                .retain(|graph| !is_meant(&graph.clone().into()));
        } else {
            for quad in &self.quads {
                if let GraphName::NamedNode(graph) = &quad.graph_name
                    && is_meant(&quad.graph_name)
                {
                    self.created.insert(graph.clone());
                }
            }
        }
        self.quads.retain(|quad| !is_meant(&quad.graph_name));
        true
    }

    fn transfer(
        &mut self,
        kind: Transfer,
        silent: bool,
        from: Option<&NamedNode>,
        to: Option<&NamedNode>,
    ) -> bool {
        if from == to {
            return true;
        }
        if from.is_some_and(|from| !self.exists(from)) {
            return silent;
        }
        let name = |graph: Option<&NamedNode>| {
            graph.map_or(GraphName::DefaultGraph, |graph| graph.clone().into())
        };
        let (from_name, to_name) = (name(from), name(to));
        let mut copied: Vec<Quad> = self.quads.clone();
        copied.retain(|quad| quad.graph_name == from_name);
        if kind != Transfer::Add {
            self.quads.retain(|quad| quad.graph_name != to_name);
        }
        if copied.is_empty() {
            self.created.extend(to.cloned());
        }
        for mut quad in copied {
            quad.graph_name = to_name.clone();
            self.add(quad);
        }
        if kind == Transfer::Move {
            self.quads.retain(|quad| quad.graph_name != from_name);
            if let Some(from) = from {
                self.created.remove(from);
            }
        }
        true
    }
}

fn has_blank(templates: &[Template]) -> bool {
    let mut blanks: BTreeSet<Var> = BTreeSet::new();
    let slots = templates.iter().flat_map(|(_, triple)| triple);
    slots.for_each(|slot| slot.blanks(&mut blanks));
    !blanks.is_empty()
}

/// The quads that solutions make of a template; those that are none are left out.
fn made(templates: &[Template], with: Option<&NamedNode>, solutions: &[Solution]) -> Vec<Quad> {
    let mut quads = Vec::new();
    for solution in solutions {
        let mut nodes = BTreeMap::new();
        for (graph, triple) in templates {
            let graph: Option<GraphName> = match graph {
                None => Some(with.map_or(GraphName::DefaultGraph, |with| with.clone().into())),
                Some(Slot::Term(Term::NamedNode(graph))) => Some(graph.clone().into()),
                Some(Slot::Var(var)) => match solution.get(*var).cloned().flatten().as_deref() {
                    Some(Term::NamedNode(graph)) => Some(graph.clone().into()),
                    Some(Term::BlankNode(graph)) => Some(graph.clone().into()),
                    _ => None,
                },
                Some(_) => None,
            };
            if let Some(graph) = graph
                && let Some(triple) = instance(triple, solution, &mut nodes)
            {
                quads.push(triple.in_graph(graph));
            }
        }
    }
    quads
}

/// A quad with new blank nodes in the place of labels.
fn fresh(quad: &Quad, made: &mut BTreeMap<String, BlankNode>) -> Quad {
    Quad {
        subject: fresh_node(&quad.subject, made),
        object: fresh_term(&quad.object, made),
        ..quad.clone()
    }
}

fn fresh_node(node: &NamedOrBlankNode, made: &mut BTreeMap<String, BlankNode>) -> NamedOrBlankNode {
    match node {
        NamedOrBlankNode::BlankNode(node) => made
            .entry(node.as_str().to_owned())
            .or_default()
            .clone()
            .into(),
        iri => iri.clone(),
    }
}

fn fresh_term(term: &Term, made: &mut BTreeMap<String, BlankNode>) -> Term {
    match term {
        Term::BlankNode(node) => made
            .entry(node.as_str().to_owned())
            .or_default()
            .clone()
            .into(),
        Term::Triple(triple) => Data3::new(
            fresh_node(&triple.subject, made),
            triple.predicate.clone(),
            fresh_term(&triple.object, made),
        )
        .into(),
        other => other.clone(),
    }
}
