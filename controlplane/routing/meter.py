"""Counts API requests per tenant and minute and ships them to Django.

Counts go to a spool file of this incarnation each second; a minute is sealed once it is
over, shipped, and shipped again until it is acknowledged. Spools of earlier incarnations
are picked up at start: nothing adds to them any more, so all their minutes are sealed.
A crash loses at most the last second.

With the records goes up to which minute all of an incarnation's are answered for, and in the end that
it is over: months are closed behind that. So a spool stays, empty if need be, until Django knows its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cells.contract import HostSealed, MeterRecord, Metric
from controlplane.routing.control import CALL_FAULTS, ControlPlane
from controlplane.routing.disk import write_atomically

log = logging.getLogger(__name__)

_MINUTE_MS = 60_000
_LARGEST_CALL = 5_000
_SETTLED = frozenset({"accepted", "identical"})
#: Django may not know yet what the feed already said; for a day it is asked again.
_NOT_PLACED = "not_placed"
#: A call with a record that no correct sender makes; nothing of it was taken.
_MALFORMED = 422
#: Answered record by record; 409 where one of them contradicts the ledger.
_ANSWERED = frozenset({200, 409})
_TAKEN = 200
_PATIENCE_MINUTES = 24 * 60
#: Seconds that a router which stops tells what it counted last.
_LAST_CALL_S = 3.0

#: (tenant, ownership epoch, minute since the epoch): what a count belongs to.
Slot = tuple[str, int, int]
#: (incarnation, slot, requests): a count that nothing adds to any more.
Sealed = tuple[str, Slot, int]


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """A spool file: what one incarnation counted and has not been told to forget."""

    host: str
    counts: list[tuple[str, int, int, int]]  # tenant, epoch, minute, requests


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Django's answer, one word per record, in order."""

    results: list[str]


_RESULTS = msgspec.json.Decoder(Results)


