//! An object while its keys are gone through, and what it turns out to be.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#expansion-algorithm>, section 5.1.2; the numbers are its steps

use std::rc::Rc;

use oxrdf::BaseDirection;

use super::expand::{Expander, GRAPH, REVERSE, Scope, Shape, id, text_of};
use super::item::{Form, Item, Literal, Node, Text};
use super::keyword::Keyword;
use super::mistake::{Mistake, Outcome};
use super::process::direction;
use super::tape::{Kind, Value};
use crate::load::iri;

/// What the keys of an object have said so far.
#[derive(Debug)]
pub(super) struct Building<'t> {
    pub(super) node: Node<'t>,
    /// The keywords that occurred, one bit each.
    seen: u32,
    /// Whether properties occurred, be it without values.
    has_properties: bool,
    value: Option<Value<'t>>,
    language: Option<&'t str>,
    direction: Option<BaseDirection>,
    /// Whether `@type` has a list of types rather than one.
    has_types: bool,
    list: Option<Vec<Item<'t>>>,
    set: Option<(Shape, Vec<Item<'t>>)>,
    scratch: Vec<Item<'t>>,
}

impl<'t> Building<'t> {
    pub(super) fn new(value: Value<'t>) -> Self {
        Self {
            node: Node::new(value),
            seen: 0,
            has_properties: false,
            value: None,
            language: None,
            direction: None,
            has_types: false,
            list: None,
            set: None,
            scratch: Vec::new(),
        }
    }

