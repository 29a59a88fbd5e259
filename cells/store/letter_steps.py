"""Slices of operations over dead letters: paced, and careful with those that come back.

A redrive sends the first letter of each fingerprint and waits for its run's end, then ten more of
each, then the rest. Whenever one fails exactly as before, the operation ends by itself: the cause is
still there, and the letters behind it stay open.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import psycopg

from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.outcome import fingerprint
from cells.domain.run import TERMINAL
from cells.ports import BulkAction, Member, OperationStep
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row
from cells.store.journal import Entry
from cells.store.letters import CLOSED, letter_columns, redriven_member
from cells.store.selections import operation_row, tell_operation

_CHUNK = 1000
#: Letters dealt with in one transaction at most.
_SLICE = 200
#: Slices a second, so that a pace is kept and not a burst.
_SLICES_PER_SECOND = 10
#: How long until those sent first are looked at again.
_WAIT_MS = 250
#: A letter may become visible this long after the time it bears: its transaction was open.
_OVERLAP = timedelta(seconds=15)
_FAILURES = 20
_TERMINAL = frozenset(state.value for state in TERMINAL)

GONE = "its run is no longer kept"
_UNWRITABLE = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)

_Letter = tuple[uuid.UUID, datetime, int, int]


@dataclass(frozen=True, slots=True)
class _Turn:
    """What `operation_next` said of the operation whose turn it is."""

    tenant: uuid.UUID
    operation_id: uuid.UUID
    selection_id: uuid.UUID
    action: BulkAction
    position: int
    total: int
    rate: int
    actor: str
    stages: Sequence[int]
    looked_at: datetime

    @property
    def key(self) -> dict[str, object]:
        return {"tenant": self.tenant, "operation": self.operation_id}

    def size(self) -> int:
        """How many letters now: by the pace, and never past the end of a stage or a chunk."""
        ends = [self.total, (self.position // _CHUNK + 1) * _CHUNK, *self.stages]
        room = min(end - self.position for end in ends if end > self.position)
        return min(_SLICE, max(1, self.rate // _SLICES_PER_SECOND), room)


async def step_letters(connection: Connection, entry: Entry, row: Row) -> OperationStep:
    """Deal with the next letters of the operation that is locked; the caller journals."""
    tenant, _, _, operation_id, selection_id, action, position, *more = row
    turn = _Turn(tenant, operation_id, selection_id, BulkAction(action), position, *more)
    if turn.action is BulkAction.REDRIVE and position > 0:
        why, waits = await _looked(connection, turn)
        if why is not None:
            halted = operation_row(
                tenant, await fetch_row(connection, "operation_halt", {**turn.key, "reason": why})
            )
            entry.intent(tenant, "operation.stop", operation_id.hex, position, position)
            tell_operation(entry, "operation.stopped", halted, None)
            return OperationStep(operation=halted, removed=(), added=())
        if waits:
            waiting = await fetch_row(connection, "operation_wait", {**turn.key, "wait_ms": _WAIT_MS})
            entry.intent(tenant, "operation.step", operation_id.hex, position, position)
            return OperationStep(operation=operation_row(tenant, waiting), removed=(), added=())
    letters = await _slice(connection, turn, turn.size())
    added, counts = await _dealt_with(connection, turn, letters)
    after = await fetch_row(connection, "operation_advance", {**turn.key, **counts})
    entry.intent(tenant, "operation.step", operation_id.hex, position, position + len(letters))
    found = operation_row(tenant, after)
    if found.state == "DONE":
        tell_operation(entry, "operation.ended", found, found.created_by)
    return OperationStep(operation=found, removed=(), added=added)


async def _looked(connection: Connection, turn: _Turn) -> tuple[str | None, bool]:
    """Why to stop, if there is a reason, and whether those sent must be waited for."""
    if turn.position not in turn.stages:
        row = await fetch_one(
            connection, "letters_returned", {**turn.key, "since": turn.looked_at - _OVERLAP}
        )
        return (None if row is None else _came_back(*row)), False
    waits = False
    for print_, target_id, state, attempt, status_text, error in await fetch_all(
        connection, "letters_canaries", turn.key
    ):
        status = None if status_text is None else int(status_text)
        failed = state in ("FAILED", "UNKNOWN") or (state == "RETRY_WAIT" and attempt > 0)
        if failed and fingerprint(target_id, status, error) == print_:
            return _came_back(print_, target_id, status, error), False
        waits = waits or state not in _TERMINAL
    return None, waits


def _came_back(print_: str, target_id: str | None, status: int | None, error: str | None) -> str:
    how = f"HTTP {status}" if status is not None else error or "no answer"
    return f"one failed again as before ({print_}): {how} from {target_id}"[:300]


async def _slice(connection: Connection, turn: _Turn, size: int) -> list[_Letter]:
    chunk, first = divmod(turn.position, _CHUNK)
    row = await fetch_one(
        connection,
        "letters_slice",
        {
            "tenant": turn.tenant,
            "selection": turn.selection_id,
            "chunk": chunk,
            "first": first + 1,
            "last": first + size,
        },
    )
    return [] if row is None else list(zip(*row, strict=True))


async def _dealt_with(
    connection: Connection, turn: _Turn, letters: Sequence[_Letter]
) -> tuple[list[Member], dict[str, object]]:
    """Redrive or purge them: the timers they have now, and the counts for `operation_advance`."""
    failures: list[tuple[str, str]] = []
    try:
        async with connection.transaction():
            added, done = await _written(connection, turn, letters)
    except _UNWRITABLE:
        added, done = [], set()
        for i, letter in enumerate(letters, 1):  # one of them stands in the others' way
            try:
                async with connection.transaction():
                    members, one = await _written(connection, turn, [letter])
            except _UNWRITABLE:
                failures.append((_run_id(letter), "the letter cannot be written"))
            else:
                added += members
                done |= {i} if one else set()
    if len(done) + len(failures) < len(letters):
        columns = letter_columns(letters)
        for i, letter_state, run_state, closed in await fetch_all(
            connection, "letters_states", {**turn.key, **columns}
        ):
            if i not in done and letter_state == "OPEN" and (closed or run_state is None):
                failures.append((_run_id(letters[i - 1]), CLOSED if closed else GONE))
    return added, {
        "done": len(done),
        "unchanged": len(letters) - len(done) - len(failures),
        "failed": len(failures),
        "reasons": msgspec.json.encode(Counter(reason for _, reason in failures)).decode(),
        "failures": msgspec.json.encode(failures[:_FAILURES]).decode(),
    }


async def _written(
    connection: Connection, turn: _Turn, letters: Sequence[_Letter]
) -> tuple[list[Member], set[int]]:
    """The timers, and which of the letters (from 1) were open until now."""
    parameters = {**turn.key, "actor": turn.actor, **letter_columns(letters)}
    if turn.action is BulkAction.PURGE:
        return [], {row[0] for row in await fetch_all(connection, "letters_purge", parameters)}
    rows = await fetch_all(connection, "letters_redrive", parameters)
    return [redriven_member(turn.tenant, row) for row in rows], {row[0] for row in rows}


def _run_id(letter: _Letter) -> str:
    parent, at, ordinal, _ = letter
    return ids.run_id(RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal))
