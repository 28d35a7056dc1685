//! Context processing: from a local context to the active one.
//!
//! Contexts that are named by their URL are those that the caller gave; nothing is fetched.
//!
//! # Limits
//! A document may have the same contexts at every node, so a few results are remembered, with
//! [`TERMS_REMEMBERED_MAX`] definitions in all. Contexts that name each other are followed
//! [`REMOTE_DEPTH_MAX`] deep.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#context-processing-algorithm>, section 4.1.2

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use oxrdf::BaseDirection;
use rapidhash::fast::RandomState;

use super::context::{Context, Scoped, Target};
use super::define::Local;
use super::json::Json;
use super::mistake::{Mistake, Outcome, quoted};
use super::resolve::{resolve, split_scheme};
use super::tape::{Tape, Value};
use crate::load::source::Stream;

/// How many contexts may name each other in a row.
const REMOTE_DEPTH_MAX: usize = 32;

/// How many results are remembered, and how many definitions they may have in all.
const RESULTS_REMEMBERED_MAX: usize = 64;
const TERMS_REMEMBERED_MAX: usize = 1 << 16;

/// The longest context that is compared with those before, in bytes.
const FINGERPRINT_BYTES_MAX: usize = 64 << 10;

/// Contexts by their URL.
pub(crate) type Contexts = Arc<Vec<(String, Vec<u8>)>>;

/// How a context is processed.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) overrides_protected: bool,
    pub(super) propagates: bool,
    /// Not set while a scoped context is only looked at: those may name each other in a circle.
    pub(super) validates_scoped: bool,
}

impl How {
    /// A context that stands in a node.
    pub(super) const EMBEDDED: Self = Self {
        overrides_protected: false,
        propagates: true,
        validates_scoped: true,
    };
    /// That of a property.
    pub(super) const PROPERTY: Self = Self {
        overrides_protected: true,
        ..Self::EMBEDDED
    };
    /// That of a type.
    pub(super) const TYPE: Self = Self {
        propagates: false,
        ..Self::EMBEDDED
    };
    /// That of a type whose name is the key of a map.
    pub(super) const TYPE_MAP: Self = Self::EMBEDDED;
}

/// A result that is remembered: the context that it was made from, what it was made by, which must
/// stay where they are, and what came out.
struct Remembered {
    _from: Rc<Context>,
    _by: Option<Rc<Tape>>,
    result: Rc<Context>,
}

/// Processes contexts.
pub(super) struct Processor {
    contexts: Contexts,
    /// Those that were named, as they are parsed.
    parsed: RefCell<HashMap<String, Rc<Tape>, RandomState>>,
    /// Whether the rules of JSON-LD 1.0 hold.
    pub(super) is_1_0: bool,
    remembered: RefCell<HashMap<Vec<u8>, Remembered, RandomState>>,
}

impl Processor {
    pub(super) fn new(contexts: &Contexts, is_1_0: bool) -> Self {
        Self {
            contexts: Arc::clone(contexts),
            parsed: RefCell::default(),
            is_1_0,
            remembered: RefCell::default(),
        }
    }

    /// The active context with a context that stands in a node.
    pub(super) fn embedded(
        &self,
        active: &Rc<Context>,
        local: Value<'_>,
        base_url: Option<&Rc<str>>,
    ) -> Outcome<Rc<Context>> {
        let mut key = Vec::new();
        key.extend((Rc::as_ptr(active) as usize as u64).to_le_bytes());
        local.fingerprint(&mut key);
        if key.len() > FINGERPRINT_BYTES_MAX {
            return self.process(active, local, base_url, How::EMBEDDED, &[]);
        }
        if let Some(known) = self.remembered.borrow().get(&key) {
            return Ok(Rc::clone(&known.result));
        }
        let result = self.process(active, local, base_url, How::EMBEDDED, &[])?;
        self.remember(key, active, None, &result);
        Ok(result)
    }

