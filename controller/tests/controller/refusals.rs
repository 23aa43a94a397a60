//! Credentials that do not count, and roles that do not reach.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use agent::config::Proof;
use agent::transport::{Call, CallError, Credentials, EndpointError, Token, Transport, Trust};
use agent::wire::identity::{Kind, Role};
use agent::wire::paths;
use agent::wire::worker::{Heartbeat, Register, WorkerFacts};
use controller::identity::{Authority, Lives};
use serde_json::{Value, json};

use crate::identity::{Secure, address, certificate_of, code, laneyard, refusal, text};
use crate::support::{Served, quick, soon, submission};

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_does_not_count_is_refused_with_a_code_of_its_own() {
    let secure = Secure::start();
    assert_eq!(refusal(&secure.with(secure.trust()), paths::ATTEMPTS).await, "401 unauthenticated");
    let wrong = format!("ly_{}_{}", "0".repeat(16), "A".repeat(43));
    assert_eq!(refusal(&secure.bearing(&wrong), paths::ATTEMPTS).await, "401 unauthenticated");
    let (id, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    secure.bearing(&secret).json::<Value>(Call::get(paths::ATTEMPTS)).await.unwrap();
    let mut other = secret.clone();
    let last = if other.pop() == Some('A') { 'E' } else { 'A' };
    other.push(last);
    assert_eq!(
        refusal(&secure.bearing(&other), paths::ATTEMPTS).await,
        "401 unauthenticated",
        "the right id is not enough"
    );
    secure.revoke(&id).await;
    assert_eq!(refusal(&secure.bearing(&secret), paths::ATTEMPTS).await, "401 credential-revoked");
    let (_, brief) = secure.create(Kind::Token, Role::Submit, "bob", Some(1)).await;
    let brief = secure.bearing(&brief);
    let expired = async {
        while brief.json::<Value>(Call::get(paths::ATTEMPTS)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        refusal(&brief, paths::ATTEMPTS).await
    };
    assert_eq!(soon(expired).await, "401 credential-expired");
    let told = brief.json::<Value>(Call::get(paths::ATTEMPTS)).await.unwrap_err().to_string();
    let at = told.split("ended at ").nth(1).unwrap().split(';').next().unwrap();
    assert!(at.len() == "2027-01-15T08:00:00Z".len() && at.ends_with('Z'), "{told}");
    let (_, join) = secure.create(Kind::Join, Role::Worker, "", None).await;
    assert_eq!(refusal(&secure.bearing(&join), paths::ATTEMPTS).await, "401 unauthenticated", "it only lets join");
    let foreign = certificate_of(&Authority::make().unwrap().0, secure.home.path());
    let foreign = secure.with(secure.trust().with_certificate(foreign));
    assert_eq!(refusal(&foreign, paths::ATTEMPTS).await, "401 certificate-unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_our_own_authority_signed_counts_only_if_it_is_registered() {
    let secure = Secure::start();
    let place = controller::identity::IdentityDir::of(&secure.dir);
    let unregistered = certificate_of(&place.authority().unwrap().unwrap(), secure.home.path());
    let transport = secure.with(secure.trust().with_certificate(unregistered));
    assert_eq!(refusal(&transport, paths::ATTEMPTS).await, "401 certificate-unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_reaches_as_far_as_it_says() {
    let secure = Secure::start();
    let (_, submit) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    let (_, approve) = secure.create(Kind::Token, Role::Approve, "bob", None).await;
    for person in [secure.bearing(&submit), secure.bearing(&approve)] {
        person.json::<Value>(Call::get(paths::WORKERS)).await.unwrap();
        assert_eq!(refusal(&person, paths::CREDENTIALS).await, "403 forbidden");
        for path in ["/v1/workers/w1/drain", "/v1/workers/w1/revoke", "/v1/workers/w1/heartbeat", paths::WORKERS] {
            let answer = person.json::<Value>(Call::post(path, &json!({})).unwrap()).await;
            assert_eq!(code(answer), "403 forbidden", "{path}");
        }
    }
    let create = json!({"kind": "token", "name": "w1", "role": "worker"});
    let answer = secure.admin().json::<Value>(Call::post(paths::CREDENTIALS, &create).unwrap()).await;
    let Err(CallError::Refused { status, body }) = answer else { panic!("{answer:?}") };
    assert_eq!((status.as_u16(), body.code.as_str()), (400, "bad-credential"), "workers have certificates only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_speaks_for_itself_and_does_nothing_else() {
    let secure = Secure::start();
    let (_home, a) = secure.join("a").await;
    let a = secure.with(a.credentials);
    let register = |worker: &str| {
        let facts = WorkerFacts { store: uuid::Uuid::new_v4(), capacity: 1, ..WorkerFacts::default() };
        let (worker, session) = (worker.parse().unwrap(), uuid::Uuid::new_v4());
        Call::post(paths::WORKERS, &Register { worker, session, number: 0, facts, held: vec![], damaged: vec![] })
            .unwrap()
    };
    a.json::<Value>(register("a")).await.unwrap();
    assert_eq!(code(a.json::<Value>(register("b")).await), "403 not-your-worker");
    let beat = Heartbeat { session: uuid::Uuid::new_v4(), held: vec![] };
    let beats = |path: &str| Call::post(path, &beat).unwrap();
    for path in ["/v1/workers/b/heartbeat", "/v1/workers/b/certificate", "/v1/workers/%61/heartbeat"] {
        assert_eq!(code(a.json::<Value>(beats(path)).await), "403 not-your-worker", "{path}");
    }
    let (_, submit) = submission();
    let submitted = a.json::<Value>(Call::post(paths::ATTEMPTS, &submit).unwrap()).await;
    assert_eq!(code(submitted), "403 forbidden");
    for path in [paths::ATTEMPTS, paths::WORKERS, paths::QUEUE, paths::CREDENTIALS] {
        assert_eq!(refusal(&a, path).await, "403 forbidden", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_people_certificate_counts_like_a_token() {
    let secure = Secure::start();
    let path = secure.home.path().join("ci.pem");
    let mut command = laneyard(secure.home.path());
    let path_text = path.to_str().unwrap();
    command.args(["token", "create", "--role", "submit", "--name", "ci", "--certificate", path_text]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let proof = Proof { ca: Some(secure.ca()), client_cert: Some(path), ..Proof::default() };
    let transport = address(&secure, proof).transport().unwrap();
    transport.json::<Value>(Call::get(paths::ATTEMPTS)).await.unwrap();
    assert_eq!(refusal(&transport, paths::CREDENTIALS).await, "403 forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_says_what_is_wrong_with_the_controllers_certificate() {
    let secure = Secure::start();
    let problem = async |credentials: Credentials, url: &str| {
        let transport = Transport::with(&url.parse().unwrap(), credentials).unwrap();
        match transport.json::<Value>(Call::get(paths::HEALTH)).await {
            Err(error @ CallError::Insecure { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let url = secure.served.address.clone();
    let unknown = problem(Credentials::none(), &url).await;
    assert!(unknown.contains("authority that is not trusted here") && unknown.contains("--ca"), "{unknown}");
    let pinned = Credentials::none().trusting(Trust::Pinned(agent::transport::Fingerprint::of(b"other")));
    assert!(problem(pinned, &url).await.contains("not trusted"));
    let proof = Proof { token_file: Some(secure.dir.join("identity/admin.token")), ..Proof::default() };
    let nobody = address(&secure, proof).transport();
    assert!(matches!(nobody, Err(EndpointError::NoAuthority { .. })), "{nobody:?}");
    let plain = Served::start(&secure.home.path().join("plain"), "127.0.0.1:0", quick());
    let tls_to_plain = plain.address.replace("http://", "https://");
    assert!(problem(secure.trust(), &tls_to_plain).await.contains("does not speak TLS"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_name_for_the_controller_is_named_with_those_that_are_good() {
    let secure = Secure::start();
    // `localhost.localdomain` would need a resolver: a second loopback address needs none.
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = secure.served.address.trim_start_matches("https://").to_owned();
    std::thread::spawn(move || forward(&listener, &target));
    let url = format!("https://127.0.0.2:{port}");
    let transport = Transport::with(&url.parse().unwrap(), secure.trust()).unwrap();
    let error = transport.json::<Value>(Call::get(paths::HEALTH)).await.unwrap_err().to_string();
    assert!(error.contains("not for `127.0.0.2`") && error.contains("localhost"), "{error}");
}

/// Passes one connection on.
fn forward(listener: &std::net::TcpListener, target: &str) {
    let (mut near, _) = listener.accept().unwrap();
    let mut far = std::net::TcpStream::connect(target).unwrap();
    let (mut back_from, mut back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    let _ = std::io::copy(&mut near, &mut far);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_tls_1_3_is_spoken_and_a_stalled_handshake_holds_up_nobody() {
    let secure = Secure::start();
    let address = secure.served.address.trim_start_matches("https://").to_owned();
    let stalled: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
    soon(secure.admin().json::<Value>(Call::get(paths::ATTEMPTS))).await.unwrap();
    drop(stalled);
    let tried = tokio::task::spawn_blocking(move || {
        let mut plain = std::net::TcpStream::connect(&address).unwrap();
        plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!text(&answer).contains("HTTP/"), "{}", text(&answer));
        old_tls(&address)
    });
    let error = tried.await.unwrap().to_string();
    assert!(error.contains("ProtocolVersion"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_never_shows_a_credential_is_cut_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let limit = Duration::from_millis(300);
    let served = Served::start_as(dir.path(), "127.0.0.1:0", |config| config.stranger_limit = limit);
    let client = controller::client::Client::new(served.transport());
    let (attempt, submit) = submission();
    client.submit(&submit).await.unwrap();
    let path = paths::attempt_part(attempt, "events");
    let mut stream = served.transport().records(&path, 0).await.unwrap();
    soon(futures_util::StreamExt::next(&mut stream)).await.unwrap().unwrap();
    let address = served.address.trim_start_matches("http://").to_owned();
    let cut = tokio::task::spawn_blocking(move || {
        let mut drip = std::net::TcpStream::connect(address).unwrap();
        drip.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
        drip.write_all(b"GET /v1/attempts HTTP/1.1\r\nhost:").unwrap();
        drip.read(&mut [0; 64])
            .map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |read| read == 0)
    });
    assert!(cut.await.unwrap(), "the half request is not waited for");
    // The known one's stream has outlived the limit too.
    client.cancel(attempt, agent::wire::attempt::CancelSignal::Interrupt).await.unwrap();
    let ended = async {
        while let Some(record) = futures_util::StreamExt::next(&mut stream).await {
            if record.unwrap().name == agent::wire::attempt::stream::END {
                return true;
            }
        }
        false
    };
    assert!(soon(ended).await);
}

/// A handshake that knows nothing newer than TLS 1.2.
fn old_tls(address: &str) -> std::io::Error {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut tcp = std::net::TcpStream::connect(address).unwrap();
    loop {
        match client.complete_io(&mut tcp) {
            Ok(_) if client.is_handshaking() => {}
            Ok(_) => panic!("TLS 1.2 was spoken"),
            Err(error) => return error,
        }
    }
}

#[test]
fn plaintext_is_refused_where_a_network_is_and_the_message_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "http://0.0.0.0:0"] {
        let output = laneyard(home.path()).args(["serve", "--listen", listen]).output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains("laneyard init"), "{listen}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_needs_no_tls_and_the_same_tokens() {
    let mut secure = Secure::start();
    let (_, secret) = secure.create(Kind::Token, Role::Submit, "ada", None).await;
    secure.served.kill();
    let listen = format!("unix://{}", secure.home.path().join("s").display());
    let served = Served::start_living(&secure.dir, &listen, Lives::default());
    let with = |token| Transport::http(&served.address.parse().unwrap(), token).unwrap();
    assert_eq!(refusal(&with(None), paths::ATTEMPTS).await, "401 unauthenticated");
    with(Token::parse(&secret)).json::<Value>(Call::get(paths::ATTEMPTS)).await.unwrap();
}
