"""Writing what executions do: events, pointers, runs, children, words to others; all of a batch at once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cells.contract import Metric
from cells.domain import ids
from cells.domain.outcome import fingerprint
from cells.ports import Conflict, Member
from cells.store.arrays import (
    blobs,
    bools,
    from_ms,
    instants,
    int2s,
    int4s,
    int8s,
    labels,
    texts,
    uuids,
)
from cells.store.database import Connection, fetch_all, run
from cells.store.job_workflows import close_workflows
from cells.store.journal import Entry
from cells.workflow_ports import NewActivity, NewExecution, Turn

_encode = msgspec.json.Encoder().encode


class Written(NamedTuple):
    """What others must hear of, once it is committed."""

    members: list[Member]
    offered: list[tuple[uuid.UUID, str]]


async def write_turns(connection: Connection, turns: Sequence[Turn], entry: Entry) -> Written:
    """All statements but the journal's. The executions are locked. `Conflict` where one has moved on."""
    now_ms = max(turn.taken.now_ms for turn in turns)
    activities = [(turn, activity) for turn in turns for activity in turn.activities]
    queues = sorted(
        {
            (turn.taken.row.tenant_id, activity.spec.target.task_queue)
            for turn, activity in activities
            if activity.spec.target.task_queue
        }
    )
    async with connection.pipeline():
        advanced = await run(
            connection, "engine_advance", {**_pointers(turns), "now": ids.instant_of(now_ms)}
        )
        if any(turn.events for turn in turns):
            await run(connection, "engine_append", _events(turns))
        if any(turn.taken.inbox for turn in turns):
            await run(connection, "engine_consume", _consumed(turns))
        if activities:
            await run(connection, "engine_activities", _activities(activities))
        if queues:
            names = {"tenants": uuids([t for t, _ in queues]), "queues": labels([name for _, name in queues])}
            await run(connection, "engine_queues", names)
    if advanced.rowcount != len(turns):
        raise Conflict("an execution moved on while it was decided")
    await _write_rare(connection, turns, now_ms)
    for turn in turns:
        _note(turn, entry)
    timers = [(turn, a) for turn, a in activities if not a.spec.target.task_queue or a.due_ms > a.at_ms]
    return Written([_member(turn, a) for turn, a in timers], queues)


