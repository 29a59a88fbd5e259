"""A receiver of meters over real HTTP: keeps what it takes, checks signatures, fails on demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from cells.contract import BODY_HASH_HEADER, Caller, MeterRecord, SealedUntil, body_hash, verify_request

CELL = "cell-1"
KEY = bytes(range(32))

Key = tuple[str, ...]


def key_of(record: MeterRecord) -> Key:
    return tuple(str(getattr(record, name)) for name in record.__struct_fields__ if name != "quantity")


class _Call(msgspec.Struct):
    records: list[MeterRecord]
    watermarks: list[SealedUntil]


@dataclass
class Ledger:
    """Answers as the control plane does. `fault` may answer instead (None: nothing is wrong)."""

    taken: dict[Key, MeterRecord] = field(default_factory=dict)
    calls: list[list[MeterRecord]] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    strangers: set[str] = field(default_factory=set)  # tenants that never lived here
    poison: set[str] = field(default_factory=set)  # hosts whose records make a call malformed
    fault: Callable[[], web.Response | None] = lambda: None
    lose_answers: int = 0  # so many calls are taken, and then the connection breaks
    told: list[SealedUntil] = field(default_factory=list)
    late_word: bool = False  # watermarks make a call malformed
    silent: bool = False  # calls are taken, and never answered
    url: str = ""

    @property
    def total(self) -> int:
        return sum(record.quantity for record in self.taken.values())

    async def meters(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        caller = verify_request(
            keys={CELL: KEY},
            now_ms=time.time_ns() // 1_000_000,
            method=request.method,
            target=request.raw_path,
            headers=request.headers,
        )
        assert request.headers[BODY_HASH_HEADER] == body_hash(body)
        self.callers.append(caller)
        if (answer := self.fault()) is not None:
            return answer
        call = msgspec.json.decode(body, type=_Call)
        records = call.records
        if len(records) > 5000:
            return web.json_response({}, status=413)
        if records:
            self.calls.append(records)
        if self.late_word and call.watermarks:
            return web.json_response({"detail": "/watermarks/0: lies ahead"}, status=422)
        self.told += call.watermarks
        if any(record.host in self.poison for record in records):
            return web.json_response({"detail": "/records/0/host: too strange"}, status=422)
        results = [self._take(record) for record in records]
        if self.silent:
            await asyncio.Event().wait()
        if self.lose_answers:
            self.lose_answers -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"results": results})

    def _take(self, record: MeterRecord) -> str:
        if record.tenant_id in self.strangers:
            return "not_placed"
        before = self.taken.setdefault(key_of(record), record)
        if before is record:
            return "accepted"
        return "identical" if before == record else "conflict"
