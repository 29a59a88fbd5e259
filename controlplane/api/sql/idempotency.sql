-- name: wait_briefly
-- For the next statement only; see wait_normally.
SET LOCAL lock_timeout = '2s';

-- name: wait_normally
-- The lock timeout of the session again.
SET LOCAL lock_timeout = DEFAULT;

-- name: take
-- No row comes back if the key is in use or was used. An answer too old to be replayed gives way.
INSERT INTO api_idempotencykey (scope, route, key, fingerprint, status, sealed)
VALUES (%(scope)s, %(route)s, %(key)s, %(fingerprint)s, 0, '')
ON CONFLICT (scope, route, key) DO UPDATE
SET fingerprint = excluded.fingerprint, status = 0, sealed = '', created_at = now()
WHERE api_idempotencykey.created_at < now() - interval '24 hours'
RETURNING id;
