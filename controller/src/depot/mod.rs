//! What travels through the controller: snapshots on their way to workers, results on their way back.
//!
//! Objects are kept in a bare repository per submitter and project. Its name is derived from both, so what one submitter
//! sent can never be named by another, and a worker that serves both keeps them apart in the same way.

mod making; // packs that are being made
mod results; // which attempt left which result
mod waiting; // results that workers could not bring

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::ids::AttemptId;
use agent::ids::WorkerId;
use agent::snapshot::result::ResultTree;
use agent::snapshot::transfer::{self, Have, Offer, Packing, Parcel, Ticket};
use agent::snapshot::{Cache, History, Lease, ObjectFormat, Oid, ProjectId, Snapshot, SnapshotError, pending};
use agent::wire::snapshot::{Announce, Arrived, SnapshotRef, Waiting};
use agent::worktree::git::Git;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncSeekExt as _};

use self::making::{Making, What};
pub use self::results::Left;
use self::results::Results;
use self::waiting::Told;

/// An attempt that is not known yet may still be on its way for so long after its snapshot was pinned.
const ON_ITS_WAY: Duration = Duration::from_secs(3600);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all projects together; what is in use stays beyond it.
    pub cache: u64,
    /// Bytes of one pack.
    pub pack: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cache: 20 << 30, pack: 8 << 30 }
    }
}

/// The objects of all submitters. Clones share them.
#[derive(Clone, Debug)]
pub struct Depot {
    cache: Cache,
    results: Results,
    limits: Limits,
    making: Making,
    told: Told,
    sweeping: Arc<tokio::sync::Mutex<()>>,
}

/// Objects cannot be kept or had.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("snapshot {id} is not here, or not any more")]
    NoSnapshot { id: Oid },
    #[error("attempt {attempt} left no result here")]
    NoResult { attempt: AttemptId },
    #[error("there is no pack {sha256} here, or not any more")]
    NoPack { sha256: String },
    #[error("{have} bytes are here, so the upload cannot go on at {offset}")]
    WrongOffset { have: u64, offset: u64 },
    #[error("a pack of {bytes} bytes is larger than the {limit} that this controller takes")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("cannot {what} `{}`: {source}", path.display())]
    File { what: &'static str, path: std::path::PathBuf, source: std::io::Error },
}

/// What of an attempt is fetched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Goods {
    Snapshot,
    Result(Oid),
}

