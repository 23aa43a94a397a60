//! Objects on their way: what is offered, what is there already, one pack with a digest, and its safe arrival.
//!
//! Everything that a store has is complete: a pack is moved in only after Git has checked each object and that nothing they
//! name is missing. So "has the commit" means "has all of it", up to the commits listed as shallow.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt};

use super::cache::{Lease, write_beside};
use super::packing::{DEADLINE, run_pack};
pub use super::packing::{PackStep, Packing};
use super::program::{Repo, write_git_dir};
use super::result::ResultTree;
use super::{History, ObjectFormat, Oid, ProjectId, Snapshot, SnapshotError, blocking, history, io};

/// What is to be sent, with what only this machine knows.
#[derive(Clone, Debug)]
pub struct Parcel {
    project: ProjectId,
    format: ObjectFormat,
    want: Vec<Oid>,
    base: Option<Oid>,
    tips: Vec<Oid>,
}

/// First message: what would be sent, and what the other side may have of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offer {
    pub project: ProjectId,
    pub format: ObjectFormat,
    pub want: Vec<Oid>,
    pub known: Vec<Oid>,
}

/// Second message, back: what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Have {
    pub objects: Vec<Oid>,
    /// Commits there whose parents are not.
    pub shallow: Vec<Oid>,
}

impl Have {
    /// True when nothing needs to be sent.
    #[must_use]
    pub fn covers(&self, offer: &Offer) -> bool {
        offer.want.iter().all(|want| self.objects.contains(want))
    }
}

/// Third message: what the pack is. The bytes follow, from any offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ticket {
    /// Of the whole pack, lower-case hexadecimal.
    pub sha256: String,
    pub bytes: u64,
    pub want: Vec<Oid>,
    /// Commits whose parents do not travel.
    pub shallow: Vec<Oid>,
}

/// A pack that can be read from any offset, again and again.
#[derive(Debug)]
pub struct Packed {
    pub ticket: Ticket,
    path: PathBuf,
}

impl Parcel {
    /// A snapshot with the history and the refs it carries.
    ///
    /// # Errors
    /// It has no name.
    pub fn snapshot(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        let tips: Vec<Oid> = snapshot.refs.iter().map(|carried| carried.commit.clone()).collect();
        let mut want = vec![snapshot.id()?.clone()];
        want.extend(tips.iter().cloned());
        Ok(Self { project: snapshot.project.clone(), format: snapshot.format, want, base: snapshot.base.clone(), tips })
    }

    /// A result; the snapshot it started from is there.
    #[must_use]
    pub fn result(snapshot: &Snapshot, result: &ResultTree) -> Self {
        let (want, base) = (vec![result.id.clone()], Some(result.snapshot.clone()));
        let (project, format) = (snapshot.project.clone(), snapshot.format);
        Self { project, format, want, base, tips: Vec::new() }
    }
}

/// What to say first. Names the wanted, then ancestors of the base ever farther apart.
///
/// # Errors
/// Git refuses.
pub async fn offer(lease: &Lease, parcel: &Parcel) -> Result<Offer, SnapshotError> {
    let scratch = lease.scratch()?;
    let repo = view(lease, &[], scratch.path())?;
    let mut known = std::fs::read_to_string(lease.dir().join("sent")).unwrap_or_default();
    if let Some(base) = &parcel.base {
        let args = ["rev-list", "--first-parent", "--max-count=4096", base.as_str()];
        let listed = repo.ask(&args, b"").await?;
        for (at, line) in String::from_utf8_lossy(&listed).lines().enumerate() {
            if at < 16 || at.is_power_of_two() {
                known.push_str(line);
                known.push('\n');
            }
        }
    }
    let known: BTreeSet<Oid> = known.lines().filter_map(|line| line.parse().ok()).collect();
    let Parcel { project, format, want, .. } = parcel.clone();
    Ok(Offer { project, format, want, known: known.into_iter().collect() })
}

