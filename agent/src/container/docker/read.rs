//! From the engine's answers to our types. Pure.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bollard::ClientVersion;
use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum, HostConfig,
    ImageInspect, SystemInfo,
};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::container::info::{Ceilings, EngineInfo, EngineKind, LimitSupport, normal_arch};
use crate::container::isolation::{IsolationReport, KernelReport, Limit, LimitReport, MountReport, SelinuxState};
use crate::container::spec::{Access, ContainerId, ContainerSpec, Labels, SystemPaths};
use crate::container::{ContainerState, EngineError, Found, Image, Inspection};

/// The highest API version that both sides speak. `told` is the engine's newest; one that no longer speaks ours says so
/// itself, at the first question.
pub(super) fn agree(
    address: &str,
    told: &str,
    ours_min: ClientVersion,
    ours_max: ClientVersion,
) -> Result<ClientVersion, EngineError> {
    let parse = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse::<usize>().ok()?, minor.parse::<usize>().ok()?))
    };
    let newest = parse(told).ok_or_else(|| EngineError::Answer {
        operation: "tell its version".to_owned(),
        reason: format!("`{told}` is no API version: is {address} really a container engine?"),
    })?;
    let low = (ours_min.major_version, ours_min.minor_version);
    let high = (ours_max.major_version, ours_max.minor_version);
    let agreed = newest.min(high);
    if agreed < low {
        let text = |(major, minor): (usize, usize)| format!("{major}.{minor}");
        return Err(EngineError::Version {
            address: address.to_owned(),
            engine: told.to_owned(),
            ours_min: text(low),
            ours_max: text(high),
        });
    }
    Ok(ClientVersion { major_version: agreed.0, minor_version: agreed.1 })
}

/// `described` is the answer to `/info`.
pub(super) fn info(
    socket: &Path,
    kind: EngineKind,
    agreed: &ClientVersion,
    described: Value,
    asked: OffsetDateTime,
) -> Result<EngineInfo, EngineError> {
    // Podman 4 says it only in a field of its own.
    let says_rootless = described.get("Rootless").and_then(Value::as_bool).unwrap_or(false);
    let info: SystemInfo = serde_json::from_value(described)
        .map_err(|error| EngineError::Answer { operation: "describe itself".to_owned(), reason: error.to_string() })?;
    let options = info.security_options.clone().unwrap_or_default();
    let has = |name: &str| options.iter().any(|option| option.split(',').any(|part| part == format!("name={name}")));
    let rootless = has("rootless") || says_rootless;
    let cgroup = info.cgroup_version.and_then(|version| version.to_string().parse().ok());
    // Rootless on cgroup v1 takes limits and ignores them, whatever the flags say.
    let real = !(rootless && cgroup == Some(1));
    let clock_skew_ms =
        info.system_time.as_deref().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok()).map(|theirs| {
            let now = OffsetDateTime::now_utc();
            let skew = |ours: OffsetDateTime| i64::try_from((theirs - ours).whole_milliseconds()).unwrap_or(i64::MAX);
            // Between question and answer is no skew at all.
            if theirs < asked {
                skew(asked)
            } else if theirs > now {
                skew(now)
            } else {
                0
            }
        });
    Ok(EngineInfo {
        kind,
        version: info.server_version.clone().unwrap_or_default(),
        api: format!("{}.{}", agreed.major_version, agreed.minor_version),
        address: socket.display().to_string(),
        socket_uid: std::fs::metadata(socket).ok().map(|meta| meta.uid()),
        rootless,
        userns_remap: has("userns"),
        cgroup,
        seccomp: has("seccomp"),
        selinux: has("selinux"),
        apparmor: has("apparmor"),
        arch: normal_arch(info.architecture.as_deref().unwrap_or("")),
        os: info.os_type.clone().unwrap_or_default(),
        operating_system: info.operating_system.clone().unwrap_or_default(),
        kernel: info.kernel_version.clone().unwrap_or_default(),
        storage_driver: info.driver.clone().unwrap_or_default(),
        // An engine that does not say owns nothing: an empty path would be a prefix of every other.
        storage_root: PathBuf::from(
            info.docker_root_dir.as_deref().filter(|text| text.len() > 1).unwrap_or("/nonexistent"),
        ),
        cpus: info.ncpu.and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        memory: info.mem_total.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
        ceilings: Ceilings::of(None),
        limits: LimitSupport {
            memory: real && info.memory_limit == Some(true),
            swap: real && info.swap_limit == Some(true),
            pids: real && info.pids_limit == Some(true),
            cpus: real && info.cpu_cfs_quota == Some(true),
        },
        clock_skew_ms,
        warnings: info.warnings.clone().unwrap_or_default(),
    })
}

