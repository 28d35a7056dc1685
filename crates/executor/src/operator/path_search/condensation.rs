//! The strongly connected components of a graph along a path, and where each leads.
//!
//! A place is a node with a state of the path's automaton. Places that lead to each other are one component, found
//! depth first; components are numbered so that each leads to smaller ones only. So all that many starts reach is known
//! after one pass over the components from the highest to the lowest (`sweep`), where a search level by level comes to
//! a node once for each distance.
//!
//! # Invariants
//! 1. A component leads to smaller ones only (`debug_assert!` in `link`).
//!
//! # Limits
//! Reserved from the budget before it is made, by an account of its own; it is given up where there is no room.
//!
//! # References
//! Tarjan: Depth-first search and linear graph algorithms (SIAM Journal on Computing 1, 1972). Nuutila: Efficient
//! transitive closure computation in large digraphs (1995).

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "kernels: places and components are numbered by these very structures"
)]

use super::adjacency::Adjacency;
use super::adjacency_cache::Held;
use super::automaton::Automaton;
use super::items::bytes_of;
use crate::memory::Memory;

/// No component, or a place that was not met.
pub(super) const NOWHERE: u32 = u32::MAX;

/// What the condensation is made of: a path's automaton, and the neighbours by each of its edges.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) automaton: &'a Automaton,
    /// The only state in which a path may end.
    pub(super) end: u32,
    pub(super) adjacencies: &'a [&'a Adjacency],
}

/// See the module header.
pub(super) struct Condensation {
    states: u32,
    start: u32,
    end: u32,
    /// The component of each place, [`NOWHERE`] if no start leads there.
    component: Vec<u32>,
    /// For each component where its places begin.
    offsets: Vec<u32>,
    places: Vec<u32>,
    /// For each component where those begin that it leads to.
    link_offsets: Vec<u32>,
    links: Vec<u32>,
    /// A bit for each component: whether its places lead to themselves.
    cyclic: Vec<u64>,
}

/// A condensation that is being made.
pub(super) struct Condensing {
    one: Condensation,
    memory: Memory,
    count: u32,
    /// By place: when it was met, or the smallest such number that it leads back to.
    low: Vec<u32>,
    met: u32,
    next_root: u32,
    /// Places that have no component yet, in the order in which they were met.
    open: Vec<u32>,
    frames: Vec<Frame>,
    links: Option<Linking>,
}

/// What is needed while links are made.
struct Linking {
    /// For each component the last one that was linked with it.
    linked: Vec<u32>,
    /// The place whose neighbours are looked at next, by its number in the order of components.
    next: usize,
}

/// A place whose neighbours are being visited.
struct Frame {
    place: u32,
    index: u32,
    next: Cursor,
}

/// Which neighbour of a place is next.
#[derive(Clone, Copy, Default)]
struct Cursor {
    step: u32,
    neighbour: u32,
}

impl Product<'_> {
    /// How many places and steps between them there may be.
    pub(super) fn size(&self, nodes: usize) -> (u64, u64) {
        let states = self.automaton.states();
        let steps = (0..states as u32).flat_map(|state| self.automaton.steps(state));
        let edges = steps.map(|(edge, _)| self.adjacencies[*edge].edges());
        ((nodes * states) as u64, edges.sum())
    }

    fn next(&self, place: u32, cursor: &mut Cursor) -> Option<u32> {
        let states = self.automaton.states() as u32;
        let (node, state) = (place / states, place % states);
        let steps = self.automaton.steps(state);
        while let Some((edge, to)) = steps.get(cursor.step as usize) {
            let neighbours = self.adjacencies[*edge].of(node);
            if let Some(neighbour) = neighbours.get(cursor.neighbour as usize) {
                cursor.neighbour += 1;
                return Some(neighbour * states + to);
            }
            *cursor = Cursor {
                step: cursor.step + 1,
                neighbour: 0,
            };
        }
        None
    }
}

