//! Help of a lane, under either name.

const FLAGS: &str = "  --mode read-only|isolated-write   what the lane may do with --cwd
  --parent claude|codex             the harness that owns the repository
  --provider NAME                   claude codex grok devin cursor antigravity opencode
  --model MODEL                     passed to the CLI as its driver maps it
  --effort LEVEL                    low medium high xhigh max default
  --prompt FILE                     the task
  --cwd DIR                         the working directory of the lane
  --output FILE                     fresh path of the final answer
  --receipt FILE                    fresh path of the receipt

Optional:
  --timeout SECONDS                 deadline from now on; none if absent
  --api-spend deny|approved         permission to use a metered route
  --contract legacy|strict          default legacy
  --execution-id TEXT               default: the receipt's path
  --progress FILE                   fresh path of a snapshot that `status` reads
  --opencode-chatgpt-subscription   OpenCode with openai/gpt-6.1-sol, effort default and --api-spend deny only
  -h, --help                        this text
";

const OWN: &str = "
Where and how it runs:
  --engine NAME|ADDRESS             docker, podman, or the address of an engine's socket; without a controller
  --image REFERENCE                 image of the provider's CLI
  --instance ID                     configured account
  --inner-sandbox prefer|require|off
  --memory SIZE  --pids N  --cpus N  --output-limit SIZE  --scratch SIZE
  --allow-host HOST[:PORT]          beside the driver's own; may be repeated
  --controller URL                  send the lane there instead of to this machine's engine
  --worktree snapshot|direct        with a controller: the directory travels, or the worker shares this file system
                                    (then without the next three)
  --history N|full                  generations of history that travel
  --ref REF                         a ref that travels too; may be repeated
  --lfs pointers|fetch-if-local     what becomes of pointers to large files
  --require LABEL=VALUE             the controller's worker must carry it; may be repeated
  --on-lost wait|fail               when the worker of a started attempt is lost: wait for it (default), or end
                                    with a receipt that claims no settled child
  --ca FILE                         authority that the controller's certificate must be of
  --token-file FILE                 proves who we are to the controller: a token,
  --client-cert FILE  --client-key FILE   or a certificate
  --state-dir DIR                   where attempts are kept
  --verbose, --quiet                talk on stderr: always, never; else on a terminal
  --json                            accepted; stdout is the receipt's JSON anyway
";

const EXITS: &str = "
Exit: 0 delivered, 64 usage, 65 malformed output, 69 CLI or model unavailable, 70 child or launcher failed,
75 usage exhausted, 77 unauthenticated, 78 blocked by the spend policy, 79 unsupported capability, 124 deadline,
130 cancelled. A receipt is one JSON line: on stdout for 0, else on stderr.
";

const FULL: &str = "Without one: 74, the controller's disk is full, and the same call may succeed later.
";

/// The whole text.
#[must_use]
pub fn text(compatible: bool) -> String {
    let name = if compatible { "pstack-runner" } else { "laneyard run" };
    let status = name.replace(" run", "");
    let (own, full) = if compatible { ("", "") } else { (OWN, FULL) };
    format!(
        "Usage: {name} FLAGS\n       {status} status --progress FILE --receipt FILE ... [--json]\n\nRuns exactly one lane.\n\n{FLAGS}{own}{EXITS}{full}"
    )
}
