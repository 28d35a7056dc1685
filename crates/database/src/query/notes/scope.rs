//! Finds variables that are used where nothing binds them (section 18.2.1 of SPARQL 1.1, "Variable
//! Scope").
//!
//! The algebra has no places, so groups, clauses and expressions are told by the tokens of a text
//! that the parser took; what is not known for sure counts as bound:
//! - FILTER sees what its group binds, before it or after; in OPTIONAL also what stood before that;
//! - BIND sees what its group binds before it;
//! - EXISTS and LATERAL see what is around them, everywhere inside;
//! - a subquery shows what it selects; HAVING and ORDER BY of grouped queries see the keys, and
//!   aggregates the group;
//! - what stands in SERVICE is the business of its endpoint.
//!
//! Recurses as deeply as groups are nested, as the parser does.

use std::ops::Range;

use hashbrown::HashSet;
use rapidhash::fast::RandomState;

use super::super::rewrite::is_aggregate;
use super::super::similar::nearest;
use super::super::token::Token;
use refused::Refused;

/// So many variables in scope are looked at for one that was meant.
const COMPARED_MAX: usize = 1_000;

/// Names without their sign.
type Names<'a> = HashSet<&'a str, RandomState>;

/// The use of a variable that is not in scope.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Unbound<'a> {
    pub(super) token: Token,
    /// As the text has it, with its sign.
    pub(super) word: &'a str,
    pub(super) why: Why,
    /// The name of a variable in scope that resembles it.
    pub(super) near: Option<&'a str>,
}

/// Why a variable is not in scope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Why {
    /// Nothing binds it anywhere.
    Nowhere,
    /// Only other groups or subqueries do.
    Elsewhere,
    /// The group binds it, but behind the BIND that uses it.
    Later,
    /// It is not among the keys of GROUP BY.
    Grouped,
    /// SELECT gives it, which is behind HAVING.
    Selected,
    /// It stands in a BIND, and the rest of the group is not known yet.
    Pending,
}

impl Unbound<'_> {
    /// What is wrong and what to do.
    pub(super) fn message(&self) -> String {
        let word = self.word;
        match self.why {
            Why::Nowhere | Why::Pending => format!("nothing binds {word}"),
            Why::Elsewhere => format!(
                "{word} is not bound here, only in a group or subquery that is not seen from here"
            ),
            Why::Later => {
                format!(
                    "{word} is not bound yet: BIND sees only what stands before it in its group"
                )
            }
            Why::Grouped => format!(
                "{word} has no single value here: add it to GROUP BY, or take an aggregate such as \
                 MIN({word})"
            ),
            Why::Selected => format!(
                "{word} is not known here yet: HAVING comes before SELECT, so repeat its expression"
            ),
        }
    }
}

/// Finds each variable that is not in scope somewhere, where it is used first; in the order of the
/// text.
pub(super) fn unbound<'a>(text: &'a str, tokens: &'a [Token]) -> Vec<Unbound<'a>> {
    let mut scopes = Scopes::new(text, tokens);
    scopes.query();
    let Scopes {
        mut found,
        bound_somewhere,
        ..
    } = scopes;
    found.sort_by_key(|unbound| unbound.token.start);
    let mut seen = Names::default();
    found.retain(|unbound| seen.insert(name(unbound.word)));
    for unbound in &mut found {
        if unbound.why == Why::Nowhere && bound_somewhere.contains(name(unbound.word)) {
            unbound.why = Why::Elsewhere;
        }
        if unbound.why != Why::Nowhere {
            unbound.near = None;
        }
    }
    found
}

fn name(word: &str) -> &str {
    word.get(1..).unwrap_or_default()
}

/// For each token that opens a bracket the number of the one that closes it; for others its own.
fn closing(text: &str, tokens: &[Token]) -> Vec<usize> {
    let mut closing: Vec<usize> = (0..tokens.len()).collect();
    let mut open: Vec<usize> = Vec::new();
    for (number, token) in tokens.iter().enumerate() {
        match token.of(text) {
            "{" | "(" | "[" | "<<(" => open.push(number),
            "}" | ")" | "]" | ")>>" => {
                if let Some(place) = open.pop().and_then(|opened| closing.get_mut(opened)) {
                    *place = number;
                }
            }
            _ => {}
        }
    }
    for opened in open {
        if let Some(place) = closing.get_mut(opened) {
            *place = tokens.len();
        }
    }
    closing
}