/// About how many bytes a condensation of so many places and steps takes while it is made, with what a sweep needs
/// at least.
pub(super) const fn bytes_for((places, edges): (u64, u64)) -> u64 {
    const PLACE_BYTES: u64 = 48;
    const EDGE_BYTES: u64 = 8;
    places * PLACE_BYTES + edges * EDGE_BYTES
}

impl Condensing {
    /// Of places made of so many nodes. `memory` holds [`bytes_for`] it.
    pub(super) fn new(product: Product<'_>, nodes: usize, memory: Memory) -> Self {
        let Product { automaton, end, .. } = product;
        let places = nodes * automaton.states();
        let one = Condensation {
            states: automaton.states() as u32,
            start: automaton.start(),
            end,
            component: vec![NOWHERE; places],
            offsets: Vec::new(),
            places: Vec::new(),
            link_offsets: Vec::new(),
            links: Vec::new(),
            cyclic: Vec::new(),
        };
        Self {
            one,
            memory,
            count: 0,
            low: vec![NOWHERE; places],
            met: 0,
            next_root: 0,
            open: Vec::new(),
            frames: Vec::new(),
            links: None,
        }
    }

    /// Goes on for so many steps; the condensation once it is made.
    pub(super) fn advance(&mut self, product: Product<'_>, work: usize) -> bool {
        match &mut self.links {
            None => {
                if self.find(product, work) {
                    (self.low, self.open, self.frames) = Default::default();
                    self.one.gather(self.count);
                    self.links = Some(Linking {
                        linked: vec![NOWHERE; self.count as usize],
                        next: 0,
                    });
                }
                false
            }
            Some(links) => self.one.link(product, links, work),
        }
    }

    /// The condensation.
    pub(super) fn finish(mut self) -> Held<Condensation> {
        self.one.links.shrink_to_fit();
        self.memory.shrink_to(self.one.bytes());
        Held::own(self.one, self.memory)
    }

    /// Finds components; whether all are found.
    fn find(&mut self, product: Product<'_>, work: usize) -> bool {
        for _ in 0..work {
            let Some(frame) = self.frames.last_mut() else {
                let root = self.next_root * self.one.states + self.one.start;
                if root as usize >= self.low.len() {
                    return true;
                }
                self.next_root += 1;
                if self.low[root as usize] == NOWHERE {
                    self.enter(root);
                }
                continue;
            };
            let place = frame.place;
            match product.next(place, &mut frame.next) {
                Some(to) if self.low[to as usize] == NOWHERE => self.enter(to),
                Some(to) => {
                    if to == place {
                        // Known to lead to itself, though it may be alone.
                        mark(&mut self.one.cyclic, place);
                    }
                    if self.one.component[to as usize] == NOWHERE {
                        let low = self.low[to as usize];
                        let own = &mut self.low[place as usize];
                        *own = low.min(*own);
                    }
                }
                None => self.leave(),
            }
        }
        false
    }

    fn enter(&mut self, place: u32) {
        self.low[place as usize] = self.met;
        self.open.push(place);
        self.frames.push(Frame {
            place,
            index: self.met,
            next: Cursor::default(),
        });
        self.met += 1;
    }

    /// All neighbours of the last place were visited.
    fn leave(&mut self) {
        let Some(Frame { place, index, .. }) = self.frames.pop() else {
            return;
        };
        let low = self.low[place as usize];
        if low == index {
            while let Some(member) = self.open.pop() {
                self.one.component[member as usize] = self.count;
                if member == place {
                    break;
                }
            }
            self.count += 1;
        } else if let Some(above) = self.frames.last() {
            let own = &mut self.low[above.place as usize];
            *own = low.min(*own);
        }
    }
}

