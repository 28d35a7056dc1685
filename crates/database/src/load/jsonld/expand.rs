//! Expansion: what the values of a document say, with all names spelled out.
//!
//! # Limits
//! Nodes are expanded by recursion; JSON is read only so deep.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#expansion-algorithm>, section 5.1.2; the numbers are its steps

use std::rc::Rc;

use super::building::Building;
use super::context::{Coercion, Containers, Context, Key, Target};
use super::item::{Form, Id, Item, Literal, Node, Text};
use super::keyword::Keyword;
use super::mistake::{Mistake, Outcome};
use super::process::{How, Processor};
use super::tape::{Kind, Value};

/// What came of a value: nothing, one item, or as many as there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    Null,
    One,
    Array,
}

/// The property of the graph of a node, and of a map of reverse properties.
pub(super) const GRAPH: Option<&str> = Some("@graph");
pub(super) const REVERSE: Option<&str> = Some("@reverse");

/// What holds within an object.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) active: Rc<Context>,
    /// The context before those of types.
    pub(super) type_scoped: Rc<Context>,
    /// Whether the value is JSON, by its type.
    pub(super) is_json: bool,
}

/// Expands documents.
pub(super) struct Expander {
    pub(super) processor: Processor,
    /// The URL of the document.
    pub(super) base_url: Option<Rc<str>>,
}

