//! Usage errors: exit 64, one message that names the thing, nothing left on the disk.

use crate::desk::{Desk, LANE, lane_with};

#[track_caller]
fn refused(line: &str, message: &str) {
    let desk = Desk::new();
    let before = desk.files();
    let seen = desk.run("pstack-runner", line);
    assert_eq!(seen.code(), 64, "{line}\n{}", seen.err());
    assert_eq!(seen.out(), "", "{line}");
    let error = seen.err();
    assert!(error.starts_with("error: ") && error.contains(message), "{line}: {error}");
    assert!(error.contains("Usage: pstack-runner"), "the help follows");
    assert_eq!(desk.files(), before, "{line}");
    assert!(!desk.path("home").exists(), "no state for a refused lane");
}

#[test]
fn flags_that_are_wrong_are_named() {
    refused("", "mode is required");
    refused("word", "Unexpected argument 'word'");
    refused(&format!("{LANE} --nope"), "Unknown option '--nope'");
    refused(&format!("{LANE} --nope --help"), "Unknown option '--nope'");
    refused(&format!("{LANE} --image x"), "Unknown option '--image'");
    refused(&format!("{LANE} --timeout 0"), "greater than zero");
    refused(&format!("{LANE} --api-spend sometimes"), "api-spend must be one of: deny, approved");
    refused(&format!("{LANE} --progress"), "Option '--progress <value>' argument missing");
    refused(&lane_with("--mode", "--parent"), "ambiguous");
    refused(&lane_with("--provider", "toString"), "provider must be one of: claude, codex");
}

#[test]
fn under_our_own_name_a_refusal_is_not_buried_in_usage() {
    let desk = Desk::new();
    let wrong = desk.run("laneyard", &format!("run {LANE} --nope"));
    assert_eq!((wrong.code(), wrong.err().lines().count()), (64, 2), "{}", wrong.err());
    assert!(wrong.err().ends_with("see laneyard run --help\n"), "{}", wrong.err());
    std::fs::write(desk.path("out.md"), "owned").unwrap();
    let taken = desk.run("laneyard", &format!("run {LANE}"));
    assert_eq!((taken.code(), taken.err().lines().count()), (64, 1), "{}", taken.err());
    assert!(taken.err().contains("exists already"), "{}", taken.err());
}

#[test]
fn a_credential_for_no_controller_is_refused() {
    for flag in ["--token-file", "--ca", "--client-cert", "--client-key"] {
        let desk = Desk::new();
        let before = desk.files();
        let seen = desk.run("laneyard", &format!("run {LANE} {flag} prompt.md"));
        assert_eq!(seen.code(), 64, "{flag}\n{}", seen.err());
        assert!(seen.err().contains("no controller: name it with --controller"), "{}", seen.err());
        assert_eq!(desk.files(), before, "{flag}");
    }
}

#[test]
fn a_flag_that_only_a_controller_can_follow_is_refused_without_one() {
    for flag in [
        "--require zone=eu",
        "--worktree snapshot",
        "--worktree direct",
        "--on-lost wait",
        "--on-lost fail",
        "--history 5",
        "--ref refs/heads/x",
        "--lfs pointers",
    ] {
        let desk = Desk::new();
        let before = desk.files();
        let seen = desk.run("laneyard", &format!("run {LANE} {flag}"));
        assert_eq!(seen.code(), 64, "{flag}\n{}", seen.err());
        let name = flag.trim_start_matches("--").split(' ').next().unwrap();
        assert!(seen.err().contains(&format!("{name} needs a controller")), "{}", seen.err());
        assert!(seen.err().contains("--controller"), "{}", seen.err());
        assert_eq!(desk.files(), before, "{flag}");
        refused(&format!("{LANE} {flag}"), &format!("Unknown option '--{name}'"));
    }
}

