//! Who may be reached.

use std::time::Duration;

use agent::egress::{Allow, EgressError, Route, RouteTarget, spawn};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::world::{LIMIT, World, listener, spec_in, trusted};

async fn status(world: &World, request: &str) -> (u16, String) {
    let answer = world.ask(request).await;
    let status =
        answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{request}: `{answer}`"));
    (status, answer)
}

#[tokio::test]
async fn exactly_the_listed_hosts_can_be_reached() {
    let (server, port) = listener().await;
    let closed = listener().await.1; // its listener is dropped at once
    let world = World::start(|spec| {
        spec.allow = vec![
            trusted(port),
            trusted(closed),
            Allow::public("api.example.com:443").unwrap(),
            Allow::public("10.1.2.3:443").unwrap(),
            Allow::public("nowhere.invalid").unwrap(),
            Allow::public("rebind.example").unwrap(),
            Allow::public("mapped.example").unwrap(),
            Allow::public("localhost").unwrap(),
        ];
        spec.hosts.insert("rebind.example".into(), vec!["169.254.169.254".parse().unwrap(), "::1".parse().unwrap()]);
        spec.hosts.insert("mapped.example".into(), vec!["::ffff:1.1.1.1".parse().unwrap()]);
        spec.routes.push(Route {
            host: "api.example.com:443".parse().unwrap(),
            to: RouteTarget::Tcp(server.local_addr().unwrap()),
        });
    })
    .await;
    let table = [
        (format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n"), 200, ""),
        ("CONNECT API.Example.Com.:443 HTTP/1.1\r\n\r\n".into(), 200, ""),
        ("CONNECT api.example.com:80 HTTP/1.1\r\n\r\n".into(), 403, "host-not-allowed"),
        ("CONNECT sub.api.example.com:443 HTTP/1.1\r\n\r\n".into(), 403, "host-not-allowed"),
        ("CONNECT example.com:443 HTTP/1.1\r\n\r\n".into(), 403, "host-not-allowed"),
        (format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"), 403, "host-not-allowed"),
        (format!("CONNECT [::ffff:127.0.0.1]:{port} HTTP/1.1\r\n\r\n"), 403, "host-not-allowed"),
        (format!("CONNECT 2130706433:{port} HTTP/1.1\r\n\r\n"), 403, "host-not-allowed"),
        (format!("GET http://127.0.0.2:{port}/ HTTP/1.1\r\n\r\n"), 403, "host-not-allowed"),
        ("CONNECT 10.1.2.3:443 HTTP/1.1\r\n\r\n".into(), 403, "private-address"),
        ("CONNECT rebind.example:443 HTTP/1.1\r\n\r\n".into(), 403, "address"),
        ("CONNECT mapped.example:443 HTTP/1.1\r\n\r\n".into(), 403, "v4-mapped-address"),
        ("CONNECT localhost:443 HTTP/1.1\r\n\r\n".into(), 403, "loopback-address"),
        ("CONNECT nowhere.invalid:443 HTTP/1.1\r\n\r\n".into(), 403, "name-not-found"),
        (format!("CONNECT 127.0.0.1:{closed} HTTP/1.1\r\n\r\n"), 502, "connect-failed"),
        ("CONNECT api.example.com HTTP/1.1\r\n\r\n".into(), 400, "malformed-request"),
        ("CONNECT user:pw@api.example.com:443 HTTP/1.1\r\n\r\n".into(), 400, "malformed-request"),
        ("CONNECT api.example.com:99999 HTTP/1.1\r\n\r\n".into(), 400, ""),
        ("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n".into(), 400, "malformed-request"),
        ("GET https://api.example.com/ HTTP/1.1\r\n\r\n".into(), 400, "malformed-request"),
        ("GET http://user:pw@api.example.com/ HTTP/1.1\r\n\r\n".into(), 400, "malformed-request"),
        ("\x16\x03\x01 no http\r\n\r\n".into(), 400, ""),
    ];
    for (request, expected, reason) in table {
        if expected == 200 {
            world.tunnel(request.split(' ').nth(1).unwrap()).await;
            continue;
        }
        let (found, answer) = status(&world, &request).await;
        let shown: String = request.chars().take(80).collect();
        assert_eq!(found, expected, "{shown:?}: {answer}");
        assert!(answer.contains(reason), "{shown:?}: {answer}");
    }
}

#[tokio::test]
async fn a_request_head_without_end_is_cut_off() {
    let world = World::start(|_| {}).await;
    let mut stream = world.dial().await;
    let _ = stream.write_all(b"GET http://api.example.com/ HTTP/1.1\r\nA: ").await;
    let endless = async {
        let mut sent = 0_usize;
        while stream.write_all(&[b'x'; 1024]).await.is_ok() {
            sent += 1024;
        }
        sent
    };
    let sent = timeout(LIMIT, endless).await.expect("the proxy went on reading");
    assert!(sent < 1 << 20, "{sent} bytes of a head were taken");
    assert_eq!(world.log().await[0]["reason"], "malformed-request");
}

#[tokio::test]
async fn a_public_name_that_resolves_to_the_host_is_refused_before_any_connection() {
    let (server, port) = listener().await;
    let world = World::start(|spec| {
        spec.allow = vec![Allow::public(&format!("rebind.example:{port}")).unwrap()];
        spec.hosts.insert("rebind.example".into(), vec!["127.0.0.1".parse().unwrap()]);
    })
    .await;
    let (status, answer) = status(&world, &format!("CONNECT rebind.example:{port} HTTP/1.1\r\n\r\n")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("loopback-address"), "{answer}");
    // The refusal is out, so a connection would be in the backlog by now.
    assert!(timeout(Duration::ZERO, server.accept()).await.is_err(), "the host's server was reached");
    let log = world.log().await;
    assert_eq!(log[0]["reason"], "loopback-address");
    assert_eq!(log[0]["address"], format!("127.0.0.1:{port}"));
}

#[tokio::test]
async fn a_socket_path_over_the_limit_is_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec_in(dir.path());
    spec.run_dir = dir.path().join("x".repeat(120));
    let error = spawn(&spec).await.unwrap_err();
    assert!(matches!(error, EgressError::PathTooLong { .. }), "{error}");
    assert!(error.to_string().contains("shorter state directory"), "{error}");
}

#[tokio::test]
async fn what_the_proxy_cannot_do_at_its_start_is_said_by_the_starter() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec_in(dir.path());
    spec.log = dir.path().join("no-such-directory/egress.jsonl");
    let error = timeout(LIMIT, spawn(&spec)).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("no-such-directory"), "{error}");
    spec.program = Some("/bin/true".into());
    let error = timeout(LIMIT, spawn(&spec)).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("is it a laneyard program"), "{error}");
}
