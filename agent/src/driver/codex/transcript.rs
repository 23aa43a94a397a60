//! Reads `codex exec --json` and judges it (runner section 4 and 4.1).

use super::items::{Items, Parts};
use super::turns::{Ending, Turns};
use crate::driver::evidence::{self, Terminal};
use crate::driver::json::{self, Fields, Raw};
use crate::driver::skim::Plan;
use crate::driver::stream::{Item, JsonStream};
use crate::driver::{ChildExit, Delivered, Judgement, Transcript, Verdict, clip, deliver, quota};
use crate::event::EventBody;
use crate::receipt::{ModelEvidence, ProviderReport, Status};

const KEYS: [&str; 6] = ["type", "thread_id", "item", "usage", "error", "message"];
static PLAN: Plan = Plan { keys: &KEYS, answer: &["item", "text"] };

/// The reader of one run.
pub(super) struct CodexTranscript {
    stdout: JsonStream<{ KEYS.len() }>,
    stderr: JsonStream<0>,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    /// A line that is no JSON object.
    noise: bool,
    thread: Option<String>,
    turns: Turns,
    items: Items,
    /// The last of `turn.completed`, `turn.failed` and `error`.
    last: Option<Ending>,
    /// The last JSON object was one of them.
    ends_with_it: bool,
}

impl CodexTranscript {
    pub(super) fn new() -> Self {
        Self { stdout: JsonStream::new(&KEYS, &PLAN), stderr: JsonStream::new(&[], &PLAN), seen: Seen::default() }
    }
}

impl Transcript for CodexTranscript {
    fn stdout(&mut self, bytes: &[u8], events: &mut Vec<EventBody>) {
        let Self { stdout, seen, .. } = self;
        stdout.feed(bytes, &mut |item| seen.item(&item, events));
    }

    fn stderr(&mut self, bytes: &[u8], _events: &mut Vec<EventBody>) {
        self.stderr.feed(bytes, &mut |_| {});
    }

    fn finish(mut self: Box<Self>, exit: ChildExit, events: &mut Vec<EventBody>) -> Judgement {
        let Self { stdout, stderr, seen } = &mut *self;
        let whole = stdout.finish(&mut |item| seen.item(&item, events));
        stderr.finish(&mut |_| {});
        if let Some(fields) = whole.as_deref().and_then(|text| json::object(text, &KEYS)) {
            // Acceptance reads lines only, so this counts for success, quota and evidence, not for the answer.
            let ending = Ending::of(&kind(&fields), &fields);
            seen.ends_with_it = ending.is_some();
            seen.last = ending.or(seen.last.take());
        }
        self.judge(exit, events)
    }
}

fn kind<'a>(fields: &Fields<'a, { KEYS.len() }>) -> std::borrow::Cow<'a, str> {
    fields[0].and_then(Raw::text).unwrap_or_default()
}

impl Seen {
    fn item(&mut self, item: &Item<'_, { KEYS.len() }>, events: &mut Vec<EventBody>) {
        let Item::Object { fields, overflow } = item else {
            self.noise = true;
            return;
        };
        let [_, thread_id, item, usage, ..] = *fields;
        let kind = kind(fields);
        let ending = Ending::of(&kind, fields);
        self.ends_with_it = ending.is_some();
        if let Some(ending) = ending {
            self.ended(ending, usage, events);
            return;
        }
        match &*kind {
            "thread.started" => self.thread_started(thread_id, events),
            "turn.started" => self.turns.started(),
            "item.started" | "item.updated" | "item.completed" => {
                let parts = item.and_then(Parts::of);
                self.turns.item(&kind, parts.as_ref(), *overflow);
                if let Some(parts) = &parts {
                    self.items.item(&kind, parts, events);
                }
            }
            _ => {}
        }
    }

