//! The active context: what terms mean at a place of a document.
//!
//! A context is never changed once it is in use: another one is made of it. Definitions lie in layers that
//! contexts share, so that a context which adds little to a large one takes little.
//!
//! # References
//! <https://www.w3.org/TR/json-ld11-api/#context-processing-algorithms>, section 4.1;
//! IRI expansion: section 5.2

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;
use oxrdf::BaseDirection;
use rapidhash::fast::RandomState;

use super::keyword::{Keyword, has_form};
use super::resolve::{resolve, split_scheme};
use super::tape::Tape;

/// Keys whose meaning a context remembers, and how long they may be.
const KEYS_REMEMBERED_MAX: usize = 1_024;
const KEY_BYTES_MAX: usize = 128;

/// What a term stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Target {
    Keyword(Keyword),
    /// An IRI, or a blank node with its `_:`.
    Iri(Rc<str>),
}

/// What values of a term are taken for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Coercion {
    Id,
    Vocab,
    Json,
    None,
    Datatype(Rc<str>),
}

/// A set of containers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Containers(u8);

impl Containers {
    pub(super) const GRAPH: Self = Self(1);
    pub(super) const ID: Self = Self(2);
    pub(super) const INDEX: Self = Self(4);
    pub(super) const LANGUAGE: Self = Self(8);
    pub(super) const LIST: Self = Self(16);
    pub(super) const SET: Self = Self(32);
    pub(super) const TYPE: Self = Self(64);

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether one of `others` is among them.
    pub(super) fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// A local context that a term brings with it, and the URL that its relative IRIs are resolved against.
#[derive(Clone, Debug)]
pub(super) struct Scoped {
    pub(super) local: Rc<Tape>,
    pub(super) base_url: Option<Rc<str>>,
}

/// A term definition.
#[derive(Clone, Debug, Default)]
pub(super) struct Term {
    /// Nothing if the term is set to null.
    pub(super) target: Option<Target>,
    pub(super) is_prefix: bool,
    pub(super) is_protected: bool,
    pub(super) is_reverse: bool,
    pub(super) coercion: Option<Coercion>,
    pub(super) containers: Containers,
    /// The property that keys of an index map stand for.
    pub(super) index: Option<Rc<str>>,
    pub(super) scoped: Option<Scoped>,
    /// Inner `None`: no language, whatever the default is.
    pub(super) language: Option<Option<Rc<str>>>,
    pub(super) direction: Option<Option<BaseDirection>>,
    pub(super) nest: Option<Rc<str>>,
}

impl Term {
    /// Whether both say the same, apart from protection.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let same_context = match (&self.scoped, &other.scoped) {
            (None, None) => true,
            (Some(one), Some(two)) => one.local.root().is_same(two.local.root()),
            _ => false,
        };
        same_context
            && self.target == other.target
            && self.is_prefix == other.is_prefix
            && self.is_reverse == other.is_reverse
            && self.coercion == other.coercion
            && self.containers == other.containers
            && self.index == other.index
            && self.language == other.language
            && self.direction == other.direction
            && self.nest == other.nest
    }

    /// The IRI or blank node that it stands for.
    pub(super) fn iri(&self) -> Option<&Rc<str>> {
        match &self.target {
            Some(Target::Iri(iri)) => Some(iri),
            _ => None,
        }
    }
}

/// `None` is a term that was removed.
type Layer = HashMap<Rc<str>, Option<Rc<Term>>, RandomState>;

/// Term definitions; what is further behind counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms(Vec<Rc<Layer>>);

impl Terms {
    pub(super) fn get(&self, term: &str) -> Option<&Rc<Term>> {
        let mut found = self.0.iter().rev().filter_map(|layer| layer.get(term));
        found.next().and_then(Option::as_ref)
    }

    /// About how many definitions there are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|layer| layer.len()).sum()
    }

    fn all(&self) -> impl Iterator<Item = (&Rc<str>, &Rc<Term>)> {
        let entries = self.0.iter().flat_map(|layer| layer.iter());
        entries.filter_map(|(name, term)| {
            let term = term.as_ref()?;
            let is_current = self.get(name).is_some_and(|known| Rc::ptr_eq(known, term));
            is_current.then_some((name, term))
        })
    }

    /// Begins a layer that definitions go to.
    pub(super) fn begin(&mut self) {
        self.0.push(Rc::default());
    }

    pub(super) fn set(&mut self, name: Rc<str>, term: Option<Rc<Term>>) {
        if self.0.is_empty() {
            self.begin();
        }
        if let Some(layer) = self.0.last_mut() {
            Rc::make_mut(layer).insert(name, term);
        }
    }

    /// Makes one layer of two as long as the upper one has at least half as many definitions: there are
    /// few layers then, and each definition was copied few times.
    pub(super) fn end(&mut self) {
        while let [.., lower, upper] = self.0.as_slice() {
            if !upper.is_empty() && 2 * upper.len() < lower.len() {
                return;
            }
            let (Some(upper), Some(mut lower)) = (self.0.pop(), self.0.pop()) else {
                return;
            };
            if !upper.is_empty() {
                let entries = upper.iter();
                let entries = entries.map(|(name, term)| (Rc::clone(name), term.clone()));
                Rc::make_mut(&mut lower).extend(entries);
            }
            self.0.push(lower);
        }
    }
}

