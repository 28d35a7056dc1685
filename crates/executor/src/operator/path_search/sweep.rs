//! All that many starts reach, in one pass over the components of a condensed graph.
//!
//! Each component has a bit for each start. The pass goes from the highest component that a start is in to the lowest,
//! passes over those that none has come to, and hands the bits of each to those that it leads to. When it comes to a
//! component, all that lead to it are done: its bits are final, are put out, and are forgotten.
//!
//! Where pairs of ends are asked for, only the bits at their ends matter, and the pass ends at the lowest one. A pair
//! with its end in a component above its start is no solution; one within a component is one if that leads to itself.
//!
//! # Invariants
//! 1. Between two passes no bit is set (`debug_assert!` in `begin`).
//!
//! # References
//! Then et al.: The More the Merrier: Efficient Multi-Source Graph Traversal (VLDB 2014), with components in
//! topological order instead of levels.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: components and starts are numbered by these very structures"
)]

use super::adjacency_cache::Held;
use super::condensation::Condensation;
use super::items::{Item, bytes_of, item};
use crate::context::QueryContext;
use crate::memory::Memory;

/// Words of 64 starts: as many as a cache line has.
const WORDS_MAX: usize = 8;
/// After how many items a pass is interrupted, and after how many words.
const FOUND_MAX: usize = 16 * 1024;
const WORK_MAX: usize = 64 * 1024;

/// What is found at once takes so much.
const FOUND_BYTES: u64 = (4 * (FOUND_MAX + 64 * WORDS_MAX) * size_of::<Item>()) as u64;

/// What the bits of so many components take, so many words each.
const fn bytes_for(count: usize, words: usize) -> u64 {
    ((count * words + count / 64 + 1) * 8) as u64
}

/// A condensed graph, with the bits of a pass.
pub(super) struct Sweeper {
    graph: Held<Condensation>,
    words: usize,
    /// For each component the starts that have come to it.
    bits: Vec<u64>,
    /// A bit for each component: whether any has.
    active: Vec<u64>,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Memory,
}

/// A pass.
pub(super) struct Sweep {
    /// Components and searches, descending, and how many are done.
    starts: Vec<(u32, u32)>,
    started: usize,
    /// Whether a start counts as an end.
    zero: bool,
    /// What is asked for, if not everything: components of ends and searches, descending.
    wanted: Option<Vec<(u32, u32)>>,
    answered: usize,
    /// Components from this one on are done.
    above: u32,
    /// The component that is being put out, its bits, and how many of its places are out.
    current: Option<(u32, usize)>,
    reached: [u64; WORDS_MAX],
}

/// What is to be searched for, by numbers of nodes; a search is known by its place.
pub(super) struct Asked<'a> {
    pub(super) starts: &'a [u32],
    /// The ends, if they are known.
    pub(super) ends: Option<&'a [u32]>,
    /// Searches that need nothing any more.
    pub(super) closed: &'a [bool],
    /// Whether a start is an end without any step.
    pub(super) zero: bool,
}

impl Sweeper {
    /// Of a condensed graph; `None` if there is no room for its bits.
    pub(super) fn new(
        graph: Held<Condensation>,
        most_bytes: u64,
        mut memory: Memory,
        context: &QueryContext,
    ) -> Option<Self> {
        let count = graph.count() as usize;
        let mut words = WORDS_MAX;
        while bytes_for(count, words) > most_bytes
            || !context.has_room(&mut memory, bytes_for(count, words) + FOUND_BYTES)
        {
            words /= 2;
            if words == 0 {
                return None;
            }
        }
        Some(Self::with(graph, words, memory))
    }

    fn with(graph: Held<Condensation>, words: usize, memory: Memory) -> Self {
        let count = graph.count() as usize;
        Self {
            words,
            bits: vec![0; count * words],
            active: vec![0; count / 64 + 1],
            graph,
            memory,
        }
    }

    /// Another one of the same graph that does as many searches; `None` if there is no room for its bits.
    pub(super) fn another(&self, mut memory: Memory, context: &QueryContext) -> Option<Self> {
        let bytes = bytes_for(self.graph.count() as usize, self.words);
        let has_room = context.has_room(&mut memory, bytes + FOUND_BYTES);
        has_room.then(|| Self::with(self.graph.another(), self.words, memory))
    }

    /// Puts the same graph in the place of its own, and gives that.
    pub(super) fn replace(&mut self, graph: Held<Condensation>) -> Held<Condensation> {
        std::mem::replace(&mut self.graph, graph)
    }

    /// The graph.
    pub(super) fn graph(&self) -> &Held<Condensation> {
        &self.graph
    }

    pub(super) const fn graph_mut(&mut self) -> &mut Held<Condensation> {
        &mut self.graph
    }

    /// How many searches one pass does.
    pub(super) const fn together(&self) -> usize {
        64 * self.words
    }

    /// What it takes beside a graph that was kept.
    pub(super) fn bytes(&self) -> u64 {
        let own = if self.graph.is_own() {
            self.graph.bytes()
        } else {
            0
        };
        own + bytes_of(&self.bits) + bytes_of(&self.active)
    }

