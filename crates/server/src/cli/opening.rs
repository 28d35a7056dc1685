//! Opens the database that a command writes to, and removes one that the command made but could not fill.
//!
//! `load`, and `serve` and `update` with `--create`, make a database where there is none. If the command then fails
//! before anything is committed, the folder is left as it was found (test
//! `a_failed_first_load_leaves_nothing_behind`).

use std::path::{Path, PathBuf};

use stoa_database::{Access, ArchiveOptions, Database, Error, OpenOptions, Runtime};

use super::output::say;

/// How many databases beside the wrong path are looked at.
const NEIGHBOURS_MAX: usize = 1_000;

/// A database that a command has opened for writing.
pub(super) struct Opened {
    pub(super) database: Database,
    folder: PathBuf,
    /// Whether the folder itself was made, too.
    is_folder_new: bool,
}

impl Opened {
    /// Opens the database in `folder`, and makes it if `create` says so; `archive` says where its log is copied.
    pub(super) fn open(
        runtime: &Runtime,
        folder: &Path,
        create: bool,
        archive: Option<&ArchiveOptions>,
    ) -> Result<Self, Error> {
        let options = OpenOptions {
            access: Access::Exclusive,
            create,
        };
        let is_folder_new = !folder.exists();
        let database = match archive {
            Some(archive) => Database::open_archiving(runtime, folder, &options, archive)?,
            None => Database::open(runtime, folder, &options)?,
        };
        Ok(Self {
            database,
            folder: folder.to_path_buf(),
            is_folder_new,
        })
    }

    /// Says that the database is new, if it is.
    pub(super) fn say_created(&self) {
        if self.database.is_new() {
            say(&format!("created the database {}", self.folder.display()));
        }
    }

    /// Removes the database if this command made it and nothing was committed; returns whether it was removed.
    pub(super) fn discard_if_new(self) -> bool {
        if !self.database.is_new() || self.database.commit() != 0 {
            return false;
        }
        if let Err(error) = self.database.discard() {
            say(&format!(
                "cannot remove the new database {}: {error}; remove its folder",
                self.folder.display()
            ));
            return false;
        }
        // Fails if another process has put something there meanwhile, which then is to stay.
        !self.is_folder_new || std::fs::remove_dir(&self.folder).is_ok()
    }
}

/// The databases beside `folder` whose names resemble its own, at most three.
pub(super) fn similar(folder: &Path) -> Vec<String> {
    let Some(name) = folder.file_name().map(|name| name.to_string_lossy()) else {
        return Vec::new();
    };
    let parent = folder.parent().filter(|path| !path.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(parent.unwrap_or(Path::new("."))) else {
        return Vec::new();
    };
    let mut found: Vec<(usize, String)> = entries
        .take(NEIGHBOURS_MAX)
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("root").is_file())
        .filter_map(|entry| {
            let other = entry.file_name().to_string_lossy().into_owned();
            let differences = stoa_database::name_differences(&name, &other)?;
            Some((differences, parent.unwrap_or(Path::new("")).join(other)))
        })
        .map(|(differences, path)| (differences, path.display().to_string()))
        .collect();
    found.sort();
    found.truncate(3);
    found.into_iter().map(|(_, path)| path).collect()
}
