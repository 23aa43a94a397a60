//! The served OpenAPI document against real answers.

use agent::ids::AttemptId;
use agent::shuttle::{Route, Shuttle};
use agent::snapshot::result::collect;
use agent::snapshot::transfer::{self, Have, Parcel};
use agent::snapshot::{History, Place, materialize};
use agent::transport::{Call, Transport};
use agent::wire::attempt::Submit;
use agent::wire::paths;
use agent::wire::snapshot::{Announce, KeepResult, Kept, Waiting, WaitingView};
use http::Request;
use serde_json::Value;

use crate::scripted::{Heard, Scripted};
use crate::snapshots::{Client, reference, send};
use crate::support::{Served, assignment, quick, read, submission};

/// The part of JSON Schema that the document uses. Says what is wrong, and where.
fn check(document: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = document.pointer(name.trim_start_matches('#')).ok_or(format!("{name} is not defined"))?;
        return check(document, target, value, place);
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let fits: Vec<_> = options.iter().map(|option| check(document, option, value, place)).collect();
        let good = fits.iter().filter(|fit| fit.is_ok()).count();
        return if good == 1 { Ok(()) } else { Err(format!("{place}: fits {good} alternatives: {fits:?}")) };
    }
    let wrong = |what: &str| Err(format!("{place}: {value} {what}"));
    if schema.get("const").is_some_and(|only| only != value) {
        return wrong("is not the constant");
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return wrong("is none of the words");
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        Value::String(only) => only == kind,
        Value::Array(some) => some.iter().any(|some| some == kind),
        _ => true,
    };
    if !allowed {
        return wrong("has the wrong type");
    }
    if schema["minimum"].as_i64().is_some_and(|least| value.as_i64().is_some_and(|value| value < least)) {
        return wrong("is too small");
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for (index, value) in values.iter().enumerate() {
            check(document, items, value, &format!("{place}[{index}]"))?;
        }
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{place}: `{name}` is missing in {value}"));
        }
    }
    for (name, value) in fields {
        match (schema["properties"].get(name), schema.get("properties")) {
            (Some(schema), _) => check(document, schema, value, &format!("{place}.{name}"))?,
            // What an answer shows must be described, but for free-form objects.
            (None, Some(_)) => return Err(format!("{place}: `{name}` is not described")),
            (None, None) => {}
        }
    }
    Ok(())
}

fn json_of(value: &impl serde::Serialize) -> Option<Value> {
    Some(serde_json::to_value(value).unwrap())
}

struct Checked {
    transport: Transport,
    document: Value,
}

impl Checked {
    /// Sends a request and holds its answer against what the document says of `route`.
    async fn ask(&self, method: &str, route: &str, path: &str, body: Option<Value>) -> Value {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).body(agent::transport::whole(body)).unwrap();
        let response = self.transport.send(request).await.unwrap();
        let status = response.status().as_u16().to_string();
        let operation = &self.document["paths"][route][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {route} is not described");
        let described = operation["responses"].get(&status).unwrap_or(&operation["responses"]["default"]);
        let bytes = read(response.into_body()).await;
        if let Some(schema) = described.pointer("/content/application~1json/schema") {
            let value = serde_json::from_slice(&bytes).unwrap();
            check(&self.document, schema, &value, &format!("{method} {path} {status}")).unwrap();
            return value;
        }
        Value::Null
    }
}