    /// The active context with that which a term brings with it.
    pub(super) fn scoped(
        &self,
        active: &Rc<Context>,
        scoped: &Scoped,
        how: How,
    ) -> Outcome<Rc<Context>> {
        let mut key = Vec::new();
        key.extend((Rc::as_ptr(active) as usize as u64).to_le_bytes());
        key.extend((Rc::as_ptr(&scoped.local) as usize as u64).to_le_bytes());
        key.push(u8::from(how.overrides_protected) + 2 * u8::from(how.propagates));
        // No fingerprint of a value has this length.
        key.push(0xff);
        if let Some(known) = self.remembered.borrow().get(&key) {
            return Ok(Rc::clone(&known.result));
        }
        let local = scoped.local.root();
        let result = self.process(active, local, scoped.base_url.as_ref(), how, &[])?;
        self.remember(key, active, Some(&scoped.local), &result);
        Ok(result)
    }

    fn remember(
        &self,
        key: Vec<u8>,
        from: &Rc<Context>,
        by: Option<&Rc<Tape>>,
        result: &Rc<Context>,
    ) {
        let mut remembered = self.remembered.borrow_mut();
        let terms: usize = remembered.values().map(|it| it.result.terms.len()).sum();
        if remembered.len() >= RESULTS_REMEMBERED_MAX
            || terms + result.terms.len() > TERMS_REMEMBERED_MAX
        {
            remembered.clear();
        }
        let value = Remembered {
            _from: Rc::clone(from),
            _by: by.cloned(),
            result: Rc::clone(result),
        };
        remembered.insert(key, value);
    }

    /// The algorithm. `remote` are the contexts that are being loaded.
    pub(super) fn process(
        &self,
        active: &Rc<Context>,
        local: Value<'_>,
        base_url: Option<&Rc<str>>,
        how: How,
        remote: &[Rc<str>],
    ) -> Outcome<Rc<Context>> {
        let mut how = how;
        if let Some(value) = local.get("@propagate") {
            how.propagates = self.propagate(value)?;
        }
        let mut result = Rc::new((**active).clone());
        if !how.propagates && result.previous.is_none() {
            Rc::make_mut(&mut result).previous = Some(Rc::clone(active));
        }
        for context in local.items() {
            if context.is_null() {
                if !how.overrides_protected && result.has_protected() {
                    return Err(Mistake::at(
                        context,
                        "invalid context nullification",
                        "the context has protected terms",
                    ));
                }
                let mut empty = Context::new(result.original_base.clone());
                if !how.propagates {
                    empty.previous = result.previous.clone();
                }
                result = Rc::new(empty);
            } else if let Some(url) = context.as_str() {
                result = self.named(&result, context, url, base_url, how, remote)?;
            } else if context.is_object() {
                self.object(&mut result, context, base_url, how, remote)?;
            } else {
                return Err(Mistake::at(
                    context,
                    "invalid local context",
                    "a context is an object, a URL or null",
                ));
            }
        }
        Ok(result)
    }

    fn propagate(&self, value: Value<'_>) -> Outcome<bool> {
        self.not_in_1_0(value, "@propagate")?;
        value.as_bool().ok_or_else(|| {
            Mistake::at(
                value,
                "invalid @propagate value",
                "it must be true or false",
            )
        })
    }

    fn not_in_1_0(&self, value: Value<'_>, entry: &str) -> Outcome<()> {
        if self.is_1_0 {
            let detail = format!("{entry} is not of JSON-LD 1.0");
            return Err(Mistake::at(value, "invalid context entry", detail));
        }
        Ok(())
    }

