//! Snapshot text to [`Snapshot`], strict in types, ranges and forms: a hostile file must not look like a lane.

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::KIND;
use super::file::FileRef;
use super::state::{Child, ChildRole, Phase, Signal, Snapshot, State, Terminal};
use crate::event::{Settled, SettledCause, SettledOutcome};
use crate::receipt::iso_millis;

/// Largest integer that every JSON reader keeps exactly.
const SAFE: u64 = (1 << 53) - 1;
const TOKEN_CAP: usize = 128;

type Object = Map<String, Value>;

/// The snapshot, or `None` if anything about it is not exactly as written by a runner.
pub(super) fn decode(text: &str) -> Option<Snapshot> {
    let value: Value = serde_json::from_str(text).ok()?;
    let map = value.as_object()?;
    if map.get("kind")?.as_str()? != KIND || count(map, "schemaVersion")? != 1 {
        return None;
    }
    let runner = map.get("runner")?.as_object()?;
    let activity = map.get("activity")?.as_object()?;
    let updated_at = map.get("updatedAt")?.as_str()?.to_owned();
    iso(&updated_at)?;
    let state = State {
        attempt_id: uuid(map.get("attemptId")?.as_str()?)?,
        provider: map.get("provider")?.as_str()?.parse().ok()?,
        runner_pid: count(runner, "pid").filter(|pid| *pid > 0)?,
        started_at: time(runner, "startedAt")?,
        runner_token: token(runner)?,
        child: nullable(map, "child", child)?,
        retry_wait: map.get("retryWait")?.as_bool()?,
        stdout_bytes: count(activity, "stdoutBytes")?,
        stderr_bytes: count(activity, "stderrBytes")?,
        last_activity_at: match activity.get("lastActivityAt")? {
            Value::Null => None,
            _ => Some(time(activity, "lastActivityAt")?),
        },
        cancel: nullable(map.get("cancellation")?.as_object()?, "requested", cancel)?,
        settled: nullable(map, "childSettled", settled)?,
        terminal: nullable(map, "terminal", |end| {
            Some(Terminal { at: time(end, "at")?, receipt_written: end.get("receiptWritten")?.as_bool()? })
        })?,
        receipt: nullable(map, "receiptRef", |file| {
            Some(FileRef { dev: count(file, "dev")?, ino: count(file, "ino")? })
        })?,
    };
    let phase = map.get("phase")?.as_str()?;
    let phase = *Phase::ALL.iter().find(|known| known.as_str() == phase)?;
    Some(Snapshot { seq: count(map, "seq")?, updated_at, phase, state })
}

/// Null, or an object that `read` accepts; a missing key is neither.
#[expect(clippy::option_option, reason = "outer: acceptable; inner: null")]
fn nullable<T>(map: &Object, key: &str, read: impl FnOnce(&Object) -> Option<T>) -> Option<Option<T>> {
    match map.get(key)? {
        Value::Null => Some(None),
        Value::Object(inner) => read(inner).map(Some),
        _ => None,
    }
}

fn child(map: &Object) -> Option<Child> {
    Some(Child {
        role: match map.get("role")?.as_str()? {
            "preflight" => ChildRole::Preflight,
            "workload" => ChildRole::Workload,
            _ => return None,
        },
        pid: count(map, "pid").filter(|pid| *pid > 0)?,
        start_token: token(map)?,
        running: map.get("running")?.as_bool()?,
        exit_code: match map.get("exitCode")? {
            Value::Null => None,
            _ => Some(count(map, "exitCode")?),
        },
        drained: map.get("drained")?.as_bool()?,
    })
}

fn cancel(map: &Object) -> Option<(Signal, OffsetDateTime)> {
    let signal = match map.get("signal")?.as_str()? {
        "SIGINT" => Signal::Int,
        "SIGTERM" => Signal::Term,
        _ => return None,
    };
    Some((signal, time(map, "at")?))
}

fn settled(map: &Object) -> Option<(Settled, OffsetDateTime)> {
    let outcome = match map.get("outcome")?.as_str()? {
        "signalled-and-exited" => SettledOutcome::SignalledAndExited,
        "already-exited" => SettledOutcome::AlreadyExited,
        _ => return None,
    };
    let cause = match map.get("cause")?.as_str()? {
        "cancel" => SettledCause::Cancel,
        "deadline" => SettledCause::Deadline,
        _ => return None,
    };
    Some((Settled { outcome, cause }, time(map, "at")?))
}

/// A whole number from 0 to 2^53 - 1, however it is spelled.
fn count(map: &Object, key: &str) -> Option<u64> {
    let value = map.get(key)?;
    let whole = value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exact")]
        let fits = float.fract() == 0.0 && (0.0..=SAFE as f64).contains(&float);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        fits.then_some(float as u64)
    })?;
    (whole <= SAFE).then_some(whole)
}

fn time(map: &Object, key: &str) -> Option<OffsetDateTime> {
    iso(map.get(key)?.as_str()?)
}

/// Exactly the form that a runner writes; text around it, or a date that does not exist, is refused.
fn iso(text: &str) -> Option<OffsetDateTime> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    (iso_millis(at) == text).then_some(at)
}

#[expect(clippy::option_option, reason = "outer: acceptable; inner: null")]
fn token(map: &Object) -> Option<Option<String>> {
    match map.get("startToken")? {
        Value::Null => Some(None),
        Value::String(text) => is_token(text).then(|| Some(text.clone())),
        _ => None,
    }
}

/// Printable ASCII, at most 128 characters.
pub(super) fn is_token(text: &str) -> bool {
    text.len() <= TOKEN_CAP && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}

fn uuid(text: &str) -> Option<String> {
    let form = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    form.then(|| text.to_owned())
}
