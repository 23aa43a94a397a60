//! A point in time for people: RFC 3339 in UTC, whole seconds. Data has the fraction too.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// `2027-01-15T08:00:00Z`.
#[must_use]
pub fn moment(at: OffsetDateTime) -> String {
    let whole = at.to_offset(time::UtcOffset::UTC).replace_nanosecond(0).unwrap_or(at);
    // Only years before 0 and after 9999 have no such form.
    whole.format(&Rfc3339).unwrap_or_else(|_| format!("{} s", at.unix_timestamp()))
}