    /// A context that is named by its URL.
    fn named(
        &self,
        active: &Rc<Context>,
        value: Value<'_>,
        url: &str,
        base_url: Option<&Rc<str>>,
        how: How,
        remote: &[Rc<str>],
    ) -> Outcome<Rc<Context>> {
        let url = absolute(url, base_url);
        if !how.validates_scoped && remote.contains(&url) {
            return Ok(Rc::clone(active));
        }
        if remote.len() >= REMOTE_DEPTH_MAX {
            let detail = format!("more than {REMOTE_DEPTH_MAX} contexts name each other");
            return Err(Mistake::at(value, "context overflow", detail));
        }
        let document = self.load(value, &url)?;
        let Some(context) = document.root().get("@context") else {
            let detail = format!("there is no @context in <{url}>");
            return Err(Mistake::at(value, "invalid remote context", detail));
        };
        let mut remote = remote.to_vec();
        remote.push(Rc::clone(&url));
        let how = How {
            propagates: true,
            ..how
        };
        self.process(active, context, Some(&url), how, &remote)
    }

    /// The document that the caller gave for a URL.
    fn load(&self, value: Value<'_>, url: &Rc<str>) -> Outcome<Rc<Tape>> {
        if let Some(known) = self.parsed.borrow().get(&**url) {
            return Ok(Rc::clone(known));
        }
        let given = self.contexts.iter().find(|(known, _)| known == &**url);
        let Some((_, bytes)) = given else {
            let detail =
                format!("<{url}>: contexts are never fetched; give a copy with --context URL=FILE");
            return Err(Mistake::at(value, "loading remote context failed", detail));
        };
        let tape = read(url, bytes)
            .map_err(|detail| Mistake::at(value, "loading remote context failed", detail))?;
        if !tape.root().is_object() {
            let detail = format!("<{url}> is no object");
            return Err(Mistake::at(value, "invalid remote context", detail));
        }
        let tape = Rc::new(tape);
        let key = url.to_string();
        self.parsed.borrow_mut().insert(key, Rc::clone(&tape));
        Ok(tape)
    }

    /// A context that is an object.
    fn object(
        &self,
        result: &mut Rc<Context>,
        context: Value<'_>,
        base_url: Option<&Rc<str>>,
        how: How,
        remote: &[Rc<str>],
    ) -> Outcome<()> {
        if let Some(version) = context.get("@version") {
            if version.text().parse() != Ok(1.1_f64) || version.as_str().is_some() {
                return Err(Mistake::at(
                    version,
                    "invalid @version value",
                    "it must be 1.1",
                ));
            }
            if self.is_1_0 {
                return Err(Mistake::at(
                    version,
                    "processing mode conflict",
                    "the document is processed as JSON-LD 1.0",
                ));
            }
        }
        let imported = context
            .get("@import")
            .map(|import| self.import(import, base_url))
            .transpose()?;
        let imported = imported
            .as_ref()
            .and_then(|tape| tape.root().get("@context"));
        let mut local = Local::new(context, imported, base_url.cloned(), how, remote);
        let changed = Rc::make_mut(result);
        changed.terms.begin();
        if remote.is_empty() {
            set_base(changed, &local)?;
        }
        self.set_vocab(changed, &local)?;
        self.set_defaults(changed, &local)?;
        if let Some(value) = local.get("@propagate") {
            self.propagate(value)?;
        }
        if let Some(value) = local.get("@protected") {
            self.not_in_1_0(value, "@protected")?;
            local.is_protected = value.as_bool().ok_or_else(|| {
                Mistake::at(
                    value,
                    "invalid @protected value",
                    "it must be true or false",
                )
            })?;
        }
        for term in local.terms() {
            self.define(result, &mut local, term)?;
        }
        Rc::make_mut(result).terms.end();
        Ok(())
    }

    /// The document of a context that another one takes over.
    fn import(&self, value: Value<'_>, base_url: Option<&Rc<str>>) -> Outcome<Rc<Tape>> {
        self.not_in_1_0(value, "@import")?;
        let Some(url) = value.as_str() else {
            return Err(Mistake::at(
                value,
                "invalid @import value",
                "it must be a URL",
            ));
        };
        let url = absolute(url, base_url);
        let document = self.load(value, &url)?;
        let Some(context) = document.root().get("@context").filter(|it| it.is_object()) else {
            let detail = format!("the context of <{url}> is no object");
            return Err(Mistake::at(value, "invalid remote context", detail));
        };
        if context.get("@import").is_some() {
            let detail = format!("<{url}>, which is imported, imports another one");
            return Err(Mistake::at(value, "invalid context entry", detail));
        }
        Ok(document)
    }

