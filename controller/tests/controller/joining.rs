//! `init`, join tokens, and the programs that make and use them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use agent::identity::{Home, IdentityError, Joining, join};
use agent::transport::{Call, Fingerprint, Token};
use agent::wire::identity::{Kind, Role};
use agent::wire::paths;
use controller::identity::IdentityDir;
use serde_json::{Value, json};

use crate::identity::{Secure, code, joined_code, laneyard, refusal, success, text};
use crate::support::{Served, quick, soon};

#[track_caller]
fn all_private(dir: &Path) {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir), 0o700, "{}", dir.display());
    let files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn init_makes_private_files_once_and_says_what_to_do_next() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("here");
    let init = || laneyard(home.path()).arg("init").arg("--dir").arg(&dir).args(["--name", "build.example"]).output();
    let (out, err) = success(init().unwrap());
    assert!(out.contains("authority sha256:"), "{out}");
    assert!(err.contains("laneyard serve") && err.contains("laneyard worker token"), "{err}");
    all_private(&dir.join("identity"));
    for name in ["controller.sqlite", "controller.lock"] {
        let mode = std::fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    let secret = std::fs::read_to_string(dir.join("identity/admin.token")).unwrap();
    assert!(!out.contains(secret.trim()) && !err.contains(secret.trim()));
    let before = std::fs::read(dir.join("identity/ca.pem")).unwrap();
    let again = init().unwrap();
    assert!(!again.status.success() && text(&again.stderr).contains("has an identity"), "{}", text(&again.stderr));
    assert_eq!(std::fs::read(dir.join("identity/ca.pem")).unwrap(), before);
    let bad = laneyard(home.path()).args(["init", "--name", "no name"]).output().unwrap();
    assert!(text(&bad.stderr).contains("`no name` is neither a host's name nor an address"));
    assert!(!IdentityDir::of(&home.path().join(".local/state/laneyard/controller")).exists());
    std::fs::set_permissions(dir.join("identity/ca.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = laneyard(home.path()).arg("serve").arg("--dir").arg(&dir).output().unwrap();
    assert!(text(&open.stderr).contains("chmod 600"), "{}", text(&open.stderr));
}

#[test]
fn what_administrators_do_is_told_as_one_json_object_if_they_ask_for_it() {
    let home = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| -> Value {
        let (out, err) = success(laneyard(home.path()).args(words).arg("--json").output().unwrap());
        assert_eq!((out.lines().count(), err.as_str()), (1, ""), "{words:?}: {out}");
        serde_json::from_str(&out).unwrap()
    };
    let made = run(&["init", "--name", "build.example", "--name", "localhost"]);
    let identity = home.path().join(".local/state/laneyard/controller/identity");
    assert!(made["authority"].as_str().unwrap().starts_with("sha256:"), "{made}");
    assert_eq!(made["ca"], json!(identity.join("ca.pem")));
    assert_eq!(made["adminTokenFile"], json!(identity.join("admin.token")));
    assert_eq!(made["names"], json!(["build.example", "localhost"]));
    let token = run(&["token", "create", "--role", "submit", "--name", "ada"]);
    let id = token["id"].as_str().unwrap();
    let revoked = run(&["token", "revoke", id]);
    assert_eq!((&revoked["id"], &revoked["name"]), (&json!(id), &json!("ada")));
    assert_eq!(revoked["standing"], "revoked");
    let join = run(&["worker", "token", "--name", "w1"]);
    assert_eq!((&join["kind"], &join["name"]), (&json!("join"), &json!("w1")));
    assert_eq!((&join["url"], &join["caFingerprint"]), (&json!("https://build.example:7410"), &made["authority"]));
    let (command, secret) = (join["command"].as_str().unwrap(), join["secret"].as_str().unwrap());
    assert!(command.starts_with("laneyard-agent join ") && command.contains(secret), "{command}");
    assert_eq!(run(&["worker", "revoke", "w1"]), json!({"worker": "w1", "revoked": [join["id"]]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_of_a_credential_is_bounded_and_the_bound_is_named() {
    let secure = Secure::start();
    let home = secure.home.path().to_owned();
    let run = async |words: &[&str]| {
        let mut command = laneyard(&home);
        command.args(words);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let create = ["token", "create", "--role", "submit", "--name", "ada", "--expires"];
    for (words, part) in [
        (&["worker", "token", "--expires", "1000000d"][..], "at most 30 days"),
        (&["worker", "token", "--expires", "0s"], "at least a second"),
        (&[&create[..], &["1000000d"]].concat(), "at most 36500 days; a token without --expires does not end"),
        (&[&create[..], &["500ms"]].concat(), "at least a second"),
        (&["serve", "--certificate-life", "1000000d"], "at most 36500 days\n"),
        (&["token", "create", "--role", "submit", "--name", ""], "1 to 100 visible characters"),
    ] {
        let refused = run(words).await;
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(64), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
    success(run(&["worker", "token", "--expires", "30d"]).await);
    success(run(&[&create[..], &["3650d"]].concat()).await);
    for (kind, life) in [("join", 30 * 86_400 + 1), ("token", 36_500 * 86_400_u64 + 1)] {
        let wanted = json!({"kind": kind, "name": "w1", "role": "submit", "expiresInS": life});
        let answer = secure.admin().json::<Value>(Call::post(paths::CREDENTIALS, &wanted).unwrap()).await;
        assert_eq!(answer.unwrap_err().code(), Some("bad-credential"), "{kind}");
    }
}

#[test]
fn people_read_one_form_of_time_and_programs_get_the_whole() {
    let home = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| success(laneyard(home.path()).args(words).output().unwrap());
    run(&["init", "--name", "localhost"]);
    let create = ["token", "create", "--role", "submit", "--expires", "30d", "--name"];
    let (_, made) = run(&[&create[..], &["ada"]].concat());
    let (listed, _) = run(&["token", "list"]);
    let listed = listed.lines().find(|line| line.contains("ada")).unwrap();
    for told in [made.trim(), listed] {
        let at = told.rsplit(' ').next().unwrap();
        assert!(at.len() == "2027-01-15T08:00:00Z".len() && at.ends_with('Z') && &at[10..11] == "T", "{told}");
    }
    let (data, _) = run(&[&create[..], &["bob", "--json"]].concat());
    let end = serde_json::from_str::<Value>(&data).unwrap()["expiresAt"].as_str().unwrap().to_owned();
    let parsed = time::OffsetDateTime::parse(&end, &time::format_description::well_known::Rfc3339);
    assert!(parsed.is_ok(), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_join_says_whether_it_is_for_the_same_controller_by_whatever_name() {
    let (secure, other) = (Secure::start(), Secure::start());
    let (home, _) = secure.join("w1").await;
    let told = async |joining: Joining| join(&Home::of(home.path()), &joining).await.unwrap_err().to_string();
    let token = "ly_0123456789abcdef_0123456789abcdef";
    let address = &secure.served.address;
    let port = address.rsplit_once(':').unwrap().1;
    for (spelling, part) in [
        (format!("{address}/"), format!("has joined {address} as `w1` before")),
        (address.to_uppercase(), format!("has joined {address} as `w1` before")),
        (
            format!("https://LOCALHOST:{port}/"),
            format!("has joined {address}, which is https://localhost:{port} too, as `w1` before"),
        ),
    ] {
        let said = told(Joining { controller: spelling.parse().unwrap(), ..secure.joining(token, "w1") }).await;
        assert!(said.contains(&part) && said.contains("laneyard-agent run"), "{spelling}: {said}");
    }
    let said = told(other.joining(token, "w1")).await;
    assert!(said.contains(&format!("another controller before, {address} as `w1`")), "{said}");
    assert!(said.contains("--replace") && said.contains("--state-dir"), "{said}");
}

#[test]
fn a_token_that_nobody_got_does_not_count() {
    let home = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| laneyard(home.path()).args(words).output().unwrap();
    success(run(&["init", "--name", "localhost"]));
    let lost = run(&["token", "create", "--role", "submit", "--name", "x", "--out", "/nowhere/at/all"]);
    let said = text(&lost.stderr);
    assert!(!lost.status.success() && said.contains("/nowhere/at/all") && said.contains("was revoked again"), "{said}");
    let (listed, _) = success(run(&["token", "list"]));
    assert!(!listed.contains(" x "), "{listed}");
    let typo = run(&["worker", "revoke", "zzz"]);
    assert!(!typo.status.success() && text(&typo.stderr).contains("worker `zzz` has no credential that counts"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_lets_one_worker_in_once() {
    let secure = Secure::start();
    let (_, secret) = secure.create(Kind::Join, Role::Worker, "", None).await;
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    join(&Home::of(first.path()), &secure.joining(&secret, "w1")).await.unwrap();
    all_private(&first.path().join("worker"));
    let again = join(&Home::of(first.path()), &secure.joining(&secret, "w1")).await;
    assert!(matches!(again, Err(IdentityError::Joined { .. })), "{again:?}");
    assert_eq!(joined_code(second.path(), &secure.joining(&secret, "w1")).await, "409 join-token-used");
    assert_eq!(joined_code(second.path(), &secure.joining(&secret, "w2")).await, "409 join-token-used");
    let (_, other) = secure.create(Kind::Join, Role::Worker, "", None).await;
    assert_eq!(joined_code(second.path(), &secure.joining(&other, "w1")).await, "409 name-taken");
    let (_, named) = secure.create(Kind::Join, Role::Worker, "w3", None).await;
    assert_eq!(joined_code(second.path(), &secure.joining(&named, "w2")).await, "403 not-your-worker");
    join(&Home::of(second.path()), &secure.joining(&named, "w3")).await.unwrap();
    // A worker that was thrown out may be let in again, on purpose.
    secure.admin().json::<Value>(Call::post("/v1/workers/w1/revoke", &json!({})).unwrap()).await.unwrap();
    let (_, anew) = secure.create(Kind::Join, Role::Worker, "w1", None).await;
    let joining = agent::identity::Joining { replace: true, ..secure.joining(&anew, "w1") };
    join(&Home::of(first.path()), &joining).await.unwrap();
    let identity = Home::of(first.path()).load().unwrap().unwrap();
    assert_eq!(refusal(&secure.with(identity.credentials), paths::ATTEMPTS).await, "403 forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_whose_answer_was_lost_is_answered_again_for_the_same_key_only() {
    let secure = Secure::start();
    let (_, secret) = secure.create(Kind::Join, Role::Worker, "", None).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let ask = async |key: &rcgen::KeyPair| {
        let csr = agent::identity::signing_request("w1", key).unwrap();
        let call = Call::post(paths::JOIN, &json!({"token": secret, "worker": "w1", "csr": csr})).unwrap();
        secure.with(secure.trust()).json::<Value>(call).await
    };
    let (first, second) = (ask(&key).await.unwrap(), ask(&key).await.unwrap());
    assert_ne!(first["id"], second["id"]);
    assert_eq!(code(ask(&rcgen::KeyPair::generate().unwrap()).await), "409 join-token-used");
    let call = Call::post(paths::JOIN, &json!({"token": secret, "worker": "w1", "csr": "nonsense"})).unwrap();
    let error = secure.with(secure.trust()).json::<Value>(call).await.unwrap_err();
    assert_eq!(error.code(), Some("bad-csr"));
    // Revoking what came of it closes this door too.
    secure.revoke(first["id"].as_str().unwrap()).await;
    assert_eq!(code(ask(&key).await), "401 credential-revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_an_unknown_or_a_revoked_join_token_lets_nobody_in() {
    let secure = Secure::start();
    let home = tempfile::tempdir().unwrap();
    let (_, brief) = secure.create(Kind::Join, Role::Worker, "", Some(1)).await;
    tokio::time::sleep(Duration::from_millis(1100)).await; // its whole life
    assert_eq!(joined_code(home.path(), &secure.joining(&brief, "w1")).await, "401 credential-expired");
    let (id, revoked) = secure.create(Kind::Join, Role::Worker, "", None).await;
    secure.revoke(&id).await;
    assert_eq!(joined_code(home.path(), &secure.joining(&revoked, "w1")).await, "401 credential-revoked");
    let (_, token) = secure.create(Kind::Token, Role::Admin, "root", None).await;
    assert_eq!(joined_code(home.path(), &secure.joining(&token, "w1")).await, "401 unauthenticated");
    assert!(Home::of(home.path()).load().unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fingerprint_is_checked_before_the_token_is_sent() {
    let secure = Secure::start();
    let (_, secret) = secure.create(Kind::Join, Role::Worker, "", None).await;
    let home = tempfile::tempdir().unwrap();
    let mut joining = secure.joining(&secret, "w1");
    joining.pin = Fingerprint::of(b"another authority");
    let error = join(&Home::of(home.path()), &joining).await.unwrap_err();
    assert!(error.to_string().contains("not trusted here"), "{error}");
    assert!(error.to_string().contains("pass the --ca-fingerprint that `laneyard worker token` prints"), "{error}");
    assert!(!error.to_string().contains("--ca "), "joining has no such flag: {error}");
    joining.controller = "http://127.0.0.1:1".parse().unwrap();
    assert!(matches!(join(&Home::of(home.path()), &joining).await, Err(IdentityError::Plaintext { .. })));
    // The token was not used up.
    join(&Home::of(home.path()), &secure.joining(&secret, "w1")).await.unwrap();
}

/// `laneyard serve` as a process, with everything that it logs.
struct Program {
    child: std::process::Child,
    address: String,
}

impl Program {
    fn start(home: &Path, log: &Path) -> Self {
        let mut command: Command = laneyard(home);
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("LANEYARD_LOG", "trace");
        let log = std::fs::File::create(log).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split([' ', ',']).find(|word| word.starts_with("https://")).unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_reach_a_stopped_and_a_running_controller_and_no_secret_is_logged() {
    let mut secure = Secure::start();
    secure.served.kill();
    let home = secure.home.path().to_owned();
    let run = async |words: &[&str]| {
        let mut command = laneyard(&home);
        command.args(words);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        success(output).0.trim().to_owned()
    };
    let create = ["token", "create", "--role", "submit", "--expires", "1day", "--name"];
    // The killed controller's runtime may hold the directory for a moment more.
    let stopped = async {
        loop {
            let output = laneyard(&home).args(create).arg("stopped").output().unwrap();
            if output.status.success() {
                break text(&output.stdout).trim().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let stopped = soon(stopped).await;
    let log = home.join("serve.log");
    let program = Program::start(&home, &log);
    let running = run(&[&create[..], &["running"]].concat()).await;
    secure.served.address = program.address.clone();
    for secret in [&stopped, &running] {
        secure.bearing(secret).json::<Value>(Call::get(paths::ATTEMPTS)).await.unwrap();
    }
    let listed = run(&["token", "list"]).await;
    assert!(listed.contains("stopped") && listed.contains("running") && listed.contains("admin"), "{listed}");
    let command = run(&["worker", "token"]).await;
    let words: Vec<&str> = command.split(' ').collect();
    let [_, "join", url, "--token", join_secret, "--ca-fingerprint", pin] = words[..] else { panic!("{command}") };
    assert!(url.starts_with("https://localhost:"), "{url}");
    assert_eq!(pin, secure.pin().to_string());
    let worker = tempfile::tempdir().unwrap();
    join(&Home::of(worker.path()), &secure.joining(join_secret, "w1")).await.unwrap();
    let identity = Home::of(worker.path()).load().unwrap().unwrap();
    let w1 = secure.with(identity.credentials);
    assert_eq!(refusal(&w1, paths::ATTEMPTS).await, "403 forbidden");
    run(&["worker", "revoke", "w1"]).await;
    assert_eq!(refusal(&w1, paths::ATTEMPTS).await, "401 credential-revoked");
    let id = running.split('_').nth(1).unwrap();
    run(&["token", "revoke", id]).await;
    assert_eq!(refusal(&secure.bearing(&running), paths::ATTEMPTS).await, "401 credential-revoked");
    let admin = Token::read(&secure.dir.join("identity/admin.token")).unwrap();
    drop(program);
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains(id) && log.contains("was revoked"), "refusals are logged with the public id");
    for secret in [stopped.as_str(), &running, join_secret, admin.expose()] {
        let random = secret.splitn(3, '_').nth(2).unwrap();
        assert!(!log.contains(random), "a secret is in the log");
    }
    let database = std::fs::read(secure.dir.join("controller.sqlite-wal")).unwrap_or_default();
    let database = [std::fs::read(secure.dir.join("controller.sqlite")).unwrap(), database].concat();
    let random = stopped.splitn(3, '_').nth(2).unwrap().as_bytes();
    assert!(!database.windows(random.len()).any(|part| part == random), "a secret is in the database");
}

#[test]
fn a_file_without_a_certificate_is_called_empty_only_if_it_is() {
    let home = tempfile::tempdir().unwrap();
    let (ca, token) = (home.path().join("ca.pem"), home.path().join("token"));
    agent::secret_file::write(&token, "0123456789abcdef").unwrap();
    for (content, part) in [("", "the file is empty"), ("hello\n", "no `-----BEGIN CERTIFICATE-----` in it")] {
        std::fs::write(&ca, content).unwrap();
        let mut command = laneyard(home.path());
        command.args(["attempts", "--controller", "https://localhost:1"]).arg("--ca").arg(&ca);
        let said = text(&command.arg("--token-file").arg(&token).output().unwrap().stderr);
        assert!(said.contains(part) && said.contains("ca.pem"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wrong_scheme_for_a_port_is_told_with_the_right_one() {
    let secure = Secure::start();
    let (_, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let token = secure.home.path().join("token");
    agent::secret_file::write(&token, secret).unwrap();
    let plain_dir = tempfile::tempdir().unwrap();
    let plain = Served::start(plain_dir.path(), "127.0.0.1:0", quick());
    let port = secure.served.address.rsplit_once(':').unwrap().1.to_owned();
    let other = plain.address.rsplit_once(':').unwrap().1.to_owned();
    for (url, part) in [
        (format!("http://127.0.0.1:{port}"), "write https:// and name its authority with --ca"),
        (format!("https://127.0.0.1:{other}"), "the address begins with http://"),
    ] {
        let mut command = laneyard(secure.home.path());
        command.args(["attempts", "--controller", &url]).arg("--ca").arg(secure.ca()).arg("--token-file").arg(&token);
        let said = tokio::task::spawn_blocking(move || text(&command.output().unwrap().stderr)).await.unwrap();
        assert!(said.contains(part), "{url}: {said}");
    }
}

#[test]
fn a_credential_without_a_controller_is_a_usage_error() {
    let home = tempfile::tempdir().unwrap();
    for flag in ["--token-file", "--ca", "--client-cert", "--client-key"] {
        let output = laneyard(home.path()).args(["attempts", flag, "/nowhere"]).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{flag}: {error}");
        assert!(error.contains("no controller"), "{error}");
    }
}
