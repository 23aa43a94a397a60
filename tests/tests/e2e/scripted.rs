//! A stand-in for the claude CLI whose behaviour is a shell script in the prompt, for what the real one never does on
//! command. It is named as a stand-in, and only tests of misbehaviour and of the container's inside use it.

use std::process::Command;
use std::sync::OnceLock;

use tests::world::{Cli, Engine, Lane, World};

const IMAGE: &str = "laneyard-tests/scripted-claude:2";

const DOCKERFILE: &str = "FROM laneyard/base:current\nCOPY claude /usr/local/bin/claude\n";

const PROGRAM: &str = r##"#!/bin/bash
# Stand-in for claude: runs the script between SCRIPT<< and >>SCRIPT of its prompt.
[ "$1" = --version ] && { echo "2.1.332 (Claude Code)"; exit 0; }
model=fake-model
for ((i = 1; i < $#; i++)); do [ "${!i}" = --model ] && { j=$((i + 1)); model=${!j}; }; done
[ "$model" = exits-before-reading ] && exit 3
quote() { local t=${1//\\/\\\\}; t=${t//\"/\\\"}; t=${t//$'\t'/\\t}; t=${t//$'\r'/}; printf '%s' "${t//$'\n'/\\n}"; }
init() { printf '{"type":"system","subtype":"init","session_id":"s1","model":"%s"}\n' "$model"; }
assistant() {
  printf '{"type":"assistant","message":{"id":"m1","role":"assistant","model":"%s","content":[{"type":"text","text":"%s"}]},"parent_tool_use_id":null,"session_id":"s1"}\n' \
    "$model" "$(quote "$1")"
}
result() {
  printf '{"type":"result","subtype":"success","is_error":false,"result":"%s","session_id":"s1","num_turns":1,"total_cost_usd":0.5,"usage":{"input_tokens":1,"output_tokens":2},"modelUsage":{}}\n' \
    "$(quote "$1")"
}
answer() { init; assistant "$1"; result "$1"; }
prompt=$(cat)
script=${prompt#*SCRIPT<<}
eval "${script%%>>SCRIPT*}"
"##;

/// A lane of the stand-in on Docker.
pub(crate) fn lane<'w>(world: &'w World, script: &str) -> Lane<'w> {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(build);
    assert_eq!(world.engine, Engine::Docker, "the stand-in's image is made on Docker only");
    world.lane(Cli::Claude).flag("--image", IMAGE).prompt(format!("SCRIPT<<\n{script}\n>>SCRIPT\n"))
}

fn build() {
    use std::os::unix::fs::PermissionsExt as _;
    let context = tempfile::tempdir().unwrap();
    std::fs::write(context.path().join("Dockerfile"), DOCKERFILE).unwrap();
    let program = context.path().join("claude");
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("docker")
        .args(["build", "--quiet", "--tag", IMAGE])
        .arg(context.path())
        .env("DOCKER_BUILDKIT", "0")
        .output()
        .expect("the docker program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
