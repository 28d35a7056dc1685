//! Endpoints of SERVICE in this process: databases of their own, which ask each other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use anyhow::Context as _;
use stoa_database::federation::{Fetch, FetchRequest, Response};
use stoa_database::results::{ResultFormat, SolutionsFormat};
use stoa_database::{Database, QueryOptions};

use super::manifest::Test;
use super::sparql::{load_file, written};
use crate::scratch::Scratch;

/// The endpoints of one test, by their IRIs.
pub(super) struct Endpoints(OnceLock<BTreeMap<String, Scratch>>);

impl Endpoints {
    /// Loads the data of each endpoint.
    pub(super) fn load(root: &Path, test: &Test) -> anyhow::Result<Arc<Self>> {
        let endpoints = Arc::new(Self(OnceLock::new()));
        let mut stores: BTreeMap<String, Scratch> = BTreeMap::new();
        for (endpoint, files) in &test.service_data {
            let store = Scratch::with_fetch(endpoints.fetch());
            for file in files {
                load_file(root, file, None, &store)?;
            }
            stores.insert(endpoint.clone(), store);
        }
        // Nobody else has set it.
        endpoints.0.set(stores).unwrap_or_default();
        Ok(endpoints)
    }

    /// What asks them.
    pub(super) fn fetch(self: &Arc<Self>) -> Arc<dyn Fetch> {
        Arc::new(Client(Arc::downgrade(self)))
    }
}

/// Weak, as each endpoint asks the others.
struct Client(Weak<Endpoints>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Fetch for Client {
    fn fetch(&self, request: FetchRequest, response: Response) {
        let endpoints = self.0.upgrade();
        let store = endpoints
            .as_ref()
            .and_then(|all| all.0.get()?.get(&request.url));
        let Some(store) = store else {
            return response.fail("there is no such endpoint");
        };
        let database = store.database().clone();
        let answering = std::thread::Builder::new().spawn(move || {
            let format = SolutionsFormat::Json;
            match answer(&database, &request.body, format) {
                Ok(body) => response.read(Some(format.media_type()), &*body),
                Err(error) => response.fail(format!("{error:#}")),
            }
        });
        drop(answering);
    }
}

fn answer(database: &Database, form: &[u8], format: SolutionsFormat) -> anyhow::Result<Vec<u8>> {
    let encoded = form
        .strip_prefix(b"query=")
        .context("a form without query")?;
    let mut text = Vec::new();
    let mut bytes = encoded.iter().copied();
    while let Some(byte) = bytes.next() {
        text.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next(), bytes.next()].map(Option::unwrap_or_default);
                u8::from_str_radix(std::str::from_utf8(&digits)?, 16)?
            }
            byte => byte,
        });
    }
    let query = database.prepare(std::str::from_utf8(&text)?, &QueryOptions::default())?;
    written(query, ResultFormat::Solutions(format))
}