/// What this side has of an offer, and of what was received lately: files that are in no commit are found by that alone.
///
/// # Errors
/// Git refuses.
pub async fn answer(lease: &Lease, offer: &Offer) -> Result<Have, SnapshotError> {
    let known = received(lease);
    let asked: BTreeSet<&Oid> = offer.want.iter().chain(&offer.known).chain(&known).collect();
    let stdin: String = asked.iter().map(|oid| format!("{oid}\n")).collect();
    let args = ["cat-file", "--batch-check=%(objectname) %(objecttype)"];
    let text = lease.repo().ask(&args, stdin.as_bytes()).await?;
    let text = String::from_utf8_lossy(&text);
    let found = text.lines().filter(|line| !line.ends_with(" missing")).filter_map(|line| line.split(' ').next());
    let objects = found.map(str::parse).collect::<Result<_, _>>()?;
    Ok(Have { objects, shallow: shallow_of(&lease.git_dir()) })
}

/// Packs what the other side lacks into a file of the store; the same call gives the same file while nothing changed.
///
/// # Errors
/// An object is missing here, or the disk refuses.
pub async fn pack(lease: &Lease, parcel: &Parcel, have: &Have, depth: History) -> Result<Packed, SnapshotError> {
    pack_and_tell(lease, parcel, have, depth, &|_| {}).await
}

/// The same; `tell` hears how far it is, at most once for each percent of each step.
///
/// # Errors
/// As [`pack`].
pub async fn pack_and_tell(
    lease: &Lease,
    parcel: &Parcel,
    have: &Have,
    depth: History,
    tell: &(dyn Fn(Packing) + Send + Sync),
) -> Result<Packed, SnapshotError> {
    let scratch = lease.scratch()?;
    let own = view(lease, &[], &scratch.path().join("own"))?;
    let mut shallow = history::cut(&own, parcel.base.as_ref(), &parcel.tips, depth).await?;
    let own_cut = shallow_of(&own.git_dir);
    let hidden: Vec<Oid> = have.shallow.iter().chain(&shallow).cloned().collect();
    let repo = view(lease, &hidden, &scratch.path().join("cut"))?;
    // The user's own clone may be shallow: the other side must know where.
    shallow.extend(own_cut);
    shallow.sort();
    shallow.dedup();
    let mut revisions: String = parcel.want.iter().map(|oid| format!("{oid}\n")).collect();
    let theirs = known_here(&own, &have.objects).await?;
    let carriers = [received(lease), sent(lease)].concat();
    for oid in &theirs {
        revisions.push_str(&format!("^{oid}\n"));
        if carriers.contains(oid) {
            // Git itself looks only into the trees of ancestors; what is in no commit is in these.
            revisions.push_str(&format!("^{oid}^{{tree}}\n"));
        }
    }
    let args = ["pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--all-progress"];
    let path = scratch.path().join("pack");
    let (sha256, bytes) = run_pack(&repo, &args, revisions.as_bytes(), &path, tell).await?;
    let kept = lease.dir().join("outgoing").join(format!("{sha256}.pack"));
    std::fs::rename(&path, &kept).map_err(io(&kept))?;
    Ok(Packed { ticket: Ticket { sha256, bytes, want: parcel.want.clone(), shallow }, path: kept })
}

/// Those that this side knows too.
async fn known_here(repo: &Repo, objects: &[Oid]) -> Result<Vec<Oid>, SnapshotError> {
    let stdin: String = objects.iter().map(|oid| format!("{oid}\n")).collect();
    let text = repo.ask(&["cat-file", "--batch-check=%(objectname) %(objecttype)"], stdin.as_bytes()).await?;
    let text = String::from_utf8_lossy(&text);
    let found = text.lines().filter(|line| !line.ends_with(" missing")).filter_map(|line| line.split(' ').next());
    found.map(str::parse).collect()
}

const RECEIVED: &str = "received";
/// Names kept of what was sent or received.
const KEPT: usize = 32;

/// Names of what came in lately, newest first.
fn received(lease: &Lease) -> Vec<Oid> {
    names(&lease.dir().join(RECEIVED))
}

/// Names of what was sent lately, newest first.
fn sent(lease: &Lease) -> Vec<Oid> {
    names(&lease.dir().join("sent"))
}

