//! What a lane cannot do, whatever runs in it.

use agent::container::SystemPaths;
use agent::container::identity::UserMapping;
use agent::container::isolation::Limit;
use agent::descriptor::Mode;

use crate::fixture::{Lane, Which, on_every_engine};

on_every_engine! {
    the_default_profile_is_in_force_and_read_back = profile_in_force;
    nothing_of_the_host_is_inside = nothing_of_the_host;
    our_nested_sandbox_starts_under_our_seccomp_profile = nested_sandbox;
    mounting_and_kernel_keys_are_refused = refused_calls;
}

async fn profile_in_force(which: Which) {
    let lane = Lane::new(which).await;
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::ReadOnly).await;
    let running = lane.start(&plan, "echo ready; exec sleep 600").await;
    running.printed("ready").await;
    let (_, report) = lane.engine.isolation(&running.id, &running.spec).await.unwrap();
    assert_eq!(report.violations(), []);
    let kernel = report.kernel.clone().expect("the process is on this machine");
    assert_eq!((kernel.effective_capabilities, kernel.bounding_capabilities), (0, 0));
    assert!(kernel.no_new_privileges && kernel.seccomp_filter);
    match which {
        Which::Docker | Which::Podman => {
            assert_eq!(report.identity.mapping, UserMapping::Idmapped);
            assert_eq!(kernel.host_uid, 1000);
            assert_eq!(report.limits.memory, Limit::Applied(256 << 20));
            assert_eq!(report.limits.pids, Limit::Applied(64));
        }
        Which::Rootless => {
            assert_eq!(report.identity.mapping, UserMapping::KeepId);
            assert_eq!(kernel.host_uid, which.natural_owner());
            if lane.engine.info().cgroup == Some(1) {
                assert_eq!(report.limits.memory, Limit::Ignored);
                assert!(report.findings.iter().any(|finding| finding.name == "limits-ignored"));
            }
        }
    }
    assert!(report.mounts.iter().any(|mount| mount.target == cwd));
    serde_json::to_string(&report).unwrap();
    lane.engine.remove(&running.id).await.unwrap();
}

async fn nothing_of_the_host(which: Which) {
    let mut lane = Lane::new(which).await;
    lane.env.insert("GIVEN".into(), "yes".into());
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
    let script = r#"
        for dir in / /etc /usr /opt /run /var /run/laneyard /root; do
            if (: > "$dir/laneyard-probe") 2>/dev/null; then echo "writable: $dir"; fi
        done
        (: > /tmp/x) && (: > "$HOME/x") && (: > file) || echo "not writable"
        ls /sys/class/net | grep -v '^lo$' | sed 's/^/network: /'
        find / -xdev -name '*docker*.sock' -o -xdev -name 'podman*.sock' 2>/dev/null | sed 's/^/socket: /'
        for socket in /var/run/docker.sock /run/podman/podman.sock; do [ -e $socket ] && echo "socket: $socket"; done
        [ "$(id -u)" != 0 ] || echo root
        [ "$GIVEN" = yes ] || echo "environment lost"
        echo $(cat /run/laneyard/marker)
        env
    "#;
    let (code, text) = lane.script(&plan, script).await;
    assert_eq!(code, 0, "{text}");
    for bad in ["writable: ", "not writable", "network: ", "socket: ", "environment lost"] {
        assert!(!text.contains(bad), "{text}");
    }
    assert!(!text.lines().any(|line| line == "root"), "{text}");
    assert!(text.contains("ours"), "{text}");
    // What this very test runs with must not be inside.
    for name in ["CARGO", "NEXTEST", "USER=", "LOGNAME", "SSH_", "XDG_", "_PROXY", "_proxy"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    assert!(text.contains("HOME=/lane") && text.contains("TMPDIR=/tmp"), "{text}");
}

async fn nested_sandbox(which: Which) {
    let mut lane = Lane::new(which).await;
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
    let (code, text) = lane.script(&plan, "bwrap --unshare-all --ro-bind / / --dev /dev true 2>&1").await;
    assert_eq!(code, 0, "{text}");
    lane.attempt = agent::ids::AttemptId::generate();
    lane.system_paths = SystemPaths::Unmasked;
    let (code, text) = lane.script(&plan, "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev true 2>&1").await;
    assert_eq!(code, 0, "{text}");
}

async fn refused_calls(which: Which) {
    let lane = Lane::new(which).await;
    let cwd = lane.directory("wt", which.natural_owner());
    let plan = lane.plan(&cwd, Mode::IsolatedWrite).await;
    // keyctl(KEYCTL_GET_KEYRING_ID), bpf, perf_event_open, userfaultfd, io_uring_setup, socket(AF_VSOCK): all by number.
    let script = r#"
        mount -t tmpfs none /tmp 2>/dev/null && echo mounted
        umount /tmp 2>/dev/null && echo unmounted
        perl -e '
            my %calls = $ENV{ARCH} eq "arm64"
                ? (keyctl => 219, bpf => 280, perf => 241, uffd => 282, uring => 425, vsock => 198, move_mount => 429)
                : (keyctl => 250, bpf => 321, perf => 298, uffd => 323, uring => 425, vsock => 41, move_mount => 429);
            for my $name (sort keys %calls) {
                my $result = $name eq "vsock" ? syscall($calls{$name}, 40, 1, 0) : syscall($calls{$name}, 0, 0, 0, 0, 0);
                print "$name ", ($result == -1 && ($! == 1 || $! == 38) ? "refused" : "allowed ($!)"), "\n";
            }'
    "#;
    let mut lane = lane;
    lane.env.insert("ARCH".into(), lane.engine.info().arch.clone());
    let (_, text) = lane.script(&plan, script).await;
    assert_eq!(text.matches("refused").count(), 7, "{text}");
    assert!(!text.contains("mounted"), "{text}");
}
