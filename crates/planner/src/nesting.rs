//! Limits of nesting: of a text before the recursive parser sees it, and of the algebra before the
//! recursive planner does.
//!
//! Chains that are written without nesting (joins, unions, OPTIONAL, MINUS and BIND one after the
//! other, `&&`, `||`) do not count as nesting; neither do they recurse here, where all work is done on
//! explicit stacks. The planner flattens some of them only, and a group of many patterns becomes a plan
//! of as many operators on top of each other: so whoever plans or runs a query takes a stack by its
//! [`Size`].

use spargebra::Query;
use spargebra::algebra::{
    AggregateExpression, Expression, GraphPattern, OrderExpression, PropertyPathExpression,
};

use crate::error::Error;
use crate::{DEEP_STACK_BYTES, ELEMENTS_MAX, NESTING_MAX, NESTING_SHALLOW};

/// Stack for each level of algebra, plan or operators, with room to spare: a build for tests, which
/// needs most, takes about 4 KB.
const LEVEL_BYTES: usize = 16 << 10;

/// The stack for parsing, planning or running something of so many levels; `None` if any stack will
/// do.
#[must_use]
pub fn stack_bytes(levels: usize) -> Option<usize> {
    let levels = levels.min(2 * ELEMENTS_MAX);
    (levels >= NESTING_SHALLOW).then(|| DEEP_STACK_BYTES + levels * LEVEL_BYTES)
}

/// How large the algebra of a query is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Size {
    /// Patterns, groups and operations. Neither algebra nor plan are deeper than a small multiple.
    pub elements: usize,
    /// How deep expressions are nested.
    pub expression_depth: usize,
}

/// Measures the algebra of a query, however deep it is.
///
/// # Errors
/// [`Error::TooLarge`] if it has more than [`ELEMENTS_MAX`] elements.
pub fn query_size(query: &Query) -> Result<Size, Error> {
    let mut size = Size::default();
    let mut stack = vec![(Visit::Pattern(pattern_of(query)), 0_usize)];
    let mut children = Vec::new();
    while let Some((item, depth)) = stack.pop() {
        size.elements += match item {
            Visit::Pattern(GraphPattern::Bgp { patterns }) => patterns.len(),
            Visit::Pattern(GraphPattern::Path { path, .. }) => steps(path),
            Visit::Expression(
                Expression::NamedNode(_)
                | Expression::Literal(_)
                | Expression::Variable(_)
                | Expression::Bound(_),
            ) => 0,
            _ => 1,
        };
        if size.elements > ELEMENTS_MAX {
            return Err(Error::TooLarge);
        }
        size.expression_depth = size.expression_depth.max(depth);
        match item {
            Visit::Pattern(pattern) => push_children(pattern, 0, &mut children),
            Visit::Expression(expression) => push_operands(expression, 0, &mut children),
        }
        for (child, _) in children.drain(..) {
            let depth = match child {
                Visit::Pattern(_) => 0,
                Visit::Expression(_) => depth + 1,
            };
            stack.push((child, depth));
        }
    }
    Ok(size)
}

/// How many steps a path has.
fn steps(path: &PropertyPathExpression) -> usize {
    use PropertyPathExpression as P;
    let mut count = 0;
    let mut open = vec![path];
    while let Some(path) = open.pop() {
        count += 1;
        match path {
            P::NamedNode(_) | P::NegatedPropertySet(_) => {}
            P::Reverse(inner)
            | P::ZeroOrMore(inner)
            | P::OneOrMore(inner)
            | P::ZeroOrOne(inner) => {
                open.push(inner);
            }
            P::Sequence(left, right) | P::Alternative(left, right) => {
                open.extend([&**left, &**right]);
            }
        }
    }
    count
}

/// Levels that the solution modifiers of the outermost query may add.
const MODIFIERS_MAX: usize = 8;

