-- RUNNING runs of a key by the end of their leases: what has ended keeps its entry while somebody's transaction is
-- open, and counting begins behind those entries.
DROP INDEX runs_key_held;
CREATE INDEX runs_key_held ON runs (tenant_id, concurrency_key, lease_expires_at)
    WHERE concurrency_key IS NOT NULL AND lease_expires_at IS NOT NULL;