    /// An empty vector that has been used before.
    pub(super) fn take_scratch(&mut self) -> Vec<Item<'t>> {
        std::mem::take(&mut self.scratch)
    }

    pub(super) fn give_scratch(&mut self, mut scratch: Vec<Item<'t>>) {
        scratch.clear();
        self.scratch = scratch;
    }

    fn has(&self, keyword: Keyword) -> bool {
        self.seen & keyword.bit() != 0
    }

    fn has_only(&self, keywords: &[Keyword]) -> bool {
        let allowed: u32 = keywords.iter().map(|keyword| keyword.bit()).sum();
        self.seen & !allowed == 0 && !self.has_properties
    }

    /// Whether there is a graph and nothing else: at the top of a document the default graph.
    pub(super) fn is_only_graph(&self) -> bool {
        self.has(Keyword::Graph) && self.is_bare()
    }

    /// Whether there is nothing but a graph, if that.
    pub(super) fn is_bare(&self) -> bool {
        self.has_only(&[Keyword::Graph])
    }

    /// There is a property, be it without values.
    pub(super) fn mark_property(&mut self) {
        self.has_properties = true;
    }

    /// Whether it is no value, set or list.
    pub(super) fn is_node(&self) -> bool {
        !self.has(Keyword::Value) && !self.has(Keyword::Set) && !self.has(Keyword::List)
    }

    /// Adds a value of a property, which may be one that points backwards.
    pub(super) fn add(
        &mut self,
        is_reverse: bool,
        property: &Rc<str>,
        item: Item<'t>,
        place: Value<'t>,
    ) -> Outcome<()> {
        let property = Rc::clone(property);
        if !is_reverse {
            self.node.properties.push((property, item));
            return Ok(());
        }
        if !item.is_node() {
            return Err(Mistake::at(
                place,
                "invalid reverse property value",
                "it must be a node",
            ));
        }
        self.node.reverse.push((property, item));
        Ok(())
    }

    /// Steps 15 to 19: appends what the object is.
    pub(super) fn finish(
        mut self,
        property: Option<&str>,
        is_json: bool,
        out: &mut Vec<Item<'t>>,
    ) -> Outcome<Shape> {
        let is_free = property.is_none() || property == GRAPH;
        if self.has(Keyword::Value) {
            let Some(literal) = self.literal(is_json)? else {
                return Ok(Shape::Null);
            };
            if is_free {
                return Ok(Shape::Null);
            }
            out.push(Item::Literal(literal));
            return Ok(Shape::One);
        }
        if self.has(Keyword::List) || self.has(Keyword::Set) {
            let allowed = [Keyword::List, Keyword::Set, Keyword::Index];
            if !self.has_only(&allowed) || self.has(Keyword::List) && self.has(Keyword::Set) {
                return Err(Mistake::at(
                    self.node.value,
                    "invalid set or list object",
                    "nothing but @index goes with @set or @list",
                ));
            }
            if let Some((shape, items)) = self.set {
                out.extend(items);
                return Ok(shape);
            }
            out.push(Item::List(self.list.take().unwrap_or_default()));
            return Ok(Shape::One);
        }
        let is_language = self.has(Keyword::Language) && self.has_only(&[Keyword::Language]);
        if is_language || is_free && self.has_only(&[Keyword::Id]) {
            return Ok(Shape::Null);
        }
        out.push(if self.node.is_reference() && self.node.index.is_none() {
            Item::Reference(self.node.value, self.node.id)
        } else {
            Item::Node(Box::new(self.node))
        });
        Ok(Shape::One)
    }

    /// Step 15; `None` if the value is null.
    fn literal(&mut self, is_json: bool) -> Outcome<Option<Literal<'t>>> {
        let object = self.node.value;
        let code = "invalid value object";
        let allowed = [
            Keyword::Direction,
            Keyword::Index,
            Keyword::Language,
            Keyword::Type,
            Keyword::Value,
        ];
        if !self.has_only(&allowed) {
            let detail = "only @type, @language, @direction and @index go with @value";
            return Err(Mistake::at(object, code, detail));
        }
        let is_tagged = self.has(Keyword::Language) || self.has(Keyword::Direction);
        if self.has(Keyword::Type) && is_tagged {
            let detail = "@type does not go with @language or @direction";
            return Err(Mistake::at(object, code, detail));
        }
        let Some(value) = self.value else {
            return Ok(None);
        };
        if is_json {
            let form = Form::Json;
            return Ok(Some(Literal { value, form }));
        }
        if value.is_null() {
            return Ok(None);
        }
        let is_text = value.kind() == Kind::String;
        if self.has(Keyword::Language) && !is_text {
            let detail = "only a string has a language";
            return Err(Mistake::at(value, "invalid language-tagged value", detail));
        }
        let form = if self.has(Keyword::Type) {
            let mut types = std::mem::take(&mut self.node.types);
            match types.pop() {
                Some(datatype)
                    if !self.has_types && types.is_empty() && iri::check(&datatype).is_ok() =>
                {
                    Form::Typed(datatype)
                }
                _ => {
                    let detail = "the @type of a value is one IRI";
                    return Err(Mistake::at(object, "invalid typed value", detail));
                }
            }
        } else if is_text {
            Form::Tagged(self.language.map(Text::Part), self.direction)
        } else {
            Form::Native
        };
        Ok(Some(Literal { value, form }))
    }
}

