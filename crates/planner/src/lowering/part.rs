//! Parts of a group before their order is known, with the conditions that each one decides alone.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use stoa_terms::{IdRange, Position};

use super::{Lowering, PathFigures, Planned};
use crate::Rewrites;
use crate::access_path::{Access, Ranges, intersect, ranges_of, term_at};
use crate::cardinality::Cache;
use crate::error::Error;
use crate::expression::Expression;
use crate::join_order::shared_by;
use crate::logical::{Node, PathSearch, expression_variables};
use crate::physical::{PatternTerm, QuadPattern, Variable};
use crate::variable_set::VariableSet;
use crate::volatile::is_volatile;

/// A part of a group, before its order is known.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) source: PartSource,
    pub(super) certain: VariableSet,
    pub(super) possible: VariableSet,
    /// Conditions on this part alone.
    pub(super) conditions: Vec<PartCondition>,
}

#[derive(Clone)]
pub(super) enum PartSource {
    Pattern(Box<QuadPattern>),
    /// A plan that is ready; taken out when it is placed. With the node that it was made of, if it
    /// may be worth planning it again for the bindings of the other parts.
    Plan(Option<Box<Planned>>, Option<Box<Node>>),
    /// A path, with its plan on its own and what it costs otherwise.
    Path(Box<PathSearch>, Box<Planned>, Box<PathFigures>),
}

impl Part {
    /// A part that is planned.
    pub(super) fn planned(plan: Planned) -> Self {
        Self {
            certain: plan.certain.clone(),
            possible: plan.possible.clone(),
            source: PartSource::Plan(Some(Box::new(plan)), None),
            conditions: Vec::new(),
        }
    }
}

/// A condition with the ranges it stands for, which are made once: a list behind IN may be long.
#[derive(Clone)]
pub(super) struct PartCondition {
    pub(super) expression: Expression,
    pub(super) ranges: Option<Ranges>,
    /// Whether those are ranges of the parameters' values at planning, by which rows are estimated and none are read.
    pub(super) is_expected: bool,
}

impl PartCondition {
    /// A condition on what a pattern gives, or something else. Only terms of quads are looked for where their texts are:
    /// others may be none of the dictionary's.
    pub(super) fn new(
        expression: Expression,
        is_of_pattern: bool,
        cache: &Cache<'_>,
    ) -> Result<Self, Error> {
        let ranges = ranges_of(&expression, &|text| match is_of_pattern {
            true => cache.prefix_ranges(&text.prefix, text.of),
            false => Ok(None),
        })?;
        Ok(Self {
            ranges,
            expression,
            is_expected: false,
        })
    }
}

/// The conditions as they are placed in a plan.
pub(super) fn expressions(conditions: Vec<PartCondition>) -> Vec<Expression> {
    conditions
        .into_iter()
        .map(|condition| condition.expression)
        .collect()
}

/// The variables that join the parts of a group.
pub(super) struct Joining {
    /// In several parts.
    pub(super) shared: VariableSet,
    /// Subjects of some patterns and objects of others.
    pub(super) chained: VariableSet,
}

impl Joining {
    pub(super) fn of(parts: &[Part]) -> Self {
        let (mut subjects, mut objects) = (VariableSet::new(), VariableSet::new());
        for part in parts {
            if let PartSource::Pattern(pattern) = &part.source {
                let ends = [
                    (Position::Subject, &mut subjects),
                    (Position::Object, &mut objects),
                ];
                for (position, variables) in ends {
                    if let Some(PatternTerm::Variable(variable)) = term_at(pattern, position) {
                        variables.insert(variable);
                    }
                }
            }
        }
        Self {
            shared: shared_by(parts.iter().map(|part| &part.possible)),
            chained: subjects.intersection(&objects),
        }
    }
}

/// The ranges that conditions put variables into which patterns bind.
pub(super) type RangesOf = HashMap<Variable, Vec<IdRange>, RandomState>;

/// Those of a group.
pub(super) struct GroupRanges {
    /// What scans read.
    pub(super) read: RangesOf,
    /// The same with those of parameters, if there are any.
    expected: Option<RangesOf>,
}

impl GroupRanges {
    /// What rows are estimated by.
    pub(super) fn expected(&self) -> &RangesOf {
        self.expected.as_ref().unwrap_or(&self.read)
    }
}

