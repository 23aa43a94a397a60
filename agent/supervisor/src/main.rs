//! First process of an attempt container: runs the steps that the agent asks for, and outlives the agent.
//! See the library for the protocol.

mod init;

use std::process::ExitCode;

fn main() -> ExitCode {
    init::main()
}
