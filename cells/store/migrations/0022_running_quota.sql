-- Since when a tenant has been at its quota of running runs: it was told of it then, once.
ALTER TABLE tenants ADD COLUMN full_since timestamptz;
