"""A process of a cell in a region that does not own it: it waits, and begins anew when the owner changes."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg

from cells.observability.logs import logger
from cells.store.queries import QUERIES

log = logger(__name__)

#: Between looks whether this region has come to own its cell (seconds).
PAUSE = 0.25


async def until_primary(url: str, stopping: asyncio.Event) -> None:
    """Return once this region's database takes writes, or `stopping` is set."""
    said = ""
    while not stopping.is_set():
        waits_for = await asyncio.to_thread(_waits_for, url)
        if not waits_for:
            return
        if waits_for != said:
            log.info("this region does not own the cell: waiting", why=waits_for)
            said = waits_for
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await stopping.wait()


def _waits_for(url: str) -> str:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=3) as connection:
            row = connection.execute(QUERIES["cell_standby"]).fetchone()
    except psycopg.OperationalError as fault:
        return str(fault).strip()[:200]
    return "its database follows another region's" if row is None or row[0] else ""


async def first_of(*events: asyncio.Event) -> None:
    """Return once one of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
