//! `status` under both names: arguments, text and JSON, a killed launcher.

use serde_json::Value;

use crate::desk::{Desk, LANE};

#[test]
fn arguments_are_pairs() {
    let desk = Desk::new();
    for (line, message) in [
        ("status", "status needs an equal number of --progress and --receipt pairs"),
        ("status --progress a", "status needs an equal number"),
        ("status --progress a --receipt b --receipt c", "status needs an equal number"),
        ("status --progress --json", "--progress requires a value"),
        ("status --progress a --receipt", "--receipt requires a value"),
        ("status --progress a --receipt b --watch", "unknown status argument"),
        ("status --help", "unknown status argument"),
    ] {
        let seen = desk.run("pstack-runner", line);
        assert_eq!((seen.code(), seen.out().as_str()), (64, ""), "{line}");
        let error = seen.err();
        assert!(error.starts_with(&format!("error: {message}")), "{line}: {error}");
        assert!(error.contains("Usage: pstack-runner status --progress <file> --receipt <file>"), "{error}");
    }
}

#[test]
fn lanes_are_told_in_the_order_of_their_pairs() {
    let desk = Desk::new();
    desk.run("pstack-runner", &format!("{LANE} --contract strict --progress p.json"));
    for program in ["pstack-runner", "laneyard"] {
        let line = "status --progress p.json --progress none --receipt receipt.json --receipt none.json";
        let seen = desk.run(program, line);
        assert_eq!((seen.code(), seen.err().as_str()), (0, ""));
        let out = seen.out();
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("L1 claude:"), "{out}");
        assert!(lines[0].contains(" terminal unsupported-capability (from receipt) elapsed "), "{out}");
        assert_eq!(lines[1], "L2 unknown: no progress or receipt yet not a failure verdict");
        let json: Value = serde_json::from_str(&desk.run(program, &format!("{line} --json")).out()).unwrap();
        assert_eq!(json["schemaVersion"], 1);
        assert_eq!((&json["lanes"][0]["kind"], &json["lanes"][1]["reason"]), (&"terminal".into(), &"missing".into()));
    }
}
