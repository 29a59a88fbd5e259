"""Dead letters that are begun anew or done with: frozen selections of them, and one alone."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import errors

from cells.bulk import LetterFilter
from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.run import run_generation
from cells.ports import BulkAction, Conflict, Fence, Member, Retryable, SelectionRow, Terminal
from cells.store.arrays import due_to_ms, from_datetime, instants, int4s, uuids
from cells.store.base import StoreBase
from cells.store.database import Row, fetch_all, fetch_one, fetch_row
from cells.store.idempotency import Keyed, keep, made_before
from cells.store.journal import seconds
from cells.store.selections import SAMPLE, SELECTION_LIMIT, selection_row

#: Why an activity is not redriven.
CLOSED = "its workflow has ended, and nobody would undo what it does"
_LETTER = ("series", "fingerprint", "reason", "target_id", "http_status", "error", "attempt", "failed_at")


class Letters(StoreBase):
    """Choosing letters, and redriving one."""

    async def select_letters(
        self,
        fence: Fence,
        *,
        selection_id: uuid.UUID,
        action: BulkAction,
        where: LetterFilter,
        described: bytes,
        expires_at: datetime,
        actor: str,
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> SelectionRow:
        """See `ports.Store.select_letters`."""
        runs = where.runs or ()
        parameters = {
            "tenant": fence.tenant_id,
            "selection": selection_id,
            "action": action.value,
            "filter": described,
            "actor": actor,
            "expires": expires_at,
            "limit": SELECTION_LIMIT + 1,
            "named": where.runs is not None,
            "target": where.target_id,
            "fingerprint": where.fingerprint,
            "job": where.job_id,
            "reason": where.reason,
            "failed_from": where.failed_from,
            "failed_until": where.failed_until,
            "parents": uuids([key.parent_id for key in runs]),
            "instants": instants([from_datetime(key.scheduled_for) for key in runs]),
            "ordinals": int4s([key.ordinal for key in runs]),
        }
        try:
            return await self._freeze_letters(fence, selection_id, parameters, idempotency, host_id)
        except errors.UniqueViolation as taken:
            if idempotency is None:
                raise
            raise Retryable("the idempotency key is in use") from taken

    async def _freeze_letters(
        self,
        fence: Fence,
        selection_id: uuid.UUID,
        parameters: Mapping[str, object],
        idempotency: Keyed | None,
        host_id: int,
    ) -> SelectionRow:
        tenant = fence.tenant_id
        async with self._write(fence, host_id) as (connection, entry):
            if idempotency is not None:
                known = await made_before(connection, tenant, idempotency)
                if known is not None:
                    first = {"tenant": tenant, "selection": uuid.UUID(bytes=known)}
                    made = await fetch_one(connection, "selection_get", first)
                    if made is None:
                        raise Conflict("the selection that was made under this key has expired")
                    entry.intent(tenant, "selection.replay", first["selection"].hex, 0, 0)
                    return selection_row(made)
                await keep(connection, tenant, idempotency, selection_id.bytes, status=202)
            row = await fetch_row(connection, "letters_freeze", parameters)
            if row[3] > SELECTION_LIMIT:
                raise Terminal(f"the filter finds more than {SELECTION_LIMIT} dead letters; narrow it")
            entry.intent(tenant, "selection.create", selection_id.hex, 0, 1)
            return selection_row(row)

    async def letter_sample(
        self, tenant_id: uuid.UUID, selection_id: uuid.UUID
    ) -> Sequence[Mapping[str, Any]]:
        """The first letters of a selection, as they are now."""
        parameters = {"tenant": tenant_id, "selection": selection_id, "size": SAMPLE}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "letters_sample", parameters)
        return [
            {
                "key": RunKey(parent_id=row[0], scheduled_for=row[1], ordinal=row[2]),
                **dict(zip(_LETTER, row[3:], strict=True)),
            }
            for row in rows
        ]

    async def redrive_letter(
        self, fence: Fence, *, key: RunKey, actor: str, host_id: int
    ) -> Sequence[Member]:
        """See `ports.Store.redrive_letter`."""
        tenant = fence.tenant_id
        where = {
            "tenant": tenant, "parent": key.parent_id, "at": key.scheduled_for, "ordinal": key.ordinal,
        }  # fmt: skip
        async with self._write(fence, host_id) as (connection, entry):
            open_ = await fetch_one(connection, "letter_open", where)
            if open_ is None:
                raise Terminal("no open dead letter")
            letter = (key.parent_id, key.scheduled_for, key.ordinal, open_[0])
            parameters = {"tenant": tenant, "operation": None, "actor": actor, **letter_columns([letter])}
            rows = await fetch_all(connection, "letters_redrive", parameters)
            if not rows:
                states = await fetch_all(connection, "letters_states", parameters)
                if any(state == "OPEN" and closed for _, state, _, closed in states):
                    raise Conflict(CLOSED)
                raise Conflict("the letter was dealt with by somebody else, or its run is no longer kept")
            text = ids.run_id(key)
            entry.intent(tenant, "run.redrive", text, open_[0], open_[0] + 1)
            entry.event(tenant, "run.redriven", text, actor, series=open_[0] + 1)
            return [redriven_member(tenant, row) for row in rows]

    async def redriven_states(self, tenant_id: uuid.UUID, operation_id: uuid.UUID) -> Mapping[str, int]:
        """See `ports.Store.redriven_states`."""
        parameters = {"tenant": tenant_id, "operation": operation_id}
        async with self._database.transaction() as connection:
            return dict(await fetch_all(connection, "letters_outcomes", parameters))


def letter_columns(letters: Sequence[tuple[uuid.UUID, datetime, int, int]]) -> dict[str, object]:
    """Letters (parent, instant, ordinal, series) as the statements take them."""
    return {
        "parents": uuids([parent for parent, *_ in letters]),
        "instants": instants([from_datetime(at) for _, at, *_ in letters]),
        "ordinals": int4s([ordinal for _, _, ordinal, _ in letters]),
        "series": int4s([series for *_, series in letters]),
    }


def redriven_member(tenant_id: uuid.UUID, row: Row) -> Member:
    """The timer of a run that begins anew: from the columns of `letters_redrive`."""
    _, parent, at, ordinal, series, priority, shard, timer_at = row
    return Member(
        tenant_id=tenant_id,
        parent_id=parent,
        scheduled_for=seconds(at),
        ordinal=ordinal,
        is_run=True,
        generation=run_generation(series, 0),
        priority=priority,
        due_ms=due_to_ms(timer_at),
        shard=shard,
    )
