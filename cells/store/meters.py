"""Sealing: which minutes can no longer change, and what was counted in them.

Three steps, each its own transaction. *Close*: the minutes that are over are closed; from then on
every journal row is dated after them, whatever the clock does. *Wait*: a transaction that began
before the closing was committed may have looked before it, so nothing is counted while one is
open. *Count*: the minutes' journal rows are added up from scratch, written once, and the place is
remembered in the same transaction. Running any step again changes nothing.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cells.contract import MeterRecord, Metric, SealedUntil
from cells.domain.ids import TENANT, decode, encode
from cells.domain.replication import replicated_writes
from cells.rounds import Rounds
from cells.store.arrays import from_datetime, instants, int2s, int8s, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Database, fetch_all, fetch_row, run

_MINUTE = timedelta(minutes=1)
#: Minutes sealed in one transaction: after a long stop there is a backlog.
_AT_MOST = 720
#: One transaction counts for so long, but one whole minute at least (seconds): one that takes too long is
#: ended, and would be tried again for ever.
_COUNTING_SECONDS = 5.0
#: Journal rows in memory at once: under load each tells of hundreds of runs.
_PAGE = 200
_MINUTE_FORMAT = "%Y-%m-%dT%H:%M:00Z"

Key = tuple[uuid.UUID, int, str, datetime, str, str]  # tenant, epoch, host, minute, metric, policy


class _Counts(msgspec.Struct):
    """The part of a journal body that is metered; the rest is skipped while decoding."""

    counts: list[tuple[str, str, str, int]] = []


_decode_counts = msgspec.json.Decoder(_Counts).decode


class Meters(StoreBase):
    """Sealing and shipping."""

    def __init__(self, database: Database, *, cell_name: str) -> None:
        super().__init__(database, cell_name=cell_name)
        # The closing that is being waited for, with a time at which it was surely committed.
        self._closed: tuple[datetime, datetime] | None = None

    async def seal_minutes(self) -> int:
        """Seal every minute that is over and that no open transaction can still change; how many
        were sealed. 0 also when another process is at it."""
        async with self._database.transaction() as connection:
            await run(connection, "seal_close")
        async with self._database.transaction() as connection:
            if not (await fetch_row(connection, "seal_lock"))[0]:
                return 0
            metered_until, sealed_until = await fetch_row(connection, "seal_state")
            (now,) = await fetch_row(connection, "seal_now")
            if metered_until >= sealed_until:
                return 0
            if self._closed is None or self._closed[0] != sealed_until:
                # Looking again must not move this time, or transactions that overlap each other
                # would hold the minute open for ever.
                self._closed = (sealed_until, now)
            if (await fetch_row(connection, "seal_blocked", {"closed_at": self._closed[1]}))[0]:
                return 0
            until = min(sealed_until, metered_until + _AT_MOST * _MINUTE)
            await run(connection, "seal_standbys_counted")
            (standbys,) = await fetch_row(connection, "seal_standbys")
            until = await self._meter(connection, metered_until, until, standbys)
            await run(connection, "seal_done", {"until": until})
            return int((until - metered_until) / _MINUTE)

    async def _meter(
        self, connection: Connection, since: datetime, until: datetime, standbys: int
    ) -> datetime:
        """Count from one minute to another, as far as there is time; how far."""
        end = time.monotonic() + _COUNTING_SECONDS
        quantities: Counter[Key] = Counter()
        place: dict[str, object] = {"at": since, "host": -1, "seq": -1}
        rounds = Rounds()
        while True:
            rows = await fetch_all(connection, "seal_bodies", {**place, "until": until, "page": _PAGE})
            for at, _, _, row_epoch, host, body in rows:
                minute = at.replace(second=0, microsecond=0)
                for tenant, metric, policy, quantity in _decode_counts(body).counts:
                    quantities[uuid.UUID(tenant), row_epoch, host, minute, metric, policy] += quantity
                await rounds.give_way()
            if len(rows) < _PAGE:
                break
            place = dict(zip(("at", "host", "seq"), rows[-1], strict=False))
            reached = rows[-1][0].replace(second=0, microsecond=0)
            if reached > since and time.monotonic() > end:
                until = reached
                quantities = Counter({key: n for key, n in quantities.items() if key[3] < until})
                break
        if quantities:
            await run(connection, "seal_insert", _columns(quantities + _replicated(quantities, standbys)))
        return until

    async def unshipped_meters(self, *, cell: str, limit: int) -> Sequence[MeterRecord]:
        """Sealed records that the control plane has not acknowledged, oldest first."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "meters_unshipped", {"limit": limit})
            return [
                MeterRecord(
                    tenant_id=encode(TENANT, tenant),
                    cell=cell,
                    store=store,
                    epoch=epoch,
                    host=host,
                    minute=minute.strftime(_MINUTE_FORMAT),
                    metric=Metric(metric),
                    region_policy=policy,
                    quantity=quantity,
                )
                for tenant, store, epoch, host, minute, metric, policy, quantity in rows
            ]

    async def meters_sealed_until(self) -> SealedUntil:
        """See `ports.Store.meters_sealed_until`."""
        async with self._database.transaction() as connection:
            store, epoch, until = await fetch_row(connection, "meters_sealed_until")
            return SealedUntil(store=store, epoch=epoch, sealed_until=until.strftime(_MINUTE_FORMAT))

    async def mark_shipped(self, records: Sequence[MeterRecord], *, refused: str | None = None) -> None:
        """The control plane has these records, or refuses them for a reason."""
        tenants = [decode(TENANT, r.tenant_id) for r in records]
        async with self._database.transaction() as connection:
            await run(
                connection,
                "meters_shipped",
                {
                    "tenants": uuids([tenant for tenant in tenants if tenant is not None]),
                    "stores": int2s([r.store for r in records]),
                    "epochs": int8s([r.epoch for r in records]),
                    "hosts": texts([r.host for r in records]),
                    "minutes": instants([from_datetime(datetime.fromisoformat(r.minute)) for r in records]),
                    "metrics": texts([r.metric for r in records]),
                    "policies": texts([r.region_policy for r in records]),
                    "refused": refused,
                },
            )


def _replicated(quantities: Counter[Key], standbys: int) -> Counter[Key]:
    """The row writes in other regions of what was counted."""
    found: Counter[Key] = Counter()
    for (tenant, epoch, host, minute, metric, policy), quantity in quantities.items():
        writes = replicated_writes(Metric(metric), policy, quantity, standbys=standbys)
        if writes:
            found[tenant, epoch, host, minute, Metric.REPLICATED_WRITES.value, policy] += writes
    return found


def _columns(quantities: Counter[Key]) -> dict[str, object]:
    keys = list(quantities)
    return {
        "tenants": uuids([key[0] for key in keys]),
        "epochs": int8s([key[1] for key in keys]),
        "hosts": texts([key[2] for key in keys]),
        "minutes": instants([from_datetime(key[3]) for key in keys]),
        "metrics": texts([key[4] for key in keys]),
        "policies": texts([key[5] for key in keys]),
        "quantities": int8s(list(quantities.values())),
    }
