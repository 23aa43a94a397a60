//! Full disks and killed processes.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use agent::transport::{Endpoint, Token, Transport};
use agent::wire::error::code;
use controller::client::Client;
use nix::mount::{MsFlags, mount, umount};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::desk::Desk;
use crate::scripted::{Heard, Scripted};
use crate::support::{Served, drain, numbers, quick, soon, submission};

/// A file system of a few MiB of its own.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn new(size: &str) -> Self {
        let disk = Self { dir: tempfile::tempdir().unwrap() };
        disk.mount(MsFlags::empty(), size);
        disk
    }

    fn mount(&self, flags: MsFlags, size: &str) {
        let options = format!("size={size},mode=700");
        mount(Some("tmpfs"), self.dir.path(), Some("tmpfs"), flags, Some(options.as_str()))
            .expect("this test makes a small file system: run it as root");
    }

    fn grow(&self, size: &str) {
        self.mount(MsFlags::MS_REMOUNT, size);
    }
}

impl SmallDisk {
    /// Takes every byte that is left.
    fn fill(&self) -> std::path::PathBuf {
        let path = self.dir.path().join("somebody-elses");
        let mut file = std::fs::File::create(&path).unwrap();
        let piece = vec![1; 4096];
        while file.write_all(&piece).is_ok() {}
        path
    }

