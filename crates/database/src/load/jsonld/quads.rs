//! From what was expanded to quads.
//!
//! Quads are a set, so nodes need not be put together first: each says what it says where it stands.
//! What RDF cannot express is left out, as the standard wants it: a property or type that is no IRI, a
//! graph without a proper name, a value with a language or datatype that is none.
//!
//! # Limits
//! Memory: where nodes have an `@index`, up to [`INDEXES_REMEMBERED_MAX`] of them are remembered, to find
//! two for one node. Nodes that follow at a greater distance are not compared.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#deserialize-json-ld-to-rdf-algorithm>, section 7

use std::cell::Cell;
use std::rc::Rc;

use hashbrown::HashMap;
use oxrdf::vocab::{rdf, xsd};
use oxrdf::{BaseDirection, Literal as OxLiteral};
use rapidhash::fast::RandomState;

use super::item::{Form, Id, Item, Literal, Node, Text};
use super::number::{canonical, lexical};
use super::tape::{Kind, Value};
use crate::error::Result;
use crate::load::iri;
use crate::load::sink::{LiteralSuffix, QuadSink};
use crate::options::DirectionForm;

/// Quads between two calls of `advance`.
const ADVANCE_QUADS: u64 = 1 << 10;

const INDEXES_REMEMBERED_MAX: usize = 1 << 12;
const TAGS_REMEMBERED_MAX: usize = 256;

const RDF_JSON: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#JSON";
const RDF_VALUE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#value";
const RDF_LANGUAGE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#language";
const RDF_DIRECTION: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#direction";
const I18N: &str = "https://www.w3.org/ns/i18n#";

/// Takes what was left out: where it stands, and why.
pub(crate) type OnDropped<'a> = &'a mut dyn FnMut((u64, u64), String);

/// The name of a node.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Iri(Rc<str>),
    /// A blank node of the document, without its `_:`.
    Blank(Rc<str>),
    /// One that the document does not name.
    Anonymous(u64),
}

/// A node, and what the sink calls it in an epoch.
#[derive(Debug)]
pub(super) struct Named<T: Copy> {
    pub(super) name: Name,
    known: Cell<Option<(u64, T)>>,
}

impl<T: Copy> Named<T> {
    pub(super) fn new(name: Name) -> Self {
        Self {
            name,
            known: Cell::new(None),
        }
    }
}

/// The graph that quads go to; `None` is the default graph.
pub(super) type Graph<'g, T> = Option<&'g Named<T>>;

/// Why quads are not taken.
#[derive(Debug)]
pub(super) enum Refusal {
    Sink(crate::error::Error),
    /// Two indexes for one node, the second one here.
    Conflict((u64, u64), String),
}

impl From<crate::error::Error> for Refusal {
    fn from(error: crate::error::Error) -> Self {
        Self::Sink(error)
    }
}

type Done<T = ()> = std::result::Result<T, Refusal>;

/// Hands quads to a sink.
pub(super) struct Quads<'a, S: QuadSink> {
    sink: &'a mut S,
    advance: &'a mut dyn FnMut(u64) -> Result<()>,
    direction: DirectionForm,
    on_dropped: Option<OnDropped<'a>>,
    new_quads: u64,
    anonymous: u64,
    tags: HashMap<Box<str>, Option<Rc<str>>, RandomState>,
    indexes: HashMap<String, Box<str>, RandomState>,
    text: String,
}

impl<'a, S: QuadSink> Quads<'a, S> {
    pub(super) fn new(
        sink: &'a mut S,
        advance: &'a mut dyn FnMut(u64) -> Result<()>,
        direction: DirectionForm,
        on_dropped: Option<OnDropped<'a>>,
    ) -> Self {
        Self {
            sink,
            advance,
            direction,
            on_dropped,
            new_quads: 0,
            anonymous: 0,
            tags: HashMap::default(),
            indexes: HashMap::default(),
            text: String::new(),
        }
    }

    /// Tells of the last quads.
    pub(super) fn end(&mut self) -> Result<()> {
        (self.advance)(std::mem::take(&mut self.new_quads))
    }

    /// A blank node that is no other one.
    pub(super) fn anonymous(&mut self) -> Named<S::Term> {
        self.anonymous += 1;
        Named::new(Name::Anonymous(self.anonymous))
    }

