//! `laneyard`: a doorbell.
use std::process::ExitCode;

fn main() -> ExitCode {
    controller::entry::run(std::env::args_os())
}
