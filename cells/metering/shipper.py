"""Ships sealed minutes, and sends them again until each has been acknowledged.

The receiver recognises a record by its key, so sending twice adds nothing and a lost answer
loses nothing. What it refuses stays here with the reason, for a person to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cells.contract import MeterRecord, SealedUntil
from cells.metering.receiver import Away, Receiver, Rejected
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Store

log = logger(__name__)

#: Records in one call; the receiver takes no more.
BATCH = 5000
ACKNOWLEDGED = frozenset({"accepted", "identical"})
#: Never taken, however often they are sent. Other answers (`too_new`: a clock is off) may change.
REFUSED = frozenset({"conflict", "not_placed", "too_old"})


class Shipper:
    """Several at once do no harm, they only send the same records."""

    def __init__(
        self,
        store: Store,
        receiver: Receiver,
        clock: Clock,
        metrics: Metrics,
        *,
        cell: str,
        batch: int = BATCH,
    ) -> None:
        self._store, self._receiver, self._clock = store, receiver, clock
        self._cell, self._batch = cell, batch
        self._told: SealedUntil | None = None  # what the control plane has heard from here
        self._shipped = metrics.counter("meter_records_shipped_total", "Meter records acknowledged")
        self._refused = metrics.counter(
            "meter_records_refused_total", "Meter records that the control plane refused for good", ["reason"]
        )
        self._oldest = metrics.gauge(
            "meter_oldest_unshipped_seconds", "Age of the oldest sealed minute that is not acknowledged"
        )

    async def ship(self) -> bool:
        """Send one batch, and how far all is answered for; whether there may be more. Where the cell has
        sites in other regions, one of them has it first: what a takeover undoes was never billed, and what
        it counts again is the same. Raises `Away`, and what the store raises."""
        sealed = await self._store.meters_sealed_until()
        records = await self._store.unshipped_meters(cell=self._cell, limit=self._batch)
        self._oldest.set(self._age(records[0]) if records else 0)
        news = () if sealed == self._told else (sealed,)
        if records or news:
            await self._store.confirm(strict=False)
            if await self._send(records, news):
                self._told = sealed
        return len(records) == self._batch

    async def _send(self, records: Sequence[MeterRecord], sealed: Sequence[SealedUntil] = ()) -> bool:
        """Send and settle; whether `sealed` was heard. A call refused as a whole is halved until the culprit
        is alone."""
        try:
            results = await self._receiver.send(records, sealed)
        except Rejected as fault:
            if not records:
                raise Away(f"how far was refused: {fault}") from None
            if sealed:
                # No record may be refused for the word that came with it.
                await self._send(records)
            elif len(records) == 1:
                await self._refuse(records, "rejected", detail=str(fault))
            else:
                middle = len(records) // 2
                await self._send(records[:middle])
                await self._send(records[middle:])
            return False
        taken = [r for r, result in zip(records, results, strict=True) if result in ACKNOWLEDGED]
        if taken:
            await self._store.mark_shipped(taken)
            self._shipped.inc(len(taken))
        for reason in sorted(REFUSED & set(results)):
            await self._refuse(
                [r for r, result in zip(records, results, strict=True) if result == reason], reason
            )
        if unknown := {result[:40] for result in results} - ACKNOWLEDGED - REFUSED:
            raise Away(f"not taken now: {', '.join(sorted(unknown)[:5])}")
        return True

    async def _refuse(self, records: Sequence[MeterRecord], reason: str, *, detail: str = "") -> None:
        await self._store.mark_shipped(records, refused=f"{reason}: {detail}" if detail else reason)
        self._refused.labels(reason).inc(len(records))
        for record in records[:10]:
            log.error("meter record refused", reason=reason, detail=detail, record=record)
        if len(records) > 10:
            log.error("meter records refused", reason=reason, records=len(records))

    def _age(self, record: MeterRecord) -> float:
        return self._clock.now_ms() / 1000 - datetime.fromisoformat(record.minute).timestamp()
