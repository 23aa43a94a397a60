//! Several hosts on one machine: network namespaces on one bridge, each with a link that can be cut, slowed or made to lose
//! packets. The file system and the engine's socket are shared; what a host may see of them is the test's affair.

mod disk; // small ones
mod fleet; // controller, workers, client
mod invariants; // what must hold afterwards
mod namespace; // one network namespace

use std::net::Ipv4Addr;
use std::process::Command;

pub use disk::SmallDisk;
pub use fleet::{Fleet, Lane, Options as FleetOptions, WORKERS};
pub use namespace::Namespace;

use crate::fake_model::{FakeModel, Options};

/// Network of all hosts: a namespace of its own, so that it meets no other 10.77.0.0/24.
pub struct Network {
    hub: Namespace,
    hosts: Vec<Host>,
}

/// One host: its namespace, its address, and its link to the others.
pub struct Host {
    name: String,
    namespace: Namespace,
    hub: String,
    address: Ipv4Addr,
}

/// Address of the bridge itself, where the fake model listens.
const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

impl Network {
    /// A network with these hosts; their addresses follow in order from 10.77.0.2.
    ///
    /// # Panics
    /// The kernel refuses: these tests run as root.
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        let hub = Namespace::new("hub");
        hub.ip(&["link", "add", "bridge", "type", "bridge"]);
        hub.ip(&["address", "add", &format!("{HUB}/24"), "dev", "bridge"]);
        hub.ip(&["link", "set", "bridge", "up"]);
        let hosts = names.iter().zip(2..).map(|(name, last)| {
            let host = Host {
                name: (*name).to_owned(),
                namespace: Namespace::new(name),
                hub: hub.name().to_owned(),
                address: Ipv4Addr::new(10, 77, 0, last),
            };
            let peer = host.namespace.name();
            hub.ip(&["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", peer]);
            hub.ip(&["link", "set", name, "master", "bridge", "up"]);
            host.namespace.ip(&["address", "add", &format!("{}/24", host.address), "dev", "eth0"]);
            host.namespace.ip(&["link", "set", "eth0", "up"]);
            host
        });
        let hosts = hosts.collect();
        Self { hub, hosts }
    }

    /// A host by its name.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap_or_else(|| panic!("no host `{name}`"))
    }

    /// A fake model that every host can reach, and its base URL.
    ///
    /// # Panics
    /// It cannot listen.
    #[must_use]
    pub fn model(&self) -> (FakeModel, String) {
        let options = Options { host: Some(HUB.to_string()), ..Options::default() };
        let model = self.hub.within(|| FakeModel::start_with(options)).expect("a fake model");
        let url = format!("http://{HUB}:{}", model.port());
        (model, url)
    }
}

impl Host {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Makes a program run on this host.
    pub fn place(&self, command: &mut Command) {
        self.namespace.place(command);
    }

    /// Cuts its link: what is sent gets no answer at all, open connections do not notice.
    pub fn cut(&self) {
        Namespace::ip_in(&self.hub, &["link", "set", &self.name, "down"]);
    }

    /// Mends its link.
    pub fn mend(&self) {
        Namespace::ip_in(&self.hub, &["link", "set", &self.name, "up"]);
    }

    /// Drops this many of a hundred packets in each direction; 0 is a good line again.
    ///
    /// # Panics
    /// More than a hundred, or the kernel refuses.
    pub fn lose(&self, percent: u8) {
        assert!(percent <= 100, "{percent} of a hundred packets");
        let mut rules = "table inet line\ndelete table inet line\n".to_owned();
        if percent > 0 {
            rules += "table inet line {\n";
            for (hook, side) in [("input", "iifname"), ("output", "oifname")] {
                rules += &format!(
                    "chain {hook} {{\n type filter hook {hook} priority 0;\n {side} \"eth0\" numgen random mod 100 < {percent} drop\n}}\n"
                );
            }
            rules += "}\n";
        }
        self.namespace.nft(&rules);
    }

    /// Slows its link to so many kilobits a second, with the delay that comes with it; `None` is a fast line again.
    pub fn slow(&self, kilobits: Option<u32>) {
        self.namespace.forget_queue("eth0");
        if let Some(kilobits) = kilobits {
            let rate = format!("{kilobits}kbit");
            let words =
                ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate, "burst", "16kb", "latency", "400ms"];
            self.namespace.tc(&words);
        }
    }
}
