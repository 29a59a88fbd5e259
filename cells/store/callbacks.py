"""Telling others how runs ended: a run of its own for each, made by the transaction that ends the run.

It has the job's id and the run's instant; its ordinal is negative and says which run and series it is
about. So the same end never makes two. It calls nobody back itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from cells.domain import ids
from cells.domain.callbacks import FAILURE, SUCCESS, Notify, callback_ordinal, definition_of
from cells.domain.ids import RunKey
from cells.domain.job import TargetRef
from cells.domain.run import run_generation
from cells.ports import Completion, Member, RunRow
from cells.store.arrays import (
    blobs,
    datetime_to_ms,
    from_datetime,
    instants,
    int2s,
    int4s,
    labels,
    uuids,
)
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all
from cells.store.definitions import decode_definition
from cells.store.journal import seconds
from cells.store.runs import run_row

_FAILED = ("FAILED", "UNKNOWN")
_SUCCEEDED = ("SUCCEEDED", "SUCCEEDED_AFTER_CANCEL")
_encode = msgspec.json.Encoder().encode

as_job = definition_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A run that has ended for good, and whom to tell."""

    tenant_id: uuid.UUID
    key: RunKey
    state: str
    series: int
    attempt: int
    priority: int
    shard: int
    notify: Notify
    target_id: str | None
    http_status: int | None
    reason: str | None
    started_ms: int | None
    finished_ms: int

    @property
    def told(self) -> tuple[str, TargetRef] | None:
        """Which of the two, and where; None if nobody wants to know."""
        if self.state in _FAILED:
            return None if self.notify.on_failure is None else (FAILURE, self.notify.on_failure)
        if self.state in _SUCCEEDED:
            return None if self.notify.on_success is None else (SUCCESS, self.notify.on_success)
        return None


def ended(completion: Completion, row: Row) -> Ended | None:
    """From a completion that was applied and its row of `complete_runs`."""
    if completion.notify is None or completion.key.ordinal < 0:
        return None
    _, state, attempt, series, priority, shard, _ = row
    return Ended(
        tenant_id=completion.tenant_id,
        key=completion.key,
        state=state,
        series=series,
        attempt=attempt,
        priority=priority,
        shard=shard,
        notify=completion.notify,
        target_id=completion.target_id,
        http_status=completion.attempt.status,
        reason=completion.reason,
        started_ms=completion.started_ms,
        finished_ms=completion.finished_ms,
    )


async def lost(connection: Connection, rows: Sequence[Row]) -> list[Ended]:
    """Those of the runs that ended with their holders (tenant, parent, instant, ordinal, …) whose jobs
    tell somebody."""
    found = await fetch_all(
        connection,
        "callback_ended",
        {
            "tenants": uuids([row[0] for row in rows]),
            "parents": uuids([row[1] for row in rows]),
            "instants": instants([from_datetime(row[2]) for row in rows]),
            "ordinals": int4s([row[3] for row in rows]),
        },
    )
    told = []
    for tenant, parent, at, ordinal, state, series, attempt, priority, shard, version, due_at, *more in found:
        target_id, status, reason, finished_at, stored = more
        notify = Notify.of(decode_definition(stored), version, datetime_to_ms(due_at))
        if notify is not None:
            told.append(
                Ended(
                    tenant_id=tenant,
                    key=RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal),
                    state=state,
                    series=series,
                    attempt=attempt,
                    priority=priority,
                    shard=shard,
                    notify=notify,
                    target_id=target_id,
                    http_status=status,
                    reason=reason,
                    started_ms=None,
                    finished_ms=datetime_to_ms(finished_at),
                )
            )
    return told


async def tell(connection: Connection, over: Sequence[Ended]) -> list[Member]:
    """Make the callbacks of runs that end in this transaction; their timers."""
    told = [(end, *told) for end in over if (told := end.told) is not None]
    if not told:
        return []
    rows = await fetch_all(
        connection,
        "callback_insert",
        {
            "tenants": uuids([end.tenant_id for end, _, _ in told]),
            "parents": uuids([end.key.parent_id for end, _, _ in told]),
            "instants": instants([from_datetime(end.key.scheduled_for) for end, _, _ in told]),
            "ordinals": int4s([callback_ordinal(end.key.ordinal, end.series) for end, _, _ in told]),
            "shards": int2s([end.shard for end, _, _ in told]),
            "priorities": int2s([end.priority for end, _, _ in told]),
            "versions": int4s([end.notify.version for end, _, _ in told]),
            "targets": labels([target.target_id for _, _, target in told]),
            "inputs": blobs([_body(end, which) for end, which, _ in told]),
            "which": labels([which for _, which, _ in told]),
        },
    )
    return [
        Member(
            tenant_id=tenant,
            parent_id=parent,
            scheduled_for=seconds(at),
            ordinal=ordinal,
            is_run=True,
            generation=run_generation(1, 0),
            priority=priority,
            due_ms=datetime_to_ms(timer_at) + 1,
            shard=shard,
        )
        for tenant, parent, at, ordinal, priority, shard, timer_at in rows
    ]


def _body(end: Ended, which: str) -> bytes:
    """What they are told: the same bytes for every attempt."""
    return _encode(
        {
            "event": "run.succeeded" if which == SUCCESS else "run.failed",
            "run_id": ids.run_id(end.key),
            "job_id": ids.encode(ids.JOB, end.key.parent_id),
            "job_name": end.notify.job_name,
            "job_key": end.notify.job_key,
            "job_version": end.notify.version,
            "state": end.state,
            "reason": end.reason,
            "attempts": end.attempt,
            "series": end.series,
            "target_id": end.target_id,
            "http_status": end.http_status,
            "scheduled_for": f"{end.key.scheduled_for:%Y-%m-%dT%H:%M:%SZ}",
            "due_at": _instant(end.notify.due_ms),
            "started_at": None if end.started_ms is None else _instant(end.started_ms),
            "finished_at": _instant(end.finished_ms),
        }
    )


def _instant(ms: int) -> str:
    at = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


class Callbacks(StoreBase):
    """Reading them."""

    async def callbacks_of(self, tenant_id: uuid.UUID, key: RunKey) -> Sequence[RunRow]:
        """See `ports.Store.callbacks_of`."""
        parameters = {
            "tenant": tenant_id,
            "parent": key.parent_id,
            "at": key.scheduled_for,
            "last": callback_ordinal(key.ordinal, 0),
            "first": callback_ordinal(key.ordinal, 1023),
        }
        async with self._database.transaction() as connection:
            return [
                run_row(tenant_id, row) for row in await fetch_all(connection, "callback_list", parameters)
            ]
