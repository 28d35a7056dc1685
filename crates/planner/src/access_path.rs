//! Which permutation a quad pattern is read or looked up in, and which conditions become ranges of
//! ids.

use std::cmp::Reverse;

use oxrdf::Term;
use stoa_terms::range::{Comparison as RangeComparison, comparison_ranges};
use stoa_terms::value::Value;
use stoa_terms::{IdRange, Kind, Permutation, Position, TermId};

use crate::error::Error;
use crate::expression::{Comparison, Constant, Expression, Function};
use crate::physical::{PatternTerm, QuadPattern, Variable};
use crate::statistics::PrefixRanges;
use crate::text_prefix::{TextPrefix, text_prefix};
use crate::variable_set::VariableSet;

/// The constants of a pattern.
pub(crate) fn constants(pattern: &QuadPattern) -> [Option<TermId>; 3] {
    pattern.triple.map(|term| match term {
        PatternTerm::Constant(id) => Some(id),
        PatternTerm::Variable(_) => None,
    })
}

/// Whether the predicate is the only constant.
pub(crate) const fn predicate_only(triple: &[Option<TermId>; 3]) -> bool {
    matches!(triple, [None, Some(_), None])
}

/// What stands at a position of a pattern; `None` for a graph that is not asked for.
pub(crate) fn term_at(pattern: &QuadPattern, position: Position) -> Option<PatternTerm> {
    let [subject, predicate, object] = pattern.triple;
    match position {
        Position::Subject => Some(subject),
        Position::Predicate => Some(predicate),
        Position::Object => Some(object),
        Position::Graph => pattern.graph_variable.map(PatternTerm::Variable),
    }
}

/// The positions at which a variable stands.
pub(crate) fn positions_of(
    pattern: &QuadPattern,
    variable: Variable,
) -> impl Iterator<Item = Position> + '_ {
    [
        Position::Subject,
        Position::Predicate,
        Position::Object,
        Position::Graph,
    ]
    .into_iter()
    .filter(move |&position| term_at(pattern, position) == Some(PatternTerm::Variable(variable)))
}

/// A way to read all matches of a pattern.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Access {
    pub(crate) permutation: Permutation,
    pub(crate) prefix_length: usize,
}

impl Access {
    /// The position after the prefix, which ranges apply to.
    pub(crate) fn next_position(self) -> Option<Position> {
        self.permutation.order().get(self.prefix_length).copied()
    }

    /// The variables that the matches are sorted by.
    pub(crate) fn sorted_by(self, pattern: &QuadPattern) -> Vec<Variable> {
        let mut sorted = Vec::with_capacity(4);
        for position in self.permutation.order() {
            if let Some(PatternTerm::Variable(variable)) = term_at(pattern, position)
                && !sorted.contains(&variable)
            {
                sorted.push(variable);
            }
        }
        sorted
    }
}

/// The permutations in which most constants of a pattern are a prefix, one for each order of the
/// matches, the best one first.
pub(crate) fn accesses(pattern: &QuadPattern) -> Vec<Access> {
    let mut all: Vec<Access> = preferred(pattern)
        .into_iter()
        .map(|permutation| Access {
            permutation,
            prefix_length: permutation
                .order()
                .into_iter()
                .take_while(|&position| {
                    matches!(term_at(pattern, position), Some(PatternTerm::Constant(_)))
                })
                .count(),
        })
        .collect();
    let longest = all.iter().map(|access| access.prefix_length).max();
    all.retain(|access| Some(access.prefix_length) == longest);
    let mut orders: Vec<Option<Variable>> = Vec::with_capacity(4);
    all.retain(|access| {
        let first = access.sorted_by(pattern).first().copied();
        let new = !orders.contains(&first);
        orders.push(first);
        new
    });
    all
}

/// All permutations, those that keep what the pattern fixes close together first.
const fn preferred(pattern: &QuadPattern) -> [Permutation; 4] {
    use Permutation::{Opsg, Posg, Psog, Spog};
    // All quads of one subject lie together in SPOG, so that several patterns on it share a read.
    if matches!(pattern.triple, [PatternTerm::Constant(_), _, _]) {
        [Spog, Psog, Posg, Opsg]
    } else {
        [Psog, Posg, Spog, Opsg]
    }
}

