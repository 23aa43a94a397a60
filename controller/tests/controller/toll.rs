//! A line to the controller that lets so many bytes pass to the client, and the others when the test says so.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::soon;

pub(crate) struct Toll {
    /// Where the client reaches the controller.
    pub(crate) address: String,
    held: watch::Receiver<u64>,
    limit: Arc<watch::Sender<u64>>,
}

impl Toll {
    /// In front of `target` (`https://HOST:PORT`).
    pub(crate) async fn before(target: &str, limit: u64) -> Self {
        let (scheme, place) = target.split_once("://").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("{scheme}://{}", listener.local_addr().unwrap());
        let (passed, held) = watch::channel(0);
        let (passed, limit) = (Arc::new(passed), Arc::new(watch::Sender::new(limit)));
        let (place, limits) = (place.to_owned(), Arc::clone(&limit));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&place).await else { continue };
                let (mut from_client, to_client) = client.into_split();
                let (from_server, mut to_server) = server.into_split();
                tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
                });
                tokio::spawn(pass(from_server, to_client, Arc::clone(&passed), limits.subscribe()));
            }
        });
        Self { address, held, limit }
    }

    /// Waits until more than the limit wanted to pass.
    pub(crate) async fn held(&mut self) {
        let limit = *self.limit.borrow();
        soon(self.held.wait_for(|passed| *passed > limit)).await.unwrap();
    }

    pub(crate) fn open(&self) {
        self.limit.send_replace(u64::MAX);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    passed: Arc<watch::Sender<u64>>,
    mut limit: watch::Receiver<u64>,
) {
    let mut piece = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        passed.send_modify(|passed| *passed += length as u64);
        let all = *passed.borrow();
        if limit.wait_for(|limit| *limit >= all).await.is_err() || to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
