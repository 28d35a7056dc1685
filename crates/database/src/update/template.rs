//! Templates of DELETE and INSERT, filled with the solutions of WHERE.
//!
//! A quad is left out where a variable is unbound or a term does not fit its position. Blank nodes of a
//! template are new for each solution; one that the query made (BNODE) is the same wherever it shows.
//!
//! # References
//! SPARQL 1.1 Update, sections 3.1.3 and 4.2.

use hashbrown::HashMap;
use oxrdf::{NamedNode, Term, Variable};
use rapidhash::fast::RandomState;
use spargebra::term::{
    GraphNamePattern, NamedNodePattern, QuadPattern, TermPattern, TriplePattern,
};
use stoa_executor::{Batch, QueryContext};
use stoa_quadstore::TermTexts;
use stoa_storage::{MemoryBudget, Reservation};
use stoa_terms::{Kind, TermId};

use super::ids::Ids;
use super::pending::{Pending, Quad, reserve};
use crate::error::{Error, Result};

/// A place of a template.
enum Part {
    /// A term, with its kind, which a private id does not tell.
    Constant(TermId, Kind),
    Column(usize),
    /// By number.
    BlankNode(usize),
    Triple(Box<[Self; 3]>),
}

/// Subject, predicate, object, graph.
type Parts = [Part; 4];

/// Both templates of an operation.
pub(super) struct Templates {
    delete: Vec<Parts>,
    insert: Vec<Parts>,
    blank_nodes: usize,
}

impl Templates {
    /// Looks the constants up. The variables are those that WHERE gives, in their order.
    pub(super) fn new(
        delete: &[QuadPattern],
        insert: &[QuadPattern],
        variables: &[Variable],
        ids: &mut Ids,
    ) -> Result<Self> {
        let mut constants = Constants::default();
        for quad in delete.iter().chain(insert) {
            constants.quad(quad);
        }
        let found = ids.of(&constants.terms)?;
        let columns = variables.iter().enumerate();
        let mut builder = Builder {
            constants: constants.numbers,
            ids: found,
            columns: columns.map(|(column, name)| (name, column)).collect(),
            blank_nodes: HashMap::default(),
        };
        let delete = builder.quads(delete)?;
        let insert = builder.quads(insert)?;
        Ok(Self {
            delete,
            insert,
            blank_nodes: builder.blank_nodes.len(),
        })
    }
}

/// The constants of templates, each once.
#[derive(Default)]
struct Constants {
    terms: Vec<Term>,
    numbers: HashMap<Term, usize, RandomState>,
}

impl Constants {
    fn quad(&mut self, quad: &QuadPattern) {
        self.term(&quad.subject);
        self.predicate(&quad.predicate);
        self.term(&quad.object);
        if let GraphNamePattern::NamedNode(iri) = &quad.graph_name {
            self.add(iri.clone().into());
        }
    }

    fn triple(&mut self, triple: &TriplePattern) {
        self.term(&triple.subject);
        self.predicate(&triple.predicate);
        self.term(&triple.object);
    }

    fn term(&mut self, term: &TermPattern) {
        match term {
            TermPattern::NamedNode(iri) => self.add(iri.clone().into()),
            TermPattern::Literal(literal) => self.add(literal.clone().into()),
            TermPattern::Triple(triple) => self.triple(triple),
            TermPattern::BlankNode(_) | TermPattern::Variable(_) => {}
        }
    }

    fn predicate(&mut self, term: &NamedNodePattern) {
        if let NamedNodePattern::NamedNode(iri) = term {
            self.add(iri.clone().into());
        }
    }

    fn add(&mut self, term: Term) {
        let next = self.terms.len();
        if !self.numbers.contains_key(&term) {
            self.terms.push(term.clone());
            self.numbers.insert(term, next);
        }
    }
}

/// Makes parts of patterns.
struct Builder<'a> {
    constants: HashMap<Term, usize, RandomState>,
    ids: Vec<TermId>,
    columns: HashMap<&'a Variable, usize, RandomState>,
    blank_nodes: HashMap<String, usize, RandomState>,
}

