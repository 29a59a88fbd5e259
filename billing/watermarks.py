"""How far cells have sealed: what they say, and whether it is enough to close a month."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django.utils.module_loading import import_string

from billing.sql import named_sql
from cells.contract import HostSealed

_SQL = named_sql("periods")
#: How far ahead of our clock a cell's may be.
_AHEAD = timedelta(minutes=5)
_BIGGEST = 2**63 - 1


#: A store that counted: (cell, number).
Store = tuple[str, int]
#: The stores that may have counted for each of some tenants in [since, until), by their stays.
StoresOf = Callable[[Collection[uuid.UUID], datetime, datetime], Mapping[uuid.UUID, Collection[Store]]]


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
    """Remembers whoever counts or may from now on: (cell, store, epoch). Its first record says so, and a
    takeover does before it: from then on the word of an older owner closes nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["known_owners"],
            {
                "cell": [cell for cell, _, _ in owners],
                "store": [store for _, store, _ in owners],
                "epoch": [epoch for _, _, epoch in owners],
            },
        )


def newest(cells: Collection[str]) -> dict[Store, Watermark]:
    """By cell and store, the watermark of the newest owner that was heard of."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["watermarks"], {"cells": list(cells)})
        return {
            (cell, store): Watermark(cell=cell, store=store, epoch=epoch, sealed_until=sealed)
            for cell, store, epoch, sealed in cursor.fetchall()
        }


def stores_of(
    tenants: Collection[uuid.UUID], since: datetime, until: datetime
) -> Mapping[uuid.UUID, Collection[Store]]:
    """Where tenants may have been counted in [since, until), as the installation knows it."""
    asked: StoresOf = import_string(settings.BILLING_STORES)
    return asked(tenants, since, until)


def missing(stores: Collection[Store], known: Mapping[Store, Watermark], end: datetime) -> list[Store]:
    """The stores whose newest owner has not sealed up to `end`. An owner vouches for all before it:
    it has their database. Every store of a cell that ever spoke counts, named or not."""
    cells = {cell for cell, _ in stores}
    needed = {*stores, *(store for store in known if store[0] in cells)}
    return sorted(store for store in needed if not _sealed(known.get(store), end))


def _sealed(mark: Watermark | None, end: datetime) -> bool:
    return mark is not None and mark.sealed_until is not None and mark.sealed_until >= end


# --- routers: they own nothing, and count requests for whomever they serve -----------------------
def hear_incarnations(said: Sequence[HostSealed]) -> None:
    """Keeps what incarnations of routers say of what they counted: that nothing of a minute before
    `sealed_until` comes any more; nothing at all where one has `ended`. Raises `MalformedWatermark`."""
    if not said:
        return
    parsed = {each.host: (_minute(n, each.sealed_until), each.ended) for n, each in enumerate(said)}
    if any(not 0 < len(host) <= 200 or "\0" in host for host in parsed):
        raise MalformedWatermark("/incarnations: host too long or missing")
    hosts = list(parsed)
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["incarnations"],
            {
                "hosts": hosts,
                "sealed_until": [parsed[host][0] for host in hosts],
                "ended": [parsed[host][1] for host in hosts],
            },
        )


def silent_incarnations(end: datetime) -> list[tuple[str, datetime]]:
    """The routers that may still count for minutes before `end`, and how far each has sealed. One that
    was not heard of for three days is not waited for: what it sends one day is an adjustment."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["silent_incarnations"], {"end": end})
        return cursor.fetchall()


def words(lacking: Iterable[Store], known: Mapping[Store, Watermark]) -> list[str]:
    """What the given stores have said, for people."""
    return [_words(store, known.get(store)) for store in lacking]


def _words(store: Store, mark: Watermark | None) -> str:
    cell, number = store
    name = cell if number == 0 else f"store {number} of {cell}"
    if mark is None or mark.sealed_until is None:
        return f"{name} has sealed nothing yet"
    return f"{name} has sealed up to {mark.sealed_until:%Y-%m-%dT%H:%MZ}"
