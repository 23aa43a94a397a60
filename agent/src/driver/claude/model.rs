//! Which model Claude says it used (runner section 4): only main assistant events prove it.

use crate::driver::json;
use crate::route::FAMILIES;

use super::records::Record;

/// What the main assistant events said, in flat memory.
#[derive(Default)]
pub(super) struct Main {
    model: Option<String>,
    session: Option<String>,
    fault: Option<&'static str>,
}

impl Main {
    pub(super) fn assistant(&mut self, record: &Record<'_>) {
        match record.owner {
            Some(owner) if owner.is_null() => {}
            owner if json::nonempty(owner).is_some() => return,
            _ => return self.fail("claude wrote an assistant event of unknown owner"),
        }
        let message = record.message.and_then(|message| message.fields(&["role", "model"]));
        let [role, model] = message.unwrap_or_default();
        let (Some(model), true) = (json::nonempty(model), json::is(role, "assistant")) else {
            return self.fail("claude wrote a main assistant event without role or model");
        };
        let Some(session) = json::nonempty(record.session_id) else {
            return self.fail("claude wrote a main assistant event without a session");
        };
        match &self.model {
            None => self.model = Some(model.into_owned()),
            Some(known) if *known == model => {}
            Some(_) => self.fail("claude reported more than one main model"),
        }
        match &self.session {
            None => self.session = Some(session.into_owned()),
            Some(known) if *known == session => {}
            Some(_) => self.fail("claude's main assistant events belong to more than one session"),
        }
    }

    fn fail(&mut self, fault: &'static str) {
        self.fault.get_or_insert(fault);
    }

    /// The one model of the result's session.
    pub(super) fn reported(self, session: &str) -> Result<Option<String>, &'static str> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match self.session {
            Some(own) if own != session => Err("claude's result belongs to another session than its messages"),
            _ => Ok(self.model),
        }
    }
}

/// True when the reported model is the requested one.
pub(super) fn matches(requested: &str, reported: &str) -> bool {
    let version = reported.strip_prefix("claude-").and_then(|rest| rest.strip_prefix(requested)?.strip_prefix('-'));
    let digits = |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    let versioned = version.is_some_and(|version| version.split('-').all(digits));
    if versioned || FAMILIES.contains(&requested) {
        return versioned;
    }
    reported.strip_prefix(requested).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn an_alias_is_proven_by_a_version_and_an_exact_id_by_itself() {
        assert!(matches("opus", "claude-opus-9"));
        assert!(matches("opus", "claude-opus-5-5"));
        assert!(!matches("opus", "opus"));
        assert!(!matches("opus", "claude-opus-beta"));
        assert!(!matches("opus", "claude-opus-"));
        assert!(!matches("opus", "claude-opus"));
        assert!(!matches("opus", "claude-sonnet-9"));
        assert!(matches("haiku", "haiku"));
        assert!(matches("haiku", "claude-haiku-4-5-1"));
        assert!(matches("haiku", "haiku-next"));
        assert!(!matches("haiku", "claude-haiku"));
        assert!(matches("nova-pro", "claude-nova-pro-2-1"));
        assert!(matches("claude-haiku-4-5", "claude-haiku-4-5-20261001"));
        assert!(!matches("claude-haiku-4-5", "claude-haiku-4-50"));
    }
}