impl Condensation {
    /// Puts the places of each component together.
    fn gather(&mut self, count: u32) {
        let loops = std::mem::take(&mut self.cyclic);
        let mut offsets = vec![0_u32; count as usize + 1];
        for component in self.component.iter().filter(|own| **own != NOWHERE) {
            offsets[*component as usize + 1] += 1;
        }
        for component in 0..count as usize {
            if offsets[component + 1] > 1 {
                mark(&mut self.cyclic, component as u32);
            }
            offsets[component + 1] += offsets[component];
        }
        let mut places = vec![0_u32; offsets[count as usize] as usize];
        // Each offset ends up where the component ends, which is where the next one begins.
        for (place, component) in self.component.iter().enumerate() {
            if *component != NOWHERE {
                let free = &mut offsets[*component as usize];
                places[*free as usize] = place as u32;
                *free += 1;
                if is_marked(&loops, place as u32) {
                    mark(&mut self.cyclic, *component);
                }
            }
        }
        offsets.rotate_right(1);
        offsets[0] = 0;
        self.offsets = offsets;
        self.places = places;
    }

    /// Links the components of the next places with those that they lead to; whether all are linked.
    fn link(&mut self, product: Product<'_>, links: &mut Linking, work: usize) -> bool {
        let mut done = 0;
        while done < work {
            let Some(place) = self.places.get(links.next) else {
                self.link_offsets.push(self.links.len() as u32);
                return true;
            };
            links.next += 1;
            let component = self.component[*place as usize];
            if self.link_offsets.len() <= component as usize {
                self.link_offsets.push(self.links.len() as u32);
            }
            let mut cursor = Cursor::default();
            while let Some(to) = product.next(*place, &mut cursor) {
                done += 1;
                let to = self.component[to as usize];
                if to != component && links.linked[to as usize] != component {
                    debug_assert!(to < component, "a component leads to a larger one");
                    links.linked[to as usize] = component;
                    self.links.push(to);
                }
            }
            done += 1;
        }
        false
    }

    /// How many places there are, of which none may be met.
    pub(super) const fn places(&self) -> usize {
        self.component.len()
    }

    /// How many components there are.
    pub(super) const fn count(&self) -> u32 {
        self.offsets.len() as u32 - 1
    }

    fn range(&self, component: u32) -> std::ops::Range<usize> {
        let component = component as usize;
        self.offsets[component] as usize..self.offsets[component + 1] as usize
    }

    /// The nodes of a component in which a path may end.
    pub(super) fn ends(&self, component: u32) -> impl ExactSizeIterator<Item = Option<u32>> {
        let (states, end) = (self.states, self.end);
        let places = self.places[self.range(component)].iter();
        places.map(move |place| (place % states == end).then_some(place / states))
    }

    /// The components that one leads to.
    pub(super) fn links(&self, component: u32) -> &[u32] {
        let component = component as usize;
        let offsets = &self.link_offsets;
        &self.links[offsets[component] as usize..offsets[component + 1] as usize]
    }

    /// Whether the places of a component lead to themselves.
    pub(super) fn is_cyclic(&self, component: u32) -> bool {
        is_marked(&self.cyclic, component)
    }

    /// The component in which a path begins at a node; `None` if it leads nowhere.
    pub(super) fn of_start(&self, node: u32) -> Option<u32> {
        self.of(node, self.start)
    }

    /// The component in which a path ends at a node; `None` if none does.
    pub(super) fn of_end(&self, node: u32) -> Option<u32> {
        self.of(node, self.end)
    }

    fn of(&self, node: u32, state: u32) -> Option<u32> {
        let place = node as usize * self.states as usize + state as usize;
        let component = self.component.get(place).copied();
        component.filter(|component| *component != NOWHERE)
    }

    pub(super) fn bytes(&self) -> u64 {
        bytes_of(&self.component)
            + bytes_of(&self.offsets)
            + bytes_of(&self.places)
            + bytes_of(&self.link_offsets)
            + bytes_of(&self.links)
            + bytes_of(&self.cyclic)
    }
}

fn mark(bits: &mut Vec<u64>, number: u32) {
    let word = number as usize / 64;
    if word >= bits.len() {
        bits.resize((word + 1).next_power_of_two(), 0);
    }
    bits[word] |= 1 << (number % 64);
}

fn is_marked(bits: &[u64], number: u32) -> bool {
    let word = bits.get(number as usize / 64);
    word.is_some_and(|word| word & 1 << (number % 64) != 0)
}
