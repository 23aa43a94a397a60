//! `laneyard logs`: an attempt's events, once and in order.

use std::process::ExitCode;

use agent::config::Config;
use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::receipt::iso_millis;
use futures_util::StreamExt as _;

use super::{follow, output};

/// Longest text of one line for people, in characters.
const LINE: usize = 400;

/// Show what happened during an attempt.
#[derive(Debug, clap::Args)]
pub struct Logs {
    /// Id of the attempt.
    attempt: AttemptId,
    /// Go on until the attempt ends.
    #[arg(short, long)]
    follow: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Logs {
    /// Prints the events.
    ///
    /// # Errors
    /// The attempt is unknown, or its log cannot be read.
    pub async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let mut events = follow::events(config, self.attempt, self.follow)?;
        while let Some(event) = events.next().await {
            let event = event?;
            if self.json {
                output::data(&serde_json::to_string(&event)?);
            } else {
                output::data(&line(&event));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn line(event: &Event) -> String {
    let time = iso_millis(event.at);
    let (_, clock) = time.split_once('T').unwrap_or(("", &time));
    let text: String = told(&event.body).replace('\n', " ⏎ ").chars().take(LINE).collect();
    format!("{} {:>5} {text}", clock.trim_end_matches('Z'), event.seq)
}

/// An event in words.
#[must_use]
pub fn told(body: &EventBody) -> String {
    match body {
        EventBody::Session { id, model } => {
            format!("session {} model {}", id.as_deref().unwrap_or("-"), model.as_deref().unwrap_or("-"))
        }
        EventBody::User { text } => format!("user: {text}"),
        EventBody::Text { text } | EventBody::Delta { text } => format!("text: {text}"),
        EventBody::Thinking { text } => format!("thinking: {text}"),
        EventBody::ToolCall { name, input, .. } => format!("call {name} {input}"),
        EventBody::ToolResult { output, is_error, .. } => {
            format!("{} {output}", if *is_error { "failed" } else { "result" })
        }
        EventBody::Usage { usage, cost_usd } => {
            let cost = cost_usd.as_ref().map(|cost| format!(" cost {cost} USD")).unwrap_or_default();
            format!("usage {}{cost}", serde_json::to_string(usage).unwrap_or_default())
        }
        EventBody::Permission { tool, granted, reason } => {
            let word = if *granted { "granted" } else { "denied" };
            format!("permission {word}: {} {}", tool.as_deref().unwrap_or("-"), reason.as_deref().unwrap_or(""))
        }
        EventBody::Approval { id, tool, input } => format!("waits for approval {id}: {tool} {input}"),
        EventBody::Result { success, .. } => {
            format!(
                "result: {}",
                if *success { "the provider reports success" } else { "the provider reports failure" }
            )
        }
        EventBody::Status { phase, step, note, .. } => {
            let mut text = format!("{phase:?}").to_lowercase();
            if let Some(step) = step {
                let state = match (step.running, step.exit_code) {
                    (true, _) => "running".to_owned(),
                    (false, Some(code)) => format!("exited {code}"),
                    (false, None) => "ended".to_owned(),
                };
                let state = if step.drained { format!("{state}, output complete") } else { state };
                text = format!("{text}: {} {state}", format!("{:?}", step.role).to_lowercase());
            }
            note.as_ref().map_or(text.clone(), |note| format!("{text}: {note}"))
        }
        EventBody::Activity { stdout_bytes, stderr_bytes } => format!("output {stdout_bytes}+{stderr_bytes} bytes"),
        EventBody::Error { message, .. } => format!("error: {message}"),
        EventBody::AuthExpired { message } => format!("login expired: {message}"),
        EventBody::QuotaExhausted { message, .. } => format!("quota exhausted: {message}"),
        EventBody::Gap { from, to } => format!("events {from} to {to} are no longer kept"),
        EventBody::Terminal { receipt, .. } => {
            format!("terminal {}", receipt.get("status").and_then(|status| status.as_str()).unwrap_or("?"))
        }
    }
}
