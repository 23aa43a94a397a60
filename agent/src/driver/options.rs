//! Model and effort rules of all providers (runner 1.3). They need no driver: a flag is judged before anything exists.

use super::OptionError;
use crate::descriptor::{ApiSpend, Effort, Parent, Provider};
use crate::route;

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Requested<'a> {
    pub parent: Parent,
    pub provider: Provider,
    pub model: &'a str,
    pub effort: Effort,
    pub api_spend: Option<ApiSpend>,
}

/// All rules of runner 1.3 that concern the model, in their documented order.
///
/// # Errors
/// The refusal of the first rule that is broken; it names the remedy.
pub fn check(requested: Requested<'_>) -> Result<(), OptionError> {
    let Requested { parent, provider, model, effort, api_spend } = requested;
    selector(provider, model, effort)?;
    if provider == Provider::Antigravity && api_spend.is_none() {
        return refuse("antigravity needs an explicit --api-spend deny or --api-spend approved");
    }
    stale_pin(provider, model)?;
    if let Some(lane) = route::native(parent, provider, model, effort) {
        return refuse(format!("{provider}:{model}@{effort} is native to parent {parent}: start {lane} there instead"));
    }
    if model.trim().is_empty() {
        return refuse("model is required");
    }
    effort_rule(provider, model, effort)
}

/// Rules of the providers whose model is a selector of their own (Cursor, Antigravity, OpenCode).
fn selector(provider: Provider, model: &str, effort: Effort) -> Result<(), OptionError> {
    let well_formed = match provider {
        Provider::Cursor | Provider::Antigravity => slug(model, false) && !is_auto(model),
        Provider::OpenCode => {
            let mut segments = model.split('/');
            let first = segments.next().is_some_and(|segment| slug(segment, false));
            let rest: Vec<&str> = segments.collect();
            first
                && !rest.is_empty()
                && rest.iter().all(|segment| slug(segment, true))
                && !model.split('/').any(is_auto)
        }
        _ => return Ok(()),
    };
    if effort != Effort::Default {
        return refuse(format!("{provider} takes effort default only: its model name selects the reasoning variant"));
    }
    if well_formed {
        return Ok(());
    }
    match provider {
        Provider::OpenCode => refuse(format!("opencode model `{model}` is not an exact <provider>/<model> id")),
        _ => refuse(format!("{provider} model `{model}` is not an exact model slug (auto is not one)")),
    }
}

fn slug(text: &str, colon: bool) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c) || (colon && c == ':'))
}

fn is_auto(text: &str) -> bool {
    text.eq_ignore_ascii_case("auto")
}

/// Refuses a version pin of a rolling Claude family.
fn stale_pin(provider: Provider, model: &str) -> Result<(), OptionError> {
    match route::stale_pin(model) {
        Some(alias) if provider == Provider::Claude => refuse(format!(
            "{model} pins a version of a rolling family; normalize it to {alias} before invoking the runner"
        )),
        _ => Ok(()),
    }
}

fn effort_rule(provider: Provider, model: &str, effort: Effort) -> Result<(), OptionError> {
    match provider {
        Provider::Claude | Provider::Codex | Provider::Grok if effort == Effort::Default => refuse(format!(
            "effort default is not available for {provider}: only Cursor, Antigravity, OpenCode or a Devin model UID use it"
        )),
        Provider::Devin => devin_uid(model, effort).map(|_| ()),
        _ => Ok(()),
    }
}

