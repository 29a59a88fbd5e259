-- What was moved by operations that lengthen windows, page by page: the same operation again moves nothing
-- again, and is told the same.
CREATE TABLE lengthened_pages (
    operation    text NOT NULL,         -- the id that its asker gave it, and what was asked
    page         text NOT NULL,         -- where the page began; empty: the first
    jobs         integer NOT NULL DEFAULT 0,
    tenants      integer NOT NULL DEFAULT 0,
    after_tenant uuid,                  -- where the next one begins; null: it was the last
    after_due    timestamptz,
    after_job    uuid,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (operation, page)
);
CREATE INDEX lengthened_pages_age ON lengthened_pages (at);