impl Builder<'_> {
    fn quads(&mut self, quads: &[QuadPattern]) -> Result<Vec<Parts>> {
        let parts = quads.iter().map(|quad| -> Result<Parts> {
            let graph = match &quad.graph_name {
                GraphNamePattern::DefaultGraph => {
                    Part::Constant(TermId::DEFAULT_GRAPH, Kind::Special)
                }
                GraphNamePattern::NamedNode(iri) => self.iri(iri)?,
                GraphNamePattern::Variable(variable) => self.variable(variable)?,
            };
            Ok([
                self.term(&quad.subject)?,
                self.predicate(&quad.predicate)?,
                self.term(&quad.object)?,
                graph,
            ])
        });
        parts.collect()
    }

    fn term(&mut self, term: &TermPattern) -> Result<Part> {
        match term {
            TermPattern::NamedNode(iri) => self.iri(iri),
            TermPattern::Literal(literal) => {
                let literal = literal.clone();
                self.constant(&literal.into(), Kind::Literal)
            }
            TermPattern::Variable(variable) => self.variable(variable),
            TermPattern::BlankNode(node) => {
                let next = self.blank_nodes.len();
                let number = self.blank_nodes.entry(node.as_str().to_owned());
                Ok(Part::BlankNode(*number.or_insert(next)))
            }
            TermPattern::Triple(triple) => {
                let parts = [
                    self.term(&triple.subject)?,
                    self.predicate(&triple.predicate)?,
                    self.term(&triple.object)?,
                ];
                Ok(Part::Triple(Box::new(parts)))
            }
        }
    }

    fn predicate(&self, term: &NamedNodePattern) -> Result<Part> {
        match term {
            NamedNodePattern::NamedNode(iri) => self.iri(iri),
            NamedNodePattern::Variable(variable) => self.variable(variable),
        }
    }

    fn iri(&self, iri: &NamedNode) -> Result<Part> {
        self.constant(&iri.clone().into(), Kind::Iri)
    }

    fn constant(&self, term: &Term, kind: Kind) -> Result<Part> {
        let number = self.constants.get(term);
        let id = number.and_then(|number| self.ids.get(*number));
        let id = id.ok_or_else(|| Error::Internal("a constant without an id".to_owned()))?;
        Ok(Part::Constant(*id, kind))
    }

    fn variable(&self, variable: &Variable) -> Result<Part> {
        let column = self.columns.get(variable);
        let column = column.ok_or_else(|| Error::Internal("a variable without column".to_owned()));
        Ok(Part::Column(*column?))
    }
}

/// What is made of the solutions of one query.
pub(super) struct Filling<'a> {
    pub(super) context: &'a QueryContext,
    pub(super) ids: &'a mut Ids,
    /// Whether private ids are forgotten now and then ([`Filling::forget`]).
    pub(super) is_bulk: bool,
    pub(super) budget: &'a MemoryBudget,
    /// For ids local to the query those that they have beyond it.
    pub(super) local: HashMap<TermId, TermId, RandomState>,
    /// What is reserved for these, and for new terms.
    pub(super) reserved: Option<Reservation>,
}

/// What an entry of the table of local ids takes while the table doubles.
const ENTRY_BYTES: usize = 4 * size_of::<(TermId, TermId)>();
/// So much is reserved at a time.
const STEP_BYTES: u64 = 64 << 10;

