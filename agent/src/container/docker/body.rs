//! From our specification to the engine's create request. Pure: every default of the isolation is visible here.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount as WireMount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};

use crate::container::EngineError;
use crate::container::identity::UserMapping;
use crate::container::info::{EngineInfo, EngineKind};
use crate::container::spec::{Access, ContainerSpec, HOME, HOSTNAME, Mount, SystemPaths};

/// Open files: enough for every CLI seen, and at most what this machine allows us.
const NOFILE: u64 = 65_536;
/// Processes of the lane's user, on the whole machine.
const NPROC: u64 = 1 << 20;
/// Shared memory, bytes.
const SHM: i64 = 64 << 20;

pub(super) fn create(
    spec: &ContainerSpec,
    engine: &EngineInfo,
    seccomp: &str,
) -> Result<ContainerCreateBody, EngineError> {
    let mut env = spec.env.clone();
    env.entry("HOME".to_owned()).or_insert_with(|| HOME.to_owned());
    env.entry("TMPDIR".to_owned()).or_insert_with(|| "/tmp".to_owned());
    let mounts = spec.mounts.iter().map(|mount| wire_mount(mount, engine)).collect::<Result<Vec<_>, _>>()?;
    Ok(ContainerCreateBody {
        hostname: Some(HOSTNAME.to_owned()),
        user: Some(format!("{}:{}", spec.identity.uid, spec.identity.gid)),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        tty: Some(false),
        open_stdin: Some(false),
        env: Some(env.into_iter().map(|(key, value)| format!("{key}={value}")).collect()),
        cmd: Some(spec.args.clone()),
        image: Some(spec.image.clone()),
        working_dir: Some(spec.workdir.display().to_string()),
        entrypoint: Some(spec.entrypoint.clone()),
        network_disabled: None,
        labels: Some(spec.labels.to_map().into_iter().collect()),
        stop_signal: Some("SIGTERM".to_owned()),
        host_config: Some(host_config(spec, engine, seccomp, mounts)),
        ..Default::default()
    })
}

fn host_config(spec: &ContainerSpec, engine: &EngineInfo, seccomp: &str, mounts: Vec<WireMount>) -> HostConfig {
    let limits = &spec.limits;
    let memory = i64::try_from(limits.memory).unwrap_or(i64::MAX);
    let mut host = HostConfig {
        memory: Some(memory).filter(|_| engine.limits.memory),
        // The same number: no swap on top.
        memory_swap: Some(memory).filter(|_| engine.limits.memory && engine.limits.swap),
        nano_cpus: limits.cpus.filter(|_| engine.limits.cpus).map(nano_cpus),
        pids_limit: Some(i64::from(limits.pids)).filter(|_| engine.limits.pids),
        ulimits: Some(ulimits(engine)),
        init: Some(false),
        log_config: Some(log_config(engine.kind)),
        network_mode: Some("none".to_owned()),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        auto_remove: Some(false),
        mounts: Some(mounts),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        privileged: Some(false),
        publish_all_ports: Some(false),
        readonly_rootfs: Some(true),
        security_opt: Some(security_options(spec, engine, seccomp)),
        tmpfs: Some(tmpfs(spec, engine.kind)),
        userns_mode: userns_mode(spec, engine).map(str::to_owned),
        shm_size: Some(SHM),
        ..Default::default()
    };
    if spec.system_paths == SystemPaths::Unmasked && engine.kind == EngineKind::Docker {
        host.masked_paths = Some(Vec::new());
        host.readonly_paths = Some(Vec::new());
    }
    host
}

fn nano_cpus(cpus: f64) -> i64 {
    // Between a hundredth of a CPU and 10,000 CPUs, so the cast keeps the value.
    #[allow(clippy::cast_possible_truncation)]
    let nano = (cpus.clamp(0.01, 10_000.0) * 1e9) as i64;
    nano
}

