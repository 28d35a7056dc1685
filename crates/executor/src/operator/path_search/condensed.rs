//! When the graph along a path is condensed, and whether it is.
//!
//! # Limits
//! Components take a share of all memory at most, and no memory that others wait for; where that is refused, searches go
//! on level by level.

use super::adjacency::bytes_max;
use super::adjacency_cache::Held;
use super::condensation::{Condensation, Condensing, Product, bytes_for};
use super::edges::Shared;
use super::sweep::Sweeper;
use crate::context::QueryContext;

/// How many places and steps are looked at in one call while components are found.
const CONDENSED_AT_ONCE: usize = 16 * 1024;

/// The graph along the path with its components found, for sweeps.
pub(super) enum Condensed {
    NotYet,
    /// By an earlier query.
    Kept(Held<Condensation>),
    Making(Box<Condensing>),
    Done(Box<Sweeper>),
    /// What sweeps it is with a team.
    Lent(Held<Condensation>),
    Never,
}

impl Condensed {
    /// Goes on for a while, if `walked` triples, of searches that are done or to come, are as many as are looked at to find
    /// components; whether there is nothing more to do.
    pub(super) fn advance(
        &mut self,
        product: Product<'_>,
        walked: u64,
        shared: &Shared,
        context: &QueryContext,
    ) -> bool {
        match self {
            Self::Never | Self::Done(_) | Self::Lent(_) => return true,
            // Bits for each component are made.
            Self::Kept(graph) if walked < graph.count().into() => return true,
            Self::Kept(_) => {}
            Self::NotYet => {
                let nodes = shared.nodes.of_triples();
                let (places, edges) = product.size(nodes);
                if walked < places + edges {
                    return true;
                }
                let mut memory = context.memory("path_search");
                let bytes = bytes_for((places, edges));
                let is_small = places.max(edges) < u32::MAX.into() && bytes <= bytes_max(&memory);
                if !is_small || !context.has_room(&mut memory, bytes) {
                    *self = Self::Never;
                    return true;
                }
                *self = Self::Making(Box::new(Condensing::new(product, nodes, memory)));
                return false;
            }
            Self::Making(making) => {
                if !making.advance(product, CONDENSED_AT_ONCE) {
                    return false;
                }
            }
        }
        let made = match std::mem::replace(self, Self::Never) {
            Self::Making(made) => Some(made.finish()),
            Self::Kept(graph) => Some(graph),
            _ => None,
        };
        if let Some(graph) = made {
            let memory = context.memory("path_search");
            let most = bytes_max(&memory);
            if let Some(sweeper) = Sweeper::new(graph, most, memory, context) {
                shared.counters.add_adjacency(0, sweeper.bytes());
                *self = Self::Done(Box::new(sweeper));
            }
        }
        true
    }

    /// Takes out what sweeps, for a team; the graph stays.
    pub(super) fn lend(&mut self) -> Option<Sweeper> {
        match std::mem::replace(self, Self::Never) {
            Self::Done(mut sweeper) => {
                let another = sweeper.graph().another();
                *self = Self::Lent(sweeper.replace(another));
                Some(*sweeper)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Puts back what sweeps, between two passes.
    pub(super) fn take_back(&mut self, mut sweeper: Sweeper) {
        if let Self::Lent(graph) = std::mem::replace(self, Self::Never) {
            drop(sweeper.replace(graph));
            *self = Self::Done(Box::new(sweeper));
        }
    }

    /// Gives up the components, for good.
    pub(super) fn shed(&mut self) {
        if !matches!(self, Self::NotYet) {
            *self = Self::Never;
        }
    }
}
