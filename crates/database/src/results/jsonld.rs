//! JSON-LD from a set of quads that is at hand as a whole: with lists as `@list`, nodes with all they
//! have in one object, and graphs in the object of their name.
//!
//! # Limits
//! Memory: a copy of everything. Lists in lists are written up to [`LIST_DEPTH_MAX`] deep.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#serialize-rdf-as-json-ld-algorithm>

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use oxrdf::vocab::{rdf, xsd};
use oxrdf::{Literal, NamedOrBlankNode, Quad, Term};
use rapidhash::fast::RandomState;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// How deeply lists in lists may be nested: readers, and this writer, go into them by recursion.
const LIST_DEPTH_MAX: usize = 100;

const RDF_JSON: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#JSON";
const RDF_DIRECTION: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#direction";
const RDF_LANGUAGE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#language";
const I18N: &str = "https://www.w3.org/ns/i18n#";
const DEFAULT: &str = "@default";

/// How RDF 1.1 expresses base directions of texts. Those of RDF 1.2 are written in any case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RdfDirection {
    /// As datatypes that begin with `https://www.w3.org/ns/i18n#`.
    I18nDatatype,
    /// As blank nodes with `rdf:value`, `rdf:language` and `rdf:direction`.
    CompoundLiteral,
}

/// What [`from_rdf`] may do with terms, as the JSON-LD API has it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FromRdfOptions {
    /// Whether `rdf:type` is written as any other property, not as `@type`.
    pub use_rdf_type: bool,
    /// Whether booleans, integers and doubles become those of JSON, which may lose their lexical form.
    pub use_native_types: bool,
    /// Whether literals of `rdf:JSON` become JSON, which may lose their lexical form.
    pub use_json: bool,
    /// What is recognised as the base direction of a text.
    pub rdf_direction: Option<RdfDirection>,
}

/// The expanded JSON-LD document of some quads.
///
/// # Errors
/// [`Error::Unsupported`] if JSON-LD cannot express a term: triple terms, with `use_json` a literal
/// that is no JSON, a compound literal whose direction is neither `ltr` nor `rtl`, and lists in lists
/// that are more than a hundred deep.
pub fn from_rdf(quads: impl IntoIterator<Item = Quad>, options: &FromRdfOptions) -> Result<String> {
    let mut document = Document {
        options: *options,
        graphs: vec![Graph::default()],
        graph_numbers: HashMap::default(),
        nodes: Vec::new(),
        references: HashMap::default(),
        compounds: Vec::new(),
    };
    document.graph_numbers.insert(DEFAULT.to_owned(), 0);
    let mut seen: HashSet<Quad, RandomState> = HashSet::default();
    for quad in quads {
        if seen.contains(&quad) {
            continue;
        }
        document.add(&quad)?;
        seen.insert(quad);
    }
    drop(seen);
    document.fold_compounds()?;
    document.fold_lists();
    document.check_depth()?;
    let text = serde_json::to_string(&document.json());
    text.map_err(|error| Error::Internal(error.to_string()))
}

/// A value of a property: the node, the property, and which of its values.
#[derive(Clone, Debug)]
struct Place {
    node: usize,
    property: String,
    value: usize,
}

/// A value, and the items if it is a list.
#[derive(Debug)]
struct Entry {
    json: Map<String, Value>,
    list: Option<Vec<Place>>,
}

#[derive(Debug)]
struct Node {
    id: String,
    graph: usize,
    types: Vec<Value>,
    properties: BTreeMap<String, Vec<Entry>>,
    /// Whether it has become a part of another one.
    is_folded: bool,
}

#[derive(Debug, Default)]
struct Graph {
    nodes: BTreeMap<String, usize>,
    /// Where `rdf:nil` is used.
    nil_usages: Vec<Place>,
}

struct Document {
    options: FromRdfOptions,
    graphs: Vec<Graph>,
    graph_numbers: HashMap<String, usize, RandomState>,
    nodes: Vec<Node>,
    /// Where blank nodes are used; `None` if more than once.
    references: HashMap<String, Option<Place>, RandomState>,
    /// Nodes with a direction.
    compounds: Vec<usize>,
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported(format!("JSON-LD cannot express {what}"))
}

fn node_id(node: &NamedOrBlankNode) -> String {
    match node {
        NamedOrBlankNode::NamedNode(iri) => iri.as_str().to_owned(),
        NamedOrBlankNode::BlankNode(blank) => blank.to_string(),
    }
}