/// The ranges for the position behind the prefix of an access.
pub(super) fn applied<'a>(
    pattern: &QuadPattern,
    access: Access,
    ranges: &'a RangesOf,
) -> Option<(Variable, &'a [IdRange])> {
    let Some(PatternTerm::Variable(variable)) = term_at(pattern, access.next_position()?) else {
        return None;
    };
    Some((variable, ranges.get(&variable)?))
}

impl Lowering<'_> {
    pub(super) fn ranges_of_parts(&self, parts: &[Part]) -> GroupRanges {
        let mut ranges = GroupRanges {
            read: RangesOf::default(),
            expected: None,
        };
        if self.without.has(Rewrites::ID_RANGES) {
            return ranges;
        }
        ranges.read = ranges_of_conditions(parts, |condition| !condition.is_expected);
        let mut conditions = parts.iter().flat_map(|part| &part.conditions);
        if conditions.any(|condition| condition.is_expected) {
            let mut expected = ranges_of_conditions(parts, |_| true);
            // Of other values there may be some.
            expected.retain(|_, ranges| !ranges.is_empty());
            ranges.expected = Some(expected);
        }
        ranges
    }
}

fn ranges_of_conditions(parts: &[Part], is: impl Fn(&PartCondition) -> bool) -> RangesOf {
    let mut all = RangesOf::default();
    for part in parts {
        let conditions = part.conditions.iter().filter(|condition| is(condition));
        for ranges in conditions.filter_map(|condition| condition.ranges.as_ref()) {
            if !part.certain.contains(ranges.variable) {
                continue;
            }
            all.entry(ranges.variable)
                .and_modify(|known| *known = intersect(known, &ranges.ranges))
                .or_insert_with(|| ranges.ranges.clone());
        }
    }
    all
}

/// The parts of a group that may bind each variable, by their numbers, ascending.
pub(super) struct Binders {
    parts: HashMap<Variable, Vec<usize>, RandomState>,
}

impl Binders {
    pub(super) fn new(parts: &[Part]) -> Self {
        let mut all: HashMap<Variable, Vec<usize>, RandomState> = HashMap::default();
        for (number, part) in parts.iter().enumerate() {
            for variable in part.possible.iter() {
                all.entry(variable).or_default().push(number);
            }
        }
        Self { parts: all }
    }

    /// Those of one variable.
    pub(super) fn of(&self, variable: Variable) -> &[usize] {
        self.parts.get(&variable).map_or(&[], Vec::as_slice)
    }
}

/// Gives conditions that one part alone decides to that part. Returns those over several parts, and
/// those to be applied last.
pub(super) fn distribute(
    conditions: Vec<Expression>,
    parts: &mut [Part],
    cache: &Cache<'_>,
) -> Result<(Vec<Expression>, Vec<Expression>), Error> {
    let mut over = Vec::new();
    let mut last = Vec::new();
    if conditions.is_empty() {
        return Ok((over, last));
    }
    let binders = Binders::new(parts);
    for condition in conditions {
        let all: VariableSet = expression_variables(&condition);
        // A part that cannot bind a variable which others bind does not decide it.
        let fewest = all
            .iter()
            .map(|variable| binders.of(variable))
            .filter(|numbers| !numbers.is_empty())
            .min_by_key(|numbers| numbers.len());
        let Some(candidates) = fewest.filter(|_| !is_volatile(&condition)) else {
            last.push(condition);
            continue;
        };
        let alone = candidates.iter().copied().find(|&number| {
            parts.get(number).is_some_and(|part| {
                all.iter().all(|variable| {
                    part.certain.contains(variable)
                        || binders.of(variable).iter().all(|&other| other == number)
                })
            })
        });
        match alone.and_then(|number| parts.get_mut(number)) {
            Some(part) => {
                let is_pattern = matches!(part.source, PartSource::Pattern(_));
                let condition = PartCondition::new(condition, is_pattern, cache)?;
                part.conditions.push(condition);
            }
            None => over.push(condition),
        }
    }
    Ok((over, last))
}

/// For each variable of a condition the parts that bind it for certain, and that may bind it, of at
/// most 64 parts.
pub(super) fn masks(condition: &Expression, parts: &[Part]) -> Vec<(u64, u64)> {
    expression_variables(condition)
        .iter()
        .map(|variable| {
            let of = |set: fn(&Part) -> &VariableSet| {
                parts
                    .iter()
                    .enumerate()
                    .filter(|(_, part)| set(part).contains(variable))
                    .fold(0_u64, |mask, (number, _)| mask | 1 << number)
            };
            (of(|part| &part.certain), of(|part| &part.possible))
        })
        .collect()
}