/// Few look-ups go where all quads of a node are together, many to the dense order of a predicate.
pub const FEW_LOOKUPS: f64 = 256.0;

/// The permutation to look a pattern up in when the variables `bound` are known: as many positions
/// as possible are a prefix. `None` if no permutation begins with a known position.
///
/// Those that begin with the graph are taken, if they are kept, where a variable for the graph is
/// known and the predicate, too: the others would read the quads of all graphs.
pub(crate) fn lookup(
    pattern: &QuadPattern,
    bound: &VariableSet,
    probes: f64,
    has_graph_first: bool,
) -> Option<(Permutation, usize)> {
    use Permutation::{Gpos, Gpso, Opsg, Posg, Psog, Spog};
    let known = |position| match term_at(pattern, position) {
        Some(PatternTerm::Constant(_)) => true,
        Some(PatternTerm::Variable(variable)) => bound.contains(variable),
        None => false,
    };
    let order = if probes < FEW_LOOKUPS {
        [Spog, Opsg, Psog, Posg, Gpso, Gpos]
    } else {
        [Psog, Posg, Spog, Opsg, Gpso, Gpos]
    };
    let key_length = |permutation: Permutation| {
        let graph_first = matches!(permutation, Gpso | Gpos);
        permutation
            .order()
            .into_iter()
            .take_while(|&position| {
                known(position)
                    && (has_graph_first || !graph_first)
                    && (graph_first || position != Position::Graph)
            })
            .count()
    };
    // Keys that have constants in front are near each other: of many, all those of a predicate and an object together.
    let fixed = |permutation: Permutation| {
        let positions = permutation.order().into_iter();
        let is_fixed = |position: &Position| {
            matches!(term_at(pattern, *position), Some(PatternTerm::Constant(_)))
        };
        match probes < FEW_LOOKUPS {
            true => 0,
            false => positions.take_while(is_fixed).count(),
        }
    };
    // The first of the longest ones.
    let ways = order.into_iter().enumerate();
    let ways = ways.map(|(at, permutation)| (at, key_length(permutation), fixed(permutation)));
    let (at, length, _) =
        ways.min_by_key(|&(at, length, fixed)| (Reverse(length), Reverse(fixed), at))?;
    (length > 0).then_some((order.get(at).copied()?, length))
}

/// Ranges of ids that a condition puts a variable into.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranges {
    pub(crate) variable: Variable,
    /// Ascending, disjoint; none at all if the condition is never true.
    pub(crate) ranges: Vec<IdRange>,
    /// Whether the condition is true for every term of the ranges that data can hold.
    pub(crate) exact: bool,
    /// Whether the condition leaves out much of what lies in the ranges.
    pub(crate) loose: bool,
}

/// Tells where terms are whose text begins with something, if it is known.
pub(crate) type Prefixes<'a> = &'a dyn Fn(&TextPrefix) -> Result<Option<PrefixRanges>, Error>;

/// The ranges that a condition stands for, if it is about one variable and constants.
///
/// # Errors
/// Those of `prefixes`.
pub(crate) fn ranges_of(
    condition: &Expression,
    prefixes: Prefixes<'_>,
) -> Result<Option<Ranges>, Error> {
    if let Expression::Call(function, arguments) = condition
        && let Some(text) = text_prefix(*function, arguments)
    {
        return Ok(prefixes(&text)?.map(|found| Ranges {
            variable: text.variable,
            exact: found.is_exact && text.is_all,
            loose: !found.is_exact,
            ranges: normal(found.ranges),
        }));
    }
    match condition {
        Expression::Or(parts) => any_of(parts, prefixes),
        other => Ok(ranges_by_ids(other)),
    }
}

/// The ranges in which one of some conditions holds.
fn any_of(parts: &[Expression], prefixes: Prefixes<'_>) -> Result<Option<Ranges>, Error> {
    let mut all: Option<Ranges> = None;
    for part in parts {
        let Some(part) = ranges_of(part, prefixes)? else {
            return Ok(None);
        };
        all = match all {
            None => Some(part),
            Some(all) if all.variable != part.variable => return Ok(None),
            Some(mut all) => {
                all.ranges.extend(part.ranges);
                all.exact &= part.exact;
                all.loose |= part.loose;
                Some(all)
            }
        };
    }
    if let Some(all) = &mut all {
        all.ranges = normal(std::mem::take(&mut all.ranges));
    }
    Ok(all)
}