fn object_id(object: &Term) -> Option<String> {
    match object {
        Term::NamedNode(iri) => Some(iri.as_str().to_owned()),
        Term::BlankNode(blank) => Some(blank.to_string()),
        _ => None,
    }
}

fn reference(id: &str) -> Map<String, Value> {
    Map::from_iter([("@id".to_owned(), Value::from(id))])
}

impl Document {
    fn node(&mut self, graph: usize, id: String) -> usize {
        let Self { graphs, nodes, .. } = self;
        let Some(known) = graphs.get_mut(graph) else {
            return 0;
        };
        *known.nodes.entry(id).or_insert_with_key(|id| {
            nodes.push(Node {
                id: id.clone(),
                graph,
                types: Vec::new(),
                properties: BTreeMap::new(),
                is_folded: false,
            });
            nodes.len() - 1
        })
    }

    fn graph(&mut self, name: &oxrdf::GraphName) -> usize {
        let name = match name {
            oxrdf::GraphName::DefaultGraph => return 0,
            oxrdf::GraphName::NamedNode(iri) => iri.as_str().to_owned(),
            oxrdf::GraphName::BlankNode(blank) => blank.to_string(),
        };
        if let Some(number) = self.graph_numbers.get(&name) {
            return *number;
        }
        // The name is a node of the default graph, whose object gets the graph.
        self.node(0, name.clone());
        self.graphs.push(Graph::default());
        self.graph_numbers.insert(name, self.graphs.len() - 1);
        self.graphs.len() - 1
    }

    fn add(&mut self, quad: &Quad) -> Result<()> {
        let graph = self.graph(&quad.graph_name);
        let subject = self.node(graph, node_id(&quad.subject));
        let object_id = object_id(&quad.object);
        if let Some(id) = &object_id {
            self.node(graph, id.clone());
        }
        let is_type = quad.predicate.as_ref() == rdf::TYPE && !self.options.use_rdf_type;
        if let Some(id) = object_id.as_deref().filter(|_| is_type) {
            if let Some(node) = self.nodes.get_mut(subject) {
                node.types.push(Value::from(id));
            }
            // A class is no part of a list.
            if matches!(quad.object, Term::BlankNode(_)) {
                self.references.insert(id.to_owned(), None);
            }
            return Ok(());
        }
        let compound = self.options.rdf_direction == Some(RdfDirection::CompoundLiteral);
        if compound && quad.predicate.as_str() == RDF_DIRECTION {
            self.compounds.push(subject);
        }
        let json = match (&object_id, &quad.object) {
            (Some(id), _) => reference(id),
            (None, Term::Literal(literal)) => literal_value(literal, &self.options)?,
            (None, object) => return Err(unsupported(&object.to_string())),
        };
        let property = quad.predicate.as_str().to_owned();
        let Some(node) = self.nodes.get_mut(subject) else {
            return Ok(());
        };
        let values = node.properties.entry(property.clone()).or_default();
        if self.options.use_native_types && values.iter().any(|entry| entry.json == json) {
            return Ok(());
        }
        values.push(Entry { json, list: None });
        let place = Place {
            node: subject,
            property,
            value: values.len() - 1,
        };
        match &quad.object {
            Term::NamedNode(iri) if iri.as_ref() == rdf::NIL => {
                if let Some(graph) = self.graphs.get_mut(graph) {
                    graph.nil_usages.push(place);
                }
            }
            Term::BlankNode(blank) => {
                self.references
                    .entry(blank.to_string())
                    .and_modify(|known| *known = None)
                    .or_insert(Some(place));
            }
            _ => {}
        }
        Ok(())
    }

    fn entry_mut(&mut self, place: &Place) -> Option<&mut Entry> {
        let node = self.nodes.get_mut(place.node)?;
        node.properties
            .get_mut(&place.property)?
            .get_mut(place.value)
    }

    fn fold_compounds(&mut self) -> Result<()> {
        for compound in std::mem::take(&mut self.compounds) {
            let Some(node) = self.nodes.get(compound) else {
                continue;
            };
            let Some(Some(place)) = self.references.get(&node.id).cloned() else {
                continue;
            };
            let text = |property: &str| {
                let entry = node.properties.get(property)?.first()?;
                entry.json.get("@value").cloned()
            };
            let mut value = Map::new();
            value.insert(
                "@value".to_owned(),
                text(rdf::VALUE.as_str()).unwrap_or_default(),
            );
            if let Some(language) = text(RDF_LANGUAGE) {
                value.insert("@language".to_owned(), language);
            }
            let direction = text(RDF_DIRECTION).unwrap_or_default();
            if direction != "ltr" && direction != "rtl" {
                return Err(unsupported(&format!("the direction {direction}")));
            }
            value.insert("@direction".to_owned(), direction);
            if let Some(entry) = self.entry_mut(&place) {
                entry.json = value;
            }
            if let Some(node) = self.nodes.get_mut(compound) {
                node.is_folded = true;
            }
        }
        Ok(())
    }

