//! Planning of a whole query: its form, and the plan of its WHERE part.

use hashbrown::HashMap;
use oxrdf::{NamedNode, Term};
use rapidhash::fast::RandomState;
use spargebra::Query;
use spargebra::algebra::{Expression, GraphPattern};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern as Source};

use crate::cardinality::Cache;
use crate::error::Error;
use crate::expression::Constant;
use crate::logical::{Builder, Node, Op, imply_joins, join_equal, narrow_graphs, translate};
use crate::lowering::common_subplan::{self, CommonSubplans};
use crate::lowering::{Lowering, Planned, count_partners, take_unused, without_repeats};
use crate::nesting::{check_algebra, pattern_of};
use crate::physical::{
    Operator, Plan, QueryForm, QueryPlan, TemplateTerm, TriplePattern, Variable,
};
use crate::statistics::Statistics;
use crate::variable_set::VariableSet;
use crate::{PlannerOptions, Reading, Rewrites};

/// Plans a query for one snapshot.
///
/// # Errors
/// [`Error::Unsupported`] for a part of SPARQL that is missing yet, [`Error::TooDeep`] for a query
/// nested deeper than [`NESTING_MAX`](crate::NESTING_MAX), [`Error::TooLarge`] for one of more than
/// [`ELEMENTS_MAX`](crate::ELEMENTS_MAX) elements, [`Error::Stopped`] if `options` say so,
/// [`Error::Statistics`] if the store fails.
pub fn plan(
    query: &Query,
    options: &PlannerOptions,
    statistics: &dyn Statistics,
) -> Result<QueryPlan, Error> {
    check_algebra(query)?;
    let cache = Cache::new(statistics, options.stop.as_ref());
    let mut logical = translate(query, options, &cache)?;
    let mut root = logical.root;
    let form = match query {
        Query::Select { .. } => QueryForm::Select(logical.selected.clone()),
        Query::Ask { .. } => {
            root = unordered(root);
            QueryForm::Ask
        }
        Query::Construct { template, .. } => QueryForm::Construct(self::template(
            template,
            &mut logical.scope,
            &mut logical.names,
        )?),
        Query::Describe { .. } => {
            let described = described(pattern_of(query));
            let mut constants = Vec::with_capacity(described.len());
            let mut variables = logical.selected.clone();
            for (name, iri) in described {
                variables.retain(|variable| logical.scope.get(name) != Some(variable));
                let term = Term::from(iri.clone());
                let id = cache.term_id(&term)?;
                constants.push(Constant { term, id });
            }
            if variables.is_empty() {
                root = Node::unit();
            }
            QueryForm::Describe {
                variables,
                constants,
            }
        }
    };
    if options.optimize {
        rewrite(&mut root, options, &cache)?;
    }
    let mut lowering = Lowering::new(&cache, options, logical.names);
    if matches!(form, QueryForm::Ask) {
        lowering.want_some(1);
    }
    let planned = lowering.lower(root)?;
    let mut names = lowering.names;
    let mut root = finish(planned, &form);
    let forced = options.forced.common_subplans;
    // Before columns are taken out, of which each place may need others.
    let common = match options.optimize || forced == Some(true) {
        true => common_subplan::take_out(&mut root, forced),
        false => CommonSubplans::default(),
    };
    take_unused(&mut root, &wanted(&form), options);
    without_repeats(&mut root, &form, &cache, options)?;
    common.put_back(&mut root, options);
    count_partners(&mut root, &mut names, &cache, options)?;
    let readings = cache.into_readings().into_iter();
    let readings = readings
        .map(|((permutation, prefix, graphs), reading)| (permutation, prefix, graphs, reading));
    Ok(QueryPlan {
        form,
        root,
        variable_names: names,
        default_graphs: logical.dataset.default,
        readings: readings
            .filter(|(permutation, .., reading)| *reading != Reading::Stored(permutation.name()))
            .collect(),
        base_iri: query.base_iri().map(|base| base.as_str().to_owned()),
    })
}

/// Rewrites that look at the whole plan.
fn rewrite(root: &mut Node, options: &PlannerOptions, cache: &Cache<'_>) -> Result<(), Error> {
    let build = Builder {
        without: options.without,
        ..Builder::plain(true)
    };
    if options.takes(Rewrites::IMPLIED_JOINS) {
        imply_joins(build, root);
    }
    if options.takes(Rewrites::EQUAL_JOINS) {
        join_equal(build, root);
    }
    match options.takes(Rewrites::GRAPH_NARROWING) {
        true => narrow_graphs(root, cache),
        false => Ok(()),
    }
}

