//! Reads Claude's stream-json.

use crate::driver::{ChildExit, Judgement, SandboxFailures, Transcript, Verdict};
use crate::event::EventBody;
use crate::receipt::{FailurePhase, Status};

pub(super) struct ClaudeTranscript {
    _model: String,
}

impl ClaudeTranscript {
    pub(super) fn new(model: &str) -> Self {
        Self { _model: model.to_owned() }
    }
}

impl Transcript for ClaudeTranscript {
    fn stdout(&mut self, _bytes: &[u8], _events: &mut Vec<EventBody>) {}
    fn stderr(&mut self, _bytes: &[u8], _events: &mut Vec<EventBody>) {}
    fn finish(self: Box<Self>, _exit: ChildExit, _events: &mut Vec<EventBody>) -> Judgement {
        Judgement {
            verdict: Verdict::Failed {
                status: Status::MalformedOutput,
                phase: FailurePhase::Postprocess,
                message: "the reader of this output is not built yet".to_owned(),
            },
            terminal_success: false,
            evidence: String::new(),
            tool_denial: None,
            sandbox_failures: SandboxFailures::default(),
        }
    }
}
