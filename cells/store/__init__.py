"""The store of a cell: PostgreSQL is the truth. Entry points: `PostgresStore`, `migrate`."""
