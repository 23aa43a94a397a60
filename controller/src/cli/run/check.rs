//! Refusals before any file is created (runner 1.3, 1.4), in their documented order.

use std::path::Path;

use agent::config::{Config, WorktreeWay};
use agent::descriptor::{ApiSpend, Contract, Effort, Provider};
use agent::driver::options::{Requested, check as model_rules};
use agent::transport::Endpoint;

use super::options::{Options, UsageError, refuse};

/// Model of the only OpenCode route that a ChatGPT subscription can pay.
const SUBSCRIPTION_MODEL: &str = "openai/gpt-6.1-sol";

/// All checks that need the options and a look at the file system.
///
/// # Errors
/// The first rule that is broken.
pub fn check(options: &Options) -> Result<(), UsageError> {
    // A strict lane is answered without any integration (runner 8.3).
    if options.contract == Contract::Legacy {
        agent::driver::require(options.provider).map_err(|error| UsageError(error.to_string()))?;
    }
    if options.own.verbose && options.own.quiet {
        return refuse("verbose and quiet exclude each other: leave one of them out".to_owned());
    }
    subscription(options)?;
    model_rules(Requested {
        parent: options.parent,
        provider: options.provider,
        model: &options.model,
        effort: options.effort,
        api_spend: options.api_spend,
    })
    .map_err(|error| UsageError(error.to_string()))?;
    if !Path::new(&options.prompt).is_file() {
        return refuse(format!("prompt is not a file: {}", options.prompt));
    }
    if !Path::new(&options.cwd).is_dir() {
        return refuse(format!("cwd is not a directory: {}", options.cwd));
    }
    if options.prompt == options.output || options.prompt == options.receipt {
        return refuse("prompt, output and receipt must be distinct paths");
    }
    progress(options)?;
    if options.output == options.receipt {
        return refuse("output and receipt must be distinct paths");
    }
    Ok(())
}

/// Flags that the lane's place would silently ignore. `config` is what the flags and the file say together.
///
/// # Errors
/// The first such flag, and what to do about it.
pub fn effective(options: &Options, config: &Config) -> Result<(), UsageError> {
    let own = &options.own;
    let Some(controller) = &config.controller else {
        return match own.fleet {
            Some(flag) => refuse(format!(
                "{flag} needs a controller, and this machine runs its own lanes: name one with --controller, or leave \
                 --{flag} out"
            )),
            None => Ok(()),
        };
    };
    if own.engine.is_some() {
        return refuse(format!(
            "engine names one of this machine, and the lane runs on a worker of {}, with the engine of that one: leave \
             --engine out, or choose the worker by its labels with --require",
            controller.url
        ));
    }
    if config.worktree == WorktreeWay::Direct
        && let Some(flag) = own.travel
    {
        let from =
            if own.worktree.is_some() { "--worktree direct" } else { "the configuration's worktree = \"direct\"" };
        return refuse(format!(
            "{flag} says what travels to the worker, and by {from} nothing does: say --worktree snapshot, or leave \
             --{flag} out"
        ));
    }
    let plaintext = controller.url.parse::<Endpoint>().is_ok_and(|endpoint| !endpoint.is_tls());
    if plaintext && let Some(flag) = own.proof.of_tls() {
        return refuse(format!(
            "{flag} counts over https:// only, and the controller is {}: write https:// if it speaks that, or leave \
             --{flag} out",
            controller.url
        ));
    }
    Ok(())
}

fn subscription(options: &Options) -> Result<(), UsageError> {
    let fits = options.provider == Provider::OpenCode
        && options.model == SUBSCRIPTION_MODEL
        && options.effort == Effort::Default
        && options.api_spend == Some(ApiSpend::Deny);
    if options.subscription && !fits {
        return refuse(format!(
            "opencode-chatgpt-subscription needs --provider opencode --model {SUBSCRIPTION_MODEL} --effort default \
             --api-spend deny"
        ));
    }
    Ok(())
}

fn progress(options: &Options) -> Result<(), UsageError> {
    let Some(progress) = options.progress.as_deref() else { return Ok(()) };
    for (name, path) in
        [("prompt", &options.prompt), ("cwd", &options.cwd), ("output", &options.output), ("receipt", &options.receipt)]
    {
        if progress == path {
            return refuse(format!("progress and {name} must be distinct paths"));
        }
    }
    for (name, path) in [("output", &options.output), ("receipt", &options.receipt)] {
        if progress.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.')) {
            return refuse(format!(
                "progress must not begin with the {name} path and a dot: such names are the lane's"
            ));
        }
    }
    Ok(())
}