    fn fold_lists(&mut self) {
        for graph in 0..self.graphs.len() {
            let usages = self
                .graphs
                .get_mut(graph)
                .map(|g| std::mem::take(&mut g.nil_usages));
            for usage in usages.unwrap_or_default() {
                self.fold_list(usage);
            }
        }
    }

    /// Goes back from the end of a list to its head, as far as it is nothing but a list.
    fn fold_list(&mut self, end: Place) {
        let mut head = end;
        let mut items = Vec::new();
        while head.property == rdf::REST.as_str() {
            let Some(next) = self.list_reference(head.node) else {
                break;
            };
            items.push(Place {
                node: head.node,
                property: rdf::FIRST.as_str().to_owned(),
                value: 0,
            });
            if let Some(node) = self.nodes.get_mut(head.node) {
                node.is_folded = true;
            }
            head = next;
        }
        items.reverse();
        if let Some(entry) = self.entry_mut(&head) {
            entry.json.clear();
            entry.list = Some(items);
        }
    }

    /// Where a node is used that is nothing but a part of a list.
    fn list_reference(&self, node: usize) -> Option<Place> {
        let node = self.nodes.get(node)?;
        let place = self.references.get(&node.id)?.clone()?;
        let of_graph = self.nodes.get(place.node)?.graph == node.graph;
        let is_list_type = |class: &Value| class == rdf::LIST.as_str();
        let is_part = of_graph
            && !node.is_folded
            && node.properties.len() == 2
            && node.properties.get(rdf::FIRST.as_str())?.len() == 1
            && node.properties.get(rdf::REST.as_str())?.len() == 1
            && node.types.len() <= 1
            && node.types.iter().all(is_list_type)
            && !self.graph_numbers.contains_key(&node.id);
        is_part.then_some(place)
    }

    fn entry(&self, place: &Place) -> Option<&Entry> {
        self.nodes
            .get(place.node)?
            .properties
            .get(&place.property)?
            .get(place.value)
    }