#[test]
fn a_flag_that_the_chosen_way_would_ignore_is_refused() {
    let plain = "--controller http://127.0.0.1:9 --token-file token";
    let secure = "--controller https://localhost:9 --ca ca.pem --token-file token";
    let unix = "--controller unix:/run/x.sock --token-file token";
    for (way, flag, remedy) in [
        (&format!("{plain} --worktree direct")[..], "--history 5", "--worktree snapshot"),
        (&format!("{secure} --worktree direct"), "--ref refs/heads/x", "--worktree snapshot"),
        (&format!("{plain} --worktree direct"), "--lfs pointers", "--worktree snapshot"),
        (plain, "--engine podman", "--require"),
        (secure, "--engine docker", "--require"),
        (plain, "--ca ca.pem", "https://"),
        (unix, "--client-cert client.pem", "https://"),
        (plain, "--client-key client.key", "https://"),
    ] {
        let desk = Desk::new();
        let before = desk.files();
        let seen = desk.run("laneyard", &format!("run {LANE} {way} {flag}"));
        assert_eq!((seen.code(), seen.out().as_str()), (64, ""), "{way} {flag}: {}", seen.err());
        let name = flag.trim_start_matches("--").split(' ').next().unwrap();
        assert!(seen.err().starts_with(&format!("error: {name} ")), "{}", seen.err());
        assert!(seen.err().contains(&format!("leave --{name} out")), "{}", seen.err());
        assert!(seen.err().contains(remedy), "{}", seen.err());
        assert_eq!(desk.files(), before, "{way} {flag}");
        assert!(!desk.path("home").exists(), "no state for a refused lane");
    }
}

