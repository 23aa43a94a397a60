//! A network namespace with a name, made and removed by iproute2.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};

/// A network namespace; dropping it removes it.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one with its loopback up. `role` is the readable part of its name.
    ///
    /// # Panics
    /// The kernel refuses.
    #[must_use]
    pub fn new(role: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ly{}-{}-{role}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run("ip", &["netns", "add", &name]);
        let made = Self { name };
        made.ip(&["link", "set", "lo", "up"]);
        made
    }

    /// Its name for iproute2.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a program run in it. Its mounts stay the machine's: what it mounts, the engine sees.
    ///
    /// # Panics
    /// It is gone.
    pub fn place(&self, command: &mut Command) {
        let file = self.open();
        // SAFETY: setns is one system call on a descriptor that the closure owns; nothing is allocated.
        unsafe {
            command.pre_exec(move || setns(&file, CloneFlags::CLONE_NEWNET).map_err(Into::into));
        }
    }

    /// Runs a function on a thread of this namespace. What it opens, and the threads it starts, stay in it.
    ///
    /// # Panics
    /// It is gone, or the function panics.
    pub fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let file = self.open();
        let inside = || {
            setns(&file, CloneFlags::CLONE_NEWNET).expect("the namespace can be entered");
            body()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().expect("the function does not panic"))
    }

    fn open(&self) -> File {
        File::open(format!("/run/netns/{}", self.name)).expect("the namespace is there")
    }

    pub(super) fn ip(&self, words: &[&str]) {
        Self::ip_in(&self.name, words);
    }

    pub(super) fn ip_in(name: &str, words: &[&str]) {
        run("ip", &[&["-n", name], words].concat());
    }

    pub(super) fn tc(&self, words: &[&str]) {
        run("tc", &[&["-n", &self.name], words].concat());
    }

    /// Removes what was queued on a link before; without any there is nothing to do.
    pub(super) fn forget_queue(&self, link: &str) {
        let words = ["-n", &self.name, "qdisc", "delete", "dev", link, "root"];
        let _ = Command::new("tc").args(words).stderr(Stdio::null()).status();
    }

    /// Loads rules into its packet filter.
    pub(super) fn nft(&self, rules: &str) {
        let mut command = Command::new("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped());
        self.place(&mut command);
        let mut child = command.spawn().expect("nft runs");
        child.stdin.take().expect("a pipe").write_all(rules.as_bytes()).expect("the rules are written");
        assert!(child.wait().expect("nft ends").success(), "nft refuses:\n{rules}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

#[track_caller]
fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {words:?}: {said}\nThese tests make network namespaces: run them as root"
    );
}
