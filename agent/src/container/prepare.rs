//! From a worktree plan to what the engine is told: the user inside, the mounts, and the guard that cleans up.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::container::Finding;
use crate::container::discover::covers_engine_socket;
use crate::container::identity::{self, Identity, IdentityError, Owner, UserMapping};
use crate::container::idmap::{self, IdmapError, IdmapMounts};
use crate::container::info::EngineInfo;
use crate::container::spec::{Access, Mount, RUN_DIR};
use crate::worktree::WorktreePlan;

/// The mounts cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(
        "`{path}` contains the engine's socket {address}, which never enters a lane: choose another working directory"
    )]
    EngineSocket { path: PathBuf, address: String },
    #[error("`{path}` overlaps the engine's storage `{storage}`: choose another working directory")]
    EngineStorage { path: PathBuf, storage: PathBuf },
    #[error("cannot make the mount point `{path}`")]
    MountPoint { path: PathBuf, source: std::io::Error },
}

/// Everything about user and mounts.
#[derive(Debug)]
pub struct Prepared {
    pub identity: Identity,
    /// For [`crate::container::ContainerSpec::mounts`].
    pub mounts: Vec<Mount>,
    pub findings: Vec<Finding>,
    guard: Option<IdmapMounts>,
}

impl Prepared {
    /// Detaches the host side's helper mounts. Call it once the container has started: it has copies of its own.
    pub fn release(&mut self) {
        self.guard = None;
    }
}

/// Where helper mounts of an attempt live.
fn mounts_dir(attempt_dir: &Path) -> PathBuf {
    attempt_dir.join("mounts")
}

/// Removes what a killed agent left of an attempt's helper mounts.
pub fn sweep_mounts(attempt_dir: &Path) {
    idmap::sweep(&mounts_dir(attempt_dir));
}

/// Chooses the user and builds the mounts. `run_dir` (ours, with the supervisor and the sockets) is mounted read-only at
/// `/run/laneyard`; it and what is in it must be open to everybody who can reach it (0755, sockets 0666), for the lane's
/// user is seldom ours.
///
/// # Errors
/// No user fits, or the plan would carry the engine's socket in.
pub fn prepare(
    engine: &EngineInfo,
    plan: &WorktreePlan,
    attempt_dir: &Path,
    run_dir: &Path,
) -> Result<Prepared, PrepareError> {
    let mut planned = plan.mounts.clone();
    for mount in &planned {
        if covers_engine_socket(&mount.source, &engine.address) {
            return Err(PrepareError::EngineSocket { path: mount.source.clone(), address: engine.address.clone() });
        }
        let storage = &engine.storage_root;
        if storage.is_dir() && (mount.source.starts_with(storage) || storage.starts_with(&mount.source)) {
            return Err(PrepareError::EngineStorage { path: mount.source.clone(), storage: storage.clone() });
        }
    }
    planned.push(Mount { source: run_dir.to_owned(), target: PathBuf::from(RUN_DIR), access: Access::ReadOnly });
    let me = Owner::current();
    let mut identity = identity::choose(engine, plan.owner, me, plan.writes(), true)?;
    let mut findings = plan.findings.clone();
    let mut guard = None;
    let mut mounts = planned.clone();
    if identity.mapping == UserMapping::Idmapped {
        let inside = Owner { uid: identity.uid, gid: identity.gid };
        match idmapped(&planned, attempt_dir, identity.host, inside) {
            Ok((translated, owned)) => {
                mounts = translated;
                guard = Some(owned);
            }
            Err(error) => {
                findings.push(Finding::new("no-id-mapped-mounts", chain(&error)));
                identity = identity::choose(engine, plan.owner, me, plan.writes(), false)?;
            }
        }
    }
    mounts.extend(open_root_home(&planned, attempt_dir)?);
    if identity.host.uid != plan.owner.uid {
        findings.push(Finding::new(
            "foreign-worktree",
            format!(
                "the working directory belongs to uid {}, the lane acts as uid {}",
                plan.owner.uid, identity.host.uid
            ),
        ));
    }
    Ok(Prepared { identity, mounts, findings, guard })
}

fn idmapped(
    planned: &[Mount],
    attempt_dir: &Path,
    disk: Owner,
    inside: Owner,
) -> Result<(Vec<Mount>, IdmapMounts), IdmapError> {
    let mut owned = IdmapMounts::new(mounts_dir(attempt_dir))?;
    let mut mounts = Vec::with_capacity(planned.len());
    for mount in planned {
        let source = owned.add(&mount.source, disk, inside)?;
        mounts.push(Mount { source, ..mount.clone() });
    }
    Ok((mounts, owned))
}

/// Images keep root's home closed (0700), and a worktree below it could not be reached through it: an open directory of
/// ours, which holds nothing but the mount points, is mounted over it. A tmpfs would keep the image's mode.
fn open_root_home(planned: &[Mount], attempt_dir: &Path) -> Result<Option<Mount>, PrepareError> {
    let root_home = Path::new("/root");
    let below = |mount: &&Mount| mount.target != root_home && mount.target.starts_with(root_home);
    if planned.iter().any(|mount| mount.target == root_home) || !planned.iter().any(|mount| below(&mount)) {
        return Ok(None);
    }
    let source = attempt_dir.join("root-home");
    for mount in planned.iter().filter(below) {
        // Mount points inside another mount are there already.
        let covered = |other: &Mount| other.target != mount.target && mount.target.starts_with(&other.target);
        let Ok(tail) = mount.target.strip_prefix(root_home) else { continue };
        if !planned.iter().any(covered) {
            let point = source.join(tail);
            mount_point(&source, &point, mount.source.is_dir())
                .map_err(|source| PrepareError::MountPoint { path: point, source })?;
        }
    }
    Ok(Some(Mount { source, target: root_home.to_owned(), access: Access::ReadOnly }))
}

fn mount_point(base: &Path, point: &Path, directory: bool) -> std::io::Result<()> {
    let parent = if directory { point } else { point.parent().unwrap_or(base) };
    std::fs::create_dir_all(parent)?;
    // Whatever the umask is: the lane's user goes through all of them.
    for dir in parent.ancestors().take_while(|dir| dir.starts_with(base)) {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?;
    }
    if directory { Ok(()) } else { std::fs::write(point, b"") }
}

fn chain(error: &IdmapError) -> String {
    format!("{error}: {}", error.source)
}
