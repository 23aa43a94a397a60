//! `laneyard workers`: who works for a controller, and who gets new work.

use std::process::ExitCode;

use agent::config::Config;
use agent::ids::WorkerId;
use agent::transport::CallError;
use agent::wire::error::code::{NO_SUCH_WORKER, WORKER_BUSY};
use agent::wire::worker::{WorkerState, WorkerView};

use super::connect::{self, every_page};
use super::output;
use super::table::columns;

/// Exit code of a worker that is not removed because it holds attempts.
const BUSY: u8 = 75;

/// List a controller's workers, and say who gets new work.
#[derive(Debug, clap::Args)]
pub struct Workers {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the workers by name: state, places used, architecture, engine, labels.
    List(Shown),
    /// Give a worker nothing new; what it has goes on.
    Drain(Named),
    /// Give a drained worker work again.
    Resume(Named),
    /// Forget a worker. One whose agent still runs registers again: stop the agent first.
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Shown {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Name of the worker.
    worker: WorkerId,
    /// Print the worker as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Remove {
    #[command(flatten)]
    named: Named,
    /// Also if it holds attempts: offered ones go to other workers; those that may have started stay interrupted until
    /// the worker comes back with their receipts, and are never started again.
    #[arg(long)]
    abandon: bool,
}

impl Workers {
    /// Carries it out and prints the worker or workers concerned.
    ///
    /// # Errors
    /// No controller is configured, it cannot be asked, or it does not know the worker.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let client = connect::remote(config)?;
        match self.verb {
            Verb::List(Shown { json }) => {
                show(&every_page(async |after, limit| client.workers(after, limit).await).await?, json)?;
            }
            Verb::Drain(Named { worker, json }) => {
                show(&[client.steer_worker(&worker, "drain").await.map_err(for_people)?], json)?;
            }
            Verb::Resume(Named { worker, json }) => {
                show(&[client.steer_worker(&worker, "resume").await.map_err(for_people)?], json)?;
            }
            Verb::Remove(Remove { named: Named { worker, json }, abandon }) => {
                match client.remove_worker(&worker, abandon).await {
                    Ok(removed) => {
                        if json {
                            show(std::slice::from_ref(&removed), json)?;
                        } else {
                            output::data(&format!("worker `{worker}` is removed"));
                        }
                        for attempt in &removed.holds {
                            output::line(&format!("abandoned: attempt {attempt}, see `laneyard attempts`"));
                        }
                    }
                    Err(error) if error.is(WORKER_BUSY) => {
                        output::line(&format!("error: {error} (--abandon)"));
                        return Ok(ExitCode::from(BUSY));
                    }
                    Err(error) => return Err(for_people(error).into()),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A name that the controller does not know tells an agent to register, and a person to look at the list.
fn for_people(error: CallError) -> CallError {
    match error {
        CallError::Refused { status, mut body } if body.code == NO_SUCH_WORKER => {
            body.hint = Some("`laneyard workers list` shows the names".to_owned());
            CallError::Refused { status, body }
        }
        other => other,
    }
}

fn show(workers: &[WorkerView], json: bool) -> anyhow::Result<()> {
    if json {
        for worker in workers {
            output::data(&serde_json::to_string(worker)?);
        }
    } else if !workers.is_empty() {
        output::raw(&columns(&workers.iter().map(row).collect::<Vec<_>>()));
    }
    Ok(())
}

fn row(worker: &WorkerView) -> Vec<String> {
    let state = match worker.state {
        WorkerState::Ready => "ready",
        WorkerState::Draining => "draining",
        WorkerState::Unreachable if worker.revoked => "revoked",
        WorkerState::Unreachable => "unreachable",
    };
    let facts = &worker.facts;
    let labels: Vec<String> = facts.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    vec![
        worker.worker.to_string(),
        state.to_owned(),
        format!("{}/{}", worker.used, facts.capacity),
        facts.arch.clone(),
        facts.engine.clone(),
        labels.join(","),
    ]
}