/// The variables that the form of a query looks at.
fn wanted(form: &QueryForm) -> VariableSet {
    match form {
        QueryForm::Select(variables) | QueryForm::Describe { variables, .. } => {
            variables.iter().copied().collect()
        }
        QueryForm::Ask => VariableSet::new(),
        QueryForm::Construct(template) => {
            let mut variables = VariableSet::new();
            let mut stack: Vec<&TriplePattern> = template.iter().collect();
            while let Some(triple) = stack.pop() {
                for term in &triple.terms {
                    match term {
                        TemplateTerm::Variable(variable) => variables.insert(*variable),
                        TemplateTerm::Triple(inner) => stack.push(inner),
                        TemplateTerm::Constant(_) | TemplateTerm::BlankNode(_) => {}
                    }
                }
            }
            variables
        }
    }
}

/// Brings the columns of the root into the order that the form of the query wants.
fn finish(planned: Planned, form: &QueryForm) -> Plan {
    let mut plan = planned.plan;
    match form {
        QueryForm::Select(variables) if plan.columns != *variables => {
            if plan.operator == Operator::Empty {
                plan.columns.clone_from(variables);
                return plan;
            }
            let estimated_rows = plan.estimated_rows;
            Plan {
                operator: Operator::Project(Box::new(plan)),
                columns: variables.clone(),
                sorted_by: Vec::new(),
                estimated_rows,
            }
        }
        QueryForm::Ask => {
            let estimated_rows = plan.estimated_rows.min(1.0);
            Plan {
                columns: plan.columns.clone(),
                sorted_by: Vec::new(),
                estimated_rows,
                operator: Operator::Slice {
                    input: Box::new(plan),
                    by: Vec::new(),
                    offset: 0,
                    limit: Some(1),
                },
            }
        }
        _ => plan,
    }
}

/// Takes off what does not matter for ASK: order, projection, removal of duplicates.
fn unordered(node: Node) -> Node {
    let mut node = node;
    loop {
        node = match node.op {
            Op::Distinct(input)
            | Op::Reduced(input)
            | Op::Sort { input, .. }
            | Op::Project { input, .. } => *input,
            _ => return node,
        };
    }
}

/// The IRIs that DESCRIBE names, with the variables that the parser binds them to.
fn described(pattern: &GraphPattern) -> Vec<(&str, &NamedNode)> {
    let mut found = Vec::new();
    let mut rest = pattern;
    loop {
        rest = match rest {
            GraphPattern::Slice { inner, .. }
            | GraphPattern::Distinct { inner }
            | GraphPattern::Reduced { inner }
            | GraphPattern::Project { inner, .. }
            | GraphPattern::OrderBy { inner, .. } => inner,
            GraphPattern::Extend {
                inner,
                variable,
                expression: Expression::NamedNode(iri),
            } if is_made_up(variable.as_str()) => {
                found.push((variable.as_str(), iri));
                inner
            }
            _ => break,
        };
    }
    found.reverse();
    found
}

/// Whether the parser made the name of a variable up: 128 random bits in hexadecimal.
#[must_use]
pub fn is_made_up(name: &str) -> bool {
    name.len() > 24
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The template of CONSTRUCT.
fn template(
    sources: &[Source],
    scope: &mut HashMap<String, Variable, RandomState>,
    names: &mut Vec<String>,
) -> Result<Vec<TriplePattern>, Error> {
    let mut builder = Template {
        scope,
        names,
        blank_nodes: HashMap::default(),
    };
    sources
        .iter()
        .map(|source| builder.triple(source))
        .collect()
}

struct Template<'a> {
    scope: &'a mut HashMap<String, Variable, RandomState>,
    names: &'a mut Vec<String>,
    blank_nodes: HashMap<&'a str, u32, RandomState>,
}

impl<'a> Template<'a> {
    fn triple(&mut self, source: &'a Source) -> Result<TriplePattern, Error> {
        let predicate = match &source.predicate {
            NamedNodePattern::NamedNode(iri) => TemplateTerm::Constant(iri.clone().into()),
            NamedNodePattern::Variable(variable) => self.variable(variable.as_str()),
        };
        Ok(TriplePattern {
            terms: [
                self.term(&source.subject)?,
                predicate,
                self.term(&source.object)?,
            ],
        })
    }

    fn term(&mut self, term: &'a TermPattern) -> Result<TemplateTerm, Error> {
        Ok(match term {
            TermPattern::NamedNode(iri) => TemplateTerm::Constant(iri.clone().into()),
            TermPattern::Literal(literal) => TemplateTerm::Constant(literal.clone().into()),
            TermPattern::Variable(variable) => self.variable(variable.as_str()),
            TermPattern::BlankNode(node) => {
                let next = u32::try_from(self.blank_nodes.len()).unwrap_or(u32::MAX);
                let number = *self.blank_nodes.entry(node.as_str()).or_insert(next);
                TemplateTerm::BlankNode(number)
            }
            TermPattern::Triple(triple) => TemplateTerm::Triple(Box::new(self.triple(triple)?)),
        })
    }

    fn variable(&mut self, name: &str) -> TemplateTerm {
        if let Some(&variable) = self.scope.get(name) {
            return TemplateTerm::Variable(variable);
        }
        let variable = Variable(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.to_owned());
        self.scope.insert(name.to_owned(), variable);
        TemplateTerm::Variable(variable)
    }
}
