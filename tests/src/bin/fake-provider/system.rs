//! System calls that the standard library does not offer, and the processes that are started for trouble.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Argument that makes this program a process that ignores TERM and never ends.
pub(crate) const SLEEPER: &str = "--be-a-sleeper";

/// Argument that makes this program eat memory.
pub(crate) const EATER: &str = "--be-an-eater";

const IGNORE: usize = 1;
const HANGUP: i32 = 1;
const INTERRUPT: i32 = 2;
const TERMINATE: i32 = 15;

mod calls {
    unsafe extern "C" {
        pub(super) fn signal(number: i32, handler: usize) -> usize;
        pub(super) fn setsid() -> i32;
        pub(super) fn kill(pid: i32, signal: i32) -> i32;
        pub(super) fn close(descriptor: i32) -> i32;
        pub(super) fn setuid(user: u32) -> i32;
    }
}

pub(crate) fn ignore_requests_to_end() {
    for number in [HANGUP, INTERRUPT, TERMINATE] {
        // SAFETY: sets a disposition; no handler of ours runs.
        unsafe { calls::signal(number, IGNORE) };
    }
}

pub(crate) fn die(signal: i32) -> ! {
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    // SAFETY: sends a signal to ourselves.
    unsafe { calls::kill(me, signal) };
    loop {
        thread::park();
    }
}

pub(crate) fn close_stdout() {
    // SAFETY: nobody writes to stdout afterwards, and the number is not used again.
    unsafe { calls::close(1) };
}

/// True when it worked, which it must not.
pub(crate) fn becomes_root() -> bool {
    // SAFETY: changes only the identity of this process.
    unsafe { calls::setuid(0) == 0 }
}

pub(crate) fn sleep_whatever_comes() -> ! {
    ignore_requests_to_end();
    loop {
        thread::park();
    }
}

/// A process in a session of its own that holds our stdout and stderr.
pub(crate) fn daemon() -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(SLEEPER).stdin(Stdio::null());
    let own_session = || {
        // SAFETY: only makes a session.
        unsafe { calls::setsid() };
        ignore_requests_to_end(); // before exec, so that there is no moment without
        Ok(())
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(own_session) };
    command.spawn()
}
