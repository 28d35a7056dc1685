//! Graphs for path queries: a random graph of equal nodes, and a genealogy as an encyclopedia has it.
//!
//! Each node has random numbers of its own, seeded by its number, so that the data are written in one pass, and the driver
//! of queries knows them from size and seed alone.
//!
//! # Limits
//! Memory: one block of about a megabyte, whatever the size.

pub(crate) mod genealogy;
pub(crate) mod path_graph;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::bsbm::output::{Compression, Output};

/// What the generators of graphs have in common.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Common {
    /// The same seed gives the same data
    #[arg(long, value_name = "SEED", default_value_t = crate::bsbm::SEED)]
    pub(crate) seed: u64,
    /// The file of N-Triples to write, by default standard output. `.gz` and `.zst` at its end compress
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// gz or zst, where the file's name does not tell
    #[arg(long, value_enum)]
    compress: Option<Compression>,
}

/// The N-Triples of a genealogy.
#[cfg(test)]
pub(crate) fn some_people(people: u64) -> Vec<u8> {
    let mut triples = Triples::kept();
    genealogy::Pools::new(people, 1)
        .write(&mut triples)
        .unwrap();
    triples.out
}

/// Bytes after which a block goes out.
const BLOCK_BYTES: usize = 1 << 20;

/// N-Triples on their way out.
pub(crate) struct Triples {
    output: Option<Output>,
    pub(crate) out: Vec<u8>,
    count: u64,
}

impl Triples {
    /// # Errors
    /// When the file cannot be created.
    pub(crate) fn open(common: &Common) -> anyhow::Result<Self> {
        let output = Output::open(common.output.as_deref(), common.compress, 1, 1)?;
        Ok(Self {
            output: Some(output),
            out: Vec::new(),
            count: 0,
        })
    }

    /// Triples that stay in memory.
    #[cfg(test)]
    pub(crate) fn kept() -> Self {
        Self {
            output: None,
            out: Vec::new(),
            count: 0,
        }
    }

    /// Appends a triple of terms as N-Triples write them.
    ///
    /// # Errors
    /// When a block cannot be written.
    pub(crate) fn add(
        &mut self,
        subject: &str,
        predicate: &str,
        object: &str,
    ) -> anyhow::Result<()> {
        for part in [subject, " ", predicate, " ", object, " .\n"] {
            self.out.extend_from_slice(part.as_bytes());
        }
        self.count += 1;
        match &mut self.output {
            Some(output) if self.out.len() >= BLOCK_BYTES => {
                output.block(std::mem::take(&mut self.out))
            }
            _ => Ok(()),
        }
    }

    /// Writes what is left and says on standard error how much it is.
    ///
    /// # Errors
    /// When it cannot be written.
    #[expect(clippy::print_stderr, reason = "standard output may hold the data")]
    pub(crate) fn end(self) -> anyhow::Result<()> {
        if let Some(mut output) = self.output {
            output.block(self.out)?;
            output.end()?;
        }
        eprintln!("{} triples", self.count);
        Ok(())
    }
}
