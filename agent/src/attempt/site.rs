//! Making the attempt's container with its mounts and its proxy, or finding the one that a former driver made.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::Deps;
use super::fault;
use super::journal::Entry;
use super::place::{Change, Place};
use super::record::Record;
use super::snapshot;
use super::source::LookAhead;
use super::stop::describe;
use crate::assignment::Assignment;
use crate::container::discover::EngineChoice;
use crate::container::spec::{self, Labels, SystemPaths, container_name};
use crate::container::{
    ContainerId, ContainerSpec, ContainerState, Engine, EngineError, Finding, Inspection, image, prepare,
};
use crate::driver::Environment;
use crate::egress::{Allow, EgressSpec, ensure};
use crate::event::Phase;
use crate::ids::Generation;
use crate::supervisor::{self, Entry as EntryPoint, Listener, Token};
use crate::worktree::git::Git;
use crate::worktree::nonce::{self, Nonce};
use crate::worktree::ownership::Baseline;
use crate::worktree::{self, WorktreePlan};

/// TCP port on the container's loopback where the proxy is offered.
const PROXY_PORT: u16 = 3128;

/// The supervisor calls within this, or the container is looked at by a person.
const FIRST_CALL: Duration = Duration::from_secs(60);

/// What was proven about the container, for the receipt of whoever drives the attempt to its end.
const FACTS: &str = "facts.json";

/// The container with its supervisor, and what the receipt says of it.
pub(super) struct Site {
    pub(super) place: Place,
    pub(super) facts: Map<String, Value>,
    /// What every step finds in its environment.
    pub(super) environment: Environment,
    /// How to look at a writer's files afterwards.
    pub(super) written: Option<Written>,
}

/// What a writer's worktree was like before the run.
#[derive(Debug)]
pub(super) struct Written {
    git: Git,
    plan: WorktreePlan,
    before: Baseline,
    since: SystemTime,
}

impl Written {
    /// Does every new file belong to the worktree's owner (field lesson L10)?
    pub(super) async fn finding(&self) -> Option<Finding> {
        let Self { git, plan, before, since } = self;
        worktree::ownership::check(git, plan, before, *since).await.ok().flatten()
    }
}

/// The surroundings cannot be made.
#[derive(Debug)]
pub(super) enum SiteError {
    /// The image of the provider is not here.
    NoImage(String),
    /// Anything else: what happened, to what, and what to do.
    Other { message: String, code: Option<i32> },
}

pub(super) fn other(error: &dyn std::error::Error) -> SiteError {
    SiteError::Other { message: describe(error), code: None }
}

impl From<EngineError> for SiteError {
    fn from(error: EngineError) -> Self {
        match &error {
            EngineError::NoImage { .. } | EngineError::WrongPlatform { .. } => Self::NoImage(describe(&error)),
            _ => other(&error),
        }
    }
}

impl From<io::Error> for SiteError {
    fn from(error: io::Error) -> Self {
        Self::Other { message: error.to_string(), code: error.raw_os_error() }
    }
}

/// Opens the attempt's place. A container whose workload may have started is only ever found, never made again.
pub(super) async fn open(
    deps: &Deps,
    generation: Generation,
    assignment: &Assignment,
    record: &mut Record,
    hosts: &[String],
) -> Result<Site, SiteError> {
    // Of our own engine, what is remembered may do for a container that is to be made, if it proves right.
    let mut recalled = None;
    let standing = record.standing();
    let ours = standing.engine.as_ref().is_none_or(|named| Some(named) == deps.engine.choice());
    let slot = (ours && standing.container_name.is_none()).then_some(&mut recalled);
    let opened = open_with(deps, generation, assignment, record, hosts, slot).await;
    let Some(engine) = recalled else { return opened };
    let current = deps.engine.get().await.map_err(|error| other(&error))?;
    if current.info().describes_the_same(engine.info()) {
        return opened;
    }
    tracing::info!(engine = current.info().address, "the engine is not what it was: the container is made again");
    drop(opened);
    record.dir().remove_note(FACTS)?;
    if let Some(id) = record.standing().container.clone() {
        engine.remove(&ContainerId::new(id)).await?;
    }
    open_with(deps, generation, assignment, record, hosts, None).await
}

