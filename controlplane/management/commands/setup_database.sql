-- name: lock
-- One set-up at a time, whichever process; released when the connection closes.
SELECT pg_advisory_lock(hashtextextended('clockhouse setup', 0));

-- name: create
-- A database of ours that the server lacks.
CREATE DATABASE {database};