#[tokio::test]
async fn real_answers_are_what_the_served_document_says() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let transport = served.transport();
    let document: Value = transport.json(Call::get(paths::OPENAPI)).await.unwrap();
    let api = Checked { transport, document };
    api.ask("GET", "/healthz", "/healthz", None).await;
    let (id, submit) = submission();
    let submit = serde_json::to_value(&submit).unwrap();
    let schema = serde_json::json!({"$ref": "#/components/schemas/Submit"});
    assert!(check(&api.document, &schema, &serde_json::json!({"assignment": 1}), "").is_err(), "the check can fail");
    for _ in 0..2 {
        api.ask("POST", "/v1/attempts", "/v1/attempts", Some(submit.clone())).await;
    }
    api.ask("POST", "/v1/attempts", "/v1/attempts", Some(Value::Null)).await;
    api.ask("GET", "/v1/queue", "/v1/queue?limit=1", None).await;
    let one = format!("/v1/attempts/{id}");
    api.ask("GET", "/v1/attempts/{id}/receipt", &format!("{one}/receipt"), None).await;
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    worker.until_offered(id).await;
    api.ask("GET", "/v1/attempts/{id}", &one, None).await;
    api.ask("GET", "/v1/attempts/{id}", &format!("/v1/attempts/{}", AttemptId::generate()), None).await;
    let cancel = serde_json::json!({"signal": "SIGINT"});
    api.ask("POST", "/v1/attempts/{id}/cancel", &format!("{one}/cancel"), Some(cancel)).await;
    for status in agent::receipt::Status::ALL {
        let told = json_of(&agent::wire::attempt::Deliver { status: *status });
        let view = api.ask("POST", "/v1/attempts/{id}/delivered", &format!("{one}/delivered"), told).await;
        assert_eq!(view["delivered"]["status"], status.as_str());
    }
    api.ask("POST", "/v1/attempts/{id}/delivered", &format!("{one}/delivered"), Some(Value::Null)).await;
    api.ask("POST", "/v1/workers/{id}/drain", "/v1/workers/w1/drain", Some(Value::Null)).await;
    api.ask("GET", "/v1/workers", "/v1/workers", None).await;
    worker.end(id, "cancelled", None);
    worker.until(|heard| *heard == Heard::Release(id)).await;
    api.ask("GET", "/v1/attempts", "/v1/attempts", None).await;
    let receipt = api.ask("GET", "/v1/attempts/{id}/receipt", &format!("{one}/receipt"), None).await;
    assert_eq!(receipt["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_credentials_are_what_the_served_document_says() {
    let secure = crate::identity::Secure::start();
    let transport = secure.admin();
    let document: Value = transport.json(Call::get(paths::OPENAPI)).await.unwrap();
    let api = Checked { transport, document };
    let csr = agent::identity::signing_request("x", &rcgen::KeyPair::generate().unwrap()).unwrap();
    for wanted in [
        serde_json::json!({"kind": "token", "name": "ada", "role": "approve"}),
        serde_json::json!({"kind": "certificate", "name": "ci", "expiresInS": 60, "csr": csr}),
        serde_json::json!({"kind": "certificate", "name": "ci", "csr": "none"}),
        serde_json::json!({"kind": "token", "name": ""}),
    ] {
        api.ask("POST", "/v1/credentials", "/v1/credentials", Some(wanted)).await;
    }
    let wanted = serde_json::json!({"kind": "join"});
    let made = api.ask("POST", "/v1/credentials", "/v1/credentials", Some(wanted)).await;
    let join = serde_json::json!({"token": made["secret"], "worker": "w1", "csr": csr});
    api.ask("POST", "/v1/join", "/v1/join", Some(join)).await;
    api.ask("POST", "/v1/join", "/v1/join", Some(Value::Null)).await;
    let renew = serde_json::json!({"csr": csr});
    api.ask("POST", "/v1/workers/{id}/certificate", "/v1/workers/w1/certificate", Some(renew)).await;
    api.ask("POST", "/v1/workers/{id}/revoke", "/v1/workers/w1/revoke", Some(Value::Null)).await;
    let page = api.ask("GET", "/v1/credentials", "/v1/credentials?limit=2", None).await;
    assert!(page["next"].is_string(), "{page}");
    let one = format!("/v1/credentials/{}/revoke", page["items"][0]["id"].as_str().unwrap());
    api.ask("POST", "/v1/credentials/{id}/revoke", &one, Some(Value::Null)).await;
    api.ask("POST", "/v1/credentials/{id}/revoke", "/v1/credentials/none/revoke", Some(Value::Null)).await;
}

#[tokio::test]
async fn real_answers_about_snapshots_and_results_are_what_the_served_document_says() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&dir.path().join("controller"), "127.0.0.1:0", quick());
    let transport = served.transport();
    let document: Value = transport.json(Call::get(paths::OPENAPI)).await.unwrap();
    let api = Checked { transport, document };
    let client = Client::new(dir.path());
    let (taken, parcel) = client.take().await;
    let offer = transfer::offer(&taken.lease, &parcel).await.unwrap();
    api.ask("POST", "/v1/snapshots/offer", "/v1/snapshots/offer", json_of(&offer)).await;
    let packed = transfer::pack(&taken.lease, &parcel, &Have::default(), History::Full).await.unwrap();
    let (project, format) = (offer.project.clone(), offer.format);
    let announce = Announce { project, format, ticket: packed.ticket.clone() };
    let upload = "/v1/snapshots/upload";
    api.ask("POST", upload, upload, json_of(&announce)).await;
    let query = format!("{upload}?project={}&format=sha1&sha256={}&offset=9", offer.project, packed.ticket.sha256);
    api.ask("PUT", upload, &query, None).await;
    send(served.transport(), &taken, &parcel).await.unwrap();

    let mut assignment = assignment();
    assignment.mode = agent::descriptor::Mode::IsolatedWrite;
    assignment.snapshot = Some(reference(&taken));
    let id = assignment.attempt;
    api.ask("POST", "/v1/attempts", "/v1/attempts", json_of(&Submit::new(assignment))).await;
    let worker = Scripted::new(1);
    let _stop = served.connect("w1", worker.clone());
    worker.until_offered(id).await;
    let at =
        |part: &str| (format!("/v1/workers/{{id}}/{part}"), format!("/v1/workers/w1/{part}?attempt={id}&generation=1"));
    let (route, path) = at("snapshot/offer");
    api.ask("GET", &route, &path, None).await;
    let (route, path) = at("snapshot/packing");
    assert_eq!(api.ask("GET", &route, &path, None).await, Value::Null, "none is made");
    let making = agent::snapshot::transfer::Packing {
        step: agent::snapshot::transfer::PackStep::Compressing,
        done: 1,
        total: 2,
    };
    let schema = serde_json::json!({"$ref": "#/components/schemas/Packing"});
    check(&api.document, &schema, &serde_json::to_value(making).unwrap(), "packing").unwrap();
    let (route, path) = at("snapshot/pack");
    let ticket = api.ask("POST", &route, &path, json_of(&Have::default())).await;
    let bytes = format!("{path}&sha256={}", ticket["sha256"].as_str().unwrap());
    api.ask("GET", &route, &bytes, None).await;
    api.ask("GET", &route, &format!("{path}&sha256={}", "0".repeat(64)), None).await;

    let place = Place { work_tree: dir.path().join("lane"), private: dir.path().join("private"), owner: None };
    let worktree = materialize(&taken.lease, &taken.snapshot, &place).await.unwrap();
    std::fs::write(worktree.root.join("new"), "new\n").unwrap();
    let result = collect(&taken.lease, &worktree, &taken.snapshot).await.unwrap();
    let parcel = Parcel::result(&taken.snapshot, &result);
    let offer = transfer::offer(&taken.lease, &parcel).await.unwrap();
    let (route, path) = at("result/offer");
    api.ask("POST", &route, &path, json_of(&offer)).await;
    let waiting = Waiting {
        attempt: id,
        path: "/there".to_owned(),
        since: time::OffsetDateTime::UNIX_EPOCH,
        reason: "too large".to_owned(),
        refused: true,
    };
    let kept = json_of(&Kept { attempts: vec![id], waiting: vec![waiting] });
    api.ask("POST", "/v1/workers/{id}/kept", "/v1/workers/w1/kept", kept).await;
    let (route, path) = ("/v1/attempts/{id}/result/waiting", format!("/v1/attempts/{id}/result/waiting"));
    assert_eq!(api.ask("GET", route, &path, None).await["code"], "no-result", "it has not ended");
    let view = WaitingView {
        attempt: id,
        worker: "w1".parse().unwrap(),
        connected: true,
        path: Some("/there".to_owned()),
        since: time::OffsetDateTime::UNIX_EPOCH,
        reason: "too large".to_owned(),
        refused: true,
    };
    let schema = serde_json::json!({"$ref": "#/components/schemas/WaitingView"});
    check(&api.document, &schema, &serde_json::to_value(view).unwrap(), "waiting").unwrap();
    let (route, path) = at("result/keep");
    let keep = KeepResult { result: result.id.clone() };
    assert_eq!(api.ask("POST", &route, &path, json_of(&keep)).await["code"], "bad-objects", "it is not there yet");
    let route = Route::of_worker(&"w1".parse().unwrap(), "result", id, agent::ids::Generation(1));
    let shuttle = Shuttle { transport: served.transport(), route, patience: std::time::Duration::from_secs(10) };
    shuttle.send(&taken.lease, &parcel, History::Full, &(std::sync::Arc::new(|_| {}) as _)).await.unwrap();
    let (route, path) = at("result/keep");
    api.ask("POST", &route, &path, json_of(&keep)).await;

    let one = format!("/v1/attempts/{id}/result");
    assert_eq!(api.ask("GET", "/v1/attempts/{id}/result", &one, None).await["result"], result.id.to_string());
    api.ask("GET", "/v1/attempts/{id}/result/offer", &format!("{one}/offer"), None).await;
    api.ask("POST", "/v1/attempts/{id}/result/pack", &format!("{one}/pack"), json_of(&Have::default())).await;
    let packing = api.ask("GET", "/v1/attempts/{id}/result/packing", &format!("{one}/packing"), None).await;
    assert_eq!(packing, Value::Null);
    let kept = Kept { attempts: vec![id], waiting: Vec::new() };
    let asked = "/v1/workers/w1/kept";
    let none = api.ask("POST", "/v1/workers/{id}/kept", asked, json_of(&kept)).await;
    assert_eq!(none["release"], serde_json::json!([]));
    api.ask("POST", "/v1/attempts/{id}/result/review", &format!("{one}/review"), None).await;
    let some = api.ask("POST", "/v1/workers/{id}/kept", asked, json_of(&kept)).await;
    assert_eq!(some["release"], serde_json::json!([id]));
}

#[tokio::test]
async fn every_described_route_exists_and_wants_a_credential() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", quick());
    let document: Value = served.transport().json(Call::get(paths::OPENAPI)).await.unwrap();
    let nobody = Transport::http(&served.address.parse().unwrap(), None).unwrap();
    for (route, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            let path = route.replace("{id}", "x");
            let request = || {
                let builder = Request::builder().method(method.to_uppercase().as_str()).uri(&path);
                builder.body(agent::transport::whole("{}")).unwrap()
            };
            let known = served.transport().send(request()).await.unwrap();
            if !known.status().is_success() {
                let body: Value = serde_json::from_slice(&read(known.into_body()).await).unwrap();
                assert!(
                    body["code"] != "no-such-route" && body["code"] != "no-such-method",
                    "{method} {route}: {body}"
                );
            }
            let open = operation.get("security").is_some();
            let unknown = nobody.send(request()).await.unwrap().status().as_u16();
            assert_eq!(unknown == 401, !open, "{method} {route} without a token: {unknown}");
        }
    }
}