    fn check_depth(&self) -> Result<()> {
        let heads = self.nodes.iter().filter(|node| !node.is_folded);
        let mut open: Vec<(&Entry, usize)> = heads
            .flat_map(|node| node.properties.values().flatten())
            .map(|entry| (entry, 0))
            .collect();
        while let Some((entry, depth)) = open.pop() {
            if depth > LIST_DEPTH_MAX {
                return Err(unsupported("lists that are nested so deep"));
            }
            for item in entry.list.iter().flatten() {
                open.extend(self.entry(item).map(|item| (item, depth + 1)));
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let Some(default) = self.graphs.first() else {
            return Value::Array(Vec::new());
        };
        let mut result = Vec::new();
        for (id, number) in &default.nodes {
            let Some(node) = self.nodes.get(*number) else {
                continue;
            };
            let mut object = self.node_json(node);
            if let Some(graph) = self.graph_numbers.get(id).and_then(|g| self.graphs.get(*g)) {
                let nodes = graph.nodes.values().filter_map(|n| self.nodes.get(*n));
                let nodes = nodes.filter(|node| !node.is_folded);
                let nodes = nodes
                    .map(|node| self.node_json(node))
                    .filter(|n| n.len() > 1);
                let nodes = nodes.map(Value::Object).collect();
                object.insert("@graph".to_owned(), Value::Array(nodes));
            }
            if object.len() > 1 && !node.is_folded {
                result.push(Value::Object(object));
            }
        }
        Value::Array(result)
    }

    fn node_json(&self, node: &Node) -> Map<String, Value> {
        let mut object = reference(&node.id);
        if !node.types.is_empty() {
            object.insert("@type".to_owned(), Value::Array(node.types.clone()));
        }
        for (property, values) in &node.properties {
            let values = values.iter().map(|entry| self.entry_json(entry)).collect();
            object.insert(property.clone(), Value::Array(values));
        }
        object
    }

    /// Recursive: [`Document::check_depth`] bounds it.
    fn entry_json(&self, entry: &Entry) -> Value {
        let mut object = entry.json.clone();
        if let Some(list) = &entry.list {
            let items = list.iter().filter_map(|item| self.entry(item));
            let items = items.map(|item| self.entry_json(item)).collect();
            object.insert("@list".to_owned(), Value::Array(items));
        }
        Value::Object(object)
    }
}

fn literal_value(literal: &Literal, options: &FromRdfOptions) -> Result<Map<String, Value>> {
    let text = literal.value();
    let mut value = Value::from(text);
    let mut object = Map::new();
    let datatype = literal.datatype();
    if let Some(language) = literal.language() {
        object.insert("@language".to_owned(), Value::from(language));
        if let Some(direction) = literal.direction() {
            object.insert("@direction".to_owned(), Value::from(direction.to_string()));
        }
    } else if let Some(native) = native(literal).filter(|_| options.use_native_types) {
        value = native;
    } else if options.use_json && datatype.as_str() == RDF_JSON {
        value = serde_json::from_str(text)
            .map_err(|error| unsupported(&format!("{literal}: invalid JSON: {error}")))?;
        object.insert("@type".to_owned(), Value::from("@json"));
    } else if options.rdf_direction == Some(RdfDirection::I18nDatatype)
        && let Some(suffix) = datatype.as_str().strip_prefix(I18N)
    {
        let (language, direction) = suffix.split_once('_').unwrap_or((suffix, ""));
        for (name, part) in [("@language", language), ("@direction", direction)] {
            if !part.is_empty() {
                object.insert(name.to_owned(), Value::from(part));
            }
        }
    } else if datatype != xsd::STRING {
        object.insert("@type".to_owned(), Value::from(datatype.as_str()));
    }
    object.insert("@value".to_owned(), value);
    Ok(object)
}

/// A boolean or number of JSON with the same value.
fn native(literal: &Literal) -> Option<Value> {
    let text = literal.value();
    match literal.datatype() {
        xsd::BOOLEAN if matches!(text, "true" | "1") => Some(Value::Bool(true)),
        xsd::BOOLEAN if matches!(text, "false" | "0") => Some(Value::Bool(false)),
        xsd::INTEGER => text.parse::<i64>().ok().map(Value::from),
        xsd::DOUBLE
            if text
                .bytes()
                .all(|b| !b.is_ascii_alphabetic() || b | 32 == b'e') =>
        {
            let number: f64 = text.parse().ok()?;
            serde_json::Number::from_f64(number).map(Value::Number)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(turtle: &str) -> Result<String> {
        let quads = oxttl::TriGParser::new().for_slice(turtle);
        let quads: Vec<Quad> = quads.collect::<std::result::Result<_, _>>().unwrap();
        from_rdf(quads, &FromRdfOptions::default())
    }

    #[test]
    fn lists_are_folded_where_nothing_else_is_known_of_them() {
        let list = "<u:s> <u:p> ( 'a' ( 'b' ) () ) .";
        assert_eq!(
            written(list).unwrap(),
            r#"[{"@id":"u:s","u:p":[{"@list":[{"@value":"a"},{"@list":[{"@value":"b"}]},{"@list":[]}]}]}]"#
        );
        let rdf = "PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> ";
        for more in [
            "<u:s> <u:p> _:l . <u:s> <u:q> _:l . _:l rdf:first 1 ; rdf:rest () .",
            "<u:s> <u:p> _:l . _:l rdf:first 1, 2 ; rdf:rest () .",
            "<u:s> <u:p> _:l . _:l rdf:first 1 ; rdf:rest () ; <u:q> 2 .",
            "<u:s> <u:p> _:l . _:l rdf:first 1 ; rdf:rest () ; a _:l .",
            "<u:s> <u:p> <u:l> . <u:l> rdf:first 1 ; rdf:rest () .",
            "_:l rdf:first 1 ; rdf:rest _:l .",
            "<u:g> { <u:s> <u:p> _:l } _:l rdf:first 1 ; rdf:rest () .",
            "<u:s> <u:p> _:l . _:l rdf:first 1 ; rdf:rest () . _:l { <u:s> <u:p> 1 }",
        ] {
            let json = written(&format!("{rdf}{more}")).unwrap();
            assert!(json.contains("#first"), "{json}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let deep = format!("<u:s> <u:p> {}{} .", "( ".repeat(5_000), " )".repeat(5_000));
        assert!(matches!(written(&deep), Err(Error::Unsupported(_))));
        let triple = "<u:s> <u:p> <<( <u:s> <u:p> 1 )>> .";
        assert!(matches!(written(triple), Err(Error::Unsupported(_))));
    }
}
