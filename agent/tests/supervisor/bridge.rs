//! The loopback port that leads to the egress socket.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener};

use crate::world::World;

/// Stands at the egress socket and says everything back, with a farewell after the caller's end of file.
pub(crate) fn echo(dir: &Path) {
    let path = dir.join("egress.sock");
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.into_split();
                tokio::io::copy(&mut read, &mut write).await.unwrap();
                write.write_all(b" and farewell").await.unwrap();
            });
        }
    });
}

#[tokio::test]
async fn each_connection_reaches_the_egress_socket_and_ends_on_its_own() {
    let world = World::direct();
    let (supervisor, _notices) = world.call().await;
    let proxy = supervisor.hello().proxy.clone().unwrap();
    assert!(supervisor.hello().warnings.is_empty());
    let mut early = TcpStream::connect(&proxy).await.unwrap();
    let ended = early.read(&mut [0; 8]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "nobody is there yet, so it closes");
    echo(world.dir.path());
    let mut held = TcpStream::connect(&proxy).await.unwrap();
    let talks = (0..100_u32).map(|number| {
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let said = vec![number.to_le_bytes()[0]; 100_000];
            let (mut read, mut write) = TcpStream::connect(proxy).await.unwrap().into_split();
            let hear = async {
                let mut heard = Vec::new();
                read.read_to_end(&mut heard).await.unwrap();
                heard
            };
            let say = async {
                write.write_all(&said).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let (heard, ()) = tokio::join!(hear, say);
            assert_eq!(heard, [said.as_slice(), b" and farewell"].concat());
        })
    });
    for talk in talks.collect::<Vec<_>>() {
        talk.await.unwrap();
    }
    held.write_all(b"still here").await.unwrap();
    let mut heard = [0; 10];
    held.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"still here");
}
