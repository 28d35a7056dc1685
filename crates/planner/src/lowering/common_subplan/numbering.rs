//! Classes of equal subplans: value numbering, as compilers do it for common subexpressions.
//!
//! Subplans are numbered from the leaves to the root. What a subplan does is known from its first operator, the classes
//! of its inputs, and which of their columns it uses for what; names of variables are nothing to others. So two are of
//! one class if their first operators are the same once all variables are named in the order in which the columns of
//! the inputs have them, and their inputs are of the same classes. Each operator is compared once with what has the
//! same hash, so that the time is that of a walk over the plan.
//!
//! Of a class of its own is what must be run for each place: calls of RAND, UUID and the like, SERVICE, and all above.
//! Outer bindings are known by their place among those of the apply around them.
//!
//! # References
//! Cocke, Schwartz: Programming Languages and Their Compilers, 1970; value numbering.

use std::cmp::Reverse;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{HashMap, HashSet};
use rapidhash::fast::RandomState;

use crate::lowering::prune::unit;
use crate::physical::{Operator, PatternTerm, Plan, Variable};
use crate::variables::for_each_variable;
use crate::volatile::has_volatile;

/// VALUES with more rows are not compared.
const VALUES_MAX: usize = 64;

/// Whether a plan may have equal subplans that are `wanted`: two of the same operators over the same predicates and other
/// constants. To know that takes a hundredth of numbering them.
pub(super) fn may_repeat(root: &Plan, wanted: impl Fn(&Plan) -> bool) -> bool {
    let hasher = RandomState::default();
    let mut known = HashSet::with_hasher(hasher);
    // Those whose inputs are known come after these.
    let mut order = Vec::new();
    let mut open = vec![root];
    while let Some(plan) = open.pop() {
        order.push(plan);
        open.extend(plan.inputs());
    }
    let mut hashes: Vec<u64> = Vec::new();
    for plan in order.into_iter().rev() {
        let inputs = hashes.len() - plan.inputs().len().min(hashes.len());
        let mut hash = hasher.build_hasher();
        std::mem::discriminant(&plan.operator).hash(&mut hash);
        plan.columns.len().hash(&mut hash);
        if let Operator::IndexScan { pattern, .. }
        | Operator::IndexNestedLoopJoin { pattern, .. }
        | Operator::IndexGroups { pattern, .. } = &plan.operator
        {
            for term in &pattern.triple {
                if let PatternTerm::Constant(id) = term {
                    id.to_bits().hash(&mut hash);
                }
            }
        }
        hashes
            .drain(inputs..)
            .for_each(|input| input.hash(&mut hash));
        let hash = hash.finish();
        if wanted(plan) && !known.insert(hash) {
            return true;
        }
        hashes.push(hash);
    }
    false
}

/// The subplans of a plan, numbered as a walk over it meets them, each before its inputs.
pub(super) struct Numbered(Vec<Entry>);

struct Entry {
    class: usize,
    /// The number behind the last operator of the subplan.
    end: usize,
    /// Whether it is in the inner plan of an apply, or of a parameterized join.
    is_inner: bool,
}

impl Numbered {
    pub(super) fn new(root: &mut Plan) -> Self {
        let mut numbering = Numbering {
            entries: Vec::new(),
            known: HashMap::default(),
            hasher: RandomState::default(),
            classes: 0,
        };
        numbering.number(root, None);
        Self(numbering.entries)
    }

    /// How many operators there are.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The number behind the last operator of a subplan.
    pub(super) fn end(&self, number: usize) -> usize {
        self.0.get(number).map_or(number + 1, |entry| entry.end)
    }

    /// The places of each class that has several, the largest subplans first.
    pub(super) fn repeated(&self) -> Vec<Vec<usize>> {
        let classes = self.0.iter().map(|entry| entry.class + 1).max();
        let mut places = vec![Vec::new(); classes.unwrap_or(0)];
        for (number, entry) in self.0.iter().enumerate() {
            if !entry.is_inner
                && let Some(places) = places.get_mut(entry.class)
            {
                places.push(number);
            }
        }
        places.retain(|places| places.len() > 1);
        let size = |places: &Vec<usize>| places.first().map_or(0, |place| self.end(*place) - place);
        places.sort_by_key(|places| Reverse(size(places)));
        places
    }
}