    /// The node that a document names so; `None` if that is no name.
    pub(super) fn named(&mut self, place: Value<'_>, id: &Id<'_>) -> Option<Named<S::Term>> {
        let text = match id {
            Id::None => return Some(self.anonymous()),
            Id::Invalid => {
                self.dropped(place, || "@id is no IRI".to_owned());
                return None;
            }
            Id::Text(text) => text,
        };
        let shared = |text: &Text<'_>| match text {
            Text::Shared(text) => Rc::clone(text),
            Text::Part(text) => (*text).into(),
        };
        if let Some(label) = text.strip_prefix("_:") {
            return Some(Named::new(Name::Blank(label.into())));
        }
        if !self.is_iri(place, text) {
            return None;
        }
        Some(Named::new(Name::Iri(shared(text))))
    }

    fn dropped(&mut self, place: Value<'_>, reason: impl FnOnce() -> String) {
        if let Some(on_dropped) = &mut self.on_dropped {
            on_dropped(place.place(), format!("left out: {}", reason()));
        }
    }

    fn is_iri(&mut self, place: Value<'_>, text: &str) -> bool {
        match iri::check(text) {
            Ok(()) => true,
            Err(reason) => {
                self.dropped(place, || reason);
                false
            }
        }
    }

    fn term(&mut self, node: &Named<S::Term>) -> Result<S::Term> {
        let epoch = self.sink.epoch();
        if let Some((of, term)) = node.known.get()
            && of == epoch
        {
            return Ok(term);
        }
        let term = match &node.name {
            Name::Iri(iri) => self.sink.iri(iri)?,
            name => {
                use std::fmt::Write as _;
                self.text.clear();
                let written = match name {
                    Name::Anonymous(number) => write!(self.text, "b{number}"),
                    Name::Blank(label) | Name::Iri(label) => {
                        let before = if looks_anonymous(label) { "b" } else { "" };
                        write!(self.text, "{before}{label}")
                    }
                };
                written.expect("writing to a string cannot fail");
                self.sink.blank(&self.text)?
            }
        };
        node.known.set(Some((epoch, term)));
        Ok(term)
    }

    /// A quad; nothing was handed over for its object in an earlier epoch.
    fn quad(
        &mut self,
        subject: &Named<S::Term>,
        predicate: &str,
        object: S::Term,
        graph: Graph<'_, S::Term>,
    ) -> Result<()> {
        let subject = self.term(subject)?;
        let predicate = self.sink.iri(predicate)?;
        let graph = graph.map(|graph| self.term(graph)).transpose()?;
        self.sink.quad(subject, predicate, object, graph)?;
        self.new_quads += 1;
        if self.new_quads == ADVANCE_QUADS {
            (self.advance)(std::mem::take(&mut self.new_quads))?;
        }
        Ok(())
    }

    fn link(
        &mut self,
        subject: &Named<S::Term>,
        predicate: &str,
        object: &Named<S::Term>,
        graph: Graph<'_, S::Term>,
    ) -> Result<()> {
        let object = self.term(object)?;
        self.quad(subject, predicate, object, graph)
    }

    /// All that an item says by itself.
    pub(super) fn item(&mut self, item: &Item<'_>, graph: Graph<'_, S::Term>) -> Done {
        self.value(None, item, graph)
    }

    /// All that a node says; `subject` is its name, `None` one that is none.
    pub(super) fn node(
        &mut self,
        node: &Node<'_>,
        subject: Option<&Named<S::Term>>,
        graph: Graph<'_, S::Term>,
    ) -> Done {
        self.check_index(node, graph)?;
        if let Some(subject) = subject {
            for class in &node.types {
                let id = Id::Text(class.clone());
                if let Some(class) = self.named(node.value, &id) {
                    self.link(subject, rdf::TYPE.as_str(), &class, graph)?;
                }
            }
        }
        for (property, item) in &node.properties {
            let is_known = subject.is_some() && self.is_iri(node.value, property);
            let of = subject.filter(|_| is_known).map(|it| (it, &**property));
            self.value(of, item, graph)?;
        }
        for (property, item) in &node.reverse {
            let (place, id) = match item {
                Item::Reference(place, id) => (*place, id),
                Item::Node(other) => (other.value, &other.id),
                _ => continue,
            };
            let other = self.named(place, id);
            if let (Some(subject), Some(other)) = (subject, &other)
                && self.is_iri(node.value, property)
            {
                self.link(other, property, subject, graph)?;
            }
            if let Item::Node(inner) = item {
                self.node(inner, other.as_ref(), graph)?;
            }
        }
        for item in &node.included {
            self.item(item, graph)?;
        }
        if let (Some(items), Some(name)) = (&node.graph, subject) {
            for item in items {
                self.item(item, Some(name))?;
            }
        }
        Ok(())
    }

    /// A value of a property of a subject, if there is one, and what is said of nodes in it.
    fn value(
        &mut self,
        of: Option<(&Named<S::Term>, &str)>,
        item: &Item<'_>,
        graph: Graph<'_, S::Term>,
    ) -> Done {
        match item {
            Item::Literal(literal) => {
                if let Some((subject, property)) = of {
                    self.literal_of(subject, property, literal, graph)?;
                }
            }
            Item::Reference(place, id) => {
                if let Some((subject, property)) = of
                    && let Some(object) = self.named(*place, id)
                {
                    self.link(subject, property, &object, graph)?;
                }
            }
            Item::Node(node) => {
                let name = self.named(node.value, &node.id);
                if let (Some((subject, property)), Some(object)) = (of, &name) {
                    self.link(subject, property, object, graph)?;
                }
                self.node(node, name.as_ref(), graph)?;
            }
            Item::List(items) => self.list(of, items, graph)?,
        }
        Ok(())
    }

    /// List to RDF conversion (section 7.3). An item that is none leaves its place empty.
    fn list(
        &mut self,
        of: Option<(&Named<S::Term>, &str)>,
        items: &[Item<'_>],
        graph: Graph<'_, S::Term>,
    ) -> Done {
        let Some((subject, property)) = of else {
            for item in items {
                self.item(item, graph)?;
            }
            return Ok(());
        };
        let nil = Named::new(Name::Iri(rdf::NIL.as_str().into()));
        if items.is_empty() {
            self.link(subject, property, &nil, graph)?;
            return Ok(());
        }
        let mut cell = self.anonymous();
        self.link(subject, property, &cell, graph)?;
        for (i, item) in items.iter().enumerate() {
            self.value(Some((&cell, rdf::FIRST.as_str())), item, graph)?;
            if i + 1 == items.len() {
                self.link(&cell, rdf::REST.as_str(), &nil, graph)?;
            } else {
                let next = self.anonymous();
                self.link(&cell, rdf::REST.as_str(), &next, graph)?;
                cell = next;
            }
        }
        Ok(())
    }

    /// A literal (section 7.2).
    fn literal_of(
        &mut self,
        subject: &Named<S::Term>,
        property: &str,
        literal: &Literal<'_>,
        graph: Graph<'_, S::Term>,
    ) -> Result<()> {
        let value = literal.value;
        let object = match &literal.form {
            Form::Json => {
                let mut text = String::new();
                canonical(value, &mut text);
                let suffix = LiteralSuffix::Datatype(RDF_JSON);
                Some(self.sink.literal(&text, suffix)?)
            }
            Form::Tagged(language, direction) => {
                let language = match language {
                    None => None,
                    Some(tag) => match self.tag(tag) {
                        Some(tag) => Some(tag),
                        None => {
                            let reason = || format!("invalid language tag {:?}", &**tag);
                            self.dropped(value, reason);
                            return Ok(());
                        }
                    },
                };
                let text = value.text();
                return self.tagged(subject, property, text, (language, *direction), graph);
            }
            Form::Typed(datatype) if !self.is_iri(value, datatype) => None,
            Form::Typed(datatype) => Some(self.native(value, Some(datatype))?),
            Form::Native => Some(self.native(value, None)?),
        };
        match object {
            Some(object) => self.quad(subject, property, object, graph),
            None => Ok(()),
        }
    }

    /// A value as JSON has it, with its own datatype if it is given none.
    fn native(&mut self, value: Value<'_>, datatype: Option<&str>) -> Result<S::Term> {
        let number;
        let (text, own) = match value.kind() {
            Kind::True => ("true", xsd::BOOLEAN.as_str()),
            Kind::False => ("false", xsd::BOOLEAN.as_str()),
            Kind::Number => {
                let as_double = datatype == Some(xsd::DOUBLE.as_str());
                number = lexical(value.text(), as_double);
                let own = if number.1 { xsd::DOUBLE } else { xsd::INTEGER };
                (number.0.as_str(), own.as_str())
            }
            _ => (value.text(), xsd::STRING.as_str()),
        };
        let datatype = datatype.unwrap_or(own);
        let suffix = if datatype == xsd::STRING.as_str() {
            LiteralSuffix::None
        } else {
            LiteralSuffix::Datatype(datatype)
        };
        self.sink.literal(text, suffix)
    }

    /// A string that may have a language and a base direction.
    fn tagged(
        &mut self,
        subject: &Named<S::Term>,
        property: &str,
        text: &str,
        (language, direction): (Option<Rc<str>>, Option<BaseDirection>),
        graph: Graph<'_, S::Term>,
    ) -> Result<()> {
        let tag = language.as_deref();
        let direction_text = match direction {
            Some(BaseDirection::Rtl) => "rtl",
            _ => "ltr",
        };
        let object = match (self.direction, direction, tag) {
            (DirectionForm::I18n, Some(_), _) => {
                let tag = tag.unwrap_or_default();
                let datatype = format!("{I18N}{tag}_{direction_text}");
                let suffix = LiteralSuffix::Datatype(&datatype);
                self.sink.literal(text, suffix)?
            }
            (DirectionForm::Compound, Some(_), _) => {
                let compound = self.anonymous();
                self.link(subject, property, &compound, graph)?;
                for (property, text) in [
                    (RDF_VALUE, Some(text)),
                    (RDF_LANGUAGE, tag),
                    (RDF_DIRECTION, Some(direction_text)),
                ] {
                    if let Some(text) = text {
                        let object = self.sink.literal(text, LiteralSuffix::None)?;
                        self.quad(&compound, property, object, graph)?;
                    }
                }
                return Ok(());
            }
            (form, _, Some(tag)) => {
                let direction = direction.filter(|_| form == DirectionForm::DirLang);
                let suffix = LiteralSuffix::Language(tag, direction);
                self.sink.literal(text, suffix)?
            }
            (_, _, None) => self.sink.literal(text, LiteralSuffix::None)?,
        };
        self.quad(subject, property, object, graph)
    }

    /// A language tag in lower case; `None` if it is none.
    fn tag(&mut self, tag: &str) -> Option<Rc<str>> {
        if let Some(known) = self.tags.get(tag) {
            return known.clone();
        }
        let lower = tag.to_ascii_lowercase();
        let is_valid = OxLiteral::new_language_tagged_literal("", lower.as_str()).is_ok();
        let checked: Option<Rc<str>> = is_valid.then(|| lower.into());
        if self.tags.len() == TAGS_REMEMBERED_MAX {
            self.tags.clear();
        }
        self.tags.insert(tag.into(), checked.clone());
        checked
    }

    /// One node has one index.
    fn check_index(&mut self, node: &Node<'_>, graph: Graph<'_, S::Term>) -> Done {
        let (Some(index), Id::Text(id)) = (node.index, &node.id) else {
            return Ok(());
        };
        let graph = graph.map(|graph| &graph.name);
        let key = match graph {
            None => format!("{} ", &**id),
            Some(Name::Anonymous(number)) => format!("{} {number}", &**id),
            Some(Name::Blank(label)) => format!("{} _:{label}", &**id),
            Some(Name::Iri(iri)) => format!("{} {iri}", &**id),
        };
        if let Some(known) = self.indexes.get(&key) {
            if **known == *index {
                return Ok(());
            }
            let detail = format!("<{}> has the indexes {known:?} and {index:?}", &**id);
            return Err(Refusal::Conflict(node.value.place(), detail));
        }
        if self.indexes.len() == INDEXES_REMEMBERED_MAX {
            self.indexes.clear();
        }
        self.indexes.insert(key, index.into());
        Ok(())
    }
}

/// Whether a label of the document could be taken for that of a node without one: those have one `b` and
/// a number, so these get one `b` more.
fn looks_anonymous(label: &str) -> bool {
    let number = label.trim_start_matches('b');
    label.len() > number.len() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}
