//! The databases of a server, and which address belongs to which.
//!
//! One may stand at the root (`/sparql`), any number under their names (`/NAME/sparql`).

use std::collections::BTreeMap;

use stoa_database::{Database, Runtime};

use super::rdf4j::{Part, ROOT};

/// First parts of addresses that are never names of databases.
pub(crate) const RESERVED: [&str; 17] = [
    "sparql",
    "changes",
    "log",
    "diff",
    "apply",
    "revert",
    "forget",
    "load",
    "checkpoint",
    "backup",
    "compact",
    "store",
    "health",
    "status",
    "metrics",
    "repositories",
    "protocol",
];

/// What a server serves.
#[derive(Default)]
pub(crate) struct Databases {
    pub(crate) root: Option<Database>,
    pub(crate) named: BTreeMap<String, Database>,
}

impl Databases {
    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Database> {
        self.root.iter().chain(self.named.values())
    }
}

/// What stands at an address.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Resource<'a> {
    /// The query page of a database.
    Page,
    /// The SPARQL Protocol.
    Sparql,
    /// The Graph Store Protocol; a graph named by the address itself has a path below it.
    Store {
        below: Option<&'a str>,
    },
    /// The feed of changes.
    Changes,
    /// The list of commits.
    Log,
    /// What changed between two commits.
    Diff,
    /// Patches.
    Apply,
    /// Commits that undo others.
    Revert,
    /// Giving earlier commits free.
    Forget,
    /// Bulk loads.
    Load,
    Checkpoint,
    /// Backups.
    Backup,
    /// Compactions.
    Compact,
    /// A part of what is a repository to RDF4J, and its name there.
    Repository {
        name: &'a str,
        part: Part<'a>,
    },
    /// The repositories.
    Repositories,
    /// The version of RDF4J's protocol.
    Protocol,
    /// The list of databases.
    List,
    Health,
    Status,
    /// Something that is running, by its number.
    RunningQuery(&'a str),
    /// The same address with a slash at its end.
    AddSlash,
}

impl Resource<'_> {
    /// Whether a request has no parameters here.
    pub(super) fn has_no_parameters(&self) -> bool {
        matches!(
            self,
            Self::Checkpoint
                | Self::Compact
                | Self::Protocol
                | Self::Health
                | Self::Status
                | Self::RunningQuery(_)
        )
    }
}

impl Databases {
    /// The resource at a path, and the database it belongs to. A slash at the end means nothing where it makes no
    /// address of its own; the path is given back without it.
    pub(super) fn resolve<'a>(
        &self,
        path: &'a str,
    ) -> Option<(&'a str, Option<&Database>, Resource<'a>)> {
        if let Some((database, resource)) = self.resource(path) {
            return Some((path, database, resource));
        }
        let path = path.strip_suffix('/').filter(|path| !path.ends_with('/'))?;
        let (database, resource) = self.resource(path)?;
        Some((path, database, resource))
    }

    fn resource<'a>(&self, path: &'a str) -> Option<(Option<&Database>, Resource<'a>)> {
        match path {
            "/health" => return Some((None, Resource::Health)),
            "/protocol" => return Some((None, Resource::Protocol)),
            "/repositories" => return Some((None, Resource::Repositories)),
            "/status" => return Some((None, Resource::Status)),
            "/" if self.root.is_none() => return Some((None, Resource::List)),
            _ => {}
        }
        if let Some(number) = path.strip_prefix("/status/queries/")
            && !number.contains('/')
        {
            return Some((None, Resource::RunningQuery(number)));
        }
        if let Some(repository) = path.strip_prefix("/repositories/") {
            return self.repository(repository);
        }
        let rest = path.strip_prefix('/')?;
        if let Some(root) = &self.root
            && let Some(resource) = resource(rest)
        {
            return Some((Some(root), resource));
        }
        let Some((name, rest)) = rest.split_once('/') else {
            let database = self.named.get(rest)?;
            return Some((Some(database), Resource::AddSlash));
        };
        let database = self.named.get(name)?;
        Some((Some(database), resource(rest)?))
    }

    fn repository<'a>(&self, path: &'a str) -> Option<(Option<&Database>, Resource<'a>)> {
        let end = path.find('/').unwrap_or(path.len());
        let (name, rest) = path.split_at_checked(end)?;
        let database = match name {
            ROOT if self.root.is_some() => self.root.as_ref(),
            name => self.named.get(name),
        };
        let part = Part::of(rest)?;
        Some((Some(database?), Resource::Repository { name, part }))
    }

    /// What all databases share; none if there is no database.
    pub(super) fn runtime(&self) -> Option<&Runtime> {
        let mut all = self.root.iter().chain(self.named.values());
        all.next().map(Database::runtime)
    }

    /// Where queries go, for messages.
    pub(super) fn addresses(&self) -> String {
        let root = self.root.iter().map(|_| "/sparql".to_owned());
        let named = self.named.keys().map(|name| format!("/{name}/sparql"));
        let all: Vec<String> = root.chain(named).collect();
        all.join(", ")
    }
}

fn resource(rest: &str) -> Option<Resource<'_>> {
    match rest {
        "" => Some(Resource::Page),
        "sparql" => Some(Resource::Sparql),
        "changes" => Some(Resource::Changes),
        "log" => Some(Resource::Log),
        "diff" => Some(Resource::Diff),
        "apply" => Some(Resource::Apply),
        "revert" => Some(Resource::Revert),
        "forget" => Some(Resource::Forget),
        "load" => Some(Resource::Load),
        "checkpoint" => Some(Resource::Checkpoint),
        "backup" => Some(Resource::Backup),
        "compact" => Some(Resource::Compact),
        "store" => Some(Resource::Store { below: None }),
        _ => {
            let below = rest.strip_prefix("store/")?;
            // The store itself is no graph.
            if below.is_empty() {
                return None;
            }
            Some(Resource::Store { below: Some(below) })
        }
    }
}

/// The longest name, in bytes: folders have it, and file systems take no more than 255.
const NAME_BYTES_MAX: usize = 128;

/// Whether a database may be served, or backups be kept, under this name: up to 128 letters, digits, `-`, `_` and `.`,
/// these not at the beginning, and nothing that is an address of its own.
pub(crate) fn is_name(name: &str) -> bool {
    let starts_well = name
        .bytes()
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric());
    starts_well
        && name.len() <= NAME_BYTES_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::{NAME_BYTES_MAX, Resource, is_name, resource};

    #[test]
    fn addresses_of_a_database() {
        assert_eq!(resource(""), Some(Resource::Page));
        assert_eq!(resource("sparql"), Some(Resource::Sparql));
        assert_eq!(resource("store"), Some(Resource::Store { below: None }));
        assert_eq!(
            resource("store/person/1.ttl"),
            Some(Resource::Store {
                below: Some("person/1.ttl")
            })
        );
        assert_eq!(resource("load"), Some(Resource::Load));
        assert_eq!(resource("store/"), None);
        assert_eq!(resource("stores"), None);
    }

    #[test]
    fn names_are_plain_and_not_taken() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        assert!(is_name(&longest) && !is_name(&format!("{longest}a")));
        for name in ["a", "wikidata-2026", "A_b.c", "7"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "sparql", "store", "a/b", ".", "-a", "a b", "\u{e4}"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
