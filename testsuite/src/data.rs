//! Where the W3C suites and the real datasets lie. They are not part of this repository.

use std::path::{Path, PathBuf};

/// The folder of the W3C test suites: `STOA_W3C`, by default `../shared/w3c` beside the checkout.
/// `None`, with a line that says so, if it is missing.
#[must_use]
pub fn w3c() -> Option<PathBuf> {
    find("STOA_W3C", "w3c", "https://github.com/w3c/rdf-tests")
}

/// The folder of real datasets: `STOA_DATA`, by default `../shared/data`.
#[must_use]
pub fn datasets() -> Option<PathBuf> {
    let sources = "American Art's SAAM, schema.org, FIBO, QUDT and DBpedia";
    find("STOA_DATA", "data", sources)
}

#[expect(
    clippy::print_stderr,
    reason = "a skip must be seen in the output of a test run"
)]
fn find(variable: &str, folder: &str, source: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let path = std::env::var_os(variable)
        .map_or_else(|| root.join("../shared").join(folder), PathBuf::from);
    if path.is_dir() {
        return path.canonicalize().ok();
    }
    eprintln!(
        "skipped: {} is missing; set {variable} (get it from {source})",
        path.display()
    );
    None
}