impl Expander {
    /// Step 13.4: a key that means a keyword.
    pub(super) fn keyword<'t>(
        &self,
        scope: &Scope,
        property: Option<&str>,
        keyword: Keyword,
        key: Value<'t>,
        value: Value<'t>,
        building: &mut Building<'t>,
    ) -> Outcome<()> {
        if property == REVERSE {
            let detail = format!("{} is no property", keyword.name());
            return Err(Mistake::at(key, "invalid reverse property map", detail));
        }
        let may_repeat =
            matches!(keyword, Keyword::Included | Keyword::Type) && !self.processor.is_1_0;
        if building.has(keyword) && !may_repeat {
            let detail = format!("{} is there twice", keyword.name());
            return Err(Mistake::at(key, "colliding keywords", detail));
        }
        match keyword {
            Keyword::Id => {
                let text = string(value, "invalid @id value")?;
                building.node.id = id(&scope.active, text);
            }
            Keyword::Type => types(scope, value, building)?,
            Keyword::Graph => {
                let mut items = Vec::new();
                self.expand(&scope.active, GRAPH, value, false, &mut items)?;
                building.node.graph = Some(items);
            }
            Keyword::Included => {
                if self.processor.is_1_0 {
                    return Ok(());
                }
                self.included(scope, value, building)?;
            }
            Keyword::Value => self.value(scope, value, building)?,
            Keyword::Language => {
                let text = string(value, "invalid language-tagged string")?;
                building.language = Some(text);
            }
            Keyword::Direction => {
                if self.processor.is_1_0 {
                    return Ok(());
                }
                string(value, "invalid base direction")?;
                building.direction = direction(value)?;
            }
            Keyword::Index => {
                building.node.index = Some(string(value, "invalid @index value")?);
            }
            Keyword::List => {
                if property.is_none() || property == GRAPH {
                    return Ok(());
                }
                let mut items = Vec::new();
                self.expand(&scope.active, property, value, false, &mut items)?;
                building.list = Some(items);
            }
            Keyword::Set => {
                let mut items = Vec::new();
                let shape = self.expand(&scope.active, property, value, false, &mut items)?;
                building.set = Some((shape, items));
            }
            Keyword::Reverse => return self.reverse(scope, value, building),
            // These say something in contexts only.
            _ => return Ok(()),
        }
        building.seen |= keyword.bit();
        Ok(())
    }

    /// Step 13.4.6.
    fn included<'t>(
        &self,
        scope: &Scope,
        value: Value<'t>,
        building: &mut Building<'t>,
    ) -> Outcome<()> {
        let active = &scope.active;
        for item in value.items() {
            let is_no_node = |(key, _): (Value<'_>, _)| {
                let keyword = active.key(key.text()).keyword();
                matches!(keyword, Some(Keyword::Value | Keyword::List))
            };
            if !item.is_object() || item.entries().any(is_no_node) {
                let detail = "it must be a node";
                return Err(Mistake::at(item, "invalid @included value", detail));
            }
            self.expand(active, None, item, false, &mut building.node.included)?;
        }
        Ok(())
    }

    /// Step 13.4.7.
    fn value<'t>(
        &self,
        scope: &Scope,
        value: Value<'t>,
        building: &mut Building<'t>,
    ) -> Outcome<()> {
        let code = "invalid value object value";
        if scope.is_json && self.processor.is_1_0 {
            return Err(Mistake::at(value, code, "JSON-LD 1.0 has no JSON literals"));
        }
        if !scope.is_json && (value.is_object() || value.is_array()) {
            let detail = "it must be a string, number, boolean or null";
            return Err(Mistake::at(value, code, detail));
        }
        building.value = Some(value);
        Ok(())
    }

    /// Step 13.4.13: properties that point to the node.
    fn reverse<'t>(
        &self,
        scope: &Scope,
        value: Value<'t>,
        building: &mut Building<'t>,
    ) -> Outcome<()> {
        if !value.is_object() {
            let detail = "it must be an object";
            return Err(Mistake::at(value, "invalid @reverse value", detail));
        }
        let mut items = Vec::new();
        self.expand(&scope.active, REVERSE, value, false, &mut items)?;
        for item in items {
            let Item::Node(node) = item else {
                continue;
            };
            // What points backwards in there points forwards.
            building.has_properties |= !node.reverse.is_empty();
            building.node.properties.extend(node.reverse);
            for (property, item) in node.properties {
                building.add(true, &property, item, value)?;
                building.seen |= Keyword::Reverse.bit();
            }
        }
        Ok(())
    }
}

fn string<'t>(value: Value<'t>, code: &'static str) -> Outcome<&'t str> {
    let text = value.as_str();
    text.ok_or_else(|| Mistake::at(value, code, "it must be a string"))
}

/// Step 13.4.4.
fn types<'t>(scope: &Scope, value: Value<'t>, building: &mut Building<'t>) -> Outcome<()> {
    building.has_types |= value.is_array() || building.has(Keyword::Type);
    for item in value.items() {
        let code = "invalid type value";
        let Some(text) = item.as_str() else {
            let detail = "it must be a string, or an array of strings";
            return Err(Mistake::at(item, code, detail));
        };
        if let Some(target) = scope.type_scoped.expand(text, true, true) {
            building.node.types.push(text_of(&target));
        }
    }
    Ok(())
}