    fn thread_started(&mut self, id: Option<Raw<'_>>, events: &mut Vec<EventBody>) {
        let id = json::nonempty(id).map(|id| clip::text(&id));
        match (&self.thread, &id) {
            (Some(known), Some(id)) if known != id => self.turns.fail("codex reported two different threads"),
            (None, Some(_)) => self.thread.clone_from(&id),
            _ => {}
        }
        events.push(EventBody::Session { id, model: None });
    }

    fn ended(&mut self, ending: Ending, usage: Option<Raw<'_>>, events: &mut Vec<EventBody>) {
        match &ending {
            Ending::Completed => {
                self.turns.completed(usage);
                let (usage, text) = self.turns.last();
                if let Some(usage) = usage {
                    events.push(EventBody::Usage { usage: usage.clone(), cost_usd: None });
                }
                events.push(EventBody::Result { success: true, text: text.map(clip::text) });
            }
            Ending::Failed(message) => {
                self.turns.failed();
                let text = message.as_deref().map(clip::text);
                if let Some(message) = text.clone().filter(|message| is_authentication(message)) {
                    events.push(EventBody::AuthExpired { message });
                }
                events.push(EventBody::Result { success: false, text });
            }
            Ending::Error(message) => events.push(EventBody::Error {
                message: clip::text(message.as_deref().unwrap_or("codex reported an error")),
                // A later turn may still complete; the end of a turn is told by its own event.
                transient: true,
            }),
        }
        self.last = Some(ending);
    }
}

/// How codex words a refused login.
fn is_authentication(message: &str) -> bool {
    message.starts_with("unexpected status 401 ") || message.contains("Not logged in")
}

impl CodexTranscript {
    fn judge(self, exit: ChildExit, events: &mut Vec<EventBody>) -> Judgement {
        let last = self.seen.last.as_ref();
        let terminal_success = matches!(last, Some(Ending::Completed));
        let failure = last.and_then(Ending::failure);
        let exhausted = failure.flatten().is_some_and(quota::codex);
        let verdict = deliver::failed_exit(exit, exhausted);
        let invocation = verdict.is_some();
        let typed_error = failure.is_some() && !self.seen.noise;
        let kept = if invocation { self.seen.ends_with_it } else { typed_error };
        let terminal =
            last.map(|ending| Terminal::default().text("type", Some(ending.kind())).text("message", ending.message()));
        let evidence = evidence::render(
            (exhausted && (invocation || typed_error)).then_some(quota::CODEX),
            terminal.as_ref().filter(|_| kept),
            self.stdout.counts(),
            self.stderr.counts(),
        );
        let sandbox_failures = self.seen.items.sandbox_failures();
        let diagnosis = failure.flatten().map(evidence::message);
        let verdict = verdict.unwrap_or_else(|| self.parse(exhausted));
        if matches!(verdict, Verdict::Failed { status: Status::UsageExhausted, .. }) {
            // Exec names the reset time in prose only, which is never parsed.
            events.push(EventBody::QuotaExhausted { message: diagnosis.unwrap_or_default(), resets_at: None });
        }
        Judgement { verdict, terminal_success, evidence, tool_denial: None, sandbox_failures }
    }

    /// Acceptance of output that ended with exit 0, in the documented order of verdicts.
    fn parse(self, exhausted: bool) -> Verdict {
        let seen = self.seen;
        if seen.noise {
            return deliver::rejected("codex wrote a line that is not a JSON object");
        }
        if let Some(message) = seen.last.as_ref().and_then(Ending::failure) {
            let text = message.map(evidence::message).filter(|text| !text.is_empty());
            return deliver::provider_error(
                exhausted,
                text.unwrap_or_else(|| "codex reported a failed turn".to_owned()),
            );
        }
        match seen.turns.answer() {
            Err(fault) => deliver::rejected(fault),
            Ok((text, usage)) => deliver::accepted(Delivered {
                text,
                handoff: None,
                report: ProviderReport {
                    model_evidence: Some(ModelEvidence::PinnedArgv),
                    session_id: seen.thread,
                    usage,
                    ..ProviderReport::default()
                },
            }),
        }
    }
}
