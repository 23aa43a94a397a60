//! Commands, variables, hosts and preflights.

use super::*;

const CLAUDE: &str = "/usr/local/bin/claude";
const CODEX: &str = "/usr/local/bin/codex";

fn given(provider: Provider, mode: Mode, spend: Option<ApiSpend>, variables: &[(&str, &str)]) -> Lane {
    let driver = of(provider).unwrap();
    let environment = variables
        .iter()
        .filter(|(name, _)| driver.passes(name))
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Lane { api_spend: spend, environment, ..lane(provider, mode) }
}

fn argv(lane: &Lane, executable: &str, inner: InnerState) -> Vec<String> {
    of(lane.provider).unwrap().workload(lane, executable, inner).argv
}

#[test]
fn a_claude_reader_has_exactly_the_documented_arguments() {
    let expected = [
        CLAUDE,
        "-p",
        "--model",
        "opus",
        "--effort",
        "high",
        "--permission-mode",
        "plan",
        "--setting-sources",
        "project",
        "--strict-mcp-config",
        "--tools",
        "Read,Grep,Glob,Bash",
        "--no-session-persistence",
        "--disable-slash-commands",
        "--disallowed-tools",
        "Agent,Task,WebSearch,WebFetch,Edit,Write,NotebookEdit",
        "--output-format",
        "stream-json",
        "--verbose",
    ];
    assert_eq!(argv(&lane(Provider::Claude, Mode::ReadOnly), CLAUDE, InnerState::Enforced), expected);
    let deny = given(Provider::Claude, Mode::ReadOnly, Some(ApiSpend::Deny), &[]);
    assert_eq!(argv(&deny, CLAUDE, InnerState::Enforced)[9], "");
}