pub(super) fn image(reference: &str, found: &ImageInspect) -> Image {
    Image {
        reference: reference.to_owned(),
        id: with_algorithm(found.id.as_deref().unwrap_or_default()),
        digest: found
            .repo_digests
            .iter()
            .flatten()
            .find_map(|text| text.split_once('@'))
            .map(|(_, digest)| digest.to_owned()),
        arch: normal_arch(found.architecture.as_deref().unwrap_or("")),
        os: found.os.clone().unwrap_or_default(),
        size: found.size.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
    }
}

/// Podman leaves the algorithm out.
fn with_algorithm(id: &str) -> String {
    if id.contains(':') { id.to_owned() } else { format!("sha256:{id}") }
}

pub(super) fn inspection(found: &ContainerInspectResponse) -> Result<Inspection, EngineError> {
    let unreadable = |reason: &str| EngineError::Answer { operation: "inspect".to_owned(), reason: reason.to_owned() };
    let state = found.state.as_ref().ok_or_else(|| unreadable("no State"))?;
    let id = found.id.as_deref().ok_or_else(|| unreadable("no Id"))?;
    let time = |text: &Option<String>| text.clone().unwrap_or_default();
    let started = time(&state.started_at);
    let running = state.running == Some(true);
    let never_ran = matches!(state.status, Some(ContainerStateStatusEnum::CREATED));
    let state = if let (true, Some(pid)) =
        (running, state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0))
    {
        ContainerState::Running { pid, started }
    } else if never_ran {
        ContainerState::Created
    } else {
        ContainerState::Exited {
            code: state.exit_code.unwrap_or(-1),
            oom_killed: state.oom_killed == Some(true),
            started,
            finished: time(&state.finished_at),
            error: state.error.clone().filter(|text| !text.is_empty()),
        }
    };
    let config = found.config.as_ref();
    Ok(Inspection {
        id: ContainerId::new(id),
        name: found.name.as_deref().unwrap_or_default().trim_start_matches('/').to_owned(),
        image: with_algorithm(found.image.as_deref().unwrap_or_default()),
        labels: config.and_then(|config| config.labels.clone()).unwrap_or_default().into_iter().collect(),
        state,
    })
}

pub(super) fn found(summary: &ContainerSummary) -> Option<Found> {
    let labels: BTreeMap<String, String> = summary.labels.clone()?.into_iter().collect();
    let name = summary.names.iter().flatten().next().map(|name| name.trim_start_matches('/').to_owned());
    Some(Found {
        id: ContainerId::new(summary.id.clone()?),
        name: name.unwrap_or_default(),
        labels: Labels::parse(&labels)?,
        running: matches!(summary.state, Some(ContainerSummaryStateEnum::RUNNING | ContainerSummaryStateEnum::PAUSED)),
    })
}

