-- name: take_slow
-- Takes the lock of slow tasks for this session, if nobody has it.
SELECT pg_try_advisory_lock(hashtextextended('billing.slow', 0));

-- name: leave_slow
-- Gives it back.
SELECT pg_advisory_unlock(hashtextextended('billing.slow', 0));