#[test]
fn a_claude_writer_is_sandboxed_and_has_no_setting_sources() {
    let expected = [
        CLAUDE,
        "-p",
        "--model",
        "opus",
        "--effort",
        "high",
        "--permission-mode",
        "acceptEdits",
        "--setting-sources",
        "",
        "--strict-mcp-config",
        "--tools",
        "Read,Write,Edit,Grep,Glob,Bash",
        "--no-session-persistence",
        "--disable-slash-commands",
        "--disallowed-tools",
        "Agent,Task,WebSearch,WebFetch",
        "--settings",
        "{\"sandbox\":{\"enabled\":true,\"autoAllowBashIfSandboxed\":true,\"failIfUnavailable\":true,\
         \"allowUnsandboxedCommands\":false,\"excludedCommands\":[],\"enableWeakerNestedSandbox\":true,\
         \"network\":{\"allowedDomains\":[]}}}",
        "--output-format",
        "stream-json",
        "--verbose",
    ];
    let writer = lane(Provider::Claude, Mode::IsolatedWrite);
    assert_eq!(argv(&writer, CLAUDE, InnerState::Enforced), expected);
    let alone = argv(&writer, CLAUDE, InnerState::ContainerOnly);
    assert_eq!(alone[18], r#"{"sandbox":{"enabled":false},"permissions":{"allow":["Bash"]}}"#);
}

#[test]
fn codex_has_exactly_the_documented_arguments() {
    let expected = |sandbox| {
        [
            CODEX,
            "exec",
            "--model",
            "gpt-5.6-sol",
            "--config",
            "model_reasoning_effort=\"high\"",
            "--sandbox",
            sandbox,
            "--cd",
            "/w/wt",
            "--skip-git-repo-check",
            "--ephemeral",
            "--disable",
            "plugins",
            "--disable",
            "multi_agent",
            "--disable",
            "hooks",
            "--disable",
            "memories",
            "--json",
            "-",
        ]
    };
    let reader = lane(Provider::Codex, Mode::ReadOnly);
    let writer = lane(Provider::Codex, Mode::IsolatedWrite);
    assert_eq!(argv(&reader, CODEX, InnerState::Enforced), expected("read-only"));
    assert_eq!(argv(&writer, CODEX, InnerState::Enforced), expected("workspace-write"));
    assert_eq!(argv(&writer, CODEX, InnerState::ContainerOnly), expected("danger-full-access"));
}

#[test]
fn the_prompt_ends_with_the_task_in_both_modes() {
    for provider in [Provider::Claude, Provider::Codex] {
        for mode in [Mode::ReadOnly, Mode::IsolatedWrite] {
            let lane = lane(provider, mode);
            let step = of(provider).unwrap().workload(&lane, "x", InnerState::Enforced);
            let Stdin::Bytes(prompt) = step.stdin else { panic!("no prompt") };
            let prompt = String::from_utf8(prompt).unwrap();
            assert!(prompt.starts_with("## Worker contract") && prompt.ends_with("\n\nAssigned task:\ndo it\n"));
            assert_eq!(step.cwd, "/w/wt");
        }
    }
}

#[test]
fn identities_and_foreign_credentials_stay_outside() {
    let host = [
        ("CLAUDECODE", "1"),
        ("CLAUDE_CODE_SESSION_ID", "s"),
        ("CODEX_THREAD_ID", "t"),
        ("CODEX_SANDBOX", "x"),
        ("ANTHROPIC_API_KEY", "a"),
        ("OPENAI_API_KEY", "o"),
        ("AWS_SECRET_ACCESS_KEY", "w"),
        ("GITHUB_TOKEN", "g"),
        ("SSH_AUTH_SOCK", "/x"),
        ("HOME", "/root"),
    ];
    let variables = |provider| {
        let lane = given(provider, Mode::ReadOnly, None, &host);
        of(provider).unwrap().environment(&lane).into_iter().map(|(name, value)| format!("{name}={value}"))
    };
    let claude: Vec<String> = variables(Provider::Claude).collect();
    assert_eq!(
        claude,
        [
            "ANTHROPIC_API_KEY=a",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
            "CLAUDE_CODE_MAX_RETRIES=4",
            "DISABLE_AUTOUPDATER=1",
            "DISABLE_ERROR_REPORTING=1",
            "DISABLE_TELEMETRY=1",
        ]
    );
    let codex: Vec<String> = variables(Provider::Codex).collect();
    assert_eq!(codex, ["CODEX_HOME=/home/lane/.codex", "CODEX_SANDBOX=x", "CODEX_THREAD_ID=t"]);
}

#[test]
fn a_cloud_credential_enters_only_with_its_switch() {
    let keys = [("AWS_SECRET_ACCESS_KEY", "w"), ("AWS_REGION", "eu-west-1"), ("CLAUDE_CODE_USE_BEDROCK", "1")];
    let on = given(Provider::Claude, Mode::ReadOnly, None, &keys);
    let driver = of(Provider::Claude).unwrap();
    assert_eq!(driver.environment(&on)["AWS_SECRET_ACCESS_KEY"], "w");
    assert_eq!(driver.hosts(&on), ["bedrock-runtime.eu-west-1.amazonaws.com:443"]);
    let off = given(Provider::Claude, Mode::ReadOnly, None, &keys[..2]);
    assert!(!driver.environment(&off).contains_key("AWS_SECRET_ACCESS_KEY"));
}

#[track_caller]
fn hosts(provider: Provider, variables: &[(&str, &str)], expected: &[&str]) {
    let lane = given(provider, Mode::ReadOnly, None, variables);
    assert_eq!(of(provider).unwrap().hosts(&lane), expected, "{variables:?}");
}

#[test]
fn hosts_are_those_that_the_credential_needs() {
    use Provider::{Claude, Codex};
    hosts(Claude, &[], &["api.anthropic.com:443", "platform.claude.com:443"]);
    hosts(Claude, &[("ANTHROPIC_API_KEY", "k")], &["api.anthropic.com:443"]);
    hosts(
        Claude,
        &[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://Model.test:18080/x")],
        &["model.test:18080"],
    );
    hosts(Claude, &[("CLAUDE_CODE_OAUTH_TOKEN", "k"), ("ANTHROPIC_BASE_URL", "https://m.test")], &["m.test:443"]);
    hosts(Codex, &[], &["chatgpt.com:443", "auth.openai.com:443"]);
    hosts(Codex, &[("CODEX_API_KEY", "k")], &["api.openai.com:443"]);
    hosts(Codex, &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")], &["127.0.0.1:9"]);
}

#[test]
fn codex_gets_a_private_configuration_and_key_file() {
    let variables = [("OPENAI_API_KEY", "k1"), ("OPENAI_BASE_URL", "http://m.test/v1"), ("LANEYARD_MAX_RETRIES", "0")];
    let lane = given(Provider::Codex, Mode::ReadOnly, None, &variables);
    let step = of(Provider::Codex).unwrap().workload(&lane, CODEX, InnerState::Enforced);
    let [config, auth] = &step.files[..] else { panic!("{:?}", step.files) };
    assert_eq!((config.path.as_str(), config.mode), ("/home/lane/.codex/config.toml", 0o600));
    let table: toml::Table = String::from_utf8(config.content.clone()).unwrap().parse().unwrap();
    assert_eq!(table["features"]["unbounded_connection_retries"].as_bool(), Some(false));
    assert_eq!(table["analytics"]["enabled"].as_bool(), Some(false));
    let provider = &table["model_providers"][table["model_provider"].as_str().unwrap()];
    assert_eq!(provider["base_url"].as_str(), Some("http://m.test/v1"));
    assert_eq!(provider["request_max_retries"].as_integer(), Some(0));
    assert_eq!((auth.path.as_str(), auth.mode), ("/home/lane/.codex/auth.json", 0o600));
    assert!(String::from_utf8_lossy(&auth.content).contains("k1"));
    assert!(!step.environment.values().any(|value| value == "k1"), "the key is in one place only");
}

#[test]
fn under_deny_no_codex_key_is_used() {
    let lane = given(Provider::Codex, Mode::ReadOnly, Some(ApiSpend::Deny), &[("CODEX_API_KEY", "k")]);
    let step = of(Provider::Codex).unwrap().workload(&lane, CODEX, InnerState::Enforced);
    assert!(!step.environment.contains_key("CODEX_API_KEY"));
    assert_eq!(step.files.len(), 1);
}

fn preflight(provider: Provider, spend: Option<ApiSpend>, exit: i32, stdout: &str, stderr: &str) -> PreflightVerdict {
    let lane = given(provider, Mode::IsolatedWrite, spend, &[]);
    let result = StepResult { exit: ChildExit::Code(exit), stdout: stdout.into(), stderr: stderr.into() };
    of(provider).unwrap().judge_preflight(&lane, &result)
}

#[test]
fn claude_asks_for_the_version_of_writers_only() {
    let driver = of(Provider::Claude).unwrap();
    assert_eq!(driver.preflight(&lane(Provider::Claude, Mode::ReadOnly), CLAUDE), None);
    assert_eq!(driver.preflight_not_run(), "authentication deferred to invocation; billing route unverified");
    let step = driver.preflight(&lane(Provider::Claude, Mode::IsolatedWrite), CLAUDE).unwrap();
    assert_eq!(step.argv, [CLAUDE, "--version"]);
    for good in ["2.1.332 (Claude Code)\n", "2.1.285", "3.0.0 (Claude Code)"] {
        let verdict = preflight(Provider::Claude, None, 0, good, "");
        assert!(matches!(verdict, PreflightVerdict::Passed { .. }), "{good}: {verdict:?}");
    }
    for (exit, bad) in
        [(0, "2.1.284 (Claude Code)"), (0, "2.1.300-beta.1"), (0, "2.2"), (0, ""), (1, "2.1.332"), (0, "x 2.1.332")]
    {
        let verdict = preflight(Provider::Claude, None, exit, bad, "");
        let PreflightVerdict::Failed { status, message, evidence } = verdict else { panic!("{bad}: {verdict:?}") };
        assert_eq!(status, Status::UnavailableCli);
        assert!(message.contains("2.1.285") && evidence.starts_with("stdout: "), "{message} {evidence}");
    }
}

#[test]
fn codex_must_be_logged_in() {
    let passed = |stdout, stderr| {
        let verdict = preflight(Provider::Codex, None, 0, stdout, stderr);
        assert_eq!(verdict, PreflightVerdict::Passed { evidence: "authenticated".to_owned() });
    };
    passed("", "Logged in using ChatGPT\n");
    passed("LOGGED IN", "");
    passed("API key configured - ***\nAuthentication is checked when you send a request.", "");
    let verdict = preflight(Provider::Codex, None, 1, "", "Not logged in\n");
    let PreflightVerdict::Failed { status, message, evidence } = verdict else { panic!("{verdict:?}") };
    assert_eq!(status, Status::Unauthenticated);
    assert_eq!(message, "authentication or model preflight failed");
    assert_eq!(evidence, "stdout: 0 line(s), 0 JSON event(s); stderr: 1 line(s), 0 JSON event(s)");
    assert!(matches!(preflight(Provider::Codex, None, 0, "fine", ""), PreflightVerdict::Failed { .. }));
}

#[test]
fn under_deny_codex_must_be_logged_in_with_chatgpt() {
    let deny = Some(ApiSpend::Deny);
    let passes = |text: &str| matches!(preflight(Provider::Codex, deny, 0, "", text), PreflightVerdict::Passed { .. });
    let blocked =
        |text: &str| matches!(preflight(Provider::Codex, deny, 0, text, ""), PreflightVerdict::BillingBlocked { .. });
    assert!(passes("Logged in using ChatGPT\n") && passes("logged in using chatgpt."));
    assert!(blocked("Logged in using an API key - sk-x") && blocked("API key configured - ***"));
    assert!(blocked("Logged in using ChatGPT\nnote: api-key") && blocked("Logged in using access token"));
}

#[test]
fn providers_without_a_driver_are_refused_by_name() {
    for &provider in Provider::ALL {
        match require(provider) {
            Ok(driver) => assert_eq!(driver.provider(), provider),
            Err(error) => assert!(error.to_string().starts_with("no quota adapter implemented"), "{error}"),
        }
        assert!(strict_reason(provider).contains(provider.as_str()));
    }
}