/// With a slot for it, an engine may be used of which only is remembered what it is; it is left there.
async fn open_with(
    deps: &Deps,
    generation: Generation,
    assignment: &Assignment,
    record: &mut Record,
    hosts: &[String],
    recalled: Option<&mut Option<Engine>>,
) -> Result<Site, SiteError> {
    let attempt_dir = record.dir().path().to_owned();
    let git = Git::new();
    let cwd = assignment.paths.real_cwd();
    record.dir().create_run()?;
    let token = token(record)?;
    let listener = Listener::bind(record.dir().run(), token.clone()).map_err(|error| other(&error))?;
    let egress = egress_spec(assignment, record, hosts)?;
    let fresh = !record.standing().workload_intended;
    // The proxy's process starts while the engine starts the container: both take their time. Never, if it comes to none.
    let (starting, started) = oneshot::channel();
    let proxy = AbortOnDropHandle::new(tokio::spawn(async move {
        match started.await {
            Ok(()) => ensure(&egress).await.map(drop),
            Err(_) => Ok(()),
        }
    }));
    let named = record.standing().engine.clone();
    let reference = assignment
        .image
        .clone()
        .or_else(|| deps.images.get(&assignment.provider).cloned())
        .unwrap_or_else(|| image::default_reference(assignment.provider));
    let ahead = record.standing().container_name.is_none().then(|| deps.engine.look_ahead(&reference));
    let making = async {
        let engine = async {
            let Some(slot) = recalled else { return deps.engine.of(named.as_ref()).await };
            let (engine, only_remembered) = deps.engine.early().await?;
            *slot = only_remembered.then(|| engine.clone());
            Ok(engine)
        };
        let engine = async { engine.await.map_err(|error| other(&error)) };
        let (engine, (plan, of_worktree)) = match &assignment.snapshot {
            Some(wanted) => (engine.await?, snapshot::plan(deps, generation, assignment, record, wanted).await?),
            None => {
                let private = [deps.state.root().to_owned()];
                let plan = worktree::plan(&git, &cwd, assignment.mode, &attempt_dir, &private);
                // An engine may still be saying what it is.
                let (engine, plan) = tokio::join!(engine, plan);
                (engine?, (plan.map_err(|error| other(&error))?, Map::new()))
            }
        };
        let before = async {
            // What becomes of a snapshot's files is collected: their owner on this machine means nothing.
            match fresh && plan.writes() && assignment.snapshot.is_none() {
                true => worktree::ownership::baseline(&git, &plan).await.ok(),
                false => None,
            }
        };
        let making =
            Making { deps, generation, assignment, engine: &engine, reference: &reference, plan: &plan, token: &token };
        let (made, before) = tokio::join!(making.container(record, ahead, starting), before);
        Ok::<_, SiteError>((made?, engine, before, plan, of_worktree))
    };
    let made = making.await;
    // Awaited in any case, so that whoever clears away finds it.
    let proxy = proxy.await.map_err(|error| other(&error))?;
    let (Made { id, seen, mut facts }, engine, before, plan, of_worktree) = made?;
    proxy.map_err(|error| other(&error))?;
    let mut place = Place::new(engine, id, listener, record.dir().spool("supervisor.jsonl"));
    if let Some(seen) = seen {
        place.running(&seen.state);
    }
    let call = tokio::time::timeout(FIRST_CALL, place.connect()).await;
    match call {
        Ok(Ok(Change::Gone)) if !record.standing().workload_intended => {
            let log = place.engine().log_tail(place.container()).await.unwrap_or_default();
            let message = format!("the attempt's container ended before its supervisor called: {}", log.trim());
            return Err(SiteError::Other { message, code: None });
        }
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(other(&error)),
        Err(_) => {
            let message =
                format!("the supervisor did not call within {} s; the container is removed", FIRST_CALL.as_secs());
            return Err(SiteError::Other { message, code: None });
        }
    }
    for warning in place.warnings().to_vec() {
        record.note(Phase::Preparing, warning);
    }
    if place.warnings().is_empty() {
        facts.shift_remove("supervisorWarnings");
    } else {
        facts.insert("supervisorWarnings".to_owned(), json!(place.warnings()));
    }
    facts.extend(of_worktree);
    if fresh {
        prove_mount(&mut place, &plan, &attempt_dir).await?;
    }
    let written = before.map(|before| Written { git, plan: plan.clone(), before, since: SystemTime::now() });
    Ok(Site { environment: environment(&plan), place, facts, written })
}

