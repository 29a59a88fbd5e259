-- name: transfer_open
-- A side of a move (tenant_id, move_id, side): this attempt begins, over what an earlier one left.
INSERT INTO transfers AS t (tenant_id, move_id, side, attempt, state, peer, tenant_epoch, cell_epoch, link, conninfo, facts)
SELECT %(tenant)s, %(move)s, %(side)s, %(attempt)s, 'PREPARED', %(peer)s, %(epoch)s, c.epoch, %(link)s, %(conninfo)s,
       %(facts)s::jsonb
FROM cell c WHERE c.lease_until IS NULL OR c.lease_until > clock_timestamp()
ON CONFLICT (tenant_id, move_id, side) DO UPDATE SET
    attempt = excluded.attempt, state = 'PREPARED', peer = excluded.peer, tenant_epoch = excluded.tenant_epoch,
    cell_epoch = excluded.cell_epoch, link = excluded.link, conninfo = excluded.conninfo, facts = excluded.facts,
    sealed_lsn = NULL, new_epoch = NULL, touched_at = clock_timestamp()
WHERE t.attempt < excluded.attempt OR t.state IN ('UNDONE', 'PREPARED')
RETURNING attempt;

-- name: transfer_get
-- A side of a move (tenant_id, move_id, side), and this cell's epoch and the tenant's state.
SELECT t.attempt, t.state, t.peer, t.peer_url, t.tenant_epoch, t.cell_epoch, t.link, t.conninfo, t.sealed_lsn::text,
       t.new_epoch, t.facts, t.touched_at, c.epoch, n.state, n.ownership_epoch, n.barrier_until, t.began_at
FROM transfers t CROSS JOIN cell c LEFT JOIN tenants n ON n.tenant_id = t.tenant_id
WHERE t.tenant_id = %(tenant)s AND t.move_id = %(move)s AND t.side = %(side)s;

-- name: transfer_touch
-- The control plane is at it (tenant_id, move_id).
UPDATE transfers SET touched_at = clock_timestamp()
WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND side = %(side)s;

-- name: transfer_state
-- A side (tenant_id, move_id, side) goes on to another state; facts are added.
UPDATE transfers SET state = %(to)s, facts = facts || %(facts)s::jsonb, peer_url = coalesce(%(peer_url)s, peer_url)
WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND side = %(side)s AND state = ANY(%(froms)s::text[])
RETURNING state;

-- name: transfer_hold
-- The tenant (tenant_id) is held by a move: it takes no word about its state but that of the move.
UPDATE tenants SET move_id = %(move)s, updated_at = now()
WHERE tenant_id = %(tenant)s AND ownership_epoch = %(epoch)s AND state IN ('ACTIVE', 'SUSPENDED')
  AND (move_id IS NULL OR move_id = %(move)s)
RETURNING state;

-- name: transfer_kept_apart
-- The local stores that may hold rows of the tenant (tenant_id). No new one is used while a move holds it.
SELECT store FROM local_stores WHERE tenant_id = %(tenant)s ORDER BY store;

-- name: transfer_awaited
-- The tenant is known here (tenant_id) as one that lives elsewhere, so that nothing is done for its rows.
INSERT INTO tenants AS t (tenant_id, state, ownership_epoch, config_version, config, told_state, move_id)
SELECT %(tenant)s, 'MOVED', %(epoch)s, %(version)s, %(config)s::jsonb, %(told)s, %(move)s
WHERE NOT EXISTS (SELECT FROM erased_tenants WHERE tenant_id = %(tenant)s)
ON CONFLICT (tenant_id) DO UPDATE SET
    state = 'MOVED', ownership_epoch = excluded.ownership_epoch, config_version = excluded.config_version,
    config = excluded.config, told_state = excluded.told_state, move_id = excluded.move_id, updated_at = now()
WHERE t.state = 'MOVED' AND (t.move_id IS NULL OR t.move_id = excluded.move_id OR NOT EXISTS (
    SELECT FROM transfers o WHERE o.tenant_id = t.tenant_id AND o.move_id = t.move_id AND o.state NOT IN ('DONE', 'UNDONE')))
RETURNING tenant_id;

-- name: link_schema
-- What both cells must have alike before a tenant moves: the migrations that were applied. And this cell's
-- epoch, database, and the days of runs that it keeps apart. Names no tenant's rows.
SELECT c.epoch, current_database(),
       (SELECT string_agg(name || checksum, ' ' ORDER BY name) FROM schema_migrations),
       (SELECT array_agg(to_date(right(k.relname, 8), 'YYYYMMDD')::text ORDER BY 1)
        FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
        WHERE i.inhparent = 'runs'::regclass AND k.relname ~ '^runs_[0-9]{8}$'),
       pg_current_wal_lsn()::text
