//! A document as a whole: what of it is held, and when it becomes quads.
//!
//! An item of an array at the top is held until it is complete, its keys in any order. So is an object, as
//! long as it is small. One that turns out to be large flows from then on: what was read of it becomes
//! quads, then each item of its arrays by itself. What all of that depends on must have come before:
//! `@context`, `@id` and `@type`. A key that comes too late is a mistake, never a wrong quad.
//!
//! Arrays flow that are graphs, included nodes or values of a property without order; lists, maps and JSON
//! literals are held.
//!
//! # Limits
//! An object may be [`JSONLD_WHOLE_BYTES_MAX`] long before it flows, less if the memory is small. What
//! neither flows nor fits into the memory is refused. In an object that flows, a repeated key is not
//! noticed.

use std::rc::Rc;

use super::building::Building;
use super::context::{Coercion, Containers, Context, Key, Target};
use super::expand::{Expander, Scope};
use super::item::ITEM_BYTES;
use super::json::Json;
use super::keyword::Keyword;
use super::mistake::{Mistake, Outcome};
use super::process::{Contexts, How, Processor, read};
use super::quads::{Graph, Named, OnDropped, Quads, Refusal};
use super::tape::{Kind, TOKEN_BYTES, Tape, Value};
use crate::error::{Error, Result};
use crate::limits::{JSONLD_DEPTH_MAX, JSONLD_WHOLE_BYTES_MAX, LINE_BYTES_MAX};
use crate::load::sink::QuadSink;
use crate::load::source::Stream;
use crate::options::JsonLdOptions;

/// How many bytes an object takes in memory for each byte of its text, as long as it has no more values
/// than usual for its length.
pub(super) const GROWTH: usize = 16;

/// How a document is read.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// The base of relative IRIs.
    pub(crate) base: Option<&'a str>,
    /// The contexts that may be named.
    pub(crate) contexts: &'a Contexts,
    pub(crate) options: &'a JsonLdOptions,
    /// What an object may take of memory, in bytes.
    pub(crate) bytes_max: usize,
}

/// Parses a stream into a sink. Now and then `advance` gets the number of new quads and may end the
/// work; `on_dropped` is told of what RDF cannot express.
pub(crate) fn parse<'a, S: QuadSink>(
    stream: &mut Stream,
    settings: Settings<'_>,
    sink: &'a mut S,
    advance: &'a mut dyn FnMut(u64) -> Result<()>,
    on_dropped: Option<OnDropped<'a>>,
) -> Result<()> {
    let bytes_max = settings.bytes_max.min(LINE_BYTES_MAX);
    let held_max = (bytes_max / GROWTH).max(1 << 10);
    let whole_bytes_max = JSONLD_WHOLE_BYTES_MAX.min(held_max / 2);
    // An error comes again when the text is read.
    let is_large = matches!(stream.look_ahead(whole_bytes_max), Ok((_, false)));
    let base: Option<Rc<str>> = settings.base.map(Into::into);
    let mut json = Json::new(stream, held_max);
    json.tokens_max = (bytes_max / (TOKEN_BYTES + ITEM_BYTES)).max(1 << 8);
    let mut document = Document {
        tokens_max: json.tokens_max,
        json,
        expander: Expander {
            processor: Processor::new(settings.contexts, settings.options.is_1_0),
            base_url: base.clone(),
        },
        quads: Quads::new(sink, advance, settings.options.direction, on_dropped),
        whole_bytes_max,
        tape: Tape::default(),
    };
    let processor = &document.expander.processor;
    let active = initial_context(processor, base, settings.options)?;
    document.top(&active, is_large)?;
    document.quads.end()
}

/// Whether the options can be used.
pub(crate) fn verify(contexts: &[(String, Vec<u8>)], options: &JsonLdOptions) -> Result<()> {
    if options.expand_context.is_none() {
        return Ok(());
    }
    let contexts = Contexts::new(contexts.to_vec());
    let processor = Processor::new(&contexts, options.is_1_0);
    initial_context(&processor, None, options).map(drop)
}

/// What holds before a document says anything.
fn initial_context(
    processor: &Processor,
    base: Option<Rc<str>>,
    options: &JsonLdOptions,
) -> Result<Rc<Context>> {
    let active = Rc::new(Context::new(base.clone()));
    let Some(text) = &options.expand_context else {
        return Ok(active);
    };
    let wrong = |reason: String| Error::InvalidOption {
        option: "--expand-context",
        reason,
    };
    let tape = read(&"expandContext".into(), text).map_err(wrong)?;
    let root = tape.root();
    let local = root.get("@context").unwrap_or(root);
    processor
        .process(&active, local, base.as_ref(), How::EMBEDDED, &[])
        .map_err(|mistake| wrong(format!("{}: {}", mistake.code, mistake.detail)))
}

