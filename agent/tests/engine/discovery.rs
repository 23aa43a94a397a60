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
    let error =
        image::resolve(&engine, &"laneyard/devin:absent".parse().unwrap(), image::PullPolicy::Never).await.unwrap_err();
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

/// Answers every request with the same body.
async fn fake_engine(socket: &Path, status: &'static str, body: &'static str) -> tokio::task::JoinHandle<()> {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0u8; 4096];
            let _ = stream.read(&mut request).await;
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
}

async fn opening(status: &'static str, body: &'static str) -> EngineError {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let server = fake_engine(&socket, status, body).await;
    let error = Engine::open(&socket).await.unwrap_err();
    server.abort();
    error
}

#[tokio::test]
async fn versions_that_do_not_overlap_are_refused_with_both_in_the_message() {
    let new = opening("200 OK", r#"{"ApiVersion":"9.44","MinAPIVersion":"9.40","Version":"99"}"#).await;
    assert!(matches!(new, EngineError::Version { .. }), "{new}");
    assert!(new.to_string().contains("9.40 to 9.44") && new.to_string().contains("1.40"), "{new}");
    let old = opening("200 OK", r#"{"ApiVersion":"1.24","MinAPIVersion":"1.12","Version":"1.12"}"#).await;
    assert!(old.to_string().contains("1.12 to 1.24"), "{old}");
}

#[tokio::test]
async fn a_refusal_without_a_body_is_still_named() {
    let refused = opening("400 Bad Request", "").await;
    assert!(matches!(refused, EngineError::Refused { status: 400, .. }), "{refused}");
    let nonsense = opening("200 OK", r#"{"hello":"world"}"#).await;
    assert!(matches!(nonsense, EngineError::Answer { .. }), "{nonsense}");
}
