//! What a provider can be told to do.

/// One line of a script: a name in kebab case, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// `ignores-stdin`: exits, or does the rest, without reading the prompt. Not in a prompt.
    IgnoresStdin,
    /// `ignores-term`: ignores INT, TERM and HUP, and never ends.
    IgnoresTerm,
    /// `hangs`: never ends, but dies of a signal.
    Hangs,
    /// `sleeps MILLISECONDS`.
    Sleeps(u64),
    /// `forks-daemons COUNT`: processes in sessions of their own, which ignore TERM and hold stdout and stderr.
    ForksDaemons(u64),
    /// `floods BYTES`: so much of records that mean nothing, on stdout.
    Floods(u64),
    /// `floods-stderr BYTES`.
    FloodsStderr(u64),
    /// `long-line BYTES`: one record of that length, on stdout.
    LongLine(u64),
    /// `non-utf8`: a record with bytes that are no text, and such bytes on stderr.
    NonUtf8,
    /// `noise TEXT`: a line that is no record.
    Noise(String),
    /// `closes-stdout-early MILLISECONDS`: the result, end of stdout, and only after that time the exit.
    ClosesStdoutEarly(u64),
    /// `closes-stdout-unfinished`: end of stdout without a result; the exit is 0.
    ClosesStdoutUnfinished,
    /// `no-result`: exits with 0 and without a result.
    NoResult,
    /// `eats-memory [BYTES]`: touches so much, or ever more.
    EatsMemory(u64),
    /// `eats-memory-in-a-child`: a child does, and the provider outlives it.
    EatsMemoryInAChild,
    /// `eats-pids`: starts processes until it cannot, and says how many.
    EatsPids,
    /// `touches-forbidden`: tries what a container must not allow, and says what was.
    TouchesForbidden,
    /// `tells-environment`: says all its variables.
    TellsEnvironment,
    /// `writes FILE TEXT`: in the working directory.
    Writes {
        file: String,
        text: String,
    },
    /// `appends FILE TEXT`: a line; counts invocations.
    Appends {
        file: String,
        text: String,
    },
    /// `says TEXT`: as the final answer; `\n` is a new line.
    Says(String),
    /// `reports MODEL`: instead of the one that was asked for.
    Reports(String),
    /// `fails MESSAGE`: the CLI's own error result, exit 1.
    Fails(String),
    /// `exits CODE`: at once.
    Exits(u8),
    /// `dies SIGNAL`: at once.
    Dies(i32),
    /// `preflight-says TEXT`, `preflight-exits CODE`, `preflight-hangs`: instead of passing. Not in a prompt.
    PreflightSays(String),
    PreflightExits(u8),
    PreflightHangs,
    /// A line that means nothing: told, and the exit is 70.
    Unknown(String),
}

/// The lines in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) acts: Vec<Act>,
}

impl Script {
    pub(crate) fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        Self { acts: lines.map(str::trim).filter(|line| !line.is_empty()).map(parse).collect() }
    }
}

fn parse(line: &str) -> Act {
    let (name, rest) = line.split_once(' ').map_or((line, ""), |(name, rest)| (name, rest.trim()));
    understand(name, rest).unwrap_or_else(|| Act::Unknown(line.to_owned()))
}

fn understand(name: &str, rest: &str) -> Option<Act> {
    let number = || rest.parse::<u64>().ok();
    let text = || rest.replace("\\n", "\n");
    let file_and_text = || {
        let (file, text) = rest.split_once(' ').unwrap_or((rest, ""));
        (!file.is_empty()).then(|| (file.to_owned(), text.to_owned()))
    };
    Some(match name {
        "no-op" => Act::Sleeps(0),
        "ignores-stdin" => Act::IgnoresStdin,
        "ignores-term" => Act::IgnoresTerm,
        "hangs" => Act::Hangs,
        "sleeps" => Act::Sleeps(number()?),
        "forks-daemons" => Act::ForksDaemons(number().unwrap_or(1)),
        "floods" => Act::Floods(number()?),
        "floods-stderr" => Act::FloodsStderr(number()?),
        "long-line" => Act::LongLine(number().unwrap_or(64 << 20)),
        "non-utf8" => Act::NonUtf8,
        "noise" => Act::Noise(text()),
        "closes-stdout-early" => Act::ClosesStdoutEarly(number().unwrap_or(500)),
        "closes-stdout-unfinished" => Act::ClosesStdoutUnfinished,
        "no-result" => Act::NoResult,
        "eats-memory" => Act::EatsMemory(number().unwrap_or(u64::MAX)),
        "eats-memory-in-a-child" => Act::EatsMemoryInAChild,
        "eats-pids" => Act::EatsPids,
        "touches-forbidden" => Act::TouchesForbidden,
        "tells-environment" => Act::TellsEnvironment,
        "writes" => file_and_text().map(|(file, text)| Act::Writes { file, text })?,
        "appends" => file_and_text().map(|(file, text)| Act::Appends { file, text })?,
        "says" => Act::Says(text()),
        "reports" => Act::Reports(rest.to_owned()),
        "fails" => Act::Fails(text()),
        "exits" => Act::Exits(rest.parse().ok()?),
        "dies" => Act::Dies(rest.parse().ok()?),
        "preflight-says" => Act::PreflightSays(text()),
        "preflight-exits" => Act::PreflightExits(rest.parse().ok()?),
        "preflight-hangs" => Act::PreflightHangs,
        _ => return None,
    })
}