/// A document that is being read.
struct Document<'s, 'a, S: QuadSink> {
    json: Json<'s>,
    expander: Expander,
    quads: Quads<'a, S>,
    whole_bytes_max: usize,
    tokens_max: usize,
    tape: Tape,
}

/// An object that flows.
struct Flowing<'g, T: Copy> {
    scope: Scope,
    /// Nothing if its name is none.
    subject: Option<Named<T>>,
    /// The graph it is in.
    graph: Graph<'g, T>,
    is_top: bool,
    /// Whether nothing was said so far, but for a graph.
    is_bare: bool,
    has_graph: bool,
    /// Whether its own graph is the default graph, as it says nothing else.
    is_default: bool,
}

impl<S: QuadSink> Document<'_, '_, S> {
    fn top(&mut self, active: &Rc<Context>, is_large: bool) -> Result<()> {
        match self.json.peek()? {
            Some(b'[') => self.items(active, None)?,
            Some(b'{') => self.object(active, None, true, is_large)?,
            Some(_) => {
                let reason = "a document of JSON-LD is an object or an array";
                return Err(self.json.damaged(reason));
            }
            None => return Err(self.json.damaged("unexpected end of the text")),
        }
        match self.json.peek()? {
            None => Ok(()),
            Some(_) => Err(self
                .json
                .damaged("The JSON already contains one root element")),
        }
    }

    /// An array of nodes, item by item.
    fn items(&mut self, active: &Rc<Context>, graph: Graph<'_, S::Term>) -> Result<()> {
        self.deeper()?;
        let mut has_more = self.json.enter(Kind::Array)?;
        while has_more {
            self.element(active, graph)?;
            has_more = self.json.has_more(Kind::Array)?;
        }
        self.json.depth -= 1;
        Ok(())
    }

    fn deeper(&mut self) -> Result<()> {
        if self.json.depth == JSONLD_DEPTH_MAX {
            let reason = format!("arrays and objects are nested deeper than {JSONLD_DEPTH_MAX}");
            return Err(self.json.damaged(reason));
        }
        self.json.depth += 1;
        Ok(())
    }

    /// An item of an array of nodes.
    fn element(&mut self, active: &Rc<Context>, graph: Graph<'_, S::Term>) -> Result<()> {
        self.json.forget();
        match self.json.peek()? {
            Some(b'{') => self.object(active, graph, false, false),
            Some(b'[') => self.items(active, graph),
            // Nothing is said by it.
            _ => self.with_tape(|this, tape| this.json.value(tape)),
        }
    }

    /// Runs something with an empty tape.
    fn with_tape<T>(&mut self, run: impl FnOnce(&mut Self, &mut Tape) -> Result<T>) -> Result<T> {
        let mut tape = std::mem::take(&mut self.tape);
        tape.clear(self.json.place().0);
        let done = run(self, &mut tape);
        self.tape = tape;
        done
    }

    /// An object that is a node; `is_large` if it certainly is too large to be held.
    fn object(
        &mut self,
        active: &Rc<Context>,
        graph: Graph<'_, S::Term>,
        is_top: bool,
        is_large: bool,
    ) -> Result<()> {
        self.deeper()?;
        let flowing = self.with_tape(|this, tape| {
            let root = tape.open(Kind::Object, this.json.place());
            let mut has_more = this.json.enter(Kind::Object)?;
            while has_more {
                let at = tape.len();
                this.json.key(tape)?;
                if this.json.peek()? == Some(b'[') {
                    if let Some(key) = this.array(active, tape, at, is_top && is_large)? {
                        tape.close(root);
                        let flowing = this.flow(active, tape, graph, is_top, &key)?;
                        return Ok(Some((flowing, key)));
                    }
                } else {
                    this.json.value(tape)?;
                }
                has_more = this.json.has_more(Kind::Object)?;
            }
            tape.close(root);
            this.whole(active, tape.root(), graph, is_top)?;
            Ok(None)
        })?;
        if let Some((flowing, key)) = flowing {
            self.flow_on(flowing, key)?;
        }
        self.json.depth -= 1;
        Ok(())
    }

