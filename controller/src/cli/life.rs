//! How long a credential lives, as people write it.

use std::time::Duration;

use agent::wire::identity::{LONGEST_JOIN, LONGEST_LIFE};

/// Of a join token.
///
/// # Errors
/// It is no duration, shorter than a second, or longer than [`LONGEST_JOIN`].
pub fn of_join(text: &str) -> Result<Duration, String> {
    within(text, LONGEST_JOIN, "")
}

/// Of a certificate.
///
/// # Errors
/// As [`of_credential`].
pub fn of_certificate(text: &str) -> Result<Duration, String> {
    within(text, LONGEST_LIFE, "")
}

/// Of a token or certificate that ends.
///
/// # Errors
/// It is no duration, shorter than a second, or longer than [`LONGEST_LIFE`].
pub fn of_credential(text: &str) -> Result<Duration, String> {
    within(text, LONGEST_LIFE, "; a token without --expires does not end")
}

fn within(text: &str, longest: Duration, otherwise: &str) -> Result<Duration, String> {
    let life = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if life < Duration::from_secs(1) {
        return Err("a credential lives for at least a second".to_owned());
    }
    if life > longest {
        return Err(format!("at most {} days{otherwise}", longest.as_secs() / 86_400));
    }
    Ok(life)
}