fn names(path: &Path) -> Vec<Oid> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

impl Packed {
    /// The bytes from `offset` on.
    ///
    /// # Errors
    /// The file is gone.
    pub async fn reader(&self, offset: u64) -> Result<tokio::fs::File, SnapshotError> {
        let mut file = tokio::fs::File::open(&self.path).await.map_err(io(&self.path))?;
        file.seek(std::io::SeekFrom::Start(offset)).await.map_err(io(&self.path))?;
        Ok(file)
    }

    /// The other side has it all: the file goes, and the next offer names what was sent.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn delivered(self, lease: &Lease) -> Result<(), SnapshotError> {
        let path = lease.dir().join("sent");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let first = self.ticket.want.first().map(ToString::to_string);
        let lines: Vec<&str> = first.iter().map(String::as_str).chain(before.lines()).take(KEPT).collect();
        write_beside(&path, lines.join("\n").as_bytes())?;
        match std::fs::remove_file(&self.path) {
            // Another process sent the very same.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(io(&self.path)),
        }
    }
}

/// How much of a pack has arrived: where the sender goes on, in bytes.
#[must_use]
pub fn arrived(lease: &Lease, ticket: &Ticket) -> u64 {
    part_path(lease, ticket).ok().and_then(|path| path.metadata().ok()).map_or(0, |meta| meta.len())
}

/// Takes the bytes from [`arrived`] on; after the last one checks them all and moves the objects in, all or none.
///
/// # Errors
/// `Incomplete`: the reader ended early, resume. `Digest`: start again. Others: objects that Git refuses.
pub async fn receive(
    lease: &Lease,
    ticket: &Ticket,
    reader: impl AsyncRead + Send + Unpin,
) -> Result<(), SnapshotError> {
    let path = part_path(lease, ticket)?;
    let file = std::fs::File::options().create(true).append(true).open(&path).map_err(io(&path))?;
    file.try_lock().map_err(|error| io(&path)(error.into()))?;
    let have = file.metadata().map_err(io(&path))?.len();
    let mut file = tokio::fs::File::from_std(file);
    let mut limited = reader.take(ticket.bytes.saturating_sub(have));
    let copied = tokio::io::copy(&mut limited, &mut file).await;
    file.sync_data().await.map_err(io(&path))?;
    let have = file.metadata().await.map_err(io(&path))?.len();
    if have < ticket.bytes {
        copied.map_err(io(&path))?;
        return Err(SnapshotError::Incomplete { have, want: ticket.bytes });
    }
    let read = path.clone();
    let found = blocking(move || digest(&read)).await?;
    if found != ticket.sha256 || have != ticket.bytes {
        std::fs::remove_file(&path).map_err(io(&path))?;
        return Err(SnapshotError::Digest { expected: ticket.sha256.clone(), found });
    }
    install(lease, ticket, &path).await?;
    std::fs::remove_file(&path).map_err(io(path))
}

/// Old repositories are full of these, and they do no harm.
const TOLERATED: &str = "--strict=zeroPaddedFilemode=ignore,badTimezone=ignore,missingSpaceBeforeDate=ignore,\
                         missingSpaceBeforeEmail=ignore,zeroPaddedDate=ignore,badEmail=ignore,missingEmail=ignore,\
                         missingNameBeforeEmail=ignore,multipleAuthors=ignore,missingTaggerEntry=ignore,\
                         badFilemode=ignore,nullSha1=ignore,gitmodulesParse=ignore,gitmodulesUrl=ignore,\
                         gitmodulesName=ignore,gitmodulesPath=ignore,gitmodulesUpdate=ignore";

