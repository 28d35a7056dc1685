//! What `stoa info` and `stoa check` tell about a database.

pub use stoa_quadstore::{ArchiveInfo, DeltaInfo, LogInfo, SetsInfo};
use stoa_quadstore::{QuadStore, Scheme};
use stoa_terms::{Kind, TermId};

use crate::error::Result;
use crate::load::Progress;
use crate::query::CancelHandle;

/// What is in a database and how it lies on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// Quads in all graphs.
    pub quads: u64,
    /// Named graphs that exist.
    pub named_graphs: u64,
    /// Terms in the dictionary.
    pub terms: u64,
    /// The share of literal objects in quads that are inline, from 0 to 1; `None` if there is no
    /// literal.
    pub inline_share: Option<f64>,
    /// The same among numbers, dates and times only.
    pub inline_value_share: Option<f64>,
    /// Which sort orders are kept.
    pub scheme: Scheme,
    /// The permutations, the pairs, and the catalogue of graphs.
    pub permutations: Vec<PartInfo>,
    /// The parts of the dictionary.
    pub dictionary: Vec<PartInfo>,
    /// For each kind of term in the dictionary its name, in how many runs the terms stand, and how
    /// many of the runs were merged from those of several loads so that ids do not ascend in them.
    pub dictionary_runs: Vec<(&'static str, usize, usize)>,
    /// The characteristic sets, by which joins are estimated, if there are any.
    pub characteristic_sets: Option<SetsInfo>,
    /// All bytes of data files.
    pub data_bytes: u64,
    /// Bytes of them that are free for reuse.
    pub free_bytes: u64,
    /// The number of the last commit.
    pub commit: u64,
    /// What was committed since the last checkpoint, as it is kept in memory.
    pub delta: DeltaInfo,
    /// The write-ahead log, and what is kept for readers of earlier commits.
    pub log: LogInfo,
    /// The version of the format of files on disk.
    pub format_version: u32,
    /// The version of the format of quads and terms in them.
    pub quad_format_version: u32,
    /// The id of the database, in hexadecimal digits.
    pub database_id: String,
    /// How files are read and written, such as `pread`.
    pub io: String,
}

impl Info {
    pub(crate) fn of(store: &QuadStore) -> Result<Self> {
        let info = store.info()?;
        let default_quads = store.snapshot().graph_quads(TermId::DEFAULT_GRAPH)?;
        let files = store.store();
        let dictionary: Vec<PartInfo> = info
            .dictionary
            .into_iter()
            .map(|(name, entries, bytes)| PartInfo {
                name,
                entries,
                bytes,
            })
            .collect();
        let trees = info.trees.iter().map(|tree| PartInfo {
            name: tree.name.to_owned(),
            entries: tree.rows,
            bytes: tree.bytes,
        });
        Ok(Self {
            quads: info.quads,
            // The catalogue lists the default graph, too, if it holds quads.
            named_graphs: info.graphs.saturating_sub(u64::from(default_quads > 0)),
            // Long texts are counted with their kind already.
            terms: dictionary
                .iter()
                .filter(|part| !part.name.starts_with(LONG_TEXTS))
                .map(|part| part.entries)
                .sum::<u64>()
                + info.delta.terms,
            inline_share: share(&info.object_kinds, |_| true),
            inline_value_share: share(&info.object_kinds, |kind| {
                !matches!(kind, Kind::Special | Kind::ShortString | Kind::Literal)
            }),
            scheme: info.scheme,
            permutations: trees.collect(),
            dictionary,
            dictionary_runs: info.dictionary_runs,
            characteristic_sets: info.sets,
            data_bytes: info.data_bytes,
            free_bytes: info.free_bytes,
            commit: info.commit,
            delta: info.delta,
            log: info.log,
            format_version: stoa_storage::format::FORMAT_VERSION,
            quad_format_version: info.format,
            database_id: format!("{:032x}", files.identity().database_id),
            io: files.io_info().to_string(),
        })
    }

    /// Bytes of data files for each quad; `None` without quads.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn bytes_per_quad(&self) -> Option<f64> {
        (self.quads > 0).then(|| self.data_bytes as f64 / self.quads as f64)
    }
}

/// How names of those parts of the dictionary begin that hold the texts of other parts.
const LONG_TEXTS: &str = "long texts";

/// The inline ones among quads whose objects are literals of the kinds that count.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn share(object_kinds: &[u64; 16], counts: impl Fn(Kind) -> bool) -> Option<f64> {
    let (mut inline, mut others) = (0, 0);
    for (kind, quads) in Kind::ALL.into_iter().zip(object_kinds) {
        // Of the special ids only booleans are objects.
        if !(kind.is_literal() || kind == Kind::Special) || !counts(kind) {
            continue;
        }
        if kind.is_in_dictionary() {
            others += quads;
        } else {
            inline += quads;
        }
    }
    (inline + others > 0).then(|| inline as f64 / (inline + others) as f64)
}

/// A part of a database.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PartInfo {
    /// Its name, such as `PSOG` or `iri`.
    pub name: String,
    /// What it holds: quads or terms.
    pub entries: u64,
    /// Its bytes on disk.
    pub bytes: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckSummary {
    /// Bytes whose checksums were compared.
    pub bytes: u64,
    /// Quads that all permutations hold alike.
    pub quads: u64,
    /// Terms that were resolved both ways.
    pub terms: u64,
    /// What is damaged, each with file and extent; empty if all is well.
    pub problems: Vec<String>,
    /// How many further problems are not listed.
    pub problems_suppressed: u64,
}

impl CheckSummary {
    pub(crate) fn of(
        store: &QuadStore,
        progress: &dyn Progress,
        cancel: &CancelHandle,
    ) -> Result<Self> {
        let mut phase = String::new();
        let report = store.check(&cancel.flag(), &mut |what, done, of| {
            if what != phase {
                phase = what.to_owned();
                progress.phase(&format!("checking {what}"), Some(of));
            }
            progress.advance(done, 0);
        })?;
        Ok(Self {
            bytes: report.bytes,
            quads: report.quads,
            terms: report.terms,
            problems: report
                .problems
                .into_iter()
                .map(|problem| format!("{}: {}", problem.part, problem.message))
                .collect(),
            problems_suppressed: report.suppressed,
        })
    }

    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}
