//! Controllers with an identity, and every kind of credential for them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use agent::config::{ControllerAddress, Proof};
use agent::identity::{Home, Identity, IdentityError, Joining, join};
use agent::transport::certificate::authorities;
use agent::transport::{
    Call, CallError, ClientCertificate, Credentials, Endpoint, Fingerprint, Token, Transport, Trust,
};
use agent::wire::identity::{CreateCredential, CreatedCredential, CredentialView, Kind, Role};
use agent::wire::paths;
use controller::identity::{Authority, Lives};
use rcgen::KeyPair;
use serde_json::json;

use crate::support::Served;

/// The program itself, with nothing configured.
pub(crate) fn laneyard(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneyard"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin");
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn success(output: Output) -> (String, String) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {err}", output.status);
    (out, err)
}

/// A controller with an identity over TLS.
pub(crate) struct Secure {
    pub(crate) served: Served,
    pub(crate) home: tempfile::TempDir,
    pub(crate) dir: PathBuf,
    pub(crate) lives: Lives,
}

impl Secure {
    pub(crate) fn start() -> Self {
        Self::living(Lives::default())
    }

    /// With other lives of certificates and tokens.
    pub(crate) fn living(lives: Lives) -> Self {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join(".local/state/laneyard/controller");
        success(laneyard(home.path()).args(["init", "--name", "localhost"]).output().unwrap());
        let served = Served::start_living(&dir, "127.0.0.1:0", lives);
        Self { served, home, dir, lives }
    }

    /// With a lease that no test waits for.
    pub(crate) fn patient() -> Self {
        let mut secure = Self::start();
        secure.served.kill();
        secure.served = Served::start(&secure.dir, "127.0.0.1:0", controller::reactor::Timing::default());
        secure
    }

    pub(crate) fn kill_and_restart(&mut self) {
        self.served.kill();
        let address = self.served.address.trim_start_matches("https://").to_owned();
        self.served = Served::start_living(&self.dir, &address, self.lives);
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.join("identity/ca.pem")
    }

    pub(crate) fn trust(&self) -> Credentials {
        Credentials::none().trusting(Trust::Authorities(authorities(&self.ca()).unwrap()))
    }

    pub(crate) fn with(&self, credentials: Credentials) -> Transport {
        Transport::with(&self.served.address.parse().unwrap(), credentials).unwrap()
    }

    pub(crate) fn admin(&self) -> Transport {
        self.served.transport()
    }

    pub(crate) fn bearing(&self, secret: &str) -> Transport {
        self.with(self.trust().with_token(Some(Token::parse(secret).unwrap())))
    }

    pub(crate) async fn create(&self, kind: Kind, role: Role, name: &str, life: Option<u64>) -> (String, String) {
        let wanted = CreateCredential { kind, name: name.to_owned(), role, expires_in_s: life, csr: None };
        let call = Call::post(paths::CREDENTIALS, &wanted).unwrap();
        let made: CreatedCredential = self.admin().json(call).await.unwrap();
        (made.credential.id, made.secret.unwrap())
    }

    pub(crate) async fn revoke(&self, id: &str) -> CredentialView {
        let call = Call::post(&format!("{}/{id}/revoke", paths::CREDENTIALS), &json!({})).unwrap();
        self.admin().json(call).await.unwrap()
    }

    pub(crate) fn pin(&self) -> Fingerprint {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        Fingerprint::of(&CertificateDer::from_pem_file(self.ca()).unwrap())
    }

    pub(crate) fn joining(&self, secret: &str, worker: &str) -> Joining {
        let controller: Endpoint = self.served.address.parse().unwrap();
        let token = Token::parse(secret).unwrap();
        Joining { controller, token, pin: self.pin(), worker: worker.parse().unwrap(), replace: false, say: |_| {} }
    }

    pub(crate) async fn join(&self, worker: &str) -> (tempfile::TempDir, Identity) {
        let (_, secret) = self.create(Kind::Join, Role::Worker, "", None).await;
        let home = tempfile::tempdir().unwrap();
        join(&Home::of(home.path()), &self.joining(&secret, worker)).await.unwrap();
        let identity = Home::of(home.path()).load().unwrap().unwrap();
        (home, identity)
    }
}

/// A client certificate of some authority, in a file with its key.
pub(crate) fn certificate_of(authority: &Authority, dir: &Path) -> ClientCertificate {
    let key = KeyPair::generate().unwrap();
    let csr = agent::identity::signing_request("mallory", &key).unwrap();
    let signed = authority.sign_client(&[1; 8], "mallory", &csr, std::time::Duration::from_secs(3600)).unwrap();
    let path = dir.join("foreign.pem");
    agent::secret_file::write(&path, format!("{}{}", signed.pem, key.serialize_pem())).unwrap();
    ClientCertificate::read(&path, &path).unwrap()
}

/// The code of the refusal of `GET path`.
pub(crate) async fn refusal(transport: &Transport, path: &str) -> String {
    code(transport.json::<serde_json::Value>(Call::get(path)).await)
}

#[track_caller]
pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, CallError>) -> String {
    match answer {
        Err(CallError::Refused { status, body }) => {
            assert!(body.hint.is_some(), "a refusal says what to do: {body:?}");
            format!("{} {}", status.as_u16(), body.code)
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn joined_code(home: &Path, joining: &Joining) -> String {
    match join(&Home::of(home), joining).await {
        Err(IdentityError::Refused(error)) => code::<()>(Err(error)),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn address(secure: &Secure, proof: Proof) -> ControllerAddress {
    ControllerAddress::new(&secure.served.address, proof)
}
