//! The attempt's course from the first check to its result, in the order of runner 2.3. Reads top-down.

use serde_json::{Value, json};

use super::Deps;
use super::ending::Endings;
use super::journal::{Ending, Entry};
use super::login::Login;
use super::outcome::{Course, Judged};
use super::place::Place;
use super::plan;
use super::record::Record;
use super::site::{self, SiteError, Written};
use super::step::{self, StepEnd};
use super::stop::{Stop, describe, failed};
use crate::assignment::Assignment;
use crate::descriptor::InnerSandbox;
use crate::driver::{ChildExit, Driver, Environment, InnerState, Lane, Step};
use crate::event::{Phase, StepRole};
use crate::ids::Generation;
use crate::receipt::{Status, cap};
use crate::supervisor::StepId;

const BEFORE_PREFLIGHT: &str = "before authentication preflight";
const BEFORE_MODEL: &str = "before model execution";

/// Output of a probe or a preflight that is spooled.
pub(super) const SHORT_OUTPUT: u64 = 8 << 20;

/// `PATH` inside the container.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A result, and the answer if one is delivered.
pub(super) type Outcome = (Judged, Option<String>);

/// The attempt on its way.
pub(super) struct Attempt<'a> {
    pub(super) deps: &'a Deps,
    pub(super) generation: Generation,
    pub(super) assignment: &'a Assignment,
    pub(super) record: &'a mut Record,
    pub(super) endings: Endings,
    pub(super) place: Option<Place>,
    /// What every step finds in its environment.
    environment: Environment,
    /// The instance's stored login, while this attempt holds it.
    login: Option<Login>,
    /// A writer's worktree before the run.
    written: Option<Written>,
    pub(super) driver: &'static dyn Driver,
    pub(super) lane: Lane,
    pub(super) course: Course,
    /// Facts for the receipt beyond schema 2, in the order in which they were found.
    pub(super) facts: serde_json::Map<String, Value>,
}

impl<'a> Attempt<'a> {
    /// An attempt at its beginning; `None` if no driver runs this provider.
    pub(super) fn new(
        deps: &'a Deps,
        generation: Generation,
        assignment: &'a Assignment,
        record: &'a mut Record,
        endings: Endings,
    ) -> Option<Self> {
        let (driver, lane) = plan::lane(assignment)?;
        let (preflight, argv) = plan::unresolved(assignment);
        let process_started = record.standing().workload_intended;
        let course = Course { executable: None, preflight, argv, process_started };
        Some(Self {
            deps,
            generation,
            assignment,
            record,
            endings,
            place: None,
            environment: Environment::new(),
            login: None,
            written: None,
            driver,
            lane,
            course,
            facts: serde_json::Map::new(),
        })
    }

    /// Runs the attempt to its result. Never fails: whatever happens is a result.
    pub(super) async fn run(&mut self) -> Outcome {
        let outcome = match self.go().await {
            Ok(outcome) => outcome,
            Err(stop) => (self.stopped(stop), None),
        };
        self.return_login().await;
        outcome
    }

    /// The facts for the receipt, and the container that is still to be removed.
    pub(super) fn into_parts(self) -> (serde_json::Map<String, Value>, Option<Place>, Option<Written>) {
        (self.facts, self.place, self.written)
    }

    async fn go(&mut self) -> Result<Outcome, Stop> {
        if let Some(message) = self.driver.billing_guard(&self.lane) {
            return Err(Stop::Failed {
                status: Status::BillingPolicyBlocked,
                message,
                evidence: String::new(),
                child: None,
            });
        }
        self.check(BEFORE_PREFLIGHT)?;
        self.take_login().await?;
        self.prepare().await?;
        self.bring_login().await?;
        let executable = self.resolve().await?;
        self.check(BEFORE_PREFLIGHT)?;
        let Some(executable) = executable else {
            let message = format!("{} executable not found", self.driver.executable());
            return Err(failed(Status::UnavailableCli, message));
        };
        self.course.executable = Some(executable.clone());
        self.record.enter(Entry::Preflight)?;
        self.record.phase(Phase::Preflight);
        let inner = self.probe(&executable).await?;
        self.course.argv = self.driver.workload(&self.lane, &executable, inner).argv;
        self.preflight(&executable).await?;
        self.check(BEFORE_MODEL)?;
        self.workload(&executable, inner).await
    }