#[test]
fn a_flag_is_refused_where_the_configuration_makes_it_mean_nothing() {
    let desk = Desk::new();
    let file = desk.path("config.toml");
    let text = "worktree = \"direct\"\n[snapshot]\nhistory = \"9\"\n[controller]\nurl = \"http://127.0.0.1:1\"\n\
                token-file = \"token\"\n";
    std::fs::write(&file, text).unwrap();
    std::fs::write(desk.path("token"), "0123456789abcdef0123\n").unwrap();
    std::fs::set_permissions(desk.path("token"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let before = desk.files();
    let run = |flags: &str| {
        let line = format!("run {LANE} --state-dir state {flags}");
        desk.run_with("laneyard", &line, &[("LANEYARD_CONFIG", file.to_str().unwrap())])
    };
    let refused = run("--lfs fetch-if-local");
    assert_eq!(refused.code(), 64);
    assert!(refused.err().contains("lfs says what travels"), "{}", refused.err());
    assert!(refused.err().contains("the configuration's worktree = \"direct\""), "{}", refused.err());
    // What the file says for every lane is no mistake of this one's caller, and a flag wins over the file.
    for flags in ["", "--worktree snapshot --lfs fetch-if-local"] {
        let tried = run(flags);
        assert_eq!(tried.code(), 64);
        assert!(tried.err().contains("the controller at http://127.0.0.1:1 cannot be used"), "{}", tried.err());
    }
    assert_eq!(desk.files(), before);
}

#[test]
fn routes_that_the_runner_must_not_take_are_refused() {
    refused(&lane_with("--parent", "claude"), "native to parent");
    let codex = lane_with("--provider", "codex");
    refused(&codex, "native to parent");
    refused(&lane_with("--model", "claude-opus-4-1"), "normalize it to opus before invoking the runner");
    refused(&lane_with("--effort", "default"), "Devin model UID");
    refused(&lane_with("--provider", "grok"), "no quota adapter implemented");
    refused(&format!("{LANE} --opencode-chatgpt-subscription"), "opencode-chatgpt-subscription needs");
}

#[test]
fn paths_that_cannot_serve_are_refused() {
    refused(&lane_with("--prompt", "absent.md"), "prompt is not a file: /");
    refused(&lane_with("--prompt", "repo"), "prompt is not a file: /");
    refused(&lane_with("--cwd", "prompt.md"), "cwd is not a directory: /");
    refused(&lane_with("--output", "prompt.md"), "must be distinct");
    refused(&lane_with("--receipt", "./out.md"), "must be distinct");
    refused(&format!("{LANE} --progress receipt.json"), "must be distinct");
    refused(&format!("{LANE} --progress repo/../prompt.md"), "must be distinct");
    refused(&format!("{LANE} --progress receipt.json.progress"), "must not begin with the receipt path");
    refused(&format!("{LANE} --progress out.md.x"), "must not begin with the output path");
    refused(&lane_with("--receipt", "prompt.md/receipt.json"), "could not reserve receipt");
    refused(
        &lane_with("--output", "new/deep/out.md").replace("receipt.json", "prompt.md/r"),
        "could not reserve receipt",
    );
}

#[test]
fn directories_that_no_lane_may_see_are_refused_before_anything_is_taken() {
    for (cwd, part) in [
        ("/tmp", "it is a directory of the system"),
        ("/", "it is a directory of the system"),
        ("/etc", "it is a directory of the system"),
        ("/proc/self", "/proc is no place for files"),
    ] {
        refused(&lane_with("--cwd", cwd), part);
    }
    let desk = Desk::new();
    let before = desk.files();
    let seen = desk.run("laneyard", &format!("run {LANE} --state-dir repo/state").replace("--cwd repo", "--cwd ."));
    assert_eq!(seen.code(), 64, "{}", seen.err());
    assert!(seen.err().contains("is private and would be seen by the lane"), "{}", seen.err());
    assert_eq!(desk.files(), before);
}

#[test]
fn our_own_state_never_travels() {
    for (cwd, state) in [("--cwd .", "state"), ("--cwd repo", "repo/not/there/yet"), ("--cwd repo", ".")] {
        let desk = Desk::new();
        let before = desk.files();
        let flags = format!("run {LANE} --state-dir {state} --controller http://127.0.0.1:9");
        let seen = desk.run("laneyard", &flags.replace("--cwd repo", cwd));
        assert_eq!(seen.code(), 64, "{}", seen.err());
        assert!(seen.err().contains("is private and would travel with"), "{}", seen.err());
        assert!(seen.err().contains("--state-dir"), "{}", seen.err());
        assert_eq!(desk.files(), before);
    }
}

#[test]
fn values_of_our_own_flags_are_refused_by_name() {
    for (flags, part) in [
        ("--image=", "image: `` is no image reference"),
        ("--image UPPER", "image: `UPPER` is no image reference"),
        ("--engine podmann", "engine: `podmann` names no engine"),
        ("--allow-host https://x.example", "allow-host: `https://x.example` is no exact host: it is a URL"),
        ("--memory 1", "memory must be at least 64 MiB"),
        ("--quiet --verbose", "verbose and quiet exclude each other"),
    ] {
        let desk = Desk::new();
        let before = desk.files();
        let seen = desk.run("laneyard", &format!("run {LANE} {flags}"));
        assert_eq!((seen.code(), seen.out().as_str()), (64, ""), "{flags}: {}", seen.err());
        assert!(seen.err().contains(part), "{flags}: {}", seen.err());
        assert_eq!(desk.files(), before, "{flags}");
    }
}

#[test]
fn an_occupied_path_keeps_its_content_and_frees_the_others() {
    for (flag, name) in [("output", "out.md"), ("receipt", "receipt.json"), ("progress", "progress.json")] {
        let desk = Desk::new();
        std::fs::write(desk.path(name), "owned").unwrap();
        let before = desk.files();
        let seen = desk.run("pstack-runner", &format!("{LANE} --progress progress.json"));
        assert_eq!(seen.code(), 64, "{}", seen.err());
        assert!(seen.err().contains(&format!("could not reserve {flag}")), "{}", seen.err());
        assert_eq!((desk.text(name).as_str(), desk.files()), ("owned", before));
    }
}

#[test]
fn a_dangling_link_at_a_path_is_not_written_through() {
    let desk = Desk::new();
    std::os::unix::fs::symlink(desk.path("elsewhere"), desk.path("out.md")).unwrap();
    let seen = desk.run("pstack-runner", LANE);
    assert_eq!(seen.code(), 64);
    assert!(!desk.path("elsewhere").exists());
}

#[test]
fn a_configuration_that_is_wrong_is_refused_before_anything_exists() {
    let desk = Desk::new();
    std::fs::write(desk.path("config.toml"), "engin = \"docker\"\n").unwrap();
    let file = desk.path("config.toml");
    let before = desk.files();
    let seen = desk.run_with("laneyard", &format!("run {LANE}"), &[("LANEYARD_CONFIG", file.to_str().unwrap())]);
    assert_eq!(seen.code(), 64);
    assert!(seen.err().contains("config.toml") && seen.err().contains("engin"), "{}", seen.err());
    assert_eq!(desk.files(), before);
}

#[test]
fn an_engine_that_is_not_there_is_named_and_gives_the_paths_back() {
    let desk = Desk::new();
    let before = desk.files();
    let line =
        format!("run {LANE} --progress new/progress.json --engine unix:///nowhere/engine.sock --state-dir state");
    let seen = desk.run("laneyard", &line);
    assert_eq!(seen.code(), 64, "{}", seen.err());
    assert!(seen.err().contains("/nowhere/engine.sock"), "{}", seen.err());
    assert_eq!(desk.files(), before);
}

#[test]
fn a_controller_that_does_not_answer_is_named_and_gives_the_paths_back() {
    let desk = Desk::new();
    let token = desk.path("token");
    std::fs::write(&token, "0123456789abcdef0123\n").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let before = desk.files();
    // Port 1 of the loopback: nobody listens there.
    let line = format!("run {LANE} --controller http://127.0.0.1:1 --token-file token --state-dir state");
    let seen = desk.run("laneyard", &line);
    assert_eq!(seen.code(), 64, "{}", seen.err());
    assert!(seen.err().contains("the controller at http://127.0.0.1:1 cannot be used"), "{}", seen.err());
    assert_eq!(desk.files(), before);
}

#[test]
fn an_instance_that_is_not_configured_is_named() {
    let desk = Desk::new();
    let seen = desk.run("laneyard", &format!("run {LANE} --instance work"));
    assert_eq!(seen.code(), 64);
    assert!(seen.err().contains("instance `work` is not configured"), "{}", seen.err());
    std::fs::write(
        desk.path("config.toml"),
        "[instances.home]\ndriver = 'claude'\n[instances.lab]\ndriver = 'codex'\n",
    )
    .unwrap();
    let (file, before) = (desk.path("config.toml"), desk.files());
    let variables = [("LANEYARD_CONFIG", file.to_str().unwrap())];
    let seen = desk.run_with("laneyard", &format!("run {LANE} --instance work"), &variables);
    assert_eq!(seen.code(), 64);
    assert!(seen.err().contains("configured instances: home, lab"), "{}", seen.err());
    assert_eq!(desk.files(), before);
}

#[test]
fn help_is_data_and_success() {
    for (program, line) in [("pstack-runner", "--help"), ("pstack-runner", "-h --mode x"), ("laneyard", "run --help")] {
        let seen = Desk::new().run(program, line);
        assert_eq!((seen.code(), seen.err().as_str()), (0, ""));
        assert!(seen.out().starts_with("Usage: "), "{}", seen.out());
    }
    let own = Desk::new().run("laneyard", "run --help").out();
    assert!(own.contains("74, the controller's disk is full"), "{own}");
    assert!(own.contains("--allow-host") && !Desk::new().run("pstack-runner", "--help").out().contains("--allow-host"));
}

#[test]
fn a_controller_that_cannot_listen_leaves_nothing_behind() {
    let desk = Desk::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = desk.path("controller");
    let line = format!("serve --listen {} --dir {}", taken.local_addr().unwrap(), place.display());
    let refused = desk.run("laneyard", &line);
    assert_eq!(refused.code(), 70);
    assert!(refused.err().contains("cannot listen on 127.0.0.1:"), "{}", refused.err());
    assert!(!place.exists());
}

#[test]
fn an_address_that_is_none_is_told_with_the_place_it_came_from() {
    let desk = Desk::new();
    let file = desk.path("config.toml");
    std::fs::write(&file, "[controller]\nurl = \"https://localhost:1\"\n").unwrap();
    let config = ("LANEYARD_CONFIG", file.to_str().unwrap());
    for words in ["attempts".to_owned(), format!("run {LANE}")] {
        let variables = [config, ("LANEYARD_CONTROLLER", "ftp://x")];
        let told = desk.run_with("laneyard", &words, &variables);
        assert_eq!(told.code(), 64, "{}", told.err());
        assert!(told.err().starts_with("error: `LANEYARD_CONTROLLER` cannot be used: `ftp://x` is"), "{}", told.err());
        assert!(!told.err().contains("config.toml"), "{}", told.err());
        let told = desk.run_with("laneyard", &format!("{words} --controller ftp://y"), &[config]);
        assert_eq!(told.code(), 64, "{}", told.err());
        assert!(
            told.err().contains("controller") && told.err().contains("`ftp://y` is no controller address"),
            "{}",
            told.err()
        );
    }
    std::fs::write(&file, "[controller]\nurl = \"ftp://z\"\n").unwrap();
    let told = desk.run_with("laneyard", "attempts", &[config]);
    assert_eq!(told.code(), 64, "{}", told.err());
    assert!(
        told.err().contains("config.toml") && told.err().contains("`controller.url` cannot be used"),
        "{}",
        told.err()
    );
}

#[test]
fn flags_that_a_command_cannot_follow_are_in_no_help_of_it_and_refused() {
    let desk = Desk::new();
    for (command, hidden, shown) in [
        (
            "serve",
            &["--controller", "--ca", "--client-cert", "--client-key", "--engine"][..],
            &["--state-dir", "--token-file"][..],
        ),
        (
            "init",
            &["--controller", "--ca", "--token-file", "--client-cert", "--client-key", "--engine"],
            &["--state-dir"],
        ),
        ("completions", &["--controller", "--token-file", "--engine", "--state-dir"], &["<SHELL>"]),
        ("attempts", &[], &["--controller", "--ca", "--token-file", "--engine"]),
    ] {
        let help = desk.run("laneyard", &format!("{command} --help")).out();
        for flag in shown {
            assert!(help.contains(flag), "{command} {flag}: {help}");
        }
        for flag in hidden {
            assert!(!help.contains(&format!("{flag} <")), "{command} {flag}: {help}");
            let rest = if command == "completions" { "bash" } else { "--dir new" };
            for words in [format!("{command} {flag} docker {rest}"), format!("{flag} docker {command} {rest}")] {
                let told = desk.run("laneyard", &words);
                assert_eq!(told.code(), 64, "{words}: {}", told.err());
                let part = format!("{flag} has no effect on `laneyard {command}`: leave it out");
                assert!(told.err().contains(&part), "{words}: {}", told.err());
            }
        }
    }
    assert!(!desk.path("new").exists());
    assert!(desk.run("laneyard", "serve --help").out().contains("token of a controller without an identity"));
}

#[test]
fn help_of_status_is_data_too() {
    let desk = Desk::new();
    for words in ["status --help", "status -h", "help status"] {
        let told = desk.run("laneyard", words);
        assert_eq!(told.code(), 0, "{}", told.err());
        assert!(told.out().starts_with("Usage: laneyard status --progress"), "{}", told.out());
    }
    assert_eq!(desk.run("pstack-runner", "status --help").code(), 64, "the reference knows no such argument");
}

#[test]
fn other_commands_refuse_with_the_same_code() {
    let desk = Desk::new();
    assert_eq!(desk.run("laneyard", "nonsense").code(), 64);
    assert_eq!(desk.run("laneyard", "logs not-an-id").code(), 64);
    let unknown = desk.run("laneyard", "logs 0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee");
    assert_eq!(unknown.code(), 70);
    assert!(unknown.err().contains("no attempt 0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"), "{}", unknown.err());
    assert_eq!(desk.run("laneyard", "--help").code(), 0);
    for (words, part) in [
        ("serve --listen nonsense", "`nonsense` is no address to listen on"),
        ("serve --listen http://0.0.0.0:7", "is not a loopback address"),
        ("serve --lease 0s", "--lease must be at least"),
        ("serve --reserve 1EB", "--reserve 888.2 PiB cannot be set aside"),
        ("init --name ://x", "`://x` is neither a host's name nor an address"),
        ("queue", "no controller: name it with --controller"),
        ("workers list", "no controller: name it with --controller"),
    ] {
        let refused = desk.run("laneyard", words);
        assert_eq!(refused.code(), 64, "{words}: {}", refused.err());
        assert!(refused.err().contains(part), "{words}: {}", refused.err());
    }
    assert!(desk.run("laneyard", "completions bash").out().contains("laneyard"));
}
