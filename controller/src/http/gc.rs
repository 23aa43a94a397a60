//! Retention by hand.

use agent::wire::retention::{Collect, Collected};
use axum::Json;
use axum::extract::State;

use super::App;
use super::error::ApiError;
use super::request::Body;
use crate::retention::RetentionError;

pub(super) async fn collect(
    State(app): State<App>,
    Body(Collect { dry_run }): Body<Collect>,
) -> Result<Json<Collected>, ApiError> {
    let items = app.retention.apply(&app.supervisor, &app.store, dry_run).await?;
    Ok(Json(Collected { items }))
}

impl From<RetentionError> for ApiError {
    fn from(failure: RetentionError) -> Self {
        match failure {
            RetentionError::Ask(failure) => failure.into(),
            RetentionError::Store(failure) => failure.into(),
            RetentionError::Depot(failure) => failure.into(),
        }
    }
}