/// The ranges that ids and values alone tell.
fn ranges_by_ids(condition: &Expression) -> Option<Ranges> {
    match condition {
        Expression::Compare(comparison, left, right) => match (&**left, &**right) {
            (Expression::Variable(variable), Expression::Constant(constant)) => {
                compared(*comparison, *variable, constant)
            }
            (Expression::Constant(constant), Expression::Variable(variable)) => {
                compared(mirrored(*comparison), *variable, constant)
            }
            _ => None,
        },
        Expression::In(needle, list) => {
            let Expression::Variable(variable) = &**needle else {
                return None;
            };
            let mut all = Ranges {
                variable: *variable,
                ranges: Vec::new(),
                exact: true,
                loose: false,
            };
            for item in list {
                let Expression::Constant(constant) = item else {
                    return None;
                };
                let one = compared(Comparison::Equal, *variable, constant)?;
                all.ranges.extend(one.ranges);
                all.exact &= one.exact;
            }
            all.ranges = normal(all.ranges);
            Some(all)
        }
        Expression::Call(function, arguments) => {
            let [Expression::Variable(variable)] = arguments.as_slice() else {
                return None;
            };
            let ranges = kinds(*function)?;
            Some(Ranges {
                variable: *variable,
                ranges,
                exact: *function != Function::HasOtherForms,
                loose: false,
            })
        }
        _ => None,
    }
}

/// A list of more ranges is not worth to be looked through for each row.
pub const KEPT_RANGES_MAX: usize = 8;

