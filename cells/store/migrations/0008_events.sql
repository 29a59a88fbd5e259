-- What people should hear of, written by the transactions that make it true: exceptions and
-- decisions, never each success. Read behind a cursor over (xid, seq), below pg_snapshot_xmin only:
-- there nothing is added any more.
CREATE TABLE events (
    tenant_id uuid NOT NULL,
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq       bigint GENERATED ALWAYS AS IDENTITY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    type      text NOT NULL,
    subject   text NOT NULL,        -- the id of what it is about, as its owner sees it
    actor     text,                 -- whose decision it was
    data      bytea NOT NULL,       -- JSON object
    PRIMARY KEY (tenant_id, xid, seq)
);
CREATE INDEX events_age ON events (at);
