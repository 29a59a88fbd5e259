"""People, tenants, keys and quotas."""
