//! The canonical form of a large dataset: two datasets are isomorphic if theirs are equal.
//!
//! Quads without blank nodes are compared as a set of lines. The others fall into components that
//! share no blank node; each is canonicalised by itself, and the components are compared as a
//! multiset. That is exact, since an isomorphism maps components to components, and it is fast where
//! canonicalising the whole is not: the cost lies in telling alike blank nodes apart.

use hashbrown::HashMap;
use oxrdf::dataset::CanonicalizationAlgorithm;
use oxrdf::{BlankNode, Dataset, GraphName, NamedOrBlankNode, Quad, Term, Triple};

/// A dataset without the labels of its blank nodes.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Canonical {
    /// Quads without blank nodes, sorted, each once.
    plain: Vec<String>,
    /// Sorted quads of each component, sorted.
    components: Vec<Vec<String>>,
    /// How many quads the components hold.
    blank_quads: usize,
}

impl Canonical {
    /// How many quads there are.
    #[must_use]
    pub fn quads(&self) -> usize {
        self.plain.len() + self.blank_quads
    }

    /// How many components of blank nodes there are.
    #[must_use]
    pub fn components(&self) -> usize {
        self.components.len()
    }

    /// The first difference to another dataset, in words; `None` if they are isomorphic.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        first_difference(&self.plain, &other.plain)
            .or_else(|| first_difference(&self.components, &other.components))
    }
}

fn first_difference<T: std::fmt::Debug + PartialEq>(left: &[T], right: &[T]) -> Option<String> {
    if left == right {
        return None;
    }
    let at = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    Some(format!(
        "{} and {} entries; at {at}: {:?} and {:?}",
        left.len(),
        right.len(),
        left.get(at),
        right.get(at)
    ))
}

/// The canonical form of quads, which may repeat themselves.
#[must_use]
pub fn canonical(quads: Vec<Quad>) -> Canonical {
    let roots = components(&quads);
    let mut plain = Vec::new();
    let mut groups: HashMap<usize, Dataset> = HashMap::new();
    for (quad, root) in quads.into_iter().zip(roots) {
        match root {
            None => plain.push(quad.to_string()),
            Some(root) => {
                groups.entry(root).or_default().insert(&quad);
            }
        }
    }
    plain.sort_unstable();
    plain.dedup();
    let mut blank_quads = 0;
    let mut components: Vec<Vec<String>> = groups
        .into_values()
        .map(|mut group| {
            group.canonicalize(CanonicalizationAlgorithm::Unstable);
            let mut lines: Vec<String> = group.iter().map(|quad| quad.to_string()).collect();
            lines.sort_unstable();
            blank_quads += lines.len();
            lines
        })
        .collect();
    components.sort_unstable();
    Canonical {
        plain,
        components,
        blank_quads,
    }
}

/// For each quad the number of its component of blank nodes, if it has any blank node.
#[must_use]
pub fn components(quads: &[Quad]) -> Vec<Option<usize>> {
    let mut numbers: HashMap<BlankNode, usize> = HashMap::new();
    let mut parents: Vec<usize> = Vec::new();
    let firsts: Vec<Option<usize>> = quads
        .iter()
        .map(|quad| {
            let mut first = None;
            each_blank(quad, &mut |blank| {
                let number = match numbers.get(blank) {
                    Some(number) => *number,
                    None => {
                        numbers.insert(blank.clone(), parents.len());
                        parents.push(parents.len());
                        parents.len() - 1
                    }
                };
                let first = *first.get_or_insert(number);
                let (a, b) = (root(&mut parents, first), root(&mut parents, number));
                parents[a.max(b)] = a.min(b);
            });
            first
        })
        .collect();
    firsts
        .into_iter()
        .map(|first| first.map(|number| root(&mut parents, number)))
        .collect()
}

fn root(parents: &mut [usize], mut at: usize) -> usize {
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

fn each_blank(quad: &Quad, found: &mut dyn FnMut(&BlankNode)) {
    if let GraphName::BlankNode(blank) = &quad.graph_name {
        found(blank);
    }
    each_blank_of(&quad.subject, &quad.object, found);
}

fn each_blank_of(subject: &NamedOrBlankNode, object: &Term, found: &mut dyn FnMut(&BlankNode)) {
    if let NamedOrBlankNode::BlankNode(blank) = subject {
        found(blank);
    }
    match object {
        Term::BlankNode(blank) => found(blank),
        Term::Triple(triple) => {
            let Triple {
                subject, object, ..
            } = &**triple;
            each_blank_of(subject, object, found);
        }
        Term::NamedNode(_) | Term::Literal(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use oxrdfio::{RdfFormat, RdfParser};

    use super::*;

    fn of(text: &str) -> Canonical {
        let parser = RdfParser::from_format(RdfFormat::NQuads);
        canonical(
            parser
                .for_slice(text.as_bytes())
                .map(Result::unwrap)
                .collect(),
        )
    }

    #[test]
    fn labels_and_order_do_not_count_but_links_do() {
        let p = "<http://a/p>";
        let one = of(&format!(
            "_:a {p} _:b .\n_:b {p} \"x\" .\n_:c {p} \"y\" .\n<http://a/s> {p} \"z\" .\n"
        ));
        assert_eq!((one.quads(), one.components()), (4, 2));
        let same = format!(
            "_:z {p} \"y\" .\n<http://a/s> {p} \"z\" .\n_:c {p} \"x\" .\n_:d {p} _:c .\n_:d {p} _:c .\n"
        );
        assert_eq!(one.difference(&of(&same)), None);
        for (from, to) in [
            // The link leads to the other node; a node more; a quad less; another value.
            ("_:d", "_:z"),
            ("_:z", "_:d"),
            (
                "_:z <http://a/p> \"y\" .\n",
                "_:z <http://a/p> \"y\" .\n_:y <http://a/p> \"y\" .\n",
            ),
            ("<http://a/s> <http://a/p> \"z\" .\n", ""),
            ("\"x\"", "\"w\""),
        ] {
            assert!(same.contains(from));
            let other = of(&same.replace(from, to));
            assert!(one.difference(&other).is_some(), "{from} -> {to}");
        }
    }

    #[test]
    fn blank_nodes_in_graphs_and_triple_terms_join_components() {
        let text = "_:a <http://a/p> <<( <http://a/s> <http://a/p> _:b )>> .\n\
                    <http://a/s> <http://a/p> \"x\" _:b .\n\
                    <http://a/s> <http://a/p> _:c .\n";
        assert_eq!(of(text).components(), 2);
        let moved = text.replace("\"x\" _:b", "\"x\" _:c");
        assert!(of(text).difference(&of(&moved)).is_some());
    }
}