/// What a key of a node means.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Nothing if the key is to be ignored.
    pub(super) target: Option<Target>,
    pub(super) term: Option<Rc<Term>>,
}

impl Key {
    pub(super) fn keyword(&self) -> Option<Keyword> {
        match self.target {
            Some(Target::Keyword(keyword)) => Some(keyword),
            _ => None,
        }
    }

    pub(super) fn containers(&self) -> Containers {
        self.term
            .as_ref()
            .map_or(Containers::default(), |term| term.containers)
    }
}

/// An active context.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) terms: Terms,
    pub(super) base: Option<Rc<str>>,
    /// What a context of null goes back to.
    pub(super) original_base: Option<Rc<str>>,
    pub(super) vocab: Option<Rc<str>>,
    pub(super) language: Option<Rc<str>>,
    pub(super) direction: Option<BaseDirection>,
    /// What counts again in the next node, if this context is not propagated.
    pub(super) previous: Option<Rc<Context>>,
    keys: RefCell<HashMap<Box<str>, Rc<Key>, RandomState>>,
}

impl Clone for Context {
    fn clone(&self) -> Self {
        Self {
            terms: self.terms.clone(),
            base: self.base.clone(),
            original_base: self.original_base.clone(),
            vocab: self.vocab.clone(),
            language: self.language.clone(),
            direction: self.direction,
            previous: self.previous.clone(),
            keys: RefCell::default(),
        }
    }
}

impl Context {
    /// A context without any term.
    pub(super) fn new(base: Option<Rc<str>>) -> Self {
        Self {
            base: base.clone(),
            original_base: base,
            ..Self::default()
        }
    }

    pub(super) fn has_protected(&self) -> bool {
        self.terms.all().any(|(_, term)| term.is_protected)
    }

    pub(super) fn term(&self, name: &str) -> Option<&Rc<Term>> {
        self.terms.get(name)
    }

    /// What a key of a node means.
    pub(super) fn key(&self, name: &str) -> Rc<Key> {
        if let Some(known) = self.keys.borrow().get(name) {
            return Rc::clone(known);
        }
        let target = self.expand_vocab(name).filter(|target| match target {
            Target::Keyword(_) => true,
            Target::Iri(iri) => iri.contains(':'),
        });
        let key = Rc::new(Key {
            target,
            term: self.term(name).cloned(),
        });
        if name.len() <= KEY_BYTES_MAX {
            let mut keys = self.keys.borrow_mut();
            if keys.len() >= KEYS_REMEMBERED_MAX {
                keys.clear();
            }
            keys.insert(name.into(), Rc::clone(&key));
        }
        key
    }

    /// IRI expansion of what names a property, class or keyword.
    pub(super) fn expand_vocab(&self, value: &str) -> Option<Target> {
        self.expand(value, false, true)
    }

    /// IRI expansion (section 5.2); `None` for what is set to null or looks like a keyword.
    pub(super) fn expand(
        &self,
        value: &str,
        is_document_relative: bool,
        is_vocab: bool,
    ) -> Option<Target> {
        if let Some(keyword) = Keyword::of(value) {
            return Some(Target::Keyword(keyword));
        }
        if has_form(value) {
            return None;
        }
        if let Some(term) = self.term(value)
            && (is_vocab || matches!(term.target, Some(Target::Keyword(_))))
        {
            return term.target.clone();
        }
        Some(Target::Iri(self.expand_text(
            value,
            is_document_relative,
            is_vocab,
        )))
    }

    /// Steps 6 to 9.
    fn expand_text(&self, value: &str, is_document_relative: bool, is_vocab: bool) -> Rc<str> {
        if let Some((prefix, suffix)) = split_compact(value) {
            if prefix == "_" || suffix.starts_with("//") {
                return value.into();
            }
            let term = self.term(prefix).filter(|term| term.is_prefix);
            if let Some(iri) = term.and_then(|term| term.iri()) {
                return format!("{iri}{suffix}").into();
            }
            if split_scheme(value).is_some() {
                return value.into();
            }
        }
        if is_vocab && let Some(vocab) = &self.vocab {
            return format!("{vocab}{value}").into();
        }
        if is_document_relative && let Some(base) = &self.base {
            return resolve(base, value).into();
        }
        value.into()
    }
}

/// Prefix and suffix of what may be a compact IRI: the colon is not the first character.
pub(super) fn split_compact(value: &str) -> Option<(&str, &str)> {
    let (prefix, suffix) = value.split_once(':')?;
    (!prefix.is_empty()).then_some((prefix, suffix))
}
