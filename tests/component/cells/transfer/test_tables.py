"""The list of tables is the catalogue's."""

from __future__ import annotations

import psycopg

from cells.transfer.tables import COPIED, FATES, PUBLISHED, Fate


def test_it_is_decided_of_every_table_whether_it_moves(cell_database_url: str) -> None:
    with psycopg.connect(cell_database_url) as sql:
        tables = {
            name
            for (name,) in sql.execute(
                "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relkind IN ('r', 'p') AND NOT relispartition"
            )
        }
        keyed = {
            name
            for (name,) in sql.execute(
                "SELECT c.relname::text FROM pg_class c"
                " JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary"
                " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
                " WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition"
                " AND a.attname = 'tenant_id'"
            )
        }
    assert set(FATES) == tables, "a new table: does it move with its tenant? see cells/transfer/tables.py"
    # Changes of a row that moves are told by its primary key, which begins with the tenant.
    assert set(PUBLISHED) <= keyed
    assert set(COPIED) == {n for n, f in FATES.items() if f in (Fate.MOVES, Fate.AGES)}
    assert {n for n in keyed if FATES[n] is Fate.STAYS} == {
        "erased_tenants",
        "job_usage",
        "lake_workflow_tenants",
        "local_stores",
        "meter_minutes",
        "meter_stored",
        "snapshots",
        "tenants",
        "transfers",
    }