FROM cell c;

-- name: link_days
-- Days of runs that a tenant brings along, but those that have left this cell.
SELECT ensure_day_partition('runs', d::date,
                            'fillfactor=80, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0')
FROM unnest(%(days)s::text[]) AS d
WHERE NOT EXISTS (SELECT FROM lake_days l WHERE l.day = d::date AND l.dropped_at IS NOT NULL);

-- name: transfer_publish
-- The publication of a tenant's rows, and the role that may read them.
SELECT transfer_publish(%(link)s, %(tenant)s, %(tables)s::text[], %(password)s);

-- name: link_slot
-- The place in the log from which a tenant's changes are kept for the other side, unless there is one.
SELECT pg_create_logical_replication_slot(%(link)s, 'pgoutput')
WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %(link)s);

-- name: link_slot_state
-- How far a tenant's changes have been read, how much log they hold back, and whether it is lost.
SELECT active, wal_status, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = %(link)s;

-- name: link_slot_readers
-- Ends whoever still reads a tenant's changes.
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
WHERE slot_name = %(link)s AND active_pid IS NOT NULL;

-- name: link_role_readers
-- Ends the sessions of the role that reads a tenant's rows.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %(link)s;

-- name: link_slot_drop
-- Keeps no more log for a tenant's changes.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name = %(link)s AND active_pid IS NULL;

-- name: link_sync_slots_drop
-- Slots that copying a table of some tenant left behind when its cell went away; not while another is copied.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name ~ '^pg_[0-9]+_sync_' AND database = current_database() AND active_pid IS NULL
  AND NOT EXISTS (SELECT FROM transfers WHERE side = 'SOURCE' AND state = 'PUBLISHED');

-- name: link_unpublish
-- Takes a tenant's publication and role back.
SELECT transfer_unpublish(%(link)s);

-- name: link_subscribe
-- Begins to copy a tenant.
SELECT transfer_subscribe(%(link)s, %(conninfo)s);

-- name: link_unsubscribe
-- Copies no more of a tenant.
SELECT transfer_unsubscribe(%(link)s);

-- name: link_copying
-- How far copying a tenant has come: tables, those that are complete, rows and bytes of those under way, and
-- whether it was given up.
SELECT (SELECT count(*) FROM pg_subscription_rel r WHERE r.srsubid = s.oid)::int,
       (SELECT count(*) FROM pg_subscription_rel r WHERE r.srsubid = s.oid AND r.srsubstate = 'r')::int,
       coalesce((SELECT sum(p.tuples_processed) FROM pg_stat_progress_copy p
                 WHERE p.datid = s.subdbid AND p.type = 'CALLBACK'), 0)::bigint,
       coalesce((SELECT sum(p.bytes_processed) FROM pg_stat_progress_copy p
                 WHERE p.datid = s.subdbid AND p.type = 'CALLBACK'), 0)::bigint,
       s.subenabled,
       (SELECT array_agg(c.relname::text) FROM pg_subscription_rel r JOIN pg_class c ON c.oid = r.srrelid
        WHERE r.srsubid = s.oid AND r.srsubstate IN ('s', 'r', 'f'))
FROM pg_subscription s
WHERE s.subname = %(link)s AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: transfer_counts
-- Rows of a tenant in some tables.
SELECT name, transfer_count(name, %(tenant)s) FROM unnest(%(tables)s::text[]) AS name;

-- name: transfer_barrier
-- Nothing new begins for the tenant (tenant_id) until the move goes on or the time is over.
UPDATE tenants n SET state = 'BARRIER', barrier_until = clock_timestamp() + %(ms)s * interval '1 millisecond', updated_at = now()
FROM cell c
WHERE n.tenant_id = %(tenant)s AND n.move_id = %(move)s AND n.ownership_epoch = %(epoch)s
  AND n.state IN ('ACTIVE', 'SUSPENDED', 'BARRIER') AND (c.lease_until IS NULL OR c.lease_until > clock_timestamp())
RETURNING n.barrier_until;

-- name: transfer_seal
-- Nothing at all is written for the tenant (tenant_id) any more; only from a barrier that still stands.
UPDATE tenants n SET state = 'SEALED', barrier_until = NULL, updated_at = now()
FROM cell c
WHERE n.tenant_id = %(tenant)s AND n.move_id = %(move)s AND n.ownership_epoch = %(epoch)s
  AND (n.state = 'SEALED' OR (n.state = 'BARRIER' AND n.barrier_until > clock_timestamp()))
  AND (c.lease_until IS NULL OR c.lease_until > clock_timestamp())
