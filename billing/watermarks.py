"""How far cells have sealed: what they say, and whether it is enough to close a month."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django.utils.module_loading import import_string

from billing.sql import named_sql

_SQL = named_sql("periods")
#: How far ahead of our clock a cell's may be.
_AHEAD = timedelta(minutes=5)
_BIGGEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A store that counted for a tenant. `epoch`: its newest owner's, at least; 0 where not known."""

    cell: str
    store: int
    epoch: int


#: Who owned a tenant in [since, until), by the epoch history.
OwnersOf = Callable[[uuid.UUID, datetime, datetime], Sequence[Owner]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Watermark:
    """Every record of a minute before `sealed_until` (None: nothing said yet) has arrived."""

    cell: str
    store: int
    epoch: int
    sealed_until: datetime | None


class MalformedWatermark(Exception):
    """A watermark that no correct cell sends."""


def raise_watermarks(cell: str, said: Sequence[tuple[int, int, str]]) -> None:
    """Keeps what a cell says of its stores: (store, epoch, whole minute). What is behind an earlier
    word of the same epoch changes nothing. Raises `MalformedWatermark`."""
    if not said:
        return
    parsed = [(store, epoch, _minute(n, text)) for n, (store, epoch, text) in enumerate(said)]
    for n, (store, epoch, minute) in enumerate(parsed):
        if not 0 <= store <= 255 or not 0 <= epoch <= _BIGGEST:
            raise MalformedWatermark(f"/watermarks/{n}: store or epoch out of range")
        if minute > timezone.now() + _AHEAD:
            raise MalformedWatermark(f"/watermarks/{n}/sealed_until: lies ahead")
    # The same store twice in one statement could not be decided.
    highest: dict[tuple[int, int], datetime] = {}
    for store, epoch, minute in parsed:
        highest[store, epoch] = max(minute, highest.get((store, epoch), minute))
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["watermark"],
            {
                "cell": cell,
                "store": [store for store, _ in highest],
                "epoch": [epoch for _, epoch in highest],
                "sealed_until": list(highest.values()),
            },
        )


def _minute(n: int, text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:00Z").replace(tzinfo=UTC)
    except ValueError as e:
        raise MalformedWatermark(f"/watermarks/{n}/sealed_until: not a whole minute in UTC") from e


def know_owners(owners: Collection[tuple[str, int, int]]) -> None:
    """Remembers whoever counted: (cell, store, epoch)."""
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["known_owners"],
            {
                "cell": [cell for cell, _, _ in owners],
                "store": [store for _, store, _ in owners],
                "epoch": [epoch for _, _, epoch in owners],
            },
        )


def newest(cells: Collection[str]) -> dict[tuple[str, int], Watermark]:
    """By cell and store, the watermark of the newest owner that was heard of."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["watermarks"], {"cells": list(cells)})
        return {
            (cell, store): Watermark(cell=cell, store=store, epoch=epoch, sealed_until=sealed)
            for cell, store, epoch, sealed in cursor.fetchall()
        }


def owners_of(tenant_id: uuid.UUID, since: datetime, until: datetime) -> Sequence[Owner]:
    """Who owned a tenant in [since, until), as the installation knows it."""
    asked: OwnersOf = import_string(settings.BILLING_OWNERS)
    return asked(tenant_id, since, until)


def missing(
    owners: Sequence[Owner], known: Mapping[tuple[str, int], Watermark], end: datetime
) -> list[Owner]:
    """The stores whose newest owner has not sealed up to `end`. An owner vouches for all before it:
    it has their database. Every store of a cell that ever spoke counts, named or not."""
    needed = {(o.cell, o.store): o.epoch for o in owners}
    cells = {o.cell for o in owners}
    for cell, store in known:
        if cell in cells:
            needed.setdefault((cell, store), 0)
    lacking = []
    for (cell, store), epoch in sorted(needed.items()):
        mark = known.get((cell, store))
        if mark is None or mark.epoch < epoch or mark.sealed_until is None or mark.sealed_until < end:
            lacking.append(Owner(cell=cell, store=store, epoch=max(epoch, mark.epoch if mark else 0)))
    return lacking