async def _write_rare(connection: Connection, turns: Sequence[Turn], now_ms: int) -> None:
    stops = [(turn, second, seq) for turn in turns for second, seq in turn.stopped]
    if stops:
        # One order of runs for all who lock several.
        stops.sort(key=lambda s: (s[0].taken.row.tenant_id.int, s[0].taken.row.run_id.int, s[1], s[2]))
        rows = [turn.taken.row for turn, _, _ in stops]
        await run(
            connection,
            "engine_stop_activities",
            {
                "tenants": uuids([row.tenant_id for row in rows]),
                "runs": uuids([row.run_id for row in rows]),
                "instants": instants([from_ms(second * 1000) for _, second, _ in stops]),
                "ordinals": int4s([seq for _, _, seq in stops]),
            },
        )
    successors = [(turn, turn.successor) for turn in turns if turn.successor is not None]
    if successors:
        await _begin(connection, successors, now_ms)
    children = [(turn, new, seq) for turn in turns for new, seq in turn.started]
    if children:
        begun = await _begin(connection, [(turn, new) for turn, new, _ in children], now_ms)
        for i, (turn, new, _) in enumerate(children):
            if i not in begun and new.parent is not None:
                error = "its workflow id is in use"
                word = {"step": new.parent["step"], "status": "FAILED", "error": error, "begun": False}
                turn.told.append((turn.taken.row.run_id, "CHILD", _encode(word)))
    await _tell(connection, turns)
    await close_workflows(connection, [turn for turn in turns if turn.ends_run is not None])
    letters = [(turn, letter) for turn in turns for letter in turn.letters]
    if letters:
        await run(
            connection,
            "engine_letters",
            {
                "tenants": uuids([turn.taken.row.tenant_id for turn, _ in letters]),
                "runs": uuids([turn.taken.row.run_id for turn, _ in letters]),
                "instants": instants([from_ms(at // 1000 * 1000) for _, (at, _, _, _) in letters]),
                "ordinals": int4s([seq for _, (_, seq, _, _) in letters]),
                "fingerprints": texts(
                    [
                        fingerprint(turn.taken.row.definition, None, "compensation stuck")
                        for turn, _ in letters
                    ]
                ),
                "targets": texts([f"workflow:{turn.taken.row.definition}" for turn, _ in letters]),
                "errors": texts([f"{step}: {error}" for _, (_, _, step, error) in letters]),
            },
        )
    for turn in turns:
        if turn.letters_closed:
            row = turn.taken.row
            await run(connection, "workflow_letters_close", {"tenant": row.tenant_id, "run": row.run_id})


async def _tell(connection: Connection, turns: Sequence[Turn]) -> None:
    told = [(turn.taken.row.tenant_id, *word) for turn in turns for word in turn.told]
    if told:
        await run(
            connection,
            "engine_tell",
            {
                "tenants": uuids([tenant for tenant, _, _, _ in told]),
                "runs": uuids([run_id for _, run_id, _, _ in told]),
                "kinds": labels([kind for _, _, kind, _ in told]),
                "data": blobs([data for _, _, _, data in told]),
            },
        )
    forwarded = [(turn.taken.row, *word) for turn in turns for word in turn.forwarded]
    if forwarded:
        await run(
            connection,
            "engine_forward",
            {
                "tenants": uuids([row.tenant_id for row, _, _ in forwarded]),
                "runs": uuids([row.run_id for row, _, _ in forwarded]),
                "kinds": labels([kind for _, kind, _ in forwarded]),
                "data": blobs([data for _, _, data in forwarded]),
            },
        )
    by_id = [(turn.taken.row.tenant_id, *word) for turn in turns for word in turn.told_ids]
    if by_id:
        await run(
            connection,
            "engine_tell_latest",
            {
                "tenants": uuids([tenant for tenant, _, _, _ in by_id]),
                "workflows": texts([name for _, name, _, _ in by_id]),
                "kinds": labels([kind for _, _, kind, _ in by_id]),
                "data": blobs([data for _, _, _, data in by_id]),
            },
        )


async def _begin(connection: Connection, begun: Sequence[tuple[Turn, NewExecution]], now_ms: int) -> set[int]:
    """Executions that turns begin; the positions of those that began."""
    taken = [(turn.taken.row.tenant_id, turn.taken.ownership_epoch, new) for turn, new in begun]
    places = await start_executions(connection, taken, now_ms)
    for i in places:
        turn, new = begun[i]
        turn.size += sum(len(data) for _, _, data in new.events)
        turn.told += [(new.run_id, "SIGNAL", data) for data in new.signals]
    return places


async def start_executions(
    connection: Connection, begun: Sequence[tuple[uuid.UUID, int, NewExecution]], now_ms: int
) -> set[int]:
    """New executions (tenant, its ownership epoch, what begins) with their first events; the positions
    of those that began: an id that another one holds begins none."""
    columns = {
        "tenants": uuids([tenant for tenant, _, _ in begun]),
        "runs": uuids([new.run_id for _, _, new in begun]),
        "workflows": texts([new.workflow_id for _, _, new in begun]),
        "shards": int2s([ids.shard_of(new.run_id) for _, _, new in begun]),
        "definitions": labels([new.definition for _, _, new in begun]),
        "versions": int4s([new.version for _, _, new in begun]),
        "hashes": blobs([new.input_hash for _, _, new in begun]),
        "policies": labels([new.region_policy for _, _, new in begun]),
        "nexts": int4s([len(new.events) + 1 for _, _, new in begun]),
        "epochs": int8s([epoch for _, epoch, _ in begun]),
        "sizes": int8s([sum(len(data) for _, _, data in new.events) for _, _, new in begun]),
        "parents": texts(
            [None if new.parent is None else _encode(new.parent).decode() for _, _, new in begun]
        ),
        "follows": texts([None if new.follows is None else str(new.follows) for _, _, new in begun]),
        "now": ids.instant_of(now_ms),
    }
    rows = await fetch_all(connection, "engine_start", columns)
    places = {i - 1 for (i,) in rows}
    events = [
        (tenant, epoch, new.run_id, seq, event)
        for i, (tenant, epoch, new) in enumerate(begun)
        if i in places
        for seq, event in enumerate(new.events, 1)
    ]
    if events:
        await run(
            connection,
            "engine_append",
            {
                "tenants": uuids([tenant for tenant, _, _, _, _ in events]),
                "runs": uuids([run_id for _, _, run_id, _, _ in events]),
                "seqs": int4s([seq for _, _, _, seq, _ in events]),
                "epochs": int8s([epoch for _, epoch, _, _, _ in events]),
                "types": labels([type_ for _, _, _, _, (type_, _, _) in events]),
                "ats": instants([from_ms(at) for _, _, _, _, (_, at, _) in events]),
                "data": blobs([data for _, _, _, _, (_, _, data) in events]),
            },
        )
    return places


def _note(turn: Turn, entry: Entry) -> None:
    row = turn.taken.row
    tenant = row.tenant_id.hex
    entry.count(tenant, Metric.WORKFLOW_STEPS, row.region_policy, turn.steps)
    entry.history_bytes(tenant, row.region_policy, turn.size)
    for type_, data in turn.happened:
        entry.event(row.tenant_id, type_, row.workflow_id, None, **data)


def _pointers(turns: Sequence[Turn]) -> dict[str, object]:
    rows = [turn.taken.row for turn in turns]
    added = [sum(len(data) for _, _, _, data in turn.events) for turn in turns]
    return {
        "tenants": uuids([row.tenant_id for row in rows]),
        "runs": uuids([row.run_id for row in rows]),
        "read": int4s([row.next_seq for row in rows]),
        "nexts": int4s([turn.taken.row.next_seq + len(turn.events) for turn in turns]),
        "statuses": labels([turn.status for turn in turns]),
        "open": bools([turn.open for turn in turns]),
        "versions": int4s([turn.version for turn in turns]),
        "epochs": int8s([max(turn.taken.row.epoch, turn.taken.ownership_epoch) for turn in turns]),
        "decides": instants([_us(turn.decide_at) for turn in turns]),
        "timers": instants([_us(turn.timer_at) for turn in turns]),
        "sizes": int8s([row.history_bytes + size for row, size in zip(rows, added, strict=True)]),
        "results": blobs([turn.result for turn in turns]),
        "errors": texts([turn.error for turn in turns]),
        "unsures": bools([turn.unsure for turn in turns]),
    }


def _us(ms: int | None) -> int | None:
    return None if ms is None else from_ms(ms)


def _events(turns: Sequence[Turn]) -> dict[str, object]:
    flat = [(turn.taken, event) for turn in turns for event in turn.events]
    return {
        "tenants": uuids([taken.row.tenant_id for taken, _ in flat]),
        "runs": uuids([taken.row.run_id for taken, _ in flat]),
        "seqs": int4s([seq for _, (seq, _, _, _) in flat]),
        "epochs": int8s([taken.ownership_epoch for taken, _ in flat]),
        "types": labels([type_ for _, (_, type_, _, _) in flat]),
        "ats": instants([from_ms(at) for _, (_, _, at, _) in flat]),
        "data": blobs([data for _, (_, _, _, data) in flat]),
    }


def _consumed(turns: Sequence[Turn]) -> dict[str, object]:
    flat = [(turn.taken.row, item) for turn in turns for item in turn.taken.inbox]
    return {
        "tenants": uuids([row.tenant_id for row, _ in flat]),
        "runs": uuids([row.run_id for row, _ in flat]),
        "positions": int8s([item.position for _, item in flat]),
    }


def _activities(activities: Sequence[tuple[Turn, NewActivity]]) -> dict[str, object]:
    rows = [turn.taken.row for turn, _ in activities]
    made = [activity for _, activity in activities]
    return {
        "tenants": uuids([row.tenant_id for row in rows]),
        "runs": uuids([row.run_id for row in rows]),
        "instants": instants([from_ms(a.at_ms // 1000 * 1000) for a in made]),
        "ordinals": int4s([a.seq for a in made]),
        "shards": int2s([row.shard for row in rows]),
        "versions": int4s([a.version for a in made]),
        "dues": instants([from_ms(a.due_ms) for a in made]),
        "later": bools([a.due_ms > a.at_ms for a in made]),
        "targets": labels([a.spec.target.label for a in made]),
        "queues": labels([a.spec.target.task_queue or None for a in made]),
        "inputs": blobs([a.input for a in made]),
        "specs": blobs([_encode(a.spec) for a in made]),
    }


def _member(turn: Turn, activity: NewActivity) -> Member:
    row = turn.taken.row
    return Member(
        tenant_id=row.tenant_id,
        parent_id=row.run_id,
        scheduled_for=activity.at_ms // 1000,
        ordinal=activity.seq,
        is_run=True,
        generation=65536,
        priority=2,
        due_ms=activity.due_ms,
        shard=row.shard,
    )
