-- name: unread_possible
-- Whether this database has been set up for it: a takeover waits for no migration.
SELECT to_regclass('unread_sites') IS NOT NULL;

-- name: unread_note
-- Sites that a takeover was decided without.
INSERT INTO unread_sites (region, epoch, lost)
SELECT region, %(epoch)s, %(lost)s FROM unnest(%(regions)s::text[]) AS n (region)
ON CONFLICT DO NOTHING;

-- name: unread_read
-- All that a region has is here. Who owned the cell has what its standbys have.
UPDATE unread_sites SET read_at = clock_timestamp()
WHERE %(region)s IN (region, lost) AND epoch > %(voted)s AND read_at IS NULL;

-- name: unread_open
-- Whether a region's rows, written before an override that was decided without it or took over from it, are waited for.
SELECT EXISTS (SELECT FROM unread_sites WHERE %(region)s IN (region, lost) AND settled_at IS NULL);

-- name: unread_give_up
-- An operator gives a site up for good: nothing that only it has is waited for.
UPDATE unread_sites SET given_up = %(reason)s, settled_at = clock_timestamp()
WHERE region = %(region)s AND settled_at IS NULL AND EXISTS (SELECT FROM cell WHERE epoch = %(epoch)s)
RETURNING epoch;

-- name: unread_regions
-- Sites that are waited for.
SELECT DISTINCT region FROM unread_sites WHERE settled_at IS NULL ORDER BY region;
