use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == agent::egress::ENTRY) {
        return agent::egress::main(arguments);
    }
    ExitCode::SUCCESS
}
