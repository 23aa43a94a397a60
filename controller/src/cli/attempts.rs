//! `laneyard attempts`: what this machine, or a controller, knows.

use std::process::ExitCode;

use agent::assignment::Assignment;
use agent::attempt::directory::StateDir;
use agent::config::Config;
use agent::ids::AttemptId;
use agent::receipt::{Status, status_of};
use agent::sole::Sole;
use agent::wire::attempt::AttemptState;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::later::Waiting;
use super::record::Records;
use super::{connect, later, output};

/// List attempts, oldest first.
#[derive(Debug, clap::Args)]
pub struct Attempts {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

struct Row {
    attempt: AttemptId,
    descriptor: String,
    /// Of the attempt; once it ended, the status that its worker told.
    state: String,
    place: String,
    /// Status of the receipt that the caller was given.
    delivered: Option<String>,
    /// More about that, for people.
    remark: Option<String>,
    /// What the background tried in vain to finish it for its killed client.
    doubt: Option<Waiting>,
}

impl Row {
    fn value(&self) -> Value {
        let mut value = json!({"attempt": self.attempt, "descriptor": self.descriptor, "state": self.state,
            "place": self.place, "delivered": self.delivered});
        if let (Some(doubt), Some(object)) = (&self.doubt, value.as_object_mut()) {
            object.insert("waiting".to_owned(), json!(doubt.later));
        }
        value
    }

    fn line(&self) -> String {
        let doubt = self.doubt.as_ref().map(|doubt| doubt.sentence(OffsetDateTime::now_utc()));
        let remark = doubt.as_deref().or(self.remark.as_deref());
        let rest = [Some(self.place.as_str()).filter(|place| !place.is_empty()), remark];
        let rest = rest.into_iter().flatten().collect::<Vec<_>>().join("; ");
        format!("{}  {:<22} {:<36} {rest}", self.attempt, self.shown(), self.descriptor).trim_end().to_owned()
    }

    /// What the caller was given says more than what the worker told.
    fn shown(&self) -> &str {
        let ended = self.state.parse::<Status>().is_ok();
        self.delivered.as_deref().filter(|_| ended).unwrap_or(&self.state)
    }

    /// For an ended attempt: that its caller got something else, or nothing as far as is known.
    fn remarking(mut self, nothing: Option<&str>) -> Self {
        let ended = self.state.parse::<Status>().is_ok();
        self.remark = match &self.delivered {
            Some(given) if *given == self.state => None,
            Some(_) if ended => Some(format!("the worker ended it as {}", self.state)),
            Some(given) => Some(format!("its caller was given {given}")),
            None => nothing.filter(|_| ended).map(str::to_owned),
        };
        self
    }
}

impl Attempts {
    /// Prints the list.
    ///
    /// # Errors
    /// The state directory or the controller cannot be read.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let listed = if config.controller.is_some() { remote(config).await } else { local(config) };
        let (mut rows, failed) = listed.map_or_else(|error| (Vec::new(), Some(error)), |rows| (rows, None));
        doubt(&mut rows, config);
        for row in rows {
            output::data(&if self.json { row.value().to_string() } else { row.line() });
        }
        failed.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// Adds what this machine's clients left and nobody could finish so far, also where nobody else knows of it.
fn doubt(rows: &mut Vec<Row>, config: &Config) {
    let records = Records::of(&config.state_dir);
    for lane in later::waiting(&records) {
        if let Some(row) = rows.iter_mut().find(|row| row.attempt == lane.attempt) {
            row.doubt = Some(lane);
            continue;
        }
        let assignment = records.look(lane.attempt).ok().and_then(|record| record.assignment);
        rows.push(Row {
            attempt: lane.attempt,
            descriptor: assignment.map_or_else(String::new, |lane| descriptor(&lane)),
            state: "in-doubt".to_owned(),
            place: lane.controller.clone().unwrap_or_default(),
            delivered: None,
            remark: None,
            doubt: Some(lane),
        });
    }
    rows.sort_by_key(|row| row.attempt);
}

fn descriptor(lane: &Assignment) -> String {
    format!("{}:{}@{}", lane.provider, lane.model, lane.effort)
}

fn local(config: &Config) -> anyhow::Result<Vec<Row>> {
    let records = Records::of(&config.state_dir);
    let mut rows = Vec::new();
    if !config.state_dir.join("attempts").is_dir() {
        return Ok(rows);
    }
    let state = StateDir::open(&config.state_dir)?;
    let ours = !Sole::was_claimed(state.root()); // the attempts of an agent have clients elsewhere
    for attempt in state.attempts()? {
        let accepted = state.accepted(attempt).ok();
        let descriptor = accepted.as_ref().map_or_else(String::new, |accepted| descriptor(&accepted.assignment));
        let receipt = std::fs::read(state.attempt_path(attempt).join("receipt.json")).ok();
        let ended = receipt.and_then(|bytes| status_of(&serde_json::from_slice(&bytes).ok()?));
        let state_word = match ended {
            Some(status) => status.as_str().to_owned(),
            None if !state.is_driven(attempt) => "left".to_owned(),
            None => "running".to_owned(),
        };
        let awaited = state.is_awaited(attempt);
        // A client forgets its record when everything is in its place, and notes what is not as the worker told it.
        let delivered = state.delivered(attempt).or(ended.filter(|_| ours && !awaited));
        let (place, nothing) = match (records.is_held(attempt), awaited) {
            (true, _) => ("client waits", None),
            (false, true) => ("", Some(format!("not delivered yet: laneyard attach {attempt}"))),
            (false, false) => ("", None),
        };
        let row = Row {
            attempt,
            descriptor,
            state: state_word,
            place: place.to_owned(),
            delivered: delivered.map(|status| status.as_str().to_owned()),
            remark: None,
            doubt: None,
        };
        rows.push(row.remarking(nothing.as_deref()));
    }
    Ok(rows)
}

async fn remote(config: &Config) -> anyhow::Result<Vec<Row>> {
    let client = connect::remote(config)?;
    let views = connect::every_page(async |after, limit| client.attempts(after, limit).await).await?;
    let rows: Vec<Row> = views
        .into_iter()
        .map(|view| {
            let provider = view.provider.map_or_else(|| "?".to_owned(), |provider| provider.to_string());
            let effort = view.effort.map(|effort| format!("@{effort}")).unwrap_or_default();
            let (state, place) = match view.state {
                AttemptState::Queued { position, reason } => (format!("queued at {position}"), reason),
                AttemptState::Offered { worker, .. } => ("offered".to_owned(), worker.to_string()),
                AttemptState::Running { worker, .. } => ("running".to_owned(), worker.to_string()),
                AttemptState::Unreachable { worker, .. } => ("unreachable".to_owned(), worker.to_string()),
                AttemptState::Interrupted { worker, .. } => ("interrupted".to_owned(), worker.to_string()),
                AttemptState::Ended { status, worker } => (status, worker.map_or_else(String::new, |w| w.to_string())),
            };
            let row = Row {
                attempt: view.attempt,
                descriptor: format!("{provider}:{}{effort}", view.model.unwrap_or_default()),
                state,
                place,
                delivered: view.delivered.map(|delivered| delivered.status.as_str().to_owned()),
                remark: None,
                doubt: None,
            };
            row.remarking(Some("no delivery reported yet"))
        })
        .collect();
    Ok(rows)
}
