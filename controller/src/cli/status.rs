//! `status`: what can be said about lanes from outside, read-only (runner 7.2 to 7.5).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use agent::progress::{LaneView, lane_view, lanes_json, probe::system_probe, text_line};
use time::OffsetDateTime;

use super::later::Waiting;
use super::{USAGE, output};

/// Prints the verdict on each pair of files; exit 0 whatever it is. Of lanes among them that wait for somebody to finish
/// them, a line on stderr says what to type.
pub fn main(words: &[OsString], program: &str, waiting: &[Waiting]) -> ExitCode {
    match read(words) {
        Ok((pairs, json)) => {
            let views: Vec<LaneView> =
                pairs.iter().map(|(progress, receipt)| lane_view(progress, receipt, &mut system_probe)).collect();
            let now = OffsetDateTime::now_utc();
            for lane in waiting.iter().filter(|lane| pairs.iter().any(|(_, receipt)| lane.is_receipt(receipt))) {
                output::line(&format!("laneyard: attempt {}: {}", lane.attempt, lane.sentence(now)));
            }
            if json {
                output::data(&lanes_json(&views, now));
            } else {
                for (at, view) in views.iter().enumerate() {
                    output::data(&text_line(at + 1, view, now));
                }
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            output::line(&format!("error: {message}\n{}", usage(program)));
            ExitCode::from(USAGE)
        }
    }
}

/// How it is called.
pub fn help(program: &str) -> ExitCode {
    output::data(&usage(program));
    ExitCode::SUCCESS
}

fn usage(program: &str) -> String {
    format!(
        "Usage: {program} status --progress <file> --receipt <file> \
         [--progress <file> --receipt <file> ...] [--json]"
    )
}

type Pairs = Vec<(PathBuf, PathBuf)>;

fn read(words: &[OsString]) -> Result<(Pairs, bool), String> {
    let (mut progress, mut receipts, mut json) = (Vec::new(), Vec::new(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let list = match word.to_str() {
            Some("--json") => {
                json = true;
                continue;
            }
            Some("--progress") => &mut progress,
            Some("--receipt") => &mut receipts,
            _ => return Err("unknown status argument".to_owned()),
        };
        match words.next().filter(|value| !value.as_encoded_bytes().starts_with(b"--")) {
            Some(value) => list.push(PathBuf::from(value)),
            None => return Err(format!("{} requires a value", word.display())),
        }
    }
    if progress.is_empty() || progress.len() != receipts.len() {
        return Err("status needs an equal number of --progress and --receipt pairs".to_owned());
    }
    Ok((progress.into_iter().zip(receipts).collect(), json))
}
