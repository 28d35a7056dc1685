//! Runs a program under callgrind and reads how many instructions each call of `measured` took.
//!
//! Callgrind counts only within that function, and writes a file of its own each time it ends; the
//! files are numbered in the order of the calls.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

/// The function that is counted.
const MEASURED: &str = "stoa_instructions::measure::measured";

/// What a run gave.
pub(crate) struct Run {
    /// What the program wrote on standard output.
    pub(crate) output: String,
    /// The instructions of each call of `measured`, in their order.
    pub(crate) instructions: Vec<u64>,
}

/// Runs `program` under callgrind, whose files go into `folder`.
///
/// # Errors
/// If valgrind is missing or the program fails.
pub(crate) fn run(program: &Path, arguments: &[&OsStr], folder: &Path) -> anyhow::Result<Run> {
    let files = folder.join("callgrind");
    let output = Command::new("valgrind")
        // The environment lies on the stack: with another one, other addresses.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(format!("--dump-after={MEASURED}"))
        .arg(format!("--callgrind-out-file={}", files.display()))
        .arg(program)
        .args(arguments)
        .output()
        .context("cannot run valgrind")?;
    anyhow::ensure!(
        output.status.success(),
        "{} under callgrind: {}\n{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let mut instructions = Vec::new();
    for number in 1.. {
        let file = folder.join(format!("callgrind.{number}"));
        let Ok(text) = std::fs::read_to_string(&file) else {
            break;
        };
        // The last file is written at the end of the program.
        if text.contains("desc: Trigger: Program termination") {
            break;
        }
        instructions.push(total(&text).with_context(|| format!("no total in {number}"))?);
    }
    Ok(Run {
        output: String::from_utf8(output.stdout).context("the program's output is no text")?,
        instructions,
    })
}

/// The instructions that a file of callgrind sums up to.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

/// The versions of what counts depend on.
///
/// # Errors
/// If rustc or valgrind is missing.
pub(crate) fn tools() -> anyhow::Result<Vec<(String, String)>> {
    let version = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.with_context(|| format!("cannot run {program}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next().unwrap_or_default().trim();
        // "rustc 1.95.0 (...)", "valgrind-3.19.0", "glibc 2.36"
        let version = line.trim_start_matches(|c: char| !c.is_ascii_digit());
        Ok::<_, anyhow::Error>(version.to_owned())
    };
    Ok(vec![
        ("rustc".to_owned(), version("rustc", &["--version"])?),
        ("valgrind".to_owned(), version("valgrind", &["--version"])?),
        (
            "libc".to_owned(),
            version("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_default(),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        assert_eq!(total("fn=(1) a\n2 3\n\ntotals: 1234\n"), Some(1234));
        assert_eq!(total("summary: 1\n"), None);
        assert_eq!(total("totals: none\n"), None);
    }
}
