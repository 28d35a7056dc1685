//! What expansion makes of a document: nodes, literals and lists, without anything that stands in the way
//! of quads.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11/#node-objects> and the sections behind it

use std::ops::Deref;
use std::rc::Rc;

use oxrdf::BaseDirection;

use super::tape::Value;

/// A text of the document or of a context.
#[derive(Clone, Debug)]
pub(super) enum Text<'t> {
    Part(&'t str),
    Shared(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Part(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// How a value becomes a literal.
#[derive(Clone, Debug)]
pub(super) enum Form<'t> {
    /// As a string, number or boolean.
    Native,
    Typed(Text<'t>),
    Json,
    Tagged(Option<Text<'t>>, Option<BaseDirection>),
}

/// A value object.
#[derive(Clone, Debug)]
pub(super) struct Literal<'t> {
    pub(super) value: Value<'t>,
    pub(super) form: Form<'t>,
}

/// What `@id` says.
#[derive(Clone, Debug, Default)]
pub(super) enum Id<'t> {
    /// Nothing: a blank node.
    #[default]
    None,
    /// Something that names no node.
    Invalid,
    /// An IRI, or a blank node with its `_:`.
    Text(Text<'t>),
}

/// A node object.
#[derive(Clone, Debug)]
pub(super) struct Node<'t> {
    /// Where it stands.
    pub(super) value: Value<'t>,
    pub(super) id: Id<'t>,
    pub(super) types: Vec<Text<'t>>,
    pub(super) index: Option<&'t str>,
    /// A property and one of its values each.
    pub(super) properties: Vec<(Rc<str>, Item<'t>)>,
    pub(super) reverse: Vec<(Rc<str>, Item<'t>)>,
    pub(super) graph: Option<Vec<Item<'t>>>,
    pub(super) included: Vec<Item<'t>>,
}

impl<'t> Node<'t> {
    pub(super) fn new(value: Value<'t>) -> Self {
        Self {
            value,
            id: Id::None,
            types: Vec::new(),
            index: None,
            properties: Vec::new(),
            reverse: Vec::new(),
            graph: None,
            included: Vec::new(),
        }
    }

    /// A graph of its own with one item.
    pub(super) fn graph_of(value: Value<'t>, item: Item<'t>) -> Self {
        Self {
            graph: Some(vec![item]),
            ..Self::new(value)
        }
    }

    /// Whether it says nothing but its name.
    pub(super) fn is_reference(&self) -> bool {
        self.graph.is_none() && self.says_nothing()
    }

    /// Whether it is a graph and nothing else.
    pub(super) fn is_graph(&self) -> bool {
        self.graph.is_some() && self.says_nothing()
    }

    fn says_nothing(&self) -> bool {
        self.types.is_empty()
            && self.properties.is_empty()
            && self.reverse.is_empty()
            && self.included.is_empty()
    }
}

/// A value of a property, of a list or of a graph.
#[derive(Clone, Debug)]
pub(super) enum Item<'t> {
    Literal(Literal<'t>),
    /// A node of which nothing is said here; where it stands.
    Reference(Value<'t>, Id<'t>),
    Node(Box<Node<'t>>),
    List(Vec<Item<'t>>),
}

impl<'t> Item<'t> {
    /// The node, if it is one, to say more of it.
    pub(super) fn node_mut(&mut self) -> Option<&mut Node<'t>> {
        if let Self::Reference(value, id) = self {
            let mut node = Node::new(*value);
            node.id = std::mem::take(id);
            *self = Self::Node(Box::new(node));
        }
        match self {
            Self::Node(node) => Some(node),
            _ => None,
        }
    }

    pub(super) fn is_node(&self) -> bool {
        matches!(self, Self::Node(_) | Self::Reference(..))
    }
}

/// What an item may take of memory for each token of the document, in bytes: it may lie in a vector that
/// grows.
pub(super) const ITEM_BYTES: usize = 2 * size_of::<(Rc<str>, Item<'_>)>();