RETURNING n.state;

-- name: link_clock
-- The database's time, read after a seal of a tenant was committed.
SELECT clock_timestamp();

-- name: link_open_since
-- Transactions of this cell that began before an instant: they may have seen the tenant open.
SELECT count(*)::int FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
  AND application_name = %(application)s AND xact_start < %(at)s;

-- name: transfer_mark
-- All that was committed for the tenant (tenant_id) before this is at the destination when this is.
INSERT INTO transfer_marks (tenant_id, move_id, lsn)
VALUES (%(tenant)s, %(move)s, pg_current_wal_insert_lsn()) RETURNING lsn::text;

-- name: transfer_mark_there
-- Whether a mark of a tenant has come (tenant_id, move_id), or a later one.
SELECT EXISTS (SELECT FROM transfer_marks
               WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND lsn >= %(lsn)s::text::pg_lsn);

-- name: transfer_sealed
-- The seal is complete (tenant_id, move_id): from this place in the log on nothing is written.
UPDATE transfers SET state = 'SEALED', sealed_lsn = %(lsn)s::text::pg_lsn, facts = facts || %(facts)s::jsonb
WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND side = 'SOURCE' AND state IN ('BARRIER', 'SEALED', 'PUBLISHED')
RETURNING sealed_lsn::text;

-- name: link_flushed
-- Whether every streaming standby of this cell has flushed a place in the log, and how many there are. Names
-- no tenant.
SELECT coalesce(bool_or(flush_lsn >= %(lsn)s::text::pg_lsn), true), count(*)::int FROM pg_stat_replication
WHERE state = 'streaming' AND application_name <> %(link)s AND application_name NOT LIKE 'pg\_%%'
  AND usename NOT LIKE 'ch\_move\_%%';

-- name: transfer_lift
-- The tenant (tenant_id) works on here as before, under this epoch.
UPDATE tenants SET state = told_state, move_id = NULL, barrier_until = NULL, ownership_epoch = greatest(ownership_epoch, %(epoch)s),
       updated_at = now()
WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND state <> 'MOVED'
RETURNING state;

-- name: transfer_lift_overdue
-- Barriers whose time is over (of any tenant_id) are lifted; the move may raise another one.
UPDATE tenants SET state = told_state, barrier_until = NULL, updated_at = now()
WHERE state = 'BARRIER' AND move_id IS NOT NULL AND barrier_until < clock_timestamp()
RETURNING tenant_id;

-- name: transfer_gone
-- The tenant (tenant_id) lives elsewhere now, under this epoch.
UPDATE tenants SET state = 'MOVED', ownership_epoch = %(epoch)s, updated_at = now()
WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND state IN ('SEALED', 'MOVED') AND ownership_epoch <= %(epoch)s
RETURNING state;

-- name: transfer_source_epoch
-- What the ownership row said (tenant_id, move_id).
UPDATE transfers SET new_epoch = %(epoch)s WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND side = %(side)s;

-- name: transfer_forget_hosts
-- Calls under way live by the leases of their runs alone: hosts of the other cell are nobody here (tenant_id).
UPDATE runs SET host_id = NULL WHERE tenant_id = %(tenant)s AND lease_expires_at IS NOT NULL AND host_id IS NOT NULL;

-- name: transfer_raise_identities
-- Numbers given out from now on come behind those that a tenant brought.
SELECT transfer_raise_identities(%(tables)s::text[], %(tenant)s);

-- name: link_touch_days
-- Days of runs got rows that no trigger counted.
UPDATE lake_days SET touched = touched + 1, quiet_since = clock_timestamp() WHERE dropped_at IS NULL;

-- name: transfer_activate
-- The tenant (tenant_id) is at home here, under this epoch.
UPDATE tenants n SET state = n.told_state, move_id = NULL, ownership_epoch = %(epoch)s, updated_at = now()
FROM cell c
WHERE n.tenant_id = %(tenant)s AND n.move_id = %(move)s AND n.state = 'MOVED' AND n.ownership_epoch < %(epoch)s
  AND (c.lease_until IS NULL OR c.lease_until > clock_timestamp())
RETURNING n.state;

-- name: transfer_due
-- Timers of a tenant (tenant_id) within a span: jobs' next occurrences and waiting runs.
SELECT job_id, date_part('epoch', next_run_at)::bigint, 0, version, 0, false, priority,
       round(date_part('epoch', due_at) * 1000000)::bigint, shard