/// How deep a text is nested in brackets or in runs of prefix operators; to be called before it is
/// parsed, since the parser recurses. Strings, IRIs and comments do not count.
///
/// # Errors
/// [`Error::TooDeep`] if that is more than [`NESTING_MAX`].
pub fn check_nesting(text: &str) -> Result<usize, Error> {
    let mut deepest = 0_usize;
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut depth = 0_usize;
    let mut prefixes = 0_usize;
    while let Some(&byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        match byte {
            b'#' => {
                at += length_until(rest, b"\n\r");
                continue;
            }
            b'"' | b'\'' => {
                at += string_length(rest);
                prefixes = 0;
                continue;
            }
            b'<' if rest.starts_with(b"<<") && iri_length(rest).is_none() => {
                // A reified triple or a triple term, whose own bracket counts, too.
                depth += 1;
                at += 1;
            }
            b'<' => {
                at += iri_length(rest).unwrap_or(1);
                prefixes = 0;
                continue;
            }
            b'>' if rest.starts_with(b">>") => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'\\' => at += 1,
            _ => {}
        }
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match byte {
            b'!' | b'+' | b'-' | b'^' => prefixes += 1,
            b' ' | b'\t' | b'\r' | b'\n' | b'(' | b'{' | b'[' => {}
            _ => prefixes = 0,
        }
        deepest = deepest.max(depth + prefixes);
        if deepest > NESTING_MAX {
            return Err(Error::TooDeep);
        }
        at += 1;
    }
    Ok(deepest)
}

fn length_until(bytes: &[u8], ends: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| ends.contains(byte))
        .unwrap_or(bytes.len())
}

/// Bytes of the string literal at the start of `bytes`, quotes included.
fn string_length(bytes: &[u8]) -> usize {
    let Some((&quote, rest)) = bytes.split_first() else {
        return 0;
    };
    let long = rest.first() == Some(&quote) && rest.get(1) == Some(&quote);
    let mut at = if long { 3 } else { 1 };
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let ends = |byte: &u8| matches!(*byte, b'\\' | b'\n' | b'\r') || *byte == quote;
        let Some(length) = rest.iter().position(ends) else {
            return bytes.len();
        };
        at += length;
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            _ if !long => return at + 1,
            Some(byte) if *byte == quote && bytes.get(at..at + 3) == Some(&[quote; 3]) => {
                return at + 3;
            }
            _ => at += 1,
        }
    }
}

/// Which bytes end an IRI in angle brackets, or show that it is none.
#[expect(clippy::indexing_slicing, reason = "done by the compiler")]
const IRI_ENDS: [bool; 256] = {
    let mut ends = [false; 256];
    let mut byte = 0;
    while byte < ends.len() {
        ends[byte] = byte <= 0x20 || byte == 0x7F;
        byte += 1;
    }
    let (others, mut at) = (b"<>\"{}|^`", 0);
    while at < others.len() {
        ends[others[at] as usize] = true;
        at += 1;
    }
    ends
};

/// Bytes of the IRI in angle brackets at the start of `bytes`, `None` if the bracket is an operator.
fn iri_length(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.get(1..)?;
    let ends = |byte: &u8| IRI_ENDS.get(usize::from(*byte)).copied().unwrap_or(false);
    let end = rest.iter().position(ends)?;
    (rest.get(end) == Some(&b'>')).then_some(end + 2)
}

