-- Calls that were delivered twice on purpose, and what came of it: one row per target with a drill.
CREATE TABLE target_drills (
    tenant_id      uuid NOT NULL,
    target_id      text NOT NULL,
    sent           bigint NOT NULL DEFAULT 0,     -- duplicates delivered
    coped          bigint NOT NULL DEFAULT 0,     -- answered like the first call, or known as a repeat
    at             timestamptz NOT NULL,          -- of the latest duplicate
    failed_run     text,                          -- the latest one that the target did not cope with
    failed_at      timestamptz,
    failed_status  integer,
    failed_error   text,
    PRIMARY KEY (tenant_id, target_id),
    FOREIGN KEY (tenant_id, target_id) REFERENCES targets ON DELETE CASCADE
);