impl Expander {
    /// Expands a value of a property, and appends what it says to `out`.
    pub(super) fn expand<'t>(
        &self,
        active: &Rc<Context>,
        property: Option<&str>,
        element: Value<'t>,
        from_map: bool,
        out: &mut Vec<Item<'t>>,
    ) -> Outcome<Shape> {
        match element.kind() {
            Kind::Null => Ok(Shape::Null),
            Kind::Object => self.object(active, property, element, from_map, out),
            Kind::Array => {
                let term = property.and_then(|property| active.term(property));
                let is_list = term.is_some_and(|term| term.containers.has(Containers::LIST));
                for item in element.items() {
                    let before = out.len();
                    let shape = self.expand(active, property, item, from_map, out)?;
                    if is_list && shape == Shape::Array {
                        let inner = out.split_off(before);
                        out.push(Item::List(inner));
                    }
                }
                Ok(Shape::Array)
            }
            _ if property.is_none() || property == GRAPH => Ok(Shape::Null),
            _ => {
                let property = property.unwrap_or_default();
                let scoped = active.term(property).and_then(|term| term.scoped.as_ref());
                let item = match scoped {
                    None => value(active, property, element),
                    Some(scoped) => {
                        let active = self.processor.scoped(active, scoped, How::PROPERTY)?;
                        value(&active, property, element)
                    }
                };
                out.push(item);
                Ok(Shape::One)
            }
        }
    }

    fn object<'t>(
        &self,
        active: &Rc<Context>,
        property: Option<&str>,
        element: Value<'t>,
        from_map: bool,
        out: &mut Vec<Item<'t>>,
    ) -> Outcome<Shape> {
        let scope = self.enter(active, property, element, from_map)?;
        let mut building = Building::new(element);
        self.entries(&scope, property, element, &mut building)?;
        building.finish(property, scope.is_json, out)
    }

    /// Steps 3 and 7 to 12: the contexts that hold within an object.
    pub(super) fn enter(
        &self,
        active: &Rc<Context>,
        property: Option<&str>,
        element: Value<'_>,
        from_map: bool,
    ) -> Outcome<Scope> {
        let term = property.and_then(|property| active.term(property)).cloned();
        let mut active = Rc::clone(active);
        if let Some(previous) = &active.previous
            && !from_map
            && !stays(&active, element)
        {
            active = Rc::clone(previous);
        }
        if let Some(scoped) = term.as_ref().and_then(|term| term.scoped.as_ref()) {
            active = self.processor.scoped(&active, scoped, How::PROPERTY)?;
        }
        if let Some(local) = element.get("@context") {
            active = self
                .processor
                .embedded(&active, local, self.base_url.as_ref())?;
        }
        let type_scoped = Rc::clone(&active);
        let mut types: Vec<(Value<'_>, Value<'_>)> = element
            .entries()
            .filter(|(key, _)| type_scoped.key(key.text()).keyword() == Some(Keyword::Type))
            .collect();
        types.sort_by_key(|(key, _)| key.text());
        for (_, value) in &types {
            let mut names: Vec<&str> = value.items().filter_map(Value::as_str).collect();
            names.sort_unstable();
            for name in names {
                let term = type_scoped.term(name).cloned();
                if let Some(scoped) = term.as_ref().and_then(|term| term.scoped.as_ref()) {
                    active = self.processor.scoped(&active, scoped, How::TYPE)?;
                }
            }
        }
        let input_type = types.first().and_then(|(_, value)| value.items().last());
        let input_type = input_type.and_then(Value::as_str);
        let json = Some(Target::Keyword(Keyword::Json));
        Ok(Scope {
            is_json: input_type.is_some_and(|name| active.expand_vocab(name) == json),
            active,
            type_scoped,
        })
    }

    /// Steps 13 and 14: all keys.
    pub(super) fn entries<'t>(
        &self,
        scope: &Scope,
        property: Option<&str>,
        element: Value<'t>,
        building: &mut Building<'t>,
    ) -> Outcome<()> {
        let mut nests = Vec::new();
        for (key, value) in element.entries() {
            if key.text() == "@context" {
                continue;
            }
            let meaning = scope.active.key(key.text());
            match &meaning.target {
                None => {}
                Some(Target::Keyword(Keyword::Nest)) if property != REVERSE => {
                    nests.push((key, value));
                }
                Some(Target::Keyword(keyword)) => {
                    self.keyword(scope, property, *keyword, key, value, building)?;
                }
                Some(Target::Iri(iri)) => {
                    self.property(scope, &meaning, iri, key, value, building)?;
                }
            }
        }
        for (key, value) in nests {
            self.nested(scope, property, key, value, building)?;
        }
        Ok(())
    }

    /// Step 14: what belongs to the node around it.
    fn nested<'t>(
        &self,
        scope: &Scope,
        property: Option<&str>,
        key: Value<'t>,
        value: Value<'t>,
        building: &mut Building<'t>,
    ) -> Outcome<()> {
        let term = scope.active.term(key.text()).cloned();
        let mut inner = scope.clone();
        if let Some(scoped) = term.as_ref().and_then(|term| term.scoped.as_ref()) {
            inner.active = self
                .processor
                .scoped(&scope.active, scoped, How::PROPERTY)?;
        }
        for nested in value.items() {
            let is_value = |(key, _): (Value<'_>, _)| {
                inner.active.key(key.text()).keyword() == Some(Keyword::Value)
            };
            if !nested.is_object() || nested.entries().any(is_value) {
                return Err(Mistake::at(
                    nested,
                    "invalid @nest value",
                    "it must be an object without @value",
                ));
            }
            self.entries(&inner, property, nested, building)?;
        }
        Ok(())
    }

    /// Steps 13.5 to 13.14: a property.
    fn property<'t>(
        &self,
        scope: &Scope,
        meaning: &Key,
        iri: &Rc<str>,
        key: Value<'t>,
        value: Value<'t>,
        building: &mut Building<'t>,
    ) -> Outcome<()> {
        let containers = meaning.containers();
        let maps = Containers::INDEX
            .with(Containers::TYPE)
            .with(Containers::ID);
        let is_json = meaning
            .term
            .as_ref()
            .is_some_and(|term| term.coercion == Some(Coercion::Json));
        let mut items = building.take_scratch();
        let shape = if is_json {
            let form = Form::Json;
            items.push(Item::Literal(Literal { value, form }));
            Shape::One
        } else if containers.has(Containers::LANGUAGE) && value.is_object() {
            language_map(scope, meaning, value, &mut items)?;
            Shape::Array
        } else if containers.has(maps) && value.is_object() {
            self.index_map(scope, meaning, key, value, &mut items)?;
            Shape::Array
        } else {
            self.expand(&scope.active, Some(key.text()), value, false, &mut items)?
        };
        if shape != Shape::Null {
            building.mark_property();
            if containers.has(Containers::LIST)
                && !(shape == Shape::One && matches!(items.as_slice(), [Item::List(_)]))
            {
                let list = Item::List(std::mem::take(&mut items));
                items.push(list);
            }
            let named = Containers::ID.with(Containers::INDEX);
            if containers.has(Containers::GRAPH) && !containers.has(named) {
                for item in &mut items {
                    let placeholder = Item::List(Vec::new());
                    let inner = std::mem::replace(item, placeholder);
                    *item = Item::Node(Box::new(Node::graph_of(value, inner)));
                }
            }
            let is_reverse = meaning.term.as_ref().is_some_and(|term| term.is_reverse);
            for item in items.drain(..) {
                building.add(is_reverse, iri, item, value)?;
            }
        }
        building.give_scratch(items);
        Ok(())
    }

    /// Step 13.8: a map whose keys are indexes, names or types of what they stand for.
    fn index_map<'t>(
        &self,
        scope: &Scope,
        meaning: &Key,
        key: Value<'t>,
        map: Value<'t>,
        out: &mut Vec<Item<'t>>,
    ) -> Outcome<()> {
        let containers = meaning.containers();
        let index_key = meaning.term.as_ref().and_then(|term| term.index.as_deref());
        let active = &scope.active;
        for (index, value) in map.entries() {
            let mut context = Rc::clone(active);
            if containers.has(Containers::ID.with(Containers::TYPE))
                && let Some(previous) = &active.previous
            {
                context = Rc::clone(previous);
            }
            let term = context.term(index.text()).cloned();
            let scoped = term.as_ref().and_then(|term| term.scoped.as_ref());
            if containers.has(Containers::TYPE)
                && let Some(scoped) = scoped
            {
                context = self.processor.scoped(&context, scoped, How::TYPE_MAP)?;
            }
            let expanded = active.expand_vocab(index.text());
            let is_none = expanded == Some(Target::Keyword(Keyword::None));
            let before = out.len();
            self.expand(&context, Some(key.text()), value, true, out)?;
            for item in out.iter_mut().skip(before) {
                if containers.has(Containers::GRAPH)
                    && !matches!(item, Item::Node(node) if node.is_graph())
                {
                    let inner = std::mem::replace(item, Item::List(Vec::new()));
                    *item = Item::Node(Box::new(Node::graph_of(value, inner)));
                }
                if is_none {
                    continue;
                }
                if containers.has(Containers::INDEX) {
                    add_index(active, index_key, index, item)?;
                } else if let Some(node) = item.node_mut() {
                    if containers.has(Containers::ID) {
                        if matches!(node.id, Id::None) {
                            node.id = id(active, index.text());
                        }
                    } else if let Some(expanded) = &expanded {
                        node.types.push(text_of(expanded));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Step 7: whether a context that is not propagated holds in an object all the same: one with a value, or
/// with nothing but a name.
fn stays(active: &Context, element: Value<'_>) -> bool {
    let mut entries = element.entries();
    let first = entries.next();
    let is_single = entries.next().is_none();
    let keyword = |key: Value<'_>| active.key(key.text()).keyword();
    (is_single && first.is_some_and(|(key, _)| keyword(key) == Some(Keyword::Id)))
        || element
            .entries()
            .any(|(key, _)| keyword(key) == Some(Keyword::Value))
}

/// An index as what it says of an item: the value of a property, or nothing but itself.
fn add_index<'t>(
    active: &Rc<Context>,
    index_key: Option<&str>,
    index: Value<'t>,
    item: &mut Item<'t>,
) -> Outcome<()> {
    let Some(index_key) = index_key else {
        if let Item::Node(node) = item {
            node.index.get_or_insert(index.text());
        }
        return Ok(());
    };
    let Some(node) = item.node_mut() else {
        return Err(Mistake::at(
            index,
            "invalid value object",
            "an index that is a property asks for nodes",
        ));
    };
    if let Some(Target::Iri(property)) = active.expand_vocab(index_key) {
        let value = value(active, index_key, index);
        node.properties.push((property, value));
    }
    Ok(())
}

/// Step 13.7: a map from languages to texts.
fn language_map<'t>(
    scope: &Scope,
    meaning: &Key,
    map: Value<'t>,
    out: &mut Vec<Item<'t>>,
) -> Outcome<()> {
    let active = &scope.active;
    let own = meaning.term.as_ref().and_then(|term| term.direction);
    let direction = own.unwrap_or(active.direction);
    for (language, texts) in map.entries() {
        let is_none = active.key(language.text()).keyword() == Some(Keyword::None);
        let language = (!is_none).then(|| Text::Part(language.text()));
        for value in texts.items() {
            if value.is_null() {
                continue;
            }
            if value.as_str().is_none() {
                return Err(Mistake::at(
                    value,
                    "invalid language map value",
                    "it must be a string",
                ));
            }
            let form = Form::Tagged(language.clone(), direction);
            out.push(Item::Literal(Literal { value, form }));
        }
    }
    Ok(())
}

/// Value expansion (section 5.3.2).
pub(super) fn value<'t>(active: &Context, property: &str, value: Value<'t>) -> Item<'t> {
    let term = active.term(property);
    let text = value.as_str();
    let form = match term.and_then(|term| term.coercion.as_ref()) {
        Some(Coercion::Id) if text.is_some() => {
            return Item::Reference(value, id(active, value.text()));
        }
        Some(Coercion::Vocab) if text.is_some() => {
            let id = match active.expand(value.text(), true, true) {
                Some(Target::Iri(iri)) => Id::Text(Text::Shared(iri)),
                _ => Id::Invalid,
            };
            return Item::Reference(value, id);
        }
        Some(Coercion::Datatype(datatype)) => Form::Typed(Text::Shared(Rc::clone(datatype))),
        _ if text.is_some() => {
            let own = term.and_then(|term| term.language.as_ref());
            let language = own.unwrap_or(&active.language);
            let own = term.and_then(|term| term.direction);
            Form::Tagged(
                language.clone().map(Text::Shared),
                own.unwrap_or(active.direction),
            )
        }
        _ => Form::Native,
    };
    Item::Literal(Literal { value, form })
}

/// What `@id` says.
pub(super) fn id<'t>(active: &Context, text: &str) -> Id<'t> {
    match active.expand(text, true, false) {
        Some(Target::Iri(iri)) => Id::Text(Text::Shared(iri)),
        _ => Id::Invalid,
    }
}

/// An expanded name as a text.
pub(super) fn text_of<'t>(target: &Target) -> Text<'t> {
    match target {
        Target::Keyword(keyword) => Text::Part(keyword.name()),
        Target::Iri(iri) => Text::Shared(Rc::clone(iri)),
    }
}
