-- name: look
-- What this cluster does now: in recovery?, replayed, received, whether a receiver is there (as a
-- process or as one that streams), what the startup process waits for, the epoch it has voted for,
-- whom it follows, where it writes.
SELECT pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text ELSE pg_current_wal_flush_lsn()::text END,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()::text END,
       EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walreceiver')
           OR EXISTS (SELECT FROM pg_stat_wal_receiver WHERE pid IS NOT NULL),
       (SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'startup'),
       coalesce(nullif(current_setting('clockhouse.voted_epoch', true), ''), '0')::bigint,
       coalesce(current_setting('clockhouse.followed', true), ''),
       current_setting('primary_conninfo') <> '',
       (SELECT status FROM pg_stat_wal_receiver LIMIT 1);

-- name: timeline
-- The newest timeline this cluster has any of the log of.
SELECT coalesce(max(substr(name, 1, 8)), '00000001') FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}(\.partial)?$';

-- name: history
-- The forks that led to a timeline; null where it has no such file.
SELECT pg_read_file('pg_wal/' || %(name)s, true);

-- name: histories
-- Timelines that this cluster has a history of.
SELECT substr(name, 1, 8) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{8}\.history$' ORDER BY name;

-- name: history_place
-- Takes a timeline's number: a history file that begins where no cluster of ours is any more, so that no recovery
-- ever chooses it.
COPY (SELECT 1, '0/1'::pg_lsn, {reason}) TO {path};

-- name: data_directory
-- Where this cluster's files are, as its server sees them.
SELECT current_setting('data_directory');

-- name: vote_persist
-- Survives restarts, as the next two do. One statement each: ALTER SYSTEM shares a string with none.
ALTER SYSTEM SET "clockhouse.voted_epoch" = {value};

-- name: follow_whom
-- The primary that this cluster reads from; empty: none.
ALTER SYSTEM SET primary_conninfo = {value};

-- name: follow_named
-- The same for people and for comparing: site and epoch.
ALTER SYSTEM SET "clockhouse.followed" = {value};

-- name: follow_slot
-- The place at the primary that keeps the log for this cluster.
ALTER SYSTEM SET primary_slot_name = {value};

-- name: synchronous
-- Which standbys may confirm a commit that waits for one.
ALTER SYSTEM SET synchronous_standby_names = {value};

-- name: synchronous_now
-- Which do.
SELECT current_setting('synchronous_standby_names');

-- name: reload
-- Makes the running server read its settings again.
SELECT pg_reload_conf();

-- name: slots
-- Slots that keep the log for standbys: (name, active, lost).
SELECT slot_name, active, coalesce(wal_status = 'lost', false) FROM pg_replication_slots WHERE slot_type = 'physical';

-- name: slot_create
-- A slot for another site. It holds nothing until that site comes for the first time.
SELECT pg_create_physical_replication_slot(%(slot)s, false);

-- name: slot_drop
-- A slot that lost what it kept is made anew: its site needs a base backup anyway.
SELECT pg_drop_replication_slot(%(slot)s);

-- name: promote
-- Ends recovery; true once this cluster takes writes.
SELECT pg_promote(true, %(seconds)s);

-- name: standbys
-- Who follows this primary: (name, state, flushed, bytes behind, sync state).
SELECT application_name, state, flush_lsn::text,
       pg_wal_lsn_diff(pg_current_wal_flush_lsn(), coalesce(flush_lsn, '0/0'::pg_lsn))::bigint, sync_state
FROM pg_stat_replication WHERE application_name <> ''
ORDER BY application_name;

-- name: last_commits
-- The newest commit this cluster made as a primary, and the newest it replayed as a standby (kept by a promotion).
SELECT CASE WHEN NOT pg_is_in_recovery() AND current_setting('track_commit_timestamp')::boolean
            THEN extract(epoch FROM (pg_last_committed_xact()).timestamp)::float8 END,
       extract(epoch FROM pg_last_xact_replay_timestamp())::float8;
