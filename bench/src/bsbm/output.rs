//! Blocks of instances, made on all cores and written in order, plain or compressed.
//!
//! Blocks are dealt to the parts of a spread dataset in turn. Each block is a compressed frame of
//! its own, so compression runs on all cores, too; gzip and zstd readers take frames that follow
//! each other as one stream.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use anyhow::Context as _;

use super::instance::Instances;
use super::model::Model;
use super::writer::{Format, Writer};

/// Instances of a block; a person counts with all reviews.
const BLOCK_INSTANCES: u64 = 2_000;
/// Persons of a block: each has about twenty reviews, the longest instances.
const BLOCK_PERSONS: u64 = 50;

/// How the output is compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Compression {
    /// gzip
    Gz,
    /// Zstandard
    Zst,
}

/// Where a part goes.
pub(crate) struct Output {
    to: Box<dyn Write>,
    compression: Option<Compression>,
}

impl Output {
    #[expect(
        clippy::disallowed_methods,
        reason = "a generator writes files of its own"
    )]
    pub(crate) fn open(
        path: Option<&Path>,
        compression: Option<Compression>,
        part: u64,
        parts: u64,
    ) -> anyhow::Result<Self> {
        let Some(path) = path else {
            let to = Box::new(BufWriter::with_capacity(1 << 20, io::stdout().lock()));
            return Ok(Self { to, compression });
        };
        let path = if parts > 1 {
            numbered(path, part)
        } else {
            path.to_path_buf()
        };
        let compression = compression.or(match path.extension().and_then(|e| e.to_str()) {
            Some("gz") => Some(Compression::Gz),
            Some("zst") => Some(Compression::Zst),
            _ => None,
        });
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            to: Box::new(BufWriter::with_capacity(1 << 20, file)),
            compression,
        })
    }
}

impl Output {
    /// Appends a block of the data, compressed as a frame of its own.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn block(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        let bytes = compress(bytes, self.compression)?;
        self.to.write_all(&bytes).context("cannot write the data")
    }

    /// To be called after the last block.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.to.flush().context("cannot write the data")
    }
}

/// `a.nt.gz` becomes `a.3.nt.gz`.
fn numbered(path: &Path, part: u64) -> PathBuf {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let (stem, extensions) = name.split_once('.').unwrap_or((&name, ""));
    let dot = if extensions.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}.{part}{dot}{extensions}"))
}

/// A range of instances of one class, both ends included.
#[derive(Clone, Copy, Debug)]
struct Block {
    class: Class,
    first: u64,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
enum Class {
    Type,
    Feature,
    Producer,
    Product,
    Vendor,
    Offer,
    Person,
}

fn blocks(model: &Model) -> Vec<Block> {
    let classes = [
        (Class::Type, model.types.len() as u64, BLOCK_INSTANCES),
        (Class::Feature, model.features, BLOCK_INSTANCES),
        (Class::Producer, model.producers.count(), BLOCK_INSTANCES),
        (Class::Product, model.last_main, BLOCK_INSTANCES / 4),
        (Class::Vendor, model.vendors.count(), BLOCK_INSTANCES),
        (Class::Offer, model.offers(), BLOCK_INSTANCES),
        (Class::Person, model.persons.count(), BLOCK_PERSONS),
    ];
    let mut blocks = Vec::new();
    for (class, count, size) in classes {
        let mut first = 1;
        while first <= count {
            let last = (first + size - 1).min(count);
            blocks.push(Block { class, first, last });
            first = last + 1;
        }
    }
    blocks
}

/// Writes part `part` (from 0) of `parts`; returns its triples.
pub(super) fn write_part(
    model: &Model,
    format: Format,
    part: u64,
    parts: u64,
    threads: usize,
    mut output: Output,
) -> anyhow::Result<u64> {
    let blocks: Vec<Block> = blocks(model)
        .into_iter()
        .zip(0_u64..)
        .filter(|(_, index)| index % parts == part)
        .map(|(block, _)| block)
        .collect();
    let compression = output.compression;
    let header = Writer::header(format);
    if !header.is_empty() {
        output.to.write_all(&compress(header, compression)?)?;
    }
    let mut triples = 0;
    std::thread::scope(|scope| {
        // Each thread takes every n-th block and hands it over its own queue, so order is kept and
        // no more than a few blocks wait.
        let queues: Vec<_> = (0..threads)
            .map(|thread| {
                let (sender, receiver) = mpsc::sync_channel::<io::Result<(Vec<u8>, u64)>>(2);
                let blocks = &blocks;
                scope.spawn(move || {
                    for block in blocks.iter().skip(thread).step_by(threads) {
                        let (bytes, count) = block_bytes(model, format, *block);
                        let made = compress(bytes, compression).map(|bytes| (bytes, count));
                        if sender.send(made).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        for (index, _) in blocks.iter().enumerate() {
            let Some(queue) = queues.get(index % threads) else {
                break;
            };
            let (bytes, count) = queue.recv().context("a generating thread has ended")??;
            output
                .to
                .write_all(&bytes)
                .context("cannot write the data")?;
            triples += count;
        }
        output.to.flush().context("cannot write the data")?;
        anyhow::Ok(())
    })?;
    Ok(triples)
}

fn block_bytes(model: &Model, format: Format, block: Block) -> (Vec<u8>, u64) {
    let mut writer = Writer::new(format);
    let mut instances = Instances::new(model, format);
    for number in block.first..=block.last {
        match block.class {
            Class::Type => instances.product_type(number, &mut writer),
            Class::Feature => instances.feature(number, &mut writer),
            Class::Producer => instances.producer(number, &mut writer),
            Class::Product => instances.product(number, &mut writer),
            Class::Vendor => instances.vendor(number, &mut writer),
            Class::Offer if model.offered(number).0 > model.last_main => {}
            Class::Offer => instances.offer(number, &mut writer),
            Class::Person => instances.person(number, &mut writer),
        }
    }
    writer.end();
    (writer.out, writer.triples)
}

fn compress(bytes: Vec<u8>, compression: Option<Compression>) -> io::Result<Vec<u8>> {
    match compression {
        None => Ok(bytes),
        Some(Compression::Zst) => zstd::bulk::compress(&bytes, 1),
        Some(Compression::Gz) => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&bytes)?;
            encoder.finish()
        }
    }
}
