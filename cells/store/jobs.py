"""Jobs as they are read: one by id or key, and lists."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from datetime import datetime

from cells.domain.job import JobState
from cells.ports import JobFilter, JobRow
from cells.store.base import StoreBase
from cells.store.calendars import with_calendars
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row
from cells.store.definitions import decode_definition

#: Sorts after every name that begins with a prefix (collation C).
_LAST = "\U0010ffff"


class Jobs(StoreBase):
    """Jobs as people and the API see them."""

    async def get_job(self, tenant_id: uuid.UUID, job_id: uuid.UUID) -> JobRow | None:
        """One job, or None if the tenant has none of that id."""
        async with self._database.transaction() as connection:
            return await read_job(connection, tenant_id, job_id)

    async def get_job_by_key(self, tenant_id: uuid.UUID, key: str) -> JobRow | None:
        """The job that the tenant's client calls by this key, or None."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "job_get_by_key", {"tenant": tenant_id, "key": key})
            return None if row is None else await _whole(connection, job_row(tenant_id, row))

    async def list_jobs(
        self, tenant_id: uuid.UUID, where: JobFilter, *, after: tuple[datetime, uuid.UUID] | None, limit: int
    ) -> Sequence[JobRow]:
        """See `ports.Store.list_jobs`."""
        terms = facet_terms(where)
        if terms["facet"] is not None:
            name = "job_list_by_facet"
        elif where.name_prefix is not None:
            name = "job_list_by_name"
        elif where.due_from is not None or where.due_until is not None:
            name = "job_list_by_due"
        else:
            name = "job_list"
        parameters = {
            "tenant": tenant_id,
            "after_at": None if after is None else after[0],
            "after_job": None if after is None else after[1],
            "limit": limit,
            "state": None if where.state is None else where.state.value,
            **terms,
        }
        async with self._database.transaction() as connection:
            return [job_row(tenant_id, row) for row in await fetch_all(connection, name, parameters)]


def facet_terms(where: JobFilter) -> dict[str, object]:
    """What a filter asks of a job's terms and timer, as the statements take it."""
    terms = [f"target:{where.target_id}"] if where.target_id is not None else []
    if where.tag is not None:
        terms.append(f"tag:{where.tag}")
    prefix = None if where.name_prefix is None else f"name:{where.name_prefix}"
    return {
        "due_from": where.due_from,
        "due_until": where.due_until,
        "facet": terms[0] if terms else None,
        "other": terms[1] if len(terms) > 1 else None,
        "name_from": prefix,
        "name_until": None if prefix is None else prefix + _LAST,
    }


async def read_job(connection: Connection, tenant_id: uuid.UUID, job_id: uuid.UUID) -> JobRow | None:
    """One job, inside a transaction."""
    row = await fetch_one(connection, "job_get", {"tenant": tenant_id, "job": job_id})
    return None if row is None else await _whole(connection, job_row(tenant_id, row))


async def reread_job(connection: Connection, tenant_id: uuid.UUID, job_id: uuid.UUID) -> JobRow:
    """One job that is known to be there."""
    row = await fetch_row(connection, "job_get", {"tenant": tenant_id, "job": job_id})
    return await _whole(connection, job_row(tenant_id, row))


async def _whole(connection: Connection, row: JobRow) -> JobRow:
    """With what the job's calendar excludes."""
    if row.definition.schedule.calendar is None:
        return row
    (definition,) = await with_calendars(connection, [(row.tenant_id, row.definition)])
    return dataclasses.replace(row, definition=definition)


def job_row(tenant_id: uuid.UUID, row: Row) -> JobRow:
    """From the columns of `job_get` and `job_list…`."""
    return JobRow(
        tenant_id=tenant_id,
        job_id=row[0],
        shard=row[1],
        state=JobState(row[2]),
        version=row[3],
        window_ms=row[4],
        offset_ms=row[5],
        next_run_at=row[6],
        due_at=row[7],
        definition=decode_definition(row[8]),
        payload=row[9],
        created_at=row[10],
        updated_at=row[11],
    )
