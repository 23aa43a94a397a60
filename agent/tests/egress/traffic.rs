//! Bytes through the proxy, and what the log says about them.

use agent::egress::{self, Allow, Route, RouteTarget, Upstream};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::time::timeout;

use crate::world::{LIMIT, World, expect_text, listener, read_head, trusted};

#[tokio::test]
async fn an_event_stream_passes_event_by_event_and_loses_only_hop_by_hop_headers() {
    let (server, port) = listener().await;
    let world = World::start(|spec| spec.allow = vec![trusted(port)]).await;
    let mut client = world.dial().await;
    let request = format!(
        "POST http://127.0.0.1:{port}/v1/messages?beta=true HTTP/1.1\r\nHost: other.example\r\nX-Api-Key: sk-secret\r\n\
         Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
         Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut inside, _) = server.accept().await.unwrap();
    let head = read_head(&mut inside).await.to_lowercase();
    assert!(head.starts_with("post /v1/messages?beta=true http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{head}");
    assert!(head.contains("x-api-key: sk-secret\r\n"), "{head}");
    for gone in ["proxy-", "x-hop", "keep-alive", "other.example"] {
        assert!(!head.contains(gone), "{gone}: {head}");
    }
    expect_text(&mut inside, "5\r\nhello\r\n").await; // before the request's body has ended
    client.write_all(b"0\r\n\r\n").await.unwrap();
    expect_text(&mut inside, "0\r\n\r\n").await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nKeep-Alive: timeout=5\r\n\r\n";
    inside.write_all(answer).await.unwrap();
    inside.write_all(b"data: one\n\n").await.unwrap();
    let head = read_head(&mut client).await.to_lowercase();
    assert!(head.contains("text/event-stream") && !head.contains("timeout=5"), "{head}");
    expect_text(&mut client, "B\r\ndata: one\n\n\r\n").await; // while the server is still writing
    inside.write_all(b"data: two\n\n").await.unwrap();
    expect_text(&mut client, "B\r\ndata: two\n\n\r\n").await;
    drop(inside);
    expect_text(&mut client, "0\r\n\r\n").await;
}

#[tokio::test]
async fn either_side_of_a_tunnel_can_finish_before_the_other() {
    let (server, port) = listener().await;
    let world = World::start(|spec| spec.allow = vec![trusted(port)]).await;
    let mut client = world.tunnel(&format!("127.0.0.1:{port}")).await;
    let (mut inside, _) = server.accept().await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = String::new();
    timeout(LIMIT, inside.read_to_string(&mut question)).await.expect("no end of file").unwrap();
    assert_eq!(question, "question");
    inside.write_all(b"the answer").await.unwrap();
    drop(inside);
    let mut answer = String::new();
    timeout(LIMIT, client.read_to_string(&mut answer)).await.expect("no end of file").unwrap();
    assert_eq!(answer, "the answer");
    drop(client);

    let log = world.log().await;
    assert_eq!(log.len(), 2, "{log:?}");
    assert_eq!((&log[0]["event"], &log[0]["verdict"]), (&json!("open"), &json!("allowed")));
    assert_eq!((&log[1]["event"], &log[1]["bytesUp"], &log[1]["bytesDown"]), (&json!("close"), &json!(8), &json!(10)));
    assert_eq!(log[0]["connection"], log[1]["connection"]);
    assert_eq!(log[1].get("reason"), None);
}

#[tokio::test]
async fn bytes_sent_right_after_the_connect_request_are_not_lost() {
    let (server, port) = listener().await;
    let world = World::start(|spec| spec.allow = vec![trusted(port)]).await;
    let mut client = world.dial().await;
    client.write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly").as_bytes()).await.unwrap();
    let (mut inside, _) = server.accept().await.unwrap();
    expect_text(&mut inside, "early").await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_with_it() {
    let (server, port) = listener().await;
    let world = World::start(|spec| spec.allow = vec![trusted(port)]).await;
    let mut client = world.dial().await;
    client.write_all(format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let (mut inside, _) = server.accept().await.unwrap();
    read_head(&mut inside).await;
    drop(client);
    let mut rest = Vec::new();
    timeout(LIMIT, inside.read_to_end(&mut rest)).await.expect("the server was kept waiting").unwrap();
}

#[tokio::test]
async fn a_web_socket_passes_through_a_plain_address() {
    let (server, port) = listener().await;
    let world = World::start(|spec| spec.allow = vec![trusted(port)]).await;
    let mut client = world.dial().await;
    let request =
        format!("GET http://127.0.0.1:{port}/live HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut inside, _) = server.accept().await.unwrap();
    let head = read_head(&mut inside).await.to_lowercase();
    assert!(head.contains("upgrade: websocket") && head.contains("connection: upgrade"), "{head}");
    inside
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        .await
        .unwrap();
    let head = read_head(&mut client).await.to_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: websocket"), "{head}");
    expect_text(&mut client, "hi").await;
    client.write_all(b"there").await.unwrap();
    expect_text(&mut inside, "there").await;
}

#[tokio::test]
async fn a_route_leads_a_public_host_to_a_local_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stand-in.sock");
    let server = UnixListener::bind(&path).unwrap();
    let host: egress::HostPort = "api.example.com".parse().unwrap();
    let world = World::start(|spec| {
        spec.allow = vec![Allow { host: host.clone(), trusted: false }];
        spec.routes = vec![Route { host, to: RouteTarget::Unix(path.clone()) }];
    })
    .await;
    let mut client = world.tunnel("api.example.com:443").await;
    let (mut inside, _) = server.accept().await.unwrap();
    client.write_all(b"x").await.unwrap();
    expect_text(&mut inside, "x").await;
    drop((client, inside));
    assert_eq!(world.log().await[0]["address"], format!("unix:{}", path.display()));
}

#[tokio::test]
async fn an_upstream_proxy_carries_public_hosts_and_trusted_ones_go_direct() {
    let (upstream, upstream_port) = listener().await;
    let (inner, inner_port) = listener().await;
    let world = World::start(|spec| {
        spec.allow = vec![Allow::public("api.example.com").unwrap(), trusted(inner_port)];
        spec.upstream = Some(Upstream {
            address: format!("127.0.0.1:{upstream_port}").parse().unwrap(),
            authorization: Some("Basic dXBzdHJlYW0=".into()),
        });
    })
    .await;
    let asks = world.tunnel("api.example.com:443");
    let serves = async {
        let (mut inside, _) = upstream.accept().await.unwrap();
        let head = read_head(&mut inside).await;
        assert!(head.starts_with("CONNECT api.example.com:443 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("Proxy-Authorization: Basic dXBzdHJlYW0=\r\n"), "{head}");
        inside.write_all(b"HTTP/1.1 200 fine\r\nVia: x\r\n\r\nfirst").await.unwrap();
        inside
    };
    let (mut client, _inside) = tokio::join!(asks, serves);
    expect_text(&mut client, "first").await;
    world.tunnel(&format!("127.0.0.1:{inner_port}")).await;
    inner.accept().await.unwrap();
    let text = std::fs::read_to_string(world.log_path()).unwrap();
    assert!(!text.contains("dXBzdHJlYW0"), "{text}");
}

#[tokio::test]
async fn the_log_has_every_decision_and_no_path_query_header_or_body() {
    let (server, port) = listener().await;
    let world = World::start(|spec| spec.allow = vec![trusted(port)]).await;
    let request = format!(
        "POST http://127.0.0.1:{port}/hush-path?key=hush-query HTTP/1.1\r\nAuthorization: Bearer hush-token\r\n\
         Content-Length: 9\r\n\r\nhush-body"
    );
    let serves = async {
        let (mut inside, _) = server.accept().await.unwrap();
        read_head(&mut inside).await;
        inside.write_all(b"HTTP/1.1 200 OK\r\nX: hush-reply\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    };
    let (asks, ()) = tokio::join!(world.ask(&request), serves);
    assert!(asks.ends_with("ok"), "{asks}");
    for _ in 0..3 {
        world.ask("GET http://evil.example/hush-path?hush-query HTTP/1.1\r\nCookie: hush-cookie\r\n\r\n").await;
    }
    world.ask("CONNECT user:hush-password@evil.example:443 HTTP/1.1\r\n\r\n").await;
    let log = world.log().await;
    let text = std::fs::read_to_string(world.log_path()).unwrap();
    assert!(!text.contains("hush"), "{text}");
    assert_eq!(log.len(), 6, "{text}");
    for line in &log {
        assert!(line["attempt"].is_string() && line["at"].is_string() && line["verdict"].is_string(), "{line}");
    }

    let summary = egress::summary(&world.log_path()).unwrap();
    assert_eq!(summary.allowed.len(), 1);
    assert_eq!((summary.allowed[0].connections, summary.allowed[0].failed), (1, 0));
    assert!(summary.allowed[0].bytes_up > 0 && summary.allowed[0].bytes_down > 0);
    let refused: Vec<_> =
        summary.refused.iter().map(|r| (r.host.as_str(), r.port, r.reason.as_str(), r.count)).collect();
    assert_eq!(refused, [("", 0, "malformed-request", 1), ("evil.example", 80, "host-not-allowed", 3)]);
    assert!(!summary.truncated);
}

#[test]
fn a_summary_stays_small_and_says_when_something_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("egress.jsonl");
    assert_eq!(egress::summary(&path).unwrap(), egress::EgressSummary::default());
    let attempt = agent::ids::AttemptId::generate();
    let lines: Vec<String> = (0..1000)
        .map(|n| {
            json!({"at": "2026-01-01T00:00:00Z", "attempt": attempt, "event": "refused", "connection": n, "method": "GET",
                   "host": format!("h{n}.example"), "port": 80, "verdict": "refused", "reason": "host-not-allowed"})
            .to_string()
        })
        .collect();
    std::fs::write(&path, lines.join("\n") + "\n{\"torn").unwrap();
    let summary = egress::summary(&path).unwrap();
    assert_eq!(summary.refused.len(), 64);
    assert!(summary.truncated);
}