/// A nonce written on the host is read back inside: a mount that is silently empty, or another directory, is found
/// before the provider starts. Nothing of it stays in the user's tree.
async fn prove_mount(place: &mut Place, plan: &WorktreePlan, attempt_dir: &Path) -> Result<(), SiteError> {
    nonce::remove_stale(attempt_dir);
    let nonce = Nonce::write(plan, attempt_dir).map_err(|error| other(&error))?;
    let path = nonce.inside().to_string_lossy().into_owned();
    let inside = place.get_file(&path, nonce::READ_MOST).await.ok();
    let verdict = nonce.check(inside.as_deref());
    nonce.remove();
    verdict.map_err(|error| other(&error))
}

/// The attempt's container, running.
struct Made {
    id: ContainerId,
    /// How it was seen after its start; `None` of one that a former driver started.
    seen: Option<Inspection>,
    facts: Map<String, Value>,
}

struct Making<'a> {
    deps: &'a Deps,
    generation: Generation,
    assignment: &'a Assignment,
    engine: &'a Engine,
    /// The image.
    reference: &'a image::Reference,
    plan: &'a WorktreePlan,
    token: &'a Token,
}

impl Making<'_> {
    /// `starting` is told when there is a container that runs, or is about to.
    async fn container(
        &self,
        record: &mut Record,
        ahead: Option<LookAhead>,
        starting: oneshot::Sender<()>,
    ) -> Result<Made, SiteError> {
        if let Some(id) = self.found(record).await? {
            let _ = starting.send(());
            return Ok(Made { id, seen: None, facts: read_facts(record) });
        }
        self.make(record, ahead, starting).await
    }

    /// A container that a former driver made. What never ran a workload and does not run now is removed: it costs
    /// nothing to make it again. What may have run one is kept whatever its state.
    async fn found(&self, record: &Record) -> Result<Option<ContainerId>, SiteError> {
        let standing = record.standing();
        if standing.workload_intended {
            let known = standing.container.clone().map(ContainerId::new).map(Some);
            let lost =
                || SiteError::Other { message: "the journal has a start without a container".to_owned(), code: None };
            return known.ok_or_else(lost);
        }
        if standing.container_name.is_none() {
            return Ok(None);
        }
        let owner = self.deps.state.owner().map_err(|error| other(&error))?;
        for found in self.engine.list(&owner).await? {
            if found.labels.attempt != self.assignment.attempt {
                continue;
            }
            match self.engine.inspect(&found.id).await {
                // Without the note its isolation was never proven: it is made again.
                Ok(inspection)
                    if matches!(inspection.state, ContainerState::Running { .. })
                        && record.dir().read_note(FACTS).is_some() =>
                {
                    return Ok(Some(found.id));
                }
                Ok(_) => self.engine.remove(&found.id).await?,
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    async fn make(
        &self,
        record: &mut Record,
        ahead: Option<LookAhead>,
        starting: oneshot::Sender<()>,
    ) -> Result<Made, SiteError> {
        let Self { deps, assignment, engine, reference, plan, .. } = self;
        let seen = match ahead {
            Some(ahead) => ahead.of(engine).await,
            None => None,
        };
        let image = image::resolve(engine, reference, deps.pull, seen).await?;
        let supervisor = supervisor::install(deps.state.root()).map_err(|error| other(&error))?;
        place_supervisor(&supervisor, &record.dir().run().join("supervisor"))?;
        let attempt_dir = record.dir().path().to_owned();
        let mut prepared =
            prepare::prepare(engine.info(), plan, &attempt_dir, record.dir().run()).map_err(|error| other(&error))?;
        let entry = entry_point();
        let mut command = entry.command();
        let args = command.split_off(1);
        let spec = ContainerSpec {
            labels: Labels {
                owner: deps.state.owner().map_err(|error| other(&error))?,
                worker: deps.worker.clone(),
                attempt: assignment.attempt,
                generation: self.generation,
            },
            image: image.id.clone(),
            entrypoint: command,
            args,
            env: entry.environment(self.token).iter().filter_map(|pair| split(pair)).collect(),
            workdir: PathBuf::from("/"),
            identity: prepared.identity,
            mounts: prepared.mounts.clone(),
            limits: assignment.limits,
            system_paths: SystemPaths::default(),
            private_dir: attempt_dir,
        };
        let name = container_name(assignment.attempt);
        record.dir().remove_note(FACTS)?;
        let address = Some(EngineChoice::Socket(PathBuf::from(&engine.info().address)));
        record.durable().wait().await.map_err(|error| SiteError::Other {
            message: format!(
                "the disk of the worker's state directory does not keep the attempt, nothing was run: {error}"
            ),
            code: error.raw_os_error(),
        })?;
        record.enter(Entry::ContainerIntent { name: name.clone(), image: reference.to_string(), engine: address })?;
        let id = engine.create(&spec).await?;
        record.enter(Entry::ContainerCreated { id: id.as_str().to_owned() })?;
        let _ = starting.send(());
        engine.start(&id).await?;
        let (seen, isolation) = engine.isolation(&id, &spec).await?;
        let findings = std::mem::take(&mut prepared.findings);
        // The container has mounts of its own now. Nobody waits for ours to go: whoever clears away looks for them too.
        drop(tokio::task::spawn_blocking(move || prepared.release()));
        let violations = isolation.violations();
        if !violations.is_empty() {
            let names: Vec<_> = violations.iter().map(|finding| finding.detail.as_str()).collect();
            let message = format!("the container lacks what it must have, nothing was run: {}", names.join("; "));
            return Err(SiteError::Other { message, code: None });
        }
        let mut facts = Map::new();
        let info = engine.info();
        let engine = json!({"kind": info.kind, "version": info.version, "api": info.api, "rootless": info.rootless});
        let image = json!({"reference": image.reference, "id": image.id, "digest": image.digest});
        facts
            .insert("container".to_owned(), json!({"name": name, "id": id.as_str(), "image": image, "engine": engine}));
        let mut isolation = json!(isolation);
        if let Some(object) = isolation.as_object_mut() {
            let all = object.entry("findings").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.extend(findings.iter().map(|finding| json!(finding)));
            }
        }
        facts.insert("isolation".to_owned(), isolation);
        fault::point("before", "isolation-noted");
        record.dir().write_note(FACTS, &Value::Object(facts.clone()).to_string())?;
        Ok(Made { id, seen: Some(seen), facts })
    }
}

/// What a former driver saw when it made the container.
fn read_facts(record: &Record) -> Map<String, Value> {
    let text = record.dir().read_note(FACTS).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn entry_point() -> EntryPoint {
    EntryPoint {
        run_dir: spec::RUN_DIR.to_owned(),
        supervisor: spec::SUPERVISOR.to_owned(),
        home: home(),
        proxy_port: PROXY_PORT,
    }
}

/// HOME inside: a directory of the lane's user on a private tmpfs.
pub(super) fn home() -> String {
    format!("{}/home", spec::HOME)
}

fn split(pair: &str) -> Option<(String, String)> {
    pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// The token is kept, so that an adopter is known to the supervisor.
fn token(record: &Record) -> io::Result<Token> {
    if let Some(text) = record.dir().read_note("token") {
        return Ok(Token::from_saved(text));
    }
    let token = Token::generate();
    record.dir().write_note("token", token.reveal())?;
    Ok(token)
}

/// The program stands in the run directory itself: one mount carries it and the sockets.
fn place_supervisor(program: &Path, target: &Path) -> io::Result<()> {
    if target.exists() {
        return Ok(());
    }
    std::fs::hard_link(program, target).or_else(|_| std::fs::copy(program, target).map(drop))
}

/// Exactly the driver's hosts and those that the caller adds. An endpoint that the operator configured himself may be
/// an inside address; a name that merely resolves to one may not.
fn egress_spec(assignment: &Assignment, record: &Record, hosts: &[String]) -> Result<EgressSpec, SiteError> {
    let mut spec =
        EgressSpec::new(assignment.attempt, record.dir().run().to_owned(), record.dir().file("egress.jsonl"));
    spec.over_when = Some(record.dir().file("receipt.json"));
    let configured: Vec<Allow> =
        assignment.environment.values().filter_map(|value| Allow::endpoint(value.trim()).ok()).collect();
    for text in hosts.iter().chain(&assignment.extra_hosts) {
        let mut allow = Allow::public(text).map_err(|error| other(&error))?;
        let literal = allow.host.literal().is_some() && assignment.extra_hosts.contains(text);
        allow.trusted = literal || configured.iter().any(|endpoint| endpoint.host == allow.host);
        spec.allow.push(allow);
    }
    Ok(spec)
}

/// Variables of every step, whatever its driver.
fn environment(plan: &WorktreePlan) -> Environment {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let mut variables: Environment = plan.environment.clone();
    let fixed = [
        ("HOME", home()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("TZ", "UTC".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("USER", "lane".to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
    ];
    variables.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        variables.insert(name.to_owned(), proxy.clone());
    }
    variables
}
