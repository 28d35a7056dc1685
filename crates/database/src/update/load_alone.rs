//! A request that is one LOAD: its document is read while it is fetched, and may have any length.
//!
//! Nothing has to be repeated: a short document is kept, and a bulk load is never in conflict.
//!
//! # References
//! SPARQL 1.1 Update, section 3.1.4.

use std::time::Duration;

use oxrdf::NamedNode;
use spargebra::term::GraphName as ParsedGraph;

use super::UpdateSummary;
use super::run::{document_options, go_on, is_forgiven, time_left};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::federation::{Incoming, failed};
use crate::load::AloneOptions;
use crate::options::UpdateOptions;

/// The request.
pub(super) struct LoadAlone<'a> {
    pub(super) database: &'a Database,
    pub(super) options: &'a UpdateOptions,
    /// When it was begun, on the clock of the runtime.
    pub(super) started: Duration,
}

impl LoadAlone<'_> {
    /// Loads the document.
    ///
    /// # Errors
    /// As [`Database::update`].
    pub(super) fn run(
        &self,
        silent: bool,
        source: &NamedNode,
        destination: &ParsedGraph,
    ) -> Result<UpdateSummary> {
        match self.load(source, destination) {
            Err(error) if silent && is_forgiven(&error) => Ok(UpdateSummary {
                commit: self.database.commit(),
                ..UpdateSummary::default()
            }),
            outcome => outcome,
        }
    }

    fn load(&self, source: &NamedNode, destination: &ParsedGraph) -> Result<UpdateSummary> {
        let (runtime, url) = (self.database.runtime(), source.as_str());
        let fetch = runtime.documents().ok_or(Error::LoadOff)?;
        let go_on = go_on(runtime, self.options, self.started);
        let time_left = time_left(runtime, self.options, self.started);
        let mut incoming = Incoming::begin(&*fetch, url, time_left, &go_on);
        let told = incoming.content_type()?;
        let cancel = &self.options.cancel;
        let options = AloneOptions {
            document: document_options(source, destination, told.as_deref(), cancel),
            message: self.options.message.clone(),
            ..AloneOptions::default()
        };
        let loaded = self.database.load_alone(url, incoming, &options);
        loaded.map_err(|error| match error {
            Error::Input { source, .. } => match go_on() {
                Ok(()) => failed(url, source.to_string()),
                Err(error) => error,
            },
            error => error,
        })
    }
}