FROM jobs WHERE tenant_id = %(tenant)s AND due_at >= %(since)s AND due_at < %(until)s
UNION ALL
SELECT parent_id, date_part('epoch', scheduled_for)::bigint, ordinal, series, attempt, true, priority,
       round(date_part('epoch', timer_at) * 1000000)::bigint, shard
FROM runs WHERE tenant_id = %(tenant)s AND timer_at >= %(since)s AND timer_at < %(until)s;

-- name: link_analyze
-- The planner learns of the rows that a tenant brought.
SELECT transfer_analyze(%(tables)s::text[]);

-- name: transfer_forget_marks
-- Marks of a move that is over (tenant_id, move_id).
DELETE FROM transfer_marks WHERE tenant_id = %(tenant)s AND move_id = %(move)s;

-- name: transfer_queues
-- Task queues of a tenant (tenant_id) that may have tasks.
SELECT task_queue FROM task_queues WHERE tenant_id = %(tenant)s;

-- name: transfer_delete
-- Deletes a page of a tenant's rows of one table.
SELECT transfer_delete(%(table)s, %(tenant)s, %(page)s);

-- name: transfer_meters_left
-- Whether anything is still to be counted or shipped of what was done here for a tenant (tenant_id) before
-- it left.
SELECT (SELECT metered_until FROM cell) < %(since)s
       OR EXISTS (SELECT FROM meter_minutes WHERE tenant_id = %(tenant)s AND shipped_at IS NULL AND refused IS NULL);

-- name: transfer_left_alone
-- Sides of moves (of any tenant_id) that nobody has driven on for a while, though they must go on or back.
SELECT tenant_id, move_id, side FROM transfers
WHERE ((side = 'SOURCE' AND state = 'SEALED') OR (side = 'DESTINATION' AND state = 'READY')
       OR (side = 'SOURCE' AND state = 'BARRIER' AND EXISTS (
               SELECT FROM tenants n WHERE n.tenant_id = transfers.tenant_id AND n.state = 'SEALED')))
  AND touched_at < clock_timestamp() - %(ms)s * interval '1 millisecond';

-- name: transfer_digest
-- Checksums of a tenant's rows in one table, in buckets.
SELECT bucket, n, checksum FROM transfer_digest(%(table)s, %(tenant)s, %(buckets)s);

-- name: link_snapshot
-- What this snapshot sees as over, for a tenant's comparison.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text;

-- name: transfer_tail
-- How many rows a tenant has in one table, and keys and checksums of those changed since.
SELECT n, keys FROM transfer_tail(%(table)s, %(tenant)s, %(since)s::text::xid8);

-- name: transfer_rows
-- Keys and checksums of settled rows of a tenant in some buckets.
SELECT transfer_rows(%(table)s, %(tenant)s, %(buckets)s, %(wanted)s::int[], %(since)s::text::xid8);

-- name: transfer_missing
-- Keys of a tenant's rows that are not here as they are there.
SELECT transfer_missing(%(table)s, %(tenant)s, %(keys)s::jsonb);

-- name: transfer_count
-- How many rows a tenant has in one table.
SELECT transfer_count(%(table)s, %(tenant)s);

-- name: transfer_seen
-- In what state tenants (tenant_id) are, whether that is new, and where those went that have left.
SELECT n.tenant_id, n.state, n.updated_at > now() - interval '1 minute', t.move_id, t.peer_url FROM tenants n
LEFT JOIN transfers t ON t.tenant_id = n.tenant_id AND t.move_id = n.move_id AND t.side = 'SOURCE'
WHERE n.tenant_id = ANY(%(tenants)s::uuid[]);

-- name: transfer_unseal
-- The tenant (tenant_id) works on here; the move still holds it, and may raise another barrier.
UPDATE tenants SET state = told_state, updated_at = now()
WHERE tenant_id = %(tenant)s AND move_id = %(move)s AND ownership_epoch = %(epoch)s AND state = 'SEALED'
RETURNING state;

-- name: link_journal_end
-- Every transaction that has a number has a lower one: the journal's end as of now.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: link_folded
-- Whether a reader of the journal has all that lies before an end, and nothing more can come there.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %(until)s AND NOT EXISTS (
    SELECT FROM journal
    WHERE xid >= coalesce((SELECT r.xid FROM journal_readers r WHERE r.name = %(reader)s), '0'::xid8)
      AND xid < %(until)s::bigint::text::xid8);
