//! Term definitions: what a local context says of its terms.
//!
//! # Limits
//! Terms that are defined by each other may form a row of [`CHAIN_MAX`], as each is defined by recursion.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#create-term-definition>, section 4.2.2; the numbers are its steps

use std::rc::Rc;

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use super::context::{Coercion, Containers, Context, Scoped, Target, Term, split_compact};
use super::keyword::{Keyword, has_form};
use super::mistake::{Mistake, Outcome, quoted};
use super::process::{How, Processor, direction, language};
use super::resolve::split_scheme;
use super::tape::Value;

/// How many terms may be defined by each other in a row.
const CHAIN_MAX: usize = 200;

/// Entries of a context that define no term.
const OTHER_ENTRIES: [&str; 8] = [
    "@base",
    "@direction",
    "@import",
    "@language",
    "@propagate",
    "@protected",
    "@version",
    "@vocab",
];

/// What a term definition may say.
const DEFINITION_ENTRIES: [&str; 11] = [
    "@id",
    "@reverse",
    "@container",
    "@context",
    "@direction",
    "@index",
    "@language",
    "@nest",
    "@prefix",
    "@protected",
    "@type",
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Progress {
    Begun,
    Done,
}

/// A local context while its terms are defined.
pub(super) struct Local<'a> {
    entries: HashMap<&'a str, (Value<'a>, Value<'a>), RandomState>,
    defined: HashMap<&'a str, Progress, RandomState>,
    base_url: Option<Rc<str>>,
    /// Whether terms are protected that say nothing else.
    pub(super) is_protected: bool,
    how: How,
    remote: &'a [Rc<str>],
    chain: usize,
}

impl<'a> Local<'a> {
    /// An object, and the one that it imports, which it goes before.
    pub(super) fn new(
        own: Value<'a>,
        imported: Option<Value<'a>>,
        base_url: Option<Rc<str>>,
        how: How,
        remote: &'a [Rc<str>],
    ) -> Self {
        let imported = imported.into_iter().flat_map(Value::entries);
        let entries = imported.chain(own.entries());
        Self {
            entries: entries
                .map(|(key, value)| (key.text(), (key, value)))
                .collect(),
            defined: HashMap::default(),
            base_url,
            is_protected: false,
            how,
            remote,
            chain: 0,
        }
    }

    pub(super) fn get(&self, entry: &str) -> Option<Value<'a>> {
        self.entries.get(entry).map(|(_, value)| *value)
    }

    /// The keys that define terms.
    pub(super) fn terms(&self) -> Vec<Value<'a>> {
        let keys = self.entries.values().map(|(key, _)| *key);
        let mut terms: Vec<Value<'a>> = keys
            .filter(|key| !OTHER_ENTRIES.contains(&key.text()))
            .collect();
        // The first mistake is the same every time.
        terms.sort_by_key(|key| key.place());
        terms
    }
}

/// Whether a text is an IRI or a blank node.
fn is_iri_or_blank(text: &str) -> bool {
    text.starts_with("_:") || split_scheme(text).is_some()
}

/// Whether a term may be in front of the colon of compact IRIs without saying so.
fn ends_as_prefix(iri: &str) -> bool {
    iri.starts_with("_:") || iri.ends_with([':', '/', '?', '#', '[', ']', '@'])
}

fn wrong(value: Value<'_>, code: &'static str, detail: impl std::fmt::Display) -> Box<Mistake> {
    Mistake::at(value, code, detail)
}