/// The ranges that a condition puts each of its variables into, if it can be true of no term outside of them; those of
/// conditions that all have to hold are intersected, but for a `!=` that would give a variable more than
/// [`KEPT_RANGES_MAX`]. For variables that are bound.
#[must_use]
pub fn variables_within(condition: &Expression) -> Vec<(Variable, Vec<IdRange>)> {
    let parts = match condition {
        Expression::And(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut found: Vec<(Variable, Vec<IdRange>)> = Vec::new();
    // Where texts are is asked by who plans.
    let by_ids = |part: &Expression| ranges_of(part, &|_| Ok(None)).ok().flatten();
    for part in parts.iter().filter_map(by_ids) {
        match found.iter_mut().find(|(other, _)| *other == part.variable) {
            Some((_, ranges)) => *ranges = intersect(ranges, &part.ranges),
            None => found.push((part.variable, part.ranges)),
        }
    }
    // Each of these leaves out one term, and makes one range more.
    for part in parts.iter().filter_map(outside_of) {
        match found.iter_mut().find(|(other, _)| *other == part.variable) {
            Some((_, ranges)) if ranges.len() <= KEPT_RANGES_MAX => {
                let both = intersect(ranges, &part.ranges);
                if both.len() <= KEPT_RANGES_MAX {
                    *ranges = both;
                }
            }
            Some(_) => (),
            None => found.push((part.variable, part.ranges)),
        }
    }
    found
}

/// All but the IRI that a variable is compared with by `!=`: no other term is equal to it. Scans do not descend to such
/// ranges, since then the id of each other constant of the query would stand in one.
fn outside_of(condition: &Expression) -> Option<Ranges> {
    let (left, right) = match condition {
        Expression::Compare(Comparison::NotEqual, left, right) => (left, right),
        Expression::Not(equal) => match &**equal {
            Expression::Compare(Comparison::Equal, left, right) => (left, right),
            _ => return None,
        },
        _ => return None,
    };
    let ((Expression::Variable(variable), Expression::Constant(constant))
    | (Expression::Constant(constant), Expression::Variable(variable))) = (&**left, &**right)
    else {
        return None;
    };
    let (Term::NamedNode(_), Some(id)) = (&constant.term, constant.id) else {
        return None;
    };
    let below = id.to_bits().checked_sub(1).map(|last| IdRange {
        first: TermId::MIN,
        last: TermId::from_bits(last),
    });
    let above = id.to_bits().checked_add(1).map(|first| IdRange {
        first: TermId::from_bits(first),
        last: TermId::MAX,
    });
    Some(Ranges {
        variable: *variable,
        ranges: below.into_iter().chain(above).collect(),
        exact: true,
        loose: false,
    })
}

fn kinds(function: Function) -> Option<Vec<IdRange>> {
    Some(match function {
        Function::IsIri => vec![IdRange::of_kind(Kind::Iri)],
        Function::IsBlank => vec![IdRange::of_kind(Kind::BlankNode)],
        Function::IsTriple => vec![IdRange::of_kind(Kind::Triple)],
        // Numbers, dates and times; booleans, some of which are among other literals; triple terms, which have them inside.
        Function::HasOtherForms => vec![
            IdRange {
                first: TermId::FALSE,
                last: TermId::TRUE,
            },
            IdRange {
                first: TermId::new(Kind::Integer, 0),
                last: TermId::new(Kind::TemporalLiteral, TermId::PAYLOAD_MAX),
            },
            IdRange {
                first: TermId::new(Kind::Literal, 0),
                last: TermId::new(Kind::Triple, TermId::PAYLOAD_MAX),
            },
        ],
        Function::IsLiteral => vec![
            IdRange {
                first: TermId::FALSE,
                last: TermId::TRUE,
            },
            IdRange {
                first: TermId::new(Kind::Integer, 0),
                last: TermId::new(Kind::Literal, TermId::PAYLOAD_MAX),
            },
        ],
        _ => return None,
    })
}

fn compared(comparison: Comparison, variable: Variable, constant: &Constant) -> Option<Ranges> {
    let identity = || Ranges {
        variable,
        ranges: constant
            .id
            .map(|id| IdRange {
                first: id,
                last: id,
            })
            .into_iter()
            .collect(),
        exact: true,
        loose: false,
    };
    let range = match comparison {
        Comparison::SameTerm => return Some(identity()),
        Comparison::NotEqual => return None,
        Comparison::Equal => RangeComparison::Equal,
        Comparison::Less => RangeComparison::Less,
        Comparison::LessOrEqual => RangeComparison::LessOrEqual,
        Comparison::Greater => RangeComparison::Greater,
        Comparison::GreaterOrEqual => RangeComparison::GreaterOrEqual,
    };
    match &constant.term {
        Term::NamedNode(_) if comparison == Comparison::Equal => Some(identity()),
        Term::Literal(literal) => Some(Ranges {
            variable,
            ranges: normal(comparison_ranges(
                range,
                &Value::from_literal(literal.as_ref()),
            )),
            exact: false,
            loose: false,
        }),
        _ => None,
    }
}

const fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same @ (Comparison::Equal | Comparison::NotEqual | Comparison::SameTerm) => same,
    }
}