pub(super) fn isolation(
    found: &ContainerInspectResponse,
    spec: &ContainerSpec,
    engine: &EngineInfo,
) -> IsolationReport {
    let nothing = HostConfig::default();
    let host = found.host_config.as_ref().unwrap_or(&nothing);
    let options = host.security_opt.clone().unwrap_or_default();
    let pid =
        found.state.as_ref().and_then(|state| state.pid).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let mut report = IsolationReport {
        engine: engine.kind,
        engine_version: engine.version.clone(),
        rootless: engine.rootless,
        identity: spec.identity,
        read_only_root: host.readonly_rootfs == Some(true),
        all_capabilities_dropped: capabilities_dropped(host, engine.kind),
        no_new_privileges: options
            .iter()
            .any(|option| option.starts_with("no-new-privileges") && !option.ends_with("false")),
        privileged: host.privileged == Some(true),
        seccomp: engine.seccomp
            && options.iter().any(|option| option.starts_with("seccomp=") && option != "seccomp=unconfined"),
        app_armor: found.app_armor_profile.clone().filter(|name| !name.is_empty()),
        selinux: match (engine.selinux, options.iter().any(|option| option.ends_with("disable"))) {
            (false, _) => SelinuxState::Absent,
            (true, true) => SelinuxState::DisabledForContainer,
            (true, false) => SelinuxState::Enforced,
        },
        network: host.network_mode.clone().unwrap_or_default(),
        host_namespaces: host_namespaces(host),
        system_paths: spec.system_paths,
        limits: limits(host, spec, engine),
        mounts: mounts(found),
        kernel: pid.and_then(KernelReport::read),
        findings: Vec::new(),
    };
    if host.masked_paths.as_ref().is_some_and(Vec::is_empty) {
        report.system_paths = SystemPaths::Unmasked;
    }
    report.derive_findings();
    report
}

/// Docker repeats our `ALL`; Podman lists each capability of its default set by name. These are in every version's set.
const DEFAULTS: &[&str] = &["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID", "SETPCAP", "KILL"];

fn capabilities_dropped(host: &HostConfig, kind: EngineKind) -> bool {
    let added = host.cap_add.as_ref().is_some_and(|list| !list.is_empty());
    let dropped = host.cap_drop.as_deref().unwrap_or_default();
    let all = dropped.iter().any(|name| name.eq_ignore_ascii_case("all"))
        || (kind == EngineKind::Podman && DEFAULTS.iter().all(|name| dropped.iter().any(|have| have.ends_with(name))));
    all && !added
}

fn host_namespaces(host: &HostConfig) -> Vec<String> {
    let modes =
        [("network", &host.network_mode), ("pid", &host.pid_mode), ("ipc", &host.ipc_mode), ("uts", &host.uts_mode)];
    let shared = |mode: &str| mode == "host" || mode.starts_with("container:") || mode.starts_with("ns:");
    modes.iter().filter(|(_, mode)| mode.as_deref().is_some_and(shared)).map(|(name, _)| (*name).to_owned()).collect()
}

fn limits(host: &HostConfig, spec: &ContainerSpec, engine: &EngineInfo) -> LimitReport {
    fn number(supported: bool, value: Option<i64>) -> Limit<u64> {
        match value.and_then(|value| u64::try_from(value).ok()).filter(|value| supported && *value > 0) {
            Some(value) => Limit::Applied(value),
            None => Limit::Ignored,
        }
    }
    LimitReport {
        memory: number(engine.limits.memory, host.memory),
        pids: number(engine.limits.pids, host.pids_limit),
        cpus: match spec.limits.cpus {
            None => Limit::Unlimited,
            Some(cpus) if engine.limits.cpus => Limit::Applied(cpus),
            Some(_) => Limit::Ignored,
        },
    }
}

fn mounts(found: &ContainerInspectResponse) -> Vec<MountReport> {
    let mut all: Vec<MountReport> = found
        .mounts
        .iter()
        .flatten()
        .filter_map(|mount| {
            let access = if mount.rw == Some(true) { Access::ReadWrite } else { Access::ReadOnly };
            Some(MountReport { target: PathBuf::from(mount.destination.as_deref()?), access })
        })
        .collect();
    all.sort_by(|left, right| left.target.cmp(&right.target));
    all
}
