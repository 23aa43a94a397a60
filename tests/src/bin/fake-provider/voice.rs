//! How each CLI says things: one JSON object a line.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

/// Whom we play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cli {
    Claude,
    Codex,
}

impl Cli {
    pub(crate) fn of(program: &str) -> Self {
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.contains("codex") { Self::Codex } else { Self::Claude }
    }
}

const SESSION: &str = "5e551011-0000-4000-8000-00000000fa4e";

pub(crate) struct Voice {
    cli: Cli,
    model: String,
    answer: String,
}

impl Voice {
    pub(crate) fn new(cli: Cli, arguments: &[&str]) -> Self {
        let asked = arguments.windows(2).find(|pair| pair[0] == "--model").map_or("opus", |pair| pair[1]);
        let model = match asked {
            "fable" | "opus" | "sonnet" | "haiku" => format!("claude-{asked}-5-5"),
            exact => exact.to_owned(),
        };
        Self { cli, model, answer: "fake answer".to_owned() }
    }

    pub(crate) fn will_say(&mut self, text: &str) {
        text.clone_into(&mut self.answer);
    }

    pub(crate) fn will_report(&mut self, model: String) {
        self.model = model;
    }

    pub(crate) fn begins(&self) -> io::Result<()> {
        match self.cli {
            Cli::Claude => line(&format!(
                r#"{{"type":"system","subtype":"init","cwd":".","session_id":"{SESSION}","tools":[],"mcp_servers":[],"model":{},"permissionMode":"plan","apiKeySource":"none","claude_code_version":"2.1.332"}}"#,
                quoted(&self.model)
            )),
            Cli::Codex => {
                line(&format!(r#"{{"type":"thread.started","thread_id":"{SESSION}"}}"#))?;
                line(r#"{"type":"turn.started"}"#)
            }
        }
    }

    /// Text of the model, before the end.
    pub(crate) fn says(&self, text: &str) -> io::Result<()> {
        line(&match self.cli {
            Cli::Claude => format!(
                r#"{{"type":"assistant","message":{{"id":"msg_fake","type":"message","role":"assistant","model":{},"content":[{{"type":"text","text":{}}}],"stop_reason":null,"usage":{{"input_tokens":3,"output_tokens":2}}}},"parent_tool_use_id":null,"session_id":"{SESSION}"}}"#,
                quoted(&self.model),
                quoted(text)
            ),
            Cli::Codex => format!(
                r#"{{"type":"item.completed","item":{{"id":"item_0","type":"agent_message","text":{}}}}}"#,
                quoted(text)
            ),
        })
    }

    pub(crate) fn succeeds(&self) -> io::Result<()> {
        self.says(&self.answer)?;
        match self.cli {
            Cli::Claude => line(&format!(
                r#"{{"type":"result","subtype":"success","is_error":false,"duration_ms":5,"num_turns":1,"result":{},"stop_reason":"end_turn","terminal_reason":"completed","session_id":"{SESSION}","total_cost_usd":0.0005,"usage":{{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}},"modelUsage":{{}},"permission_denials":[]}}"#,
                quoted(&self.answer)
            )),
            Cli::Codex => line(
                r#"{"type":"turn.completed","usage":{"input_tokens":3,"cached_input_tokens":0,"output_tokens":2,"reasoning_output_tokens":0}}"#,
            ),
        }
    }

    pub(crate) fn fails(&self, message: &str) -> io::Result<()> {
        let message = quoted(message);
        match self.cli {
            Cli::Claude => line(&format!(
                r#"{{"type":"result","subtype":"success","is_error":true,"duration_ms":5,"num_turns":1,"result":{message},"terminal_reason":"api_error","api_error_status":500,"session_id":"{SESSION}","total_cost_usd":0,"usage":{{"input_tokens":0,"output_tokens":0}}}}"#
            )),
            Cli::Codex => {
                line(&format!(r#"{{"type":"error","message":{message}}}"#))?;
                line(&format!(r#"{{"type":"turn.failed","error":{{"message":{message}}}}}"#))
            }
        }
    }

    /// Beginning and end of a record that neither CLI's reader gives a meaning.
    pub(crate) fn padding(&self) -> (&'static [u8], &'static [u8]) {
        match self.cli {
            Cli::Claude => (br#"{"type":"system","subtype":"padding","text":""#, b"\"}\n"),
            Cli::Codex => (br#"{"type":"padding","text":""#, b"\"}\n"),
        }
    }
}

fn line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// Text as JSON.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            plain => json.push(plain),
        }
    }
    json.push('"');
    json
}
