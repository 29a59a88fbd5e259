"""A cell's PostgreSQL at several sites: one primary, the others its physical streaming standbys."""