/// The variables that can be seen from a place: those of all links of the chain.
#[derive(Clone, Copy)]
struct Scope<'s, 'a> {
    own: &'s Names<'a>,
    around: Option<&'s Scope<'s, 'a>>,
}

impl<'s, 'a> Scope<'s, 'a> {
    const fn new(own: &'s Names<'a>, around: Option<&'s Self>) -> Self {
        Self { own, around }
    }

    fn has(&self, name: &str) -> bool {
        let mut links = self.links();
        links.any(|names| names.contains(name))
    }

    fn links(&self) -> impl Iterator<Item = &'s Names<'a>> + use<'s, 'a> {
        let first = Some(*self);
        std::iter::successors(first, |scope| scope.around.copied()).map(|scope| scope.own)
    }
}

/// What stands behind SELECT, CONSTRUCT, ASK or DESCRIBE and its items.
struct Body<'a> {
    bound: Names<'a>,
    /// The variables of VALUES behind the modifiers.
    values: Names<'a>,
    group_by: Option<Range<usize>>,
    having: Option<Range<usize>>,
    order_by: Option<Range<usize>>,
}

/// An item of SELECT.
enum Item<'a> {
    Variable(usize),
    Expression(Range<usize>, &'a str),
}

struct Scopes<'a> {
    text: &'a str,
    tokens: &'a [Token],
    closing: Vec<usize>,
    found: Vec<Unbound<'a>>,
    /// What any group or expression binds.
    bound_somewhere: Names<'a>,
    /// What the grammar allows but the language does not.
    refused: Vec<Refused>,
}

impl<'a> Scopes<'a> {
    fn new(text: &'a str, tokens: &'a [Token]) -> Self {
        Self {
            text,
            tokens,
            closing: closing(text, tokens),
            found: Vec::new(),
            bound_somewhere: Names::default(),
            refused: Vec::new(),
        }
    }