impl Filling<'_> {
    /// What is reserved for local ids and new terms.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.reserved.as_ref().map_or(0, Reservation::bytes)
    }

    /// Forgets local ids, and private ones but the first.
    pub(super) fn forget(&mut self, length: usize) {
        self.local.clear();
        self.ids.truncate(length);
    }

    /// Fills both templates with each solution of a batch.
    pub(super) fn fill(
        &mut self,
        templates: &Templates,
        batch: &Batch,
        pending: &mut Pending,
    ) -> Result<()> {
        let mut nodes = vec![TermId::UNBOUND; templates.blank_nodes];
        for row in 0..batch.rows {
            for node in &mut nodes {
                *node = self.ids.blank_node();
            }
            let solution = Solution {
                batch,
                row,
                nodes: &nodes,
            };
            for parts in &templates.delete {
                if let Some(quad) = self.quad(parts, &solution)? {
                    pending.remove(quad, self.budget)?;
                }
            }
            for parts in &templates.insert {
                if let Some(quad) = self.quad(parts, &solution)? {
                    pending.add(quad, self.budget)?;
                }
            }
        }
        Ok(())
    }

    /// `None` if it is no quad.
    fn quad(&mut self, parts: &Parts, solution: &Solution<'_>) -> Result<Option<Quad>> {
        let [subject, predicate, object, graph] = parts;
        let Some([subject, predicate, object]) =
            self.triple([subject, predicate, object], solution)?
        else {
            return Ok(None);
        };
        let Some((graph, kind)) = self.value(graph, solution)? else {
            return Ok(None);
        };
        let is_graph =
            graph == TermId::DEFAULT_GRAPH || matches!(kind, Kind::Iri | Kind::BlankNode);
        Ok(is_graph.then_some([subject, predicate, object, graph]))
    }

    /// `None` if it is no triple.
    fn triple(
        &mut self,
        parts: [&Part; 3],
        solution: &Solution<'_>,
    ) -> Result<Option<[TermId; 3]>> {
        let [subject, predicate, object] = parts;
        let Some((subject, Kind::Iri | Kind::BlankNode)) = self.value(subject, solution)? else {
            return Ok(None);
        };
        let Some((predicate, Kind::Iri)) = self.value(predicate, solution)? else {
            return Ok(None);
        };
        let Some((object, _)) = self.value(object, solution)? else {
            return Ok(None);
        };
        Ok((object != TermId::DEFAULT_GRAPH).then_some([subject, predicate, object]))
    }

    /// The term of a place and its kind; `None` if there is none.
    fn value(&mut self, part: &Part, solution: &Solution<'_>) -> Result<Option<(TermId, Kind)>> {
        Ok(match part {
            Part::Constant(id, kind) => Some((*id, *kind)),
            Part::Column(column) => {
                let id = solution.batch.get(*column, solution.row);
                if id.is_unbound() {
                    return Ok(None);
                }
                let kind = self.context.kind(id);
                Some((self.beyond(id)?, kind))
            }
            Part::BlankNode(number) => {
                let node = solution.nodes.get(*number);
                node.map(|node| (*node, Kind::BlankNode))
            }
            Part::Triple(parts) => {
                let [subject, predicate, object] = &**parts;
                match self.triple([subject, predicate, object], solution)? {
                    Some(parts) => Some((self.ids.triple(parts)?, Kind::Triple)),
                    None => None,
                }
            }
        })
    }

    /// Reserves what local ids and new terms take, and so much more.
    fn reserve(&mut self, more: usize) -> Result<()> {
        let bytes = self.local.len() * ENTRY_BYTES + self.ids.terms().memory_bytes() + more;
        let reserved = self.reserved.as_ref().map_or(0, Reservation::bytes);
        let missing = (bytes as u64).saturating_sub(reserved);
        match missing {
            0 => Ok(()),
            _ => reserve(
                &mut self.reserved,
                self.budget,
                missing.next_multiple_of(STEP_BYTES),
            ),
        }
    }

    /// The id that a term has beyond the query.
    fn beyond(&mut self, id: TermId) -> Result<TermId> {
        if id.kind() != Kind::Local {
            return Ok(id);
        }
        if let Some(known) = self.local.get(&id) {
            return Ok(*known);
        }
        let found = match self.context.kind(id) {
            // It may come again when its id is forgotten.
            Kind::BlankNode if self.is_bulk => self.ids.numbered_blank(id.payload())?,
            Kind::BlankNode => self.ids.blank_node(),
            Kind::Triple => {
                let [subject, predicate, object] = self.context.triple(id)?;
                // As deep as triple terms are nested.
                let parts = [
                    self.beyond(subject)?,
                    self.beyond(predicate)?,
                    self.beyond(object)?,
                ];
                self.ids.triple(parts)?
            }
            kind if kind.is_in_dictionary() => {
                let mut text = TermTexts::default();
                let mut refused = None;
                // The text, and its copy among the new terms.
                let context = self.context;
                context.texts_while(&[id], &mut text, &mut |bytes| {
                    refused = self.reserve(2 * bytes).err();
                    refused.is_none()
                })?;
                if let Some(error) = refused {
                    return Err(error);
                }
                self.ids.keyed(kind, text.get(0))?
            }
            _ => return Err(Error::Internal("an id of another query".to_owned())),
        };
        self.reserve(0)?;
        self.local.insert(id, found);
        Ok(found)
    }
}

/// One solution.
struct Solution<'a> {
    batch: &'a Batch,
    row: usize,
    nodes: &'a [TermId],
}
