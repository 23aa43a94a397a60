//! Reads Claude's stream-json and judges it (runner section 4).

use super::blocks::Blocks;
use super::model;
use super::records::{KEYS, PLAN, Record, ResultRecord};
use crate::driver::evidence::{self, Terminal};
use crate::driver::stream::{Item, JsonStream};
use crate::driver::{ChildExit, Delivered, Judgement, Transcript, Verdict, clip, deliver, quota};
use crate::event::EventBody;
use crate::receipt::{ModelEvidence, ProviderReport, Status};

/// The reader of one run.
pub(super) struct ClaudeTranscript {
    stdout: JsonStream<{ KEYS.len() }>,
    stderr: JsonStream<0>,
    seen: Seen,
    requested: String,
}

/// Everything that the judgement needs, and no more.
#[derive(Default)]
struct Seen {
    session: Option<String>,
    /// A line that is no JSON object.
    noise: bool,
    /// A line whose wanted part was too large to keep.
    overflow: bool,
    results: u64,
    last_result: Option<ResultRecord>,
    /// The last JSON object was a result.
    ends_with_result: bool,
    /// Something came after a result.
    after_result: bool,
    main: model::Main,
    blocks: Blocks,
    resets_at: Option<i64>,
}

impl ClaudeTranscript {
    pub(super) fn new(requested: &str) -> Self {
        Self {
            stdout: JsonStream::new(&KEYS, &PLAN),
            stderr: JsonStream::new(&[], &PLAN),
            seen: Seen::default(),
            requested: requested.to_owned(),
        }
    }
}

impl Transcript for ClaudeTranscript {
    fn stdout(&mut self, bytes: &[u8], events: &mut Vec<EventBody>) {
        let Self { stdout, seen, .. } = self;
        stdout.feed(bytes, &mut |item| seen.item(&item, events));
    }

    fn stderr(&mut self, bytes: &[u8], _events: &mut Vec<EventBody>) {
        self.stderr.feed(bytes, &mut |_| {});
    }

    fn finish(mut self: Box<Self>, exit: ChildExit, events: &mut Vec<EventBody>) -> Judgement {
        let Self { stdout, stderr, seen, .. } = &mut *self;
        let whole = stdout.finish(&mut |item| seen.item(&item, events));
        stderr.finish(&mut |_| {});
        if let Some(record) = whole.as_deref().and_then(Record::parse) {
            // Acceptance reads lines only, so this counts for success, quota and evidence, not for the answer.
            seen.whole(record);
        }
        self.judge(exit, events)
    }
}

impl Seen {
    fn item(&mut self, item: &Item<'_, { KEYS.len() }>, events: &mut Vec<EventBody>) {
        let (record, overflow) = match item {
            Item::Object { fields, overflow } => (Record::new(fields), *overflow),
            Item::Noise => {
                self.noise = true;
                self.after_result |= self.results > 0;
                return;
            }
        };
        self.after_result |= self.results > 0;
        self.ends_with_result = record.is("result");
        self.overflow |= overflow && !self.ends_with_result;
        if self.ends_with_result {
            self.results += 1;
            let result = record.result(overflow);
            result.tell(events);
            self.last_result = Some(result);
        } else if record.is("assistant") {
            self.resets_at = record.rejected_until().or(self.resets_at);
            self.main.assistant(&record);
            self.blocks.assistant(&record, events);
        } else if record.is("user") {
            self.blocks.user(&record, events);
        } else if record.is("system") {
            self.system(&record, events);
        } else if record.is("rate_limit_event") {
            self.resets_at = record.rejected_until().or(self.resets_at);
        }
    }

    fn system(&mut self, record: &Record<'_>, events: &mut Vec<EventBody>) {
        let text = |field| crate::driver::json::nonempty(field).map(|text| clip::text(&text));
        let Some(subtype) = record.subtype.and_then(|subtype| subtype.text()) else { return };
        match &*subtype {
            "init" => {
                // It is repeated at each turn of one session.
                let id = text(record.session_id);
                if self.session.is_none() || self.session != id {
                    self.session.clone_from(&id);
                    events.push(EventBody::Session { id, model: text(record.model) });
                }
            }
            "permission_denied" => events.push(EventBody::Permission {
                tool: text(record.tool_name),
                granted: false,
                reason: text(record.decision_reason)
                    .or_else(|| record.message.and_then(|m| m.text()).map(|m| clip::text(&m))),
            }),
            "api_retry" => events.push(EventBody::Error {
                message: format!("model request failed, retrying: {}", text(record.error).unwrap_or_default()),
                transient: true,
            }),
            _ => {}
        }
    }

