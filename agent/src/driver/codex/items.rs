//! Items of a turn, as events; and which commands could not start their sandbox.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::driver::json::{self, Raw};
use crate::driver::{SandboxFailures, clip, sandbox};
use crate::event::EventBody;

/// Items that began and have not ended; more than this at once are told as one call when they end.
const PENDING_CAP: usize = 1_024;
/// Items with longer ids are told so too, so that the list stays small.
const ID_CAP: usize = 256;

/// Characters of a failed command's output that can tell why it failed.
const OUTPUT_START: usize = 1_000;

#[derive(Default)]
pub(super) struct Items {
    begun: HashSet<String>,
    commands: SandboxFailures,
}

/// Fields of an item, unread.
pub(super) struct Parts<'a> {
    whole: Raw<'a>,
    id: Option<Raw<'a>>,
    pub kind: Option<Raw<'a>>,
    pub text: Option<Raw<'a>>,
    message: Option<Raw<'a>>,
    command: Option<Raw<'a>>,
    output: Option<Raw<'a>>,
    exit_code: Option<Raw<'a>>,
    status: Option<Raw<'a>>,
    changes: Option<Raw<'a>>,
}

impl<'a> Parts<'a> {
    /// `None` when the item is no object.
    pub(super) fn of(whole: Raw<'a>) -> Option<Self> {
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
        Some(Self { whole, id, kind, text, message, command, output, exit_code, status, changes })
    }

    fn id(&self) -> Option<String> {
        json::nonempty(self.id).map(|id| clip::text(&id))
    }

    fn input(&self, name: &str) -> Value {
        match name {
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

    pub(super) fn item(&mut self, kind: &str, parts: &Parts<'_>, events: &mut Vec<EventBody>) {
        let Some(name) = json::nonempty(parts.kind) else { return };
        let completed = kind == "item.completed";
        let text = |field: Option<Raw<'_>>| json::nonempty(field).map(|text| clip::text(&text));
        match &*name {
            "agent_message" if completed => events.extend(text(parts.text).map(|text| EventBody::Text { text })),
            "reasoning" if completed => events.extend(text(parts.text).map(|text| EventBody::Thinking { text })),
            "error" if completed => {
                events.extend(text(parts.message).map(|message| EventBody::Error { message, transient: true }));
            }
            "agent_message" | "reasoning" | "error" | "todo_list" => {}
            _ if completed => self.completed(&name, parts, events),
            _ if kind == "item.started" => self.started(&name, parts, events),
            _ => {}
        }
    }

    fn started(&mut self, name: &str, parts: &Parts<'_>, events: &mut Vec<EventBody>) {
        let Some(id) = parts.id().filter(|id| id.len() <= ID_CAP) else { return };
        if self.begun.len() < PENDING_CAP {
            self.begun.insert(id.clone());
            events.push(EventBody::ToolCall { id: Some(id), name: clip::text(name), input: parts.input(name) });
        }
    }

    fn completed(&mut self, name: &str, parts: &Parts<'_>, events: &mut Vec<EventBody>) {
        let id = parts.id();
        if !id.as_ref().is_some_and(|id| self.begun.remove(id)) {
            events.push(EventBody::ToolCall { id: id.clone(), name: clip::text(name), input: parts.input(name) });
        }
        let exit_code = parts.exit_code.and_then(Raw::number).and_then(|code| code.as_i64());
        let is_error = parts.failed() || exit_code.is_some_and(|code| code != 0);
        let output = match name {
            "command_execution" => clip::value(parts.output),
            "file_change" => clip::value(parts.status),
            _ => clip::value(Some(parts.whole)),
        };
        if name == "command_execution" && !json::is(parts.status, "declined") {
            let start = || parts.output.and_then(|output| output.text_start(OUTPUT_START)).unwrap_or_default();
            self.commands.commands += 1;
            self.commands.failed += u64::from(is_error && sandbox::could_not_start(&start()));
        }
        events.push(EventBody::ToolResult { id, output, is_error });
    }
}
