//! Which image an attempt runs, and that it is here and fits this CPU, before anything is created.

use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::container::{Engine, EngineError, Image};
use crate::descriptor::Provider;

/// May an image be fetched?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PullPolicy {
    /// Only what is on the engine.
    #[default]
    Never,
    /// Fetch it when it is not there.
    IfMissing,
}

/// The name of an image as engines take it: `[host[:port]/]path[:tag][@digest]`, or an image id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference(String);

/// The text is no image reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no image reference: write `name:tag`, `host/name:tag`, `name@sha256:…` or an image id (lower case)")]
pub struct ReferenceError(String);

impl Reference {
    /// As the engine is asked for it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;
    /// The grammar that Docker and Podman share (the OCI distribution reference).
    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let digest_is_good = digest.is_none_or(is_digest);
        let is_id = digest.is_none() && is_digest(name);
        let good = text.len() <= 4_096 && (is_id || (digest_is_good && is_tagged_name(name)));
        if good { Ok(Self(text.to_owned())) } else { Err(ReferenceError(text.to_owned())) }
    }
}

/// `sha256:` and 64 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

fn is_tagged_name(text: &str) -> bool {
    let last = text.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match text[last..].find(':') {
        Some(colon) => (&text[..last + colon], Some(&text[last + colon + 1..])),
        None => (text, None),
    };
    let tag_is_good = tag.is_none_or(|tag| {
        (1..=128).contains(&tag.len())
            && !tag.starts_with(['.', '-'])
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    });
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let host = !rest.is_empty() && (first.contains(['.', ':']) || first == "localhost");
    let first_is_good = if host { is_host(first) } else { is_component(first) };
    tag_is_good && first_is_good && rest.into_iter().all(is_component)
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name_is_good = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.split('.').all(is_label),
    };
    name_is_good && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Letters and digits, with dashes between them.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
        && !["..", "___", "._", "_.", ".-", "-.", "_-", "-_"].iter().any(|bad| text.contains(bad))
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Reference {
    type Error = ReferenceError;
    fn try_from(text: String) -> Result<Self, ReferenceError> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.0
    }
}

/// The whole pull.
const PULL_DEADLINE: Duration = Duration::from_secs(1800);

/// The image of a provider where nothing else is configured: `laneyard/<provider>:current`.
#[must_use]
pub fn default_reference(provider: Provider) -> Reference {
    Reference(format!("laneyard/{}:current", provider.as_str()))
}

/// Finds the image and compares its platform with the engine's. Create the container from [`Image::id`]. `seen` is what this
/// engine has just shown under this name.
///
/// # Errors
/// Not there (the message says how to get it), for another platform, or the engine could not be asked.
pub async fn resolve(
    engine: &Engine,
    reference: &Reference,
    policy: PullPolicy,
    seen: Option<Image>,
) -> Result<Image, EngineError> {
    let reference = reference.as_str();
    let mut image = match seen {
        Some(image) => Some(image),
        None => engine.image(reference).await?,
    };
    if image.is_none() && policy == PullPolicy::IfMissing {
        engine.pull(reference, PULL_DEADLINE).await?;
        image = engine.image(reference).await?;
    }
    let info = engine.info();
    let Some(image) = image else {
        return Err(EngineError::NoImage {
            reference: reference.to_owned(),
            engine: info.kind.as_str(),
            address: info.address.clone(),
            remedy: remedy(reference),
        });
    };
    if image.arch != info.arch || (!image.os.is_empty() && image.os != info.os) {
        return Err(EngineError::WrongPlatform {
            reference: reference.to_owned(),
            image: format!("{}/{}", image.os, image.arch),
            engine: info.platform(),
        });
    }
    Ok(image)
}

fn remedy(reference: &str) -> String {
    match reference.strip_prefix("laneyard/").and_then(|rest| rest.split(':').next()) {
        Some(provider) => {
            format!("build it with `images/build --only {provider}` for this engine, or name another with --image")
        }
        None => "load or pull it on this engine, or name another with --image".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_the_engines_read_them() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for text in [
            "debian",
            "debian:bookworm-slim",
            "laneyard/claude:current",
            "localhost/x",
            "registry.example:5000/team/a__b-c.d:1.0_x",
            "[::1]:5000/x",
            "[::1]/x",
            &format!("x@{digest}"),
            &format!("host.example/x:1@{digest}"),
            &digest,
            "0123456789ab",
        ] {
            assert!(text.parse::<Reference>().is_ok(), "{text}");
        }
        for text in [
            "",
            " ",
            "UPPER",
            "a b",
            "a:",
            "a:-x",
            "/a",
            "a/",
            "a//b",
            "-a",
            "a..b",
            "https://x/y",
            "x@sha256:1",
            "x@md5:ab",
            "a\nb",
            "host:port/x",
            "../x",
            "-a.example/x",
            "[x]:1/x",
        ] {
            let message = text.parse::<Reference>().unwrap_err().to_string();
            assert!(message.contains(&format!("`{text}` is no image reference")), "{message}");
        }
    }
}
