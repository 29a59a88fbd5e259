-- name: take
-- Whether this session is one of the few that do something: nobody else holds this number.
SELECT pg_try_advisory_lock(%(space)s, %(number)s);

-- name: leave
-- Another may.
SELECT pg_advisory_unlock(%(space)s, %(number)s);
