"""Begins the workflows of jobs' runs, and ends the runs whose workflows have ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import msgspec

from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.workflow.execution import Status
from cells.job_workflows import JobEnd, JobStart
from cells.observability.logs import logger
from cells.ports import Completion, Conflict, Member, Retryable
from cells.store.arrays import datetime_to_ms, int4s, int8s, labels, texts, uuids
from cells.store.complete import Completions
from cells.store.database import Connection, Row, fetch_all, run
from cells.store.definitions import decode_definition
from cells.store.job_workflows import run_columns
from cells.store.journal import Entry
from cells.store.turns import start_executions
from cells.workflow_ports import NewExecution

log = logger(__name__)

_encode = msgspec.json.Encoder().encode
#: What became of a start: to be done next, execution, its workflow id, status, error.
_Outcome = tuple[str | None, uuid.UUID | None, str | None, str | None, str | None]


class _Unstartable(Exception):
    """What these runs begin could not be read or written."""

    def __init__(self, rows: Sequence[Row], fault: Exception) -> None:
        super().__init__(repr(fault))
        self.rows = rows


class JobWorkflows(Completions):
    """`start_job_workflows` and `end_job_workflows`."""

    async def job_workflows_todo(self) -> tuple[bool, bool]:
        """See `workflow_ports.WorkflowStore.job_workflows_todo`."""
        async with self._database.transaction() as connection:
            found = {todo for todo, _ in await fetch_all(connection, "job_workflow_look")}
        return "START" in found, "END" in found

    async def start_job_workflows(
        self,
        workflow_id: Callable[[RunKey], str],
        begin: Callable[[JobStart], NewExecution | str],
        *,
        limit: int,
        host_id: int,
    ) -> int:
        """See `workflow_ports.WorkflowStore.start_job_workflows`."""
        try:
            return await self._start(workflow_id, begin, limit, host_id)
        except _Unstartable as unstartable:
            if len(unstartable.rows) == 1:
                await self._put_off(unstartable.rows[0], unstartable)
                return 1
            # One of them is in the others' way; those before it begin now.
            half = len(unstartable.rows) // 2
            return await self.start_job_workflows(workflow_id, begin, limit=half, host_id=host_id)

    async def _put_off(self, row: Row, fault: Exception) -> None:
        """It is looked at again in a minute, and keeps nobody else up."""
        log.error(
            "a workflow of a job is put off", tenant=str(row[0]), job=str(row[1]), fault=repr(fault)[:500]
        )
        async with self._database.transaction() as connection:
            columns = {"tenants": uuids([row[0]]), **run_columns([_key(row)])}
            await run(connection, "job_workflow_put_off", columns)

    async def _start(
        self,
        workflow_id: Callable[[RunKey], str],
        begin: Callable[[JobStart], NewExecution | str],
        limit: int,
        host_id: int,
    ) -> int:
        rows: Sequence[Row] = ()
        try:
            async with self._database.transaction() as connection:
                rows = await fetch_all(connection, "job_workflow_starts", {"limit": limit})
                if rows:
                    await self._begin_all(connection, rows, workflow_id, begin, host_id)
        except (Retryable, Conflict):
            raise
        except Exception as fault:
            if not rows:
                raise
            raise _Unstartable(rows, fault) from fault
        if rows:
            self.workflows_due()
        return len(rows)

    async def _begin_all(
        self,
        connection: Connection,
        rows: Sequence[Row],
        workflow_id: Callable[[RunKey], str],
        begin: Callable[[JobStart], NewExecution | str],
        host_id: int,
    ) -> None:
        starts = await _starts(connection, rows, workflow_id)
        outcomes: list[_Outcome] = []
        begun: list[tuple[uuid.UUID, int, NewExecution]] = []
        places: list[int] = []
        for i, (row, start) in enumerate(zip(rows, starts, strict=True)):
            made = "cancelled" if row[5] else begin(start)
            if isinstance(made, str):
                status = Status.CANCELLED if row[5] else Status.FAILED
                outcomes.append(("END", None, None, status.value, made))
            else:
                waits = start.definition.target.wait
                outcomes.append((None, made.run_id, made.workflow_id, None, None) if waits else _done(made))
                begun.append((start.tenant_id, row[8], made))
                places.append(i)
        entry = Entry()
        now_ms = max(start.now_ms for start in starts)
        won = await start_executions(connection, begun, now_ms) if begun else set()
        shown = []
        for n, (tenant, _, new) in enumerate(begun):
            if n not in won:
                in_use = f"another workflow is open under the id {new.workflow_id}"
                outcomes[places[n]] = ("END", None, None, Status.FAILED.value, in_use)
                continue
            shown.append((starts[places[n]], new))
            entry.intent(tenant, "workflow.start", new.workflow_id, 0, 1)
            size = sum(len(data) for _, _, data in new.events)
            entry.history_bytes(tenant.hex, new.region_policy, size)
        await _note(connection, starts, outcomes, shown)
        await self._journal.append(connection, host_id, entry)

    async def end_job_workflows(
        self, finish: Callable[[JobEnd], Completion], *, limit: int, host_id: int
    ) -> tuple[int, Sequence[Member]]:
        """See `workflow_ports.WorkflowStore.end_job_workflows`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "job_workflow_ends", {"limit": limit})
        timers: list[Member] = []
        try:
            return await self._end_all(rows, finish, host_id, timers), tuple(timers)
        except (Retryable, Conflict) as fault:
            if not timers:
                raise
            # Some are committed, and their retries wait for these timers; the others are found again.
            log.warning("ending runs whose workflows ended was interrupted", fault=str(fault)[:200])
            return len(timers), timers

    async def _end_all(
        self, rows: Sequence[Row], finish: Callable[[JobEnd], Completion], host_id: int, timers: list[Member]
    ) -> int:
        """How many were ended or put off. Into `timers` goes what is committed, as soon as it is."""
        if not rows:
            return 0
        try:
            ends = [_end(row) for row in rows]
            applied = await self.complete([finish(end) for end in ends], host_id=host_id)
        except (Retryable, Conflict):
            raise
        except Exception as fault:  # noqa: BLE001 - logged where it is put off
            if len(rows) == 1:
                await self._put_off(rows[0], fault)
                return 1
            # One of them is in the others' way.
            half = len(rows) // 2
            some = await self._end_all(rows[:half], finish, host_id, timers)
            return some + await self._end_all(rows[half:], finish, host_id, timers)
        timers += applied.retries
        async with self._database.transaction() as connection:
            columns = {
                "tenants": uuids([end.tenant_id for end in ends]),
                **run_columns([end.key for end in ends]),
                "epochs": int8s([end.epoch for end in ends]),
            }
            await run(connection, "job_workflow_forget", columns)
        return len(ends)


