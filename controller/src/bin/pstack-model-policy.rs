//! `laneyard policy` as a program of its own, without the rest of `laneyard`: parents start it for every decision.
use std::process::ExitCode;

fn main() -> ExitCode {
    controller::entry::model_policy(std::env::args_os())
}
