//! Making the database smaller, in transactions so small that the one writer is never kept waiting long.

use std::str::FromStr as _;

use agent::ids::AttemptId;
use sqlx::{Connection as _, Row as _};

use super::StoreError;
use super::sqlite::{Sqlite, number};
use crate::event::{Entry, Event};

/// Rows of one transaction.
const ROWS: i64 = 500;
/// Pages that are given back to the file system at a time.
const PAGES: u32 = 256;

impl Sqlite {
    /// Attempts whose rows are still to be removed.
    pub(super) async fn forgotten(&self) -> Result<Vec<AttemptId>, StoreError> {
        let rows = sqlx::query("SELECT attempt FROM forgotten").fetch_all(&self.readers).await;
        let names = rows.map_err(|source| self.failed(source))?;
        Ok(names.iter().filter_map(|row| AttemptId::from_str(row.try_get(0).ok()?).ok()).collect())
    }

    /// Digests of the answers that the journal names for an attempt.
    pub(super) async fn answers_of(&self, id: AttemptId) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query("SELECT body FROM journal WHERE attempt = ?").bind(id.to_string());
        let rows = rows.fetch_all(&self.readers).await.map_err(|source| self.failed(source))?;
        let mut digests = Vec::new();
        for row in rows {
            let text: &str = row.try_get(0).map_err(|source| self.failed(source))?;
            let entry: Entry = self.parse(text, || format!("journal of {id}"))?;
            if let Event::AnswerKept { digest, .. } = entry.event {
                digests.push(digest);
            }
        }
        Ok(digests)
    }

    pub(super) async fn trim_events(&self, id: AttemptId, below: u64) -> Result<(), StoreError> {
        const SOME: &str =
            "DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE attempt = ? AND seq < ? LIMIT ?)";
        loop {
            let gone = sqlx::query(SOME).bind(id.to_string()).bind(number(below)).bind(ROWS);
            let gone = gone.execute(&self.writer).await.map_err(|source| self.failed(source))?;
            if gone.rows_affected() == 0 {
                return Ok(());
            }
        }
    }

    pub(super) async fn event_bytes(&self, id: AttemptId, below: u64) -> Result<u64, StoreError> {
        const SUM: &str = "SELECT COALESCE(SUM(LENGTH(body)), 0) FROM events WHERE attempt = ? AND seq < ?";
        let row = sqlx::query(SUM).bind(id.to_string()).bind(number(below)).fetch_one(&self.readers).await;
        let bytes: i64 = row.and_then(|row| row.try_get(0)).map_err(|source| self.failed(source))?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Removes all rows of a forgotten attempt. Its entries go oldest first: until the last one, which says that it is
    /// forgotten, is gone, a replay forgets it again. The journal's newest entry always stays.
    pub(super) async fn remove_forgotten(&self, id: AttemptId) -> Result<(), StoreError> {
        self.trim_events(id, u64::MAX).await?;
        const OLDEST: &str = "DELETE FROM journal WHERE seq IN (SELECT seq FROM journal WHERE attempt = ? \
                              AND seq < (SELECT MAX(seq) FROM journal) ORDER BY seq LIMIT ?)";
        let failed = |source| self.failed(source);
        loop {
            let mut connection = self.writer.acquire().await.map_err(failed)?;
            let mut transaction = connection.begin().await.map_err(failed)?;
            let gone = sqlx::query(OLDEST).bind(id.to_string()).bind(ROWS);
            let gone = gone.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
            if gone > 0 {
                let counted = sqlx::query("UPDATE compacted SET entries = entries + ?").bind(number(gone));
                counted.execute(&mut *transaction).await.map_err(failed)?;
            } else {
                sqlx::query("DELETE FROM assignments WHERE attempt = ?")
                    .bind(id.to_string())
                    .execute(&mut *transaction)
                    .await
                    .map_err(failed)?;
                // If its last entry is the newest of all, it is looked at again later.
                sqlx::query(
                    "DELETE FROM forgotten WHERE attempt = ?1 AND NOT EXISTS \
                             (SELECT 1 FROM journal WHERE attempt = ?1)",
                )
                .bind(id.to_string())
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
            }
            transaction.commit().await.map_err(failed)?;
            if gone == 0 {
                return Ok(());
            }
        }
    }

    /// Removes entries on workers that later ones have overtaken. Only those that are older than every entry of an
    /// attempt: a lease remembers what its worker was like when it began.
    pub(super) async fn remove_overtaken(&self) -> Result<(), StoreError> {
        const OLD: &str = "SELECT seq, body FROM journal WHERE worker IS NOT NULL AND seq < \
            COALESCE((SELECT MIN(seq) FROM journal WHERE attempt IS NOT NULL), (SELECT MAX(seq) FROM journal)) \
            ORDER BY worker, seq";
        let failed = |source| self.failed(source);
        let rows = sqlx::query(OLD).fetch_all(&self.readers).await.map_err(failed)?;
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let (seq, text): (i64, &str) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
            entries.push(self.parse::<Entry>(text, || format!("journal entry {seq}"))?);
        }
        for some in overtaken(&entries).chunks(usize::try_from(ROWS).unwrap_or(1)) {
            let mut connection = self.writer.acquire().await.map_err(failed)?;
            let mut transaction = connection.begin().await.map_err(failed)?;
            for seq in some {
                let gone = sqlx::query("DELETE FROM journal WHERE seq = ?").bind(number(*seq));
                let gone = gone.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
                let counted = sqlx::query("UPDATE compacted SET entries = entries + ?").bind(number(gone));
                counted.execute(&mut *transaction).await.map_err(failed)?;
            }
            transaction.commit().await.map_err(failed)?;
        }
        Ok(())
    }

    /// Gives free pages back to the file system; a database of an older release only reuses them.
    pub(super) async fn shrink(&self) -> Result<(), StoreError> {
        let shrink = format!("PRAGMA incremental_vacuum({PAGES})");
        sqlx::raw_sql(sqlx::AssertSqlSafe(shrink)).execute(&self.writer).await.map_err(|source| self.failed(source))?;
        Ok(())
    }
}

/// Entries, grouped by worker and in order, without which a replay gives the same workers. What stays of each: its
/// newest registration, whether it drains (and the registration before that), and what was last heard of it.
#[must_use]
pub fn overtaken(entries: &[Entry]) -> Vec<u64> {
    let mut overtaken = Vec::new();
    for of_one in entries.chunk_by(|a, b| a.event.worker() == b.event.worker()) {
        let removed = of_one.iter().rposition(|entry| matches!(entry.event, Event::Removed { .. }));
        let (gone, alive) = of_one.split_at(removed.map_or(0, |at| at + 1));
        overtaken.extend(gone.iter().map(|entry| entry.seq));
        let last = |wanted: fn(&Event) -> bool| alive.iter().rposition(|entry| wanted(&entry.event));
        let joined = last(|event| matches!(event, Event::Joined { .. }));
        let steered = last(|event| matches!(event, Event::Steered { .. }));
        let heard = last(|event| matches!(event, Event::Lost { .. } | Event::Found { .. }));
        let before =
            steered.and_then(|at| alive.iter().take(at).rposition(|entry| matches!(entry.event, Event::Joined { .. })));
        let keeps = [joined, steered, heard, before];
        let others = alive.iter().enumerate().filter(|(at, _)| !keeps.contains(&Some(*at)));
        overtaken.extend(others.map(|(_, entry)| entry.seq));
    }
    overtaken
}