class Meter:
    """The counts of one router incarnation, and what earlier ones left behind."""

    def __init__(self, folder: Path, *, host: str, now_ms: Callable[[], int]) -> None:
        self._folder = folder / "meters"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._host = host
        self._now_ms = now_ms
        self._minute = now_ms() // _MINUTE_MS
        self._over = False  # nothing is counted any more: the minute under way is sealed, too
        self._told: dict[str, HostSealed] = {}  # what Django has heard of each incarnation
        self._counts: dict[Slot, int] = {}
        self._left: dict[str, dict[Slot, int]] = {}  # by earlier incarnation
        self._changed: set[str] = {host}  # there is a spool before anybody hears of its host
        self._ask_again: dict[tuple[str, Slot], int] = {}  # not placed yet: the minute of the next try
        for path in sorted(self._folder.glob("*.json")):
            self._take_over(path)

    def count(self, tenant_id: str, epoch: int) -> None:
        """One request. A clock that steps back never opens a sealed minute again."""
        self._minute = max(self._minute, self._now_ms() // _MINUTE_MS)
        slot = (tenant_id, epoch, self._minute)
        self._counts[slot] = self._counts.get(slot, 0) + 1
        self._changed.add(self._host)

    @property
    def unshipped(self) -> int:
        """Records not acknowledged yet, open minutes included."""
        return len(self._counts) + sum(len(counts) for counts in self._left.values())

    def flush(self) -> None:
        """Write the counts to disk, where they changed."""
        self._write(self._drafts())

    async def run(self, stop: asyncio.Event, control: ControlPlane, *, every_s: float = 1.0) -> None:
        """Flush each second and ship what is sealed, until `stop` is set. Requests have ended then: the
        last minute is shipped as well, or else by the next incarnation."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(every_s):
                    await stop.wait()
            except TimeoutError:
                await self._flush_aside()
                await self.ship(control)
        self._over = True
        await self._flush_aside()
        try:
            async with asyncio.timeout(_LAST_CALL_S):
                await self.ship(control)
        except TimeoutError:
            log.info("what was counted last is shipped by the next incarnation")

    async def ship(self, control: ControlPlane) -> int:
        """Send sealed minutes; how many were acknowledged. What Django does not place yet is asked for
        again a minute later, and never stands before what is newer."""
        sealed = self._sealed()
        done = 0
        for begin in range(0, len(sealed), _LARGEST_CALL):
            settled = await self._ship(control, sealed[begin : begin + _LARGEST_CALL])
            if settled is None:
                break
            done += settled
        else:
            await self._tell(control)
        await self._flush_aside()
        return done

    async def _tell(self, control: ControlPlane) -> None:
        """Say how far incarnations are answered for, where that is news."""
        news = [word for word in self._words() if self._told.get(word.host) != word]
        if not news:
            return
        body = msgspec.json.encode({"records": [], "incarnations": news})
        try:
            status, _ = await control.post("/internal/meters", body)
        except CALL_FAULTS as fault:
            log.debug("not told how far requests are counted: %r", fault)
            return
        if status != _TAKEN:
            log.warning("not told how far requests are counted: status %s", status)
            return
        for word in news:
            self._told[word.host] = word
            if word.ended:
                self._left.pop(word.host, None)
                self._changed.add(word.host)

    def _words(self) -> list[HostSealed]:
        counts = {**self._left, self._host: self._counts}
        return [
            HostSealed(
                host=host,
                sealed_until=_minute_text(min((slot[2] for slot in slots), default=self._minute)),
                ended=not slots and (self._over or host != self._host),
            )
            for host, slots in counts.items()
        ]

    async def _ship(self, control: ControlPlane, batch: list[Sealed]) -> int | None:
        """Send one call; how many records it settled. None: Django is away, the rest can wait."""
        records = [_record(host, slot, n) for host, slot, n in batch]
        try:
            status, body = await control.post("/internal/meters", msgspec.json.encode({"records": records}))
            results = _RESULTS.decode(body).results if status in _ANSWERED else []
        except (*CALL_FAULTS, msgspec.MsgspecError) as fault:
            log.debug("meters not shipped: %r", fault)
            return None
        if status == _MALFORMED:
            return await self._ship_halves(control, batch)
        if len(results) != len(batch):
            log.warning("meters not shipped: status %s, %s results", status, len(results))
            return None
        done = 0
        for (host, slot, n), result in zip(batch, results, strict=True):
            if result == _NOT_PLACED and self._minute - slot[2] < _PATIENCE_MINUTES:
                self._ask_again[host, slot] = self._minute + 1
                continue
            if result not in _SETTLED:
                self._set_aside(host, slot, n, result)
            self._forget(host, slot)
            done += 1
        return done

    async def _ship_halves(self, control: ControlPlane, batch: list[Sealed]) -> int | None:
        """Django takes nothing of a call that holds a record it cannot read: it is found by halving,
        and set aside, so that it stands in nobody's way."""
        if len(batch) == 1:
            host, slot, n = batch[0]
            self._set_aside(host, slot, n, "malformed")
            self._forget(host, slot)
            return 1
        middle = len(batch) // 2
        done = 0
        for half in (batch[:middle], batch[middle:]):
            settled = await self._ship(control, half)
            if settled is None:
                return None
            done += settled
        return done

    def _sealed(self) -> list[Sealed]:
        self._minute = max(self._minute, self._now_ms() // _MINUTE_MS)
        left = [(host, slot, n) for host, counts in self._left.items() for slot, n in counts.items()]
        open_minute = self._minute + 1 if self._over else self._minute
        own = [(self._host, slot, n) for slot, n in self._counts.items() if slot[2] < open_minute]
        again = self._ask_again
        return [count for count in left + own if again.get(count[:2], 0) <= self._minute]

    def _forget(self, host: str, slot: Slot) -> None:
        self._ask_again.pop((host, slot), None)
        if host == self._host:
            del self._counts[slot]
        else:
            del self._left[host][slot]
        self._changed.add(host)

    def _set_aside(self, host: str, slot: Slot, n: int, result: str) -> None:
        """Keep a record that Django will never take, for a person to look at."""
        log.error("a meter record was refused (%s): %s %s %s", result, host, slot, n)
        line = msgspec.json.encode({"result": result, "record": _record(host, slot, n)})
        with (self._folder / "refused.jsonl").open("ab") as file:
            file.write(line + b"\n")

    def _take_over(self, path: Path) -> None:
        try:
            spool = msgspec.json.decode(path.read_bytes(), type=Spool)
        except (OSError, msgspec.MsgspecError) as fault:
            log.error("a meter spool is not readable: %s: %r", path, fault)
            return
        self._left[spool.host] = {(tenant, epoch, minute): n for tenant, epoch, minute, n in spool.counts}

    def _drafts(self) -> list[tuple[str, bytes | None]]:
        """What has to be written, by host. None: Django knows that it is over."""
        drafts: list[tuple[str, bytes | None]] = []
        changed, self._changed = self._changed, set()
        for host in changed:
            counts = self._counts if host == self._host else self._left.get(host, {})
            rows = [(tenant, epoch, minute, n) for (tenant, epoch, minute), n in counts.items()]
            told = self._told.get(host)
            over = not rows and told is not None and told.ended
            drafts.append((host, None if over else msgspec.json.encode(Spool(host=host, counts=rows))))
        return drafts

    def _write(self, drafts: list[tuple[str, bytes | None]]) -> None:
        for host, content in drafts:
            path = self._folder / f"{host}.json"
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, content)

    async def _flush_aside(self) -> None:
        drafts = self._drafts()
        if not drafts:
            return
        try:
            await asyncio.to_thread(self._write, drafts)
        except OSError as fault:
            self._changed.update(host for host, _ in drafts)
            log.error("the meter spool was not written: %r", fault)


def _record(host: str, slot: Slot, n: int) -> MeterRecord:
    tenant_id, epoch, minute = slot
    return MeterRecord(
        tenant_id=tenant_id,
        cell="router",
        store=0,
        epoch=epoch,
        host=host,
        minute=_minute_text(minute),
        metric=Metric.API_REQUESTS,
        region_policy="",
        quantity=n,
    )


def _minute_text(minute: int) -> str:
    return f"{datetime.fromtimestamp(minute * 60, UTC):%Y-%m-%dT%H:%M:00Z}"
