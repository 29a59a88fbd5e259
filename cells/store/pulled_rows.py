"""Rows of tasks as the engine speaks of them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from cells.domain import ids
from cells.domain.epochs import next_epoch
from cells.domain.ids import RunKey
from cells.domain.run import Attempt, RunState
from cells.ports import Claim
from cells.pulling import Held, PulledRun, PulledTask, QueueId
from cells.spans import asked_by
from cells.store.arrays import datetime_to_ms, from_datetime, instants, int4s, int8s, labels, uuids
from cells.store.database import Row
from cells.store.definitions import decode_definition

_attempts = msgspec.json.Decoder(list[Attempt]).decode


def readable(
    rows: Sequence[Row], queues: Sequence[QueueId], counts: Sequence[int]
) -> tuple[list[tuple[int, PulledTask]], dict[QueueId, list[str]]]:
    """Tasks by the place of their queue, as many as are wanted of each; the runs of each queue that
    cannot be read (they stay where they are, for code that can)."""
    offered: list[tuple[int, PulledTask]] = []
    left = list(counts)
    stuck: defaultdict[QueueId, list[str]] = defaultdict(list)
    for row in rows:
        place = row[0] - 1
        if not left[place]:
            continue
        queue = queues[place]
        try:
            offered.append((place, _task(queue[0], row)))
        except msgspec.MsgspecError:
            stuck[queue].append(ids.run_id(RunKey(parent_id=row[1], scheduled_for=row[2], ordinal=row[3])))
        else:
            left[place] -= 1
    return offered, stuck


def _task(tenant_id: uuid.UUID, row: Row) -> PulledTask:
    (
        _,
        parent,
        at,
        ordinal,
        version,
        epoch,
        series,
        attempt,
        priority,
        shard,
        due_at,
        released_at,
        trace,
        ownership,
        stored,
        payload,
        made,
        now,
    ) = row
    definition = decode_definition(stored)
    lease_ms = definition.target.lease_seconds * 1000
    claim = Claim(
        tenant_id=tenant_id,
        key=RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal),
        epoch=next_epoch(epoch, ownership),
        series=series,
        attempt=attempt + 1,
        priority=priority,
        shard=shard,
        version=version,
        definition=definition,
        payload=payload,
        due_ms=datetime_to_ms(due_at),
        released_ms=0 if released_at is None else datetime_to_ms(released_at),
        claimed_ms=datetime_to_ms(now),
        lease_ms=lease_ms,
        traceparent=asked_by(trace, made, definition, ordinal),
    )
    return PulledTask(claim=claim, lease_expires_at=now + timedelta(milliseconds=lease_ms))


def pulled_run(wanted: Held, row: Row) -> PulledRun:
    (
        _,
        state,
        version,
        epoch,
        series,
        attempt,
        priority,
        shard,
        due_at,
        claimed_at,
        lease_ms,
        cancel,
        worker,
        stored,
        attempts,
    ) = row
    claim = Claim(
        tenant_id=wanted.tenant_id,
        key=wanted.key,
        epoch=epoch,
        series=series,
        attempt=attempt,
        priority=priority,
        shard=shard,
        version=version,
        definition=decode_definition(stored),
        payload=None,
        due_ms=datetime_to_ms(due_at),
        released_ms=0,
        claimed_ms=0 if claimed_at is None else datetime_to_ms(claimed_at),
        lease_ms=lease_ms or 0,
    )
    return PulledRun(
        claim=claim,
        state=RunState(state),
        cancel_requested=cancel,
        worker=worker,
        attempts=_attempts(attempts),
    )


def taken_columns(tasks: Sequence[PulledTask], workers: Sequence[str]) -> dict[str, object]:
    claims = [task.claim for task in tasks]
    return {
        "tenants": uuids([c.tenant_id for c in claims]),
        "parents": uuids([c.key.parent_id for c in claims]),
        "instants": instants([from_datetime(c.key.scheduled_for) for c in claims]),
        "ordinals": int4s([c.key.ordinal for c in claims]),
        "epochs": int8s([c.epoch for c in claims]),
        "leases": instants([from_datetime(task.lease_expires_at) for task in tasks]),
        "lease_ms": int4s([c.lease_ms for c in claims]),
        "workers": labels(workers),
    }
