//! From a worktree plan to what the engine is told: the user inside, the mounts, and the guard that cleans up.

use std::os::unix::fs::{PermissionsExt, chown};
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
    #[error("cannot give `{path}` to the lane's user")]
    RunDir { path: PathBuf, source: std::io::Error },
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
/// `/run/laneyard` and handed to the lane's user: create what is in it before, or give later files mode 0666.
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
    if identity.host.uid != plan.owner.uid {
        findings.push(Finding::new(
            "foreign-worktree",
            format!(
                "the working directory belongs to uid {}, the lane acts as uid {}",
                plan.owner.uid, identity.host.uid
            ),
        ));
    }
    hand_over(run_dir, identity.host, me)
        .map_err(|source| PrepareError::RunDir { path: run_dir.to_owned(), source })?;
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

/// Our run directory, two levels at most: the lane's user must be able to reach the sockets and run the supervisor.
fn hand_over(run_dir: &Path, host: Owner, me: Owner) -> std::io::Result<()> {
    if me.uid != 0 || host.uid == 0 {
        return Ok(());
    }
    chown(run_dir, Some(host.uid), Some(host.gid))?;
    std::fs::set_permissions(run_dir, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(run_dir)? {
        std::os::unix::fs::lchown(entry?.path(), Some(host.uid), Some(host.gid))?;
    }
    Ok(())
}

fn chain(error: &IdmapError) -> String {
    format!("{error}: {}", error.source)
}
