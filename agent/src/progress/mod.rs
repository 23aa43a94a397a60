//! Lifecycle of an attempt as its caller can watch it before the receipt exists (runner section 7): the snapshot file,
//! who may write it, and the verdict that a reader may draw. A snapshot is an observation, never proof of a result.

mod decode;
mod file;
pub mod probe; // is that process still the one that was seen
mod render;
mod report;
mod state;
mod verdict;
mod writer;

pub use file::{FileRef, Unreadable};
pub use render::{Rendered, lanes_json, render, text_line};
pub use report::{Reporter, TokenSource, system_tokens};
pub use state::{Change, Child, ChildRole, Phase, Signal, Snapshot, State, Terminal};
pub use verdict::{ChildVerdict, LaneView, UnknownReason, lane_view};
pub use writer::{ACTIVITY_INTERVAL, SNAPSHOT_CAP, Writer};

/// `kind` of every snapshot.
pub const KIND: &str = "pstack-runner-progress";