/// Sorted, with ranges that meet made one.
fn normal(mut ranges: Vec<IdRange>) -> Vec<IdRange> {
    ranges.sort_unstable_by_key(|range| range.first);
    let mut merged: Vec<IdRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first.to_bits() <= last.last.to_bits().saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// What lies in both of two ascending lists.
pub(crate) fn intersect(left: &[IdRange], right: &[IdRange]) -> Vec<IdRange> {
    let mut both = Vec::new();
    let (mut a, mut b) = (0, 0);
    while let (Some(x), Some(y)) = (left.get(a), right.get(b)) {
        let (first, last) = (x.first.max(y.first), x.last.min(y.last));
        if first <= last {
            both.push(IdRange { first, last });
        }
        if x.last < y.last {
            a += 1;
        } else {
            b += 1;
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_terms::GraphSet;

    fn id(number: u64) -> TermId {
        TermId::new(Kind::Iri, number)
    }

    fn range(first: u64, last: u64) -> IdRange {
        IdRange {
            first: id(first),
            last: id(last),
        }
    }

    fn pattern(triple: [PatternTerm; 3]) -> QuadPattern {
        QuadPattern {
            triple,
            graphs: GraphSet::Default,
            graph_variable: None,
        }
    }

    #[test]
    fn ranges_merge_and_intersect() {
        let list = normal(vec![range(7, 9), range(1, 3), range(4, 5)]);
        assert_eq!(list, [range(1, 5), range(7, 9)]);
        assert_eq!(
            intersect(&list, &[range(3, 7), range(9, 20)]),
            [range(3, 5), range(7, 7), range(9, 9)]
        );
    }

    #[test]
    fn what_is_left_out_makes_no_more_ranges_than_are_kept() {
        let compare = |comparison, number| {
            let iri = oxrdf::NamedNode::new_unchecked(format!("http://a/{number}"));
            let constant = Constant {
                term: iri.into(),
                id: Some(id(number)),
            };
            let operands = (
                Expression::Variable(Variable(0)),
                Expression::Constant(constant),
            );
            Expression::Compare(comparison, Box::new(operands.0), Box::new(operands.1))
        };
        let unequal = (0..100).map(|number| compare(Comparison::NotEqual, 10 * number));
        let is_iri = || Expression::Call(Function::IsIri, vec![Expression::Variable(Variable(0))]);
        let within =
            |parts: Vec<Expression>| match variables_within(&Expression::And(parts)).as_slice() {
                [(Variable(0), ranges)] => ranges.clone(),
                other => panic!("{other:?}"),
            };
        // As the parser gives it.
        let not = Expression::Not(Box::new(compare(Comparison::Equal, 7)));
        assert_eq!(
            within(vec![not]),
            within(vec![compare(Comparison::NotEqual, 7)])
        );
        let many = within(unequal.clone().chain([is_iri()]).collect());
        assert_eq!(many.len(), KEPT_RANGES_MAX);
        assert_eq!(many.first(), Some(&range(1, 9)));
        let iris = IdRange::of_kind(Kind::Iri);
        assert_eq!(many.last().map(|last| last.last), Some(iris.last));
        // What leaves fewer is not lost behind others.
        let few = compare(Comparison::Equal, 55);
        assert_eq!(
            within(unequal.clone().chain([few]).collect()),
            [range(55, 55)]
        );
        let none = compare(Comparison::Equal, 50);
        assert!(within(unequal.chain([none]).collect()).is_empty());
    }

    #[test]
    fn constants_come_first() {
        let variable = |number| PatternTerm::Variable(Variable(number));
        let constant = PatternTerm::Constant(id(1));
        let names = |triple| {
            accesses(&pattern(triple))
                .into_iter()
                .map(|access| (access.permutation.name(), access.prefix_length))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names([variable(0), constant, variable(1)]),
            [("PSOG", 1), ("POSG", 1)]
        );
        assert_eq!(names([variable(0), constant, constant]), [("POSG", 2)]);
        assert_eq!(names([constant, variable(0), variable(1)]), [("SPOG", 1)]);
        assert_eq!(names([variable(0), variable(1), constant]), [("OPSG", 1)]);
        assert_eq!(
            names([variable(0), variable(1), variable(2)]),
            [("PSOG", 0), ("SPOG", 0), ("OPSG", 0)]
        );
        let bound: VariableSet = std::iter::once(Variable(0)).collect();
        let triple = pattern([variable(0), constant, variable(1)]);
        assert_eq!(
            lookup(&triple, &bound, 1.0, true),
            Some((Permutation::Spog, 2))
        );
        assert_eq!(
            lookup(&triple, &bound, 1e6, true),
            Some((Permutation::Psog, 2))
        );
        let triple = pattern([variable(1), variable(2), variable(0)]);
        assert_eq!(
            lookup(&triple, &bound, 1e6, true),
            Some((Permutation::Opsg, 1))
        );
        assert_eq!(lookup(&triple, &VariableSet::new(), 1.0, false), None);
        let mut triple = pattern([variable(0), constant, variable(1)]);
        triple.graph_variable = Some(Variable(2));
        let bound: VariableSet = [Variable(0), Variable(2)].into_iter().collect();
        assert_eq!(
            lookup(&triple, &bound, 1.0, true),
            Some((Permutation::Gpso, 3))
        );
        assert_eq!(
            lookup(&triple, &bound, 1.0, false),
            Some((Permutation::Spog, 2))
        );
    }
}
