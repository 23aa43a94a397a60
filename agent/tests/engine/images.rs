//! Images that newer ones replaced.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use agent::retention::{Keep, Rules, images};

use crate::fixture::Which;

fn cli(which: Which, words: &[&str], input: &[u8]) -> String {
    let program = if which == Which::Docker { "docker" } else { "podman" };
    let mut child = Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {words:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn a_nameless_image_goes_unless_a_container_uses_it(which: Which) {
    let engine = which.open().await;
    // Two zero blocks are an empty archive; the label's value makes the image this test's own.
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let label = format!("LABEL laneyard.image.cli=test-{unique}");
    let id = cli(which, &["import", "--change", &label, "-"], &[0; 1024]);
    let id = if id.starts_with("sha256:") { id } else { format!("sha256:{id}") };
    let rules = Rules { images: Keep { age: Some(std::time::Duration::ZERO), size: None }, ..Rules::default() };
    let later = SystemTime::now() + std::time::Duration::from_secs(60);
    let ours = async || {
        let planned = images::plan(&engine, &rules, later).await.unwrap();
        planned.into_iter().find(|item| item.subject == id)
    };
    let item = ours().await.expect("it is listed");
    let container = cli(which, &["create", &id, "/nothing"], &[]);
    let (listed, removed) = (ours().await, images::remove(&engine, &item).await.unwrap());
    cli(which, &["rm", &container], &[]);
    assert_eq!((listed, removed), (None, false), "a container uses it");
    assert!(images::remove(&engine, &item).await.unwrap());
    assert!(!images::remove(&engine, &item).await.unwrap(), "it is gone");
    assert_eq!(ours().await, None);
}

#[tokio::test]
async fn a_nameless_image_goes_unless_a_container_uses_it_docker() {
    a_nameless_image_goes_unless_a_container_uses_it(Which::Docker).await;
}

#[tokio::test]
async fn a_nameless_image_goes_unless_a_container_uses_it_podman() {
    a_nameless_image_goes_unless_a_container_uses_it(Which::Podman).await;
}
