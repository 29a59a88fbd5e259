"""The routing table, kept up to date from Django and remembered on disk.

A snapshot first, then what changed since its cursor, each second. With Django away the
router starts from the copy on disk and goes on with what it has; `age_ms` says how old the
table is. The copy's modification time is the time of the last successful look, so the age
survives a restart.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from controlplane.routing.control import CALL_FAULTS, ControlPlane
from controlplane.routing.disk import write_atomically
from controlplane.routing.table import Changes, Snapshot, Table

log = logging.getLogger(__name__)

_SNAPSHOT = msgspec.json.Decoder(Snapshot)
_CHANGES = msgspec.json.Decoder(Changes)
_PATH = "/internal/routing"


class FeedFault(Exception):
    """Django answered something that is no feed."""


def _table(content: bytes) -> Table:
    """A snapshot's table, with keys that can sign: one that cannot is no table."""
    table = Table(_SNAPSHOT.decode(content))
    for name in table.cells:
        try:
            table.cell_secret(name)
        except ValueError:
            raise FeedFault(f"the key of {name} is not hexadecimal") from None
    return table


class Feed:
    """Holds the current `table` (None until one is loaded)."""

    def __init__(self, control: ControlPlane, folder: Path, *, now_ms: Callable[[], int]) -> None:
        self.table: Table | None = None
        self.synced_ms = 0
        self._control = control
        self._copy = folder / "feed.json"
        self._now_ms = now_ms
        self._refresh: asyncio.Task[bool] | None = None
        self._live = True

    @property
    def age_ms(self) -> int:
        """How long ago the table was last known to be current."""
        return max(0, self._now_ms() - self.synced_ms)

    def load_copy(self) -> bool:
        """Take the copy on disk, if there is a readable one."""
        try:
            table = _table(self._copy.read_bytes())
            kept_ms = int(self._copy.stat().st_mtime * 1000)
        except FileNotFoundError:
            return False
        except (OSError, FeedFault, msgspec.MsgspecError) as fault:
            log.error("the copy of the feed is not readable: %r", fault)
            return False
        # A time that is still to come says nothing about the copy's age: it may be any.
        self.synced_ms = kept_ms if kept_ms <= self._now_ms() else 0
        self.table = table
        return True

    async def run(self, stop: asyncio.Event, *, every_s: float) -> None:
        """Look for changes until `stop` is set."""
        while not stop.is_set():
            await self.refresh()
            try:
                async with asyncio.timeout(every_s):
                    await stop.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> bool:
        """Look for changes now; False if Django could not be asked. Calls at once share a look."""
        if self._refresh is None:
            self._refresh = asyncio.create_task(self._look(), name="feed-look")
            self._refresh.add_done_callback(self._looked)
        return await asyncio.shield(self._refresh)

    def _looked(self, _: asyncio.Task[bool]) -> None:
        self._refresh = None

    async def _look(self) -> bool:
        asked_ms = self._now_ms()
        try:
            changed = await self._pull()
        except (*CALL_FAULTS, FeedFault, msgspec.MsgspecError) as fault:
            if self._live:
                log.warning("the feed is away: %r", fault)
            self._live = False
            return False
        if not self._live:
            log.info("the feed is back")
        self._live = True
        self.synced_ms = asked_ms  # when the question was asked, not when it was answered
        try:
            await asyncio.to_thread(self._keep, changed)
        except OSError as fault:
            log.error("the copy of the feed was not written: %r", fault)
        return True

    async def _pull(self) -> bool:
        """Bring the table up to date; whether anything changed."""
        if self.table is not None:
            status, body = await self._control.get(
                f"{_PATH}/changes?cursor={quote(self.table.cursor, safe='')}"
            )
            if status == 200:
                changes = _CHANGES.decode(body)
                moved = changes.cursor != self.table.cursor
                self.table.apply(changes)
                return moved
            if status != 410:
                raise FeedFault(f"changes answered {status}")
        status, body = await self._control.get(f"{_PATH}/snapshot")
        if status != 200:
            raise FeedFault(f"snapshot answered {status}")
        self.table = _table(body)
        return True

    def _keep(self, changed: bool) -> None:
        table = self.table
        if table is not None and (changed or not self._copy.exists()):
            write_atomically(self._copy, msgspec.json.encode(table.snapshot(now_ms=self.synced_ms)))
        seconds = self.synced_ms / 1000
        os.utime(self._copy, (seconds, seconds))
