//! The server: listeners, routes, and playing a step.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::http::{self, Request, Stream};
use super::record::{Record, Records, loggable, string_of};
use super::script::{Choice, Kind, calls_of, choose, tools_of};
use super::{Options, chat, messages, responses};

/// Longest wait that a script can ask for.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// A reply in both forms.
pub(super) struct Reply {
    pub(super) events: Vec<(Option<String>, Value)>,
    pub(super) plain: Value,
    /// The stream ends with `[DONE]`.
    pub(super) done: bool,
}

pub(super) struct Server {
    options: Options,
    pub(super) records: Records,
    /// Failures already served, by script and step.
    tries: Mutex<BTreeMap<(String, i64), u64>>,
    released: (Mutex<BTreeSet<String>>, Condvar),
    stopped: AtomicBool,
}

/// Whether the connection can take another request.
enum Next {
    Again,
    Close,
}

impl Server {
    pub(super) fn start(options: Options) -> io::Result<(Arc<Self>, u16)> {
        if let Some(bodies) = &options.bodies {
            std::fs::create_dir_all(bodies)?;
        }
        let records = Records::open(options.log.as_deref())?;
        let tcp = TcpListener::bind((options.host.as_deref().unwrap_or("127.0.0.1"), options.port))?;
        let port = tcp.local_addr()?.port();
        let unix = options.unix.as_deref().map(listen_unix).transpose()?;
        let server = Arc::new(Self {
            options,
            records,
            tries: Mutex::default(),
            released: Default::default(),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&server);
        thread::spawn(move || accepting.accept(|| tcp.accept().map(|(stream, _)| Box::new(stream) as Box<dyn Stream>)));
        if let Some(unix) = unix {
            let accepting = Arc::clone(&server);
            thread::spawn(move || {
                accepting.accept(|| unix.accept().map(|(stream, _)| Box::new(stream) as Box<dyn Stream>));
            });
        }
        Ok((server, port))
    }

    fn accept(self: &Arc<Self>, mut next: impl FnMut() -> io::Result<Box<dyn Stream>>) {
        while !self.stopped.load(Ordering::SeqCst) {
            match next() {
                Ok(stream) => {
                    let server = Arc::clone(self);
                    // A client that goes away is no failure of the server.
                    thread::spawn(move || drop(server.converse(stream)));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Answers no new connection; threads that wait for one end at the next.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn release(&self, name: &str) {
        self.released.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.released.1.notify_all();
    }

    fn hold(&self, name: &str) {
        let held = self.released.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.released.1.wait_timeout_while(held, WAIT_LIMIT, |released| !released.contains(name));
    }

    fn converse(&self, stream: Box<dyn Stream>) -> io::Result<()> {
        let mut writer = stream.second()?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = http::read(&mut reader, &mut writer)? {
            if self.stopped.load(Ordering::SeqCst) {
                break;
            }
            let close = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
            if matches!(self.answer(&request, &mut writer)?, Next::Close) || close {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, request: &Request, to: &mut dyn Write) -> io::Result<Next> {
        let mut record = Record {
            t: now_exact(),
            method: request.method.clone(),
            path: request.target.clone(),
            headers: loggable(&request.headers),
            ..Record::default()
        };
        let send = |to: &mut dyn Write, status: u64, body: &Value| {
            http::respond(to, status, &[], body.to_string().as_bytes(), request.method == "HEAD")?;
            Ok(Next::Again)
        };
        if request.method == "CONNECT" {
            record.connect = Some(request.target.clone());
            self.records.add(record);
            return send(to, 403, &json!({"error": "fake proxy: CONNECT refused"}));
        }
        if request.target.starts_with("http://") {
            record.proxied = true;
            self.records.add(record);
            return send(to, 403, &json!({"error": "fake proxy: refused"}));
        }
        if let Some(own) = request.path().strip_prefix("/__laneyard/") {
            return match own.strip_prefix("release/") {
                Some(name) => {
                    self.release(name);
                    send(to, 200, &json!({"released": name}))
                }
                None => send(to, 200, &json!(self.records.counts())),
            };
        }
        if matches!(request.method.as_str(), "GET" | "HEAD") {
            self.records.add(record);
            let upgrade = request.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
            let path = request.path().trim_end_matches('/');
            return match path {
                _ if upgrade => {
                    send(to, 426, &json!({"error": {"type": "upgrade_required", "message": "fake: HTTP only"}}))
                }
                _ if path.ends_with("/models") => send(to, 200, &models()),
                "/healthz" => send(to, 200, &json!({"ok": true})),
                _ => send(to, 404, &no_such_path()),
            };
        }
        if request.path().trim_end_matches('/').ends_with("/count_tokens") {
            self.records.add(record);
            return send(to, 200, &json!({"input_tokens": 11}));
        }
        let Some(kind) = Kind::of_path(request.path()) else {
            record.bytes = Some(request.body.len());
            self.records.add(record);
            return send(to, 404, &no_such_path());
        };
        record.kind = Some(kind.name().to_owned());
        if let Some(status) = self.refuses(request) {
            record.refused = Some(status);
            self.records.add(record);
            return send(to, status.into(), &default_error(kind, status.into()));
        }
        self.play(kind, request, record, to)
    }

    fn refuses(&self, request: &Request) -> Option<u16> {
        if request.header("content-encoding").is_some_and(|encoding| encoding != "identity") {
            return Some(415);
        }
        let key = self.options.require_key.as_deref()?;
        let bearer = request.header("authorization").and_then(|value| value.split_once(' ')).map(|(_, key)| key);
        (request.header("x-api-key").or(bearer) != Some(key)).then_some(401)
    }

    fn play(&self, kind: Kind, request: &Request, mut record: Record, to: &mut dyn Write) -> io::Result<Next> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_else(|_| json!({}));
        let Choice { mut step, number, script, id } = choose(kind, &body);
        let stream = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
        record.bytes = Some(request.body.len());
        record.model = string_of(&body, "model");
        record.step = Some(number);
        record.stream = Some(stream);
        record.tools = tools_of(&body);
        record.id = Some(id.clone());
        let n = self.records.add(record);
        if let Some(bodies) = &self.options.bodies {
            std::fs::write(bodies.join(format!("{n:04}.json")), &request.body)?;
        }
        wait(&step, "sleep");
        let headers = extra_headers(&step);
        if let Some(status) = step.get("status").and_then(Value::as_u64) {
            let tried = {
                let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
                let tried = tries.entry((script, number)).or_default();
                *tried += 1;
                *tried
            };
            if step.get("times").and_then(Value::as_u64).is_none_or(|times| tried <= times) {
                if number == 0 {
                    self.records.first_step_fails(&id);
                }
                let body = step.get("body").filter(|body| !body.is_null()).cloned();
                let body = body.unwrap_or_else(|| default_error(kind, status)).to_string();
                http::respond(to, status, &headers, body.as_bytes(), false)?;
                return Ok(Next::Again);
            }
        }
        if text_of(&step, "text").is_none() && calls_of(&step).is_empty() {
            step.insert("text".to_owned(), "ok".into());
        }
        let rid = format!("fake{n:06}");
        let model = text_of(&step, "model").map(str::to_owned).or_else(|| string_of(&body, "model"));
        let model = model.unwrap_or_else(|| "fake-model".to_owned());
        let encode = match kind {
            Kind::Messages => messages::encode,
            Kind::Responses => responses::encode,
            Kind::Chat => chat::encode,
        };
        let drops = step.get("drop").and_then(Value::as_bool).unwrap_or(false);
        if drops && number == 0 {
            self.records.first_step_fails(&id);
        }
        let reply = encode(&step, number, &model, &rid);
        if stream {
            self.stream(&step, drops, &headers, &rid, reply, to)?;
            return Ok(Next::Close);
        }
        if drops {
            return Ok(Next::Close);
        }
        self.pause(&step);
        let mut headers = headers;
        headers.push(("request-id".to_owned(), format!("req_{rid}")));
        http::respond(to, 200, &headers, reply.plain.to_string().as_bytes(), false)?;
        Ok(Next::Again)
    }

    fn stream(
        &self,
        step: &Map<String, Value>,
        drops: bool,
        headers: &[(String, String)],
        rid: &str,
        reply: Reply,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\nconnection: close\r\n\
             request-id: req_{rid}\r\nx-request-id: req_{rid}\r\n"
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        to.write_all(head.as_bytes())?;
        for (n, (name, data)) in reply.events.iter().enumerate() {
            let name = name.as_ref().map(|name| format!("event: {name}\n")).unwrap_or_default();
            to.write_all(format!("{name}data: {data}\n\n").as_bytes())?;
            to.flush()?;
            if n == 0 {
                if drops {
                    return Ok(());
                }
                self.pause(step);
            }
        }
        if reply.done {
            to.write_all(b"data: [DONE]\n\n")?;
        }
        Ok(())
    }

    fn pause(&self, step: &Map<String, Value>) {
        wait(step, "stall");
        if let Some(name) = text_of(step, "hold") {
            self.hold(name);
        }
    }
}

fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

fn wait(step: &Map<String, Value>, key: &str) {
    let seconds = step.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default().min(WAIT_LIMIT));
}

fn extra_headers(step: &Map<String, Value>) -> Vec<(String, String)> {
    let headers = step.get("headers").and_then(Value::as_object).cloned().unwrap_or_default();
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    headers.into_iter().map(|(name, value)| (name, text(value))).collect()
}

fn models() -> Value {
    let ids = ["fake-model", "claude-fake-1", "gpt-fake", "grok-fake"];
    let data = ids.map(|id| {
        json!({"id": id, "type": "model", "object": "model", "display_name": id, "created": 1_700_000_000,
               "created_at": "2026-01-01T00:00:00Z", "owned_by": "fake"})
    });
    json!({"object": "list", "has_more": false, "first_id": ids[0], "last_id": ids[3], "data": data})
}

fn no_such_path() -> Value {
    json!({"type": "error", "error": {"type": "not_found_error", "message": "fake: no such path"}})
}

fn default_error(kind: Kind, status: u64) -> Value {
    let name = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let message = format!("fake {name}");
    if kind == Kind::Messages {
        json!({"type": "error", "error": {"type": name, "message": message}})
    } else {
        json!({"error": {"type": name, "code": name, "message": message, "param": null}})
    }
}

/// A nonempty text of a step.
pub(super) fn text_of<'a>(step: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    step.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Input and output tokens of a step.
pub(super) fn usage_of(step: &Map<String, Value>) -> (u64, u64) {
    let at = |n: usize| step.get("usage").and_then(|usage| usage.get(n)).and_then(Value::as_u64);
    (at(0).unwrap_or(11), at(1).unwrap_or(7))
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn now_exact() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
