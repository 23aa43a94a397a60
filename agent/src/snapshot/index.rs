//! Reads Git's index file (gitformat-index, versions 2 to 4): what was in it, and the stat data it was read with.

use std::os::unix::fs::MetadataExt;

use super::oid::{ObjectFormat, Oid};
use super::{SnapshotError, TreePath};

/// One entry, as stored.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// ctime s, ns, mtime s, ns, dev, ino, mode, uid, gid, size.
    stat: [u32; 10],
    oid: Vec<u8>,
    pub(super) stage: u8,
    pub(super) skip: bool,
    pub(super) path: Vec<u8>,
}

pub(super) const GITLINK: u32 = 0o160_000;
const LINK: u32 = 0o120_000;

impl Entry {
    pub(super) const fn mode(&self) -> u32 {
        self.stat[6]
    }

    pub(super) const fn size(&self) -> u64 {
        self.stat[9] as u64
    }

    pub(super) fn oid(&self) -> Oid {
        Oid::from_raw(&self.oid)
    }

    /// True when both were read from the same version of the file.
    pub(super) fn same_reading(&self, other: &Self) -> bool {
        self.stat == other.stat && self.oid == other.oid
    }

    /// True when `now` is still the file that was read.
    pub(super) fn is_still(&self, now: &std::fs::Metadata) -> bool {
        // The index keeps the low 32 bits; a build of Git without nanoseconds stores zeros.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let seen = [now.ctime() as u32, now.ctime_nsec() as u32, now.mtime() as u32, now.mtime_nsec() as u32];
        let kind = if self.mode() == LINK { now.is_symlink() } else { now.is_file() };
        #[allow(clippy::cast_possible_truncation)]
        let size = now.size() as u32;
        let times = (0..4).all(|at| self.stat[at] == seen[at] || (at % 2 == 1 && self.stat[at] == 0));
        kind && times && size == self.stat[9]
    }
}

/// The entries of an index file.
#[derive(Default)]
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    /// Most entries are in another file (`core.splitIndex`), and only the rest are here.
    pub(super) split: bool,
}

/// Places of flag bits that hide changes from Git (`assume-unchanged`).
type Hiding = Vec<usize>;

impl Index {
    pub(super) fn parse(bytes: &[u8], format: ObjectFormat) -> Result<(Self, Hiding), SnapshotError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.take(4)? != b"DIRC" {
            return Err(damaged("no signature"));
        }
        let (version, count) = (reader.u32()?, reader.u32()?);
        if !(2..=4).contains(&version) {
            return Err(damaged("unknown version"));
        }
        let mut index = Self { entries: Vec::with_capacity(count.min(1 << 22) as usize), split: false };
        let mut hiding = Vec::new();
        let mut previous: Vec<u8> = Vec::new();
        for _ in 0..count {
            let start = reader.at;
            let mut stat = [0; 10];
            for field in &mut stat {
                *field = reader.u32()?;
            }
            let oid = reader.take(format.raw_len())?.to_vec();
            let flags_at = reader.at;
            let flags = reader.u16()?;
            let more = if flags & 0x4000 == 0 { 0 } else { reader.u16()? };
            if flags & 0x8000 != 0 {
                hiding.push(flags_at);
            }
            let path = if version == 4 {
                let strip = reader.varint()?;
                let keep = previous.len().checked_sub(strip).ok_or_else(|| damaged("a prefix is too long"))?;
                [&previous[..keep], reader.until_nul()?].concat()
            } else {
                let path = reader.until_nul()?.to_vec();
                // One to eight zero bytes, so that the entry's length is a multiple of eight.
                let length = reader.at - 1 - start;
                reader.at = start + (length / 8 + 1) * 8;
                path
            };
            previous.clone_from(&path);
            #[allow(clippy::cast_possible_truncation)]
            let stage = ((flags >> 12) & 3) as u8;
            index.entries.push(Entry { stat, oid, stage, skip: more & 0x4000 != 0, path });
        }
        let end = bytes.len().saturating_sub(format.raw_len());
        while reader.at + 8 <= end {
            let name = reader.take(4)?;
            index.split |= name == b"link";
            let length = reader.u32()? as usize;
            reader.take(length)?;
        }
        Ok((index, hiding))
    }

    /// Paths of nested repositories.
    pub(super) fn gitlinks(&self) -> Result<Vec<(TreePath, Oid)>, SnapshotError> {
        let links = self.entries.iter().filter(|entry| entry.mode() == GITLINK && entry.stage == 0);
        links.map(|entry| Ok((TreePath::parse(&entry.path)?, entry.oid()))).collect()
    }

    /// Entries that `before` does not have, or has from another version of the file.
    pub(super) fn read_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Entry> {
        let mut old = before.entries.iter().peekable();
        self.entries.iter().filter(move |entry| {
            while old.next_if(|candidate| candidate.path < entry.path).is_some() {}
            let known =
                old.peek().is_some_and(|candidate| candidate.path == entry.path && candidate.same_reading(entry));
            !known && !entry.skip && entry.mode() != GITLINK
        })
    }
}

fn damaged(detail: &str) -> SnapshotError {
    SnapshotError::Damaged { what: "the index file", detail: detail.to_owned() }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SnapshotError> {
        let end = self.at.checked_add(count).ok_or_else(|| damaged("too long"))?;
        let part = self.bytes.get(self.at..end).ok_or_else(|| damaged("it ends early"))?;
        self.at = end;
        Ok(part)
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        let part = self.take(4)?;
        Ok(u32::from_be_bytes([part[0], part[1], part[2], part[3]]))
    }

    fn u16(&mut self) -> Result<u16, SnapshotError> {
        let part = self.take(2)?;
        Ok(u16::from_be_bytes([part[0], part[1]]))
    }

    /// The offset encoding of packs.
    fn varint(&mut self) -> Result<usize, SnapshotError> {
        let mut byte = self.take(1)?[0];
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            value = value
                .checked_add(1)
                .and_then(|value| value.checked_mul(128))
                .ok_or_else(|| damaged("a number is too large"))?
                + usize::from(byte & 0x7f);
        }
        Ok(value)
    }

    fn until_nul(&mut self) -> Result<&'a [u8], SnapshotError> {
        let rest = self.bytes.get(self.at..).ok_or_else(|| damaged("it ends early"))?;
        let length = memchr::memchr(0, rest).ok_or_else(|| damaged("a name does not end"))?;
        self.at += length + 1;
        Ok(&rest[..length])
    }
}
