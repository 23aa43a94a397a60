//! The one shape of a refusal.

use serde::{Deserialize, Serialize};

/// Body of every answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// Stable word to branch on, for example `no-such-attempt`.
    pub code: String,
    /// What happened, to what, for people.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Finds the request in the controller's log.
    pub request_id: String,
}

/// Stable codes that a program branches on. There are others; unknown ones are read as their HTTP status says.
pub mod code {
    /// 401: no credential, or one that is not known.
    pub const UNAUTHENTICATED: &str = "unauthenticated";
    /// 403: the credential is known, its role does not allow this.
    pub const FORBIDDEN: &str = "forbidden";
    /// 403: a worker's certificate speaks for that worker only.
    pub const NOT_YOUR_WORKER: &str = "not-your-worker";
    /// 403: the attempt is another submitter's.
    pub const NOT_YOUR_ATTEMPT: &str = "not-your-attempt";
    /// 400: no credential can be made as it is wanted.
    pub const BAD_CREDENTIAL: &str = "bad-credential";
    /// 401: the credential was good, its time is over.
    pub const CREDENTIAL_EXPIRED: &str = "credential-expired";
    /// 401: the credential was revoked.
    pub const CREDENTIAL_REVOKED: &str = "credential-revoked";
    /// 401: the client certificate was not issued by this controller.
    pub const CERTIFICATE_UNKNOWN: &str = "certificate-unknown";
    /// 409: a worker has joined with this token before, with another key.
    pub const JOIN_TOKEN_USED: &str = "join-token-used";
    /// 409: the controller has no authority of its own: `laneyard init` makes one.
    pub const NO_IDENTITY: &str = "no-identity";
    /// 400: the certificate signing request cannot be used.
    pub const BAD_CSR: &str = "bad-csr";
    /// 404: there is no credential with this id.
    pub const NO_SUCH_CREDENTIAL: &str = "no-such-credential";
    /// 404: the attempt was never submitted here.
    pub const NO_SUCH_ATTEMPT: &str = "no-such-attempt";
    /// 404: the attempt has not ended, or ended without what was asked for.
    pub const NOT_YET: &str = "not-yet";
    /// 404: the attempt delivered no answer.
    pub const NO_ANSWER: &str = "no-answer";
    /// 409: the same attempt id was submitted with another body.
    pub const ID_REUSED: &str = "id-reused";
    /// 404: the controller does not know this worker: register.
    pub const NO_SUCH_WORKER: &str = "no-such-worker";
    /// 409: another registration of this worker came later: register.
    pub const STALE_SESSION: &str = "stale-session";
    /// 409: the worker still has attempts.
    pub const WORKER_BUSY: &str = "worker-busy";
    /// 409: another live agent uses this worker's name.
    pub const NAME_TAKEN: &str = "name-taken";
    /// 409: the lease has moved on; what carries this generation is late and is dropped.
    pub const STALE_LEASE: &str = "stale-lease";
    /// 409: the terminal event promises an answer that has not been stored.
    pub const ANSWER_MISSING: &str = "answer-missing";
    /// 400: the stored bytes are not those that the digest names.
    pub const DIGEST_MISMATCH: &str = "digest-mismatch";
    /// 409: the snapshot that the assignment names is not here (any more): send it again, then submit again.
    pub const NO_SUCH_SNAPSHOT: &str = "no-such-snapshot";
    /// 404: the attempt left no result here.
    pub const NO_RESULT: &str = "no-result";
    /// 404: this pack was never announced or prepared here, or it was given up: begin again with the offer.
    pub const NO_SUCH_PACK: &str = "no-such-pack";
    /// 409: the upload goes on at another offset, which the answer to the announcement names.
    pub const WRONG_OFFSET: &str = "wrong-offset";
    /// 503: another connection still writes this pack; it ends soon.
    pub const UPLOAD_BUSY: &str = "upload-busy";
    /// 507: the controller's disk is full; nothing that was acknowledged is lost.
    pub const STORAGE_FULL: &str = "storage-full";
    /// 503: the controller is shutting down or its store fails.
    pub const UNAVAILABLE: &str = "unavailable";
    /// 500: a fault of the controller; its log has the whole story.
    pub const INTERNAL: &str = "internal";
}