async fn install(lease: &Lease, ticket: &Ticket, pack: &Path) -> Result<(), SnapshotError> {
    let scratch = lease.scratch()?;
    let mut repo = view(lease, &ticket.shallow, scratch.path())?;
    let quarantine = scratch.path().join("objects");
    repo.objects = Some(quarantine.clone());
    repo.alternates.push(lease.objects());
    let bytes = std::fs::File::open(pack).map_err(io(pack))?;
    let args = ["index-pack", "--stdin", "--fix-thin", TOLERATED];
    let words: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
    let mut command = repo.command(&words);
    command.stdin(Stdio::from(bytes)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = tokio::time::timeout(DEADLINE, command.output())
        .await
        .map_err(|_| SnapshotError::Deadline { command: args.join(" "), seconds: DEADLINE.as_secs() })?
        .map_err(io("git"))?;
    if !output.status.success() {
        return Err(repo.failed(&args[..3], String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let wanted: String = ticket.want.iter().map(|oid| format!("{oid}\n")).collect();
    let found = repo.ask(&["cat-file", "--batch-check"], wanted.as_bytes()).await?;
    if let Some(line) = String::from_utf8_lossy(&found).lines().find(|line| line.ends_with(" missing")) {
        return Err(SnapshotError::Damaged { what: "the transfer", detail: line.to_owned() });
    }
    let lock_path = lease.dir().join("install.lock");
    let lock = std::fs::File::create(&lock_path).map_err(io(&lock_path))?;
    let lock = blocking(move || lock.lock().map(|()| lock).map_err(io(lock_path))).await?;
    // Before the objects: a commit that is there and not marked as cut would look broken.
    let shallow: BTreeSet<Oid> =
        shallow_of(&lease.git_dir()).into_iter().chain(ticket.shallow.iter().cloned()).collect();
    if !shallow.is_empty() {
        let text: String = shallow.iter().map(|oid| format!("{oid}\n")).collect();
        write_beside(&lease.git_dir().join("shallow"), text.as_bytes())?;
    }
    let packs = quarantine.join("pack");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&packs).map_err(io(&packs))?.flatten().map(|entry| entry.path()).collect();
    // Git looks for `.idx`: it comes last.
    files.sort_by_key(|path| path.extension().is_some_and(|extension| extension == "idx"));
    for file in files {
        let to = lease.objects().join("pack").join(file.file_name().unwrap_or_default());
        std::fs::rename(&file, &to).map_err(io(to))?;
    }
    let before = received(lease);
    let names = ticket.want.iter().take(1).chain(&before).take(KEPT);
    let text: String = names.map(|oid| format!("{oid}\n")).collect();
    write_beside(&lease.dir().join(RECEIVED), text.as_bytes())?;
    drop(lock);
    Ok(())
}

/// The store and the user's objects through a Git directory that cuts history at `shallow` too.
fn view(lease: &Lease, shallow: &[Oid], scratch: &Path) -> Result<Repo, SnapshotError> {
    write_git_dir(scratch, lease.format(), "")?;
    let mut all: BTreeSet<Oid> = shallow_of(&lease.git_dir()).into_iter().chain(shallow.iter().cloned()).collect();
    all.extend(lease.sources().iter().filter_map(|objects| objects.parent()).flat_map(shallow_of));
    if !all.is_empty() {
        let text: String = all.iter().map(|oid| format!("{oid}\n")).collect();
        std::fs::write(scratch.join("shallow"), text).map_err(io(scratch))?;
    }
    let mut repo = Repo::bare(&lease.repo().git, scratch).reading(lease.sources());
    repo.objects = Some(lease.objects());
    Ok(repo)
}

pub(super) fn shallow_of(git_dir: &Path) -> Vec<Oid> {
    let text = std::fs::read_to_string(git_dir.join("shallow")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

pub(super) fn part_path(lease: &Lease, ticket: &Ticket) -> Result<PathBuf, SnapshotError> {
    if ticket.sha256.len() != 64 || !ticket.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(SnapshotError::Damaged { what: "the ticket", detail: "its digest is none".to_owned() });
    }
    Ok(lease.dir().join("incoming").join(format!("{}.part", ticket.sha256)))
}

fn digest(path: &Path) -> Result<String, SnapshotError> {
    let mut file = std::fs::File::open(path).map_err(io(path))?;
    let (mut sha256, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        let count = file.read(&mut buffer).map_err(io(path))?;
        if count == 0 {
            return Ok(hex(&sha256.finalize()));
        }
        sha256.update(&buffer[..count]);
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
