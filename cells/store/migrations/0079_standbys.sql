-- How many standbys in other regions get every row: what replicated writes are metered by. 0: a single site.
ALTER TABLE cell ADD COLUMN standbys smallint NOT NULL DEFAULT 0 CHECK (standbys >= 0);
