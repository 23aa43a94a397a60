//! Items of a turn, as events; and which commands could not start their sandbox.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::driver::json::{self, Raw};
use crate::driver::{SandboxFailures, clip, sandbox};
use crate::event::EventBody;

/// Items that began and have not ended; more than this at once are told as one call when they end.
const PENDING_CAP: usize = 1_024;

#[derive(Default)]
pub(super) struct Items {
    begun: HashSet<String>,
    commands: SandboxFailures,
}

/// Fields of an item.
struct Parts<'a> {
    whole: Raw<'a>,
    id: Option<String>,
    kind: String,
    text: Option<Raw<'a>>,
    message: Option<Raw<'a>>,
    command: Option<Raw<'a>>,
    output: Option<Raw<'a>>,
    exit_code: Option<Raw<'a>>,
    status: Option<Raw<'a>>,
    changes: Option<Raw<'a>>,
}

impl<'a> Parts<'a> {
    fn of(whole: Raw<'a>) -> Option<Self> {
        let [id, kind, text, message, command, output, exit_code, status, changes] = whole.fields(&[
            "id",
            "type",
            "text",
            "message",
            "command",
            "aggregated_output",
            "exit_code",
            "status",
            "changes",
        ])?;
        let short = |field: Option<Raw<'_>>| json::nonempty(field).map(|text| clip::text(&text));
        let kind = short(kind)?;
        Some(Self { whole, id: short(id), kind, text, message, command, output, exit_code, status, changes })
    }

    fn input(&self) -> Value {
        match &*self.kind {
            "command_execution" => json!({ "command": clip::value(self.command) }),
            "file_change" => json!({ "changes": clip::value(self.changes) }),
            _ => clip::value(Some(self.whole)),
        }
    }

    fn failed(&self) -> bool {
        json::is(self.status, "failed") || json::is(self.status, "declined")
    }
}

impl Items {
    pub(super) const fn sandbox_failures(&self) -> SandboxFailures {
        self.commands
    }

    pub(super) fn item(&mut self, kind: &str, item: Option<Raw<'_>>, events: &mut Vec<EventBody>) {
        let Some(parts) = item.and_then(Parts::of) else { return };
        let completed = kind == "item.completed";
        let text = |field: Option<Raw<'_>>| json::nonempty(field).map(|text| clip::text(&text));
        match &*parts.kind {
            "agent_message" if completed => events.extend(text(parts.text).map(|text| EventBody::Text { text })),
            "reasoning" if completed => events.extend(text(parts.text).map(|text| EventBody::Thinking { text })),
            "error" if completed => {
                events.extend(text(parts.message).map(|message| EventBody::Error { message, transient: true }));
            }
            "agent_message" | "reasoning" | "error" | "todo_list" => {}
            _ if completed => self.completed(parts, events),
            _ if kind == "item.started" => self.started(parts, events),
            _ => {}
        }
    }

    fn started(&mut self, parts: Parts<'_>, events: &mut Vec<EventBody>) {
        if let (Some(id), true) = (&parts.id, self.begun.len() < PENDING_CAP) {
            self.begun.insert(id.clone());
            events.push(EventBody::ToolCall { input: parts.input(), id: parts.id, name: parts.kind });
        }
    }

    fn completed(&mut self, parts: Parts<'_>, events: &mut Vec<EventBody>) {
        if !parts.id.as_ref().is_some_and(|id| self.begun.remove(id)) {
            events.push(EventBody::ToolCall { id: parts.id.clone(), name: parts.kind.clone(), input: parts.input() });
        }
        let exit_code = parts.exit_code.and_then(Raw::number).and_then(|code| code.as_i64());
        let is_error = parts.failed() || exit_code.is_some_and(|code| code != 0);
        if parts.kind == "command_execution" && !json::is(parts.status, "declined") {
            let output = parts.output.and_then(Raw::text).unwrap_or_default();
            self.commands.commands += 1;
            self.commands.failed += u64::from(is_error && sandbox::could_not_start(&output));
        }
        let output = match &*parts.kind {
            "command_execution" => clip::value(parts.output),
            "file_change" => clip::value(parts.status),
            _ => clip::value(Some(parts.whole)),
        };
        events.push(EventBody::ToolResult { id: parts.id, output, is_error });
    }
}