/// What is the same for all subplans of a class.
#[derive(Debug, PartialEq)]
struct Key {
    /// With a unit in the place of each input.
    operator: Operator,
    columns: Vec<Variable>,
    sorted_by: Vec<Variable>,
    /// Class and columns of each input.
    inputs: Vec<(usize, Vec<Variable>)>,
}

struct Numbering {
    entries: Vec<Entry>,
    /// By the hash of the key.
    known: HashMap<u64, Vec<(Key, usize)>, RandomState>,
    hasher: RandomState,
    classes: usize,
}

impl Numbering {
    /// Numbers a subplan and all below it; its class. `outer` are the variables of the apply around it.
    fn number(&mut self, plan: &mut Plan, outer: Option<&[Variable]>) -> usize {
        let number = self.entries.len();
        self.entries.push(Entry {
            class: 0,
            end: 0,
            is_inner: outer.is_some(),
        });
        let handed = match &plan.operator {
            Operator::Apply { outer, .. } => Some(outer.clone()),
            Operator::ParameterizedJoin { .. } => Some(outer.unwrap_or_default().to_vec()),
            _ => None,
        };
        // Without its inputs an operator is soon copied.
        let mut inputs: Vec<Plan> = Vec::new();
        for input in plan.inputs_mut() {
            inputs.push(std::mem::replace(input, unit()));
        }
        let mut classes = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter_mut().enumerate() {
            let outer = match &handed {
                Some(handed) if index == 1 => Some(handed.as_slice()),
                _ => outer,
            };
            classes.push(self.number(input, outer));
        }
        let class = match is_of_its_own(&plan.operator) {
            true => self.fresh(),
            false => {
                let key = key(plan, &inputs, &classes, outer);
                self.class(key)
            }
        };
        for (place, input) in plan.inputs_mut().into_iter().zip(inputs) {
            *place = input;
        }
        let end = self.entries.len();
        if let Some(entry) = self.entries.get_mut(number) {
            entry.class = class;
            entry.end = end;
        }
        class
    }

    fn fresh(&mut self) -> usize {
        self.classes += 1;
        self.classes - 1
    }

    fn class(&mut self, key: Key) -> usize {
        let mut hashed = Hashed(self.hasher.build_hasher());
        // Writing to a hasher cannot fail.
        let _ = write!(hashed, "{key:?}");
        let hash = hashed.0.finish();
        let same = self.known.entry(hash).or_default();
        if let Some((_, class)) = same.iter().find(|(other, _)| *other == key) {
            return *class;
        }
        let class = self.classes;
        same.push((key, class));
        self.classes += 1;
        class
    }
}

/// What is printed is hashed.
struct Hashed<H>(H);

impl<H: Hasher> Write for Hashed<H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The key of a subplan whose inputs were taken away.
fn key(plan: &Plan, inputs: &[Plan], classes: &[usize], outer: Option<&[Variable]>) -> Key {
    let mut names = Names(HashMap::default());
    if let (Operator::OuterBindings, Some(outer)) = (&plan.operator, outer) {
        names.of(outer);
    }
    let inputs = classes.iter().zip(inputs);
    let inputs = inputs.map(|(class, input)| (*class, names.of(&input.columns)));
    let inputs = inputs.collect();
    let mut operator = plan.operator.clone();
    for_each_variable(&mut operator, &mut |variable| {
        *variable = names.name(*variable);
    });
    Key {
        operator,
        columns: names.of(&plan.columns),
        sorted_by: names.of(&plan.sorted_by),
        inputs,
    }
}

/// Names in the order in which variables are met.
struct Names(HashMap<Variable, Variable, RandomState>);

impl Names {
    fn name(&mut self, variable: Variable) -> Variable {
        let next = Variable(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        *self.0.entry(variable).or_insert(next)
    }

    fn of(&mut self, variables: &[Variable]) -> Vec<Variable> {
        variables
            .iter()
            .map(|variable| self.name(*variable))
            .collect()
    }
}

/// Whether an operator may give other solutions when it is run again, or is not compared.
fn is_of_its_own(operator: &Operator) -> bool {
    match operator {
        Operator::Service { .. } => true,
        Operator::Values(rows) => rows.len() > VALUES_MAX,
        _ => has_volatile(operator),
    }
}
