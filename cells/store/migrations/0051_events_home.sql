-- Events move with their tenants. Their places are numbers of the cell that wrote them, so each carries the
-- ownership epoch it was written under: those of an earlier home come first, and none gets between.

ALTER TABLE events ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
ALTER TABLE events DROP CONSTRAINT events_pkey;
ALTER TABLE events ADD PRIMARY KEY (tenant_id, epoch, xid, seq);
