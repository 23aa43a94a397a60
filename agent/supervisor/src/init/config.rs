//! The container command: `--socket PATH --token-env NAME [--proxy ADDRESS=SOCKET] [--home DIR]`.

use std::net::SocketAddr;
use std::path::PathBuf;

/// What the command says.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) socket: PathBuf,
    pub(super) token: String,
    pub(super) proxy: Option<Proxy>,
    pub(super) home: Option<PathBuf>,
}

/// Loopback address that leads to a unix socket.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) listen: SocketAddr,
    pub(super) socket: PathBuf,
}

impl Config {
    pub(super) fn parse(
        mut words: impl Iterator<Item = String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let (mut socket, mut token, mut proxy, mut home) = (None, None, None, None);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--socket" => socket = Some(PathBuf::from(value)),
                "--token-env" => token = Some(variable(&value).ok_or_else(|| format!("variable {value} is not set"))?),
                "--proxy" => proxy = Some(Proxy::parse(&value)?),
                "--home" => home = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown option {flag}")),
            }
        }
        Ok(Self {
            socket: socket.ok_or("--socket is missing")?,
            token: token.ok_or("--token-env is missing")?,
            proxy,
            home,
        })
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("--proxy wants 127.0.0.1:PORT=/path/of/socket, not {text}");
        let (address, socket) = text.split_once('=').ok_or_else(bad)?;
        let listen: SocketAddr = address.parse().map_err(|_| bad())?;
        if listen.ip().is_loopback() { Ok(Self { listen, socket: socket.into() }) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Config, String> {
        let token = |name: &str| (name == "T").then(|| "secret".to_owned());
        Config::parse(line.split_whitespace().map(str::to_owned), token)
    }

    #[test]
    fn a_whole_command_is_understood() {
        let config = parse("--socket /s --token-env T --proxy 127.0.0.1:31=/e --home /h").unwrap();
        assert_eq!((config.token.as_str(), config.proxy.unwrap().listen.port()), ("secret", 31));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (line, named) in [
            ("--socket /s", "--token-env"),
            ("--socket /s --token-env U", "variable U"),
            ("--token-env T", "--socket"),
            ("--socket", "--socket needs"),
            ("--verbose yes", "--verbose"),
            ("--proxy 0.0.0.0:1=/e", "0.0.0.0"),
        ] {
            assert!(parse(line).unwrap_err().contains(named), "{line}");
        }
    }
}
