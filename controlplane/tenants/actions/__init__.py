"""Use-cases about tenants. Keyword-only, ending in `actor` and `reason`; one transaction each,
with the audit event, the feed row and what must be done outside."""
