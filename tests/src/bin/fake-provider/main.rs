//! A provider CLI that misbehaves as it is told, for the end-to-end tests. Called `codex` it answers as codex does,
//! under any other name as claude does. Only the standard library, so that `tests/images/build` can compile it alone,
//! static, into an image without any other file.
//!
//! What to do is a list of lines, see [`script::Act`]: the variable `FAKE_PROVIDER` (lines separated by `;`), or the
//! file `.fake-provider` in the working directory, or each line of the prompt that begins with `fake-provider:`. They
//! are acted one after the other; then comes a successful result, unless one of them ended the run. With no line at
//! all the prompt is read and a minimal success is printed at once.

mod act;
mod forbidden;
mod script;
mod system;
mod voice;

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::{env, fs, thread};

use act::Ending;
use script::{Act, Script};
use voice::{Cli, Voice};

fn main() -> ExitCode {
    let words: Vec<String> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let cli = Cli::of(words.first().map_or("", String::as_str));
    let fixed = script_before_the_prompt();
    let answer = match (cli, arguments.as_slice()) {
        (_, [system::SLEEPER]) => system::sleep_whatever_comes(),
        (_, [system::EATER]) => act::eat_memory(u64::MAX),
        (Cli::Codex, [.., "sandbox", "--", _]) => Some(String::new()), // any command works in it
        (Cli::Claude, ["--version"]) => Some("2.1.332 (Claude Code)\n".to_owned()),
        (Cli::Codex, ["--version"]) => Some("codex-cli 0.171.0\n".to_owned()),
        (Cli::Codex, [.., "login", "status"]) => Some("Logged in using ChatGPT\n".to_owned()),
        _ => None,
    };
    let ended = match answer {
        Some(answer) => preflight(&fixed, &answer),
        None => workload(cli, &arguments, fixed),
    };
    ended.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "fake-provider: {error}");
        ExitCode::from(70)
    })
}

/// The script that is known without reading stdin.
fn script_before_the_prompt() -> Script {
    match env::var("FAKE_PROVIDER") {
        Ok(lines) => Script::parse(lines.split(';')),
        Err(_) => Script::parse(fs::read_to_string(".fake-provider").unwrap_or_default().lines()),
    }
}

fn preflight(script: &Script, answer: &str) -> io::Result<ExitCode> {
    let mut said = answer.to_owned();
    let mut code = 0;
    for act in &script.acts {
        match act {
            Act::PreflightSays(text) => said = format!("{text}\n"),
            Act::PreflightExits(with) => code = *with,
            Act::PreflightHangs => loop {
                thread::park();
            },
            _ => {}
        }
    }
    io::stdout().write_all(said.as_bytes())?;
    Ok(ExitCode::from(code))
}

fn workload(cli: Cli, arguments: &[&str], fixed: Script) -> io::Result<ExitCode> {
    let mut script = fixed;
    if !script.acts.iter().any(|act| matches!(act, Act::IgnoresStdin)) {
        let mut prompt = Vec::new();
        io::stdin().lock().read_to_end(&mut prompt)?;
        if script.acts.is_empty() {
            let prompt = String::from_utf8_lossy(&prompt);
            script = Script::parse(prompt.lines().filter_map(|line| line.trim().strip_prefix("fake-provider:")));
        }
    }
    let mut voice = Voice::new(cli, arguments);
    voice.begins()?;
    for act in script.acts {
        match act.perform(&mut voice)? {
            Ending::GoesOn => {}
            Ending::Exit(code) => return Ok(ExitCode::from(code)),
        }
    }
    voice.succeeds()?;
    Ok(ExitCode::SUCCESS)
}
