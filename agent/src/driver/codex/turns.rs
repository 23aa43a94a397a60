//! Framing of codex' turns (runner 4.1): which text is final.

use super::items::Parts;
use crate::driver::json::{self, Fields, Raw};
use crate::driver::usage;
use crate::receipt::Usage;

/// The event that ends a turn or the run.
#[derive(Debug, PartialEq)]
pub(super) enum Ending {
    Completed,
    Failed(Option<String>),
    Error(Option<String>),
}

impl Ending {
    /// Reads an ending; `None` for other events. The fields are `type, thread_id, item, usage, error, message`.
    pub(super) fn of(kind: &str, fields: &Fields<'_, 6>) -> Option<Self> {
        let [_, _, _, _, error, message] = *fields;
        let text = |raw: Option<Raw<'_>>| raw.and_then(Raw::text).map(std::borrow::Cow::into_owned);
        match kind {
            "turn.completed" => Some(Self::Completed),
            "turn.failed" => {
                Some(Self::Failed(error.and_then(|error| error.fields(&["message"])).and_then(|[m]| text(m))))
            }
            "error" => Some(Self::Error(text(message))),
            _ => None,
        }
    }

    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Completed => "turn.completed",
            Self::Failed(_) => "turn.failed",
            Self::Error(_) => "error",
        }
    }

    pub(super) fn message(&self) -> Option<&str> {
        self.failure().flatten()
    }

    /// The message of a failure, which may lack one.
    pub(super) fn failure(&self) -> Option<Option<&str>> {
        match self {
            Self::Completed => None,
            Self::Failed(message) | Self::Error(message) => Some(message.as_deref()),
        }
    }
}

/// What is known of the turns so far.
#[derive(Default)]
pub(super) struct Turns {
    /// A `turn.started` was seen.
    framed: bool,
    /// Work was seen outside of any frame.
    unframed: bool,
    open: bool,
    /// Text of the open turn's last message.
    text: Option<Text>,
    completed: Option<Completed>,
    fault: Option<&'static str>,
}

enum Text {
    Whole(String),
    TooLarge,
}

struct Completed {
    text: Option<Text>,
    usage: Option<Usage>,
}

impl Turns {
    pub(super) fn fail(&mut self, fault: &'static str) {
        self.fault.get_or_insert(fault);
    }

    pub(super) fn started(&mut self) {
        if self.open && self.framed {
            self.fail("codex began a turn inside a turn");
        }
        if self.unframed {
            self.fail("codex mixed framed and unframed turns");
        }
        self.framed = true;
        self.open = true;
        self.text = None;
    }

    /// An item event; `parts` are those of its item, if that is an object.
    pub(super) fn item(&mut self, kind: &str, parts: Option<&Parts<'_>>, overflow: bool) {
        let (item_kind, text) = parts.map_or((None, None), |parts| (parts.kind, parts.text));
        if json::is(item_kind, "error") {
            return;
        }
        if overflow && item_kind.is_none() {
            self.fail("codex wrote an item that is too large to judge");
        }
        if !self.open {
            if self.framed {
                self.fail("codex worked outside of a turn");
            }
            self.unframed = true;
            self.open = true;
            self.text = None;
        }
        if kind == "item.completed" && json::is(item_kind, "agent_message") {
            self.text = text
                .and_then(Raw::text)
                .map(|text| if overflow { Text::TooLarge } else { Text::Whole(text.into_owned()) });
        }
    }

    pub(super) fn completed(&mut self, usage: Option<Raw<'_>>) {
        self.end();
        self.completed = Some(Completed { text: self.text.take(), usage: usage::read(usage) });
    }

    pub(super) fn failed(&mut self) {
        self.end();
        self.text = None;
        self.completed = None;
    }

    fn end(&mut self) {
        if !self.open && self.framed {
            self.fail("codex ended a turn that was not open");
        }
        if !self.framed {
            self.unframed = true;
        }
        self.open = false;
    }

    /// Usage and text of the last completed turn.
    pub(super) fn last(&self) -> (Option<&Usage>, Option<&str>) {
        let Some(completed) = &self.completed else { return (None, None) };
        let text = match &completed.text {
            Some(Text::Whole(text)) => Some(text.as_str()),
            _ => None,
        };
        (completed.usage.as_ref(), text)
    }

    /// The final text, or why there is none.
    pub(super) fn answer(self) -> Result<(String, Option<Usage>), &'static str> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.open {
            return Err("codex left its last turn unfinished");
        }
        let Some(completed) = self.completed else { return Err("codex completed no turn") };
        match completed.text {
            Some(Text::Whole(text)) if !crate::blank::is_blank(&text) => Ok((text, completed.usage)),
            Some(Text::TooLarge) => Err("codex' final answer is larger than 16 MiB"),
            _ => Err("codex' last completed turn has no final message"),
        }
    }
}
