-- outside a transaction
-- Finds acknowledged meters whose time is over. What an interrupted attempt left is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS meter_minutes_shipped;

CREATE INDEX CONCURRENTLY meter_minutes_shipped ON meter_minutes (shipped_at) WHERE shipped_at IS NOT NULL;