/// A node of the algebra, to be looked at in [`walk_into`].
#[derive(Clone, Copy)]
pub enum Visit<'a> {
    /// A graph pattern.
    Pattern(&'a GraphPattern),
    /// An expression.
    Expression(&'a Expression),
}

/// Calls `visit` for every node of the algebra below `start`, itself included, with its depth.
pub(crate) fn walk<'a>(start: Visit<'a>, mut visit: impl FnMut(Visit<'a>, usize)) {
    walk_into(start, |item, depth| {
        visit(item, depth);
        true
    });
}

/// Calls `visit` for the nodes of the algebra from `start` on, with their depth from 1; it tells
/// whether what is below a node is visited, too. Does not recurse, so any depth will do.
pub fn walk_into<'a>(start: Visit<'a>, mut visit: impl FnMut(Visit<'a>, usize) -> bool) {
    let mut stack = vec![(start, 1_usize)];
    while let Some((item, depth)) = stack.pop() {
        if !visit(item, depth) {
            continue;
        }
        match item {
            Visit::Pattern(pattern) => push_children(pattern, depth, &mut stack),
            Visit::Expression(expression) => push_operands(expression, depth, &mut stack),
        }
    }
}

fn push_children<'a>(pattern: &'a GraphPattern, depth: usize, stack: &mut Vec<(Visit<'a>, usize)>) {
    use GraphPattern as P;
    let below = depth + 1;
    match pattern {
        P::Bgp { .. } | P::Path { .. } | P::Values { .. } => {}
        P::Join { left, right } | P::Union { left, right } => {
            // The left spine is flattened.
            stack.push((Visit::Pattern(left), depth));
            stack.push((Visit::Pattern(right), below));
        }
        P::Lateral { left, right } => {
            stack.push((Visit::Pattern(left), below));
            stack.push((Visit::Pattern(right), below));
        }
        P::Minus { left, right } => {
            // One after the other, as they are written.
            stack.push((Visit::Pattern(left), depth));
            stack.push((Visit::Pattern(right), below));
        }
        P::LeftJoin {
            left,
            right,
            expression,
        } => {
            stack.push((Visit::Pattern(left), depth));
            stack.push((Visit::Pattern(right), below));
            if let Some(expression) = expression {
                stack.push((Visit::Expression(expression), below));
            }
        }
        P::Filter { expr, inner } => {
            stack.push((Visit::Pattern(inner), below));
            stack.push((Visit::Expression(expr), below));
        }
        P::Extend {
            inner, expression, ..
        } => {
            stack.push((Visit::Pattern(inner), depth));
            stack.push((Visit::Expression(expression), below));
        }
        P::OrderBy { inner, expression } => {
            stack.push((Visit::Pattern(inner), below));
            for key in expression {
                let (OrderExpression::Asc(key) | OrderExpression::Desc(key)) = key;
                stack.push((Visit::Expression(key), below));
            }
        }
        P::Group {
            inner, aggregates, ..
        } => {
            stack.push((Visit::Pattern(inner), below));
            for (_, aggregate) in aggregates {
                if let AggregateExpression::FunctionCall { expr, .. } = aggregate {
                    stack.push((Visit::Expression(expr), below));
                }
            }
        }
        P::Graph { inner, .. }
        | P::Project { inner, .. }
        | P::Distinct { inner }
        | P::Reduced { inner }
        | P::Slice { inner, .. }
        | P::Service { inner, .. } => stack.push((Visit::Pattern(inner), below)),
    }
}

fn push_operands<'a>(
    expression: &'a Expression,
    depth: usize,
    stack: &mut Vec<(Visit<'a>, usize)>,
) {
    use Expression as E;
    let below = depth + 1;
    match expression {
        E::NamedNode(_) | E::Literal(_) | E::Variable(_) | E::Bound(_) => {}
        E::Or(left, right) | E::And(left, right) => {
            stack.push((Visit::Expression(left), depth));
            stack.push((Visit::Expression(right), below));
        }
        E::Equal(left, right)
        | E::SameTerm(left, right)
        | E::Greater(left, right)
        | E::GreaterOrEqual(left, right)
        | E::Less(left, right)
        | E::LessOrEqual(left, right)
        | E::Add(left, right)
        | E::Subtract(left, right)
        | E::Multiply(left, right)
        | E::Divide(left, right) => {
            stack.push((Visit::Expression(left), below));
            stack.push((Visit::Expression(right), below));
        }
        E::UnaryPlus(inner) | E::UnaryMinus(inner) | E::Not(inner) => {
            stack.push((Visit::Expression(inner), below));
        }
        E::Exists(pattern) => stack.push((Visit::Pattern(pattern), below)),
        E::If(a, b, c) => {
            for inner in [a, b, c] {
                stack.push((Visit::Expression(inner), below));
            }
        }
        E::In(needle, list) => {
            stack.push((Visit::Expression(needle), below));
            stack.extend(list.iter().map(|inner| (Visit::Expression(inner), below)));
        }
        E::Coalesce(list) | E::FunctionCall(_, list) => {
            stack.extend(list.iter().map(|inner| (Visit::Expression(inner), below)));
        }
    }
}

/// Refuses algebra nested deeper than [`NESTING_MAX`], and what is too large.
pub(crate) fn check_algebra(query: &Query) -> Result<(), Error> {
    query_size(query)?;
    let mut deepest = 0;
    walk(Visit::Pattern(pattern_of(query)), |_, depth| {
        deepest = deepest.max(depth);
    });
    if deepest > NESTING_MAX + MODIFIERS_MAX {
        return Err(Error::TooDeep);
    }
    Ok(())
}

/// The WHERE part of a query, solution modifiers included.
pub(crate) const fn pattern_of(query: &Query) -> &GraphPattern {
    match query {
        Query::Select { pattern, .. }
        | Query::Construct { pattern, .. }
        | Query::Describe { pattern, .. }
        | Query::Ask { pattern, .. } => pattern,
    }
}