    fn word(&self, number: usize) -> &'a str {
        self.tokens
            .get(number)
            .map_or("", |token| token.of(self.text))
    }

    fn is(&self, number: usize, word: &str) -> bool {
        self.word(number).eq_ignore_ascii_case(word)
    }

    /// The name of the variable at a token, if it is one.
    fn variable(&self, number: usize) -> Option<&'a str> {
        let name = self.word(number).strip_prefix(['?', '$'])?;
        (!name.is_empty()).then_some(name)
    }

    /// The number of the token that closes the bracket at `open`.
    fn close(&self, open: usize) -> usize {
        self.closing.get(open).copied().unwrap_or(open)
    }

    fn bind(&mut self, bound: &mut Names<'a>, name: &'a str) {
        bound.insert(name);
        self.bound_somewhere.insert(name);
    }

    fn query(&mut self) {
        let forms = ["select", "construct", "describe", "ask"];
        let is_form = |number: &usize| forms.iter().any(|form| self.is(*number, form));
        let Some(form) = (0..self.tokens.len()).find(is_form) else {
            return;
        };
        if self.is(form, "select") {
            self.select(form, None);
            return;
        }
        let mut at = form + 1;
        let mut uses = 0..0;
        if self.is(form, "construct") && self.is(at, "{") {
            uses = at + 1..self.close(at);
            at = uses.end + 1;
        } else if self.is(form, "describe") {
            let end = (at..self.tokens.len())
                .find(|&n| self.is(n, "{") || self.is(n, "where") || self.is(n, "from"));
            uses = at..end.unwrap_or(self.tokens.len());
            at = uses.end;
        }
        let body = self.body(at, None);
        self.clauses(&body, &[], uses, None);
    }

    /// A query or subquery; gives the variables that it shows.
    fn select(&mut self, select: usize, seen: Option<&Scope<'_, 'a>>) -> Names<'a> {
        let mut items = Vec::new();
        let mut at = select + 1;
        loop {
            if self.variable(at).is_some() {
                items.push(Item::Variable(at));
            } else if self.is(at, "(") {
                let close = self.close(at);
                let alias = close.saturating_sub(1);
                let inner = at + 1..alias.saturating_sub(1).max(at + 1);
                items.push(Item::Expression(
                    inner,
                    self.variable(alias).unwrap_or_default(),
                ));
                at = close;
            } else if !(self.is(at, "distinct") || self.is(at, "reduced")) {
                break;
            }
            at += 1;
        }
        let has_star = self.is(at, "*");
        let body = self.body(at, seen);
        self.refuse_items(&items, has_star.then_some(at), &body);
        self.clauses(&body, &items, 0..0, seen);
        let mut shown = Names::default();
        if has_star {
            shown = body.bound;
            shown.extend(body.values);
        }
        for item in items {
            match item {
                Item::Variable(number) => shown.extend(self.variable(number)),
                Item::Expression(_, alias) => self.bind(&mut shown, alias),
            }
        }
        shown
    }

    /// Goes from the items of a query to the end of its modifiers.
    fn body(&mut self, from: usize, seen: Option<&Scope<'_, 'a>>) -> Body<'a> {
        let mut body = Body {
            bound: Names::default(),
            values: Names::default(),
            group_by: None,
            having: None,
            order_by: None,
        };
        let mut at = from;
        while at < self.tokens.len() && !self.is(at, "{") {
            at += 1;
        }
        if at == self.tokens.len() {
            return body;
        }
        body.bound = self.group(at, seen, None);
        at = self.close(at) + 1;
        while at < self.tokens.len() && !self.is(at, "}") {
            if self.is(at, "values") {
                (body.values, at) = self.values(at);
                continue;
            }
            let first = at + 1 + usize::from(self.is(at + 1, "by"));
            let end = self.end_of_clause(first);
            if self.is(at, "group") {
                body.group_by = Some(first..end);
            } else if self.is(at, "having") {
                body.having = Some(first..end);
            } else if self.is(at, "order") {
                body.order_by = Some(first..end);
            }
            at = end;
        }
        body
    }

    /// The number of the token behind a clause of modifiers.
    fn end_of_clause(&self, first: usize) -> usize {
        const CLAUSES: [&str; 6] = ["group", "having", "order", "limit", "offset", "values"];
        let mut at = first;
        while at < self.tokens.len()
            && !self.is(at, "}")
            && !CLAUSES.iter().any(|clause| self.is(at, clause))
        {
            at = self.close(at) + 1;
        }
        at
    }

    /// Looks at what modifiers, items of SELECT, and templates use.
    fn clauses(
        &mut self,
        body: &Body<'a>,
        items: &[Item<'a>],
        template: Range<usize>,
        seen: Option<&Scope<'_, 'a>>,
    ) {
        let group = Scope::new(&body.bound, seen);
        let keys = self.keys(body, &group);
        // What aggregates see, and what is seen outside of them.
        let whole = Scope::new(&keys, Some(&group));
        let inside = Scope::new(&body.values, Some(&whole));
        let is_grouped = body.group_by.is_some() || self.aggregates(body, items);
        let keys_only = Scope::new(&keys, seen);
        let outside = if is_grouped { keys_only } else { whole };
        let first = self.found.len();
        if let Some(having) = body.having.clone() {
            self.expression(having, &outside, Some(&inside));
            self.explain(first, is_grouped, body, items);
        }
        let outside = Scope::new(&body.values, Some(&outside));
        let mut aliases = Names::default();
        let first_of_items = self.found.len();
        for item in items {
            let scope = Scope::new(&aliases, Some(&outside));
            match item {
                Item::Variable(number) => self.use_of(*number, &scope),
                Item::Expression(range, alias) => {
                    self.expression(range.clone(), &scope, Some(&inside));
                    aliases.insert(alias);
                }
            }
        }
        if is_grouped {
            self.refuse_unbound(first_of_items);
        }
        let scope = Scope::new(&aliases, Some(&outside));
        self.expression(template, &scope, None);
        if let Some(order_by) = body.order_by.clone() {
            self.expression(order_by, &scope, Some(&inside));
        }
        self.explain(first, is_grouped, body, &[]);
    }

    /// Says better why what was found from `before` on is not in scope.
    fn explain(&mut self, before: usize, is_grouped: bool, body: &Body<'a>, items: &[Item<'a>]) {
        let is_alias = |name: &str| {
            let mut items = items.iter();
            items.any(|item| matches!(item, Item::Expression(_, alias) if *alias == name))
        };
        for unbound in self.found.iter_mut().skip(before) {
            let name = name(unbound.word);
            if is_alias(name) {
                unbound.why = Why::Selected;
            } else if is_grouped && unbound.why == Why::Nowhere && body.bound.contains(name) {
                unbound.why = Why::Grouped;
            }
        }
    }

    /// What GROUP BY leaves: its variables and aliases.
    fn keys(&mut self, body: &Body<'a>, group: &Scope<'_, 'a>) -> Names<'a> {
        let mut keys = Names::default();
        let Some(Range { start, end }) = body.group_by.clone() else {
            return keys;
        };
        let mut at = start;
        while at < end {
            let scope = Scope::new(&keys, Some(group));
            let close = self.close(at);
            let mut key = self.variable(at);
            if key.is_some() {
                self.use_of(at, &scope);
            } else if self.is(at, "(") {
                let alias = close.saturating_sub(1);
                let has_alias = self.is(alias.saturating_sub(1), "as");
                let last = if has_alias { alias - 1 } else { close };
                self.expression(at + 1..last, &scope, None);
                key = self.variable(alias).filter(|_| has_alias);
                self.bound_somewhere.extend(key);
            }
            if let Some(key) = key {
                keys.insert(key);
            }
            at = close + 1;
        }
        keys
    }

    /// Whether SELECT, HAVING or ORDER BY have aggregates.
    fn aggregates(&self, body: &Body<'a>, items: &[Item<'a>]) -> bool {
        let of_items = items.iter().filter_map(|item| match item {
            Item::Expression(range, _) => Some(range.clone()),
            Item::Variable(_) => None,
        });
        let clauses = body.having.clone().into_iter().chain(body.order_by.clone());
        of_items.chain(clauses).any(|range| {
            let mut at = range.start;
            while at < range.end {
                if self.is(at, "{") {
                    at = self.close(at);
                } else if self.is_aggregate(at) {
                    return true;
                }
                at += 1;
            }
            false
        })
    }

    fn is_aggregate(&self, number: usize) -> bool {
        self.is(number + 1, "(") && is_aggregate(self.word(number))
    }

    /// The group that the brace at `open` opens; gives what it binds. `seen` is seen from everywhere
    /// inside, `left` from its own filters.
    fn group(
        &mut self,
        open: usize,
        seen: Option<&Scope<'_, 'a>>,
        left: Option<&Scope<'_, 'a>>,
    ) -> Names<'a> {
        if self.is(open + 1, "select") {
            return self.select(open + 1, seen);
        }
        let close = self.close(open);
        let mut bound = Names::default();
        let mut filters = Vec::new();
        let found_before = self.found.len();
        let mut at = open + 1;
        while at < close {
            if let Some(name) = self.variable(at) {
                self.bind(&mut bound, name);
                at += 1;
            } else if self.is(at, "filter") {
                let end = self.end_of_constraint(at + 1);
                filters.push(at + 1..end);
                at = end;
            } else {
                at = self.element(at, &mut bound, seen);
            }
        }
        for unbound in self.found.iter_mut().skip(found_before) {
            if unbound.why == Why::Pending {
                let is_later = bound.contains(name(unbound.word));
                unbound.why = if is_later { Why::Later } else { Why::Nowhere };
            }
        }
        let scope = Scope::new(&bound, left.or(seen));
        for filter in filters {
            self.expression(filter, &scope, None);
        }
        bound
    }

    /// An element of a group that is neither a variable of a triple nor a filter; gives the number
    /// of the token behind it.
    fn element(&mut self, at: usize, bound: &mut Names<'a>, seen: Option<&Scope<'_, 'a>>) -> usize {
        let mut open = at + 1;
        let inner = if self.is(at, "{") {
            open = at;
            self.group(open, seen, None)
        } else if self.is(at, "optional") {
            self.group(open, seen, Some(&Scope::new(bound, seen)))
        } else if self.is(at, "lateral") {
            self.group(open, Some(&Scope::new(bound, seen)), None)
        } else if self.is(at, "minus") {
            self.group(open, seen, None);
            Names::default()
        } else if self.is(at, "graph") {
            if let Some(name) = self.variable(open) {
                self.bind(bound, name);
            }
            open = self.brace(at);
            self.group(open, seen, None)
        } else if self.is(at, "service") {
            open = self.brace(at);
            let inside = at..self.close(open);
            inside.filter_map(|number| self.variable(number)).collect()
        } else if self.is(at, "bind") {
            let alias = self.close(open).saturating_sub(1);
            if let Some(name) = self.variable(alias).filter(|name| bound.contains(name)) {
                self.refuse(
                    alias,
                    format!(
                        "BIND cannot give ?{name} a value: it is bound before; take another name"
                    ),
                );
            }
            let before = self.found.len();
            let range = open + 1..alias.saturating_sub(1);
            self.expression(range, &Scope::new(bound, seen), None);
            for unbound in self.found.iter_mut().skip(before) {
                unbound.why = Why::Pending;
            }
            self.variable(alias).into_iter().collect()
        } else if self.is(at, "values") {
            let (names, end) = self.values(at);
            for name in names {
                self.bind(bound, name);
            }
            return end;
        } else {
            return at + 1;
        };
        let (mut small, mut large) = (inner, std::mem::take(bound));
        if small.len() > large.len() {
            std::mem::swap(&mut small, &mut large);
        }
        for name in small {
            self.bind(&mut large, name);
        }
        *bound = large;
        self.close(open) + 1
    }

    /// The number of the first brace from a token on.
    fn brace(&self, at: usize) -> usize {
        let mut numbers = at..self.tokens.len();
        numbers
            .find(|&number| self.is(number, "{"))
            .unwrap_or(self.tokens.len())
    }

    /// The variables of VALUES, and the number of the token behind its data.
    fn values(&mut self, at: usize) -> (Names<'a>, usize) {
        let brace = self.brace(at);
        let names: Names<'a> = (at + 1..brace).filter_map(|n| self.variable(n)).collect();
        self.bound_somewhere.extend(names.iter().copied());
        (names, self.close(brace) + 1)
    }

    /// The number of the token behind the condition of a FILTER.
    fn end_of_constraint(&self, first: usize) -> usize {
        let mut at = first;
        while at < self.tokens.len() && !self.is(at, "(") && !self.is(at, "{") {
            at += 1;
        }
        self.close(at) + 1
    }

    /// Looks at the variables of an expression, or of a template; in aggregates `inside` is seen.
    fn expression(
        &mut self,
        range: Range<usize>,
        scope: &Scope<'_, 'a>,
        inside: Option<&Scope<'_, 'a>>,
    ) {
        let mut at = range.start;
        while at < range.end {
            if self.is(at, "{") {
                self.group(at, Some(scope), None);
                at = self.close(at);
            } else if let Some(inside) = inside.filter(|_| self.is_aggregate(at)) {
                let close = self.close(at + 1);
                self.expression(at + 2..close, inside, None);
                at = close;
            } else if self.variable(at).is_some() {
                self.use_of(at, scope);
            }
            at += 1;
        }
    }

    fn use_of(&mut self, number: usize, scope: &Scope<'_, 'a>) {
        let (Some(&token), Some(name)) = (self.tokens.get(number), self.variable(number)) else {
            return;
        };
        if scope.has(name) {
            return;
        }
        let candidates = scope.links().flat_map(|names| names.iter().copied());
        self.found.push(Unbound {
            token,
            word: self.word(number),
            why: Why::Nowhere,
            near: nearest(name, candidates.take(COMPARED_MAX)),
        });
    }
}

pub(super) mod refused;
#[cfg(test)]
mod tests;
