//! A lane's options, the configuration and the caller's variables become one assignment.

use std::collections::BTreeMap;

use agent::assignment::{Assignment, CallerPaths, CanonicalPaths, Limits};
use agent::attempt::plan::lane;
use agent::config::{Config, Environment, check_limits};
use agent::descriptor::ApiSpend;
use agent::driver;
use agent::ids::AttemptId;
use time::OffsetDateTime;

use super::options::{Options, UsageError, refuse};

/// Builds the assignment, still without the prompt.
///
/// # Errors
/// An instance that is not configured or belongs to another provider, limits under which nothing starts.
pub fn assignment(
    options: &Options,
    config: &Config,
    environment: &Environment,
    entered: OffsetDateTime,
) -> Result<Assignment, UsageError> {
    let own = &options.own;
    let mut passed = passed(options, environment);
    if own.instance.is_some() && config.controller.is_some() {
        // The account is the worker's: nothing of ours goes into its attempts.
        passed.clear();
    }
    if let Some(id) = &own.instance
        && config.controller.is_none()
    {
        let Some(instance) = config.instances.get(id) else {
            let known: Vec<&str> = config.instances.keys().map(agent::ids::InstanceId::as_str).collect();
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            return refuse(format!("instance `{id}` is not configured; configured instances: {known}"));
        };
        if instance.driver != options.provider {
            return refuse(format!(
                "instance `{id}` is an account of {}, not of {}",
                instance.driver, options.provider
            ));
        }
    }
    Ok(Assignment {
        attempt: AttemptId::generate(),
        execution_id: options.execution_id.clone(),
        parent: options.parent,
        provider: options.provider,
        model: options.model.clone(),
        effort: options.effort,
        mode: options.mode,
        contract: options.contract,
        api_spend: options.api_spend,
        paths: CallerPaths {
            cwd: options.cwd.clone(),
            prompt: options.prompt.clone(),
            output: options.output.clone(),
            receipt: options.receipt.clone(),
            progress: options.progress.clone(),
            canonical: CanonicalPaths {
                cwd: options.cwd.clone(),
                output: options.output.clone(),
                receipt: options.receipt.clone(),
            },
        },
        prompt: Vec::new(),
        started_at: entered,
        timeout_ms: options.timeout_ms,
        deadline: None,
        instance: own.instance.clone(),
        environment: passed,
        image: own.image.clone().or_else(|| config.images.get(&options.provider).cloned()),
        limits: limits(options, config)?,
        inner_sandbox: own.inner_sandbox.unwrap_or(config.inner_sandbox),
        extra_hosts: own.allow_hosts.clone(),
        snapshot: None,
    })
}

/// The caller's variables that this provider's driver lets through, and no other.
fn passed(options: &Options, environment: &Environment) -> BTreeMap<String, String> {
    let Some(driver) = driver::of(options.provider) else { return BTreeMap::new() };
    environment.iter().filter(|(name, _)| driver.passes(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn limits(options: &Options, config: &Config) -> Result<Limits, UsageError> {
    let (own, standard) = (&options.own, &config.limits);
    let limits = Limits {
        memory: own.memory.unwrap_or(standard.memory),
        pids: own.pids.unwrap_or(standard.pids),
        cpus: own.cpus.or(standard.cpus),
        output: own.output_limit.unwrap_or(standard.output),
        scratch: own.scratch.unwrap_or(standard.scratch),
    };
    check_limits(&limits).map_err(|(key, problem)| {
        let flag = if key == "output" { "output-limit" } else { key };
        UsageError(format!("{flag} {problem}"))
    })?;
    Ok(limits)
}

/// False for a lane that ends before any container: blocked by the spend policy, or too late already. Such a lane gets
/// its receipt on a machine without an engine too.
#[must_use]
pub fn will_need_engine(assignment: &Assignment, config: &Config) -> bool {
    let account = assignment.instance.as_ref().and_then(|id| config.instances.get(id));
    let with_account = account.filter(|_| config.controller.is_none()).map(|account| account.applied_to(assignment));
    let assignment = with_account.as_ref().unwrap_or(assignment);
    let late = assignment.timeout().is_some_and(|limit| OffsetDateTime::now_utc() - assignment.started_at >= limit);
    let blocked = assignment.api_spend == Some(ApiSpend::Deny)
        && lane(assignment).is_some_and(|(driver, lane)| driver.billing_guard(&lane).is_some());
    !late && !blocked
}
