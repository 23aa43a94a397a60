//! A container engine as the tests see it: its socket, asked directly.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// User whose rootless Podman the tests use when they run as root (`deploy/engines` makes it).
const ROOTLESS_USER: &str = "laneyard-test";

/// The engines that every machine of the tests has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Docker,
    Podman,
    PodmanRootless,
}

/// A container as listed.
#[derive(Clone, Debug)]
pub struct Container {
    pub id: String,
    pub name: String,
    /// `running`, `exited`, `created`, …
    pub state: String,
    pub labels: Value,
}

impl Engine {
    /// User and group of the lanes, if not those of the tests.
    #[must_use]
    pub fn user(self) -> Option<(u32, u32)> {
        if self != Self::PodmanRootless || !nix::unistd::Uid::effective().is_root() {
            return None;
        }
        let user = nix::unistd::User::from_name(ROOTLESS_USER).ok().flatten();
        let user = user.unwrap_or_else(|| panic!("no user `{ROOTLESS_USER}`: run `deploy/engines up` first"));
        Some((user.uid.as_raw(), user.gid.as_raw()))
    }

    /// The engine's socket.
    #[must_use]
    pub fn socket(self) -> PathBuf {
        match self {
            Self::Docker => "/var/run/docker.sock".into(),
            Self::Podman => "/run/podman/podman.sock".into(),
            Self::PodmanRootless => {
                let uid = self.user().map_or_else(|| nix::unistd::Uid::effective().as_raw(), |(uid, _)| uid);
                format!("/run/user/{uid}/podman/podman.sock").into()
            }
        }
    }

    /// Its kind, as receipts spell it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman | Self::PodmanRootless => "podman",
        }
    }

    /// Value of `--engine`.
    #[must_use]
    pub fn address(self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Asserts that it is there.
    ///
    /// # Panics
    /// It is not.
    pub fn assert_answers(self) {
        let (status, text) = self.ask("GET", "/_ping").unwrap_or_else(|error| {
            panic!("{self:?} does not answer on {}: {error}; run `deploy/engines up` first", self.address())
        });
        assert_eq!(status, 200, "{self:?}: {text}");
    }

    /// Containers with a label, `name=value`.
    ///
    /// # Panics
    /// The engine does not answer or not as documented.
    #[must_use]
    pub fn containers(self, label: &str) -> Vec<Container> {
        let filter = format!("{{%22label%22:[%22{label}%22]}}");
        let (status, text) =
            self.ask("GET", &format!("/containers/json?all=true&filters={filter}")).expect("the engine answers");
        assert_eq!(status, 200, "{text}");
        let listed: Vec<Value> = serde_json::from_str(&text).expect("a list of containers");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        listed
            .iter()
            .map(|entry| Container {
                id: text(&entry["Id"]),
                name: text(&entry["Names"][0]).trim_start_matches('/').to_owned(),
                state: text(&entry["State"]),
                labels: entry["Labels"].clone(),
            })
            .collect()
    }

    /// All that the engine says about a container.
    ///
    /// # Panics
    /// There is no such container.
    #[must_use]
    pub fn inspect(self, id: &str) -> Value {
        let (status, text) = self.ask("GET", &format!("/containers/{id}/json")).expect("the engine answers");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("an object")
    }

    /// Names of all networks.
    ///
    /// # Panics
    /// The engine does not answer as documented.
    #[must_use]
    pub fn networks(self) -> Vec<String> {
        let (_, text) = self.ask("GET", "/networks").expect("the engine answers");
        let listed: Vec<Value> = serde_json::from_str(&text).expect("a list of networks");
        listed.iter().filter_map(|entry| entry["Name"].as_str().map(str::to_owned)).collect()
    }

    /// Names of all volumes.
    ///
    /// # Panics
    /// The engine does not answer as documented.
    #[must_use]
    pub fn volumes(self) -> Vec<String> {
        let (status, text) = self.ask("GET", "/volumes").expect("the engine answers");
        assert_eq!(status, 200, "{text}");
        let listed: Value = serde_json::from_str(&text).expect("an object with volumes");
        let volumes = listed["Volumes"].as_array().into_iter().flatten();
        volumes.filter_map(|entry| entry["Name"].as_str().map(str::to_owned)).collect()
    }

    /// Kills a container from outside, as a person might.
    pub fn kill(self, id: &str) {
        let _ = self.ask("POST", &format!("/containers/{id}/kill"));
    }

    /// Removes a container whatever it does; absent is fine.
    pub fn remove(self, id: &str) {
        let _ = self.ask("DELETE", &format!("/containers/{id}?force=true&v=true"));
    }

    /// One call in HTTP/1.0, so that the answer ends with the connection.
    fn ask(self, method: &str, path: &str) -> std::io::Result<(u16, String)> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        stream
            .write_all(format!("{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok((head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0), body.to_owned()))
    }
}