    fn free(&self) -> u64 {
        let stat = nix::sys::statvfs::statvfs(self.dir.path()).unwrap();
        stat.blocks_available() * stat.fragment_size()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount(self.dir.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_its_own_error_and_loses_nothing_that_was_acknowledged() {
    let disk = SmallDisk::new("6m");
    let mut served = Served::start_with(disk.dir.path(), "127.0.0.1:0", quick(), 0);
    let address = served.address.trim_start_matches("http://").to_owned();
    let transport = served.transport();
    let mut acknowledged = Vec::new();
    let refused = loop {
        let (id, mut submit) = submission();
        submit.assignment.prompt = vec![b'x'; 100_000];
        let call = agent::transport::Call::post(agent::wire::paths::ATTEMPTS, &submit).unwrap();
        match transport.json::<agent::wire::attempt::AttemptView>(call).await {
            Ok(_) => acknowledged.push(id),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 200, "the disk never filled");
    };
    assert!(refused.is(code::STORAGE_FULL), "{refused}");
    assert!(refused.to_string().contains("free some space"), "{refused}");
    let listed = served.client().attempts(None, 500).await.unwrap().items.len();
    assert_eq!(listed, acknowledged.len(), "the refused one is not half there");
    served.kill();
    disk.grow("32m");
    let served = Served::start_with(disk.dir.path(), &address, quick(), 0);
    let client = served.client();
    for id in &acknowledged {
        client.attempt(*id).await.unwrap();
    }
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    assert_eq!(client.attempts(None, 500).await.unwrap().items.len(), acknowledged.len() + 1);
    assert_eq!(client.attempt(id).await.unwrap().attempt, id);
}

#[tokio::test]
async fn below_the_reserve_nothing_new_is_admitted() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start_with(dir.path(), "127.0.0.1:0", quick(), u64::MAX);
    let (_, submit) = submission();
    let call = agent::transport::Call::post(agent::wire::paths::ATTEMPTS, &submit).unwrap();
    let error = served.transport().json::<serde_json::Value>(call).await.unwrap_err();
    assert!(error.is(code::STORAGE_FULL), "{error}");
    assert_eq!(served.client().attempts(None, 10).await.unwrap().items, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_attempt_ends_on_a_full_disk_and_nothing_new_is_admitted_until_there_is_space() {
    let disk = SmallDisk::new("32m");
    let served = Served::start_with(disk.dir.path(), "127.0.0.1:0", quick(), 6 << 20);
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    worker.start(id);
    let others = disk.fill();
    assert_eq!(disk.free(), 0);
    // Its client may have lost the first answer: who repeats must not read that nothing was taken.
    let call = agent::transport::Call::post(agent::wire::paths::ATTEMPTS, &submit).unwrap();
    served.transport().json::<agent::wire::attempt::AttemptView>(call).await.unwrap();
    let long = "x".repeat(20_000);
    for n in 0..100 {
        worker.text(id, &format!("{n} {long}"));
    }
    let answer = vec![b'a'; 500_000];
    worker.end(id, "complete", Some(&answer));
    let events = drain(client.follow(id, 0)).await;
    assert_eq!(numbers(&events), (1..=102).collect::<Vec<_>>());
    assert_eq!(client.receipt(id).await.unwrap()["status"], "complete");
    assert_eq!(crate::support::read(client.answer(id).await.unwrap()).await, answer);
    let (second, submit) = submission();
    let refused = client.submit(&submit).await.unwrap_err();
    assert!(refused.is(code::STORAGE_FULL), "{refused}");
    std::fs::remove_file(others).unwrap();
    client.submit(&submit).await.unwrap();
    assert_eq!(client.attempt(second).await.unwrap().attempt, second);
    assert_eq!(disk.dir.path().join("reserve").metadata().unwrap().len(), 6 << 20, "set aside again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_on_a_full_disk_starts_there_again_and_has_everything() {
    let disk = SmallDisk::new("32m");
    let mut served = Served::start_with(disk.dir.path(), "127.0.0.1:0", quick(), 6 << 20);
    let address = served.address.trim_start_matches("http://").to_owned();
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    let client = served.client();
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    let _others = disk.fill();
    served.kill();
    let _served = Served::start_with(disk.dir.path(), &address, quick(), 6 << 20);
    worker.end(id, "complete", None);
    assert_eq!(drain(client.follow(id, 0)).await.len(), 1);
}

#[tokio::test]
async fn a_lane_that_a_full_controller_does_not_admit_has_an_exit_code_of_its_own_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start_with(dir.path(), "127.0.0.1:0", quick(), u64::MAX);
    let desk = Desk::at(&served);
    let words = "run --mode read-only --parent codex --provider claude --model opus --effort high --prompt prompt.md \
                 --cwd repo --output new/out.md --receipt new/receipt.json";
    let seen = desk.run(&words.split_whitespace().collect::<Vec<_>>()).await;
    assert_eq!((seen.code(), seen.out().as_str()), (74, ""), "{}", seen.err());
    assert!(seen.err().contains("disk is full"), "{}", seen.err());
    assert!(!desk.path("new").exists());
    assert_eq!(std::fs::read_dir(desk.path("state/clients")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_directory_for_which_a_controller_has_no_room_is_refused_at_once_as_a_full_disk() {
    let disk = SmallDisk::new("40m");
    let served = Served::start_with(disk.dir.path(), "127.0.0.1:0", quick(), 0);
    let desk = Desk::at(&served);
    let words = "run --mode read-only --parent codex --provider claude --model opus --effort high --prompt prompt.md \
                 --cwd repo --output new/out.md --receipt new/receipt.json";
    // Less than the patience with a lost connection.
    let seen = soon(desk.run(&words.split_whitespace().collect::<Vec<_>>())).await;
    assert_eq!((seen.code(), seen.out().as_str()), (74, ""), "{}", seen.err());
    assert!(seen.err().contains("disk is full"), "{}", seen.err());
    assert!(!desk.path("new").exists());
    assert!(!desk.path("state/clients").exists(), "nothing is remembered of it");
}

/// The real program as a process of its own.
struct Process {
    child: tokio::process::Child,
    address: String,
}

impl Process {
    async fn start(state: &Path, listen: &str) -> Self {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_laneyard"))
            .args(["--state-dir", state.to_str().unwrap(), "serve", "--listen", listen])
            .env_remove("LANEYARD_CONTROLLER")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = soon(lines.next_line()).await.unwrap().expect("serve ended before it listened");
        let address = line.split([' ', ',']).find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, address }
    }

    async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_process_killed_with_signal_9_again_and_again_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start(dir.path(), "127.0.0.1:0").await;
    let address = process.address.trim_start_matches("http://").to_owned();
    let endpoint: Endpoint = process.address.parse().unwrap();
    let token = Token::read(&dir.path().join("controller/token")).unwrap();
    let transport = Transport::http(&endpoint, Some(token)).unwrap();
    let client = Client::new(transport.clone());
    let worker = Scripted::new(2);
    let stop = tokio_util::sync::CancellationToken::new();
    tokio::spawn(agent::link::run(transport, worker.clone(), "w1".parse().unwrap(), stop.clone()));
    let (id, submit) = submission();
    client.submit(&submit).await.unwrap();
    worker.until_offered(id).await;
    let following = tokio::spawn(drain(client.follow(id, 0)));
    for round in 0..5_u64 {
        for n in 0..20 {
            worker.text(id, &format!("round {round}, {n}"));
        }
        // At different moments of the pipeline.
        tokio::time::sleep(Duration::from_millis(round * 7)).await;
        process.kill().await;
        process = Process::start(dir.path(), &address).await;
    }
    worker.end(id, "complete", Some(b"answer"));
    assert_eq!(numbers(&soon(following).await.unwrap()), (1..=101).collect::<Vec<_>>());
    worker.until(|heard| *heard == Heard::Release(id)).await;
    assert_eq!(worker.offers(id), 1);
    stop.cancel();
}
