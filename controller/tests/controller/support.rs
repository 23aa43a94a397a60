//! Submissions, servers, and waiting with a deadline.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::event::{Event, EventBody};
use agent::ids::AttemptId;
use agent::link::{self, Runner};
use agent::transport::certificate::authorities;
use agent::transport::{CallError, Credentials, Endpoint, Token, Transport, Trust};
use agent::wire::attempt::{AttemptState, Submit};
use controller::client::{Client, Told};
use controller::identity::Lives;
use controller::reactor::Timing;
use controller::serve::{Listen, ServeConfig, start};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio_util::sync::CancellationToken;

pub(crate) use crate::fixture::assignment;

/// No wait of a test takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it did not happen in time")
}

pub(crate) fn submission() -> (AttemptId, Submit) {
    let assignment = assignment();
    (assignment.attempt, Submit::new(assignment))
}

pub(crate) fn quick() -> Timing {
    Timing {
        heartbeat: Duration::from_millis(50),
        lease: Duration::from_millis(400),
        interrupt_after: Duration::from_millis(400),
        start_within: Duration::from_secs(10),
    }
}

/// A controller over loopback TCP that can be killed: it has a runtime of its own, which is dropped in mid-flight.
pub(crate) struct Served {
    runtime: Option<tokio::runtime::Runtime>,
    pub(crate) address: String,
    pub(crate) dir: PathBuf,
}

impl Served {
    pub(crate) fn start(dir: &Path, listen: &str, timing: Timing) -> Self {
        Self::start_with(dir, listen, timing, 1 << 20)
    }

    pub(crate) fn start_with(dir: &Path, listen: &str, timing: Timing, reserve: u64) -> Self {
        Self::start_as(dir, listen, |config| {
            config.timing = timing;
            config.reserve = reserve;
        })
    }

    /// With these lives of certificates and tokens.
    pub(crate) fn start_living(dir: &Path, listen: &str, lives: Lives) -> Self {
        Self::start_as(dir, listen, |config| config.lives = lives)
    }

    /// With settings of the test's own.
    pub(crate) fn start_as(dir: &Path, listen: &str, change: impl FnOnce(&mut ServeConfig)) -> Self {
        let mut config = ServeConfig::new(listen.parse::<Listen>().unwrap(), dir);
        config.timing = quick();
        config.reserve = 0;
        change(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        // Not on this thread: the caller has a runtime already.
        let (send, receive) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let server = loop {
                match start(config.clone()).await {
                    Ok(server) => break server,
                    // The killed one's files and port may take a moment to be free.
                    Err(error) => {
                        eprintln!("{error}");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            };
            send.send(server.address()).unwrap();
            server.run(CancellationToken::new()).await.unwrap();
        });
        let address = receive.recv_timeout(PATIENCE).unwrap();
        Self { runtime: Some(runtime), address, dir: dir.to_owned() }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        let endpoint: Endpoint = self.address.parse().unwrap();
        let identity = self.dir.join("identity");
        if !identity.exists() {
            return Transport::http(&endpoint, Some(Token::read(&self.dir.join("token")).unwrap())).unwrap();
        }
        let trust = Trust::Authorities(authorities(&identity.join("ca.pem")).unwrap());
        let token = Token::read(&identity.join("admin.token")).unwrap();
        Transport::with(&endpoint, Credentials::none().trusting(trust).with_token(Some(token))).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.transport())
    }

    /// Connects a worker, until the token is cancelled.
    pub(crate) fn connect(&self, name: &str, runner: Arc<dyn Runner>) -> CancellationToken {
        let stop = CancellationToken::new();
        tokio::spawn(link::run(self.transport(), runner, name.parse().unwrap(), stop.clone()));
        stop
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) type Following = BoxStream<'static, Result<Told, CallError>>;

/// Follows until the end and returns the kept events.
pub(crate) async fn drain(mut following: Following) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(told) = soon(following.next()).await {
        if let Told::Event(event) = told.unwrap() {
            events.push(event);
        }
    }
    events
}

/// Follows until the attempt is in a state that `wanted` accepts.
pub(crate) async fn until_state(
    client: &Client,
    id: AttemptId,
    wanted: impl Fn(&AttemptState) -> bool,
) -> AttemptState {
    let mut following = client.follow(id, 0);
    let mut last = None;
    let found = tokio::time::timeout(PATIENCE, async {
        while let Some(told) = following.next().await {
            if let Told::State(view) = told.unwrap() {
                last = Some(view.state.clone());
                if wanted(&view.state) {
                    return Some(view.state);
                }
            }
        }
        None
    });
    match found.await {
        Ok(Some(state)) => state,
        _ => panic!("last state: {last:?}"),
    }
}

/// Sequence numbers of events.
pub(crate) fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

pub(crate) fn texts(events: &[Event]) -> Vec<String> {
    let texts = events.iter().filter_map(|event| match &event.body {
        EventBody::Text { text } => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

pub(crate) async fn read(mut body: agent::transport::ResponseBody) -> Vec<u8> {
    use http_body_util::BodyExt as _;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    bytes
}
