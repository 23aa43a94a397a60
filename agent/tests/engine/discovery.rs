//! Engines that are not there, too old, or have no image.

use std::path::Path;

use agent::container::discover::{Surroundings, connect};
use agent::container::{Engine, EngineError, EngineKind, image};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Which, on_every_engine, ordinary_uid};

on_every_engine! {
    the_engine_says_what_it_is = told;
    a_missing_image_names_its_remedy = missing_image;
}

async fn told(which: Which) {
    let engine = which.open().await;
    let info = engine.info();
    assert_eq!(info.kind, if which == Which::Docker { EngineKind::Docker } else { EngineKind::Podman });
    assert_eq!(info.rootless, which == Which::Rootless);
    assert_eq!(info.os, "linux");
    assert!(!info.version.is_empty() && info.cpus > 0 && info.memory > 0 && info.seccomp, "{info:?}");
    assert!(info.clock_skew_ms.is_some_and(|skew| skew.abs() < 2000), "{info:?}");
    assert_eq!(info.socket_uid, Some(which.natural_owner()));
}

async fn missing_image(which: Which) {
    let engine = which.open().await;
    let error = image::resolve(&engine, &"laneyard/devin:absent".parse().unwrap(), image::PullPolicy::Never, None)
        .await
        .unwrap_err();
    assert!(matches!(error, EngineError::NoImage { .. }));
    let text = error.to_string();
    assert!(text.contains("images/build --only devin") && text.contains(engine.info().kind.as_str()), "{text}");
}

#[tokio::test]
async fn the_flag_chooses_among_living_engines() {
    let around = Surroundings { uid: ordinary_uid(), ..Surroundings::from_env() };
    let address = format!("unix://{}", Which::Podman.socket().display());
    let engine = connect(Some(&address.parse().unwrap()), &around).await.unwrap();
    assert_eq!(engine.info().kind, EngineKind::Podman);
    let around = Surroundings { docker_host: Some("unix:///var/run/docker.sock".into()), ..around };
    assert_eq!(connect(None, &around).await.unwrap().info().kind, EngineKind::Docker);
}

/// Answers every request with the same words.
async fn fake_engine(socket: &Path, answer: String) -> tokio::task::JoinHandle<()> {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0u8; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
}

/// `headers` are whole lines.
async fn opening(status: &str, headers: &str, body: &str) -> EngineError {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let server = fake_engine(&socket, answer).await;
    let error = Engine::open(&socket).await.unwrap_err();
    server.abort();
    error
}

#[tokio::test]
async fn an_engine_that_is_too_old_is_refused_with_both_versions_in_the_message() {
    let old = opening("200 OK", "api-version: 1.24\r\n", "OK").await;
    assert!(matches!(old, EngineError::Version { .. }), "{old}");
    assert!(old.to_string().contains("1.24 at most") && old.to_string().contains("1.40 to"), "{old}");
}

/// A fake of an engine from years ahead: the engines of today still speak all that we speak.
#[tokio::test]
async fn an_engine_that_left_our_versions_behind_says_so_itself() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let server = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answer in [
            "HTTP/1.1 200 OK\r\napi-version: 9.44\r\ncontent-length: 2\r\nconnection: close\r\n\r\nOK",
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n{\"message\":\"Minimum supported API version is 9.40\"}",
        ] {
            // The first connection only shows that somebody listens.
            let (mut stream, request) = loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0u8; 4096];
                let length = stream.read(&mut request).await.unwrap();
                if length > 0 {
                    break (stream, String::from_utf8_lossy(&request[..length]).into_owned());
                }
            };
            asked.push(request.lines().next().unwrap_or_default().to_owned());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        asked
    });
    let error = Engine::open(&socket).await.unwrap_err();
    assert!(error.to_string().contains("Minimum supported API version is 9.40"), "{error}");
    let asked = server.await.unwrap();
    assert!(asked[0].starts_with("GET /_ping ") && asked[1].starts_with("GET /v1."), "{asked:?}");
}

#[tokio::test]
async fn a_refusal_without_a_body_is_still_named() {
    let refused = opening("400 Bad Request", "", "").await;
    assert!(matches!(refused, EngineError::Refused { status: 400, .. }), "{refused}");
    let nonsense = opening("200 OK", "", r#"{"hello":"world"}"#).await;
    assert!(matches!(nonsense, EngineError::Answer { .. }), "{nonsense}");
}
