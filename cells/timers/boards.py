"""Shared limits and parked work on Valkey (`cells.limits.LimitBoard`)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cells.domain.breaker import BreakerState
from cells.limits import LimitMinute, Shares, TargetBoard, TargetKey, TargetReport, TargetShare
from cells.ports import Clock, Member
from cells.timers import members as packing
from cells.timers.keys import Keys
from cells.timers.valkey import Valkey

#: Reports per script call; Valkey serves nobody else meanwhile.
_CHUNK = 200
_CHUNK_PARKED = 1000
_STATES = (BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN)
_BROKE, _RECOVERED = 1, 2
_CLASSES = range(4)
_released = struct.Struct(">d").pack


def packed_key(key: TargetKey) -> bytes:
    """A target in keys: its tenant's 16 bytes and its own id."""
    tenant, target = key
    return tenant.bytes + target.encode()


class Boards:
    """Mixed into the queue: it shares its keys, its clock and its connection."""

    keys: Keys
    _clock: Clock
    _valkey: Valkey

    async def exchange(self, executor: str, reports: Sequence[TargetReport], *, lease_ms: int) -> Shares:
        """See `LimitBoard.exchange`. Without reports it only says that it is alive."""
        executors, shares, forsaken = 0, list[TargetShare](), list[TargetKey]()
        for start in range(0, max(len(reports), 1), _CHUNK):
            chunk = reports[start : start + _CHUNK]
            rows = msgspec.msgpack.encode([_row(report) for report in chunk])
            names = [packed_key(report.key) for report in chunk]  # Lua's msgpack knows no bytes
            head, *rest = await self._valkey.script(
                "exchange", self._clock.now_ms(), executor, lease_ms, rows, *names
            )
            executors, alone, views = msgspec.msgpack.decode(head)
            forsaken += [(uuid.UUID(bytes=name[:16]), name[16:].decode()) for name in rest[:alone]]
            blobs = iter(rest[alone:])
            shares += [_share(view, next(blobs) if view[8] else b"") for view in views]
        return Shares(executors=executors, shares=shares, forsaken=forsaken)

    async def park(self, members: Sequence[tuple[Member, str]]) -> None:
        """See `LimitBoard.park`."""
        for start in range(0, len(members), _CHUNK_PARKED):
            groups: dict[tuple[int, bytes], list[int | bytes]] = {}
            for member, target in members[start : start + _CHUNK_PARKED]:
                group = groups.setdefault((int(member.priority), packed_key((member.tenant_id, target))), [])
                group += (
                    member.due_ms,
                    _released(float(member.released_ms or member.due_ms)),
                    packing.pack(member),
                )
            args: list[int | bytes] = []
            for (priority, target_key), flat in groups.items():
                args += (priority, target_key, len(flat) // 3)
                args += flat
            await self._valkey.script("park", self._clock.now_ms(), *args)

    async def target_board(self, key: TargetKey) -> TargetBoard | None:
        """See `LimitBoard.target_board`."""
        name, now = packed_key(key), self._clock.now_ms()
        stored, minutes, *parked = await self._valkey.commands(
            ("GET", self.keys.board(name)),
            ("LRANGE", self.keys.history(name), 0, -1),
            *(("ZCARD", self.keys.park(priority, name)) for priority in _CLASSES),
        )
        if stored is None:
            return None
        s: dict[str, Any] = msgspec.msgpack.decode(stored)
        past = [msgspec.msgpack.decode(minute) for minute in minutes]
        minute_now = now // 60_000
        breaker = _STATES[s["state"]]
        remaining = s["remaining"] if s["remaining"] >= 0 and s["renews"] > now else None
        usable = int(s["limit"]) if remaining is None else min(int(s["limit"]), remaining)
        if breaker is BreakerState.OPEN or s["paused"] > now:
            usable = 0
        elif breaker is BreakerState.HALF_OPEN:
            usable = min(usable, 1)
        return TargetBoard(
            limit=float(s["limit"]),
            usable=usable,
            breaker=breaker,
            until_ms=int(s["wait"]),
            paused_until_ms=int(s["paused"]),
            remaining=remaining,
            renews_ms=int(s["renews"]),
            executors=sum(one[3] > now for one in s["x"].values()) if isinstance(s["x"], dict) else 0,
            parked=(parked[0], parked[1], parked[2], parked[3]),
            minutes=[
                LimitMinute(minute=m, lowest=low, latest=last, parked=most, breaker=_STATES[state])
                for m, low, last, most, state in [*past, s["minute"]]
                if m > minute_now - 60
            ],
        )

    async def parked_for(self, members: Sequence[Member]) -> Sequence[str | None]:
        """See `LimitBoard.parked_for`."""
        if not members:
            return ()
        found = await self._valkey.commands(
            *(("HGET", self.keys.parked(int(m.priority)), packing.pack(m)) for m in members)
        )
        # The time of its release, the tenant, and then the target's id.
        return [place[24:].decode() if place is not None else None for place in found]

    async def take_places(self, wanted: Mapping[uuid.UUID, int]) -> Mapping[uuid.UUID, int]:
        """See `LimitBoard.take_places`."""
        tenants = list(wanted)
        args = [part for tenant in tenants for part in (tenant.bytes, wanted[tenant])]
        granted = await self._valkey.script("places", *args)
        return {tenant: n for tenant, n in zip(tenants, granted, strict=True) if n >= 0}

    async def give_places(self, unused: Mapping[uuid.UUID, int]) -> None:
        """See `LimitBoard.give_places`."""
        if unused:
            await self._valkey.script("places", *(part for t, n in unused.items() for part in (t.bytes, -n)))


def _row(report: TargetReport) -> list[object]:
    seen, observed, told = report.observed.seen, report.observed, report.observed.told
    return [
        report.initial,
        report.most,
        report.running,
        report.wanted,
        report.held,
        report.ahead,
        report.free,
        list(report.members),
        seen.bottleneck,
        seen.good,
        seen.overloaded,
        observed.calls,
        observed.failures,
        observed.probes,
        observed.failed_probes,
        observed.pause_until_ms,
        -1 if told is None else told.remaining,
        0 if told is None else told.renews_ms,
        report.known_limit,
    ]


def _share(view: list[Any], blob: bytes) -> TargetShare:
    calls, limit, state, wait, paused, remaining, parked, happened, _ = view
    return TargetShare(
        calls=int(calls),
        limit=float(limit),
        breaker=_STATES[state],
        until_ms=int(wait),
        paused_until_ms=int(paused),
        remaining=None if remaining < 0 else int(remaining),
        parked=int(parked),
        broke=happened == _BROKE,
        recovered=happened == _RECOVERED,
        members=packing.unpack_popped(blob) if blob else (),
    )
