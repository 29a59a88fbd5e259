"""Calendars that were made, changed or deleted in a region that came back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cells.returning.rows import Judged, as_bytes, fence_of
from cells.returns import Outcome, ReturnedIntent
from cells.scheduling import CalendarContent
from cells.store.postgres import PostgresStore


class CalendarsAgain:
    """Does such decisions again, each in one transaction with its own settlement."""

    def __init__(self, store: PostgresStore, host_id: Callable[[], int]) -> None:
        self._store = store
        self._host_id = host_id

    async def put(self, intent: ReturnedIntent, detail: Any) -> Judged:
        """One was made, or has other dates: its jobs follow here as they did there."""
        if not detail["calendars"] or not detail["calendar_versions"]:
            return Outcome.REFUSED, "the region has no such calendar any more"
        version = detail["calendar_versions"][0]
        await self._store.taking(intent).put_calendar(
            fence_of(intent),
            calendar_id=detail["name"],
            name=detail["calendars"][0]["name"],
            content=msgspec.json.decode(as_bytes(version["content"]), type=CalendarContent),
            base_version=detail["base"],
            actor=version["created_by"],
            host_id=self._host_id(),
        )
        return Outcome.APPLIED, None

    async def rename(self, intent: ReturnedIntent, detail: Any) -> Judged:
        """One is called something else."""
        here = await self._store.get_calendar(intent.tenant_id, detail["name"])
        if here is None or not detail["calendars"]:
            return Outcome.REFUSED, "the calendar is not here"
        await self._store.taking(intent).put_calendar(
            fence_of(intent),
            calendar_id=here.calendar_id,
            name=detail["calendars"][0]["name"],
            content=here.content,
            base_version=detail["base"],
            actor=f"region:{intent.region}",
            host_id=self._host_id(),
        )
        return Outcome.APPLIED, None

    async def delete(self, intent: ReturnedIntent, detail: Any) -> Judged:
        """One is gone, where no job refers to it here."""
        if await self._store.get_calendar(intent.tenant_id, detail["name"]) is None:
            return Outcome.ALREADY, None
        await self._store.taking(intent).delete_calendar(
            fence_of(intent),
            detail["name"],
            base_version=detail["base"],
            actor=f"region:{intent.region}",
            host_id=self._host_id(),
        )
        return Outcome.APPLIED, None