def _done(new: NewExecution) -> _Outcome:
    return "END", new.run_id, new.workflow_id, Status.COMPLETED.value, None


async def _starts(
    connection: Connection, rows: Sequence[Row], workflow_id: Callable[[RunKey], str]
) -> list[JobStart]:
    keys = [_key(row) for row in rows]
    definitions = [decode_definition(row[6]) for row in rows]
    tenants = uuids([row[0] for row in rows])
    asked = {
        "tenants": tenants,
        "names": labels([d.target.definition for d in definitions]),
        "versions": int4s([d.target.definition_version or 0 for d in definitions]),
    }
    sources = {
        i: (version, text) for i, version, text in await fetch_all(connection, "definition_sources", asked)
    }
    ids_ = {"tenants": tenants, "workflows": texts([workflow_id(key) for key in keys])}
    used = {i for (i,) in await fetch_all(connection, "job_workflow_used", ids_)}
    starts = []
    for i, (row, key, definition) in enumerate(zip(rows, keys, definitions, strict=True), 1):
        version, source = sources.get(i, (0, None))
        starts.append(
            JobStart(
                tenant_id=row[0],
                key=key,
                series=row[4],
                definition=definition,
                input=row[7],
                now_ms=datetime_to_ms(row[9]),
                version=version,
                source=source,
                first=i not in used,
            )
        )
    return starts


async def _note(
    connection: Connection,
    starts: Sequence[JobStart],
    outcomes: Sequence[_Outcome],
    shown: Sequence[tuple[JobStart, NewExecution]],
) -> None:
    await run(
        connection,
        "job_workflow_begun",
        {
            "tenants": uuids([start.tenant_id for start in starts]),
            **run_columns([start.key for start in starts]),
            "todos": labels([todo for todo, _, _, _, _ in outcomes]),
            "runs": texts([None if run_id is None else str(run_id) for _, run_id, _, _, _ in outcomes]),
            "workflows": texts([name for _, _, name, _, _ in outcomes]),
            "statuses": labels([status for _, _, _, status, _ in outcomes]),
            "errors": texts([error for _, _, _, _, error in outcomes]),
        },
    )
    if shown:
        told = [
            {"workflow_id": new.workflow_id, "run_id": ids.encode(ids.WORKFLOW_RUN, new.run_id)}
            for _, new in shown
        ]
        await run(
            connection,
            "job_workflow_shown",
            {
                "tenants": uuids([start.tenant_id for start, _ in shown]),
                **run_columns([start.key for start, _ in shown]),
                "shown": texts([_encode(each).decode() for each in told]),
            },
        )


def _key(row: Row) -> RunKey:
    return RunKey(parent_id=row[1], scheduled_for=row[2], ordinal=row[3])


def _end(row: Row) -> JobEnd:
    epoch, status, error, result, definition, series, attempt, priority, shard, version = row[4:14]
    claimed_at, started_at, due_at, now = row[14:]
    return JobEnd(
        tenant_id=row[0],
        key=_key(row),
        epoch=epoch,
        status=status,
        error=error,
        result=result,
        definition=decode_definition(definition),
        version=version,
        series=series,
        attempt=attempt,
        priority=priority,
        shard=shard,
        claimed_ms=datetime_to_ms(claimed_at),
        started_ms=datetime_to_ms(started_at or claimed_at),
        due_ms=datetime_to_ms(due_at),
        now_ms=datetime_to_ms(now),
    )