fn userns_mode(spec: &ContainerSpec, engine: &EngineInfo) -> Option<&'static str> {
    match spec.identity.mapping {
        UserMapping::KeepId => Some("keep-id"),
        // The daemon-wide remapping would turn the worktree's owner into a stranger.
        _ if engine.userns_remap => Some("host"),
        _ => None,
    }
}

fn security_options(spec: &ContainerSpec, engine: &EngineInfo, seccomp: &str) -> Vec<String> {
    let mut options = vec!["no-new-privileges".to_owned(), seccomp.to_owned()];
    if engine.kind == EngineKind::Podman && spec.system_paths == SystemPaths::Unmasked {
        options.push("unmask=ALL".to_owned());
    }
    if engine.selinux {
        // Relabelling would change the user's tree: this one container goes without labels, and the report says so.
        options.push(if engine.kind == EngineKind::Podman { "label=disable" } else { "label:disable" }.to_owned());
    }
    options
}

fn log_config(kind: EngineKind) -> HostConfigLogConfig {
    let options = match kind {
        EngineKind::Docker => {
            HashMap::from([("max-size".to_owned(), "1m".to_owned()), ("max-file".to_owned(), "1".to_owned())])
        }
        EngineKind::Podman => HashMap::from([("max-size".to_owned(), "1m".to_owned())]),
    };
    HostConfigLogConfig { typ: Some("json-file".to_owned()), config: Some(options) }
}

/// Lowered to what this machine allows: an engine without the right to raise limits cannot start a container otherwise.
fn ulimits(engine: &EngineInfo) -> Vec<ResourcesUlimits> {
    let limit = |name: &str, value: u64| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        ResourcesUlimits { name: Some(name.to_owned()), soft: Some(value), hard: Some(value) }
    };
    let mut limits = vec![limit("nofile", engine.ceilings.open_files.min(NOFILE)), limit("core", 0)];
    // Podman asks for a huge number of its own accord; processes of the container are limited by its control group.
    if engine.kind == EngineKind::Podman {
        limits.push(limit("nproc", engine.ceilings.processes.min(NPROC)));
    }
    limits
}

fn tmpfs(spec: &ContainerSpec, kind: EngineKind) -> HashMap<String, String> {
    let size = spec.limits.scratch;
    let mut all = HashMap::from([("/tmp".to_owned(), format!("rw,nosuid,nodev,exec,mode=1777,size={size}"))]);
    let home = match kind {
        EngineKind::Docker => {
            let identity = &spec.identity;
            format!("rw,nosuid,nodev,exec,mode=0700,uid={},gid={},size={size}", identity.uid, identity.gid)
        }
        // No uid= there; nobody else lives in the container.
        EngineKind::Podman => format!("rw,nosuid,nodev,exec,mode=1777,size={size}"),
    };
    all.insert(HOME.to_owned(), home);
    all
}

fn wire_mount(mount: &Mount, engine: &EngineInfo) -> Result<WireMount, EngineError> {
    for path in [&mount.source, &mount.target] {
        check_path(path, engine.kind)?;
    }
    Ok(WireMount {
        target: Some(mount.target.display().to_string()),
        source: Some(mount.source.display().to_string()),
        typ: Some(MountType::BIND),
        read_only: Some(mount.access == Access::ReadOnly),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            // A read-only bind does not reach mounts below it on older engines, so none are carried in.
            non_recursive: Some(mount.access == Access::ReadOnly),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn check_path(path: &Path, kind: EngineKind) -> Result<(), EngineError> {
    let refuse = |reason: &str| Err(EngineError::Mount { path: path.to_owned(), reason: reason.to_owned() });
    let Some(text) = path.to_str() else {
        return refuse("the path is not UTF-8, and the engine's interface is JSON: rename the directory");
    };
    if !path.is_absolute() {
        return refuse("the path is not absolute");
    }
    if kind == EngineKind::Podman && text.contains([',', '"', '\n']) {
        return refuse(
            "Podman cannot take a comma, a quote or a line break in a mount path: rename the directory or use Docker",
        );
    }
    Ok(())
}
