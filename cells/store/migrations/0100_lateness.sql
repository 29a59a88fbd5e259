-- Since when occurrences of a tenant wait longer than they should, as its people were told; null: they do not.
ALTER TABLE tenants ADD COLUMN late_since timestamptz;
