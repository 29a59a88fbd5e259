-- Calls per target and minute, folded from the journal like run_stats. ms_le[i] counts calls that
-- took at most LAG_BOUNDS_MS[i]; one more counts the rest.
CREATE TABLE target_stats (
    tenant_id uuid NOT NULL,
    target_id text NOT NULL,
    minute    timestamptz NOT NULL,
    succeeded bigint NOT NULL DEFAULT 0,
    failed    bigint NOT NULL DEFAULT 0,
    retried   bigint NOT NULL DEFAULT 0,
    ms_sum    bigint NOT NULL DEFAULT 0,
    ms_max    bigint NOT NULL DEFAULT 0,
    ms_le     bigint[] NOT NULL,
    PRIMARY KEY (tenant_id, target_id, minute)
);
CREATE INDEX target_stats_age ON target_stats (minute);