impl Depot {
    /// Opens or makes the directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path, limits: Limits) -> Result<Self, DepotError> {
        let cache = Cache::open(&dir.join("objects"), limits.cache, &Git::new())?;
        let results = Results::open(&dir.join("results"))?;
        Ok(Self { cache, results, limits, making: Making::default(), told: Told::default(), sweeping: Arc::default() })
    }

    async fn lease(&self, submitter: &str, project: &ProjectId, format: ObjectFormat) -> Result<Lease, DepotError> {
        let (cache, name) = (self.cache.clone(), derived(submitter, project));
        // An eviction may hold the project for a moment.
        let lease = tokio::task::spawn_blocking(move || cache.lease(&name, format)).await;
        Ok(lease.map_err(|error| SnapshotError::Unscannable { detail: error.to_string() })??)
    }

    /// What is here of a submitter's offer.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn answer(&self, submitter: &str, offer: &Offer) -> Result<Have, DepotError> {
        let lease = self.lease(submitter, &offer.project, offer.format).await?;
        Ok(transfer::answer(&lease, offer).await?)
    }

    /// A pack is about to come, or to go on.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn announce(&self, submitter: &str, announce: &Announce) -> Result<Arrived, DepotError> {
        let (bytes, limit) = (announce.ticket.bytes, self.limits.pack);
        if bytes > limit {
            return Err(DepotError::TooLarge { bytes, limit });
        }
        let lease = self.lease(submitter, &announce.project, announce.format).await?;
        let (bytes, complete) = pending::announce(&lease, &announce.ticket).await?;
        Ok(Arrived { bytes, complete })
    }

    /// Takes the bytes of an announced pack from `offset` on. A body that ends early is no error: the answer says how far
    /// it came.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn accept(
        &self,
        submitter: &str,
        (project, format): (&ProjectId, ObjectFormat),
        (sha256, offset): (&str, u64),
        mut reader: impl AsyncRead + Send + Unpin,
    ) -> Result<Arrived, DepotError> {
        let lease = self.lease(submitter, project, format).await?;
        let ticket = pending::announced(&lease, sha256)?;
        let ticket = ticket.ok_or_else(|| DepotError::NoPack { sha256: sha256.to_owned() })?;
        let have = transfer::arrived(&lease, &ticket);
        let Some(known) = have.checked_sub(offset) else { return Err(DepotError::WrongOffset { have, offset }) };
        // Bytes that an earlier request brought are passed over.
        let mut sink = tokio::io::sink();
        let skipped = tokio::io::copy(&mut (&mut reader).take(known), &mut sink).await;
        if !skipped.is_ok_and(|skipped| skipped == known) {
            return Ok(Arrived { bytes: have, complete: false });
        }
        match transfer::receive(&lease, &ticket, reader).await {
            Ok(()) => {
                pending::settled(&lease, sha256);
                Ok(Arrived { bytes: ticket.bytes, complete: true })
            }
            Err(SnapshotError::Incomplete { have, .. }) => Ok(Arrived { bytes: have, complete: false }),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps a snapshot for an attempt that is being submitted.
    ///
    /// # Errors
    /// It is not here, or not this submitter's.
    pub async fn hold(&self, submitter: &str, attempt: AttemptId, snapshot: &SnapshotRef) -> Result<(), DepotError> {
        let lease = self.lease(submitter, &snapshot.project, snapshot.format).await?;
        lease.pin(&attempt.to_string())?;
        match load(&lease, snapshot).await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.cache.unpin(lease.project(), &attempt.to_string())?;
                Err(error)
            }
        }
    }

    /// What a worker (a snapshot) or a client (a result) is offered.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn offered(
        &self,
        submitter: &str,
        snapshot: &SnapshotRef,
        goods: &Goods,
        to_client: bool,
    ) -> Result<Offer, DepotError> {
        let lease = self.lease(submitter, &snapshot.project, snapshot.format).await?;
        let parcel = parcel(&lease, snapshot, goods).await?;
        let offer = transfer::offer(&lease, &parcel).await?;
        // A client knows its project by the name that it gave; a worker by the one that nobody else can name.
        let project = if to_client { snapshot.project.clone() } else { lease.project().clone() };
        Ok(Offer { project, ..offer })
    }

    /// Packs what the other side lacks.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn pack(
        &self,
        submitter: &str,
        snapshot: &SnapshotRef,
        goods: &Goods,
        have: &Have,
    ) -> Result<Ticket, DepotError> {
        let lease = self.lease(submitter, &snapshot.project, snapshot.format).await?;
        let parcel = parcel(&lease, snapshot, goods).await?;
        let made = self.making.begin(what(submitter, snapshot, goods));
        // All that is here was meant to travel: it was cut by its client.
        let packed = transfer::pack_and_tell(&lease, &parcel, have, History::Full, &|far| made.tell(far)).await?;
        Ok(packed.ticket)
    }

    /// How far a pack is that somebody waits for; `None` when none is being made.
    #[must_use]
    pub fn packing(&self, submitter: &str, snapshot: &SnapshotRef, goods: &Goods) -> Option<Packing> {
        self.making.look(&what(submitter, snapshot, goods))
    }

    /// The bytes of a pack from `offset` on, and how many they are.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn open_pack(
        &self,
        submitter: &str,
        snapshot: &SnapshotRef,
        sha256: &str,
        offset: u64,
    ) -> Result<(tokio::fs::File, u64), DepotError> {
        let lease = self.lease(submitter, &snapshot.project, snapshot.format).await?;
        let none = || DepotError::NoPack { sha256: sha256.to_owned() };
        let path = pending::made(&lease, sha256)?.ok_or_else(none)?;
        let mut file = tokio::fs::File::open(&path).await.map_err(|_| none())?;
        let failed = |source| DepotError::File { what: "read", path: path.clone(), source };
        let bytes = file.metadata().await.map_err(failed)?.len();
        file.seek(std::io::SeekFrom::Start(offset)).await.map_err(failed)?;
        Ok((file, bytes.saturating_sub(offset)))
    }

    /// All objects of an attempt's result are here: it is the attempt's from now on, durably.
    ///
    /// # Errors
    /// They are not here, or belong to another snapshot.
    pub async fn keep_result(
        &self,
        submitter: &str,
        attempt: AttemptId,
        snapshot: &SnapshotRef,
        result: &Oid,
    ) -> Result<(), DepotError> {
        let lease = self.lease(submitter, &snapshot.project, snapshot.format).await?;
        let taken = load(&lease, snapshot).await?;
        ResultTree::load(&lease, &taken, result).await?;
        lease.pin(&attempt.to_string())?;
        self.results.keep(attempt, submitter, snapshot, result)?;
        self.told.came(attempt);
        Ok(())
    }

    /// What an attempt left.
    ///
    /// # Errors
    /// It left nothing here.
    pub fn left(&self, attempt: AttemptId) -> Result<Left, DepotError> {
        self.results.look(attempt)?.ok_or(DepotError::NoResult { attempt })
    }

    /// A worker says which results it could not bring: all of them.
    pub fn told_waiting(&self, worker: &WorkerId, waiting: Vec<Waiting>) {
        self.told.hear(worker, waiting);
    }

    /// What the worker said of a result that it could not bring.
    #[must_use]
    pub fn waiting(&self, attempt: AttemptId) -> Option<Waiting> {
        self.told.look(attempt)
    }

    /// Every result that is here, oldest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all_left(&self) -> Result<Vec<Left>, DepotError> {
        self.results.all()
    }

    /// Somebody has looked at an attempt's result, or lets it go: it and what its worker still keeps may be removed.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn review(&self, attempt: AttemptId) -> Result<(), DepotError> {
        self.results.review(attempt)
    }

    /// True for a result that nobody has looked at; also when that cannot be told.
    #[must_use]
    pub fn waits(&self, attempt: AttemptId) -> bool {
        self.results.look(attempt).map_or(true, |left| left.is_some_and(|left| !left.reviewed))
    }

    /// True once somebody has looked at it.
    #[must_use]
    pub fn is_reviewed(&self, attempt: AttemptId) -> bool {
        self.results.is_reviewed(attempt)
    }

    /// Forgets a result; its objects go when their project is not used by others.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn remove(&self, attempt: AttemptId) -> Result<(), DepotError> {
        if let Some(left) = self.results.look(attempt)? {
            self.cache.unpin(&derived(&left.submitter, &left.snapshot.project), &attempt.to_string())?;
        }
        self.results.remove(attempt)
    }

    /// Attempts whose snapshots or results are kept from eviction.
    #[must_use]
    pub fn held(&self) -> Vec<AttemptId> {
        let pins = self.cache.pins().unwrap_or_default();
        pins.into_iter().filter_map(|pin| pin.holder.parse().ok()).collect()
    }

    /// Lets go what no attempt needs any more, then removes what is beyond the cap. `ended` tells of attempts that are known
    /// whether they have ended. Results that nobody has looked at stay.
    pub async fn sweep(&self, ended: &BTreeMap<AttemptId, bool>) {
        let Ok(_alone) = self.sweeping.try_lock() else { return };
        let pins = self.cache.pins().unwrap_or_default();
        for pin in pins {
            let Ok(attempt) = pin.holder.parse::<AttemptId>() else { continue };
            let over = ended.get(&attempt).copied().unwrap_or(pin.age > ON_ITS_WAY);
            if over
                && !self.waits(attempt)
                && let Err(error) = self.cache.unpin(&pin.project, &pin.holder)
            {
                tracing::warn!(%attempt, %error, "a snapshot could not be let go");
            }
        }
        let cache = self.cache.clone();
        match tokio::task::spawn_blocking(move || cache.evict()).await {
            Ok(Ok(evicted)) if !evicted.is_empty() => {
                let bytes: u64 = evicted.iter().map(|evicted| evicted.bytes).sum();
                tracing::info!(
                    projects = evicted.len(),
                    bytes,
                    "removed snapshots of projects that were used longest ago"
                );
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the snapshots could not be cut to their size"),
            Err(error) => tracing::warn!(%error, "the snapshots could not be cut to their size"),
        }
    }
}

fn what(submitter: &str, snapshot: &SnapshotRef, goods: &Goods) -> What {
    (derived(submitter, &snapshot.project), snapshot.id.clone(), goods.clone())
}

fn derived(submitter: &str, project: &ProjectId) -> ProjectId {
    ProjectId::derive(submitter.as_bytes(), project.as_str().as_bytes())
}

async fn load(lease: &Lease, snapshot: &SnapshotRef) -> Result<Snapshot, DepotError> {
    let none = || DepotError::NoSnapshot { id: snapshot.id.clone() };
    let loaded = Snapshot::load(lease, &snapshot.id).await.map_err(|error| match error {
        SnapshotError::Io { .. } | SnapshotError::Deadline { .. } => DepotError::Snapshot(error),
        _ => none(),
    })?;
    if loaded.project == snapshot.project { Ok(loaded) } else { Err(none()) }
}

async fn parcel(lease: &Lease, snapshot: &SnapshotRef, goods: &Goods) -> Result<Parcel, DepotError> {
    let taken = load(lease, snapshot).await?;
    Ok(match goods {
        Goods::Snapshot => Parcel::snapshot(&taken)?,
        Goods::Result(result) => Parcel::result(&taken, &ResultTree::load(lease, &taken, result).await?),
    })
}
