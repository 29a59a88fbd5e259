-- Epochs come from here: one row, raised by the statement that decides.
CREATE TABLE epoch_counter (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    value     bigint NOT NULL DEFAULT 0 CHECK (value >= 0)
);
INSERT INTO epoch_counter DEFAULT VALUES;

CREATE TABLE cell_ownership (
    cell       text PRIMARY KEY,
    region     text NOT NULL,
    epoch      bigint NOT NULL CHECK (epoch > 0),
    renewals   bigint NOT NULL DEFAULT 0,
    promotions integer NOT NULL DEFAULT 0,
    claimed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tenant_ownership (
    tenant_id  uuid PRIMARY KEY,
    cell       text NOT NULL,
    epoch      bigint NOT NULL CHECK (epoch > 0),
    claimed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tenant_ownership_cell ON tenant_ownership (cell, tenant_id);
