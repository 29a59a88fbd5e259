-- A tenant whose budget is spent: its LOW work waits. The first is a part of its configuration that polls look
-- at, the second since when it has been told so, once.
ALTER TABLE tenants
    ADD COLUMN low_delayed boolean GENERATED ALWAYS AS (coalesce((config ->> 'low_delayed')::boolean, false)) STORED,
    ADD COLUMN delayed_since timestamptz;
