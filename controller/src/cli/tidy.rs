//! Retention on a machine that nobody serves: no process of ours stays there that could have a timer. A command that has done
//! its work looks at a stamp, and once in a while starts a process that applies the rules.

use std::fs::File;
use std::process::ExitCode;
use std::time::SystemTime;

use agent::config::Config;

use super::{adopt, gc, output};

/// Hidden command of the process that tidies.
pub const COMMAND: &str = "__tidy";
/// Its time is when the rules were last applied here by this way.
const STAMP: &str = "tidied";

/// Starts the tidying process if its time has come, and does not wait for it. A machine without attempts stays untouched.
pub fn in_background(config: &Config) {
    if !config.state_dir.join("attempts").is_dir() {
        return;
    }
    let path = config.state_dir.join(STAMP);
    let last = path.metadata().and_then(|meta| meta.modified()).ok();
    // Of a clock that went back nothing is known: the time has come.
    let rests = |last: SystemTime| last.elapsed().is_ok_and(|since| since < config.retention.every);
    if last.is_some_and(rests) {
        return;
    }
    // Before the process starts: the next command starts no second one, and one that fails is not tried at once.
    let stamped = File::options().create(true).truncate(false).write(true).open(&path);
    if let Err(error) = stamped.and_then(|stamp| stamp.set_modified(SystemTime::now())) {
        tracing::debug!(%error, "retention waits for `laneyard gc`");
        return;
    }
    // Where it was never applied nothing is old yet.
    if last.is_some() {
        adopt::start(config, COMMAND);
    }
}

/// The tidying process: what `laneyard gc` does for this machine.
pub async fn main(config: &Config) -> ExitCode {
    let here = Config { controller: None, ..config.clone() };
    match gc::Gc::unasked().run(&here).await {
        Ok(code) => code,
        Err(error) => {
            output::failure(error.as_ref());
            ExitCode::FAILURE
        }
    }
}