    fn set_vocab(&self, context: &mut Context, local: &Local<'_>) -> Outcome<()> {
        let Some(value) = local.get("@vocab") else {
            return Ok(());
        };
        if value.is_null() {
            context.vocab = None;
            return Ok(());
        }
        let code = "invalid vocab mapping";
        let Some(text) = value.as_str() else {
            return Err(Mistake::at(value, code, "it must be an IRI or null"));
        };
        if self.is_1_0 && split_scheme(text).is_none() && !text.starts_with("_:") {
            return Err(Mistake::at(value, code, "it must be an absolute IRI"));
        }
        context.vocab = match context.expand(text, true, true) {
            Some(Target::Iri(iri)) => Some(iri),
            _ => {
                let detail = format!("{} is no IRI", quoted(text));
                return Err(Mistake::at(value, code, detail));
            }
        };
        Ok(())
    }

    /// Default language and base direction.
    fn set_defaults(&self, context: &mut Context, local: &Local<'_>) -> Outcome<()> {
        if let Some(value) = local.get("@language") {
            context.language = language(value, "invalid default language")?;
        }
        if let Some(value) = local.get("@direction") {
            self.not_in_1_0(value, "@direction")?;
            context.direction = direction(value)?;
        }
        Ok(())
    }
}

/// A language or null.
pub(super) fn language(value: Value<'_>, code: &'static str) -> Outcome<Option<Rc<str>>> {
    if value.is_null() {
        return Ok(None);
    }
    match value.as_str() {
        Some(text) => Ok(Some(text.into())),
        None => Err(Mistake::at(value, code, "it must be a string or null")),
    }
}

/// A base direction or null.
pub(super) fn direction(value: Value<'_>) -> Outcome<Option<BaseDirection>> {
    if value.is_null() {
        return Ok(None);
    }
    match value.as_str() {
        Some("ltr") => Ok(Some(BaseDirection::Ltr)),
        Some("rtl") => Ok(Some(BaseDirection::Rtl)),
        _ => Err(Mistake::at(
            value,
            "invalid base direction",
            "it must be ltr, rtl or null",
        )),
    }
}

fn set_base(context: &mut Context, local: &Local<'_>) -> Outcome<()> {
    let Some(value) = local.get("@base") else {
        return Ok(());
    };
    if value.is_null() {
        context.base = None;
        return Ok(());
    }
    let base = value.as_str().and_then(|text| {
        if split_scheme(text).is_some() {
            return Some(text.into());
        }
        let base = context.base.as_ref()?;
        Some(resolve(base, text).into())
    });
    if base.is_none() {
        return Err(Mistake::at(
            value,
            "invalid base IRI",
            "it must be an IRI, relative only if there is a base already, or null",
        ));
    }
    context.base = base;
    Ok(())
}

fn absolute(url: &str, base_url: Option<&Rc<str>>) -> Rc<str> {
    match base_url {
        Some(base) => resolve(base, url).into(),
        None => url.into(),
    }
}

/// Parses a context.
pub(super) fn read(url: &Rc<str>, bytes: &[u8]) -> Result<Tape, String> {
    let mut stream = Stream::from_bytes(url, bytes);
    let mut json = Json::new(&mut stream, usize::MAX);
    let mut tape = Tape::default();
    tape.clear(1);
    let mut read = || {
        json.value(&mut tape)?;
        match json.peek()? {
            None => Ok(()),
            Some(_) => Err(json.damaged("something follows the end of the context")),
        }
    };
    read().map_err(|error| error.to_string())?;
    tape.origin = Some(Rc::clone(url));
    Ok(tape)
}