    fn whole(&mut self, record: Record<'_>) {
        self.ends_with_result = record.is("result");
        if self.ends_with_result {
            self.last_result = Some(record.result(false));
        }
    }
}

impl ClaudeTranscript {
    fn judge(self, exit: ChildExit, events: &mut Vec<EventBody>) -> Judgement {
        let last = self.seen.last_result.as_ref();
        let terminal_success = last.is_some_and(ResultRecord::succeeded);
        let exhausted = last.is_some_and(ResultRecord::proves_exhaustion);
        let typed_error = last.is_some_and(|result| result.is_error == Some(true));
        let terminal = last.map(|result| {
            Terminal::default().boolean("is_error", result.is_error).text("result", result.text.as_deref())
        });
        let verdict = deliver::failed_exit(exit, exhausted);
        let invocation = verdict.is_some();
        let kept = if invocation { self.seen.ends_with_result } else { typed_error };
        let diagnostic = (exhausted && (typed_error || invocation)).then_some(quota::CLAUDE);
        let evidence = evidence::render(
            diagnostic,
            terminal.as_ref().filter(|_| kept),
            self.stdout.counts(),
            self.stderr.counts(),
        );
        let sandbox_failures = self.seen.blocks.sandbox_failures();
        let resets_at = self.seen.resets_at;
        let diagnosis = last.and_then(|result| result.text.as_deref()).map(evidence::message);
        let verdict = verdict.unwrap_or_else(|| self.parse());
        if matches!(verdict, Verdict::Failed { status: Status::UsageExhausted, .. }) {
            events.push(EventBody::QuotaExhausted { message: diagnosis.unwrap_or_default(), resets_at });
        }
        Judgement { verdict, terminal_success, evidence, tool_denial: None, sandbox_failures }
    }

    /// Acceptance of output that ended with exit 0, in the documented order.
    fn parse(self) -> Verdict {
        let Self { seen, requested, .. } = self;
        let exhausted = seen.last_result.as_ref().is_some_and(ResultRecord::proves_exhaustion);
        if let Some(result) = seen.last_result.as_ref().filter(|result| result.is_error == Some(true)) {
            let text = result.text.as_deref().map(evidence::message).filter(|text| !text.is_empty());
            return deliver::provider_error(exhausted, text.unwrap_or_else(|| "claude reported an error".to_owned()));
        }
        if seen.noise {
            return deliver::rejected("claude wrote a line that is not a JSON object");
        }
        let Some(result) = seen.last_result else { return deliver::rejected("claude wrote no result event") };
        if seen.results != 1 {
            return deliver::rejected("claude wrote more than one result event");
        }
        if seen.after_result {
            return deliver::rejected("claude wrote events after its result");
        }
        if !result.is_success || result.is_error != Some(false) {
            return deliver::rejected("claude's result is not marked as a success");
        }
        if result.overflow {
            return deliver::rejected("claude's final answer is larger than 16 MiB");
        }
        if seen.overflow {
            return deliver::rejected("claude wrote an event that is too large to judge");
        }
        let (Some(text), Some(session)) = (result.text, result.session_id) else {
            return deliver::rejected("claude's result has no text or no session");
        };
        let reported = match seen.main.reported(&session) {
            Ok(Some(reported)) if model::matches(&requested, &reported) => reported,
            Ok(_) => return deliver::rejected(format!("requested model {requested} was not reported by claude")),
            Err(fault) => return deliver::rejected(fault),
        };
        deliver::accepted(Delivered {
            text,
            handoff: None,
            report: ProviderReport {
                reported_model: Some(reported),
                model_verified: true,
                model_evidence: Some(ModelEvidence::ProviderReport),
                session_id: Some(session),
                usage: result.usage,
                cost_usd: result.cost_usd,
            },
        })
    }
}
