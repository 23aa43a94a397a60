//! Records in SQLite: write-ahead log, every commit synced, one connection that writes.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::assignment::Assignment;
use agent::event::Event;
use agent::ids::AttemptId;
use futures_util::TryStreamExt as _;
use serde::de::DeserializeOwned;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection as _, Row as _};

use super::StoreError;
use crate::event::{Entry, Event as Happened};
use crate::identity::Credential;
use crate::reactor::Effects;

/// Scripts that bring a database from schema `index` to `index + 1`. Never edited, only added to.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
/// A read stops after so many bytes of events.
const STRETCH_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct Sqlite {
    path: PathBuf,
    /// The one connection that writes.
    pub(super) writer: SqlitePool,
    pub(super) readers: SqlitePool,
}

impl Sqlite {
    pub(super) async fn open(path: &Path) -> Result<Self, StoreError> {
        // SQLite gives its companion files the mode of the database.
        let private = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        private.map_err(|source| failure(path, sqlx::Error::Io(source)))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10));
        let failed = |source| failure(path, source);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone().auto_vacuum(SqliteAutoVacuum::Incremental))
            .await
            .map_err(failed)?;
        let sqlite = Self {
            path: path.to_owned(),
            writer,
            readers: SqlitePoolOptions::new().max_connections(4).connect_lazy_with(options.read_only(true)),
        };
        sqlite.migrate().await?;
        Ok(sqlite)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let failed = |source| self.failed(source);
        let mut connection = self.writer.acquire().await.map_err(failed)?;
        let row = sqlx::query("PRAGMA user_version").fetch_one(&mut *connection).await.map_err(failed)?;
        let found: i64 = row.try_get(0).map_err(failed)?;
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        if found > known {
            return Err(StoreError::Newer { path: self.path.clone(), found, known });
        }
        for script in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
            let mut transaction = connection.begin().await.map_err(failed)?;
            sqlx::raw_sql(*script).execute(&mut *transaction).await.map_err(failed)?;
            transaction.commit().await.map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn failed(&self, source: sqlx::Error) -> StoreError {
        failure(&self.path, source)
    }

    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        text: &str,
        place: impl FnOnce() -> String,
    ) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| StoreError::Damaged {
            path: self.path.clone(),
            place: place(),
            reason: error.to_string(),
        })
    }

    pub(super) async fn commit(&self, effects: &Effects) -> Result<(), StoreError> {
        let failed = |source| self.failed(source);
        let unserializable = |error: serde_json::Error| self.failed(sqlx::Error::Encode(error.into()));
        let mut transaction = self.writer.begin().await.map_err(failed)?;
        for (id, assignment) in &effects.assignments {
            let text = serde_json::to_string(assignment).map_err(unserializable)?;
            sqlx::query("INSERT INTO assignments (attempt, body) VALUES (?, ?)")
                .bind(id.to_string())
                .bind(text)
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
        }
        for (id, events) in &effects.events {
            let id = id.to_string();
            for event in events {
                let text = serde_json::to_string(event).map_err(unserializable)?;
                sqlx::query("INSERT INTO events (attempt, seq, body) VALUES (?, ?, ?)")
                    .bind(&id)
                    .bind(number(event.seq))
                    .bind(text)
                    .execute(&mut *transaction)
                    .await
                    .map_err(failed)?;
            }
        }
        for entry in &effects.journal {
            let text = serde_json::to_string(entry).map_err(unserializable)?;
            sqlx::query("INSERT INTO journal (seq, body, attempt, worker) VALUES (?, ?, ?, ?)")
                .bind(number(entry.seq))
                .bind(text)
                .bind(entry.event.attempt().map(|id| id.to_string()))
                .bind(entry.event.worker().map(ToString::to_string))
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
            if let Happened::Forgotten { attempt } = &entry.event {
                sqlx::query("INSERT OR IGNORE INTO forgotten (attempt) VALUES (?)")
                    .bind(attempt.to_string())
                    .execute(&mut *transaction)
                    .await
                    .map_err(failed)?;
            }
        }
        transaction.commit().await.map_err(failed)
    }

    pub(super) async fn journal(&self) -> Result<Vec<Entry>, StoreError> {
        let damaged = |place: String, reason: &str| StoreError::Damaged {
            path: self.path.clone(),
            place,
            reason: reason.to_owned(),
        };
        let mut connection = self.writer.acquire().await.map_err(|source| self.failed(source))?;
        let counted = sqlx::query("SELECT entries FROM compacted").fetch_one(&mut *connection).await;
        let removed: i64 = counted.and_then(|row| row.try_get(0)).map_err(|source| self.failed(source))?;
        let mut rows = sqlx::query("SELECT seq, body FROM journal ORDER BY seq").fetch(&mut *connection);
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(row) = rows.try_next().await.map_err(|source| self.failed(source))? {
            let seq: i64 = row.try_get(0).map_err(|source| self.failed(source))?;
            let text: &str = row.try_get(1).map_err(|source| self.failed(source))?;
            let entry: Entry = self.parse(text, || format!("journal entry {seq}"))?;
            if entry.seq != u64::try_from(seq).unwrap_or(0) {
                return Err(damaged(format!("journal entry {seq}"), "it carries another number"));
            }
            entries.push(entry);
        }
        // Each number was written once: what is not here was removed on purpose, or is missing.
        let newest = entries.last().map_or(0, |entry| entry.seq);
        let known = entries.len() as u64 + u64::try_from(removed).unwrap_or(0);
        if known != newest {
            let hole = (1..).zip(&entries).find(|(number, entry)| *number != entry.seq).map_or(newest, |(at, _)| at);
            return Err(damaged(format!("journal entry {hole}"), "an entry is missing"));
        }
        Ok(entries)
    }

    pub(super) async fn credentials(&self) -> Result<Vec<Credential>, StoreError> {
        let rows = sqlx::query("SELECT id, body FROM credentials").fetch_all(&self.writer);
        let rows = rows.await.map_err(|source| self.failed(source))?;
        let read = |row: &sqlx::sqlite::SqliteRow| {
            let id: &str = row.try_get(0).map_err(|source| self.failed(source))?;
            let text: &str = row.try_get(1).map_err(|source| self.failed(source))?;
            self.parse(text, || format!("credential {id}"))
        };
        rows.iter().map(read).collect()
    }

    pub(super) async fn keep_credentials(&self, credentials: &[Credential]) -> Result<(), StoreError> {
        let failed = |source| self.failed(source);
        let mut transaction = self.writer.begin().await.map_err(failed)?;
        for credential in credentials {
            let text = serde_json::to_string(credential).map_err(|e| failed(sqlx::Error::Encode(e.into())))?;
            sqlx::query("INSERT OR REPLACE INTO credentials (id, body) VALUES (?, ?)")
                .bind(&credential.id)
                .bind(text)
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    pub(super) async fn forget_credentials(&self, ids: &[String]) -> Result<(), StoreError> {
        for id in ids {
            let delete = sqlx::query("DELETE FROM credentials WHERE id = ?").bind(id).execute(&self.writer);
            delete.await.map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    pub(super) async fn assignment(&self, id: AttemptId) -> Result<Option<Assignment>, StoreError> {
        let row = sqlx::query("SELECT body FROM assignments WHERE attempt = ?")
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(|source| self.failed(source))?;
        let Some(row) = row else { return Ok(None) };
        let text: &str = row.try_get(0).map_err(|source| self.failed(source))?;
        self.parse(text, || format!("assignment of {id}")).map(Some)
    }

    pub(super) async fn events(&self, id: AttemptId, after: u64, max: usize) -> Result<Vec<Event>, StoreError> {
        let mut rows = sqlx::query("SELECT seq, body FROM events WHERE attempt = ? AND seq > ? ORDER BY seq LIMIT ?")
            .bind(id.to_string())
            .bind(number(after))
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .fetch(&self.readers);
        let mut events = Vec::new();
        let mut bytes = 0;
        while let Some(row) = rows.try_next().await.map_err(|source| self.failed(source))? {
            let seq: i64 = row.try_get(0).map_err(|source| self.failed(source))?;
            let text: &str = row.try_get(1).map_err(|source| self.failed(source))?;
            bytes += text.len();
            events.push(self.parse(text, || format!("event {seq} of {id}"))?);
            if bytes >= STRETCH_BYTES {
                break;
            }
        }
        Ok(events)
    }
}

pub(super) fn number(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

fn failure(path: &Path, source: sqlx::Error) -> StoreError {
    // 13 is SQLITE_FULL; a full disk under the write-ahead log may also surface as a failed write (778).
    let code = source.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    match code.as_deref() {
        Some("13" | "778") => StoreError::Full { path: path.to_owned() },
        _ => StoreError::Database { path: path.to_owned(), source },
    }
}