impl Processor {
    /// Defines a term.
    pub(super) fn define<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        name: Value<'a>,
    ) -> Outcome<()> {
        let term = name.text();
        match local.defined.get(term) {
            Some(Progress::Done) => return Ok(()),
            Some(Progress::Begun) => {
                let detail = format!("{} is defined by itself", quoted(term));
                return Err(wrong(name, "cyclic IRI mapping", detail));
            }
            None => {}
        }
        let Some(value) = local.get(term) else {
            return Ok(());
        };
        if term.is_empty() {
            let detail = "a term is not empty";
            return Err(wrong(name, "invalid term definition", detail));
        }
        if local.chain >= CHAIN_MAX {
            let detail = format!("more than {CHAIN_MAX} terms are defined by each other");
            return Err(wrong(name, "invalid term definition", detail));
        }
        local.defined.insert(term, Progress::Begun);
        local.chain += 1;
        let is_type = self.check_name(name, value)?;
        if !is_type && has_form(term) {
            local.defined.insert(term, Progress::Done);
            local.chain -= 1;
            return Ok(());
        }
        let previous = context.term(term).cloned();
        Rc::make_mut(context).terms.set(term.into(), None);
        let defined = self.definition(context, local, name, value)?;
        if let Some(mut definition) = defined {
            if !local.how.overrides_protected
                && let Some(previous) = previous
                && previous.is_protected
            {
                if !definition.says_the_same(&previous) {
                    let detail = format!("{} is protected", quoted(term));
                    return Err(wrong(name, "protected term redefinition", detail));
                }
                definition.is_protected = true;
            }
            let definition = Some(Rc::new(definition));
            Rc::make_mut(context).terms.set(term.into(), definition);
        }
        local.defined.insert(term, Progress::Done);
        local.chain -= 1;
        Ok(())
    }

    /// Steps 4 and 5: keywords are no terms, but `@type` may have a container and be protected.
    fn check_name(&self, name: Value<'_>, value: Value<'_>) -> Outcome<bool> {
        let term = name.text();
        let code = "keyword redefinition";
        if term == "@type" && !self.is_1_0 {
            let mut entries = value.entries();
            let is_allowed = value.entries().count() > 0
                && entries.all(|(key, value)| match key.text() {
                    "@container" => value.as_str() == Some("@set"),
                    "@protected" => true,
                    _ => false,
                });
            if !is_allowed {
                let detail = "of @type can only be said that it is protected or a @set";
                return Err(wrong(name, code, detail));
            }
            return Ok(true);
        }
        if Keyword::of(term).is_some() {
            let detail = format!("{term} is a keyword");
            return Err(wrong(name, code, detail));
        }
        Ok(false)
    }

    /// Steps 7 to 26; `None` for what is to be ignored.
    fn definition<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        name: Value<'a>,
        value: Value<'a>,
    ) -> Outcome<Option<Term>> {
        let mut term = Term {
            is_protected: local.is_protected,
            ..Term::default()
        };
        let is_simple = value.as_str().is_some();
        if !is_simple && !value.is_null() && !value.is_object() {
            let detail = "a term is defined by an object, a string or null";
            return Err(wrong(value, "invalid term definition", detail));
        }
        if let Some(protected) = value.get("@protected") {
            if self.is_1_0 {
                let detail = "@protected is not of JSON-LD 1.0";
                return Err(wrong(protected, "invalid term definition", detail));
            }
            term.is_protected = protected.as_bool().ok_or_else(|| {
                wrong(
                    protected,
                    "invalid @protected value",
                    "it must be true or false",
                )
            })?;
        }
        if let Some(kind) = value.get("@type") {
            term.coercion = Some(self.coercion(context, local, kind)?);
        }
        if let Some(reverse) = value.get("@reverse") {
            return self.reverse(context, local, value, reverse, term);
        }
        let id = if value.is_object() {
            value.get("@id")
        } else {
            Some(value)
        };
        let is_itself = id.is_some_and(|id| id.as_str() == Some(name.text()));
        match id {
            Some(id) if id.is_null() => {}
            Some(id) if !is_itself => {
                if !self.target_of_id(context, local, name, id, &mut term)? {
                    return Ok(None);
                }
                let has_colon_or_slash = name.text().contains([':', '/']);
                term.is_prefix = is_simple
                    && !has_colon_or_slash
                    && term.iri().is_some_and(|iri| ends_as_prefix(iri));
            }
            _ => term.target = Some(self.target_of_name(context, local, name)?),
        }
        self.container(value, &mut term)?;
        self.index(context, local, value, &mut term)?;
        self.scoped_context(context, local, value, &mut term)?;
        self.rest(name, value, &mut term)?;
        Ok(Some(term))
    }

    /// Step 12.
    fn coercion<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        value: Value<'a>,
    ) -> Outcome<Coercion> {
        let code = "invalid type mapping";
        let Some(text) = value.as_str() else {
            return Err(wrong(value, code, "@type must be a string"));
        };
        match self.expand_defining(context, local, text)? {
            Some(Target::Keyword(Keyword::Id)) => Ok(Coercion::Id),
            Some(Target::Keyword(Keyword::Vocab)) => Ok(Coercion::Vocab),
            Some(Target::Keyword(Keyword::Json)) if !self.is_1_0 => Ok(Coercion::Json),
            Some(Target::Keyword(Keyword::None)) if !self.is_1_0 => Ok(Coercion::None),
            Some(Target::Iri(iri)) if split_scheme(&iri).is_some() => Ok(Coercion::Datatype(iri)),
            _ => Err(wrong(value, code, format!("{} is no IRI", quoted(text)))),
        }
    }

    /// Step 13.
    fn reverse<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        value: Value<'a>,
        reverse: Value<'a>,
        mut term: Term,
    ) -> Outcome<Option<Term>> {
        let code = "invalid reverse property";
        if value.get("@id").is_some() || value.get("@nest").is_some() {
            let detail = "@reverse does not go with @id or @nest";
            return Err(wrong(value, code, detail));
        }
        let Some(text) = reverse.as_str() else {
            let detail = "@reverse must be a string";
            return Err(wrong(reverse, "invalid IRI mapping", detail));
        };
        if has_form(text) && Keyword::of(text).is_none() {
            return Ok(None);
        }
        match self.expand_defining(context, local, text)? {
            Some(Target::Iri(iri)) if is_iri_or_blank(&iri) => {
                term.target = Some(Target::Iri(iri));
            }
            _ => {
                let detail = format!("{} is no IRI", quoted(text));
                return Err(wrong(reverse, "invalid IRI mapping", detail));
            }
        }
        if let Some(container) = value.get("@container") {
            term.containers = match container.as_str() {
                Some("@set") => Containers::SET,
                Some("@index") => Containers::INDEX,
                None if container.is_null() => Containers::default(),
                _ => {
                    let detail = "the @container of a reverse property is @set, @index or null";
                    return Err(wrong(container, code, detail));
                }
            };
        }
        term.is_reverse = true;
        Ok(Some(term))
    }

    /// Step 14: `@id` says something else than the term itself. Whether the term is to be kept.
    fn target_of_id<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        name: Value<'a>,
        id: Value<'a>,
        term: &mut Term,
    ) -> Outcome<bool> {
        let code = "invalid IRI mapping";
        let Some(text) = id.as_str() else {
            return Err(wrong(id, code, "@id must be a string or null"));
        };
        if Keyword::of(text).is_none() && has_form(text) {
            return Ok(false);
        }
        let target = self.expand_defining(context, local, text)?;
        match &target {
            Some(Target::Keyword(Keyword::Context)) => {
                let detail = "@context has no other names";
                return Err(wrong(id, "invalid keyword alias", detail));
            }
            Some(Target::Keyword(_)) => {}
            Some(Target::Iri(iri)) if is_iri_or_blank(iri) => {}
            _ => return Err(wrong(id, code, format!("{} is no IRI", quoted(text)))),
        }
        let name_text = name.text();
        let last = name_text.len() - 1;
        let mut colons = name_text.match_indices(':').map(|(at, _)| at);
        if colons.any(|at| at > 0 && at < last) || name_text.contains('/') {
            local.defined.insert(name_text, Progress::Done);
            if self.expand_defining(context, local, name_text)? != target {
                let detail = format!("{} is an IRI and means another one", quoted(name_text));
                return Err(wrong(name, code, detail));
            }
        }
        term.target = target;
        Ok(true)
    }

    /// Steps 15 to 18: the name of the term says what it is.
    fn target_of_name<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        name: Value<'a>,
    ) -> Outcome<Target> {
        let text = name.text();
        let code = "invalid IRI mapping";
        if let Some((prefix, suffix)) = split_compact(text) {
            if let Some((key, _)) = local.entries.get(prefix) {
                let key = *key;
                self.define(context, local, key)?;
            }
            let iri = context.term(prefix).and_then(|term| term.iri());
            return Ok(Target::Iri(match iri {
                Some(iri) => format!("{iri}{suffix}").into(),
                None => text.into(),
            }));
        }
        if text.contains('/') {
            return match context.expand_vocab(text) {
                Some(Target::Iri(iri)) if split_scheme(&iri).is_some() => Ok(Target::Iri(iri)),
                _ => Err(wrong(name, code, format!("{} is no IRI", quoted(text)))),
            };
        }
        if text == "@type" {
            return Ok(Target::Keyword(Keyword::Type));
        }
        match &context.vocab {
            Some(vocab) => Ok(Target::Iri(format!("{vocab}{text}").into())),
            None => {
                let detail = format!("{} has no @id, and there is no @vocab", quoted(text));
                Err(wrong(name, code, detail))
            }
        }
    }

    /// Step 19.
    fn container(&self, definition: Value<'_>, term: &mut Term) -> Outcome<()> {
        let Some(value) = definition.get("@container") else {
            return Ok(());
        };
        let code = "invalid container mapping";
        let mut all = Containers::default();
        for item in value.items() {
            let one = match item.as_str() {
                Some("@graph") => Containers::GRAPH,
                Some("@id") => Containers::ID,
                Some("@index") => Containers::INDEX,
                Some("@language") => Containers::LANGUAGE,
                Some("@list") => Containers::LIST,
                Some("@set") => Containers::SET,
                Some("@type") => Containers::TYPE,
                _ => return Err(wrong(item, code, "it is no container")),
            };
            all = all.with(one);
        }
        let others = all.without(Containers::SET);
        let with_graph = others.has(Containers::GRAPH)
            && others.has(Containers::ID.with(Containers::INDEX))
            && others.count() == 2;
        let list_with_set = all.has(Containers::LIST) && all.count() > 1;
        if all.count() == 0 || list_with_set || !(others.count() <= 1 || with_graph) {
            let detail = "these containers do not go together";
            return Err(wrong(value, code, detail));
        }
        let since_1_1 = Containers::GRAPH
            .with(Containers::ID)
            .with(Containers::TYPE);
        if self.is_1_0 && (value.is_array() || all.has(since_1_1)) {
            return Err(wrong(value, code, "it is not of JSON-LD 1.0"));
        }
        if all.has(Containers::TYPE) {
            let coercion = term.coercion.get_or_insert(Coercion::Id);
            if !matches!(coercion, Coercion::Id | Coercion::Vocab) {
                let detail = "what is in a @type container is of the type @id or @vocab";
                return Err(wrong(value, "invalid type mapping", detail));
            }
        }
        term.containers = all;
        Ok(())
    }

    /// Step 20.
    fn index<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        definition: Value<'a>,
        term: &mut Term,
    ) -> Outcome<()> {
        let Some(value) = definition.get("@index") else {
            return Ok(());
        };
        let code = "invalid term definition";
        if self.is_1_0 || !term.containers.has(Containers::INDEX) {
            let detail = "@index asks for a container @index, and JSON-LD 1.1";
            return Err(wrong(value, code, detail));
        }
        let Some(text) = value.as_str() else {
            return Err(wrong(value, code, "@index must be a string"));
        };
        match self.expand_defining(context, local, text)? {
            Some(Target::Iri(iri)) if split_scheme(&iri).is_some() => {
                term.index = Some(text.into());
                Ok(())
            }
            _ => Err(wrong(value, code, "@index must be an IRI")),
        }
    }

    /// Step 21.
    fn scoped_context(
        &self,
        context: &Rc<Context>,
        local: &Local<'_>,
        definition: Value<'_>,
        term: &mut Term,
    ) -> Outcome<()> {
        let Some(value) = definition.get("@context") else {
            return Ok(());
        };
        if self.is_1_0 {
            let detail = "a term has no @context in JSON-LD 1.0";
            return Err(wrong(value, "invalid term definition", detail));
        }
        let how = How {
            overrides_protected: true,
            propagates: true,
            validates_scoped: false,
        };
        self.process(context, value, local.base_url.as_ref(), how, local.remote)
            .map_err(|mut mistake| {
                if mistake.code != "invalid scoped context" {
                    mistake.detail = format!("{}: {}", mistake.code, mistake.detail);
                    mistake.code = "invalid scoped context";
                }
                mistake
            })?;
        term.scoped = Some(Scoped {
            local: Rc::new(value.to_tape()),
            base_url: local.base_url.clone(),
        });
        Ok(())
    }

    /// Steps 22 to 26.
    fn rest(&self, name: Value<'_>, definition: Value<'_>, term: &mut Term) -> Outcome<()> {
        let code = "invalid term definition";
        let has_type = term.coercion.is_some() && definition.get("@type").is_some();
        if let Some(value) = definition.get("@language").filter(|_| !has_type) {
            term.language = Some(language(value, "invalid language mapping")?);
        }
        if let Some(value) = definition.get("@direction").filter(|_| !has_type) {
            term.direction = Some(direction(value)?);
        }
        if let Some(value) = definition.get("@nest") {
            if self.is_1_0 {
                return Err(wrong(value, code, "@nest is not of JSON-LD 1.0"));
            }
            match value.as_str() {
                Some(text) if text == "@nest" || Keyword::of(text).is_none() => {
                    term.nest = Some(text.into());
                }
                _ => {
                    let detail = "it must be @nest or a term";
                    return Err(wrong(value, "invalid @nest value", detail));
                }
            }
        }
        if let Some(value) = definition.get("@prefix") {
            if self.is_1_0 || name.text().contains([':', '/']) {
                return Err(wrong(value, code, "@prefix is for terms without : and /"));
            }
            let detail = "it must be true or false";
            term.is_prefix = value
                .as_bool()
                .ok_or_else(|| wrong(value, "invalid @prefix value", detail))?;
            if term.is_prefix && matches!(term.target, Some(Target::Keyword(_))) {
                return Err(wrong(value, code, "a keyword is no prefix"));
            }
        }
        for (key, _) in definition.entries() {
            if !DEFINITION_ENTRIES.contains(&key.text()) {
                let detail = format!("{} says nothing of a term", quoted(key.text()));
                return Err(wrong(key, code, detail));
            }
        }
        Ok(())
    }

    /// IRI expansion as a vocabulary term, defining the terms that it needs.
    fn expand_defining<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        text: &str,
    ) -> Outcome<Option<Target>> {
        if Keyword::of(text).is_none() && !has_form(text) {
            self.define_if_local(context, local, text)?;
            let is_term = context.term(text).is_some();
            if !is_term
                && let Some((prefix, suffix)) = split_compact(text)
                && prefix != "_"
                && !suffix.starts_with("//")
            {
                self.define_if_local(context, local, prefix)?;
            }
        }
        Ok(context.expand_vocab(text))
    }

    fn define_if_local<'a>(
        &self,
        context: &mut Rc<Context>,
        local: &mut Local<'a>,
        term: &str,
    ) -> Outcome<()> {
        let Some((key, _)) = local.entries.get(term) else {
            return Ok(());
        };
        let key = *key;
        if local.defined.get(term) == Some(&Progress::Done) || OTHER_ENTRIES.contains(&term) {
            return Ok(());
        }
        self.define(context, local, key)
    }
}
