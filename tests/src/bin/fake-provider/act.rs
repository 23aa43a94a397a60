//! Doing it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, hint, thread};

use super::script::Act;
use super::voice::Voice;
use super::{forbidden, system};

/// Bytes at a time in floods.
const PIECE: usize = 64 << 10;

/// Whether anything comes after an act.
pub(crate) enum Ending {
    GoesOn,
    Exit(u8),
}

impl Act {
    pub(crate) fn perform(self, voice: &mut Voice) -> io::Result<Ending> {
        match self {
            Self::IgnoresStdin | Self::PreflightSays(_) | Self::PreflightExits(_) | Self::PreflightHangs => {}
            Self::IgnoresTerm => {
                system::ignore_requests_to_end();
                voice.says("ignoring every request to end")?;
                system::sleep_whatever_comes()
            }
            Self::Hangs => {
                voice.says("hanging")?;
                loop {
                    thread::park();
                }
            }
            Self::Sleeps(milliseconds) => thread::sleep(Duration::from_millis(milliseconds)),
            Self::ForksDaemons(count) => {
                for _ in 0..count {
                    system::daemon()?;
                }
            }
            Self::Floods(bytes) => flood(&mut io::stdout().lock(), bytes, PIECE as u64, voice.padding())?,
            Self::FloodsStderr(bytes) => flood(&mut io::stderr().lock(), bytes, 200, (b"", b"\n"))?,
            Self::LongLine(bytes) => flood(&mut io::stdout().lock(), bytes, bytes, voice.padding())?,
            Self::NonUtf8 => {
                let (begin, end) = voice.padding();
                io::stdout().lock().write_all(&[begin, b"\xff\xfe \xc3( \xed\xa0\x80", end].concat())?;
                io::stderr().lock().write_all(b"\x80 not text \xff\n")?;
            }
            Self::Noise(text) => writeln!(io::stdout().lock(), "{text}")?,
            Self::ClosesStdoutEarly(milliseconds) => {
                voice.succeeds()?;
                system::close_stdout();
                thread::sleep(Duration::from_millis(milliseconds));
                writeln!(io::stderr(), "late words")?;
                return Ok(Ending::Exit(0));
            }
            Self::ClosesStdoutUnfinished => {
                system::close_stdout();
                return Ok(Ending::Exit(0));
            }
            Self::NoResult => return Ok(Ending::Exit(0)),
            Self::EatsMemory(bytes) => eat_memory(bytes).map_or((), drop),
            Self::EatsMemoryInAChild => {
                let ended = Command::new("/proc/self/exe").arg(system::EATER).stdout(Stdio::null()).status()?;
                voice.will_say(&format!("the child ended: {ended}"));
            }
            Self::EatsPids => voice.will_say(&eat_pids()),
            Self::TouchesForbidden => voice.will_say(&forbidden::report()),
            Self::TellsEnvironment => {
                let mut all: Vec<String> = env::vars_os()
                    .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
                    .collect();
                all.sort();
                voice.will_say(&all.join("\n"));
            }
            Self::Writes { file, text } => std::fs::write(file, format!("{text}\n"))?,
            Self::Appends { file, text } => {
                writeln!(OpenOptions::new().append(true).create(true).open(file)?, "{text}")?;
            }
            Self::Says(text) => voice.will_say(&text),
            Self::Reports(model) => voice.will_report(model),
            Self::Fails(message) => {
                voice.fails(&message)?;
                return Ok(Ending::Exit(1));
            }
            Self::Exits(code) => return Ok(Ending::Exit(code)),
            Self::Dies(signal) => system::die(signal),
            Self::Unknown(line) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no such act: {line}")));
            }
        }
        Ok(Ending::GoesOn)
    }
}

/// `total` bytes in records of about `record` bytes.
fn flood(out: &mut impl Write, total: u64, record: u64, (begin, end): (&[u8], &[u8])) -> io::Result<()> {
    let filler = vec![b'x'; PIECE];
    let frame = (begin.len() + end.len()) as u64;
    let mut left = total;
    while left > 0 {
        out.write_all(begin)?;
        let mut inside = record.min(left).saturating_sub(frame);
        left = left.saturating_sub(inside + frame);
        while inside > 0 {
            let piece = usize::try_from(inside).unwrap_or(PIECE).min(PIECE);
            out.write_all(&filler[..piece])?;
            inside -= piece as u64;
        }
        out.write_all(end)?;
    }
    out.flush()
}

/// Touches memory, page by page. `None` so that it can stand where an answer is expected.
pub(crate) fn eat_memory(bytes: u64) -> Option<String> {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    while (eaten.len() as u64) << 20 < bytes {
        eaten.push(vec![1; 1 << 20]);
        hint::black_box(&eaten);
    }
    None
}

/// Starts processes until the system refuses, then ends them.
fn eat_pids() -> String {
    let mut children = Vec::new();
    let refusal = loop {
        let sleeper = Command::new("/proc/self/exe").arg(system::SLEEPER).stdout(Stdio::null()).spawn();
        match sleeper {
            Ok(child) if children.len() < 100_000 => children.push(child),
            Ok(_) => break "nobody".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    let count = children.len();
    for child in &mut children {
        let _ = child.kill();
        let _ = child.wait();
    }
    format!("started {count} processes, then refused by: {refusal}")
}
