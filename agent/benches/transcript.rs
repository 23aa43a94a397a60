//! Throughput of the transcript readers on realistic output: MB/s a core, and how much slower than counting lines.
//! `cargo bench -p agent --bench transcript`

use std::hint::black_box;
use std::time::Duration;

use agent::descriptor::{Contract, Effort, Mode, Parent, Provider};
use agent::driver::{self, ChildExit, Environment, Lane};
use nix::time::{ClockId, clock_gettime};

const SIZE: usize = 64 << 20;
const CHUNK: usize = 64 << 10;
const ROUNDS: u32 = 5;

fn main() {
    let claude = claude_output();
    let codex = codex_output();
    report("claude", Provider::Claude, &claude);
    report("codex", Provider::Codex, &codex);
    report("claude, one 64 MB line", Provider::Claude, &long_line());
}

#[allow(clippy::print_stdout)]
fn report(name: &str, provider: Provider, output: &[u8]) {
    let plain = best(|| {
        let lines: usize = output.chunks(CHUNK).map(|chunk| memchr::memchr_iter(b'\n', chunk).count()).sum();
        black_box(lines);
    });
    let lane = lane(provider);
    let mut told = 0_usize;
    let read = best(|| {
        let Some(driver) = driver::of(provider) else { return };
        let mut transcript = driver.transcript(&lane);
        let mut events = Vec::new();
        told = 0;
        for chunk in output.chunks(CHUNK) {
            transcript.stdout(chunk, &mut events);
            told += events.len();
            events.clear();
        }
        black_box(transcript.finish(ChildExit::Code(0), &mut events));
    });
    let speed = output.len() as f64 / 1e6 / read.as_secs_f64();
    println!(
        "{name}: {speed:.0} MB/s, {told} events, {:.1}x a plain line count",
        read.as_secs_f64() / plain.as_secs_f64()
    );
}

/// Time that this thread really ran: other work on the machine does not count.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

fn best(mut run: impl FnMut()) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let start = processor_time();
        run();
        processor_time() - start
    });
    rounds.min().unwrap_or_default()
}

/// A session of Claude: texts, thoughts, edits and tool results from 100 bytes to 30 kB.
fn claude_output() -> Vec<u8> {
    let head = r#"{"type":"assistant","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5-5","content":["#;
    let tail = r#"],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":11,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1},"context_management":null},"parent_tool_use_id":null,"session_id":"s1","uuid":"46d6a5c4-0375-47e7-8ec9-ce0d92a39324","timestamp":"2026-11-29T22:22:58.032Z","request_id":"req_1"}"#;
    let source = r#"    let value = map.get(\"key\").copied().unwrap_or_default(); // größer\n"#;
    let mut out = String::from(
        "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s1\",\"model\":\"claude-opus-5-5\"}\n",
    );
    let mut turn = 0;
    while out.len() < SIZE {
        turn += 1;
        let long = source.repeat(1 + turn % 400);
        let short = source.repeat(1 + turn % 9);
        out.push_str(&format!("{head}{{\"type\":\"text\",\"text\":\"{short}\"}}{tail}\n"));
        out.push_str(&format!(
            "{head}{{\"type\":\"tool_use\",\"id\":\"t{turn}\",\"name\":\"Bash\",\"input\":{{\"command\":\"{short}\"}}}}{tail}\n"
        ));
        out.push_str(&format!(
            "{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":[{{\"tool_use_id\":\"t{turn}\",\"type\":\"tool_result\",\
             \"content\":\"{long}\",\"is_error\":false}}]}},\"parent_tool_use_id\":null,\"session_id\":\"s1\",\
             \"tool_use_result\":{{\"stdout\":\"{long}\",\"stderr\":\"\",\"interrupted\":false}}}}\n"
        ));
    }
    out.push_str(
        "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done\",\"session_id\":\"s1\"}\n",
    );
    out.into_bytes()
}

/// A session of Codex with commands of the same sizes.
fn codex_output() -> Vec<u8> {
    let source = r#"    let value = map.get(\"key\").copied().unwrap_or_default(); // größer\n"#;
    let mut out = String::from("{\"type\":\"thread.started\",\"thread_id\":\"t\"}\n{\"type\":\"turn.started\"}\n");
    let mut turn = 0;
    while out.len() < SIZE {
        turn += 1;
        let long = source.repeat(1 + turn % 400);
        let command =
            format!("\"id\":\"item_{turn}\",\"type\":\"command_execution\",\"command\":\"/bin/bash -lc 'cargo test'\"");
        out.push_str(&format!(
            "{{\"type\":\"item.started\",\"item\":{{{command},\"aggregated_output\":\"\",\"exit_code\":null,\"status\":\"in_progress\"}}}}\n\
             {{\"type\":\"item.completed\",\"item\":{{{command},\"aggregated_output\":\"{long}\",\"exit_code\":0,\"status\":\"completed\"}}}}\n\
             {{\"type\":\"item.completed\",\"item\":{{\"id\":\"m{turn}\",\"type\":\"agent_message\",\"text\":\"{source}\"}}}}\n"
        ));
    }
    out.push_str("{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":22,\"output_tokens\":14}}\n");
    out.into_bytes()
}

/// One event whose tool result alone is 64 MB.
fn long_line() -> Vec<u8> {
    let text = "0123456789abcdef\\n".repeat(SIZE / 18);
    format!(
        "{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":[{{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\
         \"content\":\"{text}\"}}]}}}}\n"
    )
    .into_bytes()
}

fn lane(provider: Provider) -> Lane {
    Lane {
        parent: Parent::Codex,
        provider,
        model: "opus".to_owned(),
        effort: Effort::High,
        mode: Mode::ReadOnly,
        contract: Contract::Legacy,
        api_spend: None,
        cwd: "/w".to_owned(),
        home: "/home/lane".to_owned(),
        receipt: "/r/receipt.json".to_owned(),
        prompt: Vec::new(),
        environment: Environment::new(),
    }
}
