//! Property paths with one, both and no end.

use super::{Builder, Expect, Text, extreme, reason};
use crate::run::operators::profile::TYPE;

const SUBCLASS: &str = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>";

impl Builder<'_> {
    pub(super) fn paths(&mut self) -> anyhow::Result<()> {
        let (step, whole) = match self.step() {
            Some((step, whole)) => (Ok(step), whole),
            None => (Err(reason("chain of predicates to nodes")), None),
        };
        let (mut first, mut last) = (step.clone(), step.clone());
        if let Ok(step) = &step {
            // The ends of the shortest path there is, so that both are on it.
            let ends = self.ends(step)?;
            first = ends.clone().map(|it| it.0);
            last = ends.map(|it| it.1);
        }
        let of = |text: &dyn Fn(&str, &str, &str) -> String| {
            let step = step.clone()?;
            Ok(text(&step, &first.clone()?, &last.clone()?))
        };
        let texts: [(&str, Result<String, String>); 7] = [
            (
                "plus-from",
                of(&|step, first, _| format!("{first} {step}+ ?x")),
            ),
            ("plus-to", of(&|step, _, last| format!("?x {step}+ {last}"))),
            (
                "star-from",
                of(&|step, first, _| format!("{first} {step}* ?x")),
            ),
            (
                "plus-inverse",
                of(&|step, _, last| format!("{last} (^{step})+ ?x")),
            ),
            (
                "optional-step",
                of(&|step, first, _| format!("{first} {step}? ?x")),
            ),
            (
                "sequence-2",
                of(&|step, first, _| format!("{first} {step}/{step}? ?x")),
            ),
            (
                "plus-then-join",
                of(&|step, first, _| format!("{first} {step}+ ?x . ?x ?p ?o")),
            ),
        ];
        let both = of(&|step, first, last| format!("ASK {{ {first} {step}+ {last} }}"));
        self.add("path/plus-both-ends", both, Expect::Some);
        for (name, text) in texts {
            self.maybe_join(name, text);
        }
        let small = whole.ok_or_else(|| {
            reason("chain of predicates with at most 200000 triples, for a path without ends")
        });
        self.counted(
            "path/plus-no-end",
            small.clone().map(|step| format!("?x {step}+ ?y")),
        );
        self.counted(
            "path/star-no-end",
            small.map(|step| format!("{{ SELECT DISTINCT ?x {{ ?x {step} ?z }} }} ?x {step}* ?y")),
        );
        self.other_paths()
    }

    fn other_paths(&mut self) -> anyhow::Result<()> {
        let classes = self.classes()?;
        self.counted("path/class-tree", classes);
        let hub = self.hub();
        let alternative = self.hub().map(|(p, o)| format!("?s ({p}|^{p}) {o}"));
        self.counted("path/alternative-inverse", alternative);
        self.counted(
            "path/inverse-sequence",
            self.leaf().map(|(p, o)| format!("{o} ^{p}/{p} ?x")),
        );
        self.maybe(
            "path/negated",
            self.subject().map(|s| format!("{s} !(<{TYPE}>) ?o")),
        );
        self.maybe(
            "path/negated-to",
            hub.map(|(p, o)| format!("?s !({p}) {o}")),
        );
        Ok(())
    }

    /// Paths from a node on the path have solutions; what they are joined with may have none.
    fn maybe_join(&mut self, name: &str, text: Result<String, String>) {
        let name = format!("path/{name}");
        if name.ends_with("join") {
            self.maybe(&name, text);
        } else {
            self.counted(&name, text);
        }
    }

    /// A step that can follow itself, with parentheses where it is of two predicates; and one that is small enough for
    /// paths without ends.
    fn step(&self) -> Option<(String, Option<String>)> {
        let chains = &self.profile.chains;
        let links = |iri: &str| self.profile.predicate(iri).filter(|it| it.links());
        let mut steps: Vec<(u64, String)> = Vec::new();
        for (one, other) in chains {
            let (Some(left), Some(right)) = (links(one), links(other)) else {
                continue;
            };
            steps.push(if one == other {
                (left.count, one.clone())
            } else {
                // A predicate that follows itself comes before two that follow each other.
                (left.count + right.count, format!("({one}|{other})"))
            });
        }
        let alone = steps.iter().filter(|(_, step)| !step.starts_with('('));
        let largest = alone.max().or_else(|| steps.iter().min())?;
        let small = steps.iter().filter(|(count, _)| *count <= 200_000);
        let small = small.max_by_key(|(count, step)| (!step.starts_with('('), *count, step));
        Some((largest.1.clone(), small.map(|it| it.1.clone())))
    }

    /// Two nodes that the step, taken twice, leads from and to.
    fn ends(&self, step: &str) -> anyhow::Result<Result<(String, String), String>> {
        let query = format!(
            "SELECT ?a ?c {{ ?a {step} ?b . ?b {step} ?c FILTER(isIRI(?a) && isIRI(?c)) }} ORDER BY ?a ?c LIMIT 1"
        );
        Ok(match self.asker.first(&query)?.as_deref() {
            Some([first, last]) => Ok((first.clone(), last.clone())),
            _ => Err(reason("path between two IRIs")),
        })
    }

    /// Instances of a class and of those below it.
    fn classes(&self) -> Text {
        if self.profile.classes.is_empty() || !self.asker.any(&format!("?a {SUBCLASS} ?b"))? {
            return Ok(Err(reason("tree of classes")));
        }
        let root = extreme(self.asker, SUBCLASS, "?o", "DESC(?n)")?;
        let Some(root) = root else {
            return Ok(Err(reason("class with an IRI")));
        };
        let text = format!("?s <{TYPE}>/{SUBCLASS}* {root}");
        Ok(if self.asker.any(&text)? {
            Ok(text)
        } else {
            Err(reason("instance of the class with most subclasses"))
        })
    }
}
