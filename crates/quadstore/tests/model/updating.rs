//! Updates beyond memory, of quads as the model names them.
#![expect(
    clippy::cast_possible_truncation,
    reason = "helpers of tests, whose numbers are small"
)]

use stoa_quadstore::{BulkOptions, BulkSummary, ChangeCounts, QuadStore, Result};

use super::model::{Model, ModelQuad, Random};
use super::terms::some_of;
use super::writing::{Clearing, changes};

/// An operation of an update.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Quads that go and quads that come; what does both stays.
    Change(Vec<ModelQuad>, Vec<ModelQuad>),
    Clear(Clearing),
}

impl Wanted {
    /// What it makes of a model.
    pub(crate) fn apply(&self, model: &Model) -> Model {
        match self {
            Self::Change(removed, added) => {
                let kept = model.iter().filter(|quad| !removed.contains(quad));
                kept.chain(added).cloned().collect()
            }
            Self::Clear(clearing) => {
                let kept = model.iter().filter(|quad| !clearing.clears(quad));
                kept.cloned().collect()
            }
        }
    }
}

/// Some operations, and what they make of a model.
pub(crate) fn some_operations(model: &Model, random: &mut Random) -> (Vec<Wanted>, Model) {
    let (mut wanted, mut model) = (Vec::new(), model.clone());
    for _ in 0..1 + random.below(3) {
        let one = match random.below(5) {
            0 => Wanted::Clear(Clearing::of(&model, random)),
            _ => {
                let count = random.below(120) as usize;
                let mut added = random.quads(count, false);
                let mut removed = some_of(&model, random);
                removed.extend(random.quads(10, false));
                // Some are there already, and some go and come.
                added.extend(removed.iter().step_by(5).cloned());
                added.extend(some_of(&model, random));
                Wanted::Change(removed, added)
            }
        };
        model = one.apply(&model);
        wanted.push(one);
    }
    (wanted, model)
}

/// Makes an update of some operations, each handed over in pieces.
pub(crate) fn bulk_update(
    store: &QuadStore,
    wanted: &[Wanted],
    options: BulkOptions,
    message: String,
) -> Result<BulkSummary> {
    let mut update = store.bulk_update(options)?;
    // It knows no term, so that all are looked up by the update.
    let nothing = store.at(0, &|| false).ok();
    for (number, one) in wanted.iter().enumerate() {
        let read = update.snapshot();
        let read = match &nothing {
            Some(nothing) if number % 2 == 1 => nothing,
            _ => &read,
        };
        match one {
            Wanted::Change(removed, added) => {
                for added in added.chunks(50) {
                    let (new, wanted) = changes(read, &[], added)?;
                    update.change(&new, &wanted)?;
                }
                for removed in removed.chunks(50) {
                    let (new, wanted) = changes(read, removed, &[])?;
                    update.change(&new, &wanted)?;
                }
                update.end_operation()?;
            }
            Wanted::Clear(clearing) => {
                let graphs = clearing.graph_set(&update.snapshot())?;
                update.clear(&graphs, Vec::new())?;
            }
        }
        assert_eq!(update.end_operation()?, ChangeCounts::default());
    }
    update.commit(Some(message))
}
