//! A loopback port that leads to the egress socket, so that every CLI can use it as an HTTP proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::config::Proxy;

/// Connections at a time; more wait in the backlog.
const CONNECTIONS: usize = 256;

/// Bytes held for each direction.
const BUFFER: usize = 16 << 10;

/// Listens and serves for ever. Gives the address, or a warning.
pub(super) fn open(proxy: &Proxy) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot offer the egress proxy at {}: {error}", proxy.listen);
    let listener = std::net::TcpListener::bind(proxy.listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    let address: SocketAddr = listener.local_addr().map_err(failed)?;
    tokio::spawn(serve(listener, proxy.socket.clone()));
    Ok(address.to_string())
}

/// A container without a network has its loopback interface up; where it has not, nothing can reach the proxy.
pub(super) fn loopback_warning() -> Option<String> {
    let flags = fs::read_to_string("/sys/class/net/lo/flags").ok()?;
    let flags = u32::from_str_radix(flags.trim().strip_prefix("0x")?, 16).ok()?;
    (flags & 1 == 0).then(|| "the loopback interface is down: the egress proxy cannot be reached".to_owned())
}

async fn serve(listener: TcpListener, socket: PathBuf) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let socket = Arc::new(socket);
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((inside, _)) => {
                let socket = Arc::clone(&socket);
                tokio::spawn(async move {
                    let _ = connect(inside, &socket).await; // each connection fails alone
                    drop(permit);
                });
            }
            Err(_) => sleep(Duration::from_millis(20)).await, // out of descriptors: some will close
        }
    }
}

async fn connect(mut inside: TcpStream, socket: &std::path::Path) -> io::Result<()> {
    inside.set_nodelay(true)?;
    let mut outside = UnixStream::connect(socket).await?;
    copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await.map(drop)
}