/// The model UID that Devin is given for a model and effort.
///
/// # Errors
/// An effort that the model does not have.
pub fn devin_uid(model: &str, effort: Effort) -> Result<String, OptionError> {
    match (model, effort) {
        ("swe-2", Effort::Medium | Effort::High | Effort::Max) => Ok(format!("swe-2-{effort}")),
        ("swe-1.6", Effort::Default) => Ok("swe-1-6".to_owned()),
        (_, Effort::Default) => Ok(model.to_owned()),
        ("swe-2", _) => refuse("Devin supports swe-2 at medium, high or max"),
        ("swe-1.6", _) => refuse("Devin supports swe-1.6 at default only"),
        _ => refuse(format!("devin model {model} has no separate effort flag: use effort default")),
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, OptionError> {
    Err(OptionError(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn case(parent: Parent, text: &str, expected: Option<&str>) {
        let (provider, rest) = text.split_once(' ').unwrap();
        let (model, effort) = rest.rsplit_once('@').unwrap();
        let requested = Requested {
            parent,
            provider: provider.parse().unwrap(),
            model,
            effort: effort.parse().unwrap(),
            api_spend: Some(ApiSpend::Approved),
        };
        match (check(requested), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            (got, want) => panic!("{text}: {got:?}, expected {want:?}"),
        }
    }

    #[test]
    fn claude_refuses_version_pins_of_rolling_families_only() {
        case(Parent::Codex, "claude claude-opus-5-5@high", Some("normalize it to opus before invoking the runner"));
        case(Parent::Codex, "claude claude-fable-5@high", Some("normalize it to fable"));
        case(Parent::Codex, "claude claude-sonnet--@high", Some("normalize it to sonnet"));
        case(Parent::Codex, "claude claude-opus-beta@high", None);
        case(Parent::Codex, "claude claude-haiku-4-5@high", None);
        case(Parent::Codex, "claude opus@default", Some("Devin model UID"));
    }

    #[test]
    fn a_native_lane_is_refused_and_the_rest_runs_externally() {
        case(Parent::Claude, "claude fable@max", Some("native to parent"));
        case(Parent::Claude, "claude haiku@max", None);
        case(Parent::Claude, "codex gpt-5.6-sol@max", None);
        case(Parent::Codex, "codex anything@low", Some("native to parent"));
        case(Parent::Codex, "claude opus@high", None);
    }

    #[test]
    fn devin_maps_its_two_models_and_passes_uids_unchanged() {
        assert_eq!(devin_uid("swe-2", Effort::Max).unwrap(), "swe-2-max");
        assert_eq!(devin_uid("swe-1.6", Effort::Default).unwrap(), "swe-1-6");
        assert_eq!(devin_uid("swe-2", Effort::Default).unwrap(), "swe-2");
        assert_eq!(devin_uid("uid-7", Effort::Default).unwrap(), "uid-7");
        case(Parent::Claude, "devin swe-2@low", Some("Devin supports"));
        case(Parent::Claude, "devin swe-1.6@high", Some("Devin supports"));
        case(Parent::Claude, "devin uid-7@high", Some("no separate effort flag"));
    }

    #[test]
    fn selectors_of_cursor_antigravity_and_opencode_are_exact() {
        case(Parent::Claude, "cursor composer-2.5@default", None);
        case(Parent::Claude, "cursor composer-2.5@high", Some("effort default only"));
        case(Parent::Claude, "cursor AUTO@default", Some("not an exact model slug"));
        case(Parent::Claude, "antigravity gemini-3.1-pro-high@default", None);
        case(Parent::Claude, "antigravity .x@default", Some("not an exact model slug"));
        case(Parent::Claude, "opencode openai/gpt-6.1-sol@default", None);
        case(Parent::Claude, "opencode openrouter/meta/llama:free@default", None);
        for bad in ["single", "provider/auto", "a//b", "a/..", "a/b;c", "a:b/c", "/a", "a/"] {
            case(Parent::Claude, &format!("opencode {bad}@default"), Some("not an exact <provider>/<model> id"));
        }
    }

    #[test]
    fn antigravity_needs_an_explicit_spend_policy() {
        let requested = Requested {
            parent: Parent::Claude,
            provider: Provider::Antigravity,
            model: "gemini-3.1-pro-high",
            effort: Effort::Default,
            api_spend: None,
        };
        assert!(check(requested).unwrap_err().to_string().contains("--api-spend"));
    }
}
