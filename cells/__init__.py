"""The scheduler data plane: one cell runs the jobs of many tenants (see README.md)."""
