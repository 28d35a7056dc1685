//! Where folders lie.

use std::path::{Path, PathBuf, absolute};

/// Whether a folder is another one, or lies within it, whether they are there or not.
pub(crate) fn is_within(folder: &Path, other: &Path) -> bool {
    resolved(folder).starts_with(resolved(other))
}

/// A path without links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = path.ancestors().find_map(|ancestor| {
        let rest = path.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(rest))
    });
    real.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_lie_within_others_by_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        std::fs::create_dir(place("db")).unwrap();
        std::os::unix::fs::symlink(place("db"), place("link")).unwrap();
        for (one, other, expected) in [
            ("db", "db", true),
            ("db/archive", "db", true),
            ("link/archive/x", "db", true),
            ("db", "link", true),
            ("db2", "db", false),
            (".", "db", false),
            ("absent/x", "absent", true),
            ("absent", "db", false),
        ] {
            assert_eq!(
                is_within(&place(one), &place(other)),
                expected,
                "{one} in {other}"
            );
        }
    }
}
