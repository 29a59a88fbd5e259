"""Runs and workflows of a tenant, wherever they are: in the store, or in the lake only."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta

from cells.api.problems import unavailable
from cells.api.routing import Call
from cells.domain.ids import RunKey
from cells.observability.logs import logger
from cells.ports import FoundRuns, History, Retryable, RunFilter, RunRow
from cells.workflow_ports import FoundWorkflows, WorkflowFilter, WorkflowRow

log = logger(__name__)

_DAY = timedelta(days=1)
_LAST = uuid.UUID(int=2**128 - 1)
_Begun = tuple[datetime, uuid.UUID]


async def find_run(call: Call, key: RunKey) -> RunRow | None:
    """A run of the caller, or None."""
    row = await call.services.store.get_run(call.tenant_id, key)
    history = call.services.history
    if row is None and history is not None:
        try:
            row = await history.get_run(call.tenant_id, key)
        except TimeoutError as slow:
            raise unavailable("The history takes too long to answer; try again.") from slow
    return row


async def find_runs(call: Call, where: RunFilter, *, after: RunKey | None, limit: int) -> FoundRuns:
    """A page of the caller's runs, as `ports.Store.find_runs`. It may be short, even empty, and have more
    behind it: looking far back has its time."""
    found = await call.services.store.find_runs(call.tenant_id, where, after=after, limit=limit)
    history = call.services.history
    if history is None or not await _reaches_back(history, found, limit):
        return found
    try:
        older = await history.find_runs(call.tenant_id, where, after=after, limit=limit)
    except TimeoutError as slow:
        raise unavailable("The history takes too long to answer; ask for less of it.") from slow
    reached = max((at for at in (found.reached, older.reached) if at is not None), key=_place, default=None)
    runs = _merged(found.runs, older.runs, reached)[:limit]
    return FoundRuns(runs=runs, reached=reached if len(runs) < limit else None)


async def _reaches_back(history: History, found: FoundRuns, limit: int) -> bool:
    """Whether runs that are in the lake only may belong on this page."""
    newest = await history.newest_day()
    if newest is None:
        return False
    end = datetime.combine(newest, time(), UTC) + _DAY
    if found.reached is not None:
        return found.reached.scheduled_for < end
    return len(found.runs) < limit or found.runs[-1].key.scheduled_for < end


def _merged(rows: Sequence[RunRow], older: Sequence[RunRow], reached: RunKey | None) -> list[RunRow]:
    """Both, newest first; a run that is in both as the store has it. What lies behind the place where one
    of them ended is left for the next page."""
    here = {row.key for row in rows}
    both = [*rows, *(row for row in older if row.key not in here)]
    if reached is not None:
        both = [row for row in both if _place(row.key) >= _place(reached)]
    return sorted(both, key=lambda row: _place(row.key), reverse=True)


def _place(key: RunKey) -> tuple[datetime, uuid.UUID, int]:
    return key.scheduled_for, key.parent_id, key.ordinal


async def find_workflows(
    call: Call, where: WorkflowFilter, *, after: _Begun | None, limit: int
) -> FoundWorkflows:
    """A page of the caller's executions, as `WorkflowStore.list_workflows`. It may be short, even empty, and
    have more behind it. Where the lake does not answer, what began later than what is there is a page."""
    found = await call.services.store.list_workflows(call.tenant_id, where, after=after, limit=limit)
    history = call.services.history
    newest = None if history is None else await history.workflows_began_until(call.tenant_id)
    if history is None or newest is None:
        return found
    until = found.reached[0] if found.reached is not None else None
    if until is None and len(found.rows) >= limit:
        until = found.rows[-1].started_at
    if until is not None and until > newest:
        return found  # whatever is in the lake began earlier
    try:
        older = await history.list_workflows(call.tenant_id, where, after=after, limit=limit)
    except (TimeoutError, Retryable) as fault:
        if not any(row.started_at > newest for row in found.rows):
            raise unavailable("The history takes too long to answer; ask for less of it.") from fault
        log.warning("workflows are listed without the lake", fault=str(fault)[:200])
        older = FoundWorkflows(rows=(), reached=(newest, _LAST))
    reached = max((at for at in (found.reached, older.reached) if at is not None), default=None)
    here = {row.run_id for row in found.rows}
    rows = [*found.rows, *(row for row in older.rows if row.run_id not in here)]
    if reached is not None:
        rows = [row for row in rows if _begun(row) >= reached]
    rows = sorted(rows, key=_begun, reverse=True)[:limit]
    return FoundWorkflows(rows=rows, reached=reached if len(rows) < limit else None)


def _begun(row: WorkflowRow) -> _Begun:
    return row.started_at, row.run_id
