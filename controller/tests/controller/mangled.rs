//! A line on which what goes up is delayed, doubled and repeated much later: no order of arrival loses or repeats anything.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::event::EventBody;
use agent::link;
use agent::transport::{RequestBody, ResponseBody, Transport, whole};
use agent::wire::attempt::AttemptState;
use bytes::Bytes;
use controller::client::Client;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;

use crate::scripted::{Heard, Scripted};
use crate::support::{Served, drain, numbers, quick, read, submission, until_state};

/// What came up this line so far, and what happens to what comes: all from one seed.
struct Past {
    seed: u64,
    sent: Vec<(Parts, Bytes)>,
}

impl Past {
    /// SplitMix64.
    fn next(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    /// How long this one is on its way, how often it arrives, and which older one comes again with it.
    fn fate(&mut self, this: &(Parts, Bytes)) -> (Duration, u64, Option<(Parts, Bytes)>) {
        self.sent.push(this.clone());
        let delay = if self.next(3) == 0 { self.next(60) } else { 0 };
        let times = 1 + u64::from(self.next(3) == 0);
        let older = self.next(self.sent.len() as u64);
        let older = (self.next(2) == 0).then(|| self.sent[usize::try_from(older).unwrap()].clone());
        (Duration::from_millis(delay), times, older)
    }
}

fn request((parts, bytes): (Parts, Bytes)) -> Request<RequestBody> {
    Request::from_parts(parts, whole(bytes))
}

async fn carry(good: Transport, past: Arc<Mutex<Past>>, asked: Request<RequestBody>) -> Response<ResponseBody> {
    let lost = || {
        let nothing = Response::builder().status(StatusCode::BAD_GATEWAY);
        nothing.body(whole(Bytes::new()).boxed_unsync()).unwrap()
    };
    let (parts, body) = asked.into_parts();
    if parts.method == Method::GET {
        return good.send(Request::from_parts(parts, body)).await.unwrap_or_else(|_| lost());
    }
    let this = (parts, body.collect().await.unwrap().to_bytes());
    let (delay, times, older) = past.lock().unwrap().fate(&this);
    tokio::time::sleep(delay).await;
    if let Some(older) = older {
        let _ = good.send(request(older)).await;
    }
    for _ in 1..times {
        let _ = good.send(request(this.clone())).await;
    }
    good.send(request(this)).await.unwrap_or_else(|_| lost())
}

fn mangled(good: Transport, seed: u64) -> Transport {
    let past = Arc::new(Mutex::new(Past { seed, sent: Vec::new() }));
    Transport::in_process(Arc::new(move |asked| Box::pin(carry(good.clone(), Arc::clone(&past), asked))))
}

async fn nothing_is_lost_or_repeated(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut timing = quick();
    timing.lease = Duration::from_secs(20); // nobody is to be called lost because a line is slow
    let served = Served::start(dir.path(), "127.0.0.1:0", timing);
    let (worker, other) = (Scripted::new(2), Scripted::new(2));
    let stop = CancellationToken::new();
    for (name, runner) in [("w1", &worker), ("w2", &other)] {
        let line = mangled(served.transport(), seed ^ name.len() as u64 ^ u64::from(name.as_bytes()[1]));
        tokio::spawn(link::run(line, runner.clone(), name.parse().unwrap(), stop.clone()));
    }
    let client = Client::new(mangled(served.transport(), !seed));
    for round in 0..6 {
        let ids: Vec<_> = (0..3).map(|_| submission()).collect();
        for (id, submit) in &ids {
            client.submit(submit).await.unwrap_or_else(|error| panic!("seed {seed}: {id}: {error}"));
        }
        for (id, _) in &ids {
            let offered = |heard: &Heard| matches!(heard, Heard::Offer(attempt, _) if attempt == id);
            let by = tokio::select! {
                () = worker.until(offered) => &worker,
                () = other.until(offered) => &other,
            };
            by.start(*id);
            for n in 0..5 {
                by.text(*id, &format!("{round} {n}"));
                tokio::task::yield_now().await;
            }
            by.end(*id, "complete", Some(b"answer"));
        }
        for (id, _) in &ids {
            let state = until_state(&client, *id, AttemptState::is_ended).await;
            assert!(
                matches!(&state, AttemptState::Ended { status, .. } if status == "complete"),
                "seed {seed}: {state:?}"
            );
            client.delivered(*id, agent::receipt::Status::Complete).await.unwrap();
            let events = drain(served.client().follow(*id, 0)).await;
            assert_eq!(numbers(&events), (1..=7).collect::<Vec<_>>(), "seed {seed}: {id}");
            let ends = events.iter().filter(|event| matches!(event.body, EventBody::Terminal { .. })).count();
            assert_eq!(ends, 1, "seed {seed}: {id}");
            assert_eq!(read(served.client().answer(*id).await.unwrap()).await, b"answer");
            // The same offer may be told again; another one would be another start.
            let of_it = |heard: &Heard| {
                matches!(heard, Heard::Offer(attempt, _) if attempt == id).then(|| format!("{heard:?}"))
            };
            let starts = [&worker, &other].map(|by| by.heard().iter().filter_map(of_it).collect::<BTreeSet<_>>().len());
            assert_eq!(starts.iter().sum::<usize>(), 1, "seed {seed}: {id} was started by {starts:?}");
        }
    }
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_doubled_reordered_and_replayed_change_nothing() {
    for seed in [1, 20_261_130, 77] {
        nothing_is_lost_or_repeated(seed).await;
    }
}
