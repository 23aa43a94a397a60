//! `laneyard result`: what a writer elsewhere left, when it did not come home by itself.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use agent::config::Config;
use agent::ids::AttemptId;
use agent::moment::moment;
use agent::snapshot::result::{Change, DirectoryChange, Entry, FileMode, Finding, Outcome, export};
use agent::transport::CallError;
use agent::wire::error::code;
use agent::wire::snapshot::{ResultView, WaitingView};
use anyhow::Context as _;
use serde_json::json;

use super::connect;
use super::output::{self, Talk};
use super::run::home::{Brought, bring, changed, not_by_apply, rest, take_in};
use super::run::travel::let_go;
use crate::client::Client;

/// The result could not be applied as it is.
const NOT_APPLIED: u8 = 65;

/// See, apply, export or let go what a writer on a worker left.
#[derive(Debug, clap::Args)]
pub struct Results {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the changed paths, and what would be refused.
    Show(Show),
    /// Write the changes into the worktree, all or nothing; refused if anything there moved since the snapshot.
    Apply(Apply),
    /// Write the changes as a patch for `git apply`; nothing else is touched.
    Export(Export),
    /// Let the result go: it, and the worktree that the worker still keeps, may be removed.
    Release(Release),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Id of the attempt.
    attempt: AttemptId,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Apply {
    /// Id of the attempt.
    attempt: AttemptId,
    /// Another worktree of the same repository than the lane's own.
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Export {
    /// Id of the attempt.
    attempt: AttemptId,
    /// A fresh file instead of stdout.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Say as one JSON object what was written into the file.
    #[arg(long, requires = "output")]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Release {
    /// Id of the attempt.
    attempt: AttemptId,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

impl Results {
    /// Ends with 0, or with 65 for a result that was not applied.
    ///
    /// # Errors
    /// No controller is named or reached, or the attempt left no result.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        anyhow::ensure!(
            config.controller.is_some(),
            "lanes of this machine write into the worktree itself; for others name their controller with --controller"
        );
        let client = connect::remote(config)?;
        match self.verb {
            Verb::Show(show) => show.run(config, &client).await,
            Verb::Apply(apply) => apply.run(config, &client).await,
            Verb::Export(export) => export.run(config, &client).await,
            Verb::Release(release) => release.run(config, &client).await,
        }
    }
}

/// Where a result is.
enum Place {
    Controller(ResultView),
    Worker(WaitingView),
}

async fn find(client: &Client, attempt: AttemptId) -> Result<Place, CallError> {
    match client.result(attempt).await {
        Ok(view) => Ok(Place::Controller(view)),
        Err(error) if error.is(code::NO_RESULT) => match client.result_waiting(attempt).await {
            Ok(waiting) => Ok(Place::Worker(waiting)),
            Err(_) => Err(error), // the first answer says it better
        },
        Err(error) => Err(error),
    }
}

async fn fetch(config: &Config, client: &Client, attempt: AttemptId) -> anyhow::Result<(ResultView, Brought)> {
    match find(client, attempt).await? {
        Place::Controller(view) => take(config, client, view).await,
        Place::Worker(waiting) => anyhow::bail!("{}", words(&waiting)),
    }
}

async fn take(config: &Config, client: &Client, view: ResultView) -> anyhow::Result<(ResultView, Brought)> {
    let talk = Talk::new(false, false);
    let brought = bring(config, client, view.attempt, &view.snapshot, &view.result, talk).await?;
    Ok((view, brought))
}

fn words(waiting: &WaitingView) -> String {
    let WaitingView { attempt, worker, connected, path, since, reason, refused } = waiting;
    let path = path.as_ref().map_or_else(String::new, |path| format!(", `{path}` there,"));
    let since = moment(*since);
    let why = if *refused { "the controller did not take it" } else { "it did not get through" };
    let then = match (connected, refused) {
        (false, _) => "the worker is not connected, and offers it again when it is back",
        (true, true) => "the worker asks again at least every hour",
        (true, false) => "the worker offers it again by itself",
    };
    format!(
        "what attempt {attempt} left is still on worker {worker}{path} since {since}: {why}: {reason}; {then}, and `laneyard \
         result apply {attempt}` works once it has come"
    )
}

impl Show {
    async fn run(self, config: &Config, client: &Client) -> anyhow::Result<ExitCode> {
        let (view, brought) = match find(client, self.attempt).await? {
            Place::Controller(view) => take(config, client, view).await?,
            Place::Worker(waiting) => {
                if self.json {
                    let mut value = json!(waiting);
                    value["keptBy"] = json!("worker");
                    output::data(&value.to_string());
                } else {
                    output::line(&words(&waiting));
                }
                return Ok(ExitCode::SUCCESS);
            }
        };
        let result = &brought.result;
        let changes = changes(&brought);
        if self.json {
            let changes: Vec<_> =
                changes.iter().map(|(path, change)| json!({"path": path, "change": change})).collect();
            let findings: Vec<_> = result
                .findings
                .iter()
                .map(|finding| json!({"finding": finding, "text": finding.to_string(), "refuses": finding.refuses()}))
                .collect();
            let value = json!({
                "attempt": view.attempt,
                "root": view.snapshot.root,
                "snapshot": view.snapshot.id,
                "result": view.result,
                "keptBy": "controller",
                "reviewed": view.reviewed,
                "changes": changes,
                "findings": findings,
                "ignored": result.ignored.paths,
                "ignoredInAll": result.ignored.in_all,
            });
            output::data(&value.to_string());
            return Ok(ExitCode::SUCCESS);
        }
        output::line(&format!("result {} of attempt {}, for {}", view.result, view.attempt, view.snapshot.root));
        if changes.is_empty() {
            output::line("no path differs from what the lane started from");
        }
        if view.reviewed {
            output::line("it was taken, or let go: it is kept until retention removes it");
        }
        for (path, change) in &changes {
            output::data(&format!("{change:9} {path}"));
        }
        for finding in &result.findings {
            output::line(&format!("{}: {finding}", if finding.refuses() { "refused" } else { "note" }));
        }
        if result.findings.iter().any(Finding::refuses) {
            output::line(&format!("it cannot be applied as it is; {}", not_by_apply(self.attempt)));
        }
        if result.leaves_some() {
            output::line(&rest(self.attempt));
        }
        let (ignored, in_all) = (&result.ignored.paths, result.ignored.in_all);
        for path in ignored {
            output::line(&format!("ignored: `{path}` is ignored by Git and not in the result"));
        }
        if in_all > ignored.len() {
            output::line(&format!("ignored: {} more", in_all - ignored.len()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Changed files and empty directories, by path; a directory ends with a slash.
fn changes(brought: &Brought) -> Vec<(String, &'static str)> {
    let files = brought.result.changes.iter().map(|change| (change.path.to_string(), word(change)));
    let directories = brought.result.directories(&brought.snapshot).into_iter().map(|(path, change)| {
        let word = match change {
            DirectoryChange::Added => "added",
            DirectoryChange::Emptied => "emptied",
            DirectoryChange::Deleted => "deleted",
        };
        (format!("{path}/"), word)
    });
    let mut all: Vec<_> = files.chain(directories).collect();
    all.sort();
    all
}

fn word(change: &Change) -> &'static str {
    let mode = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.mode);
    match (mode(&change.before), mode(&change.after)) {
        (None, _) => "added",
        (_, None) => "deleted",
        (Some(FileMode::Link), Some(FileMode::Link)) => "changed",
        (Some(FileMode::Link), _) | (_, Some(FileMode::Link)) => "retyped",
        (before, after) if before != after => "mode",
        _ => "changed",
    }
}

impl Apply {
    async fn run(self, config: &Config, client: &Client) -> anyhow::Result<ExitCode> {
        let (view, brought) = fetch(config, client, self.attempt).await?;
        let dir = match self.cwd {
            Some(dir) => dir,
            None => PathBuf::from(&view.snapshot.root),
        };
        anyhow::ensure!(
            dir.is_dir(),
            "`{}`, where the lane's files were, is not on this machine: name a worktree of that repository with --cwd, or take \
             the changes with `laneyard result export {}` and `git apply`",
            dir.display(),
            self.attempt
        );
        let outcome = take_in(config, client, self.attempt, &brought, &dir, &view.snapshot).await?;
        let (value, text, applied) = match outcome {
            Outcome::Applied { paths } => (json!({"outcome": "applied", "paths": paths}), changed(paths), true),
            Outcome::Moved { which } => {
                let text = format!(
                    "nothing was written, since these are not as the lane found them: {}; put them back, or use `laneyard \
                     result export {}` and `git apply`",
                    which.join(", "),
                    self.attempt
                );
                (json!({"outcome": "conflict", "conflicts": which}), text, false)
            }
            Outcome::Refused { why } => {
                let why: Vec<String> = why.iter().map(ToString::to_string).collect();
                let mut text = format!("nothing was written: {}; {}", why.join("; "), not_by_apply(self.attempt));
                if brought.result.leaves_some() {
                    text.push_str(&format!("; {}", rest(self.attempt)));
                }
                (json!({"outcome": "refused", "refused": why}), text, false)
            }
        };
        if self.json {
            output::data(&value.to_string());
        } else {
            output::line(&text);
        }
        Ok(if applied { ExitCode::SUCCESS } else { ExitCode::from(NOT_APPLIED) })
    }
}

impl Export {
    async fn run(self, config: &Config, client: &Client) -> anyhow::Result<ExitCode> {
        let (view, brought) = fetch(config, client, self.attempt).await?;
        let patch = export(&brought.lease, &brought.snapshot, &brought.result).await?;
        match self.output {
            None => output::bytes(&patch)?,
            Some(path) => {
                let failed = || format!("could not write `{}`", path.display());
                let mut options = std::fs::File::options();
                let opened = options.write(true).create_new(true).mode(0o600).open(&path);
                if opened.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AlreadyExists) {
                    anyhow::bail!("`{}` exists already and is left as it is: name a new file", path.display());
                }
                let mut file = opened.with_context(failed)?;
                file.write_all(&patch).and_then(|()| file.sync_all()).with_context(failed)?;
                if self.json {
                    let value = json!({"attempt": view.attempt, "output": path, "bytes": patch.len(),
                        "changes": changes(&brought).len()});
                    output::data(&value.to_string());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Release {
    async fn run(self, config: &Config, client: &Client) -> anyhow::Result<ExitCode> {
        let view = client.result(self.attempt).await;
        client.review(self.attempt).await?;
        if let Ok(view) = view {
            let_go(config, self.attempt, &view.snapshot);
        }
        if self.json {
            output::data(&json!({"attempt": self.attempt, "reviewed": true}).to_string());
        } else {
            output::line(&format!("what attempt {} left may be removed now", self.attempt));
        }
        Ok(ExitCode::SUCCESS)
    }
}
