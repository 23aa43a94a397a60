//! `laneyard contract` as a program of its own, without the rest of `laneyard`: parents start it for every decision.
use std::process::ExitCode;

fn main() -> ExitCode {
    controller::entry::worker_contract(std::env::args_os())
}
