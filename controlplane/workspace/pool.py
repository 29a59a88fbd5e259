"""A pool of empty workspace schemas, so that a new tenant costs one UPDATE."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from psycopg.sql import SQL, Identifier

from controlplane.sql import named_sql
from controlplane.tenants.models import WorkspaceSchema
from controlplane.workspace.template import target_version, template, versions

_SQL = named_sql(Path(__file__).parent / "sql" / "pool.sql")


def make_schema() -> str:
    """Makes one schema from the template, in one transaction, and adds it to the pool."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SQL["next_number"])
        schema = f"ws_{cursor.fetchone()[0]:06d}"
        WorkspaceSchema.objects.create(schema=schema, version=target_version())
        cursor.execute(SQL(_SQL["create_schema"]).format(schema=Identifier(schema)))
        cursor.execute(_SQL["enter_schema"], {"path": schema})
        cursor.execute(template())
        for version in versions():
            cursor.execute(_SQL["note_migration"], {"name": version})
        cursor.execute(_SQL["enter_schema"], {"path": "public"})
    return schema


def claim(tenant_id: uuid.UUID) -> str:
    """A schema for a tenant, in the caller's transaction. Makes one if the pool is empty."""
    wanted: dict[str, Any] = {"tenant_id": tenant_id, "version": target_version()}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SQL["claim"], wanted)
        row = cursor.fetchone()
        if row is None:
            make_schema()
            cursor.execute(_SQL["claim"], wanted)
            row = cursor.fetchone()
    schema: str = row[0]
    return schema


def drop(tenant_id: uuid.UUID) -> str | None:
    """A tenant's schema goes with all that is in it, and so does the knowledge of it; its name."""
    found = WorkspaceSchema.objects.filter(tenant_id=tenant_id).first()
    if found is None:
        return None
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SQL(_SQL["drop_schema"]).format(schema=Identifier(found.schema)))
        found.delete()
    return found.schema


def top_up(size: int | None = None) -> int:
    """Fills the pool to its size; says how many schemas were made."""
    wanted = settings.WORKSPACE_POOL_SIZE if size is None else size
    ready = WorkspaceSchema.objects.filter(
        state=WorkspaceSchema.State.POOLED, version=target_version()
    ).count()
    for _ in range(wanted - ready):
        make_schema()
    return max(0, wanted - ready)
