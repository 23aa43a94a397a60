//! What an operator asks of retention.

use serde::{Deserialize, Serialize};

use crate::retention::Item;

/// `POST /v1/gc`: applies the retention rules now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Collect {
    /// Only says what would go.
    pub dry_run: bool,
}

/// What went, or would go, and what stays although it is old.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collected {
    pub items: Vec<Item>,
}
