//! Codex' private home: configuration and key file, variables, hosts. Its argv is fixed by runner 3.3, so what silences
//! other traffic and bounds retries is written to `$CODEX_HOME/config.toml`.

use toml::{Table, Value};

use super::super::environment::{MAX_RETRIES, host_of, is_codex_identity, is_foreign_identity, max_retries, value};
use crate::descriptor::{ApiSpend, Provider};
use crate::driver::{Environment, Lane, PrivateFile};

/// Credentials, endpoints and settings of Codex itself.
const OWN: &[&str] = &[
    "CODEX_ACCESS_TOKEN",
    "CODEX_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
];
/// Keys, the stronger first.
const KEYS: [&str; 2] = ["CODEX_API_KEY", "OPENAI_API_KEY"];
/// The provider entry for an endpoint of the caller's.
const PROVIDER: &str = "configured";

/// Codex' own defaults.
const REQUEST_RETRIES: u32 = 4;
const STREAM_RETRIES: u32 = 5;

pub(super) fn passes(name: &str) -> bool {
    name == MAX_RETRIES || OWN.contains(&name) || is_codex_identity(name)
}

/// `CODEX_HOME` is always the container's own; a key travels in its `auth.json`, see [`files`].
pub(super) fn environment(lane: &Lane) -> Environment {
    let mut environment: Environment = lane
        .environment
        .iter()
        .filter(|(name, _)| (OWN.contains(&name.as_str()) || is_codex_identity(name)) && !KEYS.contains(&name.as_str()))
        .filter(|(name, _)| !is_foreign_identity(Provider::Codex, name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    environment.remove("OPENAI_BASE_URL");
    environment.insert("CODEX_HOME".to_owned(), home(lane));
    environment
}

/// The key that pays, if one was given. Under `deny` none is used: then only a stored login can authenticate.
fn key(lane: &Lane) -> Option<&str> {
    if lane.api_spend == Some(ApiSpend::Deny) {
        return None;
    }
    KEYS.into_iter().find_map(|name| value(&lane.environment, name))
}

fn home(lane: &Lane) -> String {
    format!("{}/.codex", lane.home.trim_end_matches('/'))
}

/// `config.toml`, and `auth.json` where a key was given (a stored ChatGPT login stays as the instance has it).
pub(super) fn files(lane: &Lane) -> Vec<PrivateFile> {
    let file = |name: &str, content: String| PrivateFile {
        path: format!("{}/{name}", home(lane)),
        mode: 0o600,
        content: content.into_bytes(),
    };
    let mut files = vec![file("config.toml", config(lane).to_string())];
    if let Some(key) = key(lane) {
        let auth = serde_json::json!({ "auth_mode": "apikey", "OPENAI_API_KEY": key });
        files.push(file("auth.json", auth.to_string()));
    }
    files
}

fn config(lane: &Lane) -> Table {
    let mut config = Table::new();
    config.insert("check_for_update_on_startup".to_owned(), false.into());
    let features = [("plugins", false), ("unbounded_connection_retries", false)];
    config.insert("features".to_owned(), table(features));
    config.insert("analytics".to_owned(), table([("enabled", false)]));
    if let Some(base_url) = value(&lane.environment, "OPENAI_BASE_URL") {
        let retries = max_retries(&lane.environment);
        let count = |default: u32| i64::from(retries.unwrap_or(default));
        let mut provider = Table::new();
        provider.insert("name".to_owned(), "OpenAI".into());
        provider.insert("base_url".to_owned(), base_url.trim().into());
        provider.insert("wire_api".to_owned(), "responses".into());
        provider.insert("requires_openai_auth".to_owned(), true.into());
        provider.insert("request_max_retries".to_owned(), count(REQUEST_RETRIES).into());
        provider.insert("stream_max_retries".to_owned(), count(STREAM_RETRIES).into());
        config.insert("model_provider".to_owned(), PROVIDER.into());
        let mut providers = Table::new();
        providers.insert(PROVIDER.to_owned(), provider.into());
        config.insert("model_providers".to_owned(), providers.into());
    }
    config
}

fn table<const N: usize>(entries: [(&str, bool); N]) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), Value::Boolean(value))).collect())
}

/// The model endpoint by kind of login; the token endpoint only for a stored login.
pub(super) fn hosts(lane: &Lane) -> Vec<String> {
    let base = value(&lane.environment, "OPENAI_BASE_URL").and_then(host_of);
    match (base, key(lane)) {
        (Some(base), Some(_)) => vec![base],
        (Some(base), None) => vec![base, "auth.openai.com:443".to_owned()],
        (None, Some(_)) => vec!["api.openai.com:443".to_owned()],
        (None, None) => vec!["chatgpt.com:443".to_owned(), "auth.openai.com:443".to_owned()],
    }
}