    /// Cancelled or late while no child runs?
    fn check(&mut self, phase: &'static str) -> Result<(), Stop> {
        match self.ending() {
            // A started workload is judged by what it did; the step itself looks at the ending.
            Some(why) if !self.record.standing().workload_intended => {
                self.record.enter(Entry::Ending { why, role: None })?;
                Err(Stop::Ending { why, phase })
            }
            _ => Ok(()),
        }
    }

    /// The reason to end that holds now; one that a former driver wrote down holds for ever.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.record.standing().ending.map(|(why, _)| why).or_else(|| self.endings.now())
    }

    /// Container, proxy and supervisor.
    async fn prepare(&mut self) -> Result<(), Stop> {
        self.record.enter(Entry::Preparing)?;
        self.record.phase(Phase::Preparing);
        let hosts = self.driver.hosts(&self.lane);
        let mut endings = self.endings.clone();
        let made = tokio::select! {
            biased;
            made = site::open(self.deps, self.generation, self.assignment, self.record, &hosts) => made,
            why = endings.wait(), if !self.record_has_workload() => {
                self.record.enter(Entry::Ending { why, role: None })?;
                return Err(Stop::Ending { why, phase: BEFORE_PREFLIGHT });
            }
        };
        match made {
            Ok(site) => {
                self.facts.extend(site.facts);
                self.environment = site.environment;
                self.written = site.written;
                self.place = Some(site.place);
                Ok(())
            }
            Err(SiteError::NoImage(message)) => Err(failed(Status::UnavailableCli, message)),
            Err(SiteError::Other { message, code }) => Err(Stop::Launcher { message, code }),
        }
    }

    /// The stored login of the attempt's instance, held alone until the attempt is over.
    async fn take_login(&mut self) -> Result<(), Stop> {
        let instance = self.assignment.instance.as_ref().and_then(|id| self.deps.instances.get(id));
        let Some(home) = instance.and_then(|instance| instance.home.as_deref()) else { return Ok(()) };
        // What the driver writes itself (a key, say) is no login to be renewed.
        let own = self.driver.workload(&self.lane, self.driver.executable(), InnerState::Enforced).files;
        let written = |name: &str| own.iter().any(|file| file.path == format!("{}/{name}", self.lane.home));
        let names: Vec<_> = self.driver.login_files().iter().filter(|name| !written(name)).copied().collect();
        match Login::take(home, &names, &mut self.endings).await {
            Ok(login) => {
                self.login = login;
                Ok(())
            }
            Err(Ok(why)) => {
                self.record.enter(Entry::Ending { why, role: None })?;
                Err(Stop::Ending { why, phase: BEFORE_PREFLIGHT })
            }
            Err(Err(error)) => Err(Stop::Launcher { message: describe(&error), code: None }),
        }
    }

    async fn bring_login(&mut self) -> Result<(), Stop> {
        let fresh = !self.record_has_workload();
        if let (Some(login), Some(place), true) = (&self.login, &mut self.place, fresh) {
            let brought = login.bring(place, &self.lane.home).await;
            brought.map_err(|error| Stop::Launcher { message: describe(&error), code: None })?;
        }
        Ok(())
    }

    async fn return_login(&mut self) {
        let (Some(login), Some(place)) = (&mut self.login, &mut self.place) else { return };
        let fact = match login.take_back(place, &self.lane.home).await {
            Ok(false) => json!("used"),
            Ok(true) => json!("renewed"),
            Err(error) => json!({"lost": describe(&error)}),
        };
        self.facts.insert("login".to_owned(), fact);
    }

    fn record_has_workload(&self) -> bool {
        self.record.standing().workload_intended
    }

    fn place(&mut self) -> Result<&mut Place, Stop> {
        self.place.as_mut().ok_or_else(|| Stop::Launcher { message: "no container".to_owned(), code: None })
    }

    async fn resolve(&mut self) -> Result<Option<String>, Stop> {
        let (name, cwd) = (self.driver.executable(), self.lane.cwd.clone());
        let dead = self.place()?.is_gone();
        if dead {
            // A container that ended while nobody looked: its CLI was where it always is, or nothing was started.
            return Ok(Some(self.record.dir().read_note("executable").unwrap_or_else(|| name.to_owned())));
        }
        let found = self.place()?.find(name, PATH, &cwd).await?;
        if let Some(path) = &found {
            self.record.dir().write_note("executable", path)?;
        }
        Ok(found)
    }

    /// Does the CLI's own sandbox start here (design section 6)?
    async fn probe(&mut self, executable: &str) -> Result<InnerState, Stop> {
        let asked = self.assignment.inner_sandbox;
        let probe = self.driver.sandbox_probe(&self.lane, executable);
        let Some(probe) = probe else {
            self.tell_inner(asked, "container-only", Some("the lane runs no sandbox of the CLI's own"));
            return Ok(InnerState::Enforced);
        };
        if asked == InnerSandbox::Off {
            self.tell_inner(asked, "container-only", Some("switched off by request"));
            return Ok(InnerState::ContainerOnly);
        }
        if let Some(known) = self.record.dir().read_note("inner") {
            self.tell_inner(asked, &known, None);
            return Ok(if known == "enforced" { InnerState::Enforced } else { InnerState::ContainerOnly });
        }
        let Some(reason) = self.try_sandbox(probe).await? else {
            self.record.dir().write_note("inner", "enforced")?;
            self.tell_inner(asked, "enforced", None);
            return Ok(InnerState::Enforced);
        };
        if asked == InnerSandbox::Require {
            let message = format!("the CLI's own sandbox cannot start in the container: {reason}");
            return Err(failed(Status::UnavailableCli, message));
        }
        self.record.dir().write_note("inner", "container-only")?;
        self.tell_inner(asked, "container-only", Some(&reason));
        Ok(InnerState::ContainerOnly)
    }

    /// Runs the probe; the reason if the sandbox does not start.
    async fn try_sandbox(&mut self, mut probe: Step) -> Result<Option<String>, Stop> {
        let name = probe.argv.first().cloned().unwrap_or_default();
        if !name.starts_with('/') {
            let cwd = self.lane.cwd.clone();
            match self.place()?.find(&name, PATH, &cwd).await? {
                Some(path) => probe.argv[0] = path,
                None => return Ok(Some(format!("{name} is not in the image"))),
            }
        }
        let end = self.short_step("probe", StepRole::Probe, &probe).await?;
        self.stop_if_ended(&end, BEFORE_PREFLIGHT)?;
        if end.exit == ChildExit::Code(0) {
            return Ok(None);
        }
        let seen = step::capture(self.record, &StepId::new("probe"), end.exit)?;
        Ok(Some(first_line(&seen.stderr).unwrap_or_else(|| "the probe failed without a word".to_owned())))
    }

    fn tell_inner(&mut self, asked: InnerSandbox, state: &str, reason: Option<&str>) {
        let fact = json!({"asked": asked.as_str(), "boundary": state, "reason": reason});
        self.facts.insert("innerSandbox".to_owned(), fact);
    }

    fn stop_if_ended(&self, end: &StepEnd, phase: &'static str) -> Result<(), Stop> {
        end.ended.map_or(Ok(()), |ended| Err(Stop::Ending { why: ended.why, phase }))
    }

    /// A driver's step with the variables that are the attempt's business.
    pub(super) fn complete(&self, step: &Step) -> Step {
        let mut step = step.clone();
        let mut environment = self.environment.clone();
        environment.insert("PATH".to_owned(), PATH.to_owned());
        environment.extend(std::mem::take(&mut step.environment));
        step.environment = environment;
        step
    }
}

fn first_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(|line| cap(line, 300).to_owned())
}
