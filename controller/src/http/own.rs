//! Whose an attempt is. That it exists, where it is and what runs it may be seen by all; everything else about it is for
//! its submitter and for administrators.

use agent::ids::AttemptId;
use agent::wire::attempt::AttemptView;
use agent::wire::error::code;
use http::StatusCode;
use tracing::warn;

use super::App;
use super::auth::{Principal, Role};
use super::error::ApiError;
use crate::reactor::Refused;

/// What else a stranger could do.
pub(super) const HINT: &str =
    "ask its submitter or an administrator, or pass a credential of theirs with --token-file or --client-cert";

/// Lets the attempt's submitter pass, and administrators.
///
/// # Errors
/// 404 for an attempt that nobody submitted here, 403 for another's.
pub(super) async fn own(app: &App, principal: &Principal, id: AttemptId) -> Result<(), ApiError> {
    let submitter = app.supervisor.ask(move |world, _, _| {
        let known = world.core.attempt(id)?;
        Some(known.order.as_ref().map(|order| order.submitter.clone()))
    });
    let submitter = submitter.await?.ok_or(Refused::NoSuchAttempt(id))?;
    if principal.role == Role::Admin || submitter.as_ref() == Some(&principal.name) {
        return Ok(());
    }
    warn!(name = principal.name, attempt = %id, "a request for an attempt of another submitter");
    if let Some(submitter) = submitter {
        return Err(Refused::NotYours(id, submitter, principal.name.clone()).into());
    }
    let message = format!("attempt {id} was brought by its worker, and who submitted it is not known here");
    Err(ApiError::new(StatusCode::FORBIDDEN, code::NOT_YOUR_ATTEMPT, message).hint(HINT))
}

/// The view without what is its submitter's only.
pub(super) fn shown(mut view: AttemptView, principal: &Principal) -> AttemptView {
    if principal.role != Role::Admin && view.submitter != principal.name {
        view.execution_id = None; // a path of theirs
    }
    view
}