    /// The array of the key at `at`. If it flows from now on its key comes back, and what was read of it
    /// is on the tape. `at_once`: a graph is not held at all.
    fn array(
        &mut self,
        active: &Rc<Context>,
        tape: &mut Tape,
        at: u32,
        at_once: bool,
    ) -> Result<Option<String>> {
        let key = tape.value(at).text().to_owned();
        if at_once {
            let kept = tape.clone_before(at);
            let meaning = self.meaning(active, &kept, &key)?;
            if meaning.keyword() == Some(Keyword::Graph) {
                tape.truncate(at);
                self.deeper()?;
                if self.json.enter(Kind::Array)? {
                    return Ok(Some(key));
                }
                self.json.depth -= 1;
                let place = self.json.place();
                tape.scalar(Kind::String, &key, place);
                let array = tape.open(Kind::Array, place);
                tape.close(array);
                return Ok(None);
            }
        }
        let array = tape.open(Kind::Array, self.json.place());
        self.deeper()?;
        let mut has_more = self.json.enter(Kind::Array)?;
        let mut is_held = false;
        while has_more {
            self.json.value(tape)?;
            has_more = self.json.has_more(Kind::Array)?;
            if has_more && !is_held && self.is_large(tape) {
                let kept = tape.clone_before(at);
                if flows(&*self.meaning(active, &kept, &key)?) {
                    tape.close(array);
                    return Ok(Some(key));
                }
                is_held = true;
            }
        }
        self.json.depth -= 1;
        tape.close(array);
        Ok(None)
    }

    fn is_large(&self, tape: &Tape) -> bool {
        self.json.held() > self.whole_bytes_max || tape.tokens() > self.tokens_max / 2
    }

    /// What a key means behind those that are on the tape.
    fn meaning(&self, active: &Rc<Context>, tape: &Tape, key: &str) -> Result<Rc<Key>> {
        let root = tape.root();
        let scope = self.expander.enter(active, None, root, false);
        Ok(self.checked(root, scope)?.active.key(key))
    }

    /// An object that is held as a whole.
    fn whole(
        &mut self,
        active: &Rc<Context>,
        root: Value<'_>,
        graph: Graph<'_, S::Term>,
        is_top: bool,
    ) -> Result<()> {
        let (scope, building) = self.expanded(active, root)?;
        let done = if is_top && building.is_only_graph() {
            let items = building.node.graph.unwrap_or_default();
            items
                .iter()
                .try_for_each(|item| self.quads.item(item, None))
        } else {
            let mut items = Vec::new();
            let shape = building.finish(None, scope.is_json, &mut items);
            self.checked(root, shape)?;
            items
                .iter()
                .try_for_each(|item| self.quads.item(item, graph))
        };
        self.taken(root, done)
    }

