//! Limits of nesting: of a text before the recursive parser sees it, and of the algebra before the
//! recursive planner does.
//!
//! Chains that the planner flattens (joins, unions, `&&`, `||`) do not count as nesting; neither do
//! they recurse here, where all work is done on explicit stacks.

use spargebra::Query;
use spargebra::algebra::{AggregateExpression, Expression, GraphPattern, OrderExpression};

use crate::error::Error;
use crate::{GROUPS_MAX, NESTING_MAX, NESTING_SHALLOW};

/// From how many `/` in a row on a larger stack is needed.
const STEPS_SHALLOW: usize = 256;

/// From how many groups on a larger stack is needed: chains of them recurse where a query is dropped, and
/// in planning and running what is not flattened.
const GROUPS_SHALLOW: usize = 250;

/// Levels that the solution modifiers of the outermost query may add.
const MODIFIERS_MAX: usize = 8;

/// How deep a text is nested in brackets or in runs of prefix operators; to be called before it is
/// parsed, since the parser recurses. Strings, IRIs and comments do not count. The parser recurses
/// for each `/` of a path, too, and planner and operators for the joins that it stands for.
///
/// # Errors
/// [`Error::TooDeep`] if that is more than [`NESTING_MAX`], [`Error::TooManyGroups`] if there are more
/// than [`GROUPS_MAX`].
pub fn check_nesting(text: &str) -> Result<usize, Error> {
    let mut deepest = 0_usize;
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut depth = 0_usize;
    let mut prefixes = 0_usize;
    let (mut steps, mut longest) = (0_usize, 0_usize);
    let mut groups = 0_usize;
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
            b'/' => steps += 1,
            b'{' => {
                steps = 0;
                groups += 1;
            }
            b'}' | b';' => steps = 0,
            b'.' if rest.get(1).is_none_or(u8::is_ascii_whitespace) => steps = 0,
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
        longest = longest.max(steps);
        if deepest > NESTING_MAX || steps > NESTING_MAX {
            return Err(Error::TooDeep);
        }
        if groups > GROUPS_MAX {
            return Err(Error::TooManyGroups);
        }
        at += 1;
    }
    if longest > STEPS_SHALLOW || groups > GROUPS_SHALLOW {
        deepest = deepest.max(NESTING_SHALLOW);
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
    while let Some(&byte) = bytes.get(at) {
        if byte == b'\\' {
            at += 2;
        } else if !long && (byte == quote || byte == b'\n' || byte == b'\r') {
            return at + 1;
        } else if long
            && byte == quote
            && bytes.get(at + 1) == Some(&quote)
            && bytes.get(at + 2) == Some(&quote)
        {
            return at + 3;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Bytes of the IRI in angle brackets at the start of `bytes`, `None` if the bracket is an operator.
fn iri_length(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.get(1..)?;
    let end = rest
        .iter()
        .position(|byte| byte.is_ascii_control() || b" <>\"{}|^`".contains(byte))?;
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
        P::Lateral { left, right } | P::Minus { left, right } => {
            stack.push((Visit::Pattern(left), below));
            stack.push((Visit::Pattern(right), below));
        }
        P::LeftJoin {
            left,
            right,
            expression,
        } => {
            stack.push((Visit::Pattern(left), below));
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
            stack.push((Visit::Pattern(inner), below));
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

/// Refuses algebra nested deeper than [`NESTING_MAX`].
pub(crate) fn check_algebra(query: &Query) -> Result<(), Error> {
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
