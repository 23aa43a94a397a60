//! As much HTTP/1.1 as the server needs, on blocking streams.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

/// Longest head and body, in bytes.
const HEAD_LIMIT: u64 = 256 << 10;
const BODY_LIMIT: usize = 256 << 20;

/// A connection of either kind.
pub(super) trait Stream: Read + Write + Send {
    fn second(&self) -> io::Result<Box<dyn Stream>>;
}

impl Stream for TcpStream {
    fn second(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }
}

impl Stream for UnixStream {
    fn second(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The path without query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// Reads one request; `None` at a clean end of the connection.
pub(super) fn read(reader: &mut BufReader<Box<dyn Stream>>, writer: &mut dyn Write) -> io::Result<Option<Request>> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut lines = Vec::new();
    let mut head = reader.by_ref().take(HEAD_LIMIT);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return if lines.is_empty() { Ok(None) } else { Err(bad("the head has no end")) };
        }
        match line.trim_end() {
            "" if lines.is_empty() => {}
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let mut words = lines[0].split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Err(bad("no request line")) };
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut request = Request { method: method.to_owned(), target: target.to_owned(), headers, body: Vec::new() };
    if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if request.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        request.body = read_chunks(reader)?;
    } else if let Some(length) = request.header("content-length") {
        let length = length.parse().ok().filter(|length| *length <= BODY_LIMIT).ok_or_else(|| bad("bad length"))?;
        request.body = vec![0; length];
        reader.read_exact(&mut request.body)?;
    }
    Ok(Some(request))
}

fn read_chunks(reader: &mut BufReader<Box<dyn Stream>>) -> io::Result<Vec<u8>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "bad chunk");
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| bad())?;
        if body.len() + size > BODY_LIMIT {
            return Err(bad());
        }
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        line.clear();
        reader.read_line(&mut line)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Writes a whole response.
pub(super) fn respond(
    writer: &mut dyn Write,
    status: u64,
    headers: &[(String, String)],
    body: &[u8],
    head_only: bool,
) -> io::Result<()> {
    let mut text = format!("HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\n", reason(status));
    text.push_str(&format!("content-length: {}\r\n", body.len()));
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    if !head_only {
        bytes.extend_from_slice(body);
    }
    writer.write_all(&bytes)?;
    writer.flush()
}

const fn reason(status: u64) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        415 => "Unsupported Media Type",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        529 => "Overloaded",
        _ => "Status",
    }
}
