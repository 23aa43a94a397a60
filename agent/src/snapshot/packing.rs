//! The making of a pack: its bytes on their way into a file, and how far Git says that it is.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdout};

use super::program::Repo;
use super::transfer::hex;
use super::{SnapshotError, io};

/// First transfer of a very large history over a slow disk.
pub(super) const DEADLINE: Duration = Duration::from_secs(4 * 3600);
/// Bytes of a complaint that are kept.
const COMPLAINT: usize = 1 << 16;

/// How far the making of a pack has come, as Git counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Packing {
    pub step: PackStep,
    /// Objects.
    pub done: u64,
    /// Of so many objects; 0 while that is not known.
    pub total: u64,
}

/// What is done with the objects, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackStep {
    Enumerating,
    Counting,
    Compressing,
    Writing,
}

impl std::fmt::Display for Packing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self.step {
            PackStep::Enumerating => "found",
            PackStep::Counting => "counted",
            PackStep::Compressing => "compressed",
            PackStep::Writing => "written",
        };
        match self.total {
            0 => write!(f, "{} objects {word}", self.done),
            total => write!(f, "{} of {total} objects {word}", self.done),
        }
    }
}

impl Packing {
    /// One word of Git's progress, such as `Compressing objects:  40% (40/100)`.
    fn read(text: &str) -> Option<Self> {
        let (word, rest) = text.trim().split_once(" objects:")?;
        let step = match word {
            "Enumerating" => PackStep::Enumerating,
            "Counting" => PackStep::Counting,
            "Compressing" => PackStep::Compressing,
            "Writing" => PackStep::Writing,
            _ => return None,
        };
        let within = rest.split_once('(').and_then(|(_, rest)| rest.split_once(')')?.0.split_once('/'));
        let (done, total) = within.unwrap_or((rest.split(',').next()?.trim(), "0"));
        Some(Self { step, done: done.parse().ok()?, total: total.parse().ok()? })
    }
}

/// What Git says beside its progress when nothing is wrong.
fn is_chatter(text: &str) -> bool {
    ["Total ", "Delta compression ", "Reusing "].iter().any(|start| text.starts_with(start))
}

/// Runs Git's packer into a file. Gives the digest and the size of the pack, in bytes.
pub(super) async fn run_pack(
    repo: &Repo,
    args: &[&str],
    stdin: &[u8],
    to: &Path,
    tell: &(dyn Fn(Packing) + Send + Sync),
) -> Result<(String, u64), SnapshotError> {
    let words: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
    let mut command = repo.command(&words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io("git"))?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut input) = input {
            let _ = input.write_all(stdin).await;
        }
    };
    let all = async { tokio::join!(feed, spool(output, to), listen(errors, tell), child.wait()) };
    let deadline = || SnapshotError::Deadline { command: args.join(" "), seconds: DEADLINE.as_secs() };
    let ((), spooled, message, status) = tokio::time::timeout(DEADLINE, all).await.map_err(|_| deadline())?;
    if status.map_err(io("git"))?.success() { spooled.map_err(io(to)) } else { Err(repo.failed(args, message)) }
}

async fn spool(output: Option<ChildStdout>, to: &Path) -> std::io::Result<(String, u64)> {
    let mut file = tokio::fs::File::create(to).await?;
    let (mut sha256, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    let Some(mut output) = output else { return Ok((String::new(), 0)) };
    loop {
        let count = output.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        sha256.update(&buffer[..count]);
        file.write_all(&buffer[..count]).await?;
        bytes += count as u64;
    }
    file.sync_all().await?;
    Ok((hex(&sha256.finalize()), bytes))
}

/// Tells the progress, to the end, and gives what is none: a complaint.
async fn listen(errors: Option<ChildStderr>, tell: &(dyn Fn(Packing) + Send + Sync)) -> String {
    let Some(mut errors) = errors else { return String::new() };
    let (mut complaint, mut rest, mut buffer) = (String::new(), Vec::new(), vec![0; 1 << 12]);
    let mut heard = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        match Packing::read(&line) {
            Some(packing) => tell(packing),
            None if is_chatter(&line) || complaint.len() >= COMPLAINT => {}
            None => {
                complaint.push_str(&line);
                complaint.push('\n');
            }
        }
    };
    loop {
        let count = errors.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            break;
        }
        rest.extend_from_slice(&buffer[..count]);
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            heard(&rest[..end]);
            rest.drain(..=end);
        }
        rest.truncate(COMPLAINT);
    }
    heard(&rest);
    complaint.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(PackStep, u64, u64)>) {
        assert_eq!(Packing::read(text).map(|p| (p.step, p.done, p.total)), expected, "{text}");
    }

    #[test]
    fn gits_progress_is_read_and_nothing_else() {
        check("Enumerating objects: 1234, done.", Some((PackStep::Enumerating, 1234, 0)));
        check("Counting objects: 12", Some((PackStep::Counting, 12, 0)));
        check("Counting objects: 100% (5/5), done.", Some((PackStep::Counting, 5, 5)));
        check("Compressing objects:  40% (40/100)", Some((PackStep::Compressing, 40, 100)));
        check("Writing objects:  12% (12/100), 1.20 MiB | 2.40 MiB/s", Some((PackStep::Writing, 12, 100)));
        check("fatal: bad objects: 12", None);
        check("Compressing objects: many", None);
        check("Total 3 (delta 0), reused 0 (delta 0)", None);
        check("", None);
    }
}
