//! Content blocks of messages, as events; and which Bash commands could not start their sandbox.

use std::collections::HashSet;

use super::records::Record;
use crate::driver::json::{self, Raw};
use crate::driver::{SandboxFailures, clip, sandbox};
use crate::event::EventBody;

/// Bash calls whose answers are awaited; more than this at once are not followed.
const PENDING_CAP: usize = 1_024;
/// Longer ids are not followed either, so that the list stays small.
const ID_CAP: usize = 256;

/// Characters of a failed command's output that can tell why it failed.
const OUTPUT_START: usize = 1_000;

#[derive(Default)]
pub(super) struct Blocks {
    pending: HashSet<String>,
    commands: SandboxFailures,
}

impl Blocks {
    pub(super) const fn sandbox_failures(&self) -> SandboxFailures {
        self.commands
    }

    pub(super) fn assistant(&mut self, record: &Record<'_>, events: &mut Vec<EventBody>) {
        let error = json::nonempty(record.error);
        let Some([content]) = record.message.and_then(|message| message.fields(&["content"])) else { return };
        let Some(content) = content else { return };
        content.elements(&mut |block| {
            let Some([kind, text, thinking, id, name, input]) =
                block.fields(&["type", "text", "thinking", "id", "name", "input"])
            else {
                return;
            };
            let clipped = |field: Option<Raw<'_>>| json::nonempty(field).map(|text| clip::text(&text));
            if json::is(kind, "text") {
                let Some(text) = clipped(text) else { return };
                events.push(match error.as_deref() {
                    None => EventBody::Text { text },
                    Some("authentication_failed") => EventBody::AuthExpired { message: text },
                    Some(_) => EventBody::Error { message: text, transient: false },
                });
            } else if json::is(kind, "thinking") {
                events.extend(clipped(thinking).map(|text| EventBody::Thinking { text }));
            } else if json::is(kind, "tool_use") {
                let name = clipped(name).unwrap_or_default();
                let id = clipped(id);
                if let Some(id) = id.as_ref().filter(|id| name == "Bash" && id.len() <= ID_CAP)
                    && self.pending.len() < PENDING_CAP
                {
                    self.pending.insert(id.clone());
                }
                events.push(EventBody::ToolCall { id, name, input: clip::value(input) });
            }
        });
    }

    pub(super) fn user(&mut self, record: &Record<'_>, events: &mut Vec<EventBody>) {
        let Some([Some(content)]) = record.message.and_then(|message| message.fields(&["content"])) else { return };
        if let Some(text) = content.text() {
            events.push(EventBody::User { text: clip::text(&text) });
            return;
        }
        content.elements(&mut |block| {
            let Some([kind, text, id, content, is_error]) =
                block.fields(&["type", "text", "tool_use_id", "content", "is_error"])
            else {
                return;
            };
            if json::is(kind, "text") {
                events.extend(json::nonempty(text).map(|text| EventBody::User { text: clip::text(&text) }));
            } else if json::is(kind, "tool_result") {
                let id = json::nonempty(id).map(std::borrow::Cow::into_owned);
                let is_error = is_error.and_then(Raw::boolean) == Some(true);
                if id.as_ref().is_some_and(|id| self.pending.remove(id)) {
                    self.command_ended(is_error, content);
                }
                events.push(EventBody::ToolResult { id, output: clip::value(content), is_error });
            }
        });
    }

    /// Counts a command that ran, or tried to: a refused one has an error text without an exit code.
    fn command_ended(&mut self, is_error: bool, content: Option<Raw<'_>>) {
        let output =
            content.filter(|_| is_error).and_then(|content| content.text_start(OUTPUT_START)).unwrap_or_default();
        let could_not_start = is_error && sandbox::could_not_start(&output);
        if !is_error || could_not_start || output.starts_with("Exit code ") {
            self.commands.commands += 1;
            self.commands.failed += u64::from(could_not_start);
        }
    }
}
