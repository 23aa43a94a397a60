//! The operation ledger under concurrency, kills and a full disk, with real processes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Called, Helper, fresh, stderr, stdout};
use controller::contract::ledger::{Ledger, OperationState};

fn record(directory: &Path, id: &str, checkpoint: &str, state: &str) -> Child {
    let words = [
        "op-record",
        "--ledger",
        "ops.json",
        "--id",
        id,
        "--task",
        "t",
        "--checkpoint",
        checkpoint,
        "--kind",
        "run-checks",
        "--state",
        state,
    ];
    let mut command = Helper::Contract.command(Called::ByName, &words, directory);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn read(directory: &Path) -> Ledger {
    Ledger::read(&fs::read_to_string(directory.join("ops.json")).unwrap(), "ops.json").unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A ledger that takes a while to write.
fn long_ledger(directory: &Path, count: usize) -> String {
    let record = |at: usize| {
        format!(
            r#"{{"id":"old-{at}","task":"t","checkpoint":"old-{at}","kind":"run-checks","state":"pending","expected":{{}},"result":null,"recordedAt":"2026-01-02T03:04:05.000Z","completedAt":null}}"#
        )
    };
    let records: Vec<String> = (0..count).map(record).collect();
    let text = format!("{{\"version\":1,\"operations\":[{}]}}", records.join(","));
    fs::write(directory.join("ops.json"), &text).unwrap();
    text
}

#[test]
fn sixteen_concurrent_reservations_all_survive() {
    let (_guard, directory) = fresh();
    let children: Vec<Child> =
        (0..16).map(|at| record(&directory, &format!("op-{at}"), &format!("c-{at}"), "pending")).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let mut ids: Vec<String> = read(&directory).operations.into_iter().map(|record| record.id).collect();
    ids.sort();
    let mut expected: Vec<String> = (0..16).map(|at| format!("op-{at}")).collect();
    expected.sort();
    assert_eq!(ids, expected);
    assert_eq!(names(&directory), ["ops.json"]);
    assert_eq!(fs::metadata(directory.join("ops.json")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn sixteen_writers_of_one_scope_leave_one_reservation() {
    let (_guard, directory) = fresh();
    let children: Vec<Child> = (0..16).map(|at| record(&directory, &format!("op-{at}"), "same", "pending")).collect();
    let codes: Vec<Option<i32>> =
        children.into_iter().map(|child| child.wait_with_output().unwrap().status.code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(65)).count(), 15, "{codes:?}");
    assert_eq!(read(&directory).operations.len(), 1);
}

#[test]
fn a_killed_writer_leaves_the_old_or_the_new_ledger_and_never_a_torn_one() {
    let (_guard, directory) = fresh();
    long_ledger(&directory, 400);
    // Learn how long a write takes, then kill at points spread over that time.
    let start = Instant::now();
    assert!(record(&directory, "first", "first", "pending").wait_with_output().unwrap().status.success());
    let whole = start.elapsed();
    let (mut old, mut new) = (0, 0);
    for round in 0..40_u32 {
        let before = read(&directory);
        let id = format!("op-{round}");
        let mut child = record(&directory, &id, &id, "pending");
        let kill_at = Instant::now() + whole * round / 40;
        while Instant::now() < kill_at {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait_with_output().unwrap();
        let after = read(&directory);
        if after == before {
            old += 1;
        } else {
            assert_eq!(after.operations.len(), before.operations.len() + 1);
            assert_eq!(after.operations.last().unwrap().id, id);
            new += 1;
        }
        // What a person does after a crash: the lock is never stolen.
        let _ = fs::remove_dir(directory.join("ops.json.lock"));
    }
    assert!(old > 0, "no kill came before the write ({new} after it)");
    assert!(record(&directory, "last", "last", "pending").wait_with_output().unwrap().status.success());
}

#[test]
fn a_ledger_cut_at_any_byte_is_refused_and_left_alone() {
    let (_guard, directory) = fresh();
    let text = long_ledger(&directory, 3);
    for cut in 0..text.len() {
        assert!(Ledger::read(&text[..cut], "ops.json").is_err(), "cut at {cut}");
    }
    fs::write(directory.join("ops.json"), &text[..text.len() / 2]).unwrap();
    let output = record(&directory, "op", "c", "pending").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert!(stdout(&output).is_empty() && stderr(&output).contains("is not JSON"));
    assert_eq!(fs::read_to_string(directory.join("ops.json")).unwrap(), text[..text.len() / 2]);
    assert_eq!(names(&directory), ["ops.json"]);
}

#[test]
fn a_held_lock_is_waited_for_and_never_stolen() {
    let (_guard, directory) = fresh();
    let lock = directory.join("ops.json.lock");
    fs::create_dir(&lock).unwrap();
    let waiting = record(&directory, "op", "c", "pending");
    let start = Instant::now();
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert!(start.elapsed() >= Duration::from_secs(9), "gave up after {:?}", start.elapsed());
    assert!(stderr(&output).contains("invalid operation:") && stderr(&output).contains("ops.json.lock"));
    assert_eq!(names(&directory), ["ops.json.lock"]);
    fs::remove_dir(&lock).unwrap();
    assert!(record(&directory, "op", "c", "pending").wait_with_output().unwrap().status.success());
}

/// A small file system, unmounted at the end.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// `None` without the privilege to mount.
    fn mount(at: &'a Path) -> Option<Self> {
        use nix::mount::{MsFlags, mount};
        mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).ok().map(|()| Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_keeps_the_old_ledger_and_leaves_nothing_behind() {
    let (_guard, directory) = fresh();
    let Some(_disk) = SmallDisk::mount(&directory) else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    assert!(record(&directory, "op-1", "c-1", "pending").wait_with_output().unwrap().status.success());
    let before = fs::read(directory.join("ops.json")).unwrap();
    let mut filler = fs::File::create(directory.join("filler")).unwrap();
    while filler.write_all(&[b'x'; 4096]).is_ok() {}
    let output = record(&directory, "op-2", "c-2", "pending").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    assert_eq!(fs::read(directory.join("ops.json")).unwrap(), before);
    assert_eq!(names(&directory), ["filler", "ops.json"]);
    drop(filler);
    fs::remove_file(directory.join("filler")).unwrap();
    assert!(record(&directory, "op-2", "c-2", "pending").wait_with_output().unwrap().status.success());
    assert!(read(&directory).operations.iter().all(|record| record.state == OperationState::Pending));
}
