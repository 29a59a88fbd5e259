"""Moving a tenant from this cell to another one, and taking one in."""
