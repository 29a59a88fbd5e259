"""What databases hold of a tenant, as digests: equal before and after means nothing of it changed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cells.domain import ids

_TABLES = """
SELECT c.table_schema, c.table_name, c.column_name
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE (c.column_name = 'tenant_id' OR (c.table_name = 'tenants_tenant' AND c.column_name = 'id'))
  AND c.data_type = 'uuid' AND t.table_type = 'BASE TABLE'
  AND c.table_schema NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1, 2
"""
_DIGEST = """
SELECT count(*), coalesce(md5(string_agg(one, '' ORDER BY one)), '')
FROM (SELECT md5((to_jsonb(t) - %(passing)s::text[])::text) AS one FROM {table} t
      WHERE t.{column} = %(tenant)s) rows
"""
#: Counts of what was used, which go on behind the work they count.
ACCOUNTS = (
    "meter_minutes",
    "run_stats",
    "job_usage",
    "meter_stored",
    "billing_meter",
    "billing_usage",
    "billing_dirty",
    "billing_period",
    "billing_drift",
)
#: Columns that say when something was last seen, not what it is.
PASSING = ["last_used_at", "confirmed_at", "confirmed_version"]


@dataclass(frozen=True, kw_only=True)
class Digest:
    """Rows of one table that belong to the tenant."""

    rows: int
    digest: str


def fingerprint(databases: Iterable[str], tenant_id: str) -> dict[str, Digest]:
    """Digests by `database.schema.table`: the tenant's row and all rows with its `tenant_id`.

    `databases` are URLs. Accounts of use are left out.
    """
    tenant: uuid.UUID | None = ids.decode(ids.TENANT, tenant_id)
    found: dict[str, Digest] = {}
    for number, url in enumerate(databases):
        with psycopg.connect(url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for schema, table, column in connection.execute(_TABLES).fetchall():
                if table.startswith(ACCOUNTS):
                    continue
                row = connection.execute(
                    sql.SQL(_DIGEST).format(
                        table=sql.Identifier(schema, table), column=sql.Identifier(column)
                    ),
                    {"tenant": tenant, "passing": PASSING},
                ).fetchone()
                if row is not None and row[0]:
                    found[f"{number}.{schema}.{table}"] = Digest(rows=row[0], digest=row[1])
    return found


def differences(before: dict[str, Digest], after: dict[str, Digest]) -> list[str]:
    """Names of the tables that are not what they were."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
