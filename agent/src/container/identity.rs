//! As whom an attempt container runs, so that what it writes belongs to the worktree's owner.

use std::path::Path;

use serde::Serialize;

use crate::container::info::{EngineInfo, EngineKind};

/// Numeric user and group on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// The owner of a file, links not followed.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let meta = path.symlink_metadata()?;
        Ok(Self { uid: meta.uid(), gid: meta.gid() })
    }

    /// Our own effective user and group.
    #[must_use]
    pub fn current() -> Self {
        Self { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() }
    }
}

/// How the container's user becomes the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserMapping {
    /// The same numbers on both sides.
    Direct,
    /// A rootful engine and a root-owned worktree: the mounts are id-mapped, an ordinary user inside is root on the disk.
    Idmapped,
    /// Rootless Podman's `keep-id`: the engine's user, same numbers.
    KeepId,
    /// Rootless Docker: uid 0 of a user namespace whose root is the engine's user.
    RootlessRoot,
    /// Root without any capability: the fallback where id-mapped mounts cannot be had. Always a finding.
    PowerlessRoot,
}

/// User and group inside, and how they map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// Who owns, on the host, what the container writes.
    pub host: Owner,
    pub mapping: UserMapping,
}

/// The inside user of id-mapped mounts.
pub const ORDINARY_USER: u32 = 1000;

/// No user fits.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(
        "the working directory belongs to uid {owner}, and the rootless engine at {address} runs as uid {engine}, which cannot write there: run laneyard as uid {engine} on a directory of its own, or choose another engine with --engine"
    )]
    ForeignWorktree { owner: u32, engine: u32, address: String },
}

/// Chooses the container's user. `writes`: the lane may write; `idmap`: id-mapped mounts were tried and work here.
///
/// # Errors
/// No user inside could write as the worktree's owner.
pub fn choose(
    engine: &EngineInfo,
    owner: Owner,
    me: Owner,
    writes: bool,
    idmap: bool,
) -> Result<Identity, IdentityError> {
    if engine.rootless {
        let user = engine.socket_uid.unwrap_or(me.uid);
        if owner.uid != user && writes {
            return Err(IdentityError::ForeignWorktree {
                owner: owner.uid,
                engine: user,
                address: engine.address.clone(),
            });
        }
        let host = Owner { uid: user, gid: if owner.uid == user { owner.gid } else { me.gid } };
        return Ok(match engine.kind {
            // keep-id maps the engine user's own group only, so the inside group is the user's primary one.
            EngineKind::Podman => {
                let gid = primary_group(user).unwrap_or(host.gid);
                Identity { uid: user, gid, host: Owner { uid: user, gid }, mapping: UserMapping::KeepId }
            }
            EngineKind::Docker => Identity { uid: 0, gid: 0, host, mapping: UserMapping::RootlessRoot },
        });
    }
    // Somebody who is not root gets their own identity, also on a foreign worktree: the engine must not lend them more.
    let host = if me.uid == 0 || owner.uid == me.uid { owner } else { me };
    Ok(if host.uid != 0 {
        Identity { uid: host.uid, gid: host.gid, host, mapping: UserMapping::Direct }
    } else if idmap {
        Identity { uid: ORDINARY_USER, gid: ORDINARY_USER, host, mapping: UserMapping::Idmapped }
    } else {
        Identity { uid: 0, gid: host.gid, host, mapping: UserMapping::PowerlessRoot }
    })
}

fn primary_group(uid: u32) -> Option<u32> {
    nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten().map(|user| user.gid.as_raw())
}
