"""Use-cases of the topology. Keyword-only, ending in `actor` and `reason`."""
