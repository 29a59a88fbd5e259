"""What a tenant's jobs have ahead of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cells.domain.herd import JOBS_LIMIT, TIMERS_LIMIT, Alike
from cells.domain.job import Priority, Schedule
from cells.store.base import StoreBase
from cells.store.calendars import with_calendar
from cells.store.database import fetch_all

_decode = msgspec.json.Decoder(Schedule).decode


class Herds(StoreBase):
    """`herd`."""

    async def herd(
        self,
        tenant_id: uuid.UUID,
        *,
        since: datetime,
        until: datetime,
        target_id: str | None,
        priority: Priority | None,
    ) -> tuple[Mapping[datetime, int], Sequence[Alike]]:
        """See `ports.Store.herd`."""
        parameters = {
            "tenant": tenant_id,
            "since": since,
            "until": until,
            "target": target_id,
            "priority": None if priority is None else int(priority),
        }
        async with self._database.transaction() as connection:
            timers: dict[datetime, int] = dict(
                await fetch_all(connection, "herd_timers", {**parameters, "most": TIMERS_LIMIT})
            )
            rows = await fetch_all(connection, "herd_recurring", {**parameters, "most": JOBS_LIMIT})
            schedules = {text: _decode(text) for text in {row[0] for row in rows}}
            for text, schedule in schedules.items():
                if schedule.calendar is not None:
                    schedules[text] = await with_calendar(connection, tenant_id, schedule)
        found: dict[tuple[str, datetime], list[tuple[int, int]]] = {}
        for schedule, next_run_at, offset, count in rows:
            found.setdefault((schedule, next_run_at), []).append((offset, count))
        return timers, [
            Alike(schedule=schedules[schedule], waits_for=at, offsets=offsets)
            for (schedule, at), offsets in found.items()
        ]
