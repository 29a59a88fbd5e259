-- name: lock
-- One migrator at a time; released with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('clockhouse ownership', 0));

-- name: versions
-- Which versions this database has seen.
CREATE TABLE IF NOT EXISTS ownership_versions (
    version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: newest
-- Up to where the migrations have come.
SELECT coalesce(max(version), 0) FROM ownership_versions;

-- name: applied
-- Remembers a migration that was applied.
INSERT INTO ownership_versions (version) VALUES (%(version)s);
