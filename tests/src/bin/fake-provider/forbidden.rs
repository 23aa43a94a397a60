//! What a container must not allow, tried one by one.

use std::fs::{self, File, OpenOptions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::system;

/// Files that must not be writable, whoever owns them.
const WRITES: &[&str] =
    &["/laneyard-root-test", "/etc/laneyard-test", "/usr/laneyard-test", "/run/laneyard/laneyard-test"];

/// Files in Git metadata; a linked worktree has only the pointer.
const GIT: &[&str] = &[".git/laneyard-test", ".git/config", ".git/HEAD", ".git/hooks/pre-commit"];

/// What only the host or the supervisor may read.
const READS: &[&str] = &["/proc/1/environ", "/proc/1/mem", "/etc/shadow", "/run/laneyard/agent.token"];

const ENGINES: &[&str] =
    &["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"];

/// A public resolver, a cloud's metadata service, and the usual address of a bridge's host.
const ADDRESSES: &[([u8; 4], u16)] = &[([1, 1, 1, 1], 53), ([169, 254, 169, 254], 80), ([172, 17, 0, 1], 22)];

/// One line for each attempt: `what: blocked (why)` or `what: ALLOWED`.
pub(crate) fn report() -> String {
    let mut lines = Vec::new();
    let mut tried = |what: String, result: Result<(), String>| {
        lines.push(match result {
            Ok(()) => format!("{what}: ALLOWED"),
            Err(why) => format!("{what}: blocked ({why})"),
        });
    };
    let words = |error: std::io::Error| error.to_string();
    for path in WRITES.iter().chain(GIT) {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        tried(format!("write {path}"), opened.map(drop).map_err(words));
    }
    for path in READS {
        let read = File::open(path).and_then(|mut file| std::io::Read::read(&mut file, &mut [0]));
        tried(format!("read {path}"), read.map(drop).map_err(words));
    }
    for path in ENGINES {
        tried(format!("connect {path}"), UnixStream::connect(path).map(drop).map_err(words));
    }
    for (address, port) in ADDRESSES {
        let address = SocketAddr::from((*address, *port));
        let connected = TcpStream::connect_timeout(&address, Duration::from_secs(2));
        tried(format!("connect {address}"), connected.map(drop).map_err(words));
    }
    let refused = |worked: bool| if worked { Ok(()) } else { Err("refused".to_owned()) };
    tried("become root".to_owned(), refused(system::becomes_root()));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    for (set, none) in [("CapEff:", "0000000000000000"), ("CapBnd:", "0000000000000000"), ("NoNewPrivs:", "1")] {
        let value = field(set);
        tried(format!("status {set}"), if value == none { Err(value) } else { Ok(()) });
    }
    lines.join("\n")
}