    fn expanded<'t>(&self, active: &Rc<Context>, root: Value<'t>) -> Result<(Scope, Building<'t>)> {
        let scope = self.expander.enter(active, None, root, false);
        let scope = self.checked(root, scope)?;
        let mut building = Building::new(root);
        let done = self.expander.entries(&scope, None, root, &mut building);
        self.checked(root, done)?;
        Ok((scope, building))
    }

    /// Lets an object flow of which the tape has what was read so far.
    fn flow<'g>(
        &mut self,
        active: &Rc<Context>,
        tape: &Tape,
        graph: Graph<'g, S::Term>,
        is_top: bool,
        key: &str,
    ) -> Result<Flowing<'g, S::Term>> {
        let root = tape.root();
        let (scope, building) = self.expanded(active, root)?;
        if !building.is_node() {
            let detail = "it is too large";
            let mistake = Mistake::at(root, "invalid value, set or list object", detail);
            return self.checked(root, Err(mistake));
        }
        let is_graph = scope.active.key(key).keyword() == Some(Keyword::Graph);
        let has_graph = is_graph || building.node.graph.is_some();
        let is_bare = building.is_bare() && (is_graph || scope.active.key(key).target.is_none());
        let is_default = is_top && is_bare && has_graph;
        let node = building.node;
        let subject = self.quads.named(root, &node.id);
        let done = if is_default {
            let items = node.graph.unwrap_or_default();
            items
                .iter()
                .try_for_each(|item| self.quads.item(item, None))
        } else {
            self.quads.node(&node, subject.as_ref(), graph)
        };
        self.taken(root, done)?;
        Ok(Flowing {
            scope,
            subject,
            graph,
            is_top,
            is_bare,
            has_graph,
            is_default,
        })
    }

    /// The rest of an object that flows, from within the array of a key on.
    fn flow_on(&mut self, mut flowing: Flowing<'_, S::Term>, key: String) -> Result<()> {
        self.flow_array(&flowing, &key)?;
        while self.json.has_more(Kind::Object)? {
            self.json.forget();
            let key = self.with_tape(|this, tape| this.late_key(&mut flowing, tape))?;
            if let Some(key) = key {
                self.flow_array(&flowing, &key)?;
            }
        }
        Ok(())
    }

    /// A key that comes when the object flows already: it comes back if its array was entered and is to
    /// flow, too.
    fn late_key(
        &mut self,
        flowing: &mut Flowing<'_, S::Term>,
        tape: &mut Tape,
    ) -> Result<Option<String>> {
        self.json.peek()?;
        let place = self.json.place();
        self.json.key(tape)?;
        let key = tape.root().text().to_owned();
        let meaning = flowing.scope.active.key(&key);
        self.check_late(flowing, &key, &meaning, place)?;
        let is_array = self.json.peek()? == Some(b'[');
        if meaning.keyword() == Some(Keyword::Graph) {
            flowing.has_graph = true;
            flowing.is_default = flowing.is_top && flowing.is_bare;
        } else if is_array && meaning.target.is_some() {
            flowing.is_bare = false;
        }
        if flows(&meaning) && is_array {
            self.deeper()?;
            if self.json.enter(Kind::Array)? {
                return Ok(Some(key));
            }
            self.json.depth -= 1;
            return Ok(None);
        }
        tape.clear(self.json.place().0);
        let is_bare = self.flow_entry(flowing, &key, tape)?;
        flowing.is_bare &= is_bare;
        Ok(None)
    }

    /// The items of an array that was entered, with its end.
    fn flow_array(&mut self, flowing: &Flowing<'_, S::Term>, key: &str) -> Result<()> {
        let active = &flowing.scope.active;
        let is_graph = active.key(key).keyword() == Some(Keyword::Graph);
        loop {
            self.json.forget();
            match &flowing.subject {
                _ if is_graph && flowing.is_default => self.element(active, None)?,
                Some(subject) if is_graph => self.element(active, Some(subject))?,
                _ => {
                    self.with_tape(|this, tape| this.flow_entry(flowing, key, tape))?;
                }
            }
            if !self.json.has_more(Kind::Array)? {
                self.json.depth -= 1;
                return Ok(());
            }
        }
    }

    /// A key with a value that comes next, by itself: whether it says nothing but a graph.
    fn flow_entry(
        &mut self,
        flowing: &Flowing<'_, S::Term>,
        key: &str,
        tape: &mut Tape,
    ) -> Result<bool> {
        let place = self.json.place();
        let object = tape.open(Kind::Object, place);
        tape.scalar(Kind::String, key, place);
        self.json.value(tape)?;
        tape.close(object);
        let root = tape.root();
        let mut building = Building::new(root);
        let done = self
            .expander
            .entries(&flowing.scope, None, root, &mut building);
        self.checked(root, done)?;
        let is_bare = building.is_bare();
        let done = if flowing.is_default && is_bare {
            let items = building.node.graph.unwrap_or_default();
            items
                .iter()
                .try_for_each(|item| self.quads.item(item, None))
        } else {
            let subject = flowing.subject.as_ref();
            self.quads.node(&building.node, subject, flowing.graph)
        };
        self.taken(root, done)?;
        Ok(is_bare)
    }

    /// Whether a key may come when the object flows already.
    fn check_late(
        &self,
        flowing: &Flowing<'_, S::Term>,
        key: &str,
        meaning: &Key,
        (line, column): (u64, u64),
    ) -> Result<()> {
        let late = |what: &str| {
            let reason = format!(
                "{what} must come before the long arrays of an object that is larger than {} bytes",
                self.whole_bytes_max
            );
            Err(self.json.stream().source.damaged(line, column, reason))
        };
        if key == "@context" {
            return late("@context");
        }
        match &meaning.target {
            None => Ok(()),
            Some(_) if flowing.is_default => late("what is said of the graph itself"),
            Some(Target::Keyword(Keyword::Graph)) if flowing.has_graph => late("another graph"),
            Some(Target::Iri(_)) => Ok(()),
            Some(Target::Keyword(
                Keyword::Graph | Keyword::Included | Keyword::Reverse | Keyword::Nest,
            )) => Ok(()),
            Some(Target::Keyword(keyword)) => late(keyword.name()),
        }
    }

    fn checked<T>(&self, root: Value<'_>, outcome: Outcome<T>) -> Result<T> {
        let source = &self.json.stream().source;
        outcome.map_err(|mistake| mistake.into_error(source, root.place()))
    }

    fn taken(&self, root: Value<'_>, done: std::result::Result<(), Refusal>) -> Result<()> {
        let source = &self.json.stream().source;
        done.map_err(|refusal| match refusal {
            Refusal::Sink(error) => source.refused(root.place().0, error),
            Refusal::Conflict((line, column), detail) => {
                source.damaged(line, column, format!("conflicting indexes: {detail}"))
            }
        })
    }
}

/// Whether the items of an array say the same one by one.
fn flows(meaning: &Key) -> bool {
    match meaning.target {
        Some(Target::Keyword(keyword)) => matches!(keyword, Keyword::Graph | Keyword::Included),
        Some(Target::Iri(_)) => meaning.term.as_ref().is_none_or(|term| {
            !term.containers.has(Containers::LIST) && term.coercion != Some(Coercion::Json)
        }),
        // Nothing is said by it.
        None => true,
    }
}
