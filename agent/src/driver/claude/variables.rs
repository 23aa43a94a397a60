//! Claude's variables: which of the caller's enter the container, what is added, which hosts follow from them.

use super::super::billing::is_truthy;
use super::super::environment::{MAX_RETRIES, host_of, is_foreign_identity, max_retries, value};
use crate::descriptor::Provider;
use crate::driver::{Environment, Lane};

/// Credentials, endpoints and settings of Claude itself.
const OWN: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_AWS_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_BETAS",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "API_TIMEOUT_MS",
    "BASH_DEFAULT_TIMEOUT_MS",
    "BASH_MAX_TIMEOUT_MS",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
    "MAX_THINKING_TOKENS",
];

/// Variables of a cloud that hosts the models; they enter only with the switch that selects it.
struct Cloud {
    switch: &'static str,
    variables: &'static [&'static str],
}

const CLOUDS: &[Cloud] = &[
    Cloud {
        switch: "CLAUDE_CODE_USE_BEDROCK",
        variables: &[
            "ANTHROPIC_BEDROCK_BASE_URL",
            "AWS_ACCESS_KEY_ID",
            "AWS_BEARER_TOKEN_BEDROCK",
            "AWS_DEFAULT_REGION",
            "AWS_REGION",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
        ],
    },
    Cloud {
        switch: "CLAUDE_CODE_USE_VERTEX",
        variables: &[
            "ANTHROPIC_VERTEX_BASE_URL",
            "ANTHROPIC_VERTEX_PROJECT_ID",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH",
            "CLOUD_ML_REGION",
        ],
    },
    Cloud {
        switch: "CLAUDE_CODE_USE_FOUNDRY",
        variables: &["ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE"],
    },
];

/// Silences everything but the model requests, and keeps the program as it is in its image.
const QUIET: &[(&str, &str)] = &[
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
];

/// Model requests are retried this often: by default a refused API key would be tried for over a minute.
const DEFAULT_RETRIES: u32 = 4;

pub(super) fn passes(name: &str) -> bool {
    name == MAX_RETRIES || OWN.contains(&name) || CLOUDS.iter().any(|cloud| cloud.variables.contains(&name))
}

pub(super) fn environment(lane: &Lane) -> Environment {
    let given = &lane.environment;
    let selected = |name: &str| {
        OWN.contains(&name) || CLOUDS.iter().any(|cloud| cloud.variables.contains(&name) && is_on(given, cloud.switch))
    };
    let mut environment: Environment = given
        .iter()
        .filter(|(name, _)| selected(name) && !is_foreign_identity(Provider::Claude, name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    environment.extend(QUIET.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    if let Some(retries) = max_retries(given) {
        environment.insert("CLAUDE_CODE_MAX_RETRIES".to_owned(), retries.to_string());
    }
    environment.entry("CLAUDE_CODE_MAX_RETRIES".to_owned()).or_insert_with(|| DEFAULT_RETRIES.to_string());
    environment
}

/// The model endpoint, and the token endpoint only where a stored login may have to be refreshed.
pub(super) fn hosts(lane: &Lane) -> Vec<String> {
    let given = &lane.environment;
    let text = |name| value(given, name).map(str::trim);
    let base = |name| text(name).and_then(host_of);
    if is_on(given, "CLAUDE_CODE_USE_BEDROCK") {
        let region = text("AWS_REGION").or_else(|| text("AWS_DEFAULT_REGION")).unwrap_or("us-east-1");
        return vec![
            base("ANTHROPIC_BEDROCK_BASE_URL").unwrap_or_else(|| format!("bedrock-runtime.{region}.amazonaws.com:443")),
        ];
    }
    if is_on(given, "CLAUDE_CODE_USE_VERTEX") {
        let endpoint = base("ANTHROPIC_VERTEX_BASE_URL").unwrap_or_else(|| match text("CLOUD_ML_REGION") {
            Some(region) if region != "global" => format!("{region}-aiplatform.googleapis.com:443"),
            _ => "aiplatform.googleapis.com:443".to_owned(),
        });
        return vec![endpoint, "oauth2.googleapis.com:443".to_owned()];
    }
    if is_on(given, "CLAUDE_CODE_USE_FOUNDRY") {
        let named = || text("ANTHROPIC_FOUNDRY_RESOURCE").map(|name| format!("{name}.services.ai.azure.com:443"));
        return base("ANTHROPIC_FOUNDRY_BASE_URL").or_else(named).into_iter().collect();
    }
    let mut hosts = vec![base("ANTHROPIC_BASE_URL").unwrap_or_else(|| "api.anthropic.com:443".to_owned())];
    let supplied = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
    if supplied.into_iter().all(|name| value(given, name).is_none()) {
        hosts.push("platform.claude.com:443".to_owned());
    }
    hosts
}

fn is_on(environment: &Environment, switch: &str) -> bool {
    value(environment, switch).is_some_and(is_truthy)
}
