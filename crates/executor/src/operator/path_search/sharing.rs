//! What a path search takes over from earlier queries, and leaves to later ones (`adjacency_cache`).

use std::sync::Arc;

use super::Searcher;
use super::adjacency_cache::{KeptGraph, Reserved};
use super::items::Nodes;
use super::machine::Machine;
use crate::context::QueryContext;
use crate::table::GroupTable;

impl Searcher {
    /// Takes over what an earlier query has left, before the first search.
    pub(super) fn adopt(&mut self, context: &QueryContext) {
        let cache = context.settings().adjacencies.as_ref();
        let found = cache.zip(self.key.as_ref());
        let found = found.and_then(|(cache, key)| cache.find(key));
        if let Some(graph) = found {
            self.shared.nodes = Nodes::over(Some(Arc::clone(&graph.nodes)));
            for machine in self.machines.iter_mut().flatten() {
                machine.adopt(&graph, &self.shared);
            }
        }
    }

    /// Leaves to other queries what is new in memory, between two searches; whether there was such a thing. Numbers are
    /// complete once all steps of the path are read.
    pub(super) fn leave(&mut self, context: &QueryContext) -> bool {
        let cache = context.settings().adjacencies.as_ref();
        let Some(cache) = cache.filter(|_| self.key.is_some()) else {
            return false;
        };
        let machines = self.machines.iter().flatten();
        let new_bytes: u64 = machines.clone().map(Machine::own_bytes).sum();
        let is_whole = self.shared.nodes.kept().is_some() || machines.clone().any(Machine::is_read);
        let bytes = new_bytes + self.shared.nodes.bytes();
        if new_bytes == 0 || !is_whole || !cache.may_keep(bytes) || context.others_wait() {
            return false;
        }
        let Some(nodes) = self.shared_nodes(context) else {
            self.key = None;
            return false;
        };
        let mut graph = KeptGraph {
            nodes,
            adjacencies: Vec::new(),
            condensations: Vec::new(),
        };
        for machine in self.machines.iter_mut().flatten() {
            machine.share(&mut graph);
        }
        if let Some(key) = &self.key {
            cache.keep(key, graph);
        }
        true
    }

    /// The numbers of nodes, which others share from now on; `None` if there is no room for them beside the query.
    fn shared_nodes(&mut self, context: &QueryContext) -> Option<Arc<Reserved<GroupTable>>> {
        let nodes = &mut self.shared.nodes;
        if let Some(kept) = nodes.kept().filter(|kept| kept.is_reserved()) {
            return Some(Arc::clone(kept));
        }
        let mut memory = context.memory("path_search");
        let bytes = nodes.bytes();
        if !context.has_room(&mut memory, bytes) {
            return None;
        }
        memory.shrink_to(bytes);
        // The numbers stay with the query if it has no memory of its own for them.
        let reservation = memory.detach()?;
        let kept = nodes.freeze();
        kept.reserve(reservation).then_some(kept)
    }
}