    /// Begins a pass for at most [`together`](Self::together) searches; what is known without one goes to `found`, as the
    /// node where the search ends.
    pub(super) fn begin(&mut self, asked: &Asked<'_>, found: &mut Vec<Item>) -> Sweep {
        debug_assert!(self.active.iter().all(|word| *word == 0), "a bit is left");
        let mut starts = Vec::new();
        let mut wanted = asked.ends.map(|_| Vec::new());
        for (tag, node) in asked.starts.iter().enumerate() {
            if asked.closed[tag] {
                continue;
            }
            let own = self.graph.of_start(*node);
            match (&mut wanted, asked.ends) {
                (Some(wanted), Some(ends)) => {
                    let end = self.graph.of_end(ends[tag]);
                    let (Some(own), Some(end)) = (own, end) else {
                        continue;
                    };
                    if own == end && self.graph.is_cyclic(own) {
                        found.push(item(ends[tag], tag as u32));
                    } else if end < own {
                        starts.push((own, tag as u32));
                        wanted.push((end, tag as u32));
                    }
                }
                _ => match own {
                    Some(own) => starts.push((own, tag as u32)),
                    None if asked.zero => found.push(item(*node, tag as u32)),
                    None => {}
                },
            }
        }
        starts.sort_unstable_by(|left, right| right.cmp(left));
        if let Some(wanted) = &mut wanted {
            wanted.sort_unstable_by(|left, right| right.cmp(left));
        }
        for (component, _) in &starts {
            mark(&mut self.active, *component);
        }
        Sweep {
            starts,
            started: 0,
            zero: asked.zero,
            wanted,
            answered: 0,
            above: self.graph.count(),
            current: None,
            reached: [0; WORDS_MAX],
        }
    }

    /// Goes on for a while; whether the pass is over. `ends` are those of the searches, if they are known.
    pub(super) fn advance(
        &mut self,
        sweep: &mut Sweep,
        ends: &[u32],
        found: &mut Vec<Item>,
    ) -> bool {
        let mut work = 0;
        while work < WORK_MAX && found.len() < FOUND_MAX {
            if sweep.current.is_some() {
                work += self.put(sweep, found);
                continue;
            }
            let Some(component) = self.next(sweep) else {
                return true;
            };
            work += self.take(sweep, component);
            match &sweep.wanted {
                None => sweep.current = Some((component, 0)),
                Some(wanted) => {
                    while let Some((end, tag)) = wanted.get(sweep.answered)
                        && *end >= component
                    {
                        let reached = sweep.reached[*tag as usize / 64] & 1 << (tag % 64) != 0;
                        if *end == component && reached {
                            found.push(item(ends[*tag as usize], *tag));
                        }
                        sweep.answered += 1;
                    }
                    if sweep.answered == wanted.len() {
                        self.clear();
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The next component that a start has come to.
    fn next(&self, sweep: &Sweep) -> Option<u32> {
        let above = sweep.above as usize;
        let below = (1_u64 << (above % 64)) - 1;
        let mut number = above / 64;
        let mut word = self.active[number] & below;
        while word == 0 {
            number = number.checked_sub(1)?;
            word = self.active[number];
        }
        Some((number * 64) as u32 + word.ilog2())
    }

    /// Takes the bits of a component and hands them on; how much work that was.
    fn take(&mut self, sweep: &mut Sweep, component: u32) -> usize {
        let words = self.words;
        self.active[component as usize / 64] &= !(1 << (component % 64));
        sweep.above = component;
        let own = &mut self.bits[component as usize * words..][..words];
        sweep.reached[..words].copy_from_slice(own);
        own.fill(0);
        let mut bits = sweep.reached;
        while let Some((start, tag)) = sweep.starts.get(sweep.started)
            && *start == component
        {
            bits[*tag as usize / 64] |= 1 << (tag % 64);
            sweep.started += 1;
        }
        if sweep.zero || self.graph.is_cyclic(component) {
            sweep.reached = bits;
        }
        let links = self.graph.links(component);
        for link in links {
            let target = &mut self.bits[*link as usize * words..][..words];
            for (target, bits) in target.iter_mut().zip(&bits) {
                *target |= bits;
            }
            mark(&mut self.active, *link);
        }
        1 + links.len() * words
    }

    /// Puts out some of what has come to the current component; how much work that was.
    fn put(&self, sweep: &mut Sweep, found: &mut Vec<Item>) -> usize {
        let Some((component, done)) = sweep.current else {
            return 0;
        };
        let reached = &sweep.reached[..self.words];
        let mut work = 0;
        let mut place = done;
        if reached.iter().any(|word| *word != 0) {
            let ends = self.graph.ends(component);
            let all = ends.len();
            for end in ends.skip(done) {
                if found.len() >= FOUND_MAX || work >= WORK_MAX {
                    break;
                }
                place += 1;
                work += self.words;
                if let Some(node) = end {
                    put_bits(node, reached, found);
                }
            }
            if place < all {
                sweep.current = Some((component, place));
                return work;
            }
        }
        sweep.current = None;
        work
    }

    /// Forgets all bits.
    fn clear(&mut self) {
        self.bits.fill(0);
        self.active.fill(0);
    }
}

impl Sweep {
    pub(super) fn bytes(&self) -> u64 {
        bytes_of(&self.starts) + self.wanted.as_ref().map_or(0, bytes_of)
    }
}

fn put_bits(node: u32, reached: &[u64], found: &mut Vec<Item>) {
    for (number, word) in reached.iter().enumerate() {
        let mut rest = *word;
        while rest != 0 {
            found.push(item(node, (number * 64) as u32 + rest.trailing_zeros()));
            rest &= rest - 1;
        }
    }
}

fn mark(bits: &mut [u64], number: u32) {
    bits[number as usize / 64] |= 1 << (number % 64);
}
