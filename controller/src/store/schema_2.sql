-- What an entry is about, so that compaction finds it.
ALTER TABLE journal ADD COLUMN attempt TEXT;
ALTER TABLE journal ADD COLUMN worker TEXT;
UPDATE journal SET attempt = json_extract(body, '$.attempt');
UPDATE journal SET worker = json_extract(body, '$.worker') WHERE attempt IS NULL;
CREATE INDEX journal_by_attempt ON journal (attempt, seq) WHERE attempt IS NOT NULL;
CREATE INDEX journal_by_worker ON journal (worker, seq) WHERE worker IS NOT NULL;
-- How many entries compaction removed: all others must be there.
CREATE TABLE compacted (one INTEGER PRIMARY KEY CHECK (one = 1), entries INTEGER NOT NULL);
INSERT INTO compacted VALUES (1, 0);
-- Attempts past retention whose rows are still to be removed.
CREATE TABLE forgotten (attempt TEXT PRIMARY KEY) WITHOUT ROWID;
PRAGMA user_version = 2;
